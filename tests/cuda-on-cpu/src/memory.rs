//! The memory of devices: ranges between pages that cannot be touched.

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::ptr;

/// What new memory is filled with.
pub const POISON: u8 = 0xA5;

/// The alignment that CUDA's allocations have at least, bytes.
const ALIGN: usize = 256;

/// Larger ranges are not filled where their pages are not touched otherwise; they would all become resident.
const MAX_FILLED: usize = 256 << 20;

/// Memory whose end is at a page that cannot be touched, as near as the alignment allows.
#[derive(Debug)]
pub struct Range {
    map: *mut c_void,
    mapped: usize,
    start: *mut u8,
    len: usize,
}

// SAFETY: the range is owned by this value alone; what the kernels of several threads do in it is their matter, as
// on a GPU, and Rust code reaches it through raw pointers only.
unsafe impl Send for Range {}
// SAFETY: as above; a shared `Range` gives away nothing but its address.
unsafe impl Sync for Range {}

impl Range {
    /// Memory for `len` bytes, filled with [`POISON`]; none if the machine has no more.
    pub fn new(len: usize) -> Option<Range> {
        let page = rustix::param::page_size();
        let size = len.max(1).checked_next_multiple_of(ALIGN)?;
        let body = size.checked_next_multiple_of(page)?;
        let mapped = body.checked_add(2 * page)?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address of the system's choice touches no other memory.
        let map = unsafe { mmap_anonymous(ptr::null_mut(), mapped, ProtFlags::empty(), flags) }.ok()?;
        let range = Range {
            map,
            mapped,
            start: map.cast::<u8>().wrapping_add(page + body - size),
            len,
        };
        let access = MprotectFlags::READ | MprotectFlags::WRITE;
        // SAFETY: the pages between the first and the last are part of the mapping above, which no one else knows.
        unsafe { mprotect(map.wrapping_byte_add(page), body, access) }.ok()?;
        if size <= MAX_FILLED {
            // SAFETY: these are the last `size` bytes of the pages that have just become writable.
            unsafe { range.start.write_bytes(POISON, size) };
        }
        Some(range)
    }

    /// Its first byte.
    pub fn start(&self) -> *mut u8 {
        self.start
    }

    /// Its size, bytes.
    pub fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Range {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and ends with it.
        let _ = unsafe { munmap(self.map, self.mapped) };
    }
}

/// The allocations of a device, by their addresses.
#[derive(Debug, Default)]
pub struct Allocations {
    ranges: BTreeMap<u64, Range>,
    used: u64,
}

impl Allocations {
    /// Bytes in use.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// Allocates; the address, or nothing where that would be more than `limit` bytes in all.
    pub fn add(&mut self, len: usize, limit: u64) -> Option<u64> {
        self.used.checked_add(len as u64).filter(|used| *used <= limit)?;
        let range = Range::new(len)?;
        let address = range.start() as u64;
        self.used += len as u64;
        self.ranges.insert(address, range);
        Some(address)
    }

    /// Frees; whether there was an allocation at the address.
    pub fn remove(&mut self, address: u64) -> bool {
        let removed = self.ranges.remove(&address);
        self.used -= removed.as_ref().map_or(0, |range| range.len() as u64);
        removed.is_some()
    }

    /// Whether these bytes lie within one allocation.
    pub fn contains(&self, address: u64, len: u64) -> bool {
        let before = self.ranges.range(..=address).next_back();
        before.is_some_and(|(start, range)| {
            (address - start)
                .checked_add(len)
                .is_some_and(|end| end <= range.len() as u64)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocations_are_counted_and_bounded() {
        let mut all = Allocations::default();
        let first = all.add(1000, 5000).expect("memory");
        assert_eq!(first % ALIGN as u64, 0);
        assert!(all.contains(first, 1000) && all.contains(first + 999, 1));
        assert!(!all.contains(first, 1001) && !all.contains(first + 1000, 1) && !all.contains(first - 1, 1));
        assert!(!all.contains(first, u64::MAX));
        assert_eq!(all.add(4001, 5000), None);
        let second = all.add(4000, 5000).expect("memory");
        assert_eq!(all.used(), 5000);
        assert!(all.remove(first) && !all.remove(first) && !all.remove(second + 1));
        assert_eq!(all.used(), 4000);
        assert_eq!(all.add(usize::MAX, u64::MAX), None);
    }

    #[test]
    fn new_memory_is_poison_to_its_last_byte() {
        for len in [1, 255, 256, 4096, 10_000] {
            let range = Range::new(len).expect("memory");
            // SAFETY: the range has that many bytes, which its constructor has written.
            let bytes = unsafe { std::slice::from_raw_parts(range.start(), len) };
            assert!(bytes.iter().all(|byte| *byte == POISON), "{len}");
        }
    }
}
