//! Mirrors folders that a script writes to, one complete file at a time: checkpoints (`checkpoints.rs`) and
//! channels that may be written to (`writes.rs`).
//!
//! ```text
//!  folders ──► Eyes: a look a second, what is new and complete, or gone ──► Place: sends or removes one of them
//! ```
//!
//! [`Mirror`] has what both share: when files are looked at, in which order they are sent and removed, and what
//! happens when the place fails. A [`Place`] has what differs: what an object may be replaced by, and what is
//! remembered of it. `checkpoints.rs` states the guarantees.

pub(crate) mod watch;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ring::digest::{Context, SHA256};
use rustix::fs::OFlags;
use rustix::io::Errno;
use stokehold_objects::ObjectError;

use crate::JobError;
use watch::{End, Files, Found, Look, Name, Seen, Stamp, Watch, Work};

/// Time between two looks at the folders.
const LOOK: Duration = Duration::from_secs(1);

/// How long one request is retried before it counts as failed. Pauses after that are this module's.
pub(crate) const RETRY: Duration = Duration::from_secs(5);

/// The longest pause after a failure.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Why a file was not sent.
pub(crate) enum NotSent {
    /// The file has changed since it was complete; the next look finds it.
    Changed,
    Failed(String),
    /// It must not be sent, now or later.
    Refused,
}

impl From<ObjectError> for NotSent {
    fn from(error: ObjectError) -> Self {
        Self::Failed(error.to_string())
    }
}

/// Where files are sent to.
pub(crate) trait Place {
    /// What the job's state says of it.
    type State: PartialEq + Clone;

    /// How messages begin: `checkpoints`.
    fn name(&self) -> &str;

    fn state(&self, waiting: u64, trouble: Option<String>) -> Self::State;

    /// Called with all that was found before each look is judged.
    fn before(&mut self, found: &Found, watch: &mut Watch) -> Result<(), String>;

    /// Called with the complete files that follow from a look, before they are sent.
    fn complete(&mut self, files: &[(Name, Stamp)]) -> Result<(), String>;

    /// Why nothing may be sent or removed now.
    fn blocked(&self) -> Option<String>;

    /// Whether nothing may be sent or removed any more.
    fn is_lost(&self) -> bool;

    /// Whether an object of this name is there, as far as this job knows.
    fn has(&self, key: &str) -> bool;

    /// Makes the object equal to the file. `meanwhile` is to be called while a large file is on its way.
    fn send(
        &mut self,
        name: &Name,
        path: &Path,
        stamp: Stamp,
        meanwhile: &mut dyn FnMut(),
    ) -> Result<(), NotSent>;

    /// Removes an object.
    fn remove(&mut self, key: &str) -> Result<(), NotSent>;
}

/// The folders of a job's instances, as they are looked at.
pub(crate) struct Eyes {
    pub folders: Vec<PathBuf>,
    /// Whether a link counts as the file that it leads to; else it is left out.
    pub follows_links: bool,
    /// The paths under which processes have the folder open that is looked at, if it is the upper layer of another.
    pub seen_at: Vec<PathBuf>,
    pub watch: Watch,
    looked: Instant,
}

impl Eyes {
    pub fn new(folders: Vec<PathBuf>, follows_links: bool, seen_at: Vec<PathBuf>) -> Self {
        Self {
            folders,
            follows_links,
            seen_at,
            watch: Watch::default(),
            looked: Instant::now(),
        }
    }

    fn files(&mut self) -> io::Result<Found> {
        self.looked = Instant::now();
        watch::files(&self.folders, self.follows_links)
    }

    fn judge(&mut self, files: BTreeMap<Name, Stamp>, ends: Option<&[End]>) -> Work {
        let idle = files.iter().all(|(name, stamp)| self.watch.has(name, *stamp));
        // Check for open files only when there is something to send.
        let open = if idle || ends.is_some() {
            watch::Open::default()
        } else {
            watch::open_for_writing()
        };
        let mut look = Look::new();
        for (name, stamp) in files {
            let is_in = |files: &Files| files.has(&stamp, self.seen_at.iter().map(|at| at.join(&name.1)));
            let mapped = is_in(&open.mapped);
            if mapped {
                self.watch.is_mapped(&name);
            }
            let open = mapped || is_in(&open.descriptors);
            look.insert(name, Seen { stamp, open });
        }
        self.watch.look(look, ends)
    }

    /// Looks while a file is on its way, if it is time: else changes would be seen too late.
    fn glance(&mut self) {
        if self.looked.elapsed() >= LOOK
            // A folder that cannot be read is reported by the next proper look.
            && let Ok(found) = self.files()
        {
            self.judge(found.files, None);
        }
    }
}

/// Folders, and the place that they are mirrored to.
pub(crate) struct Mirror<'a, P> {
    pub place: P,
    pub eyes: Eyes,
    say: &'a (dyn Fn(&str) + Sync),
    waiting: u64,
    trouble: Option<Trouble>,
}

/// The failure of a place.
struct Trouble {
    reason: String,
    since: Instant,
    pause: Duration,
    next: Instant,
}

impl<'a, P: Place> Mirror<'a, P> {
    pub fn new(place: P, eyes: Eyes, say: &'a (dyn Fn(&str) + Sync)) -> Self {
        Self {
            place,
            eyes,
            say,
            waiting: 0,
            trouble: None,
        }
    }

    /// Forgets what was seen of the folders, which were made again.
    pub fn forget(&mut self) {
        (self.eyes.watch, self.waiting, self.trouble) = (Watch::default(), 0, None);
    }

    /// The current state.
    pub fn state(&self) -> P::State {
        let trouble = self.trouble.as_ref().map(|trouble| trouble.reason.clone());
        self.place.state(self.waiting, trouble)
    }

    /// Whether the place or a folder failed, and nothing has succeeded since.
    pub fn is_in_trouble(&self) -> bool {
        self.trouble.is_some()
    }

    /// Mirrors the folders to the place until `over` is set. Calls `report` when something has changed.
    pub fn follow(
        &mut self,
        over: &AtomicBool,
        report: &dyn Fn(P::State) -> Result<(), JobError>,
    ) -> Result<(), JobError> {
        let mut told = self.state();
        while !over.load(Ordering::SeqCst) {
            if let Some(work) = self.look(None) {
                self.waiting = work.send.len() as u64;
                if self
                    .trouble
                    .as_ref()
                    .is_none_or(|trouble| trouble.next <= Instant::now())
                {
                    self.act(&work, over);
                }
            }
            let state = self.state();
            if state != told {
                told = state;
                report(told.clone())?;
            }
            while self.eyes.looked.elapsed() < LOOK && !over.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        Ok(())
    }

    /// Sends the remaining files after all scripts have ended. Gives up when nothing could be sent for
    /// `patience`. Returns the names of the files that are not sent because they may be incomplete.
    pub fn settle(&mut self, ends: &[End], patience: Duration) -> Vec<Name> {
        // `look` has recorded the failure; the caller gets it from `state`.
        let Some(mut work) = self.look(Some(ends)) else {
            return Vec::new();
        };
        let doubtful = std::mem::take(&mut work.doubtful);
        for (_, key) in &doubtful {
            self.tell(&format!(
                "{key} is not sent: its script was killed and may not have finished it"
            ));
        }
        let never = AtomicBool::new(false);
        let mut since = Instant::now();
        // First send everything, then remove what is gone.
        for step in 0..2 {
            loop {
                let before = work.send.len() + work.remove.len();
                self.act(&work, &never);
                work.send
                    .retain(|(name, stamp)| !self.eyes.watch.has(name, *stamp));
                work.remove.retain(|(_, key)| self.place.has(key));
                let left = work.send.len() + work.remove.len();
                self.waiting = work.send.len() as u64;
                if left < before {
                    since = Instant::now();
                }
                if left == 0 || self.trouble.is_none() || self.place.is_lost() || since.elapsed() >= patience
                {
                    break;
                }
                let pause = self
                    .trouble
                    .as_ref()
                    .map_or(Duration::ZERO, |trouble| trouble.pause);
                std::thread::sleep(pause.min(patience.saturating_sub(since.elapsed())));
            }
            if self.trouble.is_some() || step == 1 {
                break;
            }
            match self.look(Some(ends)) {
                Some(Work { remove, .. }) => {
                    work = Work {
                        remove,
                        ..Work::default()
                    }
                }
                None => break,
            }
        }
        doubtful
    }

    /// Looks at all folders. Returns `None` if one cannot be read.
    fn look(&mut self, ends: Option<&[End]>) -> Option<Work> {
        let found = self.eyes.files().map_err(|error| error.to_string());
        let looked = found.and_then(|found| {
            self.place.before(&found, &mut self.eyes.watch)?;
            let work = self.eyes.judge(found.files, ends);
            self.place.complete(&work.send)?;
            Ok(work)
        });
        match looked {
            Ok(work) => Some(work),
            Err(reason) => {
                self.fail(reason);
                None
            }
        }
    }

    /// Sends and removes files, up to the first failure.
    fn act(&mut self, work: &Work, over: &AtomicBool) {
        let idle = work.send.is_empty() && work.remove.is_empty();
        if let Some(reason) = self.place.blocked().filter(|_| !idle) {
            return self.fail(reason);
        }
        for (name, stamp) in &work.send {
            if over.load(Ordering::SeqCst) {
                return;
            }
            let path = self.eyes.folders[name.0].join(&name.1);
            let eyes = &mut self.eyes;
            match self.place.send(name, &path, *stamp, &mut || eyes.glance()) {
                // What is refused is not tried again, unless it is written again.
                Ok(()) | Err(NotSent::Refused) => {
                    self.eyes.watch.sent(name, *stamp);
                    self.waiting = self.waiting.saturating_sub(1);
                }
                Err(NotSent::Changed) => {}
                Err(NotSent::Failed(reason)) => return self.fail(reason),
            }
        }
        for name in &work.remove {
            match self.place.remove(&name.1) {
                Ok(()) | Err(NotSent::Refused) => self.eyes.watch.removed(name),
                Err(NotSent::Changed) => {}
                Err(NotSent::Failed(reason)) => return self.fail(reason),
            }
        }
        if let Some(trouble) = self.trouble.take() {
            let seconds = trouble.since.elapsed().as_secs_f64();
            self.tell(&format!("files are sent again, after {seconds:.0} s"));
        }
    }

    /// Records that the place or a folder failed, and schedules the next try after a pause.
    fn fail(&mut self, reason: String) {
        let reason = plain(&reason);
        let now = Instant::now();
        let pause = match &self.trouble {
            Some(trouble) => (trouble.pause * 2).min(LONGEST_PAUSE),
            None => {
                self.tell(&format!("not sent, trying again: {reason}"));
                Duration::from_millis(500)
            }
        };
        self.trouble = Some(Trouble {
            reason,
            since: self.trouble.as_ref().map_or(now, |trouble| trouble.since),
            pause,
            next: now + pause,
        });
    }

    fn tell(&self, text: &str) {
        (self.say)(&plain(&format!("{}: {text}", self.place.name())));
    }
}

/// A message without control characters: names of files and objects may have any, and would forge lines of a log.
pub(crate) fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for c in text.chars() {
        // Line and paragraph separators, and marks that change the direction of a text.
        let is_mark = matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        match c.is_control() || is_mark {
            true => plain.extend(c.escape_default()),
            false => plain.push(c),
        }
    }
    plain
}

/// Identifies the contents of an object: size and checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sum {
    pub size: u64,
    sha256: [u8; 32],
}

/// Reads a file whose stamp is known. `each` gets its bytes. If links are not followed, a link counts as a change.
///
/// # Errors
/// [`NotSent::Changed`] if the file was changed before the end; what `each` was given is not the file then.
pub(crate) fn read(
    path: &Path,
    stamp: Stamp,
    follows_links: bool,
    each: &mut dyn FnMut(&[u8]) -> Result<(), NotSent>,
) -> Result<Sum, NotSent> {
    let disk = |error: io::Error| {
        // It is another file now: one that is gone, a link, below a link or a file, or a socket.
        let others = [Errno::NOENT, Errno::LOOP, Errno::NOTDIR, Errno::NXIO];
        match others
            .iter()
            .any(|other| error.raw_os_error() == Some(other.raw_os_error()))
        {
            true => NotSent::Changed,
            false => NotSent::Failed(format!("{}: {error}", path.display())),
        }
    };
    let unchanged = |facts: io::Result<fs::Metadata>| match facts {
        Ok(facts) if facts.is_file() && Stamp::of(&facts) == stamp => Ok(()),
        Ok(_) => Err(NotSent::Changed),
        Err(error) => Err(disk(error)),
    };
    // Opening a pipe that has taken the file's place would wait for its writer.
    let mut flags = OFlags::NONBLOCK;
    flags.set(OFlags::NOFOLLOW, !follows_links);
    let open = File::options()
        .read(true)
        .custom_flags(flags.bits().cast_signed())
        .open(path);
    let mut file = open.map_err(disk)?;
    unchanged(file.metadata())?;
    let mut summing = Summing::default();
    let mut chunk = vec![0; 1 << 20];
    loop {
        match file.read(&mut chunk) {
            Ok(0) => break,
            Ok(n) => {
                summing.add(&chunk[..n]);
                each(&chunk[..n])?;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(disk(error)),
        }
    }
    unchanged(match follows_links {
        true => fs::metadata(path),
        false => fs::symlink_metadata(path),
    })?;
    Ok(summing.sum())
}

/// The sum of bytes that come one after the other.
pub(crate) struct Summing {
    context: Context,
    size: u64,
}

impl Default for Summing {
    fn default() -> Self {
        Self {
            context: Context::new(&SHA256),
            size: 0,
        }
    }
}

impl Summing {
    pub fn add(&mut self, bytes: &[u8]) {
        self.context.update(bytes);
        self.size += bytes.len() as u64;
    }

    pub fn sum(self) -> Sum {
        let mut sha256 = [0; 32];
        sha256.copy_from_slice(self.context.finish().as_ref());
        Sum {
            size: self.size,
            sha256,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_became_something_else_is_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let (path, other) = (dir.path().join("a"), dir.path().join("b"));
        fs::write(&path, "one").unwrap();
        let stamp = Stamp::of(&fs::metadata(&path).unwrap());
        let reads = |follows_links| read(&path, stamp, follows_links, &mut |_| Ok(()));
        assert!(reads(false).is_ok());
        fs::rename(&path, &other).unwrap();
        std::os::unix::fs::symlink(&other, &path).unwrap();
        assert!(matches!(reads(false), Err(NotSent::Changed)), "a link");
        assert!(
            matches!(reads(true), Err(NotSent::Changed)),
            "renaming has changed its times"
        );
        let stamp = Stamp::of(&fs::metadata(&path).unwrap());
        assert!(read(&path, stamp, true, &mut |_| Ok(())).is_ok());
        fs::remove_file(&path).unwrap();
        let socket = std::os::unix::net::UnixListener::bind(&path).unwrap();
        assert!(matches!(reads(false), Err(NotSent::Changed)), "a socket");
        drop(socket);
        fs::remove_file(&path).unwrap();
        let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(made.success());
        let (give, take) = std::sync::mpsc::channel();
        let fifo = path.clone();
        std::thread::spawn(move || {
            for follows_links in [true, false] {
                let read = read(&fifo, stamp, follows_links, &mut |_| Ok(()));
                give.send(matches!(read, Err(NotSent::Changed))).unwrap();
            }
        });
        for _ in 0..2 {
            assert!(take.recv_timeout(Duration::from_secs(10)).unwrap(), "a pipe");
        }
    }

    #[test]
    fn a_message_is_one_line() {
        assert_eq!(plain("größe 3 \u{2014} a\\b"), "größe 3 \u{2014} a\\b");
        assert_eq!(
            plain("a\n2026 \x1b[2J\t\u{202e}b"),
            "a\\n2026 \\u{1b}[2J\\t\\u{202e}b"
        );
    }
}
