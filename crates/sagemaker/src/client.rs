//! The calls, with retries.
//!
//! ```text
//!  describe, list, stop, lines ──► call ──► again after throttling, 5xx and silence, with growing, jittered pauses
//!  create ──► CreateTrainingJob ──► answered: created, or refused
//!                 │ no answer, or 5xx: it may have been created
//!                 └──► DescribeTrainingJob ──► it is there: created
//!                                          ──► it is not: again, with the same name, of which there is never a second job
//!                                              in the end: there is none, or, after a request without an answer, it is not known
//! ```

mod facts;
mod progress;
mod switch;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use stokehold_base::random::Random;
use stokehold_objects::{Api, Options, Service};

use crate::answer::{Created, EventsPage, JobsPage, StreamsPage};
use crate::image;
use crate::{CreateTrainingJob, ProfilerConfig, SageMakerError, TrainingJob, TrainingJobSummary};

const SAGEMAKER: Api = Api {
    name: "sagemaker",
    host: "api.sagemaker",
    target: "SageMaker",
    endpoint: "AWS_ENDPOINT_URL_SAGEMAKER",
};

const LOGS: Api = Api {
    name: "logs",
    host: "logs",
    target: "Logs_20140328",
    endpoint: "AWS_ENDPOINT_URL_CLOUDWATCH_LOGS",
};

/// The group of the logs of all training jobs.
const GROUP: &str = "/aws/sagemaker/TrainingJobs";

/// The most pages of a machine's log that are read at once; each has up to 1 MiB.
const PAGES: usize = 16;

/// The most pages of a list, with up to 100 entries each.
const MOST_PAGES: usize = 10_000;

/// The first pause between two tries, and the longest. A pause is between half of it and all of it.
const PAUSES: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));

/// Who waits for longer is told that a call is tried again.
const PATIENCE: Duration = Duration::from_secs(2);

/// SageMaker and CloudWatch's logs in a region. Every call has an end: after `retry` of the options, and one request's time
/// limit.
#[derive(Debug)]
pub struct Client {
    sagemaker: Slot,
    logs: Slot,
    region: String,
    retry: Duration,
    tell: fn(&str),
    /// What this client has created and SageMaker has not shown yet: it may not know of it for some seconds.
    unseen: Mutex<BTreeSet<String>>,
}

/// A service that is opened again when its credentials expire.
struct Slot {
    api: Api,
    region: String,
    options: Options,
    open: Mutex<Arc<Service>>,
    tell: fn(&str),
}

/// Why a try was in vain.
struct Trouble {
    /// The service's name for the error; empty if there was no answer.
    code: String,
    /// What it said.
    reason: String,
    /// Whether the same request may succeed later.
    is_passing: bool,
    /// Whether it may have been carried out.
    may_be_done: bool,
    /// Whether it may still be on its way, or not be seen yet: no answer came, or none that can be read.
    is_lost: bool,
}

impl Trouble {
    fn is_expired(&self) -> bool {
        matches!(
            self.code.as_str(),
            "ExpiredTokenException" | "ExpiredToken" | "RequestExpired"
        )
    }

    fn is_denied(&self) -> bool {
        self.is_expired()
            || [
                "AccessDenied",
                "IncompleteSignature",
                "InvalidClientTokenId",
                "InvalidSignature",
                "MissingAuthenticationToken",
                "NotAuthorized",
                "OptInRequired",
                "SignatureDoesNotMatch",
                "UnrecognizedClient",
                "NoCredentials",
            ]
            .iter()
            .any(|start| self.code.starts_with(start))
    }

    /// SageMaker has no code of its own for a job that does not exist.
    fn is_missing(&self) -> bool {
        let reason = self.reason.to_ascii_lowercase();
        self.code.starts_with("ResourceNotFound")
            || self.code.starts_with("Validation")
                && (reason.contains("not found") || reason.contains("could not find"))
    }
}

/// Pauses between tries, until a time is over.
struct Pace {
    began: Instant,
    limit: Duration,
    next: Duration,
    random: Random,
    tell: Option<fn(&str)>,
}

impl Pace {
    fn new(limit: Duration, tell: fn(&str)) -> Self {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let seed = now.unwrap_or_default().as_nanos() as u64 ^ u64::from(std::process::id());
        Self {
            began: Instant::now(),
            limit,
            next: PAUSES.0,
            random: Random::of(seed),
            tell: Some(tell),
        }
    }

    /// Waits before another try of an operation; `false`, at once, if the time would be over. Who has waited for some seconds is
    /// told why.
    fn pause(&mut self, operation: &str, reason: &str) -> bool {
        let half = self.next.as_secs_f64() / 2.0;
        let pause = Duration::from_secs_f64(half + half * self.random.unit());
        if self.began.elapsed() + pause > self.limit {
            return false;
        }
        tracing::debug!(operation, reason, "another try follows");
        let elapsed = self.began.elapsed();
        if elapsed + pause > PATIENCE
            && let Some(tell) = self.tell.take()
        {
            let left = self.limit.saturating_sub(elapsed).as_secs();
            tell(&format!("{operation}: {reason}; trying again for {left} s"));
        }
        thread::sleep(pause);
        self.next = (self.next * 2).min(PAUSES.1);
        true
    }
}

/// Without the options, which may have keys.
impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.service().fmt(f)
    }
}

impl Slot {
    fn new(api: Api, region: Option<&str>, options: &Options) -> Result<Self, SageMakerError> {
        let open = Service::open(api, region, options)?;
        Ok(Self {
            api,
            region: open.region().to_owned(),
            options: options.clone(),
            open: Mutex::new(Arc::new(open)),
            tell: |_| {},
        })
    }

    fn service(&self) -> Arc<Service> {
        Arc::clone(&self.open.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// One request.
    fn attempt<A: DeserializeOwned>(&self, operation: &str, request: &[u8]) -> Result<A, Trouble> {
        let answer = self
            .service()
            .send(operation, request.to_vec())
            .map_err(|unanswered| {
                use stokehold_objects::Cause;
                let is_denied = unanswered.error.cause == Cause::Denied;
                Trouble {
                    code: if is_denied { "NoCredentials" } else { "" }.to_owned(),
                    reason: unanswered.error.reason.clone(),
                    is_passing: unanswered.error.cause == Cause::Unreachable,
                    may_be_done: unanswered.may_have_arrived,
                    is_lost: unanswered.may_have_arrived,
                }
            })?;
        if answer.status == 200 {
            let read = serde_json::from_slice(&answer.body).and_then(|mut body| {
                drop_nulls(&mut body);
                serde_json::from_value(body)
            });
            return read.map_err(|error| Trouble {
                code: String::new(),
                reason: format!("the answer is not what the API promises: {error}"),
                is_passing: false,
                may_be_done: true,
                // SageMaker may not know yet of what it has just made.
                is_lost: true,
            });
        }
        Err(refusal(answer.status, &answer.body))
    }

    /// As [`attempt`](Self::attempt); if the credentials have expired, it looks for new ones, where they were found.
    fn renewed<A: DeserializeOwned>(&self, operation: &str, request: &[u8]) -> Result<A, Trouble> {
        let tried = self.attempt(operation, request);
        let Err(trouble) = &tried else { return tried };
        if !trouble.is_expired() {
            return tried;
        }
        let Ok(service) = Service::open(self.api, Some(&self.region), &self.options) else {
            return tried;
        };
        *self.open.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(service);
        self.attempt(operation, request)
    }

    /// A request that may be sent several times.
    fn call<A: DeserializeOwned>(
        &self,
        operation: &str,
        request: &impl Serialize,
    ) -> Result<A, (Trouble, Duration)> {
        self.call_while(operation, request, |trouble| trouble.is_passing)
    }

    /// A request that may be sent several times, as long as its trouble is one that may pass.
    fn call_while<A: DeserializeOwned>(
        &self,
        operation: &str,
        request: &impl Serialize,
        may_pass: impl Fn(&Trouble) -> bool,
    ) -> Result<A, (Trouble, Duration)> {
        let request = bytes(request);
        let mut pace = Pace::new(self.options.retry, self.tell);
        loop {
            match self.renewed(operation, &request) {
                Ok(answer) => return Ok(answer),
                Err(trouble) if may_pass(&trouble) && pace.pause(operation, &trouble.reason) => {}
                Err(trouble) => return Err((trouble, pace.began.elapsed())),
            }
        }
    }

    fn error(&self, operation: &str, trouble: Trouble, tried: Duration) -> SageMakerError {
        let (operation, address) = (operation.to_owned(), self.service().address().to_owned());
        let is_denied = trouble.is_denied();
        let reason = match trouble.code.as_str() {
            "" | "NoCredentials" => trouble.reason,
            code => format!("{} ({code})", trouble.reason),
        };
        let reason = match trouble.is_passing && !image::is_known(&self.region) {
            true => format!("{reason}; {} is no region that is known here", self.region),
            false => reason,
        };
        if trouble.is_passing {
            return SageMakerError::Unavailable {
                operation,
                address,
                reason,
                seconds: tried.as_secs(),
            };
        }
        match is_denied {
            true => SageMakerError::Denied {
                operation,
                address,
                reason,
            },
            false => SageMakerError::Refused {
                operation,
                address,
                reason,
            },
        }
    }
}

/// A member that is null is one that is not there.
fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, value| !value.is_null());
            map.values_mut().for_each(drop_nulls);
        }
        Value::Array(values) => values.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

fn without_nulls(mut value: Value) -> Value {
    drop_nulls(&mut value);
    value
}

fn bytes(request: &impl Serialize) -> Vec<u8> {
    // Requests are maps with texts as keys, which JSON always has a form for.
    serde_json::to_vec(request).expect("a request is JSON")
}

/// Reads the refusal of a service: `{"__type": "com.amazon..#Code", "message": ".."}`.
fn refusal(status: u16, body: &[u8]) -> Trouble {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let text = |name: &str| body.get(name).and_then(Value::as_str).unwrap_or_default();
    let code = text("__type").rsplit('#').next().unwrap_or_default();
    let code = code.split(':').next().unwrap_or_default();
    let message = [text("message"), text("Message")].concat();
    let is_throttled = status == 429
        || code.starts_with("Throttl")
        || matches!(
            code,
            "TooManyRequestsException"
                | "RequestLimitExceeded"
                | "RequestThrottled"
                | "RequestThrottledException"
                | "SlowDown"
                | "BandwidthLimitExceeded"
                | "PriorRequestNotComplete"
        )
        || message == "Rate exceeded";
    let is_failure = status >= 500 || status == 408 || code.starts_with("RequestTimeout");
    let reason = match message.split_whitespace().collect::<Vec<_>>().join(" ") {
        empty if empty.is_empty() => format!("HTTP status {status} without a message"),
        message => message,
    };
    Trouble {
        code: code.to_owned(),
        reason,
        is_passing: is_throttled || is_failure,
        may_be_done: is_failure && !is_throttled,
        is_lost: false,
    }
}

/// A line of a job's log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    /// The machine that printed it: `algo-1`.
    pub host: String,
    /// When, unix milliseconds.
    pub time: i64,
    /// The line, without its end.
    pub text: String,
}

/// How far the log of a job has been read.
#[derive(Debug, Clone, Default)]
pub struct LogPosition {
    /// The streams by name, each with the token of its next page.
    streams: BTreeMap<String, Option<String>>,
}

impl Client {
    /// Opens both services. Makes no request. The region is `region`, or that of `AWS_REGION` or of the profile.
    ///
    /// # Errors
    /// There is no region, or a setting is invalid.
    pub fn open(region: Option<&str>, options: &Options) -> Result<Self, SageMakerError> {
        let sagemaker = Slot::new(SAGEMAKER, region, options)?;
        let region = sagemaker.region.clone();
        Ok(Self {
            logs: Slot::new(LOGS, Some(&region), options)?,
            sagemaker,
            region,
            retry: options.retry,
            tell: |_| {},
            unseen: Mutex::default(),
        })
    }

    /// Has `tell` told, in a sentence, when a call is tried for more than two seconds. It has all of `retry` to succeed, which may be a
    /// minute.
    #[must_use]
    pub fn telling(mut self, tell: fn(&str)) -> Self {
        (self.tell, self.sagemaker.tell, self.logs.tell) = (tell, tell, tell);
        self
    }

    /// The region.
    pub fn region(&self) -> &str {
        &self.region
    }

    fn asked<A: DeserializeOwned>(
        &self,
        operation: &str,
        request: &impl Serialize,
    ) -> Result<A, SageMakerError> {
        self.sagemaker
            .call(operation, request)
            .map_err(|(trouble, tried)| self.sagemaker.error(operation, trouble, tried))
    }

    /// As [`asked`](Self::asked), about a job. One that was created here is waited for until SageMaker knows of it.
    fn asked_of<A: DeserializeOwned>(
        &self,
        operation: &str,
        request: &impl Serialize,
        name: &str,
    ) -> Result<A, SageMakerError> {
        let is_unseen = self.unseen().contains(name);
        let may_pass = |trouble: &Trouble| trouble.is_passing || is_unseen && trouble.is_missing();
        let answered = self.sagemaker.call_while(operation, request, may_pass);
        if is_unseen && answered.is_ok() {
            self.unseen().remove(name);
        }
        answered.map_err(|(trouble, tried)| match trouble.is_missing() {
            true => SageMakerError::NoSuchJob {
                name: name.to_owned(),
                region: self.region.clone(),
            },
            false => self.sagemaker.error(operation, trouble, tried),
        })
    }

    fn unseen(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.unseen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for page after page. `ask` has the token of the page, none for the first one, and returns that of the next.
    fn pages(
        &self,
        operation: &str,
        mut ask: impl FnMut(Option<&str>) -> Result<Option<String>, SageMakerError>,
    ) -> Result<(), SageMakerError> {
        let (mut seen, mut token) = (BTreeSet::new(), None);
        for _ in 0..MOST_PAGES {
            match ask(token.as_deref())? {
                // A token that came before would be followed round and round.
                Some(next) if seen.insert(next.clone()) => token = Some(next),
                _ => return Ok(()),
            }
        }
        Err(SageMakerError::Refused {
            operation: operation.to_owned(),
            address: self.sagemaker.service().address().to_owned(),
            reason: format!("the list has more than {MOST_PAGES} pages"),
        })
    }

    fn name_taken(&self, name: &str) -> SageMakerError {
        SageMakerError::NameTaken {
            name: name.to_owned(),
            region: self.region.clone(),
        }
    }

    /// A job as it is now.
    ///
    /// # Errors
    /// There is no such job, or SageMaker cannot be asked.
    pub fn describe(&self, name: &str) -> Result<TrainingJob, SageMakerError> {
        let request = json!({"TrainingJobName": name});
        self.asked_of("DescribeTrainingJob", &request, name)
    }

    /// The newest jobs, at most `most`, the newest first.
    ///
    /// # Errors
    /// SageMaker cannot be asked.
    pub fn list(&self, most: usize) -> Result<Vec<TrainingJobSummary>, SageMakerError> {
        let mut found = Vec::new();
        self.pages("ListTrainingJobs", |token| {
            let request = json!({
                "MaxResults": most.min(100),
                "SortBy": "CreationTime",
                "SortOrder": "Descending",
                "NextToken": token,
            });
            let page: JobsPage = self.asked("ListTrainingJobs", &without_nulls(request))?;
            found.extend(page.training_job_summaries);
            Ok(page.next_token.filter(|_| found.len() < most))
        })?;
        found.truncate(most);
        Ok(found)
    }

    /// Asks SageMaker to stop a job. The script gets 120 s to end. A job that has ended stays as it is.
    ///
    /// # Errors
    /// There is no such job, or SageMaker cannot be asked.
    pub fn stop(&self, name: &str) -> Result<(), SageMakerError> {
        let request = json!({"TrainingJobName": name});
        match self.asked_of::<Value>("StopTrainingJob", &request, name) {
            Err(SageMakerError::Refused { .. }) if self.describe(name)?.training_job_status.is_final() => {
                Ok(())
            }
            stopped => stopped.map(drop),
        }
    }

    /// Changes what Debugger records of a job that runs: another interval, off, or on again.
    ///
    /// # Errors
    /// There is no such job, it has ended, or SageMaker cannot be asked.
    pub fn update_profiler(&self, name: &str, profiler: &ProfilerConfig) -> Result<(), SageMakerError> {
        let request = json!({"TrainingJobName": name, "ProfilerConfig": profiler});
        self.asked_of::<Value>("UpdateTrainingJob", &request, name)
            .map(drop)
    }

    /// Makes sure that no job has this name.
    ///
    /// # Errors
    /// [`SageMakerError::NameTaken`]; SageMaker cannot be asked.
    pub fn require_free(&self, name: &str) -> Result<(), SageMakerError> {
        match self.describe(name) {
            Ok(_) => Err(self.name_taken(name)),
            Err(SageMakerError::NoSuchJob { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Creates a job, and returns its ARN. The name has to be free: after a request without an answer, a job of this name
    /// and with these hyperparameters, this role and these machines is taken for the one that was asked for.
    ///
    /// # Errors
    /// The request is invalid or refused. [`SageMakerError::NotCreated`]: there is none.
    /// [`SageMakerError::Unclear`]: SageMaker could not be asked whether there is one.
    pub fn create(&self, request: &CreateTrainingJob) -> Result<String, SageMakerError> {
        request.check()?;
        let (operation, name) = ("CreateTrainingJob", &request.training_job_name);
        let json = bytes(request);
        let mut pace = Pace::new(self.retry, self.tell);
        // Whether a request may have been carried out without its answer: now, and at any time.
        let (mut is_unclear, mut was_unclear) = (false, false);
        // One without an answer may still be on its way when SageMaker knows of none yet.
        let mut is_lost = false;
        loop {
            let trouble = match self.sagemaker.renewed::<Created>(operation, &json) {
                Ok(created) => {
                    self.unseen().insert(name.clone());
                    return Ok(created.arn);
                }
                Err(trouble) => trouble,
            };
            is_unclear |= trouble.may_be_done;
            was_unclear |= is_unclear;
            is_lost |= trouble.is_lost;
            let is_taken = trouble.code == "ResourceInUse";
            let mut reason = trouble.reason.clone();
            if is_unclear || is_taken && was_unclear {
                match self.look(name) {
                    Ok(Some(job)) if is_same(&job, request) => return Ok(job.training_job_arn),
                    Ok(Some(_)) => return Err(self.name_taken(name)),
                    Ok(None) => is_unclear = false,
                    // Whose it is, is not known.
                    Err(trouble) => (is_unclear, reason) = (true, trouble.reason),
                }
            }
            if is_taken && !is_unclear {
                return Err(self.name_taken(name));
            }
            let is_refused = !trouble.is_passing && !is_unclear;
            if is_refused && !is_lost {
                return Err(self.sagemaker.error(operation, trouble, pace.began.elapsed()));
            }
            if is_refused || !pace.pause(operation, &reason) {
                let (name, region) = (name.clone(), self.region.clone());
                return Err(match is_unclear || is_lost {
                    true => SageMakerError::Unclear { name, region, reason },
                    false => SageMakerError::NotCreated { name, region, reason },
                });
            }
        }
    }

    /// A job of this name, if there is one; asked once.
    fn look(&self, name: &str) -> Result<Option<TrainingJob>, Trouble> {
        let request = bytes(&json!({"TrainingJobName": name}));
        match self.sagemaker.renewed("DescribeTrainingJob", &request) {
            Ok(job) => Ok(Some(job)),
            Err(trouble) if trouble.is_missing() => Ok(None),
            Err(trouble) => Err(trouble),
        }
    }

    /// The lines of a job's log that came since the last call with this position; of each machine in their order, and
    /// together by their times. A job that has not printed yet has none. At most some MiB of a machine come at once: call it
    /// until nothing comes.
    ///
    /// # Errors
    /// CloudWatch cannot be asked, or the credentials do not allow it.
    pub fn lines(&self, name: &str, position: &mut LogPosition) -> Result<Vec<LogLine>, SageMakerError> {
        // Taken over only when all is read: what an error throws away comes again.
        let mut next = position.clone();
        self.find_streams(name, &mut next)?;
        let mut lines = Vec::new();
        for (stream, token) in &mut next.streams {
            // NAME/algo-1-1600000000
            let of_machine = stream.rsplit('/').next().unwrap_or(stream);
            let host = of_machine.rsplit_once('-').map_or(of_machine, |(host, _)| host);
            for _ in 0..PAGES {
                let mut request =
                    json!({"logGroupName": GROUP, "logStreamName": stream, "startFromHead": true});
                if let Some(token) = token.as_ref() {
                    request["nextToken"] = json!(token);
                }
                let Some(page) = self.logged::<EventsPage>("GetLogEvents", &request)? else {
                    break;
                };
                lines.extend(page.events.into_iter().map(|event| LogLine {
                    host: host.to_owned(),
                    time: event.timestamp,
                    text: event.message.trim_end_matches(['\n', '\r']).to_owned(),
                }));
                // A page may be empty before the end; only the same token again says that there are no more.
                if page.next_forward_token.is_none() || page.next_forward_token == *token {
                    break;
                }
                *token = page.next_forward_token;
            }
        }
        *position = next;
        // The sort is stable: lines of the same machine keep their order.
        lines.sort_by_key(|line| line.time);
        Ok(lines)
    }

    /// Looks for the streams of machines that have begun to print.
    fn find_streams(&self, name: &str, position: &mut LogPosition) -> Result<(), SageMakerError> {
        self.pages("DescribeLogStreams", |token| {
            let request = json!({
                "logGroupName": GROUP,
                "logStreamNamePrefix": format!("{name}/"),
                "nextToken": token,
            });
            let page = self.logged::<StreamsPage>("DescribeLogStreams", &without_nulls(request))?;
            let Some(page) = page else { return Ok(None) };
            for stream in page.log_streams {
                position.streams.entry(stream.log_stream_name).or_default();
            }
            Ok(page.next_token)
        })
    }

    /// Asks CloudWatch; none if there is no such group or stream yet.
    fn logged<A: DeserializeOwned>(
        &self,
        operation: &str,
        request: &Value,
    ) -> Result<Option<A>, SageMakerError> {
        match self.logs.call(operation, request) {
            Ok(answer) => Ok(Some(answer)),
            Err((trouble, _)) if trouble.code.starts_with("ResourceNotFound") => Ok(None),
            Err((trouble, tried)) => Err(self.logs.error(operation, trouble, tried)),
        }
    }
}

/// Whether this is the job that was asked for.
fn is_same(job: &TrainingJob, request: &CreateTrainingJob) -> bool {
    job.hyper_parameters == request.hyper_parameters
        && job.role_arn == request.role_arn
        && job.resource_config.instance_type == request.resource_config.instance_type
        && job.resource_config.instance_count == request.resource_config.instance_count
}
