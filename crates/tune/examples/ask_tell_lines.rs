//! A study for a program in another language, over lines of JSON on standard input and output:
//!
//! ```text
//! -> {"parameters": {"x": {"type": "continuous", "min": 0, "max": 1}}, "objective": "loss"}     the study
//! -> {"ask": true}                       <- {"trial": 0, "values": {"x": 0.5}}, {"wait": true} or {"finished": "why"}
//! -> {"report": 0.5, "step": 1}          <- {"stop": false}       of the last one that was asked for
//! -> {"tell": 0.25}, {"tell": null} (the last report says it) or {"stopped": true}
//! ```

use std::error::Error;
use std::io::{BufRead, Write};

use serde_json::{Value, json};
use stokehold_tune::{Ask, Study, Verdict};

fn main() -> Result<(), Box<dyn Error>> {
    let mut lines = std::io::stdin().lock().lines();
    let spec = serde_json::from_str(&lines.next().ok_or("a study comes first")??)?;
    let mut study = Study::in_memory(spec)?;
    let mut trial = 0;
    for line in lines {
        let said: Value = serde_json::from_str(&line?)?;
        let answer = if let Some(value) = said["report"].as_f64() {
            let step = said["step"].as_u64().ok_or("a report has a step")?;
            let verdict = study.report(trial, step, value)?;
            json!({"stop": verdict == Verdict::Stop})
        } else if said.get("ask").is_some() {
            match study.ask()? {
                Ask::Trial(asked) => {
                    trial = asked.number;
                    json!({"trial": trial, "values": asked.values})
                }
                Ask::Wait => json!({"wait": true}),
                Ask::Finished(end) => json!({"finished": end.to_string()}),
            }
        } else {
            match said.get("tell") {
                Some(objective) => study.tell(trial, objective.as_f64())?,
                None => study.tell_stopped(trial)?,
            };
            continue;
        };
        writeln!(std::io::stdout(), "{answer}")?;
    }
    Ok(())
}
