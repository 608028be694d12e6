//! What JPEGs are packed with: tables that are adapted to some images of the data set.

use std::borrow::Cow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

use stokehold_jpeg::{Decoder, PackSample, PackTables, Packer};
use stokehold_storage::{SampleBytes, Source};

use crate::PrepareError;
use crate::make::Maker;
use crate::options::Content;
use crate::part::{Making, PartTask};

/// How many images tables are adapted to.
const SAMPLED: usize = 64;

/// About how many bytes these have at most; their coefficients take some times as many in memory. Of large images fewer are enough.
const SAMPLED_BYTES: u64 = 32_000_000;

/// Data sets with fewer bytes of JPEGs are packed with the tables that every program has: those of their own would take more
/// than they save.
const LEAST_BYTES: u64 = 8_000_000;

/// What the JPEGs of a preparation are packed with.
#[derive(Debug, Clone)]
pub(crate) struct Packing {
    tables: PackTables,
    /// The same as shards hold them; `None` for those that every program has.
    stored: Option<Vec<u8>>,
}

impl Packing {
    /// Adapts tables to JPEGs that are evenly spread over the lists of all parts, as they are when they are packed: those that are
    /// encoded again have other coefficients than their files.
    ///
    /// Every worker and a join have the same lists, and so the same tables, whichever images they prepare.
    ///
    /// # Errors
    /// The work was asked to stop.
    pub fn of(parts: &[PartTask], stop: &AtomicBool) -> Result<Self, PrepareError> {
        let packed = || parts.iter().filter(|part| part.packs);
        let (mut count, mut size) = (0, 0);
        for part in packed() {
            for sample in jpegs(part) {
                count += 1;
                size += part.sizes[sample];
            }
        }
        let built_in = Self {
            tables: PackTables::built_in().clone(),
            stored: None,
        };
        if size <= LEAST_BYTES {
            return Ok(built_in);
        }
        let fitting = SAMPLED_BYTES * count as u64 / size;
        let sampled = count.min(SAMPLED).min(fitting.max(1) as usize);
        let mut wanted = (0..sampled).map(|at| at * count / sampled).peekable();
        let (mut maker, mut decoder, mut bytes) = (Maker::new(None), Decoder::new(), SampleBytes::new());
        let (mut seen, mut added) = (PackSample::new(), 0);
        let all = packed().flat_map(|part| jpegs(part).map(move |sample| (part, sample)));
        for (_, (part, sample)) in all.enumerate().filter(|(at, _)| wanted.next_if_eq(at).is_some()) {
            if stop.load(Ordering::Relaxed) {
                return Err(PrepareError::Interrupted);
            }
            // What is wrong with an image is said when it is its turn.
            if part.images.read(sample, &mut bytes).is_err() {
                continue;
            }
            let read = catch_unwind(AssertUnwindSafe(|| {
                let file = becomes(part, &mut maker, bytes.file())?;
                let image = decoder.coefficients(&*file).ok()?;
                seen.add(&image);
                Some(())
            }));
            match read {
                Ok(read) => added += usize::from(read.is_some()),
                Err(_) => (maker, decoder) = (Maker::new(None), Decoder::new()),
            }
        }
        if added == 0 {
            return Ok(built_in);
        }
        let tables = seen.adapt(PackTables::built_in());
        tracing::info!(images = added, id = tables.id(), "tables of packed JPEGs");
        let stored = Some(tables.bytes());
        Ok(Self { tables, stored })
    }

    /// The tables as shards hold them, where they need to.
    pub fn stored(&self) -> Option<&[u8]> {
        self.stored.as_deref()
    }

    /// A writer for one thread.
    pub fn packer(&self) -> Packer {
        Packer::new(&self.tables)
    }
}

/// The JPEG that is packed of a file.
fn becomes<'a>(part: &PartTask, maker: &mut Maker, file: &'a [u8]) -> Option<Cow<'a, [u8]>> {
    let made = match &part.making {
        Making::Bake(bake) => maker.bake(file.to_vec(), bake),
        Making::Content(content @ Content::Resized { .. }) => maker.make(file.to_vec(), *content),
        Making::Content(Content::Lossless(_) | Content::Raw) => return Some(Cow::Borrowed(file)),
    };
    Some(Cow::Owned(made.ok()?.file))
}

/// The images of a part that are called JPEGs.
fn jpegs(part: &PartTask) -> impl Iterator<Item = usize> {
    (0..part.images.len()).filter(|&sample| is_called_jpeg(part.images.below(sample)))
}

/// Whether a file's name says that it is a JPEG.
fn is_called_jpeg(name: &[u8]) -> bool {
    let ends =
        |with: &[u8]| name.len() >= with.len() && name[name.len() - with.len()..].eq_ignore_ascii_case(with);
    ends(b".jpg") || ends(b".jpeg")
}
