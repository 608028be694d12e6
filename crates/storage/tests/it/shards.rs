//! Shards: what was written comes back, and what is damaged costs only the samples it lies in.

use std::io::{self, Cursor};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use stokehold_storage::shard::{Manifest, Ranges, Record, Shard, ShardFacts, ShardWriter};
use stokehold_storage::{SampleBytes, StorageError};

use crate::set::{ID, Sample, classes, samples, write, write_set, write_shards, write_with};

fn open(bytes: impl Ranges + 'static, facts: &ShardFacts) -> Result<Shard, StorageError> {
    let path = "set/train/000000.skshard".into();
    Shard::open(Box::new(bytes), path, ID, 0, &classes(), Some(facts))
}

/// Which samples come back as they went in; the others are errors that name the shard, and no sample comes back wrong.
fn whole(shard: &Shard, samples: &[Sample]) -> Vec<bool> {
    assert_eq!(shard.len(), samples.len());
    let mut bytes = SampleBytes::new();
    let right = |(number, sample): (usize, &Sample)| {
        assert_eq!(
            shard.entry(number).label,
            sample.label,
            "labels are known without the shard"
        );
        match shard.read(number, &mut bytes) {
            Ok(()) => {
                assert_eq!(bytes.file(), sample.file);
                assert_eq!(shard.name(number), sample.name.as_bytes());
                true
            }
            Err(StorageError::ShardDamaged { path, .. }) => {
                assert_eq!(path.as_os_str(), "set/train/000000.skshard");
                false
            }
            Err(other) => panic!("{other}"),
        }
    };
    samples.iter().enumerate().map(right).collect()
}

#[test]
fn what_is_written_comes_back() {
    let samples = samples();
    let (bytes, facts) = write(&samples, 0);
    let shard = open(bytes, &facts).unwrap();
    assert_eq!(whole(&shard, &samples), [true; 6]);
    assert_eq!(shard.damage(), None);
    let entry = shard.entry(3);
    assert_eq!((entry.width, entry.height, entry.label), (40, 30, 1));
}

#[test]
fn a_flipped_bit_costs_at_most_the_sample_it_lies_in() {
    let samples = samples();
    let (bytes, facts) = write(&samples, 0);
    let shard = open(bytes.clone(), &facts).unwrap();
    let ends: Vec<u64> = (0..6)
        .map(|number| shard.entry(number).offset + u64::from(shard.entry(number).length))
        .collect();
    for at in 0..bytes.len() {
        for bit in [0, 3, 7] {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << bit;
            let shard = open(flipped, &facts).unwrap();
            let hit = (at >= 32)
                .then(|| ends.iter().position(|&end| (at as u64) < end))
                .flatten();
            let expected: Vec<bool> = (0..6).map(|number| hit != Some(number)).collect();
            assert_eq!(whole(&shard, &samples), expected, "byte {at} bit {bit}");
        }
    }
}

#[test]
fn a_damaged_index_and_a_damaged_record_cost_that_record() {
    let samples = samples();
    let (bytes, facts) = write(&samples, 0);
    let shard = open(bytes.clone(), &facts).unwrap();
    let places: Vec<_> = (0..6).map(|number| shard.entry(number)).collect();
    let index = bytes.len() - 60;
    for (number, place) in places.iter().enumerate() {
        for at in place.offset..place.offset + u64::from(place.length) {
            let mut damaged = bytes.clone();
            damaged[at as usize] ^= 0x20;
            damaged[index] ^= 1;
            let shard = open(damaged, &facts).unwrap();
            let expected: Vec<bool> = (0..6).map(|other| other != number).collect();
            assert_eq!(whole(&shard, &samples), expected, "byte {at}");
            assert!(shard.damage().unwrap().to_string().contains("checksum"));
        }
    }
}

#[test]
fn a_cut_costs_what_lies_behind_it() {
    let samples = samples();
    let (bytes, facts) = write(&samples, 0);
    let shard = open(bytes.clone(), &facts).unwrap();
    for length in 0..bytes.len() {
        let there = |number| {
            let entry = shard.entry(number);
            entry.offset + u64::from(entry.length) <= length as u64
        };
        let expected: Vec<bool> = (0..6).map(there).collect();
        let cut = open(bytes[..length].to_vec(), &facts).unwrap();
        assert_eq!(whole(&cut, &samples), expected, "cut at {length}");
        assert!(cut.damage().is_some());
    }
    let cut = open(bytes[..700].to_vec(), &facts).unwrap();
    let error = cut.read(5, &mut SampleBytes::new()).unwrap_err().to_string();
    assert!(
        error.contains("set/train/000000.skshard: damaged at byte"),
        "{error}"
    );
    assert!(error.contains("sample number 5"), "{error}");
}

#[test]
fn records_and_shards_in_the_place_of_others_are_noticed() {
    let samples = samples();
    let (bytes, facts) = write(&samples, 0);
    let shard = open(bytes.clone(), &facts).unwrap();
    let place = |number| {
        let entry = shard.entry(number);
        entry.offset as usize..entry.offset as usize + entry.length as usize
    };
    let mut swapped = bytes.clone();
    let (a, b) = (place(3), place(4));
    swapped[a.clone()].copy_from_slice(&bytes[b.clone()]);
    swapped[b].copy_from_slice(&bytes[a]);
    let shard = open(swapped, &facts).unwrap();
    assert_eq!(whole(&shard, &samples), [true, true, true, false, false, true]);
    let error = shard.read(3, &mut SampleBytes::new()).unwrap_err().to_string();
    assert!(error.contains("sample dog/a.jpg"), "{error}");

    let refused = |bytes: Vec<u8>, facts| match open(bytes, facts) {
        Err(StorageError::Prepared { reason, .. }) => reason,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("opened"),
    };
    let (other, _) = write(&samples, 1);
    assert!(refused(other.clone(), &facts).contains("shard 1 in the place of shard 0"));
    let headless = other.len() - 1;
    assert!(
        refused(other[..headless].to_vec(), &facts).contains("shard 1"),
        "the header says it as well"
    );
    let (_, fewer) = write(&samples[..5], 0);
    assert!(refused(bytes, &fewer).contains("not those that shards.json lists"));
}

/// A shard whose index or footer was changed by `change` and given the right checksums.
fn lying(change: impl FnOnce(&mut [u8], &mut [u8])) -> Vec<u8> {
    let (mut bytes, _) = write(&samples(), 0);
    let footer_at = bytes.len() - 48;
    let index_at = u64::from_le_bytes(bytes[footer_at + 16..][..8].try_into().unwrap()) as usize;
    let (index, footer) = bytes[index_at..].split_at_mut(footer_at - index_at);
    change(index, footer);
    let crc = crc32fast::hash(index);
    footer[32..36].copy_from_slice(&crc.to_le_bytes());
    let crc = crc32fast::hash(&footer[..36]);
    footer[36..40].copy_from_slice(&crc.to_le_bytes());
    bytes
}

#[test]
fn an_index_that_lies_is_not_believed() {
    let samples = samples();
    let (_, facts) = write(&samples, 0);
    for at in 0..300 {
        for value in [0x00, 0x01, 0x7F, 0x80, 0xFF] {
            let shard = open(lying(|index, _| index[at % index.len()] = value), &facts);
            // A label or a class name that is not the manifest's makes it another shard.
            if let Ok(shard) = shard {
                let names_and_sizes_apart = shard.damage().is_none();
                let mut bytes = SampleBytes::new();
                for (number, sample) in samples.iter().enumerate() {
                    if shard.read(number, &mut bytes).is_ok() {
                        assert_eq!(bytes.file(), sample.file);
                    } else {
                        assert!(
                            names_and_sizes_apart,
                            "byte {at}: records are found without the index"
                        );
                    }
                }
            }
        }
    }
    for at in 0..32 {
        for value in [0x00, 0x01, 0x80, 0xFF] {
            if let Ok(shard) = open(lying(|_, footer| footer[at] = value), &facts) {
                whole(&shard, &samples);
            }
        }
    }
}

#[test]
fn bytes_made_to_look_like_records_do_not_take_long() {
    let (_, facts) = write(&samples(), 0);
    let start = Instant::now();
    // Heads everywhere, each of them as long as all that follows.
    let mut flood = Vec::new();
    while flood.len() < 4 << 20 {
        flood.extend(b"SKrc");
        flood.extend([0; 4 * 8]);
        let at = flood.len() - 36;
        flood[at + 12..at + 16].copy_from_slice(&0x00FF_FFFF_u32.to_le_bytes());
        flood[at + 32..at + 36].copy_from_slice(&0x0010_0000_u32.to_le_bytes());
    }
    for bytes in [flood, b"SKrc".repeat(1 << 20), vec![0; 8 << 20]] {
        let shard = open(bytes, &facts).unwrap();
        assert_eq!(whole(&shard, &samples()), [false; 6]);
    }
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
}

#[test]
fn what_fits_no_record_is_refused() {
    let record = |name: usize| Record::new(vec![b'a'; name], 0, (1, 1), vec![0; 10]);
    assert!(record((1 << 16) - 1).is_ok());
    assert_eq!(record(1 << 16).unwrap_err().kind(), io::ErrorKind::InvalidInput);
}

/// Bytes that count how often they are asked for, and whose reads each wait for the others of their round.
struct Rounds {
    bytes: Vec<u8>,
    /// How many reads there were, and how many make a round.
    reads: Arc<(Mutex<(usize, usize)>, Condvar)>,
}

impl Ranges for Rounds {
    fn size(&self) -> io::Result<u64> {
        self.bytes.size()
    }

    fn read_range(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let (counts, changed) = &*self.reads;
        let mut counts = counts.lock().unwrap();
        counts.0 += 1;
        changed.notify_all();
        let whole = counts.0.next_multiple_of(counts.1);
        let waited = changed.wait_timeout_while(counts, Duration::from_secs(60), |counts| counts.0 < whole);
        match waited.unwrap().1.timed_out() {
            true => Err(io::Error::other("the other readers did not come within a minute")),
            false => self.bytes.read_range(offset, into),
        }
    }
}

#[test]
fn any_ranges_will_do_and_a_sample_is_one_read() {
    let samples = samples();
    let (bytes, facts) = write(&samples, 0);
    let reads = Arc::new((Mutex::new((0, 1)), Condvar::new()));
    let rounds = Rounds {
        bytes,
        reads: reads.clone(),
    };
    let shard = open(rounds, &facts).unwrap();
    assert_eq!(*reads.0.lock().unwrap(), (2, 1), "footer and index");
    // Readers share the shard and read at the same time: none would come back from its first read alone.
    *reads.0.lock().unwrap() = (0, 8);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| assert_eq!(whole(&shard, &samples), [true; 6]));
        }
    });
    assert_eq!(*reads.0.lock().unwrap(), (48, 8));
}

#[test]
fn an_error_of_the_storage_is_no_damage() {
    struct Broken;
    impl Ranges for Broken {
        fn size(&self) -> io::Result<u64> {
            Ok(1000)
        }
        fn read_range(&self, _: u64, _: &mut [u8]) -> io::Result<()> {
            Err(io::Error::other("the cable is out"))
        }
    }
    let (_, facts) = write(&samples(), 0);
    match open(Broken, &facts) {
        Err(StorageError::Read { source, .. }) => assert_eq!(source.to_string(), "the cable is out"),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("opened"),
    }
}

/// Readers join names of parts and shards to paths and keys.
#[test]
fn a_manifest_whose_names_lead_elsewhere_is_refused_when_it_is_read() {
    let dir = tempfile::tempdir().unwrap();
    write_set(dir.path());
    let path = dir.path().join(Manifest::FILE);
    let good = std::fs::read_to_string(&path).unwrap();
    let refused = |text: &str| {
        let message = Manifest::parse_any(text.as_bytes()).unwrap_err();
        assert!(message.contains("not to be trusted"), "{message}");
        std::fs::write(&path, text).unwrap();
        assert!(Manifest::of(dir.path()).is_err());
        assert!(stokehold_storage::Dataset::open(dir.path(), None, 0).is_err());
    };
    for part in [
        "../x",
        "/tmp/x",
        "..",
        ".",
        "",
        ".ssh",
        "a/b",
        "a\\\\b",
        "file:x",
        "a\\u0000b",
        "a\\nb",
    ] {
        refused(
            &good
                .replace("\"train\":", &format!("\"{part}\":"))
                .replace("train/", &format!("{part}/")),
        );
    }
    for file in [
        "../000000.skshard",
        "/tmp/000000.skshard",
        "train/../../000000.skshard",
        "train//000000.skshard",
        "train/deep/000000.skshard",
        "train/.hidden",
        "train/",
        "train",
        "val/000000.skshard",
        "file:///etc/passwd",
        "s3://bucket/000000.skshard",
    ] {
        refused(&good.replace("train/000000.skshard", file));
    }
    std::fs::write(&path, good).unwrap();
    assert!(Manifest::of(dir.path()).unwrap().is_some());
}

/// Samples of which one is packed.
fn with_packed() -> Vec<Sample> {
    let mut samples = samples();
    samples[3] = Sample {
        name: "dog/packed.jpg",
        ..samples[3].clone()
    };
    samples
}

/// What stands for tables: the format of shards knows nothing of what is in them.
fn tables() -> Vec<u8> {
    (0..700u32).map(|i| ((i * i) >> 3) as u8).collect()
}

#[test]
fn tables_stand_before_the_first_record() {
    let (plain, _) = write(&samples(), 0);
    let (with_tables, _) = write_with(&samples(), 0, Some(&tables()));
    assert_eq!((&plain[8..12], &plain[24..28]), (&[1, 0, 0, 0][..], &[0; 4][..]));
    assert_eq!(u32::from_le_bytes(with_tables[24..28].try_into().unwrap()), 704);
    // Byte for byte the same but for what is new.
    assert_eq!(plain.len() + 704, with_tables.len());
    assert!(plain[32..800] == with_tables[32 + 704..800 + 704]);
}

#[test]
fn tables_come_back_with_every_sample_and_stay_with_their_source() {
    let samples = with_packed();
    let (bytes, facts) = write_with(&samples, 0, Some(&tables()));
    let shard = open(bytes, &facts).unwrap();
    assert_eq!((shard.damage(), shard.tables_damage()), (None, None));
    assert_eq!(shard.tables(), Some(&*tables()));
    assert_eq!(shard.entry(0).offset, 32 + 704);
    assert_eq!(whole(&shard, &samples), [true; 6]);
    let mut bytes = SampleBytes::new();
    shard.read(3, &mut bytes).unwrap();
    assert_eq!(bytes.tables(), Some(&*tables()));
    // Another shard has none, and a file of a folder has none.
    let (plain, facts) = write(&self::samples(), 0);
    open(plain, &facts).unwrap().read(0, &mut bytes).unwrap();
    assert_eq!(bytes.tables(), None);
    shard.read(3, &mut bytes).unwrap();
    bytes.refill().extend(b"a file");
    assert_eq!((bytes.tables(), bytes.file()), (None, &b"a file"[..]));
}

#[test]
fn tables_that_do_not_fit_are_refused() {
    let new = |length: usize| {
        let tables = vec![1; length];
        ShardWriter::new(Cursor::new(Vec::new()), ID, 0, &classes(), Some(&tables)).map(drop)
    };
    assert!(new((1 << 20) - 4).is_ok());
    assert_eq!(
        new((1 << 20) - 3).unwrap_err().kind(),
        io::ErrorKind::InvalidInput
    );
}

/// Samples need the tables only to be decoded, so all of them are read.
#[test]
fn a_flipped_bit_in_the_tables_costs_the_tables_alone() {
    let samples = with_packed();
    let (bytes, facts) = write_with(&samples, 0, Some(&tables()));
    let index = bytes.len() - 60;
    for at in 0..32 + 704 {
        for damaged_index in [false, true] {
            let mut flipped = bytes.clone();
            flipped[at] ^= 4;
            if damaged_index {
                flipped[index] ^= 1;
            }
            let shard = open(flipped, &facts).unwrap();
            assert_eq!(whole(&shard, &samples), [true; 6], "byte {at}");
            assert_eq!(shard.damage().is_some(), damaged_index);
            // Without a header, the records say where the tables end.
            assert_eq!(shard.tables().is_some(), at < 32, "byte {at}");
            assert_eq!(shard.tables_damage().is_some(), at >= 32);
            if let Some(damage) = shard.tables_damage() {
                let said = damage.to_string();
                assert!(
                    said.contains("at byte 32: the checksum of the tables of its packed JPEGs"),
                    "{said}"
                );
            }
        }
    }
}

#[test]
fn tables_that_are_cut_off_or_too_long_are_damage() {
    let samples = with_packed();
    let (bytes, facts) = write_with(&samples, 0, Some(&tables()));
    let first = open(bytes.clone(), &facts).unwrap().entry(0);
    for length in 0..bytes.len() {
        let cut = open(bytes[..length].to_vec(), &facts).unwrap();
        let all = whole(&cut, &samples);
        assert_eq!(
            all[0],
            length as u64 >= first.offset + u64::from(first.length),
            "cut at {length}"
        );
        assert_eq!(cut.tables().is_some(), length >= 32 + 704, "cut at {length}");
        assert_eq!(
            cut.tables_damage().is_some(),
            (32..32 + 704).contains(&length),
            "cut at {length}"
        );
    }
    let cut = open(bytes[..200].to_vec(), &facts).unwrap();
    let said = cut.tables_damage().unwrap().to_string();
    assert!(said.contains("cut off"), "{said}");
    // A length that no shard has is not allocated, and the records are found without it.
    for length in [(1 << 20) + 1, u32::MAX] {
        let mut long = bytes.clone();
        long[24..28].copy_from_slice(&length.to_le_bytes());
        let crc = crc32fast::hash(&long[..28]);
        long[28..32].copy_from_slice(&crc.to_le_bytes());
        // With the index, it says where the records begin.
        assert_eq!(open(long.clone(), &facts).unwrap().tables(), Some(&*tables()));
        let end = long.len() - 1;
        let shard = open(long[..end].to_vec(), &facts).unwrap();
        assert_eq!(whole(&shard, &samples), [true; 6]);
        assert!(shard.tables_damage().is_some());
    }
}

#[test]
fn a_damaged_index_and_a_damaged_record_cost_that_record_behind_tables_too() {
    let samples = with_packed();
    let (bytes, facts) = write_with(&samples, 0, Some(&tables()));
    let shard = open(bytes.clone(), &facts).unwrap();
    let places: Vec<_> = (0..6).map(|number| shard.entry(number)).collect();
    let index = bytes.len() - 60;
    for (number, place) in places.iter().enumerate() {
        for at in place.offset..place.offset + u64::from(place.length) {
            let mut damaged = bytes.clone();
            damaged[at as usize] ^= 0x20;
            damaged[index] ^= 1;
            let shard = open(damaged, &facts).unwrap();
            let expected: Vec<bool> = (0..6).map(|other| other != number).collect();
            assert_eq!(whole(&shard, &samples), expected, "byte {at}");
            assert_eq!(shard.tables(), Some(&*tables()));
        }
    }
}

#[test]
fn a_later_version_is_refused_and_says_what_to_do() {
    let later = |(mut bytes, facts): (Vec<u8>, ShardFacts), cut: usize| {
        bytes[8..12].copy_from_slice(&3u32.to_le_bytes());
        let crc = crc32fast::hash(&bytes[..28]);
        bytes[28..32].copy_from_slice(&crc.to_le_bytes());
        bytes.truncate(bytes.len() - cut);
        match open(bytes, &facts) {
            Err(StorageError::Prepared { reason, .. }) => {
                assert!(
                    reason.contains("version 3 of the format; this program reads version 1; update it"),
                    "{reason}"
                );
            }
            Err(other) => panic!("{other}"),
            Ok(_) => panic!("opened"),
        }
    };
    later(write_with(&samples(), 0, Some(&tables())), 0);
    later(write_with(&samples(), 0, Some(&tables())), 1);
    // Without tables the header is read only where the index is not there; the manifest has the version too.
    later(write(&samples(), 0), 1);
    let dir = tempfile::tempdir().unwrap();
    write_shards(dir.path(), 3, vec![write(&samples(), 0)]);
    let error = Manifest::of(dir.path()).unwrap_err().to_string();
    assert!(
        error.contains("this is version 3 of \"stokehold shards\"; this program reads version 1"),
        "{error}"
    );
}

#[test]
fn shards_of_a_data_set_have_their_tables_once_in_memory() {
    let dir = tempfile::tempdir().unwrap();
    let shards = vec![
        write_with(&with_packed(), 0, Some(&tables())),
        write_with(&with_packed(), 1, Some(&tables())),
        write_with(&with_packed(), 2, Some(b"others")),
        write(&samples(), 3),
    ];
    write_shards(dir.path(), Manifest::VERSION, shards);
    let manifest = Manifest::of(dir.path()).unwrap().unwrap();
    let folder = stokehold_storage::shard::ShardFolder::open(dir.path(), "train", &manifest).unwrap();
    let of = |shard: usize| folder.shards()[shard].tables();
    assert_eq!(of(0), Some(&*tables()));
    assert!(std::ptr::eq(of(0).unwrap(), of(1).unwrap()));
    assert_eq!((of(2), of(3)), (Some(&b"others"[..]), None));
}

/// Opening shards without tables costs what it did before there were any, and those with tables one read more.
#[test]
fn tables_cost_one_read() {
    struct Counted(Vec<u8>, Arc<Mutex<usize>>);
    impl Ranges for Counted {
        fn size(&self) -> io::Result<u64> {
            self.0.size()
        }
        fn read_range(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
            *self.1.lock().unwrap() += 1;
            self.0.read_range(offset, into)
        }
    }
    let reads = |(bytes, facts): (Vec<u8>, ShardFacts)| {
        let counted = Arc::new(Mutex::new(0));
        open(Counted(bytes, counted.clone()), &facts).unwrap();
        Arc::into_inner(counted).unwrap().into_inner().unwrap()
    };
    assert_eq!(reads(write(&with_packed(), 0)), 2);
    assert_eq!(reads(write_with(&with_packed(), 0, Some(&tables()))), 3);
}
