//! Writes a shard, record by record.

use std::io::{self, Write};

use super::layout::{self, FOOTER, Footer, HEAD, Head, Header, Identity, Index, MOST_TABLES, VERSION};
use super::manifest::ShardFacts;

/// A sample to write: an image file and its properties.
///
/// Making a record is the expensive part (the checksum of the file), and many threads do it.
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
    file_crc: u32,
}

impl Record {
    /// A record of an image file.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] if the name or the file do not fit into a record.
    pub fn new(name: Vec<u8>, label: u32, (width, height): (u32, u32), file: Vec<u8>) -> io::Result<Self> {
        // No file system has longer names, and the file leaves room for the head.
        if name.len() >= 1 << 16 || file.len() >= 1 << 31 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the name or the file do not fit a record",
            ));
        }
        let file_crc = crc32fast::hash(&file);
        Ok(Self {
            name,
            label,
            width,
            height,
            file,
            file_crc,
        })
    }

    /// The bytes that it adds to a shard.
    fn size(&self) -> u64 {
        // The name is in the index too.
        (HEAD + layout::ENTRY + 2 * self.name.len() + self.file.len()) as u64
    }
}

/// Writes one shard.
pub struct ShardWriter<W> {
    out: W,
    identity: Identity,
    written: u64,
    crc: crc32fast::Hasher,
    index: Index,
    head: Vec<u8>,
}

impl<W: Write> ShardWriter<W> {
    /// Begins shard `number` of the part of a data set with the identifier `id`. `tables` are what its packed JPEGs are read
    /// with, where they need others than every program has.
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
        let identity = Identity { id, number };
        let header = Header {
            version: VERSION,
            identity,
            tables: section.len() as u32,
        };
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
        };
        writer.put(&header.write())?;
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

    /// Writes the next record.
    ///
    /// # Errors
    /// The writer's error.
    pub fn push(&mut self, record: &Record) -> io::Result<()> {
        let head = Head {
            crc: 0,
            file_crc: record.file_crc,
            length: (HEAD + record.name.len() + record.file.len()) as u32,
            number: self.index.entries.len() as u32,
            label: record.label,
            width: record.width,
            height: record.height,
            name: record.name.len() as u32,
        };
        let mut bytes = std::mem::take(&mut self.head);
        bytes.clear();
        head.write(&record.name, &mut bytes);
        self.index.names.extend(&record.name);
        let entry = head.entry(self.written, self.index.names.len() as u32);
        self.index.entries.push(entry);
        self.put(&bytes)?;
        self.put(&record.file)?;
        self.head = bytes;
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
