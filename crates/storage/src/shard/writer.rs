//! Writes a shard, record by record.

use std::io::{self, Seek, SeekFrom, Write};

use super::layout::{
    self, FIRST_VERSION, FOOTER, Footer, HEAD, Head, Header, Identity, Index, MOST_TABLES, PACKED_VERSION,
};
use super::manifest::ShardFacts;

/// A sample to write: an image file and its properties.
///
/// Making a record is the expensive part (the checksum of the body), and many threads do it.
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
    /// Whether the file is the packed form of a JPEG, which only shards of version 2 have.
    pub packed: bool,
    file: Vec<u8>,
    rows: Vec<u32>,
    body_crc: u32,
}

impl Record {
    /// A record of an image file. `rows` has the positions in `file` of the coded data of each MCU row of a
    /// JPEG, and at the end the end of the last row; it is empty if rows cannot be read independently.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] if a name, a file or the rows do not fit into a record.
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
            packed: false,
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

/// Writes one shard to a file, or to anything else that can be gone back in.
pub struct ShardWriter<W> {
    out: W,
    header: Header,
    written: u64,
    /// Of what follows the header, whose version the last record may still change.
    crc: crc32fast::Hasher,
    index: Index,
    head: Vec<u8>,
    rest: Vec<u8>,
}

impl<W: Write + Seek> ShardWriter<W> {
    /// Begins shard `number` of the part of a data set with the identifier `id`. `out` must be at its beginning. `tables` are
    /// what its packed JPEGs are read with, where they need others than every program has.
    ///
    /// # Errors
    /// The writer's error; [`io::ErrorKind::InvalidInput`] if the tables do not fit a shard.
    pub fn new(out: W, id: u64, number: u32, classes: &[String], tables: Option<&[u8]>) -> io::Result<Self> {
        let section = tables.map(layout::tables_section).unwrap_or_default();
        if section.len() > MOST_TABLES {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the tables of packed JPEGs do not fit a shard",
            ));
        }
        let header = Header {
            version: if tables.is_some() {
                PACKED_VERSION
            } else {
                FIRST_VERSION
            },
            identity: Identity { id, number },
            tables: section.len() as u32,
        };
        let mut writer = Self {
            out,
            header,
            written: 0,
            crc: crc32fast::Hasher::new(),
            index: Index {
                classes: classes.to_vec(),
                ..Index::default()
            },
            head: Vec::new(),
            rest: Vec::new(),
        };
        let header = header.write();
        writer.out.write_all(&header)?;
        writer.written = header.len() as u64;
        writer.put(&section)?;
        Ok(writer)
    }

    /// The size of the shard if it is finished after `record`, bytes.
    pub fn size_with(&self, record: &Record) -> u64 {
        let classes: usize = self.index.classes.iter().map(|class| 2 + class.len()).sum();
        let index = self.index.entries.len() * layout::ENTRY + self.index.names.len() + 4 + classes;
        self.written + record.size() + (index + FOOTER) as u64
    }

    /// Whether there is no record in it.
    pub fn is_empty(&self) -> bool {
        self.index.entries.is_empty()
    }

    /// The version of the format that it needs so far, 1 or 2.
    pub fn version(&self) -> u32 {
        self.header.version
    }

    /// Writes the next record.
    ///
    /// # Errors
    /// The writer's error.
    pub fn push(&mut self, record: &Record) -> io::Result<()> {
        if record.packed {
            self.header.version = PACKED_VERSION;
        }
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

    /// Writes index and footer. Returns the writer, and the manifest's entry for the shard under the file
    /// name `file`.
    ///
    /// # Errors
    /// The writer's error.
    pub fn finish(mut self, file: String) -> io::Result<(W, ShardFacts)> {
        let index = self.index.write();
        let footer = Footer {
            identity: self.header.identity,
            samples: self.index.entries.len() as u32,
            index: self.written,
            index_length: index.len() as u64,
            index_crc: crc32fast::hash(&index),
        };
        self.put(&index)?;
        self.put(&footer.write())?;
        let header = self.header.write();
        if self.header.version != FIRST_VERSION {
            self.out.seek(SeekFrom::Start(0))?;
            self.out.write_all(&header)?;
            self.out.seek(SeekFrom::End(0))?;
        }
        let mut crc = crc32fast::Hasher::new();
        crc.update(&header);
        crc.combine(&self.crc);
        let labels = self.index.entries.iter().map(|entry| entry.label);
        let facts = ShardFacts::new(file, self.written, crc.finalize(), labels);
        Ok((self.out, facts))
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all(bytes)?;
        self.crc.update(bytes);
        self.written += bytes.len() as u64;
        Ok(())
    }
}
