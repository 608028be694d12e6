//! What translated code calls: functions of this library.

use crate::block::{Thread, suspend};
use cranelift_codegen::ir::{Type, types};
use half::{bf16, f16};
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

macro_rules! hosts {
    ($($host:ident = $function:ident ($($argument:ident),*) -> $result:ident;)*) => {
        /// A function that translated code calls.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Host {
            $(#[doc = stringify!($function)] $host,)*
        }

        impl Host {
            /// All of them.
            pub const ALL: &[Host] = &[$(Host::$host),*];

            /// The name by which translated code finds it.
            pub fn name(self) -> &'static str {
                match self { $(Host::$host => concat!("host_", stringify!($function)),)* }
            }

            /// Its code.
            pub fn code(self) -> *const u8 {
                match self { $(Host::$host => $function as *const u8,)* }
            }

            /// The types of its arguments and of its answer.
            pub fn signature(self) -> (&'static [Type], Type) {
                match self { $(Host::$host => (&[$(types::$argument),*], types::$result),)* }
            }
        }
    };
}

hosts! {
    Suspend = suspend(I64, I32, I32, I32, I32, I32) -> I64;
    Ex2 = ex2(F32) -> F32;
    Lg2 = lg2(F32) -> F32;
    Sin = sin(F32) -> F32;
    Cos = cos(F32) -> F32;
    Tanh = tanh(F32) -> F32;
    FloatOfF16 = float_of_f16(I16) -> F32;
    FloatOfBf16 = float_of_bf16(I16) -> F32;
    F16OfFloat = f16_of_float(F32) -> I16;
    Bf16OfFloat = bf16_of_float(F32) -> I16;
    FmaDown = fma_down(F32, F32, F32) -> F32;
    FmaF16 = fma_f16(I16, I16, I16) -> I16;
    FmaBf16 = fma_bf16(I16, I16, I16) -> I16;
    Permute = permute(I32, I32, I32) -> I32;
    Insert32 = insert32(I32, I32, I32, I32) -> I32;
    Insert64 = insert64(I64, I64, I32, I32) -> I64;
    Extract32 = extract32(I32, I32, I32) -> I32;
    ExtractSigned32 = extract_signed32(I32, I32, I32) -> I32;
    Extract64 = extract64(I64, I32, I32) -> I64;
    ExtractSigned64 = extract_signed64(I64, I32, I32) -> I64;
    AtomicAddF32 = atomic_add_f32(I64, I32) -> I32;
    AtomicAddF64 = atomic_add_f64(I64, I64) -> I64;
    AtomicAddF16 = atomic_add_f16(I64, I16) -> I16;
    AtomicAddBf16 = atomic_add_bf16(I64, I16) -> I16;
    AtomicAddF16x2 = atomic_add_f16x2(I64, I32) -> I32;
    AtomicAddBf16x2 = atomic_add_bf16x2(I64, I32) -> I32;
    AtomicInc = atomic_inc(I64, I32) -> I32;
    AtomicDec = atomic_dec(I64, I32) -> I32;
}

// The signature of `suspend` is written in `hosts` by its types alone.
const _: unsafe extern "C" fn(*mut Thread, u32, u32, u32, u32, u32) -> u64 = suspend;

/// With more bits than the result has, so that the error is one rounding.
fn wide(x: f32, function: fn(f64) -> f64) -> f32 {
    function(f64::from(x)) as f32
}

extern "C" fn ex2(x: f32) -> f32 {
    wide(x, f64::exp2)
}

extern "C" fn lg2(x: f32) -> f32 {
    wide(x, f64::log2)
}

extern "C" fn sin(x: f32) -> f32 {
    wide(x, f64::sin)
}

extern "C" fn cos(x: f32) -> f32 {
    wide(x, f64::cos)
}

extern "C" fn tanh(x: f32) -> f32 {
    wide(x, f64::tanh)
}

extern "C" fn float_of_f16(bits: u16) -> f32 {
    f16::from_bits(bits).to_f32()
}

extern "C" fn float_of_bf16(bits: u16) -> f32 {
    bf16::from_bits(bits).to_f32()
}

extern "C" fn f16_of_float(x: f32) -> u16 {
    f16::from_f32(x).to_bits()
}

extern "C" fn bf16_of_float(x: f32) -> u16 {
    bf16::from_f32(x).to_bits()
}

/// `a * b + c`, so that rounding it to fewer bits rounds once: a sum that 64 bits do not hold is rounded to an odd one, which
/// no later rounding takes for a tie or for a number of fewer bits.
fn fma_odd(a: f32, b: f32, c: f32) -> f64 {
    let (product, c) = (f64::from(a) * f64::from(b), f64::from(c));
    let sum = product + c;
    // The error of a sum, by Knuth; the product is exact.
    let c_part = sum - product;
    let error = (product - (sum - c_part)) + (c - c_part);
    if !sum.is_finite() || error == 0.0 || sum.to_bits() & 1 == 1 {
        return sum;
    }
    // The neighbour on the error's side is odd.
    match (error > 0.0) == (sum > 0.0) {
        true => f64::from_bits(sum.to_bits() + 1),
        false => f64::from_bits(sum.to_bits() - 1),
    }
}

/// `a * b + c`, rounded to the next number that is not above it.
extern "C" fn fma_down(a: f32, b: f32, c: f32) -> f32 {
    let sum = fma_odd(a, b, c);
    if sum == 0.0 {
        // Two zeros of one sign keep it; all else that makes nothing is below zero.
        let is_positive = f64::from(a) * f64::from(b) == 0.0
            && (a.is_sign_positive() == b.is_sign_positive())
            && c.is_sign_positive();
        return if is_positive { 0.0 } else { -0.0 };
    }
    let nearest = sum as f32;
    match f64::from(nearest) > sum {
        true => nearest.next_down(),
        false => nearest,
    }
}

extern "C" fn fma_f16(a: u16, b: u16, c: u16) -> u16 {
    let [a, b, c] = [a, b, c].map(|bits| float_of_f16(bits));
    // Exact, once it has no more digits than the result.
    f16::from_f64(rounded(fma_odd(a, b, c), 10, -14)).to_bits()
}

extern "C" fn fma_bf16(a: u16, b: u16, c: u16) -> u16 {
    let [a, b, c] = [a, b, c].map(|bits| float_of_bf16(bits));
    bf16::from_f64(rounded(fma_odd(a, b, c), 7, -126)).to_bits()
}

/// The nearest number with so many digits behind the first one and an exponent of at least `least`, or with the same last digit
/// as those; of two the even one. Not `half`'s own conversion, which cuts digits off, or goes by way of 32 bits: it would round
/// twice.
fn rounded(x: f64, digits: i32, least: i32) -> f64 {
    if x == 0.0 || !x.is_finite() {
        return x;
    }
    let exponent = ((x.to_bits() >> 52 & 0x7FF) as i32 - 1023).max(least);
    // A power of two that is far from the ends of 64 bits' range, so both products are exact.
    let unit = 2f64.powi(exponent - digits);
    (x / unit).round_ties_even() * unit
}

extern "C" fn permute(low: u32, high: u32, selector: u32) -> u32 {
    let bytes = (u64::from(high) << 32 | u64::from(low)).to_le_bytes();
    let chosen = [0, 4, 8, 12].map(|shift| {
        let which = (selector >> shift) & 15;
        let byte = bytes[(which & 7) as usize];
        match which & 8 {
            0 => byte,
            _ => ((byte as i8) >> 7) as u8,
        }
    });
    u32::from_le_bytes(chosen)
}

/// The lowest `len` bits; places and lengths are the lowest byte of theirs.
fn low_bits(len: u32) -> u64 {
    match len & 255 {
        len @ 0..64 => (1 << len) - 1,
        _ => u64::MAX,
    }
}

extern "C" fn insert64(field: u64, into: u64, at: u32, len: u32) -> u64 {
    let mask = low_bits(len).checked_shl(at & 255).unwrap_or(0);
    let field = field.checked_shl(at & 255).unwrap_or(0);
    (into & !mask) | (field & mask)
}

extern "C" fn insert32(field: u32, into: u32, at: u32, len: u32) -> u32 {
    insert64(field.into(), into.into(), at, len) as u32
}

extern "C" fn extract64(from: u64, at: u32, len: u32) -> u64 {
    from.checked_shr(at & 255).unwrap_or(0) & low_bits(len)
}

extern "C" fn extract32(from: u32, at: u32, len: u32) -> u32 {
    extract64(from.into(), at, len) as u32
}

/// What lies above the field is the field's sign, or that of the whole where the field ends outside of it.
fn extract_signed(from: i64, at: u32, len: u32, bits: u32) -> i64 {
    let (at, len) = (at & 255, len & 255);
    if len == 0 {
        return 0;
    }
    let sign = (from >> (at + len - 1).min(bits - 1)) & 1;
    let low = low_bits(len) as i64;
    (from.checked_shr(at).unwrap_or(from >> 63) & low) | (-sign & !low)
}

extern "C" fn extract_signed64(from: i64, at: u32, len: u32) -> i64 {
    extract_signed(from, at, len, 64)
}

extern "C" fn extract_signed32(from: i32, at: u32, len: u32) -> i32 {
    extract_signed(from.into(), at, len, 32) as i32
}

macro_rules! atomics {
    ($($(#[$doc:meta])* $function:ident($atomic:ident, $bits:ident): $next:expr;)*) => {$(
        $(#[$doc])*
        extern "C" fn $function(address: *mut $bits, operand: $bits) -> $bits {
            let next: fn($bits, $bits) -> $bits = $next;
            // SAFETY: the translated code has checked that the address is a multiple of the size. Whether there is memory
            // is the kernel's matter, as it is for its other accesses; all of them are done by translated code, and no
            // Rust reference to that memory lives meanwhile.
            let place = unsafe { $atomic::from_ptr(address) };
            let mut old = place.load(Ordering::SeqCst);
            while let Err(now) =
                place.compare_exchange(old, next(old, operand), Ordering::SeqCst, Ordering::SeqCst)
            {
                old = now;
            }
            old
        }
    )*};
}

fn add_f16(a: u16, b: u16) -> u16 {
    f16_of_float(float_of_f16(a) + float_of_f16(b))
}

fn add_bf16(a: u16, b: u16) -> u16 {
    bf16_of_float(float_of_bf16(a) + float_of_bf16(b))
}

fn both(a: u32, b: u32, add: fn(u16, u16) -> u16) -> u32 {
    u32::from(add(a as u16, b as u16)) | u32::from(add((a >> 16) as u16, (b >> 16) as u16)) << 16
}

atomics! {
    atomic_add_f32(AtomicU32, u32): |a, b| (f32::from_bits(a) + f32::from_bits(b)).to_bits();
    atomic_add_f64(AtomicU64, u64): |a, b| (f64::from_bits(a) + f64::from_bits(b)).to_bits();
    atomic_add_f16(AtomicU16, u16): add_f16;
    atomic_add_bf16(AtomicU16, u16): add_bf16;
    atomic_add_f16x2(AtomicU32, u32): |a, b| both(a, b, add_f16);
    atomic_add_bf16x2(AtomicU32, u32): |a, b| both(a, b, add_bf16);
    /// Counts up, to `bound` and then from 0 again.
    atomic_inc(AtomicU32, u32): |a, bound| if a >= bound { 0 } else { a + 1 };
    /// Counts down, to 0 and then from `bound` again.
    atomic_dec(AtomicU32, u32): |a, bound| if a == 0 || a > bound { bound } else { a - 1 };
}
