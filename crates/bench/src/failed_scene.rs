//! A scene that could not be measured.

use serde::{Deserialize, Serialize};

/// A scene that failed on a target.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedScene {
    /// The scene.
    pub scene: String,
    /// The target.
    pub target: String,
    /// The error.
    pub error: String,
}

impl FailedScene {
    /// In words.
    pub(crate) fn text(&self) -> String {
        format!("{} on {} failed: {}", self.scene, self.target, self.error)
    }
}
