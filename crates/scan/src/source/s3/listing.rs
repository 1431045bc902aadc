//! A listing of the objects of a bucket, page by page. A server could let it go on for ever.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::ops::Range;
use std::sync::Arc;

use rusty_s3::actions::ListObjectsV2;

use super::{Bucket, S3Options};
use crate::source::file::Stamp;
use crate::source::objects::{Objects, PLACES};
use crate::source::population::{Item, Location, Population, Thinned, check_size};

/// Most pages of a listing: those of a billion objects, a thousand in each.
const PAGES_MAX: usize = 1_000_000;
/// Most pages without an object, one after another.
const EMPTY_PAGES_MAX: u32 = 1000;

/// The progress of a listing.
pub(super) struct Listing {
    prefix: String,
    /// See [`S3Options::depth`].
    depth: usize,
    objects: Objects,
    /// Number of objects of length 0.
    empty_count: u64,
    /// Length of all data listed before, in bytes.
    bytes_before: u64,
    /// Names the next page.
    token: Option<String>,
    ended: bool,
    /// Hashes of the tokens so far: a server that gives one twice would repeat its pages.
    tokens: HashSet<u64>,
    hasher: RandomState,
    empty_pages: u32,
}

impl Listing {
    /// A listing of a further bucket or prefix.
    pub(super) fn new(prefix: &str, options: &S3Options, all: &Population) -> Listing {
        // Samples of two listings must not be drawn with the same random numbers.
        let seed = options.seed ^ (all.buckets.len() as u64) << 32;
        Listing {
            prefix: prefix.to_string(),
            depth: options.depth.max(1),
            objects: Objects::new(seed, options.whole),
            empty_count: 0,
            bytes_before: all.bytes,
            token: None,
            ended: false,
            tokens: HashSet::new(),
            hasher: RandomState::new(),
            empty_pages: 0,
        }
    }

    /// Takes the objects of a page and the name of the next one.
    pub(super) fn take_page(&mut self, text: &str) -> io::Result<()> {
        let page = ListObjectsV2::parse_response(text)
            .map_err(|error| io::Error::other(format!("the listing is not one of S3: {error}")))?;
        self.empty_pages = if page.contents.is_empty() { self.empty_pages + 1 } else { 0 };
        if self.empty_pages > EMPTY_PAGES_MAX {
            return Err(io::Error::other("the listing continues without objects"));
        }
        for object in page.contents {
            let Some(bytes) = object.size.filter(|bytes| *bytes > 0) else {
                self.empty_count += 1;
                continue;
            };
            check_size(self.bytes_before + self.objects.bytes(), bytes).map_err(io::Error::other)?;
            let tag = object.etag.unwrap_or_default();
            self.objects.add(object.key, tag, bytes).map_err(io::Error::other)?;
        }
        self.token = page.next_continuation_token;
        self.ended = self.token.is_none();
        if let Some(token) = &self.token {
            if !self.tokens.insert(self.hasher.hash_one(token)) {
                return Err(io::Error::other("the listing repeats itself: two pages have the same token"));
            }
            if self.tokens.len() > PAGES_MAX {
                return Err(io::Error::other(format!(
                    "the listing has more than {PAGES_MAX} pages; scan a prefix"
                )));
            }
        }
        Ok(())
    }

    /// The token that names the next page; `None` for the first.
    pub(super) fn token(&self) -> Option<&str> {
        self.token.as_deref()
    }

    /// Set if there is no further page.
    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Number of objects that are not empty so far.
    pub(super) fn objects_count(&self) -> u64 {
        self.objects.count()
    }

    /// Adds the objects of the listing, which has ended.
    pub(super) fn add_to(self, all: &mut Population, bucket: Arc<Bucket>) {
        let number = all.buckets.len() as u32;
        let name = format!("s3://{}", bucket.name());
        all.buckets.push(bucket);
        all.skipped.empty_files_count += self.empty_count;
        let (first_block, first_byte) = (all.blocks, all.bytes);
        let (count, blocks, bytes) = (self.objects.count(), self.objects.blocks(), self.objects.bytes());
        let (kept, draws) = self.objects.into_kept();
        let kept_count = kept.len();
        all.items.reserve(kept_count);
        all.extents.reserve(kept_count);
        let mut groups: HashMap<String, u32> = HashMap::new();
        for listed in kept {
            let top = top_of(&listed.key, &self.prefix, self.depth);
            let group = groups.get(top).copied().unwrap_or_else(|| {
                let group = all.group(format!("{name}/{top}"));
                groups.insert(top.to_string(), group);
                group
            });
            let within = listed.blocks();
            let location = Location::Object(number, listed.key, listed.tag);
            let item = Item { location, bytes: listed.bytes, group, alone: false, stamp: Stamp::default() };
            // The blocks of objects that were not kept have numbers, too.
            all.blocks = first_block + within.start;
            all.push(item, &[(0, within.end - within.start)]);
        }
        (all.blocks, all.bytes) = (first_block + blocks, first_byte + bytes);
        all.not_kept_count += count - kept_count as u64;
        if let Some(draws) = draws {
            let shift = |draw: Range<u64>| first_block + draw.start..first_block + draw.end;
            let draws = draws.into_iter().map(shift).collect();
            all.thinned.push(Thinned { blocks: first_block..all.blocks, draws });
            all.notes.push(format!(
                "{name}: {count} objects; to save memory, {kept_count} of them were kept, drawn at random by their \
                 size. Directories and largest files are those of the kept objects, groups of blocks and drive ratios \
                 do not span objects, and not more than {PLACES} samples can be drawn."
            ));
        }
    }
}

/// Returns the first `depth` levels of a key below the prefix, as a directory.
fn top_of<'a>(key: &'a str, prefix: &str, depth: usize) -> &'a str {
    let from = prefix.rfind('/').map_or(0, |at| at + 1);
    // A hostile endpoint lists keys that do not begin with the prefix.
    let Some(below) = key.get(from..) else { return key };
    let ends = below.match_indices('/').map(|(at, _)| from + at + 1);
    &key[..ends.take(depth).last().unwrap_or(from)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_directories() {
        assert_eq!(top_of("a/b/c", "", 1), "a/");
        assert_eq!(top_of("a/b/c", "", 2), "a/b/");
        assert_eq!(top_of("a/b/c", "", 3), "a/b/");
        assert_eq!(top_of("c", "", 1), "");
        assert_eq!(top_of("logs/2026/x", "logs/", 1), "logs/2026/");
        assert_eq!(top_of("logs/2026/x", "lo", 1), "logs/");
        // Keys that are not below the prefix.
        assert_eq!(top_of("log\u{fffd}/2026/a", "logs/", 1), "log\u{fffd}/2026/a");
        assert_eq!(top_of("l", "logs/", 1), "l");
    }

    fn page(objects: usize, token: &str) -> String {
        let object = |at| format!("<Contents><Key>{token}-{at}</Key><Size>1</Size></Contents>");
        format!(
            "<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><IsTruncated>true</IsTruncated>\
             <NextContinuationToken>{token}</NextContinuationToken>{}</ListBucketResult>",
            (0..objects).map(object).collect::<String>()
        )
    }

    fn listing() -> Listing {
        Listing::new("", &S3Options::default(), &Population::new())
    }

    /// A bucket that nobody reads.
    fn bucket() -> Arc<Bucket> {
        let options = S3Options { endpoint: Some("http://127.0.0.1:1".into()), ..S3Options::default() };
        Arc::new(Bucket::new("bucket", &options).expect("a bucket"))
    }

    #[test]
    fn samples_of_two_prefixes_are_independent() {
        let mut all = Population::new();
        for prefix in ["a/", "b/"] {
            let mut listing = Listing::new(prefix, &S3Options { seed: 7, ..S3Options::default() }, &all);
            for number in 0..300_000 {
                listing.objects.add(format!("{prefix}{number}"), String::new(), 4096).expect("added");
            }
            listing.add_to(&mut all, bucket());
        }
        let [first, second] = &all.thinned[..] else { panic!("two samples") };
        let drawn = |thinned: &Thinned| -> HashSet<u64> {
            thinned.draws.iter().map(|draw| draw.start - thinned.blocks.start).collect()
        };
        let (first, second) = (drawn(first), drawn(second));
        // Of independent ones, each has the same share of the other as of all: about a fifth.
        let common = first.intersection(&second).count();
        assert!(common < first.len() / 2, "{common} of {}", first.len());
        let note = &all.notes[0];
        assert!(note.contains("do not span objects") && note.contains("65536 samples"), "{note}");
    }

    #[test]
    fn groups_of_blocks_of_a_sample_end_at_the_ends_of_objects() {
        let sampled = |count: u64| {
            let mut all = Population::new();
            let mut listing = Listing::new("", &S3Options::default(), &all);
            for number in 0..count {
                listing.objects.add(number.to_string(), String::new(), 3 * 4096).expect("added");
            }
            listing.add_to(&mut all, bucket());
            // Objects that were neighbours in the bucket, too.
            let pairs = all.extents.windows(2).filter(|pair| pair[0].before + 3 == pair[1].before);
            let firsts: Vec<u64> = pairs.map(|pair| pair[0].before).take(1000).collect();
            assert!(firsts.len() > 90);
            let blocks = firsts.into_iter().flat_map(|first| first..first + 6);
            blocks.map(|block| all.group_of(block, 8).len()).max()
        };
        assert_eq!(sampled(300_000), Some(1));
        assert!(sampled(100) > Some(1), "all objects of a small bucket follow each other");
    }

    #[test]
    fn a_listing_without_an_end_is_ended() {
        let mut few = listing();
        assert!(
            (0..10_000).try_for_each(|number| few.take_page(&page(number % 3, &number.to_string()))).is_ok()
        );
        let mut none = listing();
        assert!((0..10_000).try_for_each(|number| none.take_page(&page(0, &number.to_string()))).is_err());
    }

    #[test]
    fn tokens_that_come_again_end_a_listing() {
        for tokens in [&["a", "a"][..], &["a", "b", "a"], &["a", "b", "c", "b"]] {
            let mut listing = listing();
            let (last, first) = tokens.split_last().expect("tokens");
            first.iter().for_each(|token| listing.take_page(&page(1, token)).expect("a page"));
            let error = listing.take_page(&page(1, last)).expect_err("a repetition").to_string();
            assert!(error.contains("repeats itself"), "{error}");
        }
    }
}
