//! The tables of rules in the documentation are those of the code.

use std::fmt::Write;
use std::path::Path;

use stokehold_diagnose::rules::{Defaults, Parameter, Parameters, Rule, judge};
use stokehold_profile::Recording;

/// `docs/reference/rules.md`. `STOKEHOLD_WRITE_DOCS=1` writes it.
#[test]
fn the_reference_of_rules_is_true() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/rules.md");
    let text = reference();
    if std::env::var_os("STOKEHOLD_WRITE_DOCS").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let known = std::fs::read_to_string(&path).unwrap();
    assert!(
        known == text,
        "write docs/reference/rules.md again: STOKEHOLD_WRITE_DOCS=1 cargo test --release -p stokehold-diagnose"
    );
}

fn reference() -> String {
    let mut text = include_str!("rules.head.md").to_owned();
    text += "| rule | detects |\n|---|---|\n";
    for rule in Rule::ALL {
        writeln!(
            text,
            "| [{0}](#{1}) | {2} |",
            rule.name,
            rule.name.to_lowercase(),
            rule.detects
        )
        .unwrap();
    }
    let sets = [Defaults::Stokehold, Defaults::RulesConfig, Defaults::Guide]
        .map(|defaults| judge(&Recording::default(), &Parameters::new(defaults)));
    for (at, rule) in Rule::ALL.iter().enumerate() {
        write!(text, "\n## {}\n\nDetects {}. ", rule.name, rule.detects).unwrap();
        if rule.parameters.is_empty() {
            text += "It has no parameters.\n";
            continue;
        }
        text += "\n\n| parameter | | takes | stokehold | rulesconfig | guide |\n|---|---|---|---|---|---|\n";
        text = text.replace(". \n\n|", ".\n\n|");
        for Parameter {
            name, meaning, range, ..
        } in rule.parameters
        {
            let value = |set: &[stokehold_diagnose::rules::Finding]| {
                set[at]
                    .parameters
                    .iter()
                    .find(|(known, _)| known == name)
                    .unwrap()
                    .1
                    .clone()
            };
            let [ours, config, guide] = sets.each_ref().map(|set| value(set));
            writeln!(
                text,
                "| `{name}` | {meaning} | {range} | {ours} | {config} | {guide} |"
            )
            .unwrap();
        }
    }
    text
}

/// The front page of the rules has every rule with what it detects, in the order in which they are judged.
#[test]
fn the_front_page_lists_every_rule() {
    let page = include_str!("../../../src/rules/mod.rs");
    let rows: Vec<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("//! | `"))
        .collect();
    let expected: Vec<String> = Rule::ALL
        .iter()
        .map(|rule| format!("{}` | {} |", rule.name, rule.detects))
        .collect();
    assert_eq!(rows, expected);
}
