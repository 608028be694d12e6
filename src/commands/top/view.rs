//! The contents of `top`: computed from a recording's last minutes, and drawn into a [`Frame`].

use std::time::{Duration, UNIX_EPOCH};

use stokehold_diagnose::advice::verdict;
use stokehold_diagnose::curves::{Curve, Subject};
use stokehold_diagnose::lately::Lately;
use stokehold_diagnose::report::columns::{Columns, Cover, GAP, Grid, shares};
use stokehold_diagnose::rules::Finding;
use stokehold_page::words::significant;
use stokehold_profile::{Node, Recording, dimension, span};

use super::frame::{Colour, Frame};

/// A run that has not written for this long, seconds, is reported as silent.
const SILENT: f64 = 10.0;
/// Columns before and after the heat map.
const LABEL: usize = 12;
const VALUE: usize = 6;
/// From idle to busy.
const SHADES: [&str; 5] = [" ", "░", "▒", "▓", "█"];

/// The state of a run.
pub struct Now {
    title: String,
    /// The last moment with data, unix seconds; `None` before the first.
    at: Option<f64>,
    /// Seconds since then.
    silent: f64,
    /// Whether the run has ended.
    pub ended: bool,
    /// When it was switched off, unix seconds.
    paused: Option<f64>,
    lately: Lately,
    verdict: String,
    /// The numbers that the run reported since it began.
    curves: Vec<Curve>,
    window: f64,
    rows: Vec<Row>,
}

/// A row of the heat map, over any number of columns.
struct Row {
    name: String,
    colour: Colour,
    /// Whether it may share a line with neighbours of its kind.
    shares: bool,
    of: Of,
}

enum Of {
    Samples {
        ticks: Vec<f64>,
        lengths: Vec<f64>,
        values: Vec<f32>,
    },
    Times(Vec<(f64, f64)>),
}

impl Row {
    fn columns(&self, grid: Grid) -> Columns {
        match &self.of {
            Of::Samples {
                ticks,
                lengths,
                values,
            } => Cover::new(grid, ticks, lengths).of(values),
            Of::Times(times) => shares(grid, times.iter().copied()),
        }
    }
}

impl Now {
    /// The state of a recording, cut to its last `window` seconds, at the moment `now`, unix seconds.
    pub fn of(
        title: &str,
        recording: &Recording,
        findings: &[Finding],
        curves: Vec<Curve>,
        now: f64,
        window: f64,
    ) -> Self {
        let lately = Lately::of(recording);
        let at = lately.at;
        let about = recording.about.as_ref();
        Self {
            title: title.to_owned(),
            at,
            silent: at.map_or(0.0, |at| (now - at).max(0.0)),
            ended: about.is_some_and(|about| about.ended.is_some()),
            paused: about.and_then(|about| about.paused),
            lately,
            // The limit of the last minutes; the report covers the whole run.
            verdict: verdict(recording, findings, None, &[]),
            curves,
            window,
            rows: recording
                .nodes
                .iter()
                .flat_map(|node| rows(node, recording.nodes.len()))
                .collect(),
        }
    }
}

fn rows(node: &Node, nodes: usize) -> Vec<Row> {
    let before = match nodes {
        1 => String::new(),
        _ => format!("{} ", node.name),
    };
    let times = |name| -> Vec<(f64, f64)> {
        let spans = node.spans_of(name);
        spans.map(|span| (span.start, span.end())).collect()
    };
    let strip = |name: &str, colour, times: Vec<(f64, f64)>| {
        (!times.is_empty()).then(|| Row {
            name: format!("{before}{name}"),
            colour,
            shares: false,
            of: Of::Times(times),
        })
    };
    let steps = node.steps().map(|(_, step)| (step.start, step.end())).collect();
    let strips = [
        strip("waits", Colour::Wait, times(span::WAIT)),
        strip("steps", Colour::Gpu, steps),
    ];
    let lengths = node.lengths();
    let row = |name: &str, colour, shares, values| Row {
        name: format!("{before}{name}"),
        colour,
        shares,
        of: Of::Samples {
            ticks: node.ticks.clone(),
            lengths: lengths.clone(),
            values,
        },
    };
    let gpus = node
        .of(dimension::GPU)
        .map(|series| row(&series.name, Colour::Gpu, false, series.values.clone()));
    let parts = node.core_use().into_iter().flat_map(|used| {
        [
            row("run", Colour::Core, false, used.shares(used.run)),
            row("others", Colour::Soft, false, used.shares(used.others)),
        ]
    });
    let cores = node
        .of(dimension::CPU)
        .map(|series| row(&series.name, Colour::Core, true, series.values.clone()));
    strips
        .into_iter()
        .flatten()
        .chain(gpus)
        .chain(parts)
        .chain(cores)
        .collect()
}

/// The figures in words.
fn figures(now: &Now) -> String {
    let percent = |name: &str, value: Option<f64>| value.map(|value| format!("{name} {value:.0} %"));
    let each = [
        now.lately
            .images_per_second
            .map(|rate| format!("{rate:.0} images/s")),
        now.lately
            .steps_per_second
            .map(|rate| format!("{rate:.1} steps/s")),
        percent("waited", now.lately.wait_share.map(|share| 100.0 * share)),
        percent("cores", now.lately.cores).map(|cores| match now.lately.whose {
            Some((run, others)) => format!("{cores} (run {run:.0} %, others {others:.0} %)"),
            None => cores,
        }),
        percent("GPUs", now.lately.gpus),
        percent("memory", now.lately.memory),
        now.curves.first().and_then(|curve| {
            let last = curve.points.last()?;
            Some(format!("{} {}", curve.name, significant(last.value)))
        }),
    ];
    let known: Vec<String> = each.into_iter().flatten().collect();
    if known.is_empty() {
        "nothing was recorded yet".to_owned()
    } else {
        known.join("  ")
    }
}

/// Whether the run is still running.
fn state(now: &Now) -> String {
    if now.ended {
        "ended".to_owned()
    } else if let Some(since) = now.paused {
        format!("paused since {}", moment(since))
    } else if now.at.is_some() && now.silent > SILENT {
        format!("silent for {:.0} s", now.silent)
    } else {
        String::new()
    }
}

/// Everything on one line, for a log.
pub fn line(now: &Now) -> String {
    if now.paused.is_some() && !now.ended {
        // Older measurements are not current figures.
        return state(now);
    }
    let at = now.at.map_or("-".to_owned(), moment);
    let state = match state(now).as_str() {
        "" => String::new(),
        state => format!("{state}  "),
    };
    let line = format!("{at}  {state}{}  {}", figures(now), now.verdict);
    line.chars()
        .map(|c| if c.is_control() { '?' } else { c })
        .collect()
}

/// Everything on a screen.
pub fn draw(now: &Now, width: usize, height: usize) -> Frame {
    let mut frame = Frame::new(width, height);
    let at = now.at.map(moment).unwrap_or_default();
    frame.put(0, 0, Colour::Plain, &format!("stokehold top  {}", now.title));
    let right = match now.paused {
        Some(_) if !now.ended => format!("  {}  q leaves", state(now)),
        _ => format!("  {} {at}  q leaves", state(now)),
    };
    frame.put(
        width.saturating_sub(right.chars().count()),
        0,
        Colour::Soft,
        &right,
    );
    frame.put(0, 1, Colour::Plain, &figures(now));
    let mut y = 2;
    for text in wrapped(&now.verdict, width).into_iter().take(3) {
        frame.put(0, y, Colour::Soft, &text);
        y += 1;
    }
    y += 1;
    let plot = width.saturating_sub(LABEL + VALUE);
    // The map has most of the room.
    let most = height.saturating_sub(y + 1) / 3;
    for curve in now.curves.iter().filter(|_| plot > 0).take(most) {
        let label: String = curve.name.chars().take(LABEL - 2).collect();
        frame.put(0, y, Colour::Soft, &format!("{label:>0$}", LABEL - 1));
        let colour = match curve.subject() {
            Subject::Loss => Colour::Wait,
            Subject::Accuracy => Colour::Gpu,
            Subject::Rate | Subject::Other => Colour::Soft,
        };
        frame.put(LABEL, y, colour, &curve.spark(plot));
        let last = curve.points.last().map_or(f64::NAN, |point| point.value);
        frame.put(LABEL + plot + 1, y, Colour::Plain, &significant(last));
        y += 1;
    }
    y += usize::from(!now.curves.is_empty() && most > 0);
    let room = height.saturating_sub(y + 1);
    let Some(at) = now.at.filter(|_| room > 0 && plot > 0) else {
        return frame;
    };
    // The map moves by whole columns, so that a drawn column keeps its shade.
    let column = now.window / plot as f64;
    let to = (at / column).ceil() * column;
    let grid = Grid::new(to - now.window, to, plot);
    let shown = merged(&now.rows, grid, room);
    for (name, colour, shares) in &shown {
        let label: String = name.chars().take(LABEL - 2).collect();
        frame.put(0, y, Colour::Soft, &format!("{label:>0$}", LABEL - 1));
        for (x, &percent) in shares.iter().enumerate() {
            let shade = match percent {
                GAP => "·",
                percent => SHADES[(usize::from(percent) * SHADES.len() / 101).min(SHADES.len() - 1)],
            };
            let colour = if percent == GAP { Colour::Soft } else { *colour };
            frame.put(LABEL + x, y, colour, shade);
        }
        if let Some(last) = shares.iter().rev().find(|percent| **percent != GAP) {
            frame.put(LABEL + plot + 1, y, Colour::Plain, &format!("{last:>3} %"));
        }
        y += 1;
    }
    let minutes = format!("{:.0} minutes ago", now.window / 60.0);
    frame.put(LABEL, y, Colour::Soft, &minutes);
    frame.put((LABEL + plot).saturating_sub(3), y, Colour::Soft, "now");
    frame
}

/// The rows' percentages by column, with neighbours of a kind averaged until they fit.
fn merged(rows: &[Row], grid: Grid, room: usize) -> Vec<(String, Colour, Vec<u8>)> {
    let all: Vec<Vec<u8>> = rows.iter().map(|row| row.columns(grid).mean).collect();
    let groups = |together: usize| -> Vec<std::ops::Range<usize>> {
        let mut groups: Vec<std::ops::Range<usize>> = Vec::new();
        for (number, row) in rows.iter().enumerate() {
            let most = if row.shares { together } else { 1 };
            match groups.last_mut() {
                Some(last) if last.len() < most && rows[last.start].shares => last.end = number + 1,
                _ => groups.push(number..number + 1),
            }
        }
        groups
    };
    // As many cores per row as needed; with one core per row the rows are the most.
    let fitting = (1..=rows.len()).map(groups).find(|groups| groups.len() <= room);
    let groups = fitting.unwrap_or_else(|| groups(rows.len()));
    let each = groups.into_iter().take(room).map(|group| {
        let (first, last) = (&rows[group.start], &rows[group.end - 1]);
        let name = match group.len() {
            1 => first.name.clone(),
            _ => {
                let digits = last.name.trim_start_matches(|c: char| !c.is_ascii_digit());
                format!("{}-{digits}", first.name)
            }
        };
        let columns = (0..grid.columns).map(|column| {
            let known = all[group.clone()]
                .iter()
                .map(|row| row[column])
                .filter(|percent| *percent != GAP);
            let (sum, count) = known.fold((0, 0), |(sum, count), percent| {
                (sum + u32::from(percent), count + 1)
            });
            sum.checked_div(count).map_or(GAP, |mean| mean as u8)
        });
        (name, first.colour, columns.collect())
    });
    each.collect()
}

/// Wraps a text into lines of at most `width` characters, between words.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.len() - 1;
        let used = lines[line].chars().count();
        if used > 0 && used + 1 + word.chars().count() > width {
            lines.push(word.to_owned());
        } else {
            if used > 0 {
                lines[line].push(' ');
            }
            lines[line] += word;
        }
    }
    lines
}

/// `12:56:32 UTC`, without the date.
fn moment(unix: f64) -> String {
    // Up to the end of the year 9999, the limit of the format.
    let unix = unix.clamp(0.0, 253_402_300_799.0);
    let text = humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs_f64(unix)).to_string();
    text.replace('T', " ").replace('Z', " UTC")
}

#[cfg(test)]
mod tests {
    use stokehold_diagnose::rules::{Defaults, Parameters, judge};
    use stokehold_simulate::{Phase, Simulation};

    use super::*;
    use stokehold_diagnose::curves::Point;

    fn now(cores: usize, gpus: usize, seconds: f64) -> Now {
        let simulation = Simulation {
            cores,
            gpus,
            seconds,
            phases: vec![Phase::Loader],
            ..Simulation::default()
        };
        let recording = simulation.recording().after(simulation.start + seconds - 60.0);
        let findings = judge(&recording, &Parameters::new(Defaults::default()));
        Now::of(
            "runs/one",
            &recording,
            &findings,
            Vec::new(),
            simulation.start + seconds,
            60.0,
        )
    }

    #[test]
    fn a_busy_loader_is_seen() {
        let now = now(4, 1, 120.0);
        let frame = draw(&now, 100, 16);
        let lines: Vec<String> = (0..16).map(|y| frame.line(y)).collect();
        assert!(lines[0].starts_with("stokehold top  runs/one"), "{lines:#?}");
        assert!(
            lines[1].contains("steps/s") && lines[1].contains("waited"),
            "{lines:#?}"
        );
        let row = |name: &str| {
            lines
                .iter()
                .find(|line| line.trim_start().starts_with(name))
                .unwrap()
        };
        // Cores that prepare images are full, and their row is dark from end to end.
        assert!(row("cpu3").matches(['█', '▓']).count() > 75, "{lines:#?}");
        let shaded: Vec<&str> = lines
            .iter()
            .filter(|line| line.contains('%'))
            .map(|line| line.trim())
            .collect();
        let order = [
            "waits", "steps", "gpu0", "run", "others", "cpu0", "cpu1", "cpu2", "cpu3",
        ];
        let found: Vec<&str> = shaded
            .iter()
            .filter_map(|line| line.split_whitespace().next())
            .collect();
        assert!(found.ends_with(&order), "{lines:#?}");
        assert!(
            lines
                .iter()
                .any(|line| line.contains("1 minutes ago") && line.ends_with("now")),
            "{lines:#?}"
        );
        let share = now.lately.wait_share.unwrap();
        assert!((0.5..0.7).contains(&share), "{share}");
        assert!(line(&now).contains("waited") && !line(&now).contains('\n'));
    }

    #[test]
    fn numbers_of_the_run_are_drawn() {
        let curve = |name: &str, values: &[f64]| Curve {
            name: name.to_owned(),
            points: values
                .iter()
                .map(|&value| Point {
                    time: 0.0,
                    step: None,
                    value,
                })
                .collect(),
            counts: "step",
        };
        let mut now = now(4, 1, 120.0);
        now.curves = vec![curve("loss", &[2.5, 1.25, 0.5]), curve("top1", &[0.25, 0.75])];
        let frame = draw(&now, 100, 24);
        let lines: Vec<String> = (0..24).map(|y| frame.line(y)).collect();
        let row = |name: &str| {
            lines
                .iter()
                .position(|line| line.trim_start().starts_with(name))
                .unwrap()
        };
        assert!(
            lines[row("loss")].contains("█▄▁") && lines[row("loss")].ends_with("0.5"),
            "{lines:#?}"
        );
        assert!(
            lines[row("top1")].contains("▁█") && row("top1") < row("waits"),
            "{lines:#?}"
        );
        assert!(line(&now).contains("loss 0.5"), "{}", line(&now));
        // The map keeps its room.
        now.curves = vec![curve("loss", &[2.5, 1.25]); 60];
        let frame = draw(&now, 100, 24);
        assert!((0..24).any(|y| frame.line(y).trim_start().starts_with("cpu0")));
    }

    #[test]
    fn many_cores_share_rows() {
        let frame = draw(&now(96, 8, 60.0), 80, 30);
        let lines: Vec<String> = (0..30).map(|y| frame.line(y)).collect();
        assert!(lines.iter().any(|line| line.contains("gpu7")), "{lines:#?}");
        assert!(lines.iter().any(|line| line.contains("cpu0-")), "{lines:#?}");
        assert!(lines.iter().any(|line| line.contains("-95 ")), "{lines:#?}");
        assert!(lines[29].ends_with("now"), "{lines:#?}");
    }

    #[test]
    fn screens_of_any_size_can_be_drawn() {
        for now in [
            now(3, 1, 5.0),
            Now::of("x", &Recording::default(), &[], Vec::new(), 0.0, 60.0),
        ] {
            for width in [0, 1, 11, 18, 19, 40, 300] {
                for height in [0, 1, 2, 3, 5, 8, 100] {
                    draw(&now, width, height);
                }
            }
        }
    }

    #[test]
    fn whose_cores_they_are_is_said_where_it_is_known() {
        let said = |others| {
            let simulation = Simulation {
                cores: 4,
                seconds: 60.0,
                phases: vec![Phase::Asleep],
                others,
                ..Simulation::default()
            };
            let recording = simulation.recording();
            figures(&Now::of(
                "x",
                &recording,
                &[],
                Vec::new(),
                simulation.start + 60.0,
                60.0,
            ))
        };
        assert!(
            said(Some(98.0)).contains("cores 98 % (run 0 %, others 98 %)"),
            "{}",
            said(Some(98.0))
        );
        assert!(!said(None).contains("run"), "{}", said(None));
    }

    #[test]
    fn a_paused_run_says_since_when_and_shows_no_old_figures() {
        let simulation = Simulation::default();
        let folder = tempfile::tempdir().unwrap();
        simulation.write(folder.path()).unwrap();
        let mut recording = Recording::open(folder.path()).unwrap();
        let now =
            |recording: &Recording| Now::of("x", recording, &[], Vec::new(), simulation.start + 700.0, 60.0);
        let about = recording.about.as_mut().unwrap();
        (about.ended, about.paused) = (None, Some(simulation.start + 600.0));
        let paused = now(&recording);
        assert_eq!(line(&paused), "paused since 2026-01-01 00:10:00 UTC");
        let frame = draw(&paused, 80, 12);
        assert!(
            frame
                .line(0)
                .ends_with("paused since 2026-01-01 00:10:00 UTC  q leaves"),
            "{}",
            frame.line(0)
        );
        recording.about.as_mut().unwrap().paused = None;
        assert!(line(&now(&recording)).contains("silent for 100 s"));
        recording.about.as_mut().unwrap().ended = Some(simulation.start + 600.0);
        recording.about.as_mut().unwrap().paused = Some(1e9);
        assert!(line(&now(&recording)).contains("ended  "));
    }

    #[test]
    fn nothing_yet_is_said() {
        let now = Now::of("runs/two", &Recording::default(), &[], Vec::new(), 0.0, 60.0);
        assert_eq!(draw(&now, 80, 10).line(1), "nothing was recorded yet");
        assert!(line(&now).contains("nothing was recorded yet"));
    }

    #[test]
    fn texts_are_broken_between_words() {
        assert_eq!(wrapped("one two three", 8), ["one two", "three"]);
        assert_eq!(wrapped("unbreakable", 4), ["unbreakable"]);
        assert_eq!(wrapped("", 4), [""]);
    }
}
