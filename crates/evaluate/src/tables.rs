//! An evaluation for a terminal, and the tables that its page has too.

use stokehold_base::words::plural;
use stokehold_page::Table;
use stokehold_page::words::cell;
use stokehold_train::infer::{ClassScore, Evaluation};

/// The table of a terminal has at most this many classes.
const SHOWN: usize = 40;
/// The most frequent mistakes that a terminal shows.
pub(crate) const FREQUENT: usize = 10;

/// The scores, a row for each class, and the most frequent mistakes, for a terminal.
pub fn text(evaluation: &Evaluation) -> String {
    let Evaluation { k, images, .. } = *evaluation;
    let mut text = format!(
        "top-1 {:.4}  top-{k} {:.4}  loss {:.4}  over {}: {} right\n",
        evaluation.top1,
        evaluation.topk,
        evaluation.loss,
        plural(images as usize, "image"),
        evaluation.right,
    );
    text += &format!(
        "{} on {}, executor {}, {:.1} images/s\n\n",
        evaluation.arch,
        cell(&evaluation.device),
        evaluation.executor,
        images as f64 / evaluation.seconds.max(1e-9),
    );
    let mut classes: Vec<&ClassScore> = evaluation.classes.iter().collect();
    if classes.len() > SHOWN {
        // The sort is stable; a class without images comes last.
        let recall = |class: &ClassScore| class.recall.unwrap_or(2.0);
        classes.sort_by(|a, b| recall(a).total_cmp(&recall(b)));
        classes.truncate(SHOWN);
        let all = evaluation.classes.len();
        text += &format!("The {SHOWN} classes of {all} with the lowest recall:\n");
    }
    text += &scores(&classes).text();
    let frequent = frequent(&evaluation.classes, &evaluation.confusion, FREQUENT, "images");
    if !frequent.is_empty() {
        text += &format!("\nThe most frequent mistakes:\n{}", frequent.text());
    }
    text
}

/// A row for each class.
pub(crate) fn scores(classes: &[&ClassScore]) -> Table {
    let mut table = Table::new(
        &["class", "images", "right", "predicted", "precision", "recall"],
        &[0],
    );
    let share = |share: Option<f64>| share.map_or("-".to_owned(), |share| format!("{share:.4}"));
    for class in classes {
        table.row([
            cell(&class.name),
            class.support.to_string(),
            class.right.to_string(),
            class.predicted.to_string(),
            share(class.precision),
            share(class.recall),
        ]);
    }
    table
}

/// The pairs of classes that are mistaken most often; `counted` is what is counted: images or pixels.
pub(crate) fn frequent(classes: &[ClassScore], confusion: &[[u64; 3]], most: usize, counted: &str) -> Table {
    let mut table = Table::new(&["class", "predicted", counted, "of the class"], &[0, 1]);
    let mistakes = confusion
        .iter()
        .filter(|[class, predicted, _]| class != predicted);
    let mut mistakes: Vec<&[u64; 3]> = mistakes.collect();
    mistakes.sort_by_key(|[_, _, images]| std::cmp::Reverse(*images));
    for &&[class, predicted, images] in mistakes.iter().take(most) {
        let [class, predicted] = [class, predicted].map(|number| &classes[number as usize]);
        let share = 100.0 * images as f64 / class.support.max(1) as f64;
        table.row([
            cell(&class.name),
            cell(&predicted.name),
            images.to_string(),
            format!("{share:.1} %"),
        ]);
    }
    table
}
