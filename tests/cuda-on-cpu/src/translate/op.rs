//! The name of an instruction, taken apart.

/// What the bits of an operand mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Nothing in particular (`.b32`), or a predicate.
    Bits,
    /// An unsigned integer.
    Unsigned,
    /// A signed integer.
    Signed,
    /// A float of IEEE 754.
    Float,
    /// `bf16`.
    Brain,
    /// Two 16-bit floats.
    Float2,
    /// Two `bf16`.
    Brain2,
}

/// The type that a modifier names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ty {
    /// What the bits mean.
    pub kind: Kind,
    /// How many there are; 1 for a predicate.
    pub bits: u32,
}

impl Ty {
    fn named(name: &str) -> Option<Ty> {
        let (kind, bits) = match name {
            "pred" => (Kind::Bits, 1),
            "f16x2" => (Kind::Float2, 32),
            "bf16x2" => (Kind::Brain2, 32),
            "bf16" => (Kind::Brain, 16),
            _ => {
                let kind = match name.as_bytes().first()? {
                    b'b' => Kind::Bits,
                    b'u' => Kind::Unsigned,
                    b's' => Kind::Signed,
                    b'f' => Kind::Float,
                    _ => return None,
                };
                let bits = match &name[1..] {
                    "8" if kind != Kind::Float => 8,
                    "16" => 16,
                    "32" => 32,
                    "64" => 64,
                    _ => return None,
                };
                (kind, bits)
            }
        };
        Some(Ty { kind, bits })
    }

    /// Bytes in memory.
    pub fn bytes(self) -> i64 {
        i64::from(self.bits / 8)
    }

    pub fn is_signed(self) -> bool {
        self.kind == Kind::Signed
    }

    /// An integer, or bits that are counted as one.
    pub fn is_integer(self) -> bool {
        matches!(self.kind, Kind::Bits | Kind::Unsigned | Kind::Signed) && self.bits > 1
    }

    /// A float that the CPU computes with.
    pub fn is_float(self) -> bool {
        self.kind == Kind::Float && self.bits >= 32
    }

    /// A float of 16 bits, of either kind.
    pub fn is_half(self) -> bool {
        self.bits == 16 && matches!(self.kind, Kind::Float | Kind::Brain)
    }
}

/// A name and its modifiers, of which each is taken once.
pub struct Op<'a> {
    /// The whole name.
    pub whole: &'a str,
    /// The word before the first dot.
    pub name: &'a str,
    /// The types, in their order.
    pub types: Vec<Ty>,
    modifiers: Vec<&'a str>,
}

impl<'a> Op<'a> {
    pub fn new(whole: &'a str) -> Op<'a> {
        let mut words = whole.split('.');
        let name = words.next().unwrap_or_default();
        let (mut types, mut modifiers) = (Vec::new(), Vec::new());
        for word in words {
            match Ty::named(word) {
                Some(ty) => types.push(ty),
                None => modifiers.push(word),
            }
        }
        Op {
            whole,
            name,
            types,
            modifiers,
        }
    }

    /// Whether it has a modifier, which is then done with.
    pub fn takes(&mut self, modifier: &str) -> bool {
        let at = self.modifiers.iter().position(|m| *m == modifier);
        at.map(|at| self.modifiers.remove(at)).is_some()
    }

    /// The first modifier of those named that it has, which is then done with.
    pub fn takes_one(&mut self, modifiers: &[&'static str]) -> Option<&'static str> {
        modifiers.iter().copied().find(|modifier| self.takes(modifier))
    }

    /// The modifiers that no one took.
    pub fn left(&self) -> &[&'a str] {
        &self.modifiers
    }
}
