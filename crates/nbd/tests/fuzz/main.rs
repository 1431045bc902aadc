//! The fuzz targets of `fuzz/` for connections, run briefly on damaged copies of valid ones. See
//! `fuzz/README.md`.

#[path = "../../../layout/tests/fuzz/harness.rs"]
mod harness;

use nbd::extended::ExtendedRequestHeader;
use nbd::option::{ClientOption, InfoQuery, MetaContextQuery};
use nbd::protocol::*;
use nbd::reply::ChunkHeader;
use nbd::request::RequestHeader;
use nbd::testing::{client_hello, fuzz_client, fuzz_session, fuzz_tls};

/// Messages of a client, as options or as requests.
fn of_clients() -> Vec<(u8, Vec<u8>)> {
    let query = || InfoQuery { export: "memory".into(), infos: vec![INFO_BLOCK_SIZE] };
    let contexts = || MetaContextQuery { export: "memory".into(), queries: vec!["base:".into()] };
    let options = [
        ClientOption::List,
        ClientOption::Info(query()),
        ClientOption::StructuredReply,
        ClientOption::ExtendedHeaders,
        ClientOption::ListMetaContext(contexts()),
        ClientOption::SetMetaContext(contexts()),
        ClientOption::StartTls,
        ClientOption::Unknown(77),
        ClientOption::ExportName("memory".into()),
        ClientOption::Go(query()),
        ClientOption::Abort,
    ];
    let request = |command, flags, length| {
        let mut bytes = RequestHeader { flags, command, cookie: 9, offset: 4096, length }.encode().to_vec();
        bytes.resize(bytes.len() + if command == CMD_WRITE { length as usize } else { 0 }, 0xa5);
        bytes
    };
    let requests = [
        request(CMD_READ, 0, 8192),
        request(CMD_WRITE, CMD_FLAG_FUA, 1024),
        request(CMD_WRITE_ZEROES, 0, 4096),
        request(CMD_TRIM, 0, 65536),
        request(CMD_FLUSH, 0, 0),
        request(CMD_BLOCK_STATUS, CMD_FLAG_REQ_ONE, 1 << 19),
        request(CMD_CACHE, 0, 512),
        request(CMD_DISC, 0, 0),
    ];
    let extended = |request: &Vec<u8>| {
        let (header, data) = request.split_first_chunk().expect("a header");
        let mut header = ExtendedRequestHeader::from(RequestHeader::decode(header).expect("a request"));
        header.flags |= if data.is_empty() { 0 } else { CMD_FLAG_PAYLOAD_LEN };
        [&header.encode()[..], data].concat()
    };
    let mut sent: Vec<(u8, Vec<u8>)> = options.iter().map(|option| (1, option.encode())).collect();
    sent.push((1, options.iter().flat_map(ClientOption::encode).collect()));
    for mode in [2, 3] {
        sent.extend(requests.iter().map(|request| (mode, request.clone())));
        sent.push((mode, requests.concat()));
    }
    let requests: Vec<_> = requests.iter().map(extended).collect();
    sent.push((3 | 0x40, requests.concat()));
    sent.extend(requests.into_iter().map(|request| (3 | 0x40, request)));
    sent
}

fn sessions() -> Vec<Vec<u8>> {
    let reads_of_4096 = 12 << 2;
    of_clients().into_iter().map(|(mode, sent)| [vec![mode | reads_of_4096], sent].concat()).collect()
}

fn connections_with_tls() -> Vec<Vec<u8>> {
    let mut seeds = sessions();
    for reads in [0, 5, 12] {
        seeds.push([vec![reads << 2], client_hello()].concat());
    }
    seeds
}

/// Messages of a server to a client that asks which parts hold data, and reads.
fn servers() -> Vec<Vec<u8>> {
    let chunk = |kind, data: &[u8]| {
        let length = data.len() as u32;
        let header = ChunkHeader { flags: REPLY_FLAG_DONE, kind, cookie: 1, length };
        [&header.encode()[..], data].concat()
    };
    let extents: Vec<u8> =
        [7_u32, 1 << 19, 0, 1 << 19, 3].iter().flat_map(|word| word.to_be_bytes()).collect();
    let data = [&0_u64.to_be_bytes()[..], &[5; 4096]].concat();
    let hole = [&0_u64.to_be_bytes()[..], &4096_u32.to_be_bytes()].concat();
    let replies = [
        chunk(REPLY_TYPE_BLOCK_STATUS, &extents),
        chunk(REPLY_TYPE_OFFSET_DATA, &data),
        chunk(REPLY_TYPE_OFFSET_HOLE, &hole),
        chunk(REPLY_TYPE_NONE, &[]),
        chunk(REPLY_TYPE_ERROR, &[0, 0, 0, 5, 0, 0]),
    ];
    let mut seeds = Vec::new();
    for mode in 0..8 {
        seeds.extend(replies.iter().map(|reply| [vec![mode], reply.clone()].concat()));
        seeds.push([vec![mode], replies.concat()].concat());
    }
    seeds
}

#[test]
fn nbd_session_target() {
    harness::fuzz("nbd_session_target", &sessions(), fuzz_session);
}

#[test]
fn nbd_client_target() {
    harness::fuzz("nbd_client_target", &servers(), fuzz_client);
}

#[test]
fn nbd_tls_target() {
    harness::fuzz("nbd_tls_target", &connections_with_tls(), fuzz_tls);
}

/// See fuzz/README.md.
#[test]
#[ignore = "prepares longer runs: see fuzz/README.md"]
fn write_corpus() {
    harness::write_corpus("nbd_session", &sessions());
    harness::write_corpus("nbd_client", &servers());
    harness::write_corpus("nbd_tls", &connections_with_tls());
}
