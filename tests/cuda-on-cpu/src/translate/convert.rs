//! `cvt`: from a type to another.

use super::op::{Kind, Op, Ty};
use super::{Function, Host, Result, float, integer};
use crate::ptx::Operand;
use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::{InstBuilder, Value, types};

impl Function<'_> {
    pub(super) fn convert(&mut self, op: &mut Op, operands: &[Operand]) -> Result<()> {
        let [to, from] = op.types[..] else {
            return Err(self.unknown_instruction(op));
        };
        if let [target, high, low] = operands {
            return self.convert_two(op, (to, from), target, high, low);
        }
        let [target, source] = operands else {
            return Err(self.unknown_instruction(op));
        };
        let integral = op.takes_one(&["rni", "rzi", "rmi", "rpi"]);
        let rounding = op.takes_one(&["rn", "rz", "rm", "rp"]);
        let is_saturated = op.takes("sat");
        let flushes = op.takes("ftz");
        let unknown = self.unknown_instruction(op);
        let is_number = |ty: Ty| ty.is_integer() || ty.is_float() || ty.is_half();
        if !is_number(to) || !is_number(from) || rounding.is_some_and(|way| way != "rn") {
            return Err(unknown);
        }
        if from.is_integer() && to.is_integer() {
            if integral.is_some() || rounding.is_some() || flushes {
                return Err(unknown);
            }
            let value = self.loose(source, from.bits)?;
            let value = self.resize(value, from, to, is_saturated);
            return self.set_wider(target, value, to.is_signed());
        }
        if from.is_integer() {
            if rounding.is_none() || integral.is_some() || flushes || is_saturated {
                return Err(unknown);
            }
            let value = self.loose(source, from.bits)?;
            let value = self.float_of(value, from, if to.bits == 64 { 64 } else { 32 });
            return match to.is_half() {
                // A 32-bit float holds integers of 16 bits: no other is rounded twice.
                true if from.bits <= 16 => {
                    let value = self.half_of(value, to);
                    self.set(target, value)
                }
                true => Err(unknown),
                false => self.set(target, value),
            };
        }
        // From a float: first to one that the CPU computes with.
        let mut value = match from.is_half() {
            true => {
                let bits = self.int(source, 16)?;
                self.float_of_half(bits, from)
            }
            false => self.float(source, from.bits)?,
        };
        if flushes {
            if from.bits != 32 && to.bits != 32 {
                return Err(unknown);
            }
            if from.bits == 32 {
                value = self.flushed(value);
            }
        }
        if to.is_integer() {
            let way = match (integral, rounding, is_saturated) {
                (Some(way), None, _) => way,
                _ => return Err(unknown),
            };
            let value = self.integer_of(value, from, to, way);
            return self.set_wider(target, value, to.is_signed());
        }
        let is_same = from == to;
        let widens = to.bits > from.bits;
        if let Some(way) = integral {
            if !is_same || rounding.is_some() {
                return Err(unknown);
            }
            value = self.integral(value, way);
        } else if (rounding.is_none() && !is_same && !widens)
            || (rounding.is_some() && (is_same || widens))
            || (is_same && !is_saturated && !flushes && from.is_float())
        {
            return Err(unknown);
        }
        if is_saturated {
            value = self.saturated(value);
        }
        if to.is_half() {
            // What is 64 bits wide would be rounded twice.
            if self.b.func.dfg.value_type(value) == types::F64 {
                return Err(unknown);
            }
            let value = self.half_of(value, to);
            return self.set(target, value);
        }
        let wanted = float(to.bits);
        let ty = self.b.func.dfg.value_type(value);
        if wanted.bits() > ty.bits() {
            value = self.b.ins().fpromote(wanted, value);
        } else if wanted.bits() < ty.bits() {
            value = self.b.ins().fdemote(wanted, value);
            if flushes {
                value = self.flushed(value);
            }
        }
        self.set(target, value)
    }

    /// `cvt.rn.f16x2.f32 d, a, b`: `a` becomes the upper half.
    fn convert_two(
        &mut self,
        op: &mut Op,
        (to, from): (Ty, Ty),
        target: &Operand,
        high: &Operand,
        low: &Operand,
    ) -> Result<()> {
        let half = match to.kind {
            Kind::Float2 => Kind::Float,
            Kind::Brain2 => Kind::Brain,
            _ => return Err(self.unknown_instruction(op)),
        };
        if !op.takes("rn")
            || from
                != (Ty {
                    kind: Kind::Float,
                    bits: 32,
                })
        {
            return Err(self.unknown_instruction(op));
        }
        let half = Ty { kind: half, bits: 16 };
        let mut whole = self.b.ins().iconst(types::I32, 0);
        for (operand, shift) in [(low, 0), (high, 16)] {
            let value = self.float(operand, 32)?;
            let value = self.half_of(value, half);
            let value = self.b.ins().uextend(types::I32, value);
            let value = self.b.ins().ishl_imm_u(value, shift);
            whole = self.b.ins().bor(whole, value);
        }
        self.set(target, whole)
    }

    /// An integer of another width, as its own type says; clamped to the other's range if asked for.
    fn resize(&mut self, value: Value, from: Ty, to: Ty, is_saturated: bool) -> Value {
        let wide = match from.is_signed() {
            true => self.wide_signed(value),
            false => self.wide(value),
        };
        let mut wide = wide;
        if is_saturated {
            // Each bound is one of 64 bits, and compared as the source is counted.
            let bits = to.bits;
            let (low, high) = match to.is_signed() {
                true => (i64::MIN >> (64 - bits), i64::MAX >> (64 - bits)),
                false => (0, (u64::MAX >> (64 - bits)) as i64),
            };
            let (less, greater) = match from.is_signed() {
                true => (IntCC::SignedLessThan, IntCC::SignedGreaterThan),
                false => (IntCC::UnsignedLessThan, IntCC::UnsignedGreaterThan),
            };
            let low_value = self.b.ins().iconst(types::I64, low);
            let high_value = self.b.ins().iconst(types::I64, high);
            // A signed source is never above the largest of 64 unsigned bits, an unsigned one never below zero.
            if !(from.is_signed() && !to.is_signed() && bits == 64) {
                wide = self.choose(greater, wide, high_value, high_value, wide);
            }
            if from.is_signed() {
                wide = self.choose(less, wide, low_value, low_value, wide);
            }
        }
        match to.bits {
            64 => wide,
            bits => self.b.ins().ireduce(integer(bits), wide),
        }
    }

    fn wide(&mut self, value: Value) -> Value {
        match self.b.func.dfg.value_type(value) {
            types::I64 => value,
            _ => self.b.ins().uextend(types::I64, value),
        }
    }

    fn wide_signed(&mut self, value: Value) -> Value {
        match self.b.func.dfg.value_type(value) {
            types::I64 => value,
            _ => self.b.ins().sextend(types::I64, value),
        }
    }

    fn float_of(&mut self, value: Value, from: Ty, bits: u32) -> Value {
        let ty = float(bits);
        match (from.is_signed(), from.bits) {
            (false, 64) => self.b.ins().fcvt_from_uint(ty, value),
            (false, _) => {
                let wide = self.wide(value);
                self.b.ins().fcvt_from_sint(ty, wide)
            }
            (true, _) => {
                let wide = self.wide_signed(value);
                self.b.ins().fcvt_from_sint(ty, wide)
            }
        }
    }

    fn integral(&mut self, value: Value, way: &str) -> Value {
        match way {
            "rni" => self.b.ins().nearest(value),
            "rzi" => self.b.ins().trunc(value),
            "rmi" => self.b.ins().floor(value),
            _ => self.b.ins().ceil(value),
        }
    }

    /// A float rounded to an integer, which is clamped to the integer's range.
    fn integer_of(&mut self, value: Value, from: Ty, to: Ty, way: &str) -> Value {
        let rounded = self.integral(value, way);
        let wide = match to.is_signed() {
            true => self.b.ins().fcvt_to_sint_sat(types::I64, rounded),
            false => self.b.ins().fcvt_to_uint_sat(types::I64, rounded),
        };
        let unsigned = Ty {
            kind: Kind::Unsigned,
            bits: 64,
        };
        let signed = Ty {
            kind: Kind::Signed,
            bits: 64,
        };
        let source = if to.is_signed() { signed } else { unsigned };
        let result = self.resize(wide, source, to, true);
        // PTX: what is no number becomes zero, but 64-bit integers and those of 64-bit floats get their top bit.
        if to.bits != 64 && from.bits != 64 {
            return result;
        }
        let is_number = self.b.ins().fcmp(FloatCC::Ordered, value, value);
        let top = match to.bits {
            64 => i64::MIN,
            bits => 1 << (bits - 1),
        };
        let top = self.b.ins().iconst(integer(to.bits), top);
        self.b.ins().select(is_number, result, top)
    }

    /// Between 0 and 1; what is no number becomes 0.
    pub(super) fn saturated(&mut self, value: Value) -> Value {
        let ty = self.b.func.dfg.value_type(value);
        let (zero, one) = match ty {
            types::F32 => (self.b.ins().f32const(0.0), self.b.ins().f32const(1.0)),
            _ => (self.b.ins().f64const(0.0), self.b.ins().f64const(1.0)),
        };
        let is_above = self.b.ins().fcmp(FloatCC::GreaterThan, value, one);
        let below_one = self.b.ins().select(is_above, one, value);
        let is_positive = self.b.ins().fcmp(FloatCC::GreaterThan, value, zero);
        self.b.ins().select(is_positive, below_one, zero)
    }

    /// A 32-bit float, but zero of its sign if it is subnormal.
    pub(super) fn flushed(&mut self, value: Value) -> Value {
        let flags = cranelift_codegen::ir::MemFlagsData::new();
        let bits = self.b.ins().bitcast(types::I32, flags, value);
        let exponent = self.b.ins().band_imm_u(bits, 0x7F80_0000);
        let sign = self.b.ins().band_imm_u(bits, 0x8000_0000);
        let is_subnormal = self.b.ins().icmp_imm_s(IntCC::Equal, exponent, 0);
        let bits = self.b.ins().select(is_subnormal, sign, bits);
        self.b.ins().bitcast(types::F32, flags, bits)
    }

    /// A half's bits as a 32-bit float.
    pub(super) fn float_of_half(&mut self, bits: Value, ty: Ty) -> Value {
        let host = match ty.kind {
            Kind::Brain => Host::FloatOfBf16,
            _ => Host::FloatOfF16,
        };
        self.call(host, &[bits])
    }

    /// A 32-bit float rounded to a half's bits.
    pub(super) fn half_of(&mut self, value: Value, ty: Ty) -> Value {
        let host = match ty.kind {
            Kind::Brain => Host::Bf16OfFloat,
            _ => Host::F16OfFloat,
        };
        self.call(host, &[value])
    }
}
