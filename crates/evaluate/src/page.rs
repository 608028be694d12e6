//! An evaluation on one page, without network access or scripts.

use std::collections::BTreeMap;
use std::fmt::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use stokehold_base::words::plural;
use stokehold_page::html::{document, noted};
use stokehold_page::svg::{Svg, escape};
use stokehold_page::words::{clipped, name, shortened};
use stokehold_storage::Images;
use stokehold_train::infer::{ClassScore, Evaluation};
use stokehold_train::model::Arch;

use crate::pictures;
use crate::tables::{frequent, scores};

/// At most this many classes are in the picture of the matrix.
const DRAWN: usize = 40;
/// At most this many classes have a row in the table.
const LISTED: usize = 1000;
/// The most frequent mistakes that are listed.
const FREQUENT: usize = 25;
/// The width of the matrix with its names, in the picture's units.
const WIDTH: f64 = 1080.0;
/// Room for the names of classes.
const NAMES: f64 = 150.0;
/// The longest name next to the matrix, characters.
const LETTERS: usize = 19;
/// A cell is at most this large.
const CELL: f64 = 64.0;
/// Cells of this size or more show their number.
const NUMBERED: f64 = 34.0;
/// The number of shades from none to all.
const SHADES: u64 = 10;

/// The page. `images` are the evaluated ones, with pictures of the worst mistakes; `exif` says whether these are turned by their
/// EXIF orientation, as for the network.
pub fn page(evaluation: &Evaluation, images: &Images, exif: bool) -> String {
    let mut body = header(evaluation);
    body += &matrix(&evaluation.classes, &evaluation.confusion, "images");
    body += &mistakes(evaluation);
    body += &worst(evaluation, &pictures::of(evaluation, images, exif));
    body += &classes(evaluation);
    let title = format!("{} · evaluation", name(&evaluation.model));
    document(&title, include_str!("page.css"), &body, "")
}

fn header(evaluation: &Evaluation) -> String {
    let Evaluation { k, right, images, .. } = *evaluation;
    let mut text = format!(
        "<header>\n<p class=\"eyebrow\">Evaluation of {}</p>\n<h1>{:.1} % right, loss {:.3}</h1>\n",
        escape(&name(&evaluation.model)),
        100.0 * evaluation.top1,
        evaluation.loss,
    );
    let _ = writeln!(
        text,
        "<p class=\"keys\"><b>{right}</b> of <b>{images}</b> images right (top-1 {:.4}), top-{k} {:.4}</p>",
        evaluation.top1, evaluation.topk,
    );
    let Evaluation {
        arch,
        device,
        data,
        executor,
        bad,
        ..
    } = evaluation;
    text + &end_of_header(*arch, [device, data, executor], bad.len())
}

/// The end of a page's header: what was evaluated with what, and how many images were bad.
pub(crate) fn end_of_header(arch: Arch, [device, data, executor]: [&str; 3], bad: usize) -> String {
    let mut text = format!(
        "<p>{arch} on {}, images of {}, executor {}.</p>\n",
        escape(&name(device)),
        escape(&name(data)),
        escape(executor),
    );
    if bad > 0 {
        let bad = plural(bad, "image");
        let _ = writeln!(
            text,
            "<p>{bad} could not be read or decoded, and is not counted.</p>"
        );
    }
    text + "</header>\n"
}

/// The classes of the picture: all, or those with the most mistakes, in their order.
fn drawn(scores: &[ClassScore]) -> Vec<usize> {
    let mut classes: Vec<usize> = (0..scores.len()).collect();
    let mistakes = |&class: &usize| {
        let ClassScore {
            support,
            predicted,
            right,
            ..
        } = scores[class];
        support + predicted - 2 * right
    };
    classes.sort_by_key(|class| std::cmp::Reverse(mistakes(class)));
    classes.truncate(DRAWN);
    classes.sort_unstable();
    classes
}

/// The confusion matrix of classes; `counted` is what is counted: images or pixels.
pub(crate) fn matrix(scores: &[ClassScore], confusion: &[[u64; 3]], counted: &str) -> String {
    let classes = drawn(scores);
    let cell = ((WIDTH - NAMES) / classes.len() as f64).min(CELL);
    let side = cell * classes.len() as f64;
    let images: BTreeMap<(u64, u64), u64> = confusion
        .iter()
        .map(|&[class, predicted, images]| ((class, predicted), images))
        .collect();
    let mut svg = Svg::new(WIDTH);
    for (place, &class) in classes.iter().enumerate() {
        let label = shortened(&scores[class].name, LETTERS);
        let middle = NAMES + cell * (place as f64 + 0.5);
        svg.text("label end", [NAMES - 8.0, middle + 4.0], &label);
        svg.text("label down", [middle, NAMES - 8.0], &label);
    }
    for (row, &class) in classes.iter().enumerate() {
        for (column, &predicted) in classes.iter().enumerate() {
            let count = images
                .get(&(class as u64, predicted as u64))
                .copied()
                .unwrap_or(0);
            let corner = [NAMES + cell * column as f64, NAMES + cell * row as f64];
            let (of, kind) = (&scores[class], if row == column { 'r' } else { 'w' });
            let title = format!(
                "{} of {} {counted} of {} as {}",
                count,
                of.support,
                name(&of.name),
                name(&scores[predicted].name)
            );
            let shade = shade(count, of.support);
            svg.rect(
                &format!("{kind} s{shade}"),
                [corner[0] + 0.5, corner[1] + 0.5, cell - 1.0, cell - 1.0],
                &title,
            );
            if cell >= NUMBERED && count > 0 {
                let class = if shade > SHADES / 2 {
                    "count middle full"
                } else {
                    "count middle"
                };
                svg.text(
                    class,
                    [corner[0] + cell / 2.0, corner[1] + cell / 2.0 + 4.0],
                    count,
                );
            }
        }
    }
    let (all, shown) = (scores.len(), classes.len());
    let which = match all > shown {
        true => format!(" The {shown} of {all} classes with the most mistakes; evaluation.json has all."),
        false => String::new(),
    };
    let note = format!(
        "A row for each class, a column for each class that was predicted; the stronger the colour, the larger the share \
         of the row's {counted}. Blue is right, orange is wrong.{which}"
    );
    let description = format!("Confusion matrix of {}.", plural(shown, "class"));
    noted(
        "Confusion matrix",
        &note,
        &svg.finish(NAMES + side + 2.0, &description),
    )
}

/// 0 for none, else 1 to 10 by the share of a class's images.
fn shade(images: u64, of: u64) -> u64 {
    (SHADES * images).div_ceil(of.max(1)).min(SHADES)
}

fn mistakes(evaluation: &Evaluation) -> String {
    let table = frequent(&evaluation.classes, &evaluation.confusion, FREQUENT, "images");
    if table.is_empty() {
        return noted("Mistakes", "The model made none.", "");
    }
    let note = "Which class was taken for which, most images first.";
    noted("Most frequent mistakes", note, &table.html())
}

fn worst(evaluation: &Evaluation, pictures: &[Option<Vec<u8>>]) -> String {
    if evaluation.worst.is_empty() {
        return String::new();
    }
    let mut body = "<div class=\"worst\">\n".to_owned();
    for (mistake, picture) in std::iter::zip(&evaluation.worst, pictures) {
        let path = escape(&mistake.path);
        let shown = match picture {
            Some(jpeg) => format!(
                "<img src=\"data:image/jpeg;base64,{}\" alt=\"{path}\"/>",
                STANDARD.encode(jpeg)
            ),
            None => "<p class=\"note\">The file cannot be read any more.</p>".to_owned(),
        };
        let _ = writeln!(
            body,
            "<div class=\"one\" title=\"{path}\">{shown}<p><b>{}</b> as <b>{}</b></p>\
             <p class=\"note\">{:.1} % sure, loss {:.2}<br/>{}</p></div>",
            escape(&clipped(&mistake.class, 40)),
            escape(&clipped(&mistake.predicted, 40)),
            100.0 * mistake.probability,
            mistake.loss,
            escape(&shortened(&mistake.path, 44)),
        );
    }
    let note = "The wrong predictions with the highest loss: images that are hard, that the model does not know, or whose \
                label is wrong. The middle of each image is shown.";
    noted("Worst mistakes", note, &(body + "</div>\n"))
}

fn classes(evaluation: &Evaluation) -> String {
    let rows: Vec<&ClassScore> = evaluation.classes.iter().take(LISTED).collect();
    let more = match evaluation.classes.len() > LISTED {
        true => format!(" The first {LISTED}; evaluation.json has all."),
        false => String::new(),
    };
    let note = format!(
        "Precision is the share of the predictions of a class that are right, recall the share of its images that are \
         found.{more}"
    );
    noted("Classes", &note, &scores(&rows).html())
}
