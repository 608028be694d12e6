//! JPEGs whose operations are recorded: the compiled half of `stokehold.pillow` and `stokehold.images`.

use std::cell::RefCell;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyByteArray, PyBytes};
use stokehold_jpeg::{
    Header, Layout, Metadata, Region, Scale, TranscodeOptions, plain_orientation, transcode,
};
use stokehold_objects::Bucket;
use stokehold_pipeline::Step;
use stokehold_pipeline::op::{Filter, Interpolation};
use stokehold_pipeline::recorded::{self, Op, PassOrder, Performer, Recorded, Source};
use stokehold_storage::SampleBytes;

use crate::errors::{DataError, OptionError};
use crate::memory::room;

thread_local! {
    static PERFORMER: RefCell<Performer> = RefCell::default();
}

/// The bytes of a JPEG, and what is known of it.
#[pyclass(frozen, module = "stokehold._stokehold")]
pub(crate) struct Jpeg {
    content: Content,
    source: Source,
}

enum Content {
    File(Py<PyBytes>),
    /// The packed image of a file, and a JPEG with the same pixels once one was asked for.
    Packed(SampleBytes, PyOnceLock<Py<PyBytes>>),
}

/// Not for users: the callers have Pillow do what is refused by a ValueError.
fn refused(why: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(why.to_string())
}

/// Operations as Python recorded them: a number for each kind, its parameters, and the size that it leads to.
///
/// | kind | parameters |
/// |---|---|
/// | 1, a crop | left, upper, red, green, blue |
/// | 2, a resize | filter, left, upper, right, lower |
/// | 3, a transposition | method |
/// | 4, a step | code, value |
/// | 5, an affine transform | filter, the six numbers of its map, red, green, blue |
/// | 6, a reduction | pixels of a block across and down, left, upper, right, lower |
/// | 7, a conversion | bytes of a pixel that it makes: 1, grey, or 3 |
fn parse(numbers: &[f64]) -> Option<Vec<Recorded>> {
    let mut ops = Vec::new();
    let mut rest = numbers;
    while let Some((&kind, after)) = rest.split_first() {
        let count = match kind as u8 {
            1 | 2 => 5,
            4 => 2,
            3 | 7 => 1,
            5 => 10,
            6 => 6,
            _ => return None,
        };
        let (parameters, after) = after.split_at_checked(count)?;
        let ([width, height], after) = after.split_first_chunk()?;
        rest = after;
        let (width, height) = (*width as u32, *height as u32);
        let op = match (kind as u8, parameters) {
            (1, &[x, y, red, green, blue]) => Op::Crop {
                x: x as i64,
                y: y as i64,
                fill: [red, green, blue].map(|level| level as u8),
            },
            (2, &[filter, left, upper, right, lower]) => {
                let area = [left, upper, right, lower].map(|edge| edge as f32);
                let [left, upper, right, lower] = area;
                let whole = left.fract() == 0.0 && upper.fract() == 0.0;
                // What Pillow, too, performs as a crop.
                match whole && right - left == width as f32 && lower - upper == height as f32 {
                    true => Op::Crop {
                        x: left as i64,
                        y: upper as i64,
                        fill: [0; 3],
                    },
                    false => Op::Resize {
                        filter: Filter::try_from(filter as u8).ok()?,
                        area,
                    },
                }
            }
            (3, &[method]) => Op::Transpose(method as u8),
            (6, &[across, down, left, upper, right, lower]) => Op::Reduce {
                factor: [across, down].map(|count| count as u32),
                area: Region {
                    x: left as u32,
                    y: upper as u32,
                    width: (right - left) as u32,
                    height: (lower - upper) as u32,
                },
            },
            (7, &[1.0]) => Op::ToGrey,
            (7, &[3.0]) => Op::ToRgb,
            (5, &[filter, a, b, c, d, e, f, red, green, blue]) => Op::Affine {
                map: [a, b, c, d, e, f],
                interpolation: match filter as u8 {
                    0 => Interpolation::Nearest,
                    2 => Interpolation::Bilinear,
                    _ => return None,
                },
                fill: [red, green, blue].map(|level| level as u8),
            },
            (4, &[code, value]) => Op::Step(step(code as u8, value)?),
            _ => return None,
        };
        if width == 0 || height == 0 {
            return None;
        }
        ops.push(Recorded { op, width, height });
    }
    Some(ops)
}

/// A change of colours by its code in `stokehold.pillow`.
fn step(code: u8, value: f64) -> Option<Step> {
    Some(match code {
        0 => Step::Brightness { factor: value },
        1 => Step::Contrast { factor: value },
        2 => Step::Saturation { factor: value },
        3 => Step::Sharpness { factor: value },
        4 => Step::Hue { shift: value },
        5 => Step::Posterize { bits: value as u32 },
        6 => Step::Solarize { threshold: value },
        7 => Step::Equalize,
        8 => Step::AutoContrast,
        9 => Step::Invert,
        10 => Step::Grayscale,
        _ => return None,
    })
}

type Normalize = ([f32; 3], [f32; 3]);

impl Jpeg {
    /// Performs operations into a buffer of their size.
    fn perform(
        &self,
        py: Python<'_>,
        ops: &[Recorded],
        larger_first: bool,
        layout: Layout,
        out: &mut [u8],
    ) -> PyResult<()> {
        let order = match larger_first {
            true => PassOrder::LargerFirst,
            false => PassOrder::AcrossFirst,
        };
        let bytes = self.input(py);
        py.detach(|| {
            PERFORMER
                .with_borrow_mut(|performer| self.source.perform(bytes, ops, order, layout, performer, out))
        })
        .map_err(refused)
    }

    /// A packed image, drafted; none where the bytes are no image.
    pub(crate) fn of_packed(packed: SampleBytes, scale: Scale, grey: bool) -> Option<Self> {
        let source = Source::new(packed.file()).ok()?.drafted(scale, grey);
        let content = Content::Packed(packed, PyOnceLock::new());
        Some(Self { content, source })
    }

    /// The bytes that the decoder reads: the file, or its packed image.
    fn input<'a>(&'a self, py: Python<'a>) -> &'a [u8] {
        match &self.content {
            Content::File(bytes) => bytes.as_bytes(py),
            Content::Packed(packed, _) => packed.file(),
        }
    }

    /// The file; of a packed image a JPEG that has the same pixels with every decoder.
    fn file(&self, py: Python<'_>) -> PyResult<&Py<PyBytes>> {
        let (packed, jpeg) = match &self.content {
            Content::File(bytes) => return Ok(bytes),
            Content::Packed(packed, jpeg) => (packed.file(), jpeg),
        };
        jpeg.get_or_try_init(py, || {
            let options = TranscodeOptions {
                metadata: Metadata::Keep,
            };
            let jpeg = py.detach(|| transcode(packed, &options)).map_err(refused)?;
            Ok(PyBytes::new(py, &jpeg).unbind())
        })
    }

    fn pixels(&self, ops: &[Recorded]) -> usize {
        let (width, height) = self.source.size(ops);
        width as usize * height as usize
    }

    /// The layouts without gaps and as Pillow keeps pixels.
    fn layouts(&self, ops: &[Recorded]) -> (Layout, Layout) {
        match self.source.is_grey(ops) {
            Some(true) => (Layout::Grey, Layout::Grey),
            _ => (Layout::Rgb, Layout::Rgbx),
        }
    }
}

/// The scale of a factor, which is 1, 2, 4 or 8.
pub(crate) fn scale_by(factor: u32) -> PyResult<Scale> {
    Scale::by(factor).ok_or_else(|| refused("an unknown scale"))
}

fn operations(numbers: &[f64]) -> PyResult<Vec<Recorded>> {
    parse(numbers).ok_or_else(|| refused("unknown operations"))
}

#[pymethods]
impl Jpeg {
    /// Refuses what is not decoded here, and a file whose end is missing.
    #[new]
    #[pyo3(signature = (bytes, scale=1, grey=false))]
    fn new(py: Python<'_>, bytes: Py<PyBytes>, scale: u32, grey: bool) -> PyResult<Self> {
        let source = Source::new(bytes.as_bytes(py)).map_err(refused)?;
        Ok(Self {
            content: Content::File(bytes),
            source: source.drafted(scale_by(scale)?, grey),
        })
    }

    /// The number that divides its sides when it is decoded (1, 2, 4 or 8), and whether it is decoded to grey.
    #[getter]
    fn draft(&self) -> (u32, bool) {
        let (scale, grey) = self.source.draft();
        (scale.factor(), grey)
    }

    /// Width, height, components in the file (1, 3 or 4) and the orientation that EXIF says (1 to 8).
    #[getter]
    fn header(&self) -> (u32, u32, usize, u8) {
        let header = self.source.header();
        let components = header.sampling.len();
        (header.width, header.height, components, header.orientation)
    }

    /// The orientation that every reader of EXIF finds, 1 to 8; none where readers may differ.
    #[getter]
    fn plain_orientation(&self, py: Python<'_>) -> PyResult<Option<u8>> {
        Ok(plain_orientation(self.file(py)?.as_bytes(py)))
    }

    /// How often the components are sampled, across and down.
    #[getter]
    fn sampling(&self) -> Vec<(u8, u8)> {
        self.source.header().sampling.clone()
    }

    /// What Pillow has to read of a header, and its segments with quantisation tables; none where it has to read all.
    #[staticmethod]
    fn shortened<'py>(py: Python<'py>, head: &[u8]) -> Option<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
        let (short, tables) = Header::shortened(head)?;
        Some((PyBytes::new(py, &short), PyBytes::new(py, &tables)))
    }

    #[getter]
    fn data(&self, py: Python<'_>) -> PyResult<Py<PyBytes>> {
        Ok(self.file(py)?.clone_ref(py))
    }

    /// Width and height of what the operations make.
    fn size(&self, numbers: Vec<f64>) -> PyResult<(u32, u32)> {
        Ok(self.source.size(&operations(&numbers)?))
    }

    /// RGB or grey, row by row.
    fn dense<'py>(
        &self,
        py: Python<'py>,
        numbers: Vec<f64>,
        larger_first: bool,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let ops = operations(&numbers)?;
        let (layout, _) = self.layouts(&ops);
        PyBytes::new_with(py, layout.bytes() * self.pixels(&ops), |out| {
            self.perform(py, &ops, larger_first, layout, out)
        })
    }

    /// RGB and a byte without meaning, or grey, row by row, as Pillow keeps pixels.
    fn kept<'py>(
        &self,
        py: Python<'py>,
        numbers: Vec<f64>,
        larger_first: bool,
    ) -> PyResult<Bound<'py, PyByteArray>> {
        let ops = operations(&numbers)?;
        let (_, layout) = self.layouts(&ops);
        PyByteArray::new_with(py, layout.bytes() * self.pixels(&ops), |out| {
            self.perform(py, &ops, larger_first, layout, out)
        })
    }

    /// The same as `dense`, into memory at an address.
    fn dense_to(
        &self,
        py: Python<'_>,
        numbers: Vec<f64>,
        larger_first: bool,
        address: usize,
        bytes: usize,
    ) -> PyResult<()> {
        let ops = operations(&numbers)?;
        let (layout, _) = self.layouts(&ops);
        // SAFETY: what calls this in the package holds a new tensor or array of so many bytes there.
        let out = unsafe { room::<u8>(address, bytes, layout.bytes() * self.pixels(&ops))? };
        self.perform(py, &ops, larger_first, layout, out)
    }

    /// The whole image, row by row, into memory at an address: as `rgb`, `bgr` or `grey`, a `scale`-th of its size, which is 1, 2, 4
    /// or 8, and turned by a method of Pillow's `transpose`.
    #[pyo3(signature = (layout, scale, turn, address, bytes))]
    fn decode_to(
        &self,
        py: Python<'_>,
        layout: &str,
        scale: u32,
        turn: Option<u8>,
        address: usize,
        bytes: usize,
    ) -> PyResult<()> {
        let layout = match layout {
            "rgb" => Layout::Rgb,
            "bgr" => Layout::Bgr,
            "grey" => Layout::Grey,
            _ => return Err(refused("an unknown layout")),
        };
        let scale = scale_by(scale)?;
        let (width, height) = self.source.scaled_size(scale, turn);
        let wanted = width as usize * height as usize * layout.bytes();
        // SAFETY: what calls this in the package holds a new tensor or array of so many bytes there.
        let out = unsafe { room::<u8>(address, bytes, wanted)? };
        let file = self.file(py)?.as_bytes(py);
        py.detach(|| {
            PERFORMER
                .with_borrow_mut(|performer| self.source.decode(file, scale, layout, turn, performer, out))
        })
        .map_err(refused)
    }

    /// Three planes of floats of 0 to 1, or one of grey, normalised where that is asked for, into memory at an address.
    #[pyo3(signature = (numbers, larger_first, address, bytes, normalize=None))]
    fn floats_to(
        &self,
        py: Python<'_>,
        numbers: Vec<f64>,
        larger_first: bool,
        address: usize,
        bytes: usize,
        normalize: Option<Normalize>,
    ) -> PyResult<()> {
        let ops = operations(&numbers)?;
        let (dense, layout) = self.layouts(&ops);
        let pixels = self.pixels(&ops);
        // SAFETY: what calls this in the package holds a new tensor or array of floats of so many bytes there.
        let out = unsafe { room::<f32>(address, bytes, dense.bytes() * pixels)? };
        let mut whole = Vec::new();
        whole
            .try_reserve_exact(layout.bytes() * pixels)
            .map_err(refused)?;
        whole.resize(layout.bytes() * pixels, 0);
        self.perform(py, &ops, larger_first, layout, &mut whole)?;
        py.detach(|| match layout {
            Layout::Grey => {
                let normalize = normalize.map(|(mean, std)| (mean[0], std[0]));
                recorded::grey_to_floats(&whole, normalize, out);
            }
            _ => recorded::to_floats(whole.as_chunks().0, normalize, out),
        });
        Ok(())
    }
}

/// The bytes of an object, by its address.
#[pyfunction]
pub(crate) fn fetch<'py>(py: Python<'py>, address: &str) -> PyResult<Bound<'py, PyBytes>> {
    let is_place = |place: &str| place.split_once("://").is_some_and(|(_, rest)| !rest.is_empty());
    let parts = address.rsplit_once('/');
    let Some((place, key)) = parts.filter(|(place, key)| is_place(place) && !key.is_empty()) else {
        return Err(OptionError::new_err(format!(
            "{address}: give the address of one object, such as s3://BUCKET/KEY"
        )));
    };
    let mut bytes = Vec::new();
    py.detach(|| Bucket::open(place)?.fetch(key, &mut bytes))
        .map_err(|error| DataError::new_err(error.to_string()))?;
    Ok(PyBytes::new(py, &bytes))
}
