//! The output of `stokehold train`: a bar for each epoch on a terminal, and log lines everywhere.
//!
//! All of it goes to standard error; standard output has only the summary.
use stokehold_base::words::plural;

use crate::terminal::note;
use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressStyle};
use stokehold_train::progress::Validation;
use stokehold_train::{Event, Observer};

/// Shows the events of a run.
pub struct Watch {
    terminal: bool,
    bar: ProgressBar,
    epochs: u64,
    batches: u64,
    /// Whether losses mean anything.
    learns: bool,
}

impl Watch {
    /// Checks whether standard error is a terminal.
    pub fn new() -> Self {
        Self {
            terminal: std::io::stderr().is_terminal(),
            bar: ProgressBar::hidden(),
            epochs: 0,
            batches: 0,
            learns: true,
        }
    }

    /// `loss 2.3026 `; nothing where nothing is trained.
    fn loss(&self, loss: f64) -> String {
        match self.learns {
            true => format!("loss {loss:.4} "),
            false => String::new(),
        }
    }

    pub fn line(&self, text: impl AsRef<str>) {
        // The reader of the output may be gone; the training continues.
        self.bar.suspend(|| {
            note!("{}", text.as_ref());
        });
    }

    /// Shows the progress of `what`, on a terminal.
    fn show(&mut self, what: String, done: u64, of: u64) {
        if !self.terminal {
            return;
        }
        if self.bar.is_hidden() || self.bar.is_finished() {
            self.bar = ProgressBar::new(of);
            if let Ok(style) = ProgressStyle::with_template("{prefix} {bar:30} {pos}/{len} {msg} {eta}") {
                self.bar.set_style(style);
            }
        }
        self.bar.set_length(of);
        self.bar.set_prefix(what);
        self.bar.set_position(done);
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

impl Observer for Watch {
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Started {
                epochs,
                batches,
                images,
                val_images,
                classes,
                workers,
                device,
                learns,
                replaced_head,
            } => {
                (self.epochs, self.batches, self.learns) = (epochs, batches as u64, learns);
                let val = val_images.map_or("none".to_owned(), |count| count.to_string());
                self.line(format!(
                    "{images} training images, {val} for validation, {}; {} of {} on {device} with {}",
                    plural(classes, "class"),
                    plural(epochs as usize, "epoch"),
                    plural(batches, "batch"),
                    plural(workers, "loader thread"),
                ));
                if let Some(other) = replaced_head {
                    self.line(format!(
                        "the weights are for {other} classes: the layers that say the class start from random ones"
                    ));
                }
            }
            Event::Chosen { executor, why } => {
                self.line(format!("the executor {executor} performs the pipeline: {why}"));
            }
            Event::Workers { workers, why } => {
                let threads = plural(workers, "loader thread");
                self.line(format!("{threads} from now on: {why}"));
            }
            Event::Resumed { checkpoint, step } => {
                self.line(format!(
                    "continues after step {step}, from {}",
                    checkpoint.display()
                ));
            }
            Event::NothingToResume => {
                self.line("there is no checkpoint yet: the run starts from the beginning")
            }
            Event::Step {
                epoch, batch, loss, ..
            } => {
                self.show(format!("epoch {epoch}/{}", self.epochs), batch, self.batches);
                let loss = self.loss(loss.into());
                self.bar.set_message(loss);
            }
            Event::Logged {
                epoch,
                step,
                loss,
                lr,
                images_per_second,
                wait_share,
            } if !self.terminal => {
                self.line(format!(
                    "epoch {epoch}/{} step {step} {}lr {lr:.3e} {images_per_second:.1} images/s waited {:.1} %",
                    self.epochs,
                    self.loss(loss),
                    100.0 * wait_share
                ));
            }
            Event::BadImage(image) => self.line(format!("bad image: {}: {}", image.name, image.reason)),
            Event::Validated { batch, batches } => {
                self.show("validation".to_owned(), batch as u64, batches as u64);
            }
            Event::EpochDone { record, best } => {
                let validation = record.validation.map_or(String::new(), |validation| {
                    let Validation { loss, scores, .. } = validation;
                    let over = validation.over();
                    let average = record.ema.map_or(String::new(), |ema| {
                        let Validation { loss, scores, .. } = ema;
                        format!(" (of the average loss {loss:.4} {scores})")
                    });
                    format!(", validation loss {loss:.4} {scores} {over}{average}")
                });
                self.line(format!(
                    "epoch {}/{}: {}over {} images{validation}, {:.1} s, {:.1} images/s, waited {:.1} %{}",
                    record.epoch,
                    self.epochs,
                    self.loss(record.sums.mean_loss()),
                    record.sums.images,
                    record.sums.seconds,
                    record.sums.images_per_second(),
                    100.0 * record.sums.wait_share(),
                    if best { ", the best so far" } else { "" }
                ));
            }
            Event::MeasuringCeilings => {
                self.bar.finish_and_clear();
                self.line("measuring what loader and trainer can do alone");
            }
            Event::Warning(text) => self.line(format!("warning: {text}")),
            _ => {}
        }
    }
}
