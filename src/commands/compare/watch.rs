//! The progress of a comparison: a bar on a terminal, lines elsewhere.

use std::path::Path;

use indicatif::ProgressBar;
use stokehold_base::words::plural;
use stokehold_compare::{Cell, Event, Observer, Plan, Report};

use crate::progress;
use crate::terminal::note;

/// The bar's length for a cell.
const CELL: u64 = 1000;

/// Shows the cells one after the other.
pub struct Watch {
    bar: ProgressBar,
    cells: u64,
    plan: Plan,
    /// The current cell, from 1.
    number: u64,
    name: String,
}

impl Watch {
    /// For a comparison in the folder `out`.
    pub fn new(report: &Report, out: &Path) -> Self {
        for line in report.what() {
            note!("{line}");
        }
        let cells = report.plan.cells().len();
        note!("{}, in {}", plural(cells, "cell"), out.display());
        let kept = report
            .plan
            .cells()
            .into_iter()
            .filter(|&(model, load)| report.is_kept(model, load))
            .count();
        if kept > 0 {
            note!(
                "{kept} of {} are kept and not measured again; remove {}, or give another --out, to measure anew",
                plural(cells, "cell"),
                out.display()
            );
        }
        Self {
            bar: progress::bar(
                CELL * cells as u64,
                "{msg}\n{bar:40} {percent} %, at most {eta} left",
            ),
            cells: cells as u64,
            plan: report.plan.clone(),
            number: 0,
            name: String::new(),
        }
    }

    /// Removes the bar.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }

    /// Prints a line that stays.
    fn say(&self, line: &str) {
        self.bar.suspend(|| note!("{line}"));
    }

    /// Sets the bar to this share of the current cell.
    fn at(&self, share: f64) {
        let within = (CELL as f64 * share.clamp(0.0, 1.0)) as u64;
        self.bar.set_position(CELL * (self.number.max(1) - 1) + within);
    }
}

/// `fused 60.1 % [59.8, 60.4]` for every trial but A.
fn gains(cell: &Cell) -> String {
    let each = cell.trials.iter().filter_map(|trial| {
        let gain = trial.summary?.gain?;
        Some(format!(
            "{} {:.1} % [{:.1}, {:.1}]",
            trial.trial, gain.better_by, gain.low, gain.high
        ))
    });
    each.collect::<Vec<_>>().join(", ")
}

impl Observer for Watch {
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Note(text) => self.say(&format!("warning: {text}")),
            Event::Cell { number, of, cell } => {
                self.number = number as u64;
                self.name = format!("cell {number}/{of}: {}, load {}", cell.model, cell.load);
                self.at(0.0);
                self.bar.set_message(self.name.clone());
            }
            Event::Starting(trial) => self
                .bar
                .set_message(format!("{} · warming {trial} up", self.name)),
            Event::Failed(trial, failure) => self.say(&format!("{}: {trial}: {}", self.name, failure.text())),
            Event::Pair(cell) => {
                self.at(cell.progress(&self.plan));
                let pairs = plural(cell.pairs() as usize, "pair");
                self.bar
                    .set_message(format!("{} · {pairs} · {}", self.name, gains(cell)));
            }
            Event::CellDone(cell) => {
                self.at(1.0);
                let pairs = plural(cell.pairs() as usize, "pair");
                let gains = gains(cell);
                self.say(&match gains.is_empty() {
                    true => format!("{}: {pairs}; nothing to compare", self.name),
                    false => format!("{}: {pairs}; better by {gains}", self.name),
                });
            }
            Event::EqualWork => {
                self.bar.set_position(CELL * self.cells);
                self.bar
                    .set_message("a short real training of the native trials, as evidence of equal work");
                if self.bar.is_hidden() {
                    note!("a short real training of the native trials, as evidence of equal work");
                }
            }
            _ => {}
        }
    }
}
