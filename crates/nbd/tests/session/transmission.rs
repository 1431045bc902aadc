//! Commands and their errors.

use std::time::Duration;

use device::{DeviceError, ReadOnly};
use nbd::ConnectionError;
use nbd::protocol::*;
use nbd::testing::MemoryDevice;

use crate::client::{CAPACITY_BYTES, device, simple, structured};

const EPERM: u32 = Errno::Perm.code();
const EINVAL: u32 = Errno::Inval.code();
const ENOSPC: u32 = Errno::NoSpc.code();

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|index| (index / 512 + index) as u8).collect()
}

#[tokio::test]
async fn what_is_written_is_read() {
    let mut session = simple(device()).await;
    for (offset, len) in [(512, 512), (4096, 4096), (1 << 20, 32 << 10), (3584, 100 << 10), (0, 32 << 20)] {
        let data = pattern(len);
        assert_eq!(session.client.write(0, offset, &data).await, 0);
        assert_eq!(session.client.ask(CMD_READ, 0, offset, len as u32).await, 0);
        assert!(session.client.receive(len).await == data, "{len} bytes at {offset}");
    }
}

#[tokio::test]
async fn a_structured_read_is_one_chunk() {
    let mut session = structured(device()).await;
    let data = pattern(8192);
    assert_eq!(session.client.write(0, 4096, &data).await, 0);
    session.client.request(CMD_READ, CMD_FLAG_DF, 4096, 8192).await;
    let (header, payload) = session.client.chunk().await;
    assert_eq!((header.kind, header.flags), (REPLY_TYPE_OFFSET_DATA, REPLY_FLAG_DONE));
    assert_eq!(payload[..8], 4096u64.to_be_bytes());
    assert!(payload[8..] == data);
}

#[tokio::test]
async fn pipelined_requests_are_all_answered() {
    let session = simple(device()).await;
    let mut bytes = Vec::new();
    for cookie in 0..1000u64 {
        let header = nbd::request::RequestHeader {
            flags: 0,
            command: CMD_WRITE,
            cookie,
            offset: cookie * 4096,
            length: 4096,
        };
        bytes.extend_from_slice(&header.encode());
        bytes.resize(bytes.len() + 4096, cookie as u8);
    }
    let (mut receive, mut send) = tokio::io::split(session.client.stream);
    let sender = tokio::spawn(async move {
        tokio::io::AsyncWriteExt::write_all(&mut send, &bytes).await.expect("sent");
        send
    });
    let mut seen = vec![false; 1000];
    for _ in 0..1000 {
        let mut reply = [0; 16];
        tokio::io::AsyncReadExt::read_exact(&mut receive, &mut reply).await.expect("received");
        let reply = nbd::reply::SimpleReply::decode(&reply).expect("a reply");
        assert_eq!(reply.error, 0);
        assert!(!std::mem::replace(&mut seen[reply.cookie as usize], true));
    }
    sender.await.expect("no panic");
}

#[tokio::test(start_paused = true)]
async fn replies_come_as_requests_finish() {
    let mut session = simple(device()).await;
    session.device.delay_by(Duration::from_millis(50));
    session.client.request_as(1, CMD_FLUSH, 0, 0, 0).await;
    tokio::time::sleep(Duration::from_millis(1)).await;
    session.device.delay_by(Duration::ZERO);
    session.client.request_as(2, CMD_FLUSH, 0, 0, 0).await;
    assert_eq!(session.client.simple_reply().await.cookie, 2);
    assert_eq!(session.client.simple_reply().await.cookie, 1);
}

#[tokio::test]
async fn flush_reaches_the_device() {
    let mut session = simple(device()).await;
    assert_eq!(session.client.ask(CMD_FLUSH, 0, 0, 0).await, 0);
    assert_eq!(session.device.flushes(), 1);
    assert_eq!(session.client.ask(CMD_FLUSH, 0, 512, 0).await, EINVAL);
}

#[tokio::test]
async fn fua_reaches_the_device() {
    let mut session = simple(device()).await;
    assert_eq!(session.client.write(CMD_FLAG_FUA, 0, &[1; 512]).await, 0);
    assert_eq!(session.client.ask(CMD_TRIM, CMD_FLAG_FUA, 0, 512).await, 0);
    assert_eq!(session.client.ask(CMD_WRITE_ZEROES, CMD_FLAG_FUA, 0, 512).await, 0);
    assert_eq!(session.device.durable_writes(), 3);
}

#[tokio::test]
async fn fua_is_allowed_where_it_means_nothing() {
    let mut session = simple(device()).await;
    assert_eq!(session.client.ask(CMD_FLUSH, CMD_FLAG_FUA, 0, 0).await, 0);
    assert_eq!(session.client.ask(CMD_CACHE, CMD_FLAG_FUA, 0, 512).await, 0);
}

#[tokio::test]
async fn trim_and_write_zeroes_read_as_zeros() {
    let mut session = simple(device()).await;
    for (command, flags) in [(CMD_TRIM, 0), (CMD_WRITE_ZEROES, 0), (CMD_WRITE_ZEROES, CMD_FLAG_NO_HOLE)] {
        assert_eq!(session.client.write(0, 0, &[1; 4096]).await, 0);
        assert_eq!(session.client.ask(command, flags, 512, 1024).await, 0);
        assert_eq!(session.client.ask(CMD_READ, 0, 0, 4096).await, 0);
        let data = session.client.receive(4096).await;
        assert!(data[..512] == [1; 512] && data[512..1536] == [0; 1024] && data[1536..] == [1; 2560]);
    }
}

#[tokio::test]
async fn fast_zeroing_is_refused_where_it_is_none() {
    let mut session = simple(device()).await;
    let flags = CMD_FLAG_NO_HOLE | CMD_FLAG_FAST_ZERO;
    assert_eq!(session.client.write(0, 0, &[1; 16384]).await, 0);
    for (offset, length, error) in
        [(0, 4096, 0), (8192, 4096, 0), (3584, 5120, 0), (512, 4096, 95), (512, 7168, 95)]
    {
        assert_eq!(
            session.client.ask(CMD_WRITE_ZEROES, flags, offset, length).await,
            error,
            "{length} at {offset}"
        );
    }
    assert_eq!(session.client.ask(CMD_WRITE_ZEROES, CMD_FLAG_NO_HOLE, 512, 4096).await, 0);
}

#[tokio::test]
async fn ranges_without_data_may_be_larger_than_a_payload() {
    let mut session = simple(device()).await;
    for command in [CMD_TRIM, CMD_WRITE_ZEROES, CMD_CACHE] {
        assert_eq!(session.client.ask(command, 0, 0, CAPACITY_BYTES as u32).await, 0);
    }
}

#[tokio::test]
async fn block_status_tells_runs() {
    let mut session = structured(device()).await;
    assert_eq!(session.client.write(0, 64 << 10, &[1; 64 << 10]).await, 0);
    assert_eq!(session.client.ask(CMD_WRITE_ZEROES, CMD_FLAG_NO_HOLE, 128 << 10, 64 << 10).await, 0);
    session.client.request(CMD_BLOCK_STATUS, 0, 0, 256 << 10).await;
    let (header, payload) = session.client.chunk().await;
    assert_eq!((header.kind, header.flags), (REPLY_TYPE_BLOCK_STATUS, REPLY_FLAG_DONE));
    let run = 64u32 << 10;
    let expected = [1, run, 3, run, 0, run, 2, run, 3].map(u32::to_be_bytes).concat();
    assert_eq!(payload, expected);
}

#[tokio::test]
async fn block_status_of_one_extent() {
    let mut session = structured(device()).await;
    assert_eq!(session.client.write(0, 64 << 10, &[1; 64 << 10]).await, 0);
    session.client.request(CMD_BLOCK_STATUS, CMD_FLAG_REQ_ONE, 0, 256 << 10).await;
    assert_eq!(session.client.chunk().await.1, [1, 64 << 10, 3u32].map(u32::to_be_bytes).concat());
}

#[tokio::test]
async fn block_status_needs_a_context() {
    let mut session = simple(device()).await;
    assert_eq!(session.client.ask(CMD_BLOCK_STATUS, 0, 0, 4096).await, EINVAL);
}

#[tokio::test]
async fn illegal_requests_are_refused_and_the_connection_goes_on() {
    let mut session = simple(device()).await;
    let end = CAPACITY_BYTES;
    for (command, flags, offset, length, expected) in [
        (CMD_READ, 0, 0, 0, EINVAL),
        (CMD_READ, 0, 1, 512, EINVAL),
        (CMD_READ, 0, 0, 511, EINVAL),
        (CMD_READ, 0, end, 512, EINVAL),
        (CMD_READ, 0, end - 512, 1024, EINVAL),
        (CMD_READ, 0, u64::MAX - 511, 512, EINVAL),
        (CMD_READ, 0, 0, (32 << 20) + 512, EINVAL),
        (CMD_READ, 0, 0, u32::MAX, EINVAL),
        (CMD_READ, CMD_FLAG_DF, 0, 512, EINVAL), // only with structured replies
        (CMD_READ, CMD_FLAG_NO_HOLE, 0, 512, EINVAL),
        (CMD_TRIM, 0, end, 512, EINVAL),
        (CMD_TRIM, 0, 0, 0, EINVAL),
        (CMD_CACHE, 0, end, 512, EINVAL),
        (CMD_WRITE_ZEROES, 0, end - 512, 1024, ENOSPC),
        (CMD_WRITE_ZEROES, 0, 100, 512, EINVAL),
        (CMD_TRIM, CMD_FLAG_REQ_ONE, 0, 512, EINVAL),
        (8, 0, 0, 0, EINVAL),
        (0xffff, 0xffff, 0, 0, EINVAL),
        (CMD_FLUSH, 1 << 15, 0, 0, EINVAL),
    ] {
        let error = session.client.ask(command, flags, offset, length).await;
        assert_eq!(error, expected, "command {command} flags {flags} offset {offset} length {length}");
    }
    assert_eq!(session.client.ask(CMD_FLUSH, 0, 0, 0).await, 0);
}

#[tokio::test]
async fn illegal_writes_are_refused_with_their_data() {
    let mut session = simple(device()).await;
    for (flags, offset, length, expected) in [
        (0, 1, 512, EINVAL),
        (0, 0, 100, EINVAL),
        (0, CAPACITY_BYTES, 512, ENOSPC),
        (0, u64::MAX - 511, 512, ENOSPC),
        (0, CAPACITY_BYTES - 512, 64 << 10, ENOSPC),
        (CMD_FLAG_DF, 0, 512, EINVAL),
        (0, 0, (32 << 20) + 512, EINVAL),
        (0, 0, 64 << 20, EINVAL),
    ] {
        let error = session.client.write(flags, offset, &vec![1; length]).await;
        assert_eq!(error, expected, "flags {flags} offset {offset} length {length}");
    }
    assert_eq!(session.client.ask(CMD_READ, 0, 0, 512).await, 0);
    assert_eq!(session.client.receive(512).await, [0; 512]);
}

#[tokio::test]
async fn a_write_too_large_to_throw_away_closes_after_the_replies_in_flight() {
    let mut session = simple(device()).await;
    session.device.delay_by(Duration::from_millis(50));
    session.client.request(CMD_FLUSH, 0, 0, 0).await;
    session.client.request(CMD_WRITE, 0, 0, u32::MAX).await;
    assert_eq!(session.client.error().await, 0);
    assert!(session.client.is_closed().await);
    assert!(matches!(session.ended().await, Err(ConnectionError::PayloadTooLarge(0xffff_ffff))));
}

#[tokio::test]
async fn a_df_read_too_large_for_a_chunk_overflows() {
    let mut session = structured(device()).await;
    session.client.request(CMD_READ, CMD_FLAG_DF, 0, 64 << 20).await;
    let (_, payload) = session.client.chunk().await;
    assert_eq!(payload[..4], Errno::Overflow.code().to_be_bytes());
}

#[tokio::test]
async fn structured_errors_carry_a_message() {
    let mut session = structured(device()).await;
    session.device.fail_with(Some(DeviceError::Io("bit rot".into())));
    session.client.request(CMD_READ, 0, 0, 512).await;
    let (header, payload) = session.client.chunk().await;
    assert_eq!((header.kind, header.flags), (REPLY_TYPE_ERROR, REPLY_FLAG_DONE));
    assert_eq!(payload, b"\0\0\0\x05\0\x1binput/output error: bit rot");
}

#[tokio::test]
async fn device_errors_have_their_codes() {
    let mut session = simple(device()).await;
    for (error, code) in [
        (DeviceError::NoSpace, Errno::NoSpc),
        (DeviceError::ReadOnly(ReadOnly::Poisoned("a write failed".into())), Errno::Perm),
        (DeviceError::Io("broken".into()), Errno::Io),
        (DeviceError::Shutdown, Errno::Shutdown),
        (DeviceError::Invalid("odd".into()), Errno::Inval),
    ] {
        session.device.fail_with(Some(error));
        assert_eq!(session.client.write(0, 0, &[1; 512]).await, code.code());
        // No data follows a failed read: the next bytes are the next reply.
        assert_eq!(session.client.ask(CMD_READ, 0, 0, 512).await, code.code());
    }
}

#[tokio::test]
async fn a_read_only_export_refuses_changes() {
    let mut session = simple(device().read_only()).await;
    assert_eq!(session.client.write(0, 0, &[1; 512]).await, EPERM);
    assert_eq!(session.client.ask(CMD_TRIM, 0, 0, 512).await, EPERM);
    assert_eq!(session.client.ask(CMD_WRITE_ZEROES, 0, 0, 512).await, EPERM);
    assert_eq!(session.client.ask(CMD_READ, 0, 0, 512).await, 0);
}

#[tokio::test]
async fn a_smaller_largest_transfer_is_kept() {
    let mut session = simple(device().max_transfer(1 << 20)).await;
    assert_eq!(session.client.ask(CMD_READ, 0, 0, (1 << 20) + 512).await, EINVAL);
    assert_eq!(session.client.ask(CMD_READ, 0, 0, 1 << 20).await, 0);
}

#[tokio::test]
async fn four_kibibyte_sectors_are_enforced() {
    let mut session = simple(MemoryDevice::new(1 << 20, 4096)).await;
    assert_eq!(session.client.write(0, 512, &[1; 4096]).await, EINVAL);
    assert_eq!(session.client.write(0, 4096, &[1; 4096]).await, 0);
}

#[tokio::test]
async fn a_device_that_grows_can_be_used_at_once() {
    let device = device();
    device.set_capacity(1 << 20);
    let mut session = simple(device).await;
    assert_eq!(session.client.ask(CMD_READ, 0, 1 << 20, 512).await, EINVAL);
    session.device.set_capacity(2 << 20);
    assert_eq!(session.client.ask(CMD_READ, 0, 1 << 20, 512).await, 0);
}

#[tokio::test]
async fn disc_answers_what_is_in_flight_and_closes() {
    let mut session = simple(device()).await;
    session.device.delay_by(Duration::from_millis(20));
    session.client.request(CMD_FLUSH, 0, 0, 0).await;
    session.client.request(CMD_DISC, 0, 0, 0).await;
    assert_eq!(session.client.error().await, 0);
    assert!(session.client.is_closed().await);
    assert!(session.ended().await.is_ok());
}

#[tokio::test]
async fn a_bad_magic_closes_after_the_replies_in_flight() {
    let mut session = simple(device()).await;
    session.device.delay_by(Duration::from_millis(20));
    session.client.request(CMD_FLUSH, 0, 0, 0).await;
    session.client.send(&[0xab; 28]).await;
    assert_eq!(session.client.error().await, 0);
    assert!(session.client.is_closed().await);
    assert!(matches!(session.ended().await, Err(ConnectionError::BadMagic(_))));
}

#[tokio::test]
async fn a_write_cut_off_by_the_client_is_not_done() {
    for length in [4096, 1 << 20] {
        let mut session = simple(device()).await;
        let device = std::sync::Arc::clone(&session.device);
        session.client.request(CMD_WRITE, CMD_FLAG_FUA, 0, length).await;
        session.client.send(&[1; 1000]).await;
        assert!(matches!(session.ended().await, Err(ConnectionError::UnexpectedEnd)));
        assert_eq!(device.durable_writes(), 0);
    }
}
