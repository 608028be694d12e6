//! The part of some work that one of several workers does.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

/// One of several workers, written `K/N`: `1/4` to `4/4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// This worker, 1 to `of`.
    pub worker: usize,
    /// The number of workers.
    pub of: usize,
}

impl Share {
    /// The worker's part of `len` things in a row. The parts of all workers follow one another, and differ by one thing at most.
    pub fn range(self, len: usize) -> Range<usize> {
        let begin = |worker: usize| (len as u128 * worker as u128 / self.of as u128) as usize;
        begin(self.worker - 1)..begin(self.worker)
    }
}

impl FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers = text.split_once('/').and_then(|(worker, of)| {
            let (worker, of) = (worker.parse().ok()?, of.parse().ok()?);
            (1..=of).contains(&worker).then_some(Self { worker, of })
        });
        numbers.ok_or_else(|| "it is K/N, the K-th of N workers: 1/4 to 4/4".to_owned())
    }
}

impl fmt::Display for Share {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.worker, self.of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_shares_are_the_whole() {
        for (len, of) in [(10, 3), (2, 4), (0, 2), (7, 7), (1, 1)] {
            let mut next = 0;
            for worker in 1..=of {
                let range = Share { worker, of }.range(len);
                assert_eq!(range.start, next);
                assert!((len / of..=len / of + 1).contains(&range.len()));
                next = range.end;
            }
            assert_eq!(next, len);
        }
    }

    #[test]
    fn a_share_is_read_back() {
        assert_eq!(
            "2/4".parse::<Share>().map(|share| share.to_string()),
            Ok("2/4".to_owned())
        );
        for wrong in ["", "2", "0/4", "5/4", "1/0", "a/b", "-1/2"] {
            assert!(wrong.parse::<Share>().is_err(), "{wrong}");
        }
    }
}
