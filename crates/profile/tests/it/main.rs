//! What the profiler promises, by theme.

mod nvml;
mod smdebug;
#[cfg(unix)]
mod timeline;

/// Of every recording: of a command, a job, a training and a comparison.
#[test]
fn secrets_of_a_command_are_not_recorded() {
    let words = ["python", "train.py", "--api-key", "SECRETKEY4"].map(str::to_owned);
    let settings = stokehold_profile::Settings::new(stokehold_profile::Tree::Of(1), words.to_vec());
    assert_eq!(settings.command, ["python", "train.py", "--api-key", "***"]);
}
