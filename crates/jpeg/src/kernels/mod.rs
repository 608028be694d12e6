//! The inner loops: transform, upsampling, colour.
//!
//! Each has a portable form, which is its definition, and a form for AVX2 that gives the same bits. Which one
//! runs is decided once, by an [`Isa`]. There is none for AVX-512: registers of 512 bits made the transform and
//! the colours cheaper, and everything else of a decode dearer by more than that.

pub(crate) mod color;
pub(crate) mod idct;
pub(crate) mod reduced;
pub(crate) mod upsample;

#[cfg(target_arch = "x86_64")]
pub(crate) mod avx2;

/// The instructions that may be used.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Isa {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
}

impl Isa {
    /// The best this processor has.
    pub fn detect() -> Isa {
        #[cfg(target_arch = "x86_64")]
        if let Some(avx2) = Avx2::detect() {
            return Isa::Avx2(avx2);
        }
        Isa::Portable
    }
}

/// Proof that the processor has AVX2, BMI1, BMI2 and LZCNT: only [`Avx2::detect`] makes one.
#[cfg(target_arch = "x86_64")]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Avx2(());

#[cfg(target_arch = "x86_64")]
impl Avx2 {
    fn detect() -> Option<Avx2> {
        let has = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("lzcnt");
        has.then_some(Avx2(()))
    }
}

/// How many items a kernel may touch where it was asked for `count`: it works on 32 at a time.
pub(crate) fn padded(count: usize) -> usize {
    count.next_multiple_of(32)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::Isa;

    /// What this processor has, for comparisons with the portable form.
    pub fn best() -> Isa {
        let isa = Isa::detect();
        if matches!(isa, Isa::Portable) {
            println!("no AVX2 here: the portable form is compared with itself");
        }
        isa
    }

    /// Numbers that look random and are the same in every run.
    pub fn numbers(seed: u64) -> impl FnMut() -> u64 {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        }
    }
}
