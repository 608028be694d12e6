//! Answers the kernel's requests from the list and the tape.

use std::ffi::OsStr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, Generation, INodeNo, InitFlags, KernelConfig,
    LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEntry, ReplyOpen, ReplyStatfs, Request,
};

use stokehold_base::hash::Fnv;

use super::Complaints;
use super::tape::Tape;
use super::tree::{Node, Tree};

/// A year: the list does not change while it is mounted.
const FOR_EVER: Duration = Duration::from_secs(365 * 86_400);

/// Requests that the kernel may make on its own, to read ahead.
const BACKGROUND: u16 = 64;

/// The file system.
pub struct View {
    tree: Tree,
    tape: Arc<Tape>,
    channel: String,
    complaints: Arc<Complaints>,
    started: SystemTime,
    owner: (u32, u32),
    /// The permissions of folders and files. Those of a lower layer are also those of what is copied up from it.
    permissions: (u16, u16),
}

impl View {
    pub fn new(
        tree: Tree,
        tape: Arc<Tape>,
        (channel, is_lower): (String, bool),
        complaints: Arc<Complaints>,
    ) -> Self {
        let (user, group) = (rustix::process::getuid(), rustix::process::getgid());
        Self {
            tree,
            tape,
            channel,
            complaints,
            started: SystemTime::now(),
            owner: (user.as_raw(), group.as_raw()),
            permissions: if is_lower { (0o755, 0o644) } else { (0o555, 0o444) },
        }
    }

    fn facts(&self, number: u64) -> Option<FileAttr> {
        let (kind, size, modified, changed) = match self.tree.node(number)? {
            Node::Folder { .. } => (FileType::Directory, 0, self.started, self.started),
            Node::File(number) => {
                let object = self.tape.object(*number);
                let modified = UNIX_EPOCH + Duration::from_secs(object.modified.max(0) as u64);
                // Times are in whole seconds. With a fraction made of the version, two objects of one name, size and second differ.
                let version = self.tape.version(*number);
                let changed = modified + Duration::from_nanos(Fnv::of(version.as_bytes()) % 1_000_000_000);
                (FileType::RegularFile, object.size, modified, changed)
            }
        };
        Some(FileAttr {
            ino: INodeNo(number),
            size,
            blocks: size.div_ceil(512),
            atime: modified,
            mtime: modified,
            ctime: changed,
            crtime: modified,
            kind,
            perm: match kind {
                FileType::Directory => self.permissions.0,
                _ => self.permissions.1,
            },
            nlink: if kind == FileType::Directory { 2 } else { 1 },
            uid: self.owner.0,
            gid: self.owner.1,
            rdev: 0,
            blksize: 128 << 10,
            flags: 0,
        })
    }
}

impl Filesystem for View {
    fn init(&mut self, _: &Request, kernel: &mut KernelConfig) -> std::io::Result<()> {
        // Old kernels lack both. Then they list folders one call at a time, and read less ahead.
        let _ = kernel.add_capabilities(InitFlags::FUSE_PARALLEL_DIROPS);
        let _ = kernel.set_max_background(BACKGROUND);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = name.to_str().and_then(|name| self.tree.find(parent.0, name));
        match found.and_then(|number| self.facts(number)) {
            Some(facts) => reply.entry(&FOR_EVER, &facts, Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.facts(ino.0) {
            Some(facts) => reply.attr(&FOR_EVER, &facts),
            None => reply.error(Errno::ENOENT),
        }
    }

    /// Opening needs no work. After this answer the kernel does not ask again, and keeps its cache.
    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.error(Errno::ENOSYS);
    }

    fn opendir(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.error(Errno::ENOSYS);
    }

    fn readdir(&self, _: &Request, ino: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let Some(Node::Folder { parent, children }) = self.tree.node(ino.0) else {
            return reply.error(Errno::ENOTDIR);
        };
        let dots = [(".", ino.0), ("..", *parent)];
        let names = children.iter().map(|(name, number)| (&**name, *number));
        let rest = dots.into_iter().chain(names).skip(offset as usize);
        for (next, (name, number)) in (offset + 1..).zip(rest) {
            let kind = match self.tree.node(number) {
                Some(Node::File(_)) => FileType::RegularFile,
                _ => FileType::Directory,
            };
            if reply.add(INodeNo(number), next, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let Some(Node::File(object)) = self.tree.node(ino.0) else {
            return reply.error(Errno::EISDIR);
        };
        match self
            .tape
            .read(*object, offset..offset.saturating_add(size.into()))
        {
            Ok(read) => {
                reply.data(&read.bytes);
                if let Err(error) = self.tape.keep(read.fresh) {
                    self.complaints.add(format!("channel {}: {error}", self.channel));
                }
            }
            Err(error) => {
                self.complaints.add(format!("channel {}: {error}", self.channel));
                reply.error(Errno::EIO);
            }
        }
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let block = 4096;
        let (bytes, files) = (self.tape.len(), self.tape.objects() as u64);
        reply.statfs(
            bytes.div_ceil(block),
            0,
            0,
            files,
            0,
            block as u32,
            255,
            block as u32,
        );
    }
}
