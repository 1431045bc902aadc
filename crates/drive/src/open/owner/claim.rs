//! Claiming a drive, and giving it back.

use std::pin::pin;
use std::sync::Arc;

use futures::future::{Either, select};
use layout::OwnerPage;
use layout::owner::{OWNER_COPIES, Role};
use media::{Lease, Media};

use super::pages::{Pages, write_page, write_page_while};
use super::{Claim, Fate, Owner, Surroundings, texts};
use crate::error::Error;
use crate::open::slots::{must_allow_writing, must_hold};
use crate::open::superblocks::find_superblock;

/// A contender looks for an answer so many times while it waits.
const LOOKS_A_WAIT: u64 = 10;

/// Reason of the end of a lease whose drive was given back.
const CLOSED: &str = "the drive was closed";

/// The step of a claim after it has read the mark.
enum NextStep {
    /// Nobody has the drive.
    AtOnce,
    /// Somebody may have it, and is asked.
    Challenge,
}

impl Claim {
    /// Claims the drive on a backing that is going to be opened for writing, or wiped.
    ///
    /// # Errors
    ///
    /// [`Error::Owned`] if another process has it, may have it, or claims it at the same time;
    /// [`Error::NotADrive`] and the errors of a drive that this program may not write to. Nothing but owner
    /// pages was written then.
    pub async fn drive<M: Media>(self, media: &M, around: &dyn Surroundings) -> Result<Owner, Error> {
        let found = find_superblock(media).await?;
        must_hold(media, &found.superblock)?;
        must_allow_writing(&found.superblock)?;
        found.must_be_last()?;
        // With the start, the mark of an owner was lost.
        let may_be_owned = found.start_lost;
        self.claim(media, found.superblock.uuid, may_be_owned, around).await
    }

    /// Claims a backing on which a drive with this id is going to be created, whatever is there.
    ///
    /// # Errors
    ///
    /// As for [`Claim::drive`].
    pub async fn backing<M: Media>(
        self,
        media: &M,
        uuid: [u8; 16],
        around: &dyn Surroundings,
    ) -> Result<Owner, Error> {
        self.claim(media, uuid, false, around).await
    }

    async fn claim<M: Media>(
        self,
        media: &M,
        uuid: [u8; 16],
        may_be_owned: bool,
        around: &dyn Surroundings,
    ) -> Result<Owner, Error> {
        let lease = Lease::new(self.clock.clone());
        let mut since = lease.now();
        let mut waited = false;
        let mut pages = match Pages::read(media).await {
            Err(unread @ Error::Io(_)) if may_be_owned => {
                waited = true;
                self.renew_pages(media, uuid, &lease, unread, around).await?
            }
            pages => pages?,
        };
        let is_asked = matches!(self.way(&pages, around)?, NextStep::Challenge);
        if is_asked || may_be_owned && pages.mark.is_none() {
            (pages, since) = self.challenge(media, uuid, &lease, &pages, around).await?;
        }
        let left_open = pages.mark.as_ref().is_some_and(|mark| mark.in_force);
        let sequence = pages.mark.as_ref().map_or(0, |mark| mark.sequence) + 1;
        let mark = OwnerPage { sequence, ..self.page(Role::Mark, uuid, around) };
        write_page(media, &mark).await?;
        let is_prompt = !waited && lease.now() - since <= self.pace.prompt_ns;
        // Others may have written a mark meanwhile, and be at work by now: as long as a lease lasts, if it
        // took so long.
        let pause = if is_prompt { self.pace.settle_ns } else { self.pace.wait_ns };
        sleep(around, &lease, pause).await;
        let looked = lease.now();
        let pages = Pages::read(media).await?;
        match pages.mark {
            Some(found) if found.run == self.run => {}
            found => return Err(texts::at_the_same_time(found.as_ref())),
        }
        // The drive has an owner: whoever still waits for an answer begins anew. (Its own challenge, or one
        // that was left behind.) And on a full file system there must be room for an answer.
        let is_waiting = pages.challenges.iter().any(|challenge| challenge.in_force);
        if is_waiting || pages.challenges.len() < OWNER_COPIES {
            self.withdraw(media, uuid, around).await?;
        }
        if pages.answers.len() < OWNER_COPIES {
            write_page(media, &self.page(Role::Answer, uuid, around)).await?;
        }
        lease.extend(looked + self.pace.lease_ns);
        let lease = Arc::new(lease);
        Ok(Owner { mark, pace: self.pace, planted: self.planted, lease, left_open })
    }

    /// Decides how to go on.
    fn way(&self, pages: &Pages, around: &dyn Surroundings) -> Result<NextStep, Error> {
        let is_challenged = pages
            .challenges_of_others(self.run)
            .any(|challenge| around.fate(&challenge.process) != Fate::Gone);
        let at_once = if is_challenged { NextStep::Challenge } else { NextStep::AtOnce };
        let Some(mark) = pages.mark.as_ref().filter(|mark| mark.in_force) else { return Ok(at_once) };
        match around.fate(&mark.process) {
            Fate::Gone => Ok(at_once),
            Fate::Unseen => Ok(NextStep::Challenge),
            Fate::Runs | Fate::Elsewhere if self.take_over => Ok(NextStep::Challenge),
            fate => Err(texts::not_asked(mark, &fate)),
        }
    }

    /// Asks whoever has the drive, and waits. Returns what is there if nobody has answered, and when that was
    /// read.
    async fn challenge<M: Media>(
        &self,
        media: &M,
        uuid: [u8; 16],
        lease: &Lease,
        before: &Pages,
        around: &dyn Surroundings,
    ) -> Result<(Pages, u64), Error> {
        tracing::info!(
            seconds = self.pace.wait_ns / 1_000_000_000,
            "the drive may be open elsewhere: waiting for an answer"
        );
        write_page(media, &self.page(Role::Challenge, uuid, around)).await?;
        let asked = lease.now();
        loop {
            sleep(around, lease, self.pace.wait_ns / LOOKS_A_WAIT).await;
            let since = lease.now();
            let pages = Pages::read(media).await?;
            let of = |pages: &Pages| pages.mark.as_ref().map(|mark| mark.run);
            let refused = match &pages.mark {
                Some(mark) if of(&pages) != of(before) => Some(texts::at_the_same_time(Some(mark))),
                Some(mark) if pages.is_answered(self.run) => Some(texts::answered(mark)),
                _ => None,
            };
            if let Some(refused) = refused {
                self.withdraw(media, uuid, around).await?;
                return Err(refused);
            }
            // Not withdrawn: it is the other's now.
            if let Some(other) = pages.challenges_of_others(self.run).next() {
                return Err(texts::at_the_same_time(Some(other)));
            }
            if !pages.challenges.iter().any(|challenge| challenge.in_force && challenge.run == self.run) {
                return Err(texts::at_the_same_time(pages.mark.as_ref()));
            }
            if since >= asked + self.pace.wait_ns {
                return Ok((pages, since));
            }
        }
    }

    /// Without the start, owner pages that cannot be read are written anew: most disks can read what was
    /// written again. Whoever has the drive cannot read its mark either, and has lost its lease after the
    /// wait; or it can, and finds another mark there. Returns the pages.
    async fn renew_pages<M: Media>(
        &self,
        media: &M,
        uuid: [u8; 16],
        lease: &Lease,
        unread: Error,
        around: &dyn Surroundings,
    ) -> Result<Pages, Error> {
        tracing::info!("the marks of an owner are lost with the start, and cannot be read: {unread}");
        let challenge = self.page(Role::Challenge, uuid, around);
        write_page(media, &challenge).await.map_err(texts::start_unusable)?;
        sleep(around, lease, self.pace.wait_ns).await;
        // They can be read again: somebody may have answered.
        if let Ok(pages) = Pages::read(media).await {
            return Ok(pages);
        }
        for role in [Role::Mark, Role::Answer] {
            let page = OwnerPage { in_force: false, ..self.page(role, uuid, around) };
            write_page(media, &page).await.map_err(texts::start_unusable)?;
        }
        Pages::read(media).await.map_err(texts::start_unusable)
    }

    async fn withdraw<M: Media>(
        &self,
        media: &M,
        uuid: [u8; 16],
        around: &dyn Surroundings,
    ) -> Result<(), Error> {
        write_page(media, &OwnerPage { in_force: false, ..self.page(Role::Challenge, uuid, around) }).await
    }

    fn page(&self, role: Role, uuid: [u8; 16], around: &dyn Surroundings) -> OwnerPage {
        OwnerPage {
            role,
            in_force: true,
            uuid,
            run: self.run,
            answered: [0; 16],
            sequence: 0,
            written_unix_seconds: around.unix_seconds(),
            process: self.process.clone(),
        }
    }
}

/// Waits until so many nanoseconds have passed by the lease's clock, which is not the one that wakes a
/// sleeper.
async fn sleep(around: &dyn Surroundings, lease: &Lease, nanoseconds: u64) {
    let until = lease.now() + nanoseconds;
    loop {
        let left = until.saturating_sub(lease.now());
        if left == 0 {
            return;
        }
        around.sleep(left).await;
    }
}

impl Owner {
    /// Gives the drive back, if nothing can happen to the backing any more and the lease is not lost. From
    /// then on the lease is. Otherwise the mark stays as it is: the next owner makes sure that this one is
    /// gone. Nobody else may poll [`Owner::keep`] any more.
    ///
    /// # Errors
    ///
    /// Errors of the medium.
    pub async fn give_back<M: Media>(self, media: &M, around: &dyn Surroundings) -> Result<(), Error> {
        let confirmed = {
            let kept = pin!(self.keep(media, around, |_, _| ()));
            let confirmed = pin!(self.lease.confirm());
            // A medium that cannot be read keeps nobody from ending.
            let waited = pin!(around.sleep(self.pace.wait_ns));
            match select(confirmed, select(kept, waited)).await {
                Either::Left((confirmed, _)) => confirmed.is_ok(),
                Either::Right(_) => false,
            }
        };
        // From now on nothing begins but the write of the mark, and that only as long as the drive is this
        // owner's: it may be stopped here, and another one's mark be in that place by then.
        let Some(rest) = self.lease.close(CLOSED).filter(|_| confirmed).map(Arc::new) else { return Ok(()) };
        let written_unix_seconds = around.unix_seconds();
        let closed = OwnerPage { in_force: false, written_unix_seconds, ..self.mark };
        match write_page_while(media, &rest, &closed).await {
            Err(error) if rest.holds() => Err(error),
            _ => Ok(()),
        }
    }
}
