//! PTX to the CPU's instructions.
//!
//! Each kernel becomes a function for one thread. Registers become variables of Cranelift, whose types are
//! integers: an instruction says what their bits mean. An instruction that waits for other threads calls
//! [`host::suspend`], which stops the thread until `block` has its answer.
//!
//! Every modifier has to be taken by the code of its instruction; one that is left makes the module invalid.

mod arithmetic;
mod convert;
mod host;
mod memory;
mod op;
#[cfg(test)]
mod tests;
mod together;

use crate::block::{Thread, Waits};
use crate::ptx::{Entry, Guard, Instruction, Module, Operand, PtxError, Register, Space, Statement};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{
    AbiParam, Block, BlockArg, FuncRef, InstBuilder, JumpTableData, MemFlagsData, StackSlot, StackSlotData,
    StackSlotKind, Type, Value, types,
};
use cranelift_codegen::settings::{self, Configurable};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext, Variable};
use cranelift_jit::{JITBuilder, JITModule};
use cranelift_module::{Linkage, Module as _, default_libcall_names};
use host::Host;
use op::{Op, Ty};
use std::collections::HashMap;
use std::mem::offset_of;

/// A kernel that can run.
pub struct Kernel {
    /// Its name.
    pub name: String,
    /// Its code for a thread; the answer is [`DONE`] or a fault.
    pub code: unsafe extern "C" fn(*mut Thread) -> u32,
    /// Offset and size of each parameter, bytes.
    pub params: Vec<(usize, usize)>,
    /// Shared memory without what the launch adds behind it, bytes.
    pub shared: usize,
    /// Where its threads wait for each other.
    pub waits: Vec<Waits>,
    /// The most threads that a block may have.
    pub max_threads: u64,
}

/// The thread has ended.
pub const DONE: u32 = 0;
/// It touched shared memory outside of what the block has.
pub const OUTSIDE_SHARED: u32 = 1;
/// It touched memory at an address that is no multiple of the size.
pub const MISALIGNED: u32 = 2;
/// It asked to end the program.
pub const TRAP: u32 = 3;
/// It jumped to a label that is not there.
pub const NO_TARGET: u32 = 4;

/// Local memory of a thread that is translated: it lies on a stack of limited size.
const MAX_LOCAL: u64 = 64 << 10;
/// More shared memory has no GPU.
const MAX_SHARED: u64 = 256 << 10;

type Result<T> = std::result::Result<T, PtxError>;

/// Where a name points.
#[derive(Clone, Copy)]
enum Place {
    /// Among the parameters: offset and size.
    Param(u64, u64),
    /// An offset in shared memory.
    Shared(u64),
    /// In the thread's own memory.
    Local(StackSlot),
    /// An address in the device's memory.
    Global(u64),
}

/// Translates the kernels of a module. `global` gives memory to a variable of the module: from its size and
/// contents to its address.
///
/// # Errors
/// What is not known here, and in which line.
pub fn translate(
    module: &Module,
    mut global: impl FnMut(&crate::ptx::Variable) -> std::result::Result<u64, String>,
) -> Result<Vec<Kernel>> {
    let mut globals = HashMap::new();
    for variable in &module.variables {
        if matches!(variable.space, Space::Global | Space::Const) {
            let address = global(variable).map_err(|what| PtxError { line: 1, what })?;
            globals.insert(variable.name.as_str(), Place::Global(address));
        }
    }
    let mut jit = jit().map_err(|what| PtxError { line: 1, what })?;
    let mut contexts = FunctionBuilderContext::new();
    let mut done = Vec::new();
    for entry in &module.entries {
        let internal = |error: cranelift_module::ModuleError| PtxError {
            line: 1,
            what: format!("the translation of `{}` fails: {error}", entry.name),
        };
        let mut context = jit.make_context();
        context.func.signature.params.push(AbiParam::new(types::I64));
        context.func.signature.returns.push(AbiParam::new(types::I32));
        let function = jit
            .declare_function(&entry.name, Linkage::Export, &context.func.signature)
            .map_err(internal)?;
        let builder = FunctionBuilder::new(&mut context.func, &mut contexts);
        let (shared, waits) = Function::new(builder, entry, &mut jit).translate(module, &globals)?;
        jit.define_function(function, &mut context).map_err(internal)?;
        done.push((entry, function, shared, waits));
    }
    jit.finalize_definitions().map_err(|error| PtxError {
        line: 1,
        what: format!("the translation fails: {error}"),
    })?;
    let kernels = done.into_iter().map(|(entry, function, shared, waits)| {
        let code = jit.get_finalized_function(function);
        Kernel {
            name: entry.name.clone(),
            // SAFETY: this is the code of a function that was declared with this signature, for the platform's
            // calling convention. It stays: a module's code is not freed when the module is dropped.
            code: unsafe { std::mem::transmute::<*const u8, unsafe extern "C" fn(*mut Thread) -> u32>(code) },
            params: entry
                .params
                .iter()
                .map(|p| (p.offset as usize, p.size as usize))
                .collect(),
            shared: shared as usize,
            waits,
            max_threads: entry.max_threads.unwrap_or(1024),
        }
    });
    Ok(kernels.collect())
}

fn jit() -> std::result::Result<JITModule, String> {
    let mut flags = settings::builder();
    for (name, value) in [
        ("opt_level", "speed"),
        ("is_pic", "false"),
        ("use_colocated_libcalls", "false"),
        // A frame that is larger than a page must not step over the page that guards the stack.
        ("enable_probestack", "true"),
        ("probestack_strategy", "inline"),
    ] {
        flags.set(name, value).map_err(|error| error.to_string())?;
    }
    let isa = cranelift_native::builder()?
        .finish(settings::Flags::new(flags))
        .map_err(|error| error.to_string())?;
    let mut builder = JITBuilder::with_isa(isa, default_libcall_names());
    for host in Host::ALL {
        builder.symbol(host.name(), host.code());
    }
    Ok(JITModule::new(builder))
}

/// A kernel that is being translated.
struct Function<'a> {
    b: FunctionBuilder<'a>,
    entry: &'a Entry,
    jit: &'a mut JITModule,
    /// The address of the [`Thread`].
    thread: Value,
    registers: Vec<Variable>,
    /// The carry of `add.cc`.
    carry: Variable,
    labels: HashMap<&'a str, Block>,
    places: HashMap<&'a str, Place>,
    faults: Vec<(u32, Block)>,
    hosts: HashMap<Host, FuncRef>,
    waits: Vec<Waits>,
    line: u32,
}

impl<'a> Function<'a> {
    fn new(mut b: FunctionBuilder<'a>, entry: &'a Entry, jit: &'a mut JITModule) -> Function<'a> {
        let first = b.create_block();
        b.append_block_params_for_function_params(first);
        b.switch_to_block(first);
        let thread = b.block_params(first)[0];
        let registers = entry
            .registers
            .iter()
            .map(|&width| b.declare_var(integer(width.into())))
            .collect();
        let carry = b.declare_var(types::I8);
        Function {
            b,
            entry,
            jit,
            thread,
            registers,
            carry,
            labels: HashMap::new(),
            places: HashMap::new(),
            faults: Vec::new(),
            hosts: HashMap::new(),
            waits: Vec::new(),
            line: 1,
        }
    }

    /// Translates the body; the size of its shared memory, and where its threads wait.
    fn translate(
        mut self,
        module: &'a Module,
        globals: &HashMap<&'a str, Place>,
    ) -> Result<(u64, Vec<Waits>)> {
        self.places.extend(globals);
        let shared = self.place(module)?;
        let entry = self.entry;
        for statement in &entry.body {
            if let Statement::Label(label) = statement {
                let block = self.b.create_block();
                self.labels.insert(label, block);
            }
        }
        for statement in &entry.body {
            match statement {
                Statement::Label(label) => {
                    let block = self.labels[label.as_str()];
                    self.b.ins().jump(block, []);
                    self.b.switch_to_block(block);
                }
                Statement::Instruction(instruction) => self.statement(instruction)?,
            }
        }
        self.end(DONE);
        for (fault, block) in std::mem::take(&mut self.faults) {
            self.b.switch_to_block(block);
            self.end(fault);
        }
        self.b.seal_all_blocks();
        let config = self.jit.target_config();
        self.b.finalize(config);
        Ok((shared, self.waits))
    }

    /// Gives variables and parameters their places; the size of shared memory.
    fn place(&mut self, module: &'a Module) -> Result<u64> {
        let entry = self.entry;
        for param in &entry.params {
            self.places
                .insert(&param.name, Place::Param(param.offset, param.size));
        }
        let shared = |space| space == Space::Shared;
        let outside = module.variables.iter().filter(|variable| shared(variable.space));
        let (mut end, mut local) = (0u64, 0u64);
        // What the launch adds lies behind all others.
        let (mut behind, mut behind_align) = (Vec::new(), 1);
        for variable in outside.chain(&entry.variables) {
            let place = match (variable.space, variable.size) {
                (Space::Shared, Some(size)) => {
                    let offset = end.next_multiple_of(variable.align);
                    end = offset.saturating_add(size);
                    Place::Shared(offset)
                }
                (Space::Shared, None) => {
                    behind.push(variable.name.as_str());
                    behind_align = variable.align.max(behind_align);
                    continue;
                }
                (_, size) => {
                    let size = size.unwrap_or_default();
                    local = local.saturating_add(size);
                    if local > MAX_LOCAL {
                        return Err(self.unknown(format!("{local} bytes of local memory")));
                    }
                    let align = variable.align.trailing_zeros().min(4) as u8;
                    let slot = StackSlotData::new(StackSlotKind::ExplicitSlot, size as u32, align);
                    let slot = self.b.create_sized_stack_slot(slot);
                    // What was not written is not zero on a GPU either.
                    let poison = self.b.ins().iconst(types::I8, 0xA5);
                    let at = self.b.ins().stack_addr(types::I64, slot, 0);
                    let len = self.b.ins().iconst(types::I64, size as i64);
                    let config = self.jit.target_config();
                    self.b.call_memset(config, at, poison, len);
                    Place::Local(slot)
                }
            };
            self.places.insert(&variable.name, place);
        }
        end = end.next_multiple_of(behind_align);
        for name in behind {
            self.places.insert(name, Place::Shared(end));
        }
        if end > MAX_SHARED {
            return Err(self.unknown(format!("{end} bytes of shared memory")));
        }
        Ok(end)
    }

    fn unknown(&self, what: impl Into<String>) -> PtxError {
        PtxError {
            line: self.line,
            what: what.into(),
        }
    }

    fn statement(&mut self, instruction: &'a Instruction) -> Result<()> {
        self.line = instruction.line;
        let mut op = Op::new(&instruction.name);
        let skip = match instruction.guard {
            None => None,
            Some(guard) => {
                let condition = self.guard(guard);
                let (then, next) = (self.b.create_block(), self.b.create_block());
                self.b.ins().brif(condition, then, [], next, []);
                self.b.switch_to_block(then);
                self.b.seal_block(then);
                Some(next)
            }
        };
        self.instruction(&mut op, &instruction.operands)?;
        if let [modifier, ..] = op.left() {
            let whole = op.whole;
            return Err(self.unknown(format!("the modifier `.{modifier}` of `{whole}` is not known")));
        }
        if let Some(next) = skip {
            self.b.ins().jump(next, []);
            self.b.switch_to_block(next);
            self.b.seal_block(next);
        }
        Ok(())
    }

    fn instruction(&mut self, op: &mut Op, operands: &'a [Operand]) -> Result<()> {
        match op.name {
            "ret" | "exit" => self.leave(DONE),
            "trap" => self.leave(TRAP),
            "bra" => {
                // Whether the whole warp jumps makes no difference here.
                op.takes("uni");
                let [target] = self.operands(op, operands)?;
                let block = self.label(target)?;
                self.b.ins().jump(block, []);
                self.go_on();
            }
            "brx" => self.branch_by_index(op, operands)?,
            "ld" | "ldu" => self.load(op, operands)?,
            "st" => self.store(op, operands)?,
            "atom" | "red" => self.atomic(op, operands)?,
            "mov" => self.mov(op, operands)?,
            "cvta" => self.convert_address(op, operands)?,
            "membar" | "fence" => self.fence(op, operands)?,
            "cvt" => self.convert(op, operands)?,
            "bar" | "barrier" | "shfl" | "vote" | "activemask" | "match" | "redux" | "elect" => {
                self.together(op, operands)?;
            }
            _ => self.arithmetic(op, operands)?,
        }
        Ok(())
    }

    fn unknown_instruction(&self, op: &Op) -> PtxError {
        self.unknown(format!("the instruction `{}` is not known", op.whole))
    }

    /// All operands, of which there have to be so many.
    fn operands<const N: usize>(&self, op: &Op, operands: &'a [Operand]) -> Result<[&'a Operand; N]> {
        match operands.first_chunk::<N>() {
            Some(chunk) if operands.len() == N => Ok(chunk.each_ref()),
            _ => Err(self.unknown(format!("`{}` with {} operands", op.whole, operands.len()))),
        }
    }

    /// The only type of an instruction.
    fn ty(&self, op: &Op) -> Result<Ty> {
        match op.types[..] {
            [ty] => Ok(ty),
            _ => Err(self.unknown_instruction(op)),
        }
    }

    fn label(&self, target: &Operand) -> Result<Block> {
        match target {
            Operand::Symbol(name) if self.labels.contains_key(name.as_str()) => {
                Ok(self.labels[name.as_str()])
            }
            _ => Err(self.unknown(format!("there is no label {target:?}"))),
        }
    }

    fn branch_by_index(&mut self, op: &mut Op, operands: &'a [Operand]) -> Result<()> {
        op.takes("uni");
        let [index, list] = match op.takes("idx") {
            true => self.operands(op, operands)?,
            false => return Err(self.unknown_instruction(op)),
        };
        let index = self.int(index, 32)?;
        let targets = match list {
            Operand::Symbol(name) => self.entry.branch_targets.get(name),
            _ => None,
        };
        let targets = targets.ok_or_else(|| self.unknown(format!("there is no list {list:?}")))?;
        let targets: Result<Vec<Block>> = targets
            .iter()
            .map(|label| {
                let block = self.labels.get(label.as_str()).copied();
                block.ok_or_else(|| self.unknown(format!("there is no label {label}")))
            })
            .collect();
        let fault = self.fault(NO_TARGET);
        let calls: Vec<_> = targets?
            .into_iter()
            .map(|block| self.b.func.dfg.block_call(block, &[] as &[BlockArg]))
            .collect();
        let fault = self.b.func.dfg.block_call(fault, &[] as &[BlockArg]);
        let table = self.b.create_jump_table(JumpTableData::new(fault, &calls));
        self.b.ins().br_table(index, table);
        self.go_on();
        Ok(())
    }

    /// Ends the block that is written with an end of the thread, and begins one that nothing jumps to.
    fn leave(&mut self, status: u32) {
        self.end(status);
        self.go_on();
    }

    fn end(&mut self, status: u32) {
        let status = self.b.ins().iconst(types::I32, i64::from(status));
        self.b.ins().return_(&[status]);
    }

    fn go_on(&mut self) {
        let block = self.b.create_block();
        self.b.switch_to_block(block);
        self.b.seal_block(block);
    }

    /// The block that ends a thread with a fault.
    fn fault(&mut self, fault: u32) -> Block {
        if let Some((_, block)) = self.faults.iter().find(|(known, _)| *known == fault) {
            return *block;
        }
        let block = self.b.create_block();
        self.b.set_cold_block(block);
        self.faults.push((fault, block));
        block
    }

    /// Ends the thread with a fault where a condition holds.
    fn fault_if(&mut self, condition: Value, fault: u32) {
        let fault = self.fault(fault);
        let next = self.b.create_block();
        self.b.ins().brif(condition, fault, [], next, []);
        self.b.switch_to_block(next);
        self.b.seal_block(next);
    }

    fn guard(&mut self, guard: Guard) -> Value {
        let value = self.b.use_var(self.registers[guard.register]);
        match guard.inverted {
            true => self.b.ins().bxor_imm_u(value, 1),
            false => value,
        }
    }

    fn width(&self, register: Register) -> u32 {
        self.entry.registers[register].into()
    }

    /// An operand of so many bits, as an integer.
    fn int(&mut self, operand: &Operand, bits: u32) -> Result<Value> {
        let ty = integer(bits);
        let masked = |number: u64| match bits {
            64 => number as i64,
            _ => (number & ((1 << ty.bits()) - 1)) as i64,
        };
        match operand {
            Operand::Register(register) if self.width(*register) == bits => {
                Ok(self.b.use_var(self.registers[*register]))
            }
            Operand::Not(register) if bits == 1 => Ok(self.guard(Guard {
                register: *register,
                inverted: true,
            })),
            Operand::Integer(number) if bits > 1 => Ok(self.b.ins().iconst(ty, masked(*number))),
            // A predicate: NVRTC writes true as 1, or for newer architectures as -1.
            Operand::Integer(number) if bits == 1 => Ok(self.b.ins().iconst(ty, i64::from(*number != 0))),
            Operand::F32(number) if bits == 32 => Ok(self.b.ins().iconst(ty, i64::from(*number))),
            Operand::F64(number) if bits == 64 => Ok(self.b.ins().iconst(ty, *number as i64)),
            Operand::Special(name) if bits == 32 => self.special(name),
            Operand::Symbol(name) => self.symbol(name, bits),
            _ => Err(self.unknown(format!("the operand {operand:?} where {bits} bits are wanted"))),
        }
    }

    /// The same from a register that may be wider.
    fn loose(&mut self, operand: &Operand, bits: u32) -> Result<Value> {
        match operand {
            Operand::Register(register) if self.width(*register) > bits && bits > 1 => {
                let value = self.b.use_var(self.registers[*register]);
                Ok(self.b.ins().ireduce(integer(bits), value))
            }
            _ => self.int(operand, bits),
        }
    }

    /// An operand of 32 or 64 bits, as a float.
    fn float(&mut self, operand: &Operand, bits: u32) -> Result<Value> {
        let value = self.int(operand, bits)?;
        Ok(self.b.ins().bitcast(float(bits), MemFlagsData::new(), value))
    }

    /// Writes an integer, or a float's bits, to a register of its size.
    fn set(&mut self, operand: &Operand, value: Value) -> Result<()> {
        let mut value = value;
        let ty = self.b.func.dfg.value_type(value);
        if ty.is_float() {
            let bits = integer(ty.bits());
            value = self.b.ins().bitcast(bits, MemFlagsData::new(), value);
        }
        match operand {
            Operand::Nothing => Ok(()),
            Operand::Register(register) if integer(self.width(*register)).bits() == ty.bits() => {
                self.b.def_var(self.registers[*register], value);
                Ok(())
            }
            _ => Err(self.unknown(format!("{operand:?} for a result of {} bits", ty.bits()))),
        }
    }

    /// The same where the register may be wider; what lies above is zero or the sign.
    fn set_wider(&mut self, operand: &Operand, value: Value, is_signed: bool) -> Result<()> {
        if let Operand::Register(register) = operand {
            let (ty, wanted) = (self.b.func.dfg.value_type(value), integer(self.width(*register)));
            if ty.is_int() && wanted.bits() > ty.bits() && self.width(*register) > 1 {
                let value = match is_signed {
                    true => self.b.ins().sextend(wanted, value),
                    false => self.b.ins().uextend(wanted, value),
                };
                return self.set(operand, value);
            }
        }
        self.set(operand, value)
    }

    /// A special register of 32 bits.
    fn special(&mut self, name: &str) -> Result<Value> {
        let axis = |base: usize, axis: &str| match axis {
            "x" => Some(base),
            "y" => Some(base + 4),
            "z" => Some(base + 8),
            _ => None,
        };
        let offset = match name.split_once('.') {
            Some(("tid", which)) => axis(offset_of!(Thread, tid), which),
            Some(("ntid", which)) => axis(offset_of!(Thread, ntid), which),
            Some(("ctaid", which)) => axis(offset_of!(Thread, ctaid), which),
            Some(("nctaid", which)) => axis(offset_of!(Thread, nctaid), which),
            _ if name == "laneid" => Some(offset_of!(Thread, lane)),
            _ if name == "warpid" => Some(offset_of!(Thread, warp)),
            _ => None,
        };
        if let Some(offset) = offset {
            return Ok(self.field(types::I32, offset));
        }
        let lane = self.field(types::I32, offset_of!(Thread, lane));
        let one = self.b.ins().iconst(types::I32, 1);
        let all = self.b.ins().iconst(types::I32, 0xFFFF_FFFF);
        let two = self.b.ins().iconst(types::I32, 2);
        Ok(match name {
            "lanemask_eq" => self.b.ins().ishl(one, lane),
            "lanemask_ge" => self.b.ins().ishl(all, lane),
            "lanemask_lt" => {
                let ge = self.b.ins().ishl(all, lane);
                self.b.ins().bnot(ge)
            }
            // Shifting by 32 would shift by nothing.
            "lanemask_gt" => {
                let even = self.b.ins().bnot(one);
                self.b.ins().ishl(even, lane)
            }
            "lanemask_le" => {
                let above = self.b.ins().ishl(two, lane);
                self.b.ins().isub(above, one)
            }
            _ => return Err(self.unknown(format!("the special register `%{name}` is not known"))),
        })
    }

    /// A field of the thread that does not change while it runs.
    fn field(&mut self, ty: Type, offset: usize) -> Value {
        let flags = MemFlagsData::trusted().with_readonly().with_can_move();
        self.b.ins().load(ty, flags, self.thread, offset as i32)
    }

    /// Where a name points: an offset in shared memory, else an address.
    fn symbol(&mut self, name: &str, bits: u32) -> Result<Value> {
        let place = self.places.get(name).copied();
        Ok(match place {
            Some(Place::Shared(offset)) if bits >= 32 => self.b.ins().iconst(integer(bits), offset as i64),
            Some(Place::Global(address)) if bits == 64 => self.b.ins().iconst(types::I64, address as i64),
            Some(Place::Local(slot)) if bits == 64 => self.b.ins().stack_addr(types::I64, slot, 0),
            Some(Place::Param(offset, _)) if bits == 64 => {
                let params = self.field(types::I64, offset_of!(Thread, params));
                self.b.ins().iadd_imm_s(params, offset as i64)
            }
            None if name == "WARP_SZ" && bits == 32 => self.b.ins().iconst(types::I32, 32),
            _ => return Err(self.unknown(format!("the name `{name}` where {bits} bits are wanted"))),
        })
    }

    /// Calls a function of this library.
    fn call(&mut self, host: Host, arguments: &[Value]) -> Value {
        let function = match self.hosts.get(&host) {
            Some(function) => *function,
            None => {
                let mut signature = self.jit.make_signature();
                let (params, result) = host.signature();
                signature
                    .params
                    .extend(params.iter().map(|ty| AbiParam::new(*ty)));
                signature.returns.push(AbiParam::new(result));
                let id = self
                    .jit
                    .declare_function(host.name(), Linkage::Import, &signature)
                    .expect("a function is declared with one signature");
                let function = self.jit.declare_func_in_func(id, self.b.func);
                self.hosts.insert(host, function);
                function
            }
        };
        let call = self.b.ins().call(function, arguments);
        self.b.inst_results(call)[0]
    }

    /// `x` where a condition on two integers holds, else `y`.
    fn choose(&mut self, condition: IntCC, a: Value, b: Value, x: Value, y: Value) -> Value {
        let condition = self.b.ins().icmp(condition, a, b);
        self.b.ins().select(condition, x, y)
    }
}

/// The integer of a width; a predicate is a byte.
fn integer(bits: u32) -> Type {
    match bits {
        1 | 8 => types::I8,
        16 => types::I16,
        32 => types::I32,
        _ => types::I64,
    }
}

fn float(bits: u32) -> Type {
    match bits {
        32 => types::F32,
        _ => types::F64,
    }
}
