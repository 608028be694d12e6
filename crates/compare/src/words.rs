//! What a comparison says in sentences: the headline, the conditions, and what follows.

use stokehold_base::words::plural;
use stokehold_page::Table;
use stokehold_train::TrainerChoice;
use stokehold_train::model::Arch;

use crate::plan::{TrainerPlan, Trial};
use crate::report::{Cell, Measured, Report};
use crate::verdict::Gain;
use crate::{Verdict, published, table};

/// Other programs that use fewer cores on average, and in the worst trial, are not worth a warning.
const QUIET: [f64; 2] = [0.1, 0.25];

impl Report {
    /// `per-op against fused`.
    pub fn title(&self) -> String {
        let names: Vec<&str> = self.plan.trials.iter().map(|trial| trial.name()).collect();
        match names.split_first() {
            Some((a, others)) => format!("{a} against {}", others.join(", ")),
            None => String::new(),
        }
    }

    /// The result: a row for each cell and each trial but A.
    pub fn result_table(&self) -> Table {
        table::result(self)
    }

    /// A row for each trial of each cell: speed, waits, and what else ran.
    pub fn details_table(&self) -> Table {
        table::details(self)
    }

    /// The trials without figures, with the reasons; empty if there are none.
    pub fn failures_table(&self) -> Table {
        table::failures(self)
    }

    /// The result in one or a few sentences.
    pub fn headline(&self) -> Vec<String> {
        let Some((&a, others)) = self.plan.trials.split_first() else {
            return Vec::new();
        };
        let mut sentences = Vec::new();
        for (number, &b) in others.iter().enumerate() {
            // With many trials a sentence for each network would be too much.
            let groups: Vec<Vec<&Cell>> = match others.len() {
                1 => self
                    .models()
                    .into_iter()
                    .map(|model| self.cells_of(model))
                    .collect(),
                _ => vec![self.cells.iter().collect()],
            };
            for cells in groups.iter().filter(|cells| !cells.is_empty()) {
                let with = match (others.len(), cells[0].model) {
                    (1, model) => format!(" on {model}"),
                    _ => String::new(),
                };
                sentences.push(sentence(a, b, number + 1, cells, &with));
            }
        }
        sentences
    }

    /// The conditions: data, trainer, machine.
    pub fn what(&self) -> Vec<String> {
        let plan = &self.plan;
        let machine = &self.machine;
        let memory = machine.memory.map_or_else(String::new, |bytes| {
            format!(", {:.0} GiB of memory", bytes as f64 / (1u64 << 30) as f64)
        });
        vec![
            format!(
                "{}: {} images of {}{}, batch {}, {} px, {} for each trial.",
                self.title(),
                self.dataset.train,
                plan.data_name(),
                match self.dataset.classes.len() {
                    1 => String::new(),
                    many => format!(" in {many} classes"),
                },
                plan.batch_size,
                plan.image_size,
                plural(plan.workers, "worker"),
            ),
            self.trainer(),
            format!(
                "Stokehold {} on {}, {}{memory}.",
                plan.stokehold,
                machine.cpu.as_deref().unwrap_or(&machine.arch),
                plural(machine.cores, "core"),
            ),
        ]
    }

    /// What is fed.
    fn trainer(&self) -> String {
        match &self.plan.trainer {
            TrainerPlan::Emulated(each) => {
                let labels: Vec<&str> = each
                    .iter()
                    .filter(|(model, _)| self.plan.models.contains(model))
                    .filter_map(|(_, trainer)| match trainer {
                        TrainerChoice::Emulated { label, .. } => Some(label.as_str()),
                        TrainerChoice::Burn => None,
                    })
                    .collect();
                format!(
                    "Emulated: nothing is trained; an accelerator takes each batch, copies it, and is busy as long as the real one \
                     would be: {}.",
                    labels.join("; ")
                )
            }
            TrainerPlan::Burn { .. } => format!("Burn trains on {}.", self.device()),
            TrainerPlan::Torch(options) => format!(
                "PyTorch trains torchvision's networks on {}{}.",
                self.device(),
                if options.amp { " with mixed precision" } else { "" }
            ),
        }
    }

    fn device(&self) -> &str {
        let trials = self.cells.iter().flat_map(|cell| &cell.trials);
        let ready = trials.filter_map(|trial| trial.ready.as_ref());
        ready
            .map(|ready| ready.device.as_str())
            .next()
            .unwrap_or("the device")
    }

    /// What follows, in short paragraphs.
    pub fn conclusion(&self) -> Vec<String> {
        let mut paragraphs = Vec::new();
        // Of many trials the table is easier to read.
        if self.plan.trials.len() == 2 {
            paragraphs.extend(self.models().into_iter().filter_map(|model| self.of_model(model)));
        }
        paragraphs.extend(self.limit());
        paragraphs.extend(self.imprecise());
        paragraphs.extend(self.work());
        paragraphs.extend(self.others());
        paragraphs.push(format!(
            "How it is judged: the trials take turns in rounds of the same number of steps. Better by is the median over the pairs of \
             rounds, and its 95 % interval that of the sign test. If the interval holds zero or \
             the difference is below 1 %, there is no verdict.{}",
            match self.is_emulated() {
                true => " The accelerator's speed is published or derived (docs/concepts/emulated.md), so seconds are those that it would take \
                         at that speed; a real one shares memory and bus with the loader.",
                false => "",
            }
        ));
        if table::rows_of_result(self).any(|(cell, trial)| {
            published::better_by(cell.trials[trial].trial, cell.model, cell.load).is_some()
        }) {
            paragraphs.push(published::NOTE.to_owned());
        }
        paragraphs
    }

    /// How a network's epochs and waits change from the lowest load to the highest.
    fn of_model(&self, model: Arch) -> Option<String> {
        let cells = self.cells_of(model);
        let (first, last) = (cells.first()?, cells.last()?);
        let mut parts = Vec::new();
        for (low, high) in first.trials.iter().zip(&last.trials) {
            let (Some(low_summary), Some(high_summary)) = (low.summary, high.summary) else {
                continue;
            };
            let mut part = match first.load == last.load {
                true => format!(
                    "{} takes {:.2} s an epoch",
                    low.trial, low_summary.seconds_per_epoch
                ),
                false => format!(
                    "{} takes {:.2} s an epoch at load {} and {:.2} s at load {}",
                    low.trial,
                    low_summary.seconds_per_epoch,
                    first.load,
                    high_summary.seconds_per_epoch,
                    last.load
                ),
            };
            part += &format!("; the trainer waits {:.1} %", 100.0 * high_summary.waited);
            if let Some(rate) = high_summary.images_per_core_second {
                part += &format!(" and a core's second makes {rate:.0} images");
            }
            parts.push(part);
        }
        let at = match first.load == last.load {
            true => String::new(),
            false => format!(" (waits and images of load {})", last.load),
        };
        (!parts.is_empty()).then(|| format!("{model}{at}: {}.", parts.join(". ")))
    }

    /// The cells in which no loader can win.
    fn limit(&self) -> Option<String> {
        /// The trainer waits for less than this share of its time.
        const LITTLE: f64 = 0.03;
        let busy = |cell: &&Cell| {
            let mut summaries = cell.trials.iter().filter_map(|trial| trial.summary).peekable();
            summaries.peek().is_some() && summaries.all(|summary| summary.waited < LITTLE)
        };
        let limited: Vec<String> = self
            .cells
            .iter()
            .filter(busy)
            .map(|cell| format!("{} at load {}", cell.model, cell.load))
            .collect();
        (!limited.is_empty()).then(|| {
            format!(
                "The trainer is the limit with every trial for {}: it waits less than {:.0} % of its time, so no loader makes it faster.",
                limited.join(", "),
                100.0 * LITTLE
            )
        })
    }

    /// The gains that are not as precise as the plan wants, and what to do.
    fn imprecise(&self) -> Option<String> {
        let trials = self.cells.iter().flat_map(|cell| &cell.trials);
        let gains = trials.filter_map(|trial| trial.summary?.gain);
        let wide = gains.filter(|gain| gain.width() >= self.plan.precision).count();
        (wide > 0).then(|| {
            format!(
                "{} of an interval wider than {} %: the time was over. The same command with a longer --time-limit than {} s \
                 measures on, and keeps what is there.",
                plural(wide, "figure"),
                self.plan.precision,
                self.plan.time_limit
            )
        })
    }

    /// The evidence of equal work.
    fn work(&self) -> Option<String> {
        let same: Vec<bool> = self.cells.iter().filter_map(Cell::same_images).collect();
        let mut text = match (same.is_empty(), same.iter().all(|same| *same)) {
            (true, _) => return None,
            (false, true) if self.dataset.classes.len() < 2 => {
                "Equal work: in every pair all trials had equally many images; without classes there are no labels to tell more."
                    .to_owned()
            }
            (false, true) => "Equal work: in every pair all trials had the same labels in the same order.".to_owned(),
            (false, false) => {
                "NOT equal work: in some pairs the trials had different labels, so they did not load the same images.".to_owned()
            }
        };
        if let Some(work) = &self.equal_work {
            let losses: Vec<String> = work
                .trials
                .iter()
                .zip(&work.losses)
                .map(|(trial, loss)| format!("{trial} {loss:.4}"))
                .collect();
            text += &format!(
                " {}, trained by Burn for {} steps at load {} on {} labels, had a mean loss of {}.",
                work.model,
                work.steps,
                work.load,
                if work.same_labels { "the same" } else { "DIFFERENT" },
                losses.join(", "),
            );
            if let Some([least, mean]) = work.psnr {
                text += &format!(
                    " Of the images that differ, the PSNR is {mean:.1} dB on average, {least:.1} dB at least."
                );
            }
        }
        Some(text)
    }

    /// What other programs did meanwhile.
    fn others(&self) -> Option<String> {
        let trials = self.cells.iter().flat_map(|cell| &cell.trials);
        let cores: Vec<f64> = trials.filter_map(|trial| trial.summary?.others_cores).collect();
        let most = cores.iter().copied().reduce(f64::max)?;
        let mean = cores.iter().sum::<f64>() / cores.len() as f64;
        Some(match mean < QUIET[0] && most < QUIET[1] {
            true => format!(
                "The machine was quiet: other programs used at most {most:.2} of {} during a trial.",
                plural(self.machine.cores, "core")
            ),
            false => format!(
                "The machine was not quiet: other programs kept {mean:.1} of {} busy on average, and {most:.1} during one trial. The trials \
                 took turns, so the comparison holds for a machine as busy as this one; seconds per epoch are not those of a quiet \
                 one.",
                plural(self.machine.cores, "core")
            ),
        })
    }
}

/// What a trial is next to A over some cells.
fn sentence(a: Trial, b: Trial, number: usize, cells: &[&Cell], with: &str) -> String {
    let measured: Vec<&Measured> = cells.iter().filter_map(|cell| cell.trials.get(number)).collect();
    let gains: Vec<Gain> = measured.iter().filter_map(|trial| trial.summary?.gain).collect();
    if gains.is_empty() {
        let why = measured.iter().find_map(|trial| trial.failure.as_ref());
        return match why {
            // What it printed is in the table.
            Some(failure) => format!("{b} was not measured{with}: {}.", failure.why),
            None => format!("{b} was not compared with {a}{with}."),
        };
    }
    let of = |verdict: Verdict| -> Vec<f64> {
        let those = gains.iter().filter(|gain| gain.verdict == verdict);
        those.map(|gain| gain.better_by.abs()).collect()
    };
    let (faster, slower) = (of(Verdict::Faster), of(Verdict::Slower));
    let all = cells.len();
    let at = |count: usize| match (count == all, all) {
        (true, 1) => String::new(),
        (true, _) => format!(" in each of {all} cells"),
        (false, _) => format!(" in {count} of {all} cells"),
    };
    let mut parts = Vec::new();
    if !faster.is_empty() {
        parts.push(format!(
            "takes {} less time than {a}{with}{}",
            range(&faster),
            at(faster.len())
        ));
    }
    if !slower.is_empty() {
        parts.push(format!(
            "takes {} more time than {a}{with}{}",
            range(&slower),
            at(slower.len())
        ));
    }
    let unclear = of(Verdict::CannotBeToldApart).len();
    if unclear > 0 {
        parts.push(format!("cannot be told apart from {a}{with}{}", at(unclear)));
    }
    let other = of(Verdict::NotTheSameWork).len();
    if other > 0 {
        parts.push(format!("did NOT do the same work as {a}{with}{}", at(other)));
    }
    if gains.len() < all {
        parts.push(format!("was not compared{}", at(all - gains.len())));
    }
    format!("{b} {}.", parts.join(", and "))
}

/// `38 to 74 %`.
fn range(percents: &[f64]) -> String {
    let low = percents.iter().copied().fold(f64::INFINITY, f64::min);
    let high = percents.iter().copied().fold(0.0, f64::max);
    match format!("{low:.0}") == format!("{high:.0}") {
        true => format!("{high:.0} %"),
        false => format!("{low:.0} to {high:.0} %"),
    }
}

/// The report as Markdown.
pub(crate) fn markdown(report: &Report) -> String {
    let paragraphs = |lines: Vec<String>| lines.join("\n\n");
    let mut text = format!(
        "# Stokehold: {}\n\n{}\n\n{}\n\n{}\n{}\n",
        report.title(),
        paragraphs(report.headline()),
        paragraphs(report.what()),
        table::result(report).markdown(),
        table::details(report).markdown(),
    );
    for more in [
        table::failures(report),
        table::usage(report),
        table::versions(report),
    ] {
        if !more.is_empty() {
            text += &(more.markdown() + "\n");
        }
    }
    text + &paragraphs(report.conclusion()) + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Failure;
    use crate::report::tests::{cell, report};

    #[test]
    fn the_headline_says_what_the_table_says() {
        let loads = |b: [f64; 2]| {
            vec![
                cell(Arch::Resnet18, 1, 10.0, &[b[0]]),
                cell(Arch::Resnet18, 12, 10.0, &[b[1]]),
            ]
        };
        let say = |b| report(loads(b)).headline();
        assert_eq!(
            say([6.0, 3.0]),
            ["fused takes 40 to 70 % less time than per-op on resnet18 in each of 2 cells."]
        );
        assert_eq!(
            say([6.0, 10.0]),
            [
                "fused takes 40 % less time than per-op on resnet18 in 1 of 2 cells, and cannot be told apart from per-op on \
              resnet18 in 1 of 2 cells."
            ]
        );
        assert_eq!(
            say([12.0, 12.0]),
            ["fused takes 20 % more time than per-op on resnet18 in each of 2 cells."]
        );
    }

    #[test]
    fn many_trials_have_a_sentence_each() {
        let mut report = report(vec![
            cell(Arch::Resnet18, 1, 10.0, &[5.0, 9.0]),
            cell(Arch::Resnet50, 1, 10.0, &[5.0, 9.0]),
        ]);
        assert_eq!(
            report.headline(),
            [
                "fused takes 50 % less time than per-op in each of 2 cells.",
                "gpu takes 10 % less time than per-op in each of 2 cells."
            ]
        );
        for cell in &mut report.cells {
            cell.trials[2].rounds.clear();
            cell.trials[2].failure = Some(Failure::of("no device".to_owned()));
            cell.summarize();
        }
        assert_eq!(report.headline()[1], "gpu was not measured: no device.");
        // A trial that fails later has no verdict either, in the headline as in the table.
        report.cells[1].trials[1].failure = Some(Failure::of("gone".to_owned()));
        report.cells[1].summarize();
        assert_eq!(
            report.headline()[0],
            "fused takes 50 % less time than per-op in 1 of 2 cells, and was not compared in 1 of 2 cells."
        );
        assert_eq!(table::result(&report).rows()[2][8], "failed");
    }

    #[test]
    fn a_busy_machine_is_said() {
        let mut report = report(vec![cell(Arch::Resnet18, 1, 10.0, &[5.0])]);
        assert!(
            report
                .conclusion()
                .iter()
                .any(|text| text.starts_with("The machine was not quiet"))
        );
        for round in report.cells[0]
            .trials
            .iter_mut()
            .flat_map(|trial| &mut trial.rounds)
        {
            round.others_cores = Some(0.02);
        }
        report.cells[0].summarize();
        assert!(
            report
                .conclusion()
                .iter()
                .any(|text| text.starts_with("The machine was quiet: other programs used at most 0.02"))
        );
    }

    #[test]
    fn unequal_work_is_said() {
        let mut report = report(vec![cell(Arch::Resnet18, 1, 10.0, &[5.0])]);
        let says = |report: &Report, text: &str| {
            report
                .conclusion()
                .iter()
                .any(|paragraph| paragraph.starts_with(text))
        };
        assert!(says(&report, "Equal work"));
        report.cells[0].trials[1].rounds[3].totals.labels += 1;
        report.cells[0].summarize();
        assert_eq!(
            report.headline(),
            ["fused did NOT do the same work as per-op on resnet18."]
        );
        assert_eq!(table::result(&report).rows()[0][8], "not the same work");
        assert!(says(&report, "NOT equal work"));
    }
}
