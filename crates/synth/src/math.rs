//! Arithmetic that gives the same bits on every machine.
//!
//! Addition, multiplication, division and square root are exact by IEEE 754 and therefore the same everywhere. The
//! platform's sine is not, so this one is a polynomial.

/// Sine and cosine of an angle given in turns (1.0 is a full circle), to about 0.001.
pub(super) fn sin_cos(turns: f32) -> (f32, f32) {
    (sine(turns), sine(turns + 0.25))
}

/// Bhaskara's approximation in a refined form: a parabola, then a correction of its shape.
fn sine(turns: f32) -> f32 {
    // -0.5..0.5, where the parabola 8x(1 - 2|x|) has the sine's zeros and extremes.
    let x = turns - (turns + 0.5).floor();
    let parabola = 8.0 * x * (1.0 - 2.0 * x.abs());
    parabola * (0.775 + 0.225 * parabola.abs())
}

/// 0 below `low`, 1 above `high`, smooth between.
pub(super) fn smoothstep(low: f32, high: f32, x: f32) -> f32 {
    let t = ((x - low) / (high - low)).clamp(0.0, 1.0);
    t * t * (3.0 - 2.0 * t)
}

/// The part of `x` above the next lower whole number.
pub(super) fn fract(x: f32) -> f32 {
    x - x.floor()
}

/// `a` at 0, `b` at 1.
pub(super) fn lerp(a: f32, b: f32, t: f32) -> f32 {
    a + (b - a) * t
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sine_is_near_the_sine() {
        for step in -2000..2000 {
            let turns = step as f32 / 777.0;
            let (sin, cos) = sin_cos(turns);
            let angle = f64::from(turns) * std::f64::consts::TAU;
            assert!((f64::from(sin) - angle.sin()).abs() < 2e-3, "{turns}");
            assert!((f64::from(cos) - angle.cos()).abs() < 2e-3, "{turns}");
        }
    }
}
