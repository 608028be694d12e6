//! Augmented manifests: one sample per line, of which the script gets the attributes that it asked for.
//!
//! ```text
//! {"source-ref": "s3://bucket/1.jpg", "label": 3}        attributes = ["source-ref", "label"]
//!        │ fetched                       │ as it stands
//!        ▼                               ▼
//!   record of the object            record "3"           and so on, line by line
//! ```
//!
//! With a wrapper, each value is a record of its own; without one, values follow each other. An attribute
//! whose name ends in `-ref` names an object, in any bucket of the manifest's kind. All others are values: a
//! string as it is, everything else as compact JSON.
//! Source: SageMaker developer guide, "Augmented Manifest File Format for Pipe Mode Training".

use std::collections::VecDeque;

use serde_json::{Map, Value};
use stokehold_base::uri;
use stokehold_objects::{Bucket, Cause, Fetch, ObjectError};

use crate::data::open::{check_scheme, open, wrong};
use crate::{Channel, Job, Sharing};

/// The samples of a manifest.
pub(crate) struct Samples {
    buckets: Vec<Bucket>,
    /// The values of each sample, in the order of the attributes.
    pub samples: Vec<Vec<Part>>,
}

/// A value of a sample.
pub(crate) enum Part {
    Text(String),
    /// The number of a bucket, and a key in it.
    Object(usize, String),
}

/// The most objects in flight.
const AHEAD: usize = 32;

impl Samples {
    /// The samples that the instance `rank` gets of a channel: with `ShardedByS3Key` every n-th line.
    pub fn of(job: &Job, channel: &Channel, rank: usize) -> Result<Self, ObjectError> {
        let uri = channel.uri.as_str();
        let (parent, name) = uri.rsplit_once('/').unwrap_or((".", uri));
        let mut text = Vec::new();
        open(job, parent)?.fetch(name, &mut text)?;
        let bad = |line: usize, reason: String| {
            wrong(
                uri,
                Cause::BadUri,
                format!("as an augmented manifest, line {}: {reason}", line + 1),
            )
        };
        let mut places: Vec<String> = Vec::new();
        let mut samples = Vec::new();
        let lines = text.split(|byte| *byte == b'\n').enumerate();
        let lines = lines.filter(|(_, line)| !line.trim_ascii().is_empty());
        for (number, (line, bytes)) in lines.enumerate() {
            let parsed = serde_json::from_slice::<Map<String, Value>>(bytes);
            let mut values = parsed.map_err(|error| bad(line, error.to_string()))?;
            let mut sample = Vec::new();
            for name in &channel.attributes {
                let value = values
                    .remove(name)
                    .ok_or_else(|| bad(line, format!("there is no {name}")))?;
                sample.push(match (value, name.ends_with("-ref")) {
                    (Value::String(named), true) => {
                        let (place, key) = taken_apart(&named).map_err(|reason| bad(line, reason))?;
                        check_scheme(uri, &named).map_err(|reason| bad(line, reason))?;
                        let known = places.iter().position(|known| *known == place);
                        let number = known.unwrap_or_else(|| {
                            places.push(place);
                            places.len() - 1
                        });
                        Part::Object(number, key)
                    }
                    (value, true) => {
                        return Err(bad(line, format!("{name} is {value}, and no object's URI")));
                    }
                    (Value::String(text), false) => Part::Text(text),
                    (value, false) => Part::Text(value.to_string()),
                });
            }
            if channel.distribution == Sharing::FullyReplicated || number % job.instances == rank {
                samples.push(sample);
            }
        }
        if samples.is_empty() {
            return Err(wrong(uri, Cause::NotFound, "there are no samples in it"));
        }
        let buckets = places.iter().map(|place| open(job, place));
        Ok(Self {
            buckets: buckets.collect::<Result<_, _>>()?,
            samples,
        })
    }

    /// The values of the given samples, in their order, with objects fetched ahead.
    pub fn values<'a>(&'a self, order: &[&'a Vec<Part>]) -> Values<'a> {
        Values {
            samples: self,
            wanted: order.iter().flat_map(|sample| sample.iter()).collect(),
            coming: VecDeque::new(),
        }
    }
}

/// Splits a URI into its bucket's place and the object's key.
fn taken_apart(uri: &str) -> Result<(String, String), String> {
    let no_object = || format!("{uri:?} is no object's URI; s3://bucket/key is one");
    if !uri::is_remote(uri) {
        return Err(no_object());
    }
    let (scheme, rest) = uri.split_once("://").ok_or_else(no_object)?;
    let (bucket, key) = rest.split_once('/').ok_or_else(no_object)?;
    match key.is_empty() {
        true => Err(no_object()),
        false => Ok((format!("{scheme}://{bucket}"), key.to_owned())),
    }
}

/// Consecutive values.
pub(crate) struct Values<'a> {
    samples: &'a Samples,
    wanted: VecDeque<&'a Part>,
    coming: VecDeque<Coming<'a>>,
}

enum Coming<'a> {
    Text(&'a str),
    Object(&'a str, Fetch),
}

impl<'a> Values<'a> {
    /// The next value: its name in messages, and its bytes.
    pub fn next(&mut self) -> Result<Option<(&'a str, Vec<u8>)>, ObjectError> {
        while self.coming.len() < AHEAD {
            let Some(part) = self.wanted.pop_front() else {
                break;
            };
            self.coming.push_back(match part {
                Part::Text(text) => Coming::Text(text),
                Part::Object(bucket, key) => {
                    Coming::Object(key, self.samples.buckets[*bucket].begin(key, None)?)
                }
            });
        }
        Ok(match self.coming.pop_front() {
            Some(Coming::Text(text)) => Some(("a value", text.as_bytes().to_vec())),
            Some(Coming::Object(key, fetch)) => Some((key, fetch.wait()?)),
            None => None,
        })
    }
}
