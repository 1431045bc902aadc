//! Administration: the admin socket of a server, and changes of drives, served or not.

pub(crate) mod admin;
pub(crate) mod changes;
