//! Files that may be missing.

use std::io;

/// `None` where the file or folder does not exist; any other error stays one.
///
/// ```
/// use stokehold_base::there::if_there;
/// assert!(if_there(std::fs::read("nowhere/at/all"))?.is_none());
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// Every error but [`io::ErrorKind::NotFound`].
pub fn if_there<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        result => result.map(Some),
    }
}
