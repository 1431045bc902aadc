//! Connections to subsystems of NVMe/TCP, made by nvme-cli for a run and taken away after it. What was connected before the
//! run is used as it is, and stays connected.

use std::fs;
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::error::{BenchError, Result};
use crate::process::{self, Stop};
use crate::target::{DISCOVERY_NQN, Kind, NvmeTcpAddress, Target};

/// Longest time for a command.
const COMMAND: Duration = Duration::from_secs(60);
/// Longest wait for what follows a command in the kernel, and the time between looks.
const FOLLOWS: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(50);
/// Longest wait for an answer from an address.
const ANSWER: Duration = Duration::from_secs(5);
/// Addresses of a name that are tried.
const ADDRESSES_MAX: usize = 8;
/// Seconds after which requests to a server that is gone fail; the kernel's default is 600.
const LOSS_SECONDS: u32 = 30;
/// Names of subsystems that a message has room for.
const SHOWN_MAX: usize = 4;

/// Connections of a run. Dropping them disconnects what the run connected.
#[derive(Debug, Default)]
pub struct Connections {
    host: Option<Host>,
    made: Vec<Subsystem>,
}

/// Connects all targets of NVMe/TCP and finds their devices.
///
/// # Errors
/// Fails if one cannot be connected, and disconnects the others then.
pub fn connect(targets: &mut [Target], stop: &Stop) -> Result<Connections> {
    let mut connections = Connections::default();
    for target in targets {
        let Kind::NvmeTcp { address, device } = &mut target.kind else { continue };
        let named = |problem: String| BenchError::target(&target.name, problem);
        *device = Some(connections.add(address, stop).map_err(|problem| problem.named(named))?);
    }
    Ok(connections)
}

impl Connections {
    /// Disconnects what the run connected. Returns what is still connected, and how to disconnect it.
    pub fn disconnect(mut self) -> Vec<String> {
        self.take_away()
    }

    fn add(&mut self, address: &NvmeTcpAddress, stop: &Stop) -> Result<PathBuf, Problem> {
        let host = match self.host.take() {
            Some(host) => host,
            None => Host::this()?,
        };
        let host = self.host.insert(host);
        host.load(stop)?;
        let subsystem = Subsystem { nqn: address.nqn.clone(), at: reach(address)? };
        let known = host.controllers(&subsystem.nqn);
        let here = known.iter().find(|it| it.is_at(subsystem.at));
        if here.is_none() {
            if let Some(other) = known.first() {
                let (name, place) = (&other.name, &other.address);
                return Err(Problem::new(format!(
                    "the subsystem is connected already as {name}, at {place}: use that address, or disconnect it"
                )));
            }
            // Before it is there: a command that was stopped may have connected it.
            self.made.push(subsystem.clone());
            host.connect(&subsystem, stop)?;
        }
        host.device(&subsystem, address.nsid, stop)
    }

    fn take_away(&mut self) -> Vec<String> {
        let Some(host) = &self.host else { return Vec::new() };
        let left = self.made.drain(..).rev().filter(|subsystem| !host.disconnect(subsystem));
        left.map(|it| format!("{} is still connected: nvme disconnect --nqn={}", it.at, it.nqn)).collect()
    }
}

impl Drop for Connections {
    fn drop(&mut self) {
        self.take_away();
    }
}

/// Why a target is not connected.
enum Problem {
    /// Of the target.
    Target(String),
    /// Of the machine or the run.
    Run(BenchError),
}

impl Problem {
    fn new(problem: impl Into<String>) -> Problem {
        Problem::Target(problem.into())
    }

    fn named(self, named: impl FnOnce(String) -> BenchError) -> BenchError {
        match self {
            Problem::Target(problem) => named(problem),
            Problem::Run(error) => error,
        }
    }
}

impl From<BenchError> for Problem {
    /// What a program says is about the target.
    fn from(error: BenchError) -> Problem {
        match error {
            BenchError::Program { .. } => Problem::Target(error.to_string()),
            _ => Problem::Run(error),
        }
    }
}

/// A subsystem at an address.
#[derive(Clone, Debug)]
struct Subsystem {
    nqn: String,
    at: SocketAddr,
}

/// A controller of the kernel, connected by TCP.
struct Controller {
    /// Name, such as `nvme0`.
    name: String,
    /// Its address as the kernel writes it: `traddr=IP,trsvcid=PORT,...`.
    address: String,
    /// `live` once it takes requests.
    state: String,
}

impl Controller {
    fn is_at(&self, at: SocketAddr) -> bool {
        let field =
            |name: &str| self.address.split(',').find_map(|part| part.strip_prefix(name)?.strip_prefix('='));
        // An address of a link has the link's name behind it.
        let ip = field("traddr").and_then(|ip| ip.split('%').next()?.parse::<IpAddr>().ok());
        ip == Some(at.ip()) && field("trsvcid").and_then(|port| port.parse().ok()) == Some(at.port())
    }
}

/// Where controllers and devices are found, and the programs for them.
#[derive(Debug)]
struct Host {
    nvme: PathBuf,
    modprobe: Option<PathBuf>,
    sys: PathBuf,
    dev: PathBuf,
}

impl Host {
    /// This machine.
    fn this() -> Result<Host, Problem> {
        let nvme = process::need("nvme", "nvme-cli")?;
        if !rustix::process::geteuid().is_root() {
            return Err(Problem::new("connecting needs root"));
        }
        Ok(Host { nvme, modprobe: process::find("modprobe"), sys: "/sys".into(), dev: "/dev".into() })
    }

    fn nvme(&self, arguments: &[String], stop: &Stop) -> Result<String> {
        let ended = process::run(&self.nvme, arguments, &std::env::temp_dir(), COMMAND, stop)?;
        Ok(ended.output)
    }

    /// Loads what the kernel needs.
    fn load(&self, stop: &Stop) -> Result<(), Problem> {
        let is_there = || self.sys.join("module/nvme_tcp").exists() && self.dev.join("nvme-fabrics").exists();
        if is_there() {
            return Ok(());
        }
        let mut why = "modprobe is not installed".to_string();
        if let Some(modprobe) = &self.modprobe {
            match process::run(modprobe, &["nvme-tcp"], &std::env::temp_dir(), COMMAND, stop) {
                Ok(_) => why = "it was loaded, and there is no /dev/nvme-fabrics".to_string(),
                Err(BenchError::Program { problem, .. }) => why = problem,
                Err(error) => return Err(error.into()),
            }
        }
        match within(stop, || is_there().then_some(()))? {
            Some(()) => Ok(()),
            None => Err(Problem::new(format!("this kernel has no module nvme-tcp: {why}"))),
        }
    }

    /// Controllers of a subsystem that are connected by TCP.
    fn controllers(&self, nqn: &str) -> Vec<Controller> {
        let mut found: Vec<Controller> = entries(&self.sys.join("class/nvme"))
            .filter_map(|(name, path)| {
                let read = |file: &str| Some(fs::read_to_string(path.join(file)).ok()?.trim().to_string());
                let is_it = read("transport")? == "tcp" && read("subsysnqn")? == nqn;
                is_it.then_some(Controller { name, address: read("address")?, state: read("state")? })
            })
            .collect();
        found.sort_by(|one, other| one.name.cmp(&other.name));
        found
    }

    fn connect(&self, subsystem: &Subsystem, stop: &Stop) -> Result<(), Problem> {
        let mut arguments = vec!["connect".to_string()];
        arguments.extend(place(subsystem.at));
        arguments.extend([format!("--nqn={}", subsystem.nqn), format!("--ctrl-loss-tmo={LOSS_SECONDS}")]);
        match self.nvme(&arguments, stop) {
            Ok(_) => Ok(()),
            Err(BenchError::Program { problem, .. }) => {
                let missing = self.missing(subsystem, stop);
                Err(Problem::new(missing.unwrap_or_else(|| format!("nvme connect: {problem}"))))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Says so if the address does not have the subsystem, which the kernel's error does not tell.
    fn missing(&self, subsystem: &Subsystem, stop: &Stop) -> Option<String> {
        let mut arguments = vec!["discover".to_string()];
        arguments.extend(place(subsystem.at));
        let said = self.nvme(&arguments, stop).ok()?;
        let names = said.lines().filter_map(|line| line.trim().strip_prefix("subnqn:")).map(str::trim);
        let names: Vec<&str> = names.filter(|name| *name != DISCOVERY_NQN).collect();
        if names.contains(&subsystem.nqn.as_str()) {
            return None;
        }
        let mut shown = match names.is_empty() {
            true => "no subsystem".to_string(),
            false => names[..names.len().min(SHOWN_MAX)].join(", "),
        };
        if names.len() > SHOWN_MAX {
            shown += ", and others";
        }
        let Subsystem { nqn, at } = subsystem;
        Some(format!("{at} has no subsystem {nqn} for this host; it shows {shown}"))
    }

    /// Returns the device node of a namespace, or of the only one.
    fn device(&self, subsystem: &Subsystem, nsid: Option<u32>, stop: &Stop) -> Result<PathBuf, Problem> {
        let found = within(stop, || {
            let mut controllers = self.controllers(&subsystem.nqn).into_iter();
            controllers.find(|it| it.is_at(subsystem.at) && it.state == "live")
        })?;
        let Some(controller) = found else {
            let seconds = FOLLOWS.as_secs();
            return Err(Problem::new(format!(
                "its controller is not live after {seconds} s (dmesg says why)"
            )));
        };
        // The controller is asked: devices appear one after another.
        let node = self.dev.join(&controller.name).display().to_string();
        let nsids = listed(&self.nvme(&["list-ns".to_string(), node], stop)?);
        let nsid = chosen(&nsids, nsid).map_err(Problem::Target)?;
        let device = within(stop, || {
            let node = self.dev.join(self.namespace(&controller.name, nsid)?);
            node.exists().then_some(node)
        })?;
        let seconds = FOLLOWS.as_secs();
        device.ok_or_else(|| Problem::new(format!("namespace {nsid} has no device node after {seconds} s")))
    }

    /// Name of the block device of a namespace: below its controller, or with multipath below the subsystem.
    fn namespace(&self, controller: &str, nsid: u32) -> Option<String> {
        let subsystems = entries(&self.sys.join("class/nvme-subsystem")).map(|(_, path)| path);
        let of_controller = subsystems.filter(|path| path.join(controller).exists());
        let folders = std::iter::once(self.sys.join("class/nvme").join(controller)).chain(of_controller);
        let mut devices = folders.flat_map(|folder| entries(&folder).collect::<Vec<_>>());
        let is_it = |name: &str, path: &Path| {
            let found = fs::read_to_string(path.join("nsid")).ok().and_then(|text| text.trim().parse().ok());
            is_namespace(name) && found == Some(nsid)
        };
        devices.find(|(name, path)| is_it(name, path)).map(|(name, _)| name)
    }

    /// Disconnects the controllers of a subsystem at its address. Returns whether none is left.
    fn disconnect(&self, subsystem: &Subsystem) -> bool {
        // After Ctrl-C, too.
        let never = Stop::default();
        let left = || {
            let mut all = self.controllers(&subsystem.nqn);
            all.retain(|it| it.is_at(subsystem.at));
            all
        };
        for controller in left() {
            let _ = self.nvme(&["disconnect".to_string(), format!("--device={}", controller.name)], &never);
        }
        matches!(within(&never, || left().is_empty().then_some(())), Ok(Some(())))
    }
}

/// Arguments of nvme-cli for an address.
fn place(at: SocketAddr) -> [String; 3] {
    let ip = match at {
        // The kernel takes the number of a link.
        SocketAddr::V6(at) if at.scope_id() != 0 => format!("{}%{}", at.ip(), at.scope_id()),
        _ => at.ip().to_string(),
    };
    ["--transport=tcp".to_string(), format!("--traddr={ip}"), format!("--trsvcid={}", at.port())]
}

/// Returns the first address of a host that takes a connection.
fn reach(address: &NvmeTcpAddress) -> Result<SocketAddr, Problem> {
    let host = &address.host;
    let unknown = |error: std::io::Error| Problem::new(format!("the host {host} is not known: {error}"));
    let mut why = format!("the host {host} has no address");
    for at in (host.as_str(), address.port).to_socket_addrs().map_err(unknown)?.take(ADDRESSES_MAX) {
        match TcpStream::connect_timeout(&at, ANSWER) {
            Ok(_) => return Ok(at),
            Err(error) => {
                why = match error.kind() {
                    std::io::ErrorKind::ConnectionRefused => format!("{at} refuses connections"),
                    std::io::ErrorKind::TimedOut => {
                        format!("{at} does not answer within {} s", ANSWER.as_secs())
                    }
                    _ => format!("{at} cannot be reached: {error}"),
                }
            }
        }
    }
    Err(Problem::new(why))
}

/// Waits for something that the kernel does soon; `None` if it does not.
fn within<T>(stop: &Stop, look: impl Fn() -> Option<T>) -> Result<Option<T>> {
    let since = Instant::now();
    loop {
        if let Some(found) = look() {
            return Ok(Some(found));
        }
        stop.check()?;
        if since.elapsed() > FOLLOWS {
            return Ok(None);
        }
        sleep(POLL);
    }
}

/// Names and paths in a folder; none if it cannot be read.
fn entries(folder: &Path) -> impl Iterator<Item = (String, PathBuf)> + use<> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry.path()))
}

/// Whether a name is that of a namespace's block device, `nvme0n1`. A path of a multipath device is `nvme0c1n1`.
fn is_namespace(name: &str) -> bool {
    let numbers = name.strip_prefix("nvme").and_then(|rest| rest.split_once('n'));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    numbers.is_some_and(|(controller, namespace)| is_number(controller) && is_number(namespace))
}

/// Namespace IDs in what `nvme list-ns` prints: lines as `[   0]:0x1`.
fn listed(text: &str) -> Vec<u32> {
    let number =
        |line: &str| u32::from_str_radix(line.split_once("]:")?.1.trim().strip_prefix("0x")?, 16).ok();
    text.lines().filter_map(number).collect()
}

/// The namespace that is meant.
fn chosen(nsids: &[u32], wanted: Option<u32>) -> Result<u32, String> {
    let all = || nsids.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
    match (nsids, wanted) {
        ([], _) => Err("the subsystem has no namespace".to_string()),
        (_, Some(wanted)) if nsids.contains(&wanted) => Ok(wanted),
        (_, Some(wanted)) => Err(format!("the subsystem has no namespace {wanted}: it has {}", all())),
        ([only], None) => Ok(*only),
        (_, None) => Err(format!("the subsystem has the namespaces {}: choose one with ?nsid=N", all())),
    }
}

#[cfg(test)]
mod tests;
