//! Selects the details of a long run that are kept.

/// The number of spans of a detail that are kept before steps are skipped. With all its details a run keeps
/// about 20 MB more each time its length doubles.
pub const DETAILS: u64 = 50_000;

/// Keeps all spans of a step or none, and fewer steps the longer the run is.
#[derive(Debug)]
pub(super) struct Thinner {
    kept: u64,
    /// Spans without a step.
    single: u64,
    stride: u64,
    /// The step of the last span.
    step: Option<u64>,
}

impl Default for Thinner {
    fn default() -> Self {
        Self {
            kept: 0,
            single: 0,
            stride: 1,
            step: None,
        }
    }
}

impl Thinner {
    /// Whether to keep a span of the step. Details with different strides agree: a step kept with one stride
    /// is kept with every smaller one.
    pub fn keeps(&mut self, step: Option<u64>) -> bool {
        let step = step.unwrap_or_else(|| {
            self.single += 1;
            self.single
        });
        if self.step.replace(step) != Some(step) {
            while self.stride < 1 << 62
                && self.kept >= DETAILS * (u64::from(self.stride.trailing_zeros()) + 1)
            {
                self.stride *= 2;
            }
        }
        let keeps = step.is_multiple_of(self.stride);
        self.kept += u64::from(keeps);
        keeps
    }

    /// The current stride: every how many steps one is kept.
    pub fn stride(&self) -> u64 {
        self.stride
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_run_keeps_ever_fewer_steps_each_whole() {
        let mut thin = Thinner::default();
        let mut kept = Vec::new();
        for step in 0..100_000 {
            let of_step = (0..32).filter(|_| thin.keeps(Some(step))).count();
            if of_step > 0 {
                kept.push((step, of_step));
            }
        }
        assert!(kept.iter().all(|(_, count)| *count == 32));
        // 50,000 spans at each of the strides 1, 2, .., 32, some at 64.
        assert_eq!(thin.stride(), 64);
        let spans = kept.iter().map(|(_, count)| *count as u64).sum::<u64>();
        assert!((6 * DETAILS..7 * DETAILS).contains(&spans), "{spans}");
        assert!(kept.last().unwrap().0 > 99_900);
    }

    #[test]
    fn spans_of_no_step_are_steps_of_their_own() {
        let mut thin = Thinner::default();
        let kept = (0..4 * DETAILS).filter(|_| thin.keeps(None)).count() as u64;
        assert_eq!(thin.stride(), 4);
        assert!((2 * DETAILS..3 * DETAILS).contains(&kept), "{kept}");
    }

    /// Such spans cannot be thinned.
    #[test]
    fn a_step_that_never_ends() {
        let mut thin = Thinner::default();
        assert!((0..DETAILS * 3).all(|_| thin.keeps(Some(7))));
    }
}
