//! Pieces on disk, shared by all jobs of the machine.
//!
//! ```text
//! CACHE/objects/pieces/3f/3f09..   a piece: its origin, its checksum, its bytes
//! CACHE/objects/aside/..           a piece that is being written, locked by its writer
//! CACHE/objects/used               bytes of all pieces, with those being written; locked while it is changed
//! ```
//!
//! A piece's name is a hash of its origin: server, object, version, place. The piece also contains that text,
//! so two pieces with the same hash are never confused. A piece is written to a temporary file and renamed,
//! and its checksum is verified at every read: what a killed job or a power cut damaged is fetched again.
//!
//! The size limit holds at every moment: room is booked in `used` before a byte is written. When there is no
//! room, the pieces that were not read for longest are removed, a twentieth of the limit at a time because
//! that scans all pieces; the scan also corrects `used`. A killed job leaves `used` too high and never too
//! low. Reading takes no lock: a piece that is removed while it is read stays readable.

use std::fs::{self, File, FileTimes};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use stokehold_base::hash::Fnv;
use stokehold_base::lock;

/// The first bytes of a piece. Change the number when the format changes.
const MAGIC: &[u8; 8] = b"SHPIECE1";

/// The time of the last read is written at most this often, not at every read.
const TOUCH: Duration = Duration::from_secs(60);

/// How long to wait for the lock on `used`. Its holder scans a million pieces at worst.
const PATIENCE: Duration = Duration::from_secs(30);

/// Pieces of all objects, in one folder.
#[derive(Debug)]
pub struct Disk {
    root: PathBuf,
    most: u64,
}

impl Disk {
    /// Opens the cache in a folder, and creates the folder if needed. The limit is `most` bytes, or else four
    /// fifths of the sum of its present size and the free disk space.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn open(folder: &Path, most: Option<u64>) -> io::Result<Self> {
        let root = folder.join("objects");
        for below in ["pieces", "aside"] {
            fs::create_dir_all(root.join(below))?;
        }
        let mut disk = Self { root, most: u64::MAX };
        let used = Booked::lock(&disk)?.bytes;
        disk.most = match most {
            Some(most) => most,
            None => {
                let facts = rustix::fs::statvfs(&disk.root)?;
                (used + facts.f_bavail.saturating_mul(facts.f_frsize)) / 5 * 4
            }
        };
        Ok(disk)
    }

    /// The folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Whether a piece file exists; reading it may show that it is invalid.
    pub fn has(&self, of: &str) -> bool {
        self.path(of).exists()
    }

    /// Reads a piece of `length` bytes. Returns `None` if it does not exist or is damaged.
    pub fn get(&self, of: &str, length: u64) -> Option<Bytes> {
        let path = self.path(of);
        let mut file = File::open(&path).ok()?;
        let facts = file.metadata().ok()?;
        let mut bytes = Vec::with_capacity(facts.len() as usize);
        file.read_to_end(&mut bytes).ok()?;
        let Some(start) = payload(&bytes, of) else {
            // Half-written by a power cut, damaged, or another piece with the same hash: it is fetched again.
            let _ = fs::remove_file(&path);
            return None;
        };
        let now = SystemTime::now();
        let is_old = facts.modified().is_ok_and(|read| read + TOUCH < now);
        if is_old {
            // An error is harmless: the time only decides which pieces are removed first.
            let _ = file.set_times(FileTimes::new().set_modified(now));
        }
        (bytes.len() as u64 - start as u64 == length).then(|| Bytes::from(bytes).slice(start..))
    }

    /// Stores a piece. Does nothing if it exists, or if it can never fit.
    ///
    /// # Errors
    /// The disk is full, or cannot be written.
    pub fn put(&self, of: &str, bytes: &[u8]) -> io::Result<()> {
        let path = self.path(of);
        let head = head(of, bytes);
        let length = (head.len() + bytes.len()) as u64;
        if length > self.most || path.exists() {
            return Ok(());
        }
        let Some((mut file, aside)) = Booked::lock(self)?.book(length)? else {
            return Ok(());
        };
        let mut write = || {
            for part in [&head, bytes] {
                file.write_all(part)?;
            }
            if let Some(folder) = path.parent() {
                fs::create_dir_all(folder)?;
            }
            fs::rename(&aside, &path)
        };
        write().or_else(|error| {
            let booked = Booked::lock(self)?;
            // While the lock is held, so that no scan misses it before it is given back. Report the first error.
            let _ = fs::remove_file(&aside);
            booked.give_back(length)?;
            Err(error)
        })
    }

    /// A new file aside, of this length and locked, and its path.
    fn aside(&self, length: u64) -> io::Result<(File, PathBuf)> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let (now, number) = (SystemTime::now(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let nanos = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let name = format!("{}-{nanos}-{number}", std::process::id());
        let path = self.root.join("aside").join(name);
        let file = File::options().write(true).create_new(true).open(&path)?;
        let ready = file.lock().and_then(|()| file.set_len(length));
        ready.inspect_err(|_| drop(fs::remove_file(&path)))?;
        Ok((file, path))
    }

    fn path(&self, of: &str) -> PathBuf {
        let hash = Fnv::of(of.as_bytes());
        let name = format!("{hash:016x}");
        self.root.join("pieces").join(&name[..2]).join(name)
    }
}

/// The header: magic, length of the text, checksum of text and bytes, text.
fn head(of: &str, bytes: &[u8]) -> Vec<u8> {
    let mut head = MAGIC.to_vec();
    head.extend((of.len() as u32).to_le_bytes());
    head.extend(checksum(of, bytes).to_le_bytes());
    head.extend(of.as_bytes());
    head
}

/// Where the bytes of a piece begin; `None` if it is damaged or of another origin.
fn payload(file: &[u8], of: &str) -> Option<usize> {
    let start = 16 + of.len();
    let whole = file.len() >= start && file[..8] == *MAGIC;
    let known = whole && file[8..12] == (of.len() as u32).to_le_bytes() && file[16..start] == *of.as_bytes();
    (known && file[12..16] == checksum(of, &file[start..]).to_le_bytes()).then_some(start)
}

fn checksum(of: &str, bytes: &[u8]) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    sum.update(of.as_bytes());
    sum.update(bytes);
    sum.finalize()
}

/// The file `used`, locked until this is dropped.
struct Booked<'a> {
    disk: &'a Disk,
    file: File,
    bytes: u64,
}

impl<'a> Booked<'a> {
    fn lock(disk: &'a Disk) -> io::Result<Self> {
        let path = disk.root.join("used");
        let held = || io::Error::other("another process holds the lock of the cache");
        let mut file = lock::open(&path, PATIENCE)?.ok_or_else(held)?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        let mut booked = Self { disk, file, bytes: 0 };
        match text.trim().parse() {
            Ok(bytes) => booked.bytes = bytes,
            // A new cache, or a file that was cut short.
            Err(_) => booked.make_room(0)?,
        }
        Ok(booked)
    }

    /// Books room for `bytes` bytes, with the file that will have them; it has their length from now on, so that a scan counts all
    /// of it. Returns `None` if there is no room because other writers have booked it all.
    fn book(mut self, bytes: u64) -> io::Result<Option<(File, PathBuf)>> {
        if self.bytes + bytes > self.disk.most {
            self.make_room(bytes + self.disk.most / 20)?;
        }
        if self.bytes + bytes > self.disk.most {
            return Ok(None);
        }
        self.write(self.bytes + bytes)?;
        match self.disk.aside(bytes) {
            Ok(file) => Ok(Some(file)),
            Err(error) => {
                self.give_back(bytes)?;
                Err(error)
            }
        }
    }

    fn give_back(mut self, bytes: u64) -> io::Result<()> {
        self.write(self.bytes.saturating_sub(bytes))
    }

    fn write(&mut self, bytes: u64) -> io::Result<()> {
        self.bytes = bytes;
        self.file.rewind()?;
        // Fixed width, so that no digits of an earlier number remain.
        write!(self.file, "{bytes:020}")
    }

    /// Counts the stored bytes, and removes the pieces that were not read for longest until `bytes` bytes are
    /// free.
    fn make_room(&mut self, bytes: u64) -> io::Result<()> {
        let mut held = 0;
        for (path, facts) in files(&self.disk.root.join("aside"))? {
            // A writer locks its file as it creates it. An older file without a lock belongs to a killed writer.
            let is_old = facts
                .modified()
                .is_ok_and(|begun| begun + TOUCH < SystemTime::now());
            match File::open(&path).map(|file| is_old && file.try_lock().is_ok()) {
                Ok(true) => drop(fs::remove_file(&path)),
                _ => held += facts.len(),
            }
        }
        let mut pieces = Vec::new();
        for folder in fs::read_dir(self.disk.root.join("pieces"))? {
            for (path, facts) in files(&folder?.path())? {
                held += facts.len();
                pieces.push((facts.modified().unwrap_or(UNIX_EPOCH), facts.len(), path));
            }
        }
        pieces.sort_unstable();
        let aim = self.disk.most.saturating_sub(bytes);
        for (_, length, path) in pieces {
            if held <= aim {
                break;
            }
            if fs::remove_file(&path).is_ok() {
                held -= length;
            }
        }
        self.write(held)
    }
}

/// The files of a folder, without those that disappear meanwhile.
fn files(folder: &Path) -> io::Result<Vec<(PathBuf, fs::Metadata)>> {
    let entries = fs::read_dir(folder)?.flatten();
    let files = entries.filter_map(|entry| Some((entry.path(), entry.metadata().ok()?)));
    Ok(files.filter(|(_, facts)| facts.is_file()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(seed: u8, length: usize) -> Vec<u8> {
        (0..length)
            .map(|i| seed.wrapping_mul(31).wrapping_add(i as u8))
            .collect()
    }

    /// The bytes of all pieces, and of those that are being written.
    fn held(folder: &Path) -> u64 {
        let root = folder.join("objects");
        let mut all = files(&root.join("aside")).unwrap();
        for below in fs::read_dir(root.join("pieces")).unwrap().flatten() {
            all.extend(files(&below.path()).unwrap());
        }
        all.iter().map(|(_, facts)| facts.len()).sum()
    }

    fn used(folder: &Path) -> u64 {
        fs::read_to_string(folder.join("objects/used"))
            .unwrap()
            .trim()
            .parse()
            .unwrap()
    }

    #[test]
    fn a_piece_comes_back_and_a_damaged_one_does_not() {
        let folder = tempfile::tempdir().unwrap();
        let disk = Disk::open(folder.path(), Some(1 << 20)).unwrap();
        disk.put("a", &bytes(1, 1000)).unwrap();
        assert!(disk.has("a") && !disk.has("b"));
        assert_eq!(disk.get("a", 1000).unwrap(), bytes(1, 1000));
        assert!(disk.get("b", 1000).is_none() && disk.get("a", 999).is_none());
        // Every single byte counts.
        let path = disk.path("a");
        let whole = fs::read(&path).unwrap();
        for at in (0..whole.len()).step_by(7) {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            fs::write(&path, damaged).unwrap();
            assert!(disk.get("a", 1000).is_none(), "byte {at}");
            assert!(!path.exists());
        }
        fs::write(&path, &whole[..500]).unwrap();
        assert!(disk.get("a", 1000).is_none());
        // Another's with the same hash.
        fs::write(&path, [head("b", &bytes(1, 1000)), bytes(1, 1000)].concat()).unwrap();
        assert!(disk.get("a", 1000).is_none());
    }

    #[test]
    fn what_was_not_read_for_longest_goes_first_and_the_bound_holds() {
        let folder = tempfile::tempdir().unwrap();
        let disk = Disk::open(folder.path(), Some(10_000)).unwrap();
        for i in 0..9 {
            disk.put(&i.to_string(), &bytes(i, 1000)).unwrap();
            // A second apart.
            let piece = File::options()
                .write(true)
                .open(disk.path(&i.to_string()))
                .unwrap();
            let time = SystemTime::now() - Duration::from_secs(1000 - u64::from(i));
            piece.set_times(FileTimes::new().set_modified(time)).unwrap();
        }
        assert_eq!((held(folder.path()), used(folder.path())), (9 * 1017, 9 * 1017));
        // The oldest is read, and so is the youngest.
        assert!(disk.get("0", 1000).is_some());
        disk.put("new", &bytes(9, 1000)).unwrap();
        assert!(disk.has("0") && !disk.has("1") && disk.has("new") && disk.has("8"));
        assert!(held(folder.path()) <= 10_000 && used(folder.path()) == held(folder.path()));
        disk.put("too large", &bytes(1, 20_000)).unwrap();
        assert!(!disk.has("too large"));
        // Another's smaller bound counts for what that one adds.
        let smaller = Disk::open(folder.path(), Some(3000)).unwrap();
        smaller.put("more", &bytes(1, 1000)).unwrap();
        assert!(held(folder.path()) <= 3000 && smaller.has("more"));
    }

    #[test]
    fn what_a_killed_job_left_is_cleared_away() {
        let folder = tempfile::tempdir().unwrap();
        let disk = Disk::open(folder.path(), Some(10_000)).unwrap();
        disk.put("a", &bytes(1, 1000)).unwrap();
        let aside = |name: &str| folder.path().join("objects/aside").join(name);
        fs::write(aside("dead"), bytes(1, 3000)).unwrap();
        let long_ago = FileTimes::new().set_modified(SystemTime::now() - 2 * TOUCH);
        File::options()
            .write(true)
            .open(aside("dead"))
            .unwrap()
            .set_times(long_ago)
            .unwrap();
        let living = File::create(aside("living")).unwrap();
        living.lock().unwrap();
        fs::write(aside("living"), bytes(1, 2000)).unwrap();
        living.set_times(long_ago).unwrap();
        fs::write(folder.path().join("objects/used"), "").unwrap();
        let again = Disk::open(folder.path(), Some(10_000)).unwrap();
        assert!(!aside("dead").exists() && aside("living").exists() && again.has("a"));
        assert_eq!(used(folder.path()), 1017 + 2000);
        // Room that a killed job had booked comes back when it is needed.
        fs::write(folder.path().join("objects/used"), "9999").unwrap();
        again.put("b", &bytes(2, 1000)).unwrap();
        assert!(again.has("b") && again.has("a"));
        assert_eq!(used(folder.path()), 2 * 1017 + 2000);
    }

    #[test]
    fn many_at_once_keep_the_bound() {
        let folder = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let folder = folder.path();
                scope.spawn(move || {
                    let disk = Disk::open(folder, Some(50_000)).unwrap();
                    for i in 0..100_u8 {
                        let of = format!("{}", i % 60);
                        match disk.get(&of, 1000) {
                            Some(found) => assert_eq!(found, bytes(i % 60, 1000)),
                            None => disk.put(&of, &bytes(i % 60, 1000)).unwrap(),
                        }
                    }
                });
            }
        });
        assert!(used(folder.path()) >= held(folder.path()) && used(folder.path()) <= 50_000);
    }
}
