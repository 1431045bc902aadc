//! Negotiation.

use nbd::option::{ClientOption, OptionHeader};
use nbd::protocol::*;
use nbd::testing::MemoryDevice;
use nbd::{ConnectionError, ServerConfig};

use crate::client::{CAPACITY_BYTES, OptionReply, Session, connect, contexts, device, info};

async fn greeted() -> Session {
    let mut session = connect(device(), ServerConfig::default());
    session.client.greet().await;
    session
}

fn info_reply(info: u16, rest: &[u8]) -> OptionReply {
    OptionReply { reply_type: REP_INFO, data: [&info.to_be_bytes(), rest].concat() }
}

#[tokio::test]
async fn list_names_every_export() {
    let mut session = greeted().await;
    let replies = session.client.option(&ClientOption::List).await;
    assert_eq!(replies[0].data, b"\0\0\0\x05firstthe one");
    assert_eq!(replies[1].data, b"\0\0\0\x06second");
    assert_eq!(replies[2], OptionReply { reply_type: REP_ACK, data: vec![] });
}

#[tokio::test]
async fn info_tells_size_flags_block_sizes_name_and_description() {
    let mut session = greeted().await;
    let replies = session.client.option(&ClientOption::Info(info(""))).await;
    let flags = FLAG_HAS_FLAGS
        | FLAG_SEND_FLUSH
        | FLAG_SEND_FUA
        | FLAG_SEND_TRIM
        | FLAG_SEND_WRITE_ZEROES
        | FLAG_SEND_FAST_ZERO
        | FLAG_CAN_MULTI_CONN
        | FLAG_SEND_CACHE;
    let size_flags = [&CAPACITY_BYTES.to_be_bytes()[..], &flags.to_be_bytes()].concat();
    assert!(replies.contains(&info_reply(INFO_EXPORT, &size_flags)));
    let sizes = [512u32, 4096, 32 << 20].map(u32::to_be_bytes).concat();
    assert!(replies.contains(&info_reply(INFO_BLOCK_SIZE, &sizes)));
    assert!(replies.contains(&info_reply(INFO_NAME, b"first")));
    assert!(replies.contains(&info_reply(INFO_DESCRIPTION, b"the one")));
}

#[tokio::test]
async fn the_minimum_block_is_the_sector() {
    let mut session = greeted().await;
    let replies = session.client.option(&ClientOption::Info(info("second"))).await;
    let sizes = [4096u32, 4096, 32 << 20].map(u32::to_be_bytes).concat();
    assert!(replies.contains(&info_reply(INFO_BLOCK_SIZE, &sizes)));
}

#[tokio::test]
async fn an_unknown_export_is_refused_and_the_handshake_goes_on() {
    let mut session = greeted().await;
    assert_eq!(session.client.outcome(&ClientOption::Go(info("third"))).await, REP_ERR_UNKNOWN);
    assert_eq!(session.client.outcome(&ClientOption::Info(info("third"))).await, REP_ERR_UNKNOWN);
    session.client.go("second").await;
    assert_eq!(session.client.ask(CMD_FLUSH, 0, 0, 0).await, 0);
}

#[tokio::test]
async fn export_name_starts_transmission() {
    let mut session = greeted().await;
    session.client.send(&ClientOption::ExportName("second".into()).encode()).await;
    let answer = session.client.receive(10).await;
    assert_eq!(answer[..8], (1u64 << 20).to_be_bytes());
    assert_eq!(session.client.ask(CMD_FLUSH, 0, 0, 0).await, 0);
}

#[tokio::test]
async fn export_name_pads_with_zeros_unless_told_not_to() {
    let mut session = connect(device(), ServerConfig::default());
    session.client.greet_with(FLAG_C_FIXED_NEWSTYLE).await;
    session.client.send(&ClientOption::ExportName(String::new()).encode()).await;
    assert_eq!(session.client.receive(134).await[10..], [0; 124]);
    assert_eq!(session.client.ask(CMD_FLUSH, 0, 0, 0).await, 0);
}

#[tokio::test]
async fn export_name_of_nothing_closes() {
    let mut session = greeted().await;
    session.client.send(&ClientOption::ExportName("third".into()).encode()).await;
    assert!(session.client.is_closed().await);
    assert!(matches!(session.ended().await, Err(ConnectionError::NoExport)));
}

#[tokio::test]
async fn abort_is_acknowledged_and_closes() {
    let mut session = greeted().await;
    assert_eq!(session.client.outcome(&ClientOption::Abort).await, REP_ACK);
    assert!(session.client.is_closed().await);
    assert!(session.ended().await.is_ok());
}

#[tokio::test]
async fn unknown_options_are_unsupported() {
    let mut session = greeted().await;
    for option in [4, 77, 12, 0x8000_0001, 0] {
        assert_eq!(session.client.outcome(&ClientOption::Unknown(option)).await, REP_ERR_UNSUP);
    }
}

#[tokio::test]
async fn starttls_without_tls_is_unsupported() {
    let mut session = greeted().await;
    assert_eq!(session.client.outcome(&ClientOption::StartTls).await, REP_ERR_UNSUP);
}

#[tokio::test]
async fn structured_replies_can_be_agreed_on_once() {
    let mut session = greeted().await;
    assert_eq!(session.client.outcome(&ClientOption::StructuredReply).await, REP_ACK);
    assert_eq!(session.client.outcome(&ClientOption::StructuredReply).await, REP_ERR_INVALID);
    let replies = session.client.option(&ClientOption::Info(info(""))).await;
    let flags = u16::from_be_bytes([replies[0].data[10], replies[0].data[11]]);
    assert_ne!(flags & FLAG_SEND_DF, 0);
}

#[tokio::test]
async fn contexts_need_structured_replies() {
    let mut session = greeted().await;
    let query = ClientOption::SetMetaContext(contexts("", &[CONTEXT_BASE_ALLOCATION]));
    assert_eq!(session.client.outcome(&query).await, REP_ERR_INVALID);
}

#[tokio::test]
async fn contexts_are_listed_by_name_and_namespace() {
    let mut session = greeted().await;
    for (queries, count) in
        [(&[][..], 1), (&["base:"], 1), (&["base:allocation"], 1), (&["qemu:", "base:x"], 0)]
    {
        let list = ClientOption::ListMetaContext(contexts("", queries));
        assert_eq!(session.client.option(&list).await.len(), count + 1, "{queries:?}");
    }
    let unknown = ClientOption::ListMetaContext(contexts("third", &[]));
    assert_eq!(session.client.outcome(&unknown).await, REP_ERR_UNKNOWN);
}

#[tokio::test]
async fn contexts_are_chosen_by_full_name_only() {
    let mut session = greeted().await;
    assert_eq!(session.client.outcome(&ClientOption::StructuredReply).await, REP_ACK);
    for (queries, count) in [(&[][..], 0), (&["base:"], 0), (&["x:y", "base:allocation"], 1)] {
        let set = ClientOption::SetMetaContext(contexts("", queries));
        assert_eq!(session.client.option(&set).await.len(), count + 1, "{queries:?}");
    }
}

#[tokio::test]
async fn contexts_count_only_for_their_export() {
    let mut session = greeted().await;
    session.client.negotiate_structured().await;
    session.client.go("second").await;
    session.client.request(CMD_BLOCK_STATUS, 0, 0, 4096).await;
    assert_eq!(session.client.chunk().await.0.kind, REPLY_TYPE_ERROR);
}

#[tokio::test]
async fn malformed_options_are_invalid_and_the_handshake_goes_on() {
    let mut session = greeted().await;
    let long_name = [&4097u32.to_be_bytes()[..], &[b'x'; 4097], &[0, 0]].concat();
    for (option, data, expected) in [
        (OPT_LIST, &b"x"[..], REP_ERR_INVALID),
        (OPT_STRUCTURED_REPLY, b"x", REP_ERR_INVALID),
        (OPT_STARTTLS, b"x", REP_ERR_INVALID),
        (OPT_GO, b"", REP_ERR_INVALID),
        (OPT_GO, b"\0\0\0\xffx\0\0", REP_ERR_INVALID),
        (OPT_GO, b"\0\0\0\x01\xff\0\0", REP_ERR_INVALID),
        (OPT_GO, b"\0\0\0\0\0\x02\0\0", REP_ERR_INVALID),
        (OPT_GO, b"\0\0\0\0\0\0trailing", REP_ERR_INVALID),
        (OPT_INFO, &long_name, REP_ERR_TOO_BIG),
        (OPT_SET_META_CONTEXT, b"\0\0\0\0\xff\xff\xff\xff", REP_ERR_INVALID),
    ] {
        let header = OptionHeader { option, length: data.len() as u32 };
        session.client.send(&header.encode()).await;
        session.client.send(data).await;
        assert_eq!(session.client.option_reply(option).await.reply_type, expected, "{option} {data:?}");
    }
    session.client.go("").await;
}

#[tokio::test]
async fn a_long_option_is_too_big_and_the_handshake_goes_on() {
    let mut session = greeted().await;
    session.client.send(&OptionHeader { option: OPT_GO, length: 1 << 20 }.encode()).await;
    session.client.send(&vec![0; 1 << 20]).await;
    assert_eq!(session.client.option_reply(OPT_GO).await.reply_type, REP_ERR_TOO_BIG);
    session.client.go("").await;
}

#[tokio::test]
async fn an_absurdly_long_option_closes() {
    let mut session = greeted().await;
    session.client.send(&OptionHeader { option: OPT_GO, length: u32::MAX }.encode()).await;
    assert!(session.client.is_closed().await);
}

#[tokio::test]
async fn a_bad_option_magic_closes() {
    let mut session = greeted().await;
    session.client.send(b"IHAVENOT\0\0\0\x07\0\0\0\0").await;
    assert!(session.client.is_closed().await);
}

#[tokio::test]
async fn unknown_client_flags_close() {
    let mut session = connect(device(), ServerConfig::default());
    session.client.greet_with(FLAG_C_FIXED_NEWSTYLE | 4).await;
    assert!(session.client.is_closed().await);
}

#[tokio::test]
async fn old_newstyle_clients_are_turned_away() {
    let mut session = connect(device(), ServerConfig::default());
    session.client.greet_with(0).await;
    assert!(session.client.is_closed().await);
}

#[tokio::test(start_paused = true)]
async fn a_silent_client_is_dropped() {
    let mut session = connect(device(), ServerConfig::default());
    assert!(matches!(session.ends().await, Err(ConnectionError::HandshakeTimeout)));
}

#[tokio::test]
async fn a_client_may_hang_up_after_looking_around() {
    assert!(greeted().await.ended().await.is_ok());
}

#[tokio::test]
async fn a_read_only_export_says_so() {
    let mut session = connect(MemoryDevice::new(1 << 20, 512).read_only(), ServerConfig::default());
    session.client.greet().await;
    let replies = session.client.option(&ClientOption::Info(info(""))).await;
    let flags = u16::from_be_bytes([replies[0].data[10], replies[0].data[11]]);
    assert_eq!(flags & (FLAG_READ_ONLY | FLAG_SEND_TRIM | FLAG_SEND_WRITE_ZEROES), FLAG_READ_ONLY);
}
