//! Sessions over a stream in memory, one small test per behaviour; real clients; the wire format. One
//! program, because building one for each takes longer than running them.

mod access;
mod admission;
mod any_range;
mod attachment;
mod audit;
mod client;
mod extended;
mod fence;
mod front_end;
mod handshake;
mod helped;
mod left;
mod limits;
mod listeners;
mod live_exports;
mod log;
mod real_clients;
mod secure_client;
mod shutdown;
mod tls;
mod transmission;
mod waiting;
mod wire;
