//! Each group of instructions against Rust's arithmetic, and threads that work together.

use super::*;
use crate::block::{Fault, Launch};
use crate::ptx::Module;
use crate::settings::Order;
use half::{bf16, f16};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::cmp::Ordering;

fn compile(text: &str) -> Result<Vec<Kernel>> {
    translate(&Module::parse(text)?, |_| Err("no variables here".into()))
}

fn launch(
    kernel: &Kernel,
    pointers: &[u64],
    grid: u32,
    block: u32,
    order: Order,
) -> std::result::Result<(), Fault> {
    let params: Vec<u8> = pointers
        .iter()
        .flat_map(|pointer| pointer.to_le_bytes())
        .collect();
    let launch = Launch {
        kernel,
        params: &params,
        grid: [grid, 1, 1],
        block: [block, 1, 1],
        shared: kernel.shared + 64,
        order,
    };
    launch.run(2)
}

/// A kernel whose threads take three numbers each (`%rd1` to `%rd3`, their halves `%r1` and quarters `%h1`, and
/// whether they are odd, `%p1`) and give one, `%rd0`.
fn kernel(code: &str) -> String {
    format!(
        "
.version 8.7
.target sm_90
.address_size 64
.visible .entry k(.param .u64 in, .param .u64 out)
{{
    .reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %r<20>; .reg .b64 %rd<30>;
    .shared .align 8 .b8 tile[512];
    mov.u32 %r10, %ctaid.x; mov.u32 %r11, %ntid.x; mov.u32 %r12, %tid.x; mad.lo.u32 %r13, %r10, %r11, %r12;
    ld.param.u64 %rd20, [in]; ld.param.u64 %rd21, [out];
    cvta.to.global.u64 %rd20, %rd20;
    mad.wide.u32 %rd23, %r13, 24, %rd20;
    ld.global.nc.u64 %rd1, [%rd23]; ld.global.u64 %rd2, [%rd23+8]; ld.u64 %rd3, [%rd23+16];
    cvt.u32.u64 %r1, %rd1; cvt.u32.u64 %r2, %rd2; cvt.u32.u64 %r3, %rd3;
    cvt.u16.u64 %h1, %rd1; cvt.u16.u64 %h2, %rd2; cvt.u16.u64 %h3, %rd3;
    and.b32 %r14, %r1, 1; setp.ne.u32 %p1, %r14, 0;
    and.b32 %r14, %r2, 1; setp.ne.u32 %p2, %r14, 0;
    mov.u64 %rd0, 0; mov.u32 %r0, 0; mov.u16 %h0, 0;
    {code}
    mad.wide.u32 %rd25, %r13, 8, %rd21;
    st.global.u64 [%rd25], %rd0;
    ret;
}}"
    )
}

fn run(kernel: &Kernel, inputs: &[[u64; 3]], order: Order) -> std::result::Result<Vec<u64>, Fault> {
    let mut outputs = vec![0u64; inputs.len()];
    let pointers = [inputs.as_ptr() as u64, outputs.as_mut_ptr() as u64];
    let block = inputs.len().min(64);
    launch(
        kernel,
        &pointers,
        (inputs.len() / block) as u32,
        block as u32,
        order,
    )?;
    Ok(outputs)
}

/// Numbers at which arithmetic changes its mind, and any others.
fn numbers() -> impl Strategy<Value = u64> {
    let single = prop::sample::select(vec![
        0.0f32,
        -0.0,
        0.5,
        1.0,
        -1.0,
        1.5,
        2.5,
        255.49,
        -3.999,
        3e9,
        -3e9,
        1e19,
        f32::NAN,
        f32::INFINITY,
        -f32::INFINITY,
        f32::MIN_POSITIVE,
        1e-40,
        -1e-40,
        f32::MAX,
        65504.0,
        65520.0,
        6e-8,
    ]);
    let double = prop::sample::select(vec![
        0.0f64,
        -0.0,
        0.5,
        -2.5,
        1e300,
        f64::NAN,
        f64::INFINITY,
        1e-310,
        4294967295.5,
        -9.3e18,
        1.9e19,
        65536.0,
    ]);
    let edges = prop::sample::select(vec![
        0u64,
        1,
        2,
        7,
        15,
        16,
        31,
        32,
        33,
        63,
        64,
        65,
        0x7F,
        0x80,
        0xFF,
        0x7FFF,
        0x8000,
        0xFFFF,
        0x7FFF_FFFF,
        0x8000_0000,
        0xFFFF_FFFF,
        1 << 32,
        i64::MAX as u64,
        i64::MIN as u64,
        u64::MAX,
        u64::MAX - 1,
    ]);
    prop_oneof![
        edges,
        any::<u64>(),
        any::<u64>().prop_map(|x| x >> (x & 63)),
        single.prop_map(|x| x.to_bits().into()),
        double.prop_map(f64::to_bits),
        any::<f32>().prop_map(|x| x.to_bits().into()),
        any::<f64>().prop_map(f64::to_bits),
    ]
}

/// How results are compared.
#[derive(Clone, Copy, PartialEq)]
enum Same {
    Bits,
    /// What is no number is the same as what is no number.
    F32,
    F64,
    F16,
    Bf16,
    /// As the documents of PTX bound the error of approximations.
    Near,
}

impl Same {
    fn holds(self, a: u64, b: u64) -> bool {
        let (x, y) = (f32::from_bits(a as u32), f32::from_bits(b as u32));
        a == b
            || match self {
                Same::Bits => false,
                Same::F32 => x.is_nan() && y.is_nan(),
                Same::F64 => f64::from_bits(a).is_nan() && f64::from_bits(b).is_nan(),
                Same::F16 => f16::from_bits(a as u16).is_nan() && f16::from_bits(b as u16).is_nan(),
                Same::Bf16 => bf16::from_bits(a as u16).is_nan() && bf16::from_bits(b as u16).is_nan(),
                Same::Near => (x.is_nan() && y.is_nan()) || (x - y).abs() <= y.abs() * 2e-7 + 1e-44,
            }
    }
}

/// Compares a piece of PTX with what it should compute.
#[track_caller]
fn check(same: Same, code: &str, expected: impl Fn(u64, u64, u64) -> u64) {
    let kernels = compile(&kernel(code)).unwrap_or_else(|error| panic!("{code}: {error}"));
    let strategy = prop::collection::vec([numbers(), numbers(), numbers()], 64);
    let config = Config {
        cases: 40,
        failure_persistence: None,
        ..Config::default()
    };
    let result = TestRunner::new(config).run(&strategy, |inputs| {
        let outputs = run(&kernels[0], &inputs, Order::Forward).expect("no fault");
        for ([a, b, c], output) in inputs.iter().zip(outputs) {
            let wanted = expected(*a, *b, *c);
            prop_assert!(
                same.holds(output, wanted),
                "{a:#x} {b:#x} {c:#x}: {output:#x}, not {wanted:#x}"
            );
        }
        Ok(())
    });
    if let Err(error) = result {
        panic!("{code}: {error}");
    }
}

/// The same for results of 32 bits.
#[track_caller]
fn check32(code: &str, expected: impl Fn(u32, u32, u32) -> u32) {
    let code = format!("{code} cvt.u64.u32 %rd0, %r0;");
    check(Same::Bits, &code, |a, b, c| {
        expected(a as u32, b as u32, c as u32).into()
    });
}

#[track_caller]
fn check_f32(same: Same, code: &str, expected: impl Fn(f32, f32, f32) -> f32) {
    let code = format!("{code} cvt.u64.u32 %rd0, %r0;");
    let f = |x: u64| f32::from_bits(x as u32);
    check(same, &code, |a, b, c| expected(f(a), f(b), f(c)).to_bits().into());
}

#[track_caller]
fn check_f64(code: &str, expected: impl Fn(f64, f64, f64) -> f64) {
    check(Same::F64, code, |a, b, c| {
        expected(f64::from_bits(a), f64::from_bits(b), f64::from_bits(c)).to_bits()
    });
}

#[track_caller]
fn check16(same: Same, code: &str, expected: impl Fn(u16, u16, u16) -> u16) {
    let code = format!("{code} cvt.u64.u16 %rd0, %h0;");
    check(same, &code, |a, b, c| {
        expected(a as u16, b as u16, c as u16).into()
    });
}

#[test]
fn integers_are_added_and_multiplied() {
    check32("add.s32 %r0, %r1, %r2;", |a, b, _| a.wrapping_add(b));
    check32("sub.s32 %r0, %r1, %r2;", |a, b, _| a.wrapping_sub(b));
    check32("sub.u32 %r0, %r1, -7;", |a, _, _| a.wrapping_add(7));
    check32("add.sat.s32 %r0, %r1, %r2;", |a, b, _| {
        (a as i32).saturating_add(b as i32) as u32
    });
    check32("mul.lo.s32 %r0, %r1, %r2;", |a, b, _| a.wrapping_mul(b));
    check32("mul.hi.u32 %r0, %r1, %r2;", |a, b, _| {
        ((u64::from(a) * u64::from(b)) >> 32) as u32
    });
    check32("mul.hi.s32 %r0, %r1, %r2;", |a, b, _| {
        ((i64::from(a as i32) * i64::from(b as i32)) >> 32) as u32
    });
    check32("mad.lo.s32 %r0, %r1, %r2, %r3;", |a, b, c| {
        a.wrapping_mul(b).wrapping_add(c)
    });
    check32("sad.s32 %r0, %r1, %r2, %r3;", |a, b, c| {
        (a as i32).abs_diff(b as i32).wrapping_add(c)
    });
    check(Same::Bits, "mul.wide.s32 %rd0, %r1, %r2;", |a, b, _| {
        (i64::from(a as i32) * i64::from(b as i32)) as u64
    });
    check(Same::Bits, "mul.wide.u32 %rd0, %r1, %r2;", |a, b, _| {
        u64::from(a as u32) * u64::from(b as u32)
    });
    check(
        Same::Bits,
        "mad.wide.u16 %r0, %h1, %h2, %r3; cvt.u64.u32 %rd0, %r0;",
        |a, b, c| {
            (u32::from(a as u16) * u32::from(b as u16))
                .wrapping_add(c as u32)
                .into()
        },
    );
    check(Same::Bits, "mul.lo.s64 %rd0, %rd1, %rd2;", |a, b, _| {
        a.wrapping_mul(b)
    });
    check(Same::Bits, "mul.hi.u64 %rd0, %rd1, %rd2;", |a, b, _| {
        ((u128::from(a) * u128::from(b)) >> 64) as u64
    });
    check(Same::Bits, "mul.hi.s64 %rd0, %rd1, %rd2;", |a, b, _| {
        ((i128::from(a as i64) * i128::from(b as i64)) >> 64) as u64
    });
    check16(Same::Bits, "mul.hi.s16 %h0, %h1, %h2;", |a, b, _| {
        ((i32::from(a as i16) * i32::from(b as i16)) >> 16) as u16
    });
    check16(Same::Bits, "add.s16 %h0, %h1, %h2;", |a, b, _| a.wrapping_add(b));
}

#[test]
fn carries_go_on() {
    let low =
        "cvt.u64.u32 %rd4, %r4; cvt.u64.u32 %rd5, %r5; shl.b64 %rd5, %rd5, 32; or.b64 %rd0, %rd4, %rd5;";
    let split = "mov.b64 {%r6, %r7}, %rd1; mov.b64 {%r8, %r9}, %rd2;";
    check(
        Same::Bits,
        &format!("{split} add.cc.u32 %r4, %r6, %r8; addc.u32 %r5, %r7, %r9; {low}"),
        |a, b, _| a.wrapping_add(b),
    );
    check(
        Same::Bits,
        &format!("{split} sub.cc.u32 %r4, %r6, %r8; subc.cc.u32 %r5, %r7, %r9; {low}"),
        |a, b, _| a.wrapping_sub(b),
    );
    check(
        Same::Bits,
        &format!("{split} mad.lo.cc.u32 %r4, %r6, %r8, %r3; madc.hi.u32 %r5, %r6, %r8, 0; {low}"),
        |a, b, c| {
            u64::from(a as u32)
                .wrapping_mul(u64::from(b as u32))
                .wrapping_add(u64::from(c as u32))
        },
    );
}

#[test]
fn integers_are_divided_even_by_zero() {
    check32("div.u32 %r0, %r1, %r2;", |a, b, _| {
        a.checked_div(b).unwrap_or(u32::MAX)
    });
    check32("rem.u32 %r0, %r1, %r2;", |a, b, _| a.checked_rem(b).unwrap_or(a));
    check32("div.s32 %r0, %r1, %r2;", |a, b, _| match b {
        0 => u32::MAX,
        _ => (a as i32).wrapping_div(b as i32) as u32,
    });
    check32("rem.s32 %r0, %r1, %r2;", |a, b, _| match b {
        0 => a,
        _ => (a as i32).wrapping_rem(b as i32) as u32,
    });
    check(Same::Bits, "div.s64 %rd0, %rd1, %rd2;", |a, b, _| match b {
        0 => u64::MAX,
        _ => (a as i64).wrapping_div(b as i64) as u64,
    });
    check(Same::Bits, "rem.u64 %rd0, %rd1, %rd2;", |a, b, _| {
        a.checked_rem(b).unwrap_or(a)
    });
    check16(Same::Bits, "div.s16 %h0, %h1, %h2;", |a, b, _| match b {
        0 => u16::MAX,
        _ => (a as i16).wrapping_div(b as i16) as u16,
    });
    check16(Same::Bits, "rem.u16 %h0, %h1, %h2;", |a, b, _| {
        a.checked_rem(b).unwrap_or(a)
    });
}

#[test]
fn integers_are_compared_and_chosen() {
    check32("min.s32 %r0, %r1, %r2;", |a, b, _| {
        (a as i32).min(b as i32) as u32
    });
    check32("max.u32 %r0, %r1, %r2;", |a, b, _| a.max(b));
    check32("max.relu.s32 %r0, %r1, %r2;", |a, b, _| {
        (a as i32).max(b as i32).max(0) as u32
    });
    check32("abs.s32 %r0, %r1;", |a, _, _| (a as i32).wrapping_abs() as u32);
    check32("neg.s32 %r0, %r1;", |a, _, _| a.wrapping_neg());
    for (name, holds) in [
        ("lt.s32", (|a, b| (a as i32) < b as i32) as fn(u32, u32) -> bool),
        ("ge.u32", |a, b| a >= b),
        ("hi.u32", |a, b| a > b),
        ("ls.u32", |a, b| a <= b),
        ("ne.b32", |a, b| a != b),
        ("le.s32", |a, b| a as i32 <= b as i32),
    ] {
        check32(
            &format!("setp.{name} %p3, %r1, %r2; selp.b32 %r0, 1, 2, %p3;"),
            |a, b, _| {
                if holds(a, b) { 1 } else { 2 }
            },
        );
    }
    // NVRTC writes true so for some architectures.
    check32(
        "mov.pred %p3, -1; mov.pred %p4, 0; selp.b32 %r0, 1, 2, %p3; @%p4 add.u32 %r0, %r0, 4;",
        |_, _, _| 1,
    );
    check32(
        "setp.lt.and.u32 %p3|%p4, %r1, %r2, !%p1; selp.u32 %r0, 1, 0, %p3; @%p4 add.u32 %r0, %r0, 2;",
        |a, b, _| {
            let odd = a & 1 == 1;
            u32::from(a < b && !odd) + 2 * u32::from(a >= b && !odd)
        },
    );
    check32(
        "and.pred %p3, %p1, %p2; not.pred %p4, %p3; selp.u32 %r0, %r1, %r2, %p4;",
        |a, b, _| {
            if a & b & 1 == 1 { b } else { a }
        },
    );
}

#[test]
fn bits_are_moved() {
    let over = |x: Option<u32>| x.unwrap_or(0);
    check32("shl.b32 %r0, %r1, %r2;", |a, b, _| over(a.checked_shl(b)));
    check32("shr.u32 %r0, %r1, %r2;", |a, b, _| over(a.checked_shr(b)));
    check32("shr.s32 %r0, %r1, %r2;", |a, b, _| {
        ((a as i32) >> b.min(31)) as u32
    });
    check(Same::Bits, "shl.b64 %rd0, %rd1, %r2;", |a, b, _| {
        a.checked_shl(b as u32).unwrap_or(0)
    });
    check(Same::Bits, "shr.s64 %rd0, %rd1, %r2;", |a, b, _| {
        ((a as i64) >> (b as u32).min(63)) as u64
    });
    check(
        Same::Bits,
        "shr.u16 %h0, %h1, %r2; cvt.u64.u16 %rd0, %h0;",
        |a, b, _| (a as u16).checked_shr(b as u32).unwrap_or(0).into(),
    );
    let both = |a: u32, b: u32| u64::from(b) << 32 | u64::from(a);
    check32("shf.l.wrap.b32 %r0, %r1, %r2, %r3;", move |a, b, c| {
        (both(a, b) << (c & 31) >> 32) as u32
    });
    check32("shf.r.wrap.b32 %r0, %r1, %r2, %r3;", move |a, b, c| {
        (both(a, b) >> (c & 31)) as u32
    });
    check32("shf.r.clamp.b32 %r0, %r1, %r2, %r3;", move |a, b, c| {
        (both(a, b) >> c.min(32)) as u32
    });
    check32(
        "and.b32 %r4, %r1, %r2; xor.b32 %r0, %r4, %r3; not.b32 %r0, %r0;",
        |a, b, c| !((a & b) ^ c),
    );
    check32("cnot.b32 %r0, %r1;", |a, _, _| u32::from(a == 0));
    check32("popc.b32 %r0, %r1;", |a, _, _| a.count_ones());
    check(
        Same::Bits,
        "popc.b64 %r0, %rd1; cvt.u64.u32 %rd0, %r0;",
        |a, _, _| a.count_ones().into(),
    );
    check(
        Same::Bits,
        "clz.b64 %r0, %rd1; cvt.u64.u32 %rd0, %r0;",
        |a, _, _| a.leading_zeros().into(),
    );
    check32("clz.b32 %r0, %r1;", |a, _, _| a.leading_zeros());
    check32("brev.b32 %r0, %r1;", |a, _, _| a.reverse_bits());
    check32("bfind.u32 %r0, %r1;", |a, _, _| {
        a.checked_ilog2().unwrap_or(u32::MAX)
    });
    check32("bfind.shiftamt.s32 %r0, %r1;", |a, _, _| {
        let magnitude = if (a as i32) < 0 { !a } else { a };
        magnitude.checked_ilog2().map_or(u32::MAX, |bit| 31 - bit)
    });
    for table in [0xE8u32, 0x96, 0x40, 0xFF, 0x00, 0x1B] {
        check32(&format!("lop3.b32 %r0, %r1, %r2, %r3, {table};"), |a, b, c| {
            (0..32).fold(0, |bits, i| {
                let row = (a >> i & 1) << 2 | (b >> i & 1) << 1 | (c >> i & 1);
                bits | (table >> row & 1) << i
            })
        });
    }
    let permuted = |a: u32, b: u32, selector: u32| {
        let bytes = both(a, b).to_le_bytes();
        (0..4).fold(0, |bits, i| {
            let which = selector >> (4 * i) & 15;
            let byte = bytes[which as usize & 7];
            let byte = if which & 8 == 0 {
                byte
            } else {
                ((byte as i8) >> 7) as u8
            };
            bits | u32::from(byte) << (8 * i)
        })
    };
    check32("prmt.b32 %r0, %r1, %r2, %r3;", permuted);
    for selector in [0x3210, 0x7654, 0x0123, 0xFA81, 0x4040] {
        check32(&format!("prmt.b32 %r0, %r1, %r2, {selector};"), |a, b, _| {
            permuted(a, b, selector)
        });
    }
}

/// The description of PTX, bit by bit.
#[test]
fn fields_of_bits_are_read_and_written() {
    fn read(a: u64, at: u64, len: u64, bits: u64, signed: bool) -> u64 {
        let (at, len) = (at & 255, len & 255);
        let sign = match len {
            0 => 0,
            _ => u64::from(signed) & (a >> (at + len - 1).min(bits - 1)),
        };
        (0..bits).fold(0, |result, i| {
            let bit = if i < len && at + i < bits {
                a >> (at + i)
            } else {
                sign
            };
            result | (bit & 1) << i
        })
    }
    fn write(a: u64, b: u64, at: u64, len: u64, bits: u64) -> u64 {
        let (at, len) = (at & 255, len & 255);
        (0..len)
            .filter(|i| at + i < bits)
            .fold(b, |b, i| b & !(1 << (at + i)) | (a >> i & 1) << (at + i))
    }
    check32("bfe.u32 %r0, %r1, %r2, %r3;", |a, b, c| {
        read(a.into(), b.into(), c.into(), 32, false) as u32
    });
    check32("bfe.s32 %r0, %r1, %r2, %r3;", |a, b, c| {
        read(a.into(), b.into(), c.into(), 32, true) as u32
    });
    check32("bfe.u32 %r0, %r1, 8, 5;", |a, _, _| a >> 8 & 31);
    check(Same::Bits, "bfe.u64 %rd0, %rd1, %r2, %r3;", |a, b, c| {
        read(a, b, c, 64, false)
    });
    check(Same::Bits, "bfe.s64 %rd0, %rd1, %r2, %r3;", |a, b, c| {
        read(a, b, c, 64, true)
    });
    check32("bfi.b32 %r0, %r1, %r2, 4, %r3;", |a, b, c| {
        write(a.into(), b.into(), 4, c.into(), 32) as u32
    });
    check(Same::Bits, "bfi.b64 %rd0, %rd1, %rd2, %r3, 9;", |a, b, c| {
        write(a, b, c, 9, 64)
    });
}

#[test]
fn floats_are_rounded_once() {
    check_f32(Same::F32, "add.f32 %r0, %r1, %r2;", |a, b, _| a + b);
    check_f32(Same::F32, "sub.rn.f32 %r0, %r1, %r2;", |a, b, _| a - b);
    check_f32(Same::F32, "mul.f32 %r0, %r1, 0f3F9E0652;", |a, _, _| {
        a * f32::from_bits(0x3F9E_0652)
    });
    check_f32(Same::F32, "fma.rn.f32 %r0, %r1, %r2, %r3;", f32::mul_add);
    check_f32(Same::F32, "div.rn.f32 %r0, %r1, %r2;", |a, b, _| a / b);
    check_f32(Same::F32, "sqrt.rn.f32 %r0, %r1;", |a, _, _| a.sqrt());
    check_f32(Same::F32, "rcp.rn.f32 %r0, %r1;", |a, _, _| 1.0 / a);
    check_f32(Same::F32, "neg.f32 %r0, %r1;", |a, _, _| -a);
    check_f32(Same::F32, "abs.f32 %r0, %r1;", |a, _, _| a.abs());
    check_f32(Same::F32, "copysign.f32 %r0, %r1, %r2;", |a, b, _| b.copysign(a));
    check_f64("add.f64 %rd0, %rd1, %rd2;", |a, b, _| a + b);
    check_f64("fma.rn.f64 %rd0, %rd1, %rd2, %rd3;", f64::mul_add);
    check_f64("div.rn.f64 %rd0, %rd1, %rd2;", |a, b, _| a / b);
    let flush = |x: f32| if x.is_subnormal() { 0f32.copysign(x) } else { x };
    check_f32(Same::F32, "add.ftz.f32 %r0, %r1, %r2;", move |a, b, _| {
        flush(flush(a) + flush(b))
    });
    let sat = |x: f32| if x.is_nan() { 0.0 } else { x.clamp(0.0, 1.0).abs() };
    check_f32(Same::F32, "fma.rn.sat.f32 %r0, %r1, %r2, %r3;", move |a, b, c| {
        sat(a.mul_add(b, c))
    });
}

/// Against this machine's own instruction, which rounds as its control register says.
#[test]
fn products_are_added_and_rounded_down() {
    if !std::is_x86_feature_detected!("fma") {
        return stokehold_untested::skip("this CPU has no fused multiplication and addition");
    }
    fn down(a: f32, b: f32, c: f32) -> f32 {
        let (mut kept, mut sum) = (0u32, c);
        // SAFETY: the CPU has the instruction, and the register is as before at the end.
        unsafe {
            std::arch::asm!("stmxcsr [{}]", in(reg) &mut kept);
            let set = (kept & !0x6000) | 0x2000;
            std::arch::asm!(
                "ldmxcsr [{set}]",
                "vfmadd231ss {sum}, {a}, {b}",
                "ldmxcsr [{kept}]",
                set = in(reg) &set,
                kept = in(reg) &kept,
                sum = inout(xmm_reg) sum,
                a = in(xmm_reg) a,
                b = in(xmm_reg) b,
            );
        }
        sum
    }
    check_f32(Same::F32, "fma.rm.f32 %r0, %r1, %r2, %r3;", down);
}

#[test]
fn floats_are_compared_with_what_is_no_number() {
    // Which of the zeros is the smaller is said by their signs.
    let min = |a: f32, b: f32| match (a.is_nan(), b.is_nan()) {
        (true, _) => b,
        (_, true) => a,
        _ if a == b => f32::from_bits(a.to_bits() | b.to_bits()),
        _ => a.min(b),
    };
    check_f32(Same::F32, "min.f32 %r0, %r1, %r2;", move |a, b, _| min(a, b));
    check_f32(Same::F32, "max.f32 %r0, %r1, %r2;", move |a, b, _| -min(-a, -b));
    check_f32(Same::F32, "min.NaN.f32 %r0, %r1, %r2;", move |a, b, _| {
        if a.is_nan() {
            a
        } else if b.is_nan() {
            b
        } else {
            min(a, b)
        }
    });
    type Holds = fn(Option<Ordering>) -> bool;
    for (name, holds) in [
        ("eq", (|order| order == Some(Ordering::Equal)) as Holds),
        ("ne", |order| order.is_some_and(Ordering::is_ne)),
        ("lt", |order| order.is_some_and(Ordering::is_lt)),
        ("ge", |order| order.is_some_and(Ordering::is_ge)),
        ("geu", |order| order.is_none_or(Ordering::is_ge)),
        ("neu", |order| order.is_none_or(Ordering::is_ne)),
        ("equ", |order| order.is_none_or(Ordering::is_eq)),
        ("ltu", |order| order.is_none_or(Ordering::is_lt)),
        ("leu", |order| order.is_none_or(Ordering::is_le)),
        ("gtu", |order| order.is_none_or(Ordering::is_gt)),
        ("num", |order| order.is_some()),
        ("nan", |order| order.is_none()),
    ] {
        check32(
            &format!("setp.{name}.f32 %p3, %r1, %r2; selp.b32 %r0, 1, 0, %p3;"),
            |a, b, _| holds(f32::from_bits(a).partial_cmp(&f32::from_bits(b))).into(),
        );
    }
}

#[test]
fn approximations_are_near() {
    check_f32(Same::Near, "ex2.approx.f32 %r0, %r1;", |a, _, _| a.exp2());
    check_f32(Same::Near, "lg2.approx.f32 %r0, %r1;", |a, _, _| {
        f64::from(a).log2() as f32
    });
    check_f32(Same::Near, "sin.approx.f32 %r0, %r1;", |a, _, _| {
        f64::from(a).sin() as f32
    });
    check_f32(Same::Near, "cos.approx.f32 %r0, %r1;", |a, _, _| {
        f64::from(a).cos() as f32
    });
    check_f32(Same::Near, "tanh.approx.f32 %r0, %r1;", |a, _, _| {
        f64::from(a).tanh() as f32
    });
    check_f32(Same::Near, "rsqrt.approx.f32 %r0, %r1;", |a, _, _| {
        (1.0 / f64::from(a).sqrt()) as f32
    });
    check_f32(Same::Near, "div.full.f32 %r0, %r1, %r2;", |a, b, _| a / b);
    check_f32(Same::Near, "sqrt.approx.f32 %r0, %r1;", |a, _, _| a.sqrt());
}

#[test]
fn types_are_converted() {
    let f = |x: u64| f32::from_bits(x as u32);
    check(Same::Bits, "cvt.s64.s32 %rd0, %r1;", |a, _, _| {
        i64::from(a as i32) as u64
    });
    check(
        Same::Bits,
        "cvt.s32.s8 %r0, %r1; cvt.u64.u32 %rd0, %r0;",
        |a, _, _| (i32::from(a as i8) as u32).into(),
    );
    check(
        Same::Bits,
        "cvt.u16.u32 %h0, %r1; cvt.s64.s16 %rd0, %h0;",
        |a, _, _| i64::from(a as i16) as u64,
    );
    check(
        Same::Bits,
        "cvt.sat.u8.s32 %r0, %r1; cvt.u64.u32 %rd0, %r0;",
        |a, _, _| (a as i32).clamp(0, 255) as u64,
    );
    check(
        Same::Bits,
        "cvt.sat.s16.u32 %h0, %r1; cvt.u64.u16 %rd0, %h0;",
        |a, _, _| (a as u32).min(32767).into(),
    );
    check(Same::Bits, "cvt.sat.u64.s64 %rd0, %rd1;", |a, _, _| {
        (a as i64).max(0) as u64
    });
    check32("cvt.rn.f32.s32 %r0, %r1;", |a, _, _| (a as i32 as f32).to_bits());
    check32("cvt.rn.f32.u32 %r0, %r1;", |a, _, _| (a as f32).to_bits());
    check(
        Same::Bits,
        "cvt.rn.f32.u64 %r0, %rd1; cvt.u64.u32 %rd0, %r0;",
        |a, _, _| (a as f32).to_bits().into(),
    );
    check(
        Same::Bits,
        "cvt.rn.f32.s64 %r0, %rd1; cvt.u64.u32 %rd0, %r0;",
        |a, _, _| (a as i64 as f32).to_bits().into(),
    );
    check(
        Same::Bits,
        "cvt.rn.f32.u8 %r0, %r1; cvt.u64.u32 %rd0, %r0;",
        |a, _, _| f32::from(a as u8).to_bits().into(),
    );
    check(Same::Bits, "cvt.rn.f64.s32 %rd0, %r1;", |a, _, _| {
        f64::from(a as i32).to_bits()
    });
    check32("cvt.rzi.s32.f32 %r0, %r1;", |a, _, _| {
        f32::from_bits(a) as i32 as u32
    });
    check32("cvt.rzi.u32.f32 %r0, %r1;", |a, _, _| f32::from_bits(a) as u32);
    check32("cvt.rni.s32.f32 %r0, %r1;", |a, _, _| {
        f32::from_bits(a).round_ties_even() as i32 as u32
    });
    check32("cvt.rmi.s32.f32 %r0, %r1;", |a, _, _| {
        f32::from_bits(a).floor() as i32 as u32
    });
    check32("cvt.rzi.u8.f32 %r0, %r1;", |a, _, _| {
        (f32::from_bits(a) as u8).into()
    });
    check(Same::Bits, "cvt.rzi.s64.f32 %rd0, %r1;", move |a, _, _| {
        match f(a) {
            x if x.is_nan() => 1 << 63,
            x => x as i64 as u64,
        }
    });
    check(
        Same::Bits,
        "cvt.rzi.u32.f64 %r0, %rd1; cvt.u64.u32 %rd0, %r0;",
        |a, _, _| match f64::from_bits(a) {
            x if x.is_nan() => 1 << 31,
            x => (x as u32).into(),
        },
    );
    check_f32(Same::F32, "cvt.rpi.f32.f32 %r0, %r1;", |a, _, _| a.ceil());
    check_f32(Same::F32, "cvt.sat.f32.f32 %r0, %r1;", |a, _, _| {
        if a > 0.0 { a.min(1.0) } else { 0.0 }
    });
    check(Same::F64, "cvt.f64.f32 %rd0, %r1;", move |a, _, _| {
        f64::from(f(a)).to_bits()
    });
    check(
        Same::F32,
        "cvt.rn.f32.f64 %r0, %rd1; cvt.u64.u32 %rd0, %r0;",
        |a, _, _| (f64::from_bits(a) as f32).to_bits().into(),
    );
    check(
        Same::F16,
        "cvt.rn.f16.f32 %h0, %r1; cvt.u64.u16 %rd0, %h0;",
        move |a, _, _| f16::from_f32(f(a)).to_bits().into(),
    );
    check(
        Same::Bf16,
        "cvt.rn.bf16.f32 %h0, %r1; cvt.u64.u16 %rd0, %h0;",
        move |a, _, _| bf16::from_f32(f(a)).to_bits().into(),
    );
    check(
        Same::F32,
        "cvt.f32.f16 %r0, %h1; cvt.u64.u32 %rd0, %r0;",
        |a, _, _| f16::from_bits(a as u16).to_f32().to_bits().into(),
    );
}

/// `x * y + z` of finite numbers of 16 bits, not zero, in whole numbers: all are multiples of 2^-48.
fn f16_of_sum(x: f64, y: f64, z: f64) -> u16 {
    let whole = |number: f64, unit: i32| (number * 2f64.powi(unit)) as i128;
    let sum = whole(x, 24) * whole(y, 24) + whole(z, 48);
    let size = sum.unsigned_abs();
    let exponent = (127 - size.leading_zeros() as i32 - 48).max(-14);
    let dropped = (exponent - 10 + 48) as u32;
    let (kept, rest, half) = (
        size >> dropped,
        size & ((1 << dropped) - 1),
        1u128 << (dropped - 1),
    );
    let up = rest > half || (rest == half && kept & 1 == 1);
    let value = (kept + u128::from(up)) as f64 * 2f64.powi(exponent - 10);
    f16::from_f64(if sum < 0 { -value } else { value }).to_bits()
}

#[test]
fn halves_are_rounded_once() {
    let f = |x: u16| f16::from_bits(x).to_f64();
    let b = |x: u16| bf16::from_bits(x).to_f64();
    check16(Same::F16, "add.f16 %h0, %h1, %h2;", move |x, y, _| {
        f16::from_f64(f(x) + f(y)).to_bits()
    });
    check16(Same::F16, "mul.rn.f16 %h0, %h1, %h2;", move |x, y, _| {
        f16::from_f64(f(x) * f(y)).to_bits()
    });
    check16(Same::F16, "neg.f16 %h0, %h1;", |x, _, _| {
        (-f16::from_bits(x)).to_bits()
    });
    check16(Same::F16, "fma.rn.f16 %h0, %h1, %h2, %h3;", move |x, y, z| {
        let (x, y, z) = (f(x), f(y), f(z));
        match x.is_finite() && y.is_finite() && z.is_finite() && x * y + z != 0.0 {
            true => f16_of_sum(x, y, z),
            // Nothing to round.
            false => f16::from_f64(x * y + z).to_bits(),
        }
    });
    check16(Same::Bf16, "add.bf16 %h0, %h1, %h2;", move |x, y, _| {
        bf16::from_f64(b(x) + b(y)).to_bits()
    });
}

/// Sums that are ties, and ones that are but for a part that 32 or 64 bits do not hold.
#[test]
fn a_fused_half_sees_what_decides_a_tie() {
    let check = |kind: &str, [a, b]: [u16; 2], sums: [(u16, u64); 3]| {
        let code = format!("fma.rn.{kind} %h0, %h1, %h2, %h3; cvt.u64.u16 %rd0, %h0;");
        let kernels = compile(&kernel(&code)).expect("PTX");
        let inputs = sums.map(|(c, _)| [a, b, c].map(u64::from)).to_vec();
        let expected = sums.map(|(_, sum)| sum).to_vec();
        assert_eq!(run(&kernels[0], &inputs, Order::Forward), Ok(expected), "{kind}");
    };
    // 3 * 683/2048 is 1 and half of the last digit; 2^-24 is added, nothing, and taken away.
    check(
        "f16",
        [0x4200, 0x3556],
        [(0x0001, 0x3C01), (0, 0x3C00), (0x8001, 0x3C00)],
    );
    // 7 * 37 is between 258 and 260; the same with 2^-40, and with 2^-100, which 64 bits do not hold next to it.
    for tiny in [0x2B80, 0x0D80] {
        check(
            "bf16",
            [0x40E0, 0x4214],
            [(tiny, 0x4382), (0, 0x4382), (tiny | 0x8000, 0x4381)],
        );
    }
}

#[test]
fn memory_is_read_and_written_in_every_size() {
    // A thread's own eight bytes of shared memory.
    let own = "shl.b32 %r4, %r12, 3; mov.u32 %r5, tile; add.u32 %r6, %r5, %r4;";
    check(
        Same::Bits,
        &format!("{own} st.shared.u64 [%r6], %rd1; ld.shared.u64 %rd0, [%r6];"),
        |a, _, _| a,
    );
    check(
        Same::Bits,
        &format!("{own} st.shared.v2.u32 [%r6], {{%r1, %r2}}; ld.shared.u64 %rd0, [%r6];"),
        |a, b, _| (b << 32) | (a & 0xFFFF_FFFF),
    );
    check(
        Same::Bits,
        &format!("{own} st.shared.u64 [%r6], %rd1; ld.shared.s8 %r0, [%r6+3]; cvt.s64.s32 %rd0, %r0;"),
        |a, _, _| i64::from((a >> 24) as i8) as u64,
    );
    check(
        Same::Bits,
        &format!(
            "{own} st.shared.u64 [%r6], 0; st.shared.u8 [%r6+1], %r1; ld.volatile.shared.u64 %rd0, [%r6];"
        ),
        |a, _, _| (a & 255) << 8,
    );
    // By an address of any memory, and through local memory.
    check(
        Same::Bits,
        &format!(
            "{own} cvt.u64.u32 %rd5, %r6; cvta.shared.u64 %rd6, %rd5; st.u64 [%rd6], %rd1; ld.shared.u64 %rd0, [%r6];"
        ),
        |a, _, _| a,
    );
    check(
        Same::Bits,
        "{ .local .align 8 .b8 depot[16]; mov.u64 %rd5, depot; cvta.local.u64 %rd6, %rd5; st.local.u64 [%rd5+8], %rd1; ld.u64 %rd0, [%rd6+8]; }",
        |a, _, _| a,
    );
    // Local memory is not zero before it is written.
    check(
        Same::Bits,
        "{ .local .align 8 .b8 depot[16]; ld.local.u64 %rd0, [depot]; }",
        |_, _, _| 0xA5A5_A5A5_A5A5_A5A5,
    );
}

#[test]
fn atomic_operations_answer_what_was_there() {
    let own = "shl.b32 %r4, %r12, 3; mov.u32 %r5, tile; add.u32 %r6, %r5, %r4; st.shared.u32 [%r6], %r1;";
    let after = "ld.shared.u32 %r8, [%r6]; cvt.u64.u32 %rd4, %r8; shl.b64 %rd4, %rd4, 32; cvt.u64.u32 %rd5, %r0; or.b64 %rd0, %rd4, %rd5;";
    for (name, then) in [
        ("add.u32", (|a, b| a.wrapping_add(b)) as fn(u32, u32) -> u32),
        ("and.b32", |a, b| a & b),
        ("or.b32", |a, b| a | b),
        ("xor.b32", |a, b| a ^ b),
        ("exch.b32", |_, b| b),
        ("min.s32", |a, b| (a as i32).min(b as i32) as u32),
        ("max.u32", u32::max),
        ("inc.u32", |a, b| if a >= b { 0 } else { a + 1 }),
        ("dec.u32", |a, b| if a == 0 || a > b { b } else { a - 1 }),
    ] {
        check(
            Same::Bits,
            &format!("{own} atom.relaxed.cta.shared.{name} %r0, [%r6], %r2; {after}"),
            |a, b, _| u64::from(then(a as u32, b as u32)) << 32 | u64::from(a as u32),
        );
    }
    check(
        Same::Bits,
        &format!("{own} atom.shared.cas.b32 %r0, [%r6], %r2, %r3; {after}"),
        |a, b, c| {
            let (a, b, c) = (a as u32, b as u32, c as u32);
            u64::from(if a == b { c } else { a }) << 32 | u64::from(a)
        },
    );
    check(
        Same::F32,
        &format!("{own} red.shared.add.f32 [%r6], %r2; ld.shared.u32 %r0, [%r6]; cvt.u64.u32 %rd0, %r0;"),
        |a, b, _| {
            (f32::from_bits(a as u32) + f32::from_bits(b as u32))
                .to_bits()
                .into()
        },
    );
}

const ORDERS: [Order; 3] = [Order::Forward, Order::Reverse, Order::Shuffled];

/// What 64 threads, two warps, make of their numbers.
#[track_caller]
fn cooperate(code: &str, expected: impl Fn(&[u64], usize) -> u64) {
    let code = format!("{code} cvt.u64.u32 %rd0, %r0;");
    let kernels = compile(&kernel(&code)).unwrap_or_else(|error| panic!("{code}: {error}"));
    let inputs: Vec<[u64; 3]> = (0..256u64).map(|i| [i * i + 3, i / 5, i % 7]).collect();
    for order in ORDERS {
        let outputs = run(&kernels[0], &inputs, order).expect("no fault");
        for (at, output) in outputs.into_iter().enumerate() {
            let first = at / 32 * 32;
            let warp: Vec<u64> = inputs[first..first + 32].iter().map(|[a, ..]| *a).collect();
            assert_eq!(output, expected(&warp, at % 32), "{code}: thread {at}, {order:?}");
        }
    }
}

#[test]
fn warps_shuffle() {
    cooperate("shfl.sync.idx.b32 %r0, %r1, 5, 31, -1;", |warp, _| warp[5]);
    cooperate(
        "mov.u32 %r4, %laneid; xor.b32 %r4, %r4, 31; shfl.sync.idx.b32 %r0, %r1, %r4, 31, -1;",
        |warp, i| warp[31 - i],
    );
    cooperate("mov.u32 %r4, WARP_SZ; sub.u32 %r0, %r4, %laneid;", |_, i| {
        32 - i as u64
    });
    cooperate("shfl.sync.bfly.b32 %r0, %r1, 4, 31, -1;", |warp, i| warp[i ^ 4]);
    cooperate(
        "shfl.sync.down.b32 %r0|%p3, %r1, 3, 31, -1; @!%p3 mov.u32 %r0, 9;",
        |warp, i| *warp.get(i + 3).unwrap_or(&9),
    );
    cooperate(
        "shfl.sync.up.b32 %r0|%p3, %r1, 2, 0, -1; @!%p3 mov.u32 %r0, 9;",
        |warp, i| if i < 2 { 9 } else { warp[i - 2] },
    );
    // Segments of eight threads: bounds are 31 with the segment's mask above.
    cooperate("shfl.sync.down.b32 %r0, %r1, 1, 6175, -1;", |warp, i| {
        if i % 8 == 7 { warp[i] } else { warp[i + 1] }
    });
    // A sum over the warp.
    let step = |by| format!("shfl.sync.bfly.b32 %r4, %r0, {by}, 31, -1; add.u32 %r0, %r0, %r4; ");
    let sum: String = [1, 2, 4, 8, 16].map(step).concat();
    cooperate(&format!("mov.u32 %r0, %r1; {sum}"), |warp, _| warp.iter().sum());
}

#[test]
fn warps_vote() {
    let odd = |warp: &[u64]| {
        warp.iter()
            .enumerate()
            .filter(|(_, a)| **a % 2 == 1)
            .fold(0u64, |bits, (i, _)| bits | 1 << i)
    };
    cooperate("vote.sync.ballot.b32 %r0, %p1, -1;", move |warp, _| odd(warp));
    cooperate(
        "vote.sync.ballot.b32 %r4, %p1, -1; popc.b32 %r0, %r4;",
        move |warp, _| odd(warp).count_ones().into(),
    );
    cooperate(
        "mov.u32 %r5, %lanemask_lt; vote.sync.ballot.b32 %r4, %p1, -1; and.b32 %r4, %r4, %r5; popc.b32 %r0, %r4;",
        move |warp, i| (odd(warp) & ((1 << i) - 1)).count_ones().into(),
    );
    cooperate(
        "vote.sync.any.pred %p3, %p1, -1; selp.u32 %r0, 1, 0, %p3;",
        |_, _| 1,
    );
    cooperate(
        "vote.sync.all.pred %p3, %p1, -1; selp.u32 %r0, 1, 0, %p3;",
        |_, _| 0,
    );
    cooperate("redux.sync.add.u32 %r0, %r1, -1;", |warp, _| warp.iter().sum());
    cooperate("redux.sync.min.s32 %r0, %r1, -1;", |warp, _| warp[0]);
    cooperate(
        "and.b32 %r4, %r1, 3; match.any.sync.b32 %r0, %r4, -1;",
        |warp, i| {
            (0..32)
                .filter(|j| warp[*j] % 4 == warp[i] % 4)
                .fold(0, |bits, j| bits | 1 << j)
        },
    );
    cooperate("elect.sync %r4|%p3, -1; selp.u32 %r0, 1, 0, %p3;", |_, i| {
        (i == 0).into()
    });
}

/// Threads that took different ways do not count each other.
#[test]
fn only_threads_of_the_same_way_are_active() {
    let code = "@%p1 bra $odd; activemask.b32 %r4; shfl.sync.idx.b32 %r0, %r4, 1, 31, %r4; mov.u32 %r0, %r4; bra $on;
        $odd: activemask.b32 %r4; vote.sync.ballot.b32 %r0, %p1, %r4; $on: bar.warp.sync -1;";
    cooperate(code, |warp, i| {
        (0..32)
            .filter(|j| warp[*j] % 2 == warp[i] % 2)
            .fold(0, |bits, j| bits | 1 << j)
    });
}

#[test]
fn threads_of_a_block_meet_at_barriers() {
    // Each reads what another warp's thread has written.
    let swap = "shl.b32 %r4, %r12, 2; mov.u32 %r5, tile; add.u32 %r6, %r5, %r4; xor.b32 %r7, %r4, 252; add.u32 %r8, %r5, %r7;
        st.shared.u32 [%r6], %r1; bar.sync 0; ld.shared.u32 %r0, [%r8]; barrier.cta.sync.aligned 1;";
    let code = format!("{swap} cvt.u64.u32 %rd0, %r0;");
    let kernels = compile(&kernel(&code)).expect("PTX");
    let inputs: Vec<[u64; 3]> = (0..128u64).map(|i| [i + 1000, 0, 0]).collect();
    for order in ORDERS {
        let outputs = run(&kernels[0], &inputs, order).expect("no fault");
        let expected: Vec<u64> = (0..128).map(|i| 1000 + (i / 64 * 64) + (63 - i % 64)).collect();
        assert_eq!(outputs, expected, "{order:?}");
    }
    let count = "bar.red.popc.u32 %r0, 0, %p1; cvt.u64.u32 %rd0, %r0;";
    let kernels = compile(&kernel(count)).expect("PTX");
    assert_eq!(run(&kernels[0], &inputs, Order::Forward), Ok(vec![32; 128]));
}

#[test]
fn faults_are_named() {
    let inputs: Vec<[u64; 3]> = (0..64u64).map(|i| [i, 0, 0]).collect();
    let fault = |code: &str| {
        let kernels = compile(&kernel(code)).unwrap_or_else(|error| panic!("{code}: {error}"));
        run(&kernels[0], &inputs, Order::Forward).expect_err(code)
    };
    assert_eq!(fault("trap;"), Fault::Trap);
    assert_eq!(fault("ld.shared.u32 %r0, [tile+576];"), Fault::OutsideShared);
    assert_eq!(
        fault("mov.u32 %r4, -8; st.shared.u64 [%r4], %rd1;"),
        Fault::OutsideShared
    );
    assert_eq!(fault("ld.shared.u32 %r0, [tile+2];"), Fault::Misaligned);
    assert_eq!(
        fault("add.u64 %rd4, %rd23, 4; ld.global.u64 %rd0, [%rd4];"),
        Fault::Misaligned
    );
    assert_eq!(
        fault("brx.idx %r2, $list; $list: .branchtargets $a; $a: add.u32 %r1, %r1, 7; brx.idx %r1, $list;"),
        Fault::NoTarget
    );
    // Half of the threads come to a vote that is for all of them, the others to a barrier.
    let stuck = fault(
        "@%p1 bra $odd; bar.sync 0; bra $on; $odd: vote.sync.any.pred %p3, %p1, -1; $on: mov.u32 %r0, 1;",
    );
    assert!(matches!(&stuck, Fault::Stuck(_)), "{stuck:?}");
    assert!(
        stuck.to_string().contains("wait for each other for ever"),
        "{stuck}"
    );
}

#[test]
fn what_is_not_known_is_named() {
    for (code, what) in [
        (
            "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 %r0, %r1, %r2, %r3;",
            "`mma.sync",
        ),
        (
            "wmma.load.a.sync.aligned.row.m16n16k16.shared.f16 {%r1}, [%rd1], %r2;",
            "`wmma.load",
        ),
        ("cp.async.ca.shared.global [%r1], [%rd1], 16;", "`cp.async"),
        ("add.rz.f32 %r0, %r1, %r2;", "modifier `.rz`"),
        ("fma.rz.f32 %r0, %r1, %r2, %r3;", "`fma.rz.f32`"),
        ("cvt.rz.f32.s32 %r0, %r1;", "`cvt.rz.f32.s32`"),
        ("ld.global.L1::invented.u32 %r0, [%rd1];", "`.L1::invented`"),
        ("call.uni (%r0), vprintf, (%r1);", "`call.uni` is not known"),
        ("add.u32 %r0, %rd1, %r2;", "where 32 bits are wanted"),
        ("add.u32 %r0, %r1;", "`add.u32` is not known"),
        ("mov.u32 %r0, %clock;", "`%clock` is not known"),
        ("bra $nowhere;", "there is no label"),
        ("ld.param.u64 %rd0, [in+8];", "outside of the parameter"),
    ] {
        let Err(error) = compile(&kernel(code)) else {
            panic!("{code} was translated")
        };
        assert!(error.what.contains(what) && error.line > 15, "{code}: {error}");
    }
}

/// Texts that are nearly PTX.
fn mutations() -> impl Strategy<Value = String> {
    let text = crate::ptx::tests::SAMPLE.replace("sm_90a", "sm_80");
    let len = text.len();
    let change = (
        0..len,
        0..12usize,
        prop::sample::select(vec![
            "", "%r1", ".u64", "{", "}", ";", ",", "-1", "%p1", ".v2", "tile", "[", "]",
        ]),
    );
    prop::collection::vec(change, 1..6).prop_map(move |changes| {
        let mut text = text.clone();
        for (at, cut, put) in changes {
            let at = at.min(text.len());
            let end = (at + cut).min(text.len());
            text.replace_range(at..end, put);
        }
        text
    })
}

proptest! {
    #![proptest_config(Config { cases: 2000, failure_persistence: None, ..Config::default() })]
    #[test]
    fn garbage_is_translated_or_an_error(text in prop_oneof![mutations(), crate::ptx::tests::garbage()]) {
        if let Ok(module) = Module::parse(&text) {
            let _ = translate(&module, |_| Ok(0x1000));
        }
    }
}
