//! Bytes as changes to a file of an image cache: opened with what is whole in it, and read by the key of the image that it holds.

#![no_main]

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use stokehold_cache::{Cache, CachePlace};
use stokehold_storage::{ImageFolder, SampleBytes, Source};

/// An image, the file of a cache that holds it, and what is read of it without a cache and from one.
struct Known {
    root: PathBuf,
    source: Arc<ImageFolder>,
    segment: Vec<u8>,
    file: Vec<u8>,
    packed: Vec<u8>,
}

/// Of this process, in memory where there is one.
fn known() -> &'static Known {
    static KNOWN: OnceLock<Known> = OnceLock::new();
    KNOWN.get_or_init(|| {
        let memory = PathBuf::from("/dev/shm");
        let root = if memory.is_dir() {
            memory
        } else {
            std::env::temp_dir()
        };
        let root = root.join(format!("stokehold-fuzz-cache-{}", std::process::id()));
        let (images, made) = (root.join("images"), root.join("made"));
        fs::create_dir_all(&images).unwrap();
        let jpeg = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../crates/jpeg/tests/goldens/files/0002_444_q50_baseline_49x40.jpg"
        );
        fs::copy(jpeg, images.join("a.jpg")).unwrap();
        // A file that was just changed has no key yet.
        std::thread::sleep(Duration::from_secs(4));
        let source = Arc::new(ImageFolder::unlabelled(&images).unwrap());
        let file = read(&*source);
        {
            let cached = open(&made).of(source.clone());
            assert_eq!(cached.fill(&AtomicBool::new(false)).unwrap(), 1);
        }
        let packed = read(&*open(&made).of(source.clone()));
        assert_ne!(packed, file);
        let mut entries = fs::read_dir(&made).unwrap().map(|entry| entry.unwrap().path());
        let path = entries.find(|path| path.extension().is_some_and(|end| end == "skcache"));
        let segment = fs::read(path.unwrap()).unwrap();
        Known {
            root,
            source,
            segment,
            file,
            packed,
        }
    })
}

fn open(dir: &std::path::Path) -> Arc<Cache> {
    let place = CachePlace {
        dir: dir.to_owned(),
        limit: Some(64 << 20),
    };
    Cache::open(&place, 0.0).unwrap()
}

fn read(source: &dyn Source) -> Vec<u8> {
    let mut bytes = SampleBytes::new();
    source.read(0, &mut bytes).unwrap();
    bytes.file().to_vec()
}

fuzz_target!(|bytes: &[u8]| {
    let known = known();
    let dir = known.root.join("changed");
    fs::create_dir_all(&dir).unwrap();
    // The first byte chooses: bytes as they are, or changes of the whole file, each a place, a byte, and where it is cut off.
    let segment = match bytes.split_first() {
        Some((0, rest)) => rest.to_vec(),
        Some((_, changes)) => {
            let mut segment = known.segment.clone();
            for change in changes.chunks_exact(4) {
                let place = usize::from(u16::from_le_bytes([change[0], change[1]])) % segment.len().max(1);
                match change[3] {
                    0 => segment.truncate(place),
                    1 => segment.extend_from_slice(&known.segment[place.min(known.segment.len())..]),
                    _ => {
                        if let Some(byte) = segment.get_mut(place) {
                            *byte ^= change[2];
                        }
                    }
                }
            }
            segment
        }
        None => Vec::new(),
    };
    fs::write(dir.join("a.skcache"), &segment).unwrap();
    {
        let cache = open(&dir);
        let found = read(&*cache.of(known.source.clone()));
        // Whole, or as if it were not there.
        assert!(found == known.packed || found == known.file);
        if segment == known.segment {
            assert!(found == known.packed);
        }
    }
    fs::remove_dir_all(dir).unwrap();
});
