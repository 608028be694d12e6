//! Rules that are judged while `stokehold train` runs, and act.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use clap::Args as ClapArgs;
use stokehold_base::clock::unix_now;
use stokehold_diagnose::curves::{Following, News};
use stokehold_diagnose::events::EventFile;
use stokehold_diagnose::live::{Fired, Live, OnFire, call};
use stokehold_page::words::duration;
use stokehold_train::{Event, Observer};

use super::watch::Watch;
use crate::failure::Usage;
use crate::terminal::note;

#[derive(Debug, Clone, ClapArgs)]
#[command(next_help_heading = "Rules")]
pub struct RulesOptions {
    /// Judge these rules during the run: their names, training, system or all (see docs/reference/rules.md).
    #[arg(long, value_name = "RULES", value_delimiter = ',')]
    rules: Vec<String>,
    /// What happens when one fires: log, stop (with a checkpoint), or a command for the shell, which finds STOKEHOLD_RULE and
    /// STOKEHOLD_REASON in its environment.
    #[arg(long, value_name = "ACTION", default_value = "log", requires = "rules")]
    on_fire: String,
    /// Also write the numbers of metrics.jsonl into the run's folder as an event file, while it runs: tensorboard --logdir runs.
    #[arg(long)]
    pub tensorboard: bool,
}

impl RulesOptions {
    /// The rules of a run; `None` without any.
    ///
    /// # Errors
    /// A name that is no rule's.
    pub fn live(&self) -> Result<Option<(Live, OnFire)>, Usage> {
        if self.rules.is_empty() {
            return Ok(None);
        }
        let live = Live::new(&self.rules).map_err(|error| Usage(format!("--rules: {error}")))?;
        for (rule, why) in [
            (
                "VanishingGradient",
                "needs norms of gradients, which stokehold train does not report",
            ),
            (
                "ExplodingGradient",
                "needs norms of gradients, which stokehold train does not report",
            ),
            (
                "StalledTraining",
                "needs somebody who looks from outside; run it as a job",
            ),
        ] {
            if self.rules.iter().any(|wanted| wanted == rule) {
                return Err(Usage(format!("--rules: {rule} {why}")));
            }
        }
        let on_fire = self
            .on_fire
            .parse()
            .unwrap_or_else(|_| OnFire::Command(["sh", "-c", &self.on_fire].map(str::to_owned).to_vec()));
        Ok(Some((live, on_fire)))
    }
}

/// Shows a run's events, judges its rules by them, and writes its numbers for TensorBoard.
pub struct Judging {
    pub watch: Watch,
    rules: Option<Rules>,
    events: Option<Events>,
}

/// The numbers of `metrics.jsonl`, for TensorBoard.
struct Events {
    run: PathBuf,
    following: Following,
    /// Made when training begins.
    file: Option<EventFile>,
}

impl Events {
    /// Training begins: what is there already was written before.
    fn begin(&mut self) -> io::Result<()> {
        let now = unix_now();
        self.following.look(&|_| Some(now), &mut |_| {})?;
        self.file = Some(EventFile::create(&self.run, now)?);
        Ok(())
    }

    /// The run continues with this step.
    fn resumed(&mut self, step: u64) -> io::Result<()> {
        match &mut self.file {
            Some(file) => file.resumed(step, unix_now()),
            None => Ok(()),
        }
    }

    fn write(&mut self) -> io::Result<()> {
        let Some(file) = &mut self.file else {
            return Ok(());
        };
        let now = unix_now();
        let mut done = Ok(());
        self.following.look(&|_| Some(now), &mut |news| {
            if let News::Point(name, point) = news
                && done.is_ok()
            {
                done = file.add(name, point.step, point.time, point.value);
            }
        })?;
        done
    }
}

struct Rules {
    live: Live,
    on_fire: OnFire,
    run: PathBuf,
    stop: &'static AtomicBool,
    began: Instant,
    stopped_by: Option<String>,
}

impl Judging {
    /// With `tensorboard`, numbers also go to an event file in the run's folder.
    pub fn new(
        rules: Option<(Live, OnFire)>,
        run: PathBuf,
        tensorboard: bool,
        stop: &'static AtomicBool,
    ) -> Self {
        let events = Events {
            following: Following::new(&run),
            run: run.clone(),
            file: None,
        };
        Self {
            watch: Watch::new(),
            events: tensorboard.then_some(events),
            rules: rules.map(|(live, on_fire)| Rules {
                live,
                on_fire,
                run,
                stop,
                began: Instant::now(),
                stopped_by: None,
            }),
        }
    }

    /// The run has ended because its loss was this.
    pub fn diverged(&mut self, loss: f32) {
        if let Some(rules) = &mut self.rules {
            rules.number("loss", f64::from(loss));
        }
        self.judge();
    }

    /// Writes what is new for TensorBoard. A disk that is full costs the event file, and not the run.
    fn write(&mut self, event: Option<&Event<'_>>) {
        let Some(events) = &mut self.events else { return };
        let done = match event {
            Some(Event::Started { .. }) => events.begin(),
            // Epochs are numbered, too, and never higher than steps: none that is kept is left out.
            Some(Event::Resumed { step, .. }) => events.resumed(*step + 1),
            // metrics.jsonl has a new line; the last ones come after the last event.
            Some(Event::Logged { .. } | Event::EpochDone { .. }) | None => events.write(),
            Some(_) => Ok(()),
        };
        if let Err(error) = done {
            let place = events.run.display();
            self.watch.line(format!(
                "--tensorboard: {place}: {error}; no more is written for TensorBoard"
            ));
            self.events = None;
        }
    }

    fn judge(&mut self) {
        let Some(rules) = &mut self.rules else { return };
        for fired in rules.live.judge_run(&rules.run) {
            // On a terminal the bar stands where this goes.
            self.watch.line(fired.to_string());
            rules.act(&fired);
        }
    }

    /// The rule that stopped the run, with the reason.
    pub fn stopped_by(&self) -> Option<&str> {
        self.rules.as_ref()?.stopped_by.as_deref()
    }
}

impl Observer for Judging {
    fn event(&mut self, event: Event<'_>) {
        if let Some(rules) = &mut self.rules {
            match &event {
                Event::Step { loss, .. } => rules.number("loss", f64::from(*loss)),
                Event::EpochDone { record, .. } => {
                    if let Some(validation) = &record.validation {
                        rules.number("val_loss", validation.loss);
                    }
                }
                _ => {}
            }
        }
        self.judge();
        self.write(Some(&event));
        self.watch.event(event);
    }
}

impl Drop for Judging {
    /// The last lines are written after the last event.
    fn drop(&mut self) {
        self.write(None);
    }
}

impl Rules {
    fn number(&mut self, name: &str, value: f64) {
        self.live.number(name, value, unix_now());
    }

    fn act(&mut self, fired: &Fired) {
        match &self.on_fire {
            OnFire::Log => {}
            OnFire::Stop => {
                let ran = duration(self.began.elapsed().as_secs_f64());
                self.stopped_by
                    .get_or_insert(format!("{fired}; stopped after {ran}"));
                self.stop.store(true, Ordering::SeqCst);
            }
            OnFire::Command(words) => {
                if let Some(trouble) = call(words, fired) {
                    note!("--on-fire: {trouble}");
                }
            }
        }
    }
}
