//! The evaluation of a segmenter: for a terminal, and on one page with pictures.

use std::fmt::Write;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jpeg_encoder::{ColorType, Encoder};
use stokehold_base::words::plural;
use stokehold_loader::input;
use stokehold_page::Table;
use stokehold_page::html::{document, noted};
use stokehold_page::svg::escape;
use stokehold_page::words::{cell, name, shortened};
use stokehold_pipeline::op::Op;
use stokehold_pipeline::{DecodeOptions, DrawKey, Executor, Pipeline, Runner};
use stokehold_storage::{Images, SampleBytes, Source, palette};
use stokehold_train::infer::{ClassScore, ModelFacts, PixelEvaluation, Segmented};

use crate::page::{end_of_header, matrix};
use crate::tables::{FREQUENT, frequent};

/// Pictures are not wider than this, pixels.
const WIDEST: usize = 360;
/// The quality of a picture's JPEG.
const QUALITY: u8 = 80;

/// The scores, a row for each class, and the most frequent mistakes, for a terminal.
pub fn text(evaluation: &PixelEvaluation) -> String {
    let PixelEvaluation {
        miou,
        pixel_accuracy,
        loss,
        images,
        ..
    } = evaluation;
    let mut text = format!(
        "mIoU {miou:.4}  pixel accuracy {pixel_accuracy:.4}  loss {loss:.4}  over {}\n",
        plural(*images as usize, "image"),
    );
    text += &format!(
        "{} on {}, executor {}, {:.1} images/s\n\n",
        evaluation.arch,
        cell(&evaluation.device),
        evaluation.executor,
        *images as f64 / evaluation.seconds.max(1e-9),
    );
    text += &classes(evaluation).text();
    let frequent = frequent(&scores(evaluation), &evaluation.confusion, FREQUENT, "pixels");
    if !frequent.is_empty() {
        text += &format!("\nThe most frequent mistakes, in pixels:\n{}", frequent.text());
    }
    text
}

/// A row for each class.
fn classes(evaluation: &PixelEvaluation) -> Table {
    let mut table = Table::new(
        &["class", "IoU", "accuracy", "pixels", "right", "predicted"],
        &[0],
    );
    let share = |share: Option<f64>| share.map_or("-".to_owned(), |share| format!("{share:.4}"));
    for class in &evaluation.classes {
        table.row([
            cell(&class.name),
            share(class.iou),
            share(class.accuracy),
            class.pixels.to_string(),
            class.right.to_string(),
            class.predicted.to_string(),
        ]);
    }
    table
}

/// The counts of pixels as the matrix and the table of mistakes take those of images.
fn scores(evaluation: &PixelEvaluation) -> Vec<ClassScore> {
    let score = |class: &stokehold_train::infer::PixelScore| ClassScore {
        name: class.name.clone(),
        support: class.pixels,
        predicted: class.predicted,
        right: class.right,
        precision: None,
        recall: class.accuracy,
    };
    evaluation.classes.iter().map(score).collect()
}

/// The page. `images` are the evaluated ones, with pictures of the worst; `facts` are the model's.
pub fn page(evaluation: &PixelEvaluation, images: &Images, facts: &ModelFacts) -> String {
    let mut body = format!(
        "<header>\n<p class=\"eyebrow\">Evaluation of {}</p>\n<h1>mIoU {:.3}, {:.1} % of the pixels right</h1>\n\
         <p class=\"keys\"><b>{}</b> of <b>{}</b> pixels of {} right, loss {:.3}</p>\n",
        escape(&name(&evaluation.model)),
        evaluation.miou,
        100.0 * evaluation.pixel_accuracy,
        evaluation.right,
        evaluation.pixels,
        plural(evaluation.images as usize, "image"),
        evaluation.loss,
    );
    let made_with = [&evaluation.device, &evaluation.data, &evaluation.executor].map(String::as_str);
    body += &end_of_header(evaluation.arch, made_with, evaluation.bad.len());
    let note = "IoU: the pixels that are of a class and were predicted to be, of those that are one or the other. Accuracy: \
                the share of the class's pixels that are right. Pixels without a class do not count.";
    body += &noted("Classes", note, &classes(evaluation).html());
    let scores = scores(evaluation);
    body += &matrix(&scores, &evaluation.confusion, "pixels");
    let mistakes = frequent(&scores, &evaluation.confusion, FREQUENT, "pixels");
    if !mistakes.is_empty() {
        let note = "Which class was taken for which, most pixels first.";
        body += &noted("Most frequent mistakes", note, &mistakes.html());
    }
    body += &worst(evaluation, images, facts);
    let title = format!("{} · evaluation", name(&evaluation.model));
    document(&title, include_str!("page.css"), &body, "")
}

/// The image, its mask and the prediction, side by side, of the images with the lowest mean IoU.
fn worst(evaluation: &PixelEvaluation, images: &Images, facts: &ModelFacts) -> String {
    if evaluation.worst.is_empty() {
        return String::new();
    }
    let colors = palette::of(&facts.classes, images.pixel_classes());
    let mut body = "<p class=\"note\">".to_owned();
    for (class, [red, green, blue]) in facts.classes.iter().zip(&colors) {
        let _ = write!(
            body,
            "<span style=\"color:rgb({red},{green},{blue})\">■</span> {} ",
            escape(&shortened(class, 30))
        );
    }
    body += "</p>\n<div class=\"triples\">\n";
    for one in &evaluation.worst {
        let path = escape(&one.path);
        let shown = match picture(one, images, facts, &colors) {
            Some(jpeg) => format!(
                "<img src=\"data:image/jpeg;base64,{}\" alt=\"{path}\"/>",
                STANDARD.encode(jpeg)
            ),
            None => "<p class=\"note\">The file cannot be read any more.</p>".to_owned(),
        };
        let _ = writeln!(
            body,
            "<div class=\"one\" title=\"{path}\">{shown}<p class=\"note\">mIoU {:.3}, {:.1} % of the pixels right: {}</p></div>",
            one.miou,
            100.0 * one.pixel_accuracy,
            escape(&shortened(&one.path, 80)),
        );
    }
    let note = "The images with the lowest mean IoU over the classes that are in them or were predicted. Left the image as the \
                network sees it, in the middle its mask, right the prediction; black is no class.";
    noted("Worst images", note, &(body + "</div>\n"))
}

fn picture(one: &Segmented, images: &Images, facts: &ModelFacts, colors: &[[u8; 3]]) -> Option<Vec<u8>> {
    let ops = facts.pipeline.ops.iter();
    let ops = ops.filter(|op| !matches!(op, Op::Normalize(_))).cloned();
    let pipeline = Pipeline::new(ops.collect());
    let (width, height) = pipeline.check().ok()?;
    let (width, height) = (width as usize, height as usize);
    let mut bytes = SampleBytes::new();
    images.read(one.sample as usize, &mut bytes).ok()?;
    let mut runner = Runner::new(
        Arc::new(pipeline),
        Executor::Fused,
        DecodeOptions { exif: facts.exif },
    )
    .ok()?;
    let mut planes = vec![0u8; runner.output_len()];
    let key = DrawKey {
        seed: 0,
        epoch: 0,
        sample: one.sample,
    };
    runner.run(input(&bytes), key, planes.as_mut_slice()).ok()?;
    let size = width * height;
    let color = |classes: &[u8], at: usize| colors.get(usize::from(classes[at])).copied().unwrap_or([0; 3]);
    let step = width.div_ceil(WIDEST);
    let (wide, high) = (width / step, height / step);
    let mut rgb = Vec::with_capacity(9 * wide * high);
    for y in 0..high {
        for part in 0..3 {
            for x in 0..wide {
                let at = y * step * width + x * step;
                rgb.extend(match part {
                    0 => [planes[at], planes[size + at], planes[2 * size + at]],
                    1 => color(&one.truth, at),
                    _ => color(&one.predicted, at),
                });
            }
        }
    }
    let mut jpeg = Vec::new();
    Encoder::new(&mut jpeg, QUALITY)
        .encode(&rgb, 3 * wide as u16, high as u16, ColorType::Rgb)
        .ok()?;
    Some(jpeg)
}
