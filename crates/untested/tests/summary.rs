//! Ends a run of `cargo test` with the number and the names of the tests that were skipped.

use std::collections::BTreeSet;
use std::process::ExitCode;

use stokehold_untested::{KEPT, REQUIRE_ALL, SKIPPED, keep_last, take};

fn main() -> ExitCode {
    // Asked for its tests, it has none; a runner that asks does not end a run.
    if std::env::args().any(|word| word == "--list") {
        return ExitCode::SUCCESS;
    }
    let lines = match take().and_then(|lines| keep_last(&lines).map(|()| lines)) {
        Ok(lines) => lines,
        Err(error) => {
            eprintln!("what was skipped cannot be read: {error}");
            return ExitCode::FAILURE;
        }
    };
    let of = |kind: &str| -> Vec<&str> { lines.iter().filter_map(|line| line.strip_prefix(kind)).collect() };
    // A line for each reason of each test: `PACKAGE TEST: REASON`.
    let tests = |lines: &[&str]| -> usize {
        let tests: BTreeSet<&str> = lines.iter().filter_map(|line| line.split(": ").next()).collect();
        tests.len()
    };
    let (skipped, kept) = (of(SKIPPED), of(KEPT));
    println!(
        "\n{} promises are unproved here, because their tests lack something:",
        tests(&skipped)
    );
    skipped.iter().for_each(|line| println!("  {line}"));
    println!(
        "{} promises are proved on answers that an oracle gave before; the oracle itself is not here:",
        tests(&kept)
    );
    kept.iter().for_each(|line| println!("  {line}"));
    println!("{REQUIRE_ALL}=1 makes these tests fail.");
    ExitCode::SUCCESS
}
