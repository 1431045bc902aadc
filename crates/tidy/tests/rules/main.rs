//! The rules. One program, because building one for each takes longer than running them.

mod calls;
mod circles;
mod commits;
mod layers;
mod links;
mod width;
