//! The terminal while `top` runs: alternate screen, keys without Enter. Everything is restored at the end,
//! also after an error.

use std::io::{self, IsTerminal, Read, Write};
use std::time::{Duration, Instant};

use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetwinsize, tcsetattr,
};

use super::frame::Frame;

/// The alternate screen, without cursor and line wrap.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J";
const LEAVE: &str = "\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l";
/// How long to wait for keys.
const WAIT: Duration = Duration::from_millis(100);

/// A terminal in this mode, until it is dropped.
pub struct Terminal {
    /// The settings before; `None` if standard input is not a terminal.
    before: Option<Termios>,
    coloured: bool,
    size: (usize, usize),
}

impl Terminal {
    /// Changes the terminal's mode.
    ///
    /// # Errors
    /// If it cannot be written to or changed.
    pub fn enter() -> io::Result<Self> {
        let stdin = io::stdin();
        let mut before = None;
        if stdin.is_terminal() {
            let found = tcgetattr(&stdin)?;
            let mut keys = found.clone();
            // Ctrl-C still sends a signal.
            keys.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
            // A read returns after a tenth of a second at most.
            keys.special_codes[SpecialCodeIndex::VMIN] = 0;
            keys.special_codes[SpecialCodeIndex::VTIME] = 1;
            tcsetattr(&stdin, OptionalActions::Now, &keys)?;
            before = Some(found);
        }
        // From here on it is restored, also if the next line fails.
        let terminal = Self {
            before,
            coloured: std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
            size: (0, 0),
        };
        show(ENTER)?;
        Ok(terminal)
    }

    /// Draws the result of `picture`, which gets the screen's columns and lines.
    ///
    /// # Errors
    /// If the terminal cannot be written to.
    pub fn draw(&mut self, picture: impl FnOnce(usize, usize) -> Frame) -> io::Result<()> {
        let size = tcgetwinsize(io::stdout()).map_or((80, 24), |size| {
            (usize::from(size.ws_col), usize::from(size.ws_row))
        });
        // A terminal that does not know its size reports 0.
        let size = if size.0 == 0 || size.1 == 0 {
            (80, 24)
        } else {
            size
        };
        let cleared = if size == self.size { "" } else { "\x1b[2J" };
        self.size = size;
        show(&format!(
            "{cleared}{}",
            picture(size.0, size.1).text(self.coloured)
        ))
    }

    /// Whether q or Escape was pressed. Waits a tenth of a second for a key.
    pub fn asks_to_leave(&mut self) -> bool {
        let began = Instant::now();
        let mut keys = [0; 64];
        let read = if self.before.is_some() {
            io::stdin().read(&mut keys).unwrap_or(0)
        } else {
            0
        };
        let keys = &keys[..read];
        // Only Escape alone: arrow keys begin with it.
        let leave = keys == b"\x1b" || keys.iter().any(|key| b"qQ\x03".contains(key));
        if read == 0 {
            // A closed keyboard returns at once; wait here.
            std::thread::sleep(WAIT.saturating_sub(began.elapsed()));
        }
        leave
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // The error cannot be reported; ignore it.
        let _ = show(LEAVE);
        if let Some(before) = &self.before {
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, before);
        }
    }
}

fn show(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}
