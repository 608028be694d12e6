//! Which instructions the kernels use.

use std::sync::Once;

/// Which instructions the kernels use.
///
/// The variants other than `Portable` are made by [`Isa::detect`] alone, so holding one is proof that the processor
/// has the instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Isa {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// With BW, VL, VBMI and VNNI, which came together.
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Isa {
    /// The widest that this processor has.
    pub fn detect() -> Isa {
        static SAID: Once = Once::new();
        let isa = Isa::all().pop().unwrap_or(Isa::Portable);
        SAID.call_once(|| tracing::debug!(?isa, "kernels of the executor fused"));
        isa
    }

    /// All that this processor has, the widest last.
    pub fn all() -> Vec<Isa> {
        #[cfg_attr(not(target_arch = "x86_64"), allow(unused_mut))]
        let mut all = vec![Isa::Portable];
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") {
            all.push(Isa::Avx2);
            if is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("avx512vbmi")
                && is_x86_feature_detected!("avx512vnni")
            {
                all.push(Isa::Avx512);
            }
        }
        all
    }
}
