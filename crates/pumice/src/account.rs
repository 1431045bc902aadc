//! The user that a server runs as.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use nix::unistd::{Gid, Uid, User};

use crate::usage::WrongUsage;

/// Users that a server started by root runs as, if no other is given: the first one that exists.
const UNPRIVILEGED: [&str; 2] = ["pumice", NOBODY];
const NOBODY: &str = "nobody";

/// A user and its groups.
#[derive(Debug)]
pub(crate) struct Account {
    name: String,
    user: Uid,
    /// Groups of the user, the primary one first.
    groups: Vec<Gid>,
    home: PathBuf,
}

/// Finds the user to become: the given one, or an unprivileged one if this process runs as root. Returns
/// `None` if the process already runs as that user, or is to stay root.
///
/// # Errors
///
/// If the user does not exist, or this process would have to be root to become that user.
pub(crate) fn choose(wanted: Option<&str>) -> Result<Option<Account>> {
    let now = nix::unistd::geteuid();
    let user = match wanted {
        Some(name) => find(name)?,
        None if !now.is_root() => return Ok(None),
        None => {
            let known = UNPRIVILEGED.iter().find_map(|name| User::from_name(name).ok().flatten());
            known.ok_or_else(|| {
                anyhow!(
                    "no user to run as: neither {} exists; give one by --user",
                    UNPRIVILEGED.join(" nor ")
                )
            })?
        }
    };
    if user.uid == now {
        return Ok(None);
    }
    if !now.is_root() {
        bail!("cannot run as user {}: only root can choose another user (--user)", user.name);
    }
    Account::new(user).map(Some)
}

/// Finds a user by name or number.
fn find(wanted: &str) -> Result<User> {
    let by_name = User::from_name(wanted).with_context(|| format!("user {wanted:?}"))?;
    let by_number = || {
        // Numbers have no sign.
        let number = wanted.bytes().all(|byte| byte.is_ascii_digit()).then(|| wanted.parse().ok())?;
        User::from_uid(Uid::from_raw(number?)).ok()?
    };
    by_name.or_else(by_number).ok_or_else(|| anyhow!(WrongUsage(format!("no user {wanted:?} (--user)"))))
}

impl Account {
    fn new(user: User) -> Result<Account> {
        let name = std::ffi::CString::new(user.name.clone())?;
        let groups = nix::unistd::getgrouplist(&name, user.gid)
            .with_context(|| format!("groups of user {}", user.name))?;
        Ok(Account { name: user.name, user: user.uid, groups, home: user.dir })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn user(&self) -> u32 {
        self.user.as_raw()
    }

    pub(crate) fn group(&self) -> u32 {
        self.groups.first().map_or(self.user.as_raw(), |group| group.as_raw())
    }

    pub(crate) fn home(&self) -> &Path {
        &self.home
    }

    /// Returns true if other programs run as this user too. They must not use sockets of the server.
    pub(crate) fn is_shared(&self) -> bool {
        self.name == NOBODY
    }

    /// Changes the user and groups of all threads of this process, irrevocably.
    ///
    /// # Errors
    ///
    /// If the kernel refuses, or the process could become root again.
    pub(crate) fn become_it(&self) -> Result<()> {
        let failed = || format!("cannot run as user {} (--user root stays root)", self.name);
        nix::unistd::setgroups(&self.groups).with_context(failed)?;
        nix::unistd::setgid(Gid::from_raw(self.group())).with_context(failed)?;
        nix::unistd::setuid(self.user).with_context(failed)?;
        // The change must be irrevocable.
        if nix::unistd::setuid(Uid::from_raw(0)).is_ok() {
            bail!("{}: the rights of root can be had again", failed());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_name_and_by_number() {
        let root = find("root").expect("root");
        assert_eq!(find("0").expect("root").name, root.name);
        let refused = find("no such user").expect_err("refused").to_string();
        assert!(refused.contains("no such user"), "{refused}");
        for wrong in ["4294967294", "4294967295", "4294967296", "+0", "-1", "-0", " 0", "0x0", ""] {
            assert!(find(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_server_of_root_gets_another_user_unless_told_otherwise() {
        if !nix::unistd::geteuid().is_root() {
            assert!(choose(None).expect("stays").is_none());
            assert!(choose(Some("root")).is_err(), "only root can choose");
            return;
        }
        assert!(choose(Some("root")).expect("stays").is_none());
        let account = choose(None).expect("an unprivileged user").expect("not root");
        assert!(!account.user.is_root());
        assert!(UNPRIVILEGED.contains(&account.name()));
    }
}
