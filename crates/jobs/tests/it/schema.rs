//! The schema of job files says what their reader says.

use std::fs;

use serde_json::Value;
use stokehold_jobs::Job;

/// Whether a value is what a schema wants. Knows the words that our schema is made of, and no others.
fn is_valid(value: &Value, schema: &Value, root: &Value) -> bool {
    let Some(rules) = schema.as_object() else {
        return schema == &Value::Bool(true);
    };
    let valid = |schema: &Value| is_valid(value, schema, root);
    rules.iter().all(|(word, rule)| match word.as_str() {
        "$schema" | "$defs" | "title" | "description" | "default" | "format" => true,
        "$ref" => {
            let name = rule.as_str().unwrap().strip_prefix("#/$defs/").unwrap();
            valid(&root["$defs"][name])
        }
        "type" => match rule {
            Value::Array(types) => types.iter().any(|rule| is_of_type(value, rule)),
            rule => is_of_type(value, rule),
        },
        "enum" => rule.as_array().unwrap().contains(value),
        "const" => rule == value,
        "anyOf" => rule.as_array().unwrap().iter().any(valid),
        "oneOf" => rule.as_array().unwrap().iter().filter(|rule| valid(rule)).count() == 1,
        "minimum" => value.as_f64().is_none_or(|value| value >= rule.as_f64().unwrap()),
        "maximum" => value.as_f64().is_none_or(|value| value <= rule.as_f64().unwrap()),
        "items" => value
            .as_array()
            .is_none_or(|items| items.iter().all(|item| is_valid(item, rule, root))),
        "required" => {
            let named = |map: &serde_json::Map<_, _>| {
                rule.as_array()
                    .unwrap()
                    .iter()
                    .all(|name| map.contains_key(name.as_str().unwrap()))
            };
            value.as_object().is_none_or(named)
        }
        "properties" => value.as_object().is_none_or(|map| {
            map.iter()
                .all(|(name, value)| rule.get(name).is_none_or(|rule| is_valid(value, rule, root)))
        }),
        "additionalProperties" => value.as_object().is_none_or(|map| {
            let known = schema.get("properties");
            let mut more = map
                .iter()
                .filter(|(name, _)| known.is_none_or(|known| known.get(name).is_none()));
            more.all(|(_, value)| is_valid(value, rule, root))
        }),
        other => panic!("the schema has a word that is not known here: {other}"),
    })
}

fn is_of_type(value: &Value, rule: &Value) -> bool {
    match rule.as_str().unwrap() {
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "object" => value.is_object(),
        "array" => value.is_array(),
        "null" => value.is_null(),
        other => panic!("a type that is not known here: {other}"),
    }
}

fn agree(text: &str) -> (bool, bool) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("job.toml");
    fs::write(&path, text).unwrap();
    let read = Job::read(&path).and_then(|job| job.check()).is_ok();
    let value: Value = toml::from_str(text).unwrap();
    let schema = Job::schema();
    (read, is_valid(&value, &schema, &schema))
}

#[test]
fn schema_and_reader_agree() {
    let all = "entry-point = \"a.py\"\nname = \"x\"\nsource-dir = \"src\"\npython = \"python3\"\noutput = \"s3://b\"\n\
        max-run-seconds = 5\nstop-seconds = 0\ninstances = 2\ninstance-type = \"ml.x\"\ndistribution = \"torch\"\n\
        processes-per-host = 2\nprofile = false\nopt-ml = false\ncache-dir = \"/c\"\ncache-gigabytes = 1.5\n\
        [hyperparameters]\na = 1\nb = \"x\"\nc = [1, 2.5]\nd = { e = true }\n\
        [environment]\nA = \"b\"\n\
        [channels]\nt = \"s3://b/t,mode=File\"\nc = \"s3://b/t,mode=Cache\"\n\
        a = { uri = \"s3://b/m\", mode = \"Pipe\", kind = \"AugmentedManifestFile\", attributes = [\"x-ref\", \"y\"] }\n\
        f = { uri = \"f\", access = \"rw\" }\ng = \"g,access=rw\"\n\
        u = { uri = \"s3://b/u\", mode = \"Pipe\", shuffle = 7, wrapper = \"RecordIO\" }\n\
        [[metrics]]\nname = \"m\"\nregex = \"(.)\"\n";
    for text in ["entry-point = \"a.py\"\n", all, Job::template()] {
        assert_eq!(agree(text), (true, true), "{text}");
    }
    for line in [
        "",
        "entry-point = 7",
        "entry-point = \"a\"\nentrypoint = \"b\"",
        "entry-point = \"a\"\ninstances = \"two\"",
        "entry-point = \"a\"\ninstances = 0",
        "entry-point = \"a\"\ninstances = 65",
        "entry-point = \"a\"\ninstances = 1.5",
        "entry-point = \"a\"\nmax-run-seconds = 0",
        "entry-point = \"a\"\nstop-seconds = -1",
        "entry-point = \"a\"\nprocesses-per-host = 0",
        "entry-point = \"a\"\ncache-gigabytes = 0",
        "entry-point = \"a\"\ncache-gigabytes = \"1GB\"",
        "entry-point = \"a\"\ndistribution = \"horovod\"",
        "entry-point = \"a\"\ndistribution = \"Torch\"",
        "entry-point = \"a\"\nprofile = \"no\"",
        "entry-point = \"a\"\nopt-ml = 1",
        "entry-point = \"a\"\n[channels.t]\nuri = \"d\"\naccess = \"RW\"",
        "entry-point = \"a\"\nhyperparameters = [1]",
        "entry-point = \"a\"\n[environment]\nA = 1",
        "entry-point = \"a\"\n[channels]\nt = 1",
        "entry-point = \"a\"\n[channels.t]\nmode = \"File\"",
        "entry-point = \"a\"\n[channels.t]\nuri = \"s3://b\"\nmode = \"file\"",
        "entry-point = \"a\"\n[channels.t]\nuri = \"s3://b\"\nmod = \"File\"",
        "entry-point = \"a\"\n[channels.t]\nuri = \"s3://b\"\nmode = \"Pipe\"\nshuffle = -1",
        "entry-point = \"a\"\n[channels.t]\nuri = \"s3://b\"\ndistribution = \"Sharded\"",
        "entry-point = \"a\"\n[[metrics]]\nname = \"m\"",
        "entry-point = \"a\"\n[[metrics]]\nname = \"m\"\nregex = \"(.)\"\nunit = \"s\"",
    ] {
        assert_eq!(agree(line), (false, false), "{line}");
    }
}

#[test]
fn every_key_is_explained() {
    let schema = Job::schema();
    let docs = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/job.md")).unwrap();
    let of_channels = &schema["$defs"]["Channel"]["properties"];
    for (key, rule) in [&schema["properties"], of_channels]
        .into_iter()
        .flat_map(|keys| keys.as_object().unwrap())
    {
        assert!(
            Job::template().contains(key.as_str()),
            "job.toml does not explain {key}"
        );
        assert!(
            docs.contains(&format!("| `{key}` |")),
            "docs/job.md does not explain {key}"
        );
        assert!(
            rule["description"].is_string(),
            "{key} has no description: {rule}"
        );
    }
}
