//! What a lease allows, and what it counts. Models of it under threads are in `crates/threads`.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use media::{Lease, LeaseLost};

fn at(now: &Arc<AtomicU64>) -> Lease {
    let now = now.clone();
    Lease::new(Arc::new(move || now.load(Ordering::Relaxed)))
}

#[test]
fn it_ends_by_itself_and_holds_again_when_it_is_extended() {
    let now = Arc::new(AtomicU64::new(10));
    let lease = at(&now);
    assert!(!lease.holds(), "nobody made sure yet");
    lease.extend(15);
    assert!(lease.holds());
    now.store(15, Ordering::Relaxed);
    assert!(!lease.holds());
    let mut context = Context::from_waker(Waker::noop());
    let mut waiting = pin!(lease.confirm());
    assert!(waiting.as_mut().poll(&mut context).is_pending());
    lease.extend(20);
    assert_eq!(waiting.as_mut().poll(&mut context), Poll::Ready(Ok(())));
}

#[test]
fn a_lost_lease_never_holds_again() {
    let lease = at(&Arc::default());
    let mut context = Context::from_waker(Waker::noop());
    let mut waiting = pin!(lease.confirm());
    assert!(waiting.as_mut().poll(&mut context).is_pending());
    lease.lose("another host took the drive");
    lease.extend(u64::MAX);
    lease.lose("a later reason");
    assert!(!lease.holds());
    let why = "another host took the drive".to_string();
    assert_eq!(waiting.as_mut().poll(&mut context), Poll::Ready(Err(LeaseLost(why))));
    let Err(error) = lease.begin() else { panic!("an operation began") };
    assert_eq!(error.to_string(), "another host took the drive");
    assert!(lease.is_quiet());
}

#[test]
fn it_counts_operations_under_way() {
    let lease = at(&Arc::default());
    lease.extend(u64::MAX);
    let changing = lease.begin().expect("it is not lost");
    assert!(!lease.is_quiet());
    changing.end();
    assert!(lease.is_quiet());
    drop(lease.begin().expect("it is not lost"));
    assert!(!lease.is_quiet(), "nobody knows whether that has happened");
    assert!(lease.close("closed").is_none());
}

#[test]
fn a_closed_lease_leaves_its_rest_for_the_last_write() {
    let now = Arc::new(AtomicU64::new(10));
    let lease = at(&now);
    lease.extend(15);
    let rest = lease.close("closed").expect("nothing is under way");
    assert!(!lease.holds() && lease.begin().is_err());
    assert!(rest.holds());
    now.store(15, Ordering::Relaxed);
    assert!(!rest.holds());
    assert!(lease.close("closed again").is_none());
}
