//! libjpeg-turbo 3 as an oracle and a rival, in this process.
//!
//! The library is compiled from source with its SIMD code (`turbojpeg-sys`), and called through a shim of our own
//! (`turbo.c`), which does what a good C program would.

use std::ffi::{CStr, c_char, c_int, c_short, c_uint, c_ulong, c_void};
use std::ptr::NonNull;
use stokehold_jpeg::{Region, Scale};

/// Links the library.
use turbojpeg_sys as _;

#[repr(C)]
struct Opaque {
    _private: [u8; 0],
}

type Take = extern "C" fn(*mut c_void, c_int, c_uint, c_uint, *const c_short);

unsafe extern "C" {
    fn turbo_new() -> *mut Opaque;
    fn turbo_free(turbo: *mut Opaque);
    fn turbo_message(turbo: *const Opaque) -> *const c_char;
    fn turbo_decode(
        turbo: *mut Opaque,
        bytes: *const u8,
        length: c_ulong,
        denominator: c_uint,
        x: c_uint,
        y: c_uint,
        width: c_uint,
        height: c_uint,
        out: *mut u8,
        room: usize,
        size: *mut c_uint,
    ) -> c_int;
    fn turbo_coefficients(
        turbo: *mut Opaque,
        bytes: *const u8,
        length: c_ulong,
        take: Option<Take>,
        state: *mut c_void,
    ) -> c_int;
    fn turbo_version() -> c_int;
}

/// Is given a component's number, a row's number, and the blocks of that row.
pub type TakeBlocks<'a> = dyn FnMut(usize, usize, &[[i16; 64]]) + 'a;

/// One decompressor of libjpeg-turbo. It keeps the tables of earlier files, for those that have none.
pub struct Turbo(NonNull<Opaque>);

/// What it said of a file it did decode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    /// Columns of what was written.
    pub width: u32,
    /// Rows of what was written.
    pub height: u32,
    /// The first warning: the file is damaged, and some pixels are guesses.
    pub warning: Option<String>,
}

impl Turbo {
    /// A new one.
    ///
    /// # Panics
    /// Where there is no memory for it.
    pub fn new() -> Turbo {
        // SAFETY: no arguments; null is handled.
        Turbo(NonNull::new(unsafe { turbo_new() }).expect("memory for libjpeg-turbo"))
    }

    /// The version in libjpeg-turbo's own form: 3001000 is 3.1.0.
    pub fn version() -> i32 {
        // SAFETY: it returns a constant.
        unsafe { turbo_version() }
    }

    /// Decodes `region` of the scaled image, or all of it, to RGB in `out`.
    ///
    /// Columns begin at the MCU that holds the region's first one, as the library crops only there: rows in `out` are
    /// `Said::width` pixels long, the region's the last ones of them.
    ///
    /// # Errors
    /// What the library says against the file.
    ///
    /// # Panics
    /// Where the region does not lie within the scaled image.
    pub fn decode(
        &mut self,
        bytes: &[u8],
        region: Option<Region>,
        scale: Scale,
        out: &mut [u8],
    ) -> Result<Said, String> {
        let region = region.unwrap_or(Region {
            x: 0,
            y: 0,
            width: 0,
            height: 0,
        });
        let mut size = [0; 2];
        // SAFETY: the pointer is a live decompressor that nothing else uses; `bytes` and `out` are given with their
        // lengths, and the shim writes no more than `room`. libjpeg-turbo checks the region against the image and
        // fails through the error handler.
        let warnings = unsafe {
            turbo_decode(
                self.0.as_ptr(),
                bytes.as_ptr(),
                bytes.len() as c_ulong,
                scale.factor(),
                region.x,
                region.y,
                region.width,
                region.height,
                out.as_mut_ptr(),
                out.len(),
                size.as_mut_ptr(),
            )
        };
        self.said(warnings, size)
    }

    /// Reads the coefficients of the whole image; `take` gets the blocks, in natural order and
    /// without those that fill up MCUs. Without `take` they are read and dropped.
    ///
    /// # Errors
    /// What the library says against the file.
    pub fn coefficients(&mut self, bytes: &[u8], take: Option<&mut TakeBlocks<'_>>) -> Result<Said, String> {
        extern "C" fn give(state: *mut c_void, c: c_int, row: c_uint, blocks: c_uint, data: *const c_short) {
            // SAFETY: `state` is the `take` of the call below, which outlives it; the shim gives `blocks` blocks of
            // 64 coefficients. A panic in `take` aborts: nothing unwinds through C.
            let (take, blocks) = unsafe {
                let take = &mut *state.cast::<&mut TakeBlocks<'_>>();
                (
                    take,
                    std::slice::from_raw_parts(data.cast::<[i16; 64]>(), blocks as usize),
                )
            };
            take(c as usize, row as usize, blocks);
        }
        let mut take = take;
        let (function, state): (Option<Take>, *mut c_void) = match &mut take {
            Some(take) => (Some(give), std::ptr::from_mut(take).cast()),
            None => (None, std::ptr::null_mut()),
        };
        // SAFETY: as in `decode`; `state` lives until the call returns.
        let warnings = unsafe {
            turbo_coefficients(
                self.0.as_ptr(),
                bytes.as_ptr(),
                bytes.len() as c_ulong,
                function,
                state,
            )
        };
        self.said(warnings, [0; 2])
    }

    fn said(&self, warnings: c_int, [width, height]: [c_uint; 2]) -> Result<Said, String> {
        // SAFETY: the shim keeps a string that ends with 0, and nothing changes it meanwhile.
        let message = unsafe { CStr::from_ptr(turbo_message(self.0.as_ptr())) };
        let message = || message.to_string_lossy().into_owned();
        match warnings {
            0 => Ok(Said {
                width,
                height,
                warning: None,
            }),
            1.. => Ok(Said {
                width,
                height,
                warning: Some(message()),
            }),
            _ => Err(message()),
        }
    }
}

impl Default for Turbo {
    fn default() -> Turbo {
        Turbo::new()
    }
}

impl Drop for Turbo {
    fn drop(&mut self) {
        // SAFETY: it came from `turbo_new`, and is used no more.
        unsafe { turbo_free(self.0.as_ptr()) }
    }
}
