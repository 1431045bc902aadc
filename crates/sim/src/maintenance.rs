//! The background work of a server.

use std::sync::Arc;

use drive::Settle;
use media::SimRng;

use crate::doing::Doing;
use crate::requests::perhaps;
use crate::{Error, Subject, World};

/// Maintenance is given up this many times as often as requests: it is rarer, and has more points to
/// interrupt.
const MAINTENANCE_DROPS: u64 = 4;

/// Background work, each kind in proportion to its number of entries.
const USUAL: [Doing; 13] = [
    Doing::Maintain,
    Doing::Maintain,
    Doing::Maintain,
    Doing::Clean,
    Doing::Clean,
    Doing::Checkpoint,
    Doing::Settle,
    Doing::Settle,
    Doing::Train,
    Doing::SettleAgain,
    Doing::Free,
    Doing::Scrub,
    Doing::Budget,
];
/// The same for drives on which dictionaries are replaced often.
const LEARNING: [Doing; 13] = [
    Doing::Maintain,
    Doing::Clean,
    Doing::Checkpoint,
    Doing::Settle,
    Doing::Settle,
    Doing::Lesson,
    Doing::Lesson,
    Doing::Train,
    Doing::SettleAgain,
    Doing::SettleAgain,
    Doing::Free,
    Doing::Scrub,
    Doing::Budget,
];
/// Map budgets that are set while a drive is in use.
const BUDGETS: [u64; 4] = [64 << 10, 96 << 10, 1 << 20, 16 << 20];
/// Hot groups looked at before a step of settling.
const CUTS: usize = 4;
/// Packs after which data counts as old.
const OLD_PACKS: u64 = 16;
/// Steps of settling between two trainings of a lesson.
const LESSON_STEPS: usize = 8;

/// Trains dictionaries that replace each other, with data that needs each of them, until the first of them
/// must be removed. With single steps at random, that takes longer than a life.
async fn lesson<S: Subject>(world: &World<S>) -> Result<bool, Error> {
    let subject = &world.subject;
    for _ in 0..3 {
        let kept = subject.train().await?;
        world.count(if kept { "op: train, kept a dictionary" } else { "op: train, kept nothing" });
        let (mut unsettled, mut again) = (0, 0);
        for _ in 0..LESSON_STEPS {
            let step = subject.settle(unsettled, Settle::All).await?;
            unsettled = step.next_block;
            if step.was_useful {
                world.count("op: settle, did something");
            }
            let step = subject.settle_again(again).await?;
            again = step.next_block;
            if step.was_useful {
                world.count("op: settle again, did something");
            }
            if unsettled == 0 && again == 0 {
                break;
            }
        }
        subject.checkpoint().await?;
    }
    subject.free().await
}

/// The server's background: maintenance at some beats, until the last client has finished.
pub async fn maintenance<S: Subject>(world: Arc<World<S>>, mut rng: SimRng) {
    // Positions at which settling and scrubbing continue.
    let mut unsettled = 0;
    let mut again = 0;
    let mut unverified = 0;
    // On some drives dictionaries are replaced often, in all lives, because only segments of an earlier life
    // are certain to be sealed.
    let learning = world.config.is_learning();
    while !world.is_stopped() {
        world.next_beat().await;
        if !rng.chance(world.config.maintenance, 16) {
            continue;
        }
        world.set_maintaining(true);
        let names = if learning { LEARNING } else { USUAL };
        let name = match names[rng.index(names.len())] {
            Doing::Train if !world.config.is_training() => Doing::Settle,
            name => name,
        };
        let which = if rng.chance(1, 3) { Settle::Worthwhile(Some(OLD_PACKS)) } else { Settle::All };
        let budget = BUDGETS[rng.index(BUDGETS.len())];
        let work = async {
            match name {
                Doing::Maintain => world.subject.maintain().await,
                Doing::Clean => world.subject.clean().await,
                Doing::Train => world.subject.train().await,
                Doing::Settle => {
                    for _ in 0..CUTS {
                        if world.config.cuts_hot && world.subject.cut_hot().await? {
                            world.count("op: cut, did something");
                        }
                    }
                    let step = world.subject.settle(unsettled, which).await?;
                    unsettled = step.next_block;
                    Ok(step.was_useful)
                }
                Doing::SettleAgain => {
                    let step = world.subject.settle_again(again).await?;
                    again = step.next_block;
                    Ok(step.was_useful)
                }
                Doing::Free => world.subject.free().await,
                Doing::Scrub => {
                    let step = world.subject.scrub(unverified).await?;
                    unverified = step.next_block;
                    Ok(step.was_useful)
                }
                Doing::Budget => {
                    world.subject.set_map_budget(budget);
                    Ok(true)
                }
                Doing::Lesson => lesson(&world).await,
                _ => world.subject.checkpoint().await.map(|()| true),
            }
        };
        // A lesson has many awaits.
        let drops = if learning { world.config.drops } else { MAINTENANCE_DROPS * world.config.drops };
        let result = perhaps(&world, &mut rng, drops, "op: maintenance given up", work).await;
        world.set_maintaining(false);
        world.trace(|| format!("{name}: {result:?}"));
        let Some(result) = result else { continue };
        match result {
            Ok(true) => world.count(match name {
                Doing::Maintain => "op: maintain, did something",
                Doing::Clean => "op: clean, did something",
                Doing::Settle => "op: settle, did something",
                Doing::Scrub => "op: scrub, verified something",
                Doing::Budget => "op: another budget of the map",
                Doing::Train => "op: train, kept a dictionary",
                Doing::SettleAgain => "op: settle again, did something",
                Doing::Free | Doing::Lesson => "op: free, a dictionary was forgotten",
                _ => "op: checkpoint",
            }),
            Ok(false) if name == Doing::Train => world.count("op: train, kept nothing"),
            Ok(false) => world.count("op: maintain, clean or settle, nothing to do"),
            // A full drive may have no space to move anything to.
            Err(Error::NoSpace) if name == Doing::Clean => world.count("op: clean, no space"),
            Err(Error::NoSpace) if [Doing::Train, Doing::Free, Doing::Lesson].contains(&name) => {
                world.count("op: train, no space")
            }
            Err(error) => world.judge(name, &error),
        }
    }
}
