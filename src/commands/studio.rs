//! `stokehold studio`: runs, jobs and studies in a browser, live.

use std::error::Error;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args as ClapArgs;
use stokehold_jobs::Store;
use stokehold_studio::{Options, RUNS, Studio};

use crate::interrupt;
use crate::local::Local;
use crate::terminal::{self, note};

/// Show runs, jobs and studies in a browser, live.
///
/// It reads the folders that are there, and prints a link that opens in a browser of this machine, or through a tunnel:
/// `ssh -L 7878:127.0.0.1:7878 MACHINE`. It may be ended at any time: what runs continues.
#[derive(Debug, ClapArgs)]
pub struct Args {
    /// Where to listen, HOST:PORT. 127.0.0.1 is this machine only; port 0 is any free one.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:7878")]
    listen: String,
    /// The folder of all jobs [default: the same as `stokehold job`]
    #[arg(long, value_name = "DIR")]
    jobs: Option<Local>,
    /// A folder of runs and studies; may be given several times [default: runs, if it is there]
    #[arg(long, value_name = "DIR")]
    runs: Vec<Local>,
    /// A data set, or a folder of data sets, to look at; may be given several times
    #[arg(long, value_name = "DIR")]
    data: Vec<Local>,
    /// Show everything, and change nothing.
    #[arg(long)]
    read_only: bool,
    /// A further name that it is reached by, such as the one in the certificate; the link has it. Without it a studio answers to
    /// addresses, localhost and its machine's name.
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    /// Speak TLS: the file of the certificate and its chain, in PEM.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<Local>,
    /// The file of the certificate's key, in PEM.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<Local>,
}

/// Runs the subcommand.
///
/// # Errors
/// A folder that is not there, an address that cannot be used (exit code 2); the system refuses threads (1).
pub fn run(args: &Args) -> Result<ExitCode, Box<dyn Error>> {
    let stop = interrupt::flag_for("stopping")?;
    let jobs = match &args.jobs {
        Some(jobs) => jobs.to_path_buf(),
        None => Store::of_user()?.root().to_owned(),
    };
    let runs: Vec<PathBuf> = match args.runs.is_empty() {
        // It may come later.
        true => vec![PathBuf::from(RUNS)],
        false => args.runs.iter().map(|path| path.to_path_buf()).collect(),
    };
    let data: Vec<PathBuf> = args.data.iter().map(|path| path.to_path_buf()).collect();
    let shown = |path: &Path| path.display().to_string();
    let folders: Vec<String> = std::iter::once(&jobs)
        .chain(&runs)
        .chain(&data)
        .map(|path| shown(path))
        .collect();
    let studio = Studio::bind(Options {
        jobs: Some(jobs),
        runs,
        data,
        program: Some(std::env::current_exe()?),
        listen: args.listen.clone(),
        read_only: args.read_only,
        tls: args
            .tls_cert
            .as_ref()
            .zip(args.tls_key.as_ref())
            .map(|(certificate, key)| (certificate.to_path_buf(), key.to_path_buf())),
        host: args.host.clone(),
    })?;
    let address = studio.address();
    writeln!(terminal::out(), "{}", studio.link())?;
    terminal::out().flush()?;
    let mode = if args.read_only { ", read-only" } else { "" };
    note!(
        "the studio of {}{mode}; open the link; Ctrl-C ends it",
        folders.join(", ")
    );
    if !address.ip().is_loopback() && args.tls_cert.is_none() {
        note!(
            "warning: it listens on {address} without encryption: whoever reads the network sees the token and everything else; \
             give --tls-cert and --tls-key, or prefer 127.0.0.1 and an SSH tunnel"
        );
    }
    studio.run(stop, |action| note!("{action}"))?;
    Ok(ExitCode::from(interrupt::EXIT_CODE))
}
