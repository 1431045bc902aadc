//! The drives that `attach --configured` has attached, all together.

use anyhow::{Result, anyhow, bail};
use attach::client::{self, Attachment};
use status::shown;

use super::{Patience, answers, unused_within};
use crate::together::together;
use crate::usage::{complain, one_line};

/// Detaches all drives that `attach --configured` has attached or found attached, whatever the configuration
/// says by now. Waits for those that are mounted.
///
/// # Errors
/// If a drive stays attached.
pub(super) fn detach_all(force: bool, patience: Patience) -> Result<()> {
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
