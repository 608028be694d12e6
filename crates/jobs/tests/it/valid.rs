//! A small validator of JSON schemas.

use serde_json::Value;

/// Whether a value is what a schema wants. Knows the words that our schemas are made of, and no others.
pub(crate) fn is_valid(value: &Value, schema: &Value, root: &Value) -> bool {
    let Some(rules) = schema.as_object() else {
        return schema == &Value::Bool(true);
    };
    let valid = |schema: &Value| is_valid(value, schema, root);
    rules.iter().all(|(word, rule)| match word.as_str() {
        "$schema" | "$defs" | "title" | "description" | "default" | "format" => true,
        "$ref" => {
            let name = rule.as_str().unwrap().strip_prefix("#/$defs/").unwrap();
            valid(&root["$defs"][name])
        }
        "type" => match rule {
            Value::Array(types) => types.iter().any(|rule| is_of_type(value, rule)),
            rule => is_of_type(value, rule),
        },
        "enum" => rule.as_array().unwrap().contains(value),
        "const" => rule == value,
        "anyOf" => rule.as_array().unwrap().iter().any(valid),
        "oneOf" => rule.as_array().unwrap().iter().filter(|rule| valid(rule)).count() == 1,
        "minimum" => value.as_f64().is_none_or(|value| value >= rule.as_f64().unwrap()),
        "maximum" => value.as_f64().is_none_or(|value| value <= rule.as_f64().unwrap()),
        "exclusiveMinimum" => value.as_f64().is_none_or(|value| value > rule.as_f64().unwrap()),
        "exclusiveMaximum" => value.as_f64().is_none_or(|value| value < rule.as_f64().unwrap()),
        "minLength" => value
            .as_str()
            .is_none_or(|text| text.chars().count() as u64 >= rule.as_u64().unwrap()),
        "minItems" => value
            .as_array()
            .is_none_or(|items| items.len() as u64 >= rule.as_u64().unwrap()),
        "maxItems" => value
            .as_array()
            .is_none_or(|items| items.len() as u64 <= rule.as_u64().unwrap()),
        "items" => value
            .as_array()
            .is_none_or(|items| items.iter().all(|item| is_valid(item, rule, root))),
        "required" => {
            let named = |map: &serde_json::Map<_, _>| {
                rule.as_array()
                    .unwrap()
                    .iter()
                    .all(|name| map.contains_key(name.as_str().unwrap()))
            };
            value.as_object().is_none_or(named)
        }
        "properties" => value.as_object().is_none_or(|map| {
            map.iter()
                .all(|(name, value)| rule.get(name).is_none_or(|rule| is_valid(value, rule, root)))
        }),
        "additionalProperties" => value.as_object().is_none_or(|map| {
            let known = schema.get("properties");
            let mut more = map
                .iter()
                .filter(|(name, _)| known.is_none_or(|known| known.get(name).is_none()));
            more.all(|(_, value)| is_valid(value, rule, root))
        }),
        other => panic!("the schema has a word that is not known here: {other}"),
    })
}

fn is_of_type(value: &Value, rule: &Value) -> bool {
    match rule.as_str().unwrap() {
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "object" => value.is_object(),
        "array" => value.is_array(),
        "null" => value.is_null(),
        other => panic!("a type that is not known here: {other}"),
    }
}
