//! What monitoring asks: the HTTP port.

use std::io::Write;
use std::sync::Arc;

use admin::{HttpListener, HttpServer, Limits};
use service::Drives;

/// Answers questions about `drives` at a port that was bound, and tells where. Ends when the server is dropped.
pub(super) fn serve(listener: HttpListener, drives: Drives) -> HttpServer {
    let reports = move || drives.reports();
    let server = listener.serve(Limits::default(), Arc::new(reports));
    // A server whose output nobody reads serves all the same.
    let _ = writeln!(std::io::stdout(), "metrics at http://{}/metrics", server.address());
    server
}
