//! Tests whether the numbers tell two trials apart: one test for the headline, the table and the text.
//!
//! Epochs of the same work differ for two reasons. One epoch of a run takes longer than another: that is the
//! variance of the run's epochs. And one run is slower than another because of other programs, the clock rate
//! and the memory: that is the same for all epochs of a run, so no number of epochs shows it. But every run
//! measures its trainer alone, which does the same work in all runs of a model, and the variance of those
//! speeds estimates the variance between runs.
//!
//! So with the cells of a model, in which run r has the mean m of n epochs whose variance is s², and with the
//! relative variance v of the trainer alone over the model's k runs,
//!
//! ```text
//! D = mean over the cells of (m of A - m of B)
//! V = sum over the runs of (s²/n + v m²) / cells²
//! t = D / sqrt(V)
//! ```
//!
//! is tested with Student's distribution, two-sided, with the degrees of freedom of Welch and Satterthwaite:
//! n - 1 for each s², k - 1 for v. The probability of a difference by chance is multiplied by the number of
//! tests (Bonferroni): one per model in the headline, one per cell in the table.

use stokehold_base::student::{LEVEL, chance, variance};
use stokehold_train::model::Arch;

use super::report::{Cell, Report, Trial};

/// What can be said of two trials. The number is the probability that chance alone makes a difference of at
/// least this size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Verdict {
    /// B's epochs are shorter.
    Faster(f64),
    /// B's epochs are longer.
    Slower(f64),
    /// Chance may explain the difference.
    Unclear(f64),
    /// The test is not possible, and why.
    Unknown(&'static str),
}

impl Verdict {
    /// For one cell of a report.
    pub fn of_cell(report: &Report, cell: &Cell) -> Self {
        Self::of(report, &[cell], report.cells.len())
    }

    /// For a model over all its loads.
    pub fn of_model(report: &Report, model: Arch) -> Self {
        Self::of(report, &report.cells_of(model), report.models().len())
    }

    /// Whether the difference is significant.
    pub fn is_shown(self) -> bool {
        matches!(self, Self::Faster(_) | Self::Slower(_))
    }

    /// For cells of one model, as one of `questions` tests.
    fn of(report: &Report, cells: &[&Cell], questions: usize) -> Self {
        let [a, b] = report.settings.trials.0;
        if a == b {
            return Self::Unknown("both trials are the same, so every difference is chance");
        }
        let runs = || cells.iter().flat_map(|cell| &cell.trials);
        if runs().any(|trial| trial.epoch_seconds.len() < 2) {
            return Self::Unknown("it takes two epochs of a run to see how far they differ by chance");
        }
        let Some((between, freedom)) = cells.first().and_then(|cell| between_runs(report, cell.model)) else {
            return Self::Unknown(
                "the trainer alone was not measured, which shows how far one run differs from the next",
            );
        };
        let cells_squared = (cells.len() * cells.len()) as f64;
        let epochs = runs().map(|trial| {
            let (count, variance) = (trial.epoch_seconds.len() as f64, variance(&trial.epoch_seconds));
            (variance / count / cells_squared, count - 1.0)
        });
        let squares: f64 = runs().map(|trial| trial.seconds_per_epoch().powi(2)).sum();
        let parts: Vec<(f64, f64)> = epochs
            .chain([(between * squares / cells_squared, freedom)])
            .collect();
        let difference = mean_of(cells, 0) - mean_of(cells, 1);
        let p = (questions as f64 * chance(difference, &parts)).min(1.0);
        match p <= LEVEL {
            true if difference > 0.0 => Self::Faster(p),
            true => Self::Slower(p),
            false => Self::Unclear(p),
        }
    }
}

/// Mean seconds per epoch of a trial, 0 or 1, over cells.
pub fn mean_of(cells: &[&Cell], trial: usize) -> f64 {
    let seconds = cells.iter().map(|cell| cell.trials[trial].seconds_per_epoch());
    seconds.sum::<f64>() / cells.len().max(1) as f64
}

/// The relative variance of the trainer alone over a model's runs, and its degrees of freedom; `None` if
/// fewer than two runs measured it.
fn between_runs(report: &Report, model: Arch) -> Option<(f64, f64)> {
    let runs = report.cells_of(model).into_iter().flat_map(|cell| &cell.trials);
    let rates: Vec<f64> = runs
        .filter_map(|trial: &Trial| trial.summary.trainer_ceiling)
        .collect();
    let mean = rates.iter().sum::<f64>() / rates.len() as f64;
    (rates.len() >= 2 && mean > 0.0).then(|| (variance(&rates) / (mean * mean), rates.len() as f64 - 1.0))
}

#[cfg(test)]
mod tests {
    use stokehold_base::random::Random;

    use super::*;
    use crate::commands::compare::report::tests::{cell, report};

    /// Numbers that are normally distributed, the same ones whenever they are drawn.
    struct Noise(Random);

    impl Noise {
        fn normal(&mut self) -> f64 {
            (0..12).map(|_| self.0.unit()).sum::<f64>() - 6.0
        }
    }

    /// A comparison of two epochs each at four loads, whose runs differ by `runs` and whose epochs by `epochs`, relatively. B takes
    /// `share` of A's time.
    fn comparison(noise: &mut Noise, runs: f64, epochs: f64, share: f64) -> Report {
        let mut report = report(
            [1, 4, 8, 12]
                .map(|load| cell(Arch::Resnet18, load, 10.0, 10.0 * share))
                .into(),
        );
        for trial in report.cells.iter_mut().flat_map(|cell| &mut cell.trials) {
            let mean = trial.seconds_per_epoch() * (1.0 + runs * noise.normal());
            trial.epoch_seconds = vec![0.0; 2];
            for seconds in &mut trial.epoch_seconds {
                *seconds = mean * (1.0 + epochs * noise.normal());
            }
            trial.summary.trainer_ceiling = Some(100.0 * (1.0 + runs * noise.normal()));
        }
        report
    }

    #[test]
    fn trials_that_are_the_same_are_never_told_apart() {
        let mut report = report(vec![cell(Arch::Resnet18, 1, 10.0, 5.0)]);
        let of = |report: &Report| Verdict::of_cell(report, &report.cells[0]);
        let a = report.settings.trials.0[0];
        report.settings.trials.0 = [a, a];
        assert!(matches!(of(&report), Verdict::Unknown(why) if why.contains("both trials are the same")));
    }

    #[test]
    fn chance_is_called_a_difference_in_one_of_twenty_at_most() {
        const TIMES: usize = 1000;
        let mut noise = Noise(Random::from_state(7));
        for (runs, epochs) in [(0.0, 0.02), (0.02, 0.0), (0.03, 0.02), (0.2, 0.05)] {
            let (mut models, mut tables, mut apart) = (0, 0, 0);
            for _ in 0..TIMES {
                let report = comparison(&mut noise, runs, epochs, 1.0);
                models += usize::from(Verdict::of_model(&report, Arch::Resnet18).is_shown());
                let any = |cell| Verdict::of_cell(&report, cell).is_shown();
                tables += usize::from(report.cells.iter().any(any));
                let [a, b] = report.cells[3].trials.each_ref().map(Trial::range);
                apart += usize::from(a.1 < b.0 || b.1 < a.0);
            }
            let share = |count| count as f64 / TIMES as f64;
            assert!(
                share(models) <= 0.065,
                "{runs} {epochs}: {} of the headlines",
                share(models)
            );
            assert!(
                share(tables) <= 0.065,
                "{runs} {epochs}: {} of the tables",
                share(tables)
            );
            // What epochs that do not overlap would have claimed.
            assert!(share(apart) > 0.28, "{}", share(apart));
        }
    }

    #[test]
    fn a_difference_that_is_there_is_found() {
        let mut noise = Noise(Random::from_state(11));
        let found = |noise: &mut Noise, share| {
            let found = (0..200).filter(|_| {
                let verdict = Verdict::of_model(&comparison(noise, 0.02, 0.01, share), Arch::Resnet18);
                matches!(verdict, Verdict::Faster(_))
            });
            found.count()
        };
        assert!(found(&mut noise, 0.9) > 190);
        assert!(found(&mut noise, 0.99) < 100);
        let slower = comparison(&mut noise, 0.02, 0.01, 1.2);
        assert!(matches!(
            Verdict::of_model(&slower, Arch::Resnet18),
            Verdict::Slower(_)
        ));
    }

    #[test]
    fn what_is_not_known_is_not_judged() {
        let mut one = report(vec![cell(Arch::Resnet18, 4, 40.0, 20.0)]);
        assert!(matches!(
            Verdict::of_cell(&one, &one.cells[0]),
            Verdict::Faster(_)
        ));
        for trial in &mut one.cells[0].trials {
            trial.summary.trainer_ceiling = None;
        }
        let verdict = Verdict::of_cell(&one, &one.cells[0]);
        assert!(
            matches!(verdict, Verdict::Unknown(why) if why.contains("trainer alone")),
            "{verdict:?}"
        );
        let mut one = report(vec![cell(Arch::Resnet18, 4, 40.0, 20.0)]);
        one.cells[0].trials[0].epoch_seconds.truncate(1);
        let verdict = Verdict::of_cell(&one, &one.cells[0]);
        assert!(
            matches!(verdict, Verdict::Unknown(why) if why.contains("two epochs")),
            "{verdict:?}"
        );
    }
}
