//! The recording that is made beside a job.

use std::fs;
use std::process::Command;

use stokehold_jobs::Status;
use stokehold_profile::{Recording, span};

use crate::Bench;

const MARKS: &str = "import os, socket, time\n\
    lines = socket.socket(socket.AF_UNIX)\n\
    lines.connect(os.environ['STOKEHOLD_TIMELINE'])\n\
    lines.sendall(b'step 1795266180.5 1795266180.75 step=7\\n')\n\
    time.sleep(0.7)\n";

#[test]
fn a_job_is_recorded_and_its_report_goes_where_its_model_goes() {
    if Command::new("python3").arg("--version").output().is_err() {
        println!("skipped: no python3");
        return;
    }
    let bench = Bench::new();
    let mut job = bench.job("train.py", MARKS);
    let results = bench.dir.path().join("results");
    job.output = Some(results.display().to_string());
    let record = bench.run(&job);
    assert_eq!(
        record.status,
        Status::Completed,
        "{record:?} {:?}",
        bench.printed()
    );
    assert_eq!(record.profile, Some(bench.store.path(&record.name)));
    let page = record.report.unwrap();
    assert!(fs::read_to_string(&page).unwrap().contains("<html"));
    assert!(
        page.with_file_name("profiler-reports")
            .join("CPUBottleneck.json")
            .exists()
    );

    let recording = Recording::open(&record.profile.unwrap()).unwrap();
    assert_eq!(recording.problems, Vec::<String>::new());
    assert!(!recording.nodes[0].ticks.is_empty());
    let steps: Vec<_> = recording.nodes[0]
        .spans_of(span::STEP)
        .map(|span| span.step)
        .collect();
    assert_eq!(steps, [Some(7)]);
    let about = recording.about.unwrap();
    assert_eq!((about.exit_code, about.ended.is_some()), (Some(0), true));
    assert_eq!(about.command, ["python3", "train.py"]);

    // The same again at the output's place, as SageMaker lays it out.
    let sent = results.join(&record.name);
    assert_eq!(
        Recording::open(&sent).unwrap().nodes[0].ticks,
        recording.nodes[0].ticks
    );
    let below = page.strip_prefix(bench.store.path(&record.name)).unwrap();
    assert_eq!(fs::read(sent.join(below)).unwrap(), fs::read(&page).unwrap());
}

#[test]
fn a_job_need_not_be_recorded() {
    let bench = Bench::new();
    let mut job = bench.job("run.sh", "echo timeline=$STOKEHOLD_TIMELINE");
    job.profile = false;
    let record = bench.run(&job);
    assert_eq!(
        (record.status, &record.profile, &record.report),
        (Status::Completed, &None, &None)
    );
    assert!(!bench.store.path(&record.name).join("profiler-output").exists());
    assert!(
        bench.printed().contains(&"algo-1 out timeline=".to_owned()),
        "{:?}",
        bench.printed()
    );
}
