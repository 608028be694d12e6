//! What a worker does once, before it makes batches at its pace.

use super::{FEWEST, Script};
use crate::facts::Fetching;

impl Script {
    /// What a worker's first batch took beyond its later ones, and what of that it computed, seconds: what it opens and imports
    /// then. None where that may be chance.
    pub(super) fn opening(&self) -> [f64; 2] {
        let later = self.sum(|maker| maker.later as f64);
        if later < FEWEST as f64 {
            return [0.0; 2];
        }
        let each = self.sum(|maker| maker.later_seconds) / later;
        let cpu_each =
            self.sum(|maker| maker.plain_cpu_seconds) / self.sum(|maker| maker.plain_images as f64);
        let first_images = |maker: &Fetching| maker.images.saturating_sub(maker.plain_images) as f64;
        let opening = self.mean(|maker| maker.first_seconds - each * first_images(maker));
        let cpu = self.mean(|maker| maker.first_cpu_seconds - cpu_each * first_images(maker));
        let error = self.variation() * each * self.mean(first_images) / (self.makers.len() as f64).sqrt();
        match opening > 2.0 * error {
            true => [opening, cpu.clamp(0.0, opening)],
            false => [0.0; 2],
        }
    }

    /// What a worker takes until it makes batches like its later ones, on a core of its own, and what of that it computes, seconds.
    pub(super) fn worker_start(&self, cores: u64) -> [f64; 2] {
        let computing = self.mean(|maker| maker.start_cpu_seconds).max(0.0);
        // Workers that start together share the cores.
        let shared = (self.loader.num_workers as f64 / cores as f64).max(1.0) - 1.0;
        let start = (self.mean(|maker| maker.start_seconds) - computing * shared).max(computing);
        let [opening, opening_cpu] = self.opening();
        [start + opening, computing + opening_cpu]
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{close, script};

    /// What a worker does once is no cost of every image.
    #[test]
    fn what_the_first_batch_opens_is_counted_as_start() {
        let mut script = script();
        for maker in &mut script.makers {
            let images = maker.images as f64;
            (maker.later, maker.later_seconds) = (14, 14.0 * 0.024);
            maker.later_squares = 14.0 * 0.024 * 0.024;
            (maker.plain_images, maker.plain_cpu_seconds) = (56, 56.0 * 0.004);
            // 200 ms of waiting and 100 of computing.
            (maker.first_seconds, maker.first_cpu_seconds) = (4.0 * 0.024 + 0.3, 4.0 * 0.004 + 0.1);
            maker.wait_seconds = 0.020 * images + 0.2;
            maker.process_cpu_seconds = 0.005 * images + 0.1;
            (maker.start_seconds, maker.start_cpu_seconds) = (0.05, 0.02);
        }
        let workload = script.workload(8, None);
        assert!(close(workload.loader_cpu_seconds, 0.005));
        assert!(close(workload.read_wait_seconds, 0.020));
        let loader = workload.script.unwrap();
        assert!(close(Some(loader.worker_start_seconds), 0.35));
        assert!(close(Some(loader.worker_start_cpu_seconds), 0.12));
        // A first batch that might take as long by chance is as others are.
        for maker in &mut script.makers {
            maker.later_squares = 14.0 * 4.0 * 4.0 * 0.024 * 0.024;
        }
        let loader = script.workload(8, None).script.unwrap();
        assert!(close(Some(loader.worker_start_seconds), 0.05));
    }
}
