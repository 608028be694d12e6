//! How busy each core is: `/proc/stat`.

use std::path::Path;

use super::Board;
use crate::kernel::{CoreList, KernelFile, lines, number, words};
use crate::system::SeriesId;
use crate::{ProfileError, dimension};

/// How busy the cores were.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Busy {
    /// The sum over all cores, percent of one core.
    pub all: f64,
    /// The number of cores.
    pub cores: u32,
}

impl Busy {
    /// The mean over the cores, percent.
    pub fn mean(self) -> f64 {
        self.all / f64::from(self.cores)
    }
}

/// Reads the counters of the cores that the recorder may run on.
pub(crate) struct Cores {
    file: KernelFile,
    buffer: Vec<u8>,
    allowed: Option<CoreList>,
    /// In ascending order of their numbers.
    cores: Vec<Core>,
    round: u64,
}

struct Core {
    number: u32,
    before: Ticks,
    /// The last round in which the core was seen; a core that is offline has no line.
    round: u64,
    busy: SeriesId,
    waiting: SeriesId,
}

/// A core's counters since boot, in kernel ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Ticks {
    /// Not idle, and not waiting for storage.
    busy: u64,
    /// Idle while waiting for storage.
    waiting: u64,
    total: u64,
}

impl Cores {
    /// # Errors
    /// [`ProfileError::NotSupported`] without `/proc/stat`: there is nothing to sample.
    pub fn open(proc: &Path, allowed: Option<CoreList>) -> Result<Self, ProfileError> {
        let path = proc.join("stat");
        let file = KernelFile::open(&path).map_err(|error| ProfileError::NotSupported {
            what: path,
            reason: error.to_string(),
        })?;
        Ok(Self {
            file,
            buffer: Vec::new(),
            allowed,
            cores: Vec::new(),
            round: 0,
        })
    }

    /// Reads all cores. Returns how busy they were, if the kernel's counters have changed since the previous
    /// tick.
    pub fn sample(&mut self, board: &mut Board) -> Option<Busy> {
        self.round += 1;
        let text = self.file.read_at_once(&mut self.buffer).ok()?;
        let mut busy_cores = Busy { all: 0.0, cores: 0 };
        let mut place = 0;
        for line in lines(text) {
            // The cores come first; skip the long line of interrupts after them.
            let Some(rest) = line.strip_prefix(b"cpu") else {
                break;
            };
            let Some((core, now)) = parse(rest) else { continue };
            if self
                .allowed
                .as_ref()
                .is_some_and(|allowed| !allowed.contains(core))
            {
                continue;
            }
            if self.cores.get(place).is_none_or(|known| known.number != core) {
                match self.cores.binary_search_by_key(&core, |known| known.number) {
                    Ok(found) => place = found,
                    Err(missing) => {
                        place = missing;
                        let name = format!("cpu{core}");
                        let new = Core {
                            number: core,
                            before: now,
                            round: 0,
                            busy: board.add("cpu", &name, dimension::CPU),
                            waiting: board.add("cpu", &name, dimension::IO_WAIT),
                        };
                        self.cores.insert(missing, new);
                    }
                }
            }
            let known = &mut self.cores[place];
            // A core that was just plugged in, or was offline in the previous round, gets its base values
            // here.
            if known.round + 1 == self.round && known.round > 0 {
                let total = now.total.saturating_sub(known.before.total);
                // The kernel sometimes corrects a counter downwards.
                let busy = now.busy.saturating_sub(known.before.busy).min(total);
                let waiting = now.waiting.saturating_sub(known.before.waiting).min(total);
                if total > 0 {
                    let share = 100.0 * busy as f64 / total as f64;
                    busy_cores.all += share;
                    busy_cores.cores += 1;
                    board.set(known.busy, share);
                    board.set(known.waiting, 100.0 * waiting as f64 / total as f64);
                }
            }
            known.before = now;
            known.round = self.round;
            place += 1;
        }
        (busy_cores.cores > 0).then_some(busy_cores)
    }
}

/// Parses what follows `cpu`: `3 user nice system idle iowait irq softirq steal guest guest_nice`, where user
/// time includes guest time. Lines of old kernels are shorter. `None` for the sum over all cores.
fn parse(rest: &[u8]) -> Option<(u32, Ticks)> {
    if rest.first() == Some(&b' ') {
        return None;
    }
    let mut words = words(rest);
    let core = u32::try_from(number(words.next()?)?).ok()?;
    let mut ticks = [0u64; 8];
    let mut count = 0;
    for (tick, word) in ticks.iter_mut().zip(words) {
        *tick = number(word)?;
        count += 1;
    }
    let total = ticks.iter().try_fold(0u64, |sum, tick| sum.checked_add(*tick))?;
    (count >= 4).then_some((
        core,
        Ticks {
            busy: total - ticks[3] - ticks[4],
            waiting: ticks[4],
            total,
        },
    ))
}

#[cfg(test)]
mod tests {
    use super::super::testing::Fake;
    use super::*;
    use crate::kernel::ProcFs;

    #[test]
    fn waiting_for_storage_is_idle_and_guests_count_once() {
        assert_eq!(
            parse(b"0 100 0 50 800 50 0 0 0 25 0"),
            Some((
                0,
                Ticks {
                    busy: 150,
                    waiting: 50,
                    total: 1000
                }
            ))
        );
        assert_eq!(
            parse(b"10 7 1 2 30").map(|(core, ticks)| (core, ticks.busy)),
            Some((10, 10))
        );
        for rest in [
            &b"  200 0 100 1600"[..],
            b"0 1 2",
            b"0 1 x 3 4",
            b"x 1 2 3 4",
            b"",
            b"0 18446744073709551615 1 1 1",
        ] {
            assert_eq!(parse(rest), None);
        }
    }

    #[test]
    fn shares_are_those_since_the_tick_before() {
        let mut fake = Fake::new();
        let stat = |text: &str| format!("cpu 9 9 9 9\n{text}intr 1 2 3\ncpu7 1 2 3 4\n");
        fake.file("stat", &stat("cpu0 100 0 0 100 0\ncpu1 0 0 0 500 0\n"));
        let mut cores = Cores::open(fake.root(), None).unwrap();
        assert_eq!(cores.sample(&mut fake.board), None);
        fake.board.discard();
        for text in [
            "cpu0 130 0 0 160 10\ncpu1 0 0 0 600 0\n",
            // cpu0 goes offline and its counters are reset meanwhile; cpu3 is plugged in.
            "cpu1 50 0 0 650 0\ncpu3 1 0 0 1 0\n",
            "cpu0 5 0 0 5 0\ncpu1 50 0 0 650 0\ncpu3 11 0 0 31 0\n",
            "cpu0 15 0 0 5 0\ncpu1 40 0 0 760 0\ncpu3 21 0 0 31 0\n",
        ] {
            fake.file("stat", &stat(text));
            cores.sample(&mut fake.board);
            fake.tick();
        }
        let read = fake.read();
        let expected = |name: &str| read[&format!("{name} {}", dimension::CPU)].clone();
        assert_eq!(expected("cpu0"), [Some(30.0), None, None, Some(100.0)]);
        // In the third tick nothing was counted; in the fourth, busy stepped back.
        assert_eq!(expected("cpu1"), [Some(0.0), Some(50.0), None, Some(0.0)]);
        assert_eq!(expected("cpu3"), [None, None, Some(25.0), Some(100.0)]);
        assert_eq!(read[&format!("cpu0 {}", dimension::IO_WAIT)][0], Some(10.0));
        assert_eq!(read.len(), 6, "{read:?}");
    }

    #[test]
    fn only_the_cores_that_may_be_used() {
        let mut fake = Fake::new();
        fake.file("self/status", "Cpus_allowed_list:\t1\n");
        let allowed = ProcFs::at(fake.root()).allowed_cores("self");
        fake.file("stat", "cpu0 1 0 0 1\ncpu1 1 0 0 1\n");
        let mut cores = Cores::open(fake.root(), allowed).unwrap();
        cores.sample(&mut fake.board);
        fake.file("stat", "cpu0 9 0 0 1\ncpu1 2 0 0 4\n");
        assert_eq!(cores.sample(&mut fake.board).map(Busy::mean), Some(25.0));
        assert_eq!(cores.cores.len(), 1);
    }

    #[test]
    fn without_proc_it_is_not_supported() {
        let fake = Fake::new();
        let error = Cores::open(fake.root(), None).err().unwrap().to_string();
        assert!(error.contains("not supported here"), "{error}");
    }
}
