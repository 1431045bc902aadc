//! Real clients with the real server and drive. A test whose client is not installed prints `skipped:` and
//! passes.

#[path = "../common/mod.rs"]
mod common;
#[path = "../../src/demo/mount.rs"]
mod mount;
#[path = "../../src/demo/tools.rs"]
#[allow(dead_code, reason = "the demo uses all of it")]
mod tools;

mod activation;
mod any_range;
mod attach;
mod attach_again;
mod attach_configured;
mod attach_files;
mod attach_holders;
mod attach_host;
mod attach_others;
mod attach_partitions;
mod attach_renamed;
mod attach_same_path;
mod attach_servers;
mod attach_unattended;
mod demo;
mod disk;
mod doctor;
mod filesystems;
mod fio;
mod full_filesystem;
mod libnbd;
mod memory;
mod nbdcopy;
mod nbdinfo;
mod owner;
mod qemu;
mod reload;
mod tls;
mod tutorial;
