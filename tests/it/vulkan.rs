//! The executor gpu on whatever Vulkan device there is, Mesa's lavapipe on a machine without a GPU. Networks cannot be trained on
//! that one, so what is tested is what makes their batches.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

/// What `stokehold` does in `dir`, its error messages aside.
fn stokehold(dir: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = Command::new(env!("CARGO_BIN_EXE_stokehold"))
        .args(arguments)
        .current_dir(dir)
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

/// Whether there is a device; says so where there is none.
fn is_there() -> bool {
    let (code, devices, _) = stokehold(Path::new("."), &["devices", "--json"]);
    assert_eq!(code, Some(0));
    let devices: Value = serde_json::from_str(&devices).unwrap();
    let vulkan = &devices["backends"][1];
    assert_eq!(vulkan["backend"], "vulkan");
    if !vulkan["problem"].is_null() {
        stokehold_untested::skip(&vulkan["problem"]);
    }
    vulkan["problem"].is_null()
}

fn images() -> TempDir {
    let dir = TempDir::new().unwrap();
    let hostile = Path::new(env!("CARGO_MANIFEST_DIR")).join("hostile");
    for (number, name) in [
        "small.jpg",
        "grey.jpg",
        "small.webp",
        "small.jpg",
        "grey.jpg",
        "truncated.jpg",
    ]
    .into_iter()
    .enumerate()
    {
        fs::copy(hostile.join(name), dir.path().join(format!("{number}.jpg"))).unwrap();
    }
    dir
}

#[test]
fn bench_loader_takes_batches_from_the_device() {
    if !is_there() {
        return;
    }
    let dir = images();
    let left_out = |options: &[&str]| {
        let fixed = [
            "bench",
            "loader",
            ".",
            "--image-size",
            "32",
            "--batch-size",
            "4",
            "--passes",
            "1",
            "--json",
        ];
        let (code, said, errors) = stokehold(dir.path(), &[&fixed, options].concat());
        assert_eq!(code, Some(0), "{errors}");
        let report: Value = serde_json::from_str(&said).unwrap();
        let lines = errors
            .lines()
            .filter(|line| line.starts_with("warning: left out"));
        (report, lines.map(str::to_owned).collect::<Vec<_>>())
    };
    let (_, expected) = left_out(&["--executor", "fused"]);
    for decode in ["hybrid", "device"] {
        let gpu = ["--executor", "gpu", "--device", "vulkan", "--gpu-decode", decode];
        let (report, warnings) = left_out(&gpu);
        assert_eq!(
            (&report["executor"], &report["images"]),
            (&"gpu".into(), &(6 - expected.len()).into())
        );
        assert_eq!(warnings, expected, "{decode}");
        let decoded = &report["decoded"];
        assert_eq!(decoded["device"] == 0, decode == "hybrid", "{decoded}");
        let all = decoded["device"].as_u64().unwrap() + decoded["cpu"].as_u64().unwrap();
        assert_eq!(report["images"], all);
    }
}

#[test]
fn what_does_not_fit_is_refused_with_what_to_do() {
    if !is_there() {
        return;
    }
    let dir = images();
    let options = [
        "--executor",
        "gpu",
        "--device",
        "vulkan",
        "--gpu-memory-budget",
        "64KiB",
    ];
    let (code, _, said) = stokehold(dir.path(), &[&["bench", "loader", "."], &options[..]].concat());
    assert_eq!(code, Some(2), "{said}");
    for part in ["error: a batch of", "--gpu-memory-budget", "--batch-size"] {
        assert!(said.contains(part), "{said}");
    }
}

/// A device that is made of the CPU is no GPU: what may choose trains on the CPU as ever.
#[test]
fn auto_leaves_devices_made_of_the_cpu_alone() {
    let (_, devices, _) = stokehold(Path::new("."), &["devices", "--json"]);
    if devices.contains("\"is_cpu\": false") {
        return stokehold_untested::skip("there is a GPU");
    }
    let dir = images();
    let (code, _, said) = stokehold(dir.path(), &["bench", "loader", ".", "--executor", "gpu"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(
        said.contains("and what to install for the others; or choose the executor fused"),
        "{said}"
    );
}
