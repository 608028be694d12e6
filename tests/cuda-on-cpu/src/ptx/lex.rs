//! Words, numbers and signs of PTX.

use super::PtxError;

/// A piece of the text.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind<'a> {
    /// An identifier, an opcode with its modifiers, or a directive with its dot.
    Word(&'a str),
    /// An integer's bits, without its sign.
    Integer(u64),
    /// `0f3F800000`.
    F32(u32),
    /// `0d3FF0000000000000`.
    F64(u64),
    /// `8.7`.
    Version(u32, u32),
    /// Text between quotes.
    Text,
    /// Any other character.
    Sign(u8),
}

/// A piece and where it is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Token<'a> {
    /// What it is.
    pub kind: Kind<'a>,
    /// Its line, from 1.
    pub line: u32,
}

/// The pieces of a text; comments are none.
pub fn tokens(text: &str) -> Result<Vec<Token<'_>>, PtxError> {
    let bytes = text.as_bytes();
    let (mut at, mut line) = (0, 1);
    let mut tokens = Vec::new();
    while let Some(&byte) = bytes.get(at) {
        let rest = &text[at..];
        let error = |what: String| PtxError { line, what };
        if byte == b'\n' {
            line += 1;
            at += 1;
        } else if byte.is_ascii_whitespace() {
            at += 1;
        } else if rest.starts_with("//") {
            at += rest.find('\n').unwrap_or(rest.len());
        } else if rest.starts_with("/*") {
            let end = rest
                .find("*/")
                .ok_or_else(|| error("a comment without an end".into()))?;
            line += rest[..end].matches('\n').count() as u32;
            at += end + 2;
        } else if byte == b'"' {
            let end = rest[1..]
                .find('"')
                .ok_or_else(|| error("a text without an end".into()))?;
            line += rest[1..=end].matches('\n').count() as u32;
            at += end + 2;
            tokens.push(Token {
                kind: Kind::Text,
                line,
            });
        } else if byte.is_ascii_digit() {
            let len = rest
                .find(|c: char| !c.is_ascii_alphanumeric() && c != '.')
                .unwrap_or(rest.len());
            let kind =
                number(&rest[..len]).ok_or_else(|| error(format!("`{}` is no number", &rest[..len])))?;
            tokens.push(Token { kind, line });
            at += len;
        } else if starts_word(byte) {
            let len = word(rest);
            let kind = Kind::Word(&rest[..len]);
            tokens.push(Token { kind, line });
            at += len;
        } else if byte.is_ascii_graphic() {
            tokens.push(Token {
                kind: Kind::Sign(byte),
                line,
            });
            at += 1;
        } else {
            let character = rest.chars().next().unwrap_or_default();
            return Err(error(format!("the character {character:?}")));
        }
    }
    Ok(tokens)
}

fn starts_word(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || matches!(byte, b'_' | b'$' | b'%' | b'.')
}

/// The length of the word that a text begins with. A doubled colon is within one: `L1::no_allocate`.
fn word(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut at = 1;
    while let Some(&byte) = bytes.get(at) {
        if starts_word(byte) || byte.is_ascii_digit() {
            at += 1;
        } else if text[at..].starts_with("::") {
            at += 2;
        } else {
            break;
        }
    }
    at
}

fn number(text: &str) -> Option<Kind<'_>> {
    let hex = |digits: &str, count: usize| {
        (digits.len() == count)
            .then(|| u64::from_str_radix(digits, 16).ok())
            .flatten()
    };
    if let Some(digits) = text.strip_prefix("0f").or(text.strip_prefix("0F")) {
        return Some(Kind::F32(hex(digits, 8)? as u32));
    }
    if let Some(digits) = text.strip_prefix("0d").or(text.strip_prefix("0D")) {
        return Some(Kind::F64(hex(digits, 16)?));
    }
    if let Some((major, minor)) = text.split_once('.') {
        return Some(Kind::Version(major.parse().ok()?, minor.parse().ok()?));
    }
    let text = text.strip_suffix('U').unwrap_or(text);
    let integer = match text.strip_prefix("0x").or(text.strip_prefix("0X")) {
        Some(digits) => u64::from_str_radix(digits, 16).ok()?,
        // A leading zero would make it octal, which NVRTC does not write.
        None if text.len() > 1 && text.starts_with('0') => return None,
        None => text.parse().ok()?,
    };
    Some(Kind::Integer(integer))
}
