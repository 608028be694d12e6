//! See why the accelerator waits, and what fixing it gains.
//!
//! A run is recorded into files, read back as a [`Recording`], judged by rules, and turned into advice and a report:
//!
//! ```text
//!  /proc, cgroup, NVML ──► sampler ──► system/*.json    ┐                ┌─► rules ──► findings ┐
//!  trainer, loader, any                                 ├─► Recording ───┤                      ├─► report, top
//!  process ──► timeline ────────────► framework/*.json  ┘                └─► advice: what would ┘
//!                                                                            each change gain
//! ```
//!
//! The files are those of SageMaker Debugger, so its readers open our recordings, and `stokehold report` opens its.
//! A run's folder holds
//!
//! ```text
//! profiler-output/recording.json                                         about the run ([`About`])
//! profiler-output/system/incremental/YYYYMMDDHH/<minute>.algo-1.json     samples of the machine, JSON lines
//! profiler-output/framework/pevents/YYYYMMDDHH/<end>_<pid>-algo-1_pythontimeline.json    spans, Chrome trace
//! rule-output/ProfilerReport-<time>/profiler-output/                     the report and its JSON files
//! ```
//!
//! Two recorders run beside the training loop, both cheap enough to leave on, and both on the
//! same clock (unix seconds), so that their files can be laid over each other:
//!
//! - [`SystemSampler`] is a thread that wakes every 100 ms, reads the kernel's counters under `/proc` and writes
//!   one [`SystemSample`]: the busy share of every core the process may run on, the process's memory, and the
//!   bytes it has read from storage. The kernel counts in ticks of 10 ms, so one sample resolves about 10 points
//!   of a core; the percentiles over a run are what to read. Where there is no `/proc`, starting it is
//!   [`ProfileError::NotSupported`] and nothing is invented.
//! - [`Timeline`] takes the spans of steps, waits, phases and loader workers, from any thread in less than 200 ns, and from
//!   any process as lines (docs/timeline.md). Its totals count every span; details of images thin out in long runs.
//!
//! [`percentile`] is the one definition of a percentile that reports use.
//!
//! ```
//! use stokehold_profile::percentile;
//! assert_eq!(percentile(&[4.0, 1.0, 3.0, 2.0], 50.0), Some(2.5));
//! ```

pub mod advice;
mod clock;
mod error;
pub mod events;
mod kernel;
mod machine;
mod open;
mod percentile;
mod recording;
pub mod report;
pub mod rules;
mod sampler;
pub mod simulate;
pub mod system;
pub mod timeline;

pub use error::ProfileError;
pub use machine::{Machine, peak_rss};
pub use open::FOLDER;
pub use percentile::{Percentiles, percentile};
pub use recording::{About, Node, Recording, Series, Span, dimension, span, totals};
pub use sampler::{SystemSample, SystemSampler, SystemSummary, read_samples};
pub use timeline::Timeline;
