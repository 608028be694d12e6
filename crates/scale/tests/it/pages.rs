//! The page, the text, and the published example in the documents.

use stokehold_scale::page::page;
use stokehold_scale::{Cluster, Network, Prediction, Run, Settings, predict, text};

use crate::published;

/// The published run, with a loader of so many images per second and GPU.
pub fn example(loader_rate: Option<f64>, machines: &[u64]) -> Prediction {
    let dir = tempfile::tempdir().unwrap();
    published::write(dir.path()).unwrap();
    let settings = Settings {
        images: Some(109_440),
        batch: Some(4),
        parameters: Some(61_000_000),
        loader_rate,
        ..Settings::default()
    };
    let run = Run::read(dir.path(), &settings).unwrap();
    let cluster = Cluster {
        machines: machines.to_vec(),
        gpus: 8,
        network: Network::ethernet(25).unwrap(),
        ..Cluster::default()
    };
    predict(&run, &cluster).unwrap()
}

#[test]
fn the_documents_show_what_the_program_prints() {
    let guide = include_str!("../../../../docs/guide/scale.md");
    let readme = include_str!("../../README.md");
    let shown = text(&example(None, &[1, 5, 8]), "USD");
    assert!(
        guide.contains(&shown),
        "docs/guide/scale.md does not have\n{shown}"
    );
    let untuned = text(&example(Some(4.0), &[1, 5]), "USD");
    let table = untuned.split("\n\n").next().unwrap();
    assert!(
        guide.contains(table),
        "docs/guide/scale.md does not have\n{table}"
    );
    let table = shown.split("\n\n").next().unwrap();
    assert!(readme.contains(table), "README.md does not have\n{table}");
}

/// 57 minutes on a machine, 6 on five with a better loader, and 93 % at 64 GPUs.
#[test]
fn the_published_run_is_repeated() {
    let minutes = |prediction: &Prediction, size: usize| prediction.sizes[size].seconds_per_epoch / 60.0;
    let before = example(Some(4.0), &[1]);
    assert!(
        (minutes(&before, 0) - 57.0).abs() < 0.5,
        "{}",
        minutes(&before, 0)
    );
    let after = example(None, &[1, 5, 8]);
    assert!((minutes(&after, 1) - 6.0).abs() < 0.5, "{}", minutes(&after, 1));
    let efficiency = after.sizes[2].efficiency;
    assert!((efficiency - 0.93).abs() < 0.03, "{efficiency}");
}

#[test]
fn a_page_is_well_formed_and_has_every_size() {
    for (rate, machines) in [
        (None, vec![1, 2, 4, 8, 16, 64]),
        (Some(4.0), vec![3]),
        (None, (1..=40).collect()),
    ] {
        let mut prediction = example(rate, &machines);
        for size in &mut prediction.sizes {
            size.cost_per_epoch = Some(1.0);
        }
        prediction.cluster.price = Some(1.0);
        let html = page(&prediction, "runs/<one> & \"two\"", "USD");
        let document = roxmltree::Document::parse(html.trim_start_matches("<!DOCTYPE html>")).unwrap();
        let rows = document
            .descendants()
            .filter(|node| node.has_tag_name("tr"))
            .count();
        assert_eq!(rows, 2 * (machines.len() + 1));
        let published = document
            .descendants()
            .filter(|node| node.attribute("class") == Some("published"));
        assert_eq!(published.count(), 1);
        for number in document
            .descendants()
            .flat_map(|node| node.attributes().collect::<Vec<_>>())
        {
            assert!(
                !number.value().contains("NaN") && !number.value().contains("inf"),
                "{number:?}"
            );
        }
    }
}
