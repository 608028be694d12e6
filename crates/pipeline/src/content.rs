//! Words for files that are no images here: what a download, a backup or another program left under an image's name.

/// How many bytes from the beginning are looked at.
const LOOK: usize = 4096;

/// What bytes are, with what to do where that is known; of others how they begin.
pub(crate) fn described(bytes: &[u8]) -> String {
    let head = &bytes[..bytes.len().min(LOOK)];
    if let Some(known) = signature(head).map(str::to_owned).or_else(|| text(head)) {
        return format!("but {known}");
    }
    if bytes.iter().all(|&byte| byte == 0) {
        return "but only zeros, as an interrupted copy leaves them".into();
    }
    let first: Vec<String> = bytes.iter().take(8).map(|byte| format!("{byte:02X}")).collect();
    format!("(it begins with {})", first.join(" "))
}

/// What formats say of themselves.
fn signature(head: &[u8]) -> Option<&'static str> {
    const AT_START: [(&[u8], &str); 16] = [
        (b"\x1F\x8B", "compressed by gzip; decompress it (gzip -d)"),
        (b"BZh", "compressed by bzip2; decompress it (bzip2 -d)"),
        (b"\xFD7zXZ\0", "compressed by xz; decompress it (xz -d)"),
        (
            b"\x28\xB5\x2F\xFD",
            "compressed by Zstandard; decompress it (zstd -d)",
        ),
        (
            b"PK\x03\x04",
            "a ZIP archive, or a document that is one; unpack it",
        ),
        (b"GIF8", "GIF; convert it to PNG"),
        (b"BM", "BMP; convert it to PNG"),
        (b"II*\0", "TIFF; convert it to PNG"),
        (b"MM\0*", "TIFF; convert it to PNG"),
        (b"\0\0\0\x0CjP  ", "JPEG 2000; convert it to PNG"),
        (b"\xFF\x0A", "JPEG XL; convert it to JPEG or PNG"),
        (b"\0\0\0\x0CJXL ", "JPEG XL; convert it to JPEG or PNG"),
        (
            b"\0\x05\x16\x07",
            "metadata that macOS keeps in a file of its own (AppleDouble); delete it",
        ),
        (b"%PDF", "a PDF document"),
        (b"\x89HDF", "HDF5"),
        (b"\x93NUMPY", "a NumPy array"),
    ];
    if let Some((_, known)) = AT_START.iter().find(|(start, _)| head.starts_with(start)) {
        return Some(known);
    }
    if head.get(257..262) == Some(b"ustar") {
        return Some("a tar archive; unpack it");
    }
    // Portable pixmaps: P1 to P6 and white space.
    if let [b'P', b'1'..=b'6', space, ..] = head
        && space.is_ascii_whitespace()
    {
        return Some("a portable pixmap (PPM, PGM or PBM); convert it to PNG");
    }
    match (head.get(4..8)?, head.get(8..12)?) {
        (b"ftyp", b"avif" | b"avis") => Some("AVIF; convert it to JPEG or PNG"),
        (b"ftyp", b"heic" | b"heix" | b"hevc" | b"heim" | b"heis" | b"mif1" | b"msf1") => {
            Some("HEIC, as phones write it; convert it to JPEG or PNG")
        }
        (b"ftyp", _) => Some("a video (MP4 or QuickTime)"),
        _ => None,
    }
}

/// What text is.
fn text(head: &[u8]) -> Option<String> {
    let text = match std::str::from_utf8(head) {
        Ok(text) => text,
        // The last character may be cut.
        Err(error) if error.valid_up_to() + 4 > LOOK => {
            std::str::from_utf8(&head[..error.valid_up_to()]).ok()?
        }
        Err(_) => return None,
    };
    if text.chars().any(|c| c.is_control() && !c.is_whitespace()) {
        return None;
    }
    let start = text.trim_start_matches('\u{FEFF}').trim_start();
    let begins = |with: &str| {
        start
            .get(..with.len())
            .is_some_and(|it| it.eq_ignore_ascii_case(with))
    };
    let known = if begins("version https://git-lfs.github.com/") {
        "a pointer of Git LFS; get the file (git lfs pull)"
    } else if begins("<!doctype html") || begins("<html") {
        "an HTML page, as a failed download leaves it"
    } else if begins("<svg") || (begins("<?xml") && start.contains("<svg")) {
        "SVG; convert it to PNG"
    } else if begins("<?xml") || begins("<error") {
        "XML, as a bucket answers that refuses a download"
    } else if begins("{") || begins("[") {
        "JSON, as a server answers that refuses a download"
    } else if start.is_empty() {
        "white space"
    } else {
        let line: String = start
            .lines()
            .next()
            .unwrap_or_default()
            .chars()
            .take(40)
            .collect();
        return Some(format!("text: {line:?}"));
    };
    Some(known.into())
}
