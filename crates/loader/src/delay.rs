//! How long a thread could have computed and had no core.

use std::time::Duration;

/// The time so far for which this thread waited for a core; zero where the kernel does not count it. It takes about a microsecond.
pub(crate) fn of_this_thread() -> Duration {
    counted().unwrap_or_default()
}

#[cfg(target_os = "linux")]
fn counted() -> Option<Duration> {
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    thread_local! {
        /// Three numbers: nanoseconds of computing, nanoseconds of waiting, turns.
        static FILE: Option<File> = File::open("/proc/thread-self/schedstat").ok();
    }
    let mut text = [0; 64];
    let length = FILE
        .try_with(|file| file.as_ref()?.read_at(&mut text, 0).ok())
        .ok()??;
    let text = std::str::from_utf8(&text[..length]).ok()?;
    let waited = text.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(Duration::from_nanos(waited))
}

#[cfg(not(target_os = "linux"))]
fn counted() -> Option<Duration> {
    None
}
