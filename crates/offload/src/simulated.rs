//! An offload that takes a set time on the thread of the request, to measure how requests are spread over
//! threads: a sleeping thread takes no processor, so more threads than a machine has cores can be measured.

use std::time::Duration;

use codec::Policy;

use crate::statistics::Counters;
use crate::{Batch, Job, Offload, Statistics, in_software};

/// LZ4 that takes this much longer for each job.
pub struct Simulated {
    cost: Duration,
    counters: Counters,
}

impl Simulated {
    /// Makes one whose jobs take `cost` each.
    pub fn new(cost: Duration) -> Simulated {
        Simulated { cost, counters: Counters::default() }
    }
}

impl Offload for Simulated {
    /// Unlike an offload for use, this one blocks.
    fn compress(&self, jobs: Vec<Job>) -> Batch {
        std::thread::sleep(self.cost.saturating_mul(jobs.len() as u32));
        let done = jobs.iter().map(|job| (job, in_software(&job.input, Policy::Lz4)));
        let done = done.inspect(|(job, done)| self.counters.job(job.input.len(), done));
        Batch::done(done.map(|(_, done)| done).collect())
    }

    fn statistics(&self) -> Statistics {
        self.counters.read()
    }
}
