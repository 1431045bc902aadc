//! Uses of new dictionaries: settling again what was settled before, and making places for more of them. Also
//! a survey of what live data needs.

use std::time::Duration;

use drive::{Error, Settle};
use media::Media;
use status::{SettlingState, shown, unix_seconds_now};
use tokio::time::Instant;

use super::pass::Pass;
use super::{ImproverContext, LOOK};
use crate::watch::compression::survey_report;

/// Settled data is settled again if a sample of it becomes smaller by this factor, the same for which
/// dictionaries are kept.
const GAIN_MIN: f64 = 1.03;
/// Interval of surveys, if something was written.
const SURVEY_INTERVAL: Duration = Duration::from_secs(600);
/// Records read for a survey. If they were drawn one by one, a share of one half would be accurate to within
/// 4.4 % of the whole, 19 times out of 20 (1.96 standard deviations of a binomial). They are drawn leaf by
/// leaf, so neighbours may be more alike.
const SURVEY_RECORDS: usize = 512;

impl<M: Media> ImproverContext<M> {
    /// Returns whether settling again is worth it, by a sample.
    pub(super) async fn pays_again(&self) -> Result<bool, Error> {
        let gain = self.timed(self.drive.gain_of_settling_again()).await?;
        if let Some(gain) = gain {
            tracing::info!(drive = %shown(&self.path), gain, "settling again, by a sample");
        }
        Ok(gain.is_some_and(|gain| gain >= GAIN_MIN))
    }

    /// Settles some data that was settled before the dictionaries in use: one pass for each adoption of
    /// dictionaries, and none if it is not worth it.
    pub(super) async fn settle_again(&self, pass: &mut Pass) -> Result<Duration, Error> {
        let adopted = self.drive.dictionaries_adopted_at();
        if adopted == pass.again_done {
            self.set_state(SettlingState::Resting);
            return Ok(LOOK);
        }
        let block = match pass.again {
            Some(block) => block,
            None if self.pays_again().await? => 0,
            None => {
                pass.again_done = adopted;
                return Ok(Duration::ZERO);
            }
        };
        debug_assert!(pass.next.is_none(), "settling again begins when no pass is under way");
        self.set_state(SettlingState::Working);
        let step = self.settle(block, Settle::Again).await?;
        pass.again = step.next_block;
        if step.next_block.is_none() {
            pass.again_done = adopted;
            self.memory.lock().settling.passes_count += 1;
        }
        if step.no_room {
            self.set_state(SettlingState::Waiting);
            return Ok(LOOK);
        }
        Ok(Duration::ZERO)
    }

    /// Searches for records that need the dictionaries retired first, so that these can be forgotten.
    pub(super) async fn make_places(&self) -> Result<Duration, Error> {
        self.set_state(SettlingState::Working);
        let step = self.timed(self.drive.free_dictionaries_step()).await?;
        self.count(&step, true);
        if step.no_room {
            self.set_state(SettlingState::Waiting);
            return Ok(LOOK);
        }
        // Still wanted after the last step: those just retired have to wait for their segments.
        let idle = step.next_block.is_none() && self.drive.wants_dictionary_places();
        Ok(if idle { LOOK } else { Duration::ZERO })
    }

    /// Surveys what live data needs, from time to time.
    pub(super) async fn survey_if_due(&self, pass: &mut Pass, now: Instant) {
        if pass.survey_at.is_some_and(|at| now < at) {
            return;
        }
        pass.survey_at = Some(now + SURVEY_INTERVAL);
        let written: u64 = self.drive.status().written.iter().map(|it| it.share.logical_bytes).sum();
        if self.memory.lock().survey.is_some() && written == pass.surveyed {
            return;
        }
        pass.surveyed = written;
        let survey = self.timed(self.drive.survey(SURVEY_RECORDS)).await;
        self.memory.lock().survey = Some(survey_report(&survey, unix_seconds_now()));
    }
}
