//! LoaderThreads: libraries start threads of their own within the loader's workers.
//!
//! Workers are processes so that each computes on a core. OpenMP, BLAS and OpenCV start a thread for every core in each of them, and these
//! threads wait for each other while they spin. The hook of PyTorch scripts counts the CPU time of a worker's threads that are not
//! Python's. The rule fires if on average more than `threshold` threads compute for a worker, its own among them, and all workers together
//! have more of such threads than there are cores. Of other recordings nothing is known.

use serde_json::json;

use crate::rules::case::Case;
use crate::rules::parameters::{Parameter, Range};
use crate::rules::{Finding, Rule};

pub(super) const RULE: Rule = Rule {
    name: "LoaderThreads",
    detects: "threads of libraries within loader workers",
    parameters: &[Parameter {
        name: "threshold",
        meaning: "threads that compute for a worker on average; fires above",
        range: Range::Number(0.0, f64::INFINITY),
        defaults: [1.5; 3],
    }],
    judge,
};

fn judge(case: &Case) -> Finding {
    let about = case.recording.about.as_ref();
    let workload = about.and_then(|about| about.workload.as_ref());
    let script = workload.and_then(|workload| Some((workload, workload.script.as_ref()?)));
    let Some((workload, script)) = script.filter(|(_, script)| script.worker_threads > 0.0) else {
        return case.missing("no threads of a script's loader workers were recorded");
    };
    let (threads, workers, cores) = (script.worker_threads, workload.num_workers, workload.cores);
    let mut finding = Finding {
        datapoints: workers,
        details: json!({"threads": threads, "workers": workers, "cores": cores}),
        summary: format!(
            "In each of {workers} loader workers {threads:.1} threads computed on average, on {cores} cores."
        ),
        ..case.finding()
    };
    finding.triggered = threads > case.number("threshold") && threads * workers as f64 > cores as f64;
    if finding.triggered {
        finding.violations = workers;
        finding.recommendation = "Have each worker compute with one thread: torch.set_num_threads(1) and \
                                  cv2.setNumThreads(0) in worker_init_fn, or OMP_NUM_THREADS=1, OPENBLAS_NUM_THREADS=1 and \
                                  MKL_NUM_THREADS=1 in the environment."
            .to_owned();
    }
    finding
}
