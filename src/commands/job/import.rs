//! `stokehold job import`: a job file of a training job that was on SageMaker.

use std::error::Error;
use std::ffi::OsStr;
use std::io::Write;
use std::process::ExitCode;

use clap::Args as ClapArgs;
use stokehold_base::shell;
use stokehold_base::words::plural;
use stokehold_objects::Options;
use stokehold_sagemaker::{Client, Imported};

use crate::failure::Usage;
use crate::local::Local;
use crate::terminal::{self, note};
use crate::{asked, files};

/// Turn a training job of SageMaker into a job file.
///
/// The file runs on this machine, and on SageMaker. What it has no key for is a comment in it.
#[derive(Debug, ClapArgs)]
pub struct Args {
    /// The job's name, or its ARN
    #[arg(value_name = "NAME|ARN")]
    job: String,
    /// The job file
    #[arg(value_name = "FILE", default_value = "job.toml")]
    file: Local,
    /// SageMaker's region [default: the ARN's, AWS_REGION, or the profile's]
    #[arg(long, value_name = "REGION")]
    region: Option<String>,
}

/// Runs the subcommand.
///
/// # Errors
/// The job cannot be read, or the job file is there already (exit code 2).
pub fn run(args: &Args) -> Result<ExitCode, Box<dyn Error>> {
    let (of_arn, name) = named(&args.job)?;
    if let (Some(named), Some(asked)) = (of_arn, &args.region)
        && named != asked
    {
        let text = format!("the job is in {named}, and --region says {asked}; leave --region out");
        return Err(Usage(text).into());
    }
    let client = asked::client(of_arn.or(args.region.as_deref()), &Options::default())?;
    let imported = of_sagemaker(&client, name)?;
    files::write_new(&args.file, &imported.text)?;
    let mut err = terminal::err();
    let file = args.file.display();
    match imported.remarks {
        0 => writeln!(err, "{file} is written")?,
        remarks => writeln!(
            err,
            "{file} is written, with {} on what it has no counterpart for",
            plural(remarks, "comment")
        )?,
    }
    for problem in &imported.problems {
        writeln!(err, "to do: {problem}")?;
    }
    if imported.runs_here {
        let again = shell::again([OsStr::new("job"), OsStr::new("run"), args.file.as_os_str()]);
        writeln!(err, "this runs it here: {again}")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The region of an ARN, and the job's name.
fn named(what: &str) -> Result<(Option<&str>, &str), Usage> {
    let Some(rest) = what.strip_prefix("arn:") else {
        return Ok((None, what));
    };
    // arn:aws:sagemaker:REGION:ACCOUNT:training-job/NAME
    let parts: Vec<&str> = rest.split(':').collect();
    match parts[..] {
        [_, "sagemaker", region, _, job] if !region.is_empty() => job
            .strip_prefix("training-job/")
            .map(|name| (Some(region), name)),
        _ => None,
    }
    .ok_or_else(|| {
        Usage(format!(
            "{what} is the ARN of no training job; give one as arn:aws:sagemaker:REGION:ACCOUNT:training-job/NAME"
        ))
    })
}

fn of_sagemaker(client: &Client, name: &str) -> Result<Imported, Box<dyn Error>> {
    let description = client.description(name)?;
    let arn = description["TrainingJobArn"].as_str().unwrap_or_default();
    let tags = match client.tags(arn) {
        Ok(tags) => Some(tags),
        Err(error) => {
            note!("note: the job's labels are not read: {error}");
            None
        }
    };
    Ok(Imported::of_description(&description, tags.as_ref())?)
}
