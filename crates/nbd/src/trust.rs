//! Who a client is, and what it may use.

pub(crate) mod access;
pub(crate) mod identity;
pub(crate) mod private_key;
pub(crate) mod tls;
