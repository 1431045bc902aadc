//! Models of the state that threads share outside the drive's lock. The model checker loom runs each model in
//! every order of its threads' steps, and with every value that a load may return under the C11 memory model.
//!
//! The checked files are included from their crates one by one. They are built with [`sync`] in place of the
//! modules `sync` of their crates. A model beside each file defines what must hold. `plant.rs` makes copies
//! with mistakes, which the models must find.
//!
//! ```text
//! RUSTFLAGS='--cfg loom' cargo test --profile models -p threads
//! ```
//!
//! Without `--cfg loom` this crate is empty.
#![forbid(unsafe_code)]
#![cfg(all(test, loom))]
#![allow(
    dead_code,
    unexpected_cfgs,
    unreachable_pub,
    unused_imports,
    clippy::all,
    reason = "of each file only a part is used here; its own crate checks it"
)]

// The checked files use items of these crates: here their substitutes, below.
extern crate self as media;
extern crate self as space;

mod arena;
mod backing;
mod check;
mod memory;
mod planted;
mod publishing;
mod sync;

use arena::{Arena, ArenaShape, IoBuf};
use publishing::PACK_HARD_BYTES;

mod pins {
    #[path = "../../../drive/src/state/pins.rs"]
    mod code;
    pub(crate) mod model;
}
mod wait {
    #[path = "../../../drive/src/wait.rs"]
    mod code;
    pub(crate) mod model;
}
mod ticket {
    #[path = "../../../media/src/file/uring/ticket.rs"]
    mod code;
    pub(crate) mod model;
}
mod lease {
    #[path = "../../../media/src/lease.rs"]
    mod code;
    pub(crate) mod model;
}
mod slots {
    #[path = "../../../slots/src/slots.rs"]
    mod code;
    pub(crate) mod model;
}
mod frame_cache {
    #[path = "../../../drive/src/state/frame_cache.rs"]
    mod code;
    pub(crate) mod model;
}
mod heat {
    #[path = "../../../drive/src/state/heat.rs"]
    mod code;
    pub(crate) mod model;
}
mod sample {
    #[path = "../../../drive/src/state/sample.rs"]
    mod code;
    pub(crate) mod model;
}
#[path = "memory"]
mod publish {
    use crate::publishing::SealedPack;
    #[path = "../../../drive/src/state/log/memory.rs"]
    mod code;
    pub(crate) mod model;
}

include!(concat!(env!("OUT_DIR"), "/planted.rs"));
mod tests;
