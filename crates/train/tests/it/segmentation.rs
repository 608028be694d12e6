//! Segmenters, their loss and their metrics are PyTorch's.

use std::collections::BTreeMap;
use std::path::Path;

use burn::module::Module;
use burn::optim::GradientsParams;
use burn::tensor::{Device, Tensor, TensorData};
use serde::Deserialize;
use serde_json::json;
use stokehold_train::device::read;
use stokehold_train::loss::{PixelTargets, pixel_cross_entropy};
use stokehold_train::metrics::Confusion;
use stokehold_train::model::{Arch, Logits, Network, Noise, ResNet, Segmenter};
use stokehold_train::optim::{Optimizer, OptimizerConfig, Undecayed, clip_global_norm};
use stokehold_train::weights::{load_weights, save_safetensors};

use crate::formula;
use crate::oracle::{self, Numbers};

const CLASSES: usize = 5;
/// So large that dilated kernels reach beyond their middle.
const SIZE: usize = 128;

fn logits(model: &Network, device: &Device) -> Vec<f32> {
    let Logits::Pixels(logits) = model.forward(formula::images("input", 2, SIZE, device)) else {
        panic!("it classifies images");
    };
    assert_eq!(logits.out.dims(), [2, CLASSES, SIZE, SIZE]);
    read(logits.out).unwrap()
}

fn segmenter(model: Network) -> Segmenter {
    match model {
        Network::Segmenter(model) => model,
        Network::Classifier(_) => panic!("it classifies images"),
    }
}

/// The worst difference, which must be small next to the values.
fn assert_near(ours: &[f32], theirs: &[f32], what: &str) {
    assert!(
        ours.iter().all(|number| number.is_finite()),
        "{what}: NaN or infinite"
    );
    let scale = theirs.iter().fold(0.0f32, |most, x| most.max(x.abs()));
    let apart = ours
        .iter()
        .zip(theirs)
        .map(|(a, b)| (a - b).abs())
        .fold(0.0, f32::max);
    println!("{what}: logits up to {scale}, {apart} apart");
    assert!(
        ours.len() == theirs.len() && scale > 0.05,
        "{what}: logits up to {scale} say nothing"
    );
    assert!(apart < 1e-3, "{what}: {apart} apart");
}

/// Oracle: torchvision's models; for `fcn-resnet18` its parts. Tolerance: 1e-3 absolute, logits being of the order of 1.
#[test]
fn logits_of_pixels_are_torchvisions() {
    let archs = Arch::SEGMENTERS.map(Arch::name);
    let question = json!({"archs": archs, "classes": CLASSES, "batch": 2, "size": SIZE});
    let device = Device::flex();
    let ours = Arch::SEGMENTERS.map(|arch| logits(&formula::network(arch, CLASSES, &device), &device));
    oracle::ask("pixel_logits", question, |theirs: BTreeMap<String, Numbers>| {
        for (arch, ours) in Arch::SEGMENTERS.into_iter().zip(&ours) {
            let [ours, theirs] = theirs[arch.name()].pick(ours);
            assert_near(&ours, &theirs, arch.name());
        }
    });
}

/// Oracle: torchvision's constructors, `torch.save`. Tolerance: as above.
#[test]
fn torchvisions_files_load() {
    let folder = tempfile::tempdir().unwrap();
    let archs = Arch::SEGMENTERS.map(Arch::name);
    let question =
        json!({"archs": archs, "classes": CLASSES, "size": SIZE, "seed": 4, "folder": folder.path()});
    let Some(theirs) = oracle::ask_of_files::<BTreeMap<String, Vec<f32>>>("write_segmenters", question)
    else {
        return;
    };
    let device = Device::flex();
    let fresh = |arch| Network::new(arch, CLASSES, 1, &device);
    let load = |arch, name: &str| load_weights(fresh(arch), &folder.path().join(name)).unwrap();
    for arch in Arch::SEGMENTERS {
        let (model, loaded) = load(arch, &format!("{arch}.pth"));
        assert_eq!(loaded.replaced_head, None, "{arch}");
        assert_near(&logits(&model, &device), &theirs[arch.name()], arch.name());
    }
    let last = Arch::SEGMENTERS[2];
    let (model, loaded) = load(last, "no-aux.pth");
    assert_eq!(loaded.replaced_head, None);
    assert_near(
        &logits(&model, &device),
        &theirs[last.name()],
        "without an auxiliary head",
    );

    // The weights of a classifier are those of the backbone.
    let backbone = load_weights(
        ResNet::new(Arch::Resnet50, 7, 1, &device),
        &folder.path().join("resnet50.pth"),
    );
    let backbone = formula::state(&backbone.unwrap().0);
    let (model, loaded) = load(Arch::FcnResnet50, "resnet50.pth");
    assert_eq!(loaded.replaced_head, Some(7));
    let own = formula::state(&fresh(Arch::FcnResnet50));
    for (key, values) in formula::state(&model) {
        let expected = match key.strip_prefix("backbone.") {
            Some(key) => &backbone[key],
            None => &own[&key],
        };
        assert!(values == *expected, "{key}");
    }
}

#[derive(Deserialize)]
struct LoadedSegmenter {
    logits: Vec<Vec<f32>>,
}

/// Oracle: `load_state_dict(strict=True)` into torchvision's model. Tolerance: as above.
#[test]
fn pytorch_loads_segmenters_and_another_number_of_classes_keeps_both_last_layers() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    let device = Device::flex();
    let model = formula::network(Arch::FcnResnet50, CLASSES, &device);
    save_safetensors(&model, &path, BTreeMap::new()).unwrap();
    let fresh = Network::new(Arch::FcnResnet50, 3, 5, &device);
    let own = formula::state(&fresh);
    let (loaded, what) = load_weights(fresh, &path).unwrap();
    assert_eq!((what.replaced_head, loaded.classes()), (Some(CLASSES), 3));
    let theirs = formula::state(&model);
    for (key, values) in formula::state(&loaded) {
        let from = if key.contains("classifier.4.") {
            &own
        } else {
            &theirs
        };
        assert!(values == from[&key], "{key}");
    }
    let question = json!({"arch": "fcn-resnet50", "classes": CLASSES, "size": SIZE, "path": path});
    if let Some(theirs) = oracle::ask_of_files::<LoadedSegmenter>("load_safetensors", question) {
        assert_near(&logits(&model, &device), &theirs.logits.concat(), "fcn-resnet50");
    }
}

/// Oracle: torchvision's constructors. Tolerance: 5 standard errors of a moment, of both sides together.
#[test]
fn a_new_segmenter_has_torchvisions_distributions() {
    for arch in [Arch::FcnResnet18, Arch::Deeplabv3Resnet50] {
        let question = json!({"arch": arch.name(), "classes": CLASSES});
        let ours = formula::state(&Network::new(arch, CLASSES, 1, &Device::flex()));
        oracle::ask("initial", question, |theirs| {
            formula::assert_moments(&ours, &theirs)
        });
    }
}

/// Oracle: `torch.nn.CrossEntropyLoss(weight=.., ignore_index=255)` and its gradient. Tolerance: 1e-5 of the value.
#[test]
fn the_loss_of_pixels_is_pytorchs() {
    let (batch, size) = (3, 16);
    let weights = [None, Some(vec![1.0f32, 0.5, 2.0, 0.0, 1.5])];
    let question = json!({"batch": batch, "size": size, "classes": CLASSES, "weights": weights});
    let device = Device::flex().autodiff();
    let shape = [batch, CLASSES, size, size];
    let values: Vec<f32> = formula::uniform("logits", shape.iter().product())
        .map(|x| (4.0 * x) as f32)
        .collect();
    let masks = formula::masks("masks", batch, size, CLASSES);
    assert!(masks.contains(&255));
    oracle::ask("pixel_loss", question, |theirs: [[f32; 2]; 2]| {
        for (weights, theirs) in weights.iter().zip(theirs) {
            let logits: Tensor<4> =
                Tensor::from_data(TensorData::new(values.clone(), shape), &device).require_grad();
            let targets = PixelTargets::new(&masks, shape, weights.as_deref(), &device);
            let loss = pixel_cross_entropy(logits.clone(), &targets);
            let gradient = logits.grad(&loss.backward()).unwrap();
            let ours =
                [loss.inner(), (gradient.clone() * gradient).sum()].map(|number| read(number).unwrap()[0]);
            for (ours, theirs) in ours.into_iter().zip(theirs) {
                assert!(
                    (ours / theirs - 1.0).abs() < 1e-5,
                    "{weights:?}: {ours} and {theirs}"
                );
            }
        }
    });
}

/// PyTorch has NaN here.
#[test]
fn a_batch_without_a_class_has_no_loss_and_no_gradient() {
    let device = Device::flex().autodiff();
    let shape = [2, 3, 4, 4];
    for (masks, weights) in [([255; 32], None), ([1; 32], Some(&[1.0f32, 0.0, 1.0][..]))] {
        let logits: Tensor<4> = Tensor::ones(shape, &device).require_grad();
        let loss = pixel_cross_entropy(
            logits.clone(),
            &PixelTargets::new(&masks, shape, weights, &device),
        );
        let gradient = read(logits.grad(&loss.backward()).unwrap()).unwrap();
        assert_eq!(read(loss.inner()).unwrap(), [0.0]);
        assert!(gradient.iter().all(|&x| x == 0.0));
    }
}

#[derive(Deserialize)]
struct Trained {
    losses: Vec<f32>,
    norm: f32,
}

/// Oracle: torchvision's models, their auxiliary loss with weight 0.5, weights of classes and SGD, without dropout. Losses
/// within 1 %, the first gradient's norm within 0.3 %: that of PyTorch in f32 is 0.07 % from that in f64.
#[test]
fn segmenters_train_as_in_pytorch() {
    let (batch, size, steps, lr, clip) = (2, 64, 3, 0.01, 1.0);
    let weights = [1.0f32, 0.5, 2.0, 1.0, 1.5];
    for arch in Arch::SEGMENTERS {
        let question = json!({"arch": arch.name(), "classes": CLASSES, "batch": batch, "size": size, "steps": steps,
            "lr": lr, "clip_norm": clip, "weights": weights});
        let device = Device::flex().autodiff();
        let mut model = segmenter(formula::network(arch, CLASSES, &device));
        let mut optimizer = Optimizer::new(OptimizerConfig::Sgd {
            momentum: 0.0,
            weight_decay: 0.0,
            nesterov: false,
        })
        .unwrap();
        let masks = formula::masks("masks", batch, size, CLASSES);
        let targets = PixelTargets::new(&masks, [batch, CLASSES, size, size], Some(&weights), &device);
        let mut ours = Vec::new();
        for _ in 0..steps {
            let logits = model.forward_train(formula::images("images0", batch, size, &device), None);
            let mut loss = pixel_cross_entropy(logits.out, &targets);
            assert_eq!(logits.aux.is_some(), arch != Arch::FcnResnet18);
            if let Some(aux) = logits.aux {
                loss = loss + pixel_cross_entropy(aux, &targets) * 0.5;
            }
            let grads = GradientsParams::from_grads(loss.backward(), &model);
            let (grads, norm) = clip_global_norm(grads, &model, clip);
            model = optimizer.step(lr, model, grads);
            ours.push((read(loss.inner()).unwrap()[0], read(norm).unwrap()[0]));
        }
        oracle::ask("train_pixels", question, |theirs: Trained| {
            assert_eq!(theirs.losses.len(), steps);
            for (step, (&(loss, _), &their_loss)) in ours.iter().zip(&theirs.losses).enumerate() {
                println!("{arch} step {step}: loss {loss} and {their_loss}");
                assert!(
                    (loss / their_loss - 1.0).abs() < 0.01,
                    "{arch} step {step}: {loss} and {their_loss}"
                );
            }
            let (norm, their_norm) = (ours[0].1, theirs.norm);
            assert!(
                (norm / their_norm - 1.0).abs() < 3e-3,
                "{arch}: norm {norm} and {their_norm}"
            );
        });
    }
}

/// The same step leaves out the same, another one something else, and validation nothing.
#[test]
fn dropout_is_a_function_of_seed_and_step() {
    let device = Device::flex().autodiff();
    let model = formula::network(Arch::FcnResnet18, CLASSES, &device);
    let train = |seed, step| {
        let noise = Noise { seed, step };
        let Logits::Pixels(logits) = model.forward_train(formula::images("input", 1, 64, &device), &noise)
        else {
            panic!("it classifies images");
        };
        read(logits.out.inner()).unwrap()
    };
    assert_eq!(train(1, 2), train(1, 2));
    assert_ne!(train(1, 2), train(1, 3));
    assert_ne!(train(1, 2), train(2, 2));
    let valid = model.valid();
    assert_eq!(logits(&valid, &Device::flex()), logits(&valid, &Device::flex()));
}

#[derive(Deserialize)]
struct Counted {
    matrix: Vec<u64>,
    accuracy: f64,
    iou: Vec<f64>,
    miou: f64,
}

/// Oracle: the definitions of torchvision's references, in numpy. Tolerance: 1e-12.
#[test]
fn metrics_of_pixels_are_torchvisions() {
    let size = 50;
    // Some classes are never predicted.
    let question = json!({"size": size, "classes": 7, "predicted": 4});
    let truth = formula::masks("truth", 1, size, 7);
    let predicted: Vec<u8> = formula::units("predicted", size * size)
        .map(|u| (4.0 * u) as u8)
        .collect();
    let mut ours = Confusion::new(7);
    for (truth, predicted) in truth.chunks(999).zip(predicted.chunks(999)) {
        ours.add(truth, predicted);
    }
    oracle::ask("confusion", question, |theirs: Counted| {
        assert_eq!((theirs.matrix.len(), theirs.iou.len()), (49, 7));
        for (at, &pixels) in theirs.matrix.iter().enumerate() {
            assert_eq!(ours.pixels(at / 7, at % 7), pixels, "{at}");
        }
        for (class, theirs) in theirs.iou.iter().enumerate() {
            assert!((ours.iou(class).unwrap() - theirs).abs() < 1e-12, "{class}");
        }
        assert!((ours.mean_iou() - theirs.miou).abs() < 1e-12);
        assert!((ours.pixel_accuracy() - theirs.accuracy).abs() < 1e-12);
    });
}

/// There torchvision's mean is NaN.
#[test]
fn a_class_that_is_nowhere_is_left_out_of_the_mean() {
    let mut counted = Confusion::new(3);
    counted.add(&[0, 0, 1, 1, 255], &[0, 1, 1, 1, 2]);
    assert_eq!(
        [0, 1, 2].map(|class| counted.iou(class)),
        [Some(0.5), Some(2.0 / 3.0), None]
    );
    assert_eq!(counted.mean_iou(), (0.5 + 2.0 / 3.0) / 2.0);
    assert_eq!(counted.pixel_accuracy(), 0.75);
    assert_eq!(
        (Confusion::new(2).mean_iou(), Confusion::new(2).pixel_accuracy()),
        (0.0, 0.0)
    );
}

#[derive(Deserialize)]
struct Optimized {
    params: BTreeMap<String, Numbers>,
}

/// Oracle: torchvision's `split_normalization_params`. Tolerance: 2e-6 of parameters of the order of 1.
#[test]
fn the_biases_of_last_layers_decay_beside_those_of_normalisation() {
    let keys = [
        "backbone.bn1.bias",
        "classifier.1.bias",
        "classifier.4.bias",
        "aux_classifier.4.bias",
        "aux_classifier.4.weight",
    ];
    let config = OptimizerConfig::Sgd {
        momentum: 0.0,
        weight_decay: 0.5,
        nesterov: false,
    };
    let question = json!({"arch": "fcn-resnet50", "classes": CLASSES, "keys": keys, "steps": 2, "lr": 0.1,
        "optimizer": config, "clip_norm": 1e9, "undecayed": "norm"});
    let mut model = formula::network(Arch::FcnResnet50, CLASSES, &Device::flex().autodiff());
    let mut optimizer = Optimizer::new(config).unwrap().sparing(Undecayed::Norm);
    for step in 0..2 {
        let grads = formula::gradients(&model, &keys, step);
        model = optimizer.step(0.1 / (step + 1) as f64, model, grads);
    }
    let ours = formula::state(&model);
    oracle::ask("optimize", question, |theirs: Optimized| {
        assert_eq!(theirs.params.len(), keys.len());
        for (key, theirs) in &theirs.params {
            let [ours, theirs] = theirs.pick(&ours[key].1);
            for (ours, theirs) in ours.into_iter().zip(theirs) {
                assert!((ours - theirs).abs() < 2e-6, "{key}: {ours} and {theirs}");
            }
        }
    });
}

#[test]
fn weights_of_a_segmenter_without_its_backbone_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path: &Path = &folder.path().join("model.safetensors");
    let device = Device::flex();
    save_safetensors(
        &Network::new(Arch::FcnResnet18, 3, 1, &device),
        path,
        BTreeMap::new(),
    )
    .unwrap();
    let error = load_weights(Network::new(Arch::FcnResnet50, 3, 1, &device), path).unwrap_err();
    assert!(error.to_string().contains("of another architecture"), "{error}");
    let error = load_weights(ResNet::new(Arch::Resnet18, 3, 1, &device), path).unwrap_err();
    assert!(
        error.to_string().contains("missing in the file: bn1.bias"),
        "{error}"
    );
}
