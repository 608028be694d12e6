//! Writes a recording like that of a published run: a customer of SageMaker's library for data parallelism trained
//! semantic segmentation, and an epoch took 57 minutes, then 6 on five machines of 8 GPUs.
//!
//! ```sh
//! cargo run --release -p stokehold-scale --example published -- runs/published
//! ```
//!
//! Published are these two times, and an efficiency of 93 % at 64 GPUs. All else is assumed: 500 steps of 4 images, half a
//! second each, with a spread of 3 %.

use std::path::Path;

use stokehold_base::random::Random;
use stokehold_profile::{ProfileError, Span, events, span};

/// Seconds of a step, and their standard deviation.
const STEP: (f64, f64) = (0.5, 0.015);

/// Writes the recording.
pub fn write(folder: &Path) -> Result<(), ProfileError> {
    let recording = folder.join(stokehold_profile::FOLDER);
    let begin = 1_767_225_600.0;
    let options = events::Options {
        process: 1,
        ..events::Options::new(begin)
    };
    let mut writer = events::Writer::new(&recording, options);
    let mut random = Random::of(1);
    let mut now = begin;
    for step in 1..=500 {
        // The sum of twelve uniform numbers is almost normal.
        let normal = (0..12).map(|_| random.unit()).sum::<f64>() - 6.0;
        let (wait, seconds) = (0.001, STEP.0 + STEP.1 * normal);
        for (name, start, duration) in [(span::WAIT, now, wait), (span::STEP, now + wait, seconds)] {
            let span = Span {
                name: 0,
                start,
                duration,
                step: Some(step),
                worker: None,
                bytes: None,
            };
            writer.write(name, &span)?;
        }
        now += wait + seconds;
    }
    writer.finish()
}

#[allow(dead_code, reason = "tests use the rest of this file")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::args_os().nth(1).ok_or("give the folder to write to")?;
    write(Path::new(&folder))?;
    Ok(())
}
