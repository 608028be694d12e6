//! Decides which trials to stop early.

use std::cmp::Reverse;

use crate::History;
use crate::event::{Outcome, Report, Trial};
use crate::random::Random;
use crate::spec::{Against, Direction, EarlyStopping, Rule, Rungs, Strategy};

/// Whether to stop a trial after a report.
pub(crate) fn is_hopeless(history: &History, trial: &Trial, report: Report) -> bool {
    let spec = &history.spec;
    match (&spec.rungs, spec.strategy, spec.early_stopping.rule) {
        (Some(rungs), Strategy::Hyperband, _) => {
            let bracket = bracket(rungs, spec.seed, trial.number);
            let peers = |other: &Trial| self::bracket(rungs, spec.seed, other.number) == bracket;
            falls(history, trial, report, rungs, bracket, peers)
        }
        (Some(rungs), _, Rule::Asha) => falls(history, trial, report, rungs, 0, |_| true),
        (_, _, Rule::Auto) => is_below_median(history, trial, report, &spec.early_stopping),
        _ => false,
    }
}

/// A trial that was stopped at a rung and is now among the best there, because later ones were worse: the one
/// that has come farthest.
pub(crate) fn to_promote(history: &History) -> Option<usize> {
    history.spec.rungs.as_ref()?;
    let candidates = history.trials.iter().filter_map(|trial| {
        let is_stopped = matches!(trial.outcome, Some(Outcome::Stopped { .. }));
        let stop = trial.stop.filter(|_| is_stopped)?;
        let report = trial.reports.iter().find(|report| report.step == stop)?;
        (!is_hopeless(history, trial, *report)).then_some((stop, Reverse(trial.number)))
    });
    candidates.max().map(|(_, Reverse(number))| number)
}

/// The median rule.
fn is_below_median(history: &History, trial: &Trial, report: Report, rule: &EarlyStopping) -> bool {
    let direction = history.spec.direction;
    if trial.reports.len() < rule.grace_reports {
        return false;
    }
    let is_compared = |other: &&Trial| match rule.against {
        Against::Earlier => {
            other.number < trial.number && !matches!(other.outcome, Some(Outcome::Failed { .. }))
        }
        Against::Completed => matches!(other.outcome, Some(Outcome::Completed { .. })),
    };
    let mut averages: Vec<f64> = history
        .trials
        .iter()
        .filter(is_compared)
        .filter_map(|other| running_average(other, report.step))
        .map(|average| direction.loss(average))
        .collect();
    if averages.len() < rule.min_trials {
        return false;
    }
    let own = match rule.against {
        Against::Earlier => direction.loss(report.value),
        Against::Completed => best_so_far(direction, trial, report.step),
    };
    own > median(&mut averages)
}

/// The mean of a trial's reports up to a step; `None` if it has not reached that step.
fn running_average(trial: &Trial, step: u64) -> Option<f64> {
    let reached = trial.reports.last().is_some_and(|report| report.step >= step);
    let upto: Vec<f64> = trial
        .reports
        .iter()
        .take_while(|report| report.step <= step)
        .map(|report| report.value)
        .collect();
    (reached && !upto.is_empty()).then(|| upto.iter().sum::<f64>() / upto.len() as f64)
}

fn best_so_far(direction: Direction, trial: &Trial, step: u64) -> f64 {
    let upto = trial.reports.iter().take_while(|report| report.step <= step);
    upto.map(|report| direction.loss(report.value))
        .fold(f64::INFINITY, f64::min)
}

pub(crate) fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => values[n / 2],
        n => (values[n / 2 - 1] + values[n / 2]) / 2.0,
    }
}

/// Asynchronous successive halving (Li and others, 2020), in a form that never waits: at each rung a trial
/// continues if it is among the best 1 of `reduction` of those that have reached the rung. Otherwise it is
/// stopped, and [continues](to_promote) when it has become one of them.
fn falls(
    history: &History,
    trial: &Trial,
    report: Report,
    rungs: &Rungs,
    bracket: u32,
    is_peer: impl Fn(&Trial) -> bool,
) -> bool {
    let direction = history.spec.direction;
    let first = rungs
        .min_steps
        .saturating_mul(rungs.reduction.saturating_pow(bracket));
    let mut rung = first;
    // A trial that reports only every few steps is compared at the rung that it has just passed.
    let before = trial
        .reports
        .iter()
        .rev()
        .find(|other| other.step < report.step)
        .map_or(0, |other| other.step);
    while rung <= before {
        rung = rung.saturating_mul(rungs.reduction);
    }
    if rung > report.step || rung >= rungs.max_steps {
        return false;
    }
    let at_rung = |other: &Trial| {
        let upto = other.reports.iter().find(|report| report.step >= rung)?;
        Some(direction.loss(upto.value))
    };
    let mut all: Vec<f64> = history
        .trials
        .iter()
        .filter(|other| other.number != trial.number && is_peer(other))
        .filter_map(at_rung)
        .collect();
    let own = direction.loss(report.value);
    all.push(own);
    all.sort_by(f64::total_cmp);
    let goes_on = (all.len() / rungs.reduction as usize).max(1);
    own > all[goes_on - 1]
}

/// Hyperband's brackets differ in their first rung: the first bracket has all rungs, the last one none. A
/// trial's bracket is drawn so that each bracket gets about the same number of steps.
fn bracket(rungs: &Rungs, seed: u64, trial: usize) -> u32 {
    let mut weights = Vec::new();
    let mut first = rungs.min_steps;
    let all = std::iter::successors(Some(rungs.min_steps), |rung| rung.checked_mul(rungs.reduction))
        .take_while(|rung| *rung < rungs.max_steps)
        .count();
    for bracket in 0..=all {
        // The average number of steps of a trial in this bracket: one of `reduction` reaches the next rung.
        let levels = (all - bracket) as f64;
        weights.push(1.0 / (first.min(rungs.max_steps) as f64 * (levels + 1.0)));
        first = first.saturating_mul(rungs.reduction);
    }
    let mut at = Random::of(seed ^ 0xb4ac_4e75, trial).unit() * weights.iter().sum::<f64>();
    for (bracket, weight) in weights.iter().enumerate() {
        at -= weight;
        if at < 0.0 {
            return bracket as u32;
        }
    }
    all as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Spec;
    use crate::{Parameter, Range, Values};

    fn history(rule: EarlyStopping, curves: &[&[f64]]) -> History {
        let parameters = [(
            "x".to_owned(),
            Parameter::from(Range::Categorical {
                values: vec![1.into()],
            }),
        )];
        let mut spec = Spec::new("loss", parameters.into());
        spec.early_stopping = rule;
        let mut history = History::new(spec, 0.0, Vec::new());
        history.trials = curves
            .iter()
            .enumerate()
            .map(|(number, curve)| Trial {
                number,
                values: Values::new(),
                origin: crate::Origin::Strategy,
                worker: String::new(),
                attempt: 1,
                asked: 0.0,
                ended: None,
                reports: curve
                    .iter()
                    .zip(1..)
                    .map(|(value, step)| Report {
                        step,
                        value: *value,
                        time: 0.0,
                    })
                    .collect(),
                stop: None,
                outcome: None,
            })
            .collect();
        history
    }

    fn last_stops(history: &History) -> bool {
        let trial = history.trials.last().unwrap();
        is_hopeless(history, trial, *trial.reports.last().unwrap())
    }

    fn auto(against: Against) -> EarlyStopping {
        EarlyStopping {
            rule: Rule::Auto,
            against,
            grace_reports: 1,
            min_trials: 2,
        }
    }

    /// Worked by hand: at step 2 the running averages of the others are 1.5, 3.5 and 2; their median is 2.
    #[test]
    fn the_median_rule_as_in_the_reference() {
        let others: [&[f64]; 3] = [&[2.0, 1.0], &[4.0, 3.0], &[2.0, 2.0, 0.1]];
        for (own, stops) in [([9.0, 1.9], false), ([1.0, 2.0], false), ([0.1, 2.1], true)] {
            let curves = [others[0], others[1], others[2], &own];
            assert_eq!(
                last_stops(&history(auto(Against::Earlier), &curves)),
                stops,
                "{own:?}"
            );
        }
        // Later trials do not count, and neither do trials that have not reached the step.
        let mut few = history(auto(Against::Earlier), &[&[1.0, 1.0], &[9.0, 9.0], &[1.0, 1.0]]);
        few.trials.swap(1, 2);
        few.trials[1].number = 5;
        assert!(!last_stops(&few), "one earlier trial is fewer than two");
        let short = history(auto(Against::Earlier), &[&[1.0], &[1.0, 1.0], &[9.0, 9.0]]);
        assert!(!last_stops(&short));
    }

    #[test]
    fn the_switch_compares_the_best_so_far_with_completed_trials() {
        let curves: [&[f64]; 4] = [&[2.0, 1.0], &[4.0, 3.0], &[2.0, 2.0], &[0.1, 9.0]];
        let mut all = history(auto(Against::Completed), &curves);
        assert!(!last_stops(&all), "nothing is completed");
        for trial in &mut all.trials[..3] {
            trial.outcome = Some(Outcome::Completed { value: 0.0 });
        }
        assert!(!last_stops(&all), "0.1 was its best");
        all.trials[3].reports[0].value = 2.5;
        assert!(last_stops(&all));
        all.spec.direction = Direction::Maximize;
        assert!(!last_stops(&all));
    }

    #[test]
    fn grace_and_the_smallest_number_are_kept() {
        let curves: [&[f64]; 3] = [&[1.0, 1.0], &[1.0, 1.0], &[9.0, 9.0]];
        assert!(last_stops(&history(auto(Against::Earlier), &curves)));
        let grace = EarlyStopping {
            grace_reports: 3,
            ..auto(Against::Earlier)
        };
        assert!(!last_stops(&history(grace, &curves)));
        let more = EarlyStopping {
            min_trials: 3,
            ..auto(Against::Earlier)
        };
        assert!(!last_stops(&history(more, &curves)));
    }

    #[test]
    fn of_three_at_a_rung_one_goes_on() {
        let asha = EarlyStopping {
            rule: Rule::Asha,
            ..EarlyStopping::default()
        };
        for (own, stops) in [(0.5, false), (1.5, true)] {
            let mut all = history(asha.clone(), &[&[1.0], &[2.0], &[own]]);
            all.spec.rungs = Some(Rungs {
                min_steps: 1,
                max_steps: 9,
                reduction: 3,
            });
            assert_eq!(last_stops(&all), stops, "{own}");
        }
        // Between rungs nothing is compared; the next one is 3.
        let mut between = history(asha, &[&[1.0, 1.0], &[2.0, 1.0], &[9.0, 9.0]]);
        between.spec.rungs = Some(Rungs {
            min_steps: 1,
            max_steps: 9,
            reduction: 3,
        });
        assert!(!last_stops(&between));
    }

    #[test]
    fn brackets_share_the_steps() {
        let rungs = Rungs {
            min_steps: 1,
            max_steps: 27,
            reduction: 3,
        };
        let mut steps = [0.0; 4];
        for trial in 0..20_000 {
            let bracket = bracket(&rungs, 7, trial) as usize;
            steps[bracket] += 3_f64.powi(bracket as i32) * (4 - bracket) as f64;
        }
        let all: f64 = steps.iter().sum();
        assert!(
            steps.iter().all(|share| (share / all - 0.25).abs() < 0.05),
            "{steps:?}"
        );
    }
}
