//! The cache next to its sources: what it keeps, shares, drops and survives.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use stokehold_untested::until;

use jpeg_encoder::{ColorType, Encoder};
use stokehold_cache::{Cache, CachePlace, Cached, SHARE};
use stokehold_jpeg::{Decoder, Header, Layout, Scale, is_packed};
use stokehold_storage::{ImageFolder, SampleBytes, Source, StorageError};
use tempfile::TempDir;

/// A JPEG whose pixels follow from `seed`.
fn jpeg(seed: u32, side: u16) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2_654_435_761) | 1;
    let pixels: Vec<u8> = (0..u32::from(side) * u32::from(side) * 3)
        .map(|at| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (at / 37 + seed * 31) as u8 ^ (state >> 29) as u8
        })
        .collect();
    let mut bytes = Vec::new();
    let encoder = Encoder::new(&mut bytes, 85);
    encoder.encode(&pixels, side, side, ColorType::Rgb).unwrap();
    bytes
}

/// A folder of JPEGs in one class. They are old enough to have versions.
fn folder(count: u32) -> TempDir {
    let dir = young_folder(count);
    grow_old();
    dir
}

fn young_folder(count: u32) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("a")).unwrap();
    for number in 0..count {
        fs::write(dir.path().join(format!("a/{number:03}.jpg")), jpeg(number, 96)).unwrap();
    }
    dir
}

/// Waits until what was just written has a version.
fn grow_old() {
    std::thread::sleep(Duration::from_millis(3050));
}

/// A source that counts its reads, and may seem to be in a bucket.
struct Counted {
    images: ImageFolder,
    reads: AtomicUsize,
    reach: usize,
}

impl Source for Counted {
    fn len(&self) -> usize {
        self.images.len()
    }

    fn class(&self, sample: usize) -> u32 {
        self.images.class(sample)
    }

    fn name(&self, sample: usize) -> String {
        self.images.name(sample)
    }

    fn read(&self, sample: usize, into: &mut SampleBytes) -> Result<(), StorageError> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.images.read(sample, into)
    }

    fn version(&self, sample: usize, into: &mut Vec<u8>) -> bool {
        self.images.version(sample, into)
    }

    fn reach(&self) -> usize {
        self.reach
    }
}

fn counted(dir: &Path, reach: usize) -> Arc<Counted> {
    Arc::new(Counted {
        images: ImageFolder::open(dir).unwrap(),
        reads: AtomicUsize::new(0),
        reach,
    })
}

fn open(dir: &Path, limit: u64) -> Arc<Cache> {
    let place = CachePlace {
        dir: dir.to_owned(),
        limit: Some(limit),
    };
    Cache::open(&place, 1.0).unwrap()
}

fn fill(cached: &Cached) {
    cached.fill(&AtomicBool::new(false)).unwrap();
}

/// What a source gives: of every sample whether it is packed, and its pixels or, for another file, its bytes.
fn contents(source: &dyn Source) -> Vec<(bool, Vec<u8>)> {
    let (mut bytes, mut decoder) = (SampleBytes::new(), Decoder::new());
    (0..source.len())
        .map(|sample| {
            source.read(sample, &mut bytes).unwrap();
            let file = bytes.file();
            let Ok(header) = Header::parse(file) else {
                return (false, file.to_vec());
            };
            let image = decoder
                .decode(file, header.full(), Scale::Full, Layout::Rgb)
                .unwrap();
            (is_packed(file), image.data.to_vec())
        })
        .collect()
}

fn pixels(contents: Vec<(bool, Vec<u8>)>) -> Vec<Vec<u8>> {
    contents.into_iter().map(|(_, pixels)| pixels).collect()
}

fn segments(dir: &Path) -> Vec<PathBuf> {
    let all = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let mut all: Vec<PathBuf> = all
        .filter(|path| path.extension().is_some_and(|end| end == "skcache"))
        .collect();
    all.sort();
    all
}

fn size(dir: &Path) -> u64 {
    segments(dir)
        .iter()
        .map(|path| path.metadata().unwrap().len())
        .sum()
}

const PLENTY: u64 = 100 << 20;

/// Whether images are packed on this machine.
fn packs() -> bool {
    let packs = stokehold_jpeg::packed_is_fast();
    if !packs {
        stokehold_untested::skip("this processor has no AVX2, without which nothing is packed");
    }
    packs
}

#[test]
fn the_second_epoch_reads_packed_images_of_the_same_pixels() {
    if !packs() {
        return;
    }
    let (data, dir) = (folder(30), tempfile::tempdir().unwrap());
    let source = counted(data.path(), 0);
    let cache = open(dir.path(), PLENTY);
    let cached = cache.of(source.clone());
    let first = contents(&*cached);
    assert!(first.iter().all(|(packed, _)| !packed));
    until("all are packed", || {
        cache.facts().waiting == 0 && cache.facts().added == 30
    });
    let second = contents(&*cached);
    assert!(second.iter().all(|(packed, _)| *packed));
    assert_eq!(pixels(first), pixels(second));
    let facts = cache.facts();
    assert_eq!((facts.hits, facts.misses, facts.damaged), (30, 30, 0));
    assert!(facts.added_bytes < facts.file_bytes, "{facts}");
    // Once for the loader and once to pack it, and never again.
    assert_eq!(source.reads.load(Ordering::Relaxed), 60);
}

#[test]
fn reads_past_it_are_counted_with_the_reason() {
    let (data, dir) = (young_folder(3), tempfile::tempdir().unwrap());
    let cache = open(dir.path(), PLENTY);
    contents(&*cache.of(counted(data.path(), 0)));
    let facts = cache.facts();
    assert_eq!(
        (facts.hits, facts.misses, facts.passed, facts.added),
        (0, 0, 3, 0)
    );
    let why = match stokehold_jpeg::packed_is_fast() {
        true => "files that were just changed",
        false => "AVX2",
    };
    let line = facts.to_string();
    assert!(line.contains("3 reads past it") && line.contains(why), "{line}");
}

#[test]
fn another_process_reads_what_one_has_packed_also_while_it_goes_on() {
    if !packs() {
        return;
    }
    let (data, dir) = (folder(20), tempfile::tempdir().unwrap());
    let source = counted(data.path(), 0);
    let first = open(dir.path(), PLENTY);
    fill(&first.of(source.clone()));
    assert_eq!(first.facts().added, 20);
    // A copy of the folder, as a process that is killed leaves it: without an index, and with a part of the last record.
    let other = tempfile::tempdir().unwrap();
    let [segment] = &segments(dir.path())[..] else {
        panic!("one segment")
    };
    let mut bytes = fs::read(segment).unwrap();
    bytes.truncate(bytes.len() - 7);
    let copy = other.path().join(segment.file_name().unwrap());
    fs::write(&copy, &bytes).unwrap();
    let second = open(other.path(), PLENTY);
    let contents_before = contents(&*second.of(source.clone()));
    assert_eq!(contents_before.iter().filter(|(packed, _)| *packed).count(), 19);
    drop(first);
    // With its index.
    let third = open(dir.path(), PLENTY);
    assert!(contents(&*third.of(source)).iter().all(|(packed, _)| *packed));
}

#[cfg(unix)]
#[test]
fn files_that_others_open_are_the_same_as_samples() {
    use std::os::unix::fs::MetadataExt;
    if !packs() {
        return;
    }
    let (data, dir) = (young_folder(3), tempfile::tempdir().unwrap());
    // A reader of its own may make something else of a file without its end.
    let cut = jpeg(3, 96);
    fs::write(data.path().join("a/003.jpg"), &cut[..cut.len() - 2]).unwrap();
    grow_old();
    let path = |number: u32| data.path().join(format!("a/{number:03}.jpg"));
    let key = |number: u32| {
        let facts = path(number).metadata().unwrap();
        let times = [
            facts.mtime(),
            facts.mtime_nsec(),
            facts.ctime(),
            facts.ctime_nsec(),
        ];
        let [a, b, c, d] = times;
        let numbers = [facts.ino() as i64, facts.size() as i64, a, b, c, d];
        Cache::key_of_file(path(number).file_name().unwrap(), numbers).unwrap()
    };
    let cache = open(dir.path(), PLENTY);
    let mut bytes = SampleBytes::new();
    for number in [0, 3] {
        assert!(!cache.read(key(number), &mut bytes));
        cache.offer(key(number), &fs::read(path(number)).unwrap());
    }
    until("one is packed and one refused", || {
        (cache.facts().added, cache.facts().refused) == (1, 1)
    });
    let cached = cache.of(counted(data.path(), 0));
    let is_packed_one = |(packed, _): &(bool, Vec<u8>)| *packed;
    let first: Vec<bool> = contents(&*cached).iter().map(is_packed_one).collect();
    assert_eq!(first, [true, false, false, false]);
    fill(&cached);
    let found = (0..4).map(|number| cache.read(key(number), &mut bytes) && is_packed(bytes.file()));
    assert_eq!(found.collect::<Vec<_>>(), [true, true, true, false]);
}

#[test]
fn a_file_that_was_changed_is_another_sample() {
    if !packs() {
        return;
    }
    let (data, dir) = (folder(3), tempfile::tempdir().unwrap());
    let cache = open(dir.path(), PLENTY);
    let cached = cache.of(counted(data.path(), 0));
    fill(&cached);
    let before = pixels(contents(&*cached));
    // As an epoch leaves it that ends before its last batch.
    (0..3).for_each(|sample| cached.expect(sample));
    // The same size and the same time of change as before: the time of its entry tells.
    let path = data.path().join("a/001.jpg");
    let time = path.metadata().unwrap().modified().unwrap();
    let new = jpeg(77, 96);
    fs::write(&path, &new).unwrap();
    fs::File::options()
        .append(true)
        .open(&path)
        .unwrap()
        .set_modified(time)
        .unwrap();
    let after = contents(&*cached);
    assert_eq!(
        after.iter().map(|(packed, _)| *packed).collect::<Vec<_>>(),
        [true, false, true]
    );
    let after = pixels(after);
    assert!(after[0] == before[0] && after[1] != before[1] && after[2] == before[2]);
    // It has no version yet.
    assert_eq!(cache.facts().added, 3);
    grow_old();
    contents(&*cached);
    until("the new one is packed", || cache.facts().added == 4);
    assert_eq!(pixels(contents(&*cached)), after);
}

#[test]
fn damage_is_found_and_mended_from_the_source() {
    if !packs() {
        return;
    }
    let (data, dir) = (folder(8), tempfile::tempdir().unwrap());
    let cache = open(dir.path(), PLENTY);
    let cached = cache.of(counted(data.path(), 0));
    fill(&cached);
    let before = pixels(contents(&*cached));
    let [segment] = &segments(dir.path())[..] else {
        panic!("one segment")
    };
    let mut bytes = fs::read(segment).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(segment, &bytes).unwrap();
    let after = contents(&*cached);
    assert_eq!(after.iter().filter(|(packed, _)| !packed).count(), 1);
    assert_eq!(pixels(after), before);
    assert_eq!(cache.facts().damaged, 1);
    until("it is packed again", || cache.facts().added == 9);
    let again = contents(&*cached);
    assert!(again.iter().all(|(packed, _)| *packed));
    assert_eq!(pixels(again), before);
}

#[test]
fn the_bound_holds_and_what_nobody_uses_makes_room() {
    if !packs() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let limit = 1 << 20;
    let first = folder(700);
    {
        let cache = open(dir.path(), limit);
        let cached = cache.of(counted(first.path(), 0));
        let lacks = cached.fill(&AtomicBool::new(false)).unwrap_err();
        assert!(lacks.to_string().contains("is full"), "{lacks}");
        let facts = cache.facts();
        assert!(
            facts
                .stopped
                .as_deref()
                .is_some_and(|why| why.contains("is full")),
            "{facts}"
        );
        assert!(size(dir.path()) <= limit, "{}", size(dir.path()));
        assert!(size(dir.path()) > limit / 2, "{}", size(dir.path()));
        // What it has is read, the rest comes from the files, and nothing is tried again.
        let packed = contents(&*cached).iter().filter(|(packed, _)| *packed).count();
        assert_eq!(packed as u64, facts.added);
        assert_eq!(cache.facts().waiting, 0);
    }
    // Another data set: the segments of the first one are free now.
    let second = folder(20);
    let cache = open(dir.path(), limit);
    let cached = cache.of(counted(second.path(), 0));
    fill(&cached);
    assert_eq!(cache.facts().added, 20);
    assert!(size(dir.path()) <= limit, "{}", size(dir.path()));
    assert!(contents(&*cached).iter().all(|(packed, _)| *packed));
}

#[test]
fn of_a_network_what_cannot_be_packed_is_kept_as_it_is() {
    if !packs() {
        return;
    }
    let (data, dir) = (folder(2), tempfile::tempdir().unwrap());
    fs::write(data.path().join("a/x.png"), b"no JPEG at all").unwrap();
    grow_old();
    for (reach, reads) in [(0, 1), (256, 0)] {
        let dir = dir.path().join(reach.to_string());
        let source = counted(data.path(), reach);
        let cache = open(&dir, PLENTY);
        let cached = cache.of(source.clone());
        fill(&cached);
        source.reads.store(0, Ordering::Relaxed);
        let contents = contents(&*cached);
        assert_eq!(contents[2].1, b"no JPEG at all");
        assert_eq!(source.reads.load(Ordering::Relaxed), reads);
    }
}

#[test]
fn what_a_source_was_told_to_fetch_is_taken_from_it() {
    if !packs() {
        return;
    }
    let (data, dir) = (folder(2), tempfile::tempdir().unwrap());
    let source = counted(data.path(), 256);
    let cache = open(dir.path(), PLENTY);
    let cached = cache.of(source.clone());
    cached.expect(0);
    fill(&cached);
    source.reads.store(0, Ordering::Relaxed);
    contents(&*cached);
    assert_eq!(
        source.reads.load(Ordering::Relaxed),
        1,
        "only the one that was announced"
    );
    cached.expect(0);
    contents(&*cached);
    assert_eq!(source.reads.load(Ordering::Relaxed), 1, "it is in the cache now");
}

#[test]
fn a_place_is_a_folder_and_a_size() {
    let place = |text: &str| text.parse::<CachePlace>();
    for (text, dir, limit) in [
        ("cache", "cache", None),
        ("/a:b/c", "/a:b/c", None),
        ("/a:20GB", "/a", Some(20_000_000_000)),
        ("a:b:1MiB", "a:b", Some(1 << 20)),
    ] {
        let place = place(text).unwrap();
        assert_eq!((place.dir.to_str().unwrap(), place.limit), (dir, limit));
        assert_eq!(place.to_string().parse(), Ok(place));
    }
    for (text, why) in [
        ("", "it is DIR or DIR:SIZE"),
        (":5GB", "it is DIR or DIR:SIZE"),
        ("kept:", "must be a number of bytes"),
        ("kept:abc", "must be a number of bytes"),
        ("a:1kB", "at least 1MiB"),
        ("a:5parsecs", "must be a number of bytes"),
        ("s3://bucket/cache", "a folder of this machine"),
    ] {
        let error = place(text).unwrap_err();
        assert!(error.contains(why), "{text}: {error}");
    }
}

#[test]
fn a_folder_that_cannot_be_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "precious").unwrap();
    for path in [file.clone(), file.join("below")] {
        let place = CachePlace {
            dir: path,
            limit: None,
        };
        let error = Cache::open(&place, SHARE).unwrap_err().to_string();
        assert!(
            error.contains("the cache's folder") && error.contains("file"),
            "{error}"
        );
    }
    assert_eq!(fs::read_to_string(file).unwrap(), "precious");
}

/// Each process leaves one, and there may be more of them than files may be open.
#[test]
fn many_segments_are_looked_through_with_few_open_files() {
    if !packs() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let images = folder(12);
    let segments_of = |number: usize| dir.path().join(format!("{number:05}.skcache"));
    fill(&open(dir.path(), 1 << 20).of(Arc::new(ImageFolder::open(images.path()).unwrap())));
    let one = fs::read(&segments(dir.path())[0]).unwrap();
    // Copies of a whole segment, as if other processes had left them.
    for number in 0..1500 {
        fs::write(segments_of(number), &one).unwrap();
    }
    let began = Instant::now();
    let cache = open(dir.path(), 1 << 30);
    let open_files = || fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    let before = open_files();
    let more = folder(8);
    let cached = cache.of(Arc::new(ImageFolder::open(more.path()).unwrap()));
    let mut most = 0;
    std::thread::scope(|scope| {
        let filling = scope.spawn(|| fill(&cached));
        while !filling.is_finished() {
            most = most.max(open_files());
            std::thread::sleep(Duration::from_micros(200));
        }
    });
    assert!(most < before + 300, "{most} files are open, {before} were");
    assert!(began.elapsed() < Duration::from_secs(60));
    assert!(segments_of(0).exists());
}

#[test]
#[cfg(unix)]
fn a_folder_that_is_made_is_its_users_alone_and_one_that_was_there_stays_as_it_was() {
    use std::os::unix::fs::PermissionsExt;
    let rights = |dir: &Path| fs::metadata(dir).unwrap().permissions().mode() & 0o777;
    let dir = tempfile::tempdir().unwrap();
    let (made, shared) = (dir.path().join("made"), dir.path().join("shared"));
    fs::create_dir(&shared).unwrap();
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o775)).unwrap();
    open(&made, 1 << 20);
    open(&shared, 1 << 20);
    assert_eq!((rights(&made), rights(&shared)), (0o700, 0o775));
}

#[test]
fn files_of_others_stay() {
    let (data, dir) = (folder(1), tempfile::tempdir().unwrap());
    fs::write(dir.path().join("thesis.txt"), "precious").unwrap();
    fs::write(dir.path().join("x.skcache"), "SKCACHE9: of a later version").unwrap();
    let cache = open(dir.path(), 1 << 20);
    fill(&cache.of(counted(data.path(), 0)));
    assert_eq!(
        fs::read_to_string(dir.path().join("thesis.txt")).unwrap(),
        "precious"
    );
    assert_eq!(contents(&*cache.of(counted(data.path(), 0))).len(), 1);
}

#[test]
fn closing_never_waits_for_a_thread_that_waits() {
    if !packs() {
        return;
    }
    let (data, dir) = (folder(1), tempfile::tempdir().unwrap());
    let begun = Instant::now();
    for round in 0..120 {
        let cache = open(&dir.path().join(round.to_string()), PLENTY);
        let cached = cache.of(counted(data.path(), 0));
        contents(&*cached);
        // Sometimes while the image is packed, sometimes when the thread waits for another one.
        std::thread::sleep(Duration::from_micros(200 * (round % 20)));
    }
    // Each wait that never ends would take two seconds.
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
}

#[test]
fn small_files_of_many_runs_do_not_count_as_large_ones() {
    if !packs() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let sets: Vec<TempDir> = (0..12).map(|_| young_folder(1)).collect();
    grow_old();
    for data in &sets {
        fill(&open(dir.path(), 8 << 20).of(counted(data.path(), 0)));
    }
    assert_eq!(segments(dir.path()).len(), 12);
    let cache = open(dir.path(), 8 << 20);
    // All are in use.
    for data in &sets {
        assert!(
            contents(&*cache.of(counted(data.path(), 0)))
                .iter()
                .all(|(packed, _)| *packed)
        );
    }
    let more = folder(2);
    fill(&cache.of(counted(more.path(), 0)));
    assert_eq!((cache.facts().added, cache.facts().stopped), (2, None));
}

#[test]
fn an_image_larger_than_a_file_of_the_cache_is_left_out() {
    if !packs() {
        return;
    }
    let (data, dir) = (folder(2), tempfile::tempdir().unwrap());
    // Kept as they are, for they come over a network.
    for number in 0..10 {
        fs::write(
            data.path().join(format!("a/large{number}.png")),
            vec![number; 200_000],
        )
        .unwrap();
    }
    grow_old();
    let cache = open(dir.path(), 1 << 20);
    let cached = cache.of(counted(data.path(), 256));
    fill(&cached);
    let facts = cache.facts();
    assert_eq!((facts.added, facts.stopped), (2, None));
    assert_eq!(segments(dir.path()).len(), 1);
    contents(&*cached);
    assert_eq!(cache.facts().waiting, 0, "they are not offered again");
}

#[test]
fn what_others_add_is_read_while_this_process_packs() {
    if !packs() {
        return;
    }
    let (data, dir, other) = (
        folder(20),
        tempfile::tempdir().unwrap(),
        tempfile::tempdir().unwrap(),
    );
    let first = open(dir.path(), PLENTY);
    let cached = first.of(counted(data.path(), 0));
    // What another process writes appears next to.
    fill(&open(other.path(), PLENTY).of(counted(data.path(), 0)));
    let [segment] = &segments(other.path())[..] else {
        panic!("one segment")
    };
    let to = dir.path().join(segment.file_name().unwrap());
    fs::copy(segment, to).unwrap();
    std::thread::sleep(Duration::from_millis(1100));
    contents(&*cached);
    assert!(contents(&*cached).iter().all(|(packed, _)| *packed));
}

#[test]
fn a_damaged_sample_is_replaced_once_and_for_all() {
    if !packs() {
        return;
    }
    let (data, dir) = (folder(3), tempfile::tempdir().unwrap());
    fill(&open(dir.path(), PLENTY).of(counted(data.path(), 0)));
    let [segment] = &segments(dir.path())[..] else {
        panic!("one segment")
    };
    let mut bytes = fs::read(segment).unwrap();
    bytes[100] ^= 1;
    fs::write(segment, bytes).unwrap();
    for (damaged, added) in [(1, 1), (0, 0), (0, 0)] {
        let cache = open(dir.path(), PLENTY);
        let cached = cache.of(counted(data.path(), 0));
        contents(&*cached);
        until("it is packed again", || cache.facts().added == added);
        assert_eq!(cache.facts().damaged, damaged);
    }
}
