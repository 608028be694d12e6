//! Parameters: by name, from files, and what is refused.

use stokehold_diagnose::rules::{Defaults, Parameters, Rule, judge};
use stokehold_profile::Recording;

use super::named;

fn value(parameters: &Parameters, rule: &str, name: &str) -> String {
    let finding = named(judge(&Recording::default(), parameters), rule);
    let found = finding.parameters.iter().find(|(known, _)| *known == name);
    found.unwrap().1.clone()
}

#[test]
fn the_three_sets_of_defaults() {
    for (rule, name, [stokehold, config, guide]) in [
        ("CPUBottleneck", "patience", ["20", "1000", "100"]),
        ("IOBottleneck", "gpu_threshold", ["70", "10", "70"]),
        ("StepOutlier", "stddev", ["3", "3", "5"]),
        ("StepOutlier", "mode", ["None", "None", "None"]),
    ] {
        assert_eq!(value(&Parameters::default(), rule, name), stokehold);
        assert_eq!(value(&Parameters::new(Defaults::RulesConfig), rule, name), config);
        assert_eq!(value(&Parameters::new(Defaults::Guide), rule, name), guide);
    }
    assert_eq!("guide".parse::<Defaults>().unwrap(), Defaults::Guide);
    let error = "best".parse::<Defaults>().unwrap_err().to_string();
    assert!(error.contains("stokehold, rulesconfig and guide"), "{error}");
}

#[test]
fn every_default_is_in_its_range() {
    for defaults in [Defaults::Stokehold, Defaults::RulesConfig, Defaults::Guide] {
        let mut parameters = Parameters::new(defaults);
        for rule in Rule::ALL {
            for parameter in rule.parameters {
                let text = value(&parameters, rule.name, parameter.name);
                parameters
                    .set(&format!("{}_{}={text}", rule.name, parameter.name))
                    .unwrap();
            }
        }
        assert_eq!(parameters, Parameters::new(defaults));
    }
}

#[test]
fn one_is_set_by_name_in_any_case() {
    let mut parameters = Parameters::default();
    parameters.set("CPUBottleneck_threshold=40").unwrap();
    parameters.set(" ioBottleneck_IO_Threshold = 12.5 ").unwrap();
    parameters.set("StepOutlier_mode=EVAL").unwrap();
    assert_eq!(value(&parameters, "CPUBottleneck", "threshold"), "40");
    assert_eq!(value(&parameters, "IOBottleneck", "io_threshold"), "12.5");
    assert_eq!(value(&parameters, "StepOutlier", "mode"), "EVAL");
    parameters.set("StepOutlier_mode=None").unwrap();
    assert_eq!(value(&parameters, "StepOutlier", "mode"), "None");
}

#[test]
fn what_cannot_be_set_says_what_can() {
    let before = Parameters::default();
    for (text, message) in [
        ("CPUBottleneck_threshold", "not of the form Rule_parameter=value"),
        ("threshold=40", "not of the form Rule_parameter=value"),
        ("", "not of the form Rule_parameter=value"),
        (
            "CpuBottle_threshold=40",
            "no rule is called 'CpuBottle'; there are BatchSize, CPUBottleneck, ",
        ),
        (
            "CPUBottleneck_window=4",
            "CPUBottleneck has no parameter 'window'; it has threshold, cpu_threshold, gpu_",
        ),
        (
            "OverallSystemUsage_x=4",
            "OverallSystemUsage has no parameter 'x'; it has none",
        ),
        (
            "CPUBottleneck_threshold=100.1",
            "must be a number from 0 to 100, not '100.1'",
        ),
        (
            "CPUBottleneck_threshold=-1",
            "must be a number from 0 to 100, not '-1'",
        ),
        (
            "CPUBottleneck_threshold=NaN",
            "must be a number from 0 to 100, not 'NaN'",
        ),
        (
            "CPUBottleneck_threshold=",
            "must be a number from 0 to 100, not ''",
        ),
        (
            "CPUBottleneck_patience=1.5",
            "must be a whole number from 0 on, not '1.5'",
        ),
        (
            "CPUBottleneck_patience=1e300",
            "must be a whole number from 0 on, not '1e300'",
        ),
        (
            "LowGPUUtilization_window=0",
            "must be a whole number from 1 on, not '0'",
        ),
        ("StepOutlier_stddev=inf", "must be a number from 0 on, not 'inf'"),
        (
            "StepOutlier_mode=train",
            "must be one of TRAIN, EVAL, PREDICT, GLOBAL, None, not 'train'",
        ),
    ] {
        let mut parameters = before.clone();
        let error = parameters.set(text).unwrap_err().to_string();
        assert!(error.contains(message), "{text}: {error}");
        assert_eq!(parameters, before);
    }
}

#[test]
fn a_file_sets_by_tables_and_by_flat_names() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rules.toml");
    let load = |text: &str| {
        std::fs::write(&path, text).unwrap();
        let mut parameters = Parameters::default();
        let result = parameters.load(&path);
        (parameters, result.map_err(|error| error.to_string()))
    };
    let (parameters, result) = load(
        "IOBottleneck_threshold = 33\nStepOutlier_mode = 'TRAIN'\n[CPUBottleneck]\nthreshold = 40\npatience = 7\n",
    );
    result.unwrap();
    assert_eq!(value(&parameters, "IOBottleneck", "threshold"), "33");
    assert_eq!(value(&parameters, "StepOutlier", "mode"), "TRAIN");
    assert_eq!(value(&parameters, "CPUBottleneck", "threshold"), "40");
    assert_eq!(value(&parameters, "CPUBottleneck", "patience"), "7");
    for (text, message) in [
        (
            "[CPUBottleneck]\nthreshold = 40\nlimit = 3\n",
            "no parameter 'limit'; it has threshold",
        ),
        ("[CPU]\nthreshold = 40\n", "no rule is called 'CPU'"),
        (
            "[CPUBottleneck]\nthreshold = [40]\n",
            "must be a number from 0 to 100, not '[40]'",
        ),
        ("threshold = 40\n", "not of the form"),
        ("[CPUBottleneck\n", "TOML parse error at line 1"),
    ] {
        let (parameters, result) = load(text);
        let error = result.unwrap_err();
        assert!(error.contains(message) && error.contains("rules.toml"), "{error}");
        assert_eq!(parameters, Parameters::default(), "nothing is changed by half");
    }
    let missing = folder.path().join("none.toml");
    let error = Parameters::default().load(&missing).unwrap_err().to_string();
    assert!(error.contains("none.toml"), "{error}");
}
