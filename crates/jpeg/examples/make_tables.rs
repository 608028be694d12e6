//! Makes tables for packed images of the JPEGs in some folders: `make_tables OUT FOLDER..`.
//!
//! The built-in ones are made of photographs and of the same ones smaller, coarser and finer.

use std::path::{Path, PathBuf};
use stokehold_jpeg::{Decoder, PackSample};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let out = arguments.next().ok_or("make_tables OUT FOLDER..")?;
    let (mut decoder, mut sample) = (Decoder::new(), PackSample::new());
    for folder in arguments {
        for file in files(&folder)? {
            sample.add(&decoder.coefficients(&std::fs::read(&file)?)?);
        }
    }
    let tables = sample.train();
    println!("tables {:08x}", tables.id());
    std::fs::write(out, tables.bytes())?;
    Ok(())
}

fn files(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()?;
    files.sort();
    Ok(files)
}
