//! Objects of a bucket while it is listed: all of them, or, once these take too much memory, a sample.
//!
//! The sample has a fixed number of places. Each place holds an object that was drawn from all objects so far
//! with a probability in proportion to its blocks, independently of the other places: an object of n blocks
//! replaces the content of a place with probability n / (blocks so far, its own included). This is the method
//! of M. T. Chao, *A general purpose unequal probability sampling plan*, Biometrika 69, 1982, for samples of
//! one, once for each place. So the objects of the places are those that as many random blocks of the whole
//! bucket would have hit, and a scan draws from the places, each once, in place of the bucket.

use std::ops::Range;
use std::rc::Rc;

use layout::BLOCK_BYTES;
use percent_encoding::percent_decode_str;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// Most memory for the objects of a bucket before only a sample is kept, in bytes. About 200,000 ordinary
/// objects.
const LIST_BYTES_MAX: usize = 64 << 20;
/// Most memory for the objects of a bucket that is to be read completely, in bytes. About 800,000 ordinary
/// objects.
const WHOLE_BYTES_MAX: usize = 256 << 20;
/// Memory for an object beside its key and tag, in bytes: here, and as an item and an extent of the
/// population.
const OBJECT_BYTES: usize = 256;
/// Longest key that S3 allows, in bytes.
const KEY_BYTES_MAX: usize = 1024;
/// Longest accepted entity tag, in bytes. Those of S3 have up to 40.
const TAG_BYTES_MAX: usize = 256;
/// Number of places of a sample: as many as a scan with the default precision draws, with its repetitions.
pub(super) const PLACES: usize = 1 << 16;
/// Changes the seed, so that blocks are not drawn with the same random numbers as their objects.
const SEED_OF_OBJECTS: u64 = 0x6f62_6a65_6374_7321;

/// Returns whether S3 allows a key. One that is not UTF-8 is still percent-encoded in the listing, and cannot
/// be read.
fn is_possible(key: &str) -> bool {
    let decoded = percent_decode_str(key);
    key.len() <= KEY_BYTES_MAX || decoded.clone().count() <= KEY_BYTES_MAX && decoded.decode_utf8().is_err()
}

/// An object that is not empty.
pub(super) struct Listed {
    pub(super) key: Box<str>,
    pub(super) tag: Box<str>,
    pub(super) bytes: u64,
    /// Number of blocks of all objects before this one.
    before: u64,
}

impl Listed {
    /// Numbers of its blocks among those of all objects of the listing.
    pub(super) fn blocks(&self) -> Range<u64> {
        self.before..self.before + self.bytes.div_ceil(BLOCK_BYTES as u64)
    }
}

/// Objects of a bucket, or a sample of them.
pub(super) struct Objects {
    /// All objects, as long as they are few.
    all: Vec<Rc<Listed>>,
    /// Memory for `all`, in bytes.
    all_bytes: usize,
    /// Places of the sample, once there is one.
    places: Vec<Rc<Listed>>,
    /// Set if a sample is of no use to the caller.
    whole: bool,
    rng: StdRng,
    count: u64,
    blocks: u64,
    bytes: u64,
}

impl Objects {
    /// `whole` refuses more objects than can be kept, instead of sampling them with this seed.
    pub(super) fn new(seed: u64, whole: bool) -> Objects {
        let rng = StdRng::seed_from_u64(seed ^ SEED_OF_OBJECTS);
        Objects {
            all: Vec::new(),
            all_bytes: 0,
            places: Vec::new(),
            whole,
            rng,
            count: 0,
            blocks: 0,
            bytes: 0,
        }
    }

    /// Number of objects added.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Number of blocks of all objects added.
    pub(super) fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Length of all objects added, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Adds an object that is not empty.
    ///
    /// # Errors
    /// If the key or the tag is longer than S3 allows, or there are more objects than can be kept.
    pub(super) fn add(&mut self, key: String, tag: String, bytes: u64) -> Result<(), &'static str> {
        if !is_possible(&key) || tag.len() > TAG_BYTES_MAX {
            return Err("lists an object whose key or entity tag is longer than S3 allows");
        }
        let kept_bytes = OBJECT_BYTES + key.len() + tag.len();
        let listed = Listed { key: key.into(), tag: tag.into(), bytes, before: self.blocks };
        let blocks = listed.blocks();
        self.count += 1;
        self.blocks = blocks.end;
        self.bytes += bytes;
        if !self.places.is_empty() {
            self.draw_for_places(Rc::new(listed), blocks.end - blocks.start);
            return Ok(());
        }
        self.all.push(Rc::new(listed));
        self.all_bytes += kept_bytes;
        match self.whole {
            true if self.all_bytes > WHOLE_BYTES_MAX => {
                Err("too many objects to read all of them: the list would take \
                more than 256 MiB of memory; leave out --full for a sample, or scan a prefix")
            }
            false if self.all_bytes > LIST_BYTES_MAX => {
                self.sample_all();
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Replaces the list of all objects by a sample of it.
    fn sample_all(&mut self) {
        let all = std::mem::take(&mut self.all);
        let mut draw = || {
            let block = self.rng.random_range(0..self.blocks);
            all[all.partition_point(|listed| listed.before <= block) - 1].clone()
        };
        self.places = (0..PLACES).map(|_| draw()).collect();
    }

    /// Puts the object, with its number of blocks, into each place with the probability that it has among all
    /// so far.
    fn draw_for_places(&mut self, listed: Rc<Listed>, blocks: u64) {
        let share = blocks as f64 / self.blocks as f64;
        let mut at = 0;
        loop {
            // Number of places that it misses before the next hit: geometrically distributed.
            let missed = (1.0 - self.rng.random::<f64>()).ln() / (-share).ln_1p();
            at = usize::saturating_add(at, missed as usize);
            let Some(place) = self.places.get_mut(at) else { return };
            *place = listed.clone();
            at += 1;
        }
    }

    /// Returns the objects that were kept, in the order of the listing, each once, and, of a sample, the
    /// ranges of blocks to draw from, one for each place.
    pub(super) fn into_kept(mut self) -> (Vec<Listed>, Option<Vec<Range<u64>>>) {
        // Nothing else refers to an object that is once in one of the lists.
        let own = |list: Vec<Rc<Listed>>| list.into_iter().filter_map(Rc::into_inner).collect();
        if self.places.is_empty() {
            return (own(self.all), None);
        }
        let draws = self.places.iter().map(|listed| listed.blocks()).collect();
        self.places.sort_by_key(|listed| listed.before);
        self.places.dedup_by_key(|listed| listed.before);
        (own(self.places), Some(draws))
    }

    /// Memory for objects, in bytes.
    #[cfg(test)]
    fn kept_bytes(&self) -> usize {
        let mut kept: Vec<_> = self.all.iter().chain(&self.places).collect();
        kept.sort_by_key(|listed| listed.before);
        kept.dedup_by_key(|listed| listed.before);
        let texts: usize = kept.iter().map(|listed| listed.key.len() + listed.tag.len() + OBJECT_BYTES).sum();
        texts + self.places.len() * size_of::<Rc<Listed>>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(objects: &mut Objects, sizes: impl Iterator<Item = u64>) {
        for (number, bytes) in sizes.enumerate() {
            objects.add(format!("logs/{number}"), "0123456789abcdef".repeat(2), bytes).expect("added");
        }
    }

    #[test]
    fn few_objects_are_all_kept() {
        let mut objects = Objects::new(1, true);
        list(&mut objects, [1, 4096, 4097].into_iter());
        assert_eq!((objects.count(), objects.blocks(), objects.bytes()), (3, 4, 8194));
        let (kept, draws) = objects.into_kept();
        assert_eq!(kept.iter().map(|listed| listed.blocks()).collect::<Vec<_>>(), [0..1, 1..2, 2..4]);
        assert_eq!(draws, None);
    }

    #[test]
    fn memory_for_objects_is_bounded() {
        let mut objects = Objects::new(1, false);
        let key = "k".repeat(1000);
        let mut most = 0;
        for number in 0..400_000 {
            objects.add(format!("{key}{number}"), String::new(), 1).expect("added");
            if number % 20_000 == 0 {
                most = most.max(objects.kept_bytes());
            }
        }
        assert_eq!((objects.count(), objects.blocks()), (400_000, 400_000));
        assert!((32 << 20..96 << 20).contains(&most), "{most}");
        let long = Objects::new(1, false).add("k".repeat(1025), String::new(), 1);
        assert!(long.is_err_and(|why| why.contains("longer")));
    }

    #[test]
    fn keys_that_are_not_text_are_as_long_as_they_are_encoded() {
        let added = |key: String| Objects::new(1, false).add(key, String::new(), 1).is_ok();
        assert!(added("%FF".repeat(1024)));
        assert!(!added("%FF".repeat(1025)));
        assert!(!added("%41".repeat(1024)), "it would have been decoded");
        assert!(!added("a".repeat(1025)));
    }

    #[test]
    fn a_whole_bucket_is_refused_when_it_has_too_many_objects() {
        let mut objects = Objects::new(1, true);
        let added =
            (0..1_200_000).try_for_each(|number| objects.add(format!("logs/{number}"), String::new(), 1));
        assert!(added.is_err_and(|why| why.contains("--full")));
    }

    /// Every block of the bucket has the same probability, wherever its object is in the list and however
    /// large.
    #[test]
    fn places_are_drawn_in_proportion_to_blocks() {
        const COUNT: u64 = 600_000;
        let size = |number: u64| if number % 10 == 3 { 16 * 4096 } else { 4096 };
        let mut objects = Objects::new(7, false);
        list(&mut objects, (0..COUNT).map(size));
        assert_eq!(objects.blocks(), COUNT / 10 * 25);
        let blocks = objects.blocks();
        let (kept, draws) = objects.into_kept();
        let draws = draws.expect("a sample");
        assert_eq!(draws.len(), PLACES);
        assert!(kept.len() < PLACES && kept.is_sorted_by_key(|listed| listed.before));
        let share = |of: &dyn Fn(&Range<u64>) -> bool| {
            draws.iter().filter(|draw| of(draw)).count() as f64 / PLACES as f64
        };
        // Six standard errors are 0.012 at most.
        for tenth in 0..10 {
            let part = blocks / 10 * tenth..blocks / 10 * (tenth + 1);
            let found = share(&|draw| part.contains(&draw.start));
            assert!((found - 0.1).abs() < 0.012, "{tenth}: {found}");
        }
        let large = share(&|draw| draw.end - draw.start == 16);
        assert!((large - 16.0 / 25.0).abs() < 0.012, "{large}");
    }
}
