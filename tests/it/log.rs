//! What `-v` and `STOKEHOLD_LOG` show.

use std::process::{Command, Output};

use tempfile::TempDir;

fn info(dir: &TempDir, options: &[&str], log: Option<&str>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stokehold"));
    command.args(["dataset", "info", "data"]).args(options);
    command.current_dir(dir).env_remove("STOKEHOLD_LOG");
    command.envs(log.map(|log| ("STOKEHOLD_LOG", log)));
    command.output().unwrap()
}

fn data() -> TempDir {
    let dir = TempDir::new().unwrap();
    let made = Command::new(env!("CARGO_BIN_EXE_stokehold"))
        .args(["dataset", "synth", "data", "--images", "4", "--classes", "2"])
        .current_dir(&dir)
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    dir
}

#[test]
fn events_go_to_standard_error_where_somebody_wants_them() {
    let dir = data();
    let quiet = info(&dir, &[], None);
    assert!(quiet.status.success() && quiet.stderr.is_empty(), "{quiet:?}");
    for (options, log) in [(&["-v"][..], None), (&[][..], Some("stokehold_storage=info"))] {
        let said = info(&dir, options, log);
        assert_eq!(said.stdout, quiet.stdout);
        let text = String::from_utf8(said.stderr).unwrap();
        assert!(
            text.contains("INFO stokehold_storage::dataset: a data set dir=data"),
            "{text}"
        );
    }
    let other = info(&dir, &[], Some("object_store=trace"));
    assert!(other.stderr.is_empty(), "{other:?}");
}

#[test]
fn a_list_that_cannot_be_read_is_an_error() {
    let dir = data();
    let wrong = info(&dir, &[], Some("stokehold=loudly"));
    assert_eq!(wrong.status.code(), Some(2), "{wrong:?}");
    let text = String::from_utf8(wrong.stderr).unwrap();
    assert!(text.contains("STOKEHOLD_LOG=stokehold=loudly"), "{text}");
}

#[test]
#[cfg(unix)]
fn a_list_that_is_not_utf_8_is_an_error() {
    use std::os::unix::ffi::OsStrExt;
    let dir = data();
    let wrong = Command::new(env!("CARGO_BIN_EXE_stokehold"))
        .args(["dataset", "info", "data"])
        .current_dir(&dir)
        .env("STOKEHOLD_LOG", std::ffi::OsStr::from_bytes(b"info\xff"))
        .output()
        .unwrap();
    assert_eq!(wrong.status.code(), Some(2), "{wrong:?}");
    let text = String::from_utf8(wrong.stderr).unwrap();
    assert!(
        text.contains("STOKEHOLD_LOG=info") && text.contains("not UTF-8"),
        "{text}"
    );
}
