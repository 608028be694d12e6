//! Arithmetic, logic, comparisons.

use super::op::{Kind, Op, Ty};
use super::{Function, Host, Result, integer};
use crate::ptx::Operand;
use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::{InstBuilder, Value, types};

impl<'a> Function<'a> {
    pub(super) fn arithmetic(&mut self, op: &mut Op, operands: &'a [Operand]) -> Result<()> {
        let name = op.name;
        match name {
            "setp" => return self.compare(op, operands),
            "selp" => return self.select(op, operands),
            "shf" => return self.funnel(op, operands),
            "prmt" => return self.permute(op, operands),
            "lop3" => return self.logic3(op, operands),
            "bfe" | "bfi" | "bfind" => return self.field_of_bits(op, operands),
            "add" | "addc" | "sub" | "subc" | "mad" | "madc" if name.ends_with('c') || op.takes("cc") => {
                return self.carrying(op, operands);
            }
            _ => {}
        }
        let ty = self.ty(op)?;
        let Some((to, from)) = operands.split_first() else {
            return Err(self.unknown_instruction(op));
        };
        if ty.is_float() {
            return self.floats(op, ty, to, from);
        }
        if ty.is_half() || matches!(ty.kind, Kind::Float2 | Kind::Brain2) {
            return self.halves(op, ty, to, from);
        }
        let value = match from {
            [a] => self.unary(op, ty, a)?,
            [a, b] => self.binary(op, ty, a, b)?,
            [a, b, c] if op.name == "mad" => {
                let wide = if op.takes("wide") { 2 * ty.bits } else { ty.bits };
                let product = match wide == ty.bits {
                    true => self.product(op, ty, a, b)?,
                    false => self.wide_product(op, ty, a, b)?,
                };
                let c = self.int(c, wide)?;
                self.b.ins().iadd(product, c)
            }
            [a, b, c] if op.name == "sad" && ty.bits == 32 && ty.kind != Kind::Bits => {
                let (x, y) = (self.int(a, 32)?, self.int(b, 32)?);
                let c = self.int(c, 32)?;
                let greater = match ty.is_signed() {
                    true => IntCC::SignedGreaterThan,
                    false => IntCC::UnsignedGreaterThan,
                };
                let (down, up) = (self.b.ins().isub(x, y), self.b.ins().isub(y, x));
                let distance = self.choose(greater, x, y, down, up);
                self.b.ins().iadd(distance, c)
            }
            _ => return Err(self.unknown_instruction(op)),
        };
        self.set(to, value)
    }

    fn unary(&mut self, op: &mut Op, ty: Ty, a: &Operand) -> Result<Value> {
        let is_bits = ty.kind == Kind::Bits;
        let value = self.int(a, ty.bits)?;
        let narrow = |function: &mut Self, value: Value| match ty.bits {
            64 => function.b.ins().ireduce(types::I32, value),
            _ => value,
        };
        let is_word = is_bits && (ty.bits == 32 || ty.bits == 64);
        Ok(match op.name {
            "not" if ty.bits == 1 => self.b.ins().bxor_imm_u(value, 1),
            "not" if is_bits => self.b.ins().bnot(value),
            "cnot" if is_bits && ty.bits > 1 => {
                let is_zero = self.b.ins().icmp_imm_s(IntCC::Equal, value, 0);
                match integer(ty.bits) {
                    types::I8 => is_zero,
                    ty => self.b.ins().uextend(ty, is_zero),
                }
            }
            "neg" if ty.is_signed() => self.b.ins().ineg(value),
            "abs" if ty.is_signed() => self.b.ins().iabs(value),
            "brev" if is_word => self.b.ins().bitrev(value),
            "popc" if is_word => {
                let count = self.b.ins().popcnt(value);
                narrow(self, count)
            }
            "clz" if is_word => {
                let count = self.b.ins().clz(value);
                narrow(self, count)
            }
            _ => return Err(self.unknown_instruction(op)),
        })
    }

    fn binary(&mut self, op: &mut Op, ty: Ty, a: &Operand, b: &Operand) -> Result<Value> {
        let bits = ty.bits;
        if ["and", "or", "xor"].contains(&op.name) {
            if ty.kind != Kind::Bits {
                return Err(self.unknown_instruction(op));
            }
            let (a, b) = (self.int(a, bits)?, self.int(b, bits)?);
            return Ok(match op.name {
                "and" => self.b.ins().band(a, b),
                "or" => self.b.ins().bor(a, b),
                _ => self.b.ins().bxor(a, b),
            });
        }
        if bits < 16 {
            return Err(self.unknown_instruction(op));
        }
        if ["shl", "shr"].contains(&op.name) {
            return self.shift(op, ty, a, b);
        }
        if ty.kind == Kind::Bits {
            return Err(self.unknown_instruction(op));
        }
        let name = op.name;
        match name {
            "mul" if op.takes("wide") => return self.wide_product(op, ty, a, b),
            "mul" => return self.product(op, ty, a, b),
            _ => {}
        }
        let (a, b) = (self.int(a, bits)?, self.int(b, bits)?);
        let signed = ty.is_signed();
        Ok(match name {
            "add" | "sub" if op.takes("sat") => {
                if ty
                    != (Ty {
                        kind: Kind::Signed,
                        bits: 32,
                    })
                {
                    return Err(self.unknown_instruction(op));
                }
                let (a, b) = (
                    self.b.ins().sextend(types::I64, a),
                    self.b.ins().sextend(types::I64, b),
                );
                let sum = match op.name {
                    "add" => self.b.ins().iadd(a, b),
                    _ => self.b.ins().isub(a, b),
                };
                let low = self.b.ins().iconst(types::I64, i64::from(i32::MIN));
                let high = self.b.ins().iconst(types::I64, i64::from(i32::MAX));
                let sum = self.choose(IntCC::SignedLessThan, sum, low, low, sum);
                let sum = self.choose(IntCC::SignedGreaterThan, sum, high, high, sum);
                self.b.ins().ireduce(types::I32, sum)
            }
            "add" => self.b.ins().iadd(a, b),
            "sub" => self.b.ins().isub(a, b),
            "min" if signed => self.b.ins().smin(a, b),
            "min" => self.b.ins().umin(a, b),
            "max" if op.takes("relu") => {
                if !signed || bits != 32 {
                    return Err(self.unknown_instruction(op));
                }
                let largest = self.b.ins().smax(a, b);
                let zero = self.b.ins().iconst(types::I32, 0);
                self.b.ins().smax(largest, zero)
            }
            "max" if signed => self.b.ins().smax(a, b),
            "max" => self.b.ins().umax(a, b),
            "div" | "rem" => self.quotient(op.name == "rem", ty, a, b),
            _ => return Err(self.unknown_instruction(op)),
        })
    }

    /// The lower half of a product, or the upper one.
    fn product(&mut self, op: &mut Op, ty: Ty, a: &Operand, b: &Operand) -> Result<Value> {
        let (a, b) = (self.int(a, ty.bits)?, self.int(b, ty.bits)?);
        Ok(match op.takes_one(&["lo", "hi"]) {
            Some("lo") => self.b.ins().imul(a, b),
            Some(_) if ty.bits == 64 && ty.is_signed() => self.b.ins().smulhi(a, b),
            Some(_) if ty.bits == 64 => self.b.ins().umulhi(a, b),
            Some(_) => {
                let product = self.multiply_wide(ty, a, b);
                let high = self.b.ins().ushr_imm_u(product, i64::from(ty.bits));
                self.b.ins().ireduce(integer(ty.bits), high)
            }
            None => return Err(self.unknown_instruction(op)),
        })
    }

    fn wide_product(&mut self, op: &Op, ty: Ty, a: &Operand, b: &Operand) -> Result<Value> {
        if ty.bits > 32 {
            return Err(self.unknown_instruction(op));
        }
        let (a, b) = (self.int(a, ty.bits)?, self.int(b, ty.bits)?);
        Ok(self.multiply_wide(ty, a, b))
    }

    /// The product of two integers of at most 32 bits in twice as many.
    fn multiply_wide(&mut self, ty: Ty, a: Value, b: Value) -> Value {
        let wide = integer(2 * ty.bits);
        let [a, b] = [a, b].map(|value| match ty.is_signed() {
            true => self.b.ins().sextend(wide, value),
            false => self.b.ins().uextend(wide, value),
        });
        self.b.ins().imul(a, b)
    }

    /// A quotient or a rest. By zero the quotient is all ones, as GPUs have it, and the rest what is divided.
    fn quotient(&mut self, is_rest: bool, ty: Ty, a: Value, b: Value) -> Value {
        let bits = integer(ty.bits);
        // The CPU divides 32 bits and 64.
        let wide = if ty.bits == 64 { types::I64 } else { types::I32 };
        let signed = ty.is_signed();
        let [a, b] = [a, b].map(|value| match (bits == wide, signed) {
            (true, _) => value,
            (false, true) => self.b.ins().sextend(wide, value),
            (false, false) => self.b.ins().uextend(wide, value),
        });
        let one = self.b.ins().iconst(wide, 1);
        let is_zero = self.b.ins().icmp_imm_s(IntCC::Equal, b, 0);
        // Division by -1 overflows on the CPU for the smallest number.
        let minus_one = self.b.ins().icmp_imm_s(IntCC::Equal, b, -1);
        let is_special = match signed {
            true => self.b.ins().bor(is_zero, minus_one),
            false => is_zero,
        };
        let divisor = self.b.ins().select(is_special, one, b);
        let mut result = match (is_rest, signed) {
            (false, true) => self.b.ins().sdiv(a, divisor),
            (false, false) => self.b.ins().udiv(a, divisor),
            (true, true) => self.b.ins().srem(a, divisor),
            (true, false) => self.b.ins().urem(a, divisor),
        };
        if signed && !is_rest {
            let negative = self.b.ins().ineg(a);
            result = self.b.ins().select(minus_one, negative, result);
        }
        let by_zero = match is_rest {
            true => a,
            false => {
                let zero = self.b.ins().iconst(wide, 0);
                self.b.ins().bnot(zero)
            }
        };
        result = self.b.ins().select(is_zero, by_zero, result);
        match bits == wide {
            true => result,
            false => self.b.ins().ireduce(bits, result),
        }
    }

    /// A shift by more bits than there are leaves zeros, or the sign.
    fn shift(&mut self, op: &Op, ty: Ty, a: &Operand, amount: &Operand) -> Result<Value> {
        let is_known = match op.name {
            "shl" => ty.kind == Kind::Bits,
            _ => ty.is_integer(),
        };
        if !is_known {
            return Err(self.unknown_instruction(op));
        }
        let value = self.int(a, ty.bits)?;
        let amount = self.int(amount, 32)?;
        let most = self.b.ins().iconst(types::I32, i64::from(ty.bits) - 1);
        if op.name == "shr" && ty.is_signed() {
            let amount = self.b.ins().umin(amount, most);
            return Ok(self.b.ins().sshr(value, amount));
        }
        let shifted = match op.name {
            "shl" => self.b.ins().ishl(value, amount),
            _ => self.b.ins().ushr(value, amount),
        };
        let zero = self.b.ins().iconst(integer(ty.bits), 0);
        Ok(self.choose(IntCC::UnsignedGreaterThan, amount, most, zero, shifted))
    }

    fn floats(&mut self, op: &mut Op, ty: Ty, to: &Operand, from: &[Operand]) -> Result<()> {
        let flushes = op.takes("ftz");
        let saturates = op.takes("sat");
        let is_approximate = op.takes("approx") || (op.name == "div" && op.takes("full"));
        let is_rounded = op.takes("rn");
        let is_nan = op.takes("NaN");
        // Who rounds says how, and there is no other way here.
        let fits = match op.name {
            "add" | "sub" | "mul" => !is_approximate && !is_nan,
            "fma" => is_rounded && !is_approximate && !is_nan,
            "div" | "sqrt" | "rcp" => (is_rounded != is_approximate) && !saturates && !is_nan,
            "rsqrt" | "ex2" | "lg2" | "sin" | "cos" | "tanh" => {
                is_approximate && !is_rounded && !saturates && !is_nan
            }
            "min" | "max" => !is_rounded && !is_approximate && !saturates,
            "neg" | "abs" => !is_rounded && !is_approximate && !saturates && !is_nan,
            "copysign" => !is_rounded && !is_approximate && !saturates && !is_nan && !flushes,
            _ => false,
        };
        let is_wide_function = ty.bits == 64 && is_approximate && !["rcp", "rsqrt"].contains(&op.name);
        if !fits || is_wide_function || (ty.bits == 64 && ((flushes && !is_approximate) || saturates)) {
            return Err(self.unknown_instruction(op));
        }
        let flushes = flushes && ty.bits == 32;
        let mut values = Vec::new();
        for operand in from {
            let value = self.float(operand, ty.bits)?;
            values.push(if flushes { self.flushed(value) } else { value });
        }
        let mut result = match (op.name, &values[..]) {
            ("add", &[a, b]) => self.b.ins().fadd(a, b),
            ("sub", &[a, b]) => self.b.ins().fsub(a, b),
            ("mul", &[a, b]) => self.b.ins().fmul(a, b),
            ("fma", &[a, b, c]) => self.b.ins().fma(a, b, c),
            ("div", &[a, b]) => self.b.ins().fdiv(a, b),
            ("sqrt", &[a]) => self.b.ins().sqrt(a),
            ("rcp", &[a]) => self.reciprocal(ty, a),
            ("rsqrt", &[a]) => {
                let wide = match ty.bits {
                    64 => a,
                    _ => self.b.ins().fpromote(types::F64, a),
                };
                let root = self.b.ins().sqrt(wide);
                let wide = Ty {
                    kind: Kind::Float,
                    bits: 64,
                };
                let result = self.reciprocal(wide, root);
                match ty.bits {
                    64 => result,
                    _ => self.b.ins().fdemote(types::F32, result),
                }
            }
            ("ex2", &[a]) => self.call(Host::Ex2, &[a]),
            ("lg2", &[a]) => self.call(Host::Lg2, &[a]),
            ("sin", &[a]) => self.call(Host::Sin, &[a]),
            ("cos", &[a]) => self.call(Host::Cos, &[a]),
            ("tanh", &[a]) => self.call(Host::Tanh, &[a]),
            ("min" | "max", &[a, b]) => self.extreme(op.name == "min", is_nan, a, b),
            ("neg", &[a]) => self.b.ins().fneg(a),
            ("abs", &[a]) => self.b.ins().fabs(a),
            // The first operand has the sign.
            ("copysign", &[a, b]) => self.b.ins().fcopysign(b, a),
            _ => return Err(self.unknown_instruction(op)),
        };
        if flushes {
            result = self.flushed(result);
        }
        if saturates {
            result = self.saturated(result);
        }
        self.set(to, result)
    }

    fn reciprocal(&mut self, ty: Ty, value: Value) -> Value {
        let one = match ty.bits {
            64 => self.b.ins().f64const(1.0),
            _ => self.b.ins().f32const(1.0),
        };
        self.b.ins().fdiv(one, value)
    }

    /// The smaller or the larger; the number where one of them is none, unless `is_nan`.
    fn extreme(&mut self, is_min: bool, is_nan: bool, a: Value, b: Value) -> Value {
        let result = match is_min {
            true => self.b.ins().fmin(a, b),
            false => self.b.ins().fmax(a, b),
        };
        if is_nan {
            return result;
        }
        let a_is_none = self.b.ins().fcmp(FloatCC::Unordered, a, a);
        let b_is_none = self.b.ins().fcmp(FloatCC::Unordered, b, b);
        let result = self.b.ins().select(b_is_none, a, result);
        self.b.ins().select(a_is_none, b, result)
    }

    /// Sums, products and extremes of 16-bit floats, computed with 32 bits and rounded: 24 bits of mantissa
    /// are more than twice 11, so that is as if rounded once.
    fn halves(&mut self, op: &mut Op, ty: Ty, to: &Operand, from: &[Operand]) -> Result<()> {
        let half = Ty {
            kind: match ty.kind {
                Kind::Float | Kind::Float2 => Kind::Float,
                _ => Kind::Brain,
            },
            bits: 16,
        };
        let is_rounded = op.takes("rn");
        let fits = match op.name {
            "add" | "sub" | "mul" => true,
            "fma" => is_rounded,
            "min" | "max" | "neg" | "abs" => !is_rounded,
            _ => false,
        };
        if !fits {
            return Err(self.unknown_instruction(op));
        }
        let mut whole = self.b.ins().iconst(integer(ty.bits), 0);
        for shift in (0..i64::from(ty.bits)).step_by(16) {
            let mut bits = Vec::new();
            for operand in from {
                let value = self.int(operand, ty.bits)?;
                bits.push(match ty.bits {
                    16 => value,
                    _ => {
                        let shifted = self.b.ins().ushr_imm_u(value, shift);
                        self.b.ins().ireduce(types::I16, shifted)
                    }
                });
            }
            let result = match (op.name, &bits[..]) {
                ("neg", &[a]) => self.b.ins().bxor_imm_u(a, 0x8000),
                ("abs", &[a]) => self.b.ins().band_imm_u(a, 0x7FFF),
                ("fma", &[a, b, c]) => {
                    let host = match half.kind {
                        Kind::Brain => Host::FmaBf16,
                        _ => Host::FmaF16,
                    };
                    self.call(host, &[a, b, c])
                }
                (_, &[a, b]) => {
                    let (a, b) = (self.float_of_half(a, half), self.float_of_half(b, half));
                    let result = match op.name {
                        "add" => self.b.ins().fadd(a, b),
                        "sub" => self.b.ins().fsub(a, b),
                        "mul" => self.b.ins().fmul(a, b),
                        "min" | "max" => self.extreme(op.name == "min", false, a, b),
                        _ => return Err(self.unknown_instruction(op)),
                    };
                    self.half_of(result, half)
                }
                _ => return Err(self.unknown_instruction(op)),
            };
            let result = match ty.bits {
                16 => result,
                _ => {
                    let wide = self.b.ins().uextend(types::I32, result);
                    self.b.ins().ishl_imm_u(wide, shift)
                }
            };
            whole = self.b.ins().bor(whole, result);
        }
        self.set(to, whole)
    }

    /// `setp`: one or two predicates, of which the second is the opposite.
    fn compare(&mut self, op: &mut Op, operands: &'a [Operand]) -> Result<()> {
        let names = [
            "eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs", "equ", "neu", "ltu", "leu", "gtu",
            "geu", "num", "nan",
        ];
        let how = op.takes_one(&names).ok_or_else(|| self.unknown_instruction(op))?;
        let merges = op.takes_one(&["and", "or", "xor"]);
        let flushes = op.takes("ftz");
        let ty = self.ty(op)?;
        let (to, a, b, other) = match (operands, merges) {
            ([to, a, b], None) => (to, a, b, None),
            ([to, a, b, other], Some(merges)) => (to, a, b, Some((merges, other))),
            _ => return Err(self.unknown_instruction(op)),
        };
        if flushes
            && (ty
                != Ty {
                    kind: Kind::Float,
                    bits: 32,
                })
        {
            return Err(self.unknown_instruction(op));
        }
        let is = if ty.is_float() || ty.is_half() {
            let mut values = Vec::new();
            for operand in [a, b] {
                let value = match ty.is_half() {
                    true => {
                        let bits = self.int(operand, 16)?;
                        self.float_of_half(bits, ty)
                    }
                    false => self.float(operand, ty.bits)?,
                };
                values.push(if flushes { self.flushed(value) } else { value });
            }
            let condition = match how {
                "eq" => FloatCC::Equal,
                "ne" => FloatCC::OrderedNotEqual,
                "lt" => FloatCC::LessThan,
                "le" => FloatCC::LessThanOrEqual,
                "gt" => FloatCC::GreaterThan,
                "ge" => FloatCC::GreaterThanOrEqual,
                "equ" => FloatCC::UnorderedOrEqual,
                "neu" => FloatCC::NotEqual,
                "ltu" => FloatCC::UnorderedOrLessThan,
                "leu" => FloatCC::UnorderedOrLessThanOrEqual,
                "gtu" => FloatCC::UnorderedOrGreaterThan,
                "geu" => FloatCC::UnorderedOrGreaterThanOrEqual,
                "num" => FloatCC::Ordered,
                "nan" => FloatCC::Unordered,
                _ => return Err(self.unknown_instruction(op)),
            };
            self.b.ins().fcmp(condition, values[0], values[1])
        } else {
            let condition = match (how, ty.kind) {
                ("eq", _) => IntCC::Equal,
                ("ne", _) => IntCC::NotEqual,
                ("lt", Kind::Signed) => IntCC::SignedLessThan,
                ("le", Kind::Signed) => IntCC::SignedLessThanOrEqual,
                ("gt", Kind::Signed) => IntCC::SignedGreaterThan,
                ("ge", Kind::Signed) => IntCC::SignedGreaterThanOrEqual,
                ("lt" | "lo", Kind::Unsigned) => IntCC::UnsignedLessThan,
                ("le" | "ls", Kind::Unsigned) => IntCC::UnsignedLessThanOrEqual,
                ("gt" | "hi", Kind::Unsigned) => IntCC::UnsignedGreaterThan,
                ("ge" | "hs", Kind::Unsigned) => IntCC::UnsignedGreaterThanOrEqual,
                _ => return Err(self.unknown_instruction(op)),
            };
            if !ty.is_integer() || ty.bits < 16 {
                return Err(self.unknown_instruction(op));
            }
            let (a, b) = (self.int(a, ty.bits)?, self.int(b, ty.bits)?);
            self.b.ins().icmp(condition, a, b)
        };
        let merged = |function: &mut Self, is: Value| -> Result<Value> {
            let Some((how, other)) = other else { return Ok(is) };
            let other = function.int(other, 1)?;
            Ok(match how {
                "and" => function.b.ins().band(is, other),
                "or" => function.b.ins().bor(is, other),
                _ => function.b.ins().bxor(is, other),
            })
        };
        let first = merged(self, is)?;
        let opposite = self.b.ins().bxor_imm_u(is, 1);
        match to {
            Operand::Pair(to, second) => {
                let opposite = merged(self, opposite)?;
                self.set(&Operand::Register(*to), first)?;
                match second {
                    Some(second) => self.set(&Operand::Register(*second), opposite),
                    None => Ok(()),
                }
            }
            to => self.set(to, first),
        }
    }

    fn select(&mut self, op: &mut Op, operands: &'a [Operand]) -> Result<()> {
        let ty = self.ty(op)?;
        let [to, a, b, condition] = self.operands(op, operands)?;
        let (a, b) = (self.int(a, ty.bits)?, self.int(b, ty.bits)?);
        let condition = self.int(condition, 1)?;
        let value = self.b.ins().select(condition, a, b);
        self.set(to, value)
    }

    /// `shf`: a shift of two registers that are one number.
    fn funnel(&mut self, op: &mut Op, operands: &'a [Operand]) -> Result<()> {
        let is_left = match op.takes_one(&["l", "r"]) {
            Some(side) => side == "l",
            None => return Err(self.unknown_instruction(op)),
        };
        let is_clamped = match op.takes_one(&["clamp", "wrap"]) {
            Some(way) => way == "clamp",
            None => return Err(self.unknown_instruction(op)),
        };
        let 32 = self.ty(op)?.bits else {
            return Err(self.unknown_instruction(op));
        };
        let [to, low, high, amount] = self.operands(op, operands)?;
        let (low, high) = (self.int(low, 32)?, self.int(high, 32)?);
        let amount = self.int(amount, 32)?;
        let amount = match is_clamped {
            true => {
                let most = self.b.ins().iconst(types::I32, 32);
                self.b.ins().umin(amount, most)
            }
            false => self.b.ins().band_imm_u(amount, 31),
        };
        let (low, high) = (
            self.b.ins().uextend(types::I64, low),
            self.b.ins().uextend(types::I64, high),
        );
        let high = self.b.ins().ishl_imm_u(high, 32);
        let both = self.b.ins().bor(low, high);
        let shifted = match is_left {
            true => {
                let shifted = self.b.ins().ishl(both, amount);
                self.b.ins().ushr_imm_u(shifted, 32)
            }
            false => self.b.ins().ushr(both, amount),
        };
        let value = self.b.ins().ireduce(types::I32, shifted);
        self.set(to, value)
    }

    /// `prmt`: four bytes of eight.
    fn permute(&mut self, op: &mut Op, operands: &'a [Operand]) -> Result<()> {
        let 32 = self.ty(op)?.bits else {
            return Err(self.unknown_instruction(op));
        };
        let [to, a, b, selector] = self.operands(op, operands)?;
        let (low, high) = (self.int(a, 32)?, self.int(b, 32)?);
        let Operand::Integer(selector) = selector else {
            let selector = self.int(selector, 32)?;
            let value = self.call(Host::Permute, &[low, high, selector]);
            return self.set(to, value);
        };
        let mut whole = self.b.ins().iconst(types::I32, 0);
        for byte in 0..4 {
            let which = (selector >> (4 * byte)) & 15;
            let source = if which & 4 == 0 { low } else { high };
            // To the top, then down to its place.
            let up = self.b.ins().ishl_imm_u(source, 24 - 8 * (which & 3) as i64);
            let value = match which & 8 {
                0 => {
                    let down = self.b.ins().ushr_imm_u(up, 24);
                    self.b.ins().ishl_imm_u(down, 8 * byte)
                }
                _ => {
                    let sign = self.b.ins().sshr_imm_u(up, 31);
                    self.b.ins().band_imm_u(sign, 0xFF << (8 * byte))
                }
            };
            whole = self.b.ins().bor(whole, value);
        }
        self.set(to, whole)
    }

    /// `lop3`: any logic of three, as a table of eight bits.
    fn logic3(&mut self, op: &mut Op, operands: &'a [Operand]) -> Result<()> {
        let 32 = self.ty(op)?.bits else {
            return Err(self.unknown_instruction(op));
        };
        let [to, a, b, c, table] = self.operands(op, operands)?;
        let Operand::Integer(table @ 0..256) = table else {
            return Err(self.unknown_instruction(op));
        };
        let values = [self.int(a, 32)?, self.int(b, 32)?, self.int(c, 32)?];
        let mut whole = self.b.ins().iconst(types::I32, 0);
        for row in (0..8).filter(|row| table >> row & 1 == 1) {
            let mut all = self.b.ins().iconst(types::I32, 0xFFFF_FFFF);
            for (at, value) in values.into_iter().enumerate() {
                all = match row >> (2 - at) & 1 {
                    1 => self.b.ins().band(all, value),
                    _ => self.b.ins().band_not(all, value),
                };
            }
            whole = self.b.ins().bor(whole, all);
        }
        self.set(to, whole)
    }

    fn field_of_bits(&mut self, op: &mut Op, operands: &'a [Operand]) -> Result<()> {
        let ty = self.ty(op)?;
        let is_fitting = match op.name {
            "bfi" => ty.kind == Kind::Bits,
            _ => matches!(ty.kind, Kind::Signed | Kind::Unsigned),
        };
        if !is_fitting || ty.bits < 32 {
            return Err(self.unknown_instruction(op));
        }
        let is_wide = ty.bits == 64;
        let signed = ty.is_signed();
        let value = match op.name {
            "bfi" => {
                let [_, a, b, at, len] = self.operands(op, operands)?;
                let (a, b) = (self.int(a, ty.bits)?, self.int(b, ty.bits)?);
                let (at, len) = (self.int(at, 32)?, self.int(len, 32)?);
                let host = if is_wide { Host::Insert64 } else { Host::Insert32 };
                self.call(host, &[a, b, at, len])
            }
            "bfe" => {
                let [_, a, at, len] = self.operands(op, operands)?;
                let a = self.int(a, ty.bits)?;
                let (at, len) = (self.int(at, 32)?, self.int(len, 32)?);
                let host = match (is_wide, signed) {
                    (false, false) => Host::Extract32,
                    (false, true) => Host::ExtractSigned32,
                    (true, false) => Host::Extract64,
                    (true, true) => Host::ExtractSigned64,
                };
                self.call(host, &[a, at, len])
            }
            _ => {
                // Where the highest bit that is not the sign's is, or all ones.
                let [_, a] = self.operands(op, operands)?;
                let is_distance = op.takes("shiftamt");
                let mut a = self.int(a, ty.bits)?;
                if signed {
                    let sign = self.b.ins().sshr_imm_u(a, i64::from(ty.bits) - 1);
                    a = self.b.ins().bxor(a, sign);
                }
                let zeros = self.b.ins().clz(a);
                let zeros = match is_wide {
                    true => self.b.ins().ireduce(types::I32, zeros),
                    false => zeros,
                };
                let none = self.b.ins().iconst(types::I32, 0xFFFF_FFFF);
                let top = self.b.ins().iconst(types::I32, i64::from(ty.bits) - 1);
                let found = match is_distance {
                    true => zeros,
                    false => self.b.ins().isub(top, zeros),
                };
                self.choose(IntCC::UnsignedGreaterThan, zeros, top, none, found)
            }
        };
        self.set(&operands[0], value)
    }

    /// Sums that take or leave a carry.
    fn carrying(&mut self, op: &mut Op, operands: &'a [Operand]) -> Result<()> {
        // `add.cc` has lost its modifier to the caller; of the others it is what leaves a carry.
        let takes = op.name.ends_with('c');
        let leaves = !takes || op.takes("cc");
        let ty = self.ty(op)?;
        if !ty.is_integer() || ty.bits < 32 || ty.kind == Kind::Bits {
            return Err(self.unknown_instruction(op));
        }
        let (to, a, b) = match (op.name, operands) {
            ("mad" | "madc", [to, a, b, c]) => {
                let product = self.product(op, ty, a, b)?;
                (to, product, self.int(c, ty.bits)?)
            }
            ("add" | "addc" | "sub" | "subc", [to, a, b]) => {
                (to, self.int(a, ty.bits)?, self.int(b, ty.bits)?)
            }
            _ => return Err(self.unknown_instruction(op)),
        };
        let is_difference = op.name.starts_with("sub");
        let step = |function: &mut Self, a: Value, b: Value| {
            let (result, compared) = match is_difference {
                true => (function.b.ins().isub(a, b), a),
                false => (function.b.ins().iadd(a, b), b),
            };
            let carry = match is_difference {
                true => function.b.ins().icmp(IntCC::UnsignedLessThan, compared, b),
                false => function.b.ins().icmp(IntCC::UnsignedLessThan, result, compared),
            };
            (result, carry)
        };
        let (mut result, mut carry) = step(self, a, b);
        if takes {
            let before = self.b.use_var(self.carry);
            let before = self.b.ins().uextend(integer(ty.bits), before);
            let (next, second) = step(self, result, before);
            result = next;
            carry = self.b.ins().bor(carry, second);
        }
        if leaves {
            self.b.def_var(self.carry, carry);
        }
        self.set(to, result)
    }
}
