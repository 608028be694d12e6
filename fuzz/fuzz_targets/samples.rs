//! Any bytes as a file of samples: what is read is in order and whole, and every value is one that a line says.
#![no_main]

use std::collections::HashSet;
use std::fs;

use libfuzzer_sys::fuzz_target;
use stokehold_profile::Recording;
use stokehold_profile::system::{parse, read_into};

fuzz_target!(|bytes: &[u8]| {
    let root = std::env::temp_dir().join(format!("stokehold-fuzz-{}", std::process::id()));
    let folder = root.join("system/incremental/2020061000");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("1591748100.algo-1.json"), bytes).unwrap();
    let mut recording = Recording::default();
    read_into(&root, &mut recording);

    let events: Vec<_> = bytes
        .split(|&byte| byte == b'\n')
        .filter_map(|line| parse(line.trim_ascii_end()).ok())
        .collect();
    let said: HashSet<_> = events
        .iter()
        .map(|event| (&*event.node, &*event.kind, &*event.name, &*event.dimension, (event.value as f32).to_bits()))
        .collect();
    let mut values = 0;
    for node in &recording.nodes {
        assert!(node.ticks.windows(2).all(|pair| pair[0] < pair[1]));
        for series in &node.series {
            assert_eq!(series.values.len(), node.ticks.len());
            for value in series.values.iter().filter(|value| !value.is_nan()) {
                values += 1;
                let key = (&*node.name, &*series.kind, &*series.name, &*series.dimension, value.to_bits());
                assert!(said.contains(&key), "{key:?} is in no line");
            }
        }
    }
    assert!(values <= events.len());
    assert_eq!(values == 0, events.is_empty());
});
