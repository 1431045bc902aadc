//! Serves a device in memory, for tests of clients and measurements of the front-end alone.
//!
//! ```text
//! memory_server unix:/tmp/m.sock 4G [--sector 512|4096] [--workers N] [--read-only] [--delay-us N] [--yield]
//!               [--tls CERT KEY [CLIENT_CA]]
//! ```
//!
//! Stops when standard input ends. Requests in flight are answered before.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use nbd::testing::MemoryDevice;
use nbd::{Access, Address, Export, Exports, Listener, Server, ServerConfig, TlsConfig, TlsPolicy};

fn size(text: &str) -> Option<u64> {
    let (digits, shift) = match text.as_bytes().last()? {
        b'K' => (&text[..text.len() - 1], 10),
        b'M' => (&text[..text.len() - 1], 20),
        b'G' => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    digits.parse::<u64>().ok()?.checked_shl(shift)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1).peekable();
    let address: Address =
        arguments.next().ok_or("usage: memory_server ADDRESS SIZE [OPTION]...")?.parse()?;
    let capacity_bytes = size(&arguments.next().ok_or("the size is missing")?).ok_or("not a size")?;
    let (mut sector_bytes, mut workers, mut read_only, mut delay_us, mut yields) = (512, 1, false, 0, false);
    let mut config = ServerConfig::default();
    while let Some(option) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{option} needs a value"));
        match option.as_str() {
            "--sector" => sector_bytes = value()?.parse()?,
            "--workers" => workers = value()?.parse()?,
            "--read-only" => read_only = true,
            "--yield" => yields = true,
            "--delay-us" => delay_us = value()?.parse()?,
            "--tls" => {
                let (certificate, key) = (value()?, value()?);
                let client_ca = arguments.next_if(|next| !next.starts_with("--"));
                config.tls = TlsPolicy::Required(TlsConfig::from_pem_files(
                    Path::new(&certificate),
                    Path::new(&key),
                    client_ca.as_deref().map(Path::new),
                    None,
                )?);
            }
            other => return Err(format!("unknown option {other}").into()),
        }
    }
    let device = MemoryDevice::new(capacity_bytes, sector_bytes);
    let device = if read_only { device.read_only() } else { device };
    device.yield_once(yields);
    device.delay_by(Duration::from_micros(delay_us));
    let export = Export {
        name: "memory".to_owned(),
        description: "a device in memory".to_owned(),
        device: Arc::new(device),
        access: Access::Everyone,
        sharing: nbd::Sharing::default(),
    };
    let listener = Listener::bind(&address, &config)?;
    eprintln!("serving {}", listener.address().uri(""));
    let exports = Exports::new(vec![export], config)?;
    let server = Server::start(&exports, vec![listener], workers)?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    server.shutdown();
    Ok(())
}
