//! What the targets share.

use stokehold_jpeg::{Header, Scale};

/// All scales.
pub const SCALES: [Scale; 4] = [Scale::Full, Scale::Half, Scale::Quarter, Scale::Eighth];

/// The header, where there is one and the image is small: large ones are slow and prove nothing more.
pub fn small_header(bytes: &[u8]) -> Option<Header> {
    let header = Header::parse(bytes).ok()?;
    (u64::from(header.width) * u64::from(header.height) <= 1 << 18).then_some(header)
}
