//! What computes predictions.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use serde_json::{Map, Value, json};
use stokehold_base::hash::Fnv;
use stokehold_base::regular;
use stokehold_loader::{Batch, Loader};
use stokehold_storage::Source;
use stokehold_train::infer::{Classifier, Flaw, InferOptions, top_k};

use crate::TransformError;

/// The prediction of an image, or why there is none.
pub(crate) type Prediction = Result<Value, String>;

/// A model, to which batches go, and from which their predictions come in the same order.
pub trait Model {
    /// What tells it from other models, for the plan.
    #[doc(hidden)]
    fn describe(&self) -> Result<Map<String, Value>, TransformError>;

    /// Prepares to load images for it, in their order.
    #[doc(hidden)]
    fn loader(&self, source: Arc<dyn Source>) -> Result<Loader, TransformError>;

    /// The number of batches that it takes before the first prediction is fetched, at least 1.
    #[doc(hidden)]
    fn depth(&self) -> usize;

    /// Gives it a batch.
    #[doc(hidden)]
    fn send(&mut self, batch: Batch) -> Result<(), TransformError>;

    /// The predictions of the earliest batch that has none, one for each image; `None` if `stop` was set meanwhile.
    #[doc(hidden)]
    fn receive(&mut self, stop: &AtomicBool) -> Result<Option<Vec<Prediction>>, TransformError>;
}

/// A network of [`stokehold_train`]. Its prediction of an image is `{"predictions": [{"class", "probability"}, ..]}`, the
/// most probable class first.
pub struct Native {
    classifier: Classifier,
    options: InferOptions,
    top: usize,
    waiting: VecDeque<Batch>,
}

impl Native {
    /// A model that says `top` classes of each image, or as many as it knows.
    pub fn new(classifier: Classifier, options: InferOptions, top: usize) -> Self {
        Self {
            top: top.min(classifier.facts().classes.len()),
            classifier,
            options,
            waiting: VecDeque::new(),
        }
    }

    fn prediction(&self, logits: &[f32]) -> Prediction {
        if !logits.iter().all(|x| x.is_finite()) {
            return Err(Flaw::NotFinite.to_string());
        }
        let classes = &self.classifier.facts().classes;
        let top = top_k(logits, self.top).into_iter();
        let top: Vec<Value> = top
            .map(|one| json!({"class": classes[one.class], "probability": one.probability}))
            .collect();
        Ok(json!({"predictions": top}))
    }
}

impl Model for Native {
    fn describe(&self) -> Result<Map<String, Value>, TransformError> {
        let path = self.classifier.path();
        let bytes = regular::read(path).map_err(TransformError::io(path))?;
        let facts = self.classifier.facts();
        Ok(Map::from_iter([
            ("model".to_owned(), json!(format!("{:016x}", Fnv::of(&bytes)))),
            ("classes".to_owned(), json!(facts.classes)),
            ("pipeline".to_owned(), json!(facts.pipeline)),
            ("exif".to_owned(), json!(facts.exif)),
            ("executor".to_owned(), json!(self.options.executor.to_string())),
            ("batch_size".to_owned(), json!(self.options.batch_size)),
            ("device".to_owned(), json!(self.classifier.device())),
            ("topk".to_owned(), json!(self.top)),
        ]))
    }

    fn loader(&self, source: Arc<dyn Source>) -> Result<Loader, TransformError> {
        Ok(self.classifier.loader(source, &self.options)?)
    }

    fn depth(&self) -> usize {
        1
    }

    fn send(&mut self, batch: Batch) -> Result<(), TransformError> {
        self.waiting.push_back(batch);
        Ok(())
    }

    fn receive(&mut self, _: &AtomicBool) -> Result<Option<Vec<Prediction>>, TransformError> {
        let Some(batch) = self.waiting.pop_front() else {
            return Ok(Some(Vec::new()));
        };
        let logits = self.classifier.logits(batch)?;
        let rows = logits.chunks_exact(self.classifier.facts().classes.len());
        Ok(Some(rows.map(|row| self.prediction(row)).collect()))
    }
}
