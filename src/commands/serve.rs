//! `stokehold serve`: make batches for trainers on other machines.

use std::error::Error;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args as ClapArgs;
use stokehold_base::words::plural;
use stokehold_loader::Workers;
use stokehold_pipeline::Pipeline;
use stokehold_remote::TOKEN;
use stokehold_remote::server::{Options, Server, Watch};

use crate::interrupt;
use crate::loader::WorkerArgs;
use crate::local::Local;
use crate::terminal::{self, note};

/// Make batches for trainers on other machines.
///
/// A trainer names the servers: `stokehold train DATA --loader tcp://a:7000,tcp://b:7000`. It sends its pipeline and its options,
/// and any server can make any of its batches; so servers may come and go. Trainer and servers need the same data set and
/// the same version of Stokehold.
///
/// A batch can be fetched with curl, as safetensors: `curl http://a:7000/v1/batches/default/0/0 -o batch.safetensors`.
#[derive(Debug, Clone, ClapArgs)]
pub struct Args {
    /// The data set: a folder, or its place in a bucket.
    data: PathBuf,
    /// Where to listen, HOST:PORT. 127.0.0.1 is this machine only; 0.0.0.0 is all its networks.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:7000")]
    listen: String,
    /// The pipeline of batches that are fetched without a trainer: a preset, or a .toml or .json file.
    #[arg(long, value_name = "NAME|FILE", default_value = "imagenet-train")]
    pipeline: Local,
    #[command(flatten)]
    threads: WorkerArgs,
    /// Speak TLS: the file of the certificate and its chain, in PEM.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<Local>,
    /// The file of the certificate's key, in PEM.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<Local>,
}

/// How often the log has a line, if batches were made.
const EVERY: Duration = Duration::from_secs(10);

/// Raises the limit of open files to what the system allows: each connection is one, and so is each image that is read.
fn raise_limit_of_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Nofile).maximum;
    // Where it stays, the server takes fewer connections.
    let _ = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: maximum,
            maximum,
        },
    );
}

/// Runs the subcommand.
///
/// # Errors
/// The data set, the pipeline, the certificate or the address cannot be used.
pub fn run(args: &Args) -> Result<ExitCode, Box<dyn Error>> {
    let stop = interrupt::flag_for("stopping")?;
    raise_limit_of_files();
    let token = stokehold_remote::token()?;
    let guarded = token.is_some();
    let workers = args.threads.workers;
    let paths = |cert: &Local, key: &Local| (cert.to_path_buf(), key.to_path_buf());
    let server = Server::bind(Options {
        data: args.data.clone(),
        pipeline: Pipeline::named(&args.pipeline.to_string_lossy())?,
        listen: args.listen.clone(),
        workers,
        token,
        tls: args
            .tls_cert
            .as_ref()
            .zip(args.tls_key.as_ref())
            .map(|(cert, key)| paths(cert, key)),
    })?;
    let address = server.address()?;
    let scheme = if args.tls_cert.is_some() { "tls" } else { "tcp" };
    writeln!(
        terminal::out(),
        "serving {} on {scheme}://{address} with {}{}; Ctrl-C ends it",
        args.data.display(),
        plural(workers.resolve(), "worker"),
        match workers {
            Workers::Auto => ", and more where reads wait",
            Workers::Count(_) => "",
        }
    )?;
    terminal::out().flush()?;
    let local = [
        IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1]),
    ];
    if !guarded && !local.contains(&address.ip()) {
        note!(
            "warning: whoever reaches {address} gets the images: set {TOKEN} here and for the trainers, to a word that only \
             they know"
        );
    }
    let watch = server.watch();
    // It ends with the program.
    thread::Builder::new()
        .name("progress".to_owned())
        .spawn(move || tell(&watch))?;
    server.run(stop)?;
    Ok(ExitCode::from(interrupt::EXIT_CODE))
}

/// A line for each interval with batches.
fn tell(watch: &Watch) {
    let (mut before, mut since) = (watch.facts(), Instant::now());
    loop {
        thread::sleep(EVERY);
        let now = watch.facts();
        let seconds = since.elapsed().as_secs_f64();
        since = Instant::now();
        if now.batches > before.batches {
            note!(
                "{} batches, {:.0} images/s",
                now.batches,
                (now.images - before.images) as f64 / seconds
            );
        }
        before = now;
    }
}
