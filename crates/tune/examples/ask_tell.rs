//! Tuning in a loop of one's own: `cargo run --release -p stokehold-tune --example ask_tell [FOLDER]`.
//!
//! The training is a formula here: a loss that falls from epoch to epoch, faster with a good learning rate. Interrupt it and start it again
//! with the same folder, or start it twice at once: the study continues.

use std::error::Error;
use std::path::PathBuf;

use stokehold_tune::{Ask, Parameter, Range, Rule, Scaling, Spec, Study, Verdict, in_words, short};

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args_os()
        .nth(1)
        .map_or_else(|| std::env::temp_dir().join("ask-tell"), PathBuf::from);
    let mut study = match folder.join(stokehold_tune::JOURNAL).exists() {
        true => Study::open(&folder)?,
        false => Study::create(&folder, spec())?,
    };
    loop {
        match study.ask()? {
            Ask::Trial(trial) => {
                let (lr, momentum) = (number(&trial.values["lr"]), number(&trial.values["momentum"]));
                let rate = (-(lr.log10() + 1.5).powi(2) - (momentum - 0.9).powi(2)).exp();
                let mut verdict = Verdict::Continue;
                for epoch in 1..=10_u32 {
                    let loss = 0.2 + (-rate * f64::from(epoch) / 3.0).exp();
                    verdict = study.report(trial.number, u64::from(epoch), loss)?;
                    if verdict == Verdict::Stop {
                        break;
                    }
                }
                let outcome = match verdict {
                    Verdict::Continue => study.tell(trial.number, None)?,
                    Verdict::Stop => study.tell_stopped(trial.number)?,
                };
                println!(
                    "trial {:2}  {}  {outcome:?}",
                    trial.number,
                    in_words(&trial.values)
                );
            }
            // Another process has what is left.
            Ask::Wait => std::thread::sleep(std::time::Duration::from_millis(200)),
            Ask::Finished(end) => {
                println!("{end}");
                break;
            }
        }
    }
    if let Some((_, values, loss)) = study.history().overall_best() {
        println!("best: {} with {}", short(loss), in_words(values));
    }
    Ok(())
}

fn spec() -> Spec {
    let lr = Range::Continuous {
        min: 1e-4,
        max: 1.0,
        scaling: Scaling::Logarithmic,
    };
    let momentum = Range::Continuous {
        min: 0.0,
        max: 0.99,
        scaling: Scaling::ReverseLogarithmic,
    };
    let parameters =
        [("lr", lr), ("momentum", momentum)].map(|(name, range)| (name.to_owned(), Parameter::from(range)));
    let mut spec = Spec::new("loss", parameters.into());
    spec.limits.max_jobs = 20;
    spec.early_stopping.rule = Rule::Auto;
    spec
}

fn number(value: &serde_json::Value) -> f64 {
    value.as_f64().unwrap_or(f64::NAN)
}
