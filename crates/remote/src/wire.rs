//! A batch as safetensors.

use std::collections::HashMap;

use half::{bf16, f16};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use stokehold_loader::{BatchNumbers, FilledBatch, Loader, SampleType};

/// The text of a batch on the wire, and its images' count.
///
/// # Errors
/// Its parts do not fit together, in words.
pub fn encode(batch: &FilledBatch, shape: [usize; 3]) -> Result<Vec<u8>, String> {
    let count = batch.labels.len();
    let [_, height, width] = shape;
    let (dtype, images): (_, &[u8]) = match &*batch.images {
        BatchNumbers::F32(numbers) => (Dtype::F32, bytemuck::cast_slice(numbers)),
        BatchNumbers::F16(numbers) => (Dtype::F16, bytemuck::cast_slice(numbers)),
        BatchNumbers::Bf16(numbers) => (Dtype::BF16, bytemuck::cast_slice(numbers)),
        BatchNumbers::U8(numbers) => (Dtype::U8, numbers),
    };
    let labels: Vec<u8> = batch
        .labels
        .iter()
        .flat_map(|label| label.to_le_bytes())
        .collect();
    let samples: Vec<u8> = batch
        .samples
        .iter()
        .flat_map(|sample| sample.to_le_bytes())
        .collect();
    let again: Vec<u8> = batch.again.iter().flat_map(|again| again.to_le_bytes()).collect();
    let view = |dtype, shape, bytes| TensorView::new(dtype, shape, bytes).map_err(|error| error.to_string());
    let mut tensors = vec![
        ("images", view(dtype, vec![count, 3, height, width], images)?),
        ("labels", view(Dtype::U32, vec![count], &labels)?),
        ("samples", view(Dtype::U64, vec![count], &samples)?),
        ("again", view(Dtype::U32, vec![count], &again)?),
    ];
    if !batch.masks.is_empty() {
        tensors.push((
            "masks",
            view(Dtype::U8, vec![count, height, width], &batch.masks)?,
        ));
    }
    let bad = serde_json::to_string(&batch.bad).map_err(|error| error.to_string())?;
    let facts = HashMap::from([("bad".to_owned(), bad)]);
    safetensors::serialize(tensors, Some(facts)).map_err(|error| error.to_string())
}

/// The batch of a text, for `loader`, whose memory it uses.
///
/// # Errors
/// The text is no such batch, in words.
pub fn decode(text: &[u8], loader: &Loader) -> Result<FilledBatch, String> {
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
    let mut buffer = loader.buffer(count);
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
    Ok(FilledBatch {
        images: buffer,
        prepared: Vec::new(),
        labels,
        masks,
        samples,
        again,
        bad: serde_json::from_str(bad).map_err(|error| error.to_string())?,
        spans: Vec::new(),
    })
}

/// Numbers from their bytes; both have the same length. On machines with the wire's byte order this is a copy.
fn fill<T, const N: usize>(into: &mut [T], bytes: &[u8], of: impl Fn([u8; N]) -> T) {
    let (whole, _) = bytes.as_chunks::<N>();
    for (into, bytes) in into.iter_mut().zip(whole) {
        *into = of(*bytes);
    }
}
