//! A place where a data set lies.

use std::path::{Path, PathBuf};

use rustix::fs::{Advice, fadvise};
use serde_json::Value;
use stokehold_base::regular;
use stokehold_base::uri;
use stokehold_objects::Bucket;
use stokehold_storage::{Images, Source};

use super::Way;
use crate::{JobError, mounted_at};

/// A data set, and what can be said of it before it is read.
#[derive(Debug)]
pub struct Place {
    /// As it was given.
    pub uri: String,
    /// What the price of reading goes by: the scheme of a bucket, or the type of the file system. `efs` for Amazon's, which
    /// is NFS.
    pub(super) kind: String,
    /// Whether it has prepared shards.
    pub(super) is_shards: bool,
    /// The images that are read, and their bytes.
    pub(super) images: usize,
    pub(super) bytes: u64,
    /// All images.
    pub(super) all_images: usize,
    pub(super) all_bytes: u64,
    /// The names of the images, of files in a bucket.
    pub(super) manifest: Option<Vec<Value>>,
    /// The files, of a folder.
    files: Vec<PathBuf>,
}

impl Place {
    /// Lists a place.
    ///
    /// # Errors
    /// There are no images, or they cannot be listed.
    pub fn look(uri: &str, max_images: usize) -> Result<Self, JobError> {
        let is_remote = uri::is_remote(uri);
        let mut images = Images::unlabelled(uri).map_err(JobError::Images)?;
        let is_shards = matches!(images, Images::Shards(_));
        let sizes = |images: &Images| {
            (0..images.len())
                .filter_map(|image| images.size(image))
                .sum::<u64>()
        };
        let (all_images, mut all_bytes) = (images.len(), sizes(&images));
        let mut files = Vec::new();
        if is_shards {
            let bucket = Bucket::open(uri).map_err(JobError::Objects)?;
            let objects = bucket.list().map_err(JobError::Objects)?.objects;
            all_bytes = objects.iter().map(|object| object.size).sum();
            if !is_remote {
                files.extend(objects.iter().map(|object| Path::new(uri).join(&object.key)));
            }
        }
        images.limit(max_images);
        let name = |image: usize| String::from_utf8_lossy(images.below(image)).into_owned();
        let names = (0..if is_shards { 0 } else { images.len() }).map(name);
        let mut manifest = None;
        match is_remote {
            true if is_shards => {}
            true => manifest = Some(names.map(Value::from).collect()),
            false => files.extend(names.map(|name| Path::new(uri).join(name))),
        }
        let kind = match uri.split_once("://") {
            Some((scheme, _)) if is_remote => scheme.to_owned(),
            _ => mounted_at(Path::new(uri)).map_or_else(|| "folder".to_owned(), kind_of),
        };
        Ok(Self {
            uri: uri.to_owned(),
            kind,
            is_shards,
            images: images.len(),
            bytes: match is_shards {
                // Shards are of images of about one size.
                true => (all_bytes as f64 * images.len() as f64 / all_images.max(1) as f64) as u64,
                false => sizes(&images),
            },
            all_images,
            all_bytes,
            manifest,
            files,
        })
    }

    /// The ways to read it.
    pub(super) fn ways(&self) -> &'static [Way] {
        match (uri::is_remote(&self.uri), self.is_shards) {
            (true, false) => &Way::OF_FILES,
            (true, true) => &Way::OF_SHARDS,
            (false, _) => &[Way::Dir],
        }
    }

    /// Whether its bytes come from a disk or the memory of this machine, where reading costs nothing.
    pub(super) fn is_disk_of_this_machine(&self) -> bool {
        const DISKS: [&str; 9] = [
            "bcachefs", "btrfs", "ext2", "ext3", "ext4", "overlay", "tmpfs", "xfs", "zfs",
        ];
        DISKS.contains(&self.kind.as_str())
    }

    /// Drops what the kernel holds of the files in memory. Says so where that fails.
    pub(super) fn forget(&self) -> Option<String> {
        let forget = |path: &PathBuf| match regular::open(path) {
            Ok(file) => Ok(fadvise(file, 0, None, Advice::DontNeed)?),
            // A FIFO or the like is a bad image to the loader, which says so.
            Err(error) if error.kind() == std::io::ErrorKind::InvalidInput => Ok(()),
            Err(error) => Err(error),
        };
        let failed: std::io::Result<()> = self.files.iter().try_for_each(forget);
        let reason = failed.err()?;
        Some(format!(
            "its files may have come from memory, because the kernel could not drop them: {reason}"
        ))
    }
}

/// What the price of reading from a file system goes by. Amazon's has its name in the server's.
fn kind_of((kind, source): (String, String)) -> String {
    match source.contains(".efs.") {
        true => "efs".to_owned(),
        false => kind,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amazons_file_system_is_known_by_its_server() {
        let of = |kind: &str, source: &str| kind_of((kind.to_owned(), source.to_owned()));
        assert_eq!(of("nfs4", "fs-0123.efs.us-east-1.amazonaws.com:/"), "efs");
        assert_eq!(of("nfs4", "nas:/data"), "nfs4");
        assert_eq!(of("lustre", "10.0.0.1@tcp:/fsx"), "lustre");
    }
}
