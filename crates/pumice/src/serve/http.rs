//! What monitoring asks: the HTTP port.

use std::io::Write;
use std::sync::Arc;

use admin::{HttpAddress, HttpServer, Limits};
use anyhow::Result;
use service::Drives;

/// Listens at `address` for questions about what `drives` answers, and tells where. Ends when the server is dropped.
pub(super) fn listen(address: &HttpAddress, insecure: bool, drives: Drives) -> Result<HttpServer> {
    let reports = move || drives.all().iter().map(|drive| drive.report()).collect();
    let server = HttpServer::listen(address, insecure, Limits::default(), Arc::new(reports))?;
    // A server whose output nobody reads serves all the same.
    let _ = writeln!(std::io::stdout(), "metrics at http://{}/metrics", server.address());
    Ok(server)
}
