//! What suites are made of: scenes of steps.

use std::path::PathBuf;

use crate::fio::{Amount, Job};
use crate::objects::ObjectJob;

/// What one step does.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Action {
    /// A job of fio.
    Fio(Job),
    /// Puts objects, or gets them.
    Objects(ObjectJob),
    /// Copies an image.
    Copy(PathBuf),
    /// Recompresses what is cold, where the store can (`pumice settle`).
    Settle,
}

/// One step of a scene.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Step {
    /// What it measures; unique in the scene.
    pub(crate) name: String,
    pub(crate) action: Action,
    /// Steps that only prepare are not in the report.
    pub(crate) is_shown: bool,
}

impl Step {
    /// Measures a job.
    pub(crate) fn job(name: &str, job: Job) -> Step {
        Step { name: name.to_string(), action: Action::Fio(job), is_shown: true }
    }

    /// Runs a job that is not in the report.
    pub(crate) fn prepare(name: &str, job: Job) -> Step {
        Step { is_shown: false, ..Step::job(name, job) }
    }

    /// Puts objects, or gets them.
    pub(crate) fn objects(name: &str, job: ObjectJob) -> Step {
        Step { name: name.to_string(), action: Action::Objects(job), is_shown: true }
    }

    /// Whether it runs for a time rather than for an amount of data.
    pub(crate) fn is_timed(&self) -> bool {
        match &self.action {
            Action::Fio(job) => job.amount == Amount::Timed,
            Action::Objects(job) => job.is_timed(),
            Action::Copy(_) | Action::Settle => false,
        }
    }

    /// Whether it writes for a time: what a drive does then may change until it is in a steady state.
    pub(crate) fn may_be_unsteady(&self) -> bool {
        matches!(self.action, Action::Fio(job) if job.amount == Amount::Timed && job.pattern.writes())
    }

    /// Whether it writes what later steps may need.
    pub(crate) fn writes(&self) -> bool {
        match &self.action {
            Action::Fio(job) => job.pattern.writes(),
            Action::Objects(job) => job.is_put,
            Action::Copy(_) => true,
            Action::Settle => false,
        }
    }

    /// Whether it reads what earlier steps wrote.
    pub(crate) fn reads(&self) -> bool {
        matches!(self.action, Action::Fio(job) if job.pattern.reads())
    }

    /// The job in words.
    pub(crate) fn job_text(&self) -> String {
        match &self.action {
            Action::Fio(job) => job.text(),
            Action::Objects(job) => job.text(),
            Action::Copy(_) => "copy".to_string(),
            Action::Settle => "settle".to_string(),
        }
    }
}

/// Steps on a new, empty store.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Scene {
    /// Unique in the suite.
    pub(crate) name: String,
    /// Logical capacity of drives over their physical size; `None`: physical size with room to spare.
    pub(crate) expansion: Option<f64>,
    /// Limit of the backing in MB/s of 10^6 bytes, for reads and for writes; `None`: as fast as it is.
    pub(crate) backing_mb_per_s: Option<u32>,
    /// Only on Pumice drives: other stores have nothing to show.
    pub(crate) is_for_drives: bool,
    /// Whether the data fits is the question: running out of space is an answer, no failure.
    pub(crate) may_run_out: bool,
    /// Ratio that `pumice scan` predicts for its data, where it was asked.
    pub(crate) predicted_ratio: Option<f64>,
    pub(crate) steps: Vec<Step>,
}

impl Scene {
    /// A scene on stores of the usual size and speed.
    pub(crate) fn new(name: &str, steps: Vec<Step>) -> Scene {
        Scene {
            name: name.to_string(),
            expansion: None,
            backing_mb_per_s: None,
            is_for_drives: false,
            may_run_out: false,
            predicted_ratio: None,
            steps,
        }
    }

    /// Images that one of its jobs runs on.
    pub(crate) fn images_count(&self) -> u32 {
        let of = |step: &Step| if let Action::Fio(job) = step.action { job.images } else { 1 };
        self.steps.iter().map(of).max().unwrap_or(1)
    }

    /// On drives of more capacity than physical size.
    pub(crate) fn expanded(self, expansion: f64) -> Scene {
        Scene { expansion: Some(expansion), ..self }
    }

    /// On a slow backing.
    pub(crate) fn limited(self, mb_per_s: u32) -> Scene {
        Scene { backing_mb_per_s: Some(mb_per_s), ..self }
    }

    /// With data that may not fit.
    pub(crate) fn may_run_out(self) -> Scene {
        Scene { may_run_out: true, ..self }
    }

    /// On Pumice drives only.
    pub(crate) fn for_drives(self) -> Scene {
        Scene { is_for_drives: true, ..self }
    }
}
