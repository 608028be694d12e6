//! What can end a preparation.

use std::io;
use std::path::PathBuf;

use stokehold_base::fault::Fault;
use stokehold_storage::StorageError;

/// Why a data set cannot be prepared, checked or unpacked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PrepareError {
    /// The data set, or the prepared one, cannot be read.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The data set is a prepared one.
    #[error(
        "{}: these are shards already; give the folder of images that they were made of, or unpack them to files first \
         (prepare SHARDS --extract DIR)", path.display()
    )]
    PreparedAlready {
        /// The data set's folder.
        path: PathBuf,
    },
    /// The images have masks, and something was asked that would leave the masks behind.
    #[error("{}: the images have masks, which {what}; leave it out", path.display())]
    Pairs {
        /// The data set's folder.
        path: PathBuf,
        /// What cannot be done to masks.
        what: &'static str,
    },
    /// The masks that were left out are not those of the images that were.
    #[error(
        "{}: masks are missing here whose images are there, or the other way round: files have changed since an earlier call; \
         remove the folder of shards, and prepare it again", path.display()
    )]
    Changed {
        /// The folder of the masks' shards.
        path: PathBuf,
    },
    /// The shards would be among the images.
    #[error("{}: it lies among the images, where it would be a class of the data set; give a folder beside them", path.display())]
    Inside {
        /// The folder of the shards.
        path: PathBuf,
    },
    /// An image cannot be decoded.
    #[error("{name}: {reason}; remove it, or skip bad images")]
    BadImage {
        /// The file.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// All images of a part are broken.
    #[error("{}: not one image of it can be decoded; the first: {reason}", path.display())]
    NoGoodImage {
        /// The folder of the part.
        path: PathBuf,
        /// What is wrong with the first one, with its name.
        reason: String,
    },
    /// Something is to be performed on a part that the data set does not have.
    #[error("{}: it has no {part}/, on which a pipeline's head could be performed", path.display())]
    NoPart {
        /// The data set's folder.
        path: PathBuf,
        /// The part.
        part: String,
    },
    /// What was performed makes a part larger.
    #[error(
        "{part}: {times:.2} times as many bytes as the files ({of}); take a lower quality, or allow larger shards, which reads \
         more to decode less"
    )]
    Larger {
        /// The part.
        part: String,
        /// Bytes of the samples divided by those of the files.
        times: f64,
        /// What was measured.
        of: &'static str,
    },
    /// Operations cannot be written down.
    #[error("a pipeline's head cannot be written to the manifest: {0}")]
    Operations(String),
    /// There is something else where the shards should go.
    #[error(
        "{}: contains something other than an unfinished preparation of this data set with these options; give a new \
         folder or an empty one",
        path.display()
    )]
    Occupied {
        /// The folder.
        path: PathBuf,
    },
    /// The shares of several workers cannot be joined.
    #[error("{}: {reason}", path.display())]
    Shares {
        /// The folder of the shares, or a file of one.
        path: PathBuf,
        /// What is missing or wrong, and what to do.
        reason: String,
    },
    /// Another process writes there.
    #[error("{}: another preparation is at work here", path.display())]
    Busy {
        /// The folder.
        path: PathBuf,
    },
    /// The folder holds no shards.
    #[error("{}: not a prepared data set: there is no shards.json in it", path.display())]
    NotPrepared {
        /// The folder.
        path: PathBuf,
    },
    /// A name in a shard would lead out of the folder that is unpacked into.
    #[error("{name:?}: no name for a file below a folder; this shard is not to be trusted")]
    Name {
        /// The name.
        name: String,
    },
    /// A file cannot be written.
    #[error("{}: cannot write: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// A tar file is not what was written.
    #[error("{}: {reason}", path.display())]
    Tar {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A thread cannot be started.
    #[error("cannot start a thread: {0}")]
    Spawn(io::Error),
    /// The work was asked to stop.
    #[error("interrupted; run the same command to continue after the finished shards")]
    Interrupted,
}

impl Fault for PrepareError {
    fn is_input(&self) -> bool {
        match self {
            Self::Storage(error) => error.is_input(),
            Self::Write { .. } | Self::Spawn(_) | Self::Interrupted => false,
            _ => true,
        }
    }
}
