//! Asks PyTorch, through `tests/oracle/oracle.py`, or what it answered when it was there: `tests/goldens`, which
//! `tests/make_goldens` makes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use stokehold_untested::needs;

/// PyTorch's answer: its own where `STOKEHOLD_TEST_PYTHON` names a Python with torchvision, else the one that was kept, of whose
/// long arrays there are some numbers only ([`some_of`]).
pub fn ask<T: DeserializeOwned>(question: &str, details: Value) -> T {
    let golden = golden(question, &details);
    let live = live(question, &details);
    if std::env::var_os("STOKEHOLD_GOLDENS").is_some() {
        let mut live = live.clone().expect("STOKEHOLD_TEST_PYTHON");
        thin(&mut live["answer"]);
        let kept = json!({"versions": live["versions"], "question": question, "details": details, "answer": live["answer"]});
        fs::write(&golden, format!("{kept}\n")).expect("written");
    }
    let kept = fs::read_to_string(&golden)
        .unwrap_or_else(|error| panic!("{}: {error}: tests/make_goldens", golden.display()));
    let kept: Value = serde_json::from_str(&kept).expect("JSON");
    let answer = match live {
        Some(live) => {
            let mut some = live["answer"].clone();
            thin(&mut some);
            assert!(
                agree(&some, &kept["answer"]),
                "{question} {details}: PyTorch says otherwise now: tests/make_goldens"
            );
            live["answer"].clone()
        }
        None => kept["answer"].clone(),
    };
    serde_json::from_value(answer).expect("what was asked for")
}

/// The same for questions about files, whose answers cannot be kept; none without such a Python: then the test is skipped.
pub fn ask_of_files<T: DeserializeOwned>(question: &str, details: Value) -> Option<T> {
    needs::torch()?;
    let mut live = live(question, &details)?;
    Some(serde_json::from_value(live["answer"].take()).expect("what was asked for"))
}

/// Of our numbers those that PyTorch's kept answer has.
pub fn some_of<'a>(ours: &'a [f32], theirs: &[f32]) -> impl Iterator<Item = f32> + use<'a> {
    assert_eq!(ours.len() % theirs.len(), 0);
    ours.iter().step_by(ours.len() / theirs.len()).copied()
}

fn live(question: &str, details: &Value) -> Option<Value> {
    let python = std::env::var_os("STOKEHOLD_TEST_PYTHON")?;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/oracle/oracle.py");
    let asked = Command::new(&python)
        .arg(script)
        .arg(question)
        .arg(details.to_string())
        .output();
    let answer = asked.unwrap_or_else(|error| panic!("cannot run {}: {error}", python.display()));
    assert!(
        answer.status.success(),
        "the oracle failed: {}",
        String::from_utf8_lossy(&answer.stderr)
    );
    Some(serde_json::from_slice(&answer.stdout).expect("the oracle answers in JSON"))
}

/// A file a question, by a hash (FNV-1a) of its details.
fn golden(question: &str, details: &Value) -> PathBuf {
    let step = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    let hash = details.to_string().bytes().fold(0x811C_9DC5, step);
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/goldens/{question}-{hash:08x}.json"))
}

/// Leaves 16 numbers of every array of numbers that is longer than 64, and ten digits of a number.
fn thin(value: &mut Value) {
    match value {
        Value::Array(items) => {
            if items.len() > 64 && items[0].is_number() {
                let step = items.len() / 16;
                *items = items.drain(..).step_by(step).take(16).collect();
            }
            items.iter_mut().for_each(thin);
        }
        Value::Object(members) => members.values_mut().for_each(thin),
        Value::Number(number) if number.is_f64() => {
            let short = format!("{:.9e}", number.as_f64().expect("a float"));
            *value = json!(short.parse::<f64>().expect("a float"));
        }
        _ => {}
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
