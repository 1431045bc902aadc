//! A qcow2 image behind qemu-nbd. It compresses only what is written through qemu's driver `compress`, which
//! takes whole clusters once; so it takes part without compression, as virtual machines use it.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use super::{Space, Store, Workshop, allocated_bytes};
use crate::error::Result;
use crate::fio::IoTarget;
use crate::process::{self, Server};

const PACKAGE: &str = "qemu-utils";
const CREATE: Duration = Duration::from_secs(60);

/// Most bytes of the tables of an image: 8 a cluster of 64 KiB for its place and 2 to count references, and
/// what holds those tables.
pub(super) fn tables_bytes(size_bytes: u64) -> u64 {
    const CLUSTER_BYTES: u64 = 64 << 10;
    const FIXED_BYTES: u64 = 1 << 20;
    size_bytes.div_ceil(CLUSTER_BYTES) * (8 + 2) + FIXED_BYTES
}

/// A served image.
pub(crate) struct Qcow2 {
    io_target: IoTarget,
    image: PathBuf,
    size_bytes: u64,
    server: Server,
}

pub(crate) fn lacks() -> Option<String> {
    ["qemu-img", "qemu-nbd"]
        .into_iter()
        .find(|program| process::find(program).is_none())
        .map(|program| format!("no {program} (package {PACKAGE})"))
}

impl Qcow2 {
    pub(crate) fn open(workshop: &Workshop<'_>) -> Result<Qcow2> {
        let image = workshop.path("image.qcow2");
        let (path, size) = (image.display().to_string(), workshop.size_bytes.to_string());
        let program = process::need("qemu-img", PACKAGE)?;
        let create = ["create", "-q", "-f", "qcow2", &path, &size];
        process::run(&program, &create, workshop.folder, CREATE, workshop.stop)?;
        let socket = workshop.path("qcow2.sock");
        let _ = fs::remove_file(&socket);
        let socket_text = socket.display().to_string();
        let serve = [
            "--persistent",
            "--format=qcow2",
            "--cache=none",
            "--aio=native",
            "--discard=unmap",
            "--shared=16",
            "--socket",
            &socket_text,
            &path,
        ];
        let program = process::need("qemu-nbd", PACKAGE)?;
        let server = Server::start(&program, &serve, &[], &workshop.path("qemu.log"))?;
        server.wait(workshop.stop, || Ok(socket.exists().then_some(())))?;
        let io_target = IoTarget::Nbd(super::nbd_uri(&socket));
        Ok(Qcow2 { io_target, image, size_bytes: workshop.size_bytes, server })
    }
}

impl Store for Qcow2 {
    fn io_target(&self) -> &IoTarget {
        &self.io_target
    }

    fn capacity_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn servers(&self) -> Vec<u32> {
        vec![self.server.pid()]
    }

    fn drop_caches(&self) {
        super::drop_cached(&self.image);
    }

    fn space(&self) -> Result<Option<Space>> {
        let used = allocated_bytes(&self.image);
        Ok(Some(Space {
            logical_used_bytes: used,
            physical_used_bytes: used,
            ratio: 1.0,
            ..Space::default()
        }))
    }
}

impl Drop for Qcow2 {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.image);
    }
}
