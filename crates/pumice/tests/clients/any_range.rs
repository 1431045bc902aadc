//! Clients that negotiate no block size: they read and write any range of bytes. What others write at the
//! same time to the same blocks is not lost.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use nbd::client::{Replies, negotiate};
use nbd::protocol::*;
use nbd::reply::{SIMPLE_REPLY_BYTES, SimpleReply};
use nbd::request::RequestHeader;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use crate::common::{Drive, Outcome};

/// Blocks that all clients write to.
const REGION_BYTES: usize = 12 * 4096;
const CLIENTS: usize = 4;
const REQUESTS: usize = 600;
/// Share of the region that one client writes: owners take turns every so many bytes.
const STRIPE_BYTES: usize = 1019;

struct Client(UnixStream);

impl Client {
    fn connect(socket: &Path) -> std::io::Result<Client> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        negotiate(&mut stream, "", Replies::Simple)?;
        Ok(Client(stream))
    }

    /// Sends a request and waits for its reply.
    fn ask(&mut self, command: u16, flags: u16, at: usize, len: usize, data: &[u8]) -> std::io::Result<u32> {
        let header =
            RequestHeader { flags, command, cookie: at as u64, offset: at as u64, length: len as u32 };
        self.0.write_all(&[&header.encode()[..], data].concat())?;
        let mut reply = [0; SIMPLE_REPLY_BYTES];
        self.0.read_exact(&mut reply)?;
        Ok(SimpleReply::decode(&reply).expect("a simple reply").error)
    }

    fn read(&mut self, at: usize, len: usize) -> std::io::Result<Vec<u8>> {
        assert_eq!(self.ask(CMD_READ, 0, at, len, &[])?, 0);
        let mut data = vec![0; len];
        self.0.read_exact(&mut data)?;
        Ok(data)
    }
}

/// Changes the stripes of client `number` and reads them back. Returns what the region holds in them.
fn change(socket: &Path, number: usize) -> std::io::Result<Vec<u8>> {
    let mut client = Client::connect(socket)?;
    let mut dice = StdRng::seed_from_u64(number as u64);
    let mut model = vec![0; REGION_BYTES];
    for i in 0..REQUESTS {
        let stripe = dice.random_range(0..REGION_BYTES / STRIPE_BYTES / CLIENTS) * CLIENTS + number;
        let from = dice.random_range(0..STRIPE_BYTES);
        let range =
            stripe * STRIPE_BYTES + from..stripe * STRIPE_BYTES + dice.random_range(from..STRIPE_BYTES) + 1;
        let flags = if i % 50 == 0 { CMD_FLAG_FUA } else { 0 };
        if i % 5 == 4 {
            assert_eq!(client.ask(CMD_WRITE_ZEROES, flags, range.start, range.len(), &[])?, 0);
            model[range.clone()].fill(0);
        } else {
            let data: Vec<u8> = match i % 5 {
                0 => vec![dice.random(); range.len()],
                _ => range.clone().map(|_| dice.random()).collect(),
            };
            assert_eq!(client.ask(CMD_WRITE, flags, range.start, range.len(), &data)?, 0);
            model[range.clone()].copy_from_slice(&data);
        }
        let stripe = stripe * STRIPE_BYTES..(stripe + 1) * STRIPE_BYTES;
        assert!(client.read(stripe.start, STRIPE_BYTES)? == model[stripe], "client {number}, request {i}");
    }
    assert_eq!(client.ask(CMD_FLUSH, 0, 0, 0, &[])?, 0);
    Ok(model)
}

#[test]
fn clients_write_parts_of_the_same_blocks() -> Outcome {
    let drive = Drive::create(&["--size", "32M", "--sector", "4096"]);
    let server = drive.serve(&["--threads", "3"]);
    let socket = &server.socket();
    let models = std::thread::scope(|scope| {
        let clients: Vec<_> =
            (0..CLIENTS).map(|number| scope.spawn(move || change(socket, number))).collect();
        clients.into_iter().map(|client| client.join().expect("no panic")).collect::<Result<Vec<_>, _>>()
    })?;
    let owner = |at: usize| at / STRIPE_BYTES % CLIENTS;
    let expected: Vec<u8> = (0..REGION_BYTES).map(|at| models[owner(at)][at]).collect();
    assert!(Client::connect(socket)?.read(0, REGION_BYTES)? == expected);
    // All of it was flushed.
    server.kill();
    let server = drive.serve(&[]);
    assert!(Client::connect(&server.socket())?.read(1, REGION_BYTES - 1)? == expected[1..]);
    assert!(server.stop().success());
    let run = drive.pumice(&["check", "--deep", &drive.file("drive")]);
    assert_eq!(run.code, Some(0), "{run:?}");
    Ok(())
}
