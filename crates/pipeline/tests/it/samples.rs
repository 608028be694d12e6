//! The types of samples: half precision is the f32 sample rounded, u8 is the image before ToFloat.

use std::sync::Arc;

use half::{bf16, f16};
use stokehold_jpeg::{Decoder, Metadata, PackSample, PackTables, Packer, TranscodeOptions};
use stokehold_pipeline::op::{Normalize, Op, RandomErasing};
use stokehold_pipeline::{
    DecodeOptions, DrawKey, Executor, Format, ImageError, Input, Pipeline, Runner, SampleMut, SampleType,
    decode, probe,
};

use crate::oracle;

const EXECUTORS: [Executor; 2] = [Executor::PerOp, Executor::Fused];

/// Real photos where they are, the small one of this repository everywhere.
fn files() -> Vec<Vec<u8>> {
    let mut files = vec![include_bytes!("../../../../hostile/small.jpg").to_vec()];
    if let Some(photos) = oracle::photos() {
        let mut paths: Vec<_> = std::fs::read_dir(photos)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        paths.sort();
        assert!(paths.len() >= 40, "{} photos", paths.len());
        files.extend(paths.iter().step_by(40).map(|path| std::fs::read(path).unwrap()));
    }
    files
}

/// Every sample of `pipeline` as numbers of one type.
fn samples<N: Clone + Default>(pipeline: &Pipeline, executor: Executor, files: &[Vec<u8>]) -> Vec<N>
where
    for<'a> SampleMut<'a>: From<&'a mut Vec<N>>,
{
    let mut runner = Runner::new(Arc::new(pipeline.clone()), executor, DecodeOptions::default()).unwrap();
    let mut all = Vec::new();
    for (number, bytes) in files.iter().enumerate() {
        let mut out = vec![N::default(); runner.output_len()];
        let key = DrawKey {
            seed: 5,
            epoch: 1,
            sample: number as u64,
        };
        runner.run(bytes, key, &mut out).unwrap();
        all.append(&mut out);
    }
    all
}

fn erasing_always() -> Op {
    Op::RandomErasing(RandomErasing {
        p: 1.0,
        ..RandomErasing::default()
    })
}

#[test]
fn half_precision_is_the_f32_sample_rounded() {
    let mut erased = Pipeline::imagenet_train(64);
    // Also where a normalisation follows another step on floats, which could round twice.
    erased
        .ops
        .extend([erasing_always(), Op::Normalize(Normalize::default())]);
    let files = files();
    for pipeline in [Pipeline::imagenet_train(64), Pipeline::published(2, 61), erased] {
        for executor in EXECUTORS {
            let floats = samples::<f32>(&pipeline, executor, &files);
            let halves = samples::<f16>(&pipeline, executor, &files);
            let brains = samples::<bf16>(&pipeline, executor, &files);
            assert!(
                floats
                    .iter()
                    .zip(&halves)
                    .all(|(float, half)| *half == f16::from_f32(*float)),
                "{executor}: f16"
            );
            assert!(
                floats
                    .iter()
                    .zip(&brains)
                    .all(|(float, brain)| *brain == bf16::from_f32(*float)),
                "{executor}: bf16"
            );
        }
    }
}

#[test]
fn bytes_are_the_image_before_to_float() {
    let mut pipeline = Pipeline::published(1, 64);
    pipeline.ops.retain(|op| !matches!(op, Op::Normalize(_)));
    let files = files();
    for executor in EXECUTORS {
        let bytes = samples::<u8>(&pipeline, executor, &files);
        let floats = samples::<f32>(&pipeline, executor, &files);
        assert!(
            floats
                .iter()
                .zip(&bytes)
                .all(|(float, byte)| (float * 255.0).round() == f32::from(*byte)),
            "{executor}"
        );
    }
}

#[test]
fn bytes_of_a_normalised_pipeline_are_refused_with_a_way_out() {
    let mut pipeline = Pipeline::imagenet_train(64);
    let error = pipeline.check_output(SampleType::U8).unwrap_err().to_string();
    assert!(
        error.ends_with(
            "(Normalize): it needs floats, and u8 samples are the bytes before ToFloat; take it out and do it where \
             the samples are used, or choose f32, f16 or bf16"
        ),
        "{error}"
    );
    for sample_type in [SampleType::F32, SampleType::F16, SampleType::Bf16] {
        pipeline.check_output(sample_type).unwrap();
    }
    pipeline.ops.retain(|op| !matches!(op, Op::Normalize(_)));
    pipeline.check_output(SampleType::U8).unwrap();
    pipeline.ops.push(erasing_always());
    let error = pipeline.check_output(SampleType::U8).unwrap_err().to_string();
    assert!(error.contains("(RandomErasing)"), "{error}");
}

#[test]
fn types_read_what_they_write() {
    for (text, bytes) in [("f32", 4), ("f16", 2), ("bf16", 2), ("u8", 1)] {
        let sample_type: SampleType = text.parse().unwrap();
        assert_eq!(
            (sample_type.to_string().as_str(), sample_type.bytes()),
            (text, bytes)
        );
        assert_eq!(
            serde_json::to_string(&sample_type).unwrap(),
            format!("\"{text}\"")
        );
    }
    assert_eq!(
        "f64".parse::<SampleType>().unwrap_err().to_string(),
        "no sample type is called 'f64'; there are f32, f16, bf16 and u8"
    );
}

/// The packed form of a JPEG is a JPEG to every pipeline.
#[test]
fn packing_changes_no_sample() {
    let (files, options) = (
        files(),
        TranscodeOptions {
            metadata: Metadata::Drop,
        },
    );
    let mut jpeg = Decoder::new();
    let mut seen = PackSample::new();
    files
        .iter()
        .for_each(|bytes| seen.add(&jpeg.coefficients(bytes).unwrap()));
    let own = seen.adapt(PackTables::built_in());
    let own_bytes = own.bytes();
    for (tables, given) in [(PackTables::built_in(), None), (&own, Some(&*own_bytes))] {
        let mut packer = Packer::new(tables);
        for executor in EXECUTORS {
            for pipeline in [Pipeline::imagenet_train(64), Pipeline::published(3, 96)] {
                let mut runner =
                    Runner::new(Arc::new(pipeline), executor, DecodeOptions { exif: true }).unwrap();
                let (mut plain, mut packed) = (
                    vec![0.0f32; runner.output_len()],
                    vec![0.0f32; runner.output_len()],
                );
                for (sample, bytes) in (0..).zip(&files) {
                    let made = jpeg.pack(bytes, &mut packer, &options).unwrap();
                    let input = Input {
                        bytes: &made,
                        tables: given,
                    };
                    assert_eq!(probe(&made).unwrap(), probe(bytes).unwrap());
                    assert_eq!(probe(&made).unwrap().format, Format::Jpeg);
                    for epoch in 0..3 {
                        let key = DrawKey {
                            seed: 5,
                            epoch,
                            sample,
                        };
                        runner.run(bytes, key, &mut plain).unwrap();
                        runner.run(input, key, &mut packed).unwrap();
                        assert!(plain == packed, "file {sample} {executor}");
                    }
                    let exif = DecodeOptions { exif: true };
                    assert_eq!(decode(input, &exif).unwrap(), decode(bytes, &exif).unwrap());
                    // Without its tables it is an error, and not another image.
                    if given.is_some() {
                        let error = decode(&made, &exif).unwrap_err();
                        assert!(matches!(error, ImageError::Jpeg(_)), "{error}");
                    }
                }
            }
        }
    }
}
