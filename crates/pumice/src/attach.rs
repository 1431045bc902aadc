//! `pumice attach`, and the process behind an attached drive.

mod configured;
mod filesystem;
mod glance;

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use ask::DriveSearch;
use attach::NodeKind;
use attach::WAITS_EXIT_CODE;
use attach::bridge::{self, Options};
use attach::client::{self, NewBridge};
use attach::place::Record;
use attach::sfx;
use serde_json::json;
use status::{path_text, shown};

use crate::attach_method::AttachMethod;
use crate::config::one_of;
use crate::detach::detach_without_node;
use crate::logging;
use crate::output::{print_json, report_result};
use crate::systemd::Manager;
use crate::usage::Coded;
use filesystem::Filesystem;

/// Time for a drive that another process attaches or detaches.
const SETTLES: Duration = Duration::from_secs(60);
/// Default time for which requests are held while there is no server, in seconds.
const TIMEOUT: &str = "600";

#[derive(clap::Args)]
#[command(after_help = "Example: pumice attach /srv/drive --mkfs ext4      # prints /dev/loop0\n\
    then:    mount /dev/loop0 /mnt\n\
    Creates a block device node and prints its path. Starts a server if none has the drive. Standard error shows the \
    kernel interface that was chosen, and why others were not. A separate process, the bridge, connects the kernel \
    to the server. While the server is gone (killed, upgraded, restarted), requests wait. The next server has all \
    that was acknowledged: a file system above sees no error. If the bridge is killed, a ublk device waits, and \
    others work as long as the server: attach the drive again, which takes the device over. Other NBD clients can \
    only read the drive while it is attached, unless its server allows --shared-writes. `pumice detach` undoes it. \
    Needs root.")]
pub(crate) struct Args {
    /// Drive (file or block device), served or not
    #[arg(required_unless_present = "configured")]
    path: Option<PathBuf>,
    /// Attach all drives that the configuration file lists with `attach = true`
    #[arg(long, conflicts_with_all = ["path", "by", "mkfs", "json"])]
    configured: bool,
    /// Configuration file [default: /etc/pumice/pumice.toml]
    #[arg(long, value_name = "FILE", requires = "configured")]
    config: Option<PathBuf>,
    #[command(flatten)]
    how: How,
    /// Like --wait, but only for a drive that the configuration file lists
    #[arg(long, value_name = "SECONDS", conflicts_with_all = ["configured", "wait"])]
    wait_listed: Option<u64>,
    /// Create a file system: ext4 or xfs. Refused if the drive holds data
    #[arg(long, value_name = "KIND", value_parser = one_of::<Filesystem>(&["ext4", "xfs"]),
        hide_possible_values = true)]
    mkfs: Option<Filesystem>,
    /// Also link /dev/sfdvNn1 to the device; N is the drive's number in `pumice sfx-status`
    #[arg(long)]
    sfx: bool,
    /// Print JSON: {"path": ..., "device": ..., "by": ..., ...}
    #[arg(long)]
    json: bool,
}

/// What the bridge has to know.
#[derive(Clone, clap::Args)]
pub(crate) struct How {
    /// Kernel interface: ublk, loop, nbd, or auto for the first that works [default: auto]
    #[arg(long, value_name = "WAY", value_parser = one_of::<AttachMethod>(&["auto", "ublk", "loop", "nbd"]),
        hide_possible_values = true, default_value = "auto", hide_default_value = true)]
    by: AttachMethod,
    /// Wait up to SECONDS for a server that has the drive, before one is started
    #[arg(long, value_name = "SECONDS", default_value_t = 0, hide_default_value = true)]
    wait: u64,
    /// Hold requests up to SECONDS while there is no server; then they fail
    #[arg(long, value_name = "SECONDS", default_value = TIMEOUT)]
    timeout: u64,
    /// Arguments of `pumice serve`, if a server is started
    #[arg(last = true, value_name = "SERVE_ARGUMENTS")]
    serve: Vec<OsString>,
}

/// Arguments of the process that `attach` starts.
#[derive(clap::Args)]
pub(crate) struct BridgeArgs {
    path: PathBuf,
    #[command(flatten)]
    how: How,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        bail!("attaching a drive needs root");
    }
    let Some(path) = args.path.as_deref() else {
        return configured::attach_all(args.config.as_deref(), &args.how);
    };
    let path = absolute(path)?;
    if args.mkfs.is_none() && adopted(&path) {
        return Ok(());
    }
    let mut how = args.how.clone();
    if let Some(seconds) = args.wait_listed.filter(|_| configured::may_list(&path)) {
        how.wait = seconds;
    }
    let attached = attach(&path, &how, args);
    if attached.is_err() && args.mkfs.is_none() && client::find(&path).is_some_and(|found| found.waits()) {
        // Whoever supervises the service tries again.
        return attached.map_err(|error| Coded { code: WAITS_EXIT_CODE, error }.into());
    }
    attached
}

/// Gives a drive that is attached to the service manager, if that has started this process: somebody was
/// faster than the service.
fn adopted(path: &Path) -> bool {
    let manager = Manager::connect();
    let Some(found) = manager.is_there().then(|| client::find(path)).flatten() else { return false };
    let is_attached =
        matches!(found.status.state, bridge::AttachmentState::Attached | bridge::AttachmentState::Waiting);
    if is_attached {
        manager.handed_over(found.record.bridge_pid);
        let node = found.record.node.unwrap_or_default();
        crate::usage::complain(&format!("{}: already attached as {}", shown(path), node.display()));
    }
    is_attached
}

fn attach(path: &Path, how: &How, args: &Args) -> Result<()> {
    let bridge = begin(path, how, args.mkfs.is_some())?;
    let device = bridge.record.node.clone().unwrap_or_default();
    if let Some(filesystem) = args.mkfs {
        let found = DriveSearch::new(path).find_exactly_patiently()?;
        let used = found.map_or(u64::MAX, |report| report.logical_used_bytes);
        filesystem.make(&device, used)?;
    }
    let link = match args.sfx.then(|| sfx::link(path, &device)).transpose() {
        // The device stays, with or without it.
        Err(error) if bridge.record.taken_over.is_some() => {
            crate::usage::complain(&format!("warning: {}: {error}", shown(path)));
            None
        }
        link => link?,
    };
    let record = keep(bridge)?;
    // Whoever supervises the service starts it again if the bridge is killed.
    Manager::connect().handed_over(record.bridge_pid);
    report_result("the drive was attached", || {
        if args.json {
            return print_json(&document(&record));
        }
        Ok(writeln!(crate::output::stdout(), "{}", device.display())?)
    });
    if !args.json {
        crate::usage::complain(&explain(&record));
        if let Some(link) = link {
            crate::usage::complain(&format!("{} is linked to it", link.path.display()));
        }
    }
    Ok(())
}

/// Warns if writes are lost, or may be: nobody knows whether a server that has ended had made durable what a
/// killed bridge had acknowledged.
fn warn_of_losses(record: &Record) {
    let device = record.node.clone().unwrap_or_default();
    if record.taken_over.is_some_and(|taken_over| !taken_over.is_complete) {
        crate::usage::complain(&format!(
            "{}: its server was restarted while nobody served {}, or could not flush: writes that were acknowledged \
             and not flushed may be lost, as at a power cut; unmount it and check its file system",
            shown(&record.path),
            device.display()
        ));
    } else if record.writes_lost {
        crate::usage::complain(&format!(
            "warning: {}: its server was started without what an earlier one had acknowledged: writes that were not \
             flushed are lost (its log says why); check what is on {}",
            shown(&record.path),
            device.display()
        ));
    }
}

/// Starts the bridge of a drive, or another one of a device that waits for it: not if a file system is to be
/// made. It undoes everything unless it is kept.
fn begin(path: &Path, how: &How, makes: bool) -> Result<NewBridge> {
    let mut found = client::find(path);
    if let Some(changing) =
        found.as_ref().filter(|found| found.status.state == bridge::AttachmentState::Changing)
    {
        changing.settled(SETTLES);
        found = client::find(path);
    }
    if let Some(lost) = found.as_ref().filter(|found| found.has_free_node() && !found.has_ended()) {
        detach_without_node(path, lost)?;
        found = client::find(path);
    }
    let waits = found.as_ref().is_some_and(|found| found.status.state == bridge::AttachmentState::Unattended);
    if let Some(found) = &found {
        // Nothing is left of a node whose bridge has ended.
        if let Some((_, why)) = &found.lost
            && !found.has_ended()
            && found.status.state != bridge::AttachmentState::Changing
        {
            bail!("{}: attached, but {why}; detach it first: `pumice detach {}`", shown(path), shown(path));
        }
        let node = found.record.node.clone().unwrap_or_default();
        match found.status.state {
            bridge::AttachmentState::Attached | bridge::AttachmentState::Waiting => {
                bail!("{}: already attached as {}", shown(path), node.display())
            }
            bridge::AttachmentState::Unattended if makes => bail!(
                "{}: {} waits for `pumice attach` without --mkfs, or for `pumice detach`",
                shown(path),
                node.display()
            ),
            bridge::AttachmentState::Changing => {
                let why = found.status.reason.clone().unwrap_or_default();
                let pid = found.record.bridge_pid;
                bail!("{}: {why} by process {pid}, for {} seconds", shown(path), SETTLES.as_secs())
            }
            bridge::AttachmentState::Unattended | bridge::AttachmentState::Failed => {}
        }
        if let Some(why) = found.hangs(false) {
            bail!(
                "{}: already attached as {}, and {why}; `pumice detach --force` kills it",
                shown(path),
                node.display()
            );
        }
    }
    // The server of a killed bridge may be opening the drive.
    if !waits && let Err(error) = glance::is_drive(path) {
        // Says what is wrong before anything is started. A server may have a file that was at this path.
        ask::find_served(path)?.ok_or(error)?;
    }
    // There may be several paths to a drive. What a killed bridge has left is found by the path that it was
    // given.
    let left = found.as_ref().filter(|found| waits || found.is_of(path));
    let path = left.map_or(path, |found| found.record.path.as_path());
    let bridge = client::start(path, command(path, how)?)?;
    if makes && bridge.record.taken_over.is_some() {
        // Its last bridge was being killed just now.
        bail!("{}: taken over from a process that was killed: no file system is made on it", shown(path));
    }
    Ok(bridge)
}

/// Leaves a bridge to itself, once it has been said what may be lost.
fn keep(bridge: NewBridge) -> Result<Record> {
    let record = bridge.record.clone();
    warn_of_losses(&record);
    bridge.keep()?;
    Ok(record)
}

fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).with_context(|| format!("{}: no such path", shown(path)))
}

/// The program, also after it was replaced by a newer one.
pub(crate) fn program() -> Result<PathBuf> {
    let program = std::env::current_exe().context("the program's own path is unknown")?;
    let replaced = program.to_str().and_then(|path| path.strip_suffix(" (deleted)")).map(PathBuf::from);
    Ok(replaced.unwrap_or(program))
}

fn command(path: &Path, how: &How) -> Result<Command> {
    let mut command = Command::new(program()?);
    command.arg("bridge").arg(path);
    command.args(["--by", &how.by.to_string(), "--wait", &how.wait.to_string()]);
    command.args(["--timeout", &how.timeout.to_string()]);
    command.arg("--").args(&how.serve);
    Ok(command)
}

/// Returns the line that says which way was taken.
fn explain(record: &Record) -> String {
    let way = record.way.map(|way| way.to_string()).unwrap_or_default();
    let reasons: Vec<String> =
        record.passed_over.iter().map(|(way, reason)| format!("{way}: {reason}")).collect();
    let others = if reasons.is_empty() { String::new() } else { format!(" ({})", reasons.join("; ")) };
    let taken_over = record.taken_over.map_or("", |_| ", taken over from a process that was killed");
    format!("{} attached by {way}{taken_over}{others}", shown(&record.path))
}

fn document(record: &Record) -> serde_json::Value {
    let passed_over: Vec<_> =
        record.passed_over.iter().map(|(way, reason)| json!({ "by": way, "reason": reason })).collect();
    json!({
        "path": path_text(&record.path),
        "device": record.node.as_deref().map(path_text),
        "by": record.way,
        "passed_over": passed_over,
        "size_bytes": record.shape.as_ref().map(|shape| shape.size_bytes),
        "sector_bytes": record.shape.as_ref().map(|shape| shape.sector_bytes),
        "read_only": record.shape.as_ref().map(|shape| shape.read_only),
        "server_started": record.server_pid.is_some(),
        "taken_over": record.taken_over.map(|taken_over| json!({ "complete": taken_over.is_complete })),
    })
}

/// Runs the process behind an attached drive.
pub(crate) fn run_bridge(args: &BridgeArgs) -> Result<()> {
    logging::start(logging::Format::default());
    let options = Options {
        path: args.path.clone(),
        ways: match args.how.by {
            AttachMethod::Auto => NodeKind::by_preference(),
            AttachMethod::This(way) => vec![way],
        },
        start: attach::bridge::Start { program: program()?, arguments: args.how.serve.clone() },
        wait: Duration::from_secs(args.how.wait),
        patience: Duration::from_secs(args.how.timeout),
    };
    let terminate = Arc::new(AtomicBool::new(false));
    watch_signals(terminate.clone())?;
    Ok(bridge::run(&options, &terminate)?)
}

/// Notes signals to end. The bridge decides whether it can.
fn watch_signals(terminate: Arc<AtomicBool>) -> Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut term, mut int, mut hup) = {
        let _inside = runtime.enter();
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?, signal(SignalKind::hangup())?)
    };
    std::thread::spawn(move || {
        runtime.block_on(async {
            loop {
                tokio::select! {
                    _ = term.recv() => terminate.store(true, Ordering::Relaxed),
                    _ = int.recv() => terminate.store(true, Ordering::Relaxed),
                    _ = hup.recv() => {}
                }
            }
        });
    });
    Ok(())
}
