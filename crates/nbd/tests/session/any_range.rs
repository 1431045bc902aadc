//! Requests of any range of bytes, for clients that did not ask for block sizes.

use nbd::ServerConfig;
use nbd::option::{ClientOption, InfoQuery};
use nbd::protocol::*;
use proptest::collection::vec;
use proptest::prelude::*;

use crate::client::{Session, connect, device, info, simple};

const EINVAL: u32 = Errno::Inval.code();
/// Bytes that the requests of the property test reach.
const REGION_BYTES: usize = 20_000;

/// A client that chooses the export `second`, with sectors of 4096 bytes, and asks for this information.
async fn with_large_sectors(infos: Vec<u16>) -> Session {
    let mut session = connect(device(), ServerConfig::default());
    session.client.greet().await;
    let query = InfoQuery { export: "second".to_owned(), infos };
    let replies = session.client.option(&ClientOption::Go(query.clone())).await;
    let sizes = replies.iter().filter(|reply| reply.data.starts_with(&INFO_BLOCK_SIZE.to_be_bytes()));
    assert_eq!(sizes.count(), usize::from(query.infos.contains(&INFO_BLOCK_SIZE)), "only if asked for");
    session
}

#[tokio::test]
async fn who_asked_for_block_sizes_keeps_to_them() {
    let mut session = with_large_sectors(vec![INFO_BLOCK_SIZE]).await;
    let client = &mut session.client;
    assert_eq!(client.write(0, 0, &[1; 512]).await, EINVAL);
    for command in [CMD_READ, CMD_TRIM, CMD_WRITE_ZEROES, CMD_CACHE] {
        assert_eq!(client.ask(command, 0, 4097, 4096).await, EINVAL);
    }
    assert_eq!(client.write(0, 4096, &[1; 4096]).await, 0);
}

#[tokio::test]
async fn asking_before_choosing_promises_nothing() {
    let mut session = connect(device(), ServerConfig::default());
    session.client.greet().await;
    assert_eq!(session.client.outcome(&ClientOption::Info(info("second"))).await, REP_ACK);
    session.client.send(&ClientOption::ExportName("second".to_owned()).encode()).await;
    session.client.receive(10).await;
    assert_eq!(session.client.write(0, 5, &[1]).await, 0);
}

#[tokio::test]
async fn trim_leaves_out_what_is_not_a_whole_sector() {
    let mut session = with_large_sectors(vec![INFO_NAME]).await;
    let client = &mut session.client;
    assert_eq!(client.write(0, 0, &[1; 20_000]).await, 0);
    for (offset, length) in [(4095, 8194), (1, 4095), (8193, 2), (12287, 1)] {
        assert_eq!(client.ask(CMD_TRIM, CMD_FLAG_FUA, offset, length).await, 0);
    }
    assert_eq!(client.ask(CMD_READ, 0, 0, 20_000).await, 0);
    let data = client.receive(20_000).await;
    assert!(data[..4096] == [1; 4096] && data[4096..12288] == [0; 8192] && data[12288..] == [1; 7712]);
}

#[tokio::test]
async fn the_end_is_the_end() {
    let mut session = with_large_sectors(Vec::new()).await;
    let client = &mut session.client;
    assert_eq!(client.write(0, (1 << 20) - 1, &[1]).await, 0);
    assert_eq!(client.write(0, (1 << 20) - 1, &[1, 2]).await, Errno::NoSpc.code());
    for command in [CMD_READ, CMD_TRIM] {
        assert_eq!(client.ask(command, 0, (1 << 20) - 1, 2).await, EINVAL);
        assert_eq!(client.ask(command, 0, u64::MAX, u32::MAX).await, EINVAL);
        assert_eq!(client.ask(command, 0, 1, 0).await, EINVAL);
    }
}

/// A request of the property test: which connection, what, where.
type Change = (bool, u8, usize, usize);

fn changes() -> impl Strategy<Value = Vec<Change>> {
    vec((any::<bool>(), 0..5u8, 0..REGION_BYTES, 1..6000_usize), 1..40)
}

async fn compare(changes: Vec<Change>) {
    let mut sessions = [with_large_sectors(Vec::new()).await, simple(device()).await];
    let mut models = [vec![0_u8; REGION_BYTES], vec![0; REGION_BYTES]];
    // The client with small sectors asked for their size, and keeps to it.
    for (number, (small, kind, at, len)) in changes.into_iter().enumerate() {
        let (client, model) = (&mut sessions[usize::from(small)].client, &mut models[usize::from(small)]);
        let sector = if small { 512 } else { 1 };
        let at = at / sector * sector;
        let len = len.next_multiple_of(sector).min((REGION_BYTES - at) / sector * sector);
        if len == 0 {
            continue;
        }
        let (range, value) = (at..at + len, number as u8 + 1);
        match kind {
            0 | 1 => {
                assert_eq!(client.write(0, at as u64, &vec![value; len]).await, 0);
                model[range].fill(value);
            }
            2 => {
                assert_eq!(client.ask(CMD_WRITE_ZEROES, 0, at as u64, len as u32).await, 0);
                model[range].fill(0);
            }
            3 => {
                assert_eq!(client.ask(CMD_TRIM, 0, at as u64, len as u32).await, 0);
                let sector = if small { 512 } else { 4096 };
                let (from, to) = (at.next_multiple_of(sector), (at + len) / sector * sector);
                if from < to {
                    model[from..to].fill(0);
                }
            }
            _ => {
                assert_eq!(client.ask(CMD_READ, 0, at as u64, len as u32).await, 0);
                assert!(client.receive(len).await == model[range]);
            }
        }
    }
    for (session, model) in sessions.iter_mut().zip(models) {
        let len = model.len() / 512 * 512;
        assert_eq!(session.client.ask(CMD_READ, 0, 0, len as u32).await, 0);
        assert!(session.client.receive(len).await == model[..len]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_requests_change_what_they_cover(changes in changes()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(compare(changes));
    }
}
