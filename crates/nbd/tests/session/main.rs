//! Sessions over a stream in memory: one small test a behaviour.

mod client;
mod handshake;
mod limits;
mod listeners;
mod shutdown;
mod tls;
mod transmission;
