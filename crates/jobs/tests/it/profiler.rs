//! The recording that is made next to a job.

use std::fs;
use std::process::Command;

use stokehold_jobs::Status;
use stokehold_profile::{Recording, span};
use stokehold_s3_server::Server;

use crate::{Bench, unpacked};

const MARKS: &str = "import os, socket, time\n\
    lines = socket.socket(socket.AF_UNIX)\n\
    lines.connect(os.environ['STOKEHOLD_TIMELINE'])\n\
    lines.sendall(b'step 1795266180.5 1795266180.75 step=7\\n')\n\
    open(os.environ['SM_MODEL_DIR'] + '/model', 'w').write('weights')\n\
    time.sleep(0.7)\n";

#[test]
fn a_job_is_recorded_and_its_report_goes_where_its_model_goes() {
    if Command::new("python3").arg("--version").output().is_err() {
        stokehold_untested::skip("no python3");
        return;
    }
    let bench = Bench::new();
    let mut job = bench.job("train.py", MARKS);
    let bucket = bench.dir.path().join("s3/bucket");
    fs::create_dir_all(&bucket).unwrap();
    let server = Server::start(&bench.dir.path().join("s3")).unwrap();
    job.environment.extend(server.settings());
    job.output = Some("s3://bucket/results".to_owned());
    let record = bench.run(&job);
    assert_eq!(
        record.status,
        Status::Completed,
        "{record:?} {:?}",
        bench.printed()
    );
    assert_eq!(record.profile, Some(bench.store.path(&record.name)));
    let page = record.report.clone().unwrap();
    assert!(fs::read_to_string(&page).unwrap().contains("<html"));
    assert!(
        page.with_file_name("profiler-reports")
            .join("CPUBottleneck.json")
            .exists()
    );

    let recording = Recording::open(record.profile.as_ref().unwrap()).unwrap();
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
    let sent = bucket.join("results").join(&record.name);
    assert_eq!(
        Recording::open(&sent).unwrap().nodes[0].ticks,
        recording.nodes[0].ticks
    );
    assert_eq!(
        record.model.as_deref(),
        Some(&*format!(
            "s3://bucket/results/{}/output/model.tar.gz",
            record.name
        ))
    );
    assert_eq!(
        unpacked(&sent.join("output/model.tar.gz")),
        [("model".to_owned(), "weights".to_owned())]
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
