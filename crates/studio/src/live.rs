//! The curves of runs that somebody looks at, as they grow.
//!
//! All streams of a run share one [`Live`], which reads each new line of its metrics once. A reader's place is the number of points that
//! it has. From there on it gets the points as they came, if they are still kept, or else all curves anew.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use stokehold_base::clock::unix_now;
use stokehold_diagnose::curves::{Curve, Following, Point, Subject, step_times};
use stokehold_profile::Recording;

use crate::text;

/// The points that are kept as they came.
const RECENT: usize = 20_000;
/// Streams that look within this time get the same answer.
const FRESH: Duration = Duration::from_millis(200);
/// The most points of a curve that are sent at once; each pair of two stands for a stretch, by its lowest and its highest value.
const SENT: usize = 2000;

/// The curves of all runs that somebody looks at.
#[derive(Debug, Default)]
pub struct Lives(Mutex<HashMap<String, Weak<Live>>>);

/// The curves of a run.
pub struct Live(Mutex<State>);

impl std::fmt::Debug for Live {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Live")
    }
}

struct State {
    folder: PathBuf,
    following: Following,
    looked: Option<Instant>,
    names: BTreeMap<String, usize>,
    recent: VecDeque<(usize, Point)>,
    /// The points that have come since the file was begun.
    count: u64,
    begun: u64,
}

/// How far a reader of curves is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct At {
    /// Which beginning of the file it knows.
    pub begun: u64,
    /// The points that it has; 0 for nothing.
    pub count: u64,
}

impl Lives {
    /// That of a run, which is made if nobody has looked.
    pub fn of(&self, key: &str, folder: PathBuf) -> Arc<Live> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(live) = all.get(key).and_then(Weak::upgrade) {
            return live;
        }
        all.retain(|_, live| live.strong_count() > 0);
        let live = Arc::new(Live::new(folder));
        all.insert(key.to_owned(), Arc::downgrade(&live));
        live
    }
}

impl Live {
    /// The curves of a run's folder.
    pub fn new(folder: PathBuf) -> Self {
        Self(Mutex::new(State {
            following: Following::new(&folder),
            folder,
            looked: None,
            names: BTreeMap::new(),
            recent: VecDeque::new(),
            count: 0,
            begun: 0,
        }))
    }

    /// What a reader lacks, and where it is then; `None` if nothing.
    pub fn since(&self, at: At) -> (At, Option<Value>) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.look();
        let now = At {
            begun: state.begun,
            count: state.count,
        };
        if at == now {
            return (now, None);
        }
        let first = state.count - state.recent.len() as u64;
        let is_near = at.begun == now.begun && at.count > 0 && (first..now.count).contains(&at.count);
        let news = match is_near {
            true => state.more((at.count - first) as usize),
            false => json!({"all": whole(&state.following.curves())}),
        };
        (now, Some(news))
    }
}

impl State {
    fn look(&mut self) {
        if self.looked.is_some_and(|looked| looked.elapsed() < FRESH) {
            return;
        }
        let now = unix_now();
        // When steps ended that had ended before the first look; what comes later has just come.
        let times = match self.looked {
            None => Recording::open(&self.folder)
                .ok()
                .map(|recording| step_times(&recording)),
            Some(_) => None,
        };
        // Without a recording no step has a known time; they are told apart by their numbers.
        let known = |step| times.as_ref().and_then(|times| times(step)).or(Some(now));
        // What cannot be read now is read at the next look.
        let points = self.following.look(&known).unwrap_or_default();
        self.looked = Some(Instant::now());
        if self.following.begun() != self.begun {
            self.begun = self.following.begun();
            self.count = 0;
            self.recent.clear();
            self.names.clear();
        }
        self.count += points.len() as u64;
        let skipped = points.len().saturating_sub(RECENT);
        for (name, point) in points.into_iter().skip(skipped) {
            let next = self.names.len();
            let number = *self.names.entry(name).or_insert(next);
            if self.recent.len() == RECENT {
                self.recent.pop_front();
            }
            self.recent.push_back((number, point));
        }
    }

    /// The points from a place of the recent ones on, by curve.
    fn more(&self, from: usize) -> Value {
        let mut by_curve: BTreeMap<usize, Vec<Value>> = BTreeMap::new();
        for (number, point) in self.recent.range(from..) {
            by_curve.entry(*number).or_default().extend(flat(point));
        }
        let names: BTreeMap<usize, &str> = self
            .names
            .iter()
            .map(|(name, number)| (*number, name.as_str()))
            .collect();
        let more: Vec<Value> = by_curve
            .into_iter()
            .map(|(number, points)| {
                let name = names.get(&number).copied().unwrap_or_default();
                let curve = Curve {
                    name: name.to_owned(),
                    points: Vec::new(),
                    counts: "step",
                };
                json!({"name": text::short(name, 100), "subject": subject(&curve), "points": points})
            })
            .collect();
        json!({ "more": more })
    }
}

/// Curves for a page: names, what they are about, and points as `time, step, value` one after the other.
pub fn whole(curves: &[Curve]) -> Vec<Value> {
    let each = curves.iter().map(|curve| {
        let points: Vec<Value> = thinned(&curve.points).iter().flat_map(flat).collect();
        json!({
            "name": text::short(&curve.name, 100),
            "subject": subject(curve),
            "counts": curve.counts,
            "best": curve.best().map(|point| flat(&point)),
            "points": points,
        })
    });
    each.collect()
}

fn subject(curve: &Curve) -> &'static str {
    match curve.subject() {
        Subject::Loss => "loss",
        Subject::Accuracy => "accuracy",
        Subject::Rate => "rate",
        Subject::Other => "other",
    }
}

/// Time to the millisecond, step, and value; null for what is none.
fn flat(point: &Point) -> [Value; 3] {
    [
        json!((point.time * 1e3).round() / 1e3),
        json!(point.step),
        json!(Some(point.value).filter(|value| value.is_finite())),
    ]
}

/// The points that a picture needs: of each stretch the lowest and the highest, and every one that is no number.
fn thinned(points: &[Point]) -> Vec<Point> {
    if points.len() <= SENT {
        return points.to_vec();
    }
    let long = points.len().div_ceil(SENT / 2);
    let mut kept = Vec::with_capacity(SENT + 2);
    for stretch in points.chunks(long) {
        let by_value = |a: &&Point, b: &&Point| a.value.total_cmp(&b.value);
        let low = stretch.iter().min_by(by_value);
        let high = stretch.iter().max_by(by_value);
        let mut pair: Vec<Point> = low.into_iter().chain(high).copied().collect();
        pair.sort_by(|a, b| a.time.total_cmp(&b.time).then(a.step.cmp(&b.step)));
        pair.dedup();
        kept.extend(pair);
    }
    // The last one is what people look at.
    kept.extend(points.last().filter(|last| kept.last() != Some(last)));
    kept
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write;

    use super::*;

    fn line(step: u64) -> String {
        format!(
            "{{\"name\":\"loss\",\"time\":{step},\"step\":{step},\"value\":{}}}\n",
            step as f64 / 2.0
        )
    }

    fn fresh(live: &Live) {
        live.0.lock().unwrap().looked = Some(Instant::now() - FRESH);
    }

    #[test]
    fn a_reader_gets_what_it_lacks() {
        let dir = tempfile::tempdir().unwrap();
        let mut file = File::create(dir.path().join("metrics.jsonl")).unwrap();
        file.write_all((line(1) + &line(2) + "{\"name\":\"lo").as_bytes())
            .unwrap();
        let live = Live::new(dir.path().to_owned());
        let (at, all) = live.since(At::default());
        assert_eq!(
            all.unwrap()["all"][0]["points"],
            json!([1.0, 1, 0.5, 2.0, 2, 1.0])
        );
        assert_eq!(live.since(at), (at, None));
        file.write_all(b"ss\",\"time\":3,\"step\":3,\"value\":\"NaN\"}\n")
            .unwrap();
        fresh(&live);
        let (next, more) = live.since(at);
        let more = more.unwrap();
        assert_eq!(more["more"][0]["points"], json!([3.0, 3, null]));
        assert_eq!((next.count, &more["more"][0]["subject"]), (3, &json!("loss")));
        // A reader of before gets the same again, and one that knows another file gets everything.
        assert_eq!(live.since(at).1.unwrap(), more);
        let foreign = At { begun: 7, count: 1 };
        assert!(live.since(foreign).1.unwrap()["all"].is_array());
        let beyond = At { begun: 0, count: 99 };
        assert!(live.since(beyond).1.unwrap()["all"].is_array());
        // Written anew, by a run that goes on from a checkpoint.
        std::fs::write(dir.path().join("metrics.jsonl"), line(1)).unwrap();
        fresh(&live);
        let (again, all) = live.since(next);
        assert_eq!(
            (again, all.unwrap()["all"][0]["points"].as_array().unwrap().len()),
            (At { begun: 1, count: 1 }, 3)
        );
    }

    #[test]
    fn whoever_is_too_slow_gets_the_curves_anew() {
        let dir = tempfile::tempdir().unwrap();
        let text: String = (1..=RECENT as u64 + 10).map(line).collect();
        std::fs::write(dir.path().join("metrics.jsonl"), text).unwrap();
        let live = Live::new(dir.path().to_owned());
        let (at, _) = live.since(At::default());
        assert_eq!(at.count, RECENT as u64 + 10);
        let old = live.since(At { begun: 0, count: 5 }).1.unwrap();
        let points = old["all"][0]["points"].as_array().unwrap().len() / 3;
        assert!((SENT / 2..=SENT + 2).contains(&points), "{points}");
        let near = live
            .since(At {
                begun: 0,
                count: at.count - 2,
            })
            .1
            .unwrap();
        assert_eq!(near["more"][0]["points"].as_array().unwrap().len(), 6);
    }

    #[test]
    fn spikes_survive_thinning() {
        let mut points: Vec<Point> = (0..50_000)
            .map(|step| Point {
                time: step as f64,
                step: Some(step),
                value: 1.0,
            })
            .collect();
        points[31_234].value = 100.0;
        points[7].value = f64::NAN;
        let kept = thinned(&points);
        assert!(kept.len() <= SENT + 2, "{}", kept.len());
        assert!(
            kept.iter().any(|point| point.value == 100.0) && kept.iter().any(|point| point.value.is_nan())
        );
        assert_eq!(kept.last(), points.last());
    }
}
