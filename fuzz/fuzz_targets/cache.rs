//! Bytes as a file of an image cache: opened with what is whole in it, and read by the keys that it claims to hold.

#![no_main]

use std::path::PathBuf;
use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use stokehold_cache::{Cache, CachePlace};
use stokehold_storage::{ImageList, SampleBytes, Source};

/// A folder of this process, in memory where there is one.
fn folder() -> PathBuf {
    let memory = PathBuf::from("/dev/shm");
    let root = if memory.is_dir() { memory } else { std::env::temp_dir() };
    root.join(format!("stokehold-fuzz-cache-{}", std::process::id()))
}

fuzz_target!(|bytes: &[u8]| {
    let dir = folder();
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join("a.skcache"), bytes).unwrap();
    let place = CachePlace {
        dir: dir.clone(),
        limit: Some(64 << 20),
    };
    let cache = Cache::open(&place, 0.0).unwrap();
    let mut list = ImageList::default();
    list.push("/dev/null", 0);
    let cached = cache.of(Arc::new(list));
    // No file is there: an error, and no panic.
    assert!(cached.read(0, &mut SampleBytes::new()).is_err());
    assert_eq!(cache.facts().damaged, 0);
    drop((cached, cache));
    std::fs::remove_dir_all(dir).unwrap();
});
