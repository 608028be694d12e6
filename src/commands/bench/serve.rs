//! Runs passes of a loader on request, so that another program can time several loaders in alternation.

use super::warn_of;
use std::error::Error;
use std::io::{BufRead, Write};
use stokehold_train::sweep::Bench;

/// Answers each line `pass` with `{"seconds": .., "images": .., "cpu_seconds": .., "version": ..}`, until the
/// end of the input.
pub fn serve(bench: &mut Bench) -> Result<(), Box<dyn Error>> {
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        if line.trim() != "pass" {
            return Err(crate::failure::Usage(format!("expected the line 'pass' and not {line:?}")).into());
        }
        let pass = bench.pass(&mut warn_of)?;
        let answer = serde_json::json!({
            "seconds": pass.seconds,
            "images": pass.images,
            "cpu_seconds": pass.cpu_seconds,
            "version": env!("CARGO_PKG_VERSION"),
        });
        let mut out = std::io::stdout().lock();
        writeln!(out, "{answer}")?;
        out.flush()?;
    }
    Ok(())
}
