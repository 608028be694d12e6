//! Snapshots: samples that were taken together.
//!
//! SageMaker's agents sample cores and GPUs in several threads, so values of the same time have timestamps up
//! to 20 ms apart, and `smdebug` takes everything within 20 ms of the first for one snapshot. We do the same;
//! in our own recordings every tick is a snapshot.

use stokehold_profile::{Node, Series, lengths, span};

/// Ticks this close to the first of a snapshot belong to it, seconds.
const TOGETHER: f64 = 0.02;

/// The snapshots of a node.
pub(super) struct Snapshots {
    /// For every snapshot, the time of its first tick, unix seconds.
    pub times: Vec<f64>,
    /// For every tick, the snapshot it belongs to.
    of_tick: Vec<u32>,
    /// The length of each snapshot's interval, seconds.
    lengths: Vec<f64>,
    /// The median of the lengths, seconds.
    pub interval: f64,
}

impl Snapshots {
    pub fn of(node: &Node) -> Self {
        let mut times: Vec<f64> = Vec::with_capacity(node.ticks.len());
        let mut of_tick = Vec::with_capacity(node.ticks.len());
        for &tick in &node.ticks {
            if times.last().is_none_or(|first| tick - first > TOGETHER) {
                times.push(tick);
            }
            of_tick.push(times.len() as u32 - 1);
        }
        let lengths = match times.len() == node.ticks.len() {
            true => node.lengths(),
            // Ticks of one snapshot are only milliseconds apart.
            false => lengths::between(&times),
        };
        Self {
            interval: lengths::median(&lengths).unwrap_or(0.0),
            times,
            of_tick,
            lengths,
        }
    }

    pub fn len(&self) -> usize {
        self.times.len()
    }

    /// The interval that a snapshot covers.
    pub fn time(&self, snapshot: usize) -> (f64, f64) {
        let to = self.times[snapshot];
        (to - self.lengths[snapshot], to)
    }

    /// The values of a column with one value per tick, by snapshot; NaN for a gap.
    pub fn column(&self, values: &[f32]) -> Vec<f32> {
        let mut column = vec![f32::NAN; self.len()];
        for (&snapshot, &value) in self.of_tick.iter().zip(values) {
            if !value.is_nan() {
                column[snapshot as usize] = value;
            }
        }
        column
    }

    /// Calls `see` with the snapshot of every value of a series except NaN.
    pub fn each(&self, series: &Series, mut see: impl FnMut(usize, f32)) {
        for (&snapshot, &value) in self.of_tick.iter().zip(&series.values) {
            if !value.is_nan() {
                see(snapshot as usize, value);
            }
        }
    }

    /// The values of a series in some snapshots, NaN for a gap.
    pub fn within<'a>(&self, series: &'a Series, from: usize, to: usize) -> &'a [f32] {
        let start = self.of_tick.partition_point(|&at| (at as usize) < from);
        let end = self.of_tick.partition_point(|&at| (at as usize) < to);
        let known = series.values.len();
        &series.values[start.min(known)..end.min(known)]
    }

    /// How busy the trainer was in every snapshot's interval, percent: the seconds of its steps, relative to
    /// the seconds of its steps and waits, over all trainers of the node; NaN if there was neither. `None` if
    /// the node has no span of either.
    pub fn trainer_busy(&self, node: &Node) -> Option<Vec<f32>> {
        let seconds = self.seconds(node, |name| match name {
            span::WAIT => Some(0),
            name if name.starts_with(span::STEP_PREFIX) => Some(1),
            _ => None,
        })?;
        let busy = |[waited, computed]: [f32; 2]| 100.0 * computed / (waited + computed);
        Some(seconds.into_iter().map(busy).collect())
    }

    /// The seconds of every snapshot's interval that spans fill, added up at the index that `place` gives for
    /// their names. `None` if the node has no span of such a name.
    pub fn seconds<const N: usize>(
        &self,
        node: &Node,
        place: impl Fn(&str) -> Option<usize>,
    ) -> Option<Vec<[f32; N]>> {
        let places: Vec<Option<usize>> = node.names.iter().map(|name| place(name)).collect();
        let mut seconds = vec![[0f32; N]; self.len()];
        let (mut known, mut first) = (false, 0);
        for span in &node.spans {
            let Some(place) = places.get(span.name as usize).copied().flatten() else {
                continue;
            };
            known = true;
            // Spans are sorted by start, so no later one overlaps a snapshot that ended before this start.
            while first < self.len() && self.times[first] <= span.start {
                first += 1;
            }
            for (snapshot, seconds) in seconds.iter_mut().enumerate().skip(first) {
                let (from, to) = self.time(snapshot);
                let overlap = span.end().min(to) - span.start.max(from);
                if overlap > 0.0 {
                    seconds[place] += overlap as f32;
                }
                if to >= span.end() {
                    break;
                }
            }
        }
        known.then_some(seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stokehold_profile::Span;

    fn node(ticks: &[f64]) -> Node {
        Node {
            ticks: ticks.to_vec(),
            ..Node::default()
        }
    }

    #[test]
    fn samples_within_20_ms_are_one_snapshot() {
        let snapshots = Snapshots::of(&node(&[1.0, 1.015, 1.5, 1.519, 1.521, 2.0]));
        assert_eq!(snapshots.times, [1.0, 1.5, 1.521, 2.0]);
        assert_eq!(snapshots.of_tick, [0, 0, 1, 1, 2, 3]);
    }

    #[test]
    fn a_snapshot_tells_of_no_more_than_its_interval_after_a_gap() {
        let snapshots = Snapshots::of(&node(&[1.0, 1.5, 2.0, 60.0, 60.5]));
        assert_eq!(snapshots.time(0), (0.5, 1.0));
        assert_eq!(snapshots.time(1), (1.0, 1.5));
        assert_eq!(snapshots.time(3), (59.5, 60.0));
        assert_eq!(Snapshots::of(&node(&[7.0])).time(0), (7.0, 7.0));
        assert_eq!(Snapshots::of(&node(&[])).len(), 0);
    }

    #[test]
    fn the_trainer_is_busy_as_long_as_its_steps_last() {
        let mut node = node(&[1.0, 2.0, 3.0, 4.0]);
        // Seconds 0.5 to 1.25 waited, to 2.0 computed, nothing until 3, then a step that outlasts the recording.
        for (name, start, duration) in [
            (span::WAIT, 0.5, 0.75),
            (span::STEP, 1.25, 0.75),
            (span::STEP, 3.0, 9.0),
        ] {
            let name = node.name(name);
            node.spans.push(Span {
                name,
                start,
                duration,
                step: Some(1),
                worker: None,
                bytes: None,
            });
        }
        let busy = Snapshots::of(&node).trainer_busy(&node).unwrap();
        assert_eq!(busy[0], 0.0);
        assert_eq!(busy[1], 75.0);
        assert!(busy[2].is_nan());
        assert_eq!(busy[3], 100.0);
        node.spans.clear();
        assert!(Snapshots::of(&node).trainer_busy(&node).is_none());
    }
}
