//! PTX as data: what NVRTC writes, and no more of the language than that.
//!
//! The parser knows the structure: modules, entries, declarations, labels, operands. It does not know the
//! instructions; those are the translator's.

mod lex;
mod parse;
#[cfg(test)]
pub mod tests;

use std::collections::BTreeMap;

/// What is wrong with a text, or not known here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct PtxError {
    /// The line, from 1.
    pub line: u32,
    /// The problem, with the words of the text.
    pub what: String,
}

/// A module: one text.
#[derive(Debug)]
pub struct Module {
    /// Of the language: (8, 7) for 8.7.
    pub version: (u32, u32),
    /// The architecture that it is for: 80 for `sm_80`, and whether it is only for that one (`sm_90a`).
    pub target: (u32, bool),
    /// Variables outside of entries: global, constant and shared ones.
    pub variables: Vec<Variable>,
    /// The kernels.
    pub entries: Vec<Entry>,
}

/// Where a variable lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Space {
    /// In the memory of the device.
    Global,
    /// There too; no one writes it.
    Const,
    /// One for each block.
    Shared,
    /// One for each thread.
    Local,
}

/// A declared variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variable {
    /// Its name.
    pub name: String,
    /// Where it lies.
    pub space: Space,
    /// A power of two, bytes.
    pub align: u64,
    /// Bytes; none for shared memory whose size the launch says.
    pub size: Option<u64>,
    /// The first bytes of its contents; the others are zero.
    pub contents: Vec<u8>,
}

/// A parameter of a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Param {
    /// Its name.
    pub name: String,
    /// Where it lies among the parameters, bytes.
    pub offset: u64,
    /// Its size, bytes.
    pub size: u64,
}

/// A kernel.
#[derive(Debug)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// Its parameters.
    pub params: Vec<Param>,
    /// The most threads that a block may have.
    pub max_threads: Option<u64>,
    /// Its variables, shared and local.
    pub variables: Vec<Variable>,
    /// The width of each register in bits; 1 for a predicate.
    pub registers: Vec<u8>,
    /// Its statements.
    pub body: Vec<Statement>,
    /// Lists of labels that `brx.idx` chooses from.
    pub branch_targets: BTreeMap<String, Vec<String>>,
}

/// A register of an entry, an index into [`Entry::registers`].
pub type Register = usize;

/// A line of an entry.
#[derive(Debug)]
pub enum Statement {
    /// A place to jump to.
    Label(String),
    /// Something to do.
    Instruction(Instruction),
}

/// An instruction.
#[derive(Debug, Clone)]
pub struct Instruction {
    /// Its line, from 1.
    pub line: u32,
    /// The predicate that decides whether it is done, and whether its opposite counts.
    pub guard: Option<Guard>,
    /// Name and modifiers: `ld.global.u32`.
    pub name: String,
    /// What it is done with.
    pub operands: Vec<Operand>,
}

/// A predicate before an instruction, or as an operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Guard {
    /// The predicate.
    pub register: Register,
    /// Whether its opposite counts: `!%p1`.
    pub inverted: bool,
}

/// What an instruction is done with.
#[derive(Debug, Clone, PartialEq)]
pub enum Operand {
    /// `%r1`.
    Register(Register),
    /// `!%p1`.
    Not(Register),
    /// `%r1|%p1`.
    Pair(Register, Option<Register>),
    /// `%tid.x`, without the percent sign.
    Special(String),
    /// An integer's bits.
    Integer(u64),
    /// `0f3F800000`: the bits of a float.
    F32(u32),
    /// `0d3FF0000000000000`.
    F64(u64),
    /// `_`: a result that no one wants.
    Nothing,
    /// `{%r1, %r2}`.
    Vector(Vec<Operand>),
    /// `[base+offset]`.
    Address(Box<Operand>, i64),
    /// A variable, a parameter or a label.
    Symbol(String),
}

impl Module {
    /// Reads a text.
    ///
    /// # Errors
    /// What is wrong with it, or not known here, and in which line.
    pub fn parse(text: &str) -> Result<Module, PtxError> {
        parse::module(text)
    }
}
