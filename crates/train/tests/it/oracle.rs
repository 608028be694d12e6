//! Asks PyTorch, through `tests/oracle/oracle.py`, and compares with what it answered when `tests/make_goldens` was run:
//! `tests/goldens`.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::os::unix::process::{CommandExt, parent_id};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use stokehold_untested::needs;

/// Passes PyTorch's answer to `compare`: the kept one, and where `STOKEHOLD_TEST_PYTHON` names a Python with torchvision also the
/// one that it gives now. So a comparison that only one of them permits fails wherever there is an oracle.
pub fn ask<T: DeserializeOwned>(question: &str, details: Value, compare: impl Fn(T)) {
    let golden = golden(question, &details);
    let live = live(question, &details);
    if live.is_none() {
        stokehold_untested::kept("STOKEHOLD_TEST_PYTHON names no Python with torch and torchvision");
    }
    if std::env::var_os("STOKEHOLD_GOLDENS").is_some() {
        let live = live.as_ref().expect("STOKEHOLD_TEST_PYTHON");
        let kept = json!({"versions": live["versions"], "question": question, "details": details, "answer": thin(&live["answer"])});
        fs::write(&golden, format!("{kept}\n")).expect("written");
    }
    let answers = [Some(read(&golden)), live].into_iter().flatten();
    let answers: Vec<Value> = answers.map(|mut file| file["answer"].take()).collect();
    if let [kept, live] = &answers[..] {
        assert!(
            agree(&thin(live), kept),
            "{question} {details}: PyTorch answers differently now: tests/make_goldens"
        );
    }
    for answer in answers {
        compare(serde_json::from_value(answer).expect("what was asked for"));
    }
}

/// An array of numbers: all of them in an answer that PyTorch gives now, some of a long one in a kept answer.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Numbers {
    /// The whole array.
    All(Vec<f64>),
    /// `values[i]` is the number at `places[i]` of `len`.
    Some {
        len: usize,
        places: Vec<usize>,
        values: Vec<f64>,
    },
}

impl Numbers {
    /// Our numbers and PyTorch's, at the places where both are known.
    ///
    /// # Panics
    /// We have not as many numbers as PyTorch, one of ours is NaN or infinite, or none of PyTorch's were kept.
    pub fn pick(&self, ours: &[f32]) -> [Vec<f32>; 2] {
        assert!(
            ours.iter().all(|number| number.is_finite()),
            "a number is NaN or infinite"
        );
        let (len, picked) = match self {
            Self::All(values) => (values.len(), ours.to_vec()),
            Self::Some { len, places, .. } => (
                *len,
                places
                    .iter()
                    .filter_map(|&place| ours.get(place).copied())
                    .collect(),
            ),
        };
        assert_eq!(ours.len(), len, "as many numbers as PyTorch has");
        let theirs = self.values();
        assert!(picked.len() == theirs.len() && !picked.is_empty(), "{self:?}");
        [picked, theirs]
    }

    /// PyTorch's numbers, those that are known.
    pub fn values(&self) -> Vec<f32> {
        let (Self::All(values) | Self::Some { values, .. }) = self;
        values.iter().map(|&value| value as f32).collect()
    }
}

/// The same for questions about files, whose answers cannot be kept; none without such a Python: then the test is skipped.
pub fn ask_of_files<T: DeserializeOwned>(question: &str, details: Value) -> Option<T> {
    needs::torch()?;
    let mut live = live(question, &details)?;
    Some(serde_json::from_value(live["answer"].take()).expect("what was asked for"))
}

fn live(question: &str, details: &Value) -> Option<Value> {
    let python = std::env::var_os("STOKEHOLD_TEST_PYTHON")?;
    // One that ends because no one asked it may take a connection with it.
    let answer = (0..2).map(|_| asked(&python, question, details));
    let answer = answer.into_iter().find(|answer| !answer.is_empty());
    let answer = answer.unwrap_or_else(|| {
        panic!(
            "the oracle ends without an answer; does {} import torchvision?",
            python.display()
        )
    });
    let mut answer: Value = serde_json::from_str(&answer).expect("the oracle answers in JSON");
    let failed = answer["failed"].take();
    assert!(
        failed.is_null(),
        "the oracle failed: {}",
        failed.as_str().unwrap_or_default()
    );
    Some(answer)
}

/// What the oracle of this run answers; it is started if there is none. All tests of a run share one, whose imports take seconds:
/// its name is that of the process that runs them.
#[expect(clippy::zombie_processes, reason = "it outlives the test that starts it")]
fn asked(python: &OsStr, question: &str, details: &Value) -> String {
    let runner = parent_id();
    let name = format!("stokehold-oracle-{runner}");
    let address = SocketAddr::from_abstract_name(&name).expect("a name");
    let stream = UnixStream::connect_addr(&address).or_else(|_| {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/oracle/oracle.py");
        let started = Command::new(python)
            .arg(script)
            .arg(&name)
            .arg(runner.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn();
        let mut oracle = started.unwrap_or_else(|error| panic!("cannot run {}: {error}", python.display()));
        let said = BufReader::new(oracle.stdout.take().expect("a pipe"))
            .lines()
            .next();
        assert!(said.is_some(), "{}: the oracle does not start", python.display());
        UnixStream::connect_addr(&address)
    });
    let mut stream = stream.expect("the oracle listens");
    let mut answer = String::new();
    let talk =
        writeln!(stream, "{}", json!([question, details])).and_then(|()| stream.read_to_string(&mut answer));
    // Without an answer it has ended.
    talk.map_or_else(|_| String::new(), |_| answer)
}

/// A file a question, by a hash (FNV-1a) of its details.
fn golden(question: &str, details: &Value) -> PathBuf {
    let step = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    let hash = details.to_string().bytes().fold(0x811C_9DC5, step);
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/goldens/{question}-{hash:08x}.json"))
}

fn read(golden: &Path) -> Value {
    let kept = fs::read_to_string(golden)
        .unwrap_or_else(|error| panic!("{}: {error}: tests/make_goldens", golden.display()));
    serde_json::from_str(&kept).expect("JSON")
}

/// Of arrays of more numbers some are kept, as [`Numbers::Some`].
const LONG: usize = 64;

/// The places of an array whose numbers are kept: about 64 in a distance that is prime and divides no side of an image, so that they lie
/// in all its rows and columns; and of an array with few changes both sides of each.
fn places(items: &[Value]) -> Vec<usize> {
    let is_prime = |n: &usize| (2..*n).take_while(|d| d * d <= *n).all(|d| !n.is_multiple_of(d));
    let fits = |n: &usize| is_prime(n) && !items.len().is_multiple_of(*n);
    let every = (items.len() / 64).max(3);
    let every = (every..).find(fits).expect("there are more primes");
    let mut places: Vec<usize> = (0..items.len()).step_by(every).collect();
    let changes: Vec<usize> = (1..items.len())
        .filter(|&at| items[at] != items[at - 1])
        .collect();
    if changes.len() <= 32 {
        places.extend(changes.into_iter().flat_map(|at| [at - 1, at]));
    }
    places.push(items.len() - 1);
    places.sort_unstable();
    places.dedup();
    places
}

/// An answer as it is kept.
fn thin(value: &Value) -> Value {
    match value {
        Value::Array(items) if items.len() > LONG && items[0].is_number() => {
            let places = places(items);
            let values: Vec<&Value> = places.iter().map(|&place| &items[place]).collect();
            json!({"len": items.len(), "places": places, "values": values})
        }
        Value::Array(items) => items.iter().map(thin).collect(),
        Value::Object(members) => {
            let members = members.iter().map(|(key, value)| (key.clone(), thin(value)));
            Value::Object(members.collect())
        }
        _ => value.clone(),
    }
}

/// Whether two answers are the same but for what another machine rounds: 1 % of the largest number of an array.
fn agree(a: &Value, b: &Value) -> bool {
    let largest = |items: &[Value]| {
        let numbers = items.iter().filter_map(Value::as_f64);
        numbers.fold(0.0, |most: f64, x| most.max(x.abs()))
    };
    match (a, b) {
        (Value::Array(a), Value::Array(b)) => {
            let allowed = 0.01 * largest(a).max(1e-6);
            let close = |(a, b): (&Value, &Value)| match (a.as_f64(), b.as_f64()) {
                (Some(a), Some(b)) => (a - b).abs() <= allowed,
                _ => agree(a, b),
            };
            a.len() == b.len() && a.iter().zip(b).all(close)
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| agree(a, b)))
        }
        (Value::Number(_), Value::Number(_)) => agree(&json!([a]), &json!([b])),
        _ => a == b,
    }
}

/// Whatever an array's length, its kept form has the numbers of the places that it names, and another array is not taken for it.
#[test]
fn kept_arrays_are_compared_at_their_places() {
    for len in (1..200).chain([960, 4200, 25_088]) {
        let ours: Vec<f32> = (0..len).map(|i| i as f32).collect();
        let whole = json!(ours);
        for kept in [&whole, &thin(&whole)] {
            let numbers: Numbers = serde_json::from_value(kept.clone()).unwrap();
            let [ours, theirs] = numbers.pick(&ours);
            assert_eq!(ours, theirs, "{len}");
            assert!(ours.len() >= 10.min(len), "{len}");
        }
        // A number that is missing, or NaN.
        let wrong = [ours[1..].to_vec(), [&ours[1..], &[f32::NAN]].concat()];
        for wrong in wrong.iter().filter(|_| [9, 960].contains(&len)) {
            let numbers: Numbers = serde_json::from_value(thin(&whole)).unwrap();
            assert!(std::panic::catch_unwind(|| numbers.pick(wrong)).is_err(), "{len}");
        }
        // A type for whole arrays does not take a part of one.
        let part = serde_json::from_value::<Vec<f32>>(thin(&whole));
        assert_eq!(part.is_err(), len > LONG, "{len}");
    }
}

/// Kept numbers lie in most rows and columns of an image, and both sides of a step are kept.
#[test]
fn kept_places_are_spread() {
    for (rows, columns) in [(8, 120), (96, 128), (128, 128), (49, 512), (64, 147)] {
        let image: Vec<Value> = (0..rows * columns).map(|at| json!(at % 251)).collect();
        let kept = places(&image);
        let distinct =
            |of: &dyn Fn(usize) -> usize| kept.iter().map(|&at| of(at)).collect::<BTreeSet<_>>().len();
        let (in_rows, in_columns) = (distinct(&|at| at / columns), distinct(&|at| at % columns));
        let wanted = |side: usize| side.min(kept.len()) * 2 / 3;
        assert!(
            in_rows >= wanted(rows) && in_columns >= wanted(columns),
            "{rows} x {columns}: {in_rows}, {in_columns}"
        );
    }
    let step = |at: usize| -> Vec<f32> { (0..4200).map(|i| if i < at { 1.0 } else { 2.0 }).collect() };
    for at in (1..4199).step_by(13) {
        let numbers: Numbers = serde_json::from_value(thin(&json!(step(at)))).unwrap();
        for other in [at - 1, at + 1] {
            let [ours, theirs] = numbers.pick(&step(other));
            assert_ne!(ours, theirs, "a step at {other} instead of {at}");
        }
    }
}

/// No golden is empty, and each is kept in the form that `thin` makes.
#[test]
fn goldens_are_kept_as_they_are_compared() {
    fn check(value: &Value, name: &str) {
        match value {
            Value::Array(items) => {
                assert!(!items.is_empty(), "{name}: an empty array");
                assert!(
                    items.len() <= LONG || !items[0].is_number(),
                    "{name}: a long array"
                );
                items.iter().for_each(|item| check(item, name));
            }
            Value::Object(members) if members.contains_key("places") => {
                let numbers: Numbers = serde_json::from_value(value.clone()).unwrap();
                let len = members["len"].as_u64().unwrap() as usize;
                numbers.pick(&vec![0.0; len]);
            }
            Value::Object(members) => members.values().for_each(|member| check(member, name)),
            Value::Null => panic!("{name}: null"),
            _ => {}
        }
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens");
    let files: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert!(files.len() > 20, "{} goldens", files.len());
    for file in files {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        let kept = read(&file);
        assert_eq!(
            golden(kept["question"].as_str().unwrap(), &kept["details"]),
            file,
            "{name}"
        );
        check(&kept["answer"], &name);
    }
}
