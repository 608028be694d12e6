//! The transform: parts are loaded, computed and written.

use std::collections::VecDeque;
use std::io::BufRead;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::{Map, Value, json};
use stokehold_base::share::Share;
use stokehold_loader::{BadImage, BatchStream, Loader, LoaderError};
use stokehold_pipeline::is_image;
use stokehold_storage::shard::Baked;
use stokehold_storage::{SampleBytes, Source, StorageError};

use crate::input::Output;
use crate::model::{Model, Prediction};
use crate::output::Outputs;
use crate::work::{Claim, Claimed, Counts, Work, part_range};
use crate::{Inputs, TransformError};

/// The batches of a part. A worker that dies loses two parts at most, and a part has some work for each file that it
/// takes.
pub const PART_BATCHES: usize = 16;

/// How often a worker without a part looks for one.
const POLL: Duration = Duration::from_millis(200);

/// The version of what a plan means.
const FORMAT_VERSION: u32 = 1;

/// How to transform.
#[derive(Debug, Clone)]
pub struct Options {
    /// The place of the outputs: a folder, or the URI of a prefix in a bucket.
    pub output: PathBuf,
    /// The work folder, which all workers see.
    pub work: PathBuf,
    /// One output for all records.
    pub assemble: bool,
    /// Put the prediction into the record, as `SageMakerOutput`.
    pub join: bool,
    /// The largest image, bytes; a larger one is an error record. `None` for the loader's limit.
    pub max_payload: Option<u64>,
    /// Images per batch, at least 1.
    pub batch_size: usize,
    /// Which parts this worker computes; `None` for any that no one has.
    pub share: Option<Share>,
}

impl Options {
    /// What has to be equal for a transform to continue.
    fn describe(&self, inputs: &Inputs) -> [(String, Value); 7] {
        [
            ("format_version", json!(FORMAT_VERSION)),
            ("inputs", json!(format!("{:016x}", inputs.hash()))),
            ("records", json!(inputs.len())),
            ("output", json!(self.output.display().to_string())),
            ("assemble", json!(self.assemble)),
            ("join", json!(self.join)),
            ("max_payload", json!(self.max_payload)),
        ]
        .map(|(key, value)| (key.to_owned(), value))
    }
}

/// How a transform ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Done {
    /// Records that this worker computed.
    pub computed: u64,
    /// Those of them whose output is an error.
    pub errors: u64,
    /// The end.
    pub end: End,
}

/// What is left to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Nothing: all outputs are written. All records, and those of them whose output is an error.
    Complete {
        /// All records.
        records: u64,
        /// Those whose output is an error.
        errors: u64,
    },
    /// Parts of other workers, in number; the worker that computes the last one completes the transform.
    Others(usize),
    /// `stop` was set. Parts that are done stay.
    Stopped,
}

/// Transforms all records that no other worker does. `stop` ends it after the present batch; `progress` is called with
/// the number of records that are done, at the beginning by all workers, later by this one in addition.
///
/// # Errors
/// The work folder is of another transform; the model, a bucket or the file system fails. What is done stays, and the
/// same call continues with it.
pub fn transform(
    inputs: &Inputs,
    model: &mut dyn Model,
    options: &Options,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(u64),
) -> Result<Done, TransformError> {
    let size = PART_BATCHES * options.batch_size;
    let parts = inputs.len().div_ceil(size);
    let plan: Map<String, Value> = options
        .describe(inputs)
        .into_iter()
        .chain(model.describe()?)
        .collect();
    let run = Run {
        inputs,
        options,
        outputs: Outputs::open(&options.output)?,
        size,
    };
    run.check_place()?;
    let mut work = Work::open(&options.work, &plan, parts, options.share)?;
    progress(work.records_done(size, inputs.len()));
    let mut counts = Counts::default();
    let mut stopped = false;
    if work.complete()?.is_none() {
        stopped = !run.compute(&mut work, model, stop, &mut counts, progress)?;
    } else {
        run.check_outputs()?;
    }
    let end = match stopped {
        true => End::Stopped,
        false => run.complete(&mut work, stop)?,
    };
    Ok(Done {
        computed: counts.records,
        errors: counts.errors,
        end,
    })
}

struct Run<'a> {
    inputs: &'a Inputs,
    options: &'a Options,
    outputs: Outputs,
    /// The records of a part.
    size: usize,
}

/// A part in work.
struct OpenPart {
    claim: Claim,
    records: Range<usize>,
    /// Makes the batches; `None` when they are all made.
    batches: Option<Box<dyn BatchStream>>,
    /// It owns the loader's threads, and so lives as long as the batches.
    _loader: Loader,
    outcomes: Vec<Option<Prediction>>,
    /// Batches that the model has.
    in_model: usize,
}

impl OpenPart {
    fn note(&mut self, bad: Vec<BadImage>) {
        for image in bad {
            self.outcomes[image.sample as usize] = Some(Err(image.reason));
        }
    }
}

impl Run<'_> {
    /// Refuses to call a transform complete whose outputs are gone.
    fn check_outputs(&self) -> Result<(), TransformError> {
        let Some(Output { name: first, .. }) = self
            .all_outputs()
            .find(|output| self.outputs.is_missing(&output.name))
        else {
            return Ok(());
        };
        Err(TransformError::Input(format!(
            "{}: this transform is complete, and its output {} is gone, perhaps others; to compute all of it again, remove {} \
             and the outputs that are left",
            self.options.output.display(),
            first.display(),
            self.options.work.display()
        )))
    }

    /// Refuses to replace files that no transform with this work folder has made. Those of other shares may have been made by their
    /// workers, whose folders are elsewhere.
    fn check_place(&self) -> Result<(), TransformError> {
        if Work::is_begun(&self.options.work) {
            return Ok(());
        }
        let is_ours = |record: usize| {
            let share = self.options.share;
            share.is_none_or(|share| record / self.size % share.of == share.worker - 1)
        };
        let mut there = self
            .all_outputs()
            .filter(|output| is_ours(output.records.start) && self.outputs.has(&output.name));
        let Some(first) = there.next() else {
            return Ok(());
        };
        let others = there.count();
        // Another worker may have begun meanwhile, and these are its own.
        if Work::is_begun(&self.options.work) {
            return Ok(());
        }
        Err(TransformError::Input(format!(
            "{}: the output {} is there already{}, and this transform has not made it; give another place, or remove what is there",
            self.options.output.display(),
            first.name.display(),
            match others {
                0 => String::new(),
                others => format!(", and {others} more"),
            }
        )))
    }

    fn all_outputs(&self) -> impl Iterator<Item = Output> {
        let mut record = 0;
        std::iter::from_fn(move || {
            let next = (record < self.inputs.len()).then(|| self.output(record))?;
            record = next.records.end;
            Some(next)
        })
    }

    /// Computes parts until no part is left for this worker; `false` if it was stopped.
    fn compute(
        &self,
        work: &mut Work,
        model: &mut dyn Model,
        stop: &AtomicBool,
        counts: &mut Counts,
        progress: &mut dyn FnMut(u64),
    ) -> Result<bool, TransformError> {
        let mut parts: VecDeque<OpenPart> = VecDeque::new();
        // For each batch that the model has: its images in their part. Parts finish in order.
        let mut flight: VecDeque<Vec<u64>> = VecDeque::new();
        loop {
            if stop.load(Ordering::Relaxed) {
                return Ok(false);
            }
            let claimed = self.claim(work, model, &mut parts)?;
            let loading = parts.iter_mut().find(|part| part.batches.is_some());
            if let Some(part) = loading {
                if let Some(samples) = load(part, model)? {
                    flight.push_back(samples);
                }
            } else if flight.is_empty() && parts.is_empty() {
                match claimed {
                    Some(Claimed::Busy) => thread::sleep(POLL),
                    _ => return Ok(true),
                }
            }
            let loads = parts.iter().any(|part| part.batches.is_some());
            while flight.len() >= if loads { model.depth() } else { 1 } {
                let Some(predictions) = model.receive(stop)? else {
                    return Ok(false);
                };
                let samples = flight.pop_front().unwrap_or_default();
                progress(samples.len() as u64);
                take(&mut parts, &samples, predictions)?;
            }
            while parts
                .front()
                .is_some_and(|part| part.batches.is_none() && part.in_model == 0)
            {
                if let Some(part) = parts.pop_front() {
                    self.finish(work, part, counts)?;
                }
            }
        }
    }

    /// Begins to load a part before the one in work is loaded.
    fn claim(
        &self,
        work: &mut Work,
        model: &dyn Model,
        parts: &mut VecDeque<OpenPart>,
    ) -> Result<Option<Claimed>, TransformError> {
        const AHEAD: usize = 2;
        while parts.iter().filter(|part| part.batches.is_some()).count() < AHEAD {
            let claim = match work.claim()? {
                Claimed::Part(claim) => claim,
                none => return Ok(Some(none)),
            };
            let records = part_range(claim.part, self.size, self.inputs.len());
            let loader = model.loader(Arc::new(Slice {
                source: Arc::clone(self.inputs.source()) as _,
                records: records.clone(),
                max_payload: self.options.max_payload,
            }))?;
            parts.push_back(OpenPart {
                claim,
                outcomes: records.clone().map(|_| None).collect(),
                records,
                batches: Some(loader.epoch(0)),
                _loader: loader,
                in_model: 0,
            });
        }
        Ok(None)
    }

    /// Writes a part's outputs, and marks it as done.
    fn finish(&self, work: &mut Work, part: OpenPart, counts: &mut Counts) -> Result<(), TransformError> {
        let mut own = Counts::default();
        let mut shared = String::new();
        let mut output: Option<(Output, String)> = None;
        for (record, outcome) in std::iter::zip(part.records.clone(), part.outcomes) {
            let outcome = outcome.unwrap_or_else(|| Err("the loader left it out".to_owned()));
            let (line, failed) = self.line(record, outcome);
            own.add(Counts {
                records: 1,
                errors: u64::from(failed),
            });
            let mut open = match output.take() {
                Some(open) if open.0.records.contains(&record) => open,
                _ => (self.output(record), String::new()),
            };
            open.1 += &line;
            let is_last = record + 1 == open.0.records.end.min(part.records.end);
            match is_last {
                true if is_within(&open.0.records, &part.records) => {
                    self.outputs.write(&open.0.name, &open.1)?
                }
                true => shared += &open.1,
                false => output = Some(open),
            }
        }
        work.finish(part.claim, own, &shared)?;
        counts.add(own);
        Ok(())
    }

    fn output(&self, record: usize) -> Output {
        match self.options.assemble {
            true => self.inputs.assembled(),
            false => self.inputs.output(record),
        }
    }

    /// A record's line, and whether it is an error.
    fn line(&self, record: usize, prediction: Prediction) -> (String, bool) {
        let failed = prediction.is_err();
        let mut value = prediction.unwrap_or_else(|reason| json!({"error": reason}));
        if self.options.join {
            value = joined(self.inputs.record(record), value);
        }
        (format!("{value}\n"), failed)
    }

    /// Writes the outputs that parts share, if every part is done.
    fn complete(&self, work: &mut Work, stop: &AtomicBool) -> Result<End, TransformError> {
        loop {
            if let Some(Counts { records, errors }) = work.complete()? {
                return Ok(End::Complete { records, errors });
            }
            let missing = work.missing();
            if missing > 0 {
                return Ok(End::Others(missing));
            }
            if let Some(_lock) = work.lock_completion()? {
                if work.complete()?.is_none() {
                    let counts = self.assemble(work)?;
                    work.set_complete(counts)?;
                }
            } else if stop.load(Ordering::Relaxed) {
                return Ok(End::Stopped);
            } else {
                thread::sleep(POLL);
            }
        }
    }

    fn assemble(&self, work: &Work) -> Result<Counts, TransformError> {
        let mut all = Counts::default();
        let mut open = None;
        for part in 0..self.inputs.len().div_ceil(self.size) {
            let records = part_range(part, self.size, self.inputs.len());
            let (counts, mut lines) = work.lines(part)?;
            all.add(counts);
            let mut record = records.start;
            while record < records.end {
                let output = self.output(record);
                let here = record..output.records.end.min(records.end);
                record = here.end;
                if is_within(&output.records, &records) {
                    continue;
                }
                let mut writer = match open.take() {
                    Some(writer) => writer,
                    None => self.outputs.begin(&output.name)?,
                };
                for _ in here.clone() {
                    let mut line = Vec::new();
                    let read = lines.read_until(b'\n', &mut line);
                    if read.map_err(TransformError::io(&self.options.work))? == 0 {
                        let reason = format!(
                            "part {part} has fewer lines than records; remove the folder and begin anew"
                        );
                        return Err(TransformError::File {
                            path: self.options.work.display().to_string(),
                            line: None,
                            reason,
                        });
                    }
                    writer.write(&line)?;
                }
                match here.end == output.records.end {
                    true => writer.finish()?,
                    false => open = Some(writer),
                }
            }
        }
        Ok(all)
    }
}

/// Gives the model the next batch of a part; `None` if the part has no more.
fn load(part: &mut OpenPart, model: &mut dyn Model) -> Result<Option<Vec<u64>>, TransformError> {
    let Some(batches) = &mut part.batches else {
        return Ok(None);
    };
    let mut batch = match batches.next() {
        Some(Ok(batch)) => batch,
        // Then every image is a bad one, and each is reported.
        None | Some(Err(LoaderError::AllBad { .. })) => {
            let bad = batches.unreported();
            part.note(bad);
            part.batches = None;
            return Ok(None);
        }
        Some(Err(error)) => return Err(error.into()),
    };
    part.note(std::mem::take(&mut batch.bad));
    let samples = std::mem::take(&mut batch.samples);
    model.send(batch)?;
    part.in_model += 1;
    Ok(Some(samples))
}

/// Notes the predictions of the earliest batch of the model.
fn take(
    parts: &mut VecDeque<OpenPart>,
    samples: &[u64],
    predictions: Vec<Prediction>,
) -> Result<(), TransformError> {
    let part = parts.iter_mut().find(|part| part.in_model > 0);
    let Some(part) = part.filter(|_| samples.len() == predictions.len()) else {
        return Err(TransformError::Input(format!(
            "the model made {} predictions of {} images",
            predictions.len(),
            samples.len()
        )));
    };
    part.in_model -= 1;
    for (&sample, prediction) in samples.iter().zip(predictions) {
        part.outcomes[sample as usize] = Some(prediction);
    }
    Ok(())
}

/// A prediction in its record: a key of an object, or next to anything else.
fn joined(record: Value, prediction: Value) -> Value {
    match record {
        Value::Object(mut record) => {
            record.insert("SageMakerOutput".to_owned(), prediction);
            Value::Object(record)
        }
        record => json!({"SageMakerInput": record, "SageMakerOutput": prediction}),
    }
}

fn is_within(inner: &Range<usize>, outer: &Range<usize>) -> bool {
    outer.start <= inner.start && inner.end <= outer.end
}

/// The images of a part.
struct Slice {
    source: Arc<dyn Source>,
    records: Range<usize>,
    max_payload: Option<u64>,
}

impl Source for Slice {
    fn len(&self) -> usize {
        self.records.len()
    }

    fn class(&self, _: usize) -> u32 {
        // Their own classes may be those of several sources.
        0
    }

    fn name(&self, sample: usize) -> String {
        self.source.name(self.records.start + sample)
    }

    fn read(&self, sample: usize, into: &mut SampleBytes) -> Result<(), StorageError> {
        self.source.read(self.records.start + sample, into)?;
        let bytes = into.file().len() as u64;
        let path = || PathBuf::from(self.name(sample));
        match self.max_payload {
            Some(limit) if bytes > limit => Err(StorageError::TooLarge {
                path: path(),
                bytes,
                limit,
            }),
            // The decoder would say how another file begins. A line may name any file of this machine, and the output go anywhere.
            _ if bytes > 0 && !is_image(into.file()) => Err(StorageError::NotAnImage { path: path() }),
            _ => Ok(()),
        }
    }

    fn expect(&self, sample: usize) {
        self.source.expect(self.records.start + sample);
    }

    fn reach(&self) -> usize {
        self.source.reach()
    }

    fn version(&self, sample: usize, into: &mut Vec<u8>) -> bool {
        self.source.version(self.records.start + sample, into)
    }

    fn rest(&self, threads: isize) {
        self.source.rest(threads);
    }

    fn baked(&self) -> Option<&Baked> {
        self.source.baked()
    }
}
