//! The commands as used on the command line.

#[path = "../common/mod.rs"]
mod common;

mod bench_targets;
mod capacity;
mod check;
mod compression;
mod config;
mod connections;
mod copies;
mod create;
mod doctor;
mod doctor_above;
mod down;
mod events;
mod exports;
mod far;
mod full_backing;
mod hanging;
mod http;
mod install;
mod list;
mod loop_device;
mod odd_paths;
mod offload;
mod opening;
mod other_file;
mod parity;
mod privileges;
mod project;
mod refusals;
mod resize;
mod serve;
mod sfx;
mod status;
mod unread;
mod watch;
mod when_full;
mod wipe;
