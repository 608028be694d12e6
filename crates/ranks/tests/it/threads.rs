//! Ranks that are threads.

use std::thread;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use stokehold_ranks::{Ranks, RanksError};

/// Does the same on every rank; returns what each had at the end.
fn on_each<T: Send + 'static>(
    ranks: Vec<Ranks>,
    each: impl Fn(Ranks) -> T + Clone + Send + 'static,
) -> Vec<T> {
    let threads: Vec<_> = ranks
        .into_iter()
        .map(|ranks| {
            let each = each.clone();
            thread::spawn(move || each(ranks))
        })
        .collect();
    threads.into_iter().map(|thread| thread.join().unwrap()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// Sums are within their rounding of the exact ones, and the same on every rank.
    #[test]
    fn sums_are_those_of_all_ranks(
        size in 1usize..5,
        numbers in prop::collection::vec(prop::collection::vec(-1e3f32..1e3, 37), 5),
    ) {
        let own = numbers.clone();
        let sums = on_each(Ranks::threads(size), move |ranks| {
            // Several under way, of different lengths, one of them empty.
            let rank = ranks.rank();
            let (one, two) = own[rank].split_at(20);
            let pending = [one, two, &[]].map(|part| ranks.begin_sum(part.to_vec()));
            pending.map(|sum| sum.wait().unwrap()).concat()
        });
        for (place, sum) in sums[0].iter().enumerate() {
            let exact: f64 = (0..size).map(|rank| f64::from(numbers[rank][place])).sum();
            let scale: f64 = (0..size).map(|rank| f64::from(numbers[rank][place].abs())).sum();
            prop_assert!((f64::from(*sum) - exact).abs() <= 1e-6 * scale, "{} and {}", sum, exact);
        }
        prop_assert!(sums.iter().all(|of_rank| of_rank == &sums[0]));
    }
}

#[test]
fn bytes_of_any_length_come_from_each_and_from_the_first() {
    let results = on_each(Ranks::threads(3), |ranks| {
        let own = vec![ranks.rank() as u8; 2 * ranks.rank()];
        let all = ranks.gather(own.clone()).unwrap();
        (all, ranks.broadcast(vec![7 + ranks.rank() as u8; 3]).unwrap())
    });
    for (all, first) in results {
        assert_eq!(all, [vec![], vec![1; 2], vec![2; 4]]);
        assert_eq!(first, [7; 3]);
    }
}

#[test]
fn a_rank_alone_has_what_it_gives() {
    let ranks = Ranks::alone();
    assert_eq!((ranks.rank(), ranks.size()), (0, 1));
    assert_eq!(ranks.sum(vec![0.1, 3.7]).unwrap(), [0.1, 3.7]);
    assert_eq!(ranks.gather(vec![1, 2]).unwrap(), [[1, 2]]);
    assert_eq!(ranks.broadcast(vec![1, 2]).unwrap(), [1, 2]);
}

#[test]
fn a_rank_that_does_not_come_is_named_and_all_further_operations_fail() {
    let begin = Instant::now();
    let patience = Duration::from_millis(200);
    let errors = on_each(Ranks::threads_with(3, patience), |ranks| {
        if ranks.rank() == 1 {
            return None;
        }
        let error = ranks.sum(vec![1.0]).unwrap_err();
        let again = ranks.gather(Vec::new()).unwrap_err();
        assert_eq!(error.to_string(), again.to_string());
        Some(error)
    });
    assert!(begin.elapsed() < Duration::from_secs(10));
    for error in errors.into_iter().flatten() {
        let RanksError::Silent { who, .. } = &error else {
            panic!("{error}");
        };
        assert_eq!(who.iter().map(|silence| silence.rank).collect::<Vec<_>>(), [1]);
        assert!(error.to_string().contains("rank 1 on thread 1"), "{error}");
    }
}

#[test]
fn sums_of_different_lengths_are_refused() {
    let results = on_each(Ranks::threads(2), |ranks| ranks.sum(vec![0.0; 1 + ranks.rank()]));
    for result in results {
        assert!(matches!(result, Err(RanksError::Unequal(_))));
    }
}
