//! docs/concepts/timeline.md keeps its word.

use std::path::Path;
use std::process::{Command, Stdio};

use stokehold_profile::timeline::{Server, Timeline, VARIABLE};
use stokehold_profile::{Node, Recording, events, span};

/// The Python programs of the document, in order.
fn programs() -> Vec<String> {
    let text = include_str!("../../../../docs/concepts/timeline.md");
    let blocks = text.split("```python\n").skip(1);
    blocks
        .map(|block| block.split("```").next().unwrap().to_owned())
        .collect()
}

/// Runs a program with the variable set; false, with a line that says so, where there is no Python.
fn python(program: &str, timeline: &Path) -> bool {
    let run = Command::new("python3")
        .args(["-c", program])
        .env(VARIABLE, timeline)
        .stdin(Stdio::null())
        .output();
    match run {
        Ok(output) => {
            assert!(
                output.status.success(),
                "{}",
                String::from_utf8_lossy(&output.stderr)
            );
            true
        }
        Err(error) => {
            stokehold_untested::skip(format_args!("no python3: {error}"));
            false
        }
    }
}

fn read(recording: &Path) -> Node {
    let mut read = Recording::default();
    events::read_into(recording, &mut read);
    read.sort();
    assert_eq!(read.problems, [""; 0]);
    read.nodes.pop().unwrap()
}

/// A hundred steps of a millisecond or more, numbered from 1.
fn has_the_steps(node: &Node) {
    let steps: Vec<_> = node.spans_of(span::STEP).collect();
    let numbers: Vec<_> = steps.iter().filter_map(|step| step.step).collect();
    assert_eq!(numbers, (1..=100).collect::<Vec<_>>());
    assert!(
        steps
            .iter()
            .all(|step| step.duration > 0.000_9 && step.duration < 10.0)
    );
}

#[test]
fn the_programs_of_the_document_work() {
    let [steps, waits, metrics, file] = &programs()[..] else {
        panic!("four programs")
    };
    for (program, waited) in [(steps, 0), (waits, 100)] {
        let dir = tempfile::tempdir().unwrap();
        let options = events::Options::new(0.0);
        let timeline = Timeline::start(Some(events::Writer::new(dir.path(), options)), None).unwrap();
        let socket = dir.path().join("socket");
        let server = Server::listen(&socket, &timeline).unwrap();
        if !python(program, &socket) {
            return;
        }
        assert_eq!(server.stop(), [""; 0]);
        assert!(timeline.finish().failed.is_none());
        let node = read(dir.path());
        has_the_steps(&node);
        assert_eq!(node.spans_of(span::WAIT).count(), waited);
    }
    let dir = tempfile::tempdir().unwrap();
    let timeline = Timeline::start(None, None).unwrap();
    let socket = dir.path().join("socket");
    let server = Server::listen(&socket, &timeline).unwrap();
    let taken = server.metrics();
    python(metrics, &socket);
    assert_eq!(server.stop(), [""; 0]);
    let numbers: Vec<_> = taken
        .take()
        .into_iter()
        .map(|metric| (metric.name, metric.step, metric.value))
        .collect();
    let loss = |epoch: u64| ("loss".to_owned(), Some(epoch), 1.0 / epoch as f64);
    assert_eq!(numbers, (1..=10).map(loss).collect::<Vec<_>>());

    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("framework")).unwrap();
    python(file, &dir.path().join("framework/loop.timeline"));
    has_the_steps(&read(dir.path()));
}

/// The table of names is that of the code.
#[test]
fn the_document_names_what_has_a_meaning() {
    let text = include_str!("../../../../docs/concepts/timeline.md");
    for name in [
        span::STEP,
        span::EVAL_STEP,
        span::WAIT,
        span::WORKER,
        span::LOADER_START,
        span::READ,
        span::DECODE,
        span::AUGMENT,
        span::EPOCH,
        span::VALIDATION,
        span::CHECKPOINT,
    ] {
        assert!(text.contains(&format!("`{name}`")), "{name}");
    }
}
