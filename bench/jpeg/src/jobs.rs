//! What is timed.

use crate::Image;
use cpu_time::ThreadTime;
use std::hint::black_box;
use std::time::Instant;
use stokehold_bench_jpeg::Turbo;
use stokehold_jpeg::{Decoder, Layout, Region, Scale};

/// One kind of work that both can do.
pub struct Job {
    pub name: &'static str,
    ours: fn(&mut Side, &Image),
    theirs: fn(&mut Side, &Image),
}

/// What the work is done with: everything is kept from file to file, the output too.
struct Side {
    decoder: Decoder,
    turbo: Turbo,
    out: Vec<u8>,
}

/// Seconds.
#[derive(Clone, Copy)]
pub struct Time {
    pub cpu: f64,
    pub wall: f64,
}

/// All jobs, the headline first.
pub const JOBS: [Job; 6] = [
    Job {
        name: "full decode to RGB",
        ours: |side, image| side.ours(image, image.header.full(), Scale::Full),
        theirs: |side, image| side.theirs(image, None, Scale::Full),
    },
    Job {
        name: "region of a random resized crop",
        ours: |side, image| side.ours(image, image.crop, Scale::Full),
        theirs: |side, image| side.theirs(image, Some(image.crop), Scale::Full),
    },
    Job {
        name: "coefficients",
        ours: |side, image| drop(black_box(side.decoder.coefficients(&image.bytes))),
        theirs: |side, image| drop(black_box(side.turbo.coefficients(&image.bytes, None))),
    },
    Job {
        name: "at 1/2",
        ours: |side, image| side.ours(image, image.header.full(), Scale::Half),
        theirs: |side, image| side.theirs(image, None, Scale::Half),
    },
    Job {
        name: "at 1/4",
        ours: |side, image| side.ours(image, image.header.full(), Scale::Quarter),
        theirs: |side, image| side.theirs(image, None, Scale::Quarter),
    },
    Job {
        name: "at 1/8",
        ours: |side, image| side.ours(image, image.header.full(), Scale::Eighth),
        theirs: |side, image| side.theirs(image, None, Scale::Eighth),
    },
];

impl Side {
    fn ours(&mut self, image: &Image, region: Region, scale: Scale) {
        let _ = black_box(self.decoder.decode(&image.bytes, region, scale, Layout::Rgb));
    }

    fn theirs(&mut self, image: &Image, region: Option<Region>, scale: Scale) {
        let _ = black_box(self.turbo.decode(&image.bytes, region, scale, &mut self.out));
    }
}

/// Of every job our time and theirs: the sum over the images of the quickest pass of each.
pub fn measure(images: &[Image], passes: usize) -> Vec<[Time; 2]> {
    let pixels = images
        .iter()
        .map(|image| image.header.width as usize * image.header.height as usize)
        .max();
    let mut side = Side {
        decoder: Decoder::new(),
        turbo: Turbo::new(),
        out: vec![0; 3 * pixels.unwrap_or(0)],
    };
    let never = Time {
        cpu: f64::INFINITY,
        wall: f64::INFINITY,
    };
    let mut quickest = vec![[[never; 2]; JOBS.len()]; images.len()];
    for pass in 0..passes {
        for (number, (image, quickest)) in images.iter().zip(&mut quickest).enumerate() {
            for (job, quickest) in JOBS.iter().zip(quickest) {
                for turn in 0..2 {
                    let who = (pass + number + turn) % 2;
                    let work = [job.ours, job.theirs][who];
                    let (cpu, wall) = (ThreadTime::now(), Instant::now());
                    work(&mut side, image);
                    let (wall, cpu) = (wall.elapsed().as_secs_f64(), cpu.elapsed().as_secs_f64());
                    let best = &mut quickest[who];
                    *best = Time {
                        cpu: best.cpu.min(cpu),
                        wall: best.wall.min(wall),
                    };
                }
            }
        }
    }
    let sum = |job: usize, who: usize| {
        quickest
            .iter()
            .map(|image| image[job][who])
            .fold(Time { cpu: 0.0, wall: 0.0 }, |sum, time| Time {
                cpu: sum.cpu + time.cpu,
                wall: sum.wall + time.wall,
            })
    };
    (0..JOBS.len()).map(|job| [sum(job, 0), sum(job, 1)]).collect()
}
