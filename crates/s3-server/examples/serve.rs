//! Serves a folder, whose folders are the buckets, until its standard input ends.
//!
//! `serve FOLDER LATENCY_MS` prints the variables that make a client use it, as a shell takes them.

use std::io::{self, Read, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::Ordering;

use stokehold_s3_server::Server;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [folder, latency] = &words[..] else {
        eprintln!("usage: serve FOLDER LATENCY_MS");
        return ExitCode::from(2);
    };
    let Ok(latency) = latency.parse() else {
        eprintln!("error: {latency} is no number of milliseconds");
        return ExitCode::from(2);
    };
    match serve(Path::new(folder), latency) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {folder}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve(folder: &Path, latency: u64) -> io::Result<()> {
    let server = Server::start(folder)?;
    server.faults().latency_ms.store(latency, Ordering::SeqCst);
    let mut out = io::stdout().lock();
    for (name, value) in server.settings() {
        writeln!(out, "export {name}={value}")?;
    }
    out.flush()?;
    drop(out);
    io::stdin().lock().read_to_end(&mut Vec::new())?;
    Ok(())
}
