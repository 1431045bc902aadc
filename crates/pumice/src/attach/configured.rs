//! The drives that the configuration file lists with `attach = true`, all together: for a unit that attaches
//! them at boot.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail};
use attach::bridge::AttachmentState;
use attach::client;
use attach::sfx;
use status::shown;

use super::{How, begin, explain, keep};
use crate::config::{DEFAULT_PATH, Overrides, Source};
use crate::together::together;
use crate::usage::{WrongUsage, complain, one_line};

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
    let found = client::find(path)
        .filter(|found| matches!(found.status.state, AttachmentState::Attached | AttachmentState::Waiting));
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
