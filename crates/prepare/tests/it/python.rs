//! A reader written from `docs/reference/shard-format.md` alone, in Python without a package, reads the same.

use std::env;
use std::path::Path;
use std::process::Command;

use stokehold_storage::shard::Crc32;
use stokehold_storage::{Dataset, Images, SampleBytes, Source};
use tempfile::TempDir;

use crate::data::{every_kind, large, prepare, small_shards};

/// What the reader prints of a part: a line for each sample.
fn lines(part: &str, images: &Images) -> String {
    let mut bytes = SampleBytes::new();
    let line = |sample: usize| {
        images.read(sample, &mut bytes).unwrap();
        let mut crc = Crc32::new();
        crc.update(bytes.file());
        format!(
            "{part}\t{}\t{}\t{}\t{:08x}\t{}\n",
            String::from_utf8_lossy(images.below(sample)),
            images.classes()[images.class(sample) as usize],
            bytes.file().len(),
            crc.finalize(),
            bytes.tables().map_or(0, <[u8]>::len)
        )
    };
    (0..images.len()).map(line).collect()
}

#[test]
fn a_reader_in_python_reads_the_same() {
    let python = env::var_os("STOKEHOLD_TEST_PYTHON").unwrap_or_else(|| "python3".into());
    let reader = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/read_shards.py");
    let data = every_kind();
    for has_tables in [false, true] {
        if has_tables {
            large(&data);
        }
        let dir = TempDir::new().unwrap();
        prepare(data.path(), dir.path(), &small_shards()).unwrap();
        let Ok(output) = Command::new(&python)
            .arg("-X")
            .arg("utf8")
            .arg(&reader)
            .arg(dir.path())
            .output()
        else {
            stokehold_untested::skip("there is no Python here");
            return;
        };
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
        let images = Dataset::open(dir.path(), None, 0).unwrap();
        let expected = lines("train", &images.train) + &lines("val", images.val.as_ref().unwrap());
        assert_eq!(expected.lines().all(|line| line.ends_with("\t0")), !has_tables);
        assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);
    }
}
