//! What monitoring asks: the HTTP port.

use std::sync::Arc;

use admin::{HttpListener, HttpServer, Limits};
use service::Drives;

use super::printer::Printer;

/// Answers questions about `drives` at a port that was bound, and tells where. Ends when the server is dropped.
pub(super) fn serve(listener: HttpListener, drives: Drives, printer: &Printer) -> HttpServer {
    let reports = move || drives.reports();
    let server = listener.serve(Limits::default(), Arc::new(reports));
    printer.print(format!("metrics at http://{}/metrics", server.address()));
    server
}
