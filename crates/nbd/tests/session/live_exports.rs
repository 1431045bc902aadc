//! Exports that are added and removed while clients are connected.

use std::sync::Arc;
use std::time::Duration;

use nbd::option::ClientOption;
use nbd::protocol::*;
use nbd::testing::MemoryDevice;
use nbd::{Access, ConfigError, Export, ServerConfig, TlsPolicy};
use tokio::time::timeout;

use crate::client::{connect_to, contexts, device, info, shared_of};

fn export(name: &str) -> Export<MemoryDevice> {
    Export {
        name: name.into(),
        description: String::new(),
        device: Arc::new(MemoryDevice::new(2 << 20, 512)),
        access: Access::Everyone,
        sharing: nbd::Sharing::default(),
    }
}

#[tokio::test]
async fn an_added_export_is_listed_and_served() {
    let device = Arc::new(device());
    let exports = shared_of(&device, ServerConfig::default());
    let mut session = connect_to(&exports, &device, 1 << 20);
    session.client.greet().await;
    assert_eq!(session.client.outcome(&ClientOption::Info(info("third"))).await, REP_ERR_UNKNOWN);
    exports.add(export("third")).expect("a new name");
    let names: Vec<String> = exports.offered().iter().map(|export| export.name.clone()).collect();
    assert_eq!(names, ["first", "second", "third"]);
    // A handshake under way sees the new export.
    assert_eq!(session.client.option(&ClientOption::List).await.len(), 4);
    session.client.go("third").await;
    assert_eq!(session.client.write(0, 2 << 20, &[0; 512]).await, Errno::NoSpc.code(), "two MiB it has");
    assert_eq!(session.client.write(0, 0, &[1; 512]).await, 0);
}

#[tokio::test]
async fn a_name_is_taken_once() {
    let exports = shared_of(&Arc::new(device()), ServerConfig::default());
    assert_eq!(exports.add(export("second")), Err(ConfigError::SameName("second".into())));
    assert!(matches!(exports.add(export(&"x".repeat(5000))), Err(ConfigError::LongName(_))));
    assert_eq!(exports.offered().len(), 2);
    // The name is free again after the removal.
    assert!(exports.remove("second").is_some());
    exports.add(export("second")).expect("free");
    assert!(exports.remove("never").is_none());
}

#[tokio::test]
async fn clients_of_a_removed_export_get_their_answers_and_leave_the_others_go_on() {
    let device = Arc::new(device());
    let exports = shared_of(&device, ServerConfig::default());
    let mut leaving = connect_to(&exports, &device, 1 << 20);
    let mut staying = connect_to(&exports, &device, 1 << 20);
    for (session, name) in [(&mut leaving, "second"), (&mut staying, "first")] {
        session.client.greet().await;
        session.client.go(name).await;
    }
    assert_eq!(leaving.client.write(0, 0, &[1; 4096]).await, 0);
    let gone = exports.remove("second").expect("it was there");
    assert!(leaving.client.is_closed().await);
    leaving.ends().await.expect("a proper end");
    timeout(Duration::from_secs(100), gone.unused()).await.expect("nobody has it");
    assert_eq!(gone.sessions(), 0);
    assert_eq!(staying.client.write(0, 0, &[2; 512]).await, 0);
    staying.ended().await.expect("a proper end");
}

#[tokio::test(start_paused = true)]
async fn a_request_in_flight_is_answered_before_its_export_goes() {
    let device = Arc::new(device());
    let exports = shared_of(&device, ServerConfig::default());
    let mut session = connect_to(&exports, &device, 1 << 20);
    session.client.greet().await;
    session.client.go("first").await;
    device.delay_by(Duration::from_secs(1));
    session.client.request(CMD_READ, 0, 0, 512).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let gone = exports.remove("first").expect("it was there");
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(gone.sessions(), 1);
    assert_eq!(session.client.error().await, 0);
    session.client.receive(512).await;
    assert!(session.client.is_closed().await);
    timeout(Duration::from_secs(100), gone.unused()).await.expect("nobody has it");
}

fn names(exports: &nbd::Exports<MemoryDevice>) -> Vec<String> {
    exports.offered().iter().map(|export| export.name.clone()).collect()
}

#[tokio::test]
async fn the_empty_name_never_leads_to_another_export() {
    let device = Arc::new(device());
    let exports = shared_of(&device, ServerConfig::default());
    let default = || exports.find("").map(|export| export.name.clone());
    assert_eq!(default(), Some("first".into()));
    exports.remove("first");
    assert_eq!(default(), None);
    let mut session = connect_to(&exports, &device, 1 << 20);
    session.client.greet().await;
    assert_eq!(session.client.outcome(&ClientOption::Go(info(""))).await, REP_ERR_UNKNOWN);
    assert_eq!(session.client.option(&ClientOption::List).await.len(), 2, "the second one, and the end");
    let mut old = connect_to(&exports, &device, 1 << 20);
    old.client.greet().await;
    old.client.send(&ClientOption::ExportName(String::new()).encode()).await;
    assert!(old.client.is_closed().await);
    // It returns to its earlier place.
    exports.add(export("first")).expect("free");
    assert_eq!(names(&exports), ["first", "second"]);
    session.client.go("").await;
    assert_eq!(default(), Some("first".into()));
}

#[tokio::test]
async fn exports_stand_in_the_order_of_their_names() {
    let exports = shared_of(&Arc::new(device()), ServerConfig::default());
    exports.add(export("other")).expect("a new name");
    exports.arrange(["third", "second", "first"].map(String::from).to_vec());
    assert_eq!(names(&exports), ["second", "first", "other"]);
    assert!(exports.find("").is_none(), "the third is not offered yet");
    exports.add(export("third")).expect("a new name");
    assert_eq!(names(&exports), ["third", "second", "first", "other"]);
    assert_eq!(exports.find("").map(|export| export.name.clone()), Some("third".into()));
}

#[tokio::test(start_paused = true)]
async fn clients_in_their_handshake_keep_no_removed_export() {
    let device = Arc::new(device());
    let exports = shared_of(&device, ServerConfig::default());
    // One client goes no further, the other does not read the reply to its choice.
    let mut hesitant = connect_to(&exports, &device, 1 << 20);
    let mut deaf = connect_to(&exports, &device, 64);
    hesitant.client.greet().await;
    assert_eq!(hesitant.client.outcome(&ClientOption::StructuredReply).await, REP_ACK);
    let query = contexts("second", &[CONTEXT_BASE_ALLOCATION]);
    assert_eq!(hesitant.client.outcome(&ClientOption::SetMetaContext(query)).await, REP_ACK);
    deaf.client.greet().await;
    deaf.client.send(&ClientOption::Go(info("second")).encode()).await;
    // Yielding keeps the paused clock from advancing, so no handshake times out.
    const TURNS: usize = 1000;
    for _ in 0..TURNS {
        tokio::task::yield_now().await;
    }
    let gone = exports.remove("second").expect("it was there");
    assert_eq!(gone.sessions(), 1, "whose client has not taken the answer");
    let served = Arc::downgrade(&gone.device);
    drop(gone);
    for _ in 0..TURNS {
        tokio::task::yield_now().await;
    }
    assert!(served.upgrade().is_none(), "somebody keeps it");
}

#[tokio::test]
async fn a_context_counts_for_the_export_it_was_chosen_for_not_for_its_successor() {
    let device = Arc::new(device());
    let exports = shared_of(&device, ServerConfig::default());
    let mut session = connect_to(&exports, &device, 1 << 20);
    session.client.greet().await;
    assert_eq!(session.client.outcome(&ClientOption::StructuredReply).await, REP_ACK);
    let query = contexts("second", &[CONTEXT_BASE_ALLOCATION]);
    assert_eq!(session.client.outcome(&ClientOption::SetMetaContext(query)).await, REP_ACK);
    exports.remove("second");
    exports.add(export("second")).expect("free");
    session.client.go("second").await;
    session.client.request(CMD_BLOCK_STATUS, 0, 0, 4096).await;
    let (header, _) = session.client.chunk().await;
    assert!(header.kind & (1 << 15) != 0, "an error chunk: {header:?}");
}

#[tokio::test]
async fn tls_is_not_turned_on_or_off_by_renewing_it() {
    let device = Arc::new(device());
    let exports = shared_of(&device, ServerConfig::default());
    exports.renew_tls(TlsPolicy::Off);
    let mut session = connect_to(&exports, &device, 1 << 20);
    session.client.greet().await;
    assert_eq!(session.client.outcome(&ClientOption::StartTls).await, REP_ERR_UNSUP);
}
