//! SmallFiles: data is read in many small pieces.
//!
//! If the loader marks its reads with their bytes (spans named `read`), each counts as an open, and every
//! second is tested: it has small files if more than `opens_threshold` files were opened in it, with less
//! than `bytes_threshold` bytes on average. Otherwise the read calls of the process tree are used instead,
//! sample by sample, with `calls_threshold` and `call_bytes_threshold`; programs read in smaller pieces than
//! files, and for other reasons, so these thresholds differ, and the finding says which of the two was used.
//! The rule fires if more than `threshold` percent of the seconds from the first read to the last, or of the
//! samples, have small files.

use std::collections::BTreeMap;
use std::ops::AddAssign;

use serde_json::json;
use stokehold_profile::{Node, Span, dimension, span};

use crate::rules::case::Case;
use crate::rules::evidence::{bridged, of_time};
use crate::rules::parameters::{PATIENCE, Parameter, Range};
use crate::rules::snapshot::Snapshots;
use crate::rules::{Finding, Rule};

pub(super) const RULE: Rule = Rule {
    name: "SmallFiles",
    detects: "data that is read in many small pieces",
    parameters: &[
        Parameter {
            name: "threshold",
            meaning: "share of the seconds or samples with small files, percent; fires above",
            range: Range::Percent,
            defaults: [20.0; 3],
        },
        Parameter {
            name: "opens_threshold",
            meaning: "files opened per second; many above",
            range: Range::Number(0.0, f64::INFINITY),
            defaults: [200.0; 3],
        },
        Parameter {
            name: "bytes_threshold",
            meaning: "bytes of an open; small below",
            range: Range::Number(0.0, f64::INFINITY),
            defaults: [65_536.0; 3],
        },
        Parameter {
            name: "calls_threshold",
            meaning: "read calls per second; many above",
            range: Range::Number(0.0, f64::INFINITY),
            defaults: [1000.0; 3],
        },
        Parameter {
            name: "call_bytes_threshold",
            meaning: "bytes of a read call; small below",
            range: Range::Number(0.0, f64::INFINITY),
            defaults: [16_384.0; 3],
        },
        PATIENCE,
    ],
    judge,
};

/// The number of reads, and their bytes.
#[derive(Clone, Copy, Default)]
struct Reads {
    count: f64,
    bytes: f64,
}

impl AddAssign for Reads {
    fn add_assign(&mut self, other: Self) {
        self.count += other.count;
        self.bytes += other.bytes;
    }
}

/// Reads of a machine: for each piece of time with reads its start, its end and the reads per second in it.
struct Recorded {
    opens: bool,
    pieces: Vec<(f64, f64, Reads)>,
    /// The number of pieces, including those without reads.
    count: u64,
}

fn judge(case: &Case) -> Finding {
    let mut finding = case.finding();
    let mut sentences = Vec::new();
    for node in case.nodes() {
        let Some(recorded) = opens(node).or_else(|| calls(node)) else {
            continue;
        };
        let [many, small] = match recorded.opens {
            true => ["opens_threshold", "bytes_threshold"],
            false => ["calls_threshold", "call_bytes_threshold"],
        }
        .map(|name| case.number(name));
        let has_small = |reads: &Reads| reads.count > many && reads.bytes < small * reads.count;
        let mut all = Reads::default();
        let mut slow = Vec::new();
        for (from, to, reads) in &recorded.pieces {
            all += *reads;
            if has_small(reads) {
                slow.push((*from, *to));
            }
        }
        let count = recorded.count;
        let share = 100.0 * slow.len() as f64 / count.max(1) as f64;
        finding.triggered |= share > case.number("threshold") && count > case.count("patience");
        finding.violations += slow.len() as u64;
        finding.datapoints = finding.datapoints.saturating_add(count);
        let (per_second, bytes) = (all.count / count.max(1) as f64, all.bytes / all.count.max(1e-9));
        let (by, what, each) = match recorded.opens {
            true => (
                "opens",
                "files were opened",
                "bytes per open, as the loader marked its reads",
            ),
            false => (
                "calls",
                "read calls were made",
                "bytes per call, since the loader marked no reads",
            ),
        };
        finding.details[&node.name] =
            json!({"judged_by": by, "per_second": per_second, "bytes": bytes, "share": share});
        sentences.push(format!(
            "On {}, {per_second:.0} {what} per second, with {bytes:.0} {each}; {share:.0} % of the time more than {many} \
             of less than {small} bytes.",
            node.name
        ));
        let extent = match (recorded.pieces.first(), recorded.pieces.last()) {
            (Some(first), Some(last)) => last.1 - first.0,
            _ => 0.0,
        };
        let times = bridged(slow, extent).into_iter();
        finding
            .evidence
            .extend(times.map(|(from, to)| of_time(node, from, to, "storage".to_owned())));
    }
    if sentences.is_empty() {
        return case.missing("neither reads with their bytes nor read calls of the processes were recorded");
    }
    finding.summary = sentences.join(" ");
    if finding.triggered {
        finding.recommendation = "Pack the files into shards, which are read in large pieces.".to_owned();
    }
    finding
}

/// The loader's reads, by the second in which they end.
fn opens(node: &Node) -> Option<Recorded> {
    let usable = |span: &&Span| span.bytes.is_some() && span.end().is_finite();
    let reads = || node.spans_of(span::READ).filter(usable);
    let first = reads().map(Span::end).reduce(f64::min)?;
    let mut seconds: BTreeMap<u64, Reads> = BTreeMap::new();
    for span in reads() {
        *seconds.entry((span.end() - first) as u64).or_default() += Reads {
            count: 1.0,
            bytes: span.bytes.unwrap_or(0) as f64,
        };
    }
    let count = seconds
        .last_key_value()
        .map_or(0, |(last, _)| last.saturating_add(1));
    let piece = |(second, reads): (u64, Reads)| (first + second as f64, first + second as f64 + 1.0, reads);
    Some(Recorded {
        opens: true,
        pieces: seconds.into_iter().map(piece).collect(),
        count,
    })
}

/// The read calls of the process tree, by sample.
fn calls(node: &Node) -> Option<Recorded> {
    let calls = node.of(dimension::PROCESS_READS).next()?;
    let bytes = node.of(dimension::PROCESS_READ).next()?;
    let snapshots = Snapshots::of(node);
    let mut reads = vec![
        Reads {
            count: f64::NAN,
            bytes: f64::NAN
        };
        snapshots.len()
    ];
    snapshots.each(calls, |at, value| reads[at].count = f64::from(value));
    snapshots.each(bytes, |at, value| reads[at].bytes = f64::from(value));
    let known = reads
        .into_iter()
        .enumerate()
        .filter(|(_, reads)| !(reads.count + reads.bytes).is_nan());
    let piece = |(at, reads): (usize, Reads)| {
        let (from, to) = snapshots.time(at);
        (from, to, reads)
    };
    let pieces: Vec<_> = known.map(piece).collect();
    Some(Recorded {
        opens: false,
        count: pieces.len() as u64,
        pieces,
    })
    .filter(|recorded| recorded.count > 0)
}
