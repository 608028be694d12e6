//! Schemas as tables of Markdown.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use serde_json::{Map, Value};

/// Who writes the file.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The user: keys have defaults, and values have ranges.
    User,
    /// The program: every key is there, and may be null.
    Program,
}

/// The objects of a schema as tables.
pub struct Tables<'a> {
    pub root: &'a Value,
    pub side: Side,
    /// The heading of each object of `$defs` that has a section of its own.
    pub headings: BTreeMap<&'a str, String>,
    /// The enums of `$defs` whose words have a table already.
    pub shown: RefCell<BTreeSet<String>>,
}

impl Tables<'_> {
    /// The schema of a name of `$defs`.
    pub fn definition(&self, name: &str) -> &Value {
        self.root["$defs"]
            .get(name)
            .unwrap_or_else(|| panic!("no {name}"))
    }

    /// A section with the table of a name of `$defs` that has a heading.
    pub fn section(&self, name: &str, into: &mut String) {
        let schema = self.definition(name);
        write!(
            into,
            "\n### {}\n\n{}\n",
            self.headings[name],
            filled(&self.sentence(schema))
        )
        .unwrap();
        self.table(schema, into);
    }

    /// The table of an object: a row for each key, required keys first. The keys of which it has one group or another come last.
    pub fn table(&self, schema: &Value, into: &mut String) {
        let required = |key: &str| {
            schema["required"]
                .as_array()
                .is_some_and(|keys| keys.iter().any(|known| known == key))
        };
        let groups = schema["anyOf"].as_array().into_iter().flatten();
        let objects = std::iter::once(schema).chain(groups);
        let mut keys: Vec<(&String, &Value)> = objects
            .flat_map(|object| object["properties"].as_object().unwrap())
            .collect();
        let by_user = self.side == Side::User;
        keys.sort_by_key(|(key, _)| by_user && !required(key));
        *into += match self.side {
            Side::User => "\n| key | value | default | what it says |\n|---|---|---|---|\n",
            Side::Program => "\n| key | value | what it says |\n|---|---|---|\n",
        };
        for (key, rule) in &keys {
            let text = self.sentence(rule);
            assert!(!text.is_empty(), "{key} has no description");
            let value = self.value(rule);
            match self.side {
                Side::Program => writeln!(into, "| `{key}` | {value} | {text} |"),
                Side::User => {
                    let (text, said) = apart(&text);
                    let default = match (required(key), written(rule.get("default")), said) {
                        (true, None, None) => "required".to_owned(),
                        (false, Some(default), None) => default,
                        (false, None, Some(said)) => said,
                        (false, None, None)
                            if text.contains("requires it") || text.contains("require it") =>
                        {
                            "required there".to_owned()
                        }
                        other => panic!("{key}: one default, and not {other:?}"),
                    };
                    writeln!(into, "| `{key}` | {value} | {default} | {text} |")
                }
            }
            .unwrap();
        }
        for (key, rule) in &keys {
            self.values(key, rule, into);
        }
    }

    /// The values of a key that is one of several words, each with what it says.
    fn values(&self, key: &str, rule: &Value, into: &mut String) {
        let Some((name, words)) = self.words(rule) else {
            return;
        };
        if !self.shown.borrow_mut().insert(name.to_owned()) {
            return;
        }
        write!(into, "\n| `{key}` | what it says |\n|---|---|\n").unwrap();
        for word in words {
            let name = word["const"].as_str().unwrap();
            let text = self.sentence(word);
            assert!(!text.is_empty(), "{key}: {name} has no description");
            writeln!(into, "| `{name}` | {text} |").unwrap();
        }
    }

    /// The enum that a value is of: its name, and its words.
    fn words<'b>(&'b self, rule: &'b Value) -> Option<(&'b str, &'b Vec<Value>)> {
        if let Some(parts) = rule["anyOf"].as_array() {
            return parts.iter().find_map(|part| self.words(part));
        }
        let name = reference(rule)?;
        let words = self.definition(name)["oneOf"].as_array()?;
        let are_words = words.iter().all(|word| word.get("const").is_some());
        are_words.then_some((name, words))
    }

    /// The variants of an object with a key `tag`: its value, the other keys, what it says.
    pub fn variants(&self, tag: &str, schema: &Value, into: &mut String) {
        write!(into, "\n| `{tag}` | other keys | what it says |\n|---|---|---|\n").unwrap();
        for variant in schema["oneOf"].as_array().unwrap() {
            let keys = variant["properties"].as_object().unwrap();
            let others: Vec<String> = keys
                .iter()
                .filter(|(key, _)| *key != tag)
                .map(|(key, rule)| format!("`{key}`: {}", self.value(rule)))
                .collect();
            let name = keys[tag]["const"].as_str().unwrap();
            writeln!(
                into,
                "| `{name}` | {} | {} |",
                others.join(", "),
                self.sentence(variant)
            )
            .unwrap();
        }
    }

    /// What a description says, on one line.
    pub fn sentence(&self, rule: &Value) -> String {
        let text = rule["description"].as_str().unwrap_or_default();
        assert!(
            !text.contains("](") && !text.contains("[`"),
            "a link of Rust means nothing here: {text}"
        );
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        match self.side {
            Side::User => {
                assert!(!text.contains("`None`"), "a file has no None: {text}");
                text
            }
            Side::Program => text.replace("`None`", "`null`"),
        }
        .replace('|', "\\|")
    }

    /// What a value may be.
    fn value(&self, rule: &Value) -> String {
        let Some(map) = rule.as_object() else {
            return "any value".to_owned();
        };
        if let Some(name) = reference(rule) {
            if let Some(heading) = self.headings.get(name) {
                return format!("[table](#{})", slug(heading));
            }
            return self.value(self.definition(name));
        }
        if let Some(name) = map.get("const") {
            return format!("`{}`", name.as_str().unwrap());
        }
        if let Some(parts) = map.get("anyOf").or(map.get("oneOf")) {
            let parts = parts.as_array().unwrap();
            let is_null = |part: &&Value| part["type"] == "null";
            let several: Vec<String> = parts
                .iter()
                .filter(|part| !(self.side == Side::User && is_null(part)))
                .map(|part| self.value(part))
                .collect();
            let are_words = several.iter().all(|part| part.starts_with('`'));
            return several.join(if are_words { ", " } else { " or " });
        }
        let Some(kind) = map.get("type") else {
            let known = ["description", "default"];
            assert!(map.keys().all(|word| known.contains(&word.as_str())), "{rule}");
            return "any value".to_owned();
        };
        let kinds: Vec<&str> = match kind {
            Value::Array(kinds) => kinds.iter().map(|kind| kind.as_str().unwrap()).collect(),
            kind => vec![kind.as_str().unwrap()],
        };
        kinds
            .into_iter()
            .filter(|kind| !(self.side == Side::User && *kind == "null"))
            .map(|kind| self.of_type(kind, map))
            .collect::<Vec<_>>()
            .join(" or ")
    }

    fn of_type(&self, kind: &str, rule: &Map<String, Value>) -> String {
        let range = match self.side {
            Side::User => range(rule),
            Side::Program => None,
        };
        let name = match kind {
            "array" => {
                let items = rule
                    .get("items")
                    .map_or("any value".to_owned(), |items| self.value(items));
                match items.as_str() {
                    "any value" => "list of values".to_owned(),
                    "text" => "list of texts".to_owned(),
                    other => format!("list: {other}"),
                }
            }
            "object" => {
                let each = rule
                    .get("additionalProperties")
                    .or_else(|| rule["patternProperties"].as_object()?.values().next());
                format!(
                    "table by name: {}",
                    each.map_or("any value".to_owned(), |each| self.value(each))
                )
            }
            "string" => "text".to_owned(),
            "boolean" => "`true` or `false`".to_owned(),
            "null" => "`null`".to_owned(),
            "integer" | "number" => kind.to_owned(),
            other => panic!("how is a {other} written?"),
        };
        match range {
            Some(range) => format!("{name}, {range}"),
            None => name,
        }
    }
}

/// The words that bound a value from below and from above.
pub const LOWER: [&str; 4] = ["minimum", "exclusiveMinimum", "minItems", "minLength"];
pub const UPPER: [&str; 3] = ["maximum", "exclusiveMaximum", "maxItems"];

fn range(rule: &Map<String, Value>) -> Option<String> {
    let bound = |words: &[&'static str]| words.iter().find_map(|word| Some((*word, rule.get(*word)?)));
    Some(match (bound(&LOWER), bound(&UPPER)) {
        (None, None) => return None,
        (Some(("exclusiveMinimum", low)), None) => format!("above {low}"),
        (Some(("minLength", _)), None) => "not empty".to_owned(),
        (Some(("minItems", low)), None) => format!("at least {low} of them"),
        (Some((_, low)), None) => format!("at least {low}"),
        (Some(("minItems", low)), Some((_, high))) => format!("{low} to {high} of them"),
        (Some((_, low)), Some(("exclusiveMaximum", high))) => format!("at least {low}, below {high}"),
        (Some((_, low)), Some((_, high))) => format!("{low} to {high}"),
        (None, Some(high)) => panic!("how is the range up to {high:?} written?"),
    })
}

/// A text without its sentence that begins with `Default: `, and what that sentence says.
fn apart(text: &str) -> (String, Option<String>) {
    match text.split_once(" Default: ") {
        None => (text.to_owned(), None),
        Some((before, after)) => {
            // A full stop within a name has no space after it.
            let (said, more) = after
                .split_once(". ")
                .unwrap_or((after.trim_end_matches('.'), ""));
            (
                format!("{before} {more}").trim_end().to_owned(),
                Some(said.to_owned()),
            )
        }
    }
}

/// A default as a file has it; `None` for what a file without the key cannot say.
fn written(default: Option<&Value>) -> Option<String> {
    Some(match default? {
        Value::Null => return None,
        Value::String(text) => format!("`{text}`"),
        Value::Array(list) if list.is_empty() => "none".to_owned(),
        Value::Object(map) if map.is_empty() => "none".to_owned(),
        Value::Object(_) => "the defaults of its keys".to_owned(),
        other => format!("`{other}`"),
    })
}

/// A text in lines of at most 110 columns.
fn filled(text: &str) -> String {
    let mut lines = String::new();
    let mut column = 0;
    for word in text.split(' ') {
        let width = word.chars().count();
        if column > 0 {
            let fits = column + 1 + width <= 110;
            lines.push(if fits { ' ' } else { '\n' });
            column = if fits { column + 1 } else { 0 };
        }
        lines += word;
        column += width;
    }
    lines
}

/// The name of `$defs` that a schema refers to.
pub fn reference(rule: &Value) -> Option<&str> {
    rule["$ref"].as_str()?.strip_prefix("#/$defs/")
}

/// The anchor that a heading gets.
fn slug(heading: &str) -> String {
    heading
        .to_lowercase()
        .chars()
        .filter_map(|c| match c {
            ' ' => Some('-'),
            c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c),
            _ => None,
        })
        .collect()
}
