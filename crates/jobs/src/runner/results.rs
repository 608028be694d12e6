//! What a job leaves: archives in its folder, and copies of them at its output's place.

use std::fs;
use std::io::Read;
use std::path::Path;

use stokehold_objects::Bucket;

use super::Runner;
use crate::JobError;
use crate::contract::Instance;
use crate::data::archive;
use crate::data::open::open;

impl Runner<'_> {
    /// Packs the results into the job's folder, and copies them, the recording and its report to the output
    /// place, with SageMaker's layout.
    pub(super) fn upload(&self, instances: &[Instance]) -> Result<(), JobError> {
        let folder = self.folder.file("output");
        fs::create_dir_all(&folder).map_err(JobError::io(&folder))?;
        let place = self
            .job
            .output
            .as_deref()
            .map(|uri| self.place(uri))
            .transpose()?;
        for (below, name) in [("model", "model.tar.gz"), ("output/data", "output.tar.gz")] {
            let from: Vec<&Path> = instances.iter().map(|instance| instance.base.as_path()).collect();
            let to = folder.join(name);
            let packed = archive::pack(&from, below, &to)?;
            if let Some(first) = packed.left_out.first() {
                self.lines.say(&format!(
                    "{name} is without what no archive can restore (pipes, sockets, devices): {} of them, such as {}",
                    packed.left_out.len(),
                    first.display()
                ));
            }
            if !packed.is_written {
                continue;
            }
            let is_at = |uri: String| {
                self.change(|record| match below {
                    "model" => record.model = Some(uri),
                    _ => record.output = Some(uri),
                })
            };
            is_at(to.display().to_string())?;
            if let Some(bucket) = &place {
                is_at(self.send(bucket, &format!("output/{name}"), &to)?)?;
            }
        }
        for name in PROFILE {
            let folder = self.folder.file(name);
            if let Some(bucket) = place.as_ref().filter(|_| folder.is_dir()) {
                for (below, path) in archive::files(&folder)? {
                    self.send(bucket, &format!("{name}/{}", below.display()), &path)?;
                }
            }
        }
        Ok(())
    }

    /// Checks, before the script starts, whether results can be uploaded: puts an object at the output place
    /// and removes it.
    pub(super) fn try_output(&self) -> Result<(), JobError> {
        let Some(uri) = &self.job.output else {
            return Ok(());
        };
        let bucket = self.place(uri)?;
        let key = format!(
            "{}/output/.writable",
            self.job.name.as_deref().unwrap_or_default()
        );
        let put = bucket.upload(&key, 0).and_then(|upload| upload.finish());
        put.map_err(JobError::Output)?;
        // With permission to put but not to delete, an empty object stays.
        let _ = bucket.delete(&key);
        Ok(())
    }

    fn place(&self, uri: &str) -> Result<Bucket, JobError> {
        if !uri.contains("://") {
            fs::create_dir_all(uri).map_err(JobError::io(Path::new(uri)))?;
        }
        open(self.job, uri).map_err(JobError::Output)
    }

    /// Uploads a file to the output place, piece by piece. Returns its URI there.
    fn send(&self, bucket: &Bucket, name: &str, path: &Path) -> Result<String, JobError> {
        let key = format!("{}/{name}", self.job.name.as_deref().unwrap_or_default());
        let disk = || JobError::io(path);
        let mut file = fs::File::open(path).map_err(disk())?;
        let size = file.metadata().map_err(disk())?.len();
        let mut upload = bucket.upload(&key, size).map_err(JobError::Output)?;
        let mut piece = vec![0; 1 << 20];
        loop {
            match file.read(&mut piece).map_err(disk())? {
                0 => break,
                n => upload.write(&piece[..n]).map_err(JobError::Output)?,
            }
        }
        upload.finish().map_err(JobError::Output)?;
        Ok(bucket.location().uri(&key))
    }
}

/// The folders of the recording and its report.
const PROFILE: [&str; 2] = [stokehold_profile::FOLDER, "rule-output"];
