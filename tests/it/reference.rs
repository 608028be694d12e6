//! docs/reference/keys.md, docs/reference/metrics.md, docs/reference/schema and docs/concepts/emulated.md are made of the
//! code, and what they say is tried on the readers of the files.

#[path = "reference/tables.rs"]
mod tables;
#[path = "../../crates/jobs/tests/it/valid.rs"]
mod valid;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Value, json};
use stokehold_jobs::{Channel, Job};
use stokehold_pipeline::Pipeline;
use stokehold_profile::{Ending, Recording, Sampler, Settings, Tree};
use stokehold_sagemaker::section;
use stokehold_trials::Plan;
use stokehold_tune::AUTO_LOGARITHMIC;

use stokehold_train::ACCELERATORS;
use stokehold_train::model::Arch;
use tables::{LOWER, Side, Tables, UPPER};
use valid::is_valid;

const AGAIN: &str =
    "write it again: STOKEHOLD_WRITE_DOCS=1 cargo test --release -p stokehold --test it the_reference_of";

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs")
}

/// Compares a document with what the code says. `STOKEHOLD_WRITE_DOCS=1` writes it.
fn compare(name: &str, text: &str) {
    let path = docs().join(name);
    if std::env::var_os("STOKEHOLD_WRITE_DOCS").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
    }
    let known = fs::read_to_string(&path).unwrap_or_default();
    assert!(known == text, "docs/{name} is not what the code says; {AGAIN}");
}

/// A table of a file that the user writes.
struct Table {
    /// Its heading in docs/reference/keys.md, and its place in a file.
    heading: &'static str,
    /// Its name in the schema; `None` for the whole file.
    definition: Option<&'static str>,
    place: &'static str,
    /// A file with this table, which has its required keys and no others.
    least: Value,
    /// Besides, for trying the ends of ranges: what other keys have to be.
    besides: Value,
}

type Read = fn(&Value) -> Result<Value, String>;

/// Reads a job file as `stokehold job run` does.
fn read_job(file: &Value) -> Result<Value, String> {
    with_file(file, |path| {
        let job = section::read(path).and_then(|job| section::check(&job).map(|()| job));
        Ok(serde_json::to_value(job.map_err(|error| error.to_string())?).unwrap())
    })
}

/// Reads a study file as `stokehold tune run` does.
fn read_study(file: &Value) -> Result<Value, String> {
    with_file(file, |path| {
        let plan = Plan::read(path).map_err(|error| error.to_string())?;
        Ok(serde_json::to_value(plan).unwrap())
    })
}

fn with_file(file: &Value, read: impl Fn(&Path) -> Result<Value, String>) -> Result<Value, String> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file.toml");
    fs::write(&path, toml::to_string(file).unwrap()).unwrap();
    read(&path)
}

/// The tables of a job file, in the order of the document.
fn tables_of_jobs() -> Vec<Table> {
    let job = |more: Value| merged(json!({"entry-point": "a.py"}), more);
    vec![
        Table {
            heading: "Job file",
            definition: None,
            place: "",
            least: job(json!({})),
            besides: json!({}),
        },
        Table {
            heading: "`[channels.NAME]`",
            definition: Some("Channel"),
            place: "/channels/t",
            least: job(json!({"channels": {"t": {"uri": "s3://b"}}})),
            besides: json!({"channels": {"t": {"mode": "Pipe"}}}),
        },
        Table {
            heading: "`[[metrics]]`",
            definition: Some("Metric"),
            place: "/metrics/0",
            least: job(json!({"metrics": [{"name": "m", "regex": "(.)"}]})),
            besides: json!({}),
        },
        Table {
            heading: "`[spot]`",
            definition: Some("Spot"),
            place: "/spot",
            least: job(json!({"spot": {}})),
            besides: json!({"max-run-seconds": 1, "spot": {"price": 1, "spot-price": 1}}),
        },
        Table {
            heading: "`[sagemaker]`",
            definition: Some("OnSageMaker"),
            place: "/sagemaker",
            least: job(json!({"sagemaker": {"role": "arn"}})),
            besides: json!({}),
        },
        Table {
            heading: "`[[sagemaker.instance-groups]]`",
            definition: Some("InstanceGroup"),
            place: "/sagemaker/instance-groups/0",
            least: job(json!({"sagemaker": {"role": "arn", "instance-groups":
                [{"name": "gpu", "instance-type": "ml.g5.xlarge", "instances": 1}]}})),
            besides: json!({}),
        },
        Table {
            heading: "`[profiler]`",
            definition: Some("Profiling"),
            place: "/profiler",
            least: job(json!({"profiler": {}})),
            besides: json!({}),
        },
    ]
}

/// The tables of a study file.
fn tables_of_studies() -> Vec<Table> {
    let study = |more: Value| {
        let least = json!({
            "study": {"objective": "m", "parameters": {"x": {"type": "continuous", "min": 1, "max": 2}}},
            "job": {"entry-point": "a.py", "metrics": [{"name": "m", "regex": "(.)"}]}
        });
        merged(least, json!({ "study": more }))
    };
    let categorical = json!({"type": "categorical", "values": [0, 1]});
    vec![
        Table {
            heading: "Study file",
            definition: None,
            place: "",
            least: study(json!({})),
            besides: json!({}),
        },
        Table {
            heading: "`[study]`",
            definition: Some("Spec"),
            place: "/study",
            least: study(json!({})),
            besides: json!({}),
        },
        Table {
            heading: "`[study.parameters.NAME]`",
            definition: Some("Parameter"),
            place: "/study/parameters/y",
            least: study(json!({"parameters": {"y": categorical}})),
            besides: json!({}),
        },
        Table {
            heading: "`[study.parameters.NAME.when]`",
            definition: Some("When"),
            place: "/study/parameters/x/when",
            least: study(
                json!({"parameters": {"y": categorical, "x": {"when": {"parameter": "y", "is": [0]}}}}),
            ),
            besides: json!({}),
        },
        Table {
            heading: "`[study.limits]`",
            definition: Some("Limits"),
            place: "/study/limits",
            least: study(json!({"limits": {}})),
            besides: json!({}),
        },
        Table {
            heading: "`[study.early-stopping]`",
            definition: Some("EarlyStopping"),
            place: "/study/early-stopping",
            least: study(json!({"early-stopping": {}})),
            besides: json!({}),
        },
        Table {
            heading: "`[study.rungs]`",
            definition: Some("Rungs"),
            place: "/study/rungs",
            least: study(json!({"strategy": "hyperband", "rungs": {"max-steps": 9}})),
            besides: json!({}),
        },
        Table {
            heading: "`[study.warm-start]`",
            definition: Some("WarmStart"),
            place: "/study/warm-start",
            least: study(json!({"warm-start": {"kind": "TransferLearning", "parents": ["p"]}})),
            besides: json!({}),
        },
    ]
}

/// docs/concepts/emulated.md: the accelerators and their speeds.
#[test]
fn the_reference_of_accelerators_is_true() {
    let models = Arch::CLASSIFIERS;
    let mut text = include_str!("reference/emulated.head.md").to_owned();
    let names: Vec<String> = models.iter().map(ToString::to_string).collect();
    writeln!(
        text,
        "| accelerator | precision | cores next to it | {} |",
        names.join(" | ")
    )
    .unwrap();
    writeln!(text, "|---|---|---:|{}", "---:|".repeat(models.len())).unwrap();
    for accelerator in ACCELERATORS {
        let speeds = models.map(|model| match accelerator.images_per_second(model) {
            (speed, false) => format!("{speed:.0}"),
            (speed, true) => format!("*{speed:.0}*"),
        });
        let (name, precision, cores) = (accelerator.name, accelerator.precision, accelerator.cores);
        writeln!(
            text,
            "| `{name}` | {precision} | {cores} | {} |",
            speeds.join(" | ")
        )
        .unwrap();
    }
    text += "\nSources:\n\n";
    for accelerator in ACCELERATORS {
        writeln!(text, "- `{}`: {}.", accelerator.name, accelerator.source).unwrap();
    }
    compare("concepts/emulated.md", &text);
}

/// Job files and study files: tables, schema, reader.
fn files() -> [(Vec<Table>, Value, Read); 2] {
    [
        (tables_of_jobs(), section::in_schema(Job::schema()), read_job),
        (tables_of_studies(), Plan::schema(), read_study),
    ]
}

fn merged(mut file: Value, more: Value) -> Value {
    match (&mut file, more) {
        (Value::Object(map), Value::Object(more)) => {
            for (key, value) in more {
                let before = map.remove(&key).unwrap_or(Value::Null);
                map.insert(key, merged(before, value));
            }
            file
        }
        (_, more) => more,
    }
}

impl Table {
    fn schema<'a>(&self, root: &'a Value) -> &'a Value {
        match self.definition {
            None => root,
            Some(name) => &root["$defs"][name],
        }
    }

    /// The file with a key of this table.
    fn with(&self, file: &Value, key: &str, value: Value) -> Value {
        let mut file = file.clone();
        file.pointer_mut(self.place).unwrap()[key] = value;
        file
    }

    fn without(&self, key: &str) -> Value {
        let mut file = self.least.clone();
        let table = file.pointer_mut(self.place).unwrap();
        table.as_object_mut().unwrap().remove(key).unwrap();
        file
    }

    fn keys<'a>(&self, root: &'a Value) -> impl Iterator<Item = (&'a String, &'a Value)> {
        self.schema(root)["properties"].as_object().unwrap().iter()
    }
}

#[test]
fn the_reference_of_keys_is_true() {
    let mut text = include_str!("reference/keys.head.md").to_owned();
    let heads = [
        include_str!("reference/job.head.md"),
        include_str!("reference/study.head.md"),
    ];
    let mut jobs_headings = BTreeMap::new();
    for ((places, root, _), head) in files().iter().zip(heads) {
        let mut headings: BTreeMap<&str, String> = places
            .iter()
            .filter_map(|table| Some((table.definition?, table.heading.to_owned())))
            .collect();
        // A study refers to the tables of its job.
        headings.append(&mut jobs_headings.clone());
        let of_file = Tables {
            root,
            side: Side::User,
            headings,
            shown: RefCell::default(),
        };
        text += head;
        of_file.table(root, &mut text);
        for name in places.iter().filter_map(|table| table.definition) {
            of_file.section(name, &mut text);
        }
        jobs_headings = of_file.headings;
        jobs_headings.insert("Job", "Job file".to_owned());
    }
    text += include_str!("reference/pipeline.head.md");
    let logarithmic = format!("max / min is {AUTO_LOGARITHMIC} or more");
    assert!(text.contains(&logarithmic), "where auto is logarithmic");
    compare("reference/keys.md", &text);
}

#[test]
fn the_reference_of_schemas_is_true() {
    let report = schemars::schema_for!(stokehold_compare::Report);
    let evaluation = schemars::schema_for!(stokehold_train::infer::Evaluation);
    let of_pixels = schemars::schema_for!(stokehold_train::infer::PixelEvaluation);
    for (name, schema) in [
        ("job", section::in_schema(Job::schema())),
        ("study", Plan::schema()),
        ("compare", report.into()),
        ("evaluation", evaluation.into()),
        ("evaluation-of-pixels", of_pixels.into()),
    ] {
        let text = serde_json::to_string_pretty(&schema).unwrap() + "\n";
        compare(&format!("reference/schema/{name}.json"), &text);
    }
}

/// A reader that meets an unknown key names all that it knows.
fn known_to(error: &str) -> BTreeSet<String> {
    let (_, known) = error
        .split_once("unknown field `no-such-key`, expected ")
        .unwrap_or_else(|| panic!("names no keys: {error}"));
    let known = known.lines().next().unwrap();
    known.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn every_key_of_the_readers_is_documented_and_no_other() {
    for (tables, root, read) in files() {
        for table in tables {
            let error = read(&table.with(&table.least, "no-such-key", json!(1))).unwrap_err();
            let documented: BTreeSet<String> = table.keys(&root).map(|(key, _)| key.clone()).collect();
            assert_eq!(known_to(&error), documented, "{}", table.heading);
        }
    }
    let error = Pipeline::from_toml("no-such-key = 1").unwrap_err().to_string();
    assert!(
        error.contains("unknown field `no-such-key`, expected `op`"),
        "{error}"
    );
    // A channel as a text: what follows a comma belongs to the URI, but for keys.
    for (key, _) in tables_of_jobs()[1].keys(&Job::schema()) {
        let is_key = Channel::parse(&format!("u,{key}=@")).map_or(true, |channel| channel.uri == "u");
        assert_eq!(is_key, key != "uri", "{key}");
    }
}

/// The scalar types of a file have a default that is written; everything else is left out or empty.
fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    }
}

#[test]
fn documented_defaults_are_those_of_the_readers() {
    for (tables, root, read) in files() {
        for table in tables {
            let file = read(&table.least).unwrap_or_else(|error| panic!("{}: {error}", table.heading));
            let made = file.pointer(table.place).unwrap();
            let given = table.least.pointer(table.place).unwrap();
            let required: Vec<&str> = match table.schema(&root)["required"].as_array() {
                Some(keys) => keys.iter().map(|key| key.as_str().unwrap()).collect(),
                None => Vec::new(),
            };
            for (key, rule) in table.keys(&root) {
                let place = format!("{}: {key}", table.heading);
                if required.contains(&key.as_str()) {
                    let error = read(&table.without(key)).err();
                    let says = format!("missing field `{key}`");
                    assert!(
                        error.as_ref().is_some_and(|error| error.contains(&says)),
                        "{place}: {error:?}"
                    );
                } else if given.get(key).is_none() {
                    let (default, made) = (&rule["default"], &made[key]);
                    let is_same = default == made || is_nothing(default) && is_nothing(made);
                    assert!(is_same, "{place} is {made} by default, and not {default}");
                }
            }
        }
    }
}

#[test]
fn documented_ranges_are_those_of_the_readers() {
    let mut tried = 0;
    for (tables, root, read) in files() {
        for table in tables {
            let file = merged(table.least.clone(), table.besides.clone());
            for (key, rule) in table.keys(&root) {
                for word in LOWER.iter().chain(&UPPER) {
                    let Some(bound) = rule.get(*word) else { continue };
                    let is_integer = rule["type"] == "integer" || rule["type"][0] == "integer";
                    for (value, is_allowed) in around(key, word, bound, is_integer) {
                        let read = read(&table.with(&file, key, value.clone()));
                        assert_eq!(
                            read.is_ok(),
                            is_allowed,
                            "{}: {key} = {value} with {word} {bound}: {read:?}",
                            table.heading
                        );
                        tried += 1;
                    }
                }
            }
        }
    }
    assert!(tried > 40, "{tried}");
}

/// Values on both sides of a bound, and whether they are allowed.
fn around(key: &str, word: &str, bound: &Value, is_integer: bool) -> [(Value, bool); 2] {
    let item = |i: u64| match key {
        "parents" => json!(format!("study-{i}")),
        _ => json!(i),
    };
    let list = |length: u64| Value::Array((0..length).map(item).collect());
    let near = |step: f64| match (is_integer, bound.as_i64()) {
        (true, Some(bound)) => json!(bound + step as i64),
        _ => json!(bound.as_f64().unwrap() + step * 1e-4),
    };
    match word {
        "minimum" => [(near(0.0), true), (near(-1.0), false)],
        "maximum" => [(near(0.0), true), (near(1.0), false)],
        "exclusiveMinimum" => [(near(1.0), true), (bound.clone(), false)],
        "exclusiveMaximum" => [(near(-1.0), true), (bound.clone(), false)],
        "minItems" | "maxItems" => {
            let bound = bound.as_u64().unwrap();
            let beyond = if word == "minItems" { bound - 1 } else { bound + 1 };
            [(list(bound), true), (list(beyond), false)]
        }
        "minLength" => [(json!("m"), true), (json!(""), false)],
        other => panic!("{other}"),
    }
}

/// The keys that a parameter of a type has, and how they are described.
#[test]
fn each_type_of_a_parameter_has_the_documented_keys() {
    let root = Plan::schema();
    let table = &tables_of_studies()[2];
    let values = json!({"min": 1, "max": 2, "scaling": "linear", "values": [1], "value": 1});
    for (kind, required) in [
        ("continuous", vec!["max", "min"]),
        ("integer", vec!["max", "min"]),
        ("categorical", vec!["values"]),
        ("static", vec!["value"]),
    ] {
        let accepts = |keys: &[&str]| {
            let mut parameter = json!({ "type": kind });
            for key in keys {
                parameter[*key] = values[*key].clone();
            }
            let mut file = table.least.clone();
            *file.pointer_mut(table.place).unwrap() = parameter;
            read_study(&file).is_ok()
        };
        assert!(accepts(&required), "{kind}");
        for (key, rule) in table.keys(&root).filter(|(key, _)| values.get(key).is_some()) {
            let text = rule["description"].as_str().unwrap();
            let (of, _) = text.split_once(':').unwrap();
            let is_documented = of.contains(&format!("`{kind}`"));
            let is_required = required.contains(&key.as_str());
            let more: Vec<&str> = required.iter().copied().chain([key.as_str()]).collect();
            assert_eq!(accepts(&more), is_documented, "{kind}: {key}");
            let less: Vec<&str> = required.iter().copied().filter(|known| known != key).collect();
            assert_eq!(accepts(&less), !is_required, "{kind} without {key}");
            assert_eq!(
                is_documented && of.contains("require"),
                is_required,
                "{kind}: {key}: {text}"
            );
        }
    }
}

/// The texts of job files and study files in this repository, with the place of each.
fn examples() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = vec![
        ("job init".to_owned(), section::template()),
        ("tune init".to_owned(), Plan::template().to_owned()),
    ];
    for name in [
        "examples/job/job.toml",
        "examples/sagemaker/trainer/job.toml",
        "examples/tune/tune.toml",
    ] {
        found.push((name.to_owned(), fs::read_to_string(root.join(name)).unwrap()));
    }
    let mut documents = vec![root.join("GUIDE.md"), root.join("README.md")];
    documents.extend(crate::house::pages(&docs()));
    for path in documents
        .iter()
        .filter(|path| path.extension().is_some_and(|end| end == "md"))
    {
        let text = fs::read_to_string(path).unwrap();
        for block in text.split("\n```toml").skip(1) {
            let (_, block) = block.split_once('\n').unwrap();
            let (block, _) = block.split_once("\n```").unwrap();
            if block.contains("entry-point") || block.contains("[study]") {
                found.push((path.display().to_string(), block.to_owned()));
            }
        }
    }
    found
}

#[test]
fn every_example_is_what_its_schema_says() {
    let examples = examples();
    assert!(examples.len() >= 6, "{examples:?}");
    for (place, text) in examples {
        let value: Value = toml::from_str(&text).unwrap_or_else(|error| panic!("{place}: {error}"));
        let schema = match value.get("study") {
            Some(_) => Plan::schema(),
            None => section::in_schema(Job::schema()),
        };
        assert!(is_valid(&value, &schema, &schema), "{place}:\n{text}");
    }
    let study = &tables_of_studies()[0];
    let schema = Plan::schema();
    for (key, value, is_right) in [
        ("job", json!("job.toml"), true),
        ("job", json!(7), false),
        ("job", json!({"entry-point": "a.py", "entrypoint": "b"}), false),
        ("timeline", json!("yes"), false),
        ("studies", json!({}), false),
        (
            "study",
            json!({"objective": "m", "parameters": {"x": {"type": "real"}}}),
            false,
        ),
        (
            "study",
            json!({"objective": "m", "parameters": {"x": {"type": "static", "val": 1}}}),
            false,
        ),
    ] {
        let file = study.with(&study.least, key, value);
        assert_eq!(is_valid(&file, &schema, &schema), is_right, "{file}");
    }
}

/// The schema of what is written for a type.
fn written<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    settings.into_generator().into_root_schema_for::<T>().to_value()
}

/// A documented name of a module of `recording.rs`.
struct Item {
    name: String,
    text: String,
}

const SOURCE: &str = include_str!("../../crates/profile/src/recording.rs");

/// The constants of a module.
fn constants(head: &str) -> Vec<Item> {
    let begin = SOURCE.find(head).unwrap_or_else(|| panic!("no {head}")) + head.len();
    let block = &SOURCE[begin..begin + SOURCE[begin..].find("\n}").unwrap()];
    let (mut found, mut text) = (Vec::new(), Vec::new());
    for line in block.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if let Some(said) = line.strip_prefix("///") {
            text.push(said.trim());
            continue;
        }
        let name = line
            .strip_prefix("pub const ")
            .and_then(|item| item.split('"').nth(1));
        found.push(Item {
            name: name.unwrap_or_else(|| panic!("no constant: {line}")).to_owned(),
            text: std::mem::take(&mut text).join(" "),
        });
    }
    found
}

/// The series of a recording: type, names, dimension, meaning.
fn series() -> Vec<[String; 4]> {
    let each = constants("pub mod dimension {").into_iter().map(|item| {
        let (place, text) = item.text.split_once(": ").unwrap();
        let (kind, names) = place.split_once(", ").unwrap();
        [
            kind.replace('`', ""),
            names.to_owned(),
            item.name,
            text.to_owned(),
        ]
    });
    let mut all: Vec<_> = each.collect();
    all.sort();
    all
}

fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|c| c.to_uppercase().to_string());
    first.unwrap_or_default() + letters.as_str()
}

#[test]
fn the_reference_of_metrics_is_true() {
    let mut text = include_str!("reference/metrics.head.md").to_owned();
    let tables = |root, headings: &[(&'static str, &str)]| Tables {
        root,
        side: Side::Program,
        headings: headings
            .iter()
            .map(|(name, heading)| (*name, (*heading).to_owned()))
            .collect(),
        shown: RefCell::default(),
    };

    text += include_str!("reference/run.head.md");
    let root = written::<stokehold_train::run::MetricsLine>();
    let lines = tables(&root, &[]);
    for variant in root["oneOf"].as_array().unwrap() {
        let kind = variant["properties"]["kind"]["const"].as_str().unwrap();
        write!(text, "\n### `kind`: `{kind}`\n\n{}\n", lines.sentence(variant)).unwrap();
        let mut variant = variant.clone();
        variant["properties"]["kind"]["description"] = json!("What the line is about.");
        lines.table(&variant, &mut text);
    }

    text += include_str!("reference/summary.head.md");
    let root = written::<stokehold_train::RunSummary>();
    let headings = [
        ("Total", "Of `stages`"),
        ("Percentiles", "Of `cpu`"),
        ("DecodedBy", "Of `decoded`"),
        ("EmulatedUse", "Of `emulated`"),
        ("Validation", "Of `validation`"),
        ("Best", "Of `best`"),
        ("RanksSummary", "Of `ranks`"),
        ("CacheFacts", "Of `cache`"),
        ("RankTimes", "Of `times`"),
    ];
    let summary = tables(&root, &headings);
    summary.table(&root, &mut text);
    text += "\n| key of `stages` | what it says |\n|---|---|\n";
    for stage in written::<stokehold_train::Stage>()["oneOf"].as_array().unwrap() {
        writeln!(
            text,
            "| `{}` | {} |",
            stage["const"].as_str().unwrap(),
            summary.sentence(stage)
        )
        .unwrap();
    }
    for (name, _) in headings {
        summary.section(name, &mut text);
    }

    text += include_str!("reference/lines.head.md");
    let root = written::<stokehold_jobs::MetricsLine<'_>>();
    let lines = tables(&root, &[]);
    for variant in root["anyOf"].as_array().unwrap() {
        write!(text, "\n{}\n", lines.sentence(variant)).unwrap();
        lines.table(variant, &mut text);
    }

    text += include_str!("reference/state.head.md");
    let root = written::<stokehold_jobs::Record>();
    let headings = [
        ("Transition", "Of `transitions`"),
        ("FinalMetric", "Of `metrics`"),
        ("Bill", "Of `spot`"),
        ("Kept", "Of `checkpoints`"),
        ("Written", "Of `writes`"),
        ("Process", "Of `processes` and `runner`"),
        ("Submitted", "Of `slurm`"),
    ];
    let state = tables(&root, &headings);
    state.table(&root, &mut text);
    for (name, _) in headings {
        state.section(name, &mut text);
    }

    text += include_str!("reference/system.head.md");
    text += "\n| `Type` | `Name` | `Dimension` | what `Value` says |\n|---|---|---|---|\n";
    for [kind, names, dimension, meaning] in series() {
        writeln!(
            text,
            "| `{kind}` | {names} | `{dimension}` | {} |",
            sentence(&meaning)
        )
        .unwrap();
    }
    text += include_str!("reference/spans.head.md");
    text += "\n| `name` | what it says |\n|---|---|\n";
    for span in constants("pub mod span {") {
        writeln!(text, "| `{}` | {} |", span.name, span.text).unwrap();
    }
    text += include_str!("reference/recording.head.md");
    let root = written::<stokehold_profile::About>();
    let headings = [
        ("Machine", "Of `machine`"),
        ("Workload", "Of `workload`"),
        ("RanksSummary", "Of `workload.ranks`"),
        ("RankTimes", "Of `workload.ranks.times`"),
        ("Alternative", "Of `alternatives`"),
        ("ScriptLoader", "Of `script`"),
        ("Change", "Of `change`"),
    ];
    let about = tables(&root, &headings);
    about.table(&root, &mut text);
    for (name, heading) in headings {
        match root["$defs"][name].get("oneOf") {
            None => about.section(name, &mut text),
            Some(_) => {
                let change = about.definition(name);
                write!(text, "\n### {heading}\n\n{}\n", about.sentence(change)).unwrap();
                about.variants("kind", change, &mut text);
            }
        }
    }
    let interval = format!("{} ms unless the recorder is", Settings::INTERVAL.as_millis());
    assert!(text.contains(&interval), "the usual interval");
    compare("reference/metrics.md", &text);
}

/// Whether a series of a recording has one of the documented names: `cpuN`, `PID NAME`, or the name itself.
fn has_name(names: &str, name: &str) -> bool {
    names.split('`').skip(1).step_by(2).any(|known| {
        let numbered = known
            .strip_suffix('N')
            .and_then(|stem| name.strip_prefix(stem))
            .is_some_and(|number| number.parse::<u32>().is_ok());
        let is_process = || {
            let pid = name.split_once(' ').map(|(pid, _)| pid.parse::<u32>());
            known == "PID NAME" && pid.is_some_and(|pid| pid.is_ok())
        };
        known == name || numbered || is_process()
    })
}

#[test]
#[cfg(target_os = "linux")]
fn every_series_of_a_recording_is_documented() {
    let documented = series();
    let dir = tempfile::tempdir().unwrap();
    let settings = Settings {
        interval: Duration::from_millis(100),
        ..Settings::new(Tree::Of(std::process::id()), Vec::new())
    };
    let sampler = Sampler::start(dir.path(), settings).unwrap();
    // The processes are looked at twice a second.
    std::thread::sleep(Duration::from_millis(1500));
    sampler.stop(Ending::default()).unwrap();
    let recording = Recording::open(dir.path()).unwrap();
    let mut kinds = BTreeSet::new();
    for found in &recording.nodes[0].series {
        let is_same = |[kind, names, dimension, _]: &&[String; 4]| {
            (kind, dimension) == (&found.kind, &found.dimension) && has_name(names, &found.name)
        };
        assert!(
            documented.iter().any(|known| is_same(&known)),
            "{} {} {}",
            found.kind,
            found.name,
            found.dimension
        );
        kinds.insert(found.kind.clone());
    }
    assert!(kinds.len() >= 5, "{kinds:?}");
}

/// What is documented and never recorded would be found by no one.
#[test]
fn every_documented_series_is_recorded_somewhere() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/profile/src");
    let mut code = fs::read_to_string(root.join("sampler.rs")).unwrap();
    for entry in fs::read_dir(root.join("probe")).unwrap() {
        let text = fs::read_to_string(entry.unwrap().path()).unwrap();
        code += text.split("#[cfg(test)]").next().unwrap();
    }
    let begin = SOURCE.find("pub mod dimension {").unwrap();
    let block = &SOURCE[begin..begin + SOURCE[begin..].find("\n}").unwrap()];
    let names = block
        .lines()
        .filter_map(|line| line.trim().strip_prefix("pub const ")?.split(':').next());
    for name in names {
        let is_used = code.split("dimension::").any(|after| {
            after
                .strip_prefix(name)
                .is_some_and(|rest| !rest.starts_with(|c: char| c == '_' || c.is_alphanumeric()))
        });
        assert!(is_used, "no probe records {name}");
    }
}
