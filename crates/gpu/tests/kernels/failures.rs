//! What becomes of a CUDA device that fails, and of one that lacks something, on the stand-in for the driver
//! (crate `cuda-on-cpu`, as `.ci/cuda` runs it). Each case is a process of its own: it opens the device and makes
//! an epoch's batches, which are compared with the CPU's.

use crate::loader::{content, cpu_content, files, on_cpu, on_device, options};
use std::collections::BTreeSet;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use stokehold_gpu::{Backend, Decode, Gpu, devices_of};
use stokehold_loader::BadImagePolicy;

/// The device that a child opens.
const DEVICE: &str = "STOKEHOLD_TEST_CUDA_DEVICE";

/// More than any child takes, on a machine that is busy.
const LIMIT: Duration = Duration::from_secs(300);

/// Opens the device and makes an epoch; says what it did, line by line.
#[test]
#[ignore = "a process that other tests begin"]
fn child() {
    // The test's own line ends here.
    println!();
    let found = devices_of(Backend::Cuda);
    for device in &found.usable {
        println!("device: {} {}", device.name, device.description);
    }
    if let Some(problem) = found.problem {
        println!("problem: {problem}");
    }
    let name = std::env::var(DEVICE).expect("a device");
    let gpu = match Gpu::open(name.parse().expect("a name")) {
        Ok(gpu) => gpu,
        Err(error) => return println!("not opened: {error}"),
    };
    let cpu = on_cpu(files(false), options(BadImagePolicy::Error));
    let device = on_device(&gpu, files(false), options(BadImagePolicy::Error), Decode::Device);
    let mut expected = cpu.epoch(0);
    for batch in device.epoch(0) {
        let same = expected.next().expect("as many").expect("a batch");
        // `content` reads the batch, which a device that broke after it was made does not give.
        let read = batch.map(|batch| {
            let read = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| content(&gpu, &batch)));
            read.map_err(|panic| stokehold_loader::panic_message(&*panic).to_owned())
        });
        match read {
            Ok(Ok(read)) if read == cpu_content(&same) => println!("batch: same"),
            Ok(Ok(_)) => println!("batch: WRONG"),
            Ok(Err(why)) => println!("batch: not read: {}", why.replace('\n', " ")),
            Err(error) => println!("failed: {error}"),
        }
    }
    println!("end");
}

/// What a child said.
#[derive(Debug)]
pub struct Said {
    lines: Vec<String>,
}

impl Said {
    pub fn count(&self, start: &str) -> usize {
        self.lines.iter().filter(|line| line.starts_with(start)).count()
    }

    /// The rest of the first line that begins so.
    #[track_caller]
    fn after(&self, start: &str) -> &str {
        let found = self.lines.iter().find_map(|line| line.strip_prefix(start));
        found.unwrap_or_else(|| panic!("no line begins with {start:?}: {self:#?}"))
    }
}

/// Whether the driver is the stand-in.
pub fn is_stand_in() -> bool {
    let found = devices_of(Backend::Cuda);
    let is = found
        .usable
        .iter()
        .any(|device| device.description.contains("CUDA on the CPU"));
    // Where a run names the stand-in, it must not pass by skipping what needs it.
    assert!(
        is || std::env::var_os("STOKEHOLD_TEST_STAND_IN").is_none(),
        "the first CUDA device is not crate cuda-on-cpu's: {found:?}"
    );
    if !is {
        stokehold_untested::skip(
            "these failures are made by crate cuda-on-cpu in the driver's place: .ci/cuda",
        );
    }
    is
}

fn run(device: &str, set: &[(&str, &str)], unset: &[&str]) -> Said {
    let set = [&[(DEVICE, device)], set].concat();
    let said = run_test("failures::child", &set, unset);
    assert_eq!(said.count("batch: WRONG"), 0, "{set:?}: {said:#?}");
    said
}

/// Runs an ignored test of this program in a process of its own, where it must succeed.
pub fn run_test(test: &str, set: &[(&str, &str)], unset: &[&str]) -> Said {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command
        .args(["--exact", test, "--ignored", "--nocapture", "--test-threads=1"])
        .envs(set.iter().copied())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    for name in unset {
        command.env_remove(name);
    }
    let mut child = command.spawn().expect("a process");
    let mut pipe = child.stdout.take().expect("a pipe");
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        pipe.read_to_string(&mut text).map(|_| text)
    });
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("a child") {
            break status;
        }
        if start.elapsed() > LIMIT {
            child.kill().expect("a child");
            panic!("{set:?}: it does not end");
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let text = reader.join().expect("no panic").expect("text");
    let lines = text.lines().map(str::to_owned).collect();
    let said = Said { lines };
    assert!(status.success(), "{set:?}: {status}: {said:#?}");
    said
}

/// Without a failure all batches are made, so the cases below fail by what is asked for.
#[test]
fn nothing_fails_that_is_not_asked_to() {
    if !is_stand_in() {
        return;
    }
    let said = run("cuda:0", &[], &[]);
    assert_eq!(
        (said.count("batch: same"), said.count("end")),
        (9, 1),
        "{said:#?}"
    );
    assert_eq!((said.count("failed"), said.count("problem")), (0, 0), "{said:#?}");
}

#[test]
fn a_full_memory_is_an_error_that_names_the_need() {
    if !is_stand_in() {
        return;
    }
    // As if other programs used the rest. Nothing is there, and it is not opened.
    let said = run("cuda:0", &[("CUDA_ON_CPU_LIMIT", "40000")], &[]);
    let error = said.after("not opened: ");
    assert!(
        error.contains("out of device memory") && error.contains("others use its memory"),
        "{error}"
    );
    // Opened, and what the first batch needs is not there.
    let said = run("cuda:0", &[("CUDA_ON_CPU_LIMIT", "9000000")], &[]);
    let error = said.after("failed: ");
    assert!(
        error.contains("out of device memory") && error.contains("make the batches smaller"),
        "{error}"
    );
    assert_eq!(said.count("batch: same"), 0, "{said:#?}");
}

/// Each module in turn, from the first kernel that opening runs.
#[test]
fn a_refused_module_is_an_error_before_or_at_its_batch() {
    if !is_stand_in() {
        return;
    }
    let said = run("cuda:0", &[("CUDA_ON_CPU_REFUSE", "1")], &[]);
    let error = said.after("not opened: ");
    assert!(
        error.contains("module 1 is refused") && error.contains("CUDA_ERROR_INVALID_PTX"),
        "{error}"
    );
    for module in ["2", "5", "8"] {
        let said = run("cuda:0", &[("CUDA_ON_CPU_REFUSE", module)], &[]);
        let error = said.after("failed: ");
        assert!(
            error.contains("is refused, as was asked for"),
            "{module}: {error}"
        );
    }
}

/// In the first batch and in later ones: those before are right, and the device's error ends the epoch.
#[test]
fn a_device_that_breaks_ends_the_epoch() {
    if !is_stand_in() {
        return;
    }
    let mut made = Vec::new();
    for launch in ["1", "2", "6", "40", "70"] {
        let said = run("cuda:0", &[("CUDA_ON_CPU_FAULT", launch)], &[]);
        let error = said.lines.iter().find(|line| {
            ["failed: ", "not opened: ", "batch: not read: "]
                .iter()
                .any(|start| line.starts_with(start))
        });
        // The driver's name of it, or its number, whichever CubeCL hands on.
        let is_the_fault = |line: &String| line.contains("ILLEGAL_ADDRESS") || line.contains("status 700");
        assert!(error.is_some_and(is_the_fault), "{launch}: {said:#?}");
        // It has nothing to do with memory that is full.
        let batch = error.filter(|line| line.starts_with("failed: "));
        let has_advice = |line: &String| line.contains("start it again") && !line.contains("batches smaller");
        assert!(batch.is_none_or(has_advice), "{launch}: {said:#?}");
        made.push(said.count("batch: same"));
    }
    assert_eq!(made[..2], [0, 0], "{made:?}");
    assert!(made[4] > 0 && made[4] < 9, "{made:?}");
}

#[test]
fn what_is_missing_is_said_before_anything_is_made() {
    if !is_stand_in() {
        return;
    }
    let said = run("cuda:0", &[], &["CUDA_PATH"]);
    // A machine may have a toolkit of its own.
    if said.count("batch: same") == 0 {
        let problem = said.after("problem: ");
        assert!(
            problem.starts_with("no CUDA toolkit was found, and CUDA_PATH is not set"),
            "{problem}"
        );
    }
    let folders = std::env::var("LD_LIBRARY_PATH").expect("where the stand-in is");
    let without = |name: &str| {
        let kept = folders
            .split(':')
            .filter(|folder| !Path::new(folder).join(name).exists());
        kept.collect::<Vec<_>>().join(":")
    };
    let said = run("cuda:0", &[("LD_LIBRARY_PATH", &without("libcuda.so"))], &[]);
    let problem = said.after("problem: ");
    assert_eq!(problem, "libcuda.so.1 was not found; install NVIDIA's driver");
    let said = run("cuda:0", &[("LD_LIBRARY_PATH", &without("libnvrtc.so.12"))], &[]);
    let problem = said.after("problem: ");
    assert!(
        problem.starts_with("libnvrtc.so was not found") && problem.contains("pip install"),
        "{problem}"
    );
}

/// The driver rejects what a newer NVRTC writes, and NVRTC what it does not know.
#[test]
fn versions_that_do_not_fit_are_said_with_what_to_install() {
    if !is_stand_in() {
        return;
    }
    let said = run("cuda:0", &[("CUDA_ON_CPU_DRIVER", "12.2")], &[]);
    let error = said.after("not opened: ");
    assert!(error.contains("CUDA_ERROR_UNSUPPORTED_PTX_VERSION"), "{error}");
    assert!(error.contains("'nvidia-cuda-nvrtc-cu12<12.3'"), "{error}");
    let said = run("cuda:0", &[("CUDA_ON_CPU_SM", "130")], &[]);
    let error = said.after("not opened: ");
    assert!(error.contains("gpu-architecture"), "{error}");
}

#[test]
fn each_of_two_devices_is_used_as_what_it_is() {
    if !is_stand_in() {
        return;
    }
    let two = ("CUDA_ON_CPU_SM", "75,90");
    for device in ["cuda:0", "cuda:1"] {
        let said = run(device, &[two], &[]);
        assert_eq!(
            (said.count("device: "), said.count("batch: same")),
            (2, 9),
            "{said:#?}"
        );
    }
    // A device that NVRTC does not know does not disturb the other.
    let said = run("cuda:0", &[("CUDA_ON_CPU_SM", "80,130")], &[]);
    assert_eq!(said.count("batch: same"), 9, "{said:#?}");
    let said = run("cuda:1", &[("CUDA_ON_CPU_SM", "80,130")], &[]);
    assert_eq!(
        (said.count("not opened"), said.count("batch: same")),
        (1, 0),
        "{said:#?}"
    );
}

/// A folder for PTX.
fn ptx_folder(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("stokehold-{name}-{}", std::process::id()))
}

/// What NVRTC makes of the kernels of tests of this program, in addition to what is in the folder, which is removed.
fn ptx_of(tests: &[&str], folder: &Path) -> BTreeSet<String> {
    let tests = Command::new(std::env::current_exe().expect("this program"))
        .args(tests)
        .arg("--test-threads=2")
        .env("CUDA_ON_CPU_PTX", folder)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    let files = std::fs::read_dir(folder).expect("a folder");
    let texts = files.map(|file| std::fs::read_to_string(file.expect("a file").path()).expect("PTX"));
    let texts = texts.collect();
    std::fs::remove_dir_all(folder).expect("a folder");
    assert!(tests.expect("a process").success());
    texts
}

/// What NVRTC makes of all kernels of an epoch, of the augmentations and of packed images.
fn kernels() -> BTreeSet<String> {
    let folder = ptx_folder("ptx");
    let kept = folder.to_str().expect("a path in UTF-8");
    run("cuda:0", &[("CUDA_ON_CPU_PTX", kept)], &[]);
    // The kernels of augmentation are those of other tests.
    ptx_of(&["augment::", "packed::packed_images"], &folder)
}

/// Sums of products are only `fused`'s bits if no compiler merges them: neither NVRTC, which makes PTX, nor the driver, which makes
/// the GPU's instructions of it and may merge what has no rounding of its own, as these have none (PTX ISA, `mul`). Of the
/// driver the assembler ptxas is a part, and `.ci/cuda` says where it is.
#[test]
fn no_kernel_has_merged_flushed_or_approximate_floats() {
    if !is_stand_in() {
        return;
    }
    let kernels = kernels();
    let mut products = 0;
    for text in &kernels {
        for line in text.lines().map(str::trim) {
            let instruction = line.split_whitespace().find(|word| !word.starts_with('@'));
            let words: Vec<&str> = instruction.unwrap_or_default().split('.').collect();
            let is_float = words.last().is_some_and(|ty| ty.starts_with('f'));
            products += usize::from(words[0] == "mul" && is_float);
            let is_merged = words[0] == "fma" || (words[0] == "mad" && is_float);
            let is_rough = ["ftz", "approx", "full"].iter().any(|word| words.contains(word)) && is_float;
            let is_bad = is_merged || is_rough;
            assert!(!is_bad, "{line}");
        }
    }
    assert!(
        kernels.len() >= 18 && products > 20,
        "{} files with {products} products",
        kernels.len()
    );
    let Some(tools) = std::env::var_os("STOKEHOLD_TEST_PTXAS") else {
        return stokehold_untested::skip(
            "the GPU's instructions: STOKEHOLD_TEST_PTXAS names no ptxas and nvdisasm",
        );
    };
    let tools: Vec<PathBuf> = std::env::split_paths(&tools).collect();
    for kernel in &kernels {
        assert_assembled(kernel, &tools);
    }
}

/// What the driver's assembler makes of a kernel has no merged floats, keeps all but two values in registers, and of the kernel that
/// makes all pixels takes so few that a multiprocessor has room for half of its threads.
fn assert_assembled(ptx: &str, tools: &[PathBuf]) {
    let tool = |name: &str| {
        let found = tools
            .iter()
            .map(|folder| folder.join(name))
            .find(|tool| tool.exists());
        Command::new(found.unwrap_or_else(|| panic!("STOKEHOLD_TEST_PTXAS has no {name}")))
    };
    let after = |start: &str| ptx.lines().find_map(|line| line.trim().strip_prefix(start));
    let target = after(".target ")
        .expect("a target")
        .split(',')
        .next()
        .expect("a target");
    let name = after(".visible .entry ").expect("a kernel").trim_end_matches('(');
    let file = std::env::temp_dir().join(format!("stokehold-{}.ptx", std::process::id()));
    let cubin = file.with_extension("cubin");
    std::fs::write(&file, ptx).expect("a file");
    let assembled = tool("ptxas")
        .args(["-v", "-arch", target.trim(), "-o"])
        .args([&cubin, &file])
        .output();
    let assembled = assembled.expect("ptxas");
    let said = String::from_utf8_lossy(&assembled.stderr).into_owned();
    assert!(assembled.status.success(), "{name}: {said}");
    let disassembled = tool("nvdisasm").arg(&cubin).output().expect("nvdisasm");
    assert!(disassembled.status.success(), "{name}: {disassembled:?}");
    let instructions = String::from_utf8_lossy(&disassembled.stdout).into_owned();
    for file in [file, cubin] {
        std::fs::remove_file(file).expect("a file");
    }
    assert!(instructions.contains("EXIT"), "{name}: {instructions}");
    let merged = instructions
        .lines()
        .find(|line| line.contains("FFMA") || line.contains("DFMA"));
    assert_eq!(merged, None, "{name}");
    let number = |before: &str, after: &str| {
        let place = said.find(after).expect("ptxas says so");
        let number = said[..place].rsplit(before).next().unwrap_or_default();
        number.trim().parse::<u32>().expect("a number")
    };
    let (registers, spilt) = (number("Used ", " registers"), number(", ", " bytes spill stores"));
    println!("{name} {target}: {registers} registers, {spilt} bytes spilt");
    // The assembler gives one kernel two values less than it could have; more would be slow.
    assert!(spilt <= 8, "{name}: {said}");
    assert!(!name.starts_with("resample") || registers <= 64, "{name}: {said}");
}

/// Where a plane is a warp, the kernels of packed images share work among its lanes. What they do elsewhere has the same
/// results, so only NVRTC's text tells which it is.
#[test]
fn packed_images_are_read_by_warps() {
    if !is_stand_in() {
        return;
    }
    let test = "packed::packed_images_jpegs_and_pngs_share_a_batch";
    let texts = ptx_of(&["--exact", test], &ptx_folder("warps"));
    let mut all = String::new();
    for kernel in ["types", "tokens", "first"] {
        let entry = format!(".entry {kernel}_");
        let text = texts.iter().find(|text| text.contains(&entry));
        let text = text.unwrap_or_else(|| panic!("no kernel {kernel} was loaded"));
        assert!(
            text.contains("shfl.sync") || text.contains("vote.sync"),
            "{kernel}: {text}"
        );
        all.push_str(text);
    }
    assert!(all.contains("shfl.sync") && all.contains("vote.sync"), "{all}");
}
