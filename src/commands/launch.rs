//! `stokehold launch`: start a command on several ranks with the `mpirun` that is there.
//!
//! At Ctrl-C and SIGTERM the ranks get SIGUSR1, which mpirun passes on: they write a checkpoint and end. To mpirun itself
//! Ctrl-C would mean to kill them. A second Ctrl-C does that.

use std::env;
use std::error::Error;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use clap::Args as ClapArgs;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use stokehold_base::shell::quoted;
use stokehold_loader::TOKEN;

use crate::failure::Usage;
use crate::interrupt;
use crate::terminal::note;

/// The variable that tells ranks how they were launched: the words of this command before theirs, a line each.
pub const CALLED: &str = "STOKEHOLD_LAUNCHED";

/// Variables for ranks on other machines.
const FORWARDED: [&str; 6] = [
    "RAYON_NUM_THREADS",
    "SSL_CERT_FILE",
    "STOKEHOLD_CACHE",
    stokehold_cache::VARIABLE,
    "STOKEHOLD_LOG",
    TOKEN,
];

/// Start a stokehold command on several ranks, with the mpirun that is installed (Open MPI, MPICH or Intel MPI).
///
/// In a job of Slurm, mpirun starts the ranks on the job's machines. Ctrl-C (and SIGUSR1, and SIGTERM) stops all ranks after
/// their step, with a checkpoint.
#[derive(Debug, Clone, ClapArgs)]
pub struct Args {
    /// Ranks, 1 to 4096.
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    ranks: u32,
    /// The machines to start them on, by name; :SLOTS says how many ranks fit [default: this machine].
    #[arg(long, value_name = "HOST[:SLOTS],..", value_delimiter = ',')]
    hosts: Vec<String>,
    /// Print the command and do not start it.
    #[arg(long)]
    dry_run: bool,
    /// The command of stokehold, and its options: train DATA --epochs 10
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Runs the subcommand.
///
/// # Errors
/// There is no mpirun, or this program was built without MPI.
pub fn run(args: &Args) -> Result<ExitCode, Box<dyn Error>> {
    if !cfg!(feature = "mpi") {
        return Err(Usage(
            "this program was built without MPI: build it with cargo build --release --features mpi (it needs an MPI with mpicc, \
             and libclang)"
                .into(),
        )
        .into());
    }
    let version = Command::new("mpirun").arg("--version").output();
    let version = version.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Box::<dyn Error>::from(Usage(
            "there is no mpirun on PATH: install an MPI (Debian: openmpi-bin)".into(),
        )),
        _ => format!("mpirun: {error}").into(),
    })?;
    let open_mpi = String::from_utf8_lossy(&version.stdout).contains("Open MPI");
    let mut mpirun = Command::new("mpirun");
    mpirun.args(words(args, open_mpi, is_root()));
    let mut called = vec!["launch".to_owned(), "-n".to_owned(), args.ranks.to_string()];
    if !args.hosts.is_empty() {
        called.extend(["--hosts".to_owned(), args.hosts.join(",")]);
    }
    called.push("--".to_owned());
    mpirun.env(CALLED, called.join("\n"));
    mpirun.arg(env::current_exe()?).args(&args.command);
    let words = std::iter::once(mpirun.get_program()).chain(mpirun.get_args());
    let words: Vec<_> = words.map(quoted).collect();
    if args.dry_run {
        use std::io::Write;
        writeln!(crate::terminal::out(), "{}", words.join(" "))?;
        return Ok(ExitCode::SUCCESS);
    }
    note!("{}", words.join(" "));
    // In a process group of its own, so that the terminal's Ctrl-C comes here alone.
    mpirun.process_group(0).stdin(Stdio::null());
    // Signals that come before there is a process to pass them to end this one.
    let process = Arc::new(AtomicI32::new(0));
    let theirs = Arc::clone(&process);
    let mut asked = 0;
    interrupt::on_each_and_limits(move |_, signal| {
        let mpirun = theirs.load(Ordering::SeqCst);
        if mpirun == 0 {
            interrupt::end();
        }
        // A cluster may repeat its warning; only people end ranks at once.
        asked += usize::from(signal != Signal::SIGUSR1 as i32);
        let passed = if asked > 1 {
            Signal::SIGTERM
        } else {
            Signal::SIGUSR1
        };
        // It may have ended.
        let _ = kill(Pid::from_raw(mpirun), passed);
    })?;
    let mut started = mpirun.spawn().map_err(|error| format!("mpirun: {error}"))?;
    process.store(started.id().cast_signed(), Ordering::SeqCst);
    let status = started.wait()?;
    let code = status.code().or(status.signal().map(|signal| 128 + signal));
    Ok(ExitCode::from(
        code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1),
    ))
}

/// The options of mpirun.
fn words(args: &Args, open_mpi: bool, root: bool) -> Vec<String> {
    let mut words = vec!["-n".to_owned(), args.ranks.to_string()];
    if !args.hosts.is_empty() {
        words.extend([
            if open_mpi { "--host" } else { "-hosts" }.to_owned(),
            args.hosts.join(","),
        ]);
        // Open MPI passes no variables to other machines but those that are named; their values stand on no command line.
        let named = FORWARDED
            .into_iter()
            .filter(|name| open_mpi && env::var_os(name).is_some());
        words.extend(named.flat_map(|name| ["-x".to_owned(), name.to_owned()]));
    }
    if open_mpi {
        // The threads of a rank share the machine's cores with those of the others.
        words.extend(["--bind-to", "none"].map(str::to_owned));
        words.extend(["-x", CALLED].map(str::to_owned));
        if args.hosts.is_empty() && env::var_os("SLURM_JOB_ID").is_none() {
            words.push("--oversubscribe".to_owned());
        }
        if root {
            words.push("--allow-run-as-root".to_owned());
        }
    }
    words
}

fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}
