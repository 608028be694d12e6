//! Several sources as one.

use std::sync::Arc;

use crate::shard::Baked;
use crate::{PixelClasses, SampleBytes, Source, StorageError};

/// The samples of several sources, one source after the other.
///
/// Classes keep the numbers that they have in their own source.
///
/// ```
/// use std::sync::Arc;
/// use stokehold_storage::{ImageList, Joined, Source};
/// let mut list = ImageList::default();
/// list.push("a.jpg", 0);
/// let list: Arc<dyn Source> = Arc::new(list);
/// let joined = Joined::new(vec![Arc::clone(&list), list])?;
/// assert_eq!((joined.len(), joined.name(1).as_str()), (2, "a.jpg"));
/// # Ok::<(), stokehold_storage::StorageError>(())
/// ```
#[derive(Clone, Default)]
pub struct Joined {
    sources: Vec<Arc<dyn Source>>,
    /// Where each source ends.
    ends: Vec<usize>,
}

impl Joined {
    /// Joins the sources in this order.
    ///
    /// # Errors
    /// The images of one have other operations behind them than those of another ([`Source::baked`]), or other
    /// classes of pixels ([`Source::pixel_classes`]).
    pub fn new(sources: Vec<Arc<dyn Source>>) -> Result<Self, StorageError> {
        let mut some = sources.iter().filter(|source| !source.is_empty());
        if let Some(first) = some.next()
            && let Some(other) = some.find(|other| other.baked() != first.baked())
        {
            return Err(StorageError::Prepared {
                path: other.name(0).into(),
                reason: format!(
                    "it has other operations behind it than {}; load the two by themselves",
                    first.name(0)
                ),
            });
        }
        let mut some = sources.iter().filter(|source| !source.is_empty());
        if let Some(first) = some.next()
            && let Some(other) = some.find(|other| other.pixel_classes() != first.pixel_classes())
        {
            return Err(StorageError::Pairs {
                path: other.name(0).into(),
                reason: format!(
                    "it has other classes of pixels than {}, or only one of the two has masks; load the two by themselves",
                    first.name(0)
                ),
            });
        }
        let mut end = 0;
        let ends = sources.iter().map(|source| {
            end += source.len();
            end
        });
        let ends = ends.collect();
        Ok(Self { sources, ends })
    }

    /// The source that has a sample, and the sample's number there.
    fn of(&self, sample: usize) -> Option<(&dyn Source, usize)> {
        let number = self.ends.partition_point(|&end| end <= sample);
        let start = number.checked_sub(1).map_or(0, |before| self.ends[before]);
        Some((&**self.sources.get(number)?, sample - start))
    }

    /// As [`Joined::of`], for the functions whose caller promises that there is such a sample.
    fn there(&self, sample: usize) -> (&dyn Source, usize) {
        self.of(sample).expect("a sample below the number of samples")
    }
}

impl Source for Joined {
    fn len(&self) -> usize {
        self.ends.last().copied().unwrap_or(0)
    }

    fn class(&self, sample: usize) -> u32 {
        let (source, sample) = self.there(sample);
        source.class(sample)
    }

    fn name(&self, sample: usize) -> String {
        let (source, sample) = self.there(sample);
        source.name(sample)
    }

    fn read(&self, sample: usize, into: &mut SampleBytes) -> Result<(), StorageError> {
        let (source, own) = self.of(sample).ok_or(StorageError::NoSuchSample {
            sample,
            len: self.len(),
        })?;
        source.read(own, into)
    }

    fn expect(&self, sample: usize) {
        if let Some((source, sample)) = self.of(sample) {
            source.expect(sample);
        }
    }

    fn reach(&self) -> usize {
        self.sources
            .iter()
            .map(|source| source.reach())
            .max()
            .unwrap_or(0)
    }

    fn version(&self, sample: usize, into: &mut Vec<u8>) -> bool {
        self.of(sample)
            .is_some_and(|(source, sample)| source.version(sample, into))
    }

    fn rest(&self, threads: isize) {
        for source in &self.sources {
            source.rest(threads);
        }
    }

    fn baked(&self) -> Option<&Baked> {
        let some = self.sources.iter().find(|source| !source.is_empty());
        some.and_then(|source| source.baked())
    }

    fn pixel_classes(&self) -> Option<&PixelClasses> {
        let some = self.sources.iter().find(|source| !source.is_empty());
        some.and_then(|source| source.pixel_classes())
    }

    fn mask_name(&self, sample: usize) -> String {
        let (source, sample) = self.there(sample);
        source.mask_name(sample)
    }

    fn read_mask(&self, sample: usize, into: &mut Vec<u8>) -> Result<(), StorageError> {
        let (source, own) = self.of(sample).ok_or(StorageError::NoSuchSample {
            sample,
            len: self.len(),
        })?;
        source.read_mask(own, into)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ImageList;

    fn list(names: &[&str]) -> Arc<dyn Source> {
        let mut list = ImageList::default();
        for (class, name) in (0..).zip(names) {
            list.push(name, class);
        }
        Arc::new(list)
    }

    #[test]
    fn samples_follow_one_another_over_empty_sources() {
        let joined = Joined::new(vec![list(&[]), list(&["a", "b"]), list(&[]), list(&["c"])]).unwrap();
        let all = (0..joined.len()).map(|sample| (joined.name(sample), joined.class(sample)));
        let expected = [("a", 0), ("b", 1), ("c", 0)].map(|(name, class)| (name.to_owned(), class));
        assert_eq!(all.collect::<Vec<_>>(), expected);
        let beyond = joined.read(3, &mut SampleBytes::new());
        assert!(matches!(
            beyond,
            Err(StorageError::NoSuchSample { sample: 3, len: 3 })
        ));
        assert!(Joined::default().is_empty());
    }
}
