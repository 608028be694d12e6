//! Optimisers and clipping alone, on gradients by formula: no network between a mistake and its sight.

use std::collections::BTreeMap;

use burn::tensor::Device;
use serde::Deserialize;
use serde_json::{Value, json};
use stokehold_train::device::read;
use stokehold_train::model::Arch;
use stokehold_train::optim::{Optimizer, OptimizerConfig, Undecayed, clip_global_norm};

use crate::formula;
use crate::oracle::{self, Numbers};

const KEYS: [&str; 4] = [
    "conv1.weight",
    "bn1.bias",
    "layer2.0.downsample.1.weight",
    "fc.weight",
];
const KEYS_WITH_BIAS: [&str; 5] = [KEYS[0], KEYS[1], KEYS[2], KEYS[3], "fc.bias"];
const STEPS: usize = 6;
const LR: f64 = 0.1;

#[derive(Deserialize)]
struct Optimized {
    norms: Vec<f32>,
    params: BTreeMap<String, Numbers>,
}

/// Oracle: `torch.optim` and `clip_grad_norm_`, six steps at falling rates. Tolerance: 2e-6 of parameters of
/// the order of 1, 1e-5 of a norm. Parameters without a gradient do not move.
#[test]
fn parameters_after_steps_are_pytorchs() {
    let sgd = |momentum, weight_decay, nesterov| OptimizerConfig::Sgd {
        momentum,
        weight_decay,
        nesterov,
    };
    let adamw = OptimizerConfig::AdamW {
        beta1: 0.8,
        beta2: 0.95,
        epsilon: 1e-3,
        weight_decay: 0.1,
    };
    let never = 1e9;
    for (config, clip) in [
        (sgd(0.0, 0.0, false), never),
        (sgd(0.0, 0.01, false), 2.0),
        (sgd(0.9, 0.01, false), never),
        (sgd(0.9, 0.01, true), 2.0),
        (OptimizerConfig::ADAMW, never),
        (adamw, 2.0),
    ] {
        let question = json!({"arch": "resnet18", "classes": 10, "keys": KEYS, "steps": STEPS, "lr": LR,
            "optimizer": config, "clip_norm": clip});
        compare(config, Undecayed::None, clip, question);
    }
}

/// Oracle: `torch.optim` with the groups of `torchvision.ops._utils.split_normalization_params`, and those of timm.
#[test]
fn parameters_without_weight_decay_are_timms_and_torchvisions() {
    let sgd = OptimizerConfig::Sgd {
        momentum: 0.9,
        weight_decay: 0.1,
        nesterov: false,
    };
    for (config, undecayed) in [
        (sgd, Undecayed::Norm),
        (sgd, Undecayed::NormAndBias),
        (OptimizerConfig::adamw(0.1), Undecayed::NormAndBias),
    ] {
        let question = json!({"arch": "resnet18", "classes": 10, "keys": KEYS_WITH_BIAS, "steps": STEPS, "lr": LR,
            "optimizer": config, "clip_norm": 2.0, "undecayed": undecayed});
        compare(config, undecayed, 2.0, question);
    }
}

fn compare(config: OptimizerConfig, undecayed: Undecayed, clip: f64, question: Value) {
    let keys: Vec<String> = serde_json::from_value(question["keys"].clone()).unwrap();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let mut model = formula::model(Arch::Resnet18, 10, &Device::flex().autodiff());
    let before = formula::state(&model);
    let mut optimizer = Optimizer::new(config).unwrap().sparing(undecayed);
    let mut norms = Vec::new();
    for step in 0..STEPS {
        let grads = formula::gradients(&model, &keys, step);
        let (grads, norm) = clip_global_norm(grads, &model, clip);
        norms.push(read(norm).unwrap()[0]);
        model = optimizer.step(LR / (step + 1) as f64, model, grads);
    }
    let ours = formula::state(&model);
    for (key, (_, values)) in &ours {
        let moved = *values != before[key].1;
        assert_eq!(
            moved,
            keys.contains(&key.as_str()),
            "{config:?}: {key} moved: {moved}"
        );
    }
    oracle::ask("optimize", question, |theirs: Optimized| {
        assert_eq!(theirs.norms.len(), norms.len());
        for (step, (norm, their_norm)) in norms.iter().zip(theirs.norms).enumerate() {
            assert!(
                (norm / their_norm - 1.0).abs() < 1e-5,
                "{config:?} step {step}: norm {norm} and {their_norm}"
            );
        }
        assert!(
            theirs.params.keys().all(|key| keys.contains(&key.as_str())) && theirs.params.len() == keys.len()
        );
        for (key, theirs) in theirs.params {
            let [ours, theirs] = theirs.pick(&ours[&key].1);
            for (x, y) in ours.into_iter().zip(theirs) {
                assert!((x - y).abs() < 2e-6, "{config:?} {key}: {x} and {y}");
            }
        }
    });
}
