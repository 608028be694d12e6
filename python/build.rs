//! Says so where the wheel will have no command line.

use std::path::Path;

/// Where maturin takes a wheel's scripts from; the script `build` puts the program there.
const PROGRAM: &str = "stokehold._stokehold.data/scripts/stokehold";

fn main() {
    println!("cargo::rerun-if-changed={PROGRAM}");
    if !Path::new(PROGRAM).is_file() {
        println!(
            "cargo::warning=the wheel will have no command line, only the loader and the profiler: there is no {PROGRAM}; \
             python/build of a clone of the repository makes a wheel that has it"
        );
    }
}
