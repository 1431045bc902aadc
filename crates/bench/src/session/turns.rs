//! Scenes on targets, in the order in which they run.

use crate::error::BenchError;
use crate::failed_scene::FailedScene;
use crate::run::Run;
use crate::scene::Scene;
use crate::store;
use crate::target::Target;

/// A scene on a target, and what is known of it.
pub(super) struct Turn {
    pub(super) scene: usize,
    pub(super) target: usize,
    /// Time that it took last.
    pub(super) took_seconds: f64,
    pub(super) has_failed: bool,
}

/// Notes why a scene has no results, and whether that is a failure.
pub(super) fn fail(run: &mut Run, scene: &Scene, target: &Target, error: &BenchError) {
    run.left_out.push(format!("{} on {}: {error}", scene.name, target.name));
    let is_answer = scene.may_run_out && error.is_out_of_space();
    let is_missing = matches!(error, BenchError::Missing { .. });
    if !is_answer && !is_missing {
        run.complete = false;
        run.failed.push(FailedScene {
            scene: scene.name.clone(),
            target: target.name.clone(),
            error: error.to_string(),
        });
    }
}

/// All scenes on all targets that suit them, scene by scene.
pub(super) fn turns(scenes: &[Scene], targets: &[Target], run: &mut Run) -> Vec<Turn> {
    let no_limit = store::lacks_limit();
    let mut turns = Vec::new();
    for (at, scene) in scenes.iter().enumerate() {
        if let Some(why) = no_limit.as_ref().filter(|_| scene.backing_mb_per_s.is_some()) {
            run.left_out.push(format!("{}: {why}", scene.name));
            continue;
        }
        for (target, named) in targets.iter().enumerate() {
            match store::unsuitable(named, scene) {
                None => turns.push(Turn { scene: at, target, took_seconds: 0.0, has_failed: false }),
                Some(why) if !scene.is_for_drives => {
                    run.left_out.push(format!("{} on {}: {why}", scene.name, named.name));
                }
                Some(_) => {}
            }
        }
    }
    turns
}

/// Indices of turns, with the targets of each scene in reverse order.
pub(super) fn reversed_targets(turns: &[Turn]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..turns.len()).collect();
    order.sort_by_key(|at| (turns[*at].scene, std::cmp::Reverse(turns[*at].target)));
    order
}
