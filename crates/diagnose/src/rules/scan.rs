//! Scans: SageMaker evaluates a running job every 60 s, on the latest window of samples.
//!
//! A GPU is idle while a job starts and ends, and that says nothing about how it is fed. AWS leaves that to
//! `patience`, which must be longer than the start. If training steps are known we can do better: scans see
//! the samples from the first step to the last, and `patience` counts from there.

use std::ops::Range;

use stokehold_profile::{Node, span};

use crate::rules::statistics::Sorted;

/// Time between two scans, seconds.
const BETWEEN: f64 = 60.0;

/// The scans of a node.
pub(super) struct Scans {
    /// The ticks that scans see.
    pub seen: Range<usize>,
    /// For every scan, the first tick that it does not see: at every full minute since the first tick, if
    /// there are new ticks, and at the end.
    ends: Vec<usize>,
}

impl Scans {
    pub fn of(node: &Node) -> Self {
        let mut seen = 0..node.ticks.len();
        let (mut first, mut last) = (f64::INFINITY, f64::NEG_INFINITY);
        for step in node.spans_of(span::STEP) {
            (first, last) = (first.min(step.start), last.max(step.end()));
        }
        if first <= last {
            // If a step begins within a sample's time, the next sample is the first one of the step.
            seen.start = node.ticks.partition_point(|tick| *tick <= first);
            seen.end = node.ticks.partition_point(|tick| *tick <= last).max(seen.start);
        }
        let ticks = &node.ticks[seen.clone()];
        let mut ends = Vec::new();
        let (start, mut minute) = (ticks.first().copied().unwrap_or(0.0), 1.0);
        for (at, tick) in ticks.iter().enumerate() {
            if tick - start > minute * BETWEEN {
                ends.push(seen.start + at);
                minute = ((tick - start) / BETWEEN).ceil().max(minute + 1.0);
            }
        }
        if !ticks.is_empty() {
            ends.push(seen.end);
        }
        Self { seen, ends }
    }

    /// The total number of values that scans see in a column.
    pub fn numbers(&self, column: &[f32]) -> u64 {
        let seen = column.get(self.seen.clone()).unwrap_or_default();
        seen.iter().filter(|value| !value.is_nan()).count() as u64
    }

    /// Calls `see` with the latest `size` values of a column, at every scan that has more than `patience` of
    /// them; if there are fewer than `size`, with all of them.
    pub fn windows(&self, column: &[f32], size: u64, patience: u64, mut see: impl FnMut(Window)) {
        let (mut counted, mut numbers) = (self.seen.start, 0u64);
        for &end in &self.ends {
            let is_number = |at: &usize| column.get(*at).is_some_and(|value| !value.is_nan());
            numbers += (counted..end).filter(is_number).count() as u64;
            counted = end;
            if numbers <= patience {
                continue;
            }
            if let Some(window) = self.latest(column, end, size) {
                see(window);
            }
        }
    }

    /// The latest `size` values of a column before the tick `end`; `None` if there are none.
    pub fn latest(&self, column: &[f32], end: usize, size: u64) -> Option<Window> {
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        let (mut first, mut last) = (end, None);
        let values = column.get(self.seen.start..end.min(column.len()))?;
        let numbers = values
            .iter()
            .enumerate()
            .rev()
            .filter(|(_, value)| !value.is_nan());
        let values = Sorted::of(numbers.take(size).map(|(at, &value)| {
            first = self.seen.start + at;
            last.get_or_insert(first);
            f64::from(value)
        }));
        let last = last?;
        Some(Window {
            first,
            last,
            end,
            values,
        })
    }
}

/// The window of a scan.
pub(super) struct Window {
    /// The first and the last tick of the window.
    pub first: usize,
    pub last: usize,
    /// The first tick that the scan does not see.
    pub end: usize,
    /// The window's values.
    pub values: Sorted,
}

#[cfg(test)]
mod tests {
    use super::*;
    use stokehold_profile::Span;

    fn node(ticks: impl IntoIterator<Item = f64>) -> Node {
        Node {
            ticks: ticks.into_iter().collect(),
            ..Node::default()
        }
    }

    #[test]
    fn a_scan_is_every_minute_and_at_the_end() {
        let ends = |count: usize, interval: f64| {
            Scans::of(&node((0..count).map(|tick| 1e9 + tick as f64 * interval))).ends
        };
        assert_eq!(ends(301, 0.5), [121, 241, 301]);
        assert_eq!(ends(10, 0.5), [10]);
        assert_eq!(ends(4, 100.0), [1, 2, 3, 4]);
        assert!(ends(0, 1.0).is_empty());
        assert_eq!(Scans::of(&node([0.0, 1.0, 1000.0, 1001.0])).ends, [2, 4], "a gap");
    }

    #[test]
    fn where_steps_are_known_only_training_is_seen() {
        let mut node = node((0..300).map(f64::from));
        let name = node.name(span::STEP);
        for start in [100.5, 200.0] {
            node.spans.push(Span {
                name,
                start,
                duration: 9.5,
                step: None,
                worker: None,
                bytes: None,
            });
        }
        let scans = Scans::of(&node);
        assert_eq!((scans.seen, scans.ends), (101..210, vec![162, 210]));
        node.ticks.truncate(50);
        assert!(
            Scans::of(&node).ends.is_empty(),
            "no sample was taken in training"
        );
    }

    #[test]
    fn a_window_is_the_latest_numbers() {
        let column = [1.0, f32::NAN, 3.0, 4.0, f32::NAN, 6.0];
        let scans = Scans {
            seen: 0..6,
            ends: vec![2, 4, 6],
        };
        let mut seen = Vec::new();
        scans.windows(&column, 2, 1, |window| {
            seen.push((
                window.first,
                window.last,
                window.values.p(0.0),
                window.values.p(100.0),
            ));
        });
        assert_eq!(seen, [(2, 3, 3.0, 4.0), (3, 5, 4.0, 6.0)]);
        assert_eq!(scans.numbers(&column), 4);
        scans.windows(&[f32::NAN; 6], 2, 0, |_| panic!("no numbers, no window"));
        scans.windows(&[], 2, 0, |_| panic!("no numbers, no window"));
    }
}
