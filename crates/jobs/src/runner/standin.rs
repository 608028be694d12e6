//! A stand-in for SageMaker's data parallel library: the Python package `smdistributed`, on torch.distributed.
//!
//! Scripts import `smdistributed.dataparallel.torch.distributed` and `..parallel.distributed` (the library's first form), or
//! `..torch_smddp` and ask torch for the backend `smddp` (its second). A job whose distribution is `smdistributed` has the
//! package in its folder and on `PYTHONPATH`, before what is installed, and says so.

use std::fs;
use std::path::{Path, PathBuf};

use stokehold_base::whole;

use crate::JobError;

const FILES: [(&str, &str); 7] = [
    ("__init__.py", include_str!("smdistributed/init.py")),
    ("dataparallel/__init__.py", ""),
    ("dataparallel/torch/__init__.py", ""),
    (
        "dataparallel/torch/distributed.py",
        include_str!("smdistributed/distributed.py"),
    ),
    ("dataparallel/torch/parallel/__init__.py", ""),
    (
        "dataparallel/torch/parallel/distributed.py",
        include_str!("smdistributed/parallel.py"),
    ),
    (
        "dataparallel/torch/torch_smddp.py",
        include_str!("smdistributed/torch_smddp.py"),
    ),
];

/// The folder for `PYTHONPATH`, below a job's folder.
pub(crate) fn path(job: &Path) -> PathBuf {
    job.join("stand-in")
}

/// Writes the package.
pub(super) fn write(job: &Path) -> Result<(), JobError> {
    for (name, text) in FILES {
        let file = path(job).join("smdistributed").join(name);
        let folder = file.parent().unwrap_or(job);
        fs::create_dir_all(folder).map_err(JobError::io(folder))?;
        whole::write(&file, text).map_err(JobError::io(&file))?;
    }
    Ok(())
}
