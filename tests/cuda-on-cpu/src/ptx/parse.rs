//! The structure of PTX.

use super::lex::{Kind, Token, tokens};
use super::{
    Entry, Guard, Instruction, Module, Operand, Param, PtxError, Register, Space, Statement, Variable,
};
use std::collections::{BTreeMap, HashMap, HashSet};

type Result<T> = std::result::Result<T, PtxError>;

/// Scopes within scopes: more is no program.
const DEPTH: usize = 64;

pub fn module(text: &str) -> Result<Module> {
    let tokens = tokens(text)?;
    let mut parser = Parser {
        tokens: &tokens,
        at: 0,
    };
    let mut module = Module {
        version: (0, 0),
        target: (0, false),
        variables: Vec::new(),
        entries: Vec::new(),
    };
    while let Some(token) = parser.peek() {
        let Kind::Word(word) = token.kind else {
            return Err(parser.unexpected("a directive"));
        };
        match word {
            ".version" => {
                parser.at += 1;
                let Some(Kind::Version(major, minor)) = parser.peek().map(|t| t.kind) else {
                    return Err(parser.unexpected("a version"));
                };
                parser.at += 1;
                module.version = (major, minor);
            }
            ".target" => {
                parser.at += 1;
                module.target = parser.target()?;
            }
            ".address_size" => {
                parser.at += 1;
                if parser.integer()? != 64 {
                    return Err(parser.error("addresses of other than 64 bits"));
                }
            }
            ".file" | ".section" => parser.skip_debugging()?,
            _ => parser.top(&mut module)?,
        }
    }
    if module.version == (0, 0) || module.target.0 == 0 {
        return Err(PtxError {
            line: 1,
            what: "no PTX: .version or .target is missing".into(),
        });
    }
    Ok(module)
}

struct Parser<'a> {
    tokens: &'a [Token<'a>],
    at: usize,
}

/// The registers of an entry, by scope.
#[derive(Default)]
struct Registers {
    scopes: Vec<Scope>,
    widths: Vec<u8>,
}

#[derive(Default)]
struct Scope {
    single: HashMap<String, Register>,
    /// `%r<10>`: the width and the count of a family, and which of them have been used.
    families: HashMap<String, (u8, u64, HashMap<u64, Register>)>,
}

impl Registers {
    fn find(&mut self, name: &str) -> Option<Register> {
        let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
        let index = &name[stem.len()..];
        for scope in self.scopes.iter_mut().rev() {
            if let Some(&register) = scope.single.get(name) {
                return Some(register);
            }
            if let Some((width, count, used)) = scope.families.get_mut(stem)
                && let Ok(index) = index.parse::<u64>()
                && index < *count
            {
                return Some(*used.entry(index).or_insert_with(|| {
                    self.widths.push(*width);
                    self.widths.len() - 1
                }));
            }
        }
        None
    }
}

/// What an entry consists of while it is read.
struct Body {
    registers: Registers,
    variables: Vec<Variable>,
    statements: Vec<Statement>,
    branch_targets: BTreeMap<String, Vec<String>>,
    labels: HashSet<String>,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<Token<'a>> {
        self.tokens.get(self.at).copied()
    }

    fn error(&self, what: impl Into<String>) -> PtxError {
        let last = self.at.min(self.tokens.len().saturating_sub(1));
        PtxError {
            line: self.tokens.get(last).map_or(1, |token| token.line),
            what: what.into(),
        }
    }

    fn unexpected(&self, wanted: &str) -> PtxError {
        let found = match self.peek().map(|token| token.kind) {
            None => "the end".to_owned(),
            Some(Kind::Word(word)) => format!("`{word}`"),
            Some(Kind::Sign(sign)) => format!("`{}`", sign as char),
            Some(Kind::Integer(number)) => format!("`{number}`"),
            Some(_) => "a number or a text".to_owned(),
        };
        self.error(format!("{found} where {wanted} is expected"))
    }

    fn is_sign(&self, sign: u8) -> bool {
        self.peek().is_some_and(|token| token.kind == Kind::Sign(sign))
    }

    /// Whether a sign follows, which is then passed.
    fn takes(&mut self, sign: u8) -> bool {
        let is = self.is_sign(sign);
        self.at += usize::from(is);
        is
    }

    fn expect(&mut self, sign: u8) -> Result<()> {
        match self.takes(sign) {
            true => Ok(()),
            false => Err(self.unexpected(&format!("`{}`", sign as char))),
        }
    }

    fn word(&mut self) -> Result<&'a str> {
        match self.peek() {
            Some(Token {
                kind: Kind::Word(word),
                ..
            }) => {
                self.at += 1;
                Ok(word)
            }
            _ => Err(self.unexpected("a word")),
        }
    }

    fn integer(&mut self) -> Result<u64> {
        match self.peek() {
            Some(Token {
                kind: Kind::Integer(integer),
                ..
            }) => {
                self.at += 1;
                Ok(integer)
            }
            _ => Err(self.unexpected("an integer")),
        }
    }

    fn target(&mut self) -> Result<(u32, bool)> {
        let word = self.word()?;
        let digits = word.strip_prefix("sm_").unwrap_or_default();
        let number = digits.trim_end_matches(|c: char| c.is_ascii_lowercase());
        let target = number
            .parse()
            .map_err(|_| self.error(format!("the target `{word}`")))?;
        while self.takes(b',') {
            match self.word()? {
                "debug" => {}
                other => return Err(self.error(format!("the target option `{other}`"))),
            }
        }
        Ok((target, number != digits))
    }

    /// What debuggers read: nothing here.
    fn skip_debugging(&mut self) -> Result<()> {
        if self.word()? == ".file" {
            self.integer()?;
            self.at += 1;
            while self.takes(b',') {
                self.integer()?;
            }
            return Ok(());
        }
        self.word()?;
        self.expect(b'{')?;
        while !self.takes(b'}') {
            if self.peek().is_none() {
                return Err(self.unexpected("`}`"));
            }
            self.at += 1;
        }
        Ok(())
    }

    /// A variable or an entry outside of entries.
    fn top(&mut self, module: &mut Module) -> Result<()> {
        let is_external = loop {
            match self.peek().map(|t| t.kind) {
                Some(Kind::Word(".visible" | ".weak")) => self.at += 1,
                Some(Kind::Word(".extern")) => {
                    self.at += 1;
                    break true;
                }
                _ => break false,
            }
        };
        match self.word()? {
            ".entry" if !is_external => {
                let entry = self.entry()?;
                module.entries.push(entry);
            }
            ".global" => self.variables(Space::Global, &mut module.variables)?,
            ".const" => self.variables(Space::Const, &mut module.variables)?,
            ".shared" => self.variables(Space::Shared, &mut module.variables)?,
            other => return Err(self.error(format!("the directive `{other}` is not known"))),
        }
        Ok(())
    }

    /// `.align 4 .b8 name[16], other = {1, 2};` after the space.
    fn variables(&mut self, space: Space, into: &mut Vec<Variable>) -> Result<()> {
        let mut align = None;
        let mut ty = self.word()?;
        if ty == ".align" {
            align = Some(self.integer()?);
            ty = self.word()?;
        }
        let element = self.bytes_of(ty)?;
        let align = align.unwrap_or(element);
        if !align.is_power_of_two() || align > 1 << 16 {
            return Err(self.error(format!("an alignment of {align}")));
        }
        loop {
            let name = self.word()?.to_owned();
            let (mut size, mut is_array) = (Some(element), false);
            while self.takes(b'[') {
                is_array = true;
                if self.takes(b']') {
                    size = None;
                    continue;
                }
                let count = self.integer()?;
                size = match size.map(|size| size.checked_mul(count)) {
                    Some(Some(size)) => Some(size),
                    _ => return Err(self.error(format!("the size of `{name}`"))),
                };
                self.expect(b']')?;
            }
            let mut contents = Vec::new();
            if self.takes(b'=') {
                if is_array {
                    self.expect(b'{')?;
                }
                loop {
                    let number = match self.operand_number()? {
                        Operand::Integer(number) => number,
                        Operand::F32(bits) if element == 4 => bits.into(),
                        Operand::F64(bits) if element == 8 => bits,
                        _ => return Err(self.error(format!("the contents of `{name}`"))),
                    };
                    contents.extend(&number.to_le_bytes()[..element as usize]);
                    if !is_array || !self.takes(b',') {
                        break;
                    }
                }
                if is_array {
                    self.expect(b'}')?;
                }
            }
            let is_fitting = match (space, size) {
                (Space::Shared, None) => contents.is_empty(),
                (_, None) => false,
                (Space::Shared | Space::Local, Some(_)) => contents.is_empty(),
                (_, Some(size)) => contents.len() as u64 <= size,
            };
            if !is_fitting {
                return Err(self.error(format!("the size or the contents of `{name}`")));
            }
            into.push(Variable {
                name,
                space,
                align,
                size,
                contents,
            });
            if !self.takes(b',') {
                break;
            }
        }
        self.expect(b';')
    }

    fn bytes_of(&self, ty: &str) -> Result<u64> {
        Ok(match ty {
            ".b8" | ".u8" | ".s8" => 1,
            ".b16" | ".u16" | ".s16" | ".f16" => 2,
            ".b32" | ".u32" | ".s32" | ".f32" => 4,
            ".b64" | ".u64" | ".s64" | ".f64" => 8,
            _ => return Err(self.error(format!("the type `{ty}`"))),
        })
    }

    fn entry(&mut self) -> Result<Entry> {
        let name = self.word()?.to_owned();
        let params = self.params()?;
        let max_threads = self.bounds()?;
        let mut body = Body {
            registers: Registers::default(),
            variables: Vec::new(),
            statements: Vec::new(),
            branch_targets: BTreeMap::new(),
            labels: HashSet::new(),
        };
        self.expect(b'{')?;
        self.scope(&mut body, 0)?;
        Ok(Entry {
            name,
            params,
            max_threads,
            variables: body.variables,
            registers: body.registers.widths,
            body: body.statements,
            branch_targets: body.branch_targets,
        })
    }

    fn params(&mut self) -> Result<Vec<Param>> {
        let (mut params, mut end) = (Vec::new(), 0u64);
        if !self.takes(b'(') || self.takes(b')') {
            return Ok(params);
        }
        loop {
            match self.word()? {
                ".param" => {}
                other => return Err(self.error(format!("`{other}` where .param is expected"))),
            }
            let (mut align, mut element) = (None, None);
            let name = loop {
                match self.word()? {
                    ".align" => align = Some(self.integer()?),
                    // What a pointer points to says nothing about the parameter.
                    ".ptr" => {
                        while let Some(Kind::Word(word)) = self.peek().map(|t| t.kind) {
                            match word {
                                ".global" | ".shared" | ".local" | ".const" => self.at += 1,
                                ".align" => {
                                    self.at += 1;
                                    self.integer()?;
                                }
                                _ => break,
                            }
                        }
                    }
                    ty if ty.starts_with('.') => element = Some(self.bytes_of(ty)?),
                    name => break name.to_owned(),
                }
            };
            let element = element.ok_or_else(|| self.error(format!("`{name}` has no type")))?;
            let align = align.unwrap_or(element);
            let mut size = element;
            if self.takes(b'[') {
                size = element
                    .checked_mul(self.integer()?)
                    .filter(|size| *size <= 1 << 16)
                    .ok_or_else(|| self.error(format!("the size of `{name}`")))?;
                self.expect(b']')?;
            }
            if !align.is_power_of_two() || align > 256 {
                return Err(self.error(format!("an alignment of {align}")));
            }
            let offset = end.next_multiple_of(align);
            end = offset + size;
            // CUDA 12.1 raised the limit to this; a launch has no more.
            if end > 32764 {
                return Err(self.error("more than 32764 bytes of parameters"));
            }
            params.push(Param { name, offset, size });
            if self.takes(b')') {
                return Ok(params);
            }
            self.expect(b',')?;
        }
    }

    /// The bounds of a launch; the most threads of a block, if they say it.
    fn bounds(&mut self) -> Result<Option<u64>> {
        let mut most = None;
        while let Some(Kind::Word(word)) = self.peek().map(|token| token.kind) {
            self.at += 1;
            let mut product = self.integer()?;
            while self.takes(b',') {
                product = product.saturating_mul(self.integer()?);
            }
            match word {
                ".maxntid" | ".reqntid" => most = Some(product),
                ".minnctapersm" | ".maxnreg" => {}
                other => return Err(self.error(format!("the directive `{other}` is not known"))),
            }
        }
        Ok(most)
    }

    /// Statements to the end of a scope.
    fn scope(&mut self, body: &mut Body, depth: usize) -> Result<()> {
        if depth > DEPTH {
            return Err(self.error("scopes within scopes"));
        }
        body.registers.scopes.push(Scope::default());
        while !self.takes(b'}') {
            if self.takes(b'{') {
                self.scope(body, depth + 1)?;
                continue;
            }
            let Some(token) = self.peek() else {
                return Err(self.unexpected("`}`"));
            };
            let next = self.tokens.get(self.at + 1).map(|token| token.kind);
            match token.kind {
                Kind::Word(label) if next == Some(Kind::Sign(b':')) => {
                    self.at += 2;
                    if !body.labels.insert(label.to_owned()) {
                        return Err(self.error(format!("`{label}` is there twice")));
                    }
                    if self
                        .peek()
                        .is_some_and(|t| t.kind == Kind::Word(".branchtargets"))
                    {
                        self.at += 1;
                        let mut targets = vec![self.word()?.to_owned()];
                        while self.takes(b',') {
                            targets.push(self.word()?.to_owned());
                        }
                        self.expect(b';')?;
                        body.branch_targets.insert(label.to_owned(), targets);
                    } else {
                        body.statements.push(Statement::Label(label.to_owned()));
                    }
                }
                Kind::Word(directive) if directive.starts_with('.') => {
                    self.at += 1;
                    self.directive(directive, token.line, body)?;
                }
                _ => {
                    let instruction = self.instruction(body)?;
                    body.statements.push(Statement::Instruction(instruction));
                }
            }
        }
        body.registers.scopes.pop();
        Ok(())
    }

    fn directive(&mut self, directive: &str, line: u32, body: &mut Body) -> Result<()> {
        match directive {
            ".reg" => self.registers(&mut body.registers),
            ".local" => self.variables(Space::Local, &mut body.variables),
            ".shared" => self.variables(Space::Shared, &mut body.variables),
            // Where the source's lines are; it ends with its line, without a sign.
            ".loc" => {
                while self.peek().is_some_and(|token| token.line == line) {
                    self.at += 1;
                }
                Ok(())
            }
            ".pragma" => {
                self.at += 1;
                self.expect(b';')
            }
            other => Err(self.error(format!("the directive `{other}` is not known"))),
        }
    }

    /// `.b32 %r<10>, %x;` after `.reg`.
    fn registers(&mut self, registers: &mut Registers) -> Result<()> {
        let ty = self.word()?;
        let width = match ty {
            ".pred" => 1,
            _ => match self.bytes_of(ty)? {
                1 => return Err(self.error("registers of 8 bits")),
                bytes => bytes as u8 * 8,
            },
        };
        loop {
            let name = self.word()?.to_owned();
            let scope = registers.scopes.last_mut().expect("a scope");
            if self.takes(b'<') {
                let count = self.integer()?;
                scope.families.insert(name, (width, count, HashMap::new()));
                self.expect(b'>')?;
            } else {
                registers.widths.push(width);
                scope.single.insert(name, registers.widths.len() - 1);
            }
            if !self.takes(b',') {
                break;
            }
        }
        self.expect(b';')
    }

    fn instruction(&mut self, body: &mut Body) -> Result<Instruction> {
        let guard = match self.takes(b'@') {
            true => {
                let inverted = self.takes(b'!');
                Some(Guard {
                    register: self.predicate(body)?,
                    inverted,
                })
            }
            false => None,
        };
        let line = self.peek().map_or(1, |token| token.line);
        let name = self.word()?.to_owned();
        if self.is_sign(b'(') {
            return Err(self.error(format!("the instruction `{name}` is not known")));
        }
        let mut operands = Vec::new();
        if !self.takes(b';') {
            loop {
                operands.push(self.operand(body, 0)?);
                if self.takes(b';') {
                    break;
                }
                self.expect(b',')?;
            }
        }
        Ok(Instruction {
            line,
            guard,
            name,
            operands,
        })
    }

    fn predicate(&mut self, body: &mut Body) -> Result<Register> {
        let name = self.word()?;
        match body.registers.find(name) {
            Some(register) if body.registers.widths[register] == 1 => Ok(register),
            _ => Err(self.error(format!("`{name}` is no predicate"))),
        }
    }

    /// An integer with its sign, or a float.
    fn operand_number(&mut self) -> Result<Operand> {
        let is_negative = self.takes(b'-');
        let operand = match self.peek().map(|token| token.kind) {
            Some(Kind::Integer(integer)) if is_negative => Operand::Integer(integer.wrapping_neg()),
            Some(Kind::Integer(integer)) => Operand::Integer(integer),
            Some(Kind::F32(bits)) if !is_negative => Operand::F32(bits),
            Some(Kind::F64(bits)) if !is_negative => Operand::F64(bits),
            _ => return Err(self.unexpected("a number")),
        };
        self.at += 1;
        Ok(operand)
    }

    fn operand(&mut self, body: &mut Body, depth: usize) -> Result<Operand> {
        let Some(token) = self.peek() else {
            return Err(self.unexpected("an operand"));
        };
        match token.kind {
            Kind::Sign(b'{') if depth == 0 => {
                self.at += 1;
                let mut parts = vec![self.operand(body, 1)?];
                while self.takes(b',') {
                    parts.push(self.operand(body, 1)?);
                }
                self.expect(b'}')?;
                Ok(Operand::Vector(parts))
            }
            Kind::Sign(b'[') if depth == 0 => {
                self.at += 1;
                let base = self.operand(body, 1)?;
                let mut offset = 0;
                if self.takes(b'+') {
                    let Operand::Integer(integer) = self.operand_number()? else {
                        return Err(self.error("an offset that is no integer"));
                    };
                    offset = integer as i64;
                }
                self.expect(b']')?;
                Ok(Operand::Address(Box::new(base), offset))
            }
            Kind::Sign(b'!') => {
                self.at += 1;
                Ok(Operand::Not(self.predicate(body)?))
            }
            Kind::Word("_") => {
                self.at += 1;
                Ok(Operand::Nothing)
            }
            Kind::Word(word) => {
                self.at += 1;
                let Some(register) = body.registers.find(word) else {
                    return match word.strip_prefix('%') {
                        Some(special) => Ok(Operand::Special(special.to_owned())),
                        None => Ok(Operand::Symbol(word.to_owned())),
                    };
                };
                if !self.takes(b'|') {
                    return Ok(Operand::Register(register));
                }
                if self.peek().is_some_and(|token| token.kind == Kind::Word("_")) {
                    self.at += 1;
                    return Ok(Operand::Pair(register, None));
                }
                Ok(Operand::Pair(register, Some(self.predicate(body)?)))
            }
            _ => self.operand_number(),
        }
    }
}
