//! Whether an error is the user's to fix, or a failure of the program and its machine.

use std::error::Error;

/// An error that knows whether the request is at fault.
pub trait Fault: Error {
    /// Whether the input is at fault (settings, data, invalid files), and not the work. The command line ends
    /// with 2 then, and with 1 otherwise.
    fn is_input(&self) -> bool;
}
