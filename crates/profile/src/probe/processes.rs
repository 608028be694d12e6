//! The process tree: its CPU time, memory and reads; and the CPU time of other programs.
//!
//! The kernel has no list of a process's descendants. So the numbers in `/proc` are listed, and the parent of
//! each new one is read once: a process whose parent is in the tree belongs to it, also after that parent has
//! ended. The processes of the tree are read through files that stay open; reading them fails once the
//! process has ended, even if its number is reused.
//!
//! # The tree's CPU time
//!
//! The CPU time of the living processes since the last look is only a part: a process that begins and ends
//! between two looks is never seen. But when a process has ended and is reaped, the kernel adds its CPU time,
//! including that of the processes that it had reaped itself, to the process that waits for it: its parent or
//! the recorder. So the tree's CPU time is the time of its members, plus the time that these and the recorder
//! took over from reaped processes, minus what was already counted for members that ended. Parents are read
//! before their children: a child that ends between the two readings is then missing in one look and found in
//! the next, and never counted twice. The rest of the cores' busy time belongs to other programs, the kernel
//! and the hypervisor.
//!
//! A look at the tree costs a few microseconds per process of the machine and of the tree, and the kernel
//! counts CPU time in ticks of 10 ms. So there are at most two looks a second, and ticks between two looks
//! repeat the values.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};

use rustix::fs::{RawDir, SeekFrom, seek};

use super::{Board, Busy};
use crate::dimension;
use crate::kernel::{KernelFile, lines, number, rate, words};
use crate::system::SeriesId;

/// The number of processes with their own series: the busiest ones.
const SHOWN: usize = 16;
/// At most this many processes of the tree are followed.
const FOLLOWED: usize = 4096;
/// At most this many processes' files stay open: the training process may need the other file descriptors.
const KEPT_OPEN: usize = 64;
/// Time between two looks, seconds.
const LOOK: f64 = 0.5;

/// Which processes to follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tree {
    /// A process and its descendants.
    Of(u32),
    /// The descendants of a process, without the process itself: those of a recorder that runs a command.
    Below(u32),
    /// No tree: the machine is recorded, without telling programs apart.
    Machine,
}

impl Tree {
    /// The process at the root.
    pub fn root(self) -> Option<u32> {
        match self {
            Tree::Of(pid) | Tree::Below(pid) => Some(pid),
            Tree::Machine => None,
        }
    }
}

/// Follows a tree of processes.
pub(crate) struct Processes {
    proc: PathBuf,
    tree: Tree,
    listing: File,
    members: HashMap<u32, Member>,
    /// The members in the order in which they were found: parents before their children.
    met: Vec<u32>,
    /// The process above the tree, and the CPU time that it has taken over from reaped processes, seconds.
    above: Option<(KernelFile, f64)>,
    /// Numbers of processes that do not belong to the tree.
    others: HashSet<u32>,
    listed: HashSet<u32>,
    files_open: usize,
    slots: [Slot; SHOWN],
    /// Bytes and calls a second.
    reads: (f64, f64),
    read_places: [SeriesId; 2],
    /// CPU time of the tree and of other programs, percent of one core.
    used: (f64, f64),
    used_places: [SeriesId; 2],
    /// CPU time of members that had ended by the last look and were not reaped yet, seconds.
    missing: f64,
    since_look: f64,
    /// Busy time of the cores since the last look, in seconds of one core times 100.
    busy: f64,
    looked: bool,
    /// Whether some process may be read, but not its `io` file.
    pub io_denied: bool,
    buffer: Vec<u8>,
    entries: Box<[MaybeUninit<u8>]>,
    ranking: Vec<(u32, f64)>,
}

struct Member {
    stat: Option<KernelFile>,
    io: Option<KernelFile>,
    /// CPU time, its own and that of the processes it has reaped, seconds.
    cpu: f64,
    taken_in: f64,
    /// Bytes and number of read calls.
    read: Option<(u64, u64)>,
    usage: Usage,
}

#[derive(Clone, Copy, Default)]
struct Usage {
    /// Percent of one core.
    cpu: f64,
    /// Bytes.
    memory: f64,
    name: Name,
}

/// A set of columns for one process.
struct Slot {
    pid: Option<u32>,
    /// The current name of the series.
    name: Name,
    usage: Usage,
    places: Option<[SeriesId; 2]>,
}

impl Processes {
    /// Follows a tree; `None` if there is no such process.
    pub fn open(proc: &Path, tree: Tree, board: &mut Board) -> Option<Self> {
        let listing = File::open(proc).ok()?;
        let root = KernelFile::open(proc.join(tree.root()?.to_string()).join("stat")).ok()?;
        Some(Self {
            proc: proc.to_owned(),
            tree,
            listing,
            members: HashMap::new(),
            met: Vec::new(),
            above: matches!(tree, Tree::Below(_)).then_some((root, 0.0)),
            others: HashSet::new(),
            listed: HashSet::new(),
            files_open: 0,
            slots: std::array::from_fn(|_| Slot {
                pid: None,
                name: Name::default(),
                usage: Usage::default(),
                places: None,
            }),
            reads: (f64::NAN, f64::NAN),
            read_places: [dimension::PROCESS_READ, dimension::PROCESS_READS]
                .map(|dimension| board.add("process", "tree", dimension)),
            used: (f64::NAN, f64::NAN),
            used_places: [("tree", dimension::TREE_CPU), ("others", dimension::OTHERS_CPU)]
                .map(|(name, dimension)| board.add("process", name, dimension)),
            missing: 0.0,
            since_look: 0.0,
            busy: 0.0,
            looked: false,
            io_denied: false,
            buffer: Vec::new(),
            entries: vec![MaybeUninit::uninit(); 1 << 15].into(),
            ranking: Vec::new(),
        })
    }

    /// Starts over: the next look only sets the base values for the one after it.
    pub fn restart(&mut self) {
        self.looked = false;
    }

    /// Reads the tree if it is time to; `busy` is how busy the cores were in the last `elapsed` seconds.
    pub fn sample(&mut self, board: &mut Board, elapsed: f64, busy: Option<Busy>) {
        self.since_look += elapsed;
        self.busy += elapsed * busy.map_or(f64::NAN, |busy| busy.all);
        // A tick may come a little early.
        if !self.looked || self.since_look > 0.9 * LOOK {
            let elapsed = std::mem::take(&mut self.since_look);
            let busy = std::mem::take(&mut self.busy) / elapsed;
            // If the listing fails, the members stay as they are.
            let _ = self.list();
            let tree = 100.0 * self.read_members(elapsed) / elapsed;
            self.used = match self.looked {
                false => (f64::NAN, f64::NAN),
                // The two are counted in different ticks, so the tree's may be slightly larger.
                true => (tree.min(busy), busy - tree.min(busy)),
            };
            self.assign();
            self.looked = true;
        }
        for slot in &mut self.slots {
            slot.show(board);
        }
        board.set(self.read_places[0], self.reads.0);
        board.set(self.read_places[1], self.reads.1);
        board.set(self.used_places[0], self.used.0);
        board.set(self.used_places[1], self.used.1);
    }

    /// Finds new processes, and forgets those outside of the tree that are gone.
    fn list(&mut self) -> io::Result<()> {
        self.listed.clear();
        seek(&self.listing, SeekFrom::Start(0))?;
        let mut entries = RawDir::new(&self.listing, &mut self.entries);
        while let Some(entry) = entries.next() {
            if let Some(pid) = number(entry?.file_name().to_bytes()).and_then(|pid| u32::try_from(pid).ok()) {
                self.listed.insert(pid);
            }
        }
        self.others.retain(|pid| self.listed.contains(pid));
        // A child may have a lower number than its parent: repeat until no new member is found.
        loop {
            let before = self.members.len();
            let new: Vec<u32> = self
                .listed
                .iter()
                .copied()
                .filter(|pid| !self.members.contains_key(pid) && !self.others.contains(pid))
                .collect();
            for pid in new {
                self.meet(pid);
            }
            if self.members.len() == before {
                break;
            }
        }
        let known = |pid: &&u32| !self.members.contains_key(pid);
        self.others.extend(self.listed.iter().filter(known));
        Ok(())
    }

    /// Adds a process to the tree if its parent belongs to it.
    fn meet(&mut self, pid: u32) {
        let stat = KernelFile::open(self.proc.join(pid.to_string()).join("stat"));
        let Ok(file) = stat else { return };
        let Some(stat) = file.read_at_once(&mut self.buffer).ok().and_then(Stat::parse) else {
            return;
        };
        let belongs = match self.tree {
            Tree::Of(root) => pid == root || self.members.contains_key(&stat.parent),
            Tree::Below(root) => {
                pid != root && (stat.parent == root || self.members.contains_key(&stat.parent))
            }
            Tree::Machine => false,
        };
        if !belongs || self.members.len() >= FOLLOWED {
            return;
        }
        let io = KernelFile::open(self.proc.join(pid.to_string()).join("io"));
        let read_now = io
            .as_ref()
            .map_err(io::Error::kind)
            .and_then(|io| io.read_at_once(&mut self.buffer).map_err(|error| error.kind()))
            .map(reads);
        // It may also have ended meanwhile.
        self.io_denied |= read_now == Err(io::ErrorKind::PermissionDenied);
        let (io, read_now) = (io.ok(), read_now.ok().flatten());
        // Ignore what it did before the recording began.
        let (cpu, taken_in, read) = if self.looked {
            (0.0, 0.0, Some((0, 0)))
        } else {
            (stat.cpu, stat.taken_in, read_now)
        };
        let keep = self.files_open < KEPT_OPEN;
        self.files_open += usize::from(keep);
        self.met.push(pid);
        self.members.insert(
            pid,
            Member {
                stat: Some(file).filter(|_| keep),
                io: io.filter(|_| keep),
                cpu,
                taken_in,
                read,
                usage: Usage::default(),
            },
        );
    }

    /// Reads every process of the tree, and removes those that have ended. Returns the CPU time that the tree
    /// has used, seconds.
    fn read_members(&mut self, elapsed: f64) -> f64 {
        let (proc, buffer, first) = (&self.proc, &mut self.buffer, !self.looked);
        let (mut bytes, mut calls, mut any) = (0.0, 0.0, false);
        // Seconds: of living processes, taken over from reaped ones, and already counted for ended ones.
        let (mut living, mut taken_in, mut ended) = (0.0, 0.0, 0.0);
        if let Some((file, before)) = &mut self.above
            && let Some(stat) = file.read_at_once(buffer).ok().and_then(Stat::parse)
        {
            taken_in += (stat.taken_in - *before).max(0.0);
            *before = stat.taken_in;
        }
        let (members, files_open) = (&mut self.members, &mut self.files_open);
        self.met.retain(|&pid| {
            let Some(member) = members.get_mut(&pid) else {
                return false;
            };
            let Some((stat, read)) = member.read_now(proc, pid, buffer) else {
                *files_open -= usize::from(member.stat.is_some());
                ended += member.cpu + member.taken_in;
                members.remove(&pid);
                return false;
            };
            let used = (stat.cpu - member.cpu).max(0.0);
            living += used;
            taken_in += (stat.taken_in - member.taken_in).max(0.0);
            member.usage = Usage {
                cpu: if first { f64::NAN } else { 100.0 * used / elapsed },
                memory: stat.memory,
                name: stat.name,
            };
            (member.cpu, member.taken_in) = (stat.cpu, stat.taken_in);
            if let Some((before, now)) = member.read.zip(read)
                && !first
            {
                bytes += rate(before.0, now.0, elapsed);
                calls += rate(before.1, now.1, elapsed);
                any = true;
            }
            member.read = read;
            true
        });
        self.reads = if any { (bytes, calls) } else { (f64::NAN, f64::NAN) };
        let found = taken_in - ended - self.missing;
        // If no process waits for a child, its remaining time is never found.
        self.missing = if first { 0.0 } else { (-found).clamp(0.0, ended) };
        living + found.max(0.0)
    }

    /// Assigns columns to the busiest processes. A process keeps its columns unless another one is much
    /// busier.
    fn assign(&mut self) {
        for slot in &mut self.slots {
            match slot.pid.and_then(|pid| self.members.get(&pid)) {
                Some(member) => slot.usage = member.usage,
                None => slot.pid = None,
            }
        }
        self.ranking.clear();
        let shown = |pid: u32| self.slots.iter().any(|slot| slot.pid == Some(pid));
        for (&pid, member) in &self.members {
            if !shown(pid) {
                // Among idle processes the larger ones win: a byte weighs little.
                self.ranking.push((pid, weight(&member.usage)));
            }
        }
        self.ranking
            .sort_unstable_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        for &(pid, busy) in &self.ranking {
            let free = self.slots.iter().position(|slot| slot.pid.is_none());
            let place = free.or_else(|| {
                let weights = self.slots.iter().map(|slot| weight(&slot.usage));
                let (least, least_weight) = weights.enumerate().min_by(|a, b| a.1.total_cmp(&b.1))?;
                (busy > 2.0 * least_weight + 5.0).then_some(least)
            });
            let Some(place) = place else { break };
            let slot = &mut self.slots[place];
            slot.pid = Some(pid);
            slot.usage = self.members[&pid].usage;
        }
    }
}

/// CPU percent, and a hundredth for each GiB.
fn weight(usage: &Usage) -> f64 {
    let cpu = if usage.cpu.is_nan() { 0.0 } else { usage.cpu };
    cpu + usage.memory * (0.01 / (1u64 << 30) as f64)
}

impl Member {
    /// What the process has used so far; `None` if it has ended.
    fn read_now(&self, proc: &Path, pid: u32, buffer: &mut Vec<u8>) -> Option<(Stat, Option<(u64, u64)>)> {
        let opened;
        let stat = match &self.stat {
            Some(file) => file,
            None => {
                opened = KernelFile::open(proc.join(pid.to_string()).join("stat")).ok()?;
                &opened
            }
        };
        let stat = stat.read_at_once(buffer).ok().and_then(Stat::parse)?;
        let read = match (&self.io, &self.stat) {
            (Some(io), _) => io.read_at_once(buffer).ok().and_then(reads),
            (None, Some(_)) => None,
            (None, None) => KernelFile::open(proc.join(pid.to_string()).join("io"))
                .and_then(|io| Ok(reads(io.read_at_once(buffer)?)))
                .ok()
                .flatten(),
        };
        Some((stat, read))
    }
}

impl Slot {
    fn show(&mut self, board: &mut Board) {
        let Some(pid) = self.pid else { return };
        let name = Name::of(pid, &self.usage.name);
        let dimensions = [dimension::PROCESS_CPU, dimension::PROCESS_MEMORY];
        let places = match self.places {
            Some(places) => {
                if name != self.name {
                    for (place, dimension) in places.into_iter().zip(dimensions) {
                        board.replace(place, "process", name.text(), dimension);
                    }
                }
                places
            }
            None => dimensions.map(|dimension| board.add("process", name.text(), dimension)),
        };
        (self.places, self.name) = (Some(places), name);
        board.set(places[0], self.usage.cpu);
        board.set(places[1], self.usage.memory);
    }
}

/// A short text without an allocation.
#[derive(Clone, Copy, Default, PartialEq)]
struct Name {
    bytes: [u8; 32],
    length: usize,
}

impl Name {
    /// `PID NAME`.
    fn of(pid: u32, name: &Name) -> Self {
        let mut whole = Self::default();
        let mut digits = [0; 10];
        let mut at = digits.len();
        let mut rest = pid;
        loop {
            at -= 1;
            digits[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        whole.push(&digits[at..]);
        whole.push(b" ");
        whole.push(&name.bytes[..name.length]);
        whole
    }

    /// A process may choose any name: characters other than plain letters, digits and marks become `_`.
    fn sanitised(name: &[u8]) -> Self {
        let mut plain = Self::default();
        for byte in name {
            let plain_byte = byte.is_ascii_alphanumeric() || b"._-+:/()[]@".contains(byte);
            plain.push(&[if plain_byte { *byte } else { b'_' }]);
        }
        plain
    }

    /// Appends as much as there is room for. The kernel's names have at most 15 bytes.
    fn push(&mut self, bytes: &[u8]) {
        let room = self.bytes.len() - self.length;
        let bytes = &bytes[..bytes.len().min(room)];
        self.bytes[self.length..][..bytes.len()].copy_from_slice(bytes);
        self.length += bytes.len();
    }

    fn text(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.length]).unwrap_or_default()
    }
}

/// `/proc/PID/stat`.
struct Stat {
    parent: u32,
    /// CPU time since its start, seconds.
    cpu: f64,
    /// CPU time of its children that have ended and been reaped, and of theirs.
    taken_in: f64,
    /// Resident, bytes.
    memory: f64,
    name: Name,
}

impl Stat {
    /// `pid (name) state ppid ..`, where the name may contain any character, also brackets.
    fn parse(text: &[u8]) -> Option<Self> {
        let open = text.iter().position(|&byte| byte == b'(')?;
        let close = text.iter().rposition(|&byte| byte == b')')?;
        let name = text.get(open + 1..close)?;
        let mut words = words(&text[close + 1..]);
        let parent = words.nth(1).and_then(number)?;
        let user = words.nth(9).and_then(number)?;
        let system = words.next().and_then(number)?;
        let children = [words.next().and_then(number)?, words.next().and_then(number)?];
        let pages = words.nth(6).and_then(number)?;
        let ticks = rustix::param::clock_ticks_per_second() as f64;
        Some(Self {
            parent: u32::try_from(parent).ok()?,
            cpu: user.saturating_add(system) as f64 / ticks,
            taken_in: children[0].saturating_add(children[1]) as f64 / ticks,
            memory: pages as f64 * rustix::param::page_size() as f64,
            name: Name::sanitised(name),
        })
    }
}

/// Bytes that read calls returned, and the number of those calls, from `/proc/PID/io`.
fn reads(text: &[u8]) -> Option<(u64, u64)> {
    let of = |name: &[u8]| {
        let rest = lines(text).find_map(|line| line.strip_prefix(name))?;
        number(words(rest).next()?)
    };
    Some((of(b"rchar:")?, of(b"syscr:")?))
}

#[cfg(test)]
mod tests {
    use super::super::testing::Fake;
    use super::*;
    use std::fs;

    fn process(fake: &Fake, pid: u32, name: &str, parent: u32, cpu_ticks: u64, read: u64) {
        waiting_process(fake, pid, name, parent, [cpu_ticks, 0], read);
    }

    /// One with the ticks of its own and of the children that it has waited for.
    fn waiting_process(fake: &Fake, pid: u32, name: &str, parent: u32, ticks: [u64; 2], read: u64) {
        let [own, children] = ticks;
        let stat = format!(
            "{pid} ({name}) R {parent} 1 1 0 -1 4194304 101 0 0 0 {own} 0 {children} 0 20 0 1 0 1276363 3133440 10 18446744073709551615 9\n"
        );
        fake.file(&format!("{pid}/stat"), &stat);
        let io = format!("rchar: {read}\nwchar: 0\nsyscr: {}\nsyscw: 0\n", read / 10);
        fake.file(&format!("{pid}/io"), &io);
    }

    fn probe(fake: &mut Fake, tree: Tree) -> Processes {
        let root = fake.dir.path().to_owned();
        Processes::open(&root, tree, &mut fake.board).unwrap()
    }

    #[test]
    fn names_are_cleaned_and_brackets_in_them_do_not_confuse() {
        let stat = Stat::parse(b"7 (a ) R 9 \"\xc3\xa9) S 3 1 1 0 -1 0 0 0 0 0 150 50 0 0 20 0 1 0 5 6 2 7")
            .unwrap();
        assert_eq!(Name::of(7, &stat.name).text(), "7 a_)_R_9____");
        assert_eq!((stat.parent, stat.cpu), (3, 2.0));
        for text in [
            &b""[..],
            b"7",
            b")(",
            b"7 (x)",
            b"7 (x) S 3",
            b"7 (x) S y 1 1 0 -1 0 0 0 0 0 1 5 0 0 20 0 1 0 5 6 2",
        ] {
            assert!(Stat::parse(text).is_none());
        }
    }

    #[test]
    fn the_tree_is_followed_through_forks_orphans_and_ends() {
        let mut fake = Fake::new();
        process(&fake, 1, "init", 0, 100, 1000);
        process(&fake, 50, "bash", 1, 100, 1000);
        process(&fake, 60, "python3", 50, 200, 5000);
        // The child has the lower number.
        process(&fake, 40, "worker", 60, 100, 100);
        process(&fake, 70, "other", 1, 100, 1000);
        let mut tree = probe(&mut fake, Tree::Of(60));
        tree.sample(&mut fake.board, 0.5, None);
        fake.board.discard();

        process(&fake, 60, "python3", 50, 225, 6000);
        process(&fake, 40, "worker", 60, 150, 100);
        process(&fake, 80, "late", 40, 5, 40);
        process(&fake, 71, "other", 70, 500, 10_000);
        tree.sample(&mut fake.board, 0.5, None);
        fake.tick();

        // 40 ends, its child has another parent now, and its number is another's.
        fs::remove_dir_all(fake.root().join("40")).unwrap();
        process(&fake, 80, "late", 1, 30, 540);
        process(&fake, 60, "python3", 50, 225, 6000);
        tree.members.get_mut(&40).unwrap().stat = None; // a fake file outlives its process
        tree.members.get_mut(&40).unwrap().io = None;
        tree.sample(&mut fake.board, 0.5, None);
        fake.tick();

        let read = fake.read();
        let cpu = |name: &str| read.get(&format!("{name} {}", dimension::PROCESS_CPU)).cloned();
        assert_eq!(cpu("60 python3"), Some(vec![Some(50.0), Some(0.0)]));
        assert_eq!(cpu("40 worker"), Some(vec![Some(100.0), None]));
        assert_eq!(cpu("80 late"), Some(vec![Some(10.0), Some(50.0)]));
        assert_eq!(cpu("70 other").or(cpu("71 other")).or(cpu("50 bash")), None);
        let memory = &read[&format!("60 python3 {}", dimension::PROCESS_MEMORY)];
        assert_eq!(memory[0], Some(10.0 * rustix::param::page_size() as f32));
        assert_eq!(
            read[&format!("tree {}", dimension::PROCESS_READ)],
            [Some(2080.0), Some(1000.0)]
        );
        assert_eq!(
            read[&format!("tree {}", dimension::PROCESS_READS)],
            [Some(208.0), Some(100.0)]
        );
    }

    fn gone(fake: &Fake, tree: &mut Processes, pid: u32) {
        fs::remove_dir_all(fake.root().join(pid.to_string())).unwrap();
        // A fake file outlives its process.
        if let Some(member) = tree.members.get_mut(&pid) {
            (member.stat, member.io) = (None, None);
        }
    }

    #[test]
    fn the_trees_cpu_time_is_told_from_that_of_other_programs() {
        let mut fake = Fake::new();
        let busy = |all| Some(Busy { all, cores: 4 });
        waiting_process(&fake, 10, "stokehold", 1, [0, 7], 0);
        process(&fake, 11, "make", 10, 1000, 0);
        process(&fake, 12, "worker", 11, 500, 0);
        let mut tree = probe(&mut fake, Tree::Below(10));
        tree.sample(&mut fake.board, 0.5, None);
        fake.board.discard();

        // 10 ticks of the one, 40 of the other; a child of 25 ticks came and went between two looks.
        waiting_process(&fake, 11, "make", 10, [1010, 25], 0);
        process(&fake, 12, "worker", 11, 540, 0);
        tree.sample(&mut fake.board, 0.5, busy(250.0));
        fake.tick();

        // The worker is waited for: of its 550 ticks 10 are new.
        waiting_process(&fake, 11, "make", 10, [1010, 25 + 550], 0);
        gone(&fake, &mut tree, 12);
        tree.sample(&mut fake.board, 0.5, busy(400.0));
        fake.tick();

        // The rest of the tree ends, of which the recorder takes in all: 1010 + 575 and 5 more.
        gone(&fake, &mut tree, 11);
        waiting_process(&fake, 10, "stokehold", 1, [0, 7 + 1590], 0);
        tree.sample(&mut fake.board, 0.5, busy(9.0));
        fake.tick();
        // One tick more than the cores seem to have been busy.
        process(&fake, 14, "late", 10, 25, 0);
        tree.sample(&mut fake.board, 0.5, busy(49.0));
        fake.tick();
        // What the cores did is not known.
        tree.sample(&mut fake.board, 0.5, None);
        fake.tick();

        let read = fake.read();
        let known = |values: [f32; 5]| values.map(Some).to_vec();
        assert_eq!(
            read[&format!("tree {}", dimension::TREE_CPU)],
            known([150.0, 20.0, 9.0, 49.0, 0.0])
        );
        let others = &read[&format!("others {}", dimension::OTHERS_CPU)];
        assert_eq!(others[..4], known([100.0, 380.0, 0.0, 0.0, 0.0])[..4]);
        assert_eq!(others.get(4).copied().flatten(), None);
    }

    /// Its parent was read before it had waited, and has waited when it is read again.
    #[test]
    fn a_child_that_ends_while_its_parent_is_read_counts_once() {
        let mut fake = Fake::new();
        let busy = Some(Busy { all: 400.0, cores: 4 });
        process(&fake, 11, "make", 1, 0, 0);
        process(&fake, 12, "worker", 11, 900, 0);
        let mut tree = probe(&mut fake, Tree::Of(11));
        tree.sample(&mut fake.board, 0.5, busy);
        fake.board.discard();
        gone(&fake, &mut tree, 12);
        tree.sample(&mut fake.board, 0.5, busy);
        fake.tick();
        waiting_process(&fake, 11, "make", 1, [0, 950], 0);
        tree.sample(&mut fake.board, 0.5, busy);
        fake.tick();
        // A child that no one ever waited for does not hide others for long.
        process(&fake, 13, "worker", 11, 5, 0);
        tree.sample(&mut fake.board, 0.5, busy);
        fake.tick();
        gone(&fake, &mut tree, 13);
        tree.sample(&mut fake.board, 0.5, busy);
        fake.tick();
        tree.sample(&mut fake.board, 0.5, busy);
        fake.tick();
        waiting_process(&fake, 11, "make", 1, [0, 1000], 0);
        tree.sample(&mut fake.board, 0.5, busy);
        fake.tick();
        assert_eq!(
            fake.read()[&format!("tree {}", dimension::TREE_CPU)],
            [0.0, 100.0, 10.0, 0.0, 0.0, 100.0].map(Some)
        );
    }

    #[test]
    fn below_a_recorder_are_its_children_and_the_orphans_it_takes_in() {
        let mut fake = Fake::new();
        process(&fake, 10, "stokehold", 1, 0, 0);
        process(&fake, 11, "sh", 10, 0, 0);
        let mut tree = probe(&mut fake, Tree::Below(10));
        tree.sample(&mut fake.board, 0.5, None);
        // A daemon whose parent was never seen.
        process(&fake, 13, "daemon", 10, 50, 0);
        tree.sample(&mut fake.board, 0.5, None);
        fake.tick();
        let names: Vec<u32> = tree
            .members
            .keys()
            .copied()
            .collect::<std::collections::BTreeSet<_>>()
            .into_iter()
            .collect();
        assert_eq!(names, [11, 13]);
        assert_eq!(
            fake.read()[&format!("13 daemon {}", dimension::PROCESS_CPU)],
            [Some(100.0)]
        );
    }

    #[test]
    fn the_busiest_are_shown_and_the_number_of_series_is_bounded() {
        let mut fake = Fake::new();
        process(&fake, 1, "root", 0, 0, 0);
        for pid in 2..102 {
            process(&fake, pid, "idle", 1, 0, 0);
        }
        let mut tree = probe(&mut fake, Tree::Of(1));
        tree.sample(&mut fake.board, 0.5, None);
        for round in 1..50u32 {
            // Another one is busy in every round, and one ends.
            process(&fake, 1 + round, "busy", 1, 40, 0);
            let gone = 101 - round;
            if gone > 51 {
                fs::remove_dir_all(fake.root().join(gone.to_string())).unwrap();
                let member = tree.members.get_mut(&gone).unwrap();
                (member.stat, member.io) = (None, None);
            }
            tree.sample(&mut fake.board, 0.5, None);
            fake.tick();
        }
        assert!(tree.files_open <= KEPT_OPEN);
        assert_eq!(fake.board.writer().len(), 4 + 2 * SHOWN);
        let read = fake.read();
        for round in 1..50usize {
            let series = &read[&format!("{} busy {}", 1 + round, dimension::PROCESS_CPU)];
            assert_eq!(series[round - 1], Some(80.0), "round {round}");
        }
    }

    #[test]
    fn ticks_between_two_looks_repeat_the_values() {
        let mut fake = Fake::new();
        process(&fake, 1, "root", 0, 0, 0);
        let mut tree = probe(&mut fake, Tree::Of(1));
        tree.sample(&mut fake.board, 0.1, None);
        for tick in 1..=10u64 {
            process(&fake, 1, "root", 0, tick * 5, 0);
            tree.sample(&mut fake.board, 0.1, None);
            fake.tick();
        }
        let cpu = fake.read()[&format!("1 root {}", dimension::PROCESS_CPU)].clone();
        // Ticks 5 and 10 look; before the first there is nothing.
        assert_eq!(cpu[..4], [None; 4]);
        assert!(cpu[4..].iter().all(|value| *value == Some(50.0)), "{cpu:?}");
    }

    #[test]
    fn a_process_that_is_not_there_is_none() {
        let mut fake = Fake::new();
        let root = fake.dir.path().to_owned();
        assert!(Processes::open(&root, Tree::Of(5), &mut fake.board).is_none());
    }
}
