//! The verdict: how a run did, what limits it, and which change helps most, in one sentence.

use stokehold_base::words::plural;
use stokehold_profile::ranks::RanksSummary;
use stokehold_profile::{Recording, dimension, span};

use super::model::Setting;
use super::{Advice, Workload, beside_others, misfit, words};
use crate::rules::Finding;

/// One sentence about a run, such as "The trainer waited for data 63 % of the time; decoding on 2 cores is the limit; fused
/// instead of per-op would make an epoch 41 s instead of 112 s."
///
/// For a Stokehold run, the workload determines the limit. For any other run, it is determined by the waits
/// between the steps, the average use of GPUs and cores, and the rules that fired. If none of these was
/// recorded, the sentence says that.
pub fn verdict(
    recording: &Recording,
    findings: &[Finding],
    workload: Option<&Workload>,
    advice: &[Advice],
) -> String {
    let mut parts = Vec::from_iter(failure(recording));
    match (workload, too_short(recording)) {
        (Some(workload), _) => parts.extend(of_workload(workload)),
        // No cause is looked for where the command failed.
        (None, _) if !parts.is_empty() => {}
        (None, Some(short)) => parts.push(short),
        (None, None) => parts.extend(of_recording(recording, findings)),
    }
    // Changes on this machine come first in that list.
    if let Some(best) = advice.first() {
        let now = best.seconds_per_epoch + best.gain_seconds;
        // Ranges that begin at nothing gained: the one that may gain most.
        let saved = |advice: &Advice| now - advice.seconds_at_best.unwrap_or(now);
        let possible = advice
            .iter()
            .filter(|advice| saved(advice) >= now * Advice::WORTH_PERCENT / 100.0)
            .max_by(|one, other| saved(one).total_cmp(&saved(other)));
        parts.push(if best.is_worth_it() {
            let range = best
                .seconds_at_best
                .map_or(String::new(), |least| format!("{} to ", seconds(least)));
            format!(
                "{} would make an epoch {range}{} instead of {}{}",
                best.title,
                seconds(best.seconds_per_epoch),
                seconds(now),
                match workload {
                    Some(workload) if beside_others(workload).is_some() =>
                        format!(" on {}", plural(workload.cores as usize, "free core")),
                    Some(workload) if workload.others().is_some() => match workload.script {
                        Some(_) => ", while other programs take as much as they did".to_owned(),
                        None => ", if the other programs left it the cores".to_owned(),
                    },
                    _ => String::new(),
                }
            )
        } else if let Some(possible) = possible {
            format!(
                "{} might make an epoch up to {} shorter than {}",
                possible.title,
                seconds(saved(possible)),
                seconds(now)
            )
        } else {
            words::nothing_gains(workload)
        });
    } else {
        parts.extend(workload.and_then(misfit));
    }
    parts.extend(workload.and_then(beside_others));
    let mut sentence = parts.join("; ");
    if let Some(first) = sentence.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    sentence + "."
}

/// How long the trainer waited, and what limits the run.
fn of_workload(workload: &Workload) -> Vec<String> {
    let mut parts = vec![waited(workload.wait_share)];
    parts.extend(
        workload
            .ranks
            .as_ref()
            .and_then(RanksSummary::straggler)
            .map(|slowest| slowest.to_string()),
    );
    // What two halves explain too little has no limit to name.
    if misfit(workload).is_some() {
        return parts;
    }
    let (Some(loader), Some(trainer)) = (workload.loader_ceiling, workload.trainer_ceiling) else {
        parts.push("what loader and trainer could do undisturbed was not measured".to_owned());
        parts.extend(workload.others());
        return parts;
    };
    // Corrected for the use of the cores by other programs during the measurement.
    let alone = Setting::of(workload);
    let (loader, trainer) = alone.map_or((loader, trainer), |alone| (alone.loader(), alone.trainer));
    let slowest = slowest_stage(workload);
    if let (Some(starts), Some(epoch)) = (alone.map(|alone| alone.starts()), workload.seconds_per_epoch)
        && starts > 0.5 * workload.wait_share * epoch
        && workload.wait_share >= HELD_UP
    {
        parts.push(format!(
            "the start of its {}, {} in every epoch, is the limit",
            workers(workload.num_workers),
            seconds(starts)
        ));
        parts.extend(workload.others());
        return parts;
    }
    if workload.num_workers == 0 && workload.wait_share >= 0.1 {
        parts.push("loading in the process that trains, without workers, holds it up".to_owned());
        parts.extend(workload.others());
        return parts;
    }
    let at_work = match workload.quota {
        Some(quota) if quota < workload.num_workers as f64 => allowed(quota),
        _ => cores(workload.num_workers.min(workload.cores)),
    };
    let all = workload.quota.map_or_else(|| cores(workload.cores), allowed);
    parts.push(if loader < trainer && workload.wait_share >= WAITED {
        let (what, unknown) = match slowest {
            Some("read") => (format!("reading with {}", workers(workload.num_workers)), ""),
            Some("wait") => (
                format!("waiting in {}", workers(workload.num_workers)),
                "; the recording does not show what for: storage, a network, or something else",
            ),
            stage => (format!("{} on {at_work}", doing(stage)), ""),
        };
        match workload.wait_share >= HELD_UP {
            true => format!("{what} is the limit{unknown}"),
            false => {
                format!("{what} causes these waits; otherwise the trainer is the limit{unknown}")
            }
        }
    } else if let Some(sums) = workload.ranks.as_ref().and_then(RanksSummary::sums) {
        sums
    } else if let Some(copies) = copies(workload, trainer) {
        copies
    } else if workload.device != "cpu" {
        "the trainer is the limit".to_owned()
    } else if let Some(busy) = alone
        .map(|alone| alone.trainer_cores())
        .filter(|busy| *busy < COMPUTES)
    {
        let share = (1.0 - workload.wait_share) * (1.0 - busy);
        format!(
            "the script waits for something else than data for {} of its time",
            percent(share)
        )
    } else {
        // Both share the cores: at most the loader's part of the CPU time could be saved.
        match (workload.loader_cpu_seconds, workload.trainer_cpu_seconds) {
            (Some(loader), Some(trainer)) if loader + trainer > 0.0 => {
                let share = percent(loader / (loader + trainer));
                format!(
                    "the trainer on {all} is the limit, and {} takes {share} of the CPU time next to it",
                    if matches!(slowest, Some("read" | "wait")) {
                        "loading"
                    } else {
                        "preprocessing"
                    },
                )
            }
            _ => format!("the trainer on {all} is the limit"),
        }
    });
    parts.extend(workload.others());
    parts
}

/// A trainer that waits for a smaller share of its time is fed.
const WAITED: f64 = 0.03;

/// A trainer that waits for a larger share of its time is held up by what it waits for, more than by anything else.
const HELD_UP: f64 = 0.2;

/// A trainer that keeps less of a core busy than this does something else than compute.
const COMPUTES: f64 = 0.5;

/// A share of the trainer's time from which copies to the device are worth a word.
const COPIES: f64 = 0.1;

/// What a script's copies to the device take of its time; `None` where that is little.
fn copies(workload: &Workload, trainer: f64) -> Option<String> {
    let script = workload.script.as_ref()?;
    let share = script.transfer_seconds * trainer;
    (share >= COPIES).then(|| match share >= 0.5 {
        true => format!(
            "copying batches to the device is the limit, with {} of the time of a step",
            percent(share)
        ),
        false => format!(
            "the trainer is the limit, and copying batches to the device takes {} of its time",
            percent(share)
        ),
    })
}

/// The stage that took most of the workers' time.
fn slowest_stage(workload: &Workload) -> Option<&str> {
    let stages = workload.stage_seconds.iter();
    stages
        .max_by(|a, b| a.1.total_cmp(b.1))
        .map(|(stage, _)| stage.as_str())
}

fn doing(stage: Option<&str>) -> &'static str {
    match stage {
        Some("decode") => "decoding",
        Some("augment") => "augmenting",
        _ => "loading",
    }
}

/// Samples of less time than this, without a training step, say nothing of a program, seconds: it has hardly begun.
const SHORTEST: f64 = 2.0;

/// How a command that failed has ended. One that somebody stopped has not failed.
fn failure(recording: &Recording) -> Option<String> {
    let about = recording.about.as_ref()?;
    let code = about
        .exit_code
        .filter(|code| ![0, 128 + 2, 128 + 15].contains(code))?;
    let how = match code {
        129..=192 => format!("was ended by signal {}", code - 128),
        _ => format!("failed with exit code {code}"),
    };
    let after = about.ended.map_or(String::new(), |ended| {
        format!(" after {}", seconds(ended - about.started))
    });
    Some(format!("the command {how}{after}"))
}

/// How little was recorded, if that says nothing.
fn too_short(recording: &Recording) -> Option<String> {
    let nodes = &recording.nodes;
    let samples = nodes.iter().map(|node| node.ticks.len()).max().unwrap_or(0);
    let lengths = nodes.iter().map(|node| node.lengths().iter().sum());
    let recorded = lengths.fold(0.0, f64::max);
    let has_steps = nodes.iter().any(|node| node.steps().next().is_some());
    (samples > 0 && recorded < SHORTEST && !has_steps).then(|| {
        let samples = plural(samples, "sample");
        format!("{samples} of {}: too short to say anything", seconds(recorded))
    })
}

/// The same from samples and spans alone.
fn of_recording(recording: &Recording, findings: &[Finding]) -> Vec<String> {
    let mut parts = Vec::new();
    if let Some(share) = wait_share(recording) {
        parts.push(waited(share));
    }
    let gpu = mean(recording, dimension::GPU);
    let (used, quota) = (used_cores(recording), quota(recording));
    // If the recording does not tell programs apart, use the machine's figure.
    let cpu = mean(recording, dimension::CPU).filter(|_| used.is_none());
    let mut busy: Vec<String> = [("the GPUs", gpu), ("the machine's cores", cpu)]
        .into_iter()
        .filter_map(|(what, mean)| Some(format!("{what} were busy {} of the time", percent(mean? / 100.0))))
        .collect();
    if let Some([run, others, all]) = used {
        busy.push(format!(
            "the run used {run:.1} of {}, other programs {others:.1}",
            quota.map_or_else(|| cores(all as u64), allowed)
        ));
    }
    if !busy.is_empty() {
        parts.push(busy.join(" and "));
    }
    // The most specific first: what slowed the cores down comes before their being busy.
    const LIMITS: [(&str, &str); 7] = [
        ("CgroupThrottled", "the cgroup's CPU quota is the limit"),
        ("ThermalThrottle", "heat slows the GPUs down"),
        ("MemoryPressure", "main memory is the limit"),
        ("IOBottleneck", "storage is the limit"),
        ("CPUBottleneck", "the cores are the limit"),
        ("LoaderBound", "the loader is the limit"),
        ("LowGPUUtilization", "the GPUs have room for more"),
    ];
    let fired = |rule: &str| {
        findings
            .iter()
            .any(|finding| finding.triggered && finding.rule == rule)
    };
    let full = used.is_some_and(|[run, _, all]| run > FULL * quota.map_or(all, |quota| quota.min(all)));
    if let Some((rule, limit)) = LIMITS.into_iter().find(|(rule, _)| fired(rule)) {
        let seldom = rule == "LoaderBound" && wait_share(recording).is_some_and(|share| share < HELD_UP);
        parts.push(match seldom {
            true => "the loader holds the trainer up now and then".to_owned(),
            false => limit.to_owned(),
        });
    } else if gpu.is_some_and(|busy| busy > 100.0 * FULL) {
        // They rest too little to be helped by more of anything else, also if the cores that feed them are full.
        parts.push("the GPUs are the limit".to_owned());
    } else if full {
        parts.push("the cores are the limit".to_owned());
    } else if used.is_some_and(|[_, others, all]| others > SHARED * all) {
        parts.push("the other programs hide what limits the run; record it again without them".to_owned());
    } else if parts.is_empty() {
        parts.push("nothing was recorded that says what limits the run".to_owned());
    } else if !findings.is_empty() {
        parts.push("no rule says what limits the run".to_owned());
    }
    parts
}

/// The share of waiting in the time of steps and waits, over all machines; `None` if no wait was recorded.
fn wait_share(recording: &Recording) -> Option<f64> {
    let total = |name| -> f64 {
        let nodes = recording.nodes.iter();
        nodes
            .flat_map(|node| node.spans_of(name))
            .map(|span| span.duration)
            .sum()
    };
    let (waited, computed) = (total(span::WAIT), total(span::STEP));
    (waited > 0.0 && computed > 0.0).then(|| waited / (waited + computed))
}

/// A run that uses more of the GPUs, or else of the cores, than this is limited by them.
const FULL: f64 = 0.9;

/// If other programs use more of the cores than this (as in the rule OtherPrograms), they affect the
/// measurements.
const SHARED: f64 = 0.25;

/// The quota of a run on one machine.
fn quota(recording: &Recording) -> Option<f64> {
    let about = recording.about.as_ref().filter(|_| recording.nodes.len() == 1)?;
    about.machine.quota
}

/// The average numbers of cores that the run and other programs used, and the number of cores, summed over
/// machines; `None` if a machine does not tell the two apart.
fn used_cores(recording: &Recording) -> Option<[f64; 3]> {
    let mut sum = [0.0; 3];
    for node in &recording.nodes {
        let used = node.core_use()?;
        sum[0] += node.mean(used.run)? / 100.0;
        sum[1] += node.mean(used.others)? / 100.0;
        sum[2] += used.cores as f64;
    }
    (sum[2] > 0.0).then_some(sum)
}

/// Mean over all series of a dimension, and over the time of all ticks, percent.
fn mean(recording: &Recording, dimension: &str) -> Option<f64> {
    let each = recording
        .nodes
        .iter()
        .flat_map(|node| node.of(dimension).filter_map(|series| node.mean(&series.values)));
    let (sum, count) = each.fold((0.0, 0u64), |(sum, count), mean| (sum + mean, count + 1));
    (count > 0).then(|| sum / count as f64)
}

fn waited(share: f64) -> String {
    if share < 0.005 {
        "the trainer did not wait for data".to_owned()
    } else {
        format!("the trainer waited for data {} of the time", percent(share))
    }
}

fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}

fn cores(count: u64) -> String {
    plural(count as usize, "core")
}

/// What a quota leaves.
fn allowed(quota: f64) -> String {
    format!("the {} cores that it may use", (100.0 * quota).round() / 100.0)
}

fn workers(count: u64) -> String {
    plural(count as usize, "worker")
}

/// Three digits, which is more than a prediction's accuracy.
fn seconds(value: f64) -> String {
    match value {
        value if value < 0.995 => format!("{value:.2} s"),
        value if value < 9.95 => format!("{value:.1} s"),
        value => format!("{value:.0} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::workload;
    use super::super::{Alternative, Change, Prices, advise};
    use super::*;
    use stokehold_profile::workload::ScriptLoader;
    use stokehold_profile::{About, Node, Series, Span};

    /// A script on a device that takes 1000 images/s, and `transfer` seconds an image to copy it there.
    fn script(transfer: f64) -> Workload {
        Workload {
            device: "cuda".into(),
            images: 10_000,
            loader_ceiling: Some(5000.0),
            loader_cpu_seconds: Some(4e-4),
            trainer_ceiling: Some(1000.0),
            trainer_cpu_seconds: Some(1e-4),
            seconds_per_epoch: Some(10.2),
            script: Some(ScriptLoader {
                transfer_seconds: transfer,
                float_transfers: true,
                pin_memory: true,
                ranks: 1,
                ..ScriptLoader::default()
            }),
            ..workload()
        }
    }

    #[test]
    fn copies_to_the_device_are_told_from_training() {
        let said = |transfer| {
            let run = script(transfer);
            verdict(
                &Recording::default(),
                &[],
                Some(&run),
                &advise(&run, &Prices::default()),
            )
        };
        assert!(
            said(1e-5).contains("; the trainer is the limit; "),
            "{}",
            said(1e-5)
        );
        assert!(
            said(2e-4).contains(
                "the trainer is the limit, and copying batches to the device takes 20 % of its time"
            ),
            "{}",
            said(2e-4)
        );
        assert_eq!(
            said(7e-4),
            "The trainer waited for data 40 % of the time; copying batches to the device is the limit, with 70 % of the time of a \
             step; batches made floats on the device instead of before might make an epoch up to 5.2 s shorter than 10 s."
        );
        // Bytes are a quarter: at best three quarters of the copies are saved, at worst nothing.
        let run = script(4e-4);
        let advice = advise(&run, &Prices::default());
        let bytes = advice
            .iter()
            .find(|advice| advice.change == Change::BytesToDevice);
        let bytes = bytes.unwrap();
        assert!((7.0..7.3).contains(&bytes.seconds_at_best.unwrap()), "{bytes:?}");
        assert_eq!(bytes.seconds_per_epoch, 10.2);
        assert!(
            bytes.why.contains("take 400 µs an image") && bytes.flags.is_empty(),
            "{bytes:?}"
        );
    }

    #[test]
    fn a_starving_trainer_is_told_what_starves_it_and_what_helps() {
        let mut run = Workload {
            wait_share: 0.63,
            loader_ceiling: Some(50.0),
            loader_cpu_seconds: Some(0.04),
            trainer_ceiling: Some(400.0),
            trainer_cpu_seconds: Some(0.005),
            seconds_per_epoch: Some(25.0),
            ..workload()
        };
        run.alternatives = vec![Alternative {
            change: Change::Executor {
                executor: "fused".into(),
            },
            loader: 0.25,
            trainer: 1.0,
        }];
        let advice = advise(&run, &Prices::default());
        let said = verdict(&Recording::default(), &[], Some(&run), &advice);
        let expected = format!(
            "The trainer waited for data 63 % of the time; decoding on 2 cores is the limit; fused instead of per-op would \
             make an epoch {:.1} s instead of 25 s.",
            advice[0].seconds_per_epoch
        );
        assert_eq!(said, expected);
        // A run that the model misses: nothing is predicted, and the verdict says why.
        let missed = Workload {
            seconds_per_epoch: Some(112.0),
            ..run.clone()
        };
        let said = verdict(
            &Recording::default(),
            &[],
            Some(&missed),
            &advise(&missed, &Prices::built_in()),
        );
        assert!(
            said.contains("; nothing is predicted: the run's epochs took "),
            "{said}"
        );
        // Other programs are a reason: what holds is said of free cores.
        let disturbed = Workload {
            others_cores: Some(1.5),
            ..missed
        };
        let said = verdict(
            &Recording::default(),
            &[],
            Some(&disturbed),
            &advise(&disturbed, &Prices::built_in()),
        );
        assert!(
            said.contains(" s instead of 22 s on 2 free cores; the run's epochs took "),
            "{said}"
        );
        assert!(
            said.ends_with("other programs took 1.5 of 2 cores meanwhile; `stokehold advise --try` measures changes beside them, in turns."),
            "{said}"
        );
        run.seconds_per_epoch = None;
        run.stage_seconds.insert("read".into(), 1.0);
        let said = verdict(&Recording::default(), &[], Some(&run), &[]);
        assert!(said.ends_with("; reading with 2 workers is the limit."), "{said}");
        run.loader_ceiling = None;
        let said = verdict(&Recording::default(), &[], Some(&run), &[]);
        assert!(said.ends_with("could do undisturbed was not measured."), "{said}");
    }

    #[test]
    fn a_fed_trainer_is_the_limit() {
        let run = Workload {
            wait_share: 0.001,
            loader_ceiling: Some(400.0),
            trainer_cpu_seconds: Some(0.03),
            ..workload()
        };
        assert_eq!(
            verdict(&Recording::default(), &[], Some(&run), &[]),
            "The trainer did not wait for data; the trainer on 2 cores is the limit, and preprocessing takes 25 % of the \
             CPU time next to it."
        );
        let gpu = Workload {
            device: "cuda".into(),
            ..run.clone()
        };
        let said = verdict(&Recording::default(), &[], Some(&gpu), &[]);
        assert_eq!(
            said,
            "The trainer did not wait for data; the trainer is the limit."
        );
        let useless = advise(
            &Workload {
                loader_ceiling: Some(1e6),
                loader_cpu_seconds: Some(1e-6),
                trainer_ceiling: Some(100.0),
                ..run.clone()
            },
            &Prices::default(),
        );
        let said = verdict(&Recording::default(), &[], Some(&run), &useless);
        assert!(said.contains("; no tested change would gain"), "{said}");
    }

    #[test]
    fn a_command_that_failed_has_no_other_cause() {
        let of = |exit_code| {
            let about = About {
                exit_code: Some(exit_code),
                started: 10.0,
                ended: Some(13.0),
                ..About::default()
            };
            let recording = Recording {
                about: Some(about),
                ..Recording::default()
            };
            verdict(&recording, &[], None, &[])
        };
        assert_eq!(of(1), "The command failed with exit code 1 after 3.0 s.");
        // `sys.exit(-1)`, in Python.
        assert_eq!(of(255), "The command failed with exit code 255 after 3.0 s.");
        assert_eq!(of(137), "The command was ended by signal 9 after 3.0 s.");
        for stopped in [0, 130, 143] {
            assert_eq!(of(stopped), "Nothing was recorded that says what limits the run.");
        }
    }

    #[test]
    fn a_foreign_recording_speaks_by_its_waits_and_its_cores() {
        let mut recording = Recording::default();
        let said = verdict(&recording, &[], None, &[]);
        assert_eq!(said, "Nothing was recorded that says what limits the run.");

        let mut node = Node {
            ticks: vec![1.0, 2.0],
            ..Node::default()
        };
        for (name, duration) in [(span::WAIT, 3.0), (span::STEP, 1.0)] {
            let name = node.name(name);
            node.spans.push(Span {
                name,
                start: 0.0,
                duration,
                step: None,
                worker: None,
                bytes: None,
            });
        }
        for (name, dimension, value) in [("gpu0", dimension::GPU, 20.0), ("cpu0", dimension::CPU, 95.0)] {
            node.series.push(Series {
                kind: name[..3].into(),
                name: name.into(),
                dimension: dimension.into(),
                values: vec![value, f32::NAN],
            });
        }
        recording.nodes.push(node);
        let finding = |rule, triggered| Finding {
            rule,
            triggered,
            judged: true,
            violations: 0,
            datapoints: 0,
            parameters: Vec::new(),
            details: serde_json::Value::Null,
            summary: String::new(),
            recommendation: String::new(),
            evidence: Vec::new(),
        };
        let facts = "The trainer waited for data 75 % of the time; the GPUs were busy 20 % of the time and the machine's cores were busy \
                     95 % of the time";
        let findings = [
            finding("LowGPUUtilization", true),
            finding("IOBottleneck", false),
            finding("CPUBottleneck", true),
        ];
        let said = verdict(&recording, &findings, None, &[]);
        assert_eq!(said, format!("{facts}; the cores are the limit."));
        let said = verdict(&recording, &findings[1..2], None, &[]);
        assert_eq!(said, format!("{facts}; no rule says what limits the run."));
        assert_eq!(verdict(&recording, &[], None, &[]), format!("{facts}."));

        recording.nodes[0].series[0].values[0] = 99.0;
        let said = verdict(&recording, &findings[1..2], None, &[]);
        assert!(
            said.ends_with("95 % of the time; the GPUs are the limit."),
            "{said}"
        );
    }

    #[test]
    fn a_recording_of_next_to_nothing_says_so() {
        let node = |ticks: Vec<f64>, milliseconds: f32| Node {
            series: [
                ("cpu", "cpu0", dimension::CPU, 100.0),
                ("recorder", "sample", dimension::SAMPLE, milliseconds),
            ]
            .map(|(kind, name, dimension, value)| Series {
                kind: kind.into(),
                name: name.into(),
                dimension: dimension.into(),
                values: vec![value; ticks.len()],
            })
            .into(),
            ticks,
            ..Node::default()
        };
        let said = |node| {
            let recording = Recording {
                nodes: vec![node],
                ..Recording::default()
            };
            verdict(&recording, &[], None, &[])
        };
        let expected = "1 sample of 0.05 s: too short to say anything.";
        assert_eq!(said(node(vec![7.0], 50.0)), expected);
        let expected = "3 samples of 1.5 s: too short to say anything.";
        assert_eq!(said(node(vec![7.0, 7.5, 8.0], 500.0)), expected);
        let long = node(vec![7.0, 7.5, 8.0, 8.5], 500.0);
        assert_eq!(said(long), "The machine's cores were busy 100 % of the time.");
        // Steps are a program's own word.
        let mut steps = node(vec![7.0], 50.0);
        let name = steps.name(span::STEP);
        steps.spans.push(Span {
            name,
            start: 7.0,
            duration: 0.01,
            step: Some(1),
            worker: None,
            bytes: None,
        });
        assert_eq!(said(steps), "The machine's cores were busy 100 % of the time.");
    }

    #[test]
    fn a_quota_is_what_the_run_may_use() {
        use stokehold_simulate::{Phase, Simulation};
        let simulation = Simulation {
            phases: vec![Phase::Loader],
            cores: 2,
            gpus: 0,
            seconds: 60.0,
            step_seconds: 0.0,
            ..Simulation::default()
        };
        let dir = tempfile::tempdir().unwrap();
        simulation.write(dir.path()).unwrap();
        let mut recording = Recording::open(dir.path()).unwrap();
        recording.about.as_mut().unwrap().machine.quota = Some(2.5);
        let said = verdict(&recording, &[], None, &[]);
        assert!(
            said.starts_with("The run used 1.9 of the 2.5 cores that it may use"),
            "{said}"
        );
        // Of a script.
        let run = Workload {
            quota: Some(0.5),
            wait_share: 0.63,
            loader_ceiling: Some(12.0),
            loader_cpu_seconds: Some(0.04),
            trainer_ceiling: Some(400.0),
            trainer_cpu_seconds: Some(0.0005),
            seconds_per_epoch: Some(85.0),
            ..workload()
        };
        let said = verdict(&Recording::default(), &[], Some(&run), &[]);
        assert!(
            said.contains("decoding on the 0.5 cores that it may use is the limit"),
            "{said}"
        );
        // No number of workers computes on more.
        let advice = advise(&run, &Prices::default());
        assert!(advice.iter().all(|advice| !advice.is_worth_it()), "{advice:?}");
    }

    #[test]
    fn the_run_is_told_from_the_machine() {
        use crate::rules::{Parameters, judge};
        use stokehold_simulate::{Phase, Simulation};
        let said = |phase, others, step_seconds| {
            let recording = Simulation {
                phases: vec![phase],
                cores: 2,
                gpus: 0,
                seconds: 60.0,
                others,
                step_seconds,
                ..Simulation::default()
            }
            .recording();
            verdict(&recording, &judge(&recording, &Parameters::default()), None, &[])
        };
        assert_eq!(
            said(Phase::Asleep, Some(98.0), 0.0),
            "The run used 0.0 of 2 cores, other programs 2.0; the other programs hide what limits the run; record \
             it again without them."
        );
        assert_eq!(
            said(Phase::Loader, Some(0.0), 0.0),
            "The run used 1.9 of 2 cores, other programs 0.0; the cores are the limit."
        );
        let both = said(Phase::Loader, Some(60.0), 0.25);
        assert!(
            both.ends_with("the run used 1.2 of 2 cores, other programs 0.8; the cores are the limit."),
            "{both}"
        );
        assert_eq!(
            said(Phase::Asleep, None, 0.0),
            "The machine's cores were busy 2 % of the time; no rule says what limits the run."
        );
    }

    #[test]
    fn times_have_three_digits_at_most() {
        let said = [0.0, 0.42, 1.0, 9.94, 9.96, 112.4].map(seconds);
        assert_eq!(said, ["0.00 s", "0.42 s", "1.0 s", "9.9 s", "10 s", "112 s"]);
    }
}
