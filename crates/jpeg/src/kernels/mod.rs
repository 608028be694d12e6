//! The inner loops: transform, upsampling, colour.
//!
//! Each has a portable form, which is its definition, and forms for AVX2 and NEON, where they pay, that give the
//! same bits. Which one runs is decided once, by an [`Isa`].
//!
//! There is none for AVX-512. On a Xeon of the Sapphire Rapids kind registers of 512 bits made everything else of
//! a decode dearer, by a tenth, and that is more than they saved in the transform and the colours.

pub(crate) mod color;
pub(crate) mod idct;
pub(crate) mod reduced;
pub(crate) mod upsample;

#[cfg(target_arch = "x86_64")]
pub(crate) mod avx2;
#[cfg(target_arch = "aarch64")]
pub(crate) mod neon;

/// The instructions that may be used.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Isa {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
    #[cfg(target_arch = "aarch64")]
    Neon(Neon),
}

impl Isa {
    /// The best this processor has.
    pub fn detect() -> Isa {
        #[cfg(target_arch = "x86_64")]
        if let Some(avx2) = Avx2::detect() {
            return Isa::Avx2(avx2);
        }
        #[cfg(target_arch = "aarch64")]
        if let Some(neon) = Neon::detect() {
            return Isa::Neon(neon);
        }
        Isa::Portable
    }
}

/// Proof that the processor has AVX2, BMI1, BMI2, LZCNT and POPCNT: only [`Avx2::detect`] makes one.
#[cfg(target_arch = "x86_64")]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Avx2(());

#[cfg(target_arch = "x86_64")]
impl Avx2 {
    fn detect() -> Option<Avx2> {
        let has = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("lzcnt")
            && is_x86_feature_detected!("popcnt");
        has.then_some(Avx2(()))
    }
}

/// Proof that the processor has NEON: only [`Neon::detect`] makes one.
#[cfg(target_arch = "aarch64")]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Neon(());

#[cfg(target_arch = "aarch64")]
impl Neon {
    fn detect() -> Option<Neon> {
        std::arch::is_aarch64_feature_detected!("neon").then_some(Neon(()))
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
            println!("no AVX2 or NEON here: the portable form is compared with itself");
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
