//! Memory, disks, network and pressure of the whole machine.

use std::path::Path;

use super::Board;
use crate::dimension;
use crate::kernel::{KernelFile, field, lines, number, rate, words};
use crate::system::SeriesId;

/// `/proc/meminfo`.
pub(crate) struct Memory {
    file: KernelFile,
    buffer: Vec<u8>,
    used: SeriesId,
    swap: SeriesId,
}

impl Memory {
    pub fn open(proc: &Path, board: &mut Board) -> Option<Self> {
        Some(Self {
            file: KernelFile::open(proc.join("meminfo")).ok()?,
            buffer: Vec::new(),
            used: board.add("memory", "MemoryUsedPercent", dimension::MEMORY),
            swap: board.add("memory", "SwapUsedPercent", dimension::SWAP),
        })
    }

    pub fn sample(&mut self, board: &mut Board) {
        let Ok(text) = self.file.read_at_once(&mut self.buffer) else {
            return;
        };
        let used = |total, free| {
            let (total, free) = (field(text, total)?, field(text, free)?);
            // 0 of 0 bytes of swap are in use.
            Some(100.0 * total.saturating_sub(free) as f64 / total.max(1) as f64)
        };
        board.set(self.used, used("MemTotal:", "MemAvailable:").unwrap_or(f64::NAN));
        board.set(self.swap, used("SwapTotal:", "SwapFree:").unwrap_or(f64::NAN));
    }
}

/// Two byte counters, summed over devices.
struct Bytes {
    file: KernelFile,
    buffer: Vec<u8>,
    before: Option<(u64, u64)>,
    places: [SeriesId; 2],
}

impl Bytes {
    fn sample(&mut self, board: &mut Board, elapsed: f64, sum: fn(&[u8]) -> (u64, u64)) {
        let now = self.file.read(&mut self.buffer).ok().map(sum);
        if let Some((before, now)) = self.before.zip(now) {
            // When a device is removed, its count goes too, so the sum may decrease: no rate then.
            board.set(self.places[0], rate(before.0, now.0, elapsed));
            board.set(self.places[1], rate(before.1, now.1, elapsed));
        }
        self.before = now;
    }
}

/// `/proc/diskstats`: bytes read and written by the disks.
pub(crate) struct Disk(Bytes);

impl Disk {
    pub fn open(proc: &Path, board: &mut Board) -> Option<Self> {
        Some(Self(Bytes {
            file: KernelFile::open(proc.join("diskstats")).ok()?,
            buffer: Vec::new(),
            before: None,
            places: ["ReadBytesPerSecond", "WriteBytesPerSecond"]
                .map(|name| board.add("disk", name, dimension::DISK)),
        }))
    }

    pub fn sample(&mut self, board: &mut Board, elapsed: f64) {
        self.0.sample(board, elapsed, disk_bytes);
    }
}

/// Bytes read and written by all disks. A line is `major minor name reads merged sectors ms writes merged
/// sectors ..`, in sectors of 512 bytes. Partitions are skipped because their disk's line includes them, and
/// so are devices on top of other devices (loop, device mapper, RAID).
fn disk_bytes(text: &[u8]) -> (u64, u64) {
    let mut sum = (0u64, 0u64);
    let mut disk: &[u8] = b"";
    for line in lines(text) {
        let mut words = words(line).skip(2);
        let Some(name) = words.next() else { continue };
        let virtual_device = [&b"loop"[..], b"ram", b"zram", b"dm-", b"md"]
            .iter()
            .any(|start| name.starts_with(start));
        if virtual_device || is_partition(name, disk) {
            continue;
        }
        disk = name;
        let read = words.nth(2).and_then(number).unwrap_or(0);
        let written = words.nth(3).and_then(number).unwrap_or(0);
        sum.0 = sum.0.wrapping_add(read.wrapping_mul(512));
        sum.1 = sum.1.wrapping_add(written.wrapping_mul(512));
    }
    sum
}

/// `sda1` of `sda`, `nvme0n1p1` of `nvme0n1`.
fn is_partition(name: &[u8], disk: &[u8]) -> bool {
    let Some(rest) = name.strip_prefix(disk) else {
        return false;
    };
    let digits = match disk.last() {
        None => return false,
        Some(last) if last.is_ascii_digit() => rest.strip_prefix(b"p").unwrap_or_default(),
        Some(_) => rest,
    };
    !digits.is_empty() && digits.iter().all(u8::is_ascii_digit)
}

/// `/proc/net/dev`: bytes received and sent.
pub(crate) struct Network(Bytes);

impl Network {
    pub fn open(proc: &Path, board: &mut Board) -> Option<Self> {
        Some(Self(Bytes {
            file: KernelFile::open(proc.join("net/dev")).ok()?,
            buffer: Vec::new(),
            before: None,
            places: ["ReceiveBytesPerSecond", "TransmitBytesPerSecond"]
                .map(|name| board.add("network", name, dimension::NETWORK)),
        }))
    }

    pub fn sample(&mut self, board: &mut Board, elapsed: f64) {
        self.0.sample(board, elapsed, network_bytes);
    }
}

/// Bytes received and sent. A line is `  eth0: received packets errs drop fifo frame compressed multicast
/// sent ..`. Interfaces that only forward the traffic of others are skipped.
fn network_bytes(text: &[u8]) -> (u64, u64) {
    let mut sum = (0u64, 0u64);
    for line in lines(text) {
        let Some(colon) = line.iter().position(|&byte| byte == b':') else {
            continue;
        };
        let name = line[..colon].trim_ascii();
        let inner = [
            &b"veth"[..],
            b"docker",
            b"br-",
            b"virbr",
            b"cni",
            b"flannel",
            b"cali",
            b"ifb",
            b"bond",
            b"dummy",
            b"tun",
            b"tap",
            b"wg",
        ]
        .iter()
        .any(|start| name.starts_with(start));
        if name == b"lo" || inner {
            continue;
        }
        let mut words = words(&line[colon + 1..]);
        let received = words.next().and_then(number).unwrap_or(0);
        let sent = words.nth(7).and_then(number).unwrap_or(0);
        sum = (sum.0.wrapping_add(received), sum.1.wrapping_add(sent));
    }
    sum
}

/// `/proc/pressure`: the time in which some task was stalled.
pub(crate) struct Pressure(Vec<Stall>);

struct Stall {
    file: KernelFile,
    buffer: Vec<u8>,
    /// Microseconds since boot.
    before: Option<u64>,
    place: SeriesId,
}

impl Pressure {
    pub fn open(proc: &Path, board: &mut Board) -> Option<Self> {
        let stalls = ["cpu", "memory", "io"].map(|name| {
            let file = KernelFile::open(proc.join("pressure").join(name)).ok()?;
            let mut buffer = Vec::new();
            // A kernel may have the files but fail to read them.
            file.read_at_once(&mut buffer).ok().and_then(stalled)?;
            Some(Stall {
                file,
                buffer,
                before: None,
                place: board.add("pressure", name, dimension::PRESSURE),
            })
        });
        let stalls: Vec<_> = stalls.into_iter().flatten().collect();
        (!stalls.is_empty()).then_some(Self(stalls))
    }

    pub fn sample(&mut self, board: &mut Board, elapsed: f64) {
        for stall in &mut self.0 {
            let now = stall.file.read_at_once(&mut stall.buffer).ok().and_then(stalled);
            if let Some((before, now)) = stall.before.zip(now) {
                board.set(stall.place, (rate(before, now, elapsed) / 1e4).clamp(0.0, 100.0));
            }
            stall.before = now;
        }
    }
}

/// The total of `some avg10=0.00 avg60=0.00 avg300=0.00 total=12345`.
fn stalled(text: &[u8]) -> Option<u64> {
    let line = lines(text).find_map(|line| line.strip_prefix(b"some "))?;
    words(line).find_map(|word| number(word.strip_prefix(b"total=")?))
}

#[cfg(test)]
mod tests {
    use super::super::testing::Fake;
    use super::*;

    #[test]
    fn memory_and_swap() {
        let mut fake = Fake::new();
        let meminfo =
            "MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable: 250 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n";
        fake.file("meminfo", meminfo);
        let root = fake.dir.path().to_owned();
        let mut memory = Memory::open(&root, &mut fake.board).unwrap();
        memory.sample(&mut fake.board);
        fake.tick();
        fake.file(
            "meminfo",
            "MemTotal: 1000 kB\nSwapTotal: 100 kB\nSwapFree: 40 kB\n",
        );
        memory.sample(&mut fake.board);
        fake.tick();
        let read = fake.read();
        assert_eq!(read["MemoryUsedPercent MemoryUsedPercent"], [Some(75.0), None]);
        assert_eq!(read["SwapUsedPercent SwapUsedPercent"], [Some(0.0), Some(60.0)]);
    }

    #[test]
    fn disks_count_once() {
        let line = |name: &str, read: u64, written: u64| {
            format!("   8       0 {name} 5 0 {read} 7 9 1 {written} 3 0 1 2\n")
        };
        let text = [
            line("loop0", 1000, 1000),
            line("sda", 10, 20),
            line("sda1", 10, 20),
            line("sdaa", 100, 200),
            line("nvme0n1", 1000, 2000),
            line("nvme0n1p12", 1000, 2000),
            line("nvme0n10", 10_000, 20_000),
            line("dm-0", 7, 7),
            line("md127", 7, 7),
        ]
        .concat();
        assert_eq!(disk_bytes(text.as_bytes()), (11_110 * 512, 22_220 * 512));
        assert_eq!(disk_bytes(b"what\nis this\n"), (0, 0));
    }

    #[test]
    fn networks_count_once() {
        let text = "Inter-|   Receive |  Transmit\n face |bytes packets|bytes\n\
                    lo:    6508      58    0    0    0     0          0         0     6508      58    0\n\
                    eth0: 1000 1 0 0 0 0 0 0 300 1 0 0 0 0 0 0\n\
                    docker0: 5 1 0 0 0 0 0 0 5 1 0 0 0 0 0 0\n\
                    ib0:20 1 0 0 0 0 0 0 4 1 0 0 0 0 0 0\n";
        assert_eq!(network_bytes(text.as_bytes()), (1020, 304));
    }

    #[test]
    fn rates_are_of_the_time_that_passed() {
        let mut fake = Fake::new();
        let files = |fake: &Fake, n: u64| {
            fake.file("diskstats", &format!("8 0 sda 1 1 {n} 1 1 1 {} 1\n", 2 * n));
            fake.file("net/dev", &format!("eth0: {n} 1 0 0 0 0 0 0 {} 1\n", 3 * n));
            fake.file(
                "pressure/cpu",
                &format!(
                    "some avg10=0.00 avg60=0.00 total={}\nfull avg10=0.00 total=0\n",
                    n * 1000
                ),
            );
        };
        files(&fake, 100);
        let (root, board) = (fake.dir.path().to_owned(), &mut fake.board);
        let mut disk = Disk::open(&root, board).unwrap();
        let mut network = Network::open(&root, board).unwrap();
        let mut pressure = Pressure::open(&root, board).unwrap();
        for n in [100, 300, 200, 1200] {
            files(&fake, n);
            disk.sample(&mut fake.board, 0.5);
            network.sample(&mut fake.board, 0.5);
            pressure.sample(&mut fake.board, 0.5);
            fake.tick();
        }
        let read = fake.read();
        // The first reading is what the second is compared with, the third stepped back, and a tick without a
        // value is not there.
        assert_eq!(
            read["ReadBytesPerSecond DiskBytesPerSecond"],
            [Some(400.0 * 512.0), Some(2000.0 * 512.0)]
        );
        assert_eq!(
            read["WriteBytesPerSecond DiskBytesPerSecond"][0],
            Some(800.0 * 512.0)
        );
        assert_eq!(
            read["ReceiveBytesPerSecond Algorithm"],
            [Some(400.0), Some(2000.0)]
        );
        assert_eq!(read["TransmitBytesPerSecond Algorithm"][0], Some(1200.0));
        // 200 ms of 500 ms; more than all of the time is all of it.
        assert_eq!(read["cpu PressureSomePercent"], [Some(40.0), Some(100.0)]);
    }

    #[test]
    fn what_is_missing_has_no_probe() {
        let mut fake = Fake::new();
        let root = fake.dir.path().to_owned();
        assert!(Memory::open(&root, &mut fake.board).is_none());
        assert!(Disk::open(&root, &mut fake.board).is_none());
        assert!(Network::open(&root, &mut fake.board).is_none());
        fake.file("pressure/cpu", "");
        assert!(Pressure::open(&root, &mut fake.board).is_none());
    }
}
