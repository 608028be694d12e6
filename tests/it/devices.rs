//! `stokehold devices`: every backend has its line, whether it can be used or why not.

use std::process::{Command, Output};

fn devices(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_stokehold"))
        .arg("devices")
        .args(arguments)
        .output()
        .unwrap()
}

#[test]
fn what_is_not_usable_says_why() {
    let output = devices(&["--json"]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{text}");
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let table = String::from_utf8(devices(&[]).stdout).unwrap();
    for (i, backend) in ["cuda", "vulkan"].into_iter().enumerate() {
        let found = &found["backends"][i];
        assert_eq!(found["backend"], backend);
        let usable = found["usable"].as_array().unwrap();
        let compiled = [cfg!(feature = "cuda"), cfg!(feature = "vulkan")][i];
        if !compiled {
            let problem = format!("compiled without it; build with --features {backend}");
            assert_eq!(found["problem"], problem.as_str());
            assert!(usable.is_empty());
        }
        // Either devices or a reason, and the table has it too.
        match found["problem"].as_str() {
            Some(problem) => assert!(table.contains(&format!("not usable: {problem}")), "{table}"),
            None => assert!(
                !usable.is_empty() && table.contains(&format!("{backend}:0")),
                "{table}"
            ),
        }
    }
}

#[test]
fn a_backend_that_does_not_exist_is_wrong_usage() {
    let output = devices(&["--probe", "abacus"]);
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.contains("no backend is called 'abacus'"), "{text}");
}
