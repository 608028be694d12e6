//! A job that is asked of SageMaker and followed to its end, and what Ctrl-C does meanwhile.
//!
//! ```text
//! RequestedJob::new ──► code is uploaded ──► CreateTrainingJob ──► created ──► followed to its end
//!     leaves: nothing is there yet    asks once whether it is there     stops it
//!     └───────────────────────── what the first Ctrl-C does; the second one leaves ┘
//! ```

use std::ffi::{OsStr, OsString};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;
use std::time::Duration;

use stokehold_base::secret::is_secret;
use stokehold_base::shell;
use stokehold_objects::Options;
use stokehold_sagemaker::{Client, CreateTrainingJob, SageMakerError};

use crate::interrupt;
use crate::terminal::note;

/// How long SageMaker has for its one answer after Ctrl-C.
const PATIENCE: Duration = Duration::from_secs(5);

/// Nothing was sent.
const BEGUN: u8 = 0;
/// A request may be under way.
const SENT: u8 = 1;
/// It is created.
const THERE: u8 = 2;

/// A client that says on standard error when SageMaker keeps it waiting.
pub fn client(region: Option<&str>, options: &Options) -> Result<Client, SageMakerError> {
    Ok(Client::open(region, options)?.telling(|text| note!("{text}")))
}

/// A job that may be there.
pub struct RequestedJob {
    client: Arc<Client>,
    name: String,
    state: AtomicU8,
}

impl RequestedJob {
    /// Begins to listen to Ctrl-C.
    ///
    /// # Errors
    /// If the system refuses the handler.
    pub fn new(client: &Arc<Client>, name: &str) -> io::Result<Arc<Self>> {
        let asked = Arc::new(Self {
            client: Arc::clone(client),
            name: name.to_owned(),
            state: AtomicU8::new(BEGUN),
        });
        let own = Arc::clone(&asked);
        interrupt::on_each(move |nth, _| {
            if nth > 1 {
                interrupt::end();
            }
            let own = Arc::clone(&own);
            // In a thread of its own, so that a second Ctrl-C is heard while this one waits for an answer.
            thread::spawn(move || own.interrupted());
        })?;
        Ok(asked)
    }

    /// Creates the job, and returns its ARN. After an error that leaves open whether it was created, the command that tries again
    /// is said.
    ///
    /// # Errors
    /// As [`Client::create`].
    pub fn create(&self, request: &CreateTrainingJob) -> Result<String, SageMakerError> {
        self.state.store(SENT, Ordering::SeqCst);
        let created = self.client.create(request);
        match &created {
            Ok(_) => self.state.store(THERE, Ordering::SeqCst),
            Err(SageMakerError::Unclear { .. }) => {
                note!(
                    "this tries again, and says so if it is there: {}",
                    again(&self.name)
                );
            }
            Err(_) => {}
        }
        created
    }

    fn interrupted(&self) {
        match self.state.load(Ordering::SeqCst) {
            BEGUN => interrupt::say("leaving; no training job was asked for"),
            SENT => {
                let name = &self.name;
                interrupt::say(&format!(
                    "leaving; asking whether training job {name} was created"
                ));
                note!("{}", self.left());
            }
            _ => {
                interrupt::say(
                    "stopping the training job, whose script gets 120 s to end; press Ctrl-C again to leave",
                );
                if let Err(error) = self.client.stop(&self.name) {
                    interrupt::say(&error.to_string());
                }
                return;
            }
        }
        interrupt::end();
    }

    /// Whether it was created, and what to do.
    fn left(&self) -> String {
        let name = &self.name;
        let options = Options {
            timeout: PATIENCE,
            retry: Duration::ZERO,
            ..Options::default()
        };
        let found =
            Client::open(Some(self.client.region()), &options).and_then(|client| client.describe(name));
        match found {
            Ok(_) => format!(
                "training job {name} is created, and continues; {} shows it, and {} stops it",
                self.command("show"),
                self.command("stop")
            ),
            Err(SageMakerError::NoSuchJob { .. }) => format!(
                "SageMaker knows of no training job {name} yet; the request was under way, so {} shows in a minute whether it arrived",
                self.command("show")
            ),
            Err(error) => format!(
                "whether training job {name} was created is not known: {error}; {} shows it if it was",
                self.command("show")
            ),
        }
    }

    /// The command that shows or stops it.
    fn command(&self, does: &str) -> String {
        let words = [
            "job",
            does,
            &self.name,
            "--on",
            "sagemaker",
            "--region",
            self.client.region(),
        ];
        shell::again(words.map(OsStr::new))
    }
}

/// This command, with the name that it made. It is not repeated if it has a secret.
fn again(name: &str) -> String {
    let mut words: Vec<OsString> = std::env::args_os().skip(1).collect();
    let texts = words.iter().map(|word| word.to_string_lossy());
    if texts.clone().any(|text| has_secret(&text)) {
        return format!("the same command with --name {name}");
    }
    if !texts
        .clone()
        .any(|text| text == "--name" || text.starts_with("--name="))
    {
        words.extend(["--name".into(), name.into()]);
    }
    shell::again(words)
}

/// Whether a word of a command line is `NAME=SECRET`, perhaps after `--environment=`.
fn has_secret(word: &str) -> bool {
    let mut signs = word.match_indices('=');
    signs.any(|(at, _)| {
        let name = word[..at].rsplit('=').next().unwrap_or_default();
        is_secret(name, &word[at + 1..])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_of_a_command_line_are_found() {
        for word in [
            "HF_TOKEN=x",
            "--environment=HF_TOKEN=x",
            "DB=http://me:x@host",
            "--hyperparameter=api-key=x",
        ] {
            assert!(has_secret(word), "{word}");
        }
        for word in [
            "job",
            "--name=flowers-1",
            "lr=0.1",
            "--channel=train=s3://bucket/a",
            "path=a=b",
        ] {
            assert!(!has_secret(word), "{word}");
        }
    }
}
