//! Distributions of symbols, laid out for decoding by the alias method.

use super::tokens::{ESCAPE, SYMBOLS};
use crate::Error;
use std::fmt;
use std::sync::OnceLock;

/// What the bytes of tables begin with.
const MAGIC: [u8; 8] = *b"SKTABLE1";
/// Classes of components: luminance and everything else that stands alone, chrominance.
pub(super) const CLASSES: usize = 2;
/// Tables of tokens of a class: one a type and place in coding order.
pub(super) const TOKEN_TABLES: usize = 64 * SYMBOLS;
/// Tables of types of a class, of which a group takes one.
pub(super) const TYPE_TABLES: usize = 8;
/// All of a class.
const CLASS_TABLES: usize = TOKEN_TABLES + TYPE_TABLES;
/// The bytes of all tables.
pub(super) const TABLES_BYTES: usize = MAGIC.len() + CLASSES * CLASS_TABLES * SYMBOLS;

/// How probable each symbol is, in 256ths. They add up to 256, and none is 256.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Distribution(pub [u8; SYMBOLS]);

/// A distribution of the packed form's symbols, laid out for the alias method.
///
/// There are sixteen bins of sixteen slots. The first `divider[b]` slots of bin `b` are symbol `b`'s. The others are
/// symbol `alias[b]`'s: `offset[b]` plus the place in the bin, modulo 256, is the place among that symbol's slots.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub struct Table {
    /// How many slots of each bin are those of its own symbol, 0 to 16.
    pub divider: [u8; SYMBOLS],
    /// The symbol of each bin's other slots.
    pub alias: [u8; SYMBOLS],
    /// How many slots each symbol has. They add up to 256.
    pub share: [u8; SYMBOLS],
    /// What a place in a bin lacks to the place among the slots of the bin's alias.
    pub offset: [u8; SYMBOLS],
}

impl Distribution {
    /// What is wrong with it, if anything.
    fn wrong(&self, needs: impl Fn(usize) -> bool) -> bool {
        let sum: u32 = self.0.iter().map(|&share| u32::from(share)).sum();
        sum != 256 || (0..SYMBOLS).any(|symbol| needs(symbol) && self.0[symbol] == 0)
    }

    /// Lays it out. One bin after the other is filled: that of the symbol with the least left, the lowest of several. It
    /// takes as many slots as are left of its own symbol; the rest are of the symbol with the most left, the highest
    /// of several.
    pub fn table(&self) -> Table {
        let mut table = Table {
            divider: [16; SYMBOLS],
            alias: [0; SYMBOLS],
            share: self.0,
            offset: [0; SYMBOLS],
        };
        let mut left = self.0.map(u16::from);
        let mut filled = [false; SYMBOLS];
        let mut order = [0; SYMBOLS];
        for bin in &mut order {
            let least = (0..SYMBOLS).filter(|&b| !filled[b]).min_by_key(|&b| left[b]);
            let b = least.unwrap_or_default();
            *bin = b;
            filled[b] = true;
            let own = left[b].min(16);
            left[b] -= own;
            table.divider[b] = own as u8;
            if own < 16 {
                let most = (0..SYMBOLS).max_by_key(|&a| left[a]).unwrap_or_default();
                left[most] -= 16 - own;
                table.alias[b] = most as u8;
            }
        }
        // A symbol's own slots come first, then those in other bins in the order in which they were filled.
        let mut held = table.divider;
        for b in order.into_iter().filter(|&b| table.divider[b] < 16) {
            let (own, alias) = (table.divider[b], usize::from(table.alias[b]));
            table.offset[b] = held[alias].wrapping_sub(own);
            held[alias] = held[alias].wrapping_add(16 - own);
        }
        table
    }
}

impl Table {
    /// The symbol of a slot, and the slot's place among those of the symbol.
    #[inline(always)]
    pub(super) fn at(&self, slot: u8) -> (u8, u8) {
        let (bin, place) = (slot >> 4, slot & 15);
        match place < self.divider[usize::from(bin)] {
            true => (bin, place),
            false => {
                let bin = usize::from(bin);
                (self.alias[bin], place.wrapping_add(self.offset[bin]))
            }
        }
    }

    /// All slots, those of symbol 0 first, each symbol's in their order.
    pub(super) fn slots(&self) -> [u8; 256] {
        let mut first = [0; SYMBOLS];
        for symbol in 1..SYMBOLS {
            first[symbol] = first[symbol - 1] + usize::from(self.share[symbol - 1]);
        }
        let mut slots = [0; 256];
        for slot in 0..=255 {
            let (symbol, place) = self.at(slot);
            slots[first[usize::from(symbol)] + usize::from(place)] = slot;
        }
        slots
    }
}

/// The tables of a class of components.
#[derive(Clone)]
pub(super) struct ClassTables {
    /// Of the tokens at place `k` of blocks of type `t`: number `64 * t + k`.
    pub tokens: Vec<Distribution>,
    /// Of types.
    pub types: [Distribution; TYPE_TABLES],
}

/// The distributions that packed images are read with: a decoder needs those that the writer had.
///
/// A data set's shards hold tables that were adapted to its images ([`PackSample`](super::PackSample)); images of all kinds
/// can be written with the ones that are [built in](PackTables::built_in).
#[derive(Clone)]
pub struct PackTables {
    pub(super) classes: [ClassTables; CLASSES],
    id: u32,
}

impl fmt::Debug for PackTables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PackTables({:08x})", self.id)
    }
}

impl PartialEq for PackTables {
    fn eq(&self, other: &PackTables) -> bool {
        self.bytes() == other.bytes()
    }
}

impl PackTables {
    /// Tables made of photographs of mixed sizes and qualities.
    pub fn built_in() -> &'static PackTables {
        static BUILT_IN: OnceLock<PackTables> = OnceLock::new();
        BUILT_IN.get_or_init(|| {
            PackTables::parse(include_bytes!("built-in.tables")).expect("a test reads the built-in tables")
        })
    }

    pub(super) fn new(classes: [ClassTables; CLASSES]) -> PackTables {
        let mut tables = PackTables { classes, id: 0 };
        tables.id = crc32fast::hash(&tables.bytes());
        tables
    }

    /// Reads what [`PackTables::bytes`] gave.
    ///
    /// # Errors
    /// [`Error::Tables`] where the bytes are no tables, of a later version, or damaged.
    pub fn parse(bytes: &[u8]) -> Result<PackTables, Error> {
        let wrong = |what: &str| Err(Error::Tables(what.into()));
        match bytes.first_chunk::<8>() {
            Some(&MAGIC) => {}
            Some([b'S', b'K', b'T', b'A', b'B', b'L', b'E', _]) => {
                return wrong("are of a later version; read the image with a newer program");
            }
            _ => return wrong("do not begin as tables do"),
        }
        if bytes.len() != TABLES_BYTES {
            return wrong("are cut off, or too long");
        }
        let mut all = bytes[MAGIC.len()..].as_chunks::<SYMBOLS>().0.iter();
        let mut next = || Distribution(*all.next().expect("as many as their length says"));
        let mut class = || ClassTables {
            tokens: (0..TOKEN_TABLES).map(|_| next()).collect(),
            types: std::array::from_fn(|_| next()),
        };
        let classes = [class(), class()];
        let tokens = classes.iter().flat_map(|class| &class.tokens);
        let types = classes.iter().flat_map(|class| &class.types);
        let broken = tokens.clone().any(|d| d.wrong(|symbol| symbol == ESCAPE))
            || types.clone().any(|d| d.wrong(|_| true));
        match broken {
            true => wrong("hold shares that do not add up"),
            false => Ok(PackTables {
                classes,
                id: crc32fast::hash(bytes),
            }),
        }
    }

    /// What [`PackTables::parse`] reads: 33,032 bytes.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        for class in &self.classes {
            for distribution in class.tokens.iter().chain(&class.types) {
                bytes.extend(distribution.0);
            }
        }
        bytes
    }

    /// The CRC-32 of [`PackTables::bytes`], which every image that was written with them repeats.
    pub fn id(&self) -> u32 {
        self.id
    }
}

/// The tables of a class's tokens laid out for reading, by place in coding order and type: those that are used one after the
/// other lie side by side.
pub(super) type TokenTables = [[Table; SYMBOLS]; 64];

/// [`PackTables`] laid out for reading.
pub struct SymbolTables {
    pub(super) id: u32,
    pub(super) tokens: [Box<TokenTables>; CLASSES],
    pub(super) types: [[Table; TYPE_TABLES]; CLASSES],
}

impl fmt::Debug for SymbolTables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SymbolTables({:08x})", self.id)
    }
}

impl SymbolTables {
    /// The tables of tokens of class 0, then of class 1: of each the 16 types for coefficient 0, then for coefficient 1, up to 63.
    pub fn tokens(&self) -> impl Iterator<Item = &Table> {
        self.tokens.iter().flat_map(|tokens| tokens.as_flattened())
    }

    /// The tables of types: the eight of class 0, then those of class 1.
    pub fn types(&self) -> impl Iterator<Item = &Table> {
        self.types.iter().flatten()
    }

    pub(super) fn new(tables: &PackTables) -> SymbolTables {
        let classes = || tables.classes.each_ref();
        let of_tokens = |class: &ClassTables| {
            let of_kinds = |k: usize| std::array::from_fn(|kind| class.tokens[64 * kind + k].table());
            let all: Box<[_]> = (0..64).map(of_kinds).collect();
            all.try_into().unwrap_or_else(|_| unreachable!("64 of them"))
        };
        SymbolTables {
            id: tables.id,
            tokens: classes().map(of_tokens),
            types: classes().map(|class| class.types.map(|types| types.table())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::tests::numbers;

    #[test]
    fn every_slot_belongs_to_a_symbol_as_often_as_its_share_says() {
        let mut number = numbers(7);
        for round in 0..2000 {
            let mut shares = [0u8; SYMBOLS];
            let few = number() as usize % SYMBOLS + 1;
            for _ in 0..256 {
                let symbol = number() as usize % few * (round % 2) + number() as usize % (few + 1) % SYMBOLS;
                let symbol = symbol % SYMBOLS;
                let at = if shares[symbol] == 255 {
                    (symbol + 1) % SYMBOLS
                } else {
                    symbol
                };
                shares[at] += 1;
            }
            let table = Distribution(shares).table();
            let mut seen = vec![vec![]; SYMBOLS];
            for slot in 0..=255 {
                let (symbol, place) = table.at(slot);
                seen[usize::from(symbol)].push(place);
            }
            for (symbol, mut places) in seen.into_iter().enumerate() {
                places.sort_unstable();
                assert!(places.iter().copied().eq(0..shares[symbol]), "{shares:?}");
            }
            for (at, slot) in table.slots().into_iter().enumerate() {
                let (symbol, place) = table.at(slot);
                let before: usize = shares[..usize::from(symbol)]
                    .iter()
                    .map(|&s| usize::from(s))
                    .sum();
                assert_eq!(before + usize::from(place), at);
            }
        }
    }

    #[test]
    fn tables_come_back_and_damaged_ones_do_not() {
        let tables = PackTables::built_in();
        let bytes = tables.bytes();
        assert_eq!(bytes.len(), TABLES_BYTES);
        let again = PackTables::parse(&bytes).expect("what was written");
        assert!(again == *tables && again.id() == tables.id());
        let refused = |bytes: &[u8]| PackTables::parse(bytes).expect_err("damaged tables").to_string();
        assert!(refused(&bytes[..100]).contains("cut off"));
        assert!(refused(b"GIF89a..").contains("do not begin"));
        let mut changed = bytes.clone();
        changed[7] = b'2';
        assert!(refused(&changed).contains("later version"));
        let mut changed = bytes;
        changed[1000] ^= 1;
        assert!(refused(&changed).contains("add up"));
    }
}
