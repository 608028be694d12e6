//! A run on one screen.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use stokehold_base::words::plural;
use stokehold_profile::Percentiles;
use stokehold_profile::timeline::Total;
use stokehold_profile::workload::{others_in_words, undisturbed};

use crate::emulated::EmulatedUse;
use stokehold_pipeline::Executor;

use crate::batch::DecodedBy;
use crate::model::Arch;
use crate::progress::{Best, Validation};
use crate::stage::Stage;
use stokehold_profile::ranks::RanksSummary;

/// The results of a run. Speeds and losses are those of the whole run, even if it was resumed; stages, CPU
/// and memory are those since the last start or resume.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunSummary {
    /// The run's folder.
    pub run_dir: PathBuf,
    /// The network.
    pub arch: Arch,
    /// The executor of the pipeline: `per-op`, `fused` or `gpu`.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub executor: Executor,
    /// The device that computed, its kind first: `Flex(..)` for the CPU, `cuda(..)`, `vulkan(..)`, `Emulated(..)`.
    pub device: String,
    /// Finished epochs.
    pub epochs: u64,
    /// Optimiser steps.
    pub steps: u64,
    /// Images trained on, counted each time.
    pub images: u64,
    /// Mean wall time of a finished epoch's training, without validation and checkpoints; `None` before the
    /// first epoch's end.
    pub seconds_per_epoch: Option<f64>,
    /// Images trained on per second, including waits.
    pub images_per_second: f64,
    /// Share of the time in which the trainer waited for batches, 0 to 1.
    pub wait_share: f64,
    /// Images per second that the loader delivers by itself; `None` if it was not measured.
    pub loader_ceiling: Option<f64>,
    /// Images per second that the trainer processes when it never waits for batches; `None` if it was not
    /// measured.
    pub trainer_ceiling: Option<f64>,
    /// CPU time of all threads per image while the loader's ceiling was measured, seconds; `None` if it was
    /// not measured.
    pub loader_cpu_seconds: Option<f64>,
    /// CPU time of all threads per image while the trainer's ceiling was measured, seconds; `None` if it was
    /// not measured.
    pub trainer_cpu_seconds: Option<f64>,
    /// Time per image, summed over threads, for which other programs kept the trainer's threads from a core
    /// while its ceiling was measured, seconds; 0 if it was not measured.
    pub trainer_delay_seconds: f64,
    /// Cores that the run could use.
    pub cores: u64,
    /// The number of cores that other programs kept busy since the last start or resume, on average; `None`
    /// if the platform does not provide it.
    pub others_cores: Option<f64>,
    /// What the emulated accelerator has done; only in runs of one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub emulated: Option<EmulatedUse>,
    /// What decoded the training images since the last start or resume, if the executor was `gpu`.
    pub decoded: Option<DecodedBy>,
    /// Time spent in each stage since the last start or resume, over all workers.
    pub stages: BTreeMap<Stage, Total>,
    /// Mean busy share of the cores since the last start or resume, percent; `None` if the platform does not
    /// provide it.
    pub cpu: Option<Percentiles>,
    /// Peak resident memory since the last start or resume, bytes; `None` if the platform does not provide
    /// it.
    pub peak_rss: Option<u64>,
    /// Mean training loss of the last finished epoch; `None` before its end.
    pub train_loss: Option<f64>,
    /// Validation of the last finished epoch; `None` without validation images.
    pub validation: Option<Validation>,
    /// The same of the moving average of the weights; only in runs that have one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ema: Option<Validation>,
    /// The epoch with the best model; `None` before the first epoch's end.
    pub best: Option<Best>,
    /// Number of training images that could not be read or decoded, each counted once.
    pub bad_images: usize,
    /// Number of validation images that could not be read or decoded, each counted once.
    pub bad_val_images: usize,
    /// Whether the run was stopped before its end.
    pub interrupted: bool,
    /// Where the time of the ranks went; only in runs of several, and in those whose batches are computed in pieces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ranks: Option<RanksSummary>,
    /// The training batches that each server has made since the last start or resume, by its address; `here` are those of this
    /// machine's threads. Empty without servers.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub batches_by_server: BTreeMap<String, u64>,
    /// What the cache of images has done since the last start or resume, for this process; only in runs with one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<stokehold_cache::CacheFacts>,
}

impl RunSummary {
    /// The gain of faster loading, in a sentence; `None` if it was not measured.
    ///
    /// It is limited by the run's two limits. The loader does not cause the rest of the distance to the
    /// trainer's ceiling.
    pub fn gain(&self) -> Option<String> {
        let (seconds, saved) = (self.seconds_per_epoch?, self.bound()?);
        let share = 100.0 * saved / seconds;
        let sums = self.ranks.as_ref().and_then(RanksSummary::sums);
        let mut text = if share < 3.0 {
            match sums {
                Some(sums) => format!(
                    "{}{}: faster loading would gain almost nothing.",
                    sums[..1].to_uppercase(),
                    &sums[1..]
                ),
                None => "The trainer is the bottleneck: faster loading would gain almost nothing.".to_owned(),
            }
        } else {
            let gain = format!("at most {saved:.2} s of {seconds:.2} s per epoch ({share:.0} %)");
            if self.wait_share < 0.03 {
                format!(
                    "The trainer hardly waited, but shared the machine with the loader: cheaper preprocessing would \
                     gain {gain}."
                )
            } else {
                format!("Faster loading would gain {gain}.")
            }
        };
        if let Some(others) = others_in_words(self.others_cores, self.cores) {
            text += &format!(" {}{} meanwhile.", others[..1].to_uppercase(), &others[1..]);
        }
        Some(text)
    }

    /// The most seconds per epoch that a loader without any cost would save; `None` if it was not measured.
    ///
    /// There are two limits. The run cannot be faster than the trainer's ceiling, corrected for the use of
    /// the cores by other programs. And it cannot save more than the wait plus the loader's CPU time divided
    /// by the cores; a loader on a device has only the first limit, because it takes the device's time.
    fn bound(&self) -> Option<f64> {
        let (seconds, trainer_cpu) = (self.seconds_per_epoch?, self.trainer_cpu_seconds?);
        let rate = Some(self.images_per_second).filter(|rate| *rate > 0.0)?;
        let ceiling = undisturbed(
            self.trainer_ceiling?,
            trainer_cpu,
            self.trainer_delay_seconds,
            self.cores,
        );
        let by_ceiling = seconds * (1.0 - rate / ceiling);
        let by_work = match self.executor {
            Executor::Gpu => f64::INFINITY,
            Executor::PerOp | Executor::Fused if self.cores == 0 => return None,
            Executor::PerOp | Executor::Fused => {
                let cpu = self.loader_cpu_seconds? * rate * seconds;
                self.wait_share * seconds + cpu / self.cores as f64
            }
        };
        Some(by_ceiling.min(by_work).max(0.0))
    }
}

impl fmt::Display for RunSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = if self.interrupted {
            "interrupted after"
        } else {
            "finished"
        };
        writeln!(
            f,
            "{} with {} on {}: {state} {}, {}",
            self.arch,
            self.executor,
            self.device,
            plural(self.epochs as usize, "epoch"),
            plural(self.steps as usize, "step")
        )?;
        let row = |f: &mut fmt::Formatter<'_>, name: &str, value: String| writeln!(f, "  {name:<18}{value}");
        let rate = |value: Option<f64>| {
            value.map_or("not measured".to_owned(), |value| format!("{value:.1} images/s"))
        };
        if let Some(seconds) = self.seconds_per_epoch {
            row(f, "time per epoch", format!("{seconds:.2} s"))?;
        }
        row(f, "speed", rate(Some(self.images_per_second)))?;
        row(
            f,
            "trainer waited",
            format!("{:.1} % of the time", 100.0 * self.wait_share),
        )?;
        row(f, "loader alone", rate(self.loader_ceiling))?;
        row(f, "trainer alone", rate(self.trainer_ceiling))?;
        if let Some(others) = self.others_cores {
            let cores = format!("{others:.1} of {} cores", self.cores);
            row(f, "other programs", cores)?;
        }
        if let Some(cpu) = self.cpu {
            row(
                f,
                "CPU p50 p95 p99",
                format!("{:.0} {:.0} {:.0} %", cpu.p50, cpu.p95, cpu.p99),
            )?;
        }
        if let Some(rss) = self.peak_rss {
            row(
                f,
                "peak memory",
                format!("{:.0} MiB", rss as f64 / (1 << 20) as f64),
            )?;
        }
        if let Some(used) = self.emulated {
            let per_image = |seconds: f64| 1e6 * seconds / used.images.max(1) as f64;
            let costs = format!(
                "copied a batch's image in {:.0} µs, with {:.0} µs of CPU time; nothing was trained",
                per_image(used.copying_seconds),
                per_image(used.cpu_seconds)
            );
            row(f, "emulated trainer", costs)?;
        }
        if let Some(cache) = &self.cache {
            row(f, "cache", cache.to_string())?;
        }
        for (server, batches) in &self.batches_by_server {
            let count = batches.to_string();
            row(f, "batches made", format!("{count:<7} {server}"))?;
        }
        if let Some(ranks) = &self.ranks {
            let [loading, computing, waiting, reducing, between] = ranks.shares().map(|share| 100.0 * share);
            let name = plural(ranks.times.len(), "rank");
            let shares = format!(
                "load {loading:.1} %, compute {computing:.1} %, wait for the slowest {waiting:.1} %, reduce {reducing:.1} %, between steps {between:.1} %"
            );
            row(f, &name, shares)?;
            if let Some(straggler) = ranks.straggler() {
                row(f, "straggler", straggler.to_string())?;
            }
        }
        if let Some(decoded) = self.decoded {
            row(f, "decoded", decoded.to_string())?;
        }
        let stages: Vec<_> = self
            .stages
            .iter()
            .map(|(stage, total)| format!("{stage} {:.1}", total.seconds))
            .collect();
        if !stages.is_empty() {
            row(f, "seconds in stages", stages.join(", "))?;
        }
        if let Some(loss) = self.train_loss {
            row(f, "training loss", format!("{loss:.4}"))?;
        }
        let validations = [("validation", self.validation), ("of the average", self.ema)];
        for (name, validation) in validations {
            let Some(validation) = validation else { continue };
            let Validation { loss, scores, .. } = validation;
            let over = validation.over();
            row(f, name, format!("loss {loss:.4}, {scores} {over}"))?;
        }
        if let Some(best) = self.best {
            row(f, "best epoch", best.epoch.to_string())?;
        }
        let bad = self.bad_images + self.bad_val_images;
        if bad > 0 {
            row(
                f,
                "bad images",
                format!("{bad} ({} of validation)", self.bad_val_images),
            )?;
        }
        row(f, "run", self.run_dir.display().to_string())?;
        f.write_str(
            &self
                .gain()
                .unwrap_or_else(|| "The gain of faster loading was not measured.".to_owned()),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::Scores;

    fn summary(images_per_second: f64, trainer_ceiling: Option<f64>) -> RunSummary {
        RunSummary {
            run_dir: "runs/one".into(),
            arch: Arch::Resnet18,
            executor: Executor::default(),
            device: "flex".into(),
            epochs: 2,
            steps: 20,
            images: 640,
            seconds_per_epoch: Some(10.0),
            images_per_second,
            wait_share: 0.25,
            loader_ceiling: Some(40.0),
            trainer_ceiling,
            loader_cpu_seconds: Some(0.125),
            trainer_cpu_seconds: Some(0.03),
            trainer_delay_seconds: 0.0,
            cores: 2,
            others_cores: Some(0.0),
            emulated: None,
            decoded: Some(DecodedBy {
                device: 600,
                cpu: 40,
                given_back: 3,
            }),
            stages: [(
                Stage::Wait,
                Total {
                    spans: 20,
                    seconds: 5.0,
                },
            )]
            .into(),
            cpu: Some(Percentiles {
                p50: 50.0,
                p95: 95.0,
                p99: 99.0,
            }),
            peak_rss: Some(512 << 20),
            train_loss: Some(1.5),
            validation: Some(Validation {
                loss: 1.25,
                scores: Scores::Images {
                    top1: 0.5,
                    topk: 0.75,
                    k: 3,
                },
                images: 8,
                of: 9,
            }),
            ema: None,
            best: Some(Best { epoch: 1, step: 10 }),
            bad_images: 1,
            bad_val_images: 0,
            interrupted: false,
            ranks: None,
            batches_by_server: BTreeMap::new(),
            cache: None,
        }
    }

    #[test]
    fn the_gain_is_what_the_trainers_ceiling_leaves() {
        let gain = summary(32.0, Some(64.0)).gain().unwrap();
        assert_eq!(
            gain,
            "Faster loading would gain at most 5.00 s of 10.00 s per epoch (50 %)."
        );
        assert!(
            summary(63.0, Some(64.0))
                .gain()
                .unwrap()
                .starts_with("The trainer is the bottleneck")
        );
        assert_eq!(summary(32.0, None).gain(), None);
        // Other programs had a third of the trainer's time while its ceiling was measured.
        let later = RunSummary {
            trainer_delay_seconds: 0.015,
            ..summary(32.0, Some(128.0 / 3.0))
        };
        assert!(later.gain().unwrap().contains("5.00 s of 10.00 s"));
    }

    /// 320 images in 10 s, of which a loader on two cores took 5 ms of CPU time each: 0.8 s. The trainer alone would take a
    /// quarter of the time, and so the rest is other programs' work.
    #[test]
    fn the_loader_is_not_blamed_for_other_programs() {
        let busy = |loader_cpu_seconds, wait_share| {
            let summary = RunSummary {
                wait_share,
                loader_cpu_seconds: Some(loader_cpu_seconds),
                others_cores: Some(1.5),
                ..summary(32.0, Some(128.0))
            };
            summary.gain().unwrap()
        };
        let others = "Other programs took 1.5 of 2 cores meanwhile.";
        assert_eq!(
            busy(0.005, 0.01),
            format!(
                "The trainer hardly waited, but shared the machine with the loader: cheaper preprocessing would gain at \
                 most 0.90 s of 10.00 s per epoch (9 %). {others}"
            )
        );
        // And the time that the trainer waited.
        let waited = busy(0.005, 0.2);
        assert!(
            waited.starts_with("Faster loading would gain at most 2.80 s of 10.00 s"),
            "{waited}"
        );
        assert_eq!(
            busy(0.001, 0.01),
            format!("The trainer is the bottleneck: faster loading would gain almost nothing. {others}")
        );
        // What a device loads costs the device more than cores.
        let gpu = RunSummary {
            executor: Executor::Gpu,
            loader_cpu_seconds: Some(0.001),
            ..summary(32.0, Some(64.0))
        };
        assert!(gpu.gain().unwrap().contains("5.00 s of 10.00 s"));
        // A summary that does not say how many cores there were.
        let older = RunSummary {
            cores: 0,
            ..summary(32.0, Some(64.0))
        };
        assert_eq!(older.gain(), None);
    }

    #[test]
    fn the_summary_fits_a_screen() {
        let text = summary(32.0, Some(64.0)).to_string();
        assert!(text.lines().count() <= 24, "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 160), "{text}");
        for part in [
            "resnet18 with fused",
            "10.00 s",
            "25.0 %",
            "top-3 0.7500 over 8 of 9 images",
            "symbols of 600 images by the device, of 40 by the CPU; the device gave 3 back",
            "bad images",
            "50 95 99 %",
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
    }
}
