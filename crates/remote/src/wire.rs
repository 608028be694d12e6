//! A batch as safetensors.

use std::collections::{HashMap, HashSet};

use half::{bf16, f16};
use safetensors::tensor::{Metadata, TensorInfo};
use safetensors::{Dtype, SafeTensors};
use stokehold_loader::{BadImagePolicy, Batch, BatchNumbers, ImageBuffer, Loader, Pixels, SampleType};
use stokehold_storage::IGNORE;

/// A batch on the wire: three pieces, one after the other. The numbers of images and masks are not copied.
pub struct Encoded {
    /// Everything before the images.
    pub head: Vec<u8>,
    /// The images.
    pub images: ImageBuffer,
    /// The classes of their pixels, if they have masks.
    pub masks: Vec<u8>,
}

impl Encoded {
    /// The bytes of its images, as they lie in memory. The wire and every machine that this runs on are little-endian.
    pub fn image_bytes(&self) -> &[u8] {
        const { assert!(cfg!(target_endian = "little")) };
        self.images.as_bytes()
    }

    /// One text.
    pub fn to_vec(&self) -> Vec<u8> {
        [&self.head, self.image_bytes(), &self.masks].concat()
    }
}

/// A batch whose images have this shape, as safetensors.
///
/// # Errors
/// Its parts do not fit together, in words.
pub fn encode(batch: Batch, shape: [usize; 3]) -> Result<Encoded, String> {
    let count = batch.labels.len();
    let [_, height, width] = shape;
    let Pixels::Host(images) = batch.pixels else {
        return Err("its images are not in main memory".to_owned());
    };
    let dtype = match &*images {
        BatchNumbers::F32(_) => Dtype::F32,
        BatchNumbers::F16(_) => Dtype::F16,
        BatchNumbers::Bf16(_) => Dtype::BF16,
        BatchNumbers::U8(_) => Dtype::U8,
    };
    let mut tensors = vec![
        ("samples", Dtype::U64, vec![count], 8 * count),
        ("labels", Dtype::U32, vec![count], 4 * count),
        ("again", Dtype::U32, vec![count], 4 * count),
        (
            "images",
            dtype,
            vec![count, 3, height, width],
            images.as_bytes().len(),
        ),
    ];
    if !batch.masks.is_empty() {
        tensors.push(("masks", Dtype::U8, vec![count, height, width], batch.masks.len()));
    }
    let mut end = 0;
    let infos = tensors.into_iter().map(|(name, dtype, shape, bytes)| {
        let begin = end;
        end += bytes;
        let data_offsets = (begin, end);
        let info = TensorInfo {
            dtype,
            shape,
            data_offsets,
        };
        (name.to_owned(), info)
    });
    let bad = serde_json::to_string(&batch.bad).map_err(|error| error.to_string())?;
    let facts = HashMap::from([("bad".to_owned(), bad)]);
    let metadata = Metadata::new(Some(facts), infos.collect()).map_err(|error| error.to_string())?;
    let mut text = serde_json::to_vec(&metadata).map_err(|error| error.to_string())?;
    // Numbers begin at a multiple of 8.
    text.resize(text.len().next_multiple_of(8), b' ');
    let mut head = (text.len() as u64).to_le_bytes().to_vec();
    head.append(&mut text);
    head.extend(batch.samples.iter().flat_map(|sample| sample.to_le_bytes()));
    head.extend(batch.labels.iter().flat_map(|label| label.to_le_bytes()));
    head.extend(batch.again.iter().flat_map(|again| again.to_le_bytes()));
    Ok(Encoded {
        head,
        images,
        masks: batch.masks,
    })
}

/// The batch of a text, for `loader`, whose memory it uses.
///
/// # Errors
/// The text is no such batch, in words.
pub fn decode(text: &[u8], loader: &Loader) -> Result<Batch, String> {
    let (_, facts) = SafeTensors::read_metadata(text).map_err(|error| error.to_string())?;
    let tensors = SafeTensors::deserialize(text).map_err(|error| error.to_string())?;
    let part = |name: &str| tensors.tensor(name).map_err(|error| error.to_string());
    let images = part("images")?;
    let shape = loader.shape();
    let [count, own @ ..] = images.shape() else {
        return Err("images without dimensions".to_owned());
    };
    let count = *count;
    if *own != shape {
        return Err(format!("images of {own:?}, and not {shape:?}"));
    }
    let expects = |name: &str, dtype: Dtype, shape: &[usize]| {
        let tensor = part(name)?;
        match tensor.dtype() == dtype && tensor.shape() == shape {
            true => Ok(tensor.data()),
            false => Err(format!(
                "{name} are {:?} {:?}, and not {dtype:?} {shape:?}",
                tensor.dtype(),
                tensor.shape()
            )),
        }
    };
    let (mut batch, mut buffer) = loader.batch(count);
    let numbers = images.data();
    match (buffer.images_mut(), images.dtype()) {
        (BatchNumbers::F32(own), Dtype::F32) => {
            fill(own, numbers, f32::from_le_bytes);
        }
        (BatchNumbers::F16(own), Dtype::F16) => {
            fill(own, numbers, f16::from_le_bytes);
        }
        (BatchNumbers::Bf16(own), Dtype::BF16) => {
            fill(own, numbers, bf16::from_le_bytes);
        }
        (BatchNumbers::U8(own), Dtype::U8) => own.copy_from_slice(numbers),
        (own, theirs) => {
            let own: SampleType = own.sample_type();
            return Err(format!("images of type {theirs:?}, and not {own}"));
        }
    }
    let mut labels = vec![0; count];
    fill(
        &mut labels,
        expects("labels", Dtype::U32, &[count])?,
        u32::from_le_bytes,
    );
    let mut again = vec![0; count];
    fill(
        &mut again,
        expects("again", Dtype::U32, &[count])?,
        u32::from_le_bytes,
    );
    let mut samples = vec![0; count];
    fill(
        &mut samples,
        expects("samples", Dtype::U64, &[count])?,
        u64::from_le_bytes,
    );
    if let Some(sample) = samples.iter().find(|&&sample| sample >= loader.images() as u64) {
        return Err(format!("sample {sample} of {}", loader.images()));
    }
    let masks = match loader.source().pixel_classes() {
        Some(_) if count > 0 => {
            let [_, height, width] = shape;
            expects("masks", Dtype::U8, &[count, height, width])?.to_vec()
        }
        _ => Vec::new(),
    };
    let bad = facts.metadata().as_ref().and_then(|facts| facts.get("bad"));
    let bad = bad.ok_or("no word of bad images")?;
    batch.bad = serde_json::from_str(bad).map_err(|error| error.to_string())?;
    batch.pixels = Pixels::Host(buffer);
    (batch.labels, batch.masks) = (labels, masks);
    (batch.samples, batch.again) = (samples, again);
    Ok(batch)
}

/// Whether a batch of a server is one of the images that it was asked for, each of its class: a server that lies, or is damaged,
/// trains nothing. `expected` are the samples of the batch, each with how often the epoch had it before.
///
/// # Errors
/// It is not, in words.
pub fn check(batch: &mut Batch, loader: &Loader, expected: &[(u64, u32)]) -> Result<(), String> {
    let source = loader.source();
    for bad in &mut batch.bad {
        if bad.sample >= loader.images() as u64 {
            return Err(format!("sample {} of {}", bad.sample, loader.images()));
        }
        bad.name = source.name(bad.sample as usize);
    }
    let policy = loader.options().bad_images;
    let bad: HashSet<u64> = batch.bad.iter().map(|bad| bad.sample).collect();
    let mut made = std::iter::zip(&batch.samples, &batch.again).peekable();
    for &(sample, again) in expected {
        let is_it = |(own, times): &(&u64, &u32)| (**own, **times) == (sample, again);
        if made.next_if(is_it).is_some() {
            continue;
        }
        let may_lack = bad.contains(&sample) && policy != BadImagePolicy::Error;
        if !may_lack {
            return Err(format!("it lacks sample {sample}, and does not say why"));
        }
        if policy == BadImagePolicy::Substitute {
            let class = source.class(sample as usize);
            made.next_if(|(own, times)| **times == again && source.class(**own as usize) == class);
        }
    }
    if let Some((sample, _)) = made.next() {
        return Err(format!("it has sample {sample}, which is not its own"));
    }
    let classes = std::iter::zip(&batch.samples, &batch.labels);
    for (sample, label) in classes {
        let class = source.class(*sample as usize);
        if *label != class {
            return Err(format!("sample {sample} has class {label}, and not {class}"));
        }
    }
    if let Some(classes) = source.pixel_classes() {
        let known = |class: u8| class == IGNORE || usize::from(class) < classes.names.len();
        if let Some(class) = batch.masks.iter().find(|class| !known(**class)) {
            return Err(format!("a mask has class {class} of {}", classes.names.len()));
        }
    }
    Ok(())
}

/// The most bytes that a batch for `loader` can have: its images and masks, and a mebibyte of words.
pub fn largest(loader: &Loader) -> u64 {
    let [channels, height, width] = loader.shape().map(|side| side as u64);
    let options = loader.options();
    let pixels = height * width;
    let masks = if loader.source().pixel_classes().is_some() {
        pixels
    } else {
        0
    };
    let image = channels * pixels * options.sample_type.bytes() as u64 + masks + 64;
    (options.batch_size as u64)
        .saturating_mul(image)
        .saturating_add(1 << 20)
}

/// Numbers from their bytes; both have the same length. On machines with the wire's byte order this is a copy.
fn fill<T, const N: usize>(into: &mut [T], bytes: &[u8], of: impl Fn([u8; N]) -> T) {
    let (whole, _) = bytes.as_chunks::<N>();
    for (into, bytes) in into.iter_mut().zip(whole) {
        *into = of(*bytes);
    }
}
