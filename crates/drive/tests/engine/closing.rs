//! Hosts that write while a drive is being closed.

use crate::common;
use crate::faulty;

use std::pin::pin;
use std::sync::Arc;

use codec::testdata::random;
use common::create_options;
use drive::{CreateOptions, Drive, Error};
use faulty::{Faulty, Tasks, poll};

const BLOCK: u64 = 4096;
const PHYSICAL: u64 = 16 << 20;
/// Number of polls after which any close has ended.
const POLLS_MAX: usize = 200;

/// A drive that was closed cleanly holds nothing after its last checkpoint. Recovery would not search for it
/// as it does after a crash.
#[test]
fn a_drive_that_is_written_to_meanwhile_is_not_called_closed_properly() {
    let (mut taken, mut refused) = (0, 0);
    for polls in 0.. {
        let (media, tasks) = (Arc::new(Faulty::new(PHYSICAL)), Tasks::default());
        let options =
            CreateOptions { segment_bytes: Some(512 << 10), ..create_options(PHYSICAL, 2 * PHYSICAL) };
        tasks.run(Drive::create(&*media, &options)).expect("create");
        let drive = tasks.open(&media, |_| {});
        for block in 0..64 {
            tasks.run(drive.write(block * BLOCK, &random(block, BLOCK as usize), false)).expect("write");
        }
        let mut closing = pin!(drive.close());
        let mut ended = None;
        for _ in 0..polls {
            ended = ended.or_else(|| poll(closing.as_mut()));
            if ended.is_none() {
                tasks.turn();
            }
        }
        let is_over = ended.is_some();
        let data = random(1000, BLOCK as usize);
        let mut write = pin!(drive.write(100 * BLOCK, &data, true));
        let mut answer = None;
        for _ in 0..POLLS_MAX {
            answer = answer.or_else(|| poll(write.as_mut()));
            ended = ended.or_else(|| poll(closing.as_mut()));
            tasks.turn();
        }
        match answer.expect("an answer") {
            Ok(()) => taken += 1,
            Err(Error::ReadOnly(_)) => refused += 1,
            Err(error) => panic!("after {polls} polls: {error}"),
        }
        ended.expect("closed").expect("close");
        let drive = tasks.open(&media, |_| {});
        let recovered = drive.status().recovered;
        // One pack holds the nodes of the checkpoint itself.
        assert!(!recovered.clean || recovered.packs_count == 1, "after {polls} polls: {recovered:?}");
        if is_over {
            break;
        }
    }
    assert!(taken > 3 && refused > 0, "{taken} taken, {refused} refused");
}
