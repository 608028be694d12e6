//! A lease, so that only one job at a time keeps its checkpoints at a place. A small object there names the
//! job and its time.
//!
//! The object is only written over the version that was read ([`Bucket::put_if`]), so of two jobs that come
//! at the same time one gets it. The owner renews the lease every [`RENEWAL`]; a lease that was not renewed
//! for [`TERM`] is free. So after a runner was killed, its place is free within a minute, and at once for the
//! same job: a number in the job's folder identifies the owner. The clocks of two machines that share a place
//! must agree to within half a minute.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use std::{fs, io};

use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};
use stokehold_objects::{Bucket, Cause, ObjectError, Version};

use stokehold_base::clock::unix_now as now;
use stokehold_base::there::if_there;

use crate::JobError;

/// The lease's object; no file of a script has this name.
pub(super) const KEY: &str = ".stokehold-lease.json";

const TERM: Duration = Duration::from_secs(60);
const RENEWAL: Duration = Duration::from_secs(15);
/// The pause after a renewal that failed.
const AGAIN: Duration = Duration::from_secs(3);

/// The contents of the lease object.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Owner {
    /// Identifies this job among all others.
    id: String,
    /// Its name, for people.
    job: String,
    /// The machine, for people.
    host: String,
    /// When the lease was renewed last, unix seconds.
    renewed: f64,
}

/// A place that this job holds. Dropping it releases the place.
pub(super) struct Lease {
    shared: Arc<Shared>,
    renewing: Option<JoinHandle<()>>,
}

struct Shared {
    bucket: Bucket,
    owner: Owner,
    state: Mutex<State>,
    /// Wakes the thread that renews.
    over: Condvar,
}

struct State {
    version: Version,
    renewed: Instant,
    /// The job that holds the lease now, when this one has lost it.
    lost: Option<String>,
    over: bool,
}

impl Lease {
    /// Takes the place for the job `name` with the given folder. Retries for a while if the place cannot be
    /// reached.
    pub fn take(bucket: &Bucket, name: &str, folder: &Path, stop: &AtomicBool) -> Result<Self, JobError> {
        let began = Instant::now();
        loop {
            match Self::try_to_take(bucket, name, folder) {
                Err(JobError::Checkpoints(error))
                    if error.cause == Cause::Unreachable
                        && began.elapsed() < TERM
                        && !stop.load(Ordering::SeqCst) =>
                {
                    std::thread::sleep(Duration::from_millis(500));
                }
                taken => return taken,
            }
        }
    }

    fn try_to_take(bucket: &Bucket, name: &str, folder: &Path) -> Result<Self, JobError> {
        let path = folder.join("lease");
        let owner = Owner {
            id: identity(&path).map_err(JobError::io(&path))?,
            job: name.to_owned(),
            host: fs::read_to_string("/proc/sys/kernel/hostname")
                .unwrap_or_default()
                .trim()
                .to_owned(),
            renewed: now(),
        };
        // The slower of two jobs reads the object again, and finds the other as the owner.
        for _ in 0..3 {
            let found = bucket.read_version(KEY).map_err(JobError::Checkpoints)?;
            if let Some((text, _)) = &found {
                let other: Owner = serde_json::from_slice(text).map_err(|error| {
                    JobError::Input(format!(
                        "checkpoints: {}: it is not a lease ({error}); remove it, if no job keeps its checkpoints there",
                        bucket.location().uri(KEY)
                    ))
                })?;
                let left = other.renewed + TERM.as_secs_f64() - now();
                if other.id != owner.id && left > 0.0 {
                    return Err(JobError::Input(format!(
                        "checkpoints: {} is kept by the job {} on {}; take another place, or stop that job (if it is dead, the \
                         place is free in {left:.0} s)",
                        bucket.location(),
                        other.job,
                        other.host
                    )));
                }
            }
            let put = bucket.put_if(KEY, owner.text(), found.as_ref().map(|(_, version)| version));
            if let Some(version) = put.map_err(JobError::Checkpoints)? {
                return Ok(Self::held(bucket, owner, version));
            }
        }
        Err(JobError::Input(format!(
            "checkpoints: {}: several jobs want it at once; give each its own",
            bucket.location()
        )))
    }

    fn held(bucket: &Bucket, owner: Owner, version: Version) -> Self {
        let shared = Arc::new(Shared {
            bucket: bucket.clone(),
            owner,
            state: Mutex::new(State {
                version,
                renewed: Instant::now(),
                lost: None,
                over: false,
            }),
            over: Condvar::new(),
        });
        let renewing = Arc::clone(&shared);
        let renewing = std::thread::Builder::new()
            .name("lease".to_owned())
            .spawn(move || renewing.renew());
        Self {
            shared,
            renewing: renewing.ok(),
        }
    }

    /// Why nothing may be written there now.
    pub fn trouble(&self) -> Option<String> {
        let state = self.shared.state();
        match &state.lost {
            Some(other) => Some(format!(
                "{} is kept by the job {other} now; this job could not renew its lease in time",
                self.shared.bucket.location()
            )),
            None if state.renewed.elapsed() > TERM => Some(format!(
                "{}: the lease could not be renewed",
                self.shared.bucket.location()
            )),
            None => None,
        }
    }

    /// Whether another job holds the lease.
    pub fn is_lost(&self) -> bool {
        self.shared.state().lost.is_some()
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Renews the lease until it is released or lost.
    fn renew(&self) {
        let mut pause = RENEWAL;
        loop {
            let state = self.state();
            let waited = self.over.wait_timeout_while(state, pause, |state| !state.over);
            let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
            if state.over {
                return;
            }
            let version = state.version.clone();
            drop(state);
            match self.renewed(&version) {
                Ok(Ok(version)) => {
                    let mut state = self.state();
                    (state.version, state.renewed) = (version, Instant::now());
                    pause = RENEWAL;
                }
                Ok(Err(other)) => {
                    self.state().lost = Some(other);
                    return;
                }
                // The place cannot be reached. The next upload reports it.
                Err(_) => pause = AGAIN,
            }
        }
    }

    /// The new version of the object, or the job that holds the lease now.
    fn renewed(&self, version: &Version) -> Result<Result<Version, String>, ObjectError> {
        let owner = Owner {
            renewed: now(),
            ..self.owner.clone()
        };
        if let Some(version) = self.bucket.put_if(KEY, owner.text(), Some(version))? {
            return Ok(Ok(version));
        }
        // An earlier renewal may have been written though its answer was lost.
        let found = self.bucket.read_version(KEY)?;
        let other = found
            .as_ref()
            .and_then(|(text, _)| serde_json::from_slice::<Owner>(text).ok());
        match (found, other) {
            (Some((_, version)), Some(other)) if other.id == self.owner.id => Ok(Ok(version)),
            (_, Some(other)) => Ok(Err(format!("{} on {}", other.job, other.host))),
            // Somebody removed the object: write it again.
            (found, None) => {
                let taken =
                    self.bucket
                        .put_if(KEY, owner.text(), found.as_ref().map(|(_, version)| version))?;
                Ok(taken.ok_or_else(|| "that was faster".to_owned()))
            }
        }
    }
}

impl Owner {
    fn text(&self) -> Vec<u8> {
        serde_json::json!(self).to_string().into_bytes()
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.shared.state().over = true;
        self.shared.over.notify_all();
        if let Some(renewing) = self.renewing.take() {
            let _ = renewing.join();
        }
        let ours = || -> Option<()> {
            let (text, _) = self.shared.bucket.read_version(KEY).ok()??;
            let owner: Owner = serde_json::from_slice(&text).ok()?;
            (owner.id == self.shared.owner.id).then_some(())
        };
        // If the object cannot be removed now, the lease runs out within a minute.
        if !self.is_lost() && ours().is_some() {
            let _ = self.shared.bucket.delete(KEY);
        }
    }
}

/// The number in the job's folder, drawn at the first call.
fn identity(path: &Path) -> io::Result<String> {
    if let Some(text) = if_there(fs::read_to_string(path))?
        && text.len() == 32
    {
        return Ok(text);
    }
    let mut bytes = [0; 16];
    let drawn = SystemRandom::new().fill(&mut bytes);
    drawn.map_err(|_| io::Error::other("the system has no random numbers"))?;
    let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    fs::write(path, &text)?;
    Ok(text)
}
