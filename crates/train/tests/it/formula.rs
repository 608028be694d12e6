//! Weights, images and labels as functions of their name and index, the same here as in
//! `tests/oracle/oracle.py`.

use std::collections::BTreeMap;
use std::fs;

use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::{Device, Int, Tensor, TensorData};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use stokehold_base::hash::Fnv;
use stokehold_base::random::Random;
use stokehold_train::model::{Arch, Network, ResNet};
use stokehold_train::weights::{load_weights, save_safetensors};

/// A classifier whose arrays follow the formula.
pub fn model(arch: Arch, classes: usize, device: &Device) -> ResNet {
    filled(ResNet::new(arch, classes, 0, device))
}

/// A network whose arrays follow the formula.
pub fn network(arch: Arch, classes: usize, device: &Device) -> Network {
    filled(Network::new(arch, classes, 0, device))
}

fn filled<M: Module>(model: M) -> M {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("formula.safetensors");
    let arrays = state(&model);
    let arrays = arrays
        .into_iter()
        .map(|(key, (shape, _))| (key.clone(), (shape.clone(), weight(&key, &shape))));
    let arrays: BTreeMap<String, (Vec<usize>, Vec<f32>)> = arrays.collect();
    let bytes: Vec<_> = arrays
        .iter()
        .map(|(key, (shape, values))| {
            (
                key,
                shape,
                values.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<_>>(),
            )
        })
        .collect();
    let views = bytes.iter().map(|(key, shape, bytes)| {
        (
            key.as_str(),
            TensorView::new(Dtype::F32, shape.to_vec(), bytes).unwrap(),
        )
    });
    fs::write(&path, safetensors::serialize(views, None).unwrap()).unwrap();
    load_weights(model, &path).unwrap().0
}

/// Shape and values of every array of such a model, by key.
pub fn arrays(arch: Arch, classes: usize, device: &Device) -> BTreeMap<String, (Vec<usize>, Vec<f32>)> {
    state(&model(arch, classes, device))
}

/// Holds the mean and the deviation of every array to `theirs`, within 5 standard errors of a moment, of both sides together.
pub fn assert_moments(ours: &BTreeMap<String, (Vec<usize>, Vec<f32>)>, theirs: &BTreeMap<String, [f64; 2]>) {
    assert!(ours.keys().eq(theirs.keys()), "the keys differ");
    for (key, (_, values)) in ours {
        let n = values.len() as f64;
        let mean = values.iter().map(|&x| f64::from(x)).sum::<f64>() / n;
        let deviation = (values.iter().map(|&x| (f64::from(x) - mean).powi(2)).sum::<f64>() / n).sqrt();
        let [their_mean, their_deviation] = theirs[key];
        let error = 5.0 * (2.0 / n).sqrt() * their_deviation + 1e-9;
        for (what, ours, theirs) in [
            ("mean", mean, their_mean),
            ("deviation", deviation, their_deviation),
        ] {
            assert!(
                (ours - theirs).abs() <= error,
                "{key}: {what} {ours} and {theirs}"
            );
        }
    }
}

/// Shape and values of every array of a model, by key.
pub fn state<M: Module>(model: &M) -> BTreeMap<String, (Vec<usize>, Vec<f32>)> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.safetensors");
    save_safetensors(model, &path, BTreeMap::new()).unwrap();
    let bytes = fs::read(&path).unwrap();
    let floats = |data: &[u8]| {
        data.as_chunks()
            .0
            .iter()
            .map(|&x| f32::from_le_bytes(x))
            .collect()
    };
    SafeTensors::deserialize(&bytes)
        .unwrap()
        .iter()
        .map(|(key, view)| (key.to_string(), (view.shape().to_vec(), floats(view.data()))))
        .collect()
}

/// Gradients of a step for the parameters with these keys; the others have none.
pub fn gradients<M: Module>(model: &M, keys: &[&str], step: usize) -> GradientsParams {
    let mut gradients = Gradients {
        step,
        keys,
        path: Vec::new(),
        grads: GradientsParams::new(),
    };
    model.visit(&mut gradients);
    gradients.grads
}

struct Gradients<'a> {
    step: usize,
    keys: &'a [&'a str],
    path: Vec<String>,
    grads: GradientsParams,
}

impl ModuleVisitor for Gradients<'_> {
    fn enter_module(&mut self, name: &str, of: &str) {
        // The variant of an enum is no part of a name.
        if !of.starts_with("Enum:") {
            self.path.push(name.to_string());
        }
    }

    fn exit_module(&mut self, _: &str, of: &str) {
        if !of.starts_with("Enum:") {
            self.path.pop();
        }
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let key = self.path.join(".");
        if self.keys.contains(&key.as_str()) {
            let shape = param.lazy_shape();
            let values = uniform(&format!("{key} gradient {}", self.step), shape.num_elements());
            let data = TensorData::new(values.map(|x| x as f32).collect(), shape);
            self.grads
                .register(param.id, Tensor::<D>::from_data(data, &Device::flex()));
        }
    }
}

/// `[n, 3, size, size]` in `[-1, 1)`.
pub fn images(key: &str, n: usize, size: usize, device: &Device) -> Tensor<4> {
    let values = uniform(key, n * 3 * size * size).map(|x| x as f32).collect();
    Tensor::from_data(TensorData::new(values, [n, 3, size, size]), device)
}

/// A batch to learn from: noise, and a colour that tells the class.
pub fn batch(
    index: usize,
    n: usize,
    size: usize,
    classes: usize,
    device: &Device,
) -> (Tensor<4>, Tensor<1, Int>) {
    let labels = labels(&format!("labels{index}"), n, classes, device);
    let colours: Vec<f32> = uniform("colours", classes * 3).map(|x| x as f32).collect();
    let colours: Tensor<2> = Tensor::from_data(TensorData::new(colours, [classes, 3]), device);
    let colours = colours.select(0, labels.clone()).reshape([n, 3, 1, 1]);
    (
        images(&format!("images{index}"), n, size, device).mul_scalar(0.5) + colours,
        labels,
    )
}

/// `[n]`.
pub fn labels(key: &str, n: usize, classes: usize, device: &Device) -> Tensor<1, Int> {
    let values: Vec<i64> = units(key, n).map(|u| (u * classes as f64) as i64).collect();
    Tensor::from_data(TensorData::new(values, [n]), device)
}

/// Class numbers of `n` masks, and 255 where there is none.
pub fn masks(key: &str, n: usize, size: usize, classes: usize) -> Vec<u8> {
    let classes = classes as u8;
    units(key, n * size * size)
        .map(|u| (u * f64::from(classes + 1)) as u8)
        .map(|class| if class == classes { 255 } else { class })
        .collect()
}

fn weight(key: &str, shape: &[usize]) -> Vec<f32> {
    let count = shape.iter().product();
    let fan_in = shape[1..].iter().product::<usize>() as f64;
    let scale = |u: f64| match shape.len() {
        4 => u * (6.0 / fan_in).sqrt(),
        2 => u * (1.0 / fan_in).sqrt(),
        _ if key.ends_with("running_var") => 1.0 + 0.5 * u,
        _ if key.ends_with("weight") => 0.25 + 0.05 * u,
        _ => 0.1 * u,
    };
    uniform(key, count).map(|u| scale(u) as f32).collect()
}

/// In `[-1, 1)`.
pub fn uniform(key: &str, n: usize) -> impl Iterator<Item = f64> + use<> {
    units(key, n).map(|u| 2.0 * u - 1.0)
}

pub fn units(key: &str, n: usize) -> impl Iterator<Item = f64> + use<> {
    let mut random = Random::from_state(Fnv::of(key.as_bytes()));
    (0..n).map(move |_| (random.bits() >> 40) as f64 / f64::from(1 << 24))
}
