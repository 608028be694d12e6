//! A study on a terminal: the best so far, and a line for each running trial. Without a terminal, a line for
//! each event.

use crate::terminal;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write as _};
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use stokehold_trials::run::{StudyEvent, seconds_left};
use stokehold_tune::{History, Outcome, Trial, in_words, short};

use super::best_so_far;

/// The most points of a trial's curve.
const SPARKS: usize = 16;

/// The output while a study runs.
pub struct Watch {
    /// `None` without a terminal.
    screen: Option<MultiProgress>,
    head: ProgressBar,
    trials: BTreeMap<usize, ProgressBar>,
}

impl Watch {
    /// An empty output.
    pub fn new() -> Self {
        let screen = io::stderr().is_terminal().then(MultiProgress::new);
        let line = line();
        Self {
            head: match &screen {
                Some(screen) => screen.add(line),
                None => line,
            },
            screen,
            trials: BTreeMap::new(),
        }
    }

    /// Prints a line that stays.
    pub fn say(&self, text: &str) {
        // The terminal or pipe may be gone; ignore that.
        let _ = match &self.screen {
            Some(screen) => screen.println(terminal::plain(text)),
            None => writeln!(terminal::err(), "{text}"),
        };
    }

    /// Shows an event.
    pub fn see(&mut self, event: &StudyEvent<'_>, history: &History) {
        match event {
            StudyEvent::Started(trial) => {
                let again = match (trial.attempt, trial.reports.last()) {
                    (_, Some(last)) => format!(" again behind step {}", last.step),
                    (1, None) => String::new(),
                    _ => " again".to_owned(),
                };
                match &self.screen {
                    Some(screen) => {
                        let bar = screen.add(line());
                        bar.set_message(running(trial));
                        self.trials.insert(trial.number, bar);
                    }
                    None => self.say(&format!(
                        "trial {} starts{again}: {}",
                        trial.number,
                        in_words(&trial.values)
                    )),
                }
            }
            StudyEvent::Reported(trial) => {
                if let Some(bar) = self.trials.get(&trial.number) {
                    bar.set_message(running(trial));
                }
            }
            StudyEvent::Ended(trial) => {
                if let Some(bar) = self.trials.remove(&trial.number) {
                    bar.finish_and_clear();
                }
                self.say(&format!("trial {} {}", trial.number, ended(trial)));
                if self.screen.is_none() {
                    self.say(&head(history));
                }
            }
            StudyEvent::Said(text) => self.say(text),
            StudyEvent::Tick => {}
        }
        if self.screen.is_some() {
            self.head.set_message(head(history));
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        for bar in self.trials.values().chain([&self.head]) {
            bar.finish_and_clear();
        }
    }
}

fn line() -> ProgressBar {
    // The template is a constant with only the message.
    let style = ProgressStyle::with_template("{wide_msg}").unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(0).with_style(style)
}

/// `4 of 20 jobs, 1 failed; best 0.12 with lr=0.01; about 3m left`.
fn head(history: &History) -> String {
    let counts = history.counts();
    let over = counts.completed + counts.stopped + counts.failed;
    let mut text = format!("{over} of {} jobs", history.spec.limits.max_jobs);
    for (count, what) in [(counts.stopped, "stopped early"), (counts.failed, "failed")] {
        if count > 0 {
            let _ = write!(text, ", {count} {what}");
        }
    }
    let _ = write!(text, "; {}", best_so_far(history));
    if let Some(left) = seconds_left(history).filter(|left| *left >= 1.0) {
        let _ = write!(
            text,
            "; about {} left",
            humantime::format_duration(Duration::from_secs(left as u64))
        );
    }
    text
}

fn running(trial: &Trial) -> String {
    let values: Vec<f64> = trial.reports.iter().map(|report| report.value).collect();
    let last = match trial.reports.last() {
        Some(report) => format!("{} at {}", short(report.value), report.step),
        None => "nothing yet".to_owned(),
    };
    format!(
        "trial {:<3} {:SPARKS$}  {last:<16} {}",
        trial.number,
        sparks(&values),
        in_words(&trial.values)
    )
}

/// A curve of characters: the lowest number is the lowest.
fn sparks(values: &[f64]) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let shown = &values[values.len().saturating_sub(SPARKS)..];
    let low = shown.iter().copied().fold(f64::INFINITY, f64::min);
    let high = shown.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let bar = |value: &f64| match high > low {
        true => BARS[((value - low) / (high - low) * 7.0).round() as usize % 8],
        false => BARS[0],
    };
    shown.iter().map(bar).collect()
}

fn ended(trial: &Trial) -> String {
    let values = in_words(&trial.values);
    match &trial.outcome {
        Some(Outcome::Completed { value }) => format!("completed: {} with {values}", short(*value)),
        Some(Outcome::Stopped { value }) => {
            let step = trial
                .stop
                .map(|step| format!(" early, at {step}"))
                .unwrap_or_default();
            let value = value
                .map(|value| format!(": {}", short(value)))
                .unwrap_or_default();
            format!("stopped{step}{value} with {values}")
        }
        Some(Outcome::Failed { reason }) => format!("failed with {values}: {reason}"),
        None => format!("runs with {values}"),
    }
}

/// A study that is not running: its description, its progress, and its best trials.
pub fn status(history: &History) -> String {
    let spec = &history.spec;
    let counts = history.counts();
    let mut text = format!(
        "{:?} {:?} by {:?}, {} of {} jobs: {} completed, {} stopped early, {} failed, {} running\n",
        spec.direction,
        spec.objective,
        spec.strategy,
        history.trials.len(),
        spec.limits.max_jobs,
        counts.completed,
        counts.stopped,
        counts.failed,
        counts.running
    );
    let _ = writeln!(text, "{}", best_so_far(history));
    let mut best: Vec<(&Trial, f64)> = history
        .trials
        .iter()
        .filter_map(|trial| Some((trial, spec.direction.loss(trial.objective()?))))
        .collect();
    best.sort_by(|a, b| a.1.total_cmp(&b.1).then(a.0.number.cmp(&b.0.number)));
    for (trial, _) in best.iter().take(5) {
        let _ = writeln!(text, "  trial {:<3} {}", trial.number, ended(trial));
    }
    let failed: Vec<&Trial> = history
        .trials
        .iter()
        .filter(|trial| matches!(trial.outcome, Some(Outcome::Failed { .. })))
        .collect();
    for trial in failed.iter().rev().take(3) {
        let _ = writeln!(text, "  trial {:<3} {}", trial.number, ended(trial));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curves_go_from_the_lowest_to_the_highest() {
        assert_eq!(sparks(&[1.0, 0.5, 0.0]), "█▅▁");
        assert_eq!(sparks(&[2.0, 2.0]), "▁▁");
        assert_eq!(sparks(&[]), "");
        assert_eq!(sparks(&[0.0; 40]).chars().count(), SPARKS);
    }
}
