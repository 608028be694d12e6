//! A data set of two classes, a configuration that trains on it, and an observer that remembers.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use stokehold_loader::{BadImagePolicy, Workers};
use stokehold_pipeline::op::Size;
use stokehold_pipeline::{Executor, Pipeline};
use stokehold_storage::Dataset;
use stokehold_train::device::DeviceChoice;
use stokehold_train::model::Arch;
use stokehold_train::optim::OptimizerConfig;
use stokehold_train::schedule::{ScheduleConfig, ScheduleKind};
use stokehold_train::{Event, Observer, RunSummary, TrainConfig, TrainError, fit, resume};

/// Training images of each class; with [`BATCH`] they make three batches, the last one smaller.
pub const IMAGES: usize = 5;
pub const BATCH: usize = 4;
pub const STEPS_PER_EPOCH: u64 = 3;
pub const EPOCHS: u64 = 2;
pub const VAL_IMAGES: usize = 3;

/// Writes `train/` and `val/`: horizontal stripes are one class, vertical ones the other.
pub fn write_data(dir: &Path) {
    for (part, count) in [("train", IMAGES), ("val", VAL_IMAGES)] {
        for class in ["across", "down"] {
            let folder = dir.join(part).join(class);
            fs::create_dir_all(&folder).unwrap();
            for number in 0..count {
                fs::write(
                    folder.join(format!("{number}.png")),
                    stripes(class == "down", number),
                )
                .unwrap();
            }
        }
    }
}

/// A PNG of 40x40 with stripes of a width, brightness and tint of its own.
fn stripes(down: bool, number: usize) -> Vec<u8> {
    const SIDE: usize = 40;
    let mut pixels = Vec::with_capacity(SIDE * SIDE * 3);
    for y in 0..SIDE {
        for x in 0..SIDE {
            let along = if down { x } else { y };
            let light = (along / (3 + number % 3)).is_multiple_of(2);
            let grey = if light { 250 - 9 * number } else { 10 + 7 * number };
            pixels.extend([grey as u8, (grey / 2 + 40) as u8, (grey * 3 / 4) as u8]);
        }
    }
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, SIDE as u32, SIDE as u32);
    encoder.set_color(png::ColorType::Rgb);
    encoder.write_header().unwrap().write_image_data(&pixels).unwrap();
    bytes
}

/// Writes pairs of images and masks in CamVid's layout: a dark half is sky, and a light one, at one of the four sides, road.
/// Some pixels have no class. Nine images make three batches, the last one of one image.
pub fn write_pairs(dir: &Path) {
    for (images, masks, count) in [("train", "trainannot", 9), ("val", "valannot", 4)] {
        for folder in [images, masks] {
            fs::create_dir_all(dir.join(folder)).unwrap();
        }
        for number in 0..count {
            let (image, mask) = pair(number);
            fs::write(dir.join(images).join(format!("{number}.png")), image).unwrap();
            fs::write(dir.join(masks).join(format!("{number}.png")), mask).unwrap();
        }
    }
}

fn pair(number: usize) -> (Vec<u8>, Vec<u8>) {
    const SIDE: usize = 40;
    let (mut pixels, mut classes) = (Vec::new(), Vec::new());
    for at in 0..SIDE * SIDE {
        let (x, y) = (at % SIDE, at / SIDE);
        let along = if number.is_multiple_of(2) { x } else { y };
        let light = (along < SIDE / 2) == (number % 4 < 2);
        let noise = (x * 7 + y * 13 + number * 5) % 11;
        let grey = if light { 220 + noise } else { 20 + 3 * noise };
        pixels.extend([grey as u8, (grey / 2 + 40) as u8, (255 - grey) as u8]);
        // CamVid's sky is 0, its road 3, and 11 is no class.
        classes.push(match (x < 3, light) {
            (true, _) => 11,
            (false, true) => 3,
            (false, false) => 0,
        });
    }
    let png = |color, data: &[u8]| {
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, SIDE as u32, SIDE as u32);
        encoder.set_color(color);
        encoder.write_header().unwrap().write_image_data(data).unwrap();
        bytes
    };
    (
        png(png::ColorType::Rgb, &pixels),
        png(png::ColorType::Grayscale, &classes),
    )
}

/// The same for a segmenter.
pub fn config_of_pairs(data: &Path, run_dir: &Path) -> TrainConfig {
    TrainConfig {
        arch: Arch::FcnResnet18,
        pipeline: Pipeline::pairs_train(Size::Side(32)),
        eval_pipeline: Pipeline::pairs_eval(Size::HeightWidth([32, 48])),
        label_smoothing: 0.0,
        ..config(data, run_dir)
    }
}

/// Two epochs with momentum and a cosine schedule, so that nothing stays the same from step to step.
pub fn config(data: &Path, run_dir: &Path) -> TrainConfig {
    TrainConfig {
        data: data.to_owned(),
        val_split: None,
        max_images: None,
        sampler: Default::default(),
        epoch_images: None,
        arch: Arch::Resnet18,
        trainer: Default::default(),
        weights: None,
        freeze_backbone: false,
        pipeline: Pipeline::imagenet_train(32),
        eval_pipeline: Pipeline::imagenet_eval(36, 32),
        executor: Some(Executor::default()),
        gpu: Default::default(),
        exif: false,
        epochs: EPOCHS,
        batch_size: BATCH,
        drop_last: false,
        seed: 7,
        class_weights: Default::default(),
        optimizer: OptimizerConfig::SGD,
        undecayed: Default::default(),
        lr: 0.02,
        schedule: ScheduleConfig {
            kind: ScheduleKind::Cosine { final_factor: 0.0 },
            warmup_epochs: 0.5,
        },
        accumulate: 1,
        sync_batch_norm: false,
        mix: Default::default(),
        precision: Default::default(),
        sample_type: Default::default(),
        label_smoothing: 0.1,
        clip_norm: Some(1.0),
        ema: None,
        topk: 5,
        bad_images: BadImagePolicy::Skip,
        bad_image_limit: 100,
        servers: Vec::new(),
        workers: Workers::Auto,
        cache: None,
        cache_share: 0.0,
        prefetch: 0,
        device: DeviceChoice::Cpu,
        keep_checkpoints: 2,
        checkpoint_steps: None,
        log_every: 2,
        ceiling_batches: 0,
        run_dir: run_dir.to_owned(),
    }
}

pub fn open(config: &TrainConfig) -> Dataset {
    Dataset::open(&config.data, config.val_split, config.seed).unwrap()
}

/// When to set the stop flag, or to end the process as `kill -9` would.
#[derive(Clone, Copy, PartialEq)]
pub enum End {
    Never,
    AfterStep(u64),
    WithinValidation(u64),
    AbortAfterStep(u64),
}

/// Remembers the loss of every step, to the bit.
pub struct Recorder {
    pub losses: Vec<u32>,
    pub bad: Vec<String>,
    pub warnings: Vec<String>,
    pub resumed_at: Option<u64>,
    pub classes_replaced: Option<usize>,
    end: End,
    step: u64,
    validations: u64,
    stop: Arc<AtomicBool>,
}

impl Observer for Recorder {
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Started { replaced_head, .. } => self.classes_replaced = replaced_head,
            Event::Resumed { step, .. } => {
                self.resumed_at = Some(step);
                self.step = step;
            }
            Event::Step { loss, .. } => {
                self.losses.push(loss.to_bits());
                self.step += 1;
                if self.end == End::AbortAfterStep(self.step) {
                    std::process::abort();
                }
                if self.end == End::AfterStep(self.step) {
                    self.stop.store(true, Ordering::Relaxed);
                }
            }
            Event::Validated { batch, .. } => {
                self.validations += u64::from(batch == 1);
                if self.end == End::WithinValidation(self.validations) {
                    self.stop.store(true, Ordering::Relaxed);
                }
            }
            Event::BadImage(image) => self.bad.push(image.name.clone()),
            Event::Warning(text) => self.warnings.push(text),
            _ => {}
        }
    }
}

/// Starts the run, or continues it, and ends it as told.
pub fn run(config: &TrainConfig, resumed: bool, end: End) -> (Result<RunSummary, TrainError>, Recorder) {
    let stop = Arc::new(AtomicBool::new(false));
    let mut recorder = Recorder {
        losses: Vec::new(),
        bad: Vec::new(),
        warnings: Vec::new(),
        resumed_at: None,
        classes_replaced: None,
        end,
        step: 0,
        validations: 0,
        stop: Arc::clone(&stop),
    };
    let work = if resumed { resume } else { fit };
    let summary = work(config, open(config), &mut recorder, &stop);
    (summary, recorder)
}
