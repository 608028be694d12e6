//! Runs a job in this process, or in a background process that survives the terminal.

use std::error::Error;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::{Args as ClapArgs, ValueEnum};
use serde_json::Value;
use signal_hook::consts::SIGTERM;
use stokehold_jobs::{
    Channel, Claim, Distribution, EntryPoint, Job, Line, Metric, News, RUNNER_READY, Simulation, Store,
};
use stokehold_sagemaker::section;

use super::at_sagemaker::{self, SubmitOptions};
use super::{at_slurm, code, print, show};
use crate::failure::Usage;
use crate::interrupt;
use crate::local::Local;
use crate::terminal;

#[derive(Debug, ClapArgs)]
#[command(override_usage = "stokehold job run JOB.toml [OPTIONS]\n       \
    stokehold job run --entry-point FILE [OPTIONS]\n       \
    stokehold job run --resume NAME")]
pub struct Args {
    /// The job file; `stokehold job init` writes one. Options go before what it says.
    #[arg(value_name = "JOB.toml")]
    file: Option<Local>,
    /// Continue a job that failed or was stopped; its data and checkpoints are kept
    #[arg(long, value_name = "NAME", conflicts_with_all = ["file", "JobOptions"])]
    resume: Option<String>,
    /// Run it in the background, where it survives the terminal, and print its name
    #[arg(long)]
    detach: bool,
    /// Print how it ended as JSON; its lines go to standard error
    #[arg(long, conflicts_with = "detach")]
    json: bool,
    /// Hand it to another place: slurm, whose nodes have to see this program and this folder under the same paths; or
    /// sagemaker, for which the job file has a section of that name
    #[arg(long, value_name = "PLACE", value_enum)]
    on: Option<On>,
    /// An option of sbatch, such as --sbatch=--partition=gpu. Can be given several times
    #[arg(long, value_name = "OPTION", requires = "on", allow_hyphen_values = true)]
    sbatch: Vec<String>,
    /// With --on sagemaker: print the request as JSON, without values that look like secrets, and send nothing
    #[arg(long, requires = "on", conflicts_with_all = ["detach", "json"])]
    dry_run: bool,
    #[command(flatten)]
    asked: JobOptions,
}

/// Where a job runs, if not here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum On {
    /// On nodes that Slurm gives; this machine needs its commands, and the folder has to be one that the nodes have, too.
    Slurm,
    /// On machines of AWS that SageMaker starts and ends.
    Sagemaker,
}

/// Options that a job file has, too.
#[derive(Debug, ClapArgs)]
#[group(multiple = true)]
#[command(next_help_heading = "The job")]
struct JobOptions {
    /// What runs: a .py or .sh file, a program, or module:package.train
    #[arg(long, value_name = "FILE", value_parser = EntryPoint::parse)]
    entry_point: Option<EntryPoint>,
    /// The folder that becomes its working folder [default: the file alone]
    #[arg(long, value_name = "DIR")]
    source_dir: Option<PathBuf>,
    /// An argument of the script: --NAME VALUE; JSON where it is JSON. Can be given several times
    #[arg(long, value_name = "NAME=VALUE", value_parser = hyperparameter)]
    hyperparameter: Vec<(String, Value)>,
    /// Where data comes from; the script finds it at SM_CHANNEL_NAME. Can be given several times
    #[arg(long, value_name = "NAME=URI[,mode=..]", value_parser = channel)]
    channel: Vec<(String, Channel)>,
    /// A number to read out of the script's lines, group 1 of the expression. Can be given several times
    #[arg(long, value_name = "NAME=REGEX", value_parser = Metric::parse)]
    metric: Vec<Metric>,
    /// A variable of the script. Can be given several times
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    environment: Vec<(String, String)>,
    /// Where NAME/output/model.tar.gz goes besides the job's own folder: a URI or a path
    #[arg(long, value_name = "URI")]
    output: Option<String>,
    /// Where its checkpoint folder (SM_CHECKPOINT_DIR) is kept, and comes from at every start: a URI or a path
    #[arg(long, value_name = "URI")]
    checkpoint_uri: Option<String>,
    /// The machine may be taken away: EC2's notice or SIGTERM interrupts the job, and --resume continues it
    #[arg(long)]
    spot: bool,
    /// Interrupt it and continue: "every 90s", "after 30s" or "at 10s,60s" of the script's running time
    #[arg(long, value_name = "WHEN", value_parser = Simulation::parse)]
    spot_simulate: Option<Simulation>,
    /// On spot machines: stop the job if it is not done within this time, pauses included
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    max_wait: Option<u64>,
    /// What an instance costs in an hour
    #[arg(long, value_name = "MONEY", requires = "spot_price")]
    price: Option<f64>,
    /// What it costs in an hour as a spot instance
    #[arg(long, value_name = "MONEY", requires = "price")]
    spot_price: Option<f64>,
    /// Stop the script after this time: seconds, or 2h [default: a day]
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    max_run: Option<u64>,
    /// Number of processes that act as machines [default: 1]
    #[arg(long, value_name = "N")]
    instances: Option<usize>,
    /// How the processes find each other: none, torch, mpi or smdistributed
    #[arg(long, value_name = "WAY", value_parser = distribution)]
    distribution: Option<Distribution>,
    /// Processes of each under torch, mpi and smdistributed [default: one a GPU, or one]
    #[arg(long, value_name = "N")]
    processes_per_host: Option<usize>,
    /// The interpreter of Python scripts [default: python3]
    #[arg(long, value_name = "PROGRAM")]
    python: Option<PathBuf>,
    /// Do not record the machine
    #[arg(long)]
    no_profile: bool,
    /// Also write its metrics into the job's folder as an event file, while it runs: tensorboard --logdir FOLDER
    #[arg(long)]
    tensorboard: bool,
    /// Run it without an /opt/ml of its own: folders as channels are copied, and the system's folders are writable
    #[arg(long)]
    no_opt_ml: bool,
    /// The job's name [default: made of the entry point and the time]
    #[arg(long)]
    name: Option<String>,
}

/// The process that runs a job in the background, or on a node of Slurm.
#[derive(Debug, ClapArgs)]
pub struct RunnerArgs {
    name: String,
    #[arg(long, conflicts_with = "slurm")]
    resume: bool,
    #[arg(long)]
    slurm: bool,
}

impl JobOptions {
    /// The job described by a file, by these options, or by both.
    fn job(self, file: Option<Local>) -> Result<Job, Box<dyn Error>> {
        let mut job = match (&file, &self.entry_point) {
            (Some(file), _) => section::read(file)?,
            (None, Some(entry_point)) => Job::new(entry_point.clone()),
            (None, None) => {
                let text =
                    "what is to run? Give a job file (`stokehold job init` writes one) or --entry-point";
                return Err(Usage(text.to_owned()).into());
            }
        };
        fn set<T>(field: &mut T, asked: Option<T>) {
            if let Some(asked) = asked {
                *field = asked;
            }
        }
        set(&mut job.entry_point, self.entry_point);
        set(&mut job.max_run_seconds, self.max_run);
        set(&mut job.instances, self.instances);
        set(&mut job.distribution, self.distribution);
        set(&mut job.python, self.python);
        job.source_dir = self.source_dir.or(job.source_dir);
        job.output = self.output.or(job.output);
        job.checkpoints = self.checkpoint_uri.or(job.checkpoints);
        if self.spot || self.spot_simulate.is_some() || self.max_wait.is_some() || self.price.is_some() {
            let spot = job.spot.get_or_insert_default();
            spot.simulate = self.spot_simulate.or(spot.simulate.take());
            spot.max_wait_seconds = self.max_wait.or(spot.max_wait_seconds);
            spot.price = self.price.or(spot.price);
            spot.spot_price = self.spot_price.or(spot.spot_price);
        }
        job.processes_per_host = self.processes_per_host.or(job.processes_per_host);
        job.name = self.name.or(job.name);
        job.profile &= !self.no_profile;
        job.opt_ml &= !self.no_opt_ml;
        job.tensorboard |= self.tensorboard;
        job.hyperparameters.extend(self.hyperparameter);
        job.channels.extend(self.channel);
        job.environment.extend(self.environment);
        for metric in self.metric {
            job.metrics.retain(|known| known.name != metric.name);
            job.metrics.push(metric);
        }
        section::check(&job)?;
        Ok(job)
    }
}

/// Runs the subcommand.
pub fn run(
    store: &dyn Fn() -> Result<Store, Box<dyn Error>>,
    args: Args,
) -> Result<ExitCode, Box<dyn Error>> {
    let usage = |text: &str| Err(Usage(text.to_owned()).into());
    match args.on {
        Some(On::Sagemaker) if args.resume.is_some() => {
            return usage(
                "a job on SageMaker is not resumed: run its file again with another name and the same checkpoints",
            );
        }
        Some(On::Sagemaker) if !args.sbatch.is_empty() => return usage("--sbatch is for --on slurm"),
        Some(On::Sagemaker) => {
            let submit = SubmitOptions {
                dry_run: args.dry_run,
                detach: args.detach,
                json: args.json,
            };
            return at_sagemaker::run(&args.asked.job(args.file)?, submit);
        }
        Some(On::Slurm) if args.dry_run => return usage("--dry-run is for --on sagemaker"),
        _ => {}
    }
    let store = &store()?;
    if args.on == Some(On::Slurm) {
        let program = std::env::current_exe()?;
        let name = match args.resume {
            Some(name) => {
                store.resubmit(&name, &program, &args.sbatch)?;
                name
            }
            None => store.submit(&args.asked.job(args.file)?, &program, &args.sbatch)?,
        };
        return at_slurm::follow(store, &name, args.detach, args.json);
    }
    let (name, resume) = match args.resume {
        Some(name) => (name, true),
        None => (store.create(&args.asked.job(args.file)?)?, false),
    };
    if args.detach {
        store.start(&name, &std::env::current_exe()?, resume)?;
        writeln!(io::stdout(), "{name}")?;
        return Ok(ExitCode::SUCCESS);
    }
    let claim = claim(store, &name, resume)?;
    let stop = stop_on_signals(store, &name)?;
    let json = args.json;
    // The reader of the output may go away; the job continues.
    let show = |news: News<'_>| {
        let _ = match news {
            // The end is reported later, with all details.
            News::State(record) if record.status.is_final() => Ok(()),
            // Copying the data may take long, and prints nothing.
            News::State(record) => writeln!(terminal::err(), "job {name} {}", show::state(record)),
            News::Line(line) if json => print(&Line {
                stream: "err",
                ..line.clone()
            }),
            News::Line(line) => print(line),
        };
    };
    let record = stokehold_jobs::run(claim, stop, &show)?;
    match json {
        true => terminal::json(&record)?,
        false => writeln!(terminal::err(), "{}", show::end(store, &record))?,
    }
    Ok(code(&record))
}

/// Runs a job in this process, which [`Store::start`] has started for that.
pub fn runner(store: &Store, args: &RunnerArgs) -> Result<ExitCode, Box<dyn Error>> {
    let claim = match args.slurm {
        true => at_slurm::claim(store, &args.name)?,
        false => {
            stokehold_jobs::detach()?;
            claim(store, &args.name, args.resume)?
        }
    };
    let stop = stop_on_signals(store, &args.name)?;
    if !args.slurm {
        writeln!(io::stdout(), "{RUNNER_READY}")?;
    }
    Ok(code(&stokehold_jobs::run(claim, stop, &|_| ())?))
}

fn claim(store: &Store, name: &str, resume: bool) -> Result<Claim, Box<dyn Error>> {
    Ok(match resume {
        true => store.resume(name)?,
        false => store.claim(name)?,
    })
}

/// The first Ctrl-C stops the job, the second one kills its script, the third one ends this process, and the
/// next command that reads the job cleans up. On spot machines SIGTERM means that the machine is taken away.
fn stop_on_signals(store: &Store, name: &str) -> Result<&'static AtomicBool, Box<dyn Error>> {
    static STOP: AtomicBool = AtomicBool::new(false);
    let is_spot = store.job(name)?.spot.is_some();
    let (store, name) = (store.clone(), name.to_owned());
    interrupt::on_each(move |nth, signal| match nth {
        1 if is_spot && signal == SIGTERM => match store.interrupt(&name) {
            Ok(_) => interrupt::say("the machine is taken away; the script gets its time to end"),
            Err(error) => interrupt::say(&error.to_string()),
        },
        1 => {
            STOP.store(true, Ordering::SeqCst);
            interrupt::say("stopping; the script gets its time to end; press Ctrl-C again to kill it");
        }
        2 => match store.kill(&name) {
            Ok(_) => interrupt::say("killing the script"),
            Err(error) => interrupt::say(&error.to_string()),
        },
        _ => interrupt::end(),
    })?;
    Ok(&STOP)
}

fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("write NAME=VALUE".to_owned()),
    }
}

fn hyperparameter(text: &str) -> Result<(String, Value), String> {
    let (name, value) = pair(text)?;
    Ok((name, stokehold_jobs::hyperparameter(&value)))
}

fn channel(text: &str) -> Result<(String, Channel), String> {
    let (name, value) = pair(text).map_err(|_| "write NAME=URI".to_owned())?;
    Ok((name, Channel::parse(&value)?))
}

fn distribution(text: &str) -> Result<Distribution, String> {
    serde_json::from_value(text.into()).map_err(|error| error.to_string())
}

fn seconds(text: &str) -> Result<u64, String> {
    let time = text
        .parse()
        .map(Duration::from_secs)
        .or_else(|_| humantime::parse_duration(text));
    match time {
        Ok(time) if time.as_secs() > 0 => Ok(time.as_secs()),
        _ => Err("write seconds, or a time such as 90m or 2h".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_seconds_or_have_units() {
        assert_eq!(
            (seconds("90"), seconds("2h"), seconds("1m 5s")),
            (Ok(90), Ok(7200), Ok(65))
        );
        for wrong in ["", "0", "1ms", "-1", "soon"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn pairs_keep_what_follows_the_first_sign() {
        assert_eq!(pair("a=b=c"), Ok(("a".to_owned(), "b=c".to_owned())));
        assert_eq!(pair("a="), Ok(("a".to_owned(), String::new())));
        assert!(pair("=b").is_err() && pair("a").is_err());
        assert_eq!(hyperparameter("lr=0.1").unwrap().1, serde_json::json!(0.1));
        assert!(channel("train").is_err() && channel("train=").is_err());
        assert!(distribution("horovod").unwrap_err().contains("`torch`"));
    }
}
