//! What a build without the feature `full` says of what it leaves out.

use std::process::Command;

const HOW: &str = "--features full";

/// Exit code and standard error.
fn refused(words: &[&str]) -> (Option<i32>, String) {
    let dir = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_stokehold"))
        .args(words)
        .current_dir(dir.path())
        .output()
        .unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn left_out_commands_say_how_to_get_them() {
    for name in ["job", "tune", "studio", "serve", "transform", "scale"] {
        for more in [&[][..], &["--help"], &["run", "x", "--option", "y"]] {
            let words = [&[name][..], more].concat();
            let (code, said) = refused(&words);
            assert_eq!(code, Some(2), "{words:?}: {said}");
            assert!(
                said.contains(&format!("`stokehold {name}`")) && said.contains(HOW),
                "{said}"
            );
        }
    }
}

#[test]
fn left_out_places_say_how_to_reach_them() {
    for words in [
        &["train", "s3://bucket/set"][..],
        &["dataset", "info", "s3://bucket/set"],
        &["bench", "loader", "gs://bucket/set"],
        &["report", "s3://bucket/run"],
    ] {
        let (code, said) = refused(words);
        assert_eq!(code, Some(2), "{words:?}: {said}");
        assert!(said.contains(HOW), "{words:?}: {said}");
    }
}

#[test]
fn servers_are_refused_by_name() {
    for words in [
        &["train", "data", "--loader", "tcp://a:7000"][..],
        &["bench", "loader", "data", "--loader", "tcp://a:7000"],
    ] {
        let dir = tempfile::tempdir().unwrap();
        let run = |words: &[&str]| {
            Command::new(env!("CARGO_BIN_EXE_stokehold"))
                .args(words)
                .current_dir(dir.path())
                .output()
                .unwrap()
        };
        let made = run(&["dataset", "synth", "data", "--images", "8", "--classes", "2"]);
        assert!(made.status.success(), "{made:?}");
        let output = run(words);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{words:?}: {said}");
        assert!(said.contains("tcp://a:7000") && said.contains(HOW), "{said}");
        assert!(
            !dir.path().join("runs").exists(),
            "{words:?}: a run is left behind"
        );
    }
}
