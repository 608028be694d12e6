//! What of a record is read and written: SageMaker's filters, in JSONPath (RFC 9535).

use std::str::FromStr;

use serde_json::{Map, Value};
use serde_json_path::{JsonPath, PathElement};

/// A filter of JSON.
///
/// A path to one place, such as `$.SageMakerOutput.predictions[0].class`, gives the value there. Any other path, such
/// as `$['id','SageMakerOutput']` or `$.predictions[0:3]`, gives the value with only the selected places: objects keep
/// their keys, arrays close their gaps.
///
/// ```
/// use serde_json::json;
/// use stokehold_transform::Filter;
/// let record = json!({"id": 7, "image": "a.jpg", "tags": ["x", "y", "z"]});
/// let of = |filter: &str| filter.parse::<Filter>().unwrap().of(&record);
/// assert_eq!(of("$.image"), Some(json!("a.jpg")));
/// assert_eq!(of("$['id','image']"), Some(json!({"id": 7, "image": "a.jpg"})));
/// assert_eq!(of("$.tags[0,2]"), Some(json!({"tags": ["x", "z"]})));
/// assert_eq!(of("$.label"), None);
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Filter {
    path: JsonPath,
    text: String,
    /// Whether it selects one place at most.
    is_singular: bool,
}

impl FromStr for Filter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let path = JsonPath::parse(text)
            .map_err(|error| format!("not a JSONPath, as $.image or $['id','SageMakerOutput']: {error}"))?;
        Ok(Self {
            path,
            text: text.to_owned(),
            is_singular: is_singular(text),
        })
    }
}

impl std::fmt::Display for Filter {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(&self.text)
    }
}

impl Filter {
    /// What the filter leaves of a value; `None` if it selects nothing.
    pub fn of(&self, value: &Value) -> Option<Value> {
        let found = self.path.query_located(value);
        if self.is_singular {
            return found.first().map(|node| node.node().clone());
        }
        let mut selected: Option<Tree> = None;
        for node in found.iter() {
            selected
                .get_or_insert_default()
                .add(&node.location().iter().collect::<Vec<_>>());
        }
        selected.map(|tree| tree.of(value))
    }
}

/// Whether a JSONPath has only names and indices (RFC 9535, 2.3.5.1).
fn is_singular(text: &str) -> bool {
    let mut quote = None;
    let mut before = ' ';
    for c in text.chars() {
        match quote {
            Some(end) if c == end && before != '\\' => quote = None,
            Some(_) => {}
            None if c == '\'' || c == '"' => quote = Some(c),
            None if "*,:?".contains(c) || (c == '.' && before == '.') => return false,
            None => {}
        }
        // An escaped backslash escapes nothing.
        before = if before == '\\' && c == '\\' { ' ' } else { c };
    }
    true
}

/// Selected places: a place without children is selected with all below it.
#[derive(Default)]
struct Tree {
    whole: bool,
    names: Vec<(String, Tree)>,
    items: std::collections::BTreeMap<usize, Tree>,
}

impl Tree {
    fn add(&mut self, path: &[&PathElement<'_>]) {
        let Some((first, rest)) = path.split_first() else {
            self.whole = true;
            return;
        };
        match first {
            PathElement::Name(name) => {
                let at = self.names.iter().position(|(known, _)| known == name);
                let at = at.unwrap_or_else(|| {
                    self.names.push(((*name).to_owned(), Self::default()));
                    self.names.len() - 1
                });
                self.names[at].1.add(rest);
            }
            PathElement::Index(index) => self.items.entry(*index).or_default().add(rest),
        }
    }

    fn of(&self, value: &Value) -> Value {
        if self.whole {
            return value.clone();
        }
        match value {
            Value::Array(items) => self.items.iter().map(|(&at, tree)| tree.of(&items[at])).collect(),
            value => {
                let of = |(name, tree): &(String, Self)| (name.clone(), tree.of(&value[name]));
                Value::Object(self.names.iter().map(of).collect::<Map<_, _>>())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_selected_keeps_its_place() {
        let value = json!({"a": {"b": [1, {"c": 2, "d": 3}], "e": null}, "f": 4});
        for (filter, left) in [
            ("$", Some(value.clone())),
            ("$.a.b[1].c", Some(json!(2))),
            ("$.a.e", Some(json!(null))),
            (
                "$.a.b[-1]['d','c']",
                Some(json!({"a": {"b": [{"d": 3, "c": 2}]}})),
            ),
            ("$.a['e']", Some(json!(null))),
            ("$['f','a']", Some(value.clone())),
            ("$.a.b[5:]", None),
            ("$.x", None),
            ("$['a']['e,*']", None),
            ("$..c", Some(json!({"a": {"b": [{"c": 2}]}}))),
        ] {
            assert_eq!(filter.parse::<Filter>().unwrap().of(&value), left, "{filter}");
        }
        assert!("image".parse::<Filter>().is_err());
    }
}
