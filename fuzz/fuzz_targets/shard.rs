//! Bytes opened as a shard: with a wrong index the records are looked for, and every sample is read.

#![no_main]

use libfuzzer_sys::fuzz_target;
use stokehold_storage::SampleBytes;
use stokehold_storage::shard::{Shard, ShardFacts};

fuzz_target!(|bytes: &[u8]| {
    let facts = ShardFacts::new("train/000000.skshard".into(), bytes.len() as u64, 0, [0, 0, 1].into_iter());
    let classes = ["cat".to_owned(), "dog".to_owned()];
    for facts in [Some(&facts), None] {
        let open = Shard::open(Box::new(bytes.to_vec()), "a.skshard".into(), 7, 0, &classes, facts);
        let Ok(shard) = open else { continue };
        let mut sample = SampleBytes::new();
        for number in 0..shard.len() {
            assert!(facts.is_none() || shard.entry(number).label < 2);
            if shard.read(number, &mut sample).is_ok()
                && let Some(rows) = sample.rows()
            {
                assert!(rows.offsets.is_sorted());
                assert!(rows.offsets.last().is_some_and(|&end| end as usize <= sample.file().len()));
            }
        }
    }
});
