//! Changes what is recorded of a job that runs.

use crate::{Client, JobStatus, ProfilerConfig, SageMakerError};

impl Client {
    /// Turns a job's profiler on or off, or gives it another interval in milliseconds; what is not said stays as it is.
    /// Returns what was asked for. A profiler that had no place gets that of the job's model.
    ///
    /// # Errors
    /// The job has ended; its profiler is off and `on` is not said; SageMaker has no such interval, or cannot be asked.
    pub fn switch_profiler(
        &self,
        name: &str,
        on: Option<bool>,
        interval: Option<u32>,
    ) -> Result<ProfilerConfig, SageMakerError> {
        let input = |reason: String| Err(SageMakerError::Input(reason));
        let job = self.description(name)?;
        let status: Option<JobStatus> = serde_json::from_value(job["TrainingJobStatus"].clone()).ok();
        if status.as_ref().is_some_and(JobStatus::is_final) {
            let status = job["SecondaryStatus"].as_str().unwrap_or_default();
            return input(format!(
                "job {name} is {status}; only the profiler of a job that runs can be changed"
            ));
        }
        let now = &job["ProfilerConfig"];
        let was_on = !now.is_null() && now["DisableProfiler"].as_bool() != Some(true);
        let profiler = match on {
            Some(false) => ProfilerConfig {
                disable_profiler: true,
                ..ProfilerConfig::default()
            },
            None if !was_on => {
                return input(format!(
                    "the profiler of job {name} is off; turn it on with the interval"
                ));
            }
            _ => {
                let place = now["S3OutputPath"].as_str();
                let place = place.or(job["OutputDataConfig"]["S3OutputPath"].as_str());
                let known = now["ProfilingIntervalInMilliseconds"].as_u64();
                ProfilerConfig {
                    s3_output_path: place.map(str::to_owned),
                    profiling_interval_in_milliseconds: interval
                        .or(known.and_then(|known| u32::try_from(known).ok())),
                    disable_profiler: false,
                }
            }
        };
        profiler.check()?;
        self.update_profiler(name, &profiler)?;
        Ok(profiler)
    }
}
