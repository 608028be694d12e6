//! The numbers that a run reported over time: losses, learning rates, accuracies and every metric of a job.
//!
//! They are read from `metrics.jsonl` of the run's folder, of either kind: a line of a job has a name, a value and the time at which it
//! came; a line of `stokehold train` has several numbers of a step or an epoch, and its time is the end of that step in the
//! recording's timeline.
//!
//! However many points a curve has, at most 8195 of them are kept: all of the first 8192, and then of each stretch its lowest and its
//! highest, where the length of a stretch doubles whenever there are too many. The first and the last point, the extremes and the
//! first value that is no number stay as they are.
//!
//! A curve has one value for a step, the later one. A step that comes again is of a run that went back to a checkpoint: what came
//! from that step on is undone.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

use serde_json::Value;
use stokehold_base::growing::Growing;
use stokehold_profile::{Recording, span};

/// A curve is thinned to this many points when it has twice as many: more than a page has pixels.
const POINTS: usize = 4096;
/// The most curves.
const CURVES: usize = 64;
/// The most names that are remembered next to them.
const MOST_NAMES: usize = 1000;

/// A number over time.
#[derive(Debug, Clone, PartialEq)]
pub struct Curve {
    /// Its name.
    pub name: String,
    /// Its values, by time.
    pub points: Vec<Point>,
    /// What the steps of its points count: `step` or `epoch`.
    pub counts: &'static str,
}

/// A value of a curve.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// When, unix seconds.
    pub time: f64,
    /// The step, or the epoch for a number of one, if it is known.
    pub step: Option<u64>,
    /// The value; not finite for a loss that is gone.
    pub value: f64,
}

/// What a curve is about, which decides what stands together in a picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// Losses.
    Loss,
    /// Accuracies and the like, where more is better.
    Accuracy,
    /// Learning rates.
    Rate,
    /// Anything else.
    Other,
}

impl Curve {
    /// What it is about, by its name.
    pub fn subject(&self) -> Subject {
        let name = self.name.to_lowercase();
        let has = |words: &[&str]| words.iter().any(|word| name.contains(word));
        let words: Vec<&str> = words(&name).collect();
        let is_score = |word: &&str| {
            let known = [
                "accuracy", "top", "topk", "top1", "top5", "miou", "iou", "f1", "auc",
            ];
            known.contains(word) || word.ends_with("acc")
        };
        let is_rate = name == "lr" || name.starts_with("lr-") || has(&["learning_rate", "learning-rate"]);
        match () {
            () if is_loss(&self.name) => Subject::Loss,
            () if words.iter().any(is_score) => Subject::Accuracy,
            () if is_rate => Subject::Rate,
            () => Subject::Other,
        }
    }

    /// The best point, the first of equals: the highest of an accuracy, the lowest of a validation loss; `None` of everything else.
    pub fn best(&self) -> Option<Point> {
        let is_better = self.order()?;
        let finite = self.points.iter().filter(|point| point.value.is_finite());
        finite
            .copied()
            .reduce(|best, point| match is_better(point.value, best.value) {
                true => point,
                false => best,
            })
    }

    /// Whether one value is better than another; `None` where none is.
    fn order(&self) -> Option<fn(f64, f64) -> bool> {
        match self.subject() {
            Subject::Accuracy => Some(|one, other| one > other),
            Subject::Loss if is_of_validation(&self.name) => Some(|one, other| one < other),
            _ => None,
        }
    }

    /// The curve as a line of at most `width` characters, the lowest value at the bottom. Each stands for the mean of as many
    /// points; `!` for those that are no numbers any more.
    pub fn spark(&self, width: usize) -> String {
        const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
        let columns = self.points.len().min(width);
        let means: Vec<Option<f64>> = (0..columns)
            .map(|column| {
                let at = |column: usize| column * self.points.len() / columns;
                let part = &self.points[at(column)..at(column + 1)];
                let sum: f64 = part.iter().map(|point| point.value).sum();
                Some(sum / part.len() as f64).filter(|mean| mean.is_finite())
            })
            .collect();
        let known = || means.iter().flatten().copied();
        let (low, high) = known().fold((f64::MAX, f64::MIN), |(low, high), mean| {
            (low.min(mean), high.max(mean))
        });
        let level = |mean: f64| {
            let part = (mean - low) / (high - low).max(f64::MIN_POSITIVE);
            LEVELS[((part * LEVELS.len() as f64) as usize).min(LEVELS.len() - 1)]
        };
        means.iter().map(|mean| mean.map_or('!', level)).collect()
    }
}

/// A curve of any number of points, thinned while they come: of each stretch, the lowest and the highest value are kept.
#[derive(Debug)]
struct Thinned {
    name: String,
    counts: &'static str,
    /// Two of each stretch, in their order.
    points: Vec<Point>,
    /// How many points a stretch has.
    stretch: u64,
    /// The stretch that has not ended: how many points came, and those that it is kept by.
    came: u64,
    open: Vec<Point>,
    /// Points that stay whatever is thinned.
    first: Option<Point>,
    last: Option<Point>,
    broken: Option<Point>,
    /// The highest step.
    reached: Option<u64>,
}

impl Thinned {
    fn new(name: String, counts: &'static str) -> Self {
        Self {
            name,
            counts,
            points: Vec::new(),
            stretch: 2,
            came: 0,
            open: Vec::new(),
            first: None,
            last: None,
            broken: None,
            reached: None,
        }
    }

    /// Drops what a point undoes: those of its step and of later ones, if its step came before. Where points have been thinned, every
    /// step back is taken for one that came before. Returns whether something was dropped.
    fn undo(&mut self, point: &Point) -> bool {
        let Some(step) = point
            .step
            .filter(|step| self.reached.is_some_and(|reached| *step <= reached))
        else {
            return false;
        };
        let mut kept = self.points.iter().chain(&self.open);
        if self.stretch == 2 && !kept.any(|kept| kept.step == Some(step)) {
            return false;
        }
        let stays = |kept: &Point| kept.step.is_none_or(|kept| kept < step);
        self.points.retain(stays);
        self.open.retain(stays);
        self.came = self.open.len() as u64;
        self.first = self.first.filter(stays);
        self.broken = self.broken.filter(stays);
        self.reached = None;
        true
    }

    fn push(&mut self, point: Point) {
        self.reached = self.reached.max(point.step);
        self.first.get_or_insert(point);
        self.last = Some(point);
        if !point.value.is_finite() {
            self.broken.get_or_insert(point);
        }
        self.open.push(point);
        self.came += 1;
        if self.open.len() > 2 {
            self.open = extremes(&self.open).to_vec();
        }
        if self.came < self.stretch {
            return;
        }
        self.points.append(&mut self.open);
        self.came = 0;
        if self.points.len() >= 2 * POINTS {
            self.points = self.points.chunks(4).flat_map(extremes).collect();
            self.stretch *= 2;
        }
    }

    /// The curve, by time.
    fn finish(&self) -> Curve {
        let mut points = [&self.points[..], &self.open].concat();
        if self.stretch > 2 {
            points.extend([self.first, self.last, self.broken].into_iter().flatten());
        }
        points.sort_by(|a, b| a.time.total_cmp(&b.time).then(a.step.cmp(&b.step)));
        if self.stretch > 2 {
            // The lowest and the highest of a stretch may be the same one.
            points.dedup_by_key(|point| (point.time.to_bits(), point.step, point.value.to_bits()));
        }
        Curve {
            name: self.name.clone(),
            points,
            counts: self.counts,
        }
    }
}

/// The lowest and the highest of some points, each the first of equals, in their order; what is no number counts only where all are
/// none. `points` is not empty.
fn extremes(points: &[Point]) -> [Point; 2] {
    let first_by = |is_before: fn(f64, f64) -> bool| {
        (0..points.len())
            .filter(|at| points[*at].value.is_finite())
            .reduce(|best, at| match is_before(points[at].value, points[best].value) {
                true => at,
                false => best,
            })
    };
    let low = first_by(|one, other| one < other).unwrap_or(0);
    let high = first_by(|one, other| one > other).unwrap_or(points.len() - 1);
    [points[low.min(high)], points[low.max(high)]]
}

/// At most `most` points for a picture of these, the first and the last of which stay: of each stretch the lowest, the highest, and the
/// first that is no number.
pub fn thin(points: &[Point], most: usize) -> Vec<Point> {
    if points.len() <= most {
        return points.to_vec();
    }
    let stretches = (most.saturating_sub(2) / 3).max(1);
    let mut kept: Vec<Point> = points[..1].to_vec();
    for stretch in points.chunks(points.len().div_ceil(stretches)) {
        let mut of = extremes(stretch).to_vec();
        of.extend(stretch.iter().find(|point| !point.value.is_finite()));
        of.sort_by(|a, b| a.time.total_cmp(&b.time).then(a.step.cmp(&b.step)));
        kept.extend(of);
    }
    kept.extend(points.last());
    kept.dedup_by_key(|point| (point.time.to_bits(), point.step, point.value.to_bits()));
    kept
}

/// The words of a name: `val_loss` and `val/loss` have two.
fn words(name: &str) -> impl Iterator<Item = &str> {
    name.split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
}

/// Whether a number of this name is a loss: one of its words ends with `loss` or `losses`. The scale of a loss is none.
pub fn is_loss(name: &str) -> bool {
    let name = name.to_lowercase();
    let mut all = words(&name);
    all.any(|word| word.ends_with("loss") || word.ends_with("losses"))
        && words(&name).all(|word| word != "scale")
}

/// Whether a number of this name is one of validation: it has a word such as `val`, `test` or `eval`, or one that begins so and
/// ends with `loss`, `acc` or `accuracy`.
pub fn is_of_validation(name: &str) -> bool {
    const WORDS: [&str; 7] = [
        "val",
        "valid",
        "validation",
        "test",
        "testing",
        "eval",
        "evaluation",
    ];
    let name = name.to_lowercase();
    words(&name).any(|word| {
        let begins = ["loss", "acc", "accuracy"]
            .iter()
            .find_map(|end| word.strip_suffix(end));
        WORDS.contains(&word) || begins.is_some_and(|begins| WORDS.contains(&begins))
    })
}

/// The curves of a run's folder, by subject and name, and how many lines could not be read. A folder without metrics has none.
///
/// # Errors
/// The system's error.
pub fn read(run: &Path, recording: &Recording) -> io::Result<(Vec<Curve>, u64)> {
    let time = step_times(recording);
    let mut following = Following::new(run);
    following.look(&time, &mut |_| {})?;
    Ok((following.curves(), following.bad))
}

/// The curves of a run that continues.
#[derive(Debug)]
pub struct Following {
    file: Growing,
    curves: BTreeMap<String, Thinned>,
    /// The first instance that reported a name.
    hosts: BTreeMap<String, String>,
    /// How often a name came without a step.
    counted: BTreeMap<String, u64>,
    /// Names that there was no room for.
    left_out: BTreeSet<String>,
    bad: u64,
}

/// What a look finds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum News<'a> {
    /// The file was written again, as by a run that was resumed: what came before is no part of the curves any more.
    Anew,
    /// Points of a curve that came before are no part of it any more.
    Undone,
    /// A point of the curve of this name.
    Point(&'a str, Point),
}

impl Following {
    /// Those of a run's folder, which need not have any yet.
    pub fn new(run: &Path) -> Self {
        Self {
            file: Growing::new(run.join("metrics.jsonl")),
            curves: BTreeMap::new(),
            hosts: BTreeMap::new(),
            counted: BTreeMap::new(),
            left_out: BTreeSet::new(),
            bad: 0,
        }
    }

    /// How many metrics have no curve: there are 64 at most. Counted up to 1,000.
    pub fn left_out(&self) -> usize {
        self.left_out.len()
    }

    /// What the steps of a curve count.
    pub fn counts(&self, name: &str) -> &'static str {
        self.curves.get(name).map_or("step", |curve| curve.counts)
    }

    /// A point with its curve's name. The n-th number that is printed without a step is that of step n. What several instances report
    /// under one name are several curves: that of the first one has the name, the others have the instance after it.
    fn placed(
        &mut self,
        name: String,
        host: Option<&str>,
        mut point: Point,
        counts: &str,
    ) -> (String, Point) {
        let name = match host {
            None => name,
            Some(host) => match self.hosts.get(&name) {
                Some(first) if first != host => format!("{name} ({host})"),
                Some(_) => name,
                None => {
                    if self.hosts.len() < MOST_NAMES {
                        self.hosts.insert(name.clone(), host.to_owned());
                    }
                    name
                }
            },
        };
        if point.step.is_none()
            && counts == "step"
            && (self.curves.contains_key(&name) || self.curves.len() < CURVES)
        {
            let count = self.counted.entry(name.clone()).or_default();
            *count += 1;
            point.step = Some(*count);
        }
        (name, point)
    }

    /// Reads what was written since the last look, and hands out what is new, as it comes: nothing of it is kept but what the curves
    /// keep. `time` says when a step ended; a line of a step whose time is unknown has no points.
    ///
    /// # Errors
    /// The system's error.
    pub fn look(
        &mut self,
        time: &dyn Fn(u64) -> Option<f64>,
        each: &mut dyn FnMut(News<'_>),
    ) -> io::Result<()> {
        while self.take(time, each)? {}
        Ok(())
    }

    /// Hands out what one read of the file finds. Returns whether there is more.
    fn take(
        &mut self,
        time: &dyn Fn(u64) -> Option<f64>,
        each: &mut dyn FnMut(News<'_>),
    ) -> io::Result<bool> {
        let news = self.file.look()?;
        if news.anew {
            self.curves.clear();
            self.hosts.clear();
            self.counted.clear();
            self.left_out.clear();
            self.bad = 0;
            each(News::Anew);
        }
        for line in news.lines() {
            let value: Value = serde_json::from_slice(line).unwrap_or_default();
            let Some((counts, points)) = points(&value, time) else {
                self.bad += 1;
                continue;
            };
            let host = value.get("host").and_then(Value::as_str);
            for (name, point) in points {
                let (name, point) = self.placed(name, host, point, counts);
                if !self.curves.contains_key(&name) {
                    if self.curves.len() == CURVES {
                        if self.left_out.len() < MOST_NAMES {
                            self.left_out.insert(name);
                        }
                        continue;
                    }
                    let new = Thinned::new(name.clone(), counts);
                    self.curves.insert(name.clone(), new);
                }
                if let Some(curve) = self.curves.get_mut(&name) {
                    if curve.undo(&point) {
                        each(News::Undone);
                    }
                    curve.push(point);
                }
                each(News::Point(&name, point));
            }
        }
        Ok(news.more)
    }

    /// The curves so far, by subject and name.
    pub fn curves(&self) -> Vec<Curve> {
        let mut curves: Vec<Curve> = self.curves.values().map(Thinned::finish).collect();
        curves.sort_by_key(Curve::subject);
        curves
    }
}

/// When each training step ended, as far as a recording says: for [`Following::look`].
pub fn step_times(recording: &Recording) -> impl Fn(u64) -> Option<f64> + use<> {
    let spans = recording.nodes.iter().flat_map(|node| node.spans_of(span::STEP));
    let ends: BTreeMap<u64, f64> = spans.filter_map(|span| Some((span.step?, span.end()))).collect();
    // Spans of long runs are thinned: the step before will do.
    move |step| ends.range(..=step).next_back().map(|(_, &time)| time)
}

/// The numbers of a line, by name, and what their steps count; `None` for a line that is none. A line whose time is unknown has no
/// points.
fn points(line: &Value, time: &dyn Fn(u64) -> Option<f64>) -> Option<(&'static str, Vec<(String, Point)>)> {
    let line = line.as_object()?;
    if let Some(name) = line.get("name") {
        let point = Point {
            time: line.get("time")?.as_f64()?,
            step: line.get("step").and_then(Value::as_u64),
            value: number(line.get("value")?)?,
        };
        return Some(("step", vec![(name.as_str()?.to_owned(), point)]));
    }
    let step = line.get("step")?.as_u64()?;
    let of_epoch = match line.get("kind")?.as_str()? {
        "train" => false,
        "epoch" => true,
        _ => return None,
    };
    let Some(time) = time(step) else {
        return Some(("step", Vec::new()));
    };
    let step = if of_epoch {
        line.get("epoch")?.as_u64()
    } else {
        Some(step)
    };
    let point = |value| Point { time, step, value };
    let names: &[&str] = match of_epoch {
        false => &["loss", "lr", "images_per_second"],
        true => &[
            "val_loss",
            "top1",
            "topk",
            "miou",
            "pixel_accuracy",
            "ema_loss",
            "ema_top1",
            "ema_miou",
        ],
    };
    let values = names
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), point(number(line.get(*name)?)?))));
    Some((if of_epoch { "epoch" } else { "step" }, values.collect()))
}

/// A number, or the text of one that JSON has none for.
fn number(value: &Value) -> Option<f64> {
    value.as_f64().or_else(|| value.as_str()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use stokehold_simulate::Simulation;

    fn read_text(text: &str) -> (Vec<Curve>, u64) {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("metrics.jsonl"), text).unwrap();
        read(dir.path(), &Simulation::default().recording()).unwrap()
    }

    #[test]
    fn metrics_of_a_job_are_curves() {
        let (curves, bad) = read_text(
            "{\"host\":\"algo-1\",\"name\":\"val_loss\",\"time\":2,\"value\":0.5}\n\
             {\"name\":\"val_loss\",\"step\":7,\"time\":3,\"value\":\"NaN\"}\n{\"name\":\"acc\",\"time\":1,\"value\":0.9}\nno line\n\n",
        );
        assert_eq!(bad, 1);
        let [loss, accuracy] = &curves[..] else {
            panic!("{curves:?}")
        };
        assert_eq!(
            (loss.name.as_str(), loss.subject(), loss.points.len()),
            ("val_loss", Subject::Loss, 2)
        );
        assert!(loss.points[1].value.is_nan() && loss.points[1].step == Some(7));
        assert_eq!(loss.best().unwrap().value, 0.5);
        assert_eq!(accuracy.best().unwrap().value, 0.9);
    }

    #[test]
    fn several_instances_have_curves_of_their_own_and_printed_numbers_have_steps() {
        let mut text = String::new();
        for number in 1..=3 {
            for host in ["algo-1", "algo-2"] {
                text += &format!(
                    "{{\"host\":\"{host}\",\"name\":\"loss\",\"time\":{number},\"value\":{number}}}\n"
                );
            }
        }
        for number in 0..70 {
            text += &format!("{{\"name\":\"class{number}\",\"time\":9,\"step\":4,\"value\":1}}\n");
        }
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("metrics.jsonl"), text).unwrap();
        let mut following = Following::new(dir.path());
        following.look(&|_| None, &mut |_| {}).unwrap();
        let curves = following.curves();
        let of = |name: &str| {
            let curve = curves.iter().find(|curve| curve.name == name).unwrap();
            curve.points.iter().map(|point| point.step).collect::<Vec<_>>()
        };
        assert_eq!(of("loss"), [Some(1), Some(2), Some(3)]);
        assert_eq!(of("loss (algo-2)"), [Some(1), Some(2), Some(3)]);
        assert_eq!(of("class0"), [Some(4)]);
        assert_eq!((curves.len(), following.left_out()), (64, 8));
    }

    #[test]
    fn a_step_that_comes_again_undoes_what_came_from_it_on() {
        let line = |step: u64, value: f64| {
            format!("{{\"name\":\"val_accuracy\",\"time\":{step},\"step\":{step},\"value\":{value}}}\n")
        };
        // Interrupted at 80, with 0.84 at 70; from 50 on again, to the end and only to 60.
        for (end, thinned) in [(100, 1), (60, 1), (100, 1000), (60, 1000)] {
            let mut text = String::new();
            for step in 1..=80 * thinned {
                let value = if step == 70 * thinned {
                    0.84
                } else {
                    step as f64 / 2e5
                };
                text += &line(step, value);
            }
            for step in 50 * thinned + 1..=end * thinned {
                text += &line(step, step as f64 / 2e5);
            }
            let (curves, _) = read_text(&text);
            let curve = &curves[0];
            let steps: Vec<u64> = curve.points.iter().filter_map(|point| point.step).collect();
            assert!(
                steps.is_sorted_by(|a, b| a < b) && steps[0] == 1,
                "{end} {thinned}"
            );
            assert_eq!(steps.last(), Some(&(end * thinned)));
            assert_eq!(curve.best().unwrap().step, Some(end * thinned));
            if thinned == 1 {
                assert_eq!(steps.len() as u64, end);
            }
        }
        // One that comes late, such as an evaluation next to the training, undoes nothing.
        let (curves, _) = read_text(
            &[
                line(1, 0.1),
                line(3, 0.3),
                line(2, 0.2),
                line(3, 0.5),
                line(3, 0.4),
            ]
            .concat(),
        );
        let points: Vec<_> = curves[0]
            .points
            .iter()
            .map(|point| (point.step, point.value))
            .collect();
        assert_eq!(points, [(Some(1), 0.1), (Some(2), 0.2), (Some(3), 0.4)]);
    }

    #[test]
    fn names_say_what_a_number_is() {
        for (name, loss, validation) in [
            ("loss", true, false),
            ("train/loss", true, false),
            ("val_loss", true, true),
            ("valloss", true, true),
            ("test-loss_epoch", true, true),
            ("loss_scale", false, false),
            ("value_loss", true, false),
            ("interval_loss", true, false),
            ("latest_loss", true, false),
            ("eval_accuracy", false, true),
            ("previous", false, false),
        ] {
            assert_eq!(
                (is_loss(name), is_of_validation(name)),
                (loss, validation),
                "{name}"
            );
        }
    }

    #[test]
    fn lines_of_a_run_are_at_the_ends_of_their_steps() {
        let recording = Simulation::default().recording();
        let step = recording.nodes[0].spans_of(span::STEP).nth(4).unwrap();
        let number = step.step.unwrap();
        let (curves, bad) = read_text(&format!(
            "{{\"kind\":\"train\",\"epoch\":1,\"step\":{number},\"loss\":2.5,\"lr\":0.1,\"images_per_second\":9,\"wait_share\":0}}\n\
             {{\"kind\":\"epoch\",\"epoch\":1,\"step\":{number},\"val_loss\":2.25,\"top1\":0.5,\"miou\":null}}\n"
        ));
        assert_eq!(bad, 0);
        let names: Vec<&str> = curves.iter().map(|curve| curve.name.as_str()).collect();
        assert_eq!(names, ["loss", "val_loss", "top1", "lr", "images_per_second"]);
        assert!(curves.iter().all(|curve| curve.points[0].time == step.end()));
        assert_eq!(curves[1].points[0].step, Some(1));
    }

    #[test]
    fn a_curve_is_a_line_of_characters() {
        let curve = |values: &[f64]| Curve {
            name: "loss".to_owned(),
            points: values
                .iter()
                .map(|&value| Point {
                    time: 0.0,
                    step: None,
                    value,
                })
                .collect(),
            counts: "step",
        };
        assert_eq!(curve(&[8.0, 4.0, 2.0, 1.0]).spark(10), "█▄▂▁");
        assert_eq!(curve(&[8.0, 8.0, 1.0, 1.0]).spark(2), "█▁");
        assert_eq!(curve(&[3.0, 3.0]).spark(10), "▁▁");
        assert_eq!(curve(&[1.0, f64::NAN, f64::INFINITY, 2.0]).spark(4), "▁!!█");
        assert_eq!(
            (curve(&[]).spark(4), curve(&[1.0]).spark(0)),
            (String::new(), String::new())
        );
    }

    #[test]
    fn a_run_that_goes_on_is_followed() {
        let dir = tempfile::tempdir().unwrap();
        let mut following = Following::new(dir.path());
        let news = |following: &mut Following| {
            let mut all = Vec::new();
            let each = &mut |news: News<'_>| all.push(format!("{news:?}"));
            following.look(&|_| Some(5.0), each).unwrap();
            all
        };
        assert!(news(&mut following).is_empty() && following.curves().is_empty());
        let line = |step: u64| {
            format!(
                "{{\"kind\":\"train\",\"epoch\":1,\"step\":{step},\"loss\":2.5,\"lr\":0.1,\"images_per_second\":9}}\n"
            )
        };
        let path = dir.path().join("metrics.jsonl");
        std::fs::write(&path, line(1) + &line(2)).unwrap();
        assert_eq!(news(&mut following).len(), 6);
        let loss = following.curves().remove(0);
        assert_eq!((loss.points.len(), loss.points[0].time), (2, 5.0));
        assert!(news(&mut following).is_empty());
        // A run that begins again.
        std::fs::write(&path, line(1)).unwrap();
        let again = news(&mut following);
        assert_eq!((again.len(), again[0].as_str()), (4, "Anew"));
        assert_eq!(following.curves()[0].points.len(), 1);
    }

    /// The most points of a curve.
    const MOST: usize = 2 * POINTS + 3;

    #[test]
    fn of_three_million_lines_a_bounded_part_is_kept_with_its_ends_and_extremes() {
        let dir = tempfile::tempdir().unwrap();
        let file = std::fs::File::create(dir.path().join("metrics.jsonl")).unwrap();
        let mut file = io::BufWriter::new(file);
        let value = |step: u64| match step {
            1_234_567 => -5.0,
            2_345_678 => 5.0,
            step => (step as f64 / 1e5).sin(),
        };
        for step in 0..3_000_000 {
            writeln!(
                file,
                "{{\"name\":\"x\",\"time\":{step},\"step\":{step},\"value\":{}}}",
                value(step)
            )
            .unwrap();
        }
        file.flush().unwrap();
        let mut following = Following::new(dir.path());
        let mut handed = 0u64;
        following
            .look(&|_| None, &mut |news| {
                handed += u64::from(matches!(news, News::Point(..)))
            })
            .unwrap();
        assert_eq!(handed, 3_000_000);
        let curve = &following.curves["x"];
        let held = curve.points.capacity() + curve.open.capacity();
        assert!(held <= 2 * MOST, "{held}");
        let points = following.curves().remove(0).points;
        assert!((POINTS..=MOST).contains(&points.len()), "{}", points.len());
        for step in [0, 1_234_567, 2_345_678, 2_999_999] {
            let kept = points.iter().find(|point| point.step == Some(step));
            assert_eq!(kept.unwrap().value, value(step), "{step}");
        }
        // Fewer for a picture, with the same ends and extremes.
        let few = thin(&points, 500);
        assert!((300..=500).contains(&few.len()), "{}", few.len());
        for step in [0, 1_234_567, 2_345_678, 2_999_999] {
            assert!(few.iter().any(|point| point.step == Some(step)), "{step}");
        }
    }

    #[test]
    fn extremes_are_numbers_where_there_are_any() {
        let points = |values: &[f64]| -> Vec<Point> {
            values
                .iter()
                .zip(0u32..)
                .map(|(&value, time)| Point {
                    time: time.into(),
                    step: None,
                    value,
                })
                .collect()
        };
        let of = |values: &[f64]| extremes(&points(values)).map(|point| point.time);
        assert_eq!(of(&[1.0, 3.0, 0.0, 2.0]), [1.0, 2.0]);
        assert_eq!(of(&[f64::NAN, 3.0, f64::INFINITY, 2.0]), [1.0, 3.0]);
        assert_eq!(of(&[7.0, 7.0, 7.0]), [0.0, 0.0]);
        assert_eq!(of(&[f64::NAN, f64::NAN, f64::NAN]), [0.0, 2.0]);
        let mut broken = points(&[1.0; 100]);
        broken[50].value = f64::NAN;
        let few = thin(&broken, 20);
        assert!(
            few.len() <= 20 && few.iter().any(|point| point.time == 50.0),
            "{few:?}"
        );
    }

    #[test]
    fn curves_have_an_end() {
        let line = |time: usize| format!("{{\"name\":\"x\",\"time\":{time},\"value\":{time}}}\n");
        let (curves, _) = read_text(&(0..100_000).map(line).collect::<String>());
        let points = &curves[0].points;
        assert!((POINTS..=MOST).contains(&points.len()), "{}", points.len());
        assert!(points.windows(2).all(|pair| pair[0].time < pair[1].time));
        // Thinned evenly: the first half of the run has half of the points.
        let first = points.iter().filter(|point| point.time < 50_000.0).count();
        assert!(
            (points.len() / 2).abs_diff(first) <= 4,
            "{first} of {}",
            points.len()
        );
        // The best one stays, wherever it is; and one NaN, but not thousands of them.
        let value = |time: usize| match time {
            33_333 => "0.99".to_owned(),
            time if time >= 60_000 => "\"NaN\"".to_owned(),
            _ => "0.5".to_owned(),
        };
        let line_of = |time: usize| {
            format!(
                "{{\"name\":\"top1\",\"time\":{time},\"value\":{}}}\n",
                value(time)
            )
        };
        let (curves, _) = read_text(&(0..100_000).map(line_of).collect::<String>());
        let points = &curves[0].points;
        assert!(points.len() <= MOST, "{}", points.len());
        assert_eq!(curves[0].best().unwrap().time, 33_333.0);
        let broken = points.iter().find(|point| !point.value.is_finite()).unwrap();
        assert_eq!(broken.time, 60_000.0);
        let line = |number: usize| format!("{{\"name\":\"x{number}\",\"time\":1,\"value\":1}}\n");
        assert_eq!(
            read_text(&(0..2 * CURVES).map(line).collect::<String>()).0.len(),
            CURVES
        );
    }

    #[test]
    fn no_metrics_are_no_curves() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read(dir.path(), &Recording::default()).unwrap(), (Vec::new(), 0));
    }
}
