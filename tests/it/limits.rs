//! Limits that only fall: lines of files and functions, and phrases that readers stumble over. `tests/limits.txt` lists what is above its
//! limit. Nothing joins the list, and its numbers only become smaller: `STOKEHOLD_WRITE_DOCS=1` writes smaller ones.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

/// The most lines of a file in Rust or Python.
const FILE: usize = 700;

/// The most lines of a function in Rust, with its head and its last brace.
const FUNCTION: usize = 80;

/// Phrases, and what a reader would rather read.
const PHRASES: [(&str, &str); 20] = [
    ("a mend", "a fix"),
    ("anew", "again"),
    ("are none", "what there is instead: NaN, no GPU, not a secret"),
    ("are said", "who prints what"),
    ("are told", "who prints what"),
    ("behind", "after"),
    ("beside", "next to"),
    ("go on", "continue"),
    ("goes on", "continues"),
    ("is none", "what it is instead: NaN, no GPU, not a secret"),
    ("is said", "who prints what"),
    ("is told", "who prints what"),
    ("meanwhile", "at the same time, or until then"),
    ("nobody", "no one, or what is absent"),
    ("so many", "the number's name"),
    ("that of", "the noun, again"),
    ("those of", "the noun, again"),
    ("those that", "the noun, again"),
    ("who stops", "a noun: the thread that stops"),
    ("whoever", "a noun: anyone, a program, a thread"),
];

/// The folders of code and prose. Commands that people try in a clone make others.
const FOLDERS: [&str; 8] = [
    "bench", "crates", "docs", "examples", "fuzz", "python", "src", "tests",
];

/// What lies in them and was made by a program.
const MADE: [&str; 4] = ["goldens", "proptest-regressions", "snapshots", "target"];

#[test]
fn files_functions_and_phrases_only_become_fewer() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = BTreeMap::new();
    let documents = fs::read_dir(root)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension() == Some(OsStr::new("md")));
    for path in documents.chain(FOLDERS.iter().flat_map(|folder| texts(&root.join(folder)))) {
        let Ok(text) = fs::read_to_string(&path) else {
            continue;
        };
        let name = path.strip_prefix(root).unwrap().display().to_string();
        for (phrase, _) in PHRASES {
            *found.entry(format!("phrase {phrase}")).or_default() += times(&text, phrase);
        }
        let suffix = path.extension().and_then(OsStr::to_str);
        let lines: Vec<&str> = text.lines().collect();
        if matches!(suffix, Some("py" | "rs")) {
            found.extend((lines.len() > FILE).then(|| (format!("file {name}"), lines.len())));
        }
        if suffix == Some("rs") {
            for (function, length) in functions(&lines).into_iter().filter(|of| of.1 > FUNCTION) {
                let most = found.entry(format!("function {name} {function}")).or_default();
                *most = length.max(*most);
            }
        }
    }
    found.retain(|_, number| *number > 0);
    let list = root.join("tests/limits.txt");
    let text = fs::read_to_string(&list).unwrap_or_default();
    let kept: BTreeMap<String, usize> = text
        .lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(number, key)| (key.to_owned(), number.parse().unwrap()))
        .collect();
    if std::env::var_os("STOKEHOLD_WRITE_DOCS").is_some() {
        let least = |(key, number): (&String, &usize)| {
            let kept = if text.is_empty() {
                Some(number)
            } else {
                kept.get(key)
            };
            kept.map(|kept| format!("{} {key}\n", kept.min(number)))
        };
        fs::write(&list, found.iter().filter_map(least).collect::<String>()).unwrap();
        return;
    }
    let mut problems = Vec::new();
    for (key, number) in &found {
        let (limit, what) = match key.split(' ').next() {
            Some("file") => (FILE, "lines; split it"),
            Some("function") => (FUNCTION, "lines; split it"),
            _ => (0, "times; see PHRASES for what to write"),
        };
        let limit = kept.get(key).copied().unwrap_or(limit);
        if *number > limit {
            problems.push(format!("{key}: {number} {what}; at most {limit}"));
        }
    }
    // A list that nobody shortens would let all of it come back.
    for (key, limit) in &kept {
        if found.get(key).copied().unwrap_or(0) * 20 < limit * 19 {
            problems.push(format!(
                "{key}: fewer than {limit}; STOKEHOLD_WRITE_DOCS=1 writes that into tests/limits.txt"
            ));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// The files of code and prose under a folder.
fn texts(folder: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let (path, kind) = (entry.path(), entry.file_type().unwrap());
        let name = entry.file_name();
        let is_ours = !MADE.iter().any(|made| name == *made) && name != "limits.rs";
        if kind.is_dir() && is_ours {
            all.extend(texts(&path));
        }
        let suffix = path.extension().and_then(OsStr::to_str).unwrap_or_default();
        if kind.is_file() && is_ours && ["md", "py", "rs", "sh"].contains(&suffix) {
            all.push(path);
        }
    }
    all
}

/// How often a phrase of whole words stands in a text, at the beginning of a sentence, too. Python's `is None` is not counted.
fn times(text: &str, phrase: &str) -> usize {
    let is_apart = |char: Option<char>| !char.is_some_and(|char| char.is_alphanumeric() || char == '_');
    let (first, rest) = phrase.split_at(1);
    let begins = first.to_ascii_uppercase() + rest;
    text.match_indices(phrase)
        .chain(text.match_indices(&begins))
        .filter(|(at, _)| {
            is_apart(text[..*at].chars().next_back()) && is_apart(text[at + phrase.len()..].chars().next())
        })
        .count()
}

/// The functions of formatted code, with their lines: a function ends with a brace that is indented as its head.
fn functions<'a>(lines: &[&'a str]) -> Vec<(&'a str, usize)> {
    let mut all = Vec::new();
    for (number, line) in lines.iter().enumerate() {
        let code = line.trim_start();
        // A function without a body, or of one line.
        if code.ends_with([';', '}']) {
            continue;
        }
        let Some(at) = code.find("fn ").filter(|at| is_head(&code[..*at])) else {
            continue;
        };
        let name = code[at + 3..].split(['(', '<']).next().unwrap_or_default();
        let end = format!("{}}}", &line[..line.len() - code.len()]);
        if let Some(length) = lines[number..].iter().position(|line| *line == end) {
            all.push((name, length + 1));
        }
    }
    all
}

/// Whether nothing but qualifiers stands before `fn`.
fn is_head(words: &str) -> bool {
    let is_qualifier = |word: &str| {
        ["const", "async", "unsafe", "extern", "\"C\""].contains(&word) || word.starts_with("pub")
    };
    words.split_whitespace().all(is_qualifier)
}

#[test]
fn lines_and_phrases_are_counted() {
    let text = "pub fn one() {\n    if a {\n    }\n}\n\nimpl A {\n    pub(crate) fn two(\n        a: u8,\n    ) {\n    }\n}\n// a fn three\n";
    assert_eq!(
        functions(&text.lines().collect::<Vec<_>>()),
        [("one", 4), ("two", 4)]
    );
    assert_eq!(times("Anew. Renewed anew, anew_ and anew", "anew"), 3);
}
