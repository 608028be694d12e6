//! Maps values to positions in a chart.

use stokehold_page::svg::ticks;
use stokehold_tune::short;

/// An axis for objectives: logarithmic if they are positive and differ by a large factor.
#[derive(Debug, Clone, Copy)]
pub(super) struct Axis {
    is_log: bool,
    low: f64,
    high: f64,
    /// The positions of the ends.
    from: f64,
    to: f64,
}

/// The axis is logarithmic from this ratio of the largest to the smallest value.
const MUCH: f64 = 50.0;

impl Axis {
    /// An axis for the values. A few values far above all others are drawn at its end.
    pub fn around(values: &[f64], from: f64, to: f64) -> Self {
        let mut sorted: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
        sorted.sort_by(f64::total_cmp);
        let (low, high) = match (sorted.first(), sorted.last()) {
            (Some(low), Some(high)) => (*low, *high),
            _ => (0.0, 1.0),
        };
        let is_log = low > 0.0 && high / low >= MUCH;
        if is_log {
            return Self {
                is_log,
                low: low.ln(),
                high: high.ln(),
                from,
                to,
            };
        }
        let most = sorted.get(sorted.len() * 9 / 10).copied().unwrap_or(high);
        let high = if high - low > 5.0 * (most - low) && most > low {
            most + (most - low) / 2.0
        } else {
            high
        };
        let marks = ticks(low, high, 4);
        Self {
            is_log,
            low: marks[0],
            high: marks[marks.len() - 1],
            from,
            to,
        }
    }

    /// The position of a value; a value outside of the axis is at its end.
    pub fn place(&self, value: f64) -> f64 {
        let value = if self.is_log {
            value.max(1e-300).ln()
        } else {
            value
        };
        let share = ((value - self.low) / (self.high - self.low).max(1e-300)).clamp(0.0, 1.0);
        self.from + share * (self.to - self.from)
    }

    /// Values to label, and their positions.
    pub fn marks(&self) -> Vec<(String, f64)> {
        let values: Vec<f64> = match self.is_log {
            true => {
                let (low, high) = (
                    self.low / std::f64::consts::LN_10,
                    self.high / std::f64::consts::LN_10,
                );
                let step = ((high - low) / 4.0).ceil().max(1.0) as i32;
                let powers = (low.ceil() as i32..=high.floor() as i32).step_by(step as usize);
                powers.map(|power| 10_f64.powi(power)).collect()
            }
            false => ticks(self.low, self.high, 4),
        };
        values
            .into_iter()
            .map(|value| (short(value), self.place(value)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_by_much_is_logarithmic() {
        let axis = Axis::around(&[0.01, 1.0, 100.0], 0.0, 100.0);
        assert!((axis.place(1.0) - 50.0).abs() < 1e-9);
        assert!(axis.marks().len() >= 2);
        let flat = Axis::around(&[2.0, 2.0], 0.0, 100.0);
        assert!(flat.place(2.0).is_finite());
        let far = Axis::around(
            &[0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 9e9],
            0.0,
            100.0,
        );
        assert!(far.place(0.5) > 20.0 && far.place(9e9) == 100.0);
        assert_eq!(Axis::around(&[], 0.0, 1.0).marks().len(), 3);
    }
}
