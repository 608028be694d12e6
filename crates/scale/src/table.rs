//! Predictions as tables.

use stokehold_page::Table;
use stokehold_page::words::{digits, duration, share};

use crate::{Cause, Prediction};

/// What each number of machines takes, reaches and costs.
pub fn table(prediction: &Prediction, currency: &str) -> Table {
    let price = prediction.cluster.price;
    let mut head = vec![
        "machines",
        "GPUs",
        "batch",
        "steps",
        "step",
        "epoch",
        "images/s",
        "efficiency",
    ];
    let cost = format!("{currency}/epoch");
    if price.is_some() {
        head.push(&cost);
    }
    head.extend(["reduce", "limited by"]);
    let mut table = Table::new(&head, &[head.len() - 2, head.len() - 1]);
    for size in &prediction.sizes {
        let mut row = vec![
            size.machines.to_string(),
            size.ranks.to_string(),
            size.batch.to_string(),
            size.steps.to_string(),
            duration(size.seconds_per_step),
            duration(size.seconds_per_epoch),
            digits(size.images_per_second),
            share(size.efficiency, 1.0),
        ];
        row.extend(size.cost_per_epoch.map(money));
        row.push(
            size.algorithm
                .map_or("–".to_owned(), |algorithm| algorithm.to_string()),
        );
        row.push(
            size.limit
                .map_or("computing".to_owned(), |cause| cause.to_string()),
        );
        table.row(row);
    }
    table
}

/// An amount with at least two decimals and two digits, however small it is.
fn money(cost: f64) -> String {
    let size = cost.log10().floor();
    let decimals = if size.is_finite() {
        (1.0 - size).clamp(2.0, 12.0)
    } else {
        2.0
    };
    format!("{cost:.*}", decimals as usize)
}

/// Where an epoch goes, in shares of it.
pub fn losses(prediction: &Prediction) -> Table {
    let mut head = vec!["machines", "computing"];
    head.extend(Cause::ALL.map(Cause::name));
    let mut table = Table::new(&head, &[]);
    for size in &prediction.sizes {
        let shares = size.lost.iter().map(|lost| lost.seconds);
        let row = std::iter::once(size.computing_seconds)
            .chain(shares)
            .map(|seconds| share(seconds, size.seconds_per_epoch));
        table.row(std::iter::once(size.machines.to_string()).chain(row));
    }
    table
}

/// Everything for a terminal: both tables, what limits, and what the prediction stands on.
pub fn text(prediction: &Prediction, currency: &str) -> String {
    let mut text = table(prediction, currency).text();
    text += "\nwhere an epoch goes\n";
    text += &losses(prediction).text();
    text += "\nwhat limits, and what would lift it\n";
    for size in &prediction.sizes {
        text += &format!("  {}\n", size.limited());
        for lift in &size.lifts {
            text += &format!("    {lift}\n");
        }
    }
    text += "\nwhat this stands on\n";
    for assumption in &prediction.assumptions {
        text += &format!("  {assumption}\n");
    }
    if let Some(repeated) = prediction.repeated {
        text += &format!("  {repeated}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_amounts_have_digits() {
        let said = [0.0, 0.00345, 0.5, 12.345, 1234.5].map(money);
        assert_eq!(said, ["0.00", "0.0034", "0.50", "12.35", "1234.50"]);
    }
}
