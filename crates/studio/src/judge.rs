//! What a recording means: figures of the moment, verdict, rules, advice and heat map, by the libraries that make the report.
//!
//! Reading a recording takes memory and time, so the server reads one at a time for this, and the last answers are kept. A run that
//! continues is judged on its last ten minutes, as the rules that watch it do.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use stokehold_base::clock::unix_now;
use stokehold_diagnose::advice::{Advice, Prices, advise, verdict};
use stokehold_diagnose::lately::Lately;
use stokehold_diagnose::report;
use stokehold_diagnose::rules::{Defaults, Finding, Parameters, Rule, judge};
use stokehold_profile::{About, ProfileError, Recording};

use crate::places::FolderEntry;
use crate::text;

/// How much of a run that continues is judged, seconds.
const WINDOW: f64 = 600.0;
/// How much is read for the figures of the moment, seconds.
const MOMENT: f64 = 30.0;
/// A judgement of a run that continues is kept so long, and its figures.
const FRESH: Duration = Duration::from_secs(3);
const FRESH_FIGURES: Duration = Duration::from_millis(1500);
/// Judgements that are kept.
const KEPT: usize = 8;
/// Figures that are kept.
const KEPT_FIGURES: usize = 64;
/// The most characters of a finding.
const SENTENCE: usize = 2000;

/// Judgements, and figures.
#[derive(Debug, Default)]
pub struct Judge {
    judged: Mutex<VecDeque<CachedValue>>,
    figures: Mutex<VecDeque<CachedValue>>,
}

/// An answer of before.
#[derive(Debug)]
struct CachedValue {
    key: String,
    made: Instant,
    /// When the run ended, if it has: then the answer stays right.
    ended: Option<f64>,
    value: Arc<Value>,
}

impl Judge {
    /// The verdict, the rules, the advice and the heat map.
    ///
    /// # Errors
    /// There is no recording, or it cannot be read.
    pub fn judged(
        &self,
        key: &str,
        found: &FolderEntry<'_>,
        about: Option<&About>,
        is_over: bool,
    ) -> Result<Arc<Value>, ProfileError> {
        // One that was killed has not said when it ended.
        let ended = about.and_then(|about| about.ended).or(is_over.then_some(0.0));
        if let Some(value) = known(&self.judged, key, ended, FRESH) {
            return Ok(value);
        }
        let value = Arc::new(made(found, ended.is_some())?);
        keep(&self.judged, KEPT, key, ended, &value);
        Ok(value)
    }

    /// The figures of the moment, of a run that continues.
    pub fn figures(&self, key: &str, found: &FolderEntry<'_>) -> Arc<Value> {
        if let Some(value) = known(&self.figures, key, None, FRESH_FIGURES) {
            return value;
        }
        let value = Arc::new(lately(found));
        keep(&self.figures, KEPT_FIGURES, key, None, &value);
        value
    }
}

fn known(
    all: &Mutex<VecDeque<CachedValue>>,
    key: &str,
    ended: Option<f64>,
    fresh: Duration,
) -> Option<Arc<Value>> {
    let all = all.lock().unwrap_or_else(PoisonError::into_inner);
    let kept = all.iter().find(|kept| kept.key == key)?;
    let is_right = kept.ended == ended && (ended.is_some() || kept.made.elapsed() < fresh);
    is_right.then(|| Arc::clone(&kept.value))
}

fn keep(all: &Mutex<VecDeque<CachedValue>>, most: usize, key: &str, ended: Option<f64>, value: &Arc<Value>) {
    let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
    all.retain(|kept| kept.key != key);
    all.push_back(CachedValue {
        key: key.to_owned(),
        made: Instant::now(),
        ended,
        value: Arc::clone(value),
    });
    while all.len() > most {
        all.pop_front();
    }
}

fn made(found: &FolderEntry<'_>, has_ended: bool) -> Result<Value, ProfileError> {
    let mut is_whole = has_ended;
    let recording = match has_ended {
        true => Recording::open(&found.folder)?,
        false => {
            let recording = Recording::open_since(&found.folder, unix_now() - WINDOW)?;
            let last = recording.extent().map(|extent| extent.1);
            match last {
                Some(last) => {
                    let mut recent = recording.after(last - WINDOW);
                    recent.problems = recording.problems;
                    recent
                }
                // One that was cut off long ago.
                None => {
                    is_whole = true;
                    Recording::open(&found.folder)?
                }
            }
        }
    };
    let findings = judge(&recording, &Parameters::new(Defaults::default()));
    let about = recording.about.as_ref();
    let workload = about.and_then(|about| about.workload.as_ref());
    let prices = prices(about);
    let advice = workload.map_or_else(Vec::new, |workload| advise(workload, &prices));
    let sentence = verdict(&recording, &findings, workload, &advice);
    let problems: Vec<String> = recording
        .problems
        .iter()
        .take(5)
        .map(|problem| text::short(problem, 300))
        .collect();
    let heat = {
        let mut shown = recording.clone();
        // The map of a part begins with the part, and not with the run.
        if !is_whole && let Some(about) = &mut shown.about {
            about.started = recording.extent().map_or(about.started, |extent| extent.0);
        }
        report::heat(&shown, &findings, "")
    };
    Ok(json!({
        "verdict": text::short(&sentence, SENTENCE),
        "whole": is_whole,
        "findings": findings.iter().map(finding).collect::<Vec<_>>(),
        "advice": advice.iter().take(12).map(advised).collect::<Vec<_>>(),
        "currency": prices.currency,
        "problems": problems,
        "problem_count": recording.problems.len(),
        "heat": heat,
    }))
}

fn prices(about: Option<&About>) -> Prices {
    match about {
        Some(about) => Prices::built_in().on(&about.machine),
        None => Prices::built_in(),
    }
}

fn finding(finding: &Finding) -> Value {
    let rule = Rule::ALL.iter().find(|rule| rule.name == finding.rule);
    json!({
        "rule": finding.rule,
        "fired": finding.triggered,
        "judged": finding.judged,
        "detects": rule.map(|rule| rule.detects),
        "summary": text::short(&finding.summary, SENTENCE),
        "recommendation": text::short(&finding.recommendation, SENTENCE),
    })
}

fn advised(advice: &Advice) -> Value {
    json!({
        "title": advice.title,
        "why": text::short(&advice.why, SENTENCE),
        "worth_it": advice.is_worth_it(),
        "seconds_per_epoch": advice.seconds_per_epoch,
        "gain_seconds": advice.gain_seconds,
        "gain_percent": advice.gain_percent,
        "saved_per_epoch": advice.saved_per_epoch,
        "flags": advice.flags,
    })
}

fn lately(found: &FolderEntry<'_>) -> Value {
    let Ok(recording) = Recording::open_since(&found.folder, unix_now() - MOMENT) else {
        return Value::Null;
    };
    let about = recording.about.as_ref();
    let prices = prices(about);
    let cost = about.zip(prices.here()).map(|(about, machine)| {
        // A run that was resumed has cost nothing while it did not run.
        let seconds = about.ended.unwrap_or_else(unix_now) - about.started - about.idle_seconds;
        let hours = seconds.max(0.0) / 3600.0;
        json!({"amount": hours * machine.price_per_hour, "currency": prices.currency})
    });
    let figures = Lately::of(&recording);
    let silent = figures.at.map(|at| (unix_now() - at).max(0.0));
    json!({
        "lately": figures,
        "silent": silent,
        "paused": about.and_then(|about| about.paused),
        "interval_ms": recording.intervals().map(|(short, long)| 500.0 * (short + long)),
        "cost": cost,
    })
}
