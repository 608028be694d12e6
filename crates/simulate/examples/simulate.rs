//! Writes a simulated recording, to look at reports without a machine to record.

use std::path::PathBuf;
use std::process::ExitCode;

use stokehold_simulate::{Phase, Simulation};

const USAGE: &str = "\
usage: simulate FOLDER [--nodes 1] [--cores 8] [--gpus 1] [--seconds 600] [--interval 0.5] [--step-seconds 0.25]
                [--workers 4] [--others 0|none] [--seed 0] [--phases startup,healthy]
phases:";

fn main() -> ExitCode {
    match run() {
        Ok(folder) => {
            println!("wrote {}", folder.display());
            ExitCode::SUCCESS
        }
        Err(message) => {
            let names: Vec<&str> = Phase::NAMES.iter().map(|(name, _)| *name).collect();
            eprintln!("{message}\n{USAGE} {}", names.join(", "));
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<PathBuf, String> {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().filter(|first| !first.starts_with('-'));
    let folder = PathBuf::from(folder.ok_or("which folder?")?);
    let mut simulation = Simulation::default();
    while let Some(name) = arguments.next() {
        let value = arguments.next().ok_or(format!("{name} needs a value"))?;
        set(&mut simulation, &name, &value).ok_or(format!("cannot use {name} {value}"))?;
    }
    simulation.write(&folder).map_err(|error| error.to_string())?;
    Ok(folder)
}

fn set(simulation: &mut Simulation, name: &str, value: &str) -> Option<()> {
    let seconds = || {
        value
            .parse()
            .ok()
            .filter(|seconds: &f64| *seconds >= 0.0 && seconds.is_finite())
    };
    match name {
        "--nodes" => simulation.nodes = value.parse().ok()?,
        "--cores" => simulation.cores = value.parse().ok()?,
        "--gpus" => simulation.gpus = value.parse().ok()?,
        "--seconds" => simulation.seconds = seconds()?,
        "--interval" => simulation.interval = seconds().filter(|seconds| *seconds > 0.0)?,
        "--step-seconds" => simulation.step_seconds = seconds()?,
        "--workers" => simulation.workers = value.parse().ok()?,
        "--others" if value == "none" => simulation.others = None,
        "--others" => simulation.others = Some(value.parse().ok()?),
        "--seed" => simulation.seed = value.parse().ok()?,
        "--phases" => {
            let phase = |name: &str| Some(Phase::NAMES.iter().find(|(known, _)| *known == name)?.1);
            simulation.phases = value.split(',').map(phase).collect::<Option<_>>()?;
        }
        _ => return None,
    }
    Some(())
}
