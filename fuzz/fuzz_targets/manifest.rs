//! Any bytes as a manifest: what is read names files in folders of its own, and comes back when it is written.
#![no_main]

use std::path::{Component, Path};

use libfuzzer_sys::fuzz_target;
use stokehold_storage::shard::Manifest;

fuzz_target!(|bytes: &[u8]| {
    let Ok(manifest) = Manifest::parse_any(bytes) else {
        return;
    };
    for (part, facts) in &manifest.parts {
        assert_eq!(names(part), [part.as_str()]);
        let mut samples = 0;
        for shard in &facts.shards {
            assert_eq!(names(&shard.file).len(), 2);
            assert_eq!(names(&shard.file)[0], part.as_str());
            assert!(!shard.file.contains("://"));
            samples += u64::from(shard.samples());
            assert!(shard.labels().take(1000).all(|label| (label as usize) < manifest.classes.len()));
        }
        assert_eq!(samples, facts.samples);
    }
    let written = serde_json::to_vec(&manifest).expect("it was JSON");
    assert_eq!(Manifest::parse_any(&written), Ok(manifest));
});

/// The names that lead to a path, none of them upwards or to the root.
fn names(path: &str) -> Vec<&str> {
    assert_eq!(Path::new(path).components().collect::<std::path::PathBuf>().as_os_str(), path);
    let name = |part| match part {
        Component::Normal(name) => name.to_str().expect("it was a text"),
        other => panic!("{path:?} leads elsewhere: {other:?}"),
    };
    Path::new(path).components().map(name).collect()
}
