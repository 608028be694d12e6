//! Packs the JPEGs of a folder that `seeds.sh` filled: `packed_seeds FOLDER`. Those of at most 4 KiB, named by their content.

use std::error::Error;
use std::{env, fs};
use stokehold_fuzz::small_header;
use stokehold_jpeg::{Decoder, Metadata, PackTables, Packer, TranscodeOptions, is_packed};

fn main() -> Result<(), Box<dyn Error>> {
    let folder = env::args_os().nth(1).ok_or("packed_seeds FOLDER")?;
    let paths: Vec<_> = fs::read_dir(&folder)?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_, std::io::Error>>()?;
    let (mut decoder, mut packer) = (Decoder::new(), Packer::new(PackTables::built_in()));
    let options = TranscodeOptions {
        metadata: Metadata::Drop,
    };
    let mut made = 0;
    for path in paths {
        let bytes = fs::read(&path)?;
        if is_packed(&bytes) || small_header(&bytes).is_none() {
            continue;
        }
        let Ok(packed) = decoder.pack(&bytes, &mut packer, &options) else {
            continue;
        };
        if packed.len() <= 4096 {
            let name = path.file_name().ok_or("a file without a name")?.to_string_lossy();
            fs::write(path.with_file_name(format!("{name}-packed")), packed)?;
            made += 1;
        }
    }
    println!("{made} packed seeds");
    Ok(())
}
