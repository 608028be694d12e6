//! A study for a program in another language, over lines of JSON on standard input and output:
//!
//! ```text
//! -> {"parameters": {"x": {"type": "continuous", "min": 0, "max": 1}}, "objective": "loss"}     the study
//! -> {"ask": true}                                       <- {"trial": 0, "values": {"x": 0.5}}
//! -> {"tell": 0.25}                                      of the last one that was asked for
//! ```

use std::error::Error;
use std::io::{BufRead, Write};

use serde_json::{Value, json};
use stokehold_tune::{Ask, Study};

fn main() -> Result<(), Box<dyn Error>> {
    let mut lines = std::io::stdin().lock().lines();
    let mut spec: stokehold_tune::Spec = serde_json::from_str(&lines.next().ok_or("a study comes first")??)?;
    spec.limits.max_jobs = usize::MAX;
    let mut study = Study::in_memory(spec)?;
    let mut trial = 0;
    for line in lines {
        let said: Value = serde_json::from_str(&line?)?;
        if let Some(objective) = said["tell"].as_f64() {
            study.tell(trial, Some(objective))?;
            continue;
        }
        let answer = match study.ask()? {
            Ask::Trial(asked) => {
                trial = asked.number;
                json!({"trial": trial, "values": asked.values})
            }
            Ask::Wait => json!({"wait": true}),
            Ask::Finished(end) => json!({"finished": end.to_string()}),
        };
        writeln!(std::io::stdout(), "{answer}")?;
    }
    Ok(())
}
