//! Files that differ only in the markers from which libjpeg guesses their colours: every value of each byte that it looks at.

use crate::writer::{Spec, adobe, segment};
use std::path::PathBuf;

/// Component names that libjpeg tells apart, and others.
const NAMES: [(&str, [u8; 4]); 4] = [
    ("numbers", [1, 2, 3, 4]),
    ("rgb", *b"RGBA"),
    ("small", *b"rgba"),
    ("zero", [0, 1, 2, 3]),
];

fn jfif(length: usize) -> Vec<u8> {
    segment(0xE0, &b"JFIF\0\x01\x01\0\0\x01\0\x01\0\0"[..length])
}

/// A file of a few blocks, with these component names, and these segments after its first marker or before its scan.
fn file(components: u8, names: [u8; 4], first: &[u8], before_scan: &[u8]) -> Vec<u8> {
    let spec = Spec {
        width: 9,
        height: 5,
        factors: vec![(1, 1); components.into()],
        restart_interval: 0,
        interleaved: true,
        adobe: None,
        wide_steps: false,
        seed: 3,
    };
    let mut bytes = spec.write().bytes;
    let find = |bytes: &[u8], marker: u8| bytes.windows(2).position(|two| two == [0xFF, marker]);
    let frame = find(&bytes, 0xC1).expect("a frame header");
    let scan = find(&bytes, 0xDA).expect("a scan");
    for (i, &name) in names[..components.into()].iter().enumerate() {
        bytes[frame + 10 + 3 * i] = name;
        bytes[scan + 5 + 2 * i] = name;
    }
    [&bytes[..2], first, &bytes[2..scan], before_scan, &bytes[scan..]].concat()
}

/// The files in groups, in a folder of their own.
pub fn groups() -> (tempfile::TempDir, Vec<(String, Vec<PathBuf>)>) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut groups = Vec::new();
    let mut add = |group: String, files: Vec<Vec<u8>>| {
        let write = |(i, bytes)| {
            let path = folder.path().join(format!("{group}-{i}.jpg"));
            std::fs::write(&path, bytes).expect("a file");
            path
        };
        let paths: Vec<PathBuf> = files.into_iter().enumerate().map(write).collect();
        groups.push((group, paths));
    };
    for components in [1, 3, 4] {
        for (called, names) in NAMES {
            for (with, jfif) in [("none", Vec::new()), ("whole", jfif(14)), ("short", jfif(13))] {
                let file = |adobe: &[u8]| file(components, names, &[&jfif, adobe].concat(), &[]);
                let plain = file(&[]);
                let all = (0..=255).map(|transform| file(&adobe(transform)));
                add(
                    format!("{components}-{called}-jfif-{with}"),
                    std::iter::once(plain).chain(all).collect(),
                );
            }
        }
        let names = NAMES[0].1;
        let odd = [
            segment(0xEE, b"Adobe\0\x64\0\0\0\0"),
            segment(0xEE, b"adobe\0\x64\0\0\0\0\x02"),
            segment(0xEE, b"Adobe\0\x64\0\0\0\0\x02more"),
            segment(0xED, b"Adobe\0\x64\0\0\0\0\x02"),
            segment(0xE0, b"JFXX\0\x10\x01\0\0\x01\0\x01\0\0"),
            [adobe(2), adobe(0)].concat(),
            [adobe(0), adobe(1)].concat(),
            // Pillow refuses a shorter one.
            [adobe(0), segment(0xEE, b"Adobe\0\x64")].concat(),
        ];
        let first = odd.iter().map(|odd| file(components, names, odd, &[]));
        add(format!("{components}-odd-first"), first.collect());
        let before_scan = odd.iter().map(|odd| file(components, names, &[], odd));
        add(format!("{components}-odd-before-scan"), before_scan.collect());
    }
    (folder, groups)
}
