//! The program of a native trial: our loader and a trainer, in a process of their own.

use std::io::{BufRead, Write};
use std::num::NonZeroU64;
use std::sync::atomic::AtomicBool;

use serde::{Deserialize, Serialize};
use stokehold_train::{Steps, TrainConfig};

use crate::CompareError;
use crate::plan::open_data;
use crate::process::{Ready, Request, TrialReply};

/// What a native trial does: the first line of its input.
#[derive(Debug, Serialize, Deserialize)]
pub struct Spec {
    /// Data, pipeline, loader and trainer.
    pub config: TrainConfig,
    /// After this many epochs the order begins again, as that of the trials in Python does.
    pub period: NonZeroU64,
    /// Whether the masks of images that have masks are loaded.
    pub masks: bool,
}

fn unreadable(error: serde_json::Error) -> CompareError {
    CompareError::Plan(format!("standard input: {error}"))
}

/// Reads a [`Spec`] and requests, and answers them, until the input ends. `trials/README.md` has the protocol, and
/// how native trials differ from it.
///
/// # Errors
/// The spec cannot be read, or the work fails.
pub fn serve(input: impl BufRead, mut output: impl Write) -> Result<(), CompareError> {
    // The asking process may be killed while this process is stopped.
    #[cfg(target_os = "linux")]
    let _ = nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL);
    let mut lines = input.lines();
    let mut next = || -> Result<Option<String>, CompareError> {
        lines.next().transpose().map_err(|source| CompareError::Io {
            path: "standard input".into(),
            source,
        })
    };
    let mut answer = |answer: &TrialReply| -> Result<(), CompareError> {
        let line = serde_json::to_string(answer)?;
        writeln!(output, "{line}")
            .and_then(|()| output.flush())
            .map_err(|source| CompareError::Io {
                path: "standard output".into(),
                source,
            })
    };
    let Some(line) = next()? else { return Ok(()) };
    let Spec {
        config,
        period,
        masks,
    } = serde_json::from_str(&line).map_err(unreadable)?;
    let dataset = open_data(
        &config.data,
        config.max_images,
        config.seed,
        config.trainer.learns(),
    )?;
    let images = match masks {
        true => dataset.train,
        false => dataset.train.without_masks(),
    };
    // The first epoch is not what is compared.
    let all = stokehold_storage::Source::len(&images);
    let cached = config.fill_cache(&images, &AtomicBool::new(false))?;
    let cached = cached.map(|filled| format!(", {filled} of {all} images from the cache"));
    let mut steps = Steps::open(config, images)?.with_period(period);
    answer(&TrialReply::Ready(Ready {
        versions: format!(
            "stokehold {}{}",
            env!("CARGO_PKG_VERSION"),
            cached.unwrap_or_default()
        ),
        device: steps.device().to_owned(),
    }))?;
    while let Some(line) = next()? {
        let Request { steps: count } = serde_json::from_str(&line).map_err(unreadable)?;
        answer(&TrialReply::Round(steps.make(count, &AtomicBool::new(false))?))?;
    }
    Ok(())
}
