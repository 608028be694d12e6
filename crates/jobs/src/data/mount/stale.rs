//! Removes mounts: at the end of a job, and those that a killed runner left.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::errno::Errno;
use nix::mount::{MntFlags, umount2};

use crate::data::mountinfo::{Mounted, mounted};

/// Unmounts every FUSE view at or below a folder, and returns their number. Call it with the job's lock held:
/// then none of them has a server.
///
/// # Errors
/// The system does not permit it.
pub(crate) fn clear(folder: &Path) -> io::Result<usize> {
    let mut points = points(mounted()?);
    points.retain(|point| point.starts_with(folder));
    // The last mount is on top.
    for point in points.iter().rev() {
        unmount(point)?;
    }
    Ok(points.len())
}

/// Unmounts by force and at once, even if files are in use. A path that is not mounted counts as unmounted.
///
/// # Errors
/// The system does not permit it.
pub(crate) fn unmount(point: &Path) -> io::Result<()> {
    // Force closes the connection to the server, so that no reader waits for an answer; detach does not wait
    // for open files.
    let flags = MntFlags::MNT_FORCE | MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW;
    match umount2(point, flags) {
        Ok(()) | Err(Errno::EINVAL | Errno::ENOENT) => Ok(()),
        Err(Errno::EPERM) => helped(point),
        Err(error) => Err(error.into()),
    }
}

/// Unprivileged users have a helper program that can unmount their own views.
fn helped(point: &Path) -> io::Result<()> {
    let mut said = String::new();
    for helper in ["fusermount3", "fusermount"] {
        let mut command = Command::new(helper);
        command.args(["-u", "-z", "--"]).arg(point).stdin(Stdio::null());
        match command.output() {
            Ok(output) if output.status.success() => return Ok(()),
            Ok(output) => said = String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => said = error.to_string(),
        }
    }
    Err(io::Error::new(
        io::ErrorKind::PermissionDenied,
        format!("{} cannot be unmounted: {said}", point.display()),
    ))
}

/// The paths of FUSE mounts, in the order of the mounts.
fn points(mounts: Vec<Mounted>) -> Vec<PathBuf> {
    let is_fuse = |mount: &Mounted| mount.kind == "fuse" || mount.kind.starts_with("fuse.");
    let fuse = mounts.into_iter().filter(is_fuse);
    fuse.map(|mount| mount.point).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::mountinfo::parse;

    #[test]
    fn finds_fuse_mounts_and_nothing_else() {
        let mounts = b"25 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n\
            90 25 0:50 / /jobs/a\\040b/train ro,nosuid - fuse.stokehold stokehold ro,user_id=0\n\
            91 25 0:51 / /mnt/x\\134y ro shared:5 master:1 - fuse sshfs ro\n\
            92 25 0:52 / /sys/fs/fuse/connections rw - fusectl fusectl rw\n\
            93 25 0:53 / /ntfs rw - fuseblk /dev/sdb rw\n\
            torn";
        let found: Vec<_> = points(parse(mounts))
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        assert_eq!(found, ["/jobs/a b/train", "/mnt/x\\y"]);
    }
}
