//! The drives that the configuration file lists with `attach = true`, all together: for a unit that attaches
//! them at boot.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail};
use attach::bridge::State;
use attach::client::{self, Attachment};
use attach::sfx;
use status::shown;

use super::{How, begin, explain, keep};
use crate::config::{DEFAULT_PATH, Overrides, Source};
use crate::detach::{Patience, answers, unused_within};
use crate::usage::{WrongUsage, complain, one_line};

/// Most drives that are attached or detached at a time. Each may wait for its server.
const AT_ONCE: usize = 16;

/// Result for one drive: the node and a line about it, or why not.
type Outcome = Result<(PathBuf, String)>;

/// Attaches the drives with `attach = true` that are not attached. A drive that cannot be attached does not
/// keep the others from it.
///
/// # Errors
/// If the configuration has an error, or a drive is not attached.
pub(super) fn attach_all(file: Option<&Path>, how: &How) -> Result<()> {
    let Some(source) = Source::find(file, Overrides::default())? else {
        bail!(WrongUsage(format!("no configuration: write {DEFAULT_PATH} (see --config)")));
    };
    let listed = source.load()?.drives.into_iter().filter_map(|drive| Some((drive.path, drive.attach?)));
    let wanted: Vec<(PathBuf, How)> = listed.map(|(path, by)| (path, How { by, ..how.clone() })).collect();
    for (path, _) in &wanted {
        // Numbers in the order of the file, whichever is attached first. One that gets none can be attached
        // all the same.
        let _ = sfx::claim(path);
    }
    let mut failed = 0;
    for (result, (path, _)) in together(&wanted, |(path, how)| attach(path, how)).into_iter().zip(&wanted) {
        match result {
            Ok((node, line)) => {
                // What is attached stays so, whoever reads this.
                let _ = writeln!(std::io::stdout(), "{}", node.display());
                complain(&line);
            }
            Err(error) => {
                complain(&format!("{}: not attached: {}", shown(path), one_line(&error)));
                failed += 1;
            }
        }
    }
    match failed {
        0 => Ok(()),
        _ => bail!("{failed} of {} drives with attach = true were not attached", wanted.len()),
    }
}

/// Returns whether the configuration file lists the drive at `path`, so that its server will have it. One
/// that cannot be read may.
pub(super) fn may_list(path: &Path) -> bool {
    let drives = |source: Source| Ok(source.load()?.drives);
    match Source::find(None, Overrides::default()).and_then(|source| source.map(drives).transpose()) {
        Ok(drives) => drives.into_iter().flatten().any(|drive| client::is_same(&drive.path, path)),
        Err(_) => true,
    }
}

fn attach(path: &Path, how: &How) -> Outcome {
    let found =
        client::find(path).filter(|found| matches!(found.status.state, State::Attached | State::Waiting));
    let (node, line) = match found {
        Some(found) => {
            let node = found.record.node.clone().unwrap_or_default();
            found.mark_configured()?;
            (node, format!("{}: already attached", shown(path)))
        }
        None => {
            let record = keep(begin(path, how, false)?)?;
            client::find(path).ok_or_else(|| anyhow!("it has ended"))?.mark_configured()?;
            (record.node.clone().unwrap_or_default(), explain(&record))
        }
    };
    Ok((node, line))
}

/// Detaches all drives that [`attach_all`] has attached or found attached, whatever the configuration says by
/// now. Waits for those that are mounted.
///
/// # Errors
/// If a drive stays attached.
pub(crate) fn detach_all(force: bool, patience: Patience) -> Result<()> {
    let marked = || client::all().into_iter().filter(Attachment::is_configured).collect::<Vec<Attachment>>();
    let mut found = marked();
    let killed = |found: &Attachment| Ok(force && !answers(found, true)?);
    if together(&found, killed).into_iter().any(|killed| matches!(killed, Ok(true))) {
        found = marked();
    }
    let marked = found;
    // All are examined before any is detached: that opens the nodes of the others too, and a bridge refuses
    // while its node is open.
    let examine = |found| {
        let examined = answers(found, force).and_then(|_| unused_within(found, force, &patience));
        (found, examined)
    };
    let examined: Vec<(&Attachment, Result<()>)> = marked.iter().map(examine).collect();
    let detach = |(found, examined): &(&Attachment, Result<()>)| match examined {
        Ok(()) => Ok(found.detach(force)?),
        Err(error) => Err(anyhow!("{}", one_line(error))),
    };
    let mut failed = 0;
    for (result, found) in together(&examined, detach).into_iter().zip(&marked) {
        if let Err(error) = result {
            complain(&format!("{}: not detached: {}", shown(&found.record.path), one_line(&error)));
            failed += 1;
        }
    }
    match failed {
        0 => Ok(()),
        _ => bail!("{failed} of {} drives were not detached", marked.len()),
    }
}

/// Does the same for all drives, several at a time. Returns the results in order.
fn together<T: Sync, R: Send>(all: &[T], work: impl Fn(&T) -> Result<R> + Sync) -> Vec<Result<R>> {
    let mut results = Vec::with_capacity(all.len());
    for some in all.chunks(AT_ONCE) {
        std::thread::scope(|scope| {
            let begun: Vec<_> = some.iter().map(|one| scope.spawn(|| work(one))).collect();
            // A panic ends the process.
            let failed = |_| Err(anyhow!("a thread panicked"));
            results.extend(begun.into_iter().map(|thread| thread.join().unwrap_or_else(failed)));
        });
    }
    results
}
