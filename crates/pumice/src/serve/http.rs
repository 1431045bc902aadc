//! HTTP port for monitoring.

use std::sync::Arc;

use admin::{HttpAddress, HttpListener, HttpServer, Limits};
use service::Drives;
use status::shown;

use super::printer::Printer;

/// Serves the status of `drives` at a bound port, and prints the address. Ends when the returned server is dropped.
pub(super) fn serve(listener: HttpListener, drives: Drives, printer: &Printer) -> HttpServer {
    let reports = move || drives.reports();
    let server = listener.serve(Limits::default(), Arc::new(reports));
    printer.print(match server.address() {
        HttpAddress::Unix(path) => format!("metrics at unix:{}, /metrics", shown(path)),
        tcp @ HttpAddress::Tcp(..) => format!("metrics at http://{tcp}/metrics"),
    });
    server
}
