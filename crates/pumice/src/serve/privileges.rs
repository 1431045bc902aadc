//! Privileges that the server drops, to limit the harm of a bug in it: the rights of root, system calls that
//! it does not need, and writing to files that are not its own.
//!
//! | moment | privileges dropped |
//! | --- | --- |
//! | before there are threads | no new privileges by set-user-ID programs; writes to files limited to those of the drives (Landlock) |
//! | once sockets and backings are open | another user than root; system calls filtered (seccomp) |

mod syscalls;
mod writes;

use std::fs::OpenOptions;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use anyhow::{Context, Result};
use rustix::fs::{Mode, OFlags};
use service::{AdminSocket, CommandsHeld, ServedDrive};
use status::shown;

use crate::account::{self, Account};
use crate::config::{Config, Server};

/// Privileges that a server drops.
pub(super) struct Privileges {
    /// The user to become; `None` to stay the same.
    account: Option<Account>,
    sandbox: bool,
    writes_are_limited: bool,
    are_given_up: bool,
}

impl Privileges {
    /// Chooses the privileges to drop.
    ///
    /// # Errors
    ///
    /// If the user does not exist, or this process cannot become that user.
    pub(super) fn new(server: &Server) -> Result<Privileges> {
        let account = account::choose(server.user())?;
        let sandbox = server.options.sandbox.clone().unwrap_or_default().0;
        Ok(Privileges { account, sandbox, writes_are_limited: false, are_given_up: false })
    }

    /// Applies the restrictions of a thread, which the threads that it starts inherit. Call it before
    /// starting any.
    ///
    /// # Errors
    ///
    /// If the kernel refuses. Restrictions that the kernel does not have are left out.
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

    /// Drops the remaining privileges of all threads. Call it when sockets and backings are open. Admin
    /// sockets and memories pass to the new user, and the commands that are held back run as that user.
    ///
    /// # Errors
    ///
    /// If the kernel refuses.
    pub(super) fn give_up<'a>(
        &mut self,
        backings: impl Iterator<Item = &'a Path>,
        admin: impl Iterator<Item = &'a AdminSocket>,
        drives: impl Iterator<Item = &'a ServedDrive>,
        commands: &CommandsHeld,
    ) -> Result<()> {
        if let Some(account) = &self.account {
            let backings: Vec<_> = backings.filter_map(|path| Some((path, handle(path)?))).collect();
            if !account.is_shared() {
                admin.for_each(|socket| socket.give(account.user(), account.group()));
                drives.for_each(|drive| drive.give_memory(account.user(), account.group()));
            }
            account.become_it()?;
            for (path, handle) in backings {
                // Some file systems refuse users even what is open already.
                rustix::fs::fstat(&handle).with_context(|| {
                    format!(
                        "{}: user {} cannot use it although it is open (FUSE without allow_other?); use --user root",
                        shown(path),
                        account.name()
                    )
                })?;
            }
            commands.run_as(account.name(), account.home());
            tracing::info!(
                user = account.name(),
                "running as a user other than root, which must be able to open what a reload adds"
            );
        }
        if self.sandbox {
            syscalls::filter().context("cannot filter system calls (--sandbox off)")?;
            tracing::debug!(writes_are_limited = self.writes_are_limited, "system calls are filtered");
        }
        self.are_given_up = true;
        Ok(())
    }

    /// Returns true if the server runs as another user than the one who started it.
    pub(super) fn changed_user(&self) -> bool {
        self.are_given_up && self.account.is_some()
    }

    /// Returns true if commands that are added now are limited in the files they can write.
    pub(super) fn limits_commands(&self) -> bool {
        self.writes_are_limited
    }

    /// Returns false if opening the backing at `path` is known to fail for lack of privileges.
    pub(super) fn can_open(&self, path: &Path, read_only: bool) -> bool {
        let is_loop = std::fs::canonicalize(path).is_ok_and(|path| writes::is_loop_device(&path));
        if is_loop && self.changed_user() {
            // The file under it must be locked too, wherever that is.
            return false;
        }
        let opened = OpenOptions::new().read(true).write(!read_only).open(path);
        !opened.is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
    }

    /// Returns the likely reason for an error if it is a permission that the server had when it started.
    pub(super) fn explain(&self, error: &anyhow::Error) -> Option<String> {
        if !self.are_given_up || !is_denied(error) {
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

/// A reference to a file that can neither be read nor written.
fn handle(path: &Path) -> Option<OwnedFd> {
    rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()
}

/// Returns true if the error is a missing permission.
fn is_denied(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let io = cause.downcast_ref().map(io::Error::kind);
        io == Some(io::ErrorKind::PermissionDenied)
            || cause.downcast_ref().is_some_and(nbd::ListenError::is_denied)
            || cause.downcast_ref().is_some_and(nbd::TlsError::is_denied)
    })
}
