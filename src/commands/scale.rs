//! `stokehold scale`: predicts what a recorded run would take and cost on more machines.
//!
//! The crate `stokehold-scale` simulates. This module reads options, and says by which of them to give what a recording
//! lacks.

use std::error::Error;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use clap::Args as ClapArgs;
use serde_json::json;
use stokehold_diagnose::advice::Prices;
use stokehold_scale::page::{PUBLISHED, page};
use stokehold_scale::{Algorithm, Cluster, Fact, Network, Run, ScaleError, Settings, predict, text};

use crate::failure::Usage;
use crate::local::Local;
use crate::terminal::note;
use crate::{files, terminal};
use stokehold_base::size::parse_size;

/// Options of `scale`.
#[derive(Debug, ClapArgs)]
pub struct Args {
    /// The run's folder: one of stokehold train, or a recording of any program that marks its steps
    run: Local,
    /// Numbers of machines
    #[arg(
        long,
        value_name = "N,N,..",
        value_delimiter = ',',
        default_value = "1,2,4,8,16,64"
    )]
    machines: Vec<u64>,
    /// GPUs of each machine
    #[arg(long, value_name = "N", default_value_t = 1)]
    gpus_per_machine: u64,
    /// The network between machines: 10, 25, 100 or 400 Gbit/s, or a JSON file with alpha_seconds and bytes_per_second
    #[arg(long, value_name = "GBIT|FILE", default_value = "25")]
    network: String,
    /// How gradients are reduced: ring, tree or hierarchical [default: what is fastest at each size]
    #[arg(long, value_name = "NAME")]
    algorithm: Option<Algorithm>,
    /// Whether gradients are reduced during the backward pass [default: no for runs of stokehold train, which does not; yes for
    /// others, as PyTorch's DistributedDataParallel does]
    #[arg(long, value_name = "YES|NO", num_args = 0..=1, require_equals = true, default_missing_value = "yes", value_parser = ["yes", "no"])]
    overlap: Option<String>,
    /// Bytes per second of the bucket or file system that all machines share, such as 2GB [default: no limit]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    storage_limit: Option<u64>,
    /// What an hour of a machine costs, or the name of a machine in the table of prices, such as g5.xlarge
    #[arg(long, value_name = "PRICE|NAME")]
    price: Option<String>,
    /// What machines cost, as TOML [default: a small table of on-demand prices, the same as in stokehold advise]
    #[arg(long, value_name = "FILE")]
    prices: Option<Local>,
    /// Images of an epoch [default: as in the recorded run]
    #[arg(long, value_name = "N")]
    images: Option<u64>,
    /// Images of a step of one GPU, the same on any number of machines [default: as in the recorded run]
    #[arg(long, value_name = "N")]
    batch_size: Option<u64>,
    /// Parameters that are trained [default: as in the recorded run's model]
    #[arg(long, value_name = "N")]
    parameters: Option<u64>,
    /// Images per second that the loader of one GPU makes [default: as recorded]
    #[arg(long, value_name = "IMAGES/S")]
    loader_rate: Option<f64>,
    /// Bytes of an image in storage [default: as recorded]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    image_bytes: Option<u64>,
    /// Write a page with the curve of efficiency
    #[arg(long, value_name = "FILE")]
    page: Option<Local>,
    /// Print the prediction as JSON
    #[arg(long)]
    json: bool,
}

/// Runs the subcommand.
///
/// # Errors
/// A run that says too little, or an option out of its range (exit code 2); a page that cannot be written (1).
pub fn run(args: &Args) -> Result<ExitCode, Box<dyn Error>> {
    let prices = match &args.prices {
        Some(path) => Prices::load(path).map_err(|error| Usage(error.to_string()))?,
        None => Prices::built_in(),
    };
    let cluster = Cluster {
        machines: args.machines.clone(),
        gpus: args.gpus_per_machine,
        network: network(args)?,
        algorithm: args.algorithm,
        storage_limit: args.storage_limit.map(|limit| limit as f64),
        price: price(args.price.as_deref(), &prices)?,
    };
    cluster.check()?;
    let settings = Settings {
        images: args.images,
        batch: args.batch_size,
        parameters: args.parameters,
        loader_rate: args.loader_rate,
        image_bytes: args.image_bytes.map(|bytes| bytes as f64),
        overlap: args.overlap.as_deref().map(|answer| answer == "yes"),
    };
    let recorded = Run::read(&args.run, &settings).map_err(|error| with_options(&args.run, error))?;
    let prediction = predict(&recorded, &cluster).map_err(|error| with_options(&args.run, error))?;
    if let Some(path) = &args.page {
        let what = args.run.display().to_string();
        files::write(path, page(&prediction, &what, &prices.currency))?;
    }
    let mut out = terminal::out();
    if args.json {
        let (gpus, efficiency) = PUBLISHED;
        let mut all = serde_json::to_value(&prediction)?;
        all["currency"] = json!(prices.currency);
        all["published"] = json!({"gpus": gpus, "efficiency": efficiency});
        terminal::json(&all)?;
        return Ok(ExitCode::SUCCESS);
    }
    write!(out, "{}", text(&prediction, &prices.currency))?;
    if let Some(path) = &args.page {
        writeln!(out, "\npage  {}", path.display())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The named network, or a measured one, whose measurement may be another one than is needed.
fn network(args: &Args) -> Result<Network, ScaleError> {
    let text = &args.network;
    if let Ok(gigabits) = text.parse() {
        return Network::ethernet(gigabits);
    }
    let path = Path::new(text);
    let network = Network::read(path)?;
    let measured = files::json(path).unwrap_or_default();
    if measured["hosts"].as_array().is_some_and(|hosts| hosts.len() == 1) {
        note!(
            "warning: {text} was measured between ranks of one machine, and is taken for the network between machines"
        );
    }
    Ok(network)
}

/// The price of an hour: the amount, that of the named machine, or that of the machine that the table says runs are made on.
fn price(text: Option<&str>, prices: &Prices) -> Result<Option<f64>, Usage> {
    let Some(text) = text else {
        return Ok(prices.here().map(|machine| machine.price_per_hour));
    };
    if let Ok(amount) = text.parse() {
        return Ok(Some(amount));
    }
    let names: Vec<&str> = prices
        .machines
        .iter()
        .map(|machine| machine.name.as_str())
        .collect();
    match prices.machine(text) {
        Some(machine) => Ok(Some(machine.price_per_hour)),
        None => Err(Usage(format!(
            "there is no machine '{text}' in the table of prices: give an amount, or one of {}",
            names.join(", ")
        ))),
    }
}

/// The error with the options by which to say what the recording does not.
fn with_options(run: &Path, error: ScaleError) -> Box<dyn Error> {
    let ScaleError::Missing { facts, .. } = &error else {
        return error.into();
    };
    let said: Vec<String> = facts
        .iter()
        .map(|fact| {
            let option = match fact {
                Fact::Images => "--images",
                Fact::Batch => "--batch-size",
                Fact::Parameters => "--parameters",
                Fact::ImageBytes => "--image-bytes",
            };
            format!("{fact} ({option})")
        })
        .collect();
    let said = said.join(", ");
    Usage(format!(
        "{}: the recording does not say {said}; say it",
        run.display()
    ))
    .into()
}
