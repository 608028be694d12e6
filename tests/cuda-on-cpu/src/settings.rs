//! What environment variables ask for.

use std::path::PathBuf;
use std::sync::OnceLock;

/// In which order blocks, warps and threads have their turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// By their numbers.
    Forward,
    /// From the last.
    Reverse,
    /// By a rule that mixes them, the same in every run.
    Shuffled,
}

impl Order {
    /// The number that has turn `turn` of `count`.
    pub fn at(self, turn: u64, count: u64) -> u64 {
        match self {
            Order::Forward => turn,
            Order::Reverse => count - 1 - turn,
            // A step that has no divisor in common with the count comes to each number once.
            Order::Shuffled => {
                let step = (count / 3..)
                    .map(|step| step.max(1))
                    .find(|step| divisor(*step, count) == 1);
                let product = u128::from(turn) * u128::from(step.unwrap_or(1)) + u128::from(count / 2);
                (product % u128::from(count)) as u64
            }
        }
    }
}

fn divisor(a: u64, b: u64) -> u64 {
    match b {
        0 => a,
        _ => divisor(b, a % b),
    }
}

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The compute capability of each device: 80 for 8.0.
    pub capabilities: Vec<u32>,
    /// The CUDA version of the driver.
    pub driver: (u32, u32),
    /// The order of blocks and threads.
    pub order: Order,
    /// Threads of the CPU.
    pub workers: usize,
    /// The memory of a device, bytes.
    pub memory: u64,
    /// How much of it can be allocated, bytes.
    pub limit: u64,
    /// The module that is refused, from 1.
    pub refuse: Option<u64>,
    /// The launch that breaks its device, from 1.
    pub fault: Option<u64>,
    /// How many queries a recorded event answers with "not ready".
    pub pending: u64,
    /// Where PTX is kept.
    pub ptx: Option<PathBuf>,
}

/// The settings of this process.
pub fn settings() -> &'static Result<Settings, String> {
    static SETTINGS: OnceLock<Result<Settings, String>> = OnceLock::new();
    SETTINGS.get_or_init(|| Settings::read(|name| std::env::var(name).ok()))
}

impl Settings {
    fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Settings, String> {
        let number = |name: &str, default: u64| match variable(name) {
            None => Ok(default),
            Some(text) => text
                .parse::<u64>()
                .map_err(|_| format!("{name}={text}: it is a number, not negative")),
        };
        let capabilities = variable("CUDA_ON_CPU_SM").unwrap_or("80".into());
        let capability = |text: &str| text.trim().parse().ok().filter(|sm| (50..200).contains(sm));
        let capabilities: Option<Vec<u32>> = capabilities.split(',').map(capability).collect();
        let driver = variable("CUDA_ON_CPU_DRIVER").unwrap_or("12.8".into());
        let driver = driver
            .split_once('.')
            .and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)))
            .filter(|(major, minor): &(u32, u32)| (11..100).contains(major) && *minor < 100);
        let order = match variable("CUDA_ON_CPU_ORDER").as_deref() {
            None | Some("forward") => Order::Forward,
            Some("reverse") => Order::Reverse,
            Some("shuffled") => Order::Shuffled,
            Some(other) => {
                return Err(format!(
                    "CUDA_ON_CPU_ORDER={other}: it is forward, reverse or shuffled"
                ));
            }
        };
        let memory = number("CUDA_ON_CPU_MEMORY", 8 << 30)?;
        let workers = number("CUDA_ON_CPU_WORKERS", 2)?;
        if !(1..=256).contains(&workers) {
            return Err(format!("CUDA_ON_CPU_WORKERS={workers}: it is 1 to 256"));
        }
        let some = |number: u64| (number > 0).then_some(number);
        Ok(Settings {
            capabilities: capabilities
                .ok_or("CUDA_ON_CPU_SM: it is a list of compute capabilities, such as 80,90")?,
            driver: driver.ok_or("CUDA_ON_CPU_DRIVER: it is a version of CUDA, such as 12.8")?,
            order,
            workers: workers as usize,
            memory,
            limit: number("CUDA_ON_CPU_LIMIT", memory)?,
            refuse: some(number("CUDA_ON_CPU_REFUSE", 0)?),
            fault: some(number("CUDA_ON_CPU_FAULT", 0)?),
            pending: number("CUDA_ON_CPU_PENDING", 0)?,
            ptx: variable("CUDA_ON_CPU_PTX").map(PathBuf::from),
        })
    }

    /// The newest PTX that the driver reads, by the release notes of CUDA.
    pub fn newest_ptx(&self) -> (u32, u32) {
        match self.driver {
            (11, minor) => (7, minor),
            (12, minor @ 0..=5) => (8, minor),
            (12, 6) => (8, 5),
            (12, minor) => (8, minor - 1),
            (major, minor) => (major - 4, minor),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_order_comes_to_each_number_once() {
        for order in [Order::Forward, Order::Reverse, Order::Shuffled] {
            for count in (1..70).chain([256, 1000, 1021]) {
                let mut seen: Vec<u64> = (0..count).map(|turn| order.at(turn, count)).collect();
                seen.sort_unstable();
                assert_eq!(seen, (0..count).collect::<Vec<_>>(), "{order:?} of {count}");
            }
        }
        assert_ne!(Order::Shuffled.at(0, 100), 0);
    }

    #[test]
    fn settings_say_what_is_wrong_with_them() {
        let read = |name: &'static str, value: &'static str| {
            Settings::read(move |asked| (asked == name).then(|| value.to_owned()))
        };
        let two = read("CUDA_ON_CPU_SM", "80,75").expect("two devices");
        assert_eq!(two.capabilities, [80, 75]);
        assert_eq!(two.limit, two.memory);
        let old = read("CUDA_ON_CPU_DRIVER", "12.2").expect("a version");
        assert_eq!(old.newest_ptx(), (8, 2));
        for (name, value) in [
            ("CUDA_ON_CPU_SM", "sm_80"),
            ("CUDA_ON_CPU_SM", ""),
            ("CUDA_ON_CPU_DRIVER", "12"),
            ("CUDA_ON_CPU_ORDER", "random"),
            ("CUDA_ON_CPU_MEMORY", "8G"),
            ("CUDA_ON_CPU_WORKERS", "0"),
            ("CUDA_ON_CPU_WORKERS", "257"),
            ("CUDA_ON_CPU_FAULT", "-1"),
            ("CUDA_ON_CPU_PENDING", "some"),
        ] {
            let error = read(name, value).expect_err(value);
            assert!(error.contains(name), "{error}");
        }
    }

    #[test]
    fn a_driver_reads_the_ptx_of_its_time() {
        let newest = |driver| {
            let settings = Settings {
                driver,
                ..Settings::read(|_| None).expect("the defaults")
            };
            settings.newest_ptx()
        };
        assert_eq!(newest((12, 8)), (8, 7));
        assert_eq!(newest((12, 0)), (8, 0));
        assert_eq!(newest((11, 8)), (7, 8));
        assert_eq!(newest((13, 0)), (9, 0));
    }
}
