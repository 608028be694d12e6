//! The help texts, as users see them. A change is accepted with `INSTA_UPDATE=always cargo test --release help`, and read in review.

use std::process::Command;

/// Every command whose help is held.
const COMMANDS: [&str; 24] = [
    "",
    "compare",
    "train",
    "report",
    "top",
    "tune",
    "tune init",
    "tune run",
    "tune export",
    "prepare",
    "profile",
    "advise",
    "job",
    "job run",
    "job list",
    "job logs",
    "job init",
    "bench loader",
    "bench disturbance",
    "bench storage",
    "dataset synth",
    "dataset info",
    "devices",
    "explain",
];

#[test]
fn help_texts_are_as_they_were_read() {
    for command in COMMANDS {
        let output = Command::new(env!("CARGO_BIN_EXE_stokehold"))
            .args(command.split_whitespace())
            .arg("--help")
            .env("COLUMNS", "100")
            .output()
            .unwrap();
        assert!(output.status.success(), "{command}: {output:?}");
        let name = format!("help {command}").trim().replace(' ', "_");
        insta::with_settings!({ snapshot_path => "../snapshots", prepend_module_to_snapshot => false, omit_expression => true }, {
            insta::assert_snapshot!(name, String::from_utf8(output.stdout).unwrap());
        });
    }
}
