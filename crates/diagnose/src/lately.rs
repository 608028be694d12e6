//! How a run does at the moment: means over its last seconds.

use serde::Serialize;
use stokehold_profile::{Node, Recording, dimension, span};

/// The time that the figures cover, seconds.
pub const SECONDS: f64 = 10.0;

/// The figures of a recording's last [`SECONDS`]; `None` for what was not recorded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Lately {
    /// The last moment with data, unix seconds.
    pub at: Option<f64>,
    /// The busy share of the cores, percent.
    pub cores: Option<f64>,
    /// The shares of the cores that the run and other programs used, percent.
    pub whose: Option<(f64, f64)>,
    /// The busy share of the GPUs, percent.
    pub gpus: Option<f64>,
    /// Main memory in use, percent.
    pub memory: Option<f64>,
    /// Steps that ended, of all modes.
    pub steps_per_second: Option<f64>,
    /// Images in these steps.
    pub images_per_second: Option<f64>,
    /// The share of the trainer's time in which it waited for batches, 0 to 1.
    pub wait_share: Option<f64>,
}

impl Lately {
    /// Those of a recording, or of its end.
    pub fn of(recording: &Recording) -> Self {
        let at = recording.extent().map(|extent| extent.1);
        let from = at.unwrap_or(0.0) - SECONDS;
        let workload = recording.about.as_ref().and_then(|about| about.workload.as_ref());
        let steps_per_second = steps_per_second(recording, from);
        let mean = |of: &'static str| mean(recording, of, from);
        Self {
            at,
            cores: mean(dimension::CPU),
            whose: whose(recording, from),
            gpus: mean(dimension::GPU),
            memory: mean(dimension::MEMORY),
            steps_per_second,
            images_per_second: workload
                .and_then(|workload| Some(steps_per_second? * workload.batch_size as f64)),
            wait_share: wait_share(recording, from),
        }
    }
}

/// Mean of a dimension's samples after a time; `None` if there are none.
fn mean(recording: &Recording, of: &'static str, from: f64) -> Option<f64> {
    let (mut sum, mut count) = (0.0, 0u32);
    for node in &recording.nodes {
        let first = node.ticks.partition_point(|tick| *tick < from);
        for value in node.of(of).flat_map(|series| series.values.iter().skip(first)) {
            if value.is_finite() {
                (sum, count) = (sum + f64::from(*value), count + 1);
            }
        }
    }
    (count > 0).then(|| sum / f64::from(count))
}

/// Mean shares of the cores that the run and other programs used after a time, percent; `None` if that is not
/// known.
fn whose(recording: &Recording, from: f64) -> Option<(f64, f64)> {
    let (mut run, mut others, mut cores) = (0.0, 0.0, 0.0);
    for node in &recording.nodes {
        let used = node.core_use()?;
        let first = node.ticks.partition_point(|tick| *tick < from);
        let mean = |values: &[f32]| {
            let known = values.iter().skip(first).filter(|value| value.is_finite());
            let (sum, count) = known.fold((0.0, 0u32), |(sum, count), value| {
                (sum + f64::from(*value), count + 1)
            });
            (count > 0).then(|| sum / f64::from(count))
        };
        run += mean(used.run)?;
        others += mean(used.others)?;
        cores += used.cores as f64;
    }
    (cores > 0.0).then(|| (run / cores, others / cores))
}

/// Steps per second that ended after a time, summed over the nodes; `None` where no two steps have ended. Steps that take longer than
/// that are told by the last two.
fn steps_per_second(recording: &Recording, from: f64) -> Option<f64> {
    let (begin, now) = recording.extent()?;
    let of = |node: &Node| {
        let mut ends: Vec<f64> = node.steps().map(|(_, step)| step.end()).collect();
        ends.sort_by(f64::total_cmp);
        let lately = ends.len() - ends.partition_point(|end| *end < from);
        let &[.., before, last] = &ends[..] else {
            return None;
        };
        Some(match lately {
            0 | 1 => 1.0 / (last - before).max(now - last).max(f64::MIN_POSITIVE),
            // Of a recording that has just begun, the time since the first step.
            _ => lately as f64 / (now - from.max(begin)).max(f64::MIN_POSITIVE),
        })
    };
    recording.nodes.iter().filter_map(of).reduce(|a, b| a + b)
}

/// Share of the trainers' waiting after a time, 0 to 1, up to the end of the last step: a wait without its step says nothing. Where a
/// step takes longer than that, the last one and the wait for it count. `None` if nothing is known.
fn wait_share(recording: &Recording, from: f64) -> Option<f64> {
    let (mut waited, mut worked) = (0.0, 0.0);
    for node in &recording.nodes {
        let steps = node.steps().map(|(_, step)| (step.start, step.end()));
        let Some((start, to)) = steps.max_by(|a, b| a.1.total_cmp(&b.1)) else {
            continue;
        };
        let before = node.spans_of(span::WAIT).filter(|wait| wait.end() <= start);
        let wait = before.max_by(|a, b| a.start.total_cmp(&b.start));
        let from = wait.map_or(start, |wait| wait.start).min(from);
        let within = |start: f64, end: f64| (end.min(to) - start.max(from)).max(0.0);
        let waits = node.spans_of(span::WAIT);
        waited += waits.map(|wait| within(wait.start, wait.end())).sum::<f64>();
        let steps = node.steps();
        worked += steps.map(|(_, step)| within(step.start, step.end())).sum::<f64>();
    }
    (waited > 0.0).then(|| waited / (waited + worked))
}

#[cfg(test)]
mod tests {
    use super::*;
    use stokehold_simulate::{Phase, Simulation};

    #[test]
    fn the_figures_are_those_of_the_last_seconds() {
        let simulation = Simulation {
            phases: vec![Phase::Loader, Phase::Asleep],
            ..Simulation::default()
        };
        let recording = simulation.recording();
        let end = Lately::of(&recording);
        let middle = recording.extent().map_or(0.0, |(from, to)| (from + to) / 2.0);
        let busy = recording.after(middle).nodes[0].ticks.len();
        assert!(busy < recording.nodes[0].ticks.len(), "{busy}");
        assert!(end.cores.is_some_and(|cores| cores < 50.0), "{end:?}");
        assert_eq!(Lately::of(&Recording::default()), Lately::default());
    }

    #[test]
    fn steps_that_take_longer_than_what_is_looked_at_have_figures() {
        let simulation = Simulation {
            step_seconds: 3.0 * SECONDS,
            phases: vec![Phase::Healthy],
            ..Simulation::default()
        };
        let mut recording = simulation.recording();
        // The end lies within a step, none of which ended lately.
        let (_, last) = recording.nodes[0].steps().last().unwrap();
        let end = last.end() - 0.1;
        for node in &mut recording.nodes {
            node.spans.retain(|span| span.end() < end);
            node.ticks.retain(|tick| *tick < end);
            let ticks = node.ticks.len();
            node.series
                .iter_mut()
                .for_each(|series| series.values.truncate(ticks));
        }
        let lately = Lately::of(&recording);
        let rate = lately.steps_per_second.unwrap();
        assert!(
            (1.0 / (7.0 * SECONDS)..=1.0 / (3.0 * SECONDS)).contains(&rate),
            "{lately:?}"
        );
        assert!(lately.wait_share.is_none_or(|share| share < 0.2), "{lately:?}");
    }
}
