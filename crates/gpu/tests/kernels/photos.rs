//! Files that were not made here: photos, and files that attack decoders. `STOKEHOLD_TEST_DATA` names their folder.

use crate::decode::pipeline;
use crate::{assert_same, assert_same_when, gpu};
use stokehold_gpu::Decode;
use stokehold_pipeline::{DecodeOptions, Pipeline, SampleType};

/// The bytes of files of a folder, every `step`th; none, with a line that says so, where it is not there.
fn data(folder: &str, step: usize) -> Option<Vec<Vec<u8>>> {
    let paths = stokehold_untested::needs::data(folder)?;
    let files = paths
        .iter()
        .step_by(step)
        .map(|path| std::fs::read(path).expect("a file"));
    Some(files.collect())
}

/// The published pipelines, the last with twelve rotations, at the size of their source.
#[test]
fn photos_are_the_same() {
    let Some(gpu) = gpu() else { return };
    let Some(photos) = data("photos", 60) else { return };
    let (train, published) = (Pipeline::imagenet_train(64), Pipeline::published(4, 48));
    let compared = assert_same(&gpu, &photos, &train, SampleType::F32);
    assert_eq!(compared, photos.len() * 3 * 64 * 64 * 4, "a photo was refused");
    let compared = assert_same(&gpu, &photos, &published, SampleType::Bf16);
    assert_eq!(compared, photos.len() * 3 * 48 * 48 * 2, "a photo was refused");
    let how = (DecodeOptions::default(), Decode::Device);
    assert_same_when(&gpu, &photos, &train, SampleType::F16, how);
}

/// Where the CPU refuses a file the device's way refuses it alike, and of the rest the bytes are the same, damaged or not.
#[test]
fn unusual_and_hostile_files_are_the_same() {
    let Some(gpu) = gpu() else { return };
    let crop = pipeline("[[op]]\ntype = \"CenterCrop\"\nsize = 72\n[[op]]\ntype = \"ToFloat\"\n");
    let resize = pipeline("[[op]]\ntype = \"Resize\"\nsize = [31, 40]\n[[op]]\ntype = \"ToFloat\"\n");
    for (folder, step) in [("jpeg-corpus/valid", 1), ("jpeg-corpus/hostile", 4)] {
        let Some(files) = data(folder, step) else { return };
        let mut compared = 0;
        for files in files.chunks(40) {
            compared += assert_same(&gpu, files, &crop, SampleType::U8);
            compared += assert_same(&gpu, files, &resize, SampleType::U8);
        }
        assert!(compared > 0, "no file of {folder} was decoded");
    }
}
