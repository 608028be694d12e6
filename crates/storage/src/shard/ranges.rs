//! The source of a shard's bytes.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Something that many threads can read from any position at the same time.
pub trait Ranges: Send + Sync {
    /// The number of bytes.
    ///
    /// # Errors
    /// The storage's error.
    fn size(&self) -> io::Result<u64>;

    /// Fills `into` with the bytes from `offset` on.
    ///
    /// # Errors
    /// The storage's error; [`io::ErrorKind::UnexpectedEof`] if there are fewer bytes.
    fn read_range(&self, offset: u64, into: &mut [u8]) -> io::Result<()>;

    /// Announces that `length` bytes from `offset` on will be read soon: an implementation may start to fetch
    /// them, without waiting. Does nothing by default.
    fn expect(&self, offset: u64, length: u32) {
        let _ = (offset, length);
    }

    /// How many reads in advance it should be told about; 0 if a few are enough.
    fn reach(&self) -> usize {
        0
    }
}

impl Ranges for File {
    fn size(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_range(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.read_exact_at(into, offset)
    }

    #[cfg(target_os = "linux")]
    fn expect(&self, offset: u64, length: u32) {
        use rustix::fs::{Advice, fadvise};
        // Only a hint; ignore the result.
        let _ = fadvise(
            self,
            offset,
            std::num::NonZeroU64::new(length.into()),
            Advice::WillNeed,
        );
    }
}

impl Ranges for Vec<u8> {
    fn size(&self) -> io::Result<u64> {
        Ok(self.len() as u64)
    }

    fn read_range(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let from = usize::try_from(offset).ok().and_then(|offset| self.get(offset..));
        let bytes = from
            .and_then(|from| from.get(..into.len()))
            .ok_or(io::ErrorKind::UnexpectedEof)?;
        into.copy_from_slice(bytes);
        Ok(())
    }
}
