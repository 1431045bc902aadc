//! Delaying writers: `throttle` near full, `pacer` while cleaning cannot keep up; `token_bucket` is the rate
//! of both.

pub(crate) mod held;
pub(crate) mod pacer;
pub(crate) mod throttle;
pub(crate) mod token_bucket;
