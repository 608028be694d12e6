//! What recording a span costs the thread that does it.
//!
//! Bursts of 4,000 spans, each thread's CPU time divided by them, while the timeline's own thread writes files to the
//! temporary folder. Between bursts the thread sleeps, so that the writer keeps up; where it does not, the spans lost are told.

use std::thread;
use std::time::{Duration, Instant, UNIX_EPOCH};

use cpu_time::ThreadTime;
use stokehold_base::stats::percentile;
use stokehold_profile::events::{Options, Writer};
use stokehold_profile::timeline::{Args, Timeline};

const BURST: u32 = 4000;
const BURSTS: usize = 100;

fn main() {
    println!("nanoseconds of CPU time per span: median of {BURSTS} bursts a thread (90th percentile)");
    for threads in [1, 2, 8] {
        for clock in [false, true] {
            let dir = tempfile::tempdir().expect("a temporary folder");
            let now = UNIX_EPOCH.elapsed().unwrap_or_default().as_secs_f64();
            let files = Writer::new(dir.path(), Options::new(now));
            let timeline = Timeline::start(Some(files), None).expect("a thread");
            let costs: Vec<f64> = thread::scope(|scope| {
                let threads: Vec<_> = (0..threads)
                    .map(|number| {
                        let timeline = &timeline;
                        scope.spawn(move || bursts(timeline, number, clock))
                    })
                    .collect();
                threads
                    .into_iter()
                    .flat_map(|thread| thread.join().expect("no panic"))
                    .collect()
            });
            let outcome = timeline.finish();
            assert_eq!(
                outcome.totals["bench"].spans,
                u64::from(threads) * BURSTS as u64 * u64::from(BURST)
            );
            let of = |p| percentile(&costs, p).unwrap_or(f64::NAN);
            let how = if clock {
                "with two readings of the clock"
            } else {
                "without the clock"
            };
            println!("{threads} threads, {how}: {:.0} ({:.0})", of(50.0), of(90.0));
            for note in outcome.notes {
                println!("  {note}");
            }
        }
    }
}

/// The cost of a span in each burst of one thread.
fn bursts(timeline: &Timeline, worker: u32, clock: bool) -> Vec<f64> {
    let recorder = timeline.recorder();
    let name = timeline.name("bench");
    let mut costs = Vec::with_capacity(BURSTS);
    for burst in 0..BURSTS as u64 {
        let args = Args {
            step: Some(burst),
            worker: Some(worker),
            bytes: None,
        };
        let now = Instant::now();
        let begin = ThreadTime::now();
        for _ in 0..BURST {
            if clock {
                recorder.record_since(name, Instant::now(), args);
            } else {
                recorder.record(name, now, Duration::from_micros(5), args);
            }
        }
        costs.push(begin.elapsed().as_nanos() as f64 / f64::from(BURST));
        thread::sleep(Duration::from_millis(60));
    }
    costs
}
