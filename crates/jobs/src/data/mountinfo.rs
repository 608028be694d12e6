//! The file systems that are mounted here, from `/proc/self/mountinfo`; and channels of the kind `Mount`, which are
//! such file systems.
//!
//! The usual accident with a mounted file system is that it is not mounted: then its folder is there and empty, or
//! has files that were written to the disk below it by mistake. So a channel of the kind `Mount` is only accepted
//! where a file system other than that of the root is mounted at its path or above it.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use crate::data::folder;
use crate::{Access, Channel, Job, JobError, Kind};

/// A line of `/proc/PID/mountinfo`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Mounted {
    /// Where it is mounted.
    pub point: PathBuf,
    /// `ext4`, `nfs4`, `fuse.stokehold`, ..
    pub kind: String,
    /// What is mounted: a device, or `server:/folder`.
    pub source: String,
    /// The device's number: file systems with the same number are the same.
    device: String,
    is_read_only: bool,
}

/// All mounts that this process sees, the oldest first.
pub(crate) fn mounted() -> io::Result<Vec<Mounted>> {
    Ok(parse(&fs::read("/proc/self/mountinfo")?))
}

/// The mounts in the text of `/proc/PID/mountinfo`; lines that are none are left out.
pub(crate) fn parse(text: &[u8]) -> Vec<Mounted> {
    let lines = text.split(|byte| *byte == b'\n');
    lines.filter_map(line).collect()
}

fn line(line: &[u8]) -> Option<Mounted> {
    let text = |field: &[u8]| String::from_utf8_lossy(&unescaped(field)).into_owned();
    let mut fields = line.split(|byte| *byte == b' ');
    let device = fields.nth(2)?;
    let point = fields.nth(1)?;
    let options = fields.next()?;
    // Optional fields end with a hyphen; then come the type, the source, and the options of the file system itself.
    let mut rest = fields.skip_while(|field| *field != b"-").skip(1);
    let (kind, source) = (rest.next()?, rest.next()?);
    let own = rest.next().unwrap_or_default();
    let has_ro = |options: &[u8]| options.split(|byte| *byte == b',').any(|option| option == b"ro");
    Some(Mounted {
        point: PathBuf::from(OsString::from_vec(unescaped(point))),
        kind: text(kind),
        source: text(source),
        device: text(device),
        is_read_only: has_ro(options) || has_ro(own),
    })
}

/// Decodes escapes such as `\040`.
pub(crate) fn unescaped(text: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        let code = after.get(..3).filter(|_| byte == b'\\');
        let code = code.and_then(|code| u8::from_str_radix(std::str::from_utf8(code).ok()?, 8).ok());
        plain.push(code.unwrap_or(byte));
        rest = if code.is_some() { &after[3..] } else { after };
    }
    plain
}

/// The mount that a path belongs to: the innermost one, and of several at the same point the last, which covers the
/// others. `path` is canonical.
fn of<'m>(mounts: &'m [Mounted], path: &Path) -> Option<&'m Mounted> {
    let above = mounts.iter().filter(|mount| path.starts_with(&mount.point));
    above.max_by_key(|mount| mount.point.components().count())
}

/// The type and the source of the file system that a folder lies on; `None` if it cannot be read, or does not answer for
/// 30 s.
pub fn mounted_at(folder: &Path) -> Option<(String, String)> {
    let (path, mounts) = answer(folder.to_owned(), PATIENCE).ok()?;
    let found = of(&mounts, &path)?;
    Some((found.kind.clone(), found.source.clone()))
}

/// How long a file system may take to answer. A server that is gone would be waited for without end.
const PATIENCE: Duration = Duration::from_secs(30);

/// Checks the channels of the kind `Mount`, before the job is created or resumed.
///
/// # Errors
/// [`JobError::Input`] for the first that cannot be used, with what to do.
pub(crate) fn check(job: &Job) -> Result<(), JobError> {
    for (name, channel) in &job.channels {
        look(job, name, channel)?;
    }
    Ok(())
}

/// What a channel is mounted from, for the log; `None` if it is of another kind.
///
/// # Errors
/// [`JobError::Input`]: nothing is mounted there, or it cannot be used as the job wants it.
pub(crate) fn look(job: &Job, name: &str, channel: &Channel) -> Result<Option<String>, JobError> {
    if channel.kind != Kind::Mount {
        return Ok(None);
    }
    let folder = folder(channel);
    let wrong = |reason: String| JobError::Input(format!("channel {name}: {}: {reason}", folder.display()));
    let mounts = answer(folder.to_owned(), PATIENCE).map_err(wrong)?;
    let (path, mounts) = mounts;
    let found = judge(&mounts, &path).map_err(wrong)?;
    if found.is_read_only && channel.access == Access::Rw {
        return Err(wrong(format!(
            "access=rw, and {} is mounted read-only; mount it writable (mount -o remount,rw {}), or leave access out",
            found.named(),
            found.point.display()
        )));
    }
    if !job.opt_ml && !found.is_read_only && channel.access == Access::Ro {
        return Err(wrong(
            "without opt-ml nothing keeps the script from writing to it; mount it read-only, or allow the script to \
             write with access=rw"
                .to_owned(),
        ));
    }
    let rights = match found.is_read_only {
        true => "read-only",
        false => "writable",
    };
    Ok(Some(format!(
        "channel {name}: {} is {}, mounted {rights} at {}",
        folder.display(),
        found.named(),
        found.point.display()
    )))
}

impl Mounted {
    fn named(&self) -> String {
        format!("{} from {}", self.kind, self.source)
    }
}

/// The canonical path of a folder and all mounts, after the folder was read, which mounts what is mounted on demand.
fn answer(folder: PathBuf, patience: Duration) -> Result<(PathBuf, Vec<Mounted>), String> {
    let (give, take) = mpsc::channel();
    // A thread that waits for a dead server cannot be ended; it is left behind.
    std::thread::spawn(move || {
        let read = fs::read_dir(&folder).and_then(|_| Ok((folder.canonicalize()?, mounted()?)));
        // No one takes an answer that comes too late.
        let _ = give.send(read);
    });
    match take.recv_timeout(patience) {
        Ok(Ok(found)) => Ok(found),
        Ok(Err(error)) => Err(format!(
            "it cannot be read: {error}; kind=Mount wants a folder that a file system is mounted at"
        )),
        Err(_) => Err(format!(
            "the file system did not answer within {} s; check its server, and mount it again",
            patience.as_secs()
        )),
    }
}

/// The mount that a path belongs to, if it is not a part of the root's file system.
fn judge<'m>(mounts: &'m [Mounted], path: &Path) -> Result<&'m Mounted, String> {
    let root = of(mounts, Path::new("/"));
    match of(mounts, path) {
        Some(found) if found.kind == "autofs" => Err(
            "it is an automount point (autofs), and nothing was mounted; list it with ls, and read the log of automount".to_owned(),
        ),
        Some(found) if root.is_none_or(|root| root.device != found.device) => Ok(found),
        _ => Err(format!(
            "no file system is mounted there: it is a folder of the root's file system{}. Mount it first (mount {}), or \
             leave kind=Mount out to use the folder as it is",
            root.map(|root| format!(" ({})", root.named())).unwrap_or_default(),
            path.display()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &[u8] = b"25 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard\n\
        80 25 0:44 / /mnt rw - tmpfs tmpfs rw\n\
        81 80 0:50 / /mnt/my\\040data rw,relatime shared:7 master:2 - nfs4 fs-12.efs:/a\\040b rw,vers=4.1,hard\n\
        82 25 0:51 / /fsx ro,noatime - lustre 10.0.0.1@tcp:/fsx rw\n\
        83 25 0:52 / /old rw - nfs server:/old ro,vers=3\n\
        84 25 254:0 /srv /bound rw - ext4 /dev/vda rw\n\
        85 25 0:60 / /auto rw - autofs /etc/auto rw\n\
        86 82 0:61 / /fsx rw - tmpfs on\\134top rw\n\
        torn line";

    #[test]
    fn mountinfo_is_read_with_its_escapes() {
        let mounts = parse(MOUNTS);
        assert_eq!(mounts.len(), 8);
        assert_eq!(
            mounts[2],
            Mounted {
                point: PathBuf::from("/mnt/my data"),
                kind: "nfs4".to_owned(),
                source: "fs-12.efs:/a b".to_owned(),
                device: "0:50".to_owned(),
                is_read_only: false,
            }
        );
        let read_only: Vec<_> = mounts.iter().filter(|mount| mount.is_read_only).collect();
        assert_eq!(
            read_only.len(),
            2,
            "by the mount, and by the file system: {read_only:?}"
        );
        assert_eq!(mounts[7].source, "on\\top");
        assert_eq!(unescaped(b"a\\04"), b"a\\04");
        assert_eq!(unescaped(b"\\999\\"), b"\\999\\");
        assert!(parse(b"").is_empty() && parse(b"1 2 3 4 5 6 7\n- - -\n").is_empty());
    }

    #[test]
    fn a_path_belongs_to_the_innermost_mount() {
        let mounts = parse(MOUNTS);
        let of = |path: &str| judge(&mounts, Path::new(path)).map(Mounted::named);
        assert_eq!(of("/mnt/my data/train").unwrap(), "nfs4 from fs-12.efs:/a b");
        assert_eq!(of("/mnt/my").unwrap(), "tmpfs from tmpfs");
        assert_eq!(
            of("/fsx").unwrap(),
            "tmpfs from on\\top",
            "the last one covers the first"
        );
        for path in ["/home/me/efs", "/fsx2", "/bound/x", "/"] {
            let reason = of(path).unwrap_err();
            assert!(
                reason.contains("no file system is mounted there") && reason.contains("(ext4 from /dev/vda)"),
                "{path}: {reason}"
            );
        }
        assert!(of("/auto/x").unwrap_err().contains("automount point"));
    }
}
