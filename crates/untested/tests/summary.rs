//! Ends a run of `cargo test` with the number and the names of the tests that were skipped.

use std::collections::BTreeSet;
use std::process::ExitCode;

fn main() -> ExitCode {
    let skipped = match stokehold_untested::take() {
        Ok(skipped) => skipped,
        Err(error) => {
            eprintln!("what was skipped cannot be read: {error}");
            return ExitCode::FAILURE;
        }
    };
    if skipped.is_empty() {
        println!("\nno test was skipped");
        return ExitCode::SUCCESS;
    }
    let skipped: Vec<&str> = skipped
        .iter()
        .map(|line| line.trim_start_matches("skipped: "))
        .collect();
    // A line for each reason of each test: `PACKAGE TEST: REASON`.
    let tests: BTreeSet<&str> = skipped
        .iter()
        .filter_map(|line| line.split(": ").next())
        .collect();
    println!("\n{} tests were skipped for want of something:", tests.len());
    for line in &skipped {
        println!("  {line}");
    }
    println!("{}=1 makes them fail.", stokehold_untested::REQUIRE_ALL);
    ExitCode::SUCCESS
}
