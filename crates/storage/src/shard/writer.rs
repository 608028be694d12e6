//! Writing a shard, record after record.

use std::io::{self, Write};

use super::layout::{self, FOOTER, Footer, HEAD, Head, Identity, Index};
use super::manifest::ShardFacts;

/// A sample as it is written: an image file and what is known of it.
///
/// Making one is the dear half of writing (the checksum of the body), and is done by many threads.
#[derive(Debug, Clone)]
pub struct Record {
    /// The path below the folder of its part, as the file system has it.
    pub name: Vec<u8>,
    /// The number of its class.
    pub label: u32,
    /// Columns, as stored.
    pub width: u32,
    /// Rows, as stored.
    pub height: u32,
    file: Vec<u8>,
    rows: Vec<u32>,
    body_crc: u32,
}

impl Record {
    /// A record of an image file. `rows` says where in `file` the coded data of each MCU row of a JPEG begins, and at the
    /// end where that of the last one ends; it is empty where rows cannot be read by themselves.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] where a name, a file or the rows do not fit a record.
    pub fn new(
        name: Vec<u8>,
        label: u32,
        (width, height): (u32, u32),
        file: Vec<u8>,
        rows: Vec<u32>,
    ) -> io::Result<Self> {
        let in_order = rows.is_sorted() && rows.last().is_none_or(|&end| end as usize <= file.len());
        let fits = u16::try_from(name.len()).is_ok()
            && rows.len() != 1
            && rows.len() <= usize::from(u16::MAX)
            // Leaves room for the head.
            && file.len() < 1 << 31;
        if !in_order || !fits {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the name, the file or its rows do not fit a record",
            ));
        }
        let body = rows.first().map_or(0, |&first| first as usize);
        let body_crc = crc32fast::hash(&file[body..]);
        Ok(Self {
            name,
            label,
            width,
            height,
            file,
            rows,
            body_crc,
        })
    }

    /// The bytes that it adds to a shard.
    fn size(&self) -> u64 {
        let lengths: u64 = self
            .rows
            .windows(2)
            .map(|pair| layout::row_length_size(pair[1] - pair[0]))
            .sum();
        // The name is in the index too.
        let known = HEAD + layout::ENTRY + 2 * self.name.len() + self.file.len();
        known as u64 + lengths
    }
}

/// Writes one shard to anything that takes bytes.
pub struct ShardWriter<W> {
    out: W,
    identity: Identity,
    written: u64,
    crc: crc32fast::Hasher,
    index: Index,
    head: Vec<u8>,
    rest: Vec<u8>,
}

impl<W: Write> ShardWriter<W> {
    /// Begins shard `number` of the part of a data set that `id` stands for.
    ///
    /// # Errors
    /// What writing reports.
    pub fn new(out: W, id: u64, number: u32, classes: &[String]) -> io::Result<Self> {
        let identity = Identity { id, number };
        let mut writer = Self {
            out,
            identity,
            written: 0,
            crc: crc32fast::Hasher::new(),
            index: Index {
                classes: classes.to_vec(),
                ..Index::default()
            },
            head: Vec::new(),
            rest: Vec::new(),
        };
        writer.put(&layout::header(identity))?;
        Ok(writer)
    }

    /// The bytes that the shard has if it is finished after `record`.
    pub fn size_with(&self, record: &Record) -> u64 {
        let classes: usize = self.index.classes.iter().map(|class| 2 + class.len()).sum();
        let index = self.index.entries.len() * layout::ENTRY + self.index.names.len() + 4 + classes;
        self.written + record.size() + (index + FOOTER) as u64
    }

    /// Whether there is no record in it.
    pub fn is_empty(&self) -> bool {
        self.index.entries.is_empty()
    }

    /// Writes the next record.
    ///
    /// # Errors
    /// What writing reports.
    pub fn push(&mut self, record: &Record) -> io::Result<()> {
        let body = record.rows.first().map_or(0, |&first| first as usize);
        let mut rest = std::mem::take(&mut self.rest);
        rest.clear();
        rest.extend(&record.name);
        layout::write_row_lengths(&record.rows, &mut rest);
        rest.extend(&record.file[..body]);
        let head_length = HEAD + rest.len();
        let head = Head {
            crc: 0,
            body_crc: record.body_crc,
            length: (head_length + record.file.len() - body) as u32,
            head: head_length as u32,
            number: self.index.entries.len() as u32,
            label: record.label,
            width: record.width,
            height: record.height,
            name: record.name.len() as u16,
            rows: record.rows.len().saturating_sub(1) as u16,
        };
        let mut bytes = std::mem::take(&mut self.head);
        bytes.clear();
        head.write(&rest, &mut bytes);
        self.index.names.extend(&record.name);
        let entry = head.entry(self.written, self.index.names.len() as u32);
        self.index.entries.push(entry);
        self.put(&bytes)?;
        self.put(&record.file[body..])?;
        (self.head, self.rest) = (bytes, rest);
        Ok(())
    }

    /// Writes index and footer. Returns what bytes were written to, and the shard's line in the manifest for a file of
    /// the name `file`.
    ///
    /// # Errors
    /// What writing reports.
    pub fn finish(mut self, file: String) -> io::Result<(W, ShardFacts)> {
        let index = self.index.write();
        let footer = Footer {
            identity: self.identity,
            samples: self.index.entries.len() as u32,
            index: self.written,
            index_length: index.len() as u64,
            index_crc: crc32fast::hash(&index),
        };
        self.put(&index)?;
        self.put(&footer.write())?;
        let labels = self.index.entries.iter().map(|entry| entry.label);
        let facts = ShardFacts::new(file, self.written, self.crc.finalize(), labels);
        Ok((self.out, facts))
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all(bytes)?;
        self.crc.update(bytes);
        self.written += bytes.len() as u64;
        Ok(())
    }
}
