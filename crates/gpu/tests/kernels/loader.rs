//! Batches made on the device, through a loader: the batches of the CPU's loader, whatever happens on the way.

use crate::augment::{picture, pictures};
use crate::gpu;
use jpeg_encoder::SamplingFactor;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};
use stokehold_gpu::{Decode, DeviceBatch, Gpu, GpuMaker};
use stokehold_loader::{
    BadImage, BadImagePolicy, Batch, BatchNumbers, Loader, LoaderError, LoaderOptions, State, Workers,
};
use stokehold_pipeline::{Pipeline, probe};
use stokehold_storage::{PixelClasses, SampleBytes, Source, StorageError};

/// The device, and the right to be the only test whose loaders use its memory.
fn gpu_alone() -> Option<(Gpu, MutexGuard<'static, ()>)> {
    static ALONE: Mutex<()> = Mutex::new(());
    let gpu = gpu()?;
    Some((gpu, ALONE.lock().unwrap_or_else(PoisonError::into_inner)))
}

/// Files in memory, of three classes in turns.
pub struct Files(Vec<Vec<u8>>);

impl Source for Files {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn class(&self, sample: usize) -> u32 {
        sample as u32 % 3
    }

    fn name(&self, sample: usize) -> String {
        format!("{sample}.jpg")
    }

    fn read(&self, sample: usize, into: &mut SampleBytes) -> Result<(), StorageError> {
        into.refill().extend(&self.0[sample]);
        Ok(())
    }
}

/// Sixty photographs; with damage, every fourth has a symbol that is no code in its coded data.
pub fn files(damaged: bool) -> Arc<Files> {
    let pictures = pictures();
    let files = (0..60).map(|i| {
        let mut file = pictures[i % pictures.len()].clone();
        if damaged && i % 4 == 1 {
            let scan = file.windows(2).position(|two| two == [0xFF, 0xDA]);
            let at = scan.expect("a scan") + 14 + i;
            file.truncate(at);
        }
        file
    });
    Arc::new(Files(files.collect()))
}

pub fn options(bad_images: BadImagePolicy) -> LoaderOptions {
    LoaderOptions {
        batch_size: 7,
        workers: Workers::Count(2.try_into().expect("two")),
        seed: 5,
        bad_images,
        ..LoaderOptions::default()
    }
}

pub fn on_device(gpu: &Gpu, files: Arc<dyn Source>, options: LoaderOptions, decode: Decode) -> Loader {
    let pipeline = Pipeline::imagenet_train(24);
    Loader::new(files, pipeline, made_by(gpu, options, decode, 1 << 30)).expect("a loader")
}

/// Options of a loader whose batches a device makes.
pub fn made_by(gpu: &Gpu, options: LoaderOptions, decode: Decode, budget: u64) -> LoaderOptions {
    let gpu = gpu.clone();
    LoaderOptions {
        device: Some(Arc::new(GpuMaker { gpu, decode, budget })),
        ..options
    }
}

pub fn on_cpu(files: Arc<dyn Source>, options: LoaderOptions) -> Loader {
    Loader::new(files, Pipeline::imagenet_train(24), options).expect("a loader")
}

/// Files with a mask each, whose classes are stripes.
struct Pairs {
    files: Arc<Files>,
    classes: PixelClasses,
}

fn pairs(damaged: bool) -> Arc<Pairs> {
    let table = "[[class]]\nname = \"a\"\n[[class]]\nname = \"b\"\n[[class]]\nname = \"c\"\n";
    Arc::new(Pairs {
        files: files(damaged),
        classes: PixelClasses::parse(table).expect("classes"),
    })
}

impl Source for Pairs {
    fn len(&self) -> usize {
        self.files.len()
    }

    fn class(&self, _: usize) -> u32 {
        0
    }

    fn name(&self, sample: usize) -> String {
        self.files.name(sample)
    }

    fn read(&self, sample: usize, into: &mut SampleBytes) -> Result<(), StorageError> {
        self.files.read(sample, into)
    }

    fn pixel_classes(&self) -> Option<&PixelClasses> {
        Some(&self.classes)
    }

    fn read_mask(&self, sample: usize, into: &mut Vec<u8>) -> Result<(), StorageError> {
        let info = probe(&self.files.0[sample]).expect("an image");
        into.clear();
        let mut encoder = png::Encoder::new(into, info.width, info.height);
        encoder.set_color(png::ColorType::Grayscale);
        let stripes = (0..info.width * info.height).map(|at| (at % info.width / 5 + sample as u32) as u8 % 3);
        let mut writer = encoder.write_header().expect("a header");
        writer
            .write_image_data(&stripes.collect::<Vec<u8>>())
            .expect("a mask");
        Ok(())
    }
}

/// What makes a batch the same one: samples, labels, masks, shape and numbers.
pub type Content = (Vec<u64>, Vec<u32>, Vec<u8>, [usize; 4], Vec<u8>);

pub fn content(gpu: &Gpu, batch: &Batch) -> Content {
    let images: &DeviceBatch = batch.pixels.on_device().expect("a batch on the device");
    assert_eq!(images.shape, batch.shape);
    let numbers = gpu.read_batch(images).expect("numbers");
    (
        batch.samples.clone(),
        batch.labels.clone(),
        batch.masks.clone(),
        batch.shape,
        numbers,
    )
}

fn on_device_images(batch: &Batch) -> usize {
    let images: Option<&DeviceBatch> = batch.pixels.on_device();
    images.expect("a batch on the device").shape[0]
}

pub fn cpu_content(batch: &Batch) -> Content {
    let Some(BatchNumbers::F32(numbers)) = batch.pixels.numbers() else {
        panic!("f32 was asked for")
    };
    let bytes = numbers.iter().flat_map(|number| number.to_ne_bytes());
    (
        batch.samples.clone(),
        batch.labels.clone(),
        batch.masks.clone(),
        batch.shape,
        bytes.collect(),
    )
}

#[test]
fn epochs_are_those_of_the_cpu_and_go_on_anywhere() {
    let Some((gpu, _alone)) = gpu_alone() else { return };
    let options = || options(BadImagePolicy::Error);
    let cpu = on_cpu(files(false), options());
    for decode in [Decode::Hybrid, Decode::Device] {
        let device = on_device(&gpu, files(false), options(), decode);
        for epoch in 0..2 {
            let (mut expected, mut batches) = (cpu.epoch(epoch), device.epoch(epoch));
            let mut states: Vec<State> = vec![batches.state()];
            let mut whole = Vec::new();
            while let Some(batch) = batches.next() {
                let batch = batch.expect("a batch");
                let same = expected.next().expect("as many").expect("a batch");
                whole.push(content(&gpu, &batch));
                assert!(
                    whole.last() == Some(&cpu_content(&same)),
                    "{decode:?}, epoch {epoch}"
                );
                states.push(batches.state());
                assert_eq!(states.last(), Some(&expected.state()));
            }
            assert!(expected.next().is_none() && batches.next().is_none());
            assert_eq!((batches.loading(), batches.in_flight()), (0, 0));
            for (begin, state) in states.into_iter().enumerate().step_by(4) {
                let rest = device.resume(state).expect("a state of its own");
                let rest: Vec<Content> = rest
                    .map(|batch| content(&gpu, &batch.expect("a batch")))
                    .collect();
                assert!(rest == whole[begin..], "from batch {begin} on");
            }
        }
    }
}

/// A consumer that looks again and again, and does other things meanwhile, gets the same batches.
#[test]
fn waiting_briefly_changes_nothing() {
    let Some((gpu, _alone)) = gpu_alone() else { return };
    let device = on_device(&gpu, files(false), options(BadImagePolicy::Error), Decode::Hybrid);
    let expected: Vec<Content> = device
        .epoch(1)
        .map(|batch| content(&gpu, &batch.expect("a batch")))
        .collect();
    let (mut batches, mut made, mut pending) = (device.epoch(1), Vec::new(), 0);
    let begun = Instant::now();
    loop {
        match batches.next_within(Duration::from_micros(50)) {
            Poll::Pending => pending += 1,
            Poll::Ready(None) => break,
            Poll::Ready(Some(batch)) => {
                let batch = batch.expect("a batch");
                assert!(batch.wait <= begun.elapsed());
                made.push(content(&gpu, &batch));
            }
        }
    }
    assert!(made == expected, "{} batches of {}", made.len(), expected.len());
    assert!(pending > 0);
    assert!(batches.next_within(Duration::ZERO).is_ready() && batches.next().is_none());
}

/// What is broken is found by the CPU or on the device, and the policy is one.
#[test]
fn bad_images_have_one_policy_wherever_they_are_found() {
    let Some((gpu, _alone)) = gpu_alone() else { return };
    let sorted = |mut bad: Vec<BadImage>| {
        bad.sort_by_key(|bad| bad.sample);
        bad
    };
    for policy in [BadImagePolicy::Skip, BadImagePolicy::Substitute] {
        let cpu = on_cpu(files(true), options(policy));
        let expected: Vec<Content> = cpu
            .epoch(0)
            .map(|batch| cpu_content(&batch.expect("a batch")))
            .collect();
        let device = on_device(&gpu, files(true), options(policy), Decode::Device);
        let mut told = Vec::new();
        let batches = device.epoch(0).map(|batch| {
            let mut batch = batch.expect("a batch");
            told.append(&mut batch.bad);
            content(&gpu, &batch)
        });
        let batches: Vec<Content> = batches.collect();
        assert!(batches == expected, "{policy}");
        let bad = |loader: &Loader| -> Vec<BadImage> { sorted(loader.bad_images()) };
        assert!(!told.is_empty() && bad(&device) == bad(&cpu), "{policy}");
        assert_eq!(sorted(told), bad(&cpu));
    }
    let device = on_device(&gpu, files(true), options(BadImagePolicy::Error), Decode::Device);
    let mut batches = device.epoch(0);
    let error = batches.find_map(Result::err).expect("a bad image");
    assert!(matches!(error, LoaderError::BadImage(_)), "{error}");
    assert!(batches.next().is_none());
    let nothing = Files(vec![files(true).0[1].clone(); 9]);
    let device = on_device(
        &gpu,
        Arc::new(nothing),
        options(BadImagePolicy::Skip),
        Decode::Device,
    );
    let error = device
        .epoch(3)
        .find_map(Result::err)
        .expect("nothing is left")
        .to_string();
    assert_eq!(error, "not one image of an epoch could be read and decoded");
}

/// Masks are those of the CPU's loader, wherever an image is found broken, and whatever stands in for it.
#[test]
fn masks_are_those_of_the_cpu() {
    let Some((gpu, _alone)) = gpu_alone() else { return };
    for damaged in [false, true] {
        for policy in [BadImagePolicy::Skip, BadImagePolicy::Substitute] {
            let cpu = on_cpu(pairs(damaged), options(policy));
            let expected: Vec<Content> = cpu
                .epoch(1)
                .map(|batch| cpu_content(&batch.expect("a batch")))
                .collect();
            let masks = |batch: &Content| batch.2.len() == batch.3[0] * 24 * 24;
            assert!(expected.iter().all(masks) && expected.iter().any(|batch| batch.2.contains(&2)));
            for decode in [Decode::Hybrid, Decode::Device] {
                let device = on_device(&gpu, pairs(damaged), options(policy), decode);
                let batches: Vec<Content> = device
                    .epoch(1)
                    .map(|batch| content(&gpu, &batch.expect("a batch")))
                    .collect();
                assert!(batches == expected, "{decode:?}, {policy}, damaged: {damaged}");
            }
        }
    }
}

/// A substitute for a bad image must be good itself, and if there is none, that is reported, whether the CPU
/// or the device found it.
#[test]
fn broken_images_do_not_stand_in_for_each_other() {
    let Some((gpu, _alone)) = gpu_alone() else { return };
    let good = files(false).0[0].clone();
    let broken = files(true).0[1].clone();
    // Classes are every third: of the first all are broken, but the last is good in the second try.
    for (last, is_good) in [(&broken, false), (&good, true)] {
        let mut all = vec![good.clone(); 9];
        for sample in [0, 3] {
            all[sample] = broken.clone();
        }
        all[6] = last.clone();
        let all = Arc::new(Files(all));
        let device = on_device(
            &gpu,
            all.clone(),
            options(BadImagePolicy::Substitute),
            Decode::Device,
        );
        let came: Result<Vec<_>, LoaderError> = device.epoch(0).collect();
        let cpu = on_cpu(all, options(BadImagePolicy::Substitute));
        let expected: Result<Vec<_>, LoaderError> = cpu.epoch(0).collect();
        match (came, expected) {
            (Ok(came), Ok(expected)) => {
                assert!(is_good);
                let came: Vec<_> = came.iter().map(|loaded| content(&gpu, loaded)).collect();
                assert!(came == expected.iter().map(cpu_content).collect::<Vec<_>>());
            }
            (Err(came), Err(expected)) => {
                assert!(!is_good && matches!(came, LoaderError::NoSubstitute(_)), "{came}");
                assert!(matches!(expected, LoaderError::NoSubstitute(_)), "{expected}");
            }
            (came, expected) => panic!("{:?} and {:?}", came.err(), expected.err()),
        }
    }
}

/// Bad images of a batch that nothing is left of are told with the next one.
#[test]
fn a_batch_may_be_left_out_as_a_whole() {
    let Some((gpu, _alone)) = gpu_alone() else { return };
    let mut all = files(false).0.clone();
    all.truncate(21);
    let broken = files(true).0[1].clone();
    // The second of three batches in the order of the files.
    all[7..14].fill(broken);
    let in_order = LoaderOptions {
        shuffle: false,
        ..options(BadImagePolicy::Skip)
    };
    let device = on_device(&gpu, Arc::new(Files(all)), in_order, Decode::Device);
    let came: Vec<Batch> = device.epoch(0).map(|batch| batch.expect("a batch")).collect();
    let samples: Vec<_> = came.iter().map(|loaded| loaded.samples[0]).collect();
    assert_eq!(samples, [0, 14]);
    let told = came.iter().map(|loaded| loaded.bad.iter().map(|bad| bad.sample));
    let told: Vec<Vec<u64>> = told.map(Iterator::collect).collect();
    assert_eq!(told, [vec![], (7..14).collect()]);
}

/// No one waits for a consumer that has gone, and the memory of batches is used again.
#[test]
fn epochs_can_be_left_and_memory_does_not_grow() {
    let Some((gpu, _alone)) = gpu_alone() else { return };
    let device = on_device(&gpu, files(false), options(BadImagePolicy::Error), Decode::Hybrid);
    let mut reserved = Vec::new();
    for epoch in 0..50 {
        let mut batches = device.epoch(epoch);
        let taken = batches.by_ref().take(epoch as usize % 12);
        taken.for_each(|batch| drop(batch.expect("a batch")));
        drop(batches);
        reserved.push(gpu.reserved());
    }
    println!("{reserved:?} bytes on the device");
    // The pool has pages of several sizes, and meets the last of the sizes of batches late.
    let most = |epochs: &[u64]| epochs.iter().copied().max().unwrap_or(0);
    let (early, late) = (most(&reserved[..25]), most(&reserved[25..]));
    assert!(early > 0 && late <= early + early / 20, "{reserved:?}");
}

/// A batch over its half of the budget ends the epoch with the numbers, as any error does.
#[test]
fn the_budget_is_for_two_batches() {
    let Some((gpu, _alone)) = gpu_alone() else { return };
    let options = made_by(&gpu, options(BadImagePolicy::Error), Decode::default(), 4 << 20);
    let loader = Loader::new(files(false), Pipeline::imagenet_train(224), options).expect("a loader");
    let error = loader
        .epoch(0)
        .next()
        .expect("an error")
        .err()
        .expect("too little");
    let LoaderError::Device(error) = error else {
        panic!("{error}")
    };
    let said = error.to_string();
    assert!(
        error.is_input() && said.starts_with("a batch of 7 images needs "),
        "{said}"
    );
    assert!(said.contains("may have 2 MiB, half of the budget"), "{said}");
}

/// An image that no batch has room for is a bad image, which the policy decides about, and not the end of a run.
#[test]
fn an_image_over_the_budget_follows_the_policy() {
    let Some((gpu, _alone)) = gpu_alone() else { return };
    let mut all = pictures();
    let large = all.len();
    all.push(picture(2000, 1600, 50, SamplingFactor::F_1_1));
    let epoch = |policy: BadImagePolicy, batch_size: usize| {
        let options = LoaderOptions {
            batch_size,
            ..options(policy)
        };
        let options = made_by(&gpu, options, Decode::default(), 16 << 20);
        let source = Arc::new(Files(all.clone()));
        let loader = Loader::new(source, Pipeline::imagenet_eval(24, 24), options).expect("a loader");
        let mut batches = loader.epoch(0);
        let made: Vec<_> = batches.by_ref().collect();
        (made, batches.unreported())
    };
    for batch_size in [1, 4, 6] {
        let (made, unreported) = epoch(BadImagePolicy::Skip, batch_size);
        let made: Vec<Batch> = made.into_iter().map(|batch| batch.expect("a batch")).collect();
        let bad: Vec<&BadImage> = made
            .iter()
            .flat_map(|batch| &batch.bad)
            .chain(&unreported)
            .collect();
        assert_eq!(bad.len(), 1, "{bad:?}");
        let BadImage { name, reason, .. } = bad[0];
        assert_eq!(*name, format!("{large}.jpg"));
        assert!(
            reason.contains("MiB of device memory for it, and a batch may have 8 MiB"),
            "{reason}"
        );
        let mut samples: Vec<u64> = made.iter().flat_map(|batch| batch.samples.clone()).collect();
        samples.sort_unstable();
        assert_eq!(samples, (0..large as u64).collect::<Vec<_>>());
        assert!(
            made.iter()
                .all(|batch| on_device_images(batch) == batch.samples.len())
        );
    }
    let (made, _) = epoch(BadImagePolicy::Substitute, 3);
    let samples: usize = made
        .iter()
        .map(|batch| batch.as_ref().expect("a batch").samples.len())
        .sum();
    assert_eq!(samples, all.len());
    let (made, _) = epoch(BadImagePolicy::Error, 3);
    let error = made
        .into_iter()
        .find_map(Result::err)
        .expect("an error")
        .to_string();
    assert!(error.contains(&format!("{large}.jpg")), "{error}");
}

/// A substitute that no batch has room for is passed over too, and one for an image that the device found to be broken.
#[test]
fn a_substitute_over_the_budget_is_passed_over() {
    let Some((gpu, _alone)) = gpu_alone() else { return };
    let small: Vec<Vec<u8>> = pictures().into_iter().cycle().take(15).collect();
    let large = picture(2000, 1600, 50, SamplingFactor::F_1_1);
    let epoch = |large_ones: &[usize], decode: Decode, batch_size: usize| {
        let mut all = small.clone();
        for &sample in large_ones {
            all[sample] = large.clone();
        }
        let scan = all[9].windows(2).position(|two| two == [0xFF, 0xDA]);
        all[9].truncate(scan.expect("a scan") + 20);
        let options = LoaderOptions {
            batch_size,
            ..options(BadImagePolicy::Substitute)
        };
        let options = made_by(&gpu, options, decode, 16 << 20);
        let source = Arc::new(Files(all));
        let loader = Loader::new(source, Pipeline::imagenet_eval(24, 24), options).expect("a loader");
        let made: Vec<_> = loader.epoch(0).collect();
        made
    };
    for decode in [Decode::Hybrid, Decode::Device] {
        for batch_size in [4, 5, 15] {
            // Those of class 0 are 0, 3, 6, 9 and 12.
            let made = epoch(&[0, 3, 12], decode, batch_size);
            let made: Vec<Batch> = made.into_iter().map(|batch| batch.expect("a batch")).collect();
            let mut samples: Vec<u64> = made.iter().flat_map(|loaded| loaded.samples.clone()).collect();
            samples.sort_unstable();
            assert_eq!(
                samples,
                [1, 2, 4, 5, 6, 6, 6, 6, 6, 7, 8, 10, 11, 13, 14],
                "{decode:?}"
            );
            assert!(
                made.iter()
                    .all(|batch| on_device_images(batch) == batch.samples.len())
            );
        }
        let error = epoch(&[0, 3, 6, 12], decode, 5).into_iter().find_map(Result::err);
        assert!(matches!(error, Some(LoaderError::NoSubstitute(_))), "{error:?}");
    }
}
