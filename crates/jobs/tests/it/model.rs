//! `model.tar.gz` of whoever made it: what is in it stays in its folder, and has bounds.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use flate2::Compression;
use flate2::write::GzEncoder;
use proptest::prelude::*;
use stokehold_base::fault::Fault;
use stokehold_jobs::{JobError, Unpacked, unpack};
use tar::EntryType;
use tempfile::TempDir;

#[derive(Debug, Clone)]
struct Entry {
    name: String,
    kind: EntryType,
    link: String,
    bytes: Vec<u8>,
}

fn file(name: &str, bytes: &[u8]) -> Entry {
    Entry {
        name: name.to_owned(),
        kind: EntryType::Regular,
        link: String::new(),
        bytes: bytes.to_owned(),
    }
}

fn other(name: &str, kind: EntryType, link: &str) -> Entry {
    Entry {
        kind,
        link: link.to_owned(),
        ..file(name, b"")
    }
}

/// An archive with any names, which tar's own builder would refuse.
fn archive(path: &Path, entries: &[Entry]) {
    let mut to = tar::Builder::new(GzEncoder::new(File::create(path).unwrap(), Compression::fast()));
    for entry in entries {
        let mut header = tar::Header::new_gnu();
        let fields = header.as_old_mut();
        let put = |field: &mut [u8], text: &str| {
            let length = text.len().min(field.len());
            field[..length].copy_from_slice(&text.as_bytes()[..length]);
        };
        put(&mut fields.name, &entry.name);
        put(&mut fields.linkname, &entry.link);
        header.set_entry_type(entry.kind);
        header.set_mode(0o6755);
        header.set_size(entry.bytes.len() as u64);
        header.set_cksum();
        to.append(&header, entry.bytes.as_slice()).unwrap();
    }
    to.into_inner().unwrap().finish().unwrap();
}

struct Place {
    dir: TempDir,
}

impl Place {
    fn new() -> Self {
        let dir = TempDir::new().unwrap();
        fs::create_dir(dir.path().join("in")).unwrap();
        fs::write(dir.path().join("secret"), "kept").unwrap();
        Self { dir }
    }

    fn archive(&self) -> PathBuf {
        self.dir.path().join("model.tar.gz")
    }

    fn model(&self) -> PathBuf {
        self.dir.path().join("in/model")
    }

    fn unpack(&self, entries: &[Entry]) -> Result<Unpacked, JobError> {
        archive(&self.archive(), entries);
        self.unpacked()
    }

    fn unpacked(&self) -> Result<Unpacked, JobError> {
        unpack(
            &self.archive(),
            &self.model(),
            &AtomicU64::new(0),
            &AtomicBool::new(false),
        )
    }

    /// The names in the folder next to which the model appears.
    fn beside(&self) -> Vec<String> {
        let entries = fs::read_dir(self.dir.path().join("in")).unwrap();
        entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    }

    /// Checks that nothing outside was made or changed, and that all that can be reached is inside.
    fn is_clean(&self, is_there: bool) {
        let mut names: Vec<_> = fs::read_dir(self.dir.path())
            .unwrap()
            .map(|e| e.unwrap().file_name())
            .collect();
        names.sort();
        assert_eq!(names, ["in", "model.tar.gz", "secret"]);
        assert_eq!(
            fs::read_to_string(self.dir.path().join("secret")).unwrap(),
            "kept"
        );
        assert_eq!(fs::metadata(self.dir.path().join("secret")).unwrap().nlink(), 1);
        assert_eq!(self.beside(), if is_there { vec!["model"] } else { Vec::new() });
        if is_there {
            let root = self.model().canonicalize().unwrap();
            all_inside(&root, &root);
        }
    }
}

fn all_inside(folder: &Path, root: &Path) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        // A link may lead nowhere; one that leads somewhere leads inside.
        if let Ok(real) = path.canonicalize() {
            assert!(real.starts_with(root), "{}: {}", path.display(), real.display());
        }
        let facts = fs::symlink_metadata(&path).unwrap();
        assert_eq!(facts.permissions().mode() & 0o6000, 0, "{}", path.display());
        assert!(facts.is_dir() || facts.is_file() || facts.is_symlink());
        if facts.is_dir() {
            all_inside(&path, root);
        }
    }
}

#[test]
fn a_model_is_unpacked_whole() {
    let place = Place::new();
    let done = AtomicU64::new(0);
    archive(
        &place.archive(),
        &[
            other("./", EntryType::Directory, ""),
            file("./model.pth", b"weights"),
            file("code/inference.py", b"code"),
            other("code/empty/", EntryType::Directory, ""),
            other("latest", EntryType::Symlink, "model.pth"),
            other("code/weights", EntryType::Symlink, "../model.pth"),
            other("same", EntryType::Link, "./model.pth"),
            file("code/inference.py", b"newer"),
        ],
    );
    let unpacked = unpack(&place.archive(), &place.model(), &done, &AtomicBool::new(false)).unwrap();
    assert_eq!(unpacked, Unpacked { files: 6, bytes: 16 });
    assert_eq!(done.load(Ordering::Relaxed), 16);
    place.is_clean(true);
    let read = |name: &str| fs::read_to_string(place.model().join(name)).unwrap();
    assert_eq!(
        read("code/weights") + &read("latest") + &read("same"),
        "weightsweightsweights"
    );
    assert_eq!(read("code/inference.py"), "newer");
    assert!(place.model().join("code/empty").is_dir());
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode();
    assert_eq!(mode(&place.model()), mode(&place.dir.path().join("in")));

    let error = place.unpacked().unwrap_err();
    assert!(
        error.is_input() && error.to_string().contains("is there already"),
        "{error}"
    );
    assert_eq!(read("latest"), "weights");
}

#[test]
fn what_gnu_tar_writes_is_read() {
    if !stokehold_untested::needs::has("tar", "GNU tar") {
        return;
    }
    let place = Place::new();
    let long = "a-long-name".repeat(12);
    let from = TempDir::new().unwrap();
    fs::create_dir(from.path().join("deep")).unwrap();
    fs::write(from.path().join("deep").join(&long), "long").unwrap();
    fs::hard_link(from.path().join("deep").join(&long), from.path().join("twin")).unwrap();
    for format in ["gnu", "posix", "ustar"] {
        if format == "ustar" {
            fs::rename(
                from.path().join("deep").join(&long),
                from.path().join("deep/short"),
            )
            .unwrap();
        }
        let status = Command::new("tar")
            .args(["-C", from.path().to_str().unwrap(), "--format", format, "-czf"])
            .arg(place.archive())
            .arg(".")
            .status()
            .unwrap();
        assert!(status.success());
        assert_eq!(place.unpacked().unwrap().files, 2, "{format}");
        let name = if format == "ustar" { "short" } else { &long };
        assert_eq!(
            fs::read_to_string(place.model().join("deep").join(name)).unwrap(),
            "long"
        );
        fs::remove_dir_all(place.model()).unwrap();
    }
}

#[test]
fn what_leads_out_of_the_folder_is_refused_as_a_whole() {
    let link = |name: &str, to: &str| other(name, EntryType::Symlink, to);
    let hard = |name: &str, to: &str| other(name, EntryType::Link, to);
    let cases: [(Vec<Entry>, &str); 19] = [
        (vec![file("../secret", b"x")], "\"../secret\" leads out"),
        (vec![file("a/../../secret", b"x")], "leads out"),
        (vec![file("/tmp/x", b"x")], "leads out"),
        (
            vec![link("l", "/etc/passwd")],
            "\"l\" is a link that leads out of the folder: /etc/passwd",
        ),
        (vec![link("l", "../secret")], "leads out"),
        (vec![link("a/l", "../../secret")], "leads out"),
        // Through another link: from a/b/l, which is the root, one step up.
        (
            vec![link("a/b/l", "../.."), link("a/b/m", "l/../secret")],
            "\"a/b/m\" is a link that leads out",
        ),
        (vec![link("l", "")], "leads out"),
        (
            vec![link("l", "."), file("l/x", b"x")],
            "\"l/x\" goes through a file or a link",
        ),
        (vec![file("f", b"x"), file("f/x", b"x")], "goes through a file"),
        (
            vec![file("f/x", b"x"), file("f", b"x")],
            "\"f\" is a folder before",
        ),
        (vec![hard("h", "../../secret")], "which leads out"),
        (vec![hard("h", "/etc/passwd")], "which leads out"),
        (
            vec![hard("h", "later"), file("later", b"x")],
            "which is no file of the archive before it",
        ),
        (
            vec![link("l", "x"), hard("h", "l")],
            "which is no file of the archive before it",
        ),
        (vec![hard("h", "")], "which is no file of the archive before it"),
        (
            vec![other("tty", EntryType::Char, "")],
            "\"tty\" is no file, folder or link",
        ),
        (
            vec![other("disk", EntryType::Block, "")],
            "is no file, folder or link",
        ),
        (
            vec![other("pipe", EntryType::Fifo, "")],
            "is no file, folder or link",
        ),
    ];
    for (bad, says) in cases {
        let place = Place::new();
        let entries = [vec![file("good", b"good")], bad].concat();
        let error = place.unpack(&entries).unwrap_err();
        assert!(
            error.is_input() && error.to_string().contains(says),
            "{entries:?}: {error}"
        );
        assert!(error.to_string().contains("model.tar.gz: "), "{error}");
        place.is_clean(false);
    }
}

#[test]
fn bombs_have_bounds() {
    // An entry of 2 GiB in an archive of some KiB.
    let place = Place::new();
    let mut to = GzEncoder::new(File::create(place.archive()).unwrap(), Compression::fast());
    let mut header = tar::Header::new_gnu();
    header.set_path("zeros").unwrap();
    header.set_size(2 << 30);
    header.set_cksum();
    to.write_all(header.as_bytes()).unwrap();
    to.write_all(&vec![0; 1 << 20]).unwrap();
    to.finish().unwrap();
    let error = place.unpacked().unwrap_err();
    assert!(
        error.is_input()
            && error
                .to_string()
                .contains("unpacks to more than 1073741824 bytes"),
        "{error}"
    );
    place.is_clean(false);

    // A name of 64 MiB.
    let long = Entry {
        kind: EntryType::GNULongName,
        bytes: vec![b'a'; 64 << 20],
        ..file("././@LongLink", b"")
    };
    let error = place.unpack(&[long, file("a", b"x")]).unwrap_err();
    assert!(error.to_string().contains("have more than 1 MiB"), "{error}");
    place.is_clean(false);
}

#[test]
fn an_archive_of_folders_alone_ends() {
    let place = Place::new();
    let deep = |number| other(&format!("{number}/{}", "a/".repeat(45)), EntryType::Directory, "");
    let error = place.unpack(&(0..230).map(deep).collect::<Vec<_>>()).unwrap_err();
    assert!(error.to_string().contains("more than 10000 folders"), "{error}");
    place.is_clean(false);
}

#[test]
fn damaged_archives_are_refused() {
    let place = Place::new();
    archive(&place.archive(), &[file("a", &vec![7; 300_000])]);
    let whole = fs::read(place.archive()).unwrap();
    for bytes in [
        &whole[..whole.len() / 2],
        &whole[..3],
        b"",
        b"plain text, and no archive at all".as_slice(),
    ] {
        fs::write(place.archive(), bytes).unwrap();
        let error = place.unpacked().unwrap_err();
        let says = if bytes.is_empty() {
            "it is empty"
        } else {
            "nothing is unpacked"
        };
        assert!(error.is_input() && error.to_string().contains(says), "{error}");
        place.is_clean(false);
    }
}

#[test]
fn what_is_stopped_leaves_nothing() {
    let place = Place::new();
    archive(&place.archive(), &[file("a", b"x")]);
    let stopped = unpack(
        &place.archive(),
        &place.model(),
        &AtomicU64::new(0),
        &AtomicBool::new(true),
    );
    assert!(stopped.unwrap_err().to_string().contains("unpacking was stopped"));
    place.is_clean(false);
}

proptest! {
    /// Whatever the names are, nothing outside of the folder is made, changed or reached.
    #[test]
    fn no_name_leads_out(entries in prop::collection::vec(entries(), 1..10)) {
        let place = Place::new();
        let is_there = place.unpack(&entries).is_ok();
        place.is_clean(is_there);
    }
}

fn entries() -> impl Strategy<Value = Entry> {
    // Few parts, so that entries meet.
    let part = prop_oneof![4 => "[ab]", 2 => Just("..".to_owned()), 1 => Just(".".to_owned()), 1 => Just(String::new())];
    let path = prop::collection::vec(part, 1..5).prop_map(|parts| parts.join("/"));
    let kind = prop::sample::select(vec![
        EntryType::Regular,
        EntryType::Directory,
        EntryType::Symlink,
        EntryType::Link,
    ]);
    (path.clone(), kind, path).prop_map(|(name, kind, link)| Entry {
        bytes: if kind == EntryType::Regular {
            b"x".to_vec()
        } else {
            Vec::new()
        },
        name,
        kind,
        link,
    })
}

#[test]
fn a_link_that_leads_out_is_packed_as_what_it_leads_to() {
    let bench = crate::Bench::new();
    let script = r#"mkdir -p "$HOME/c/deep"; echo blob > "$HOME/c/blob"; echo deep > "$HOME/c/deep/file"; ln -s ../blob "$HOME/c/deep/up"
        cd "$SM_MODEL_DIR"; mkdir in; echo x > in/x
        ln -s "$HOME/c/blob" model.bin; ln -s "$HOME/c/deep" in/deep; ln -s in/x inner; ln -s "$PWD/in/x" absolute; ln -s ../in/x in/again
        ln -s "$HOME/c/blob" "$SM_OUTPUT_DATA_DIR/out""#;
    let record = bench.run(&bench.job("run.sh", script));
    assert_eq!(record.status, stokehold_jobs::Status::Completed, "{record:?}");
    let into = bench.dir.path().join("fetched");
    let archive = PathBuf::from(record.model.unwrap());
    unpack(&archive, &into, &AtomicU64::new(0), &AtomicBool::new(false)).unwrap();
    for (name, text, is_link) in [
        ("model.bin", "blob\n", false),
        ("in/deep/file", "deep\n", false),
        ("in/deep/up", "blob\n", false),
        ("inner", "x\n", true),
        ("absolute", "x\n", false),
        ("in/again", "x\n", true),
    ] {
        let path = into.join(name);
        assert_eq!(fs::read_to_string(&path).unwrap(), text, "{name}");
        assert_eq!(path.is_symlink(), is_link, "{name}");
    }
    let output = crate::unpacked(Path::new(&record.output.unwrap()));
    assert!(
        output.contains(&("out".to_owned(), "blob\n".to_owned())),
        "{output:?}"
    );
}

#[test]
fn a_file_in_the_place_of_the_model_folder_is_packed() {
    let bench = crate::Bench::new();
    let here = "cd $SM_MODEL_DIR/..; rmdir model";
    for way in [
        "echo weights > model",
        "echo weights > best.pt; ln -s /opt/ml/best.pt model",
        "mkdir best; echo weights > best/model; ln -s best model",
    ] {
        let record = bench.run(&bench.job("run.sh", &format!("{here}; {way}")));
        let model = record
            .model
            .as_ref()
            .unwrap_or_else(|| panic!("{way}: {record:?}"));
        assert_eq!(
            crate::unpacked(Path::new(model)),
            [("model".to_owned(), "weights\n".to_owned())],
            "{way}"
        );
    }
    let record = bench.run(&bench.job("run.sh", here));
    assert_eq!(
        (record.status, record.model),
        (stokehold_jobs::Status::Completed, None)
    );
}

#[test]
fn the_log_says_which_pipes_are_not_packed() {
    let bench = crate::Bench::new();
    let script = "cd $SM_MODEL_DIR; mkdir in; mkfifo in/pipe";
    let record = bench.run(&bench.job("run.sh", script));
    assert_eq!(record.status, stokehold_jobs::Status::Completed, "{record:?}");
    let printed = bench.printed();
    let says = "stokehold err model.tar.gz is without what no archive can restore (pipes, sockets, devices): 1 of them";
    let line = printed.iter().find(|line| line.starts_with(says));
    assert!(
        line.is_some_and(|line| line.ends_with("model/in/pipe")),
        "{printed:?}"
    );
}

#[test]
fn a_link_that_cannot_be_packed_fails_the_job_with_the_reason() {
    let bench = crate::Bench::new();
    for (script, says) in [
        (
            "ln -s /no/such/blob m.bin",
            "model/m.bin is a link to /no/such/blob, which is not there",
        ),
        (
            "rm -r $SM_MODEL_DIR; ln -s /no/such/folder $SM_MODEL_DIR",
            "model is a link to /no/such/folder, which is not there",
        ),
        (
            "rm -r $SM_MODEL_DIR; ln -s /dev/null $SM_MODEL_DIR",
            "model is a link to /dev/null, which is no file or folder",
        ),
        (
            "ln -s nowhere m.bin",
            "model/m.bin is a link to nowhere, which is not there",
        ),
        (
            "ln -s a b; ln -s b a",
            "model/a is a link to b, which leads back to it",
        ),
        (
            "ln -s / all",
            "model/all is a link to /, a folder that it lies in",
        ),
        ("mkdir d; ln -s $PWD d/up", "a folder that it lies in"),
        (
            "ln -s /dev/null m.bin",
            "model/m.bin is a link to /dev/null, which is no file or folder",
        ),
        (
            "mkdir -p $HOME/c; ln -s $HOME/c $HOME/c/round; ln -s $HOME/c c",
            "c/round is a link to",
        ),
    ] {
        let record = bench.run(&bench.job("run.sh", &format!("cd $SM_MODEL_DIR; echo x > x; {script}")));
        assert_eq!(record.status, stokehold_jobs::Status::Failed, "{script}");
        let reason = record.failure_reason.unwrap();
        assert!(reason.contains(says), "{script}: {reason}");
        assert_eq!(record.model, None, "{script}");
    }
}
