//! The files of system samples, as SageMaker Debugger writes and reads them.
//!
//! ```text
//! system/incremental/2026112113/1795266180.algo-1.json
//!                    the hour,  the full minute that the file's samples begin in, the node
//! {"Type":"cpu","Name":"cpu5","Dimension":"CPUUtilization","Value":1.36,"NodeId":"algo-1","Timestamp":1795266181.232195}
//! ```
//!
//! A line is one value of one series. All series of a tick have the same timestamp. A series appears in every
//! tick except where it has no value: a core that is offline, a process that has ended. Hours are UTC.
//!
//! [`Writer`] appends one tick at a time. Its buffer is never older than a second, so a crash loses at most
//! that. Optionally it compresses finished hours; it removes the oldest hours when the files exceed their
//! limit. [`read_into`] reads the files of any number of nodes. It trusts no input: damaged data becomes a
//! gap and an entry in [`Recording::problems`](crate::Recording::problems).

use std::io;
use std::path::Path;

use stokehold_base::clock::civil;

use crate::ProfileError;

mod disk;
mod line;
mod read;
mod write;

pub use line::{Event, parse};
pub use read::read_into;
pub(crate) use read::{MOST_NODES, read_since};
pub use write::{Options, SeriesId, Writer};

/// Seconds in the minute that a file covers.
const MINUTE: u64 = 60;

pub(crate) fn io_error(path: &Path, source: io::Error) -> ProfileError {
    ProfileError::Io {
        path: path.to_owned(),
        source,
    }
}

/// The folder of an hour, `YYYYMMDDHH` in UTC.
pub(crate) fn hour_name(unix: u64) -> String {
    let (year, month, day) = civil(unix / 86_400);
    format!("{year:04}{month:02}{day:02}{:02}", unix / 3600 % 24)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Oracle: `date -u -d @N +%Y%m%d%H`.
    #[test]
    fn hours_are_those_of_the_calendar() {
        for (unix, name) in [
            (0, "1970010100"),
            (951_782_399, "2000022823"),
            (951_868_800, "2000030100"),
            (1_591_748_109, "2020061000"),
            (1_709_164_800, "2024022900"),
            (4_102_444_799, "2099123123"),
        ] {
            assert_eq!(hour_name(unix), name);
        }
    }
}
