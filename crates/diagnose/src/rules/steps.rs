//! Training steps, each with the wait for its batch.

use std::collections::HashMap;

use stokehold_profile::{Node, Span, span};

/// A training step, with the time for which the trainer waited for its batch.
#[derive(Clone, Copy)]
pub(super) struct Step<'a> {
    pub span: &'a Span,
    /// When the trainer began to wait, unix seconds; the step's start if no wait is known.
    pub from: f64,
    /// Seconds waited; 0 if no wait is known.
    pub waited: f64,
    /// Seconds from the step's end until the trainer waits again or does something else that is recorded: a script's own work
    /// between `optimizer.step()` and the next batch.
    after: f64,
}

impl Step<'_> {
    /// Seconds from the step's start until the trainer waits again.
    pub fn lasted(&self) -> f64 {
        self.span.duration + self.after
    }

    /// When the trainer waits again.
    pub fn until(&self) -> f64 {
        self.span.end() + self.after
    }

    /// The share of waiting in wait and step together, percent.
    pub fn share(&self) -> f64 {
        let both = self.waited + self.lasted();
        if both > 0.0 {
            100.0 * self.waited / both
        } else {
            0.0
        }
    }
}

/// Times of today are known to a quarter of a microsecond, so shorter work does not count.
const SURE: f64 = 1e-6;

/// What ends the work after a step.
const ENDS: [&str; 7] = [
    span::WAIT,
    span::STEP,
    span::EVAL_STEP,
    span::LOADER_START,
    span::VALIDATION,
    span::CHECKPOINT,
    span::RANKS_WAIT,
];

/// The training steps of a node, by start. A step's wait is the latest one before it with the same number,
/// or, for spans without a number, the latest one.
pub(super) fn steps(node: &Node) -> impl Iterator<Item = Step<'_>> {
    let place = |name: &str| {
        node.names
            .iter()
            .position(|known| known == name)
            .map(|place| place as u32)
    };
    let (wait, step) = (place(span::WAIT), place(span::STEP));
    let mut waits: HashMap<Option<u64>, &Span> = HashMap::new();
    let usable = |span: &&Span| span.start.is_finite() && span.duration >= 0.0 && span.duration.is_finite();
    let ends = ENDS.map(place);
    let mut next: Vec<f64> = node
        .spans
        .iter()
        .filter(usable)
        .filter(|span| ends.contains(&Some(span.name)))
        .map(|span| span.start)
        .collect();
    next.sort_unstable_by(f64::total_cmp);
    node.spans.iter().filter(usable).filter_map(move |span| {
        if Some(span.name) == wait {
            waits.insert(span.step, span);
        }
        (Some(span.name) == step).then(|| {
            let wait = waits.remove(&span.step);
            let at = next.partition_point(|start| *start <= span.start);
            Step {
                span,
                from: wait.map_or(span.start, |wait| wait.start.min(span.start)),
                waited: wait.map_or(0.0, |wait| wait.duration),
                after: next
                    .get(at)
                    .map(|next| next - span.end())
                    .filter(|after| *after > SURE)
                    .unwrap_or_default(),
            }
        })
    })
}

/// Whether the node's trainer recorded its waits.
pub(super) fn has_waits(node: &Node) -> bool {
    node.spans_of(span::WAIT).next().is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_has_the_wait_of_its_number() {
        let mut node = Node::default();
        for (name, start, duration, step) in [
            (span::WAIT, 0.0, 1.0, Some(7)),
            (span::WAIT, 1.0, 3.0, Some(8)),
            (span::STEP, 4.0, 1.0, Some(7)),
            (span::STEP, 5.0, 1.0, Some(8)),
            (span::STEP, 6.0, 1.0, Some(9)),
            (span::WAIT, 7.0, 0.5, None),
            (span::STEP, 8.0, 0.0, None),
            (span::STEP, 9.0, f64::NAN, Some(10)),
            (span::STEP, 9.0, -1.0, Some(11)),
        ] {
            let name = node.name(name);
            node.spans.push(Span {
                name,
                start,
                duration,
                step,
                worker: None,
                bytes: None,
            });
        }
        let seen: Vec<_> = steps(&node)
            .map(|step| (step.span.step, step.from, step.waited, step.share()))
            .collect();
        assert_eq!(
            seen,
            [
                (Some(7), 0.0, 1.0, 50.0),
                (Some(8), 1.0, 3.0, 75.0),
                (Some(9), 6.0, 0.0, 0.0),
                (None, 7.0, 0.5, 100.0),
            ]
        );
    }
}
