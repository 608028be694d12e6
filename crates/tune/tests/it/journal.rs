//! The journal: cut at every byte, damaged in the middle, written by several.

use std::fs;
use std::path::Path;

use stokehold_base::fault::Fault;
use stokehold_tune::{Ask, History, JOURNAL, Outcome, Study, Torn, TuneError};
use tempfile::tempdir;

use crate::{loss, spec, trial, work};

/// A journal with every kind of event.
fn eventful(folder: &Path) -> String {
    let mut spec = spec();
    spec.limits.max_jobs = 6;
    spec.limits.max_parallel_jobs = 3;
    let mut study = Study::create(folder, spec.clone()).unwrap();
    let first = trial(study.ask().unwrap());
    study.report(first.number, 1, 2.0).unwrap();
    study.report(first.number, 2, 1.0).unwrap();
    let second = trial(study.ask().unwrap());
    study.tell(first.number, None).unwrap();
    study.tell_failed(second.number, "out of memory").unwrap();
    study.enqueue([("lr".to_owned(), 0.05.into())].into()).unwrap();
    let third = trial(study.ask().unwrap());
    study.report(third.number, 1, 3.0).unwrap();
    study.tell_stopped(third.number).unwrap();
    spec.limits.max_jobs = 8;
    study.set_limits(spec.limits).unwrap();
    let fourth = trial(study.ask().unwrap());
    assert_eq!(fourth.number, 3);
    drop(study);
    let mut again = Study::open(folder).unwrap();
    assert_eq!(trial(again.ask().unwrap()).attempt, 2);
    drop(again);
    fs::read_to_string(folder.join(JOURNAL)).unwrap()
}

/// The state after these lines.
fn after(lines: &[&str]) -> History {
    let dir = tempdir().unwrap();
    fs::write(dir.path().join(JOURNAL), lines.concat()).unwrap();
    Study::look(dir.path()).unwrap()
}

#[test]
fn a_cut_anywhere_loses_what_nobody_was_told_and_no_more() {
    let dir = tempdir().unwrap();
    let text = eventful(dir.path());
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let path = dir.path().join(JOURNAL);
    let head = lines[0].len();
    let mut whole = 0;
    let mut expected = format!("{:?}", after(&lines[..1]));
    for cut in head..=text.len() {
        let ends = lines.iter().scan(0, |at, line| {
            *at += line.len();
            Some(*at)
        });
        let kept = ends.filter(|end| *end <= cut).count();
        if kept != whole {
            whole = kept;
            expected = format!("{:?}", after(&lines[..kept]));
        }
        fs::write(&path, &text[..cut]).unwrap();
        let mut study = Study::open(dir.path()).unwrap();
        assert_eq!(format!("{:?}", study.history()), expected, "cut at {cut}");
        let torn = cut - lines[..kept].iter().map(|line| line.len()).sum::<usize>();
        let bytes = torn as u64;
        let torn = (torn > 0).then_some(Torn::Incomplete { bytes });
        assert_eq!(study.torn(), torn.as_ref(), "cut at {cut}");
        // It can be written on, and is whole after that; every few cuts, because each of these writes waits for the disk.
        if cut % 16 != 0 {
            continue;
        }
        study.enqueue([("lr".to_owned(), 0.02.into())].into()).unwrap();
        let look = Study::open(dir.path()).unwrap();
        assert_eq!(look.torn(), None);
        assert_eq!(look.history().trials, study.history().trials);
    }
    // Without the first line there is no study, and none is made up.
    for cut in [0, 1, head - 1] {
        fs::write(&path, &text[..cut]).unwrap();
        assert!(
            Study::open(dir.path())
                .unwrap_err()
                .to_string()
                .contains("does not begin")
        );
    }
}

#[test]
fn a_damaged_line_is_an_error_with_its_number() {
    let dir = tempdir().unwrap();
    let text = eventful(dir.path());
    let path = dir.path().join(JOURNAL);
    let third = text.match_indices('\n').nth(1).unwrap().0 + 1;
    let mut bytes = text.clone().into_bytes();
    bytes[third + 30] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let error = Study::open(dir.path()).unwrap_err();
    assert!(matches!(error, TuneError::Corrupt { line: 3, .. }), "{error}");
    assert!(
        error.is_input() && error.to_string().contains("restore it from a copy"),
        "{error}"
    );
    assert_eq!(fs::read(&path).unwrap(), bytes);
    // The first line is the study: there is nothing before it to keep.
    let mut bytes = text.clone().into_bytes();
    bytes[30] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let error = Study::open(dir.path()).unwrap_err().to_string();
    assert!(error.ends_with("restore it from a copy"), "{error}");
}

#[test]
fn damaged_lines_at_the_end_are_an_error_and_stay() {
    let dir = tempdir().unwrap();
    let text = eventful(dir.path());
    let path = dir.path().join(JOURNAL);
    let ends: Vec<usize> = text.match_indices('\n').map(|(at, _)| at).collect();
    let damaged = |lines: usize, tail: &[u8]| {
        let mut bytes = text.clone().into_bytes();
        for end in &ends[ends.len() - lines..] {
            bytes[end - 4] ^= 1;
        }
        bytes.extend(tail);
        bytes
    };
    // A line that has something after it was on the disk before that was written.
    for bytes in [
        damaged(6, b""),
        damaged(2, b""),
        damaged(1, b"0badc0de {"),
        damaged(1, &[0; 4096]),
    ] {
        fs::write(&path, &bytes).unwrap();
        let error = Study::open(dir.path()).unwrap_err();
        assert!(matches!(error, TuneError::Corrupt { .. }), "{error}");
        assert_eq!(fs::read(&path).unwrap(), bytes);
    }
}

#[test]
fn a_damaged_last_line_is_kept_beside_the_journal() {
    let dir = tempdir().unwrap();
    let text = eventful(dir.path());
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let path = dir.path().join(JOURNAL);
    let (good, last) = text.split_at(text.len() - lines[lines.len() - 1].len());
    // A block of it that did not reach the disk; then another bit.
    let mut nuls = last.as_bytes().to_vec();
    nuls[..20].fill(0);
    let mut flipped = last.as_bytes().to_vec();
    flipped[last.len() - 5] ^= 1;
    for (line, name) in [(nuls, "damaged"), (flipped, "damaged-1")] {
        fs::write(&path, [good.as_bytes(), &line].concat()).unwrap();
        let look = Study::look(dir.path()).unwrap();
        assert_eq!(
            format!("{look:?}"),
            format!("{:?}", after(&lines[..lines.len() - 1]))
        );
        let study = Study::open(dir.path()).unwrap();
        let kept = path.with_added_extension(name);
        let torn = Torn::Damaged {
            line: lines.len(),
            kept: kept.clone(),
        };
        assert_eq!(study.torn(), Some(&torn));
        assert_eq!(fs::read(kept).unwrap(), line);
        assert_eq!(fs::read_to_string(&path).unwrap(), good);
    }
}

#[test]
fn nuls_at_the_end_are_removed() {
    let dir = tempdir().unwrap();
    let text = eventful(dir.path());
    let path = dir.path().join(JOURNAL);
    fs::write(&path, [text.as_bytes(), &[0; 4096]].concat()).unwrap();
    let study = Study::open(dir.path()).unwrap();
    assert_eq!(study.torn(), Some(&Torn::Incomplete { bytes: 4096 }));
    assert_eq!(fs::read_to_string(&path).unwrap(), text);
}

#[test]
fn lines_of_a_newer_version_are_an_error_and_stay() {
    let dir = tempdir().unwrap();
    let text = eventful(dir.path());
    let path = dir.path().join(JOURNAL);
    let newer = |json: &str| format!("{:08x} {json}\n", crc32fast::hash(json.as_bytes()));
    let told =
        r#"{"event":"told","trial":3,"outcome":{"status":"completed","value":0.1},"time":1.0,"cost":3}"#;
    let lines = text.split_inclusive('\n').count();
    for more in [
        newer(told),
        newer(told).repeat(5),
        newer(r#"{"event":"priced","trial":3}"#),
        newer(told) + "0badc0de {",
    ] {
        fs::write(&path, format!("{text}{more}")).unwrap();
        let error = Study::open(dir.path()).unwrap_err();
        assert!(
            matches!(error, TuneError::Newer { line, .. } if line == lines + 1) && error.is_input(),
            "{error}"
        );
        assert!(error.to_string().contains("a newer version"), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), format!("{text}{more}"));
    }
}

#[test]
fn several_handles_share_one_study() {
    let dir = tempdir().unwrap();
    let mut spec = spec();
    spec.limits.max_jobs = 24;
    spec.limits.max_parallel_jobs = 4;
    drop(Study::create(dir.path(), spec).unwrap());
    let done: Vec<usize> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let mut study = Study::open(dir.path()).unwrap();
                    let mut mine = Vec::new();
                    loop {
                        match study.ask().unwrap() {
                            Ask::Trial(trial) => {
                                study.report(trial.number, 1, loss(&trial)).unwrap();
                                study.tell(trial.number, None).unwrap();
                                mine.push(trial.number);
                            }
                            Ask::Wait => std::thread::yield_now(),
                            Ask::Finished(_) => return mine,
                        }
                    }
                })
            })
            .collect();
        threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap())
            .collect()
    });
    let mut numbers = done.clone();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..24).collect::<Vec<_>>(), "every trial once");
    let history = Study::look(dir.path()).unwrap();
    assert_eq!((history.counts().completed, history.trials.len()), (24, 24));
    assert!(history.trials.iter().all(|trial| trial.attempt == 1));
}

#[test]
fn a_trial_whose_process_is_gone_is_handed_out_again() {
    let dir = tempdir().unwrap();
    let mut spec = spec();
    spec.limits.max_jobs = 2;
    let mut study = Study::create(dir.path(), spec).unwrap();
    let lost = trial(study.ask().unwrap());
    let mut other = Study::open(dir.path()).unwrap();
    assert_eq!(other.ask().unwrap(), Ask::Wait, "it runs over there");
    assert!(
        other
            .tell(lost.number, Some(1.0))
            .unwrap_err()
            .to_string()
            .contains("not here")
    );
    drop(study);
    let found = trial(other.ask().unwrap());
    assert_eq!(
        (found.number, found.attempt, &found.values),
        (lost.number, 2, &lost.values)
    );
    drop(other);
    // A trial that takes process after process with it is not worth a fourth.
    let mut third = Study::open(dir.path()).unwrap();
    assert_eq!(trial(third.ask().unwrap()).attempt, 3);
    drop(third);
    let mut last = Study::open(dir.path()).unwrap();
    assert_eq!(trial(last.ask().unwrap()).number, 1);
    let outcome = last.history().trials[0].outcome.clone();
    assert!(matches!(outcome, Some(Outcome::Failed { reason }) if reason.contains("died 3 times")));
}

/// However fast they follow each other, no process takes another one's trials for its own.
#[test]
fn a_process_is_never_taken_for_the_one_before() {
    let dir = tempdir().unwrap();
    let mut spec = spec();
    spec.limits.max_jobs = 20;
    drop(Study::create(dir.path(), spec).unwrap());
    for number in 0..8 {
        let mut study = Study::open(dir.path()).unwrap();
        let trial = trial(study.ask().unwrap());
        drop(study);
        let mut next = Study::open(dir.path()).unwrap();
        assert!(
            matches!(next.ask().unwrap(), Ask::Trial(again) if again.number == trial.number),
            "{number}"
        );
        next.tell_failed(trial.number, "once")
            .unwrap_or_else(|error| panic!("{number}: {error}"));
    }
}

#[test]
fn a_study_that_was_interrupted_goes_on_as_if_it_had_not_been() {
    let (whole, parts) = (tempdir().unwrap(), tempdir().unwrap());
    let mut spec = spec();
    spec.limits.max_jobs = 18;
    let mut study = Study::create(whole.path(), spec.clone()).unwrap();
    work(&mut study);
    drop(Study::create(parts.path(), spec).unwrap());
    loop {
        let mut study = Study::open(parts.path()).unwrap();
        let Ask::Trial(trial) = study.ask().unwrap() else {
            break;
        };
        study.tell(trial.number, Some(loss(&trial))).unwrap();
    }
    let values = |folder: &Path| -> Vec<_> {
        let history = Study::look(folder).unwrap();
        history
            .trials
            .into_iter()
            .map(|trial| (trial.values, trial.outcome))
            .collect()
    };
    assert_eq!(values(whole.path()), values(parts.path()));
}
