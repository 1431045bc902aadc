//! The engine from outside, on media in memory: a module for each concept.
//!
//! One program, because building one for each takes longer than running them. What measures the memory of its
//! process (`claims`) is a program of its own.

#[path = "../common/caching.rs"]
mod caching;
#[path = "../common/mod.rs"]
mod common;
#[path = "../common/faulty.rs"]
mod faulty;
#[path = "../common/host.rs"]
mod host;
#[path = "../common/image.rs"]
mod image;
#[path = "../common/kinds.rs"]
mod kinds;
#[path = "../common/later.rs"]
mod later;
#[path = "../common/protected.rs"]
mod protected;
#[path = "../common/sparse.rs"]
mod sparse;
#[path = "../common/stored.rs"]
mod stored;

mod again;
mod bad_open_pack;
mod bad_page;
mod basic;
mod check;
mod closing;
mod conflict;
mod damage;
mod damaged_log;
mod dead_blocks;
mod dictionaries;
mod divided;
mod failed_sync;
mod far;
mod far_other;
mod faults;
mod features;
mod frames;
mod free_list;
mod full;
mod full_backing;
mod full_damaged;
mod full_limit;
mod give_back;
mod group_commit;
mod hanging;
mod hostile;
mod hostile_counts;
mod hostile_map;
mod keep_allocated;
mod kept_frames;
mod known_codecs;
mod large_table;
mod large_write;
mod largest;
mod later_bytes;
mod left_memory;
mod left_memory_mistakes;
mod left_out;
mod lost_copies;
mod lost_gap;
mod lost_leaf;
mod lost_page;
mod make_drives;
mod map;
mod mended_log;
mod missing_newest;
mod offload;
mod openings;
mod owner;
mod panics;
mod parity;
mod parity_out;
mod read_cache;
mod recovery_memory;
mod resize;
mod rest;
mod scattered;
mod scrub;
mod scrub_places;
mod set_parity;
mod settle;
mod sizes;
mod space;
mod stalled;
mod stored_drives;
mod stuck;
mod unreadable_next;
mod unreadable_start;
mod vouched;
mod wipe;
