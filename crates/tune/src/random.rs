//! Pseudo-random numbers, a function of a study's seed and a trial's number.

use stokehold_base::random;

/// The random numbers of a trial.
#[derive(Debug, Clone)]
pub(crate) struct Random(random::Random);

impl Random {
    /// The random numbers of one trial of one study.
    pub fn of(seed: u64, trial: usize) -> Self {
        let study = random::mix(seed);
        Self(random::Random::from_state(
            study ^ (trial as u64).wrapping_mul(0xd134_2543_de82_ef95),
        ))
    }

    /// In 0 <= x < 1.
    pub fn unit(&mut self) -> f64 {
        self.0.unit()
    }

    /// In 0..n; n is at least 1.
    pub fn below(&mut self, n: usize) -> usize {
        (self.unit() * n as f64) as usize
    }

    /// Standard normal (Box and Muller).
    pub fn normal(&mut self) -> f64 {
        let (a, b) = (1.0 - self.unit(), self.unit());
        (-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos()
    }

    /// A random permutation of 0..n (Fisher and Yates).
    pub fn order(&mut self, n: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..n).collect();
        for i in (1..n).rev() {
            order.swap(i, self.below(i + 1));
        }
        order
    }
}
