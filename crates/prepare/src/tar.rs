//! Tar files in WebDataset's convention: `KEY.jpg` and `KEY.cls`, one sample after the other.
//!
//! The key is the sample's path without its extension. WebDataset ends a key at the first dot of the file's name, so
//! dots in the name become underscores; a key that is taken already gets a number.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::path::Path;

use stokehold_storage::shard::ShardFacts;
use tar::{Archive, Builder, Header};

/// A sample and its name in the file.
pub(crate) struct Member {
    pub key: String,
    pub extension: &'static str,
    pub label: u32,
    pub file: Vec<u8>,
}

/// The keys of samples by their paths, in order.
pub(crate) fn keys<'a>(names: impl Iterator<Item = &'a [u8]>) -> Vec<String> {
    let mut taken = HashSet::new();
    let unique = |name: &[u8]| {
        let name = String::from_utf8_lossy(name);
        let (folder, file) = name.rsplit_once('/').unwrap_or(("", &name));
        // A file named only by its extension has that for a key.
        let stem = match file.rsplit_once('.') {
            Some(("", extension)) => extension,
            Some((stem, _)) => stem,
            None => file,
        };
        let stem = stem.replace('.', "_");
        let key = match folder {
            "" => stem,
            folder => format!("{folder}/{stem}"),
        };
        let mut unique = key.clone();
        let mut number = 1;
        while !taken.insert(unique.clone()) {
            number += 1;
            unique = format!("{key}-{number}");
        }
        unique
    };
    names.map(unique).collect()
}

/// Writes one tar file. What it writes depends on the samples alone: no times, no owners.
pub(crate) struct TarWriter<W: Write> {
    builder: Builder<Checked<W>>,
    labels: Vec<u32>,
}

impl<W: Write> TarWriter<W> {
    pub fn new(out: W) -> Self {
        let crc = Checked {
            out,
            crc: stokehold_storage::shard::Crc32::new(),
            written: 0,
        };
        Self {
            builder: Builder::new(crc),
            labels: Vec::new(),
        }
    }

    /// The bytes of the file if it is finished after `member`.
    pub fn size_with(&self, member: &Member) -> u64 {
        let blocks = |bytes: usize| 512 + bytes.next_multiple_of(512);
        let entry = |name: usize, bytes: usize| match name <= 100 {
            true => blocks(bytes),
            // A name that is too long for a header is an entry before it.
            false => blocks(name + 1) + blocks(bytes),
        };
        let key = member.key.len() + 1;
        let image = entry(key + member.extension.len(), member.file.len());
        let label = entry(key + "cls".len(), member.label.to_string().len());
        // Two empty blocks are the end.
        self.builder.get_ref().written + (image + label + 1024) as u64
    }

    pub fn push(&mut self, member: &Member) -> io::Result<()> {
        self.append(&format!("{}.{}", member.key, member.extension), &member.file)?;
        self.append(
            &format!("{}.cls", member.key),
            member.label.to_string().as_bytes(),
        )?;
        self.labels.push(member.label);
        Ok(())
    }

    fn append(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let mut header = Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        self.builder.append_data(&mut header, name, bytes)
    }

    pub fn finish(self, file: String) -> io::Result<(W, ShardFacts)> {
        let Checked { out, crc, written } = self.builder.into_inner()?;
        let facts = ShardFacts::new(file, written, crc.finalize(), self.labels.into_iter());
        Ok((out, facts))
    }
}

/// Passes bytes on and sums them up.
struct Checked<W> {
    out: W,
    crc: stokehold_storage::shard::Crc32,
    written: u64,
}

impl<W: Write> Write for Checked<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.crc.update(&bytes[..written]);
        self.written += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Calls `each` with the key, label and file of every sample of a tar file.
pub(crate) fn read(
    path: &Path,
    mut each: impl FnMut(String, u32, Vec<u8>) -> Result<(), String>,
) -> Result<(), String> {
    let text = |error: io::Error| error.to_string();
    let file = File::open(path).map_err(text)?;
    let mut archive = Archive::new(BufReader::with_capacity(1 << 20, file));
    let mut image = None;
    for entry in archive.entries().map_err(text)? {
        let mut entry = entry.map_err(text)?;
        let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        let Some((key, extension)) = name.rsplit_once('.') else {
            return Err(format!("{name} is no part of a sample"));
        };
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).map_err(text)?;
        match (extension, image.take()) {
            ("cls", Some((image_key, file))) if image_key == key => {
                let label = String::from_utf8_lossy(&bytes).parse();
                let label = label.map_err(|_| format!("{name} holds no label"))?;
                each(key.to_owned(), label, file)?;
            }
            ("jpg" | "png" | "webp", None) => image = Some((key.to_owned(), bytes)),
            _ => return Err(format!("{name} is not where it belongs")),
        }
    }
    match image {
        Some((key, _)) => Err(format!("the label of {key} is missing")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_no_dots_in_the_name_and_are_unique() {
        let names: [&[u8]; 7] = [
            b"cat/1.jpg",
            b"cat/1.png",
            b"cat/a.b.jpg",
            b"v1.2/a_b.jpg",
            b"cat/a_b.jpg",
            b"cat/.jpg",
            b"cat/1-2.jpg",
        ];
        assert_eq!(
            keys(names.into_iter()),
            [
                "cat/1",
                "cat/1-2",
                "cat/a_b",
                "v1.2/a_b",
                "cat/a_b-2",
                "cat/jpg",
                "cat/1-2-2"
            ]
        );
    }

    #[test]
    fn the_size_is_known_before_it_is_written() {
        let member = |key: &str, length| Member {
            key: key.into(),
            extension: "jpg",
            label: 12,
            file: vec![1; length],
        };
        for key in [
            "a".to_owned(),
            "b".repeat(95),
            "c".repeat(96),
            "d".repeat(97),
            "e".repeat(700),
        ] {
            let mut writer = TarWriter::new(Vec::new());
            writer.push(&member("first", 512)).unwrap();
            let last = member(&key, 513);
            let size = writer.size_with(&last);
            writer.push(&last).unwrap();
            let (bytes, facts) = writer.finish("x.tar".into()).unwrap();
            assert_eq!(
                (bytes.len() as u64, facts.bytes),
                (size, size),
                "{} letters",
                key.len()
            );
        }
    }
}
