//! Jobs on the nodes of a Slurm cluster.

use std::error::Error;
use std::io::{self, Write};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args as ClapArgs;
use stokehold_jobs::{Claim, Line, Status, Store};

use super::{LOOK, code, print, show};
use crate::{interrupt, terminal};

/// How often a job's files are read: they are on a network file system.
const LOOK_SLOWLY: Duration = Duration::from_secs(1);

/// How long the lock of a runner may outlive its node.
const LEASE: Duration = Duration::from_secs(120);

/// Prints a job's lines until it ends; or its name alone.
pub fn follow(store: &Store, name: &str, detach: bool, json: bool) -> Result<ExitCode, Box<dyn Error>> {
    if detach {
        writeln!(io::stdout(), "{name}")?;
        return Ok(ExitCode::SUCCESS);
    }
    let (stopping, of) = (store.clone(), name.to_owned());
    interrupt::on_each(move |nth, _| {
        let told = match nth {
            1 => {
                interrupt::say("stopping; the script gets its time to end; press Ctrl-C again to kill it");
                stopping.stop(&of)
            }
            2 => {
                interrupt::say("killing the script");
                stopping.kill(&of)
            }
            _ => interrupt::end(),
        };
        if let Err(error) = told {
            interrupt::say(&error.to_string());
        }
    })?;
    let (mut from, mut said) = (0, String::new());
    loop {
        // Checked before reading the lines, so that the last lines are not missed.
        let record = store.get(name)?;
        let ended = record.status.is_final();
        let state = show::state(&record);
        if !ended && state != said {
            writeln!(terminal::err(), "job {name} {state}")?;
            said = state;
        }
        loop {
            let (text, next) = store.log(name, from)?;
            for line in text.lines().filter_map(Line::parse) {
                // The reader of the output may go away; the job continues.
                let _ = match json {
                    true => print(&Line {
                        stream: "err",
                        ..line
                    }),
                    false => print(&line),
                };
            }
            if next == from {
                break;
            }
            from = next;
        }
        if ended {
            match json {
                true => terminal::json(&record)?,
                false => writeln!(terminal::err(), "{}", show::end(store, &record))?,
            }
            return Ok(code(&record));
        }
        thread::sleep(if record.status == Status::Stopping {
            LOOK
        } else {
            LOOK_SLOWLY
        });
    }
}

/// Claims a job on its node: a new one, one that is to continue, or one whose node is gone.
pub fn claim(store: &Store, name: &str) -> Result<Claim, Box<dyn Error>> {
    let began = Instant::now();
    let again = std::env::var("SLURM_RESTART_COUNT").is_ok_and(|count| count != "0");
    loop {
        match store.claim_on_node(name, again) {
            Ok(claim) => return Ok(claim),
            Err(error) if began.elapsed() >= LEASE || store.get(name)?.status.is_final() => {
                return Err(error.into());
            }
            Err(_) => thread::sleep(LOOK_SLOWLY),
        }
    }
}

/// The process on a node that becomes an instance's.
#[derive(Debug, ClapArgs)]
pub struct InstanceArgs {
    #[arg(long)]
    room: Option<String>,
    #[arg(last = true, required = true)]
    words: Vec<String>,
}

/// Becomes an instance's command.
pub fn instance(args: &InstanceArgs) -> Result<ExitCode, Box<dyn Error>> {
    match stokehold_jobs::on_node(args.room.as_deref(), &args.words)? {}
}
