//! What is saved and loaded continues to the bit; what is frozen stays.

use std::collections::BTreeMap;
use std::fs;

use burn::module::Module;
use burn::optim::GradientsParams;
use burn::tensor::Device;
use stokehold_train::LossScale;
use stokehold_train::device::read;
use stokehold_train::model::{Arch, ResNet};
use stokehold_train::optim::{Optimizer, OptimizerConfig};
use stokehold_train::weights::{load_weights, save_safetensors};

use crate::formula;
use crate::parity::train_step;

#[test]
fn a_continued_run_has_the_losses_of_the_uninterrupted_one() {
    for config in [OptimizerConfig::SGD, OptimizerConfig::ADAMW] {
        let device = Device::flex().autodiff();
        let folder = tempfile::tempdir().unwrap();
        let [weights, state] =
            ["model.safetensors", "optimizer.safetensors"].map(|name| folder.path().join(name));
        let mut model = ResNet::new(Arch::Resnet18, 10, 1, &device);
        let mut optimizer = Optimizer::new(config).unwrap();
        let mut whole = Vec::new();
        for step in 0..4 {
            if step == 2 {
                save_safetensors(&model, &weights, BTreeMap::new()).unwrap();
                optimizer.save(&state).unwrap();
            }
            let (next, loss, _) = train_step(model, &mut optimizer, step, 1e-3, 0.0, 1.0);
            model = next;
            whole.push(loss);
        }

        // Another seed, and a step taken: nothing of it may survive the loading.
        let other = ResNet::new(Arch::Resnet18, 10, 2, &device);
        let (other, _, _) = train_step(other, &mut Optimizer::new(config).unwrap(), 9, 1e-3, 0.0, 1.0);
        let (mut continued, loaded) = load_weights(other, &weights).unwrap();
        assert_eq!(loaded.replaced_head, None);
        let mut optimizer = Optimizer::load(config, &state, &device).unwrap();
        assert_eq!(optimizer.steps(), 2);
        let mut rest = Vec::new();
        for step in 2..4 {
            let (next, loss, _) = train_step(continued, &mut optimizer, step, 1e-3, 0.0, 1.0);
            continued = next;
            rest.push(loss);
        }
        assert_eq!(rest, whole[2..], "{config:?}");
        assert!(
            formula::state(&continued) == formula::state(&model),
            "{config:?}: the final models differ"
        );
    }
}

/// That of a run in f16 belongs to its state.
#[test]
fn the_scale_of_the_loss_continues() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("optimizer.safetensors");
    let device = Device::flex().autodiff();
    let model = formula::model(Arch::Resnet18, 10, &device);
    let mut optimizer = Optimizer::new(OptimizerConfig::SGD).unwrap().scaling();
    let logits = model.forward(formula::images("input", 2, 32, &device));
    let loss = logits.sum().mul_scalar(f32::INFINITY);
    let grads = GradientsParams::from_grads(loss.backward(), &model);
    assert!(optimizer.unscale(grads, &model).unwrap().is_none());
    optimizer.save(&path).unwrap();
    let loaded = Optimizer::load(OptimizerConfig::SGD, &path, &device)
        .unwrap()
        .scaling();
    assert_eq!(loaded.scale(), optimizer.scale());
    assert_ne!(loaded.scale(), Some(LossScale::default()));
}

#[test]
fn the_state_of_another_optimizer_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("optimizer.safetensors");
    Optimizer::new(OptimizerConfig::SGD).unwrap().save(&path).unwrap();
    let error = Optimizer::load(OptimizerConfig::ADAMW, &path, &Device::flex())
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("is not the state of adamw") && error.contains("state of sgd"),
        "{error}"
    );

    let model = folder.path().join("model.safetensors");
    save_safetensors(
        &ResNet::new(Arch::Resnet18, 2, 1, &Device::flex()),
        &model,
        BTreeMap::new(),
    )
    .unwrap();
    assert!(Optimizer::load(OptimizerConfig::SGD, &model, &Device::flex()).is_err());

    fs::write(&path, "").unwrap();
    assert!(Optimizer::load(OptimizerConfig::SGD, &path, &Device::flex()).is_err());
}

#[test]
fn a_frozen_backbone_stays_and_the_head_learns() {
    let device = Device::flex().autodiff();
    let before = formula::model(Arch::Resnet18, 10, &device).freeze_backbone();
    let state = formula::state(&before);
    let x = || formula::images("images0", 8, 64, &device);
    let training = read(before.forward(x())).unwrap();
    let evaluation = read(before.valid().forward(x().inner())).unwrap();
    assert_eq!(
        training, evaluation,
        "a frozen network normalises by its running statistics while training"
    );

    let config = OptimizerConfig::Sgd {
        momentum: 0.9,
        weight_decay: 0.1,
        nesterov: false,
    };
    let mut optimizer = Optimizer::new(config).unwrap();
    let (after, first, _) = train_step(before, &mut optimizer, 0, 0.01, 0.0, 1e9);
    // As a checkpoint does between two steps.
    let after = after.valid().train();
    let (after, second, _) = train_step(after, &mut optimizer, 0, 0.01, 0.0, 1e9);
    assert!(second < first, "{second} after {first}");
    for (key, values) in formula::state(&after) {
        assert_eq!(values == state[&key], !key.starts_with("fc."), "{key}");
    }
}

#[test]
fn a_seed_is_a_model() {
    let state = |seed, device: &Device| formula::state(&ResNet::new(Arch::Resnet18, 10, seed, device));
    let device = Device::flex();
    let first = state(1, &device);
    device.seed(7);
    assert!(first == state(1, &device.clone().autodiff()));
    assert!(first["conv1.weight"] != state(2, &device)["conv1.weight"]);
}
