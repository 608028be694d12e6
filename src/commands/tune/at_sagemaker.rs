//! A study whose trials are training jobs on SageMaker. Its folder stays on this machine.

use std::error::Error;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use stokehold_base::shell;
use stokehold_objects::Options;
use stokehold_sagemaker::Client;
use stokehold_trials::Plan;
use stokehold_trials::run::Ending;
use stokehold_trials::sagemaker::{self, Account, StudyTarget};
use stokehold_tune::{Ask, History, Study, Torn};

use super::watch::Watch;
use crate::asked;
use crate::failure::Usage;
use crate::{interrupt, terminal};

/// How often the account is asked: it may ask a few times a second, for all of its jobs.
const LOOK: Duration = Duration::from_secs(5);

/// How long a call is tried again before the study looks whether it is to stop.
const RETRY: Duration = Duration::from_secs(10);

/// The flag that Ctrl-C sets.
pub fn stop() -> std::io::Result<&'static AtomicBool> {
    interrupt::flag_for("leaving; jobs on SageMaker continue; press Ctrl-C again to leave at once")
}

/// The account, in the region that is asked for, or in the job's.
pub fn client(plan: &Plan, region: Option<&str>) -> Result<Client, Box<dyn Error>> {
    let section = stokehold_sagemaker::Plan::section(&plan.job)?;
    let options = Options {
        retry: RETRY,
        ..Options::default()
    };
    Ok(asked::client(region.or(section.region.as_deref()), &options)?)
}

/// Checks a plan before its study is made, and says what is different there.
pub fn check(plan: &Plan, client: &Client) -> Result<(), Box<dyn Error>> {
    for note in sagemaker::check(plan, client.region())? {
        writeln!(terminal::err(), "note: {note}")?;
    }
    Ok(())
}

/// Prints the request for the first trial, and sends nothing.
pub fn dry_run(plan: &Plan, folder: &Path, client: &Client) -> Result<ExitCode, Box<dyn Error>> {
    let target = StudyTarget::new(&super::name(folder), client.region());
    if let Ask::Trial(trial) = Study::in_memory(plan.study.clone())?.ask()? {
        sagemaker::request(plan, &target, &trial, &target.first(trial.number))?;
        let limits = &plan.study.limits;
        writeln!(
            terminal::err(),
            "nothing is sent; this is the first of up to {} training jobs, {} at once, in {}",
            limits.max_jobs,
            limits.max_parallel_jobs,
            client.region()
        )?;
        say_cost(plan)?;
        if plan.study.rungs.is_some() {
            writeln!(
                terminal::err(),
                "a trial that continues after a rung is a further job, which is not in it"
            )?;
        }
        // What was judged is the request as it would be sent; what is printed is copied elsewhere, so it has no secrets.
        let mut shown = plan.clone();
        shown.job = plan.job.without_secrets();
        let request = sagemaker::request(&shown, &target, &trial, &target.first(trial.number))?;
        terminal::json(&request)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Says what a study costs at most, and what that assumes.
fn say_cost(plan: &Plan) -> Result<(), Box<dyn Error>> {
    match sagemaker::cost(plan) {
        Ok(cost) => {
            writeln!(terminal::err(), "{cost}")?;
            writeln!(
                terminal::err(),
                "that is every trial to its longest time: early stopping and the study's limits make it less"
            )?;
        }
        Err(error) => writeln!(terminal::err(), "note: {error}")?,
    }
    Ok(())
}

/// Says, in the study's folder, where its trials run.
pub fn settle(folder: &Path, region: &str) -> Result<(), Box<dyn Error>> {
    Ok(StudyTarget::new(&super::name(folder), region).save(folder)?)
}

/// Whether a study that is resumed runs where it was begun.
pub fn check_place(folder: &Path, history: &History, is_there: bool) -> Result<(), Usage> {
    let has_target = StudyTarget::is_in(folder);
    let folder = folder.display();
    match (has_target, is_there) {
        (true, false) => Err(Usage(format!(
            "{folder}: the trials of this study are jobs on SageMaker; add --on sagemaker"
        ))),
        (false, true) if !history.trials.is_empty() => Err(Usage(format!(
            "{folder}: trials of this study ran here, and those that are left cannot continue elsewhere; leave --on sagemaker out"
        ))),
        _ => Ok(()),
    }
}

/// Runs a study's trials there, until it is over or is left.
pub fn run(folder: &Path, region: Option<&str>, torn: Option<Torn>) -> Result<ExitCode, Box<dyn Error>> {
    let (plan, study) = (Plan::load(folder)?, Study::open(folder)?);
    if !StudyTarget::is_in(folder) {
        let client = client(&plan, region)?;
        check(&plan, &client)?;
        settle(folder, client.region())?;
    }
    let target = StudyTarget::load(folder)?;
    if let Some(region) = region.filter(|region| *region != target.region) {
        let text = format!(
            "the study's jobs are in {}, not in {region}; leave --region out",
            target.region
        );
        return Err(Usage(text).into());
    }
    let client = client(&plan, Some(&target.region))?;
    let mut watch = Watch::new();
    super::say_beginning(&watch, &study, torn.as_ref());
    watch.say(&format!("its jobs are {}-NNN in {}", target.name, target.region));
    let account = Account {
        client: &client,
        options: &Options::default(),
        look: LOOK,
    };
    let ending = sagemaker::run(study, &plan, folder, &account, stop()?, &mut |event, history| {
        watch.see(&event, history)
    });
    drop(watch);
    let ending = ending?;
    let history = Study::look(folder)?;
    match ending {
        Ending::Interrupted => {
            for job in sagemaker::jobs(folder, &history)? {
                let stop = [
                    "job",
                    "stop",
                    job.as_str(),
                    "--on",
                    "sagemaker",
                    "--region",
                    target.region.as_str(),
                ];
                let stop = shell::again(stop.map(std::ffi::OsStr::new));
                writeln!(terminal::err(), "job {job} continues; this stops it: {stop}")?;
            }
            super::interrupted(folder, &["--on", "sagemaker"])
        }
        Ending::Finished(end) => {
            let best = history
                .best()
                .map(|best| sagemaker::job(folder, best.number))
                .transpose()?
                .flatten();
            super::finished(&history, &format!("over: {end}"), best)
        }
    }
}
