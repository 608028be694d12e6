//! Files of weights, in and out.

use std::collections::BTreeMap;
use std::fs;

use burn::tensor::Device;
use serde::Deserialize;
use serde_json::json;
use stokehold_train::device::read;
use stokehold_train::model::{Arch, ResNet};
use stokehold_train::weights::{Loaded, load_weights, save_safetensors};

use crate::{formula, oracle};

/// Oracle: `torch.save`. Exact for f32 and f64 files; f16 within 2^-11 of a value, bf16 within 2^-8.
#[test]
fn pth_files_load_in_the_forms_people_save_them_in() {
    let folder = tempfile::tempdir().unwrap();
    let question = json!({"arch": "resnet18", "classes": 10, "folder": folder.path()});
    let Some(names) = oracle::ask_of_files::<Vec<String>>("write_pth", question) else {
        return;
    };
    let device = Device::flex();
    let expected = formula::arrays(Arch::Resnet18, 10, &device);
    for name in names {
        let fresh = ResNet::new(Arch::Resnet18, 10, 3, &device);
        let (model, loaded) = load_weights(fresh, &folder.path().join(format!("{name}.pth"))).unwrap();
        assert_eq!(loaded, Loaded { replaced_head: None }, "{name}");
        let precision = match name.as_str() {
            "half" => 1.0 / 2048.0,
            "bfloat" => 1.0 / 256.0,
            _ => 0.0,
        };
        for (key, (_, values)) in formula::state(&model) {
            for (x, y) in values.iter().zip(&expected[&key].1) {
                // f16 below 2^-14 is denormal and has an absolute precision.
                assert!(
                    (x - y).abs() <= y.abs() * precision + precision * 1e-4,
                    "{name} {key}: {x} and {y}"
                );
            }
        }
    }
}

#[derive(Deserialize)]
struct LoadedWeights {
    logits: Vec<Vec<f32>>,
    metadata: BTreeMap<String, String>,
}

/// Oracle: `load_state_dict(strict=True)` into torchvision's model. Tolerance: 1e-3.
#[test]
fn pytorch_loads_what_is_saved() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    let device = Device::flex();
    for arch in [Arch::Resnet18, Arch::Resnet50] {
        let model = formula::model(arch, 7, &device);
        save_safetensors(&model, &path, BTreeMap::from([("classes".into(), "a,b".into())])).unwrap();
        let question = json!({"arch": arch.name(), "classes": 7, "size": 64, "path": path});
        let Some(theirs) = oracle::ask_of_files::<LoadedWeights>("load_safetensors", question) else {
            return;
        };
        let ours = read(model.forward(formula::images("input", 2, 64, &device))).unwrap();
        for (ours, theirs) in ours.iter().zip(theirs.logits.concat()) {
            assert!((ours - theirs).abs() < 1e-3, "{arch}: {ours} and {theirs}");
        }
        assert_eq!(theirs.metadata["classes"], "a,b");
        assert_eq!(
            fs::read_dir(folder.path()).unwrap().count(),
            1,
            "something is left beside the file"
        );
    }
}

#[test]
fn another_number_of_classes_keeps_the_models_own_head() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    let device = Device::flex();
    save_safetensors(
        &formula::model(Arch::Resnet18, 10, &device),
        &path,
        BTreeMap::new(),
    )
    .unwrap();

    let fresh = ResNet::new(Arch::Resnet18, 3, 5, &device);
    let own = formula::state(&fresh);
    let (model, loaded) = load_weights(fresh, &path).unwrap();
    assert_eq!(loaded.replaced_head, Some(10));
    assert_eq!(model.classes(), 3);
    let theirs = formula::arrays(Arch::Resnet18, 10, &device);
    for (key, values) in formula::state(&model) {
        let from = if key.starts_with("fc.") { &own } else { &theirs };
        assert!(values == from[&key], "{key}");
    }
}

#[test]
fn weights_of_another_architecture_are_refused_by_key_and_shape() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    let device = Device::flex();
    let refusal = |file: Arch, model: Arch| {
        save_safetensors(&ResNet::new(file, 10, 1, &device), &path, BTreeMap::new()).unwrap();
        load_weights(ResNet::new(model, 10, 1, &device), &path)
            .unwrap_err()
            .to_string()
    };

    let error = refusal(Arch::Resnet50, Arch::Resnet18);
    assert!(
        error.contains(path.to_str().unwrap()) && error.contains("choose the matching model"),
        "{error}"
    );
    assert!(
        error.contains("unknown to the model: layer1.0.bn3.bias, "),
        "{error}"
    );
    assert!(
        error.contains("layer1.0.conv1.weight (model [64, 64, 3, 3], file [64, 64, 1, 1])"),
        "{error}"
    );
    assert!(error.contains(" more"), "{error}");

    let error = refusal(Arch::Resnet18, Arch::Resnet34);
    assert!(
        error.contains("missing in the file: layer1.2.bn1.bias, "),
        "{error}"
    );
    assert!(!error.contains("of another shape"), "{error}");
}

#[test]
fn a_file_that_is_no_weights_is_an_error_with_its_path() {
    let folder = tempfile::tempdir().unwrap();
    let good = folder.path().join("good.safetensors");
    save_safetensors(
        &ResNet::new(Arch::Resnet18, 2, 1, &Device::flex()),
        &good,
        BTreeMap::new(),
    )
    .unwrap();
    let good = fs::read(&good).unwrap();
    let mut huge_header = good.clone();
    huge_header[..8].copy_from_slice(&u64::MAX.to_le_bytes());
    let files: [(&str, &[u8]); 7] = [
        ("empty.pth", b""),
        ("text.pth", b"these are not the weights"),
        ("zip.pth", b"PK\x03\x04 and then nothing of the kind"),
        ("pickle.pth", b"\x80\x02}q\x00."),
        ("cut.safetensors", &good[..good.len() / 2]),
        ("header.safetensors", &good[..100]),
        ("huge.safetensors", &huge_header),
    ];
    for (name, content) in files {
        let path = folder.path().join(name);
        fs::write(&path, content).unwrap();
        let error = load_weights(ResNet::new(Arch::Resnet18, 2, 1, &Device::flex()), &path).unwrap_err();
        assert!(error.to_string().contains(name), "{error}");
    }
    let missing = folder.path().join("missing.pth");
    let error = load_weights(ResNet::new(Arch::Resnet18, 2, 1, &Device::flex()), &missing)
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("cannot read ") && error.contains("missing.pth"),
        "{error}"
    );
}

#[test]
fn a_path_that_cannot_be_written_is_an_error_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let model = ResNet::new(Arch::Resnet18, 2, 1, &Device::flex());
    let nowhere = folder.path().join("missing/model.safetensors");
    let error = save_safetensors(&model, &nowhere, BTreeMap::new())
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("cannot write ") && error.contains("missing/model.safetensors"),
        "{error}"
    );

    // The rename fails: a folder stands where the file should be.
    let taken = folder.path().join("taken");
    fs::create_dir(&taken).unwrap();
    assert!(save_safetensors(&model, &taken, BTreeMap::new()).is_err());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}
