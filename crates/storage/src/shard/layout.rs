//! The bytes of a shard, as `docs/reference/shard-format.md` lists them: what is written, and how it is checked when read.
//!
//! All numbers are little-endian. Nothing that is read is trusted: every length is compared with the bytes that are
//! there before it is used.

use std::fmt;

/// The bytes of a shard's header.
pub(super) const HEADER: usize = 32;
/// The bytes of a record's head before the name.
pub(super) const HEAD: usize = 36;
/// The bytes of an index entry.
pub(super) const ENTRY: usize = 28;
/// The bytes of a shard's footer.
pub(super) const FOOTER: usize = 48;
/// The bytes of the checksum at the end of the tables section.
pub(super) const TABLES_CRC: usize = 4;
/// No longer tables section is read or written; those of today are a thirtieth of it.
pub(super) const MOST_TABLES: usize = 1 << 20;
/// No larger index is read: it would be that of more than ten million samples.
pub(super) const MOST_INDEX_BYTES: u64 = 1 << 30;

pub(super) const HEADER_MAGIC: [u8; 8] = *b"SKSHARD\n";
pub(super) const HEAD_MAGIC: [u8; 4] = *b"SKrc";
const FOOTER_MAGIC: [u8; 8] = *b"SKSHEND\n";
/// The version of the format.
pub(super) const VERSION: u32 = 1;

/// Where a shard is not what it should be, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// The offset in the shard, in bytes.
    pub byte: u64,
    /// What is wrong there.
    pub reason: String,
}

impl Damage {
    pub(super) fn at(byte: u64, reason: impl Into<String>) -> Self {
        let reason = reason.into();
        Self { byte, reason }
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "damaged at byte {}: {}", self.byte, self.reason)
    }
}

/// Which shard of which data set this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Identity {
    /// That of all shards of one part of a data set.
    pub id: u64,
    /// The shard's number in it.
    pub number: u32,
}

/// What a shard's header says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub version: u32,
    pub identity: Identity,
    /// The bytes of the tables section, its checksum included; 0 where there is none.
    pub tables: u32,
}

/// What the index says of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Where its record begins, in bytes from the beginning of the shard.
    pub offset: u64,
    /// The bytes of its record.
    pub length: u32,
    /// The number of its class.
    pub label: u32,
    /// Columns of the image, as stored.
    pub width: u32,
    /// Rows of the image, as stored.
    pub height: u32,
    /// Where its name ends in the names of the shard; it begins where the one before ends.
    pub(super) name_end: u32,
}

/// The fixed part of a record's head.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Head {
    pub crc: u32,
    pub file_crc: u32,
    pub length: u32,
    pub number: u32,
    pub label: u32,
    pub width: u32,
    pub height: u32,
    /// The bytes of the name, which follows.
    pub name: u32,
}

impl Header {
    pub fn write(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..8].copy_from_slice(&HEADER_MAGIC);
        bytes[8..12].copy_from_slice(&self.version.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.identity.number.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.identity.id.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.tables.to_le_bytes());
        let crc = crc32fast::hash(&bytes[..28]);
        bytes[28..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads the header of a shard of any version.
    pub fn parse(bytes: &[u8; HEADER]) -> Result<Self, Damage> {
        if bytes[..8] != HEADER_MAGIC {
            return Err(Damage::at(0, "this is not how a shard begins"));
        }
        if crc32fast::hash(&bytes[..28]) != u32_at(bytes, 28) {
            return Err(Damage::at(0, "the header's checksum is wrong"));
        }
        Ok(Self {
            version: u32_at(bytes, 8),
            identity: Identity {
                id: u64_at(bytes, 16),
                number: u32_at(bytes, 12),
            },
            tables: u32_at(bytes, 24),
        })
    }

    /// Refuses a version that this program does not know; the error says what to do.
    pub fn check_version(&self) -> Result<(), String> {
        match self.version {
            VERSION => Ok(()),
            other => Err(format!(
                "version {other} of the format; this program reads version {VERSION}; update it, or prepare the data set again \
                 with it"
            )),
        }
    }
}

/// The tables section of `tables`.
pub(super) fn tables_section(tables: &[u8]) -> Vec<u8> {
    let crc = crc32fast::hash(tables);
    [tables, &crc.to_le_bytes()].concat()
}

/// The tables in a section that was read.
pub(super) fn parse_tables(section: &[u8]) -> Result<&[u8], Damage> {
    match section.split_last_chunk::<TABLES_CRC>() {
        Some((tables, crc)) if crc32fast::hash(tables) == u32::from_le_bytes(*crc) => Ok(tables),
        _ => Err(Damage::at(
            HEADER as u64,
            "the checksum of the tables of its packed JPEGs is wrong",
        )),
    }
}

impl Head {
    /// The head's bytes, with its checksum.
    pub fn write(&self, name: &[u8], into: &mut Vec<u8>) {
        let start = into.len();
        into.extend(HEAD_MAGIC);
        for number in [
            0,
            self.file_crc,
            self.length,
            self.number,
            self.label,
            self.width,
            self.height,
            self.name,
        ] {
            into.extend(number.to_le_bytes());
        }
        into.extend(name);
        let crc = crc32fast::hash(&into[start + 8..]);
        into[start + 4..start + 8].copy_from_slice(&crc.to_le_bytes());
    }

    /// Reads the fixed part; `at` is where it stands in the shard.
    pub fn parse(bytes: &[u8; HEAD], at: u64) -> Result<Self, Damage> {
        if bytes[..4] != HEAD_MAGIC {
            return Err(Damage::at(at, "no record begins here"));
        }
        let head = Self {
            crc: u32_at(bytes, 4),
            file_crc: u32_at(bytes, 8),
            length: u32_at(bytes, 12),
            number: u32_at(bytes, 16),
            label: u32_at(bytes, 20),
            width: u32_at(bytes, 24),
            height: u32_at(bytes, 28),
            name: u32_at(bytes, 32),
        };
        match HEAD as u64 + u64::from(head.name) <= u64::from(head.length) {
            true => Ok(head),
            false => Err(Damage::at(
                at,
                "the lengths in the record's head contradict each other",
            )),
        }
    }

    /// The bytes of the head, the name included.
    pub fn len(&self) -> usize {
        HEAD + self.name as usize
    }

    /// Whether `bytes`, all of the head, are what was written.
    pub fn verify(&self, bytes: &[u8], at: u64) -> Result<(), Damage> {
        match crc32fast::hash(&bytes[8..]) == self.crc {
            true => Ok(()),
            false => Err(Damage::at(at, "the checksum of the record's head is wrong")),
        }
    }

    /// The name, in all bytes of the head.
    pub fn name<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        &bytes[HEAD..self.len()]
    }

    /// The index entry that says the same.
    pub fn entry(&self, offset: u64, name_end: u32) -> Entry {
        Entry {
            offset,
            length: self.length,
            label: self.label,
            width: self.width,
            height: self.height,
            name_end,
        }
    }
}

/// The index of a shard, read or rebuilt.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Index {
    pub entries: Vec<Entry>,
    /// All names, one after the other.
    pub names: Vec<u8>,
    pub classes: Vec<String>,
}

impl Index {
    pub fn write(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.entries.len() * ENTRY + self.names.len());
        for entry in &self.entries {
            bytes.extend(entry.offset.to_le_bytes());
            for number in [
                entry.length,
                entry.label,
                entry.width,
                entry.height,
                entry.name_end,
            ] {
                bytes.extend(number.to_le_bytes());
            }
        }
        bytes.extend(&self.names);
        bytes.extend((self.classes.len() as u32).to_le_bytes());
        for class in &self.classes {
            // No file system has longer names.
            bytes.extend((class.len() as u16).to_le_bytes());
            bytes.extend(class.as_bytes());
        }
        bytes
    }

    /// Reads the index that begins at byte `at` of the shard, after all records.
    pub fn parse(bytes: &[u8], samples: u32, at: u64) -> Result<Self, Damage> {
        let wrong = |byte: usize, reason: &str| Damage::at(at + byte as u64, reason);
        let entries_len = samples as usize * ENTRY;
        let Some((entries, rest)) = bytes.split_at_checked(entries_len) else {
            return Err(wrong(0, "the index is too short for its samples"));
        };
        let mut index = Self {
            entries: Vec::with_capacity(samples as usize),
            ..Self::default()
        };
        let mut name_end = 0;
        for (number, bytes) in entries.as_chunks::<ENTRY>().0.iter().enumerate() {
            let entry = Entry {
                offset: u64_at(bytes, 0),
                length: u32_at(bytes, 8),
                label: u32_at(bytes, 12),
                width: u32_at(bytes, 16),
                height: u32_at(bytes, 20),
                name_end: u32_at(bytes, 24),
            };
            let inside = entry.offset >= HEADER as u64
                && entry
                    .offset
                    .checked_add(entry.length.into())
                    .is_some_and(|end| end <= at);
            if !inside || entry.length < HEAD as u32 {
                return Err(wrong(number * ENTRY, "an entry of the index points nowhere"));
            }
            if entry.name_end < name_end || entry.name_end as usize > rest.len() {
                return Err(wrong(number * ENTRY, "an entry of the index has no name"));
            }
            name_end = entry.name_end;
            index.entries.push(entry);
        }
        let (names, mut rest) = rest.split_at(name_end as usize);
        index.names = names.to_vec();
        let classes_at = entries_len + names.len();
        let mut take = |count: usize| {
            let (taken, left) = rest.split_at_checked(count)?;
            rest = left;
            Some(taken)
        };
        let classes = take(4).map(|bytes| u32_at(bytes, 0));
        for _ in 0..classes.unwrap_or(0) {
            let name = take(2).and_then(|bytes| take(u16_at(bytes, 0).into()));
            let Some(name) = name.and_then(|name| std::str::from_utf8(name).ok()) else {
                return Err(wrong(classes_at, "the names of the classes are not all there"));
            };
            index.classes.push(name.to_owned());
        }
        match classes.is_some() && rest.is_empty() {
            true => Ok(index),
            false => Err(wrong(classes_at, "the names of the classes do not end the index")),
        }
    }

    /// The name of a sample.
    pub fn name(&self, number: usize) -> &[u8] {
        let begin = number
            .checked_sub(1)
            .map_or(0, |before| self.entries[before].name_end);
        &self.names[begin as usize..self.entries[number].name_end as usize]
    }
}

/// The end of a shard, from which it is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Footer {
    pub identity: Identity,
    pub samples: u32,
    pub index: u64,
    pub index_length: u64,
    pub index_crc: u32,
}

impl Footer {
    pub fn write(&self) -> [u8; FOOTER] {
        let mut bytes = [0; FOOTER];
        bytes[..8].copy_from_slice(&self.identity.id.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.identity.number.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.samples.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.index.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.index_length.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.index_crc.to_le_bytes());
        let crc = crc32fast::hash(&bytes[..36]);
        bytes[36..40].copy_from_slice(&crc.to_le_bytes());
        bytes[40..].copy_from_slice(&FOOTER_MAGIC);
        bytes
    }

    /// Reads the footer of a shard of `size` bytes.
    pub fn parse(bytes: &[u8; FOOTER], size: u64) -> Result<Self, Damage> {
        let at = size - FOOTER as u64;
        if bytes[40..] != FOOTER_MAGIC {
            return Err(Damage::at(at, "this is not how a shard ends; it may be cut off"));
        }
        if crc32fast::hash(&bytes[..36]) != u32_at(bytes, 36) {
            return Err(Damage::at(at, "the footer's checksum is wrong"));
        }
        let footer = Self {
            identity: Identity {
                id: u64_at(bytes, 0),
                number: u32_at(bytes, 8),
            },
            samples: u32_at(bytes, 12),
            index: u64_at(bytes, 16),
            index_length: u64_at(bytes, 24),
            index_crc: u32_at(bytes, 32),
        };
        let fits = footer.index.checked_add(footer.index_length) == Some(at) && footer.index >= HEADER as u64;
        match fits && footer.index_length <= MOST_INDEX_BYTES {
            true => Ok(footer),
            false => Err(Damage::at(at, "the footer points at no index")),
        }
    }
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}
