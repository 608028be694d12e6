//! Reads the samples of a shard.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::layout::{
    Damage, Entry, FOOTER, Footer, HEADER, Head, Header, Identity, Index, MOST_TABLES, parse_tables,
};
use super::manifest::ShardFacts;
use super::ranges::Ranges;
use super::recover::recover;
use crate::{SampleBytes, StorageError};

/// An open shard. Many threads may read it at once.
pub struct Shard {
    path: PathBuf,
    ranges: Box<dyn Ranges>,
    index: Index,
    damage: Option<Damage>,
    /// What its packed JPEGs are read with, where they need others than every program has.
    tables: Option<Arc<[u8]>>,
    tables_damage: Option<Damage>,
}

impl Shard {
    /// Opens the shard that a manifest describes by `id`, its `number` and `facts`. `path` is for messages.
    ///
    /// If the index is damaged or cut off, it searches for the records ([`Shard::damage`] reports that);
    /// reading a sample whose record was not found is an error. Without `facts` that is not possible, because
    /// the number of samples is unknown. Without its tables ([`Shard::tables_damage`]) a shard is read all the same; only its
    /// packed JPEGs cannot be decoded.
    ///
    /// # Errors
    /// The bytes cannot be read; they belong to another shard, or the manifest does; they have a version that this program
    /// does not know; without `facts`, the index is damaged.
    pub fn open(
        ranges: Box<dyn Ranges>,
        path: PathBuf,
        id: u64,
        number: u32,
        classes: &[String],
        facts: Option<&ShardFacts>,
    ) -> Result<Self, StorageError> {
        let failed = |source| StorageError::Read {
            path: path.clone(),
            source,
        };
        let other = |reason: String| StorageError::Prepared {
            path: path.clone(),
            reason,
        };
        let size = ranges.size().map_err(failed)?;
        let expected = Identity { id, number };
        let is_other = |found: Identity| (found != expected).then(|| other(who(found, expected)));
        // Where the tables should end, if there are any.
        let (index, damage, records) = match read_index(&*ranges, size).map_err(failed)? {
            Ok((identity, index)) => {
                if let Some(error) = is_other(identity) {
                    return Err(error);
                }
                let labels = || index.entries.iter().map(|entry| entry.label);
                let same = facts.is_none_or(|facts| labels().eq(facts.labels()));
                if !same || index.classes != classes {
                    return Err(other(
                        "its samples or classes are not those that shards.json lists; one of the two was changed, so \
                         restore it, or prepare the data set again"
                            .into(),
                    ));
                }
                let records = index.entries.first().map_or(HEADER as u64, |first| first.offset);
                (index, None, records)
            }
            Err(damage) => {
                let mut header = [0; HEADER];
                if size >= HEADER as u64 {
                    ranges.read_range(0, &mut header).map_err(failed)?;
                }
                let header = Header::parse(&header).ok();
                if let Some(header) = header {
                    header.check_version().map_err(other)?;
                    if let Some(error) = is_other(header.identity) {
                        return Err(error);
                    }
                }
                let Some(facts) = facts else {
                    return Err(other(damage.to_string()));
                };
                // Without the header, the tables are searched through for the first record.
                let tables = header.map_or(0, |header| u64::from(header.tables));
                let first = match tables <= MOST_TABLES as u64 {
                    true => HEADER as u64 + tables,
                    false => HEADER as u64,
                };
                let mut index = recover(&*ranges, size, facts.samples(), first).map_err(failed)?;
                let found = index.entries.iter().filter(|entry| entry.offset > 0);
                let records = match header {
                    Some(_) => HEADER as u64 + tables,
                    None => found.map(|entry| entry.offset).min().unwrap_or(HEADER as u64),
                };
                for (entry, label) in index.entries.iter_mut().zip(facts.labels()) {
                    // A record with another label does not belong to this shard.
                    if entry.label != label {
                        (entry.length, entry.label) = (0, label);
                    }
                }
                (index, Some(damage), records)
            }
        };
        let (tables, tables_damage) = match read_tables(&*ranges, size, records).map_err(failed)? {
            Ok(Tables::Read(tables)) => (tables, None),
            Ok(Tables::Unknown(reason)) => return Err(other(reason)),
            Err(damage) => (None, Some(damage)),
        };
        Ok(Self {
            path,
            ranges,
            index,
            damage,
            tables,
            tables_damage,
        })
    }

    /// The number of samples, lost ones included.
    pub fn len(&self) -> usize {
        self.index.entries.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.index.entries.is_empty()
    }

    /// What is wrong with the index, if it was rebuilt from the records.
    pub fn damage(&self) -> Option<&Damage> {
        self.damage.as_ref()
    }

    /// What its packed JPEGs are read with, where they need others than every program has.
    pub fn tables(&self) -> Option<&[u8]> {
        self.tables.as_deref()
    }

    /// What is wrong with the tables, if they cannot be used.
    pub fn tables_damage(&self) -> Option<&Damage> {
        self.tables_damage.as_ref()
    }

    /// What to say of damaged tables: what is wrong with them, and what becomes of the packed JPEGs.
    pub fn tables_warning(&self) -> Option<String> {
        let damage = self.tables_damage.as_ref()?;
        let outcome = match self.tables {
            Some(_) => "those of another shard are used",
            None => "no packed JPEG that needs them can be read",
        };
        let path = self.path.display();
        Some(format!(
            "{path}: the tables of its packed JPEGs are {damage}; {outcome}"
        ))
    }

    /// Uses the tables of another shard of the same part in place of damaged ones. Mostly they are the same; the decoder compares
    /// their number with the one that every image names.
    pub(super) fn borrow_tables(&mut self, of: &Self) {
        if self.tables_damage.is_some() {
            self.tables.clone_from(&of.tables);
        }
    }

    /// Takes tables that another shard has already, if they are the same, so that they are in memory once.
    pub(super) fn share_tables(&mut self, with: &Self) {
        if let (Some(own), Some(tables)) = (&mut self.tables, &with.tables)
            && own == tables
        {
            own.clone_from(tables);
        }
    }

    /// Checks the header, which a shard with a good index is opened without.
    ///
    /// # Errors
    /// The header cannot be read, is damaged, or has a version that this program does not know.
    pub fn check_header(&self) -> Result<(), StorageError> {
        let mut bytes = [0; HEADER];
        self.ranges
            .read_range(0, &mut bytes)
            .map_err(|source| StorageError::Read {
                path: self.path.clone(),
                source,
            })?;
        let header = Header::parse(&bytes).map_err(|damage| damage.to_string());
        header
            .and_then(|header| header.check_version())
            .map_err(|reason| StorageError::Prepared {
                path: self.path.clone(),
                reason,
            })
    }

    /// The shard's file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The index entry of sample `number`, which must be below [`Shard::len`].
    pub fn entry(&self, number: usize) -> Entry {
        self.index.entries[number]
    }

    /// The name of sample `number`, which must be below [`Shard::len`]; empty if it is lost.
    pub fn name(&self, number: usize) -> &[u8] {
        self.index.name(number)
    }

    /// Reads sample `number`, which must be below [`Shard::len`].
    ///
    /// # Errors
    /// The bytes cannot be read, or are damaged: every byte of the record is checked.
    pub fn read(&self, number: usize, into: &mut SampleBytes) -> Result<(), StorageError> {
        let entry = self.index.entries[number];
        let lost = |damage: Damage| StorageError::ShardDamaged {
            path: self.path.clone(),
            sample: self.sample_name(number),
            damage,
        };
        if entry.length == 0 {
            let damage = self.damage.as_ref();
            let byte = damage.map_or(0, |damage| damage.byte);
            return Err(lost(Damage {
                byte,
                reason: "the index is damaged, and the sample's record was not found".into(),
            }));
        }
        into.tables.clone_from(&self.tables);
        // Do not clear it first: growing would zero bytes that the read overwrites anyway.
        into.buffer.resize(entry.length as usize, 0);
        match self.ranges.read_range(entry.offset, &mut into.buffer) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(lost(Damage::at(entry.offset, "the record is cut off")));
            }
            Err(source) => {
                return Err(StorageError::Read {
                    path: self.path.clone(),
                    source,
                });
            }
        }
        let head = self.check_head(number, entry, &into.buffer).map_err(lost)?;
        if crc32fast::hash(&into.buffer[head.len()..]) != head.file_crc {
            let byte = entry.offset + head.len() as u64;
            return Err(lost(Damage::at(
                byte,
                "the checksum of the record's file is wrong",
            )));
        }
        into.start = head.len();
        Ok(())
    }

    /// Announces that sample `number`, which must be below [`Shard::len`], will be read soon.
    pub fn expect(&self, number: usize) {
        let entry = self.index.entries[number];
        self.ranges.expect(entry.offset, entry.length);
    }

    /// How many samples in advance [`Shard::expect`] is useful.
    pub fn reach(&self) -> usize {
        self.ranges.reach()
    }

    /// Checks the head at the beginning of `record`.
    fn check_head(&self, number: usize, entry: Entry, record: &[u8]) -> Result<Head, Damage> {
        let damage = |reason: &str| Damage::at(entry.offset, reason);
        let fixed = record
            .first_chunk()
            .ok_or_else(|| damage("no record is so short"))?;
        let head = Head::parse(fixed, entry.offset)?;
        let other = || damage("the record is another one than the index says");
        if head.entry(entry.offset, entry.name_end) != entry || head.number as usize != number {
            return Err(other());
        }
        let bytes = &record[..head.len()];
        head.verify(bytes, entry.offset)?;
        match head.name(bytes) == self.name(number) {
            true => Ok(head),
            false => Err(other()),
        }
    }

    /// The sample's name in messages.
    fn sample_name(&self, number: usize) -> String {
        match self.name(number) {
            [] => format!("number {number}"),
            name => String::from_utf8_lossy(name).into_owned(),
        }
    }
}

fn who(found: Identity, expected: Identity) -> String {
    match found.id == expected.id {
        true => format!(
            "this is shard {} in the place of shard {}; the files were mixed up",
            found.number, expected.number
        ),
        false => {
            "this shard belongs to another data set or another part of it; the files were mixed up".into()
        }
    }
}

type ReadIndex = Result<(Identity, Index), Damage>;

/// Reads footer and index; the outer error is an error of reading.
fn read_index(ranges: &dyn Ranges, size: u64) -> io::Result<ReadIndex> {
    let Some(at) = size.checked_sub((HEADER + FOOTER) as u64) else {
        return Ok(Err(Damage::at(size, "no shard is so short; it is cut off")));
    };
    let mut bytes = [0; FOOTER];
    ranges.read_range(at + HEADER as u64, &mut bytes)?;
    let footer = match Footer::parse(&bytes, size) {
        Ok(footer) => footer,
        Err(damage) => return Ok(Err(damage)),
    };
    let mut bytes = vec![0; footer.index_length as usize];
    ranges.read_range(footer.index, &mut bytes)?;
    if crc32fast::hash(&bytes) != footer.index_crc {
        return Ok(Err(Damage::at(footer.index, "the index's checksum is wrong")));
    }
    Ok(Index::parse(&bytes, footer.samples, footer.index).map(|index| (footer.identity, index)))
}

/// What stands before the first record.
enum Tables {
    /// The tables, where there are any.
    Read(Option<Arc<[u8]>>),
    /// A version that is not known, and what to do.
    Unknown(String),
}

/// Reads the tables, which end where the records begin; the outer error is an error of reading.
fn read_tables(ranges: &dyn Ranges, size: u64, records: u64) -> io::Result<Result<Tables, Damage>> {
    // Most shards have none, and cost no read.
    if records <= HEADER as u64 {
        return Ok(Ok(Tables::Read(None)));
    }
    let damage = |reason: &str| Ok(Err(Damage::at(HEADER as u64, reason)));
    if records - HEADER as u64 > MOST_TABLES as u64 {
        return damage("no tables of packed JPEGs are as long as these");
    }
    if records > size {
        return damage("the tables of its packed JPEGs are cut off");
    }
    let mut bytes = vec![0; records as usize];
    ranges.read_range(0, &mut bytes)?;
    // The tables have a checksum of their own and need no header, but of another version they may be something else.
    if let Some(header) = bytes.first_chunk()
        && let Ok(header) = Header::parse(header)
        && let Err(reason) = header.check_version()
    {
        return Ok(Ok(Tables::Unknown(reason)));
    }
    Ok(parse_tables(&bytes[HEADER..]).map(|tables| Tables::Read(Some(tables.into()))))
}
