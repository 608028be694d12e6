use serde_json::json;
use stokehold_profile::{About, Node, Series, Span, dimension, span};

use super::*;
use crate::curves::Point;
use crate::rules::{Defaults, Evidence, Parameters, judge};

/// A name that tries everything.
const HOSTILE: &str =
    "</script><script>alert(1)</script><!-- ]]> \"'& \u{202e}\u{0}\u{1b}[31m\u{2028}\u{ffff}";

/// A run of `seconds` at 500 ms with a step each second, half of it waited for; names are given.
fn run(cores: usize, gpus: usize, seconds: usize, name: &str) -> Recording {
    let mut node = Node {
        name: name.to_owned(),
        ticks: (1..=2 * seconds).map(|tick| 1.6e9 + tick as f64 / 2.0).collect(),
        ..Node::default()
    };
    let ticks = node.ticks.len();
    let mut series = |kind: &str, name: String, dimension: &str, busy: usize| {
        node.series.push(Series {
            kind: kind.to_owned(),
            name,
            dimension: dimension.to_owned(),
            values: (0..ticks)
                .map(|tick| ((tick * 7 + busy * 31) % 101) as f32)
                .collect(),
        });
    };
    for core in 0..cores {
        series("cpu", format!("cpu{core}"), dimension::CPU, core);
        series("cpu", format!("cpu{core}"), dimension::IO_WAIT, core + 3);
    }
    for gpu in 0..gpus {
        series("gpu", format!("gpu{gpu}"), dimension::GPU, gpu);
        series("gpu", format!("gpu{gpu}"), dimension::GPU_MEMORY, gpu + 1);
    }
    if ticks > 0 {
        series("process", format!("77 {name}"), dimension::PROCESS_CPU, 1);
        series(name, name.to_owned(), name, 1);
    }
    for second in 0..seconds {
        let at = 1.6e9 + second as f64;
        let each = [
            (span::WAIT, 0.0, None),
            (span::STEP, 0.5, None),
            (span::DECODE, 0.1, Some(1)),
            (name, 0.2, Some(2)),
        ];
        for (of, after, worker) in each {
            let name = node.name(of);
            node.spans.push(Span {
                name,
                start: at + after,
                duration: 0.5,
                step: Some(second as u64),
                worker,
                bytes: None,
            });
        }
    }
    let mut recording = Recording {
        path: format!("runs/{}", name.replace('\0', "")).into(),
        nodes: vec![node],
        problems: vec![format!("{name}: line 3: {name}")],
        about: Some(About {
            stokehold: "0.1.0".to_owned(),
            command: vec!["python3".to_owned(), name.to_owned()],
            started: 1.6e9 - 5.0,
            ended: Some(1.6e9 + seconds as f64 + 1.0),
            exit_code: Some(1),
            interval_ms: 500,
            machine: stokehold_profile::Machine::here(),
            workload: None,
            paused: None,
            idle_seconds: 0.0,
            notes: vec![name.to_owned()],
        }),
    };
    recording.sort();
    recording
}

fn findings(name: &str) -> Vec<Finding> {
    let usage = |max: f64| json!({"max": max, "p99": 99.0, "p95": 95.0, "p50": 50.25, "min": 0.0});
    let of = |rule, triggered, details| Finding {
        rule,
        triggered,
        judged: true,
        violations: 3,
        datapoints: 40,
        parameters: vec![("threshold", "50".to_owned()), ("patience", "1000".to_owned())],
        details,
        summary: format!("Cores of {name} were full."),
        recommendation: format!("Give {name} more cores."),
        evidence: vec![Evidence {
            from: 1.6e9 + 1.0,
            to: 1.6e9 + 3.0,
            node: name.to_owned(),
            what: name.to_owned(),
            steps: Some((1, 3)),
        }],
    };
    vec![
        of(
            "CPUBottleneck",
            true,
            json!({"bottlenecks": {}, "low_gpu_utilization": 1}),
        ),
        of(
            "OverallSystemUsage",
            false,
            json!({"CPU": {name: usage(100.0)}, "Network": {name: usage(5e6)}}),
        ),
    ]
}

fn contents<'a>(recording: &'a Recording, findings: &'a [Finding], verdict: &'a str) -> Contents<'a> {
    Contents {
        recording,
        findings,
        verdict,
        advice: &[],
        machines: None,
        curves: &[],
        currency: "USD",
    }
}

/// Parses a page as XML, which any error ends, and returns what its data element holds.
fn parsed(page: &str) -> Value {
    let options = roxmltree::ParsingOptions {
        allow_dtd: true,
        ..Default::default()
    };
    let document = roxmltree::Document::parse_with_options(page, options).unwrap();
    let scripts: Vec<_> = document
        .descendants()
        .filter(|node| node.has_tag_name("script"))
        .collect();
    assert_eq!(scripts.len(), 2, "the page's own two");
    // What an HTML parser takes for the end of a script.
    assert_eq!(page.matches("</script").count(), 2);
    assert_eq!(page.matches("<script").count(), 2);
    assert_eq!(page.matches("<!--").count(), 0);
    for node in document.descendants() {
        for attribute in node.attributes() {
            assert!(!attribute.name().starts_with("on"), "{attribute:?}");
            assert!(!["src", "href"].contains(&attribute.name()), "{attribute:?}");
        }
    }
    for word in ["NaN", "inf\"", "url(", "@import", "http:", "https:"] {
        let outside: String = page.replace("http://www.w3.org/2000/svg", "");
        assert!(!outside.contains(word), "{word}");
    }
    serde_json::from_str(scripts[0].text().unwrap()).unwrap()
}

#[test]
fn a_page_is_well_formed_whatever_names_are() {
    for name in ["algo-1", HOSTILE, &"long ".repeat(10_000)] {
        let (recording, findings) = (run(3, 2, 40, name), findings(name));
        let page = page::page(&contents(&recording, &findings, name));
        let data = parsed(&page);
        assert_eq!(data[0]["nodes"][0]["name"], recording.nodes[0].name);
        let row = "<td class=\"word\" data-is=\"Rule\">CPUBottleneck</td><td class=\"word\" data-is=\"Triggered\">yes</td>";
        assert!(page.contains(row));
        assert!(page.len() < 1_500_000, "{}", page.len());
        let other = run(2, 0, 20, name);
        let pair = pair::page(
            None,
            [
                &contents(&recording, &findings, name),
                &contents(&other, &findings, name),
            ],
        );
        assert_eq!(parsed(&pair).as_array().unwrap().len(), 2);
        let heading = Heading {
            eyebrow: name,
            headline: name,
        };
        let pair = pair::page(Some(&heading), [&contents(&recording, &findings, name); 2]);
        assert_eq!(parsed(&pair).as_array().unwrap().len(), 2);
    }
}

#[test]
fn a_pair_has_the_heading_that_its_caller_gives_and_the_notes_of_both_once() {
    let (mut a, mut b) = (run(2, 0, 20, "algo-1"), run(2, 0, 20, "algo-1"));
    for (recording, own) in [(&mut a, "of A alone"), (&mut b, "of B alone")] {
        recording.about.as_mut().unwrap().notes = vec!["of both".to_owned(), own.to_owned()];
    }
    let heading = Heading {
        eyebrow: "measured in turns",
        headline: "B is 7 % faster",
    };
    let pair = pair::page(
        Some(&heading),
        [&contents(&a, &[], "A."), &contents(&b, &[], "B.")],
    );
    for text in [
        "<p class=\"eyebrow\">measured in turns</p>",
        "<h1>B is 7 % faster</h1>",
        "<li>of both</li>",
        "<li>of A alone</li>",
        "<li>of B alone</li>",
    ] {
        assert_eq!(pair.matches(text).count(), 1, "{text}");
    }
}

/// The cells of a rule's row.
fn row_of<'a>(page: &'a str, rule: &str) -> &'a str {
    let row = page
        .split(&format!("<td class=\"word\" data-is=\"Rule\">{rule}</td>"))
        .nth(1);
    row.unwrap().split("</tr>").next().unwrap()
}

#[test]
fn a_rule_that_could_not_judge_is_not_one_that_found_nothing() {
    let recording = run(2, 0, 20, "algo-1");
    let findings = judge(&recording, &Parameters::new(Defaults::default()));
    let page = page::page(&contents(&recording, &findings, "Fine."));
    let gpus = row_of(&page, "LowGPUUtilization");
    assert!(gpus.contains("data-is=\"Triggered\">not judged</td>"), "{gpus}");
    assert!(gpus.contains("Not judged: no GPU was recorded."), "{gpus}");
    assert!(row_of(&page, "OverallSystemUsage").contains("data-is=\"Triggered\">no</td>"));
    let pair = pair::page(
        None,
        [
            &contents(&recording, &findings, "Fine."),
            &contents(&recording, &findings, "Fine."),
        ],
    );
    assert!(pair.contains("data-is=\"A\">Not judged: no GPU was recorded.</td>"));
    // What helps stands with what was found, and there is no column of nothing.
    assert!(!page.contains("Recommendation"));
}

#[test]
fn gpus_of_several_machines_have_their_own_names() {
    let mut recording = run(1, 8, 20, "algo-1");
    let mut other = run(1, 8, 20, "algo-2-with-a-long-name-of-its-machine").nodes;
    recording.nodes.append(&mut other);
    let page = page::page(&contents(&recording, &[], "Fine."));
    let mut names: Vec<&str> = page
        .split("<text class=\"label end\"")
        .skip(1)
        .map(|text| text.split(['>', '<']).nth(1).unwrap())
        .collect();
    assert_eq!(names.len(), 16);
    assert_eq!(names[0], "algo-1 gpu0");
    assert!(
        names[8].starts_with("algo-2") && names[8].ends_with(" gpu0"),
        "{names:?}"
    );
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), 16, "{names:?}");
}

#[test]
fn of_many_machines_the_page_shows_some_and_says_so() {
    let mut sizes = Vec::new();
    for (machines, said) in [
        (MACHINES, None),
        (
            MACHINES + 1,
            Some("64 machines by name are shown one by one, and 1 more is not"),
        ),
        (
            1000,
            Some("64 machines by name are shown one by one, and 936 more are not"),
        ),
    ] {
        let mut recording = run(2, 1, 5, "algo-1");
        for number in 2..=machines {
            let mut node = recording.nodes[0].clone();
            node.name = format!("algo-{number}");
            recording.nodes.push(node);
        }
        let findings = judge(&recording, &Parameters::new(Defaults::default()));
        let contents = contents(&recording, &findings, "Fine.");
        let data = data::of(&recording, &findings, "").unwrap();
        assert_eq!(data["nodes"].as_array().unwrap().len(), MACHINES);
        for page in [page::page(&contents), pair::page(None, [&contents, &contents])] {
            assert_eq!(page.contains("are shown one by one"), said.is_some());
            assert!(page.contains(said.unwrap_or_default()));
            assert!(page.contains(&format!("on {machines} machines.")));
            let beyond = page
                .find("algo-66")
                .map(|at| &page[at.saturating_sub(200)..at + 20]);
            assert!(page.contains("algo-64") && beyond.is_none(), "{beyond:?}");
            sizes.push(page.len());
        }
    }
    // 1000 machines take the place of 64, but for longer numbers.
    for (few, many) in [(sizes[0], sizes[4]), (sizes[1], sizes[5])] {
        assert!(many < few + few / 10, "{sizes:?}");
    }
}

#[test]
fn what_an_epoch_costs_is_said_with_its_currency() {
    let recording = run(1, 0, 3, "algo-1");
    let advice = Advice {
        change: stokehold_profile::workload::Change::Shards,
        title: "prepared shards".to_owned(),
        seconds_per_epoch: 0.5,
        seconds_at_best: Some(0.25),
        gain_seconds: 0.5,
        gain_percent: 50.0,
        cost_per_epoch: Some(0.000_012_3),
        saved_per_epoch: None,
        why: String::new(),
        flags: Vec::new(),
    };
    let page = page::page(&Contents {
        advice: &[advice],
        machines: None,
        ..contents(&recording, &[], "Fine.")
    });
    assert!(
        page.contains(">0.000012 USD</td>") && page.contains(">0.25 to 0.50</td>"),
        "{page}"
    );
}

#[test]
fn what_is_missing_is_said() {
    let empty = Recording::default();
    let page_of = |recording: &Recording| {
        let page = page::page(&contents(recording, &[], "Nothing is known."));
        parsed(&page);
        page
    };
    let page = page_of(&empty);
    for text in [
        "No sample was recorded",
        "No moment of this run",
        "No step and no phase",
        "No rule has judged",
    ] {
        assert!(page.contains(text), "{text}");
    }
    assert!(!page.contains("<svg"));

    let no_steps = run(2, 0, 0, "algo-1");
    assert!(page_of(&no_steps).contains("No sample was recorded"));
    let mut no_steps = run(2, 0, 10, "algo-1");
    no_steps.nodes[0].spans.clear();
    let page = page_of(&no_steps);
    assert!(page.contains("No steps were recorded") && page.contains("No GPU was recorded"));
    let mut no_samples = run(0, 0, 10, "algo-1");
    no_samples.nodes[0].ticks.clear();
    no_samples.nodes[0].series.clear();
    assert!(page_of(&no_samples).contains("No sample of the machine was recorded; only steps are drawn"));
    let mut one_tick = run(2, 1, 1, "algo-1");
    one_tick.nodes[0].ticks.truncate(1);
    for series in &mut one_tick.nodes[0].series {
        series.values = vec![f32::NAN];
    }
    page_of(&one_tick);
    let pair = pair::page(
        None,
        [&contents(&empty, &[], "A."), &contents(&one_tick, &[], "B.")],
    );
    parsed(&pair);
}

/// The published sample reads `Details.CPU["algo-1"].p50`.
#[test]
fn files_have_the_published_names_and_shapes() {
    let folder = tempfile::tempdir().unwrap();
    let (recording, findings) = (run(1, 0, 3, "algo-1"), findings("algo-1"));
    let place = folder_in(&folder.path().join(FOLDER), &recording);
    // The run began at 1.6e9 - 5 s, whenever the report is made.
    assert_eq!(place, folder_in(folder.path(), &recording));
    assert!(place.ends_with(format!("rule-output/ProfilerReport-1599999995/{FOLDER}")));
    let page = write(&contents(&recording, &findings, "All is well."), &place).unwrap();
    assert_eq!(page, place.join("profiler-report.html"));
    let below = place
        .strip_prefix(folder.path())
        .unwrap()
        .to_str()
        .unwrap()
        .to_owned();
    let name = below
        .strip_prefix("rule-output/ProfilerReport-")
        .and_then(|rest| rest.strip_suffix("/profiler-output"))
        .unwrap();
    assert_eq!(name.len(), 10, "{name}");

    let read = |rule: &str| -> Value {
        let text = fs::read_to_string(place.join(format!("profiler-reports/{rule}.json"))).unwrap();
        serde_json::from_str(&text).unwrap()
    };
    let usage = read("OverallSystemUsage");
    assert_eq!(usage["Details"]["CPU"]["algo-1"]["p50"].as_f64(), Some(50.25));
    assert_eq!(usage["Details"]["CPU"]["algo-1"]["p99"].as_f64(), Some(99.0));
    let bottleneck = read("CPUBottleneck");
    let keys: Vec<&String> = bottleneck.as_object().unwrap().keys().collect();
    assert_eq!(
        keys,
        [
            "Datapoints",
            "Details",
            "RuleParameters",
            "RuleTriggered",
            "Violations"
        ]
    );
    assert_eq!(bottleneck["RuleTriggered"], 1);
    assert_eq!(bottleneck["RuleParameters"], "threshold:50\npatience:1000");
    let left: Vec<_> = fs::read_dir(&place)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(left.len(), 2, "{left:?}");
}

#[test]
fn a_folder_that_cannot_be_written_is_named() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let recording = run(1, 0, 3, "algo-1");
    let error = write(&contents(&recording, &[], ""), file.path()).unwrap_err();
    assert!(matches!(error, ProfileError::Io { .. }), "{error}");
}

/// Curves are drawn over the run's time, with the best point and what is no number; their names are anybody's.
#[test]
fn curves_are_drawn() {
    let recording = stokehold_simulate::Simulation::default().recording();
    let (from, to) = recording.extent().unwrap();
    let curve = |name: &str, values: &[f64]| Curve {
        name: name.to_owned(),
        counts: "epoch",
        points: values
            .iter()
            .enumerate()
            .map(|(place, &value)| Point {
                time: from + (to - from) * place as f64 / values.len() as f64,
                step: Some(place as u64 + 1),
                value,
            })
            .collect(),
    };
    let curves = [
        curve("val_loss", &[2.0, 1.5, 1.75, f64::NAN]),
        curve("loss <b>", &[2.0, 1.0, 0.5]),
        curve("top1", &[0.25]),
        curve("lr", &[0.1, 0.1]),
    ];
    let page = page::page(&Contents {
        curves: &curves,
        ..contents(&recording, &[], "Fine.")
    });
    parsed(&page);
    for expected in [
        "Losses",
        "Accuracies",
        "best 1.5 at epoch 2",
        "val_loss is not a number at ",
        "loss &lt;b&gt;",
        "class=\"line s1\"",
    ] {
        assert!(page.contains(expected), "{expected}");
    }
}
