//! A Chrome trace, an array of events, read one event after the other: a file that is cut off gives those before.

use std::borrow::Cow;
use std::collections::HashMap;

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::damage::Damage;
use crate::recording::Span;
use crate::timeline::line::LATEST;

/// The fields of an event that are used here.
#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow, default)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    ph: Cow<'a, str>,
    pid: Option<i64>,
    ts: Option<f64>,
    dur: Option<f64>,
    #[serde(borrow, default)]
    args: Option<Args<'a>>,
}

#[derive(Deserialize, Default)]
struct Args<'a> {
    #[serde(borrow)]
    name: Option<Value<'a>>,
    start_time_since_epoch_in_micros: Option<f64>,
    #[serde(borrow)]
    step_num: Option<Value<'a>>,
    #[serde(borrow)]
    worker_id: Option<Value<'a>>,
    #[serde(borrow)]
    bytes: Option<Value<'a>>,
}

/// A value of an argument.
#[derive(Deserialize)]
#[serde(untagged)]
enum Value<'a> {
    Count(u64),
    Text(#[serde(borrow)] Cow<'a, str>),
    Other(IgnoredAny),
}

impl Value<'_> {
    fn count(&self) -> Option<u64> {
        match self {
            Value::Count(count) => Some(*count),
            Value::Text(text) => text.parse().ok(),
            Value::Other(_) => None,
        }
    }
}

/// Calls `each` with every span in the bytes of a trace file, and its name, until it returns `false`. A file
/// that is `growing` may end anywhere. Returns the file's problem, if any; everything before it was passed
/// on.
pub fn parse<'a>(
    bytes: &'a [u8],
    growing: bool,
    mut each: impl FnMut(Cow<'a, str>, Span) -> bool,
) -> Option<String> {
    let mut damage = Damage::default();
    let mut state = State::default();
    let mut events = Events {
        bytes,
        at: 0,
        between: false,
    };
    let end = match events.expect(b'[') {
        Ok(()) => loop {
            match events.next() {
                Ok(Some(Ok(event))) => match state.span(event) {
                    Ok(Some((name, span))) => {
                        if !each(name, span) {
                            break Ok(());
                        }
                    }
                    Ok(None) => {}
                    Err(reason) => {
                        damage.tell(|| format!("the event that ends at byte {}: {reason}", events.at))
                    }
                },
                Ok(Some(Err(reason))) => {
                    damage.tell(|| format!("the event that ends at byte {}: {reason}", events.at));
                }
                Ok(None) => break Ok(()),
                Err(End::Open) if growing => break Ok(()),
                Err(End::Open) => {
                    break Err("the end of the file is missing; the events before it were read".into());
                }
                Err(End::Damaged(reason)) => {
                    let at = events.at;
                    break Err(format!(
                        "damaged from byte {at} on, where reading ended: {reason}"
                    ));
                }
            }
        },
        Err(_) if growing && bytes.is_empty() => Ok(()),
        Err(_) => Err("not an array of trace events".to_owned()),
    };
    let problems: Vec<String> = damage.sum("events").into_iter().chain(end.err()).collect();
    (!problems.is_empty()).then(|| problems.join("; "))
}

/// What earlier events of a file define for later ones.
#[derive(Default)]
struct State<'a> {
    /// The origin of times, microseconds.
    origin: Option<f64>,
    tracks: HashMap<i64, Cow<'a, str>>,
}

impl<'a> State<'a> {
    fn span(&mut self, event: Event<'a>) -> Result<Option<(Cow<'a, str>, Span)>, String> {
        let args = event.args.unwrap_or_default();
        match &*event.ph {
            "M" => {
                if let Some(origin) = args.start_time_since_epoch_in_micros {
                    self.origin = Some(origin);
                }
                if let (Some(pid), "process_name", Some(Value::Text(name))) =
                    (event.pid, &*event.name, args.name)
                {
                    self.tracks.insert(pid, name);
                }
                return Ok(None);
            }
            "X" => {}
            // Instants, counters and flows have no duration.
            "i" | "I" | "C" | "s" | "t" | "f" => return Ok(None),
            other => return Err(format!("events of phase {other:?} are not read")),
        }
        let origin = self.origin.ok_or("it comes before the file's start time")?;
        let (ts, dur) = (event.ts.ok_or("it has no ts")?, event.dur.ok_or("it has no dur")?);
        let start = (origin + ts) / 1e6;
        let duration = dur / 1e6;
        if !(0.0..LATEST).contains(&start) || !(0.0..LATEST).contains(&duration) {
            return Err(format!("ts {ts} and dur {dur} are no time"));
        }
        let name = match event.pid.and_then(|pid| self.tracks.get(&pid)) {
            Some(track) if event.name.is_empty() => track.clone(),
            _ if event.name.is_empty() => return Err("it has no name".to_owned()),
            _ => event.name,
        };
        let count = |value: Option<Value<'_>>| value.as_ref().and_then(Value::count);
        let span = Span {
            name: 0,
            start,
            duration,
            step: count(args.step_num),
            worker: count(args.worker_id).and_then(|worker| worker.try_into().ok()),
            bytes: count(args.bytes),
        };
        Ok(Some((name, span)))
    }
}

/// The elements of a JSON array, one at a time, so that elements before damage are read.
struct Events<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Whether an element has just ended.
    between: bool,
}

/// Why there are no further elements.
enum End {
    /// The array has no closing bracket.
    Open,
    Damaged(String),
}

impl<'a> Events<'a> {
    fn peek(&mut self) -> Option<u8> {
        while self.bytes.get(self.at).is_some_and(u8::is_ascii_whitespace) {
            self.at += 1;
        }
        self.bytes.get(self.at).copied()
    }

    fn expect(&mut self, byte: u8) -> Result<(), End> {
        match self.peek() {
            Some(found) if found == byte => {
                self.at += 1;
                Ok(())
            }
            Some(found) => Err(End::Damaged(format!(
                "{:?} instead of {:?}",
                found as char, byte as char
            ))),
            None => Err(End::Open),
        }
    }

    /// The next element, or why it is not an event; `None` after the last.
    fn next(&mut self) -> Result<Option<Result<Event<'a>, String>>, End> {
        if std::mem::take(&mut self.between) && self.peek() != Some(b']') {
            self.expect(b',')?;
        }
        match self.peek() {
            Some(b']') => {
                self.at += 1;
                return match self.peek() {
                    None => Ok(None),
                    Some(_) => Err(End::Damaged("something follows the array".to_owned())),
                };
            }
            Some(b'{') => {}
            Some(other) => return Err(End::Damaged(format!("{:?} instead of an event", other as char))),
            None => return Err(End::Open),
        }
        let event = match self.element::<Event<'a>>() {
            Ok(event) => Ok(event),
            // A complete element that is not an event: its end is known, so continue after it.
            Err(error) if error.is_data() => {
                self.element::<IgnoredAny>().map_err(end)?;
                Err(error.to_string())
            }
            Err(error) => return Err(end(error)),
        };
        self.between = true;
        Ok(Some(event))
    }

    fn element<T: Deserialize<'a>>(&mut self) -> serde_json::Result<T> {
        let mut values = serde_json::Deserializer::from_slice(&self.bytes[self.at..]).into_iter::<T>();
        let value = values
            .next()
            .unwrap_or_else(|| Err(serde::de::Error::custom("nothing")))?;
        self.at += values.byte_offset();
        Ok(value)
    }
}

fn end(error: serde_json::Error) -> End {
    if error.is_eof() {
        End::Open
    } else {
        End::Damaged(error.to_string())
    }
}
