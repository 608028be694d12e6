//! Decides which files to send and which to remove, as a pure function of what was seen: it reads and sends
//! no bytes.
//!
//! A look is the list of all files with their [`Stamp`]s, and whether a process has them open for writing. A file
//! counts as open also while a process has mapped it as shared and writable: such a process may have closed it, and
//! what it stores then need not change the file's times.
//! From one look to the next, [`Watch`] remembers which version of a file was sent, and so finds what is new,
//! complete or gone.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use stokehold_base::there::if_there;

use crate::data::mountinfo::unescaped;

/// The instance's number and the file's name below its folder: the key of its object.
pub(crate) type Name = (usize, String);

/// Identifies a version of a file without reading it: a replaced file, another size or a later write gives
/// another stamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Stamp {
    /// Nanoseconds since 1970. The first field, so that stamps sort in the order of the writes.
    pub modified: i128,
    changed: i128,
    pub size: u64,
    pub file: (u64, u64),
}

impl Stamp {
    /// The stamp of an object that no file was seen of.
    pub const UNKNOWN: Self = Self {
        modified: 0,
        changed: 0,
        size: 0,
        file: (0, 0),
    };

    /// The same as a text, which is also valid after a restart of the machine, when devices may have other numbers.
    pub fn text(self) -> String {
        format!("{} {} {} {}", self.modified, self.changed, self.size, self.file.1)
    }

    pub fn of(facts: &Metadata) -> Self {
        let nanos = |seconds: i64, nanos: i64| i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
        Self {
            modified: nanos(facts.mtime(), facts.mtime_nsec()),
            changed: nanos(facts.ctime(), facts.ctime_nsec()),
            size: facts.len(),
            file: (facts.dev(), facts.ino()),
        }
    }
}

/// A file as a look found it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seen {
    pub stamp: Stamp,
    /// A process has it open for writing.
    pub open: bool,
}

pub(crate) type Look = BTreeMap<Name, Seen>;

/// How the script of an instance ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// By itself: the files are as the script meant to leave them.
    Itself,
    /// Killed: a file that the script was writing may be incomplete.
    Killed,
}

/// The work that follows from a look.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Work {
    /// Complete files that are not at the place, in the order in which they were written.
    pub send: Vec<(Name, Stamp)>,
    /// Files that are gone and can be removed at the place now.
    pub remove: Vec<Name>,
    /// Files that are not sent, because they may be incomplete.
    pub doubtful: Vec<Name>,
}

/// What is known about the instances' files.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    /// Files at the place, with their stamps when they were sent or downloaded.
    known: BTreeMap<Name, Stamp>,
    /// The instance that sent each object last; none for downloaded ones. Only that instance's removal
    /// counts.
    sender: BTreeMap<String, usize>,
    /// The last look while the script ran.
    before: Look,
    /// Files that a look found mapped: what was sent of them may be outdated, though their stamps are the same.
    mapped: BTreeSet<Name>,
    /// Files that were at the place and are gone from the folder, with the files that must be sent before
    /// they are removed there; none while they were missed only once.
    gone: BTreeMap<Name, Option<BTreeMap<Name, Stamp>>>,
}

impl Watch {
    /// Records that a file was downloaded from the place.
    pub fn brought(&mut self, name: Name, stamp: Stamp) {
        self.known.insert(name, stamp);
    }

    /// Records that this version of a file is at the place.
    pub fn sent(&mut self, name: &Name, stamp: Stamp) {
        self.sender.insert(name.1.clone(), name.0);
        self.known.insert(name.clone(), stamp);
    }

    /// Records that a file was found complete by an earlier runner, which then had still to send it.
    pub fn was_complete(&mut self, name: Name, stamp: Stamp) {
        self.known.remove(&name);
        self.before.insert(name, Seen { stamp, open: false });
    }

    /// Records that a process has mapped a file, and may write to it unseen.
    pub fn is_mapped(&mut self, name: &Name) {
        self.mapped.insert(name.clone());
    }

    /// Forgets, once, that files were sent which a script had mapped and has left as it meant to: their bytes are
    /// compared then.
    fn doubt_mapped(&mut self, now: &Look, ends: &[End]) {
        for name in std::mem::take(&mut self.mapped) {
            // One that is gone is still to be removed at the place.
            if now.contains_key(&name) && ends.get(name.0) == Some(&End::Itself) {
                self.known.remove(&name);
            }
        }
    }

    /// Whether this version of a file is at the place.
    pub fn has(&self, name: &Name, stamp: Stamp) -> bool {
        self.known.get(name) == Some(&stamp)
    }

    /// Records that a file was removed from the place.
    pub fn removed(&mut self, name: &Name) {
        self.sender.remove(&name.1);
        self.known.remove(name);
        self.gone.remove(name);
    }

    /// Evaluates a look. `ends` gives the end of every instance's script, once all have ended.
    pub fn look(&mut self, now: Look, ends: Option<&[End]>) -> Work {
        let mut work = Work::default();
        if let Some(ends) = ends {
            self.doubt_mapped(&now, ends);
        }
        let unsent: Vec<(&Name, &Seen)> = now
            .iter()
            .filter(|(name, seen)| self.known.get(*name) != Some(&seen.stamp))
            .collect();
        for &(name, seen) in &unsent {
            let before = self.before.get(name).filter(|before| before.stamp == seen.stamp);
            let complete = match ends.and_then(|ends| ends.get(name.0)) {
                None => before.is_some() && !seen.open,
                Some(End::Itself) => true,
                Some(End::Killed) => before.is_some_and(|before| !before.open),
            };
            if complete {
                work.send.push((name.clone(), seen.stamp));
            } else if ends.is_some() {
                work.doubtful.push(name.clone());
            }
        }
        work.send.sort_by(|a, b| (a.1, &a.0).cmp(&(b.1, &b.0)));

        let (sender, known) = (&self.sender, &mut self.known);
        // Another instance has sent an object of this name since, so it is not this instance's to remove.
        known.retain(|name, _| {
            now.contains_key(name) || sender.get(&name.1).is_none_or(|rank| *rank == name.0)
        });
        self.gone
            .retain(|name, _| !now.contains_key(name) && known.contains_key(name));
        for name in known.keys().filter(|name| !now.contains_key(*name)) {
            match self.gone.get_mut(name) {
                // Files that were made just before this one went may be missing from this look. Wait for the
                // next one.
                None if ends.is_none() => drop(self.gone.insert(name.clone(), None)),
                None => drop(self.gone.insert(name.clone(), Some(closed(&unsent)))),
                Some(waits @ None) => *waits = Some(closed(&unsent)),
                Some(Some(_)) => {}
            }
        }
        for (name, waits) in &mut self.gone {
            let Some(waits) = waits else { continue };
            waits.retain(|file, stamp| {
                now.get(file).is_some_and(|seen| seen.stamp == *stamp) && self.known.get(file) != Some(stamp)
            });
            // Another instance has a file of this name that is still to be sent: do not remove the object.
            let comes = unsent.iter().any(|(other, _)| other.1 == name.1);
            if waits.is_empty() && !comes {
                work.remove.push(name.clone());
            }
        }
        if ends.is_none() {
            // After the end no process has the files open, which proves nothing. Ignore it.
            self.before = now;
        }
        work
    }
}

/// The files among them that no process writes to.
fn closed(unsent: &[(&Name, &Seen)]) -> BTreeMap<Name, Stamp> {
    let closed = unsent.iter().filter(|(_, seen)| !seen.open);
    closed.map(|(name, seen)| ((*name).clone(), seen.stamp)).collect()
}

/// Folders deeper than this are not looked into.
pub(crate) const DEEPEST: usize = 64;

/// The files of the instances' folders.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub files: BTreeMap<Name, Stamp>,
    /// Files and folders that no object can be made of.
    pub unfit: Vec<Unfit>,
}

/// A file or folder that no object can be made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unfit {
    pub rank: usize,
    /// Below the instance's folder.
    pub path: PathBuf,
    pub reason: String,
}

impl Unfit {
    /// Its path as a text, in which different paths differ: bytes that are not UTF-8 are written as `\xff`.
    pub fn name(&self) -> String {
        let mut name = String::new();
        for chunk in self.path.as_os_str().as_encoded_bytes().utf8_chunks() {
            name += chunk.valid();
            name.extend(chunk.invalid().escape_ascii().map(char::from));
        }
        name
    }
}

/// All files of the instances' folders. Links are followed or left out; pipes, sockets and devices are left out.
pub(crate) fn files(folders: &[PathBuf], follows_links: bool) -> io::Result<Found> {
    let mut found = Found::default();
    for (rank, folder) in folders.iter().enumerate() {
        let mut looking = Looking {
            rank,
            folder,
            follows_links,
            above: Vec::new(),
            found: &mut found,
        };
        looking
            .above
            .extend(fs::metadata(folder).ok().map(|facts| (facts.dev(), facts.ino())));
        looking.collect(folder, "")?;
    }
    Ok(found)
}

/// A walk through the folder of an instance.
struct Looking<'a> {
    rank: usize,
    folder: &'a Path,
    follows_links: bool,
    /// Device and inode of each folder from the instance's own to this one.
    above: Vec<(u64, u64)>,
    found: &'a mut Found,
}

impl Looking<'_> {
    fn collect(&mut self, folder: &Path, below: &str) -> io::Result<()> {
        let named = |path: &Path, error: &io::Error| {
            io::Error::new(error.kind(), format!("{}: {error}", path.display()))
        };
        // The folder may go between two system calls, and so may a file in it.
        let Some(entries) = if_there(fs::read_dir(folder)).map_err(|error| named(folder, &error))? else {
            return Ok(());
        };
        for entry in entries {
            let path = entry.map_err(|error| named(folder, &error))?.path();
            let facts = match self.follows_links {
                true => fs::metadata(&path),
                false => fs::symlink_metadata(&path),
            };
            let facts = match facts {
                Ok(facts) => facts,
                Err(error) if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => {
                    self.leave(&path, "it is a link to itself");
                    continue;
                }
                Err(error) if error.raw_os_error() == Some(Errno::NAMETOOLONG.raw_os_error()) => {
                    self.leave(&path, "its path is too long");
                    continue;
                }
                Err(error) => match if_there(Err(error)).map_err(|error| named(&path, &error))? {
                    Some(facts) => facts,
                    None => {
                        if let Ok(to) = fs::read_link(&path) {
                            let to = to.display();
                            self.leave(&path, &format!("it is a link to {to}, which is not there"));
                        }
                        continue;
                    }
                },
            };
            let kind = facts.file_type();
            if !(kind.is_dir() || kind.is_file() || kind.is_symlink()) {
                continue;
            }
            let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
                self.leave(&path, "a name that is not UTF-8 cannot be a key");
                continue;
            };
            let name = match below {
                "" => name.to_owned(),
                below => format!("{below}/{name}"),
            };
            if kind.is_file() {
                self.found.files.insert((self.rank, name), Stamp::of(&facts));
            } else if kind.is_dir() {
                let own = (facts.dev(), facts.ino());
                if self.above.len() > DEEPEST {
                    self.leave(&path, &format!("it is more than {DEEPEST} folders deep"));
                } else if self.above.contains(&own) {
                    self.leave(&path, "it is a link to a folder that it lies in");
                } else {
                    self.above.push(own);
                    let collected = self.collect(&path, &name);
                    self.above.pop();
                    collected?;
                }
            }
        }
        Ok(())
    }

    fn leave(&mut self, path: &Path, reason: &str) {
        self.found.unfit.push(Unfit {
            rank: self.rank,
            path: path.strip_prefix(self.folder).unwrap_or(path).to_owned(),
            reason: reason.to_owned(),
        });
    }
}

/// The files that processes may write to.
#[derive(Debug, Default)]
pub(crate) struct Open {
    pub descriptors: Files,
    /// Mapped as shared and writable. A process may have closed such a file.
    pub mapped: Files,
}

/// Files that a process uses.
#[derive(Debug, Default)]
pub(crate) struct Files {
    /// By device and inode.
    numbers: BTreeSet<(u64, u64)>,
    /// By their paths in the process's own view of the machine. A file that is opened through an overlay has other
    /// numbers than the same file in the upper layer.
    paths: BTreeSet<PathBuf>,
}

impl Files {
    fn add(&mut self, (number, path): ((u64, u64), PathBuf)) {
        self.numbers.insert(number);
        self.paths.insert(path);
    }

    /// Whether a file is among them, which processes may see at any of these paths.
    pub fn has(&self, stamp: &Stamp, mut seen_at: impl Iterator<Item = PathBuf>) -> bool {
        self.numbers.contains(&stamp.file) || seen_at.any(|path| self.paths.contains(&path))
    }
}

/// The files that any visible process has open for writing, or mapped to write to them.
pub(crate) fn open_for_writing() -> Open {
    let numbers = |folder: &Path| {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).filter(|path| {
            let name = path.file_name().and_then(|name| name.to_str());
            name.is_some_and(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
        })
    };
    // Processes of other users cannot be inspected, and do not use this folder. A process that ends meanwhile
    // has closed its files.
    let writes = |descriptor: &Path| {
        let number = descriptor.file_name()?;
        let info = fs::read_to_string(descriptor.parent()?.parent()?.join("fdinfo").join(number)).ok()?;
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:"))?;
        // The last octal digit has the access mode: 0 reads, 1 writes, 2 does both.
        let flags = u32::from_str_radix(flags.trim(), 8).ok()?;
        if flags & 3 == 0 {
            return None;
        }
        let facts = fs::metadata(descriptor).ok()?;
        let path = fs::read_link(descriptor).ok()?;
        facts.is_file().then(|| ((facts.dev(), facts.ino()), path))
    };
    let mut open = Open::default();
    for process in numbers(Path::new("/proc")) {
        // First the descriptors: a file that is mapped and then closed is in one of both.
        for descriptor in numbers(&process.join("fd")) {
            if let Some(file) = writes(&descriptor) {
                open.descriptors.add(file);
            }
        }
        let maps = fs::read(process.join("maps")).unwrap_or_default();
        maps.split(|byte| *byte == b'\n')
            .filter_map(mapped)
            .for_each(|file| open.mapped.add(file));
    }
    open
}

/// The file of a line of `/proc/PID/maps`, if it is mapped as shared and writable.
fn mapped(line: &[u8]) -> Option<((u64, u64), PathBuf)> {
    let mut fields = line.splitn(6, |byte| *byte == b' ');
    let rights = fields.nth(1)?;
    if !matches!(rights, [_, b'w', _, b's']) {
        return None;
    }
    let text = |field| std::str::from_utf8(field).ok();
    let (major, minor) = text(fields.nth(1)?)?.split_once(':')?;
    let hex = |number| u32::from_str_radix(number, 16).ok();
    let device = rustix::fs::makedev(hex(major)?, hex(minor)?);
    let inode = text(fields.next()?)?.parse().ok()?;
    let path = fields.next().unwrap_or_default().trim_ascii_start();
    Some((
        (device, inode),
        PathBuf::from(OsString::from_vec(unescaped(path))),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder and a place as numbers: the write that a file holds, and whether it is complete.
    #[derive(Default)]
    struct Model {
        time: i128,
        files: BTreeMap<String, (Stamp, bool)>,
        place: BTreeMap<String, Stamp>,
        /// For each removed file, what was complete and not at the place at that time.
        before_it_went: BTreeMap<String, Vec<(String, Stamp)>>,
        watch: Watch,
    }

    impl Model {
        fn write(&mut self, name: &str) {
            self.time += 1;
            let stamp = Stamp {
                modified: self.time,
                changed: self.time,
                size: 1,
                file: (0, 0),
            };
            self.files.insert(name.to_owned(), (stamp, false));
            self.before_it_went.remove(name);
        }

        fn close(&mut self, name: &str) {
            if let Some((_, whole)) = self.files.get_mut(name) {
                *whole = true;
            }
        }

        fn remove(&mut self, name: &str) {
            self.files.remove(name);
            let whole = self.files.iter().filter(|(_, (_, whole))| *whole);
            let unsent = whole.filter(|(name, (stamp, _))| self.place.get(*name) != Some(stamp));
            let unsent = unsent.map(|(name, (stamp, _))| (name.clone(), *stamp)).collect();
            self.before_it_went.insert(name.to_owned(), unsent);
        }

        /// A look in which the first `most` pieces of work succeed. Returns the number of pieces.
        fn look(&mut self, ends: Option<&[End]>, most: usize) -> usize {
            let seen = |(name, (stamp, whole)): (&String, &(Stamp, bool))| {
                let open = !whole && ends.is_none();
                ((0, name.clone()), Seen { stamp: *stamp, open })
            };
            let work = self.watch.look(self.files.iter().map(seen).collect(), ends);
            let pieces = work.send.len() + work.remove.len();
            for (name, stamp) in work.send.iter().take(most) {
                assert!(self.files[&name.1].1, "{name:?} is not whole");
                self.place.insert(name.1.clone(), *stamp);
                self.watch.sent(name, *stamp);
            }
            for name in work.remove.iter().take(most.saturating_sub(work.send.len())) {
                for (earlier, stamp) in &self.before_it_went[&name.1] {
                    let still = self.files.get(earlier).is_some_and(|(now, _)| now == stamp);
                    let sent = self.place.get(earlier) == Some(stamp);
                    assert!(sent || !still, "{name:?} was removed before {earlier} was sent");
                }
                self.place.remove(&name.1);
                self.watch.removed(name);
            }
            pieces
        }

        fn is_alike(&self) -> bool {
            let files = self.files.iter().map(|(name, (stamp, _))| (name.clone(), *stamp));
            files.collect::<BTreeMap<_, _>>() == self.place
        }
    }

    /// A stream of numbers below a bound.
    fn numbers(seed: u64) -> impl FnMut(u64) -> u64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        move |below| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) % below
        }
    }

    #[test]
    fn whatever_a_script_does_only_whole_files_are_sent_and_in_order() {
        for seed in 0..2000 {
            let mut draw = numbers(seed);
            let mut model = Model::default();
            for _ in 0..60 {
                let name = format!("f{}", draw(4));
                match draw(6) {
                    0 => model.write(&name),
                    1 | 2 => model.close(&name),
                    3 if model.files.contains_key(&name) => model.remove(&name),
                    _ => {
                        let most = [0, 1, usize::MAX][draw(3) as usize];
                        model.look(None, most);
                    }
                }
            }
            // It ends by itself, or is killed in the midst of its work.
            let killed = draw(2) == 0;
            let ends = [if killed { End::Killed } else { End::Itself }];
            if !killed {
                (0..4).for_each(|name| model.close(&format!("f{name}")));
            }
            let mut left = 100;
            while model.look(Some(&ends), usize::MAX) > 0 {
                left -= 1;
                assert!(left > 0, "seed {seed}: it never comes to an end");
            }
            assert!(
                killed || model.is_alike(),
                "seed {seed}: {:?} {:?}",
                model.files,
                model.place
            );
        }
    }

    #[test]
    fn the_new_checkpoint_comes_before_the_old_one_goes() {
        let mut model = Model::default();
        let mut places = Vec::new();
        for step in 1..=4 {
            model.write(&format!("step-{step}"));
            model.close(&format!("step-{step}"));
            if step > 1 {
                model.remove(&format!("step-{}", step - 1));
            }
            for _ in 0..3 {
                model.look(None, 1);
                places.push(model.place.keys().cloned().collect::<Vec<_>>().join(" "));
            }
        }
        assert_eq!(
            places[..6],
            ["", "step-1", "step-1", "step-1", "step-1 step-2", "step-2"]
        );
        assert!(places[1..].iter().all(|place| !place.is_empty()), "{places:?}");
    }

    #[test]
    fn an_instance_removes_what_it_sent_and_what_nobody_changed() {
        let stamp = |modified| Stamp {
            modified,
            changed: 0,
            size: 1,
            file: (0, 0),
        };
        let look = |files: &[(usize, &str, i128)]| -> Look {
            let seen = |&(rank, name, modified): &(usize, &str, i128)| {
                let seen = Seen {
                    stamp: stamp(modified),
                    open: false,
                };
                ((rank, name.to_owned()), seen)
            };
            files.iter().map(seen).collect()
        };
        let mut watch = Watch::default();
        for (rank, name) in [(0, "a"), (1, "a"), (0, "b"), (1, "b")] {
            watch.brought((rank, name.to_owned()), stamp(1));
        }
        // The first writes b again; the second removes both.
        let now = [(0, "a", 1), (0, "b", 2)];
        watch.look(look(&[(0, "a", 1), (1, "a", 1), (0, "b", 2), (1, "b", 1)]), None);
        let work = watch.look(look(&now), None);
        assert_eq!((work.send.len(), work.remove.len()), (1, 0));
        watch.sent(&work.send[0].0, work.send[0].1);
        let work = watch.look(look(&now), None);
        assert_eq!((work.send.len(), work.remove), (0, vec![(1, "a".to_owned())]));
        watch.removed(&(1, "a".to_owned()));
        let work = watch.look(look(&now), None);
        assert_eq!(
            work,
            Work::default(),
            "the first one's a is neither sent again nor missed"
        );
    }

    #[test]
    fn who_writes_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let file = fs::File::create(dir.path().join("a")).unwrap();
        fs::write(dir.path().join("b"), "x").unwrap();
        let _reader = fs::File::open(dir.path().join("b")).unwrap();
        let found = files(&[dir.path().to_owned()], true).unwrap().files;
        let is_open = |name: &str| {
            let stamp = &found[&(0, name.to_owned())];
            open_for_writing().descriptors.has(stamp, std::iter::empty())
        };
        assert_eq!((is_open("a"), is_open("b")), (true, false));
        drop(file);
        assert!(!is_open("a"));
    }

    #[test]
    fn only_a_shared_mapping_that_can_be_written_is_one() {
        let line = b"7f00-7f01 rw-s 00000000 fe:10 263 /tmp/my data/a\\012b";
        let (number, path) = mapped(line).unwrap();
        assert_eq!(number, (rustix::fs::makedev(0xfe, 0x10), 263));
        assert_eq!(path, Path::new("/tmp/my data/a\nb"));
        for none in [
            "7f00-7f01 r--s 00000000 fe:10 263    /tmp/a",
            "7f00-7f01 rw-p 00000000 fe:10 263    /tmp/a",
            "7f00-7f01 rw-p 00000000 00:00 0",
            "torn rw-s",
            "",
        ] {
            assert_eq!(mapped(none.as_bytes()), None, "{none}");
        }
    }

    #[test]
    fn what_was_mapped_is_sent_once_more_at_the_end() {
        let stamp = Stamp::UNKNOWN;
        let look = |open| -> Look {
            let names = ["a", "b"].map(|name| (0, name.to_owned()));
            names.map(|name| (name, Seen { stamp, open })).into()
        };
        let mut watch = Watch::default();
        let (mapped, other) = ((0, "a".to_owned()), (0, "b".to_owned()));
        watch.look(look(true), None);
        watch.is_mapped(&mapped);
        assert!(watch.look(look(true), None).send.is_empty());
        let sent = [(mapped.clone(), stamp), (other.clone(), stamp)];
        assert_eq!(watch.look(look(false), None).send, sent);
        watch.sent(&mapped, stamp);
        watch.sent(&other, stamp);
        assert_eq!(watch.look(look(false), Some(&[End::Itself])).send, sent[..1]);
        watch.sent(&mapped, stamp);
        assert_eq!(watch.look(look(false), Some(&[End::Itself])), Work::default());
    }

    #[test]
    fn a_name_that_cannot_be_a_key_does_not_hide_the_others() {
        let dir = tempfile::tempdir().unwrap();
        let bad = OsString::from_vec(b"bad\xff".to_vec());
        fs::create_dir(dir.path().join(&bad)).unwrap();
        fs::write(dir.path().join(&bad).join("in"), "x").unwrap();
        let deep = ["d"; DEEPEST].join("/");
        fs::create_dir_all(dir.path().join(&deep).join("deeper/and/deeper")).unwrap();
        fs::write(dir.path().join(&deep).join("file"), "x").unwrap();
        std::os::unix::fs::symlink(".", dir.path().join("self")).unwrap();
        std::os::unix::fs::symlink("..", dir.path().join("d/up")).unwrap();
        std::os::unix::fs::symlink("round", dir.path().join("round")).unwrap();
        std::os::unix::fs::symlink("nowhere", dir.path().join("dangling")).unwrap();
        let found = files(&[dir.path().to_owned()], true).unwrap();
        assert_eq!(
            found.files.into_keys().collect::<Vec<_>>(),
            [(0, format!("{deep}/file"))]
        );
        let mut unfit: Vec<_> = found.unfit.into_iter().map(|unfit| unfit.path).collect();
        unfit.sort();
        let mut expected = [
            PathBuf::from(bad),
            "d/up".into(),
            "dangling".into(),
            format!("{deep}/deeper").into(),
            "round".into(),
            "self".into(),
        ];
        expected.sort();
        assert_eq!(unfit, expected);
    }
}
