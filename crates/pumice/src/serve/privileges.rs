//! What the server gives up, so that a mistake in it harms less: the rights of root, system calls that it does not
//! need, and writing to files that are not its own.
//!
//! | when | what |
//! | --- | --- |
//! | before there are threads | no new privileges by set-user-ID programs; writes to files limited to those of the drives (Landlock) |
//! | once sockets and backings are open | another user than root; system calls filtered (seccomp) |

mod syscalls;
mod user;
mod writes;

use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::config::{Config, ServerOptions};
use user::Account;

/// What a server gives up.
pub(super) struct Privileges {
    /// The user to become; `None` to stay the same.
    account: Option<Account>,
    sandbox: bool,
    writes_are_limited: bool,
}

impl Privileges {
    /// Decides what to give up.
    ///
    /// # Errors
    ///
    /// If the user does not exist, or this process cannot become that user.
    pub(super) fn new(options: &ServerOptions) -> Result<Privileges> {
        let account = user::choose(options.user.as_ref().and_then(|name| name.0.as_deref()))?;
        let sandbox = options.sandbox.clone().unwrap_or_default().0;
        Ok(Privileges { account, sandbox, writes_are_limited: false })
    }

    /// Applies what holds for a thread and for those that it starts. Call it before there are any.
    ///
    /// # Errors
    ///
    /// If the kernel refuses. What a kernel does not know is left out.
    pub(super) fn restrict_thread(&mut self, config: &Config) -> Result<()> {
        if self.sandbox {
            // Landlock and seccomp need it.
            rustix::thread::set_no_new_privs(true).context("cannot do without new privileges")?;
            if let Some(directories) = writes::directories(config)? {
                let limited = writes::limit(&directories);
                self.writes_are_limited = limited.context("cannot limit writes (--sandbox off)")?;
            }
        }
        Ok(())
    }

    /// Applies the rest to all threads. Sockets and backings are open; the admin sockets pass to the new user.
    ///
    /// # Errors
    ///
    /// If the kernel refuses.
    pub(super) fn give_up(&self, admin_sockets: &[PathBuf]) -> Result<()> {
        if let Some(account) = &self.account {
            account.become_it(admin_sockets)?;
            tracing::info!(
                user = account.name(),
                "running as another user than root, who must be able to open what a reload adds"
            );
        }
        if self.sandbox {
            syscalls::filter().context("cannot filter system calls (--sandbox off)")?;
            tracing::debug!(writes_are_limited = self.writes_are_limited, "system calls are filtered");
        }
        Ok(())
    }

    /// Whether the backing at `path` can still be opened. What cannot be told otherwise is left to the opening.
    pub(super) fn can_open(&self, path: &Path, read_only: bool) -> bool {
        let opened = OpenOptions::new().read(true).write(!read_only).open(path);
        !opened.is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
    }

    /// Says why a permission may be missing that the server had at its start.
    pub(super) fn explain(&self, error: &anyhow::Error) -> Option<String> {
        if !is_denied(error) {
            return None;
        }
        let user = self.account.as_ref().map(|account| format!("runs as user {}", account.name()));
        let writes = self.writes_are_limited.then(|| {
            "writes only in the directories that its drives and sockets had at its start".to_string()
        });
        let both: Vec<String> = user.into_iter().chain(writes).collect();
        (!both.is_empty()).then(|| format!("the server {}: restart it", both.join(" and ")))
    }
}

/// Whether a permission was missing.
fn is_denied(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let io = cause.downcast_ref().map(io::Error::kind);
        io == Some(io::ErrorKind::PermissionDenied)
            || cause.downcast_ref().is_some_and(nbd::ListenError::is_denied)
    })
}
