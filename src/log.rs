//! Prints the events that the libraries emit, if `-v` or `STOKEHOLD_LOG` asks for them. Otherwise nothing
//! listens, and an event costs nothing.

use std::env::{self, VarError};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::time;

use crate::failure::Usage;
use crate::terminal;

/// Names the parts and their levels.
const VARIABLE: &str = "STOKEHOLD_LOG";

/// Starts to print events on standard error, if they are wanted. The variable takes precedence over the
/// option.
///
/// # Errors
/// The variable is not a list of parts and levels.
pub fn start(verbose: u8) -> Result<(), Usage> {
    let wanted = match env::var(VARIABLE) {
        Err(VarError::NotUnicode(text)) => {
            return Err(Usage(format!(
                "{VARIABLE}={}: it is not UTF-8; write PART=LEVEL,.. or a level",
                text.display()
            )));
        }
        Ok(text) if !text.is_empty() => text,
        _ if verbose == 0 => return Ok(()),
        // The name of every crate begins with it.
        _ if verbose == 1 => "stokehold=info,object_store=info".to_owned(),
        _ => "stokehold=debug,object_store=debug".to_owned(),
    };
    let filter = EnvFilter::builder().parse(&wanted).map_err(|error| {
        Usage(format!(
            "{VARIABLE}={wanted}: {error}; write PART=LEVEL,.. or a level"
        ))
    })?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_timer(time::uptime())
        .with_ansi(false)
        .with_writer(terminal::err)
        .init();
    Ok(())
}
