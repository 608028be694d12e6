//! Devices by name, and what does not fit them.

use crate::decode::files;
use crate::{TESTED, gpu, key};
use std::sync::Arc;
use stokehold_gpu::{Backend, Batcher, DeviceName, Gpu, GpuError, Prepared, Preparer, devices_of};
use stokehold_pipeline::{DecodeOptions, Pipeline, SampleType};

#[test]
fn names_are_read_and_written() {
    for (text, written) in [("cuda", "cuda:0"), ("vulkan:3", "vulkan:3")] {
        let name: DeviceName = text.parse().expect("a name");
        assert_eq!(name.to_string(), written);
    }
    for text in ["", "gpu", "cuda:", "vulkan:-1", "cpu:0"] {
        let error = text.parse::<DeviceName>().expect_err("no name").to_string();
        assert!(
            error.starts_with(&format!("no device is called '{text}'")),
            "{error}"
        );
    }
}

#[test]
fn what_is_not_there_says_why() {
    if !Backend::Cuda.is_compiled() {
        let cuda = devices_of(Backend::Cuda);
        assert_eq!(
            (cuda.usable.len(), cuda.problem.as_deref()),
            (0, Some("compiled without it; build with --features cuda"))
        );
    }
    let Some(_) = gpu() else { return };
    let name = format!("{TESTED}:99").parse().expect("a name");
    let error = Gpu::open(name).err().expect("no such device").to_string();
    assert!(
        error.starts_with(&format!("{TESTED}: there is no device 99; ")),
        "{error}"
    );
}

/// A batch over its budget is refused with the numbers, and nothing is launched for it.
#[test]
fn a_batch_over_its_budget_names_the_need() {
    let Some(gpu) = gpu() else { return };
    let pipeline = Arc::new(Pipeline::imagenet_train(224));
    let mut preparer = Preparer::new(pipeline.clone(), DecodeOptions::default()).expect("a pipeline");
    let files = files(8);
    let prepared = files
        .iter()
        .filter_map(|file| preparer.prepare(file, key(0)).ok());
    let samples: Vec<_> = prepared.collect();
    let batcher = |budget| Batcher::new(gpu.clone(), &pipeline, SampleType::F32, budget).expect("a batcher");
    let error = batcher(1 << 20).run(&samples).expect_err("too little");
    let GpuError::Budget {
        images, need, budget, ..
    } = &error
    else {
        panic!("{error}")
    };
    assert_eq!((*images, *budget), (samples.len(), 1));
    assert!(
        *need > 1 && error.to_string().contains("raise the budget"),
        "{error}"
    );
    assert!(batcher(need << 20).run(&samples).is_ok());
    assert!(batcher(0).run(&[] as &[Prepared]).is_ok());
}
