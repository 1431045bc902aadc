//! `pumice doctor`

mod above;
mod backing;
mod disks;
mod drive;
mod finding;
mod machine;
mod mounted;
mod partitions;
mod processors;
mod queue;
mod shortage;
mod trim;
mod unit;

use status::path_text;
use std::io::Write;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use attach::bridge::AttachmentState;
use attach::place::Record;
use host::Root;
use report::Table;
use serde_json::json;
use status::StatusReport;

use crate::config::{Config, Overrides, Source};
use crate::output::print_json;
use crate::size::Size;
use finding::{Finding, Verdict};

#[derive(clap::Args)]
#[command(after_help = "Examples: pumice doctor /srv/drive\n          \
    pumice doctor /srv/new --size 10G\n          \
    pumice doctor /srv/drive --json | jq '.checks[] | select(.verdict != \"ok\")'\n\
    Exit code: 0 if no check fails, 1 if one does, 2 wrong usage")]
pub(crate) struct Args {
    /// Drive (served or not), or the path of a drive to be created
    path: PathBuf,
    /// Physical size of the drive to be created
    #[arg(long, value_name = "SIZE")]
    size: Option<Size>,
    /// Print JSON: {"path": ..., "checks": [{...}], ...}
    #[arg(long)]
    json: bool,
    /// Root directory for kernel files (default: /)
    #[arg(long, value_name = "DIR", default_value = "/", hide = true)]
    root: PathBuf,
}

/// Kind of object at the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    File,
    BlockDevice,
    /// Nothing; its directory exists.
    New,
}

/// Input of the checks.
struct Patient {
    root: Root,
    path: PathBuf,
    target: Target,
    size: Option<u64>,
    /// Status from the server of the drive, or from the drive itself if it is not being served.
    status: Option<StatusReport>,
    /// Reason for a missing status, although the path exists.
    no_status: Option<String>,
    /// Configuration of the server that has this drive, if there is one that can be read.
    config: Option<Config>,
    /// Names of block devices that `pumice attach` has made of it.
    attached: Vec<String>,
    /// Those of them whose changes are durable at once, whatever the drive's write cache is now.
    durable: Vec<String>,
    /// What such a device does that has no server.
    not_served: Option<AttachmentState>,
}

impl Patient {
    fn examine(args: &Args) -> Result<Patient> {
        let path = std::path::absolute(&args.path)
            .with_context(|| format!("{}: not a path", args.path.display()))?;
        let target = target(&path)?;
        if target != Target::New && args.size.is_some() {
            bail!("{}: exists already; --size is for a drive still to be made", path.display());
        }
        let (mut status, mut no_status) = (None, None);
        let mut attachments = crate::status::attachments_of(&path);
        if target != Target::New {
            match crate::status::of_server(&path) {
                Ok(Some(report)) => status = Some(report),
                Err(error) => no_status = Some(crate::usage::one_line(&error)),
                Ok(None) => match crate::status::without_server(&path, &attachments) {
                    Ok(report) => status = Some(report),
                    Err(error) => {
                        no_status = Some(crate::usage::one_line(&crate::not_a_drive::clarify(error)));
                    }
                },
            }
        }
        let root = Root::new(&args.root);
        let config = config_with(&path);
        if let Some(report) = &status {
            attachments.retain(|attachment| attachment.record.matches(report).is_some());
        }
        let not_served = attachments.iter().find_map(crate::status::not_served).map(|(state, _)| state);
        let name = |record: &Record| Some(record.node.as_deref()?.file_name()?.to_str()?.to_string());
        let records = || attachments.iter().map(|attachment| &attachment.record);
        let attached = records().filter_map(name).collect();
        let durable = records().filter(|record| record.is_durable()).filter_map(name).collect();
        Ok(Patient {
            root,
            path,
            target,
            size: args.size.map(|size| size.0),
            status,
            no_status,
            config,
            attached,
            durable,
            not_served,
        })
    }

    /// Process id of the server that serves the drive.
    fn server_pid(&self) -> Option<u32> {
        self.status.as_ref()?.server.as_ref().map(|server| server.pid)
    }

    /// Name in `/proc` of the server, or of this process if there is no server, and its description in
    /// messages.
    fn process(&self) -> (String, &'static str) {
        match self.server_pid() {
            Some(pid) => (pid.to_string(), "the server"),
            None => ("self".to_string(), "this shell"),
        }
    }

    /// Directory of the file, existing or to be created.
    fn directory(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new("/"))
    }

    /// An existing path on the same device: the drive, or the directory of a drive to be created.
    fn place(&self) -> &Path {
        if self.target == Target::New { self.directory() } else { &self.path }
    }
}

/// Returns the configuration that `pumice serve` without a path would use, if it can be read and has this
/// drive.
fn config_with(path: &Path) -> Option<Config> {
    let config = Source::find(None, Overrides::default()).ok()??.load().ok()?;
    let real = |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    config.drives.iter().any(|drive| real(&drive.path) == real(path)).then_some(config)
}

fn target(path: &Path) -> Result<Target> {
    let found = match std::fs::metadata(path) {
        Ok(metadata) => metadata.file_type(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let directory = path.parent().unwrap_or(Path::new("/"));
            if directory.is_dir() {
                return Ok(Target::New);
            }
            bail!("{}: neither it nor its directory exists; check the path", path.display());
        }
        Err(error) => {
            return Err(error).with_context(|| format!("{}: cannot look at it", path.display()));
        }
    };
    if found.is_file() {
        Ok(Target::File)
    } else if found.is_block_device() {
        Ok(Target::BlockDevice)
    } else {
        bail!("{}: neither a file nor a block device; give the path of one", path.display())
    }
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let patient = Patient::examine(args)?;
    let mut findings = Vec::new();
    findings.extend(drive::checks(&patient));
    findings.extend(backing::checks(&patient));
    findings.extend(disks::checks(&patient));
    findings.extend(above::checks(&patient));
    findings.extend(machine::checks(&patient));
    findings.extend(processors::checks(&patient));
    let failed = findings.iter().filter(|finding| finding.verdict == Verdict::Fail).count();
    let path = patient.path.display();
    let mut out = crate::output::coloured_stdout();
    if args.json {
        let checks: Vec<_> = findings.iter().map(Finding::json).collect();
        let answer = json!({ "path": path_text(&patient.path), "failed_count": failed, "checks": checks });
        print_json(&answer)?;
    } else {
        let mut table = Table::new::<String>([]);
        for finding in &findings {
            table.row(finding.cells());
        }
        let text = table.to_indented_text(0);
        let lines: Vec<&str> = text.lines().collect();
        if lines.len() == findings.len() {
            let painted =
                lines.iter().zip(&findings).map(|(line, finding)| finding.verdict.painted(line) + "\n");
            write!(out, "{}", painted.collect::<String>())?;
        } else {
            // A finding of several lines.
            write!(out, "{text}")?;
        }
    }
    match failed {
        0 => Ok(()),
        1 => bail!("{path}: 1 check failed"),
        count => bail!("{path}: {count} checks failed"),
    }
}
