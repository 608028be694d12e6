//! Channels of mode `Cache` that the script may write to: what it writes, replaces or removes goes to the bucket, as
//! FSx for Lustre's export does.
//!
//! ```text
//!                      the instance's room                                the runner
//!  script ──► overlay at the channel's folder ──► upper: JOB/writes/NAME/upper ──► Writer ──► bucket
//!                           │                     what it wrote, and marks of     one complete file at a time
//!                           └──► lower: the read-only view (mount.rs)     what it removed
//! ```
//!
//! The kernel's overlayfs does the file system's part: a file that is opened for writing is first copied to the upper
//! layer, a removed one leaves a whiteout there, and a folder that was made again hides what is below it
//! ([`layer`]). So the view stays read-only, and the upper layer is all that there is to send. It is on the disk of
//! the job's folder, where it grows with what the script writes until the job ends; the disk is its limit. Renaming a
//! folder of the view gives `EXDEV`; `mv` and `shutil.move` then copy it.
//!
//! **When** files are sent, in which order, and what happens when the bucket fails: as for checkpoints, by the same
//! code ([`crate::mirror`]): complete files only, one at a time, in parts of 16 MiB of which five are in memory.
//!
//! **Conflicts.** An object is only replaced or removed while it is the version that was listed at the start or that
//! this job wrote, and a new one is only made where none is. The server compares the versions when it writes an
//! object of up to 16 MiB. Before a larger one is completed, and before one is removed, its version is asked for; a
//! writer in the moment between the two requests is not noticed. A refused file is named in the log. The bucket keeps
//! its object, the job's folder keeps the file, and the job fails at its end. Meanwhile removals are held back: the
//! script may have removed a file because it had written another. Once the refused file can be sent, or is gone, it
//! counts no more, and the removals are made. An object that has the file's bytes already is no conflict: an answer
//! may have been lost.
//!
//! **After kill -9** the journal ([`journal`]) says which files were complete, which were sent, and what the bucket
//! had. The next start sends what was complete, puts the rest aside, removes the layer, and only then lists the
//! bucket again.
//!
//! An object that the view does not show, because others lie below a folder of its name, is never replaced.
//!
//! Not objects, and so refused: links, names that are not UTF-8, folders more than 64 deep. Empty folders, pipes and
//! sockets are not kept. Times and permissions are not kept either, but a file whose time or permissions change is
//! copied to the upper layer and sent.

mod journal;
mod layer;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stokehold_base::clock::unix_now as now;
use stokehold_base::there::if_there;
use stokehold_objects::{Bucket, Cause, Object, ObjectError};

use crate::data::open::open_with;
use crate::mirror::watch::{self, End, Found, Name, Stamp, Watch};
use crate::mirror::{self, Eyes, Mirror, NotSent, Place, RETRY, Sum, Summing, plain};
use crate::runner::room::{OPT_ML, Overlay};
use crate::{Access, Channel, Job, JobError, Mode};
use journal::{Entry, Journal, Version};

/// The state of a channel that the script may write to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Written {
    /// The place that is written to.
    pub uri: String,
    /// Number of objects that were written, since the job's last start.
    pub files: u64,
    /// Bytes of these objects.
    pub bytes: u64,
    /// Number of objects that were removed, since the job's last start.
    pub removed: u64,
    /// Number of complete files that are not at the place yet, or not in their latest version.
    pub waiting: u64,
    /// Number of objects that were not written or removed, because somebody else had changed them or there can be no
    /// such object.
    pub refused: u64,
    /// Why files are waiting, if the place failed, or else why the first one was refused.
    pub trouble: Option<String>,
}

/// Sends what the script writes to a channel.
pub(crate) type Writer<'a> = Mirror<'a, Writes<'a>>;

/// A channel's place, and what this job knows of it.
pub(crate) struct Writes<'a> {
    channel: String,
    /// How messages begin.
    name: String,
    bucket: Bucket,
    /// The job's folder.
    folder: PathBuf,
    say: &'a (dyn Fn(&str) + Sync),
    /// The objects as this job knows them: from the list, and from its own writes.
    there: BTreeMap<String, There>,
    journal: Journal,
    /// Whether the script of the layer had ended before this runner took it up.
    ended: bool,
    /// Whether objects are removed.
    removes: bool,
    /// What the journal has of each key that is not sent: the file's stamp, or none for one that is gone.
    found: BTreeMap<String, Option<Stamp>>,
    /// What was not written or removed.
    refused: BTreeMap<String, Refused>,
    /// How many were refused so far.
    refusals: usize,
    /// Objects that were not removed because something is refused.
    held: BTreeSet<String>,
    sent: Written,
}

/// A write or a removal that was refused.
struct Refused {
    /// Its number, in the order in which they were refused.
    number: usize,
    reason: String,
    what: What,
    /// Whether the last look did not find it any more.
    missed: bool,
}

/// What was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
enum What {
    /// A file or link with the object's name.
    File,
    /// A file or folder at this path of the layer, which no object can be made of.
    Unfit(PathBuf),
    Removal,
}

/// An object that this job knows.
#[derive(Debug, Clone)]
struct There {
    version: Version,
    /// Whether the script sees it. The view does not show an object that others lie below.
    is_shown: bool,
    /// The file that was sent last, and its bytes.
    sent: Option<(Stamp, Sum)>,
}

/// Whether a script's writes to a channel go to the bucket.
pub(crate) fn is_written_back(channel: &Channel) -> bool {
    channel.mode() == Mode::Cache && channel.access == Access::Rw
}

/// The channels of a job whose writes go to the bucket.
pub(crate) fn channels(job: &Job) -> impl Iterator<Item = (&String, &Channel)> {
    job.channels
        .iter()
        .filter(|(_, channel)| is_written_back(channel))
}

/// The overlays that an instance's room has, whose data folder is given.
pub(crate) fn overlays(job: &Job, folder: &Path, data: &Path) -> Vec<Overlay> {
    let below = data.strip_prefix(folder).unwrap_or(data);
    let overlay = |(name, _): (&String, &Channel)| Overlay {
        base: folder.to_owned(),
        at: below.join(name),
        upper: Path::new(WRITES).join(name).join(UPPER),
        work: Path::new(WRITES).join(name).join(WORK),
    };
    channels(job).map(overlay).collect()
}

/// The folder of all layers in a job's folder.
const WRITES: &str = "writes";
const UPPER: &str = "upper";
const WORK: &str = "work";
const JOURNAL: &str = "journal";

/// Lets a job's folder be removed: overlayfs leaves folders in it that no one may read.
pub(crate) fn release(folder: &Path) {
    for layer in fs::read_dir(folder.join(WRITES)).into_iter().flatten().flatten() {
        let inner = layer.path().join(WORK).join(WORK);
        // It is there only after a mount.
        let _ = fs::set_permissions(&inner, fs::Permissions::from_mode(0o700));
    }
}

impl<'a> Mirror<'a, Writes<'a>> {
    /// The writer of a channel, with what an earlier start may have left to be sent. `folder` is the job's folder,
    /// `data` the instance's data folder.
    pub fn open(
        job: &Job,
        name: &str,
        channel: &Channel,
        (folder, data): (&Path, &Path),
        say: &'a (dyn Fn(&str) + Sync),
    ) -> Result<Self, JobError> {
        let failed = |source| JobError::Channel {
            channel: name.to_owned(),
            source,
        };
        let bucket = open_with(job, &channel.uri, RETRY).map_err(failed)?;
        let layer = folder.join(WRITES).join(name);
        let upper = layer.join(UPPER);
        fs::create_dir_all(&upper).map_err(JobError::io(&upper))?;
        let path = layer.join(JOURNAL);
        let (journal, entries) = Journal::open(&path).map_err(JobError::io(&path))?;
        // Processes see their files under canonical paths.
        let data = data.canonicalize().map_err(JobError::io(data))?;
        let seen_at = vec![data.join(name), Path::new(OPT_ML).join("input/data").join(name)];
        let place = Writes {
            channel: name.to_owned(),
            name: format!("channel {name}"),
            sent: Written {
                uri: bucket.location().to_string(),
                ..Written::default()
            },
            bucket,
            folder: folder.to_owned(),
            say,
            there: BTreeMap::new(),
            journal,
            ended: false,
            removes: true,
            found: BTreeMap::new(),
            refused: BTreeMap::new(),
            refusals: 0,
            held: BTreeSet::new(),
        };
        let mut writer = Self::new(place, Eyes::new(vec![upper], false, seen_at), say);
        writer.replay(entries).map_err(JobError::io(&layer))?;
        Ok(writer)
    }

    /// Takes up what the journal of an earlier start says.
    fn replay(&mut self, entries: Vec<Entry>) -> io::Result<()> {
        let files = watch::files(&self.eyes.folders, false)?.files;
        let stamp = |key: &str| files.get(&(0, key.to_owned())).copied();
        for entry in entries {
            match entry {
                Entry::Found {
                    key,
                    stamp: then,
                    over,
                    hidden,
                } => {
                    if let Some(stamp) = stamp(&key).filter(|stamp| then == Some(stamp.text())) {
                        self.eyes.watch.was_complete((0, key.clone()), stamp);
                    }
                    if let Some(version) = over {
                        let there = There {
                            is_shown: !hidden,
                            ..There::shown(version)
                        };
                        self.place.there.insert(key, there);
                    }
                }
                Entry::Sent {
                    key,
                    stamp: then,
                    version,
                } => {
                    if let Some(stamp) = stamp(&key).filter(|stamp| then == stamp.text()) {
                        self.eyes.watch.sent(&(0, key.clone()), stamp);
                    }
                    self.place.there.insert(key, There::shown(version));
                }
                Entry::Removed { key } => drop(self.place.there.remove(&key)),
                Entry::Ended { removes } => (self.place.ended, self.place.removes) = (true, removes),
            }
        }
        Ok(())
    }

    /// The channel's name.
    pub fn channel(&self) -> &str {
        &self.place.channel
    }

    /// Sends what an earlier start left. Returns why something was refused.
    ///
    /// # Errors
    /// Not all could be sent; it is kept for the next start.
    pub fn send_leftovers(&mut self, patience: Duration) -> Result<Option<String>, JobError> {
        let end = match self.place.ended {
            true => End::Itself,
            // The runner died, and its script with it.
            false => End::Killed,
        };
        let reason = self.close(end, patience);
        match self.state().waiting > 0 || self.eyes.folders[0].exists() {
            true => Err(JobError::Input(format!(
                "{}; resume the job when the place can be reached",
                reason.unwrap_or_default()
            ))),
            false => Ok(reason),
        }
    }

    /// Begins with an empty layer over the objects that were listed.
    pub fn begin(&mut self, objects: Vec<Object>) -> Result<(), JobError> {
        self.forget();
        let keys: BTreeSet<&str> = objects.iter().map(|object| object.key.as_str()).collect();
        let is_shown = |key: &str| {
            let below = format!("{key}/");
            let next = keys.range(below.as_str()..).next();
            !next.is_some_and(|next| next.starts_with(&below))
        };
        let there = objects.iter().map(|object| {
            let there = There {
                is_shown: is_shown(&object.key),
                ..There::shown(Version::of(object))
            };
            (object.key.clone(), there)
        });
        self.place.there = there.collect();
        let layer = self.place.layer();
        for folder in [UPPER, WORK] {
            let folder = layer.join(folder);
            fs::create_dir_all(&folder).map_err(JobError::io(&folder))?;
        }
        let path = layer.join(JOURNAL);
        (self.place.journal, _) = Journal::open(&path).map_err(JobError::io(&path))?;
        (self.place.ended, self.place.removes) = (false, true);
        self.place.found.clear();
        // What was refused of an earlier layer is put aside.
        self.place.refused.clear();
        self.place.held.clear();
        Ok(())
    }

    /// Sends the rest after the script has ended, puts aside what cannot be sent, and removes the layer if nothing
    /// is left to be sent. Returns why something was not sent.
    pub fn close(&mut self, end: End, patience: Duration) -> Option<String> {
        self.end(end, patience).map(|reason| plain(&reason))
    }

    fn end(&mut self, end: End, patience: Duration) -> Option<String> {
        let doubtful = self.settle(&[end], patience);
        let removes = self.place.removes && doubtful.is_empty();
        let is_left = self.state().waiting > 0 || self.is_in_trouble();
        let aside = self.place.put_aside(doubtful);
        let state = self.state();
        let place = &mut self.place;
        let layer = place.layer();
        let aside = match aside {
            Ok(aside) => aside,
            Err(reason) => return Some(format!("{}: {reason}", place.name)),
        };
        if is_left {
            // What is in the layer now is complete.
            let marked = place.journal.add(&Entry::Ended { removes });
            let trouble = state.trouble.unwrap_or_default();
            let marked = marked.map_or_else(|error| format!(" ({error})"), |()| String::new());
            return Some(format!(
                "{}: not all could be written to {} ({} files wait in {}): {trouble}{marked}",
                place.name,
                state.uri,
                state.waiting,
                layer.join(UPPER).display()
            ));
        }
        if let Some((number, first)) = place.still_there() {
            (place.say)(&format!(
                "{}: {number} objects that the script removed are still there, because not all that it wrote before was \
                 sent; the first is {first}",
                place.name
            ));
        }
        release(&place.folder);
        if let Err(error) = if_there(fs::remove_dir_all(&layer)) {
            return Some(format!("{}: {}: {error}", place.name, layer.display()));
        }
        let (first, refused) = place.first_refused()?;
        let file = aside
            .map(|aside| aside.join(refused.path(first)))
            .filter(|file| file.symlink_metadata().is_ok());
        let file = file.map_or_else(String::new, |file| {
            format!("; the script's file is {}", file.display())
        });
        let others = match place.refused.len() {
            1 => String::new(),
            2 => " (and 1 other, which the log names)".to_owned(),
            number => format!(" (and {} others, which the log names)", number - 1),
        };
        let held = match place.held.len() {
            0 => String::new(),
            1 => "; 1 removal was held back because of it".to_owned(),
            number => format!("; {number} removals were held back because of it"),
        };
        let reason = &refused.reason;
        Some(format!(
            "{}: {}: {reason}{file}{others}{held}",
            place.name,
            place.bucket.location().uri(first)
        ))
    }
}

impl There {
    fn shown(version: Version) -> Self {
        Self {
            version,
            is_shown: true,
            sent: None,
        }
    }
}

impl Refused {
    /// Where it is below the layer.
    fn path<'a>(&'a self, key: &'a str) -> &'a Path {
        match &self.what {
            What::Unfit(path) => path,
            What::File | What::Removal => Path::new(key),
        }
    }
}

impl Writes<'_> {
    fn layer(&self) -> PathBuf {
        self.folder.join(WRITES).join(&self.channel)
    }

    fn tell(&self, text: &str) {
        (self.say)(&plain(&format!("{}: {text}", self.name)));
    }

    /// What was refused first, of what still is.
    fn first_refused(&self) -> Option<(&String, &Refused)> {
        self.refused.iter().min_by_key(|(_, refused)| refused.number)
    }

    /// Forgets what was refused and is not in the layer any more. One look may miss a file that is being replaced.
    fn forget_refused(&mut self, found: &Found, hides: &layer::Hides) {
        self.refused.retain(|key, refused| {
            let is_file = || found.files.contains_key(&(0, key.clone())) || hides.links.contains(key);
            let is_there = match &refused.what {
                What::File => is_file(),
                What::Unfit(path) => found.unfit.iter().any(|unfit| unfit.path == *path),
                // The script may have made it again.
                What::Removal => !is_file(),
            };
            let was_missed = std::mem::replace(&mut refused.missed, !is_there);
            is_there || !was_missed
        });
        self.release_held();
    }

    /// Lets removals be made that were held back, once nothing is refused any more.
    fn release_held(&mut self) {
        if self.refused.is_empty() {
            self.held.clear();
        }
    }

    /// The keys of objects that the upper layer, which has these files, hides and does not replace.
    fn gone(&self, files: &BTreeMap<Name, Stamp>, hides: &layer::Hides) -> BTreeSet<String> {
        let is_kept = |key: &str| {
            files.contains_key(&(0, key.to_owned()))
                || hides.links.contains(key)
                || self.refused.contains_key(key)
                || self.held.contains(key)
        };
        let mut gone = BTreeSet::new();
        let mut add = |key: &str| {
            if !is_kept(key) {
                gone.insert(key.to_owned());
            }
        };
        let below = |folder: &str| {
            let folder = format!("{folder}/");
            let from = self.there.range(folder.clone()..).map(|(key, _)| key.as_str());
            from.take_while(move |key| key.starts_with(&folder))
        };
        for key in &hides.whiteouts {
            // An empty object that is not shown marks the folder, and goes with it.
            let goes = |there: &There| there.is_shown || there.version.size == 0;
            if self.there.get(key).is_some_and(goes) {
                add(key);
            }
        }
        for folder in &hides.folders {
            if self.there.get(folder).is_some_and(|there| there.is_shown) {
                add(folder);
            }
        }
        // A file hides what was below a folder of its name.
        let covers = hides.whiteouts.iter().chain(&hides.opaque);
        for key in covers.chain(files.keys().map(|(_, key)| key)) {
            below(key).for_each(&mut add);
        }
        gone
    }

    /// How many objects the upper layer still hides, and the first of them.
    fn still_there(&self) -> Option<(usize, String)> {
        let upper = self.layer().join(UPPER);
        let hides = layer::hides(&upper).ok()?;
        let gone = self.gone(&watch::files(&[upper], false).ok()?.files, &hides);
        Some((gone.len(), gone.first()?.clone()))
    }

    /// Moves the files that may be incomplete, and those that were refused, out of the layer. Returns where they
    /// are.
    fn put_aside(&self, doubtful: Vec<Name>) -> Result<Option<PathBuf>, String> {
        let upper = self.layer().join(UPPER);
        let aside = self
            .folder
            .join("unsent")
            .join(format!("{}-{:.0}", self.channel, now()));
        let doubtful = doubtful.iter().map(|(_, key)| Path::new(key));
        let refused = self.refused.iter().map(|(key, refused)| refused.path(key));
        let unfit = |path: &Path| {
            self.refused
                .values()
                .any(|refused| refused.what == What::Unfit(path.to_owned()))
        };
        let mut number = 0;
        for path in doubtful.chain(refused) {
            let (from, to) = (upper.join(path), aside.join(path));
            // An object that was not removed has no file.
            let is_kept = |facts: fs::Metadata| {
                facts.is_file() || facts.is_symlink() || (facts.is_dir() && unfit(path))
            };
            let failed = |error| format!("{} cannot be put aside: {error}", from.display());
            let facts = match from.symlink_metadata() {
                Err(error) if error.kind() == io::ErrorKind::NotADirectory => None,
                facts => if_there(facts).map_err(failed)?,
            };
            if !facts.is_some_and(is_kept) {
                continue;
            }
            let moved =
                fs::create_dir_all(to.parent().unwrap_or(&aside)).and_then(|()| fs::rename(&from, &to));
            moved.map_err(failed)?;
            number += 1;
        }
        if number == 0 {
            return Ok(None);
        }
        self.tell(&format!(
            "{number} files that were not sent are in {}",
            aside.display()
        ));
        Ok(Some(aside))
    }

    /// Records that something is not written or removed.
    fn refuse(&mut self, key: &str, what: What, reason: impl Into<String>) -> NotSent {
        if self.refused.contains_key(key) {
            return NotSent::Refused;
        }
        let refused = Refused {
            number: self.refusals,
            reason: reason.into(),
            what,
            missed: false,
        };
        let file = self.layer().join(UPPER).join(refused.path(key));
        let is_kept = file.is_file() || file.is_symlink() || (refused.what != What::Removal && file.is_dir());
        let file = match is_kept {
            true => format!("; the script's file is {}", file.display()),
            false => String::new(),
        };
        self.tell(&format!(
            "refused: {}: {}{file}",
            self.bucket.location().uri(key),
            refused.reason
        ));
        self.refusals += 1;
        self.refused.insert(key.to_owned(), refused);
        NotSent::Refused
    }

    /// An error of a request. A name that no object can have is refused.
    fn failed(&mut self, key: &str, error: ObjectError) -> NotSent {
        match error.cause {
            Cause::BadUri => self.refuse(key, What::File, error.reason),
            _ => error.into(),
        }
    }

    /// Whether the object has the bytes of the file: then it was written by this job, and the answer was lost.
    fn has_bytes(&self, object: &Object, path: &Path, stamp: Stamp) -> Result<bool, NotSent> {
        if object.size != stamp.size {
            return Ok(false);
        }
        let ours: Sum = mirror::read(path, stamp, false, &mut |_| Ok(()))?;
        let (mut theirs, mut offset) = (Summing::default(), 0);
        let mut chunk = vec![0; CHUNK];
        while offset < object.size {
            let chunk = &mut chunk[..CHUNK.min((object.size - offset) as usize)];
            self.bucket.fetch_range(&object.key, offset, chunk)?;
            theirs.add(chunk);
            offset += chunk.len() as u64;
        }
        Ok(theirs.sum() == ours)
    }

    /// Somebody else has written or removed the object, unless it was this job itself.
    fn conflict(&mut self, key: &str, path: &Path, stamp: Stamp) -> Result<(), NotSent> {
        let found = self
            .bucket
            .look_up(key)
            .map_err(|error| self.failed(key, error))?;
        let reason = match (&found, self.there.contains_key(key)) {
            (Some((object, _)), _) if self.has_bytes(object, path, stamp)? => {
                let version = Version::of(object);
                return self.is_sent(key, (stamp, None), version);
            }
            (Some(_), true) => "somebody else has written it since this job listed or wrote it, and it stays",
            (Some(_), false) => "somebody else has made it since this job listed the objects, and it stays",
            (None, _) => {
                "somebody else has removed it since this job listed or wrote it, and it stays removed"
            }
        };
        Err(self.refuse(key, What::File, reason))
    }

    /// Records that a file is at the place.
    fn is_sent(
        &mut self,
        key: &str,
        (stamp, sum): (Stamp, Option<Sum>),
        version: Version,
    ) -> Result<(), NotSent> {
        let there = There {
            sent: sum.map(|sum| (stamp, sum)),
            ..There::shown(version.clone())
        };
        self.there.insert(key.to_owned(), there);
        self.found.remove(key);
        self.refused.remove(key);
        self.release_held();
        self.add(&Entry::Sent {
            key: key.to_owned(),
            stamp: stamp.text(),
            version,
        })?;
        self.sent.files += 1;
        self.sent.bytes += stamp.size;
        self.tell(&format!("wrote {key} ({} bytes)", stamp.size));
        Ok(())
    }

    fn add(&mut self, entry: &Entry) -> Result<(), NotSent> {
        self.journal
            .add(entry)
            .map_err(|error| NotSent::Failed(error.to_string()))
    }

    /// Notes in the journal that a file is complete, or gone, once.
    fn note(&mut self, key: &str, stamp: Option<Stamp>) -> Result<(), String> {
        if self.found.get(key) == Some(&stamp) {
            return Ok(());
        }
        let entry = Entry::Found {
            key: key.to_owned(),
            stamp: stamp.map(Stamp::text),
            over: self.there.get(key).map(|there| there.version.clone()),
            hidden: self.there.get(key).is_some_and(|there| !there.is_shown),
        };
        self.journal.add(&entry).map_err(|error| error.to_string())?;
        self.found.insert(key.to_owned(), stamp);
        Ok(())
    }
}

/// What is fetched at once of an object that is compared with a file.
const CHUNK: usize = 4 << 20;

impl Place for Writes<'_> {
    type State = Written;

    fn name(&self) -> &str {
        &self.name
    }

    fn state(&self, waiting: u64, trouble: Option<String>) -> Written {
        let refused = || {
            let (key, refused) = self.first_refused()?;
            let uri = self.bucket.location().uri(key);
            Some(plain(&format!("{uri}: {}", refused.reason)))
        };
        Written {
            waiting,
            refused: self.refused.len() as u64,
            trouble: trouble.or_else(refused),
            ..self.sent.clone()
        }
    }

    /// Finds the objects that the script has removed, and what cannot be an object.
    fn before(&mut self, found: &Found, watch: &mut Watch) -> Result<(), String> {
        let hides = layer::hides(&self.layer().join(UPPER)).map_err(|error| error.to_string())?;
        self.forget_refused(found, &hides);
        for key in &hides.links {
            self.refuse(
                key,
                What::File,
                "it is a link in the channel, and an object cannot be one",
            );
        }
        for unfit in &found.unfit {
            let what = What::Unfit(unfit.path.clone());
            self.refuse(&unfit.name(), what, unfit.reason.as_str());
        }
        if !self.removes {
            return Ok(());
        }
        for key in self.gone(&found.files, &hides) {
            self.note(&key, None)?;
            watch.brought((0, key), Stamp::UNKNOWN);
        }
        Ok(())
    }

    fn complete(&mut self, files: &[(Name, Stamp)]) -> Result<(), String> {
        for ((_, key), stamp) in files {
            self.note(key, Some(*stamp))?;
        }
        Ok(())
    }

    fn blocked(&self) -> Option<String> {
        None
    }

    fn is_lost(&self) -> bool {
        false
    }

    fn has(&self, key: &str) -> bool {
        self.there.contains_key(key) && !self.refused.contains_key(key) && !self.held.contains(key)
    }

    fn send(
        &mut self,
        (_, key): &Name,
        path: &Path,
        stamp: Stamp,
        meanwhile: &mut dyn FnMut(),
    ) -> Result<(), NotSent> {
        if let Some(there) = self.there.get(key) {
            if !there.is_shown && there.version.size > 0 {
                let reason = "the channel does not show this object, because others lie below a folder of its name, and it stays";
                return Err(self.refuse(key, What::File, reason));
            }
            // It was mapped, and may have changed unseen since it was sent.
            if let Some((then, sum)) = there.sent
                && then == stamp
                && mirror::read(path, stamp, false, &mut |_| Ok(()))? == sum
            {
                return Ok(());
            }
        }
        let found = self
            .bucket
            .look_up(key)
            .map_err(|error| self.failed(key, error))?;
        let expected = match (self.there.get(key), &found) {
            (None, None) => None,
            (Some(there), Some((object, version))) if there.version.is(object) => Some(version),
            _ => return self.conflict(key, path, stamp),
        };
        let mut upload = self.bucket.upload(key, stamp.size)?;
        let sum = mirror::read(path, stamp, false, &mut |bytes| {
            meanwhile();
            Ok(upload.write(bytes)?)
        })?;
        match upload.finish_if(expected)? {
            Some(version) => {
                let version = match version.etag() {
                    Some(etag) => Version::written(etag, stamp.size),
                    // A server without ETags: its time of the write.
                    None => match self.bucket.look_up(key)? {
                        Some((object, _)) => Version::of(&object),
                        None => return Err(NotSent::Changed),
                    },
                };
                self.is_sent(key, (stamp, Some(sum)), version)
            }
            None => self.conflict(key, path, stamp),
        }
    }

    fn remove(&mut self, key: &str) -> Result<(), NotSent> {
        let Some(there) = self.there.get(key).filter(|_| !self.refused.contains_key(key)) else {
            return Ok(());
        };
        let known = there.version.clone();
        if !self.refused.is_empty() {
            if self.held.insert(key.to_owned()) {
                self.tell(&format!(
                    "held back: {}: the script removed it, and it stays while another of its writes is refused",
                    self.bucket.location().uri(key)
                ));
            }
            return Err(NotSent::Refused);
        }
        match self.bucket.look_up(key)? {
            Some((object, _)) if !known.is(&object) => {
                let reason = "the script removed it, and it stays, because somebody else has written it since this job \
                              listed or wrote it";
                return Err(self.refuse(key, What::Removal, reason));
            }
            Some(_) => self.bucket.delete(key)?,
            None => {}
        }
        self.there.remove(key);
        self.found.remove(key);
        self.add(&Entry::Removed { key: key.to_owned() })?;
        self.sent.removed += 1;
        self.tell(&format!("removed {key}"));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The keys that count as removed in a layer over the given objects; sizes are one, and zero for a name that ends
    /// with a slash.
    fn gone(objects: &[&str], files: &[&str], hides: &layer::Hides) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        let mut job = Job::new(crate::EntryPoint::parse("a.sh").unwrap());
        job.name = Some("x".to_owned());
        let channel = Channel::parse(folder.path().to_str().unwrap()).unwrap();
        let say = |_: &str| ();
        let mut writer = Writer::open(&job, "train", &channel, (folder.path(), folder.path()), &say).unwrap();
        let object = |key: &&str| Object {
            key: key.trim_end_matches('/').to_owned(),
            size: u64::from(!key.ends_with('/')),
            etag: None,
            modified: 0,
        };
        writer.begin(objects.iter().map(object).collect()).unwrap();
        let files = files.iter().map(|key| ((0, (*key).to_owned()), Stamp::UNKNOWN));
        writer.place.gone(&files.collect(), hides).into_iter().collect()
    }

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_layer_hides_what_was_removed_or_covered_and_nothing_else() {
        let objects = [
            "a", "a-b", "d/", "d/1", "d/2/3", "e", "f/1", "f-1", "hidden", "hidden/x",
        ];
        let none = layer::Hides::default();
        assert!(gone(&objects, &["a", "new", "d/1"], &none).is_empty());
        let whiteouts = |keys: &[&str]| layer::Hides {
            whiteouts: names(keys),
            ..layer::Hides::default()
        };
        assert_eq!(gone(&objects, &[], &whiteouts(&["a"])), ["a"]);
        assert_eq!(
            gone(&objects, &[], &whiteouts(&["d"])),
            ["d", "d/1", "d/2/3"],
            "with the mark of the folder"
        );
        assert_eq!(
            gone(&objects, &[], &whiteouts(&["hidden"])),
            ["hidden/x"],
            "an object that the script never saw stays"
        );
        // A folder that was made again, with one of its files.
        let anew = layer::Hides {
            opaque: names(&["d"]),
            folders: names(&["d", "e", "e/in"]),
            ..layer::Hides::default()
        };
        assert_eq!(gone(&objects, &["d/1", "e/in/1"], &anew), ["d/2/3", "e"]);
        // A file in place of a folder.
        assert_eq!(gone(&objects, &["f"], &none), ["f/1"]);
        // A folder that only has a changed file in it.
        let changed = layer::Hides {
            folders: names(&["d", "hidden"]),
            links: names(&["f"]),
            ..layer::Hides::default()
        };
        assert!(gone(&objects, &["d/1"], &changed).is_empty());
    }

    #[test]
    fn an_object_that_the_script_cannot_see_is_never_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let bucket = folder.path().join("bucket");
        fs::create_dir(&bucket).unwrap();
        let mut job = Job::new(crate::EntryPoint::parse("a.sh").unwrap());
        job.name = Some("x".to_owned());
        let channel = Channel::parse(bucket.to_str().unwrap()).unwrap();
        let said = std::sync::Mutex::new(Vec::new());
        let say = |text: &str| said.lock().unwrap().push(text.to_owned());
        let open = || Writer::open(&job, "train", &channel, (folder.path(), folder.path()), &say).unwrap();
        let object = |(key, size): (&str, u64)| Object {
            key: key.to_owned(),
            size,
            etag: None,
            modified: 0,
        };
        let mut writer = open();
        let objects = [("d", 6), ("d/x", 1), ("mark", 0), ("mark/x", 1)];
        writer.begin(objects.map(object).into()).unwrap();
        let upper = writer.eyes.folders[0].clone();
        // Files are sent in the order of their times, and the first one that cannot be sent is named.
        for (second, key) in ["d", "mark"].into_iter().enumerate() {
            let path = upper.join(key);
            fs::write(&path, "mine").unwrap();
            let file = fs::File::options().write(true).open(&path).unwrap();
            file.set_modified(std::time::UNIX_EPOCH + Duration::from_secs(second as u64))
                .unwrap();
        }
        let files = watch::files(&[upper], false).unwrap().files;
        let files: Vec<(Name, Stamp)> = files.into_iter().collect();
        writer.place.complete(&files).unwrap();
        // Also by the next runner, if this one is killed now.
        drop(writer);
        let mut writer = open();
        let reason = writer.send_leftovers(Duration::ZERO).unwrap().unwrap();
        assert!(
            reason.contains("/bucket/d: the channel does not show this object"),
            "{reason}"
        );
        assert!(!bucket.join("d").exists());
        let said = said.into_inner().unwrap();
        assert!(said.iter().all(|line| !line.contains("wrote d")), "{said:?}");
    }
}
