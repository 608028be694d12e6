//! GPUs, through a library that has the functions of NVML and devices with known values.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use stokehold_profile::{Ending, Recorder, Recording, Settings, Tree, dimension};

/// Compiles the library; nothing where there is no C compiler.
fn fake(dir: &Path, defines: &[&str]) -> Option<PathBuf> {
    let library = dir.join("libfake-nvml.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/nvml/fake.c");
    let compiler = Command::new("cc")
        .args(["-shared", "-fPIC", "-w"])
        .args(defines)
        .arg(source)
        .arg("-o")
        .arg(&library)
        .status();
    match compiler {
        Ok(status) if status.success() => Some(library),
        other => {
            stokehold_untested::skip(format_args!("no C compiler ({other:?})"));
            None
        }
    }
}

/// Takes ticks every 100 ms until there were some with GPUs; `enough` says when.
fn record(dir: &Path, library: PathBuf, enough: impl Fn(u32, Duration) -> bool) -> Recording {
    let mut settings = Settings::new(Tree::Of(std::process::id()), Vec::new());
    settings.interval = Duration::from_millis(100);
    settings.sources.nvml = library;
    let out = dir.join("out");
    let mut recorder = Recorder::open(&out, settings).unwrap();
    let begin = Instant::now();
    let mut ticks = 0;
    while !enough(ticks, begin.elapsed()) {
        std::thread::sleep(Duration::from_millis(100));
        recorder.tick(Instant::now(), SystemTime::now()).unwrap();
        ticks += 1;
    }
    recorder.finish(Ending::default()).unwrap();
    let recording = Recording::open(&out).unwrap();
    assert_eq!(recording.problems, Vec::<String>::new());
    recording
}

fn last(recording: &Recording, dimension: &str) -> Vec<f32> {
    let series = recording.nodes[0].of(dimension);
    series.map(|series| *series.values.last().unwrap()).collect()
}

#[test]
fn every_value_of_eight_devices_is_recorded() {
    let dir = tempfile::tempdir().unwrap();
    let Some(library) = fake(dir.path(), &["-DGPUS=8"]) else {
        return;
    };
    let recording = record(dir.path(), library, |ticks, _| ticks == 20);
    let all = |value: fn(f32) -> f32| (0..8u8).map(|gpu| value(f32::from(gpu))).collect::<Vec<_>>();
    let gib = (1u64 << 30) as f32;
    for (dimension, expected) in [
        (dimension::GPU, all(|gpu| 10.0 * gpu)),
        (dimension::GPU_MEMORY, all(|gpu| 1.25 * gpu)),
        (dimension::GPU_POWER, all(|gpu| 100.5 + gpu)),
        (dimension::GPU_CLOCK, all(|gpu| 1980.0 - gpu)),
        (dimension::GPU_TEMPERATURE, all(|gpu| 40.0 + gpu)),
        (dimension::GPU_ENCODER, all(|gpu| 1.0 + gpu)),
        (dimension::GPU_DECODER, all(|gpu| 20.0 + gpu)),
        (dimension::GPU_JPEG, all(|gpu| 30.0 + gpu)),
    ] {
        assert_eq!(last(&recording, dimension), expected, "{dimension}");
    }
    let memory: Vec<f32> = last(&recording, dimension::GPU_MEMORY_BYTES);
    assert_eq!(
        memory,
        (0..8u8).map(|gpu| f32::from(gpu) * gib).collect::<Vec<_>>()
    );
    assert_eq!(
        last(&recording, dimension::GPU_THERMAL_THROTTLE)[..3],
        [0.0, 100.0, 0.0]
    );
    assert_eq!(
        last(&recording, dimension::GPU_POWER_THROTTLE)[..3],
        [0.0, 0.0, 100.0]
    );
    // The counters grow by known gigabytes a second, and both clocks are the kernel's.
    for (gpu, (received, sent)) in std::iter::zip(
        last(&recording, dimension::GPU_PCIE_RECEIVED),
        last(&recording, dimension::GPU_PCIE_SENT),
    )
    .enumerate()
    {
        let expected = (gpu + 1) as f32 * 1e9;
        assert!(
            (received / expected - 1.0).abs() < 0.2,
            "gpu{gpu} received {received}"
        );
        assert!((sent / expected / 2.0 - 1.0).abs() < 0.2, "gpu{gpu} sent {sent}");
    }
    let notes = recording.about.unwrap().notes.join("\n");
    assert!(!notes.contains("NVML") && !notes.contains("PCIe"), "{notes}");
}

#[test]
fn a_device_that_is_lost_is_a_gap_and_pcie_is_measured_where_there_is_time() {
    let dir = tempfile::tempdir().unwrap();
    let Some(library) = fake(dir.path(), &["-DGPUS=2", "-DLOST=0", "-DNO_COUNTERS"]) else {
        return;
    };
    let recording = record(dir.path(), library, |ticks, _| ticks == 15);
    let node = &recording.nodes[0];
    assert_eq!(
        node.of(dimension::GPU).map(|s| &*s.name).collect::<Vec<_>>(),
        ["gpu1"]
    );
    assert_eq!(last(&recording, dimension::GPU), [10.0]);
    // 2 devices, 2 directions, 20 ms each, are too much for 100 ms.
    assert_eq!(node.of(dimension::GPU_PCIE_RECEIVED).count(), 0);
    let notes = recording.about.unwrap().notes;
    assert_eq!(
        notes.iter().filter(|note| note.contains("PCIe")).count(),
        1,
        "{notes:?}"
    );
}

#[test]
fn a_driver_that_hangs_stops_neither_the_ticks_nor_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let Some(library) = fake(dir.path(), &["-DGPUS=1", "-DHANG=5"]) else {
        return;
    };
    let begin = Instant::now();
    let recording = record(dir.path(), library, |ticks, _| ticks == 15);
    assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
    let node = &recording.nodes[0];
    let gpu: Vec<f32> = node.of(dimension::GPU).flat_map(|s| s.values.clone()).collect();
    let there = gpu.iter().filter(|value| !value.is_nan()).count();
    assert!(
        (1..=4).contains(&there) && gpu.last().unwrap().is_nan(),
        "{gpu:?}"
    );
    assert!(
        node.of(dimension::CPU)
            .all(|core| !core.values.last().unwrap().is_nan())
    );
}

#[test]
fn what_is_no_nvml_is_told_once() {
    let dir = tempfile::tempdir().unwrap();
    for (name, contents) in [("missing.so", None), ("broken.so", Some("no library"))] {
        let library = dir.path().join(name);
        if let Some(text) = contents {
            std::fs::write(&library, text).unwrap();
        }
        let recording = record(dir.path(), library, |ticks, _| ticks == 3);
        let notes = recording.about.unwrap().notes;
        let told = notes.iter().filter(|note| note.contains(name)).count();
        assert_eq!(told, 1, "{notes:?}");
    }
}
