//! Packed images read on the device: the same batches as by `fused`, also next to JPEGs and PNGs, and the same files refused.

use crate::decode::{files, pipeline, wide};
use crate::{TESTED, gpu, key};
use std::sync::Arc;
use stokehold_gpu::{Batcher, Decode, Device, Gpu, Preparer, devices_of};
use stokehold_jpeg::{Decoder, Input, Metadata, PackSample, PackTables, Packer, TranscodeOptions};
use stokehold_pipeline::{DecodeOptions, Executor, Pipeline, Runner, SampleType};

/// A file, and the tables that it was packed with unless those are the built-in ones.
type File = (Vec<u8>, Option<Arc<Vec<u8>>>);

const DROP: TranscodeOptions = TranscodeOptions {
    metadata: Metadata::Drop,
};

fn input((bytes, tables): &File) -> Input<'_> {
    Input {
        tables: tables.as_ref().map(|tables| tables.as_slice()),
        ..Input::from(bytes)
    }
}

/// Those that can be packed, packed with tables that are adapted to them.
fn adapted(files: &[Vec<u8>]) -> Vec<File> {
    let (mut decoder, mut sample) = (Decoder::new(), PackSample::new());
    for file in files {
        if let Ok(coefficients) = decoder.coefficients(file) {
            sample.add(&coefficients);
        }
    }
    let tables = sample.adapt(PackTables::built_in());
    let (mut packer, stored) = (Packer::new(&tables), Arc::new(tables.bytes()));
    let packed = files
        .iter()
        .filter_map(|file| decoder.pack(file, &mut packer, &DROP).ok());
    packed.map(|packed| (packed, Some(stored.clone()))).collect()
}

/// The same with built-in tables.
fn built_in(files: &[Vec<u8>]) -> Vec<File> {
    let (mut decoder, mut packer) = (Decoder::new(), Packer::new(PackTables::built_in()));
    let packed = files
        .iter()
        .filter_map(|file| decoder.pack(file, &mut packer, &DROP).ok());
    packed.map(|packed| (packed, None)).collect()
}

/// Holds the batch of the device equal to what `fused` makes; files that one refuses, the other refuses with the same error.
/// Returns how many the device decoded, how many it gave back, and how many were refused.
fn compare(gpu: &Gpu, files: &[File], pipeline: &Pipeline) -> [usize; 3] {
    let (pipeline, options) = (Arc::new(pipeline.clone()), DecodeOptions::default());
    let mut runner = Runner::new(pipeline.clone(), Executor::Fused, options).expect("a pipeline");
    let preparer = Preparer::new(pipeline.clone(), options).expect("a pipeline");
    let mut preparer = preparer.with_decode(Decode::Device);
    let batcher = Batcher::new(gpu.clone(), &pipeline, SampleType::F32, 1 << 30).expect("a batcher");
    let (mut expected, mut wrong) = (Vec::new(), Vec::new());
    let (mut samples, mut places, mut refused) = (Vec::new(), Vec::new(), Vec::new());
    for (i, file) in files.iter().enumerate() {
        let mut out = vec![0f32; runner.output_len()];
        match runner.run(input(file), key(i as u64), &mut out) {
            Ok(_) => expected.extend(out),
            Err(error) => wrong.push((i, error)),
        }
        match preparer.prepare(input(file), key(i as u64)) {
            Ok(prepared) => {
                samples.push(prepared);
                places.push(i);
            }
            Err(error) => refused.push((i, error)),
        }
    }
    let batch = batcher.run(&samples).expect("a batch");
    let numbers = batcher.gpu().read_batch(&batch).expect("numbers");
    let (numbers, _) = numbers.as_chunks::<4>();
    let numbers: Vec<f32> = numbers.iter().map(|&bytes| f32::from_ne_bytes(bytes)).collect();
    let counts = [batch.decoded, batch.given_back];
    refused.extend(batch.bad.into_iter().map(|(place, error)| (places[place], error)));
    refused.sort_by_key(|(i, _)| *i);
    assert_eq!(refused, wrong);
    assert!(numbers == expected, "numbers differ: {pipeline:?}");
    [counts[0], counts[1], wrong.len()]
}

fn crop() -> Pipeline {
    pipeline(
        "[[op]]\ntype = \"RandomResizedCrop\"\nsize = 24\n[[op]]\ntype = \"ToFloat\"\n[[op]]\ntype = \"Normalize\"\n",
    )
}

#[test]
fn batches_are_the_same_as_by_fused_and_so_are_refusals() {
    let Some(gpu) = gpu() else { return };
    // Of two kinds of tables in one batch.
    let jpegs = files(120);
    let mut all = adapted(&jpegs);
    all.extend(built_in(&jpegs));
    println!("{} packed images", all.len());
    let [decoded, given_back, refused] = compare(&gpu, &all, &crop());
    println!("{decoded} decoded, {given_back} given back, {refused} refused");
    assert!(decoded > 40 && given_back == 0, "{decoded} {given_back}");

    for (i, (bytes, _)) in all.iter_mut().enumerate().step_by(3) {
        let at = bytes.len() - 1 - bytes.len() * (i % 7) / 14;
        bytes[at] ^= 0x55;
    }
    let [decoded, given_back, refused] = compare(&gpu, &all, &crop());
    println!("{decoded} decoded, {given_back} given back, {refused} refused, damaged");
    assert!(given_back > 3 && refused > 3, "{given_back} {refused}");
}

#[test]
fn wide_images_are_the_same() {
    let Some(gpu) = gpu() else { return };
    let (jpegs, crop) = wide();
    let packed = built_in(&jpegs);
    let jpegs: Vec<File> = jpegs.into_iter().map(|bytes| (bytes, None)).collect();
    assert_eq!(packed.len(), jpegs.len());
    let [decoded, given_back, refused] = compare(&gpu, &packed, &crop);
    assert_eq!((decoded + given_back, refused), (packed.len(), 0));
    // lavapipe stops loops too early for these (crate::packed), so it gives them back.
    let is_cpu = |device: &Device| device.name == gpu.name() && device.is_cpu;
    let on_cpu = devices_of(TESTED).usable.iter().any(is_cpu);
    assert!(on_cpu || given_back == 0, "{given_back}");
    // Of a JPEG, some bits may take more rounds than there are until all of its parts agree.
    let [decoded, given_back, refused] = compare(&gpu, &jpegs, &crop);
    println!("{decoded} JPEGs decoded, {given_back} given back");
    assert_eq!((decoded + given_back, refused), (jpegs.len(), 0));
}

#[test]
fn packed_images_jpegs_and_pngs_share_a_batch() {
    let Some(gpu) = gpu() else { return };
    let jpegs = files(60);
    let packed = built_in(&jpegs);
    let mut all = Vec::new();
    for (i, packed) in packed.into_iter().enumerate() {
        all.push(packed);
        all.push((jpegs[i % jpegs.len()].clone(), None));
        let mut png = Vec::new();
        let mut encoder = png::Encoder::new(&mut png, 33, 29);
        encoder.set_color(png::ColorType::Rgb);
        let mut writer = encoder.write_header().expect("a header");
        let pixels: Vec<u8> = (0..3 * 33 * 29).map(|at| (at * (i + 3)) as u8).collect();
        writer.write_image_data(&pixels).expect("pixels");
        writer.finish().expect("a PNG");
        all.push((png, None));
    }
    let [decoded, given_back, _] = compare(&gpu, &all, &crop());
    assert!(decoded > 15 && given_back == 0, "{decoded} {given_back}");
}

/// A photo's tables are needed again where the CPU decides.
#[test]
fn photos_are_the_same_whole_and_damaged() {
    let Some(gpu) = gpu() else { return };
    let Some(paths) = stokehold_untested::needs::data("photos") else {
        return;
    };
    let all = std::env::var_os("STOKEHOLD_TEST_ALL").is_some();
    let paths: Vec<_> = paths.iter().step_by(if all { 1 } else { 60 }).collect();
    let mut decoded = 0;
    for paths in paths.chunks(16) {
        let files: Vec<Vec<u8>> = paths
            .iter()
            .map(|path| std::fs::read(path).expect("a photo"))
            .collect();
        let mut packed = adapted(&files);
        assert_eq!(packed.len(), files.len());
        packed.extend(built_in(&files));
        for pipeline in [Pipeline::imagenet_train(64), Pipeline::published(4, 48)] {
            let [own, given_back, refused] = compare(&gpu, &packed, &pipeline);
            assert_eq!((own, given_back, refused), (packed.len(), 0, 0));
            decoded += own;
        }
        for (i, (bytes, _)) in packed.iter_mut().enumerate() {
            let at = bytes.len() * (1 + i % 7) / 8;
            bytes[at] ^= 0x81;
        }
        compare(&gpu, &packed, &Pipeline::imagenet_train(64));
    }
    println!("{decoded} samples decoded on the device");
}
