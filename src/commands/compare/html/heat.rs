//! Heat maps: how busy each core was over the time of each run.

use stokehold_page::html::figure as framed;
use stokehold_page::svg::{Svg, short, ticks};
use stokehold_train::model::Arch;

use super::super::LETTERS;
use super::super::report::{Report, Sample, Samples};

const WIDTH: f64 = 1080.0;
const LEFT: f64 = 96.0;
const RIGHT: f64 = 24.0;
/// More cores than this are merged: each row is the mean of neighbouring cores.
const ROWS: usize = 16;
/// The columns of a run.
const COLUMNS: usize = 180;
/// The number of shades from idle to busy.
const SHADES: usize = 10;
/// Two samples further apart than this, seconds, mean that the run was interrupted.
const GAP: f64 = 1.0;
/// A column covers at least this much time, two samples, seconds.
const SHORTEST: f64 = 1.0;

pub fn figure(report: &Report, samples: &[Samples]) -> String {
    let pictures: String = report
        .models()
        .into_iter()
        .map(|model| picture(report, samples, model))
        .collect();
    if pictures.is_empty() {
        return String::new();
    }
    framed(
        "Cores over time",
        "A row for each core, both trials of a cell on the same time, training and validation.",
        &(legend() + &pictures),
    )
}

/// All runs of a model on one time scale; empty if none has samples.
fn picture(report: &Report, samples: &[Samples], model: Arch) -> String {
    let mut runs: Vec<(u32, usize, Vec<Moment>)> = Vec::new();
    for (cell, of_cell) in std::iter::zip(&report.cells, samples) {
        if cell.model == model {
            for (trial, samples) in of_cell.iter().enumerate() {
                runs.push((cell.load, trial, moments(samples)));
            }
        }
    }
    runs.sort_by_key(|run| (run.0, run.1));
    let length = |run: &[Moment]| run.last().map_or(0.0, |moment| moment.to);
    let longest = runs.iter().map(|run| length(&run.2)).fold(0.0, f64::max);
    if longest == 0.0 {
        return String::new();
    }
    let width = WIDTH - LEFT - RIGHT;
    let columns = ((longest / SHORTEST) as usize).clamp(1, COLUMNS);
    let column = longest / columns as f64;

    let mut svg = Svg::new(WIDTH);
    svg.text("strong", [0.0, 14.0], model);
    let mut y = 24.0;
    for (load, trial, moments) in &runs {
        let rows = grid(moments, column, columns);
        let row_height = (30.0 / rows.len().max(1) as f64).clamp(3.0, 11.0);
        let height = row_height * rows.len().max(1) as f64;
        let mean = moments.iter().flat_map(|moment| &moment.cores).sum::<f64>()
            / moments
                .iter()
                .map(|moment| moment.cores.len())
                .sum::<usize>()
                .max(1) as f64;
        let title = format!(
            "{model} at load {load}, trial {}: cores {mean:.0} % busy on average over {:.1} s",
            LETTERS[*trial],
            length(moments)
        );
        svg.rect(
            "strip",
            [LEFT, y, length(moments) / longest * width, height],
            &title,
        );
        for (number, row) in rows.iter().enumerate() {
            let top = y + number as f64 * row_height;
            for (shade, from, to) in stretches(row) {
                let left = LEFT + from as f64 / columns as f64 * width;
                let right = LEFT + to as f64 / columns as f64 * width;
                svg.rect(
                    &format!("h{shade}"),
                    [left, top, right - left, row_height - 0.5],
                    "",
                );
            }
        }
        if *trial == 0 {
            svg.text("label", [0.0, y + height / 2.0 + 4.0], format!("load {load}"));
        }
        svg.text(
            ["value a", "value b"][*trial],
            [LEFT - 20.0, y + height / 2.0 + 4.0],
            LETTERS[*trial],
        );
        y += height + if *trial == 0 { 5.0 } else { 14.0 };
    }
    for tick in ticks(0.0, longest, 8).into_iter().filter(|tick| *tick <= longest) {
        let x = LEFT + tick / longest * width;
        svg.line("grid", [x, y - 8.0], [x, y - 3.0]);
        svg.text("tick middle", [x, y + 12.0], format!("{} s", short(tick)));
    }
    let description = format!("How busy each core was during the runs of {model}, by load and trial.");
    svg.finish(y + 20.0, &description)
}

/// The use of the cores in an interval, seconds since the run's start.
struct Moment {
    from: f64,
    to: f64,
    cores: Vec<f64>,
}

/// The samples on the run's own clock, which stops while the run is interrupted.
fn moments(samples: &[Sample]) -> Vec<Moment> {
    let mut to = 0.0;
    let mut moments = Vec::with_capacity(samples.len());
    for sample in samples {
        let from = to;
        to += (sample.time - sample.since).clamp(0.0, GAP);
        moments.push(Moment {
            from,
            to,
            cores: merged(&sample.cpu),
        });
    }
    moments
}

/// At most [`ROWS`] rows for all cores, each the mean of neighbours.
fn merged(cores: &[f64]) -> Vec<f64> {
    let together = cores.len().div_ceil(ROWS).max(1);
    let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len() as f64;
    cores.chunks(together).map(mean).collect()
}

/// The shade of each row in each column; `None` where there is no sample.
fn grid(moments: &[Moment], column: f64, columns: usize) -> Vec<Vec<Option<usize>>> {
    let rows = moments.iter().map(|moment| moment.cores.len()).max().unwrap_or(0);
    let mut sums = vec![vec![(0.0, 0u32); columns]; rows];
    for moment in moments {
        let at = ((moment.from / column) as usize).min(columns - 1);
        for (row, percent) in std::iter::zip(&mut sums, &moment.cores) {
            row[at].0 += percent;
            row[at].1 += 1;
        }
    }
    let shade = |&(sum, count): &(f64, u32)| {
        let percent = sum / f64::from(count);
        (count > 0).then_some(((percent / 100.0 * SHADES as f64) as usize).min(SHADES - 1))
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
        svg.rect(
            &format!("h{shade}"),
            [LEFT + 18.0 * shade as f64, 3.0, 18.0, 12.0],
            "",
        );
    }
    svg.text(
        "tick",
        [LEFT + 18.0 * SHADES as f64 + 8.0, 13.0],
        "busy, in steps of 10 %",
    );
    svg.finish(24.0, "From pale, idle, to full, busy.")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(since: f64, time: f64, cpu: &[f64]) -> Sample {
        Sample {
            since,
            time,
            cpu: cpu.to_vec(),
        }
    }

    #[test]
    fn the_clock_stands_still_while_interrupted() {
        let times = [10.0, 10.5, 11.0, 500.0, 500.5];
        let samples = [1, 2, 3, 4].map(|i| sample(times[i - 1], times[i], &[1.0]));
        let moments = moments(&samples);
        let ends: Vec<_> = moments.iter().map(|moment| (moment.from, moment.to)).collect();
        assert_eq!(ends, [(0.0, 0.5), (0.5, 1.0), (1.0, 2.0), (2.0, 2.5)]);
    }

    #[test]
    fn shades_are_means_of_cores_and_moments() {
        let samples =
            [(0.0, 100.0), (0.1, 100.0), (0.2, 5.0), (0.3, 25.0)].map(|(t, x)| sample(t, t + 0.1, &[x, 0.0]));
        let rows = grid(&moments(&samples), 0.2, 2);
        assert_eq!(rows, [[Some(9), Some(1)], [Some(0), Some(0)]]);
        assert_eq!(stretches(&rows[0]), [(9, 0, 1), (1, 1, 2)]);
        assert_eq!(stretches(&rows[1]), [(0, 0, 2)]);
        assert_eq!(stretches(&[None, Some(3), None, Some(3)]), [(3, 1, 2), (3, 3, 4)]);
        let many: Vec<f64> = (0..64).map(|core| f64::from(core / 4)).collect();
        assert_eq!(merged(&many), (0..16).map(f64::from).collect::<Vec<_>>());
        assert_eq!(merged(&[]), Vec::<f64>::new());
    }
}
