//! A prediction on one page.

use std::fmt::Write;

use stokehold_page::html::{document, figure, noted, paragraph, section};
use stokehold_page::svg::{Svg, escape, short, ticks};
use stokehold_page::words::{duration, share};

use crate::{Cause, Prediction, Size, losses, table};

/// The published efficiency that a prediction stands next to: (GPUs, efficiency), from a customer of SageMaker's library
/// for data parallelism, 8 machines of 8 GPUs.
pub const PUBLISHED: (u64, f64) = (64, 0.93);

/// Where the published efficiency comes from.
const SOURCE: &str =
    "Hyundai Motor Company with AWS: semantic segmentation with SageMaker's data parallel library";

const STYLE: &str = include_str!("page.css");

/// The width of pictures.
const WIDTH: f64 = 1080.0;

/// The page; `what` names the run.
pub fn page(prediction: &Prediction, what: &str, currency: &str) -> String {
    let cluster = &prediction.cluster;
    let mut header = "<header>\n<p class=\"eyebrow\">Stokehold scale</p>\n".to_owned();
    let _ = writeln!(header, "<h1>{}</h1>", escape(&verdict(prediction)));
    header += &paragraph(
        "",
        &format!("Predicted from {what}; nothing was run on several machines."),
    );
    if let Some(repeated) = prediction.repeated {
        header += &paragraph("", &repeated.to_string());
    }
    header += "</header>\n";

    let note = match cluster.gpus {
        1 => "A machine has one GPU. ".to_owned(),
        gpus => format!("A machine has {gpus} GPUs. "),
    } + "Efficiency is images per second, against those of one machine times the machines.";
    let limits: String = prediction
        .sizes
        .iter()
        .map(|size| {
            let lifts: String = size.lifts.iter().map(item).collect();
            match lifts.as_str() {
                "" => item(&size.limited()),
                _ => format!("<li>{}<ul>{lifts}</ul></li>\n", escape(&size.limited())),
            }
        })
        .collect();
    let assumptions: String = prediction.assumptions.iter().map(item).collect();
    let body = [
        header,
        figure(
            "Efficiency",
            &format!(
                "Dashed: each machine adds as much as the first. The other dot was published: {:.0} % at {} GPUs ({SOURCE}), \
                 of another model on other machines.",
                100.0 * PUBLISHED.1,
                PUBLISHED.0
            ),
            &scroll(&efficiency(&prediction.sizes)),
        ),
        figure(
            "Where the time of a step goes",
            "Mean step of all ranks; checkpoints are spread over the steps of an epoch.",
            &(keys() + &scroll(&bars(&prediction.sizes))),
        ),
        noted("Sizes", &note, &table(prediction, currency).html()),
        noted(
            "What limits, and what would lift it",
            "Each change was simulated.",
            &format!("<ul class=\"limits\">\n{limits}</ul>\n"),
        ),
        section("Where an epoch goes", &losses(prediction).html()),
        noted(
            "What this stands on",
            "Each rank goes through the recorded steps in an order of its own, and all wait for the slowest. A message of n bytes \
             takes latency + n / bandwidth; with p ranks a ring takes 2 (p-1) latencies and 2 (p-1)/p n / bandwidth. Left out: \
             validation, the start of a run, failures, other programs on the network, and what a larger batch does to accuracy.",
            &format!("<ul class=\"stands\">\n{assumptions}</ul>\n"),
        ),
    ];
    document("Stokehold: a run on more machines", STYLE, &body.concat(), "")
}

/// A picture that a narrow screen moves over, so that its words stay readable.
fn scroll(picture: &str) -> String {
    format!("<div class=\"scroll\">{picture}</div>\n")
}

fn item(text: &impl std::fmt::Display) -> String {
    format!("<li>{}</li>\n", escape(&text.to_string()))
}

/// The largest size in a sentence.
fn verdict(prediction: &Prediction) -> String {
    let Some(last) = prediction.sizes.last() else {
        return "No size was predicted".to_owned();
    };
    format!(
        "{} machine{}: an epoch in {}, {} efficient",
        last.machines,
        if last.machines == 1 { "" } else { "s" },
        duration(last.seconds_per_epoch),
        share(last.efficiency, 1.0)
    )
}

/// Efficiency over GPUs, on a scale of doublings.
fn efficiency(sizes: &[Size]) -> String {
    let (left, right, top, bottom) = (56.0, 24.0, 28.0, 300.0);
    let mut svg = Svg::new(WIDTH);
    let gpus = sizes.iter().map(|size| size.ranks).chain([PUBLISHED.0]);
    let (least, most) = gpus.fold((u64::MAX, 1), |(least, most), n| (least.min(n), most.max(n)));
    let (from, to) = ((least as f64).log2(), (most as f64).log2());
    let x = |ranks: u64| {
        let share = ((ranks as f64).log2() - from) / (to - from).max(1e-9);
        // Room for the first and the last dot.
        left + 20.0 + share * (WIDTH - left - right - 90.0)
    };
    let lowest = sizes
        .iter()
        .map(|size| size.efficiency)
        .fold(PUBLISHED.1, f64::min);
    // A curve that stays high is not drawn as if it fell.
    let floor = if lowest >= 0.5 { 0.5 } else { 0.0 };
    let y = |efficiency: f64| bottom - (efficiency - floor) / (1.0 - floor) * (bottom - top);
    for tick in ticks(100.0 * floor, 100.0, 5) {
        let at = y(tick / 100.0);
        svg.line("grid", [left, at], [WIDTH - right, at]);
        svg.text("tick end", [left - 8.0, at + 4.5], format!("{} %", short(tick)));
    }
    svg.line("ideal", [left, y(1.0)], [WIDTH - right, y(1.0)]);
    let mut written = f64::NEG_INFINITY;
    let mut numbers: Vec<u64> = sizes.iter().map(|size| size.ranks).chain([PUBLISHED.0]).collect();
    numbers.sort_unstable();
    numbers.dedup();
    for ranks in numbers {
        if x(ranks) - written < 34.0 {
            continue;
        }
        written = x(ranks);
        svg.text("tick middle", [x(ranks), bottom + 22.0], ranks);
    }
    svg.text("tick middle", [(left + WIDTH) / 2.0, bottom + 44.0], "GPUs");
    let points: Vec<[f64; 2]> = sizes
        .iter()
        .map(|size| [x(size.ranks), y(size.efficiency)])
        .collect();
    svg.polyline("curve", &points);
    let published = [x(PUBLISHED.0), y(PUBLISHED.1)];
    let mut last = f64::NEG_INFINITY;
    for (size, at) in std::iter::zip(sizes, &points) {
        let title = format!("{} GPUs: {}", size.ranks, share(size.efficiency, 1.0));
        svg.circle("curve-dot", *at, &title);
        if at[0] - last < 64.0 {
            continue;
        }
        last = at[0];
        // The curve falls, so it is not above and to the right of a dot.
        svg.text("value", [at[0] + 9.0, at[1] - 8.0], share(size.efficiency, 1.0));
    }
    svg.circle("published", published, "published: 93 % at 64 GPUs");
    let is_below = published_is_below(&points, published);
    let beside = if is_below { 24.0 } else { -13.0 };
    svg.text(
        "strong middle",
        [published[0], published[1] + beside],
        "published: 93 %",
    );
    svg.finish(bottom + 52.0, "efficiency by the number of GPUs")
}

/// Whether the published dot is below the curve, or below where its nearest point is.
fn published_is_below(points: &[[f64; 2]], published: [f64; 2]) -> bool {
    let before = points.iter().rev().find(|at| at[0] <= published[0]);
    let after = points.iter().find(|at| at[0] >= published[0]);
    let (Some(from), Some(to)) = (before.or(after), after.or(before)) else {
        return false;
    };
    let share = (published[0] - from[0]) / (to[0] - from[0]).max(1e-9);
    published[1] > from[1] + share.min(1.0) * (to[1] - from[1])
}

/// The seconds of a step by what they go to.
fn parts(size: &Size) -> Vec<(&'static str, f64)> {
    let whole = size.seconds_per_epoch - last_of(size, Cause::Checkpoints);
    // As many steps as the epoch has, and a part of one.
    let steps = whole / size.seconds_per_step;
    let lost = size
        .lost
        .iter()
        .map(|lost| (lost.cause.name(), lost.seconds / steps));
    std::iter::once(("computing", size.computing_seconds / steps))
        .chain(lost)
        .collect()
}

fn last_of(size: &Size, cause: Cause) -> f64 {
    let found = size.lost.iter().find(|lost| lost.cause == cause);
    found.map_or(0.0, |lost| lost.seconds)
}

fn keys() -> String {
    let names = std::iter::once("computing").chain(Cause::ALL.map(Cause::name));
    let keys: String = names
        .enumerate()
        .map(|(number, name)| {
            format!("<span class=\"key\"><span class=\"swatch c{number}\"></span>{name}</span>")
        })
        .collect();
    format!("<p class=\"keys\">{keys}</p>\n")
}

/// A bar for each size.
fn bars(sizes: &[Size]) -> String {
    let (left, right, high, gap) = (130.0, 90.0, 24.0, 12.0);
    let mut svg = Svg::new(WIDTH);
    let all: Vec<Vec<(&str, f64)>> = sizes.iter().map(parts).collect();
    let total = |parts: &[(&str, f64)]| parts.iter().map(|part| part.1).sum::<f64>();
    let longest = all
        .iter()
        .map(|parts| total(parts))
        .fold(0.0, f64::max)
        .max(1e-12);
    let mut top = 4.0;
    for (size, parts) in std::iter::zip(sizes, &all) {
        let middle = top + high / 2.0 + 4.5;
        let name = match size.machines {
            1 => "1 machine".to_owned(),
            more => format!("{more} machines"),
        };
        svg.text("end", [left - 12.0, middle], name);
        let mut at = left;
        for (number, (what, seconds)) in parts.iter().enumerate() {
            let width = seconds / longest * (WIDTH - left - right);
            if width > 0.0 {
                let title = format!("{what}: {}", duration(*seconds));
                svg.rect(&format!("c{number}"), [at, top, width, high], &title);
            }
            at += width;
        }
        svg.text("value", [at + 8.0, middle], duration(total(parts)));
        top += high + gap;
    }
    svg.finish(
        top,
        "seconds of a step by what they go to, for each number of machines",
    )
}
