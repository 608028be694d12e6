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
    left: Vec<Option<Left>>,
    /// What all had left for the last operation.
    all: Arc<Vec<Left>>,
    /// Operations done.
    done: u64,
}

impl Meeting {
    pub(crate) fn new(size: usize) -> Self {
        Self {
            state: Mutex::new(State {
                left: (0..size).map(|_| None).collect(),
                all: Arc::default(),
                done: 0,
            }),
            changed: Condvar::new(),
        }
    }
}

/// What a rank leaves.
enum Left {
    Bytes(Vec<u8>),
    Numbers(Vec<f32>),
}

impl Left {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Numbers(_) => &[],
        }
    }

    fn numbers(&self) -> &[f32] {
        match self {
            Self::Bytes(_) => &[],
            Self::Numbers(numbers) => numbers,
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

    fn unequal(&self, rank: usize, theirs: usize, ours: usize) -> RanksError {
        RanksError::Unequal(format!(
            "rank {rank} sums {theirs} numbers, and rank {} sums {ours}",
            self.world.rank
        ))
    }

    fn meet(&self, own: Left) -> Result<Arc<Vec<Left>>, RanksError> {
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
    fn gather(&mut self, own: Vec<u8>, _desk: &Desk) -> Result<Vec<Vec<u8>>, RanksError> {
        let all = self.meet(Left::Bytes(own))?;
        Ok(all.iter().map(|left| left.bytes().to_vec()).collect())
    }

    fn sum(&mut self, own: Vec<f32>, _desk: &Desk) -> Result<Vec<f32>, RanksError> {
        let len = own.len();
        let all = self.meet(Left::Numbers(own))?;
        let mut sums = vec![0.0; len];
        for (rank, of_rank) in all.iter().enumerate() {
            let numbers = of_rank.numbers();
            if numbers.len() != len {
                return Err(self.unequal(rank, numbers.len(), len));
            }
            for (sum, number) in sums.iter_mut().zip(numbers) {
                *sum += number;
            }
        }
        Ok(sums)
    }

    fn broadcast(&mut self, own: Vec<u8>, _desk: &Desk) -> Result<Vec<u8>, RanksError> {
        let own = if self.world.rank == 0 { own } else { Vec::new() };
        let all = self.meet(Left::Bytes(own))?;
        Ok(all.first().map(|left| left.bytes().to_vec()).unwrap_or_default())
    }

    fn abort(&mut self, _code: i32) {}
}
