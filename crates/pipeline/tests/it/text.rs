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
            { type = "RandomAffine", degrees = 5 },
            { type = "RandomPerspective" },
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
        r#""type":"RandomAffine","degrees":5.0,"scale":[1.0,1.0],"interpolation":"nearest","fill":0}"#,
        r#""scale":[0.08,1.0],"ratio":[0.75,1.3333333333333333],"interpolation":"bilinear""#,
        r#""type":"RandomPerspective","distortion_scale":0.5,"p":0.5,"interpolation":"bilinear","fill":0}"#,
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
fn masks_go_through_everything_but_mixtures() {
    let of = |op: &str| {
        let text = format!(r#"{{"op": [{{"type": "RandomOrder", "op": [{op}]}}, {{"type": "ToFloat"}}]}}"#);
        let problem = Pipeline::from_json(&text).unwrap().check_masks().err();
        problem.map(|error| error.to_string())
    };
    assert_eq!(
        of(r#"{"type": "RandAugment"}, {"type": "RandomPhotometricDistort"}"#),
        None
    );
    let said = of(r#"{"type": "Grayscale"}, {"type": "AugMix"}"#).unwrap();
    assert!(
        said.contains("operation 3 (AugMix): it mixes an image") && said.contains("use TrivialAugmentWide"),
        "{said}"
    );
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
            format!(r#"{{"type": "RandomAffine", "degrees": 5, "translate": [0.1, 1.5]}}, {crop}"#),
            "operation 1 (RandomAffine): translate = [0.1, 1.5]; allowed: 0 to 1",
        ),
        (
            format!(r#"{{"type": "RandomAffine", "degrees": 5, "scale": [0, 2]}}, {crop}"#),
            "operation 1 (RandomAffine): scale = [0, 2]; allowed: low <= high within 0.01 to 100",
        ),
        (
            format!(r#"{{"type": "RandomAffine", "degrees": 5, "shear": [0, 1, -90, 3]}}, {crop}"#),
            "operation 1 (RandomAffine): shear = [-90, 3]; allowed: low <= high within -80 to 80",
        ),
        (
            format!(r#"{{"type": "RandomAffine", "degrees": 5, "center": [0, 2e6]}}, {crop}"#),
            "operation 1 (RandomAffine): center = [0.0, 2000000.0]; allowed: -1000000 to 1000000 pixels",
        ),
        (
            r#"{"type": "RandomAffine"}"#.to_string(),
            "missing field `degrees`",
        ),
        (
            format!(r#"{{"type": "RandomPerspective", "distortion_scale": 1.1}}, {crop}"#),
            "operation 1 (RandomPerspective): distortion_scale = 1.1; allowed: 0 to 1",
        ),
        (
            format!(r#"{{"type": "RandomResize", "min_size": 9, "max_size": 9}}, {crop}"#),
            "operation 1 (RandomResize): min_size = 9, max_size = 9; allowed: 1 <= min_size < max_size <= 16384 pixels",
        ),
        (
            format!(r#"{{"type": "RandomShortestSize", "min_size": []}}, {crop}"#),
            "operation 1 (RandomShortestSize): min_size = []; allowed: at least one of 1 to 16384 pixels",
        ),
        (
            format!(r#"{{"type": "ScaleJitter", "target_size": [9, 9], "scale_range": [0, 2]}}, {crop}"#),
            "operation 1 (ScaleJitter): scale_range = [0, 2]; allowed: low <= high within 0.01 to 100",
        ),
        (
            format!(r#"{{"type": "RandomZoomOut", "side_range": [0.5, 2]}}, {crop}"#),
            "operation 1 (RandomZoomOut): side_range = [0.5, 2]; allowed: low <= high within 1 to 100",
        ),
        (
            format!(r#"{{"type": "RandomPhotometricDistort", "hue": [-0.6, 0]}}, {crop}"#),
            "operation 1 (RandomPhotometricDistort): hue = [-0.6, 0]; allowed: low <= high within -0.5 to 0.5",
        ),
        (
            format!(r#"{{"type": "AugMix", "severity": 11}}, {crop}"#),
            "operation 1 (AugMix): severity = 11; allowed: 1 to 10",
        ),
        (
            format!(r#"{{"type": "AugMix", "chain_depth": 0}}, {crop}"#),
            "operation 1 (AugMix): chain_depth = 0; allowed: 1 to 100, or -1",
        ),
        (
            format!(r#"{{"type": "AugMix", "alpha": 0}}, {crop}"#),
            "operation 1 (AugMix): alpha = 0; allowed: 0.001 to 1000",
        ),
        (
            format!(r#"{{"type": "GaussianNoise"}}, {crop}"#),
            "operation 1 (GaussianNoise): it works on floats; put ToFloat before it",
        ),
        (
            format!(r#"{crop}, {{"type": "GaussianNoise", "sigma": -1}}"#),
            "operation 3 (GaussianNoise): sigma = -1; allowed: 0 to 1000",
        ),
        (
            format!(r#"{{"type": "RandomPerspective", "p": -0.1}}, {crop}"#),
            "operation 1 (RandomPerspective): p = -0.1; allowed: 0 to 1",
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
            format!(r#"{{"type": "RandomApply", "op": []}}, {crop}"#),
            "operation 1 (RandomApply): op = []; allowed: at least one operation",
        ),
        (
            format!(r#"{{"type": "RandomApply", "p": 2, "op": [{{"type": "Grayscale"}}]}}, {crop}"#),
            "operation 1 (RandomApply): p = 2; allowed: 0 to 1",
        ),
        (
            format!(r#"{{"type": "RandomOrder", "op": [{{"type": "RandomApply", "op": [{{"type": "RandomInvert", "p": 2}}]}}]}}, {crop}"#),
            "operation 3 (RandomInvert): p = 2; allowed: 0 to 1",
        ),
        (
            format!(r#"{{"type": "RandomChoice", "p": [1], "op": [{{"type": "Grayscale"}}, {{"type": "Grayscale"}}]}}, {crop}"#),
            "operation 1 (RandomChoice): p has 1 weights for 2 operations; allowed: one for each",
        ),
        (
            format!(r#"{{"type": "RandomChoice", "p": [0, 0], "op": [{{"type": "Grayscale"}}, {{"type": "Grayscale"}}]}}, {crop}"#),
            "operation 1 (RandomChoice): p = [0.0, 0.0]; allowed: 0 to 1e9, not all 0",
        ),
        (
            r#"{"type": "RandomChoice", "weights": [1], "op": []}"#.to_string(),
            "unknown field `weights`, expected `p` or `op`",
        ),
        (
            r#"{"type": "CenterCrop", "size": 64}, {"type": "RandomApply", "op": [{"type": "RandomOrder", "op": [{"type": "ToFloat"}]}]}"#.to_string(),
            "operation 2 (RandomApply): it holds ToFloat, and every image becomes floats at the same place",
        ),
        (
            format!(r#"{{"type": "RandomApply", "op": [{{"type": "RandomErasing"}}]}}, {crop}"#),
            "operation 2 (RandomErasing): it works on floats; put ToFloat before it",
        ),
        (
            format!(r#"{crop}, {{"type": "RandomChoice", "op": [{{"type": "RandomErasing"}}, {{"type": "Grayscale"}}]}}"#),
            "operation 5 (Grayscale): it works on bytes; put it before ToFloat",
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
            "images come out in different sizes and make no batch, unless all have one size",
        ),
        (
            r#"{"type": "RandomRotation", "degrees": 9, "expand": true}, {"type": "ToFloat"}"#.to_string(),
            "images come out in different sizes and make no batch; end the geometry with",
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

/// Whatever is drawn, images come out in one size, or the pipeline makes no batch.
#[test]
fn the_size_behind_a_composition_is_known_or_refused() {
    let eight = r#"{"type": "CenterCrop", "size": 8}"#;
    let nine = r#"{"type": "Resize", "size": [9, 9]}"#;
    let flip = r#"{"type": "RandomHorizontalFlip"}"#;
    let pad = r#"{"type": "Pad", "padding": 1}"#;
    let shorter = r#"{"type": "Resize", "size": 8}"#;
    let of = |name: &str, ops: &[&str]| format!(r#"{{"type": "{name}", "op": [{}]}}"#, ops.join(", "));
    let twice = format!(r#"{{"type": "Repeat", "times": 2, "op": [{pad}]}}"#);
    for (ops, size) in [
        (format!("{eight}, {}", of("RandomApply", &[flip])), Some(8)),
        (format!("{eight}, {}", of("RandomApply", &[pad, eight])), Some(8)),
        (format!("{eight}, {}", of("RandomApply", &[pad])), None),
        (of("RandomApply", &[eight]), None),
        (of("RandomChoice", &[eight, shorter]), None),
        (
            of("RandomChoice", &[eight, r#"{"type": "Resize", "size": [8, 8]}"#]),
            Some(8),
        ),
        (
            format!("{eight}, {}", of("RandomChoice", &[flip, eight])),
            Some(8),
        ),
        (format!("{eight}, {}", of("RandomChoice", &[flip, nine])), None),
        (of("RandomOrder", &[flip, eight, shorter]), Some(8)),
        (of("RandomOrder", &[eight, nine]), None),
        (of("RandomOrder", &[eight, pad]), None),
        (format!("{nine}, {}", of("RandomOrder", &[flip, eight])), Some(8)),
        (format!("{nine}, {}", of("RandomOrder", &[pad, eight])), None),
        (format!("{eight}, {}", of("RandomOrder", &[flip])), Some(8)),
        (
            format!(
                "{eight}, {}",
                of("RandomOrder", &[&twice, &of("RandomApply", &[flip])])
            ),
            None,
        ),
        (format!("{eight}, {twice}"), Some(12)),
    ] {
        let text = format!(r#"{{"op": [{ops}, {{"type": "ToFloat"}}]}}"#);
        let pipeline = Pipeline::from_json(&text).unwrap();
        assert_eq!(pipeline.check().ok(), size.map(|side| (side, side)), "{ops}");
        assert_eq!(
            Pipeline::from_toml(&toml::to_string(&pipeline).unwrap()).unwrap(),
            pipeline
        );
        for sample in 0..20 {
            let key = stokehold_pipeline::DrawKey {
                seed: 1,
                epoch: 0,
                sample,
            };
            let steps = pipeline.draw(key, 11, 14).unwrap();
            let end = steps.iter().fold((11, 14), |(w, h), step| step.size_after(w, h));
            assert!(size.is_none_or(|side| end == (side, side)), "{ops}: {end:?}");
        }
    }
}

/// Nothing, very often, is nothing.
#[test]
fn repetitions_of_nothing_take_no_time() {
    let nothing = r#"{"type": "Repeat", "times": 4294967295, "op": []}"#;
    let again = format!(r#"{{"type": "Repeat", "times": 4294967295, "op": [{nothing}]}}"#);
    let text = format!(r#"{{"op": [{again}, {{"type": "CenterCrop", "size": 3}}, {{"type": "ToFloat"}}]}}"#);
    let pipeline = Pipeline::from_json(&text).unwrap();
    assert_eq!(pipeline.check().unwrap(), (3, 3));
    let key = stokehold_pipeline::DrawKey {
        seed: 1,
        epoch: 0,
        sample: 0,
    };
    assert_eq!(pipeline.draw(key, 9, 9).unwrap().len(), 2);
}

#[test]
fn check_on_device_names_unsupported_operations() {
    let refusal = |ops: &str| {
        let text =
            format!(r#"{{"op": [{{"type": "CenterCrop", "size": 8}}, {ops}, {{"type": "ToFloat"}}]}}"#);
        let pipeline = Pipeline::from_json(&text).unwrap();
        pipeline.check().unwrap();
        pipeline.check_on_device().err().map(|error| error.to_string())
    };
    assert_eq!(
        refusal(
            r#"{"type": "ColorJitter", "hue": 0.1}, {"type": "RandomGrayscale"}, {"type": "RandomAffine", "degrees": 9},
               {"type": "RandAugment"}, {"type": "TrivialAugmentWide"}, {"type": "AutoAugment"},
               {"type": "RandomPhotometricDistort"}, {"type": "RandomChannelPermutation"}, {"type": "RandomInvert"},
               {"type": "RandomPosterize", "bits": 4}, {"type": "RandomSolarize", "threshold": 4},
               {"type": "RandomAutocontrast"}, {"type": "RandomEqualize"},
               {"type": "RandomAdjustSharpness", "sharpness_factor": 2}"#
        ),
        None
    );
    for op in [r#"{"type": "RandomPerspective"}"#, r#"{"type": "AugMix"}"#] {
        let said = refusal(op).unwrap_or_default();
        assert!(
            said.starts_with("operation 2 (")
                && said
                    .ends_with("the executor gpu cannot perform it; use the executor fused, or take it out"),
            "{op}: {said}"
        );
        let repeated = format!(r#"{{"type": "Repeat", "times": 2, "op": [{op}]}}"#);
        assert!(refusal(&repeated).is_some(), "{repeated}");
        for name in ["RandomApply", "RandomChoice", "RandomOrder"] {
            let composed = format!(r#"{{"type": "{name}", "op": [{{"type": "Grayscale"}}, {op}]}}"#);
            let said = refusal(&composed).unwrap_or_default();
            assert!(said.starts_with("operation 4 ("), "{composed}: {said}");
            let easy = format!(r#"{{"type": "{name}", "op": [{{"type": "Grayscale"}}]}}"#);
            assert_eq!(refusal(&easy), None);
        }
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
