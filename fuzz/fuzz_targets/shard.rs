//! Bytes opened as a shard, as they are and with their checksums put right, so that what lies behind these is reached too.
//! With a wrong index the records are looked for; every sample is read.

#![no_main]

use libfuzzer_sys::fuzz_target;
use stokehold_storage::SampleBytes;
use stokehold_storage::shard::{Crc32, Shard, ShardFacts};

fuzz_target!(|bytes: &[u8]| {
    read(bytes.to_vec());
    read(repaired(bytes.to_vec()));
});

fn read(bytes: Vec<u8>) {
    let facts = ShardFacts::new("train/000000.skshard".into(), bytes.len() as u64, 0, [0, 0, 1].into_iter());
    let classes = ["cat".to_owned(), "dog".to_owned()];
    let number = |at: usize| number(&bytes, at).unwrap_or_default();
    let id = u64::from(number(16)) | u64::from(number(20)) << 32;
    for facts in [Some(&facts), None] {
        let open = Shard::open(Box::new(bytes.clone()), "a.skshard".into(), id, 0, &classes, facts);
        let Ok(shard) = open else { continue };
        let mut sample = SampleBytes::new();
        for number in 0..shard.len() {
            assert!(facts.is_none() || shard.entry(number).label < 2);
            let _ = shard.read(number, &mut sample);
        }
    }
}

/// Puts the checksums right of all that looks like a header, a record, an index or a footer.
fn repaired(mut bytes: Vec<u8>) -> Vec<u8> {
    sum(&mut bytes, 0, 28, 28);
    for at in 0..bytes.len() {
        if bytes[at..].starts_with(b"SKrc")
            && let (Some(length), Some(name)) = (number(&bytes, at + 12), number(&bytes, at + 32))
        {
            let (length, head) = (length as usize, 36 + name as usize);
            sum(&mut bytes, at + head, at + length, at + 8);
            sum(&mut bytes, at + 8, at + head, at + 4);
        }
    }
    if let Some(footer) = bytes.len().checked_sub(48) {
        if let Some(index) = number(&bytes, footer + 16) {
            sum(&mut bytes, index as usize, footer, footer + 32);
        }
        sum(&mut bytes, footer, footer + 36, footer + 36);
    }
    bytes
}

/// Writes the checksum of bytes `from..to` at `at`, where all that is there.
fn sum(bytes: &mut [u8], from: usize, to: usize, at: usize) {
    let mut crc = Crc32::new();
    let Some(summed) = bytes.get(from..to) else { return };
    crc.update(summed);
    if let Some(place) = bytes.get_mut(at..at + 4) {
        place.copy_from_slice(&crc.finalize().to_le_bytes());
    }
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}
