//! Rules that are judged while a job runs, and act.

use std::time::{Duration, Instant};

use stokehold_base::clock::unix_now as now;
use stokehold_diagnose::live::{Fired, Live, OnFire, call};
use stokehold_page::words::duration;

use super::Runner;
use crate::Job;

/// How often the rules are judged.
const EVERY: Duration = Duration::from_secs(1);

/// The rules of a job, and when they were judged last.
pub(super) struct Rules {
    live: Live,
    judged: Instant,
    spans: u64,
}

impl Rules {
    /// `None` for a job without any.
    pub fn of(job: &Job) -> Option<Self> {
        // The job was checked before it began.
        let live = job.profiling().live().ok().flatten()?;
        Some(Self {
            live,
            judged: Instant::now(),
            spans: 0,
        })
    }
}

impl Runner<'_> {
    /// Judges the rules, if it is time, and acts where one fires.
    pub(super) fn judge(&self, rules: &mut Rules) {
        for (name, value, time) in self.lines.news() {
            rules.live.number(&name, value, time);
        }
        let spans = self
            .timeline
            .get()
            .map_or(0, |listening| listening.metrics.spans());
        if spans > rules.spans {
            rules.spans = spans;
            rules.live.heard(now());
        }
        if rules.judged.elapsed() < EVERY {
            return;
        }
        rules.judged = Instant::now();
        for fired in rules.live.judge_run(&self.folder.0) {
            self.act(&fired);
        }
    }

    fn act(&self, fired: &Fired) {
        self.lines.say(&fired.to_string());
        match &self.job.profiling().on_fire {
            OnFire::Log => {}
            OnFire::Stop => {
                let ran = self.cuts.ran().as_secs_f64();
                let most = self.job.max_run_seconds as f64;
                let reason = format!(
                    "{fired}; stopped after {} of at most {}",
                    duration(ran),
                    duration(most)
                );
                // A record that cannot be written now is written at the end, or the job fails for that.
                let _ = self.change(|record| {
                    record.stopped_by.get_or_insert(reason);
                });
                self.cuts.stopped_by_rule();
            }
            OnFire::Command(words) => {
                if let Some(trouble) = call(words, fired) {
                    self.lines.say(&format!("on-fire: {trouble}"));
                }
            }
        }
    }
}
