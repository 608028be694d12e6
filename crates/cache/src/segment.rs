//! One file of the cache: samples one after the other, only ever appended to.
//!
//! ```text
//!  0  SKCACHE1
//!  8  records: "SKsr", length of the file (4), key (16), CRC-32 of the file (4), CRC-32 of these 28 bytes (4), the file
//!     when it is complete: the index, a record with the key 0. Its file lists all samples, each as
//!                  key (16), where its file begins (8), length (4), CRC-32 (4)
//!     "SKCINDEX", where the index's record begins (8)
//! ```
//!
//! Numbers are little-endian. A process that is killed leaves a segment without an index, and maybe half a record; then the
//! records are found one after the other, up to the first that is not whole, and who looks for room ends the segment there.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// A hash of a sample's version.
pub(crate) type Key = u128;

/// What a file begins with; the last byte is the version.
const MAGIC: [u8; 8] = *b"SKCACHE1";
/// What a complete file ends with, before the index's place.
const END: [u8; 8] = *b"SKCINDEX";
const RECORD: [u8; 4] = *b"SKsr";
/// No sample has it.
const INDEX: Key = 0;
/// Bytes of a record before its file, of the beginning of a segment, of its end.
pub(crate) const HEAD: u64 = 32;
pub(crate) const START: u64 = 8;
pub(crate) const TRAILER: u64 = 16;
/// Of two million samples. A longer index is damage, and is not read.
const MOST_INDEX: u32 = 64 << 20;

/// Where in a segment a sample's file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileExtent {
    pub at: u64,
    pub length: u32,
    pub crc: u32,
}

/// The beginning of a segment.
pub(crate) fn start() -> [u8; 8] {
    MAGIC
}

/// A record, whole.
pub(crate) fn record(key: Key, file: &[u8], into: &mut Vec<u8>) -> FileExtent {
    let at = into.len();
    let crc = crc32fast::hash(file);
    into.extend(RECORD);
    into.extend((file.len() as u32).to_le_bytes());
    into.extend(key.to_le_bytes());
    into.extend(crc.to_le_bytes());
    into.extend(crc32fast::hash(&into[at..]).to_le_bytes());
    into.extend(file);
    FileExtent {
        at: HEAD,
        length: file.len() as u32,
        crc,
    }
}

/// The index and the trailer of a segment. They go to `at`.
pub(crate) fn end(places: &[(Key, FileExtent)], at: u64) -> Vec<u8> {
    let mut index = Vec::with_capacity(places.len() * HEAD as usize);
    for (key, place) in places {
        index.extend(key.to_le_bytes());
        index.extend(place.at.to_le_bytes());
        index.extend(place.length.to_le_bytes());
        index.extend(place.crc.to_le_bytes());
    }
    let mut bytes = Vec::new();
    record(INDEX, &index, &mut bytes);
    bytes.extend(END);
    bytes.extend(at.to_le_bytes());
    bytes
}

/// How far a segment has been read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scanned {
    /// All of it: it has its index, or is not what this version reads.
    All,
    /// Up to here. More may follow while a process writes it.
    UpTo(u64),
}

/// Finds the samples of a segment from `from` on, 0 for all.
///
/// # Errors
/// The file cannot be read. What is damaged ends it instead.
pub(crate) fn find(file: &File, from: u64, mut found: impl FnMut(Key, FileExtent)) -> io::Result<Scanned> {
    let size = file.metadata()?.len();
    if from == 0 {
        let mut magic = [0; 8];
        if size < START {
            return Ok(Scanned::UpTo(0));
        }
        file.read_exact_at(&mut magic, 0)?;
        if magic != MAGIC {
            return Ok(Scanned::All);
        }
        if let Some(index) = index(file, size)? {
            index.into_iter().for_each(|(key, place)| found(key, place));
            return Ok(Scanned::All);
        }
    }
    let mut at = from.max(START);
    while let Some((key, place)) = next(file, at, size)? {
        at = place.at + u64::from(place.length);
        if key == INDEX {
            return Ok(Scanned::All);
        }
        found(key, place);
    }
    Ok(Scanned::UpTo(at))
}

/// Whether a segment has its index, so that nothing is added to it.
pub(crate) fn is_complete(file: &File) -> io::Result<bool> {
    Ok(index(file, file.metadata()?.len())?.is_some())
}

/// The record that begins at `at`, if it is whole.
fn next(file: &File, at: u64, size: u64) -> io::Result<Option<(Key, FileExtent)>> {
    if size < at + HEAD {
        return Ok(None);
    }
    let mut head = [0; HEAD as usize];
    file.read_exact_at(&mut head, at)?;
    let place = FileExtent {
        at: at + HEAD,
        length: u32::from_le_bytes(bytes(&head[4..])),
        crc: u32::from_le_bytes(bytes(&head[24..])),
    };
    let whole = head[..4] == RECORD
        && crc32fast::hash(&head[..28]) == u32::from_le_bytes(bytes(&head[28..]))
        && place.at + u64::from(place.length) <= size;
    Ok(whole.then(|| (Key::from_le_bytes(bytes(&head[8..])), place)))
}

/// The samples by the index of a complete segment.
fn index(file: &File, size: u64) -> io::Result<Option<Vec<(Key, FileExtent)>>> {
    let Some(at) = size.checked_sub(TRAILER).filter(|&at| at >= START) else {
        return Ok(None);
    };
    let mut trailer = [0; TRAILER as usize];
    file.read_exact_at(&mut trailer, at)?;
    let begin = u64::from_le_bytes(bytes(&trailer[8..]));
    if trailer[..8] != END || begin < START || begin > at {
        return Ok(None);
    }
    let Some((INDEX, place)) = next(file, begin, at)? else {
        return Ok(None);
    };
    if place.length > MOST_INDEX {
        return Ok(None);
    }
    let mut index = vec![0; place.length as usize];
    file.read_exact_at(&mut index, place.at)?;
    let (entries, []) = index.as_chunks::<{ HEAD as usize }>() else {
        return Ok(None);
    };
    if crc32fast::hash(&index) != place.crc {
        return Ok(None);
    }
    let entries = entries.iter().map(|entry| {
        let place = FileExtent {
            at: u64::from_le_bytes(bytes(&entry[16..])),
            length: u32::from_le_bytes(bytes(&entry[24..])),
            crc: u32::from_le_bytes(bytes(&entry[28..])),
        };
        (Key::from_le_bytes(bytes(&entry[..])), place)
    });
    let within = |place: &FileExtent| place.at <= begin && u64::from(place.length) <= begin - place.at;
    Ok(Some(entries.filter(|(_, place)| within(place)).collect()))
}

fn bytes<const N: usize>(from: &[u8]) -> [u8; N] {
    *from.first_chunk().expect("a field within the bytes of a record")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn written(files: &[Vec<u8>], complete: bool) -> (Vec<u8>, Vec<(Key, FileExtent)>) {
        let (mut bytes, mut places) = (start().to_vec(), Vec::new());
        for (key, file) in (1..).zip(files) {
            let begin = bytes.len() as u64;
            let place = record(key, file, &mut bytes);
            places.push((
                key,
                FileExtent {
                    at: begin + place.at,
                    ..place
                },
            ));
        }
        if complete {
            bytes.extend(end(&places, bytes.len() as u64));
        }
        (bytes, places)
    }

    fn read(bytes: &[u8], from: u64) -> (Vec<(Key, FileExtent)>, Scanned) {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(bytes, 0).unwrap();
        let mut found = Vec::new();
        let how_far = find(&file, from, |key, place| found.push((key, place))).unwrap();
        (found, how_far)
    }

    proptest! {
        /// Whole, growing, cut off anywhere: what was written whole before the cut is found, and nothing else.
        #[test]
        fn what_is_whole_is_found(
            files in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..9),
            complete: bool,
            cut in 0.0..1.0f64,
        ) {
            let (bytes, places) = written(&files, complete);
            let (found, how_far) = read(&bytes, 0);
            prop_assert_eq!(&found, &places);
            prop_assert_eq!(how_far, if complete { Scanned::All } else { Scanned::UpTo(bytes.len() as u64) });
            let cut = (bytes.len() as f64 * cut) as usize;
            let (before, how_far) = read(&bytes[..cut], 0);
            let whole = places.iter().filter(|(_, place)| place.at + u64::from(place.length) <= cut as u64);
            prop_assert_eq!(&before, &whole.copied().collect::<Vec<_>>());
            // Going on finds the rest.
            if let Scanned::UpTo(from) = how_far {
                let (rest, _) = read(&bytes, from);
                let found = if from == 0 { rest } else { [before, rest].concat() };
                prop_assert_eq!(found, places);
            }
        }

        /// Damage never panics, and never gives a place outside the file.
        #[test]
        fn damage_stays_within(
            files in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..90), 1..5),
            complete: bool,
            damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        ) {
            let (mut bytes, _) = written(&files, complete);
            for (at, to) in damage {
                let at = at.index(bytes.len());
                bytes[at] = to;
            }
            for (_, place) in read(&bytes, 0).0 {
                prop_assert!(place.at + u64::from(place.length) <= bytes.len() as u64);
            }
        }
    }

    #[test]
    fn other_files_and_later_versions_hold_nothing() {
        for bytes in [
            &b"SKCACHE2 and more than this one knows"[..],
            b"precious notes of somebody",
        ] {
            assert_eq!(read(bytes, 0), (Vec::new(), Scanned::All));
        }
        assert_eq!(read(b"SKC", 0), (Vec::new(), Scanned::UpTo(0)));
    }
}
