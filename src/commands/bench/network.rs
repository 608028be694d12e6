//! `stokehold bench network`: how long ranks take to sum gradients, and the network that explains it.
//!
//! All ranks sum numbers of several sizes, in the way and with the buffers of training. The link is the one with which the
//! formulas of `stokehold scale` give the medians of the shortest and of the longest sum, which is a bucket of gradients.

use std::collections::BTreeSet;
use std::error::Error;
use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args as ClapArgs;
use serde_json::json;
use stokehold_base::stats::percentile;
use stokehold_page::Table;
use stokehold_page::words::{digits, duration};
use stokehold_scale::{Algorithm, INSIDE, Machines, Network, Sum};
use stokehold_train::{Ranks, RanksError, TrainError};

use crate::failure::Usage;
use crate::local::Local;
use crate::terminal::{self, note};
use crate::{files, ranks};

/// Numbers of a rank in each sum: from one message to a bucket of gradients.
const NUMBERS: [usize; 7] = [1, 1 << 10, 1 << 14, 1 << 17, 1 << 19, 1 << 21, BUCKET];
/// The numbers of a bucket of gradients, and how many buckets are summed one after the other, as those of a network.
const BUCKET: usize = 25 * 1024 * 1024 / 4;
const TOGETHER: usize = 4;
/// Seconds for the sums of a size, and the fewest and the most of them.
const TIME: f64 = 1.0;
const FEWEST: f64 = 7.0;
const MOST: f64 = 200.0;

/// Measure the network between ranks, for `stokehold scale --network FILE`.
///
/// Start it on ranks, one on each machine: stokehold launch -n 2 --hosts a,b -- bench network --out network.json. With all ranks
/// on one machine it measures the link between the processes of that machine.
#[derive(Debug, ClapArgs)]
pub struct NetworkArgs {
    /// Write the network and all measurements to this file, as JSON
    #[arg(long, short, value_name = "FILE")]
    out: Option<Local>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// Runs the subcommand.
pub fn run(args: &NetworkArgs) -> Result<ExitCode, Box<dyn Error>> {
    ranks::together(Ranks::PATIENCE, |ranks| measure(args, ranks))
}

/// What the sums of one size took.
struct Measured {
    /// Bytes of a rank's numbers.
    bytes: u64,
    /// Seconds until the slowest rank had each sum.
    seconds: Vec<f64>,
}

impl Measured {
    fn at(&self, percent: f64) -> f64 {
        percentile(&self.seconds, percent).unwrap_or(0.0)
    }
}

fn measure(args: &NetworkArgs, ranks: &Ranks) -> Result<ExitCode, Box<dyn Error>> {
    if ranks.are_alone() {
        return Err(Usage(
            "a rank alone has no network: start several, as stokehold launch -n 2 -- bench network, or with mpirun or srun".into(),
        )
        .into());
    }
    let hosts: BTreeSet<&String> = ranks.hosts().iter().collect();
    if hosts.len() > 1 && hosts.len() < ranks.size() {
        return Err(Usage(format!(
            "{} ranks on {} machines: start one rank on each machine, or all on one, because a link within a machine and one between \
             machines cannot be told apart",
            ranks.size(),
            hosts.len()
        ))
        .into());
    }
    let measured = NUMBERS
        .into_iter()
        .map(|numbers| sums(ranks, numbers))
        .collect::<Result<Vec<_>, _>>()
        .map_err(TrainError::from)?;
    if !ranks.is_first() {
        return Ok(ExitCode::SUCCESS);
    }
    let median = |sums: &Measured| Sum {
        bytes: sums.bytes,
        seconds: sums.at(50.0),
    };
    let [shortest, .., longest] = &measured[..] else {
        return Ok(ExitCode::SUCCESS);
    };
    let network = Network::fit(median(shortest), median(longest), ranks.size() as u64)?;
    let all = machines(ranks);
    let explained = |bytes: u64| Algorithm::fastest(bytes as f64, all, network, INSIDE).1;
    let report = json!({
        "alpha_seconds": network.alpha_seconds,
        "bytes_per_second": network.bytes_per_second,
        "ranks": ranks.size(),
        "hosts": hosts,
        "version": env!("CARGO_PKG_VERSION"),
        "sums": measured.iter().map(|sums| json!({
            "bytes": sums.bytes,
            "count": sums.seconds.len(),
            "seconds": sums.at(50.0),
            "seconds_p10": sums.at(10.0),
            "seconds_p90": sums.at(90.0),
            "explained_seconds": explained(sums.bytes),
        })).collect::<Vec<_>>(),
    });
    if let Some(path) = &args.out {
        files::write(path, serde_json::to_string_pretty(&report)? + "\n")?;
    }
    if args.json {
        terminal::json(&report)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new(&["bytes", "sums", "median", "10 %", "90 %", "explained"], &[]);
    for sums in &measured {
        table.row([
            sums.bytes.to_string(),
            sums.seconds.len().to_string(),
            duration(sums.at(50.0)),
            duration(sums.at(10.0)),
            duration(sums.at(90.0)),
            duration(explained(sums.bytes)),
        ]);
    }
    let place = match hosts.len() {
        1 => "all on one machine".to_owned(),
        many => format!("on {many} machines"),
    };
    let mut out = terminal::out();
    writeln!(out, "{} ranks, {place}", ranks.size())?;
    writeln!(out, "{}", table.text().trim_end())?;
    writeln!(
        out,
        "network: a latency of {} and {} MB/s",
        duration(network.alpha_seconds),
        digits(network.bytes_per_second / 1e6)
    )?;
    match &args.out {
        Some(path) => writeln!(out, "stokehold scale RUN --network {}", path.display())?,
        None => note!("--out FILE writes it for stokehold scale --network FILE"),
    }
    Ok(ExitCode::SUCCESS)
}

/// Each rank as a machine: what lies between two ranks is the link.
fn machines(ranks: &Ranks) -> Machines {
    Machines {
        machines: ranks.size() as u64,
        gpus: 1,
    }
}

/// Sums this many numbers of each rank, again and again.
fn sums(ranks: &Ranks, numbers: usize) -> Result<Measured, RanksError> {
    let mut buckets = vec![Vec::new(); if numbers == BUCKET { TOGETHER } else { 1 }];
    // The first touches the memory and opens connections; the second says how many there is time for, to all ranks alike.
    sum(ranks, &mut buckets, numbers)?;
    let took = sum(ranks, &mut buckets, numbers)?;
    let count = (TIME / took.as_secs_f64()).clamp(FEWEST, MOST) as usize;
    let mut seconds = Vec::with_capacity(count);
    for _ in 0..count {
        let took = sum(ranks, &mut buckets, numbers)?;
        seconds.push(took.as_secs_f64() / buckets.len() as f64);
    }
    Ok(Measured {
        bytes: 4 * numbers as u64,
        seconds,
    })
}

/// Fills the buckets with this many numbers each and sums them, all ranks at the same time: a bucket is filled while the one before
/// is summed, as in training. Returns the time of the slowest rank, the same on every rank.
fn sum(ranks: &Ranks, buckets: &mut [Vec<f32>], numbers: usize) -> Result<Duration, RanksError> {
    ranks.gather(Vec::new())?;
    let begin = Instant::now();
    let begun: Vec<_> = buckets
        .iter_mut()
        .map(|bucket| {
            let mut own = std::mem::take(bucket);
            own.clear();
            own.resize(numbers, 0.0);
            ranks.begin_sum(own)
        })
        .collect();
    for (bucket, sum) in buckets.iter_mut().zip(begun) {
        *bucket = sum.wait()?;
    }
    let took = u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let all = ranks.gather(took.to_le_bytes().to_vec())?;
    let times = all
        .iter()
        .filter_map(|bytes| Some(u64::from_le_bytes(bytes.as_slice().try_into().ok()?)));
    Ok(Duration::from_nanos(times.max().unwrap_or(took)))
}
