//! Ranks that are threads of one process.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::link::{Desk, Link, RanksError, Silence, World};

/// Where the ranks of a world meet: each leaves what it has, and takes what all have left.
pub(crate) struct Meeting {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// What each rank has left for the current operation.
    left: Vec<Option<Vec<u8>>>,
    /// What all had left for the last operation.
    all: Arc<Vec<Vec<u8>>>,
    /// Operations done.
    done: u64,
}

impl Meeting {
    pub(crate) fn new(size: usize) -> Self {
        Self {
            state: Mutex::new(State {
                left: vec![None; size],
                all: Arc::default(),
                done: 0,
            }),
            changed: Condvar::new(),
        }
    }
}

/// A rank at the meeting.
pub(crate) struct Member {
    meeting: Arc<Meeting>,
    world: World,
    patience: Duration,
}

impl Member {
    pub(crate) fn new(meeting: Arc<Meeting>, world: World, patience: Duration) -> Self {
        Self {
            meeting,
            world,
            patience,
        }
    }

    fn meet(&self, own: Vec<u8>) -> Result<Arc<Vec<Vec<u8>>>, RanksError> {
        let begin = Instant::now();
        let mut state = self.meeting.state.lock().unwrap_or_else(PoisonError::into_inner);
        let turn = state.done;
        state.left[self.world.rank] = Some(own);
        if state.left.iter().all(Option::is_some) {
            let all = state.left.iter_mut().filter_map(Option::take).collect();
            state.all = Arc::new(all);
            state.done += 1;
            self.meeting.changed.notify_all();
            return Ok(Arc::clone(&state.all));
        }
        while state.done == turn {
            let waited = begin.elapsed();
            let Some(left) = self.patience.checked_sub(waited) else {
                let away = (0..self.world.size).filter(|&rank| state.left[rank].is_none());
                let who = away.map(|rank| Silence {
                    rank,
                    host: format!("thread {rank}"),
                    phase: None,
                    unheard: waited.as_secs_f64(),
                });
                return Err(RanksError::Silent {
                    who: who.collect(),
                    seconds: waited.as_secs_f64(),
                });
            };
            let wait = self.meeting.changed.wait_timeout(state, left);
            state = wait.unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(Arc::clone(&state.all))
    }
}

impl Link for Member {
    fn size(&self) -> usize {
        self.world.size
    }

    fn gather(&mut self, own: Vec<u8>, _desk: &Desk) -> Result<Vec<Vec<u8>>, RanksError> {
        Ok(self.meet(own)?.to_vec())
    }

    fn sum(&mut self, own: Vec<f32>, _desk: &Desk) -> Result<Vec<f32>, RanksError> {
        let bytes = own.iter().flat_map(|x| x.to_le_bytes()).collect();
        let all = self.meet(bytes)?;
        let mut sums = vec![0.0; own.len()];
        for (rank, of_rank) in all.iter().enumerate() {
            if of_rank.len() != 4 * own.len() {
                let (theirs, ours) = (of_rank.len() / 4, own.len());
                return Err(RanksError::Unequal(format!(
                    "rank {rank} sums {theirs} numbers, and rank {} sums {ours}",
                    self.world.rank
                )));
            }
            for (sum, bytes) in sums.iter_mut().zip(of_rank.chunks_exact(4)) {
                *sum += f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
            }
        }
        Ok(sums)
    }

    fn exchange(&mut self, parts: Vec<Vec<u16>>, _desk: &Desk) -> Result<Vec<Vec<u16>>, RanksError> {
        let share = parts.first().map_or(0, Vec::len);
        let bytes = parts.concat().iter().flat_map(|x| x.to_le_bytes()).collect();
        let all = self.meet(bytes)?;
        let first = 2 * share * self.world.rank;
        let to_us = |of_rank: &Vec<u8>| {
            let bytes = of_rank.get(first..first + 2 * share).unwrap_or_default();
            bytes
                .chunks_exact(2)
                .map(|bytes| u16::from_le_bytes([bytes[0], bytes[1]]))
                .collect()
        };
        Ok(all.iter().map(to_us).collect())
    }

    fn broadcast(&mut self, own: Vec<u8>, _desk: &Desk) -> Result<Vec<u8>, RanksError> {
        let own = if self.world.rank == 0 { own } else { Vec::new() };
        Ok(self.meet(own)?.first().cloned().unwrap_or_default())
    }

    fn abort(&mut self, _code: i32) {}
}
