//! Keeping a drive: looking at the mark, answering challenges.

use std::collections::VecDeque;

use layout::OwnerPage;
use layout::owner::Role;
use media::Media;

use super::pages::{Pages, show_page};
use super::{Owner, Surroundings, texts};
use crate::error::Error;
use crate::planted::PlantedBug;

/// Time for which looks at the mark may fail. A backing that recovers sooner costs a pause.
const FAILING_MAX_NS: u64 = 30_000_000_000;

impl Owner {
    /// Keeps the drive for as long as the future is polled. Returns why it is lost. The lease is suspended
    /// then.
    ///
    /// `failed` is told of looks that failed, in a row: as long as they do, nothing is written or answered.
    /// After 30 seconds of them the drive counts as lost, so that requests and a close fail instead of
    /// waiting for ever.
    pub async fn keep<M: Media>(
        &self,
        media: &M,
        around: &dyn Surroundings,
        mut failed: impl FnMut(u64, &Error),
    ) -> String {
        let mut answered = Answered::default();
        let (mut failures, mut failing_since) = (0, None);
        loop {
            let since = self.lease.now();
            let mut pause = self.pace.look_ns;
            match self.renew(media, since, &mut answered, around).await {
                Ok(Renewal::Mine) => (failures, failing_since) = (0, None),
                Ok(Renewal::Answered) => pause = self.pace.settle_ns,
                Ok(Renewal::Lost(why)) => {
                    self.lease.suspend();
                    return why;
                }
                Err(error) => {
                    failures += 1;
                    failed(failures, &error);
                    if since.saturating_sub(*failing_since.get_or_insert(since)) >= FAILING_MAX_NS {
                        self.lease.suspend();
                        return texts::unreadable(&error);
                    }
                }
            }
            around.sleep(pause).await;
        }
    }

    async fn renew<M: Media>(
        &self,
        media: &M,
        since: u64,
        answered: &mut Answered,
        around: &dyn Surroundings,
    ) -> Result<Renewal, Error> {
        let pages = Pages::read(media).await?;
        match &pages.mark {
            Some(mark) if mark.run == self.mark.run && mark.in_force => {}
            other => return Ok(Renewal::Lost(texts::replaced(other.as_ref()))),
        }
        if self.planted.has(PlantedBug::ChallengeUnanswered) {
            self.lease.extend(since + self.pace.lease_ns);
            return Ok(Renewal::Mine);
        }
        let settled = since.saturating_sub(self.pace.settle_ns);
        let mut open =
            pages.challenges_of_others(self.mark.run).filter(|it| !answered.before(it.run, settled));
        let Some(challenge) = open.next() else {
            self.lease.extend(since + self.pace.lease_ns);
            return Ok(Renewal::Mine);
        };
        if !answered.before(challenge.run, u64::MAX) {
            let answer = OwnerPage {
                role: Role::Answer,
                answered: challenge.run,
                written_unix_seconds: around.unix_seconds(),
                ..self.mark.clone()
            };
            show_page(media, &answer).await?;
            answered.add(challenge.run, self.lease.now());
        }
        Ok(Renewal::Answered)
    }
}

/// What a look at the mark has shown.
enum Renewal {
    Mine,
    /// A challenge, which has an answer since a moment ago.
    Answered,
    Lost(String),
}

/// Challenges that were answered, and when. The two copies may hold one of two contenders each.
#[derive(Default)]
struct Answered(VecDeque<([u8; 16], u64)>);

impl Answered {
    /// One that was answered longer ago than so many others is answered again.
    const KEPT: usize = 8;

    /// Returns whether a challenge was answered at this time or before.
    fn before(&self, run: [u8; 16], time: u64) -> bool {
        self.0.iter().any(|(answered, at)| *answered == run && *at <= time)
    }

    fn add(&mut self, run: [u8; 16], at: u64) {
        self.0.push_back((run, at));
        if self.0.len() > Self::KEPT {
            self.0.pop_front();
        }
    }
}
