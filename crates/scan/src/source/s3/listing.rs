//! A listing of the objects of a bucket, page by page. A server could let it go on for ever.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::ops::Range;
use std::sync::Arc;

use rusty_s3::actions::ListObjectsV2;

use super::{Bucket, S3Options};
use crate::source::file::Stamp;
use crate::source::objects::Objects;
use crate::source::population::{Item, Place, Population, Thinned, check_size};

/// Most pages of a listing: those of a billion objects, a thousand in each.
const PAGES_MAX: usize = 1_000_000;
/// Most pages without an object, one after another.
const EMPTY_PAGES_MAX: u32 = 1000;

/// How far a listing has come.
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
    pub(super) fn new(prefix: &str, options: &S3Options, bytes_before: u64) -> Listing {
        Listing {
            prefix: prefix.to_string(),
            depth: options.depth.max(1),
            objects: Objects::new(options.seed, options.whole),
            empty_count: 0,
            bytes_before,
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
            return Err(io::Error::other("the listing goes on without objects"));
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

    /// Whether there is no further page.
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
        all.items.reserve(kept.len());
        all.extents.reserve(kept.len());
        let mut groups = HashMap::new();
        for listed in &kept {
            let top = top_of(&listed.key, &self.prefix, self.depth);
            let group = *groups.entry(top).or_insert_with(|| all.group(format!("{name}/{top}")));
            let place = Place::Object(number, listed.key.clone(), listed.tag.clone());
            let item = Item { place, bytes: listed.bytes, group, alone: false, stamp: Stamp::default() };
            let within = listed.blocks();
            // The blocks of objects that were not kept have numbers, too.
            all.blocks = first_block + within.start;
            all.push(item, &[(0, within.end - within.start)]);
        }
        (all.blocks, all.bytes) = (first_block + blocks, first_byte + bytes);
        all.not_kept_count += count - kept.len() as u64;
        if let Some(draws) = draws {
            let shift = |draw: Range<u64>| first_block + draw.start..first_block + draw.end;
            let draws = draws.into_iter().map(shift).collect();
            all.thinned.push(Thinned { blocks: first_block..all.blocks, draws });
            all.notes.push(format!(
                "{name}: {count} objects; to save memory, {} of them were kept, drawn at random by their size. Directories \
                 and largest files are those of the kept objects.",
                kept.len()
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
        Listing::new("", &S3Options::default(), 0)
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
