//! A study on one page without network access or scripts, readable on a phone and on paper, in light and dark
//! mode.

mod figures;
mod scale;

use std::fmt::Write;

use stokehold_page::html::{document, noted};
use stokehold_page::svg::escape;
use stokehold_tune::{History, Insight, Outcome, Strategy, Trial, in_words, short};

/// At most this many trials are listed.
const LISTED: usize = 500;

/// The style of the pictures, next to [`stokehold_page::html::STYLE`].
pub const STYLE: &str = include_str!("figures.css");

/// Pairs of this many parameters are drawn: the most important ones.
const PAIRED: usize = 3;

/// What parallel coordinates show.
pub const WAYS: &str = "Each line is a trial, from value to value to its objective; below an axis where the parameter is not there. \
                        The best fifth stands out. Of more than 1000 trials the best 1000 are drawn.";

/// The parallel coordinates of a study, as an SVG picture: a line a trial through its values to its objective; see [`WAYS`]. `None`
/// before the first result.
pub fn parallel(history: &History) -> Option<String> {
    let has_results = history.trials.iter().any(|trial| figures::value(trial).is_some());
    has_results.then(|| figures::parallel(history))
}

/// The page.
pub fn page(name: &str, history: &History) -> String {
    let insight = Insight::of(history);
    let mut body = header(name, history);
    let results = history
        .trials
        .iter()
        .filter(|trial| figures::value(trial).is_some())
        .count();
    if results == 0 {
        body += &noted("Nothing to draw yet", "No trial has a result so far.", "");
    } else {
        body += &noted(
            "What was found, trial by trial",
            "Each dot is a trial, an open one was stopped early; the line is the best so far.",
            &figures::progress(history),
        );
        if let Some(insight) = &insight {
            body += &importance(insight);
        }
        body += &noted(
            "Which values go together",
            WAYS,
            &figures::wide(figures::parallel(history)),
        );
        body += &slices(history, insight.as_ref());
        if let Some(insight) = &insight {
            body += &contours(history, insight);
        }
        if history.trials.iter().any(|trial| trial.reports.len() > 1) {
            body += &noted(
                "How trials went",
                "Each line is a trial's objective, step by step. Trials that were stopped early end in a dot.",
                &figures::curves(history),
            );
        }
    }
    body += &list(history);
    document(
        &format!("{name} · study"),
        concat!(include_str!("page.css"), include_str!("figures.css")),
        &body,
        "",
    )
}

fn header(name: &str, history: &History) -> String {
    let (spec, counts) = (&history.spec, history.counts());
    let strategy = match spec.strategy {
        Strategy::Bayesian => "Bayesian optimisation",
        Strategy::Tpe => "TPE",
        Strategy::Random => "random search",
        Strategy::Grid => "grid search",
        Strategy::Hyperband => "Hyperband",
    };
    let mut text = format!(
        "<header>\n<p class=\"eyebrow\">Study {}</p>\n<h1>{}</h1>\n",
        escape(name),
        match history.overall_best() {
            Some((_, _, value)) => format!("{}: {}", escape(&spec.objective), short(value)),
            None => format!("{}: no result yet", escape(&spec.objective)),
        }
    );
    if let Some((parent, values, _)) = history.overall_best() {
        let whose = parent
            .map(|name| format!(" (found by its parent {name})"))
            .unwrap_or_default();
        let _ = writeln!(
            text,
            "<p class=\"keys\">with <b>{}</b>{}</p>",
            escape(&in_words(values)),
            escape(&whose)
        );
    }
    let direction = format!("{:?}", spec.direction).to_lowercase();
    let _ = writeln!(
        text,
        "<p>{strategy}, to {direction} it. {} of {} trials: {} completed, {} stopped early, {} failed, {} running.</p>",
        history.trials.len(),
        spec.limits.max_jobs,
        counts.completed,
        counts.stopped,
        counts.failed,
        counts.running
    );
    for parent in &history.parents {
        let _ = writeln!(
            text,
            "<p>It builds upon {} results of {}.</p>",
            parent.results.len(),
            escape(&parent.name)
        );
    }
    text + "</header>\n"
}

fn importance(insight: &Insight) -> String {
    let Some(shares) = insight.importance() else {
        return String::new();
    };
    let alone: f64 = shares.iter().map(|(_, share)| share).sum();
    let mut rows = String::new();
    let together = (1.0 - alone).max(0.0);
    let all = shares.iter().map(|(name, share)| (name.as_str(), *share));
    for (name, share) in all.chain([("together", together)]) {
        let percent = 100.0 * share;
        let class = if name == "together" { "bar soft" } else { "bar" };
        let _ = writeln!(
            rows,
            "<tr><td class=\"word\">{}</td><td class=\"track\"><span class=\"{class}\" style=\"width:{:.1}%\"></span></td>\
             <td>{percent:.0} %</td></tr>",
            escape(name),
            percent.min(100.0)
        );
    }
    noted(
        "Which parameters matter",
        "The share of the objective's variation that each parameter explains by itself, by a model of the results (functional ANOVA); \
         \"together\" is what only combinations explain. Of few trials it says little.",
        &format!("<table class=\"shares\"><tbody>\n{rows}</tbody></table>\n"),
    )
}

fn slices(history: &History, insight: Option<&Insight>) -> String {
    let Some(insight) = insight else {
        return String::new();
    };
    let names = history.names();
    let pictures: String = names
        .iter()
        .filter_map(|name| figures::slice(history, insight, name))
        .collect();
    noted(
        "One parameter at a time",
        "Dots are trials, open ones were stopped early. The line is what the model expects when the other parameters are those of the best trial, if that has the parameter.",
        &format!("<div class=\"small\">\n{pictures}</div>\n"),
    )
}

fn contours(history: &History, insight: &Insight) -> String {
    let shares = insight.importance().unwrap_or_default();
    let first: Vec<&str> = shares
        .iter()
        .take(PAIRED)
        .map(|(name, _)| name.as_str())
        .collect();
    let mut pictures = String::new();
    for (i, up) in first.iter().enumerate() {
        for across in &first[..i] {
            pictures += &figures::contour(history, insight, across, up).unwrap_or_default();
        }
    }
    if pictures.is_empty() {
        return String::new();
    }
    noted(
        "Two parameters at a time",
        "What the model expects of the most important parameters: the stronger the colour, the better. Small dots are trials, the large one is the best.",
        &format!("<div class=\"small\">\n{pictures}</div>\n"),
    )
}

fn list(history: &History) -> String {
    let names = history.names();
    let mut head = "<tr><th>trial</th><th class=\"word\">ended</th><th>objective</th>".to_owned();
    for name in &names {
        let _ = write!(head, "<th>{}</th>", escape(name));
    }
    let mut rows = String::new();
    let best = history.best().map(|trial| trial.number);
    for trial in history.trials.iter().take(LISTED) {
        let class = if best == Some(trial.number) {
            " class=\"best\""
        } else {
            ""
        };
        let _ = write!(
            rows,
            "<tr{class}><td>{}</td><td class=\"word\">{}</td><td>{}</td>",
            trial.number,
            escape(&ended(trial)),
            figures::value(trial).map(short).unwrap_or_default()
        );
        for name in &names {
            let value = trial.values.get_key_value(*name);
            let words = value.map(|(name, value)| in_words(&[(name.clone(), value.clone())].into()));
            let words = words
                .and_then(|words| Some(words.split_once('=')?.1.to_owned()))
                .unwrap_or_default();
            let _ = write!(rows, "<td>{}</td>", escape(&words));
        }
        rows += "</tr>\n";
    }
    let note = match history.trials.len() > LISTED {
        true => format!(
            "The first {LISTED} of {}; `stokehold tune export` has all.",
            history.trials.len()
        ),
        false => "The best one is marked.".to_owned(),
    };
    noted(
        "All trials",
        &note,
        &format!(
            "<div class=\"scroll\"><table><thead>{head}</tr></thead><tbody>\n{rows}</tbody></table></div>\n"
        ),
    )
}

fn ended(trial: &Trial) -> String {
    match &trial.outcome {
        None => "running".to_owned(),
        Some(Outcome::Completed { .. }) => "completed".to_owned(),
        Some(Outcome::Stopped { .. }) => match trial.stop {
            Some(step) => format!("stopped at {step}"),
            None => "stopped".to_owned(),
        },
        Some(Outcome::Failed { reason }) => {
            let mut words: String = reason.chars().take(40).collect();
            if words.len() < reason.len() {
                words.push('…');
            }
            format!("failed: {words}")
        }
    }
}
