//! Imbalance: of machines that train together, one slows the others down.
//!
//! Machines are compared by the mean seconds of their training steps and of the waits for their batches. The
//! rule fires if, for one of the two, the largest mean exceeds the smallest by more than `threshold` percent
//! of a mean step with its wait (the mean over the machines). If machines exchange gradients in every step,
//! one that waits longer for data makes the others' steps longer; so the summary names the machine that waits
//! most before the one that computes longest.
//!
//! The time in which all machines have steps is divided into 50 parts, and the evidence names the parts with
//! an imbalance. Ranks that share a machine are not told apart, because spans do not name their process.

use serde_json::json;
use stokehold_profile::Node;

use crate::rules::case::Case;
use crate::rules::evidence::{bridged, of_time};
use crate::rules::parameters::{Parameter, Range};
use crate::rules::steps::steps;
use crate::rules::{Evidence, Finding, Rule};

pub(super) const RULE: Rule = Rule {
    name: "Imbalance",
    detects: "machines that train together at different speeds",
    parameters: &[
        Parameter {
            name: "threshold",
            meaning: "difference of the machines' mean steps or waits, percent of a mean step with its wait; fires above",
            range: Range::Number(0.0, f64::INFINITY),
            defaults: [20.0; 3],
        },
        Parameter {
            name: "patience",
            meaning: "training steps of each machine; judged with more",
            range: Range::Count(0),
            defaults: [10.0; 3],
        },
    ],
    judge,
};

/// Steps of a machine, or of a part of the time.
#[derive(Clone, Copy, Default)]
struct Sum {
    count: u64,
    waited: f64,
    computed: f64,
}

impl Sum {
    fn add(&mut self, waited: f64, computed: f64) {
        self.count += 1;
        self.waited += waited;
        self.computed += computed;
    }

    fn mean_wait(&self) -> f64 {
        self.waited / self.count as f64
    }

    fn mean_step(&self) -> f64 {
        self.computed / self.count as f64
    }
}

/// The difference between machines: the slowest machine, and the difference in percent of a mean step with
/// its wait.
#[derive(Clone, Copy)]
struct Difference {
    longest: usize,
    percent: f64,
}

fn difference(sums: &[Sum], of: impl Fn(&Sum) -> f64) -> Difference {
    let mean = sums
        .iter()
        .map(|sum| sum.mean_wait() + sum.mean_step())
        .sum::<f64>()
        / sums.len() as f64;
    let longest = (0..sums.len())
        .max_by(|a, b| of(&sums[*a]).total_cmp(&of(&sums[*b])))
        .unwrap_or(0);
    let shortest = sums.iter().map(&of).fold(f64::INFINITY, f64::min);
    let percent = 100.0 * (of(&sums[longest]) - shortest) / mean;
    Difference {
        longest,
        percent: if percent.is_finite() { percent } else { 0.0 },
    }
}

fn judge(case: &Case) -> Finding {
    let nodes: Vec<&Node> = case
        .nodes()
        .iter()
        .filter(|node| steps(node).next().is_some())
        .collect();
    if nodes.len() < 2 {
        return case.missing("no training steps of several machines were recorded");
    }
    let mut finding = case.finding();
    let sums: Vec<Sum> = nodes.iter().map(|node| sum(node)).collect();
    finding.datapoints = sums.iter().map(|sum| sum.count).sum();
    for (node, sum) in nodes.iter().zip(&sums) {
        finding.details[&node.name] =
            json!({"steps": sum.count, "mean_wait": sum.mean_wait(), "mean_step": sum.mean_step()});
    }
    let (wait, step) = (
        difference(&sums, Sum::mean_wait),
        difference(&sums, Sum::mean_step),
    );
    finding.details["wait_difference"] = json!(wait.percent);
    finding.details["step_difference"] = json!(step.percent);
    let threshold = case.number("threshold");
    let patient = sums.iter().all(|sum| sum.count > case.count("patience"));
    let mut sentences = Vec::new();
    for (what, difference, mean) in [
        ("waits for data", wait, Sum::mean_wait as fn(&Sum) -> f64),
        ("computes a step", step, Sum::mean_step),
    ] {
        let least = sums.iter().map(mean).fold(f64::INFINITY, f64::min);
        if difference.percent > threshold {
            finding.triggered |= patient;
            finding.violations += 1;
            sentences.push(format!(
                "{} {what} longest, {:.3} s on average where the shortest is {least:.3} s ({:.0} % of a step with its \
                 wait).",
                nodes[difference.longest].name,
                mean(&sums[difference.longest]),
                difference.percent,
            ));
        }
    }
    finding.summary = match (sentences.is_empty(), patient) {
        (true, _) => format!("{} machines wait and compute alike.", nodes.len()),
        (false, true) => sentences.join(" "),
        (false, false) => format!(
            "{} Not judged before more than {} steps of each.",
            sentences.join(" "),
            case.number("patience")
        ),
    };
    finding.judged = patient || sentences.is_empty();
    finding.evidence = evidence(&nodes, threshold);
    if finding.triggered {
        finding.recommendation =
            "Look at the machine that waits longest for data: its disk, its cores, what else runs \
                                  there. Where none waits, at the clocks and the temperature of its GPUs."
                .to_owned();
    }
    finding
}

fn sum(node: &Node) -> Sum {
    let mut sum = Sum::default();
    for step in steps(node) {
        sum.add(step.waited, step.span.duration);
    }
    sum
}

/// The parts of the common time in which a machine was apart.
fn evidence(nodes: &[&Node], threshold: f64) -> Vec<Evidence> {
    const PARTS: usize = 50;
    let extent = |node: &&Node| {
        let ends = steps(node).map(|step| (step.from, step.span.end()));
        ends.reduce(|(a, b), (c, d)| (a.min(c), b.max(d)))
    };
    let common = nodes
        .iter()
        .filter_map(extent)
        .reduce(|(a, b), (c, d)| (a.max(c), b.min(d)));
    let Some((start, end)) = common.filter(|(start, end)| end > start) else {
        return Vec::new();
    };
    let length = (end - start) / PARTS as f64;
    let mut parts = vec![vec![Sum::default(); nodes.len()]; PARTS];
    for (place, node) in nodes.iter().enumerate() {
        for step in steps(node).filter(|step| (start..end).contains(&step.span.start)) {
            let part = ((step.span.start - start) / length) as usize;
            parts[part.min(PARTS - 1)][place].add(step.waited, step.span.duration);
        }
    }
    // For each machine, the parts in which it was the slowest.
    let mut apart: Vec<Vec<(f64, f64)>> = vec![Vec::new(); nodes.len()];
    for (at, sums) in parts.iter().enumerate() {
        if sums.iter().any(|sum| sum.count == 0) {
            continue;
        }
        let differences = [difference(sums, Sum::mean_wait), difference(sums, Sum::mean_step)];
        if let Some(one) = differences.iter().find(|one| one.percent > threshold) {
            let from = start + at as f64 * length;
            apart[one.longest].push((from, from + length));
        }
    }
    let of_node = |(node, times): (&&Node, Vec<(f64, f64)>)| -> Vec<Evidence> {
        let times = bridged(times, end - start).into_iter();
        times
            .map(|(from, to)| of_time(node, from, to, "trainer".to_owned()))
            .collect()
    };
    nodes.iter().zip(apart).flat_map(of_node).collect()
}
