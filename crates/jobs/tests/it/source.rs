//! Code that lies in a bucket or in an archive.

use std::fs::{self, File};

use flate2::Compression;
use flate2::write::GzEncoder;
use stokehold_base::fault::Fault;
use stokehold_jobs::Status;
use stokehold_s3_server::Server;

use crate::Bench;

/// A server with the code below `bucket/code`, and packed at `bucket/packed/sourcedir.tar.gz`.
fn served(bench: &Bench) -> Server {
    let root = bench.dir.path().join("s3/bucket");
    fs::create_dir_all(root.join("code/lib")).unwrap();
    fs::create_dir_all(root.join("packed")).unwrap();
    fs::write(root.join("code/run.sh"), "cat lib/text").unwrap();
    fs::write(root.join("code/lib/text"), "of the bucket\n").unwrap();
    fs::write(root.join("packed/broken.tar.gz"), "no archive").unwrap();
    let packed = File::create(root.join("packed/sourcedir.tar.gz")).unwrap();
    let mut archive = tar::Builder::new(GzEncoder::new(packed, Compression::fast()));
    archive.append_dir_all(".", root.join("code")).unwrap();
    archive.into_inner().unwrap().finish().unwrap();
    Server::start(&bench.dir.path().join("s3")).unwrap()
}

#[test]
fn code_comes_from_a_folder_or_an_archive_here_or_in_a_bucket() {
    let bench = Bench::new();
    let server = served(&bench);
    let here = bench.dir.path().join("s3/bucket/packed/sourcedir.tar.gz");
    for source in [
        "s3://bucket/code",
        "s3://bucket/packed/sourcedir.tar.gz",
        here.to_str().unwrap(),
    ] {
        let mut job = bench.job("run.sh", "");
        job.environment.extend(server.settings());
        job.source_dir = Some(source.into());
        job.instances = 2;
        let record = bench.run(&job);
        assert_eq!(record.status, Status::Completed, "{source}: {record:?}");
        let mut printed = bench.printed();
        printed.sort();
        assert_eq!(
            printed,
            ["algo-1 out of the bucket", "algo-2 out of the bucket"],
            "{source}"
        );
    }
}

#[test]
fn code_that_cannot_be_had_is_the_reason() {
    let bench = Bench::new();
    let server = served(&bench);
    for (source, entry, said) in [
        (
            "s3://bucket/none",
            "run.sh",
            "s3://bucket/none: there are no objects below it",
        ),
        ("s3://bucket/none.tar.gz", "run.sh", "none.tar.gz"),
        (
            "s3://bucket/packed/broken.tar.gz",
            "run.sh",
            "broken.tar.gz cannot be unpacked",
        ),
        (
            "s3://bucket/code",
            "other.sh",
            "other.sh is not in s3://bucket/code",
        ),
    ] {
        let mut job = bench.job(entry, "");
        job.environment.extend(server.settings());
        job.source_dir = Some(source.into());
        let record = bench.run(&job);
        let reason = record.failure_reason.unwrap();
        assert!(
            record.status == Status::Failed && reason.contains(said),
            "{source}: {reason}"
        );
    }
    let mut job = bench.job("run.sh", "");
    job.source_dir = Some("none.tar.gz".into());
    let refused = bench.store.create(&job).unwrap_err();
    assert!(
        refused.is_input() && refused.to_string().contains("there is no file"),
        "{refused}"
    );
}
