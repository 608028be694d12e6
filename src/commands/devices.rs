//! `stokehold devices`: lists the GPUs that can be used, and why others cannot.
//!
//! A broken driver can end the process that queries it, or never answer. So each backend is queried by a
//! separate process, this program again, with a time limit of a minute.

use crate::failure::Usage;
use crate::terminal;
use clap::Args as ClapArgs;
use serde_json::json;
use std::error::Error;
use std::io::{Read, Write};
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use stokehold_gpu::{Backend, Devices, devices_of};

/// The time limit for a driver.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often to check for its answer.
const LOOK: Duration = Duration::from_millis(20);

#[derive(Debug, ClapArgs)]
pub struct Args {
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    /// Query one backend in this process, and print the result
    #[arg(long, hide = true, value_name = "BACKEND", conflicts_with = "json")]
    probe: Option<String>,
}

/// Runs the subcommand.
///
/// # Errors
/// If this program cannot be started again, or the output cannot be written.
pub fn run(args: &Args) -> Result<ExitCode, Box<dyn Error>> {
    let mut out = terminal::out();
    if let Some(name) = &args.probe {
        let backend = Backend::ALL.into_iter().find(|b| b.to_string() == *name);
        let backend = backend.ok_or_else(|| Usage(format!("no backend is called '{name}'")))?;
        writeln!(
            std::io::stdout(),
            "{}",
            serde_json::to_string(&devices_of(backend))?
        )?;
        return Ok(ExitCode::SUCCESS);
    }
    let all = Backend::ALL.into_iter().map(ask).collect::<Result<Vec<_>, _>>()?;
    if args.json {
        terminal::json(&json!({ "backends": all }))?;
        return Ok(ExitCode::SUCCESS);
    }
    for Devices {
        backend,
        usable,
        problem,
    } in &all
    {
        for device in usable {
            let kind = if device.is_cpu { ", made of the CPU" } else { "" };
            writeln!(
                out,
                "{:<10} {}{kind}",
                device.name.to_string(),
                device.description
            )?;
        }
        if let Some(problem) = problem {
            writeln!(out, "{:<10} not usable: {problem}", backend.to_string())?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Queries a backend in a separate process.
fn ask(backend: Backend) -> Result<Devices, Box<dyn Error>> {
    let child = Command::new(std::env::current_exe()?)
        .args(["devices", "--probe", &backend.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let said = answer(child)?;
    let found = said.and_then(|text| {
        // Drivers may print other lines before.
        let line = text.lines().last().unwrap_or_default();
        serde_json::from_str(line).map_err(|_| "the process that asked its driver gave no answer".to_owned())
    });
    Ok(found.unwrap_or_else(|problem| Devices {
        backend,
        usable: Vec::new(),
        problem: Some(problem),
    }))
}

/// The output of a process, or why there is none.
fn answer(mut child: Child) -> std::io::Result<Result<String, String>> {
    let mut pipe = child.stdout.take();
    let reader = thread::spawn(move || {
        let mut text = String::new();
        pipe.as_mut().map(|pipe| pipe.read_to_string(&mut text));
        text
    });
    let begin = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if begin.elapsed() > PATIENCE {
            child.kill()?;
            child.wait()?;
            let seconds = PATIENCE.as_secs();
            return Ok(Err(format!("its driver did not answer within {seconds} seconds")));
        }
        thread::sleep(LOOK);
    };
    let text = reader.join().unwrap_or_default();
    Ok(match status.success() {
        true => Ok(text),
        false => Err(format!("its driver ended the process that asked it ({status})")),
    })
}
