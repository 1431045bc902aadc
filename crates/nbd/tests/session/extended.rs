//! Extended headers.

use nbd::extended::{EXTENDED_HEADER_BYTES, ExtendedChunkHeader, ExtendedRequestHeader};
use nbd::option::{ClientOption, OptionHeader};
use nbd::protocol::*;
use nbd::testing::MemoryDevice;
use nbd::{ConnectionError, ServerConfig};

use crate::client::{CAPACITY_BYTES, Session, connect, contexts, device, info};

const COOKIE: u64 = 0x0123_4567_89ab_cdef;

/// A client that has agreed on extended headers, and on `base:allocation` for the first export.
async fn agreed(device: MemoryDevice) -> Session {
    let mut session = connect(device, ServerConfig::default());
    session.client.greet().await;
    assert_eq!(session.client.outcome(&ClientOption::ExtendedHeaders).await, REP_ACK);
    let query = contexts("", &[CONTEXT_BASE_ALLOCATION]);
    assert_eq!(session.client.outcome(&ClientOption::SetMetaContext(query)).await, REP_ACK);
    session
}

async fn extended(device: MemoryDevice) -> Session {
    let mut session = agreed(device).await;
    session.client.go("").await;
    session
}

async fn send(session: &mut Session, command: u16, flags: u16, offset: u64, length: u64, data: &[u8]) {
    let header = ExtendedRequestHeader { flags, command, cookie: COOKIE, offset, length };
    session.client.send(&[&header.encode()[..], data].concat()).await;
}

/// Receives a reply of one chunk. Returns its type and content.
async fn reply(session: &mut Session, offset: u64) -> (u16, Vec<u8>) {
    let header = session.client.receive(EXTENDED_HEADER_BYTES).await;
    let header = ExtendedChunkHeader::decode(header[..].try_into().expect("32 bytes")).expect("a chunk");
    assert_eq!((header.cookie, header.offset, header.flags), (COOKIE, offset, REPLY_FLAG_DONE));
    (header.kind, session.client.receive(header.length as usize).await)
}

/// Sends a request and returns the error in its reply, or 0.
async fn ask(session: &mut Session, command: u16, flags: u16, offset: u64, length: u64, data: &[u8]) -> u32 {
    send(session, command, flags, offset, length, data).await;
    match reply(session, offset).await {
        (REPLY_TYPE_NONE, content) if content.is_empty() => 0,
        (REPLY_TYPE_ERROR, content) => u32::from_be_bytes(*content.first_chunk().expect("a code")),
        other => panic!("{other:?}"),
    }
}

/// The extents of a range: length and flags of each.
async fn extents(session: &mut Session, flags: u16, offset: u64, length: u64) -> Vec<(u64, u64)> {
    send(session, CMD_BLOCK_STATUS, flags, offset, length, &[]).await;
    let (kind, content) = reply(session, offset).await;
    assert_eq!(kind, REPLY_TYPE_BLOCK_STATUS_EXT);
    let word = |at: usize| u64::from_be_bytes(content[at..at + 8].try_into().expect("8 bytes"));
    let count = (content.len() - 8) / 16;
    assert_eq!(word(0), u64::from(CONTEXT_ID_BASE_ALLOCATION) << 32 | count as u64);
    (0..count).map(|run| (word(8 + 16 * run), word(16 + 16 * run))).collect()
}

#[tokio::test]
async fn every_reply_is_one_extended_chunk() {
    let mut session = extended(device()).await;
    let session = &mut session;
    let data: Vec<u8> = (0..100_000).map(|byte| byte as u8).collect();
    for data in [&data[..512], &data[..99_840]] {
        let len = data.len() as u64;
        assert_eq!(ask(session, CMD_WRITE, CMD_FLAG_PAYLOAD_LEN | CMD_FLAG_FUA, 4096, len, data).await, 0);
        send(session, CMD_READ, CMD_FLAG_DF, 4096, len, &[]).await;
        let (kind, content) = reply(session, 4096).await;
        assert_eq!(kind, REPLY_TYPE_OFFSET_DATA);
        assert!(content[..8] == 4096_u64.to_be_bytes() && content[8..] == *data);
    }
    assert_eq!(session.device.durable_writes(), 2);
    for command in [CMD_TRIM, CMD_WRITE_ZEROES, CMD_CACHE] {
        assert_eq!(ask(session, command, 0, 4096, 4096, &[]).await, 0);
    }
    assert_eq!(ask(session, CMD_FLUSH, 0, 0, 0, &[]).await, 0);
    assert_eq!(ask(session, CMD_FLUSH, 0, 512, 0, &[]).await, Errno::Inval.code(), "with the offset sent");
}

#[tokio::test]
async fn ranges_of_more_than_32_bits() {
    const LARGE_BYTES: u64 = 20 << 30;
    let mut session = extended(MemoryDevice::new(LARGE_BYTES, 512)).await;
    let session = &mut session;
    assert_eq!(ask(session, CMD_WRITE, CMD_FLAG_PAYLOAD_LEN, 17 << 30, 65536, &[1; 65536]).await, 0);
    let hole = u64::from(STATE_HOLE | STATE_ZERO);
    let with_data = [(17 << 30, hole), (65536, 0), ((3 << 30) - 65536, hole)];
    assert_eq!(extents(session, 0, 0, LARGE_BYTES).await, with_data);
    assert_eq!(extents(session, CMD_FLAG_REQ_ONE, 0, LARGE_BYTES).await, with_data[..1]);
    assert_eq!(ask(session, CMD_TRIM, 0, 0, LARGE_BYTES, &[]).await, 0);
    assert_eq!(extents(session, 0, 0, LARGE_BYTES).await, [(LARGE_BYTES, hole)]);
    assert_eq!(ask(session, CMD_WRITE_ZEROES, 0, 512, LARGE_BYTES - 512, &[]).await, 0);
    let beyond = ask(session, CMD_WRITE_ZEROES, 0, 512, LARGE_BYTES, &[]).await;
    assert_eq!(beyond, Errno::NoSpc.code());
    for length in [LARGE_BYTES + 512, u64::MAX - 511] {
        assert_eq!(ask(session, CMD_TRIM, 0, 512, length, &[]).await, Errno::Inval.code());
    }
}

#[tokio::test]
async fn extents_of_a_long_range_may_cover_less() {
    let mut session = extended(MemoryDevice::new(65 << 30, 512)).await;
    let runs = extents(&mut session, 0, 0, 65 << 30).await;
    assert_eq!(runs, [(64 << 30, u64::from(STATE_HOLE | STATE_ZERO))]);
}

#[tokio::test]
async fn payloads_that_do_not_belong_there_are_refused_and_skipped() {
    let mut session = extended(device()).await;
    let session = &mut session;
    let einval = Errno::Inval.code();
    for command in [CMD_READ, CMD_FLUSH, CMD_TRIM, CMD_CACHE, CMD_WRITE_ZEROES, CMD_BLOCK_STATUS, 77] {
        assert_eq!(ask(session, command, CMD_FLAG_PAYLOAD_LEN, 0, 5, b"noise").await, einval, "{command}");
    }
    assert_eq!(ask(session, CMD_READ, 0, 0, 1 << 33, &[]).await, einval);
    assert_eq!(ask(session, CMD_READ, CMD_FLAG_DF, 0, 1 << 33, &[]).await, Errno::Overflow.code());
    assert_eq!(ask(session, CMD_WRITE, CMD_FLAG_PAYLOAD_LEN, CAPACITY_BYTES, 512, &[1; 512]).await, 28);
    assert_eq!(ask(session, CMD_FLUSH, 0, 0, 0, &[]).await, 0, "in step");
    send(session, CMD_WRITE, CMD_FLAG_PAYLOAD_LEN, 0, 1 << 32, &[]).await;
    assert!(session.client.is_closed().await, "too much to skip");
}

#[tokio::test]
async fn a_write_without_the_flag_of_its_payload_closes() {
    let mut session = extended(device()).await;
    // Data that looks like a request.
    let trim = ExtendedRequestHeader { flags: 0, command: CMD_TRIM, cookie: 1, offset: 0, length: 4096 };
    send(&mut session, CMD_WRITE, 0, 0, EXTENDED_HEADER_BYTES as u64, &trim.encode()).await;
    assert!(session.client.is_closed().await);
    assert!(matches!(session.ends().await, Err(ConnectionError::NoPayload)));
}

#[tokio::test]
async fn the_flag_of_payloads_is_unknown_to_compact_headers() {
    let mut session = connect(device(), ServerConfig::default());
    session.client.greet().await;
    session.client.go("").await;
    assert_eq!(session.client.write(CMD_FLAG_PAYLOAD_LEN, 0, &[1; 512]).await, Errno::Inval.code());
    assert_eq!(session.client.ask(CMD_TRIM, CMD_FLAG_PAYLOAD_LEN, 0, 512).await, Errno::Inval.code());
}

#[tokio::test]
async fn they_exclude_structured_replies_and_the_old_option() {
    let mut session = agreed(device()).await;
    let client = &mut session.client;
    assert_eq!(client.outcome(&ClientOption::StructuredReply).await, REP_ERR_EXT_HEADER_REQD);
    assert_eq!(client.outcome(&ClientOption::ExtendedHeaders).await, REP_ERR_INVALID);
    let with_data = OptionHeader { option: OPT_EXTENDED_HEADERS, length: 1 }.encode();
    client.send(&[&with_data[..], b"x"].concat()).await;
    assert_eq!(client.option_reply(OPT_EXTENDED_HEADERS).await.reply_type, REP_ERR_INVALID);
    let replies = client.option(&ClientOption::Info(info(""))).await;
    let flags = replies.iter().find(|reply| reply.data.starts_with(&INFO_EXPORT.to_be_bytes()));
    let flags = u16::from_be_bytes(*flags.expect("the export").data.last_chunk().expect("flags"));
    assert_ne!(flags & FLAG_SEND_DF, 0);
    client.send(&ClientOption::ExportName(String::new()).encode()).await;
    assert!(client.is_closed().await);
    assert!(matches!(session.ended().await, Err(ConnectionError::Handshake(_))));
}

#[tokio::test]
async fn after_structured_replies_they_take_precedence() {
    let mut session = connect(device(), ServerConfig::default());
    session.client.greet().await;
    session.client.negotiate_structured().await;
    assert_eq!(session.client.outcome(&ClientOption::ExtendedHeaders).await, REP_ACK);
    session.client.go("").await;
    assert_eq!(extents(&mut session, 0, 0, 4096).await, [(4096, 3)], "with the context chosen before");
}

#[tokio::test]
async fn a_compact_header_ends_the_connection() {
    let mut session = extended(device()).await;
    session.client.request(CMD_FLUSH, 0, 0, 0).await;
    session.client.send(&[0; 4]).await;
    assert!(session.client.is_closed().await);
    assert!(matches!(session.ended().await, Err(ConnectionError::BadMagic(_))));
}
