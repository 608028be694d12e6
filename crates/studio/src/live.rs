//! The curves of runs that somebody looks at, as they grow.
//!
//! All streams of a run share one [`Live`], which reads each new line of its metrics once. A reader's place is the number of points that
//! it has, of which beginning of the file. From there on it gets the points as they came, if they are still kept, or else all curves
//! again. A beginning has a number that nothing else has in this studio, and hardly in another one; so what a reader knows of one is
//! never continued with another's. The last few [`Live`]s stay for readers whose connection broke.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use stokehold_base::clock::unix_now;
use stokehold_base::hash::Fnv;
use stokehold_diagnose::curves::{Curve, Following, News, Point, Subject, step_times, thin};
use stokehold_profile::Recording;

use crate::text;

/// The points that are kept as they came.
const RECENT: usize = 20_000;
/// Streams that look within this time get the same answer.
const FRESH: Duration = Duration::from_millis(200);
/// After how long points may have come that did not just come.
const LATE: Duration = Duration::from_secs(5);
/// The most points of a curve that are sent at once.
const SENT: usize = 2000;
/// Curves that are kept when no one looks at them any more.
const KEPT: usize = 4;

/// The curves of all runs that somebody looks at.
#[derive(Debug, Default)]
pub struct Lives(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    all: HashMap<String, Weak<Live>>,
    /// The last ones that somebody asked for, the latest last.
    kept: VecDeque<Arc<Live>>,
}

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
    /// The number of this beginning.
    begun: u64,
}

/// A number that no other beginning has.
fn beginning() -> u64 {
    static FIRST: OnceLock<u64> = OnceLock::new();
    static NEXT: AtomicU64 = AtomicU64::new(0);
    // Microseconds, so that a studio that is started later has others.
    FIRST.get_or_init(|| (unix_now() * 1e6) as u64) + NEXT.fetch_add(1, Ordering::Relaxed)
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
    /// That of a run, which is made if no one has looked.
    pub fn of(&self, key: &str, folder: PathBuf) -> Arc<Live> {
        let Known { all, kept } = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = all.get(key).and_then(Weak::upgrade);
        let live = known.unwrap_or_else(|| {
            let live = Arc::new(Live::new(folder));
            all.insert(key.to_owned(), Arc::downgrade(&live));
            live
        });
        kept.retain(|other| !Arc::ptr_eq(other, &live));
        kept.push_back(Arc::clone(&live));
        if kept.len() > KEPT {
            kept.pop_front();
        }
        all.retain(|_, live| live.strong_count() > 0);
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
            begun: beginning(),
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
        // Of no points, no one needs to hear.
        if at == now || (at.count, now.count) == (0, 0) {
            return (now, None);
        }
        let first = state.count - state.recent.len() as u64;
        let is_near = at.begun == now.begun && at.count > 0 && (first..now.count).contains(&at.count);
        let news = match is_near {
            true => state.more((at.count - first) as usize),
            false => json!({"all": whole(&state.following.curves()), "left_out": state.following.left_out()}),
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
        // When steps ended that had ended before a look after which no one looked for a while; what comes later has just come.
        let is_late = self.looked.is_none_or(|looked| looked.elapsed() > LATE);
        let times = match is_late.then_some(()) {
            Some(()) => Recording::open(&self.folder)
                .ok()
                .map(|recording| step_times(&recording)),
            None => None,
        };
        // Without a recording no step has a known time; they are told apart by their numbers.
        let known = |step| times.as_ref().and_then(|times| times(step)).or(Some(now));
        let Self {
            following,
            names,
            recent,
            count,
            begun,
            ..
        } = self;
        let looked = following.look(&known, &mut |news| match news {
            News::Anew => {
                *begun = beginning();
                *count = 0;
                recent.clear();
                names.clear();
            }
            // Every reader gets the curves as they are now.
            News::Undone => {
                *begun = beginning();
                recent.clear();
            }
            News::Point(name, point) => {
                let number = match names.get(name) {
                    Some(number) => *number,
                    None => {
                        names.insert(name.to_owned(), names.len());
                        names.len() - 1
                    }
                };
                if recent.len() == RECENT {
                    recent.pop_front();
                }
                recent.push_back((number, point));
                *count += 1;
            }
        });
        // What cannot be read now is read at the next look.
        if let Err(error) = looked {
            tracing::debug!("{}: its numbers cannot be read: {error}", self.folder.display());
        }
        self.looked = Some(Instant::now());
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
                    counts: self.following.counts(name),
                };
                json!({"name": shown(name), "subject": subject(&curve), "counts": curve.counts, "points": points})
            })
            .collect();
        json!({ "more": more })
    }
}

/// Curves for a page: names, what they are about, and points as `time, step, value` one after the other.
pub fn whole(curves: &[Curve]) -> Vec<Value> {
    let each = curves.iter().map(|curve| {
        let points: Vec<Value> = thin(&curve.points, SENT).iter().flat_map(flat).collect();
        json!({
            "name": shown(&curve.name),
            "subject": subject(curve),
            "counts": curve.counts,
            "best": curve.best().map(|point| flat(&point)),
            "points": points,
        })
    });
    each.collect()
}

/// A name as a page has it, where curves are told apart by their names.
fn shown(name: &str) -> String {
    let short = text::short(name, 100);
    match name.chars().count() <= 100 {
        true => short,
        false => format!("{short} #{:08x}", Fnv::of(name.as_bytes()) as u32),
    }
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
        let foreign = At { begun: 7, ..at };
        assert!(live.since(foreign).1.unwrap()["all"].is_array());
        let beyond = At { count: 99, ..at };
        assert!(live.since(beyond).1.unwrap()["all"].is_array());
        // Written again, by a run that continues from a checkpoint.
        std::fs::write(dir.path().join("metrics.jsonl"), line(1)).unwrap();
        fresh(&live);
        let (again, all) = live.since(next);
        assert_eq!(
            (
                again.count,
                all.unwrap()["all"][0]["points"].as_array().unwrap().len()
            ),
            (1, 3)
        );
        assert_ne!(again.begun, next.begun);
    }

    #[test]
    fn whoever_is_too_slow_gets_the_curves_anew() {
        let dir = tempfile::tempdir().unwrap();
        let text: String = (1..=RECENT as u64 + 10).map(line).collect();
        std::fs::write(dir.path().join("metrics.jsonl"), text).unwrap();
        let live = Live::new(dir.path().to_owned());
        let (at, _) = live.since(At::default());
        assert_eq!(at.count, RECENT as u64 + 10);
        let old = live.since(At { count: 5, ..at }).1.unwrap();
        let points = old["all"][0]["points"].as_array().unwrap().len() / 3;
        assert!((SENT / 2..=SENT).contains(&points), "{points}");
        let near = At {
            count: at.count - 2,
            ..at
        };
        let near = live.since(near).1.unwrap();
        assert_eq!(near["more"][0]["points"].as_array().unwrap().len(), 6);
    }

    #[test]
    fn what_is_known_of_one_beginning_is_never_continued_with_another() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("metrics.jsonl");
        let lives = Lives::default();
        let of = |key: &str| lives.of(key, dir.path().to_owned());
        // Nothing is there: no one hears of it, neither the first nor those who come back.
        let (empty, news) = of("a").since(At::default());
        assert_eq!((empty.count, news), (0, None));
        std::fs::write(&path, line(1)).unwrap();
        fresh(&of("a"));
        let (at, all) = of("a").since(empty);
        assert!(all.unwrap()["all"].is_array());
        // No one looks for a while: another one is there, or the same one.
        assert_eq!(of("a").since(at), (at, None));
        (0..KEPT).for_each(|number| drop(of(&number.to_string())));
        std::fs::write(&path, line(7) + &line(8)).unwrap();
        let (next, news) = of("a").since(at);
        assert!(next.begun != at.begun, "{next:?} {at:?}");
        assert_eq!(
            news.unwrap()["all"][0]["points"],
            json!([7.0, 7, 3.5, 8.0, 8, 4.0])
        );
        assert!(lives.0.lock().unwrap().all.len() <= KEPT);
    }
}
