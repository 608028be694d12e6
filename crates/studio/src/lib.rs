//! Everything that Stokehold leaves in folders, live in a browser: runs, jobs and studies. And what begins there: jobs are started,
//! data sets looked at, pipelines tried.
//!
//! ```text
//!  --jobs DIR   ─► Store of crate jobs ──┐                       ┌─► pages: HTML, modules and one style, in the program
//!  --runs DIR.. ─► runs, recordings,     ├─► index ─► server ────┼─► JSON: a page of rows, a run, a heat map, a log; files
//!                  studies ──────────────┘           (axum)      ├─► event streams: what has changed
//!  --data DIR.. ─► data sets of crate storage ─────────┘         ├─► pictures of samples, draws of a pipeline
//!                                 this machine ─► sampler ───────┤
//!                                                                └─► actions: start, stop, resume, profiler, examine, notes ─► an audit line
//! ```
//!
//! # What is read
//! The folders as they are, and nothing else: there is no database, and nothing has to be imported. A job is what [`Store::get`]
//! says, a run what [`Run::of`] says, a recording what [`Recording::open`] says, a study what [`Study::look`] says. So whatever
//! was recorded before a studio started is there, and a studio may be killed at any moment: it has nothing to lose. It writes
//! nothing, except where a person starts, stops or resumes a job, adds jobs to a study, switches a profiler or writes a note, and where [`Store::get`] finds that the
//! runner of a job has died and records that, as every command that looks at the job does. Tags and notes are `studio.json` in the folder
//! of what they are about. A job that is started or resumed runs in a process of its own, which does not need the studio. What is sampled of this
//! machine is in a temporary folder.
//!
//! One thread goes through the folders and keeps a row of each thing that it finds. What it has read is read again only
//! if sizes or times of its files have changed, or if it runs. It looks while somebody looks at a page, and sleeps otherwise.
//!
//! # How changes travel
//! A page has one event stream (server-sent events) for what it shows. Twice a second the stream looks whether the files of that one
//! thing have grown, reads the new part, and sends it. Every event has an id that says how far the reader is: `curves` by number of
//! points, `log` by its byte. A browser whose connection broke sends the last id, and continues there. If that is too
//! long ago, or the file is another one, it gets the curves again. Several runs in one picture have one stream.
//!
//! The next look begins when the last event is written. So a slow reader gets fewer and newer events, and nothing waits for it: no
//! queue grows. Several streams of the same run share one reader of its metrics.
//!
//! # What is started
//! `start.rs` makes a job of a form, a file or a past job; crate jobs checks it, creates it, and starts a process for it that outlives
//! the studio. `data.rs` and `workbench.rs` decode images on request, a bounded number at a time and of a bounded size.
//!
//! # What bounds the memory
//! | what | bound |
//! |---|---|
//! | rows of the index | about 1 kB each |
//! | curves of a run that somebody looks at, and of the last four | 64 curves of 8195 points, and the last 20 000 points as they came |
//! | this machine | ten minutes of samples, once a second; 64 MB of disk |
//! | a file that is fetched | 256 kB at a time, as its reader takes it |
//! | a log | 256 kB and 2,000 lines an answer; lines are cut at 4 kB |
//! | judgements and heat maps | made one at a time, the last 8 are kept |
//! | importances of studies | the last 8 are kept |
//! | data sets that somebody looks at | 2, about 100 bytes an image |
//! | images that are decoded | 2 at a time, of at most 2^25 pixels |
//! | connections | 256 |
//! | a request's body | 64 kB |
//!
//! # Security
//! The machine is trusted, the network and the contents of files are not.
//!
//! - It listens on the loopback interface unless it is told otherwise. Every request needs the token of the printed link, which
//!   becomes a cookie (`HttpOnly`, `SameSite=Lax`) with the first page. 256 bits, new at every start.
//! - `Host` has to be an address, `localhost` or this machine's name, so that a name that an attacker's DNS server resolves to this
//!   machine is refused. Actions need an `Origin` of the same host, and a body of JSON.
//! - The pages have no inline code, and a content security policy allows only the studio's own modules. Everything from
//!   files is put into pages as text, never as markup.
//! - Files are read below the given folders only, after symbolic links are resolved. A name in a request is one folder's name. Of a
//!   run's files only checkpoints, models, results and records can be fetched, by the name of what was opened and not of a link.
//! - With a certificate it speaks TLS, and the cookie is `Secure`.
//! - A job names the program that it runs, so anyone with the token may run any. In a read-only studio there are no actions,
//!   for any client.
//!
//! ```no_run
//! use std::sync::atomic::AtomicBool;
//! use stokehold_studio::{Options, Studio};
//! let studio = Studio::bind(Options {
//!     jobs: None,
//!     runs: vec!["runs".into()],
//!     data: Vec::new(),
//!     program: None,
//!     listen: "127.0.0.1:0".to_owned(),
//!     read_only: true,
//!     tls: None,
//!     host: None,
//! })?;
//! println!("{}", studio.link());
//! studio.run(&AtomicBool::new(false), |action| eprintln!("{action}"))?;
//! # Ok::<(), stokehold_studio::StudioError>(())
//! ```
//!
//! [`Store::get`]: stokehold_jobs::Store::get
//! [`Run::of`]: stokehold_diagnose::runs::Run::of
//! [`Recording::open`]: stokehold_profile::Recording::open
//! [`Study::look`]: stokehold_tune::Study::look

mod api;
mod assets;
mod below;
mod data;
mod error;
mod files;
mod guard;
mod index;
mod judge;
mod live;
mod log;
mod machine;
mod notes;
mod places;
mod results;
mod server;
mod start;
mod study;
mod text;
mod workbench;

pub use error::StudioError;
pub use places::RUNS;
pub use server::{Action, Options, Studio};

/// The examples of README.md, as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct ReadmeDoctests;
