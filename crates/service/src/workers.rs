//! Threads of a server: `pool` has the workers, whose load `busy` measures; `compute` has the thread of low
//! priority.

pub(crate) mod busy;
pub(crate) mod compute;
pub(crate) mod openings;
pub(crate) mod pause;
pub(crate) mod pool;
