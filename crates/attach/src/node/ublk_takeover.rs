//! When the driver may be asked to pass a device to another bridge after an interrupted takeover.
//!
//! A takeover is: `START_USER_RECOVERY`, commands of each queue to fetch requests, each from the thread of
//! the queue, `END_USER_RECOVERY`. The first makes the driver forget the threads of the last bridge. Before
//! Linux 6.16 it expects that each queue has one: a second call before all queues have one again is refused,
//! or crashes the kernel. If no queue has sent anything yet, the next bridge continues where the last one was
//! killed. A bridge records its progress for the next one.

use crate::takeover::Takeover;

/// First Linux whose driver returns the commands of a bridge that is killed in a takeover.
const GIVES_BACK: (u32, u32) = (6, 7);
/// First Linux whose driver refuses to forget threads if there is none. Updates of older ones may do so, too.
const KNOWS_THAT_IT_FORGOT: (u32, u32) = (6, 10);
/// First Linux whose driver forgets the threads of a bridge when that ends, and not when another one begins.
const FORGETS_BY_ITSELF: (u32, u32) = (6, 16);

/// How another takeover begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Beginning {
    /// The driver has to be asked.
    Ask,
    /// The driver is asked. It refuses if it has already forgotten the last bridge: then the takeover
    /// continues.
    AskUnlessDone,
    /// The kernel could crash, or would keep the device.
    Refused,
}

/// Returns how a takeover begins after another one got to this step.
pub(super) fn beginning(last: Option<Takeover>, queues: u16, linux: Option<(u32, u32)>) -> Beginning {
    let is_from = |version| linux.is_some_and(|linux| linux >= version);
    match last {
        None => Beginning::Ask,
        Some(_) if is_from(FORGETS_BY_ITSELF) => Beginning::Ask,
        Some(Takeover::Ready) if is_from(GIVES_BACK) => Beginning::Ask,
        Some(Takeover::Asked) if is_from(KNOWS_THAT_IT_FORGOT) => Beginning::AskUnlessDone,
        // The commands of a queue are sent by one system call: all or none.
        Some(Takeover::Begun) if queues == 1 && is_from(KNOWS_THAT_IT_FORGOT) => Beginning::AskUnlessDone,
        Some(_) => Beginning::Refused,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_without_a_thread_is_not_forgotten_again() {
        use Beginning::{Ask, AskUnlessDone, Refused};
        use Takeover::{Asked, Begun, Ready};
        let all = [Some((6, 6)), Some((6, 8)), Some((6, 12)), Some((6, 16)), None];
        for (last, queues, expected) in [
            (None, 4, [Ask; 5]),
            (Some(Asked), 4, [Refused, Refused, AskUnlessDone, Ask, Refused]),
            (Some(Begun), 1, [Refused, Refused, AskUnlessDone, Ask, Refused]),
            (Some(Begun), 2, [Refused, Refused, Refused, Ask, Refused]),
            (Some(Ready), 4, [Refused, Ask, Ask, Ask, Refused]),
        ] {
            assert_eq!(all.map(|linux| beginning(last, queues, linux)), expected, "{last:?} {queues}");
        }
    }
}
