//! Requests of users: the admin socket, and changes of drives that are not being served.

pub(crate) mod admin;
pub(crate) mod ask;
pub(crate) mod resize;
pub(crate) mod runtime_dir;
