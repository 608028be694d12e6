//! Instructions that wait for other threads.

use super::op::{Kind, Op};
use super::{Function, Host, Result, integer};
use crate::block::{Reduce, Shuffle, Vote, Waits};
use crate::ptx::Operand;
use cranelift_codegen::ir::{InstBuilder, Value, types};

impl Function<'_> {
    pub(super) fn together(&mut self, op: &mut Op, operands: &[Operand]) -> Result<()> {
        match op.name {
            "activemask" => {
                let [to] = operands else {
                    return Err(self.unknown_instruction(op));
                };
                let ty = self.ty(op)?;
                if ty.bits != 32 {
                    return Err(self.unknown_instruction(op));
                }
                let all = self.b.ins().iconst(types::I32, 0);
                let (mask, _) = self.wait(Waits::Active, all, &[]);
                self.set(to, mask)
            }
            "bar" | "barrier" => self.barrier(op, operands),
            "shfl" => self.shuffle(op, operands),
            "vote" => self.vote(op, operands),
            "match" => self.matching(op, operands),
            "redux" => self.reduce(op, operands),
            _ => {
                let ([to, mask], true) = (operands, op.takes("sync")) else {
                    return Err(self.unknown_instruction(op));
                };
                let mask = self.int(mask, 32)?;
                let (leader, is_leader) = self.wait(Waits::Elect, mask, &[]);
                self.set_pair(to, leader, is_leader)
            }
        }
    }

    /// Stops the thread until those of `mask` have stopped here too; the answer's 32 bits and its predicate.
    fn wait(&mut self, waits: Waits, mask: Value, arguments: &[Value]) -> (Value, Value) {
        let site = self.b.ins().iconst(types::I32, self.waits.len() as i64);
        self.waits.push(waits);
        let zero = self.b.ins().iconst(types::I32, 0);
        let mut all = vec![self.thread, site, mask];
        all.extend(arguments);
        all.resize(6, zero);
        let answer = self.call(Host::Suspend, &all);
        let value = self.b.ins().ireduce(types::I32, answer);
        let predicate = self.b.ins().ushr_imm_u(answer, 32);
        (value, self.b.ins().ireduce(types::I8, predicate))
    }

    /// Writes `%r1` or `%r1|%p1`.
    fn set_pair(&mut self, to: &Operand, value: Value, predicate: Value) -> Result<()> {
        match to {
            Operand::Pair(register, None) => self.set(&Operand::Register(*register), value),
            Operand::Pair(register, Some(second)) => {
                self.set(&Operand::Register(*register), value)?;
                self.set(&Operand::Register(*second), predicate)
            }
            single => self.set(single, value),
        }
    }

    fn barrier(&mut self, op: &mut Op, operands: &[Operand]) -> Result<()> {
        if op.takes("warp") {
            let ([mask], true) = (operands, op.takes("sync")) else {
                return Err(self.unknown_instruction(op));
            };
            let mask = self.int(mask, 32)?;
            self.wait(Waits::Warp, mask, &[]);
            return Ok(());
        }
        op.takes("cta");
        op.takes("aligned");
        let zero = self.b.ins().iconst(types::I32, 0);
        if op.takes("sync") {
            let (id, count) = match operands {
                [id] => (id, zero),
                [id, count] => (id, self.int(count, 32)?),
                _ => return Err(self.unknown_instruction(op)),
            };
            let id = self.int(id, 32)?;
            self.wait(Waits::Barrier(None), zero, &[id, count]);
            return Ok(());
        }
        // A barrier that counts a predicate of all threads.
        let reduce = match (op.takes("red"), op.takes_one(&["and", "or", "popc"])) {
            (true, Some("and")) => Vote::All,
            (true, Some("or")) => Vote::Any,
            (true, Some(_)) => Vote::Count,
            _ => return Err(self.unknown_instruction(op)),
        };
        let (to, id, count, predicate) = match operands {
            [to, id, predicate] => (to, id, zero, predicate),
            [to, id, count, predicate] => (to, id, self.int(count, 32)?, predicate),
            _ => return Err(self.unknown_instruction(op)),
        };
        let bits = self.ty(op)?.bits;
        if bits != if reduce == Vote::Count { 32 } else { 1 } {
            return Err(self.unknown_instruction(op));
        }
        let (id, predicate) = (self.int(id, 32)?, self.predicate(predicate)?);
        let (value, flag) = self.wait(Waits::Barrier(Some(reduce)), zero, &[id, count, predicate]);
        self.set(to, if bits == 1 { flag } else { value })
    }

    /// A predicate as 32 bits.
    fn predicate(&mut self, operand: &Operand) -> Result<Value> {
        let value = self.int(operand, 1)?;
        Ok(self.b.ins().uextend(types::I32, value))
    }

    fn shuffle(&mut self, op: &mut Op, operands: &[Operand]) -> Result<()> {
        let how = match (op.takes("sync"), op.takes_one(&["up", "down", "bfly", "idx"])) {
            (true, Some("up")) => Shuffle::Up,
            (true, Some("down")) => Shuffle::Down,
            (true, Some("bfly")) => Shuffle::Butterfly,
            (true, Some(_)) => Shuffle::Index,
            _ => return Err(self.unknown_instruction(op)),
        };
        let ([to, value, lane, bounds, mask], 32) = (operands, self.ty(op)?.bits) else {
            return Err(self.unknown_instruction(op));
        };
        let arguments = [self.int(value, 32)?, self.int(lane, 32)?, self.int(bounds, 32)?];
        let mask = self.int(mask, 32)?;
        let (value, is_inside) = self.wait(Waits::Shuffle(how), mask, &arguments);
        self.set_pair(to, value, is_inside)
    }

    fn vote(&mut self, op: &mut Op, operands: &[Operand]) -> Result<()> {
        let how = match (op.takes("sync"), op.takes_one(&["all", "any", "uni", "ballot"])) {
            (true, Some("all")) => Vote::All,
            (true, Some("any")) => Vote::Any,
            (true, Some("uni")) => Vote::Uniform,
            (true, Some(_)) => Vote::Ballot,
            _ => return Err(self.unknown_instruction(op)),
        };
        let bits = self.ty(op)?.bits;
        let [to, predicate, mask] = operands else {
            return Err(self.unknown_instruction(op));
        };
        if bits != if how == Vote::Ballot { 32 } else { 1 } {
            return Err(self.unknown_instruction(op));
        }
        let (predicate, mask) = (self.predicate(predicate)?, self.int(mask, 32)?);
        let (value, flag) = self.wait(Waits::Vote(how), mask, &[predicate]);
        self.set(to, if bits == 1 { flag } else { value })
    }

    fn matching(&mut self, op: &mut Op, operands: &[Operand]) -> Result<()> {
        let all = match (op.takes("sync"), op.takes_one(&["any", "all"])) {
            (true, Some(which)) => which == "all",
            _ => return Err(self.unknown_instruction(op)),
        };
        let ([to, value, mask], 32) = (operands, self.ty(op)?.bits) else {
            return Err(self.unknown_instruction(op));
        };
        let (value, mask) = (self.int(value, 32)?, self.int(mask, 32)?);
        let (value, flag) = self.wait(Waits::Match { all }, mask, &[value]);
        self.set_pair(to, value, flag)
    }

    fn reduce(&mut self, op: &mut Op, operands: &[Operand]) -> Result<()> {
        let ty = self.ty(op)?;
        let what = op.takes_one(&["add", "min", "max", "and", "or", "xor"]);
        let how = match (what, ty.kind) {
            (Some("add"), Kind::Unsigned | Kind::Signed) => Reduce::Add,
            (Some("min"), Kind::Unsigned) => Reduce::Min,
            (Some("max"), Kind::Unsigned) => Reduce::Max,
            (Some("min"), Kind::Signed) => Reduce::MinSigned,
            (Some("max"), Kind::Signed) => Reduce::MaxSigned,
            (Some("and"), Kind::Bits) => Reduce::And,
            (Some("or"), Kind::Bits) => Reduce::Or,
            (Some("xor"), Kind::Bits) => Reduce::Xor,
            _ => return Err(self.unknown_instruction(op)),
        };
        let ([to, value, mask], true, types::I32) = (operands, op.takes("sync"), integer(ty.bits)) else {
            return Err(self.unknown_instruction(op));
        };
        let (value, mask) = (self.int(value, 32)?, self.int(mask, 32)?);
        let (value, _) = self.wait(Waits::Reduce(how), mask, &[value]);
        self.set(to, value)
    }
}
