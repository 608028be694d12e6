//! Evidence: the times and places of a finding.

use std::ops::Range;

use stokehold_profile::{Node, Series, span};

use crate::rules::Evidence;
use crate::rules::snapshot::Snapshots;

/// The most intervals that a finding lists for one machine.
const MOST: usize = 20;

/// The runs of snapshots in which `held` is true. Breaks shorter than a hundredth of the recording, or of one
/// snapshot, are bridged; of more than 20 runs the longest are kept. They are sorted by time.
pub(super) fn runs(snapshots: &Snapshots, held: impl Fn(usize) -> bool) -> Vec<Range<usize>> {
    let Some(last) = snapshots.len().checked_sub(1) else {
        return Vec::new();
    };
    let extent = snapshots.time(last).1 - snapshots.time(0).0;
    let bridge = (extent / 100.0).max(1.5 * snapshots.interval);
    let mut runs: Vec<Range<usize>> = Vec::new();
    for snapshot in (0..=last).filter(|&snapshot| held(snapshot)) {
        let from = snapshots.time(snapshot).0;
        match runs.last_mut() {
            Some(run) if from - snapshots.time(run.end - 1).1 < bridge => run.end = snapshot + 1,
            _ => runs.push(snapshot..snapshot + 1),
        }
    }
    longest(runs, |run| {
        snapshots.time(run.end - 1).1 - snapshots.time(run.start).0
    })
}

/// Merges consecutive times that are less than a hundredth of `extent` apart; of more than 20 the longest are
/// kept. Input and output are sorted by start.
pub(super) fn bridged(times: impl IntoIterator<Item = (f64, f64)>, extent: f64) -> Vec<(f64, f64)> {
    let mut joined: Vec<(f64, f64)> = Vec::new();
    for (from, to) in times {
        match joined.last_mut() {
            Some(known) if from - known.1 <= extent / 100.0 => known.1 = known.1.max(to),
            _ => joined.push((from, to)),
        }
    }
    longest(joined, |(from, to)| to - from)
}

/// The longest 20, in their original order.
pub(super) fn longest<T>(mut items: Vec<T>, length: impl Fn(&T) -> f64) -> Vec<T> {
    if items.len() > MOST {
        let mut lengths: Vec<f64> = items.iter().map(&length).collect();
        lengths.sort_unstable_by(|a, b| b.total_cmp(a));
        let shortest = lengths[MOST - 1];
        items.retain(|item| length(item) >= shortest);
        items.truncate(MOST);
    }
    items
}

/// The evidence for a run of snapshots.
pub(super) fn of_run(node: &Node, snapshots: &Snapshots, run: &Range<usize>, what: String) -> Evidence {
    let (from, to) = (snapshots.time(run.start).0, snapshots.time(run.end - 1).1);
    of_time(node, from, to, what)
}

/// The evidence for a time, with the training steps that overlap it.
pub(super) fn of_time(node: &Node, from: f64, to: f64, what: String) -> Evidence {
    Evidence {
        from,
        to,
        node: node.name.clone(),
        what,
        steps: steps(node, from, to),
    }
}

fn steps(node: &Node, from: f64, to: f64) -> Option<(u64, u64)> {
    let name = node.names.iter().position(|name| name == span::STEP)? as u32;
    let start = node.spans.partition_point(|span| span.start < from);
    let end = node.spans.partition_point(|span| span.start < to);
    // Of the steps that began before, the last one may overlap the time.
    let before = node.spans[..start].iter().rev().find(|span| span.name == name);
    let numbers = before
        .filter(|span| span.end() > from)
        .into_iter()
        .chain(
            node.spans[start..end.max(start)]
                .iter()
                .filter(|span| span.name == name),
        )
        .filter_map(|span| span.step);
    numbers.fold(None, |known: Option<(u64, u64)>, step| {
        let (first, last) = known.unwrap_or((step, step));
        Some((first.min(step), last.max(step)))
    })
}

/// Which series were beyond a limit during a run: those that were in at least half of the `held` snapshots,
/// or else the one that was most often.
pub(super) fn which<'a>(
    snapshots: &Snapshots,
    run: &Range<usize>,
    held: usize,
    series: impl Iterator<Item = &'a Series>,
    beyond: impl Fn(f32) -> bool,
) -> Vec<&'a str> {
    let often: Vec<(&str, usize)> = series
        .map(|series| {
            let values = snapshots.within(series, run.start, run.end);
            let count = values.iter().filter(|value| beyond(**value)).count();
            (series.name.as_str(), count)
        })
        .filter(|(_, count)| *count > 0)
        .collect();
    let mostly: Vec<&str> = often
        .iter()
        .filter(|(_, count)| 2 * count >= held)
        .map(|(name, _)| *name)
        .collect();
    match mostly[..] {
        [] => often
            .iter()
            .rev()
            .max_by_key(|(_, count)| *count)
            .map(|(name, _)| *name)
            .into_iter()
            .collect(),
        _ => mostly,
    }
}

/// Names in a sentence: `cpu0, cpu1`; more than eight are shortened to `cpu0, .. and 88 more`.
pub(super) fn list(names: &[&str]) -> String {
    match names.len() {
        0..=8 => names.join(", "),
        count => format!("{} and {} more", names[..7].join(", "), count - 7),
    }
}

/// Times in a sentence, counted from the start of the recording: `90 s to 150 s, 170 s to 180 s (cpu0), 200 s to 210 s (cpu1)`;
/// of more than three, the longest.
pub(super) fn when(evidence: &[Evidence], start: f64) -> String {
    let mut named: Vec<&Evidence> = evidence.iter().collect();
    named.sort_by(|a, b| (b.to - b.from).total_cmp(&(a.to - a.from)));
    named.truncate(3);
    named.sort_by(|a, b| a.from.total_cmp(&b.from));
    let times = named.chunk_by(|a, b| a.what == b.what).map(|same| {
        let times = same
            .iter()
            .map(|one| format!("{} to {}", moment(one.from - start), moment(one.to - start)));
        // Short times may read alike.
        let mut times: Vec<String> = times.collect();
        times.dedup();
        format!("{} ({})", times.join(", "), same[0].what)
    });
    let more = if evidence.len() > 3 {
        ", and at other times"
    } else {
        ""
    };
    times.collect::<Vec<_>>().join(", ") + more
}

/// Seconds since the start, or hours, minutes and seconds if there are many.
fn moment(seconds: f64) -> String {
    if seconds.abs() < 600.0 {
        return format!("{seconds:.0} s");
    }
    let whole = seconds.round() as i64;
    format!("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60)
}

#[cfg(test)]
mod tests {
    use super::*;
    use stokehold_profile::Span;

    fn node(ticks: usize) -> Node {
        Node {
            name: "algo-1".into(),
            ticks: (1..=ticks).map(|tick| tick as f64).collect(),
            ..Node::default()
        }
    }

    #[test]
    fn what_several_times_are_of_is_named_once() {
        let of = |times: &[(f64, &str)]| -> Vec<Evidence> {
            let one = |&(from, what): &(f64, &str)| Evidence {
                from,
                to: from + 2.0,
                what: what.into(),
                node: "algo-1".into(),
                steps: None,
            };
            times.iter().map(one).collect()
        };
        let same = of(&[(1.0, "trainer"), (5.0, "trainer"), (9.0, "cpu0")]);
        assert_eq!(
            when(&same, 1.0),
            "0 s to 2 s, 4 s to 6 s (trainer), 8 s to 10 s (cpu0)"
        );
        let alike = of(&[(1.0, "trainer"), (1.2, "trainer"), (9.0, "trainer")]);
        assert_eq!(when(&alike, 1.0), "0 s to 2 s, 8 s to 10 s (trainer)");
    }

    #[test]
    fn short_breaks_are_bridged_and_long_ones_are_not() {
        let snapshots = Snapshots::of(&node(1000));
        // A hundredth of 1000 s: a break of 9 s is bridged, one of 10 s is not.
        let held = |at: usize| matches!(at, 0..=99 | 109..=199 | 210..=219);
        assert_eq!(runs(&snapshots, held), [0..200, 210..220]);
        assert_eq!(runs(&snapshots, |_| false), []);
        assert_eq!(runs(&Snapshots::of(&node(0)), |_| true), []);
        // One snapshot is bridged in a recording of any length.
        let snapshots = Snapshots::of(&node(6));
        assert_eq!(runs(&snapshots, |at| at != 2).len(), 1);
        assert_eq!(runs(&snapshots, |at| !matches!(at, 1 | 2)), [0..1, 3..6]);
    }

    #[test]
    fn of_many_runs_the_longest_stay_in_order() {
        let snapshots = Snapshots::of(&node(4000));
        // 40 runs, 100 apart, the n-th of n + 1 snapshots.
        let runs = runs(&snapshots, |at| at % 100 <= at / 100);
        assert_eq!(runs.len(), 20);
        assert_eq!(runs[0], 2000..2021);
        assert_eq!(runs[19], 3900..3940);
    }

    #[test]
    fn steps_that_reach_into_the_time_count() {
        let mut node = node(10);
        for step in 0..5 {
            let name = node.name(span::STEP);
            node.spans.push(Span {
                name,
                start: 2.0 * step as f64,
                duration: 1.5,
                step: Some(step),
                worker: None,
                bytes: None,
            });
        }
        assert_eq!(of_time(&node, 3.0, 6.5, String::new()).steps, Some((1, 3)));
        assert_eq!(of_time(&node, 3.6, 3.9, String::new()).steps, None);
        assert_eq!(of_time(&node, 3.2, 3.3, String::new()).steps, Some((1, 1)));
    }

    #[test]
    fn long_times_are_clocks() {
        assert_eq!(moment(599.4), "599 s");
        assert_eq!(moment(600.0), "0:10:00");
        assert_eq!(moment(201_604.6), "56:00:05");
    }

    #[test]
    fn long_lists_are_cut() {
        assert_eq!(list(&["cpu0", "cpu1"]), "cpu0, cpu1");
        let names = ["a", "b", "c", "d", "e", "f", "g", "h", "i"];
        assert_eq!(list(&names), "a, b, c, d, e, f, g and 2 more");
    }
}
