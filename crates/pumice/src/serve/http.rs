//! HTTP port for monitoring.

use std::sync::Arc;

use admin::{ClientCounts, HttpAddress, HttpListener, HttpServer, Limits, Monitored};
use front::Exports;
use nbd::RefusalReason;
use service::Drives;
use status::shown;

use super::printer::Printer;

/// Serves the status of `drives` and the counts of the clients of `exports`' server at a bound port, and
/// prints the address. Logs a warning for TCP, which does not authenticate clients. Ends when the returned
/// server is dropped.
pub(super) fn serve(
    listener: HttpListener,
    drives: Drives,
    exports: Exports,
    printer: &Printer,
) -> HttpServer {
    let counts = move || ClientCounts {
        connections: exports.connections() as u64,
        connected: exports.connected_count(),
        refused: RefusalReason::ALL.map(|reason| (reason.as_str(), exports.refused_count(reason))).to_vec(),
    };
    let reports = move || Monitored { drives: drives.reports(), clients: counts() };
    let server = listener.serve(Limits::default(), Arc::new(reports));
    if let tcp @ HttpAddress::Tcp(..) = server.address() {
        tracing::warn!(
            address = %tcp,
            "whoever can connect can read the status of the drives: every user of this machine, if the address is \
             loopback"
        );
    }
    printer.print(match server.address() {
        HttpAddress::Unix(path) => format!("metrics at unix:{}, /metrics", shown(path)),
        tcp @ HttpAddress::Tcp(..) => format!("metrics at http://{tcp}/metrics"),
    });
    server
}
