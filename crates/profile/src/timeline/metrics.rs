//! Metrics that other processes have sent, until the caller takes them.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use stokehold_base::clock::unix_now;

use super::NAMES;

/// At most this many are kept until they are taken.
const ROOM: usize = 1 << 16;

/// A number that a program reports, such as a loss.
#[derive(Debug, Clone, PartialEq)]
pub struct Metric {
    /// The metric's name.
    pub name: String,
    /// Its value; it may be NaN or infinite.
    pub value: f64,
    /// The step or epoch that it belongs to.
    pub step: Option<u64>,
    /// When it was received, unix seconds.
    pub time: f64,
}

/// Metrics that were received and not taken yet.
///
/// At most 65536, of at most 1024 names. Further ones are dropped, and the server's notes give their number.
#[derive(Debug, Default)]
pub struct Metrics {
    state: Mutex<State>,
    spans: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    waiting: Vec<Metric>,
    names: HashSet<String>,
    dropped: u64,
}

impl Metrics {
    /// The metrics received since the last call, in order.
    pub fn take(&self) -> Vec<Metric> {
        std::mem::take(&mut self.state().waiting)
    }

    /// Spans that were received so far, of any kind: signs of life.
    pub fn spans(&self) -> u64 {
        self.spans.load(Ordering::Relaxed)
    }

    pub(super) fn span(&self) {
        self.spans.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn put(&self, name: &str, value: f64, step: Option<u64>) {
        let state = &mut *self.state();
        let is_known = state.names.contains(name);
        if state.waiting.len() == ROOM || (!is_known && state.names.len() == NAMES) {
            state.dropped += 1;
            return;
        }
        if !is_known {
            state.names.insert(name.to_owned());
        }
        state.waiting.push(Metric {
            name: name.to_owned(),
            value,
            step,
            time: unix_now(),
        });
    }

    /// A note for readers of the recording.
    pub(super) fn note(&self) -> Option<String> {
        let dropped = self.state().dropped;
        (dropped > 0).then(|| {
            format!(
                "timeline: {dropped} metrics were dropped: they came faster than they were taken, or had more than {NAMES} names"
            )
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_an_end_to_what_is_kept() {
        let metrics = Metrics::default();
        for number in 0..ROOM as u64 + 5 {
            metrics.put("x", 0.0, Some(number));
        }
        assert!(
            metrics
                .note()
                .unwrap()
                .starts_with("timeline: 5 metrics were dropped")
        );
        assert_eq!(metrics.take().len(), ROOM);
        for number in 0..NAMES {
            metrics.put(&format!("name{number}"), 0.0, None);
        }
        // "x" is one of the names.
        assert_eq!(metrics.take().len(), NAMES - 1);
    }
}
