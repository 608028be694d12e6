//! Shards of a few samples, in memory and as a prepared data set.

use std::io::Cursor;

use stokehold_storage::shard::{Manifest, PartFacts, Record, ShardFacts, ShardWriter};

/// The data set of every shard.
pub const ID: u64 = 0x1234_5678_9ABC_DEF0;

/// A sample as it goes in and has to come out.
#[derive(Clone)]
pub struct Sample {
    pub name: &'static str,
    pub label: u32,
    pub file: Vec<u8>,
}

/// Six samples in two classes; two records are equally long.
pub fn samples() -> Vec<Sample> {
    let file = |length: u32, seed: u32| (0..length).map(|i| (i * 7 + seed * 31) as u8).collect();
    let sample = |name, label, file| Sample { name, label, file };
    vec![
        sample("cat/1.jpg", 0, file(300, 1)),
        sample("cat/2.png", 0, file(200, 2)),
        sample("cat/deep/ü.jpg", 0, file(180, 3)),
        sample("dog/a.jpg", 1, file(260, 4)),
        sample("dog/b.jpg", 1, file(260, 5)),
        sample("dog/empty.png", 1, Vec::new()),
    ]
}

/// The classes of the samples.
pub fn classes() -> Vec<String> {
    vec!["cat".into(), "dog".into()]
}

/// A shard of these samples.
pub fn write(samples: &[Sample], number: u32) -> (Vec<u8>, ShardFacts) {
    write_with(samples, number, None)
}

/// The same with tables of packed images.
pub fn write_with(samples: &[Sample], number: u32, tables: Option<&[u8]>) -> (Vec<u8>, ShardFacts) {
    let mut size = 0;
    let mut writer = ShardWriter::new(Cursor::new(Vec::new()), ID, number, &classes(), tables).unwrap();
    for Sample { name, label, file } in samples {
        let record = Record::new(name.as_bytes().to_vec(), *label, (40, 30), file.clone()).unwrap();
        size = writer.size_with(&record);
        writer.push(&record).unwrap();
    }
    let (bytes, facts) = writer.finish("train/000000.skshard".into()).unwrap();
    let bytes = bytes.into_inner();
    assert_eq!((facts.bytes, size), (bytes.len() as u64, facts.bytes));
    assert_eq!(facts.crc32, format!("{:08x}", crc32fast::hash(&bytes)));
    (bytes, facts)
}

/// A prepared data set of one shard in `dir`.
pub fn write_set(dir: &std::path::Path) {
    write_shards(dir, Manifest::VERSION, vec![write(&samples(), 0)]);
}

/// A prepared data set of these shards.
pub fn write_shards(dir: &std::path::Path, version: u32, shards: Vec<(Vec<u8>, ShardFacts)>) {
    std::fs::create_dir_all(dir.join("train")).unwrap();
    let mut facts = Vec::new();
    for (number, (bytes, mut of_shard)) in shards.into_iter().enumerate() {
        of_shard.file = format!("train/{number:06}.skshard");
        std::fs::write(dir.join(&of_shard.file), bytes).unwrap();
        facts.push(of_shard);
    }
    let part = PartFacts {
        id: format!("{ID:016x}"),
        samples: facts.iter().map(|shard| u64::from(shard.samples())).sum(),
        source_bytes: 0,
        baked: None,
        left_out: Vec::new(),
        shards: facts,
    };
    let manifest = Manifest {
        format: Manifest::FORMAT.into(),
        version,
        prepared: "for a test".into(),
        lossless: true,
        classes: classes(),
        pixels: None,
        parts: [("train".to_owned(), part)].into(),
    };
    std::fs::write(dir.join(Manifest::FILE), serde_json::to_vec(&manifest).unwrap()).unwrap();
}
