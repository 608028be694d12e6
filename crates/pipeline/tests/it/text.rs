//! Pipelines as text: round trips, and errors that say what is wrong and what is allowed.

use stokehold_pipeline::{Pipeline, PipelineError};

#[test]
fn presets_survive_toml_and_json() {
    for name in Pipeline::PRESETS {
        let pipeline = Pipeline::preset(name).unwrap();
        assert!(pipeline.check().is_ok(), "{name}");
        assert_eq!(
            Pipeline::from_toml(&toml::to_string(&pipeline).unwrap()).unwrap(),
            pipeline,
            "{name}"
        );
        assert_eq!(
            Pipeline::from_json(&serde_json::to_string(&pipeline).unwrap()).unwrap(),
            pipeline,
            "{name}"
        );
    }
}

#[test]
fn defaults_are_torchvisions() {
    let text = r#"
        op = [
            { type = "RandomRotation", degrees = 5 },
            { type = "RandomResizedCrop", size = 224 },
            { type = "ColorJitter", brightness = 0.4 },
            { type = "RandomGrayscale" },
            { type = "RandomSolarize", threshold = 128 },
            { type = "GaussianBlur", kernel_size = 3 },
            { type = "ToFloat" },
            { type = "RandomErasing" },
        ]"#;
    let full = serde_json::to_string(&Pipeline::from_toml(text).unwrap()).unwrap();
    for default in [
        r#""interpolation":"nearest""#,
        r#""scale":[0.08,1.0],"ratio":[0.75,1.3333333333333333],"interpolation":"bilinear""#,
        r#""type":"RandomGrayscale","p":0.1"#,
        r#""threshold":128.0,"p":0.5"#,
        r#""sigma":[0.1,2.0]"#,
        r#""p":0.5,"scale":[0.02,0.33],"ratio":[0.3,3.3],"value":0.0"#,
    ] {
        assert!(full.contains(default), "{default} in {full}");
    }
}

/// The message of a pipeline that is wrong.
fn complaint(ops: &str) -> String {
    let text = format!(r#"{{"op": [{ops}]}}"#);
    match Pipeline::from_json(&text) {
        Err(error) => error.to_string(),
        Ok(pipeline) => pipeline.check().unwrap_err().to_string(),
    }
}

#[test]
fn mistakes_are_named_with_what_is_allowed() {
    let crop = r#"{"type": "CenterCrop", "size": 64}, {"type": "ToFloat"}"#;
    for (ops, expected) in [
        (
            r#"{"type": "RandomFlip"}"#.to_string(),
            "unknown variant `RandomFlip`",
        ),
        (
            r#"{"type": "RandomHorizontalFlip", "prob": 1}"#.to_string(),
            "unknown field `prob`, expected `p`",
        ),
        (
            format!(r#"{{"type": "RandomHorizontalFlip", "p": 1.5}}, {crop}"#),
            "operation 1 (RandomHorizontalFlip): p = 1.5; allowed: 0 to 1",
        ),
        (
            format!(r#"{{"type": "GaussianBlur", "kernel_size": 4}}, {crop}"#),
            "operation 1 (GaussianBlur): kernel_size = [4, 4]; allowed: odd numbers from 1 to 255",
        ),
        (
            format!(r#"{{"type": "ColorJitter", "hue": 0.7}}, {crop}"#),
            "operation 1 (ColorJitter): hue = [-0.7, 0.7]; allowed: low <= high within -0.5 to 0.5",
        ),
        (
            format!(r#"{{"type": "RandomInvert", "p": 1.5}}, {crop}"#),
            "operation 1 (RandomInvert): p = 1.5; allowed: 0 to 1",
        ),
        (
            r#"{"type": "RandomEqualize", "q": 1}"#.to_string(),
            "unknown field `q`, expected `p`",
        ),
        (
            format!(r#"{{"type": "RandomPosterize", "bits": 0}}, {crop}"#),
            "operation 1 (RandomPosterize): bits = 0; allowed: 1 to 8",
        ),
        (
            format!(r#"{{"type": "RandomPosterize", "bits": 9}}, {crop}"#),
            "operation 1 (RandomPosterize): bits = 9; allowed: 1 to 8",
        ),
        (
            format!(r#"{{"type": "RandomSolarize", "threshold": 255.5}}, {crop}"#),
            "operation 1 (RandomSolarize): threshold = 255.5; allowed: 0 to 255",
        ),
        (
            format!(r#"{{"type": "RandomAdjustSharpness", "sharpness_factor": -1}}, {crop}"#),
            "operation 1 (RandomAdjustSharpness): sharpness_factor = -1; allowed: 0 to 1000",
        ),
        (
            format!(r#"{{"type": "RandAugment", "magnitude": 31}}, {crop}"#),
            "operation 1 (RandAugment): magnitude = 31; allowed: below num_magnitude_bins = 31",
        ),
        (
            format!(r#"{{"type": "RandAugment", "num_ops": 101}}, {crop}"#),
            "operation 1 (RandAugment): num_ops = 101; allowed: 0 to 100",
        ),
        (
            format!(r#"{{"type": "TrivialAugmentWide", "num_magnitude_bins": 1}}, {crop}"#),
            "operation 1 (TrivialAugmentWide): num_magnitude_bins = 1; allowed: 2 to 10000",
        ),
        (
            r#"{"type": "AutoAugment", "policy": "coco"}"#.to_string(),
            "unknown variant `coco`, expected one of `imagenet`, `cifar10`, `svhn`",
        ),
        (
            r#"{"type": "AutoAugment", "magnitude": 3}"#.to_string(),
            "unknown field `magnitude`",
        ),
        (
            r#"{"type": "Normalize"}"#.to_string(),
            "operation 1 (Normalize): it works on floats; put ToFloat before it",
        ),
        (
            format!(r#"{crop}, {{"type": "Grayscale"}}"#),
            "operation 3 (Grayscale): it works on bytes; put it before ToFloat",
        ),
        (
            r#"{"type": "CenterCrop", "size": 64}"#.to_string(),
            "the pipeline does not end in floats; add ToFloat",
        ),
        (
            r#"{"type": "Resize", "size": 64}, {"type": "ToFloat"}"#.to_string(),
            "images come out in different sizes and make no batch",
        ),
        (
            format!(r#"{{"type": "Repeat", "times": 1000000, "op": [{{"type": "Grayscale"}}]}}, {crop}"#),
            "the pipeline unrolls to more than 10,000 operations",
        ),
    ] {
        let said = complaint(&ops);
        assert!(
            said.contains(expected),
            "{ops}\nsaid:     {said}\nexpected: {expected}"
        );
    }
}

#[test]
fn what_the_device_cannot_perform_is_named() {
    let refusal = |ops: &str| {
        let text =
            format!(r#"{{"op": [{{"type": "CenterCrop", "size": 8}}, {ops}, {{"type": "ToFloat"}}]}}"#);
        let pipeline = Pipeline::from_json(&text).unwrap();
        pipeline.check().unwrap();
        pipeline.check_on_device().err().map(|error| error.to_string())
    };
    assert_eq!(
        refusal(r#"{"type": "ColorJitter", "hue": 0.1}, {"type": "RandomGrayscale"}"#),
        None
    );
    for op in [
        r#"{"type": "RandAugment"}"#,
        r#"{"type": "TrivialAugmentWide"}"#,
        r#"{"type": "AutoAugment"}"#,
        r#"{"type": "RandomInvert"}"#,
        r#"{"type": "RandomPosterize", "bits": 4}"#,
        r#"{"type": "RandomSolarize", "threshold": 4}"#,
        r#"{"type": "RandomAutocontrast"}"#,
        r#"{"type": "RandomEqualize"}"#,
        r#"{"type": "RandomAdjustSharpness", "sharpness_factor": 2}"#,
    ] {
        let said = refusal(op).unwrap_or_default();
        assert!(
            said.starts_with("operation 2 (")
                && said.ends_with("the executor gpu cannot perform it; use --executor fused, or take it out"),
            "{op}: {said}"
        );
        let repeated = format!(r#"{{"type": "Repeat", "times": 2, "op": [{op}]}}"#);
        assert!(refusal(&repeated).is_some(), "{repeated}");
    }
}

#[test]
fn an_unknown_preset_names_those_there_are() {
    let said = Pipeline::preset("imagenet").unwrap_err().to_string();
    assert_eq!(
        said,
        "no preset is called 'imagenet'; there are imagenet-train, imagenet-eval, published and caltech"
    );
}

#[test]
fn a_name_with_an_extension_is_a_file_and_any_other_a_preset() {
    for name in Pipeline::PRESETS {
        assert_eq!(Pipeline::named(name).unwrap(), Pipeline::preset(name).unwrap());
    }
    let dir = tempfile::tempdir().unwrap();
    let caltech = Pipeline::caltech();
    for (file, text) in [
        ("a.toml", toml::to_string(&caltech).unwrap()),
        ("caltech.json", serde_json::to_string(&caltech).unwrap()),
    ] {
        let path = dir.path().join(file);
        std::fs::write(&path, text).unwrap();
        assert_eq!(Pipeline::named(path.to_str().unwrap()).unwrap(), caltech);
    }
    let unknown = Pipeline::named("imagenet").unwrap_err();
    assert!(matches!(unknown, PipelineError::UnknownPreset(_)), "{unknown}");
    let missing = Pipeline::named("caltech.toml").unwrap_err();
    assert!(matches!(missing, PipelineError::Read { .. }), "{missing}");
}
