//! The objects of a channel, and how they get into a folder.

pub(crate) mod archive;
pub(crate) mod augmented;
pub(crate) mod mount;
pub(crate) mod mountinfo;
pub(crate) mod open;
pub(crate) mod pipe;
pub(crate) mod source;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64};

use stokehold_base::there::if_there;
use stokehold_base::uri;

use serde_json::Value;
use stokehold_objects::{Bucket, Cause, LeftOut, Object, ObjectError};

use crate::data::archive::copy_folder;
use crate::data::augmented::Samples;
use crate::data::open::{ask, check_scheme, open, wrong};
use crate::runner::room::Bound;
use crate::{Access, Channel, Job, JobError, Kind, Mode, Sharing, writes};

/// An opened place and the objects that an instance gets of it, in the order of their keys (or of the
/// manifest's lines).
pub(crate) struct Objects {
    pub bucket: Bucket,
    pub objects: Vec<Object>,
    /// Objects that are no files and have the name of a folder.
    pub folders: Vec<Object>,
    pub left_out: Vec<LeftOut>,
}

/// What a pipe carries.
pub(crate) enum Flow {
    Objects(Objects),
    Samples(Samples),
}

/// What an instance gets of a channel.
pub(crate) trait Found: Sized + Send + 'static {
    /// Of the instance `rank`.
    fn of(job: &Job, channel: &Channel, rank: usize) -> Result<Self, ObjectError>;

    /// Its objects, if that is what it is.
    fn objects(&self) -> Option<&Objects>;

    /// As [`Found::of`], until `stop` is set, of the channel `name`; says what is left out.
    fn unless(
        stop: &AtomicBool,
        job: &Job,
        (name, channel): (&str, &Channel),
        rank: usize,
        say: &dyn Fn(&str),
    ) -> Result<Self, ObjectError> {
        let (job, own) = (job.clone(), channel.clone());
        let found = ask(&channel.uri, stop, move || Self::of(&job, &own, rank))?;
        if let Some(objects) = found.objects() {
            objects.tell(name, say);
        }
        Ok(found)
    }
}

impl Found for Flow {
    fn of(job: &Job, channel: &Channel, rank: usize) -> Result<Self, ObjectError> {
        Ok(match channel.kind {
            Kind::AugmentedManifestFile => Self::Samples(Samples::of(job, channel, rank)?),
            _ => Self::Objects(Objects::of(job, channel, rank)?),
        })
    }

    fn objects(&self) -> Option<&Objects> {
        match self {
            Self::Objects(objects) => Some(objects),
            Self::Samples(_) => None,
        }
    }
}

impl Found for Objects {
    fn of(job: &Job, channel: &Channel, rank: usize) -> Result<Self, ObjectError> {
        let uri = channel.uri.as_str();
        let mut found = match channel.kind {
            Kind::S3Prefix | Kind::Mount => {
                is_there(channel)?;
                let bucket = open(job, uri)?;
                let listed = bucket.list()?;
                let has_its_name = |left: &&LeftOut| left.reason == LeftOut::FOLDER;
                let others = listed.left_out.iter().filter(has_its_name);
                let others = others.map(|left| left.object.clone());
                let markers = listed.markers.into_iter();
                Self {
                    bucket,
                    objects: listed.objects,
                    folders: markers
                        .filter(|marker| !marker.key.ends_with('/') && !marker.key.is_empty())
                        .chain(others)
                        .collect(),
                    left_out: listed.left_out,
                }
            }
            Kind::ManifestFile => Self::of_manifest(job, uri)?,
            Kind::AugmentedManifestFile => {
                return Err(wrong(
                    uri,
                    Cause::BadUri,
                    "an augmented manifest is for mode=Pipe",
                ));
            }
        };
        // A script may begin to fill a place that it can write to.
        if found.objects.is_empty() && !writes::is_written_back(channel) {
            let what = if uri::is_remote(uri) { "objects" } else { "files" };
            let reason = match found.left_out.first() {
                None => format!("there are no {what} below it"),
                Some(first) => format!("there are no {what} below it that can be read; {first}"),
            };
            return Err(wrong(uri, Cause::NotFound, reason));
        }
        if channel.distribution == Sharing::ShardedByS3Key {
            let mut number = 0..;
            found.objects.retain(|_| {
                number
                    .next()
                    .is_some_and(|number: usize| number % job.instances == rank)
            });
        }
        Ok(found)
    }

    fn objects(&self) -> Option<&Objects> {
        Some(self)
    }
}

impl Objects {
    fn tell(&self, channel: &str, say: &dyn Fn(&str)) {
        for text in LeftOut::told(&self.left_out, &self.bucket.location().to_string()) {
            say(&format!("channel {channel}: {text}"));
        }
    }

    fn of_manifest(job: &Job, uri: &str) -> Result<Self, ObjectError> {
        let (parent, name) = uri.rsplit_once('/').unwrap_or((".", uri));
        let mut text = Vec::new();
        open(job, parent)?.fetch(name, &mut text)?;
        let bad = |reason: String| wrong(uri, Cause::BadUri, format!("as a manifest: {reason}"));
        let manifest: Vec<Value> = serde_json::from_slice(&text).map_err(|error| bad(error.to_string()))?;
        let (first, names) = manifest
            .split_first()
            .ok_or_else(|| bad("it is empty".to_owned()))?;
        let prefix = first["prefix"]
            .as_str()
            .ok_or_else(|| bad("it does not begin with {\"prefix\": \"s3://..\"}".to_owned()))?;
        check_scheme(uri, prefix).map_err(bad)?;
        let bucket = open(job, prefix)?;
        let listed = bucket.list()?;
        let known = listed.objects.into_iter();
        let known: BTreeMap<String, Object> = known.map(|object| (object.key.clone(), object)).collect();
        let objects = names.iter().map(|name| {
            let name = name
                .as_str()
                .ok_or_else(|| bad(format!("{name} is no object's name")))?;
            let key = name.trim_start_matches('/');
            let missing = || {
                let left = listed.left_out.iter().find(|left| left.object.key == key);
                let reason = left.map_or("it is not there", |left| left.reason);
                wrong(
                    &bucket.location().uri(name),
                    Cause::NotFound,
                    format!("the manifest names it, and {reason}"),
                )
            };
            known.get(key).cloned().ok_or_else(missing)
        });
        let objects = objects.collect::<Result<_, _>>()?;
        Ok(Self {
            bucket,
            objects,
            folders: Vec::new(),
            left_out: Vec::new(),
        })
    }
}

/// The folders that an instance's room shows as its data, and its access to them.
pub(crate) fn bound(job: &Job, folders: &[PathBuf], rank: usize) -> Vec<Bound> {
    let each = job.channels.iter().filter_map(|(name, channel)| {
        let is_writable = channel.access == Access::Rw;
        let (folder, at) = match channel.mode() {
            Mode::Dir => (folder(channel).to_owned(), folders[rank].join(name)),
            Mode::File => {
                let owner = if is_of_the_first(channel, rank) { 0 } else { rank };
                (folders[owner].join(name), folders[rank].join(name))
            }
            // Views are read-only or have an overlay (`writes.rs`), and scripts do not write to pipes.
            Mode::FastFile | Mode::Cache | Mode::Pipe => return None,
        };
        Some(Bound {
            folder,
            at,
            is_writable,
        })
    });
    each.collect()
}

/// Whether the instance shares the first instance's data.
fn is_of_the_first(channel: &Channel, rank: usize) -> bool {
    rank > 0 && channel.distribution == Sharing::FullyReplicated
}

/// Makes a folder, also where a link was.
fn make_folder(at: &Path) -> Result<(), JobError> {
    if at.is_symlink() {
        fs::remove_file(at).map_err(JobError::io(at))?;
    }
    fs::create_dir_all(at).map_err(JobError::io(at))
}

/// Makes the path `from` a link to `to`.
pub(crate) fn link(to: &Path, from: &Path) -> Result<(), JobError> {
    // A resumed job has the link already.
    let linked = if_there(fs::remove_file(from)).and_then(|_| symlink(to, from));
    linked.map_err(JobError::io(from))
}

/// The folder on this machine that a channel names.
pub(crate) fn folder(channel: &Channel) -> &Path {
    Path::new(channel.uri.strip_prefix("file://").unwrap_or(&channel.uri))
}

/// Checks that the folder exists, for a channel that names one on this machine.
fn is_there(channel: &Channel) -> Result<(), ObjectError> {
    match uri::is_remote(&channel.uri) || folder(channel).is_dir() {
        true => Ok(()),
        false => Err(wrong(&channel.uri, Cause::NotFound, "there is no such folder")),
    }
}

/// Checks that the folders of this machine that are channels exist, before the job is created or resumed.
///
/// # Errors
/// [`JobError::Input`] for the first that does not.
pub(crate) fn check(job: &Job) -> Result<(), JobError> {
    for (name, channel) in &job.channels {
        // A manifest is a file, and a mounted file system has its own check.
        if channel.kind == Kind::S3Prefix && is_there(channel).is_err() {
            return Err(JobError::Input(format!(
                "channel {name}: {}: there is no such folder",
                folder(channel).display()
            )));
        }
    }
    Ok(())
}

/// Brings the channels of mode `File` and `Dir` to all instances, whose data folders are given. Replicated
/// data is copied once, for the first instance.
///
/// A folder that the instance's room will show ([`bound`]) stays empty here: a folder of this machine, and,
/// for the other instances, the first instance's copy. Without rooms these are links instead, and a folder of
/// this machine is copied without the jobs folder in it, unless the script may write to it.
pub(crate) fn bring(
    job: &Job,
    jobs: &Path,
    folders: &[PathBuf],
    say: &dyn Fn(&str),
    stop: &AtomicBool,
) -> Result<(), JobError> {
    for (name, channel) in &job.channels {
        let failed = |source| JobError::Channel {
            channel: name.clone(),
            source,
        };
        match channel.mode() {
            Mode::Pipe | Mode::FastFile | Mode::Cache => {}
            Mode::Dir => {
                is_there(channel).map_err(failed)?;
                if let Some(found) = mountinfo::look(job, name, channel)? {
                    say(&found);
                }
                let folder = folder(channel);
                let is_copied = !job.opt_ml && channel.access == Access::Ro && channel.kind != Kind::Mount;
                for (rank, data) in folders.iter().enumerate() {
                    let at = data.join(name);
                    if job.opt_ml {
                        make_folder(&at)?;
                    } else if !is_copied {
                        link(folder, &at)?;
                    } else if rank > 0 {
                        link(&folders[0].join(name), &at)?;
                    } else {
                        say(&format!(
                            "channel {name}: {} is copied, because without opt-ml nothing else keeps the script from writing to it; \
                             access=rw has it use the folder itself",
                            folder.display()
                        ));
                        copy_folder(folder, &at, jobs).map_err(JobError::io(folder))?;
                    }
                }
            }
            Mode::File => {
                for (rank, data) in folders.iter().enumerate() {
                    if is_of_the_first(channel, rank) {
                        match job.opt_ml {
                            true => make_folder(&data.join(name))?,
                            false => link(&folders[0].join(name), &data.join(name))?,
                        }
                        continue;
                    }
                    let found = Objects::unless(stop, job, (name, channel), rank, say).map_err(failed)?;
                    let copied =
                        found
                            .bucket
                            .copy(&found.objects, &data.join(name), &AtomicU64::new(0), stop);
                    copied.map_err(failed)?;
                }
            }
        }
    }
    Ok(())
}
