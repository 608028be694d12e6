//! A mount namespace for a process, as in a container but without one: the part of the machine that it sees.
//!
//! ```text
//!  the machine                        in the room of algo-1
//!  JOBS/NAME/algo-1            ──►    the same path, and /opt/ml
//!  /home/me/photos             ──►    algo-1/input/data/train, read-only
//!  /etc, /usr, /bin, ..        ──►    the same paths, read-only
//!  a view, JOBS/NAME/writes    ──►    algo-1/input/data/train, both as layers of an overlay, writable
//!  everything else             ──►    as it is
//! ```
//!
//! The process itself makes its room, between fork and exec: if it may mount (root), in a new mount
//! namespace, else in a new user namespace as well, in which the user keeps his identity. The room goes with
//! the last process in it. Mounts in it are not visible outside, so `/opt/ml` is not created on the machine,
//! and each of two instances has its own at the same time.
//!
//! The process has just been forked from one with many threads, so it must not allocate. All its work is
//! therefore prepared as [`Step`]s; a step is one or a few system calls.
//!
//! A room guards against mistakes only: a script that runs as root can undo it.

use std::ffi::CString;
use std::fmt;
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;

use nix::errno::Errno;
use nix::libc;
use nix::mount::{MsFlags, mount};
use rustix::fs::{Mode, OFlags};
use rustix::thread::UnshareFlags;
use serde::{Deserialize, Serialize};
use stokehold_base::clock::unix_now as now;

use crate::JobError;

/// The path of an instance's folder in SageMaker's containers.
pub(crate) const OPT_ML: &str = "/opt/ml";

/// System folders: a job's script has no need to write to them.
const SYSTEM: [&str; 10] = [
    "/bin", "/boot", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/sbin", "/usr",
];

/// Folders for temporary files.
const TEMPORARY: [&str; 3] = ["/tmp", "/var/tmp", "/dev/shm"];

/// What a process sees.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Room {
    /// The folder that is shown as `/opt/ml`.
    pub opt_ml: Option<PathBuf>,
    /// Read-only folders, with everything below them.
    #[serde(skip)]
    pub read_only: Vec<PathBuf>,
    /// Writable folders below read-only ones. Temporary folders are always writable.
    pub writable: Vec<PathBuf>,
    /// Folders that are shown at a second path.
    pub bound: Vec<Bound>,
    /// Folders that get a writable layer. They are of this machine alone.
    #[serde(skip)]
    pub overlays: Vec<Overlay>,
}

/// A folder that gets a writable layer above it. The paths are relative to `base`, because the options of overlayfs
/// separate paths with characters that any path may have.
#[derive(Debug, Clone)]
pub(crate) struct Overlay {
    pub base: PathBuf,
    /// The lower layer, and where the overlay is mounted.
    pub at: PathBuf,
    /// The folder that gets what is written.
    pub upper: PathBuf,
    /// An empty folder on the same disk, for overlayfs itself.
    pub work: PathBuf,
}

/// A folder that is shown at a second path, or at its own path with other rights.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Bound {
    pub folder: PathBuf,
    pub at: PathBuf,
    pub is_writable: bool,
}

/// The system folders that exist.
pub(crate) fn system() -> Vec<PathBuf> {
    let is_folder = |path: &PathBuf| fs::symlink_metadata(path).is_ok_and(|facts| facts.is_dir());
    SYSTEM.iter().map(PathBuf::from).filter(is_folder).collect()
}

/// Checks whether this process can make rooms, by making one.
///
/// # Errors
/// [`JobError::Room`] with the step that the system refuses and, if it can be determined, the reason.
pub(crate) fn probe() -> Result<(), JobError> {
    let temporary = std::env::temp_dir();
    let room = Room {
        opt_ml: Some(temporary),
        read_only: system(),
        ..Room::default()
    };
    let refused = |error: io::Error| {
        JobError::Room(format!(
            "the job cannot have {OPT_ML} and read-only channels of its own: {error}; allow it, or run the job without \
             (--no-opt-ml, opt-ml = false): then {OPT_ML} is not there, channels that are folders are copied, and nothing \
             keeps the script from the system's files"
        ))
    };
    let mut steps = room.steps(None).map_err(refused)?;
    steps.push(Step::Leave);
    // The last step ends the process, so this program is never executed.
    let mut child = spawn(Command::new("true"), steps).map_err(refused)?;
    child.wait().map(drop).map_err(refused)
}

/// Checks whether this process can lay a writable layer in a folder over another, by doing so.
///
/// # Errors
/// [`JobError::Room`] with the step that the system refuses, and what to do.
pub(crate) fn probe_overlay(folder: &Path) -> Result<(), JobError> {
    let unique = format!(".overlay.{}.{}", std::process::id(), (now() * 1e6) as u64);
    let base = folder.join(unique);
    let overlay = Overlay {
        base: base.clone(),
        at: "lower".into(),
        upper: "upper".into(),
        work: "work".into(),
    };
    let probed = overlay.probe();
    // The folder is of no use, and harms no one.
    let _ = fs::set_permissions(base.join("work/work"), fs::Permissions::from_mode(0o700));
    let _ = fs::remove_dir_all(&base);
    probed.map_err(|error| JobError::Room(format!("access=rw with mode=Cache: {error}")))
}

impl Overlay {
    fn probe(&self) -> io::Result<()> {
        for layer in [&self.at, &self.upper, &self.work] {
            fs::create_dir_all(self.base.join(layer))?;
        }
        let room = Room {
            overlays: vec![self.clone()],
            ..Room::default()
        };
        let mut steps = room.steps(None)?;
        steps.push(Step::Leave);
        spawn(Command::new("true"), steps)?.wait().map(drop)
    }

    fn step(&self) -> io::Result<Step> {
        let path = |path: &Path| path.display().to_string();
        let options = format!(
            "lowerdir={},upperdir={},workdir={},userxattr,index=off",
            path(&self.at),
            path(&self.upper),
            path(&self.work)
        );
        Ok(Step::Overlay {
            options: CString::new(options)?,
            at: text(&self.at)?,
            shown: text(&self.base.join(&self.at))?,
        })
    }
}

impl Room {
    /// Starts a program in the room.
    ///
    /// # Errors
    /// The room cannot be made (the error names the refused step), or the program cannot be started.
    pub fn spawn(&self, command: Command) -> io::Result<Child> {
        let steps = self.steps(command.get_current_dir())?;
        spawn(command, steps)
    }

    /// Makes this process the program, in the room. Returns only what went wrong, as [`spawn`](Self::spawn) does.
    pub fn exec(&self, mut command: Command) -> io::Error {
        let prepared = self
            .steps(command.get_current_dir())
            .and_then(|steps| prepare(&mut command, steps));
        match prepared {
            Ok((refused, steps)) => {
                let error = command.exec();
                drop(command);
                said(refused, &steps, error)
            }
            Err(error) => error,
        }
    }

    fn steps(&self, folder: Option<&Path>) -> io::Result<Vec<Step>> {
        let mut steps = vec![Step::unshare()?, Step::Hide];
        if self.opt_ml.is_some() && !Path::new(OPT_ML).is_dir() {
            make_opt_ml(&mut steps)?;
        }
        for folder in &self.read_only {
            // The root is a mount already; a bind mount over it would not be visible.
            if folder != Path::new("/") {
                steps.push(Step::bind(folder, folder)?);
            }
            steps.push(Step::read_only(folder)?);
        }
        let is_read_only = |path: &Path| self.read_only.iter().any(|folder| path.starts_with(folder));
        let temporary = TEMPORARY.iter().map(PathBuf::from).chain([std::env::temp_dir()]);
        let writable = self.writable.iter().cloned().chain(temporary);
        // Canonical paths, outer folders first.
        let mut writable: Vec<PathBuf> = writable.filter_map(|path| path.canonicalize().ok()).collect();
        writable.sort();
        writable.dedup();
        for path in writable.iter().filter(|path| is_read_only(path)) {
            steps.push(Step::bind(path, path)?);
            steps.push(Step::Writable(text(path)?));
        }
        for bound in &self.bound {
            steps.push(Step::bind(&bound.folder, &bound.at)?);
            if !bound.is_writable {
                steps.push(Step::read_only(&bound.at)?);
            }
        }
        for overlay in &self.overlays {
            steps.push(Step::Enter(text(&overlay.base)?));
            steps.push(overlay.step()?);
        }
        if let Some(base) = &self.opt_ml {
            steps.push(Step::bind(base, Path::new(OPT_ML))?);
        }
        if let Some(folder) = folder {
            steps.push(Step::Enter(text(folder)?));
        }
        Ok(steps)
    }
}

/// Makes an empty `/opt/ml` if the machine has none: `/opt` becomes a file system in memory that shows the
/// entries of the machine's `/opt`, and `ml`.
fn make_opt_ml(steps: &mut Vec<Step>) -> io::Result<()> {
    let opt = Path::new("/opt");
    if fs::symlink_metadata(OPT_ML).is_ok() {
        return Err(io::Error::other(format!("{OPT_ML} is there and no folder")));
    }
    let entries = fs::read_dir(opt).map_err(|error| {
        io::Error::new(error.kind(), format!("/opt has to be there as a folder: {error}"))
    })?;
    // Once the new /opt covers the old one, the old entries are only reachable by relative paths from within
    // it.
    steps.extend([Step::Enter(text(opt)?), Step::Memory(text(opt)?)]);
    for entry in entries {
        let entry = entry?;
        let (name, kind, at) = (
            PathBuf::from(entry.file_name()),
            entry.file_type()?,
            text(&entry.path())?,
        );
        if kind.is_symlink() {
            let to = text(&fs::read_link(entry.path())?)?;
            steps.push(Step::Link { to, at });
            continue;
        }
        steps.push(match kind.is_dir() {
            true => Step::Folder(at),
            false => Step::File(at),
        });
        steps.push(Step::bind(&name, &entry.path())?);
    }
    steps.push(Step::Folder(text(Path::new(OPT_ML))?));
    Ok(())
}

/// Lets a command take the steps before it begins. Returns what tells of the step that was refused.
fn prepare(command: &mut Command, steps: Vec<Step>) -> io::Result<(io::PipeReader, Arc<[Step]>)> {
    let steps: Arc<[Step]> = steps.into();
    let (refused, mut writer) = io::pipe()?;
    let taken = Arc::clone(&steps);
    let take = move || {
        for (number, step) in taken.iter().enumerate() {
            if let Err(error) = step.take() {
                // Send the number of the failed step; the error itself is reported by `said`.
                let _ = writer.write_all(&(number as u64).to_le_bytes());
                return Err(error);
            }
        }
        Ok(())
    };
    // SAFETY: between fork and exec the closure makes system calls on data that was prepared before; it takes
    // no lock and does not allocate. An error of the system without a text of its own holds only its number.
    unsafe { command.pre_exec(take) };
    Ok((refused, steps))
}

/// The error of a command with the step that was refused, if it was one. The command, which has the pipe's writing end, is
/// dropped by now.
fn said(mut refused: io::PipeReader, steps: &[Step], error: io::Error) -> io::Error {
    let mut number = [0; 8];
    match refused.read_exact(&mut number) {
        Ok(()) => {
            let step = steps.get(u64::from_le_bytes(number) as usize);
            let step = step.map(ToString::to_string).unwrap_or_default();
            io::Error::new(error.kind(), format!("{step}: {error}{}", cause()))
        }
        // All steps succeeded, so it is the program that cannot be started.
        Err(_) => error,
    }
}

/// Starts a program after the given steps.
fn spawn(mut command: Command, steps: Vec<Step>) -> io::Result<Child> {
    let (refused, steps) = prepare(&mut command, steps)?;
    let spawned = command.spawn();
    drop(command);
    spawned.map_err(|error| said(refused, &steps, error))
}

/// A step of making a room.
#[derive(Debug)]
enum Step {
    /// Enter a new mount namespace, and a new user namespace where needed, with the contents of its maps.
    Unshare {
        user: String,
        group: String,
    },
    /// Keep mounts from now on invisible outside. Mounts made outside stay visible here.
    Hide,
    /// Change to a folder.
    Enter(CString),
    /// Mount a file system in memory.
    Memory(CString),
    Folder(CString),
    File(CString),
    Link {
        to: CString,
        at: CString,
    },
    Bind {
        folder: CString,
        at: CString,
    },
    /// Mount an overlay at a relative path; `shown` is the same path for messages.
    Overlay {
        options: CString,
        at: CString,
        shown: CString,
    },
    /// Make the mounts at and below a path read-only.
    ReadOnly(CString),
    /// Make the mount at a path writable, but not those below it.
    Writable(CString),
    /// End the process.
    Leave,
}

impl Step {
    fn unshare() -> io::Result<Self> {
        let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
        let map = |id: u32| format!("{id} {id} 1\n");
        Ok(Self::Unshare {
            user: map(user.as_raw()),
            group: map(group.as_raw()),
        })
    }

    fn bind(folder: &Path, at: &Path) -> io::Result<Self> {
        Ok(Self::Bind {
            folder: text(folder)?,
            at: text(at)?,
        })
    }

    fn read_only(at: &Path) -> io::Result<Self> {
        text(at).map(Self::ReadOnly)
    }

    /// Makes only system calls.
    fn take(&self) -> io::Result<()> {
        let (none, rec) = (None::<&std::ffi::CStr>, MsFlags::MS_REC);
        match self {
            Self::Unshare { user, group } => return unshare(user, group),
            Self::Hide => mount(none, c"/", none, rec | MsFlags::MS_SLAVE, none),
            Self::Enter(folder) => return Ok(rustix::process::chdir(folder)?),
            Self::Memory(at) => mount(
                Some(c"stokehold"),
                at.as_c_str(),
                Some(c"tmpfs"),
                MsFlags::MS_NOSUID | MsFlags::MS_NODEV,
                Some(c"mode=755"),
            ),
            Self::Folder(at) => return Ok(rustix::fs::mkdir(at, Mode::from_raw_mode(0o755))?),
            Self::File(at) => {
                let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
                return Ok(rustix::fs::open(at, flags, Mode::from_raw_mode(0o644)).map(drop)?);
            }
            Self::Link { to, at } => return Ok(rustix::fs::symlink(to, at)?),
            Self::Bind { folder, at } => mount(
                Some(folder.as_c_str()),
                at.as_c_str(),
                none,
                rec | MsFlags::MS_BIND,
                none,
            ),
            Self::Overlay { options, at, .. } => mount(
                Some(c"stokehold"),
                at.as_c_str(),
                Some(c"overlay"),
                MsFlags::MS_NOSUID | MsFlags::MS_NODEV,
                Some(options.as_c_str()),
            ),
            Self::ReadOnly(at) => return set(at, libc::MOUNT_ATTR_RDONLY, 0, libc::AT_RECURSIVE),
            Self::Writable(at) => return set(at, 0, libc::MOUNT_ATTR_RDONLY, 0),
            // SAFETY: ends this process at once, and skips exit handlers that others have registered.
            Self::Leave => unsafe { libc::_exit(0) },
        }
        .map_err(errno)
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = |path: &CString| path.to_string_lossy().into_owned();
        match self {
            Self::Unshare { .. } => f.write_str("a mount namespace"),
            Self::Hide => f.write_str("mounts that nobody else sees"),
            Self::Enter(folder) => write!(f, "entering {}", path(folder)),
            Self::Memory(at) => write!(f, "a file system in memory at {}", path(at)),
            Self::Folder(at) | Self::File(at) | Self::Link { at, .. } => write!(f, "making {}", path(at)),
            Self::Bind { folder, at } => write!(f, "mounting {} at {}", path(folder), path(at)),
            Self::Overlay { shown, .. } => write!(
                f,
                "mounting an overlay at {} (it wants overlayfs of Linux 5.11, and a folder of the jobs that is not itself \
                 in an overlay, as in a container, nor on NFS; put it on another file system with --jobs DIR or \
                 STOKEHOLD_JOBS)",
                path(shown)
            ),
            Self::ReadOnly(at) => write!(f, "making {} read-only (since Linux 5.12)", path(at)),
            Self::Writable(at) => write!(f, "making {} writable", path(at)),
            Self::Leave => f.write_str("ending"),
        }
    }
}

fn unshare(user: &str, group: &str) -> io::Result<()> {
    // SAFETY: no files are unshared, and the process has one thread.
    match unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) } {
        Err(rustix::io::Errno::PERM) => {}
        done => return Ok(done?),
    }
    // SAFETY: as above.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS | UnshareFlags::NEWUSER) }?;
    // An unprivileged process may map its group only after it has given up changing its groups.
    let maps = [
        (c"/proc/self/setgroups", "deny"),
        (c"/proc/self/uid_map", user),
        (c"/proc/self/gid_map", group),
    ];
    for (file, map) in maps {
        let file = rustix::fs::open(file, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
        rustix::io::write(&file, map.as_bytes())?;
    }
    Ok(())
}

/// Sets and clears attributes of mounts.
fn set(at: &CString, set: u64, clear: u64, below: libc::c_int) -> io::Result<()> {
    let attributes = libc::mount_attr {
        attr_set: set,
        attr_clr: clear,
        propagation: 0,
        userns_fd: 0,
    };
    // SAFETY: the path ends with a zero byte, and the kernel reads as many bytes of the attributes as the
    // size argument states.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            at.as_ptr(),
            below,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    };
    Errno::result(done).map(drop).map_err(errno)
}

fn errno(error: Errno) -> io::Error {
    io::Error::from_raw_os_error(error as i32)
}

fn text(path: &Path) -> io::Result<CString> {
    Ok(CString::new(path.as_os_str().as_bytes())?)
}

/// The setting of this machine that is known to forbid rooms, to append to the system's error.
fn cause() -> String {
    let holds = |file: &str, value: &str| fs::read_to_string(file).is_ok_and(|text| text.trim() == value);
    let mut causes = Vec::new();
    for (name, forbids) in [
        ("user/max_mnt_namespaces", "0"),
        ("user/max_user_namespaces", "0"),
        ("kernel/unprivileged_userns_clone", "0"),
        ("kernel/apparmor_restrict_unprivileged_userns", "1"),
    ] {
        if holds(&format!("/proc/sys/{name}"), forbids) {
            causes.push(format!("{} is {forbids}", name.replace('/', ".")));
        }
    }
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    if status
        .lines()
        .any(|line| line.split_whitespace().eq(["Seccomp:", "2"]))
    {
        causes.push("a seccomp filter is in force, as in a container".to_owned());
    }
    match causes.is_empty() {
        true => String::new(),
        false => format!(" ({})", causes.join(", ")),
    }
}
