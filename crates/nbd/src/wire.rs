//! The bytes of the protocol, encoded and decoded by pure functions.

pub mod extended;
mod fields;
pub mod operation;
pub mod option;
pub mod option_reply;
pub mod protocol;
pub mod reply;
pub mod request;
