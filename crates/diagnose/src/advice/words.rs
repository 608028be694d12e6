//! An advice in words: its title, its options and its reason.

use std::fmt;

use stokehold_base::words::plural;
use stokehold_page::words::{digits, duration};

use super::model::{Setting, beside_others};
use super::{Change, Workload};

/// Rates that differ by less are the same.
const SAME_RATE: f64 = 0.02;

/// Why the largest gain may not come first; `None` where it does.
pub fn order(workload: &Workload) -> Option<String> {
    beside_others(workload).map(|_| {
        format!(
            "The predictions are those of {}. What needs less CPU time comes first: it is quicker whatever else runs.",
            plural(workload.cores as usize, "free core")
        )
    })
}

pub(super) fn title(change: &Change, workload: &Workload) -> String {
    match change {
        Change::Workers { .. } => format!("{change} instead of {}", workload.num_workers),
        Change::Executor { .. } => format!("{change} instead of {}", workload.executor),
        Change::BatchSize { .. } => format!("{change} instead of {}", workload.batch_size),
        Change::Precision { .. } => format!("{change} instead of f32"),
        Change::Shards => "prepared shards instead of single files".to_owned(),
        Change::Baked { .. } => format!("{change}, in prepared shards, instead of in every epoch"),
        Change::FastImages => format!("{change} (the same pixels)"),
        Change::PersistentWorkers => "persistent workers instead of new ones in every epoch".to_owned(),
        Change::PinnedMemory | Change::Prefetch { .. } => change.to_string(),
        Change::BytesToDevice => format!("{change} instead of before"),
        Change::Storage => "faster storage, such as a local disk or memory".to_owned(),
        Change::Servers { .. } => format!("{change} instead of here"),
    }
}

pub(super) fn flags(change: &Change) -> Vec<String> {
    let flag = |name: &str, value: &dyn fmt::Display| vec![name.to_owned(), value.to_string()];
    match change {
        Change::Workers { workers, .. } => flag("--workers", workers),
        Change::Executor { executor } => flag("--executor", executor),
        Change::BatchSize { batch_size } => flag("--batch-size", batch_size),
        Change::Precision { precision } => flag("--precision", precision),
        Change::Shards
        | Change::Baked { .. }
        | Change::FastImages
        | Change::PersistentWorkers
        | Change::PinnedMemory
        | Change::BytesToDevice
        | Change::Prefetch { .. }
        | Change::Storage
        | Change::Servers { .. } => Vec::new(),
    }
}

/// The arguments of a script's `DataLoader` that make a change, or what takes its place.
pub(super) fn arguments(change: &Change) -> Vec<String> {
    let argument = match change {
        Change::Workers { workers, persistent } => {
            let kept = persistent.then(|| "persistent_workers=True".to_owned());
            return [format!("num_workers={workers}")]
                .into_iter()
                .chain(kept)
                .collect();
        }
        Change::PersistentWorkers => "persistent_workers=True".to_owned(),
        Change::PinnedMemory => "pin_memory=True".to_owned(),
        Change::Prefetch { batches } => format!("prefetch_factor={batches}"),
        Change::Executor { .. } => "stokehold.torch.DataLoader".to_owned(),
        Change::FastImages => "import stokehold.pillow, stokehold.decoders".to_owned(),
        _ => return Vec::new(),
    };
    vec![argument]
}

/// The numbers behind a prediction.
pub(super) fn why(change: &Change, now: &Setting, then: &Setting, workload: &Workload) -> String {
    let copies = workload
        .script
        .as_ref()
        .map_or(0.0, |script| script.transfer_seconds);
    match change {
        Change::Workers { persistent, .. } => why_workers(*persistent, now, then),
        Change::Executor { .. } if workload.script.is_some() => format!(
            "an image costs {} of CPU time instead of {}, measured on images of this script, with {} instead of processes",
            duration(then.loader_cpu),
            duration(now.loader_cpu),
            plural(then.workers as usize, "thread")
        ),
        Change::Executor { .. } => format!(
            "an image costs {} of CPU time instead of {}, measured on images of this run",
            duration(then.loader_cpu),
            duration(now.loader_cpu)
        ),
        Change::FastImages => format!(
            "an image costs {} of CPU time instead of {}, measured in this run by batches with and without, of the same pixels to \
             the bit; `stokehold run --fast-images -- COMMAND` makes the change without an edit",
            duration(then.loader_cpu),
            duration(now.loader_cpu)
        ),
        Change::Shards => format!(
            "an image costs {} of CPU time instead of {}, measured on images of this run; make them with `stokehold \
             prepare DATA SHARDS` and train on SHARDS, or have `--cache DIR` pack the images while you train",
            duration(then.loader_cpu),
            duration(now.loader_cpu)
        ),
        Change::Baked { bytes, .. } => format!(
            "an image costs {} of CPU time instead of {}, measured on images of this run; shards of {bytes:.2} times the files' \
             bytes, JPEG quality 90, so pixels change a little; make them with `stokehold prepare DATA SHARDS --pipeline \
             PIPELINE` and train on SHARDS",
            duration(then.loader_cpu),
            duration(now.loader_cpu)
        ),
        Change::BatchSize { batch_size } => format!(
            "alone, the trainer takes {:.0} images/s in batches of {batch_size} instead of {:.0}, measured; it trains in \
             fewer steps, so the learning rate may have to change",
            then.trainer, now.trainer
        ),
        Change::Precision { precision } => format!(
            "alone, the trainer takes {:.0} images/s in {precision} instead of {:.0}, measured; weights stay f32, and \
             losses differ a little",
            then.trainer, now.trainer
        ),
        Change::PersistentWorkers => format!(
            "the workers of an epoch take {} to start; this holds from the second epoch on",
            duration(now.starts())
        ),
        Change::PinnedMemory => format!(
            "copies to the device take {} an image from memory that is not pinned; at best all of that runs during the steps, \
             with to(device, non_blocking=True)",
            duration(copies)
        ),
        Change::BytesToDevice => format!(
            "copies to the device take {} an image as numbers of 32 bits; as bytes (PILToTensor in place of ToTensor, and \
             ToDtype(torch.float32, scale=True) and Normalize on the device) they are a quarter, and the workers compute less",
            duration(copies)
        ),
        Change::Prefetch { .. } => format!(
            "the workers would make {}, more than the {:.0} that are taken, so waits come from batches that take unequally long; \
             at best a larger reserve hides all of them",
            loader(now),
            now.trainer
        ),
        Change::Storage => format!(
            "a worker waits {} for the bytes of an image and computes {}; this is what a copy on a local disk or in \
             memory would gain",
            duration(now.wait),
            duration(now.loader_cpu)
        ),
        Change::Servers { .. } => why_servers(now, then, workload.batch_bytes),
    }
}

/// What another number of workers changes.
fn why_workers(persistent: bool, now: &Setting, then: &Setting) -> String {
    let rates = match (then.loader() / now.loader() - 1.0).abs() < SAME_RATE {
        true => format!("alone, the loader would deliver {} as now", loader(then)),
        false => format!(
            "alone, the loader would deliver {} instead of {}",
            loader(then),
            loader(now)
        ),
    };
    let starts = match persistent {
        true => format!(
            "; workers that stay save {} from the second epoch on",
            duration(now.with_workers(then.workers).starts())
        ),
        false => String::new(),
    };
    format!(
        "{rates}, next to a trainer that takes {:.0} images/s and keeps {:.1} of {} cores busy{starts}",
        now.trainer,
        now.trainer_cores(),
        now.cores
    )
}

/// What machines that make the batches change, and how they are started.
fn why_servers(now: &Setting, then: &Setting, batch_bytes: u64) -> String {
    format!(
        "alone, the trainer takes {:.0} images/s and the loader here delivers {}; they would deliver at least {}, \
             counting each of their cores as half of one here, and need {} Gbit/s of network; start `stokehold serve DATA \
             --listen 0.0.0.0:7000` on each, and train with --loader tcp://HOST:7000,..",
        now.trainer,
        loader(now),
        loader(then),
        digits(8e-9 * batch_bytes as f64 * now.trainer)
    )
}

/// What a loader alone makes.
fn loader(setting: &Setting) -> String {
    format!("{:.0} images/s", setting.loader())
}

/// That no change is worth it, and what else a script's loader could be that was not measured.
pub(super) fn nothing_gains(workload: Option<&Workload>) -> String {
    let nothing = "no tested change would gain more than the difference between two equal runs";
    let Some((workload, script)) = workload.and_then(|workload| Some((workload, workload.script.as_ref()?)))
    else {
        return nothing.to_owned();
    };
    let measured = |is: &dyn Fn(&Change) -> bool| workload.alternatives.iter().any(|one| is(&one.change));
    let images = script.fast_images_refused.is_none() && !measured(&|change| *change == Change::FastImages);
    let loader =
        script.swap_refused.is_none() && !measured(&|change| matches!(change, Change::Executor { .. }));
    let what = match (images, loader) {
        (true, true) => "fast images and Stokehold's loader were",
        (true, false) => "fast images were",
        (false, true) => "Stokehold's loader was",
        (false, false) => return nothing.to_owned(),
    };
    format!("{nothing}; {what} not tested, which `stokehold check -- COMMAND` does in seconds")
}

#[cfg(test)]
mod tests {
    use super::super::Alternative;
    use super::super::tests::{starting, workload};
    use super::*;

    /// What workers save that stay is the start of as many as are advised, and not of as many as there were.
    #[test]
    fn the_reason_counts_the_start_of_the_advised_workers() {
        let mut run = starting();
        run.script.as_mut().unwrap().start_seconds = 1.0;
        let (change, now) = (
            Change::Workers {
                workers: 8,
                persistent: true,
            },
            Setting::of(&run).unwrap(),
        );
        let eight = now.with_workers(8);
        assert!(eight.starts() > now.starts() + 1.0);
        let said = why(&change, &now, &eight.with_persistent_workers(), &run);
        let saved = format!("stay save {} from", duration(eight.starts()));
        assert!(said.contains(&saved), "{said}: {saved}");
    }

    #[test]
    fn what_a_recording_did_not_test_is_named() {
        let mut own = workload();
        assert!(
            nothing_gains(Some(&own)).ends_with("two equal runs"),
            "not a script"
        );
        own.script = Some(stokehold_profile::workload::ScriptLoader::default());
        let said = nothing_gains(Some(&own));
        assert!(
            said.contains("; fast images and Stokehold's loader were not tested, which `stokehold check"),
            "{said}"
        );
        own.alternatives.push(Alternative {
            change: Change::FastImages,
            loader: 1.0,
            trainer: 1.0,
        });
        let said = nothing_gains(Some(&own));
        assert!(said.contains("; Stokehold's loader was not tested"), "{said}");
        own.script.as_mut().unwrap().swap_refused = Some("it is no ImageFolder".to_owned());
        assert!(nothing_gains(Some(&own)).ends_with("two equal runs"));
    }
}
