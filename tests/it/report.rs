//! `stokehold report`: a page of a run of training, which is measured for its advice once; two runs; what it refuses.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::advise::{RECORDING, stokehold, trained};

fn report(dir: &Path, arguments: &[&str]) -> (Value, String) {
    let (code, text, said) = stokehold(dir, &[&["report", "--json"], arguments].concat());
    assert_eq!(code, 0, "{said}");
    (serde_json::from_str(&text).unwrap(), said)
}

#[test]
fn a_run_of_training_is_measured_once_and_told_what_would_help() {
    let dir = trained("2");
    let (first, said) = report(dir.path(), &["runs/one", "-o", "page"]);
    assert!(said.contains("measuring other executors"), "{said}");
    let titles = |report: &Value| -> Vec<String> {
        let advice = report["runs"][0]["advice"].as_array().unwrap();
        let titles = advice.iter().map(|one| one["title"].as_str().unwrap().to_owned());
        titles.collect()
    };
    let fused = "fused instead of per-op";
    assert!(titles(&first).iter().any(|title| title == fused), "{first}");
    assert_eq!(first["runs"][0]["notes"], Value::Array(Vec::new()));
    let kept: Value = serde_json::from_slice(&fs::read(dir.path().join(RECORDING)).unwrap()).unwrap();
    assert!(!kept["workload"]["alternatives"].as_array().unwrap().is_empty());

    let page = fs::read_to_string(dir.path().join(first["page"].as_str().unwrap())).unwrap();
    let verdict = first["runs"][0]["verdict"].as_str().unwrap();
    // Its headline has the first parts of a long one, and what follows begins with a capital letter.
    let shown = |part: &str| page.contains(part) || page.contains(&part[1..]);
    assert!(
        verdict.split("; ").all(shown) && page.contains(fused),
        "{verdict}"
    );

    // What was measured is kept, and so the second report says the same without measuring; next to itself, too.
    let (second, said) = report(dir.path(), &["runs/one", "runs/one", "-o", "pair"]);
    assert!(!said.contains("measuring"), "{said}");
    assert_eq!(second["runs"][0]["verdict"], first["runs"][0]["verdict"]);
    assert_eq!(second["runs"][0]["advice"], second["runs"][1]["advice"]);
    let page = fs::read_to_string(dir.path().join(second["page"].as_str().unwrap())).unwrap();
    assert_eq!(page.matches(verdict).count(), 2);

    // A report that no one gave a place refreshes the one before.
    let places = [(); 2].map(|()| report(dir.path(), &["runs/one"]).0["page"].clone());
    assert_eq!(places[0], places[1]);
    let reports = fs::read_dir(dir.path().join("runs/one/rule-output")).unwrap();
    assert_eq!(reports.count(), 1);
}

/// As somebody may send it who wants this machine to connect somewhere, or to run out of memory.
#[test]
fn the_record_of_a_run_is_not_trusted() {
    let dir = trained("2");
    let change = |path: &str, change: &dyn Fn(&mut Value)| {
        let path = dir.path().join(path);
        let mut json: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        change(&mut json);
        fs::write(&path, json.to_string()).unwrap();
    };
    let notes = |report: &Value| -> Vec<String> {
        let notes = report["runs"][0]["notes"].as_array().unwrap();
        notes
            .iter()
            .map(|note| note.as_str().unwrap().to_owned())
            .collect()
    };
    for batch_size in [u64::from(u32::MAX), u64::MAX / 2, u64::MAX] {
        change("runs/one/run.json", &|run| {
            run["config"]["batch_size"] = batch_size.into()
        });
        change(RECORDING, &|about| {
            let workload = &mut about["workload"];
            workload["alternatives"] = Value::Array(Vec::new());
            workload["images"] = u64::MAX.into();
            workload["trainer_ceiling"] = 1e30.into();
        });
        let (report, _) = report(dir.path(), &["runs/one", "-o", "page"]);
        let said = notes(&report).join("\n");
        assert!(
            said.contains("twice the batch would be more than all images"),
            "{said}"
        );
    }

    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    server.set_nonblocking(true).unwrap();
    let uri = format!("http://{}/data", server.local_addr().unwrap());
    change("runs/one/run.json", &|run| {
        run["config"]["data"] = uri.as_str().into()
    });
    change(RECORDING, &|about| {
        about["workload"]["alternatives"] = Value::Array(Vec::new())
    });
    let (report, said) = report(dir.path(), &["runs/one", "-o", "page"]);
    assert!(!said.contains("measuring"), "{said}");
    let said = notes(&report).join("\n");
    assert!(said.contains(&uri) && said.contains("advise runs/one"), "{said}");
    let error = server.accept().unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock, "somebody connects");
}

#[test]
fn a_comparison_says_where_its_pages_are() {
    let dir = tempfile::TempDir::new().unwrap();
    let told = |arguments: &[&str]| {
        let (code, text, said) = stokehold(dir.path(), arguments);
        assert_eq!((code, text.as_str()), (2, ""), "{said}");
        said
    };
    let folder = dir.path().join("my compare");
    let pairs = folder.join("pairs");
    fs::create_dir(&folder).unwrap();
    assert!(
        !told(&["report", "my compare"]).contains("comparison"),
        "any folder"
    );
    fs::write(folder.join("compare.json"), "{}").unwrap();
    // Its recording of the machine is of all trials together, and no report.
    fs::create_dir_all(folder.join("profiler-output/system")).unwrap();
    assert!(told(&["report", "my compare"]).contains("no cell is finished yet"));
    for pair in ["resnet18-load1-fused", "resnet18-load4-fused"] {
        fs::create_dir_all(pairs.join(pair)).unwrap();
    }
    fs::write(pairs.join("resnet18-load1-fused/profiler-comparison.html"), "").unwrap();
    for arguments in [
        &["report", "my compare"][..],
        &["report", "my compare", "elsewhere"],
    ] {
        let said = told(arguments);
        for page in [
            "my compare/compare.html,",
            "my compare/pairs/resnet18-load1-fused/profiler-comparison.html\n",
        ] {
            assert!(said.contains(page), "{said}");
        }
        assert_eq!(said.matches("profiler-comparison.html").count(), 1, "{said}");
    }
}

#[test]
fn what_is_no_run_and_no_parameter_is_named() {
    let dir = tempfile::TempDir::new().unwrap();
    fs::create_dir(dir.path().join("empty")).unwrap();
    for (arguments, says) in [
        (&["report", "empty"][..], "empty"),
        (
            &["report", "not-there"],
            "not-there: no recording: there is no such folder",
        ),
        (&["report", "empty", "--set", "CPUBottleneck_colour=1"], "colour"),
    ] {
        let (code, text, said) = stokehold(dir.path(), arguments);
        assert_eq!((code, text.as_str()), (2, ""), "{said}");
        assert!(said.contains(says), "{said}");
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is written");
}
