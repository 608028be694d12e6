//! Dataloader: the loader has fewer or more busy workers than the cores can use.
//!
//! For every second in which a `DataLoaderWorker` was busy, the busy workers are counted. With more than 10
//! such seconds, the rule fires if the median (truncated to an integer) is below `min_threshold` percent of
//! the machine's cores, or above `max_threshold` percent of them.
//!
//! smdebug counts a worker only in the second in which its batch began, and so undercounts slow workers; we
//! count it in every second of its work. Few workers are no fault if the trainer does not wait, so our own
//! defaults accept a quarter of the cores; `LoaderBound` tells whether more would help.

use std::collections::{BTreeMap, HashMap};

use serde_json::json;
use stokehold_profile::{Node, dimension, span};

use crate::rules::case::Case;
use crate::rules::evidence::of_time;
use crate::rules::parameters::{Parameter, Range};
use crate::rules::statistics::{Sorted, histogram};
use crate::rules::{Finding, Rule};

pub(super) const RULE: Rule = Rule {
    name: "Dataloader",
    detects: "too few or too many loader workers for the cores",
    parameters: &[
        Parameter {
            name: "min_threshold",
            meaning: "busy workers, percent of the cores; too few below",
            range: Range::Number(0.0, f64::INFINITY),
            defaults: [25.0, 70.0, 70.0],
        },
        Parameter {
            name: "max_threshold",
            meaning: "busy workers, percent of the cores; too many above",
            range: Range::Number(0.0, f64::INFINITY),
            defaults: [200.0; 3],
        },
    ],
    judge,
};

/// More than this many seconds with busy workers are needed, as in smdebug.
const ENOUGH: u64 = 10;

fn judge(case: &Case) -> Finding {
    let mut finding = case.finding();
    let (mut sentences, mut judged) = (Vec::new(), false);
    let mut times = Vec::new();
    for node in case.nodes() {
        let cores = node.of(dimension::CPU).count();
        let spans = || node.spans_of(span::WORKER);
        let Some(busy) = busy_workers(node).filter(|_| cores > 0) else {
            continue;
        };
        finding.datapoints += spans().count() as u64;
        times.extend(
            spans()
                .map(|span| span.duration)
                .filter(|seconds| seconds.is_finite()),
        );
        let (median, workers) = (busy.median(), busy.workers);
        let percent = 100.0 * median as f64 / cores as f64;
        finding.details["cores"] = json!(cores);
        finding.details["dataloaders"] = json!(median);
        finding.details["num_workers"] = json!(workers);
        if busy.seconds() <= ENOUGH {
            continue;
        }
        judged = true;
        let fault = match () {
            () if percent < case.number("min_threshold") => "fewer",
            () if percent > case.number("max_threshold") => "more",
            () => {
                sentences.push(format!(
                    "On {}, {median} workers were busy on {cores} cores.",
                    node.name
                ));
                continue;
            }
        };
        finding.triggered = true;
        finding.violations += 1;
        sentences.push(format!(
            "On {}, {median} workers were busy on {cores} cores ({percent:.0} %), {fault} than the cores can use.",
            node.name
        ));
        finding
            .evidence
            .push(of_time(node, busy.from, busy.to, format!("{workers} workers")));
    }
    if finding.datapoints == 0 {
        return case.missing("no work of loader workers was recorded, or no cores");
    }
    let sorted = Sorted::of(times.iter().copied());
    let (counts, edges) = histogram(&times, 100);
    finding.details["dataloading_time"] = json!({
        "p25": sorted.p(25.0),
        "p50": sorted.p(50.0),
        "p95": sorted.p(95.0),
        "probs": counts,
        "binedges": edges,
    });
    finding.judged = judged;
    finding.summary = match judged {
        true => sentences.join(" "),
        false => format!("Not judged before workers were busy in more than {ENOUGH} seconds."),
    };
    if finding.triggered {
        finding.recommendation =
            "Set the number of workers to about that of the cores; fewer where the trainer \
                                  needs cores itself."
                .to_owned();
    }
    finding
}

/// Seconds with busy workers: the range from the first to the last, and the number of busy workers in each.
struct Busy {
    from: f64,
    to: f64,
    /// The number of seconds, by number of workers.
    seconds: BTreeMap<u64, u64>,
    workers: usize,
}

impl Busy {
    fn seconds(&self) -> u64 {
        self.seconds.values().sum()
    }

    /// The median number of workers over the seconds, truncated to an integer.
    fn median(&self) -> u64 {
        let at = |place: u64| {
            let mut before = 0;
            let mut counts = self.seconds.iter();
            counts
                .find(|(_, seconds)| {
                    before += **seconds;
                    place < before
                })
                .map_or(0, |(workers, _)| *workers)
        };
        let last = self.seconds().saturating_sub(1);
        (at(last / 2) + at(last.div_ceil(2))) / 2
    }
}

fn busy_workers(node: &Node) -> Option<Busy> {
    let spans = || {
        node.spans_of(span::WORKER)
            .filter(|span| span.start.is_finite() && span.duration.is_finite())
    };
    let first = spans().next()?.start.floor();
    // Where the number of busy workers changes, and by how much. Spans are sorted by start, so adjacent
    // seconds of one worker become one change at their beginning and one at their end.
    let mut changes: BTreeMap<u64, i64> = BTreeMap::new();
    let mut until: HashMap<Option<u32>, u64> = HashMap::new();
    for span in spans() {
        let begin = (span.start - first) as u64;
        let end = ((span.end() - first).ceil() as u64).max(begin + 1);
        let known = until.entry(span.worker).or_insert(0);
        let begin = begin.max(*known);
        if end > begin {
            *changes.entry(begin).or_default() += 1;
            *changes.entry(end).or_default() -= 1;
            *known = end;
        }
    }
    let mut seconds: BTreeMap<u64, u64> = BTreeMap::new();
    let (mut workers, mut since, mut last) = (0i64, 0, 0);
    for (at, change) in changes {
        if workers > 0 {
            *seconds.entry(workers as u64).or_default() += at - since;
            last = at;
        }
        (workers, since) = (workers + change, at);
    }
    Some(Busy {
        from: first,
        to: first + last as f64,
        seconds,
        workers: until.len(),
    })
}
