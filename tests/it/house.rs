//! The table of crates in ARCHITECTURE.md, and the list of pages in docs/SUMMARY.md.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// What every crate may use without a word, and what only tests use.
const UNSAID: [&str; 4] = ["base", "simulate", "s3-server", "untested"];

/// Each crate uses those that the table says, and no others.
#[test]
fn crates_use_what_the_table_says() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(root.join("ARCHITECTURE.md")).unwrap();
    let mut said = BTreeMap::new();
    for line in text.lines() {
        let Some(row) = line.strip_prefix("| `stokehold-") else {
            continue;
        };
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let [name, _, uses, ..] = cells[..] else {
            panic!("{line}")
        };
        let uses: BTreeSet<String> = uses
            .split(", ")
            .map(str::to_owned)
            .filter(|uses| uses != "-")
            .collect();
        said.insert(name.trim_end_matches('`').to_owned(), uses);
    }
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(root.join("crates")).unwrap() {
        let folder = entry.unwrap().path();
        let Ok(manifest) = fs::read_to_string(folder.join("Cargo.toml")) else {
            continue;
        };
        let table: toml::Table = manifest.parse().unwrap();
        let name = folder.file_name().unwrap().to_str().unwrap().to_owned();
        let uses = table.get("dependencies").and_then(|all| all.as_table());
        let uses = uses.into_iter().flat_map(|all| all.keys());
        let uses = uses.filter_map(|name| name.strip_prefix("stokehold-"));
        let uses = uses.filter(|name| !UNSAID.contains(name));
        found.insert(name, uses.map(str::to_owned).collect::<BTreeSet<String>>());
    }
    assert_eq!(said, found);
}

/// The book lists every page below docs/, and nothing that is not there.
#[test]
fn the_book_lists_every_page() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    let text = fs::read_to_string(docs.join("SUMMARY.md")).unwrap();
    let links = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let listed: BTreeSet<PathBuf> = links.map(|link| docs.join(link)).collect();
    let found: BTreeSet<PathBuf> = pages(&docs).into_iter().collect();
    assert_eq!(listed, found);
}

/// The pages below a folder, without the book's list.
pub fn pages(folder: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if path.is_dir() {
            all.extend(pages(&path));
        } else if path.extension().is_some_and(|end| end == "md") && !path.ends_with("SUMMARY.md") {
            all.push(path);
        }
    }
    all
}
