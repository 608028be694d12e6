//! How long the rules take: a simulated week of 96 cores and 8 GPUs, sampled every 500 ms, with steps of 1 s.

use std::time::Duration;

use cpu_time::ThreadTime;
use stokehold_diagnose::rules::{Parameters, Rule, judge};
use stokehold_simulate::{Phase, Simulation};

fn main() {
    let days: f64 = std::env::args()
        .nth(1)
        .and_then(|days| days.parse().ok())
        .unwrap_or(7.0);
    let recording = Simulation {
        cores: 96,
        gpus: 8,
        seconds: days * 86_400.0,
        step_seconds: 1.0,
        workers: 16,
        phases: vec![
            Phase::Startup,
            Phase::Healthy,
            Phase::OneCore,
            Phase::Disk,
            Phase::Loader,
            Phase::Uneven,
        ],
        ..Simulation::default()
    }
    .recording();
    let node = &recording.nodes[0];
    println!(
        "{} ticks of {} series, {} spans",
        node.ticks.len(),
        node.series.len(),
        node.spans.len()
    );
    let start = ThreadTime::now();
    let findings = judge(&recording, &Parameters::default());
    let took: Duration = start.elapsed();
    for finding in findings.iter().filter(|finding| finding.triggered) {
        println!("{}: {}", finding.rule, finding.summary);
    }
    println!(
        "{} rules took {:.2} s of one core",
        Rule::ALL.len(),
        took.as_secs_f64()
    );
}
