//! Client of the admin sockets of servers on this machine. A program that asks a server does not link the
//! engine.
//!
//! | module | contents |
//! | --- | --- |
//! | `find` | the drive at a path, or all drives; changes to one |
//! | `search` `wanted` | repeated searches for the server of one drive |
//! | `servers` | the drives that servers report |
//! | `opening` | a server that has a drive open and does not report it yet |
//! | `other_file` `identity` | whether a path leads to the file that a server has |
//! | [`runtime_dir`] [`names`] | where admin sockets are |
//! | [`protocol`] `exchange` | requests and answers, and limits on them |
//! | `attached` | marks of attached drives |

#![forbid(unsafe_code)]

mod attached;
mod error;
mod exchange;
mod find;
mod identity;
pub mod names;
mod opening;
mod other_file;
pub mod protocol;
pub mod runtime_dir;
mod search;
mod servers;
mod wanted;

pub use attached::{AttachedMark, MarkName, any_is_marked, is_marked};
pub use error::AskError;
pub use exchange::ask_all;
pub use find::{change, change_only, find_drive_patiently, find_drives, find_served};
pub use identity::{drive_id, file_id};
pub use opening::{is_being_opened, server_with_open};
pub use other_file::OtherFile;
pub use protocol::Change;
pub use runtime_dir::{make_runtime_dir, runtime_dirs};
pub use search::DriveSearch;
pub use servers::{FoundDrives, SilentServer, ask_status};
pub use wanted::leads_to;
