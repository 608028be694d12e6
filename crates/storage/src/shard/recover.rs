//! Finds the records of a shard with an unusable index.

use std::io;

use super::layout::{HEAD, HEAD_MAGIC, Head, Index};
use super::ranges::Ranges;

/// The bytes that are read at a time while searching for a record.
const STRIDE: usize = 1 << 16;

/// Rebuilds the index of a shard of `size` bytes and `samples` samples from the heads of its records, the first of which
/// begins at `first` or after it.
///
/// A good head gives the position of the next one; after damage, the search goes byte by byte. Samples whose
/// record is not found, or is cut off, get an entry of length 0.
///
/// For valid shards this reads less than four times the shard's bytes. In bytes that were crafted to look
/// like heads everywhere, the search ends there, so that it never takes long.
pub(super) fn recover(ranges: &dyn Ranges, size: u64, samples: u32, first: u64) -> io::Result<Index> {
    let mut search = Search {
        ranges,
        size,
        budget: size.saturating_mul(4) + u64::from(samples) * STRIDE as u64,
    };
    let mut found: Vec<Option<(Head, u64, Vec<u8>)>> = vec![None; samples as usize];
    let (mut at, mut least) = (first, 0);
    loop {
        match search.head(at)? {
            // Records are in order; one that is not belongs elsewhere, and is skipped like damage.
            Some((mut head, name)) if (least..samples).contains(&head.number) => {
                least = head.number + 1;
                let next = at + u64::from(head.length);
                if next > size {
                    head.length = 0;
                }
                found[head.number as usize] = Some((head, at, name));
                at = next;
            }
            _ => match search.magic(at + 1)? {
                Some(next) => at = next,
                None => break,
            },
        }
    }
    let mut index = Index::default();
    for sample in found {
        let (head, offset, name) = sample.unwrap_or_default();
        index.names.extend(name);
        index.entries.push(head.entry(offset, index.names.len() as u32));
    }
    Ok(index)
}

struct Search<'a> {
    ranges: &'a dyn Ranges,
    size: u64,
    /// The bytes that may still be read.
    budget: u64,
}

impl Search<'_> {
    /// The bytes from `at` on; `None` if they do not exist, or if too many were read.
    fn read(&mut self, at: u64, length: usize) -> io::Result<Option<Vec<u8>>> {
        let inside = at.checked_add(length as u64).is_some_and(|end| end <= self.size);
        let Some(left) = self.budget.checked_sub(length as u64).filter(|_| inside) else {
            return Ok(None);
        };
        self.budget = left;
        let mut bytes = vec![0; length];
        self.ranges.read_range(at, &mut bytes)?;
        Ok(Some(bytes))
    }

    /// The head at `at` and its name, if there is a valid one.
    fn head(&mut self, at: u64) -> io::Result<Option<(Head, Vec<u8>)>> {
        let Some(fixed) = self.read(at, HEAD)? else {
            return Ok(None);
        };
        let fixed = fixed.first_chunk().map(|fixed| Head::parse(fixed, at));
        let Some(Ok(head)) = fixed else {
            return Ok(None);
        };
        let Some(bytes) = self.read(at, head.len())? else {
            return Ok(None);
        };
        let whole = head.verify(&bytes, at).is_ok();
        Ok(whole.then(|| (head, head.name(&bytes).to_vec())))
    }

    /// The next possible start of a record, from `at` on.
    fn magic(&mut self, mut at: u64) -> io::Result<Option<u64>> {
        loop {
            let length = self.size.saturating_sub(at).min(STRIDE as u64) as usize;
            if length < HEAD {
                return Ok(None);
            }
            let Some(bytes) = self.read(at, length)? else {
                return Ok(None);
            };
            let magic = |window: &[u8]| window == HEAD_MAGIC;
            if let Some(place) = bytes.windows(HEAD_MAGIC.len()).position(magic) {
                return Ok(Some(at + place as u64));
            }
            // A magic may cross the end.
            at += (length - HEAD_MAGIC.len() + 1) as u64;
        }
    }
}
