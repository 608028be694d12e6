//! Heat maps: how busy each core and each accelerator was in the rounds of each trial, one after the other.

use stokehold_page::html::figure as framed;
use stokehold_page::svg::{Svg, short, ticks};
use stokehold_train::model::Arch;

use super::colour;
use crate::report::{Cell, Measured, Report, Sample};
use crate::table;

const WIDTH: f64 = 1080.0;
const LEFT: f64 = 190.0;
const RIGHT: f64 = 24.0;
/// More cores than this are merged: each row is the mean of neighbouring cores.
const ROWS: usize = 16;
/// The columns of a trial.
const COLUMNS: usize = 180;
/// The number of shades from idle to busy.
const SHADES: usize = 10;
/// A column covers at least this much time, seconds.
const SHORTEST: f64 = 0.2;
/// The height of an accelerator's row.
const ACCELERATOR: f64 = 8.0;

pub fn figure(report: &Report, samples: &[Sample]) -> String {
    let models = report.models();
    let pictures: String = models
        .iter()
        .map(|&model| picture(report, samples, model))
        .collect();
    if pictures.is_empty() {
        return String::new();
    }
    framed(
        "Cores and accelerator over time",
        "A row for each core (brown) and each accelerator (blue). All trials of a network are on one time axis, each the rounds of \
         that trial, one after the other. An emulated accelerator has one shade a round.",
        &(legend() + &pictures),
    )
}

/// A trial's rounds: rows of cores and of accelerators, and how long they take.
struct Strip {
    title: String,
    load: String,
    name: String,
    colour: String,
    cores: Vec<Moment>,
    accelerators: Vec<Moment>,
    length: f64,
}

/// How busy something was in an interval of the trial's own time, seconds.
struct Moment {
    from: f64,
    to: f64,
    rows: Vec<f64>,
}

/// All trials of a network on one time axis; empty if there are no samples.
fn picture(report: &Report, samples: &[Sample], model: Arch) -> String {
    let mut strips = Vec::new();
    for cell in report.cells_of(model) {
        for (number, trial) in cell.trials.iter().enumerate() {
            if !trial.rounds.is_empty() {
                strips.push(strip(report, cell, number, trial, samples));
            }
        }
    }
    let longest = strips.iter().map(|strip| strip.length).fold(0.0, f64::max);
    if longest == 0.0 || strips.iter().all(|strip| strip.cores.is_empty()) {
        return String::new();
    }
    let width = WIDTH - LEFT - RIGHT;
    let columns = ((longest / SHORTEST) as usize).clamp(1, COLUMNS);
    let column = longest / columns as f64;

    let mut svg = Svg::new(WIDTH);
    svg.text("strong", [0.0, 14.0], model);
    let mut y = 24.0;
    let mut load = None;
    for strip in &strips {
        let cores = grid(&strip.cores, column, columns);
        let accelerators = grid(&strip.accelerators, column, columns);
        let row_height = (30.0 / cores.len().max(1) as f64).clamp(3.0, 11.0);
        let height = row_height * cores.len() as f64 + ACCELERATOR * accelerators.len() as f64;
        if load.as_ref() != Some(&strip.load) {
            y += if load.is_some() { 9.0 } else { 0.0 };
            svg.text("label", [0.0, y + 12.0], format!("load {}", strip.load));
            load = Some(strip.load.clone());
        }
        svg.rect(
            "strip",
            [LEFT, y, strip.length / longest * width, height],
            &strip.title,
        );
        let mut top = y;
        for (rows, letter, row_height) in [(&cores, 'h', row_height), (&accelerators, 'g', ACCELERATOR)] {
            for row in rows {
                for (shade, from, to) in stretches(row) {
                    let left = LEFT + from as f64 / columns as f64 * width;
                    let right = LEFT + to as f64 / columns as f64 * width;
                    svg.rect(
                        &format!("{letter}{shade}"),
                        [left, top, right - left, row_height - 0.5],
                        "",
                    );
                }
                top += row_height;
            }
        }
        svg.text(
            &format!("value end {}", strip.colour),
            [LEFT - 10.0, y + height / 2.0 + 4.0],
            &strip.name,
        );
        y += height + 5.0;
    }
    for tick in ticks(0.0, longest, 8).into_iter().filter(|tick| *tick <= longest) {
        let x = LEFT + tick / longest * width;
        svg.line("grid", [x, y], [x, y + 5.0]);
        svg.text("tick middle", [x, y + 19.0], format!("{} s", short(tick)));
    }
    let description =
        format!("How busy each core and accelerator was in the rounds of {model}, by load and trial.");
    svg.finish(y + 27.0, &description)
}

fn strip(report: &Report, cell: &Cell, number: usize, trial: &Measured, samples: &[Sample]) -> Strip {
    // The trial's own time: that of its rounds, without the turns of the others.
    let mut begins = Vec::new();
    let mut length = 0.0;
    for round in &trial.rounds {
        begins.push((round.pair, length));
        length += round.length();
    }
    let begin = |pair: u32| {
        begins
            .iter()
            .find(|(of, _)| *of == pair)
            .map_or(0.0, |(_, begin)| *begin)
    };
    let (mut cores, mut accelerators) = (Vec::new(), Vec::new());
    for (round, sample) in Sample::within(samples, &trial.rounds) {
        let from = (begin(round.pair) + sample.since - round.began).max(0.0);
        let to = begin(round.pair) + sample.time - round.began;
        cores.push(Moment {
            from,
            to,
            rows: merged(&sample.cores),
        });
        if cell.images_per_second.is_none() && !sample.gpus.is_empty() {
            accelerators.push(Moment {
                from,
                to,
                rows: sample.gpus.clone(),
            });
        }
    }
    if cell.images_per_second.is_some() {
        accelerators = trial
            .rounds
            .iter()
            .map(|round| Moment {
                from: begin(round.pair),
                to: begin(round.pair) + round.length(),
                rows: vec![100.0 * round.busy_share()],
            })
            .collect();
    }
    let mean = |moments: &[Moment]| {
        let values = || moments.iter().flat_map(|moment| &moment.rows);
        values().sum::<f64>() / values().count().max(1) as f64
    };
    Strip {
        title: format!(
            "{} at load {}, {}: cores {:.0} % busy on average over {length:.1} s, accelerator {:.0} %",
            cell.model,
            cell.load,
            trial.trial,
            mean(&cores),
            mean(&accelerators)
        ),
        load: table::load(report, cell),
        name: trial.trial.to_string(),
        colour: colour(number),
        cores,
        accelerators,
        length,
    }
}

/// At most [`ROWS`] rows for all cores, each the mean of neighbours.
fn merged(cores: &[f64]) -> Vec<f64> {
    let together = cores.len().div_ceil(ROWS).max(1);
    let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len() as f64;
    cores.chunks(together).map(mean).collect()
}

/// The shade of each row in each column; `None` where there is no sample.
fn grid(moments: &[Moment], column: f64, columns: usize) -> Vec<Vec<Option<usize>>> {
    let rows = moments.iter().map(|moment| moment.rows.len()).max().unwrap_or(0);
    let mut sums = vec![vec![(0.0, 0.0); columns]; rows];
    for moment in moments {
        let first = ((moment.from / column) as usize).min(columns - 1);
        let last = ((moment.to / column).ceil() as usize).clamp(first + 1, columns);
        for (row, percent) in std::iter::zip(&mut sums, &moment.rows) {
            for (place, sum) in row.iter_mut().enumerate().take(last).skip(first) {
                // As much as the moment covers of the column.
                let (begin, end) = (place as f64 * column, (place + 1) as f64 * column);
                let weight = (moment.to.min(end) - moment.from.max(begin)).max(1e-9);
                sum.0 += weight * percent;
                sum.1 += weight;
            }
        }
    }
    let shade = |&(sum, weight): &(f64, f64)| {
        let percent = sum / weight;
        (weight > 0.0).then_some(((percent / 100.0 * SHADES as f64) as usize).min(SHADES - 1))
    };
    sums.iter().map(|row| row.iter().map(shade).collect()).collect()
}

/// Neighbouring columns of one shade as (shade, from, to).
fn stretches(row: &[Option<usize>]) -> Vec<(usize, usize, usize)> {
    let mut stretches: Vec<(usize, usize, usize)> = Vec::new();
    for (column, shade) in row.iter().enumerate() {
        let Some(shade) = *shade else { continue };
        match stretches.last_mut() {
            Some(last) if last.0 == shade && last.2 == column => last.2 += 1,
            _ => stretches.push((shade, column, column + 1)),
        }
    }
    stretches
}

/// The meaning of the shades.
fn legend() -> String {
    let mut svg = Svg::new(WIDTH);
    svg.text("tick end", [LEFT - 8.0, 13.0], "idle");
    for shade in 0..SHADES {
        let left = LEFT + 18.0 * shade as f64;
        svg.rect(&format!("h{shade}"), [left, 1.0, 18.0, 8.0], "");
        svg.rect(&format!("g{shade}"), [left, 9.0, 18.0, 8.0], "");
    }
    svg.text(
        "tick",
        [LEFT + 18.0 * SHADES as f64 + 8.0, 13.0],
        "busy, in steps of 10 %: cores above, accelerator below",
    );
    svg.finish(24.0, "From pale, idle, to full, busy.")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(from: f64, rows: &[f64]) -> Moment {
        Moment {
            from,
            to: from + 0.1,
            rows: rows.to_vec(),
        }
    }

    #[test]
    fn shades_are_means_of_cores_and_moments() {
        let moments =
            [(0.0, 100.0), (0.1, 100.0), (0.2, 5.0), (0.3, 25.0)].map(|(t, x)| moment(t, &[x, 0.0]));
        let rows = grid(&moments, 0.2, 2);
        assert_eq!(rows, [[Some(9), Some(1)], [Some(0), Some(0)]]);
        assert_eq!(stretches(&rows[0]), [(9, 0, 1), (1, 1, 2)]);
        assert_eq!(stretches(&rows[1]), [(0, 0, 2)]);
        assert_eq!(stretches(&[None, Some(3), None, Some(3)]), [(3, 1, 2), (3, 3, 4)]);
        let many: Vec<f64> = (0..64).map(|core| f64::from(core / 4)).collect();
        assert_eq!(merged(&many), (0..16).map(f64::from).collect::<Vec<_>>());
        assert_eq!(merged(&[]), Vec::<f64>::new());
    }

    #[test]
    fn a_long_moment_covers_all_its_columns() {
        let long = Moment {
            from: 0.1,
            to: 0.9,
            rows: vec![55.0],
        };
        assert_eq!(grid(&[long], 0.2, 5), [[Some(5); 5]]);
    }
}
