//! Loads, stores, atomic operations, moves and addresses.

use super::op::{Kind, Op, Ty};
use super::{Function, Host, MISALIGNED, OUTSIDE_SHARED, Place, Result, integer};
use crate::block::Thread;
use crate::ptx::Operand;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{AtomicRmwOp, InstBuilder, MemFlagsData, Value, types};
use std::mem::offset_of;

/// Modifiers that say how caches treat an access, and in which order others see it. Here each access is done
/// before the next, so they all mean the same.
const ORDERS: [&str; 28] = [
    "weak",
    "relaxed",
    "acquire",
    "release",
    "acq_rel",
    "volatile",
    "cta",
    "gpu",
    "sys",
    "ca",
    "cg",
    "cs",
    "lu",
    "cv",
    "wb",
    "wt",
    "nc",
    "L1::evict_normal",
    "L1::evict_unchanged",
    "L1::evict_first",
    "L1::evict_last",
    "L1::no_allocate",
    "L2::evict_normal",
    "L2::evict_first",
    "L2::evict_last",
    "L2::64B",
    "L2::128B",
    "L2::256B",
];

/// The memory that an instruction names.
#[derive(Clone, Copy, PartialEq)]
enum Window {
    /// None: an address of any memory.
    Generic,
    Global,
    Shared,
    Local,
    Param,
}

impl Function<'_> {
    fn window(&self, op: &mut Op) -> Window {
        let names = [
            "global",
            "const",
            "shared",
            "shared::cta",
            "local",
            "param",
            "param::entry",
        ];
        match op.takes_one(&names) {
            Some("global" | "const") => Window::Global,
            Some("shared" | "shared::cta") => Window::Shared,
            Some("local") => Window::Local,
            Some(_) => Window::Param,
            None => Window::Generic,
        }
    }

    /// Whether an access is to be kept as it is written, for another thread may change what it reads.
    fn order(op: &mut Op) -> bool {
        let mut is_kept = false;
        while let Some(order) = op.takes_one(&ORDERS) {
            is_kept |= ["relaxed", "acquire", "volatile"].contains(&order);
        }
        is_kept
    }

    /// The address on the CPU of so many bytes, which is checked.
    fn address(&mut self, operand: &Operand, window: Window, bytes: i64) -> Result<Value> {
        let Operand::Address(base, offset) = operand else {
            return Err(self.unknown(format!("{operand:?} where an address is expected")));
        };
        let base = match (&**base, window) {
            (Operand::Symbol(name), Window::Param) => {
                let Some(Place::Param(at, size)) = self.places.get(name.as_str()).copied() else {
                    return Err(self.unknown(format!("there is no parameter `{name}`")));
                };
                if *offset < 0 || (*offset).checked_add(bytes).is_none_or(|end| end as u64 > size) {
                    return Err(self.unknown(format!("`{name}+{offset}` lies outside of the parameter")));
                }
                let params = self.field(types::I64, offset_of!(Thread, params));
                return Ok(self.b.ins().iadd_imm_s(params, at as i64 + offset));
            }
            (Operand::Register(register), Window::Shared) if self.width(*register) == 32 => {
                let address = self.b.use_var(self.registers[*register]);
                self.b.ins().uextend(types::I64, address)
            }
            (base, _) => self.int(base, 64)?,
        };
        let mut address = self.b.ins().iadd_imm_s(base, *offset);
        if bytes > 1 {
            let rest = self.b.ins().band_imm_u(address, bytes - 1);
            self.fault_if(rest, MISALIGNED);
        }
        if window == Window::Shared {
            let size = self.field(types::I64, offset_of!(Thread, shared_size));
            // An offset is too large if it is larger than what is left before the end; both are unsigned.
            let last = self.b.ins().iadd_imm_s(size, -bytes);
            let is_small = self.b.ins().icmp_imm_s(IntCC::SignedLessThan, last, 0);
            let is_outside = self.b.ins().icmp(IntCC::UnsignedGreaterThan, address, last);
            let is_outside = self.b.ins().bor(is_small, is_outside);
            self.fault_if(is_outside, OUTSIDE_SHARED);
            let shared = self.field(types::I64, offset_of!(Thread, shared));
            address = self.b.ins().iadd(shared, address);
        }
        Ok(address)
    }

    /// The type of a load or a store, the count of its elements, and the operands for each.
    fn elements<'o>(&self, op: &mut Op, operand: &'o Operand) -> Result<(Ty, Vec<&'o Operand>)> {
        let ty = self.ty(op)?;
        let count = match op.takes_one(&["v2", "v4"]) {
            Some("v2") => 2,
            Some(_) => 4,
            None => 1,
        };
        match operand {
            Operand::Vector(parts) if parts.len() == count && count > 1 => Ok((ty, parts.iter().collect())),
            Operand::Vector(_) => Err(self.unknown(format!("`{}` of another count", op.whole))),
            single if count == 1 && ty.bits > 1 => Ok((ty, vec![single])),
            _ => Err(self.unknown_instruction(op)),
        }
    }

    pub(super) fn load(&mut self, op: &mut Op, operands: &[Operand]) -> Result<()> {
        let [to, from] = operands else {
            return Err(self.unknown_instruction(op));
        };
        let window = self.window(op);
        let is_kept = Self::order(op);
        let (ty, parts) = self.elements(op, to)?;
        let address = self.address(from, window, ty.bytes() * parts.len() as i64)?;
        // All are read before the first is written: one of the registers may be the address.
        let mut values = Vec::new();
        for at in 0..parts.len() as i64 {
            let offset = (at * ty.bytes()) as i32;
            let flags = MemFlagsData::new();
            values.push(match is_kept {
                true => {
                    let address = self.b.ins().iadd_imm_s(address, i64::from(offset));
                    self.b.ins().atomic_load(integer(ty.bits), flags, address)
                }
                false => self.b.ins().load(integer(ty.bits), flags, address, offset),
            });
        }
        for (part, value) in parts.into_iter().zip(values) {
            self.set_wider(part, value, ty.is_signed())?;
        }
        Ok(())
    }

    pub(super) fn store(&mut self, op: &mut Op, operands: &[Operand]) -> Result<()> {
        let [to, from] = operands else {
            return Err(self.unknown_instruction(op));
        };
        let window = self.window(op);
        if window == Window::Param {
            return Err(self.unknown_instruction(op));
        }
        Self::order(op);
        let (ty, parts) = self.elements(op, from)?;
        let address = self.address(to, window, ty.bytes() * parts.len() as i64)?;
        for (at, part) in parts.into_iter().enumerate() {
            let value = self.loose(part, ty.bits)?;
            let offset = at as i32 * ty.bytes() as i32;
            self.b.ins().store(MemFlagsData::new(), value, address, offset);
        }
        Ok(())
    }

    pub(super) fn atomic(&mut self, op: &mut Op, operands: &[Operand]) -> Result<()> {
        let (to, rest) = match (op.name, operands) {
            ("atom", [to, rest @ ..]) => (to, rest),
            (_, rest) => (&Operand::Nothing, rest),
        };
        let window = self.window(op);
        Self::order(op);
        let what = [
            "add", "and", "or", "xor", "exch", "cas", "min", "max", "inc", "dec",
        ];
        let what = op.takes_one(&what).ok_or_else(|| self.unknown_instruction(op))?;
        let is_noftz = op.takes("noftz");
        let ty = self.ty(op)?;
        let is_half = matches!(ty.kind, Kind::Float2 | Kind::Brain2) || ty.is_half();
        if matches!(window, Window::Local | Window::Param)
            || !(ty.bits == 32 || ty.bits == 64 || ty.is_half())
            || is_half != is_noftz
        {
            return Err(self.unknown_instruction(op));
        }
        let Some((address, values)) = rest.split_first() else {
            return Err(self.unknown_instruction(op));
        };
        let address = self.address(address, window, ty.bytes())?;
        let flags = MemFlagsData::trusted();
        let signed = ty.is_signed();
        let old = match (what, values) {
            ("cas", [expected, new]) if ty.is_integer() => {
                let (expected, new) = (self.int(expected, ty.bits)?, self.int(new, ty.bits)?);
                self.b.ins().atomic_cas(flags, address, expected, new)
            }
            ("add", [value]) if !ty.is_integer() => {
                let value = self.int(value, ty.bits)?;
                let host = match (ty.kind, ty.bits) {
                    (Kind::Float, 32) => Host::AtomicAddF32,
                    (Kind::Float, 64) => Host::AtomicAddF64,
                    (Kind::Float, _) => Host::AtomicAddF16,
                    (Kind::Brain, _) => Host::AtomicAddBf16,
                    (Kind::Float2, _) => Host::AtomicAddF16x2,
                    _ => Host::AtomicAddBf16x2,
                };
                self.call(host, &[address, value])
            }
            ("inc", [bound]) if ty.kind == Kind::Unsigned && ty.bits == 32 => {
                let bound = self.int(bound, 32)?;
                self.call(Host::AtomicInc, &[address, bound])
            }
            ("dec", [bound]) if ty.kind == Kind::Unsigned && ty.bits == 32 => {
                let bound = self.int(bound, 32)?;
                self.call(Host::AtomicDec, &[address, bound])
            }
            (_, [value]) if ty.is_integer() => {
                let rmw = match what {
                    "add" => AtomicRmwOp::Add,
                    "and" => AtomicRmwOp::And,
                    "or" => AtomicRmwOp::Or,
                    "xor" => AtomicRmwOp::Xor,
                    "exch" => AtomicRmwOp::Xchg,
                    "min" if signed => AtomicRmwOp::Smin,
                    "min" => AtomicRmwOp::Umin,
                    "max" if signed => AtomicRmwOp::Smax,
                    "max" => AtomicRmwOp::Umax,
                    _ => return Err(self.unknown_instruction(op)),
                };
                let value = self.int(value, ty.bits)?;
                self.b
                    .ins()
                    .atomic_rmw(integer(ty.bits), flags, rmw, address, value)
            }
            _ => return Err(self.unknown_instruction(op)),
        };
        self.set(to, old)
    }

    pub(super) fn mov(&mut self, op: &mut Op, operands: &[Operand]) -> Result<()> {
        let [to, from] = operands else {
            return Err(self.unknown_instruction(op));
        };
        let ty = self.ty(op)?;
        let part_bits = |count: usize| match (ty.bits, count) {
            (32 | 64, 2) => Some(ty.bits / 2),
            (64, 4) => Some(16),
            _ => None,
        };
        match (to, from) {
            (Operand::Vector(parts), from) => {
                let bits = part_bits(parts.len()).ok_or_else(|| self.unknown_instruction(op))?;
                let whole = self.int(from, ty.bits)?;
                for (at, part) in parts.iter().enumerate() {
                    let shifted = self.b.ins().ushr_imm_u(whole, i64::from(bits) * at as i64);
                    let value = self.b.ins().ireduce(integer(bits), shifted);
                    self.set(part, value)?;
                }
                Ok(())
            }
            (to, Operand::Vector(parts)) => {
                let bits = part_bits(parts.len()).ok_or_else(|| self.unknown_instruction(op))?;
                let mut whole = self.b.ins().iconst(integer(ty.bits), 0);
                for (at, part) in parts.iter().enumerate() {
                    let value = self.int(part, bits)?;
                    let value = self.b.ins().uextend(integer(ty.bits), value);
                    let value = self.b.ins().ishl_imm_u(value, i64::from(bits) * at as i64);
                    whole = self.b.ins().bor(whole, value);
                }
                self.set(to, whole)
            }
            _ => {
                let value = self.int(from, ty.bits)?;
                self.set(to, value)
            }
        }
    }

    /// Between addresses of any memory and offsets in shared memory. All other addresses are the CPU's.
    pub(super) fn convert_address(&mut self, op: &mut Op, operands: &[Operand]) -> Result<()> {
        let [to, from] = operands else {
            return Err(self.unknown_instruction(op));
        };
        let is_from_generic = op.takes("to");
        let window = self.window(op);
        let ty = self.ty(op)?;
        if ty.bits != 64 || window == Window::Generic {
            return Err(self.unknown_instruction(op));
        }
        let mut address = self.int(from, 64)?;
        if window == Window::Shared {
            let shared = self.field(types::I64, offset_of!(Thread, shared));
            address = match is_from_generic {
                true => self.b.ins().isub(address, shared),
                false => self.b.ins().iadd(address, shared),
            };
        }
        self.set(to, address)
    }

    pub(super) fn fence(&mut self, op: &mut Op, operands: &[Operand]) -> Result<()> {
        let scope = match op.name {
            "membar" => op.takes_one(&["cta", "gl", "sys"]),
            _ => {
                op.takes_one(&["sc", "acq_rel"]);
                op.takes_one(&["cta", "gpu", "sys"])
            }
        };
        if scope.is_none() || !operands.is_empty() {
            return Err(self.unknown_instruction(op));
        }
        self.b.ins().fence();
        Ok(())
    }
}
