//! Symbols read on the device: the same batches, and the same files refused.

use crate::decode::{files, pipeline};
use crate::{gpu, key};
use std::sync::Arc;
use stokehold_gpu::{Batcher, Decode, Gpu, Preparer};
use stokehold_pipeline::{DecodeOptions, ImageError, Pipeline, SampleType};

/// The numbers of those files that are whole, why the others are not, how many the device decoded, and how many it gave
/// back.
fn run(
    gpu: &Gpu,
    files: &[Vec<u8>],
    pipeline: &Arc<Pipeline>,
    decode: Decode,
) -> (Vec<u8>, Vec<(usize, ImageError)>, [usize; 2]) {
    let preparer = Preparer::new(pipeline.clone(), DecodeOptions::default()).expect("a pipeline");
    let mut preparer = preparer.with_decode(decode);
    let batcher = Batcher::new(gpu.clone(), pipeline, SampleType::F32, 1 << 30).expect("a batcher");
    let (mut samples, mut places, mut errors) = (Vec::new(), Vec::new(), Vec::new());
    for (i, file) in files.iter().enumerate() {
        match preparer.prepare(file, key(i as u64)) {
            Ok(prepared) => {
                samples.push(prepared);
                places.push(i);
            }
            Err(error) => errors.push((i, error)),
        }
    }
    let batch = batcher.run(&samples).expect("a batch");
    assert_eq!(batch.shape[0] + batch.bad.len(), samples.len());
    let coded = samples.iter().filter(|prepared| prepared.is_coded()).count();
    assert_eq!(coded, batch.decoded + batch.given_back);
    let numbers = batcher.gpu().read_batch(&batch).expect("numbers");
    errors.extend(batch.bad.into_iter().map(|(place, error)| (places[place], error)));
    errors.sort_by_key(|(i, _)| *i);
    (numbers, errors, [batch.decoded, batch.given_back])
}

#[test]
fn batches_are_the_same_as_by_the_hybrid_way() {
    let Some(gpu) = gpu() else { return };
    let crop = pipeline(
        "[[op]]\ntype = \"RandomResizedCrop\"\nsize = 24\n[[op]]\ntype = \"ToFloat\"\n[[op]]\ntype = \"Normalize\"\n",
    );
    let (crop, mut files) = (Arc::new(crop), files(60));
    let hybrid = run(&gpu, &files, &crop, Decode::Hybrid);
    let device = run(&gpu, &files, &crop, Decode::Device);
    assert!(hybrid.0 == device.0, "numbers differ");
    assert_eq!((hybrid.1, hybrid.2), (device.1, [0, 0]));
    println!("{:?} decoded and given back by the device", device.2);
    assert!(device.2[0] > 15);

    // Damaged where symbols are: found on the device, decided on the CPU, and the rest of the batch is unharmed.
    for (i, file) in files.iter_mut().enumerate().step_by(3) {
        let data = file
            .windows(2)
            .position(|two| two == [0xFF, 0xDA])
            .expect("a scan")
            + 14;
        let at = data + (file.len() - data) * (1 + i % 7) / 9;
        file[at] = (37 * i) as u8 & 0x7F;
    }
    let hybrid = run(&gpu, &files, &crop, Decode::Hybrid);
    let device = run(&gpu, &files, &crop, Decode::Device);
    assert!(hybrid.0 == device.0, "numbers differ");
    assert_eq!(hybrid.1, device.1);
    println!("{:?} decoded and given back by the device, damaged", device.2);
    assert!(device.2[1] > 0);
}
