//! A Slurm cluster of two nodes on this machine, n1 and n2, which ends with the test.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};
use stokehold_untested::until;

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, Uid};
use stokehold_untested::skip;
use tempfile::TempDir;

/// Marks the processes of a node in their environment, where the cluster's own name is not enough.
const NODE: &str = "STOKEHOLD_TEST_NODE";

/// One cluster at a time: two of them would be slow, and their tests wait for time to pass.
static ONE: Mutex<()> = Mutex::new(());

pub struct Cluster {
    dir: TempDir,
    _one: MutexGuard<'static, ()>,
}

impl Cluster {
    /// Starts munge, slurmctld and two slurmd; `None` where they are not installed, or need another user.
    #[track_caller]
    pub fn start() -> Option<Self> {
        let has = |name: &str| {
            let paths = std::env::var_os("PATH").unwrap_or_default();
            std::env::split_paths(&paths).any(|folder| folder.join(name).is_file())
        };
        let missing = ["munged", "slurmctld", "slurmd", "sbatch"]
            .into_iter()
            .find(|name| !has(name));
        if let Some(missing) = missing {
            skip(format_args!(
                "there is no {missing} (Debian: munge slurmctld slurmd slurm-client)"
            ));
            return None;
        }
        if !Uid::effective().is_root() {
            skip("a cluster on one machine is started by root");
            return None;
        }
        let one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let cluster = Self {
            dir: TempDir::new().unwrap(),
            _one: one,
        };
        cluster.begin();
        Some(cluster)
    }

    /// A folder that all nodes have.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join("shared").join(name)
    }

    pub fn write(&self, name: &str, text: &str) {
        fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
        fs::write(self.path(name), text).unwrap();
    }

    fn begin(&self) {
        let dir = self.dir.path();
        for folder in ["state", "munge", "shared", "spool-n1", "spool-n2"] {
            fs::create_dir(dir.join(folder)).unwrap();
        }
        let only_me =
            |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        only_me(&dir.join("munge"), 0o700);
        let key = dir.join("munge/key");
        fs::write(&key, [7; 1024]).unwrap();
        only_me(&key, 0o400);
        let [controller, n1, n2] = free_ports();
        let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        let (host, at) = (host.trim(), dir.display());
        let socket = dir.join("munge/socket");
        fs::write(
            dir.join("slurm.conf"),
            format!(
                "ClusterName=test\nSlurmctldHost={host}\nSlurmctldPort={controller}\nSlurmUser=root\nSlurmdUser=root\n\
                 AuthType=auth/munge\nAuthInfo=socket={socket},cred_expire=5\nCredType=cred/munge\nStateSaveLocation={at}/state\n\
                 SlurmdSpoolDir={at}/spool-%n\nSlurmctldPidFile={at}/ctld.pid\nSlurmdPidFile={at}/slurmd-%n.pid\n\
                 SlurmctldLogFile={at}/ctld.log\nSlurmdLogFile={at}/slurmd-%n.log\nSlurmdParameters=config_overrides\n\
                 ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nMpiDefault=none\nSelectType=select/cons_tres\n\
                 SelectTypeParameters=CR_Core\nSlurmdTimeout=2\nMessageTimeout=2\nReturnToService=2\nKillWait=5\n\
                 SchedulerParameters=sched_interval=1,batch_sched_delay=0\n\
                 NodeName=n1 NodeHostname={host} Port={n1} CPUs=2 State=UNKNOWN\n\
                 NodeName=n2 NodeHostname={host} Port={n2} CPUs=2 State=UNKNOWN\n\
                 PartitionName=all Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP\n",
                socket = socket.display(),
            ),
        )
        .unwrap();
        let munge = dir.join("munge");
        let file = |name: &str| munge.join(name).display().to_string();
        let mut munged = self.command("munged");
        munged.args(["--force", "--key-file", &file("key"), "--socket", &file("socket")]);
        munged.args([
            "--pid-file",
            &file("pid"),
            "--log-file",
            &file("log"),
            "--seed-file",
            &file("seed"),
        ]);
        succeeds(&mut munged);
        succeeds(&mut self.command("slurmctld"));
        self.start_node("n1");
        self.start_node("n2");
        until("two idle nodes", || {
            let nodes = self.says(&["sinfo", "--noheader", "--format=%D %t"]);
            nodes.trim() == "2 idle"
        });
    }

    pub fn start_node(&self, name: &str) {
        succeeds(self.command("slurmd").args(["-N", name]).env(NODE, name));
    }

    /// A program that finds the cluster.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .env("SLURM_CONF", self.dir.path().join("slurm.conf"))
            .env("STOKEHOLD_JOBS", self.path("jobs"))
            .current_dir(self.path(""))
            .stdin(Stdio::null());
        command
    }

    pub fn stokehold(&self, words: &[&str]) -> Output {
        self.command(env!("CARGO_BIN_EXE_stokehold"))
            .args(words)
            .output()
            .unwrap()
    }

    /// What a program prints.
    pub fn says(&self, words: &[&str]) -> String {
        let output = self.command(words[0]).args(&words[1..]).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Ends a node as a power cut would: its daemon and all that runs on it.
    pub fn kill_node(&self, name: &str) {
        let of_node = format!("{NODE}={name}");
        let of_job = format!("SLURMD_NODENAME={name}");
        self.kill(|variables| variables.iter().any(|of| *of == of_node || *of == of_job));
    }

    /// Kills the cluster's processes with such variables.
    fn kill(&self, is_meant: impl Fn(&[&str]) -> bool) {
        let ours = format!("SLURM_CONF={}", self.dir.path().join("slurm.conf").display());
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
            let environment = String::from_utf8_lossy(&environment);
            let variables: Vec<&str> = environment.split('\0').collect();
            if variables.contains(&&*ours) && is_meant(&variables) {
                // It may have ended.
                let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
            }
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for log in ["ctld.log", "slurmd-n1.log", "slurmd-n2.log"] {
                let text = fs::read_to_string(self.dir.path().join(log)).unwrap_or_default();
                let lines: Vec<&str> = text.lines().collect();
                println!("{log}\n{}", lines[lines.len().saturating_sub(20)..].join("\n"));
            }
        }
        // The daemons first, so that none starts anything again.
        self.kill(|variables| !variables.iter().any(|of| of.starts_with("SLURM_JOB_ID=")));
        self.kill(|_| true);
    }
}

fn succeeds(command: &mut Command) {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned();
    assert!(output.status.success(), "{command:?}: {said}");
}

/// Ports for daemons that bind them later, and again when they are restarted. They lie outside of the range from which Linux
/// gives ports to whoever asks for any, so that no such socket takes one in between; in that range only where it is all there is.
pub fn free_ports<const N: usize>() -> [u16; N] {
    let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap();
    let mut ends = range.split_whitespace().map(|end| end.parse::<u16>().unwrap());
    let given = ends.next().unwrap()..=ends.next().unwrap();
    let (given, mut ports): (Vec<u16>, Vec<u16>) = (1_025..=u16::MAX).partition(|port| given.contains(port));
    // Another process that looks for ports begins elsewhere.
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let first = now.subsec_micros() as usize % ports.len().max(1);
    ports.rotate_left(first);
    let mut free = ports
        .into_iter()
        .chain(given)
        .filter(|&port| TcpListener::bind(("0.0.0.0", port)).is_ok());
    std::array::from_fn(|_| free.next().expect("a free port"))
}
