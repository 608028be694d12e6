//! Who can mend an error: the one who asked, or nobody but the program and its machine.

use std::error::Error;

/// An error that knows whether what was asked for is at fault.
pub trait Fault: Error {
    /// Whether the input is at fault (settings, data, files that are not what they should be), and not the work. The command line
    /// ends with 2 then, and with 1 otherwise.
    fn is_input(&self) -> bool;
}
