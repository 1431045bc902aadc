//! Responses to requests: paths, methods, status codes.

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HOST, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use hyper::{Method, Request, Response, StatusCode, Version};
use status::{DriveState, StatusAnswer, StatusReport, Warning, shown};

use crate::address::{host_of, is_here};
use crate::metrics;
use crate::monitored::Monitored;

/// Content type of `/metrics`, as Prometheus expects it.
const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";
const JSON_TYPE: &str = "application/json";
const TEXT_TYPE: &str = "text/plain; charset=utf-8";
/// Paths that are answered, for messages.
const PATHS: &str = "/metrics for Prometheus, /healthz for probes, /status for JSON";

/// Returns the response to a request. The body of the request is ignored. If `host` is given, the request
/// must be for that name, `localhost` or an IP address.
pub(crate) fn answer<B>(
    request: &Request<B>,
    host: Option<&str>,
    reports: impl FnOnce() -> Monitored,
) -> Response<Full<Bytes>> {
    let Some(hosts) = hosts(request) else {
        return plain(
            StatusCode::BAD_REQUEST,
            "expected one Host header, with a host and possibly a port from 0 to 65535",
        );
    };
    if host.is_some_and(|name| !hosts.iter().all(|host| is_here(host, name))) {
        return plain(
            StatusCode::MISDIRECTED_REQUEST,
            "this port is for this machine only: use localhost or an IP address as the host",
        );
    }
    let path = request.uri().path();
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut refused = plain(
            StatusCode::METHOD_NOT_ALLOWED,
            "this port is read-only: use GET; changes go through the admin socket",
        );
        refused.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return refused;
    }
    if !matches!(path, "/" | "/metrics" | "/healthz" | "/status") {
        return plain(StatusCode::NOT_FOUND, &format!("no such path; there are {PATHS}"));
    }
    match path {
        "/metrics" => with_type(StatusCode::OK, METRICS_TYPE, metrics::render(&reports())),
        "/healthz" => health(&reports().drives),
        "/status" => status(reports().drives),
        _ => {
            debug_assert_eq!(path, "/", "other paths were refused");
            plain(StatusCode::OK, &format!("a Pumice server; there are {PATHS}"))
        }
    }
}

/// Returns the hosts that a request names: that of its `Host` header, and that of a target with one
/// (`GET http://HOST/PATH`). `None` if one of them is invalid or the header is there twice, or is missing in
/// HTTP/1.1 (RFC 9112, section 3.2).
fn hosts<B>(request: &Request<B>) -> Option<Vec<&str>> {
    let values: Vec<&HeaderValue> = request.headers().get_all(HOST).iter().collect();
    if values.len() > 1 || values.is_empty() && request.version() > Version::HTTP_10 {
        return None;
    }
    let in_header = values.into_iter().map(|value| value.to_str().ok());
    let in_target = request.uri().authority().map(|authority| Some(authority.as_str()));
    in_header.chain(in_target).map(|value| host_of(value?)).collect()
}

fn status(drives: Vec<StatusReport>) -> Response<Full<Bytes>> {
    match serde_json::to_string(&StatusAnswer { drives }) {
        Ok(json) => with_type(StatusCode::OK, JSON_TYPE, json + "\n"),
        Err(error) => {
            plain(StatusCode::INTERNAL_SERVER_ERROR, &format!("cannot encode the status as JSON: {error}"))
        }
    }
}

/// Returns the response to `/healthz`: status 200 if all drives are healthy, otherwise 503 with a line for
/// each drive that is not. A full drive is healthy, because it can be read, trimmed and overwritten. A drive
/// that is read-only by request is healthy too, and one whose backing was deleted: whoever restarts what is
/// not healthy would lose it.
fn health(drives: &[StatusReport]) -> Response<Full<Bytes>> {
    let is_unhealthy = |drive: &&StatusReport| match drive.state {
        DriveState::Online | DriveState::ReadOnly => drive.critical_warning.has(Warning::ReadOnly),
        DriveState::Poisoned
        | DriveState::Closed
        | DriveState::Idle
        | DriveState::Damaged
        | DriveState::Down
        | DriveState::Unknown => true,
    };
    let lines: Vec<String> = drives
        .iter()
        .filter(is_unhealthy)
        .map(|drive| {
            let reason = drive.state_reason.as_deref().unwrap_or("no reason given");
            format!("{}: {}: {reason}", shown(&drive.path), drive.state).replace('\n', " ")
        })
        .collect();
    match lines.is_empty() {
        true => plain(StatusCode::OK, "ok"),
        false => plain(StatusCode::SERVICE_UNAVAILABLE, &lines.join("\n")),
    }
}

fn plain(code: StatusCode, text: &str) -> Response<Full<Bytes>> {
    with_type(code, TEXT_TYPE, format!("{text}\n"))
}

fn with_type(code: StatusCode, content_type: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}
