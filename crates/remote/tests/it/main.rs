//! Servers and a trainer's loader, over the loopback interface.

mod failures;
mod serving;
mod wire;

use std::io;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use stokehold_loader::{Address, Batch, Loader, LoaderError, LoaderOptions, Pipeline, Workers};
use stokehold_remote::server::{Options, Server, Watch};
use stokehold_remote::{DataPart, DatasetSplit, RemoteError, Servers};
use stokehold_storage::{Dataset, Images};
use stokehold_synth::{SynthOptions, generate};
use tempfile::TempDir;

/// A server in a thread of its own; dropping it breaks its connections.
struct Running {
    address: String,
    watch: Watch,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}

fn options(data: &Path, listen: &str) -> Options {
    Options {
        data: data.to_owned(),
        pipeline: Pipeline::imagenet_train(32),
        listen: listen.to_owned(),
        workers: Workers::Count(NonZeroUsize::new(2).unwrap()),
        token: None,
        tls: None,
    }
}

fn serve(options: Options) -> Running {
    let server = Server::bind(options).unwrap();
    let address = format!("tcp://{}", server.address().unwrap());
    let (watch, stop) = (server.watch(), Arc::new(AtomicBool::new(false)));
    let own = Arc::clone(&stop);
    Running {
        address,
        watch,
        stop,
        thread: Some(thread::spawn(move || server.run(&own).unwrap())),
    }
}

fn serve_data(data: &Path) -> Running {
    serve(options(data, "127.0.0.1:0"))
}

/// A data set of 60 images in 3 classes, and its training images.
fn data_set() -> (TempDir, PathBuf, Images) {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let options = SynthOptions {
        images: 66,
        classes: 3,
        val_fraction: 1.0 / 11.0,
        ..SynthOptions::default()
    };
    generate(&data, &options, &mut |_, _| {}).unwrap();
    let images = Dataset::open(&data, None, 0).unwrap().train;
    (dir, data, images)
}

fn addresses(names: &[&str]) -> Vec<Address> {
    names.iter().map(|name| name.parse().unwrap()).collect()
}

fn connect(names: &[&str], images: &Images) -> Result<Servers, RemoteError> {
    Servers::connect(&addresses(names), DataPart::of(images, DatasetSplit::Train), None)
}

/// A loader whose batches servers make, and one that makes the same ones by itself.
fn both(
    images: &Images,
    pipeline: &Pipeline,
    servers: Servers,
    change: impl Fn(&mut LoaderOptions),
) -> (Loader, Loader) {
    let mut own = LoaderOptions {
        batch_size: 7,
        seed: 5,
        workers: Workers::Count(NonZeroUsize::MIN),
        ..LoaderOptions::default()
    };
    change(&mut own);
    let remote = LoaderOptions {
        elsewhere: Some(Arc::new(servers)),
        ..own.clone()
    };
    let loader = |options| Loader::new(Arc::new(images.clone()), pipeline.clone(), options).unwrap();
    (loader(remote), loader(own))
}

/// What a batch has, besides times.
fn content(batch: Result<Batch, LoaderError>) -> impl PartialEq + std::fmt::Debug {
    let batch = batch.unwrap();
    (
        batch.pixels.numbers().unwrap().clone(),
        batch.labels,
        batch.samples,
        batch.masks,
        batch.bad,
        batch.again,
    )
}

fn assert_epoch_equal(remote: &Loader, local: &Loader, epoch: u64) {
    let (mut made, mut expected) = (remote.epoch(epoch), local.epoch(epoch));
    for number in 0.. {
        match (made.next(), expected.next()) {
            (None, None) => break,
            (Some(made), Some(expected)) => assert!(
                content(made) == content(expected),
                "epoch {epoch}, batch {number}"
            ),
            (made, expected) => panic!("{made:?} and {expected:?}"),
        }
    }
}

/// Sends a request as a program such as curl does, and returns the answer.
fn ask(address: &str, request: &str) -> io::Result<String> {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(address.trim_start_matches("tcp://"))?;
    write!(stream, "{request}")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}
