//! The files of spans, as SageMaker Debugger writes and reads them: arrays of Chrome trace events, which Perfetto opens.
//!
//! ```text
//! framework/pevents/2026112113/1795266239655184_4487-algo-1_pythontimeline.json
//!                   the hour,  the last event's end in microseconds, process and node
//! [
//! {"name":"process_name","ph":"M","pid":0,"args":{"start_time_since_epoch_in_micros":1795266180655184}},
//! {"name":"process_sort_index","ph":"M","pid":0,"args":{"sort_index":0}},
//! {"name":"process_name","ph":"M","pid":1,"args":{"name":"Step:ModeKeys.TRAIN"}},
//! {"name":"process_sort_index","ph":"M","pid":1,"args":{"sort_index":1}},
//! {"name":"Step:ModeKeys.TRAIN","pid":1,"ph":"X","ts":1008335,"dur":1000000,"args":{"step_num":1}}
//! ]
//! ```
//!
//! `pid` is a track of the picture, one per name of spans, and `tid` a row in it, one per worker; neither is
//! a process. `ts` and `dur` are in microseconds, `ts` relative to the start time in the file's first event.
//!
//! [`Writer`] starts a new file after 10 MiB, after 60 seconds, and with every hour (UTC). A file that is
//! being written is called `.part` and has no closing bracket, so a crash loses only data that was not
//! flushed; when the file is closed, it becomes a complete array and gets its final name. [`read_into`] reads
//! both, files of other programs, and the line files of [`timeline`](crate::timeline). It trusts no input:
//! damaged data becomes a gap and an entry in [`Recording::problems`](crate::Recording::problems).

mod damage;
mod read;
mod trace;
mod write;

pub use read::read_into;
pub(crate) use read::read_since;
pub use trace::parse;
pub use write::{Options, Writer};

/// The end of our files' names.
const SUFFIX: &str = "_pythontimeline.json";
/// The suffix of a file that is being written.
const PART: &str = ".part";

/// A moment in unix seconds as whole microseconds.
fn micros(seconds: f64) -> i64 {
    (seconds * 1e6).round() as i64
}
