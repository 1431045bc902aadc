//! The wire format: encoding and decoding are inverse, and no input makes a parser panic.

use device::{Extent, ExtentKind, Geometry};
use nbd::extended::{ExtendedChunkHeader, ExtendedRequestHeader};
use nbd::operation::{self, Operation, Session};
use nbd::option::{ClientOption, InfoQuery, MetaContextQuery, OptionHeader};
use nbd::option_reply::OptionReplyHeader;
use nbd::protocol::*;
use nbd::reply::{self, ChunkHeader, ReplyStyle, ReplyTo, SimpleReply};
use nbd::request::RequestHeader;
use nbd::testing::{fuzz_client, fuzz_session, run_session};
use proptest::collection::vec;
use proptest::prelude::*;

fn request_header() -> impl Strategy<Value = RequestHeader> {
    (0..64u16, 0..10u16, any::<u64>(), offset(), length()).prop_map(
        |(flags, command, cookie, offset, length)| RequestHeader { flags, command, cookie, offset, length },
    )
}

/// Any style, with the flag that requests have in it.
fn style() -> impl Strategy<Value = ReplyStyle> {
    prop_oneof![Just(ReplyStyle::Simple), Just(ReplyStyle::Structured), Just(ReplyStyle::Extended)]
}

/// The reply to request 7.
fn to(style: ReplyStyle) -> ReplyTo {
    ReplyTo { style, cookie: 7, offset: 1 << 40 }
}

/// The content of a reply of one chunk.
fn content(style: ReplyStyle, reply: &[u8]) -> &[u8] {
    let (len, rest) = match style {
        ReplyStyle::Extended => {
            let (header, rest) = reply.split_first_chunk().expect("a header");
            let header = ExtendedChunkHeader::decode(header).expect("a chunk");
            assert_eq!((header.cookie, header.offset), (7, 1 << 40));
            (header.length, rest)
        }
        _ => {
            let (header, rest) = reply.split_first_chunk().expect("a header");
            (ChunkHeader::decode(header).expect("a chunk").length.into(), rest)
        }
    };
    assert_eq!(len as usize, rest.len());
    rest
}

fn offset() -> impl Strategy<Value = u64> {
    prop_oneof![(0..2100u64).prop_map(|sector| sector * 512), any::<u64>(), 0..2_000_000u64]
}

fn length() -> impl Strategy<Value = u32> {
    prop_oneof![(0..20u32).prop_map(|sectors| sectors * 512), any::<u32>(), 0..100_000u32]
}

fn name() -> impl Strategy<Value = String> + Clone {
    "[a-zäß:/ ]{0,20}"
}

fn client_option() -> impl Strategy<Value = ClientOption> {
    let info = (name(), vec(any::<u16>(), 0..6)).prop_map(|(export, infos)| InfoQuery { export, infos });
    let meta = (name(), vec(name(), 0..4)).prop_map(|(export, queries)| MetaContextQuery { export, queries });
    prop_oneof![
        name().prop_map(ClientOption::ExportName),
        Just(ClientOption::Abort),
        Just(ClientOption::List),
        Just(ClientOption::StartTls),
        info.clone().prop_map(ClientOption::Info),
        info.prop_map(ClientOption::Go),
        Just(ClientOption::StructuredReply),
        Just(ClientOption::ExtendedHeaders),
        meta.clone().prop_map(ClientOption::ListMetaContext),
        meta.prop_map(ClientOption::SetMetaContext),
        (100..u32::MAX).prop_map(ClientOption::Unknown),
    ]
}

proptest! {
    #[test]
    fn request_headers_round_trip(header in request_header()) {
        prop_assert_eq!(RequestHeader::decode(&header.encode()), Ok(header));
    }

    #[test]
    fn extended_headers_round_trip(header in request_header(), length: u64) {
        let header = ExtendedRequestHeader { length, ..header.into() };
        prop_assert_eq!(ExtendedRequestHeader::decode(&header.encode()), Ok(header));
        let ExtendedRequestHeader { flags, command, cookie, offset, length } = header;
        let chunk = ExtendedChunkHeader { flags, kind: command, cookie, offset, length };
        prop_assert_eq!(ExtendedChunkHeader::decode(&chunk.encode()), Some(chunk));
        prop_assert_eq!(ExtendedChunkHeader::decode(&header.encode()), None);
        prop_assert!(ExtendedRequestHeader::decode(&chunk.encode()).is_err());
    }

    #[test]
    fn any_request_header_is_parsed_or_refused(bytes in any::<[u8; 28]>()) {
        let magic = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        prop_assert_eq!(RequestHeader::decode(&bytes).is_ok(), magic == REQUEST_MAGIC);
    }

    #[test]
    fn what_passes_the_check_is_inside_the_device(
        header in request_header(),
        length in prop_oneof![length().prop_map(u64::from), any::<u64>()],
        replies in style(),
        base_allocation: bool,
        read_only: bool,
        block_sizes: bool,
    ) {
        let geometry = Geometry {
            capacity_bytes: 1 << 20,
            sector_bytes: 512,
            preferred_bytes: 4096,
            max_transfer_bytes: 32 << 20,
            read_only,
        };
        let session = Session { replies, base_allocation, block_sizes, ..Session::default() };
        let header = ExtendedRequestHeader { length, ..header.into() };
        let checked = operation::check(&header, &geometry, session);
        if checked.is_ok() && !matches!(header.command, CMD_FLUSH | CMD_DISC) {
            prop_assert!(header.offset.is_multiple_of(512) && header.length.is_multiple_of(512) || !block_sizes);
            prop_assert!(header.length > 0);
            if let Ok(Operation::Trim { offset, length, .. }) = checked {
                prop_assert!(offset % 512 == 0 && length % 512 == 0);
                let end = (header.offset + header.length) / 512 * 512;
                let whole_bytes = end.saturating_sub(header.offset.next_multiple_of(512));
                prop_assert_eq!(whole_bytes, length);
            }
            prop_assert!(header.offset.checked_add(header.length).is_some_and(|end| end <= 1 << 20));
            prop_assert!(!read_only || !matches!(header.command, CMD_WRITE | CMD_WRITE_ZEROES | CMD_TRIM));
        }
    }

    #[test]
    fn options_round_trip(option in client_option()) {
        let bytes = option.encode();
        let header = OptionHeader::decode(bytes[..16].try_into().expect("16 bytes"));
        let data = &bytes[16..];
        let expected = OptionHeader { option: option.number(), length: data.len() as u32 };
        prop_assert_eq!(header, Some(expected));
        prop_assert_eq!(ClientOption::decode(option.number(), data), Ok(option));
    }

    #[test]
    fn any_option_data_is_parsed_or_refused(option in 0..13u32, data in vec(any::<u8>(), 0..200)) {
        if let Ok(decoded) = ClientOption::decode(option, &data) {
            prop_assert_eq!(decoded.number(), option);
        }
    }

    #[test]
    fn a_cut_option_is_refused(option in client_option(), cut in 1..8usize) {
        let bytes = option.encode();
        let data = &bytes[16..];
        let kept = &data[..data.len().saturating_sub(cut)];
        let decoded = ClientOption::decode(option.number(), kept);
        // A plain name ends only where the option ends.
        prop_assert!(decoded.is_err() || data.is_empty() || matches!(option, ClientOption::ExportName(_)));
    }

    #[test]
    fn replies_round_trip(error: u32, cookie: u64, flags: u16, kind: u16, length: u32) {
        let simple = SimpleReply { error, cookie };
        prop_assert_eq!(SimpleReply::decode(&simple.encode()), Some(simple));
        let chunk = ChunkHeader { flags, kind, cookie, length };
        prop_assert_eq!(ChunkHeader::decode(&chunk.encode()), Some(chunk));
        let option = OptionReplyHeader { option: error, reply_type: length, length: error };
        prop_assert_eq!(OptionReplyHeader::decode(&option.encode()), Some(option));
    }

    #[test]
    fn error_messages_fit_whatever_they_say(message in "[aß€]{0,700}", extended: bool) {
        let mut out = Vec::new();
        let style = if extended { ReplyStyle::Extended } else { ReplyStyle::Structured };
        reply::push_error(&mut out, to(style), Errno::Io, &message);
        let text = std::str::from_utf8(&content(style, &out)[6..]).expect("cut at a character");
        prop_assert!(message.starts_with(text) && text.len() <= 512);
    }

    #[test]
    fn block_status_covers_no_more_than_asked(
        lens in vec((0..5u64, 0..3usize), 1..20),
        sectors in 1..64u64,
        extended: bool,
    ) {
        let kinds = [ExtentKind::Data, ExtentKind::Zero, ExtentKind::Hole];
        let extents: Vec<Extent> =
            lens.iter().map(|&(len, kind)| Extent { len: len * 512, kind: kinds[kind] }).collect();
        let mut out = Vec::new();
        let style = if extended { ReplyStyle::Extended } else { ReplyStyle::Structured };
        reply::push_block_status(&mut out, to(style), sectors * 512, &extents);
        let content = content(style, &out);
        let number = |bytes: &[u8]| bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
        let (before, width) = if extended { (8, 8) } else { (4, 4) };
        let runs: Vec<(u64, u64)> = content[before..]
            .chunks(2 * width)
            .map(|run| (number(&run[..width]), number(&run[width..])))
            .collect();
        prop_assert!(!extended || number(&content[4..8]) == runs.len() as u64);
        let told: u64 = extents.iter().map(|extent| extent.len).sum();
        let covered: u64 = runs.iter().map(|run| run.0).sum();
        prop_assert_eq!(covered, told.min(sectors * 512));
        prop_assert!(runs.iter().all(|run| run.0 > 0));
        prop_assert!(runs.windows(2).all(|pair| pair[0].1 != pair[1].1));
    }

    #[test]
    fn every_request_is_answered_once(
        headers in vec(request_header(), 0..40),
        chunk_bits in 0..20u32,
        yields: bool,
    ) {
        let go = ClientOption::ExportName(String::new()).encode();
        let mut sent = [&[0, 0, 0, 3], &go[..]].concat();
        let mut expected = Vec::new();
        for mut header in headers {
            header.length %= 100_000;
            sent.extend(header.encode());
            sent.resize(sent.len() + header.payload_bytes() as usize, 1);
            if header.command == CMD_DISC {
                break;
            }
            expected.push(header);
        }
        let (answers, result) = run_session(&sent, 1 << chunk_bits, yields);
        prop_assert!(result.is_ok());
        let mut rest = &answers[18 + 10..];
        while let Some((reply, after)) = rest.split_first_chunk::<16>() {
            let reply = SimpleReply::decode(reply).expect("a reply");
            let answered = expected.iter().position(|header| header.cookie == reply.cookie);
            let header = expected.remove(answered.expect("to a request"));
            let read = header.command == CMD_READ && reply.error == 0;
            rest = &after[if read { header.length as usize } else { 0 }..];
        }
        prop_assert!(rest.is_empty() && expected.is_empty());
    }

    #[test]
    fn a_session_survives_any_bytes(bytes in vec(any::<u8>(), 0..300)) {
        fuzz_session(&bytes);
    }

    #[test]
    fn a_client_survives_any_bytes(bytes in vec(any::<u8>(), 0..300)) {
        fuzz_client(&bytes);
    }

    #[test]
    fn a_client_survives_any_chunks(
        chunks in vec((any::<u16>(), prop_oneof![0_u16..6, Just(0x8001), any::<u16>()], vec(any::<u8>(), 0..40)),
            0..12),
    ) {
        let mut bytes = vec![3];
        for (flags, kind, data) in chunks {
            bytes.extend(STRUCTURED_REPLY_MAGIC.to_be_bytes());
            bytes.extend((flags & 1).to_be_bytes());
            bytes.extend(kind.to_be_bytes());
            bytes.extend(1_u64.to_be_bytes());
            bytes.extend((data.len() as u32).to_be_bytes());
            bytes.extend(data);
        }
        fuzz_client(&bytes);
    }

    #[test]
    fn a_session_survives_any_options(mode in any::<u8>(), options in vec(client_option(), 0..12)) {
        let mut bytes = vec![mode & !3 | 1];
        options.iter().for_each(|option| bytes.extend(option.encode()));
        fuzz_session(&bytes);
    }

    #[test]
    fn a_session_survives_any_requests(mode in any::<u8>(), headers in vec(request_header(), 0..12)) {
        let mut bytes = vec![mode | 2];
        for header in headers {
            bytes.extend(header.encode());
            bytes.resize(bytes.len() + header.payload_bytes().min(100_000) as usize, 1);
        }
        fuzz_session(&bytes);
    }

    #[test]
    fn a_session_survives_any_extended_requests(mode in any::<u8>(), headers in vec(request_header(), 0..12)) {
        let mut bytes = vec![mode | 3 | 0x40];
        for header in headers {
            let header = ExtendedRequestHeader::from(header);
            bytes.extend(header.encode());
            bytes.resize(bytes.len() + header.payload_bytes().min(100_000) as usize, 1);
        }
        fuzz_session(&bytes);
    }
}

#[test]
fn a_lying_count_of_queries_reserves_nothing() {
    let data = [&0u32.to_be_bytes()[..], &u32::MAX.to_be_bytes()].concat();
    assert!(ClientOption::decode(OPT_SET_META_CONTEXT, &data).is_err());
}
