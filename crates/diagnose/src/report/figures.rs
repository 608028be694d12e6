//! The numbers that a report shows, computed from a recording.

use std::collections::{BTreeMap, HashMap};

use stokehold_profile::{Node, Recording, Series, span};

/// The times of a run, seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Job {
    /// Start, unix seconds.
    pub start: f64,
    /// End, unix seconds.
    pub end: f64,
    /// From the start of the first step to the end of the last one, unix seconds; `None` without steps.
    pub training: Option<(f64, f64)>,
}

impl Job {
    /// The job of a recording; `None` if it has no data at any time.
    pub fn of(recording: &Recording) -> Option<Self> {
        let known = recording.extent();
        let about = recording.about.as_ref();
        let start = about.map(|about| about.started).or(known.map(|known| known.0))?;
        let end = about
            .and_then(|about| about.ended)
            .or(known.map(|known| known.1))
            .unwrap_or(start)
            .max(start);
        let steps = recording.nodes.iter().flat_map(|node| node.steps());
        let training = steps
            .map(|(_, step)| (step.start, step.end()))
            .reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
        Some(Self {
            start,
            end,
            // If the clock was set meanwhile, a part of the job must still not be longer than the job.
            training: training.map(|(from, to)| (from.clamp(start, end), to.clamp(start, end))),
        })
    }

    /// Seconds from start to end.
    pub fn duration(&self) -> f64 {
        self.end - self.start
    }

    /// Initialisation, training loop and finalisation, seconds; `None` without steps.
    pub fn parts(&self) -> Option<[(&'static str, f64); 3]> {
        let (from, to) = self.training?;
        Some([
            ("Initialisation", from - self.start),
            ("Training loop", to - from),
            ("Finalisation", self.end - to),
        ])
    }
}

/// The percentiles in tables.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// The number of values.
    pub count: usize,
    /// Mean.
    pub mean: f64,
    /// Smallest value.
    pub min: f64,
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Largest value.
    pub max: f64,
}

impl Spread {
    /// The spread of the values except NaN; `None` if there are none.
    pub fn of(values: impl Iterator<Item = f32>) -> Option<Self> {
        let mut values = numbers(values)?;
        let count = values.len();
        let mean = values.iter().copied().map(f64::from).sum::<f64>() / count as f64;
        let (min, max) = extremes(&values);
        let [p50, p90, p95, p99] = percentiles(&mut values, [50.0, 90.0, 95.0, 99.0]);
        Some(Self {
            count,
            mean,
            min,
            p50,
            p90,
            p95,
            p99,
            max,
        })
    }

    /// The columns of the percentiles table: min, p50, p90, p95, p99, max.
    pub fn table(&self) -> [f64; 6] {
        [self.min, self.p50, self.p90, self.p95, self.p99, self.max]
    }
}

/// The values of a box plot: smallest, 5th, 25th, 50th, 75th and 95th percentile, largest; `None` without
/// values.
pub fn box_plot(values: impl Iterator<Item = f32>) -> Option<[f64; 7]> {
    let mut values = numbers(values)?;
    let (min, max) = extremes(&values);
    let [p5, p25, p50, p75, p95] = percentiles(&mut values, [5.0, 25.0, 50.0, 75.0, 95.0]);
    Some([min, p5, p25, p50, p75, p95, max])
}

/// The values except NaN; `None` if there are none.
fn numbers(values: impl Iterator<Item = f32>) -> Option<Vec<f32>> {
    let values: Vec<f32> = values.filter(|value| value.is_finite()).collect();
    (!values.is_empty()).then_some(values)
}

fn extremes(values: &[f32]) -> (f64, f64) {
    let (min, max) = values
        .iter()
        .fold((f32::INFINITY, f32::NEG_INFINITY), |(min, max), &value| {
            (min.min(value), max.max(value))
        });
    (f64::from(min), f64::from(max))
}

/// Percentiles of values, as [`percentile`](stokehold_base::stats::percentile) defines them; `points` ascend.
/// Sorts the values only as far as needed: a week's samples are millions.
fn percentiles<const N: usize>(values: &mut [f32], points: [f64; N]) -> [f64; N] {
    let last = values.len() - 1;
    let (mut rest, mut offset) = (values, 0);
    points.map(|point| {
        let rank = point / 100.0 * last as f64;
        let below = rank.floor() as usize;
        let (_, &mut value, above) = rest.select_nth_unstable_by(below - offset, f32::total_cmp);
        let next = above.iter().copied().min_by(f32::total_cmp).unwrap_or(value);
        let (value, next) = (f64::from(value), f64::from(next));
        rest = &mut std::mem::take(&mut rest)[below - offset..];
        offset = below;
        value + (next - value) * (rank - below as f64)
    })
}

/// A step, and the wait for its batch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Step {
    /// Start, unix seconds.
    pub start: f64,
    /// Duration, seconds.
    pub duration: f64,
    /// Its number, if the file has one.
    pub number: Option<u64>,
    /// The wait for its batch, seconds; 0 if none was recorded.
    pub wait: f64,
}

/// The steps of the mode with the most steps on a node; training, if there are training steps.
pub fn steps(node: &Node) -> Option<(String, Vec<Step>)> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for (mode, _) in node.steps() {
        *counts.entry(mode).or_default() += 1;
    }
    let mode = if counts.contains_key("TRAIN") {
        "TRAIN"
    } else {
        counts.into_iter().max_by_key(|(_, count)| *count)?.0
    };
    let waits: HashMap<u64, f64> = node
        .spans_of(span::WAIT)
        .filter_map(|wait| Some((wait.step?, wait.duration)))
        .collect();
    let steps = node.steps().filter(|(of, _)| *of == mode).map(|(_, step)| Step {
        start: step.start,
        duration: step.duration,
        number: step.step,
        wait: step
            .step
            .and_then(|number| waits.get(&number))
            .copied()
            .unwrap_or(0.0),
    });
    let steps = steps.collect();
    Some((mode.to_owned(), steps))
}

/// The duration above which a step is an outlier, seconds: the mean plus `deviations` standard deviations.
pub fn outlier_from(steps: &[Step], deviations: f64) -> f64 {
    let count = steps.len() as f64;
    let mean = steps.iter().map(|step| step.duration).sum::<f64>() / count;
    let variance = steps
        .iter()
        .map(|step| (step.duration - mean).powi(2))
        .sum::<f64>()
        / count;
    mean + deviations * variance.sqrt()
}

/// Durations of the epochs, seconds, by start.
pub fn epochs(recording: &Recording) -> Vec<f64> {
    let epochs = recording.nodes.iter().flat_map(|node| node.spans_of(span::EPOCH));
    epochs.map(|epoch| epoch.duration).collect()
}

/// Seconds per epoch: as the trainer measured, or else the mean of the recorded epochs.
pub fn seconds_per_epoch(recording: &Recording) -> Option<f64> {
    let workload = recording.about.as_ref().and_then(|about| about.workload.as_ref());
    workload
        .and_then(|workload| workload.seconds_per_epoch)
        .or_else(|| {
            let epochs = epochs(recording);
            (!epochs.is_empty()).then(|| epochs.iter().sum::<f64>() / epochs.len() as f64)
        })
}

/// Share of the training loop in which the trainers waited for batches, 0 to 1; `None` without steps or
/// waits.
pub fn wait_share(recording: &Recording) -> Option<f64> {
    let mut waited = 0.0;
    let mut together = 0.0;
    for node in &recording.nodes {
        let waits: f64 = node.spans_of(span::WAIT).map(|wait| wait.duration).sum();
        let steps: f64 = node.steps().map(|(_, step)| step.duration).sum();
        if waits > 0.0 {
            waited += waits;
            together += waits + steps;
        }
    }
    (together > 0.0).then(|| waited / together)
}

/// The number of values in each of 20 classes of five points, from 0 to 100 percent.
pub fn histogram<'a>(series: impl Iterator<Item = &'a Series>) -> [u64; 20] {
    let mut counts = [0; 20];
    for value in series.flat_map(|series| &series.values) {
        if value.is_finite() {
            counts[((value.clamp(0.0, 100.0) / 5.0) as usize).min(19)] += 1;
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use stokehold_base::stats::percentile;

    proptest! {
        #[test]
        fn percentiles_are_those_of_sorting(values in prop::collection::vec(0.0f32..100.0, 1..300)) {
            let wide: Vec<f64> = values.iter().copied().map(f64::from).collect();
            let spread = Spread::of(values.iter().copied()).unwrap();
            let boxed = box_plot(values.iter().copied()).unwrap();
            let points = [0.0, 50.0, 90.0, 95.0, 99.0, 100.0, 0.0, 5.0, 25.0, 50.0, 75.0, 95.0, 100.0];
            for (point, got) in std::iter::zip(points, spread.table().into_iter().chain(boxed)) {
                let expected = percentile(&wide, point).unwrap();
                prop_assert!((got - expected).abs() < 1e-9, "p{}: {} instead of {}", point, got, expected);
            }
        }
    }

    #[test]
    fn nothing_has_no_spread() {
        assert_eq!(Spread::of(std::iter::empty()), None);
        assert_eq!(Spread::of([f32::NAN].into_iter()), None);
        assert_eq!(Spread::of([7.0, f32::NAN].into_iter()).unwrap().table(), [7.0; 6]);
        assert_eq!(box_plot([7.0, f32::NAN].into_iter()), Some([7.0; 7]));
    }

    #[test]
    fn a_histogram_has_every_value_once() {
        let series = Series {
            kind: "cpu".into(),
            name: "cpu0".into(),
            dimension: stokehold_profile::dimension::CPU.into(),
            values: vec![0.0, 4.99, 5.0, 99.0, 100.0, 130.0, -1.0, f32::NAN],
        };
        let counts = histogram([&series].into_iter());
        assert_eq!((counts[0], counts[1], counts[19]), (3, 1, 3));
        assert_eq!(counts.iter().sum::<u64>(), 7);
    }
}
