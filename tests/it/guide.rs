//! GUIDE.md: its commands run in its order, end as it shows, and print what it shows but for the numbers.
//!
//! Blocks of `console` are run, by one shell a command. Of `console,varies` only the exit codes are compared: which sentences
//! stand there depends on what was measured. `console,ignore` is not run: it wants Python packages, or takes long and has tests
//! of its own, as compare. A block whose language is followed by a name becomes the file of that name.

use std::env;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;

const GUIDE: &str = include_str!("../../GUIDE.md");

/// The home folder as the guide shows it.
const HOME: &str = "/home/me";

/// Stands for any number of words, and of lines.
const ANYTHING: &str = "...";

/// A fenced block.
struct Block {
    /// Where its fence stands, counted from 1.
    line: usize,
    /// What follows the fence's backquotes.
    info: &'static str,
    lines: Vec<&'static str>,
}

/// A command and what the guide shows of it.
struct Shown {
    line: usize,
    command: String,
    output: String,
    code: i32,
}

fn blocks(guide: &'static str) -> Vec<Block> {
    let mut all = Vec::new();
    let mut open: Option<Block> = None;
    for (number, line) in guide.lines().enumerate() {
        match (line.strip_prefix("```"), open.take()) {
            (Some(info), None) => {
                open = Some(Block {
                    line: number + 1,
                    info,
                    lines: Vec::new(),
                });
            }
            (Some(_), Some(block)) => all.push(block),
            (None, Some(mut block)) => {
                block.lines.push(line);
                open = Some(block);
            }
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "the guide's last block has an end");
    all
}

/// The commands of a block. One has to end with 0, unless `echo $?` behind it shows another code.
fn commands(block: &Block) -> Vec<Shown> {
    let mut all: Vec<Shown> = Vec::new();
    let (mut continued, mut asked) = (false, false);
    for (number, line) in block.lines.iter().enumerate() {
        if continued {
            let shown = all.last_mut().expect("a first line");
            shown.command.push('\n');
            shown.command.push_str(line);
            continued = line.ends_with('\\');
        } else if let Some(command) = line.strip_prefix("$ ") {
            asked = command == "echo $?";
            continued = command.ends_with('\\');
            if !asked {
                all.push(Shown {
                    line: block.line + 1 + number,
                    command: command.to_owned(),
                    output: String::new(),
                    code: 0,
                });
            }
        } else {
            let shown = all.last_mut().expect("output follows a command");
            if asked {
                shown.code = line.parse().expect("an exit code");
            } else {
                shown.output.push_str(line);
                shown.output.push('\n');
            }
        }
    }
    all
}

/// The words of a text without their numbers. Where lines are folded makes no difference.
fn shape(text: &str) -> Vec<String> {
    // How wide a number is decides whether there is a space behind the parenthesis.
    let text = text.replace('(', " ( ").replace(')', " ) ");
    text.split_whitespace().map(without_numbers).collect()
}

/// `#` in the place of every number, such as `7`, `1.25`, `1.084e-4` and `0.5..0.75`.
fn without_numbers(word: &str) -> String {
    let mut shape = String::new();
    let mut rest = word;
    while let Some(first) = rest.chars().next() {
        if first.is_ascii_digit() {
            shape.push('#');
            rest = behind_digits(rest);
            if let Some(exponent) = rest.strip_prefix("e-") {
                rest = behind_digits(exponent);
            }
        } else {
            shape.push(first);
            rest = &rest[first.len_utf8()..];
        }
    }
    shape
}

fn behind_digits(text: &str) -> &str {
    text.trim_start_matches(|char: char| char.is_ascii_digit() || char == '.')
}

/// The first part of what is shown that was not said in its place. Parts stand between `...`.
fn missing(shown: &str, said: &str) -> Option<String> {
    let (shown, said) = (shape(shown), shape(said));
    let parts: Vec<&[String]> = shown.split(|word| word == ANYTHING).collect();
    let last = parts.len() - 1;
    let mut at = 0;
    for (number, &part) in parts.iter().enumerate() {
        let rest = &said[at..];
        let found = match (number == 0, number == last) {
            (true, true) => (rest == part).then_some(0),
            (true, false) => rest.starts_with(part).then_some(0),
            (false, true) => rest.ends_with(part).then(|| rest.len() - part.len()),
            (false, false) => (0..=rest.len()).find(|&from| rest[from..].starts_with(part)),
        };
        match found {
            Some(offset) => at += offset + part.len(),
            None => return Some(part.join(" ")),
        }
    }
    None
}

/// Exit code and both streams, in the order in which they were written.
fn run(command: &str, home: &Path, dir: &Path) -> (Option<i32>, String) {
    let program = Path::new(env!("CARGO_BIN_EXE_stokehold"));
    let mut path = program.parent().expect("a folder").as_os_str().to_owned();
    path.push(":");
    path.push(env::var_os("PATH").unwrap_or_default());
    let output = Command::new("sh")
        .args(["-c", &format!("exec 2>&1\n{command}")])
        .current_dir(dir)
        .env("PATH", path)
        .env_remove("STOKEHOLD_LOG")
        .env_remove("STOKEHOLD_CACHE")
        .env("HOME", home)
        .env("XDG_CACHE_HOME", home.join(".cache"))
        .env("XDG_DATA_HOME", home.join(".local/share"))
        .env_remove("STOKEHOLD_JOBS")
        .env_remove("STOKEHOLD_CACHE")
        .env_remove("STOKEHOLD_TIMELINE")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let home = home.to_str().expect("a path in UTF-8");
    (output.status.code(), said.replace(home, HOME))
}

#[test]
fn every_command_does_what_the_guide_shows() {
    if Command::new("python3").arg("--version").output().is_err() {
        stokehold_untested::skip("no python3");
        return;
    }
    let home = TempDir::new().unwrap();
    let home = home.path().canonicalize().unwrap();
    let dir = home.join("guide");
    fs::create_dir(&dir).unwrap();
    let mut done = 0;
    for block in blocks(GUIDE) {
        if let Some((_, name)) = block.info.split_once(' ') {
            fs::write(dir.join(name), block.lines.join("\n") + "\n").unwrap();
            continue;
        }
        if !["console", "console,varies"].contains(&block.info) {
            continue;
        }
        for shown in commands(&block) {
            let (code, said) = run(&shown.command, &home, &dir);
            let place = format!("GUIDE.md, line {}: {}", shown.line, shown.command);
            assert_eq!(code, Some(shown.code), "{place}\n{said}");
            if block.info == "console" {
                let missing = missing(&shown.output, &said);
                assert_eq!(missing, None, "{place}\nwhat it printed:\n{said}");
            } else {
                assert_eq!(shown.output.is_empty(), said.is_empty(), "{place}\n{said}");
            }
            done += 1;
        }
    }
    assert!(done >= 20, "only {done} commands were found in the guide");
}

#[test]
fn what_is_shown_and_not_said_is_found() {
    let said = "a: 12 images\n  first  0.5 s\nsecond 1.084e-4 s (  9.5 to 10)\nlast 3\n";
    for shown in [
        said,
        "a: 7 images\n...\nlast 99",
        "... second 0.02 s\n(10.5 to 100) ...",
        "a: 1 images first 3 s ...",
        "...",
    ] {
        assert_eq!(missing(shown, said), None, "{shown}");
    }
    for (shown, part) in [
        ("a: 12 images", "a: # images"),
        ("b: 12 images\n...", "b: # images"),
        ("...\nthird 1 s\n...\nlast 3", "third # s"),
        ("... last 3\n...\nfirst 1 s ...", "first # s"),
        ("...\nlast", "last"),
    ] {
        assert_eq!(missing(shown, said).as_deref(), Some(part), "{shown}");
    }
    assert_eq!(missing("", "a warning"), Some(String::new()));
}

#[test]
fn commands_are_told_from_output() {
    let guide =
        "text\n```console\n$ one \\\n    more\nsaid\n$ two\n$ echo $?\n2\n```\n```toml a.toml\n[b]\n```\n";
    let blocks = blocks(guide);
    let infos: Vec<_> = blocks.iter().map(|block| (block.line, block.info)).collect();
    assert_eq!(infos, [(2, "console"), (10, "toml a.toml")]);
    let all = commands(&blocks[0]);
    assert_eq!(all.len(), 2);
    let first = (all[0].line, all[0].command.as_str(), all[0].output.as_str());
    assert_eq!(first, (3, "one \\\n    more", "said\n"));
    assert_eq!((all[1].line, all[1].command.as_str(), all[1].code), (6, "two", 2));
}
