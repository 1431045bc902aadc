//! Connections to subsystems of NVMe/TCP, made by nvme-cli for a run and taken away after it. What was
//! connected before the run is used as it is, and stays connected; so does what others have begun to use.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::error::{BenchError, Refusal, Result};
use crate::process::{self, Stop};
use crate::target::{DISCOVERY_NQN, Kind, NvmeTcpAddress, Target};

/// Longest time for a command.
const COMMAND: Duration = Duration::from_secs(60);
/// Longest wait for what follows a command in the kernel, and the time between looks.
const FOLLOWS: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(50);
/// Time for which what looks at a new device, such as mdadm, may keep others from it.
const LOOKED_AT: Duration = Duration::from_secs(1);
/// Longest wait for an answer from an address.
const ANSWER: Duration = Duration::from_secs(5);
/// Addresses of a name that are tried.
const ADDRESSES_MAX: usize = 8;
/// Seconds after which requests to a server that is gone fail; the kernel's default is 600.
const LOSS_SECONDS: u32 = 30;
/// Names of subsystems that a message has room for.
const SHOWN_MAX: usize = 4;
/// What nvme-cli says where the kernel refuses a second connection (`EALREADY`): its own words, and those of
/// the C library.
const CONNECTED_ALREADY: [&str; 2] = ["already connected", "already in progress"];
/// The transport of the targets, as the kernel calls it.
const TRANSPORT: &str = "tcp";

/// Looks whether a device is in use; says by whom, and what to do.
pub type InUse<'a> = dyn Fn(&Path) -> Result<(), Refusal> + 'a;

/// Connections of a run. Dropping them disconnects what the run connected, without a word of what stays.
pub struct Connections<'a> {
    host: Option<Host>,
    made: Vec<Made>,
    /// Devices that are measured. Nobody else can mount them, make them part of another device, or measure
    /// them.
    claims: Vec<Claim>,
    in_use: &'a InUse<'a>,
}

/// A device that is opened with `O_EXCL`.
struct Claim {
    device: PathBuf,
    _file: File,
}

/// A controller that the run has connected.
#[derive(Debug)]
struct Made {
    subsystem: Subsystem,
    /// Its name; `None`: it may be any of several.
    controller: Option<String>,
}

/// Connects all targets of NVMe/TCP and finds their devices, which are the run's alone then. Fails if one of
/// them is in use, and leaves those in use connected at the end.
///
/// # Errors
/// Fails if a target cannot be connected, and disconnects the others then. The error says also what stays
/// connected.
pub fn connect<'a>(targets: &mut [Target], in_use: &'a InUse<'a>, stop: &Stop) -> Result<Connections<'a>> {
    let connections = Connections { host: None, made: Vec::new(), claims: Vec::new(), in_use };
    connections.with(targets, stop)
}

impl<'a> Connections<'a> {
    /// Disconnects what the run connected. Returns what is still connected, and how to disconnect it.
    pub fn disconnect(mut self) -> Vec<String> {
        self.take_away()
    }

    fn with(mut self, targets: &mut [Target], stop: &Stop) -> Result<Connections<'a>> {
        for target in targets {
            let Kind::NvmeTcp { address, device } = &mut target.kind else { continue };
            let named = |problem: Refusal| BenchError::target(&target.name, problem);
            match self.add(address, stop) {
                Ok(found) => *device = Some(found),
                Err(problem) => {
                    let (error, left) = (problem.named(named), self.disconnect());
                    return Err(match left.is_empty() {
                        true => error,
                        false => BenchError::LeftBehind { source: Box::new(error), left: left.join("; ") },
                    });
                }
            }
        }
        Ok(self)
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
        if let Some(other) = known.iter().find(|it| !it.is_at(subsystem.at)) {
            let place =
                if other.address.is_empty() { String::new() } else { format!(" at {}", other.address) };
            return Err(Problem::new(format!(
                "the subsystem is connected already as {}, by {}{place}, and the kernel would spread requests over all \
                 paths: disconnect it, or name its device as the target",
                other.name, other.transport
            )));
        }
        if known.is_empty() {
            let (connected, made) = host.connect(subsystem.clone(), stop);
            self.made.extend(made);
            connected?;
        }
        let device = host.device(&subsystem, address.nsid, stop)?;
        if !self.claims.iter().any(|claim| claim.device == device) {
            let claim = claim(&device, self.in_use).map_err(Problem::Target)?;
            self.claims.extend(claim);
        }
        Ok(device)
    }

    fn take_away(&mut self) -> Vec<String> {
        let Some(host) = &self.host else { return Vec::new() };
        let mut left = Vec::new();
        for Made { subsystem: Subsystem { nqn, at }, controller } in self.made.drain(..).rev() {
            let Some(name) = controller else {
                let ask =
                    "nvme list-subsys names its controller, nvme disconnect --device=NAME disconnects it";
                left.push(format!("{nqn} at {at} may be connected by this run, or by others: {ask}"));
                continue;
            };
            let command = format!("nvme disconnect --device={name}");
            // Claimed until it is gone: nobody begins to use it meanwhile.
            let free = |device: &Path| match self.claims.iter().any(|claim| claim.device == device) {
                true => (self.in_use)(device).map(|()| None),
                false => claim(device, self.in_use),
            };
            let devices = host.devices(&name);
            match devices.values().map(|device| free(device)).collect::<Result<Vec<Option<Claim>>, Refusal>>()
            {
                Err(why) => left.push(format!("{at} stays connected: {why}; then {command}")),
                Ok(_claims) if !host.disconnect(&nqn, at, &name) => {
                    left.push(format!("{at} is still connected: {command}"));
                }
                Ok(_) => {}
            }
        }
        left
    }
}

impl Drop for Connections<'_> {
    fn drop(&mut self) {
        self.take_away();
    }
}

/// Claims a device, which the kernel refuses while it, or one of its partitions, is mounted, swap, part of
/// another device or claimed by another program (`open(2)`, `O_EXCL`). Returns nothing where there is nothing
/// to open.
fn claim(device: &Path, in_use: &InUse<'_>) -> Result<Option<Claim>, Refusal> {
    let since = Instant::now();
    loop {
        in_use(device)?;
        match rustix::fs::open(device, OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC, Mode::empty()) {
            Ok(file) => return Ok(Some(Claim { device: device.to_path_buf(), _file: file.into() })),
            Err(Errno::BUSY | Errno::INTR) if since.elapsed() < LOOKED_AT => sleep(POLL),
            Err(Errno::BUSY) => {
                return Err(format!(
                    "{}: in use by a program that has claimed it, such as another run: end it first",
                    device.display()
                )
                .into());
            }
            Err(_) => return Ok(None),
        }
    }
}

/// Why a target is not connected.
enum Problem {
    /// Of the target.
    Target(Refusal),
    /// Of the machine or the run.
    Run(BenchError),
}

impl Problem {
    fn new(problem: impl Into<Refusal>) -> Problem {
        Problem::Target(problem.into())
    }

    fn named(self, named: impl FnOnce(Refusal) -> BenchError) -> BenchError {
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
            BenchError::Program { .. } => Problem::Target(error.into()),
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

/// A controller of the kernel.
struct Controller {
    /// Name, such as `nvme0`.
    name: String,
    /// `tcp`, `rdma`, `fc`, `loop` or `pcie`.
    transport: String,
    /// Its address as the kernel writes it, of TCP `traddr=IP,trsvcid=PORT,...`.
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
        let port = field("trsvcid").and_then(|port| port.parse().ok());
        self.transport == TRANSPORT && ip == Some(at.ip()) && port == Some(at.port())
    }
}

/// Where controllers and devices are found, and the programs for them.
#[derive(Debug)]
struct Host {
    nvme: PathBuf,
    modprobe: Option<PathBuf>,
    sys: PathBuf,
    dev: PathBuf,
    /// Longest wait for what follows a command in the kernel.
    follows: Duration,
}

impl Host {
    /// This machine.
    fn this() -> Result<Host, Problem> {
        let nvme = process::need("nvme", "nvme-cli")?;
        if !rustix::process::geteuid().is_root() {
            return Err(Problem::new("connecting needs root"));
        }
        let modprobe = process::find("modprobe");
        Ok(Host { nvme, modprobe, sys: "/sys".into(), dev: "/dev".into(), follows: FOLLOWS })
    }

    fn nvme(&self, arguments: &[String], stop: &Stop) -> Result<String> {
        // Its messages are searched for words: they must be in English.
        let language = [("LC_ALL", Path::new("C"))];
        let ended =
            process::run_with(&self.nvme, arguments, &language, &std::env::temp_dir(), COMMAND, stop)?;
        Ok(ended.output)
    }

    /// Waits for something that the kernel does soon; `None` if it does not.
    fn within<T>(&self, stop: &Stop, look: impl Fn() -> Option<T>) -> Result<Option<T>> {
        let since = Instant::now();
        loop {
            if let Some(found) = look() {
                return Ok(Some(found));
            }
            stop.check()?;
            if since.elapsed() > self.follows {
                return Ok(None);
            }
            sleep(POLL);
        }
    }

    /// Loads what the kernel needs.
    fn load(&self, stop: &Stop) -> Result<(), Problem> {
        let has_fabrics = || self.dev.join("nvme-fabrics").exists();
        if self.sys.join("module/nvme_tcp").exists() && has_fabrics() {
            return Ok(());
        }
        let lacks = |why: &str| Problem::new(format!("this kernel has no module nvme-tcp: {why}"));
        let modprobe = self.modprobe.as_ref().ok_or_else(|| lacks("modprobe is not installed"))?;
        match process::run(modprobe, &["nvme-tcp"], &std::env::temp_dir(), COMMAND, stop) {
            Ok(_) => {}
            Err(BenchError::Program { problem, .. }) => return Err(lacks(&problem)),
            Err(error) => return Err(error.into()),
        }
        let found = self.within(stop, || has_fabrics().then_some(()))?;
        found.ok_or_else(|| Problem::new("the module nvme-tcp was loaded, and there is no /dev/nvme-fabrics"))
    }

    /// Controllers of a subsystem, by whatever transport.
    fn controllers(&self, nqn: &str) -> Vec<Controller> {
        let mut found: Vec<Controller> = entries(&self.sys.join("class/nvme"))
            .filter_map(|(name, path)| {
                let read = |file: &str| Some(fs::read_to_string(path.join(file)).ok()?.trim().to_string());
                let or_empty = |file: &str| read(file).unwrap_or_default();
                let [transport, address, state] = ["transport", "address", "state"].map(or_empty);
                (read("subsysnqn")? == nqn).then_some(Controller { name, transport, address, state })
            })
            .collect();
        found.sort_by(|one, other| one.name.cmp(&other.name));
        found
    }

    /// Names of the controllers of a subsystem at an address.
    fn names_at(&self, Subsystem { nqn, at }: &Subsystem) -> Vec<String> {
        self.controllers(nqn).into_iter().filter(|it| it.is_at(*at)).map(|it| it.name).collect()
    }

    /// Connects a subsystem that nothing is connected to. Returns also what was made, after a failure, too: a
    /// command that was killed or has failed may have connected it. What is there then is of others only if
    /// the kernel refused a second connection.
    fn connect(&self, subsystem: Subsystem, stop: &Stop) -> (Result<(), Problem>, Option<Made>) {
        let mut arguments = vec!["connect".to_string()];
        arguments.extend(place(subsystem.at));
        arguments.extend([format!("--nqn={}", subsystem.nqn), format!("--ctrl-loss-tmo={LOSS_SECONDS}")]);
        let said = self.nvme(&arguments, stop);
        let mut there = self.names_at(&subsystem);
        let only = |there: &mut Vec<String>| if there.len() == 1 { there.pop() } else { None };
        match said {
            Ok(said) => {
                let controller = connected(&said).or_else(|| only(&mut there));
                (Ok(()), Some(Made { subsystem, controller }))
            }
            Err(error) if error.may_be_done() => {
                let made = (!there.is_empty()).then(|| Made { controller: only(&mut there), subsystem });
                (Err(error.into()), made)
            }
            Err(BenchError::Program { problem, .. }) => {
                let failed = format!("nvme connect: {problem}");
                let is_of_others = CONNECTED_ALREADY.iter().any(|said| problem.contains(said));
                match there.first() {
                    Some(name) if is_of_others => {
                        let why = format!("{failed}; others have connected it meanwhile, as {name}");
                        (Err(Problem::new(why)), None)
                    }
                    // Nothing was there before.
                    Some(_) => {
                        let controller = only(&mut there);
                        (Err(Problem::new(failed)), Some(Made { subsystem, controller }))
                    }
                    None => {
                        let missing = self.missing(&subsystem, stop);
                        (Err(Problem::new(missing.unwrap_or(failed))), None)
                    }
                }
            }
            Err(error) => (Err(error.into()), None),
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
        let found = self.within(stop, || {
            let mut controllers = self.controllers(&subsystem.nqn).into_iter();
            controllers.find(|it| it.is_at(subsystem.at) && it.state == "live")
        })?;
        let seconds = self.follows.as_secs();
        let Some(controller) = found else {
            return Err(Problem::new(format!(
                "its controller is not live after {seconds} s (dmesg says why)"
            )));
        };
        // The controller is asked: devices appear one after another.
        let node = self.dev.join(&controller.name).display().to_string();
        let nsids = listed(&self.nvme(&["list-ns".to_string(), node], stop)?);
        let nsid = chosen(&nsids, nsid)?;
        let device =
            self.within(stop, || self.devices(&controller.name).remove(&nsid).filter(|node| node.exists()))?;
        device.ok_or_else(|| Problem::new(format!("namespace {nsid} has no device node after {seconds} s")))
    }

    /// Namespace IDs and block devices of a controller: below it, or with multipath below its subsystem.
    fn devices(&self, controller: &str) -> BTreeMap<u32, PathBuf> {
        let subsystems = entries(&self.sys.join("class/nvme-subsystem")).map(|(_, path)| path);
        let of_controller = subsystems.filter(|path| path.join(controller).exists());
        let folders = std::iter::once(self.sys.join("class/nvme").join(controller)).chain(of_controller);
        let namespace = |(name, path): (String, PathBuf)| {
            let nsid = fs::read_to_string(path.join("nsid")).ok()?.trim().parse().ok()?;
            is_namespace(&name).then(|| (nsid, self.dev.join(name)))
        };
        folders.flat_map(|folder| entries(&folder).filter_map(namespace).collect::<Vec<_>>()).collect()
    }

    /// Disconnects a controller. Returns whether it is gone.
    fn disconnect(&self, nqn: &str, at: SocketAddr, name: &str) -> bool {
        // After Ctrl-C, too.
        let never = Stop::default();
        // Others may have another of this name by now.
        let is_there = || self.controllers(nqn).iter().any(|it| it.name == name && it.is_at(at));
        if is_there() {
            let _ = self.nvme(&["disconnect".to_string(), format!("--device={name}")], &never);
        }
        matches!(self.within(&never, || (!is_there()).then_some(())), Ok(Some(())))
    }
}

/// Arguments of nvme-cli for an address.
fn place(at: SocketAddr) -> [String; 3] {
    let ip = match at {
        // The kernel takes the number of a link.
        SocketAddr::V6(at) if at.scope_id() != 0 => format!("{}%{}", at.ip(), at.scope_id()),
        _ => at.ip().to_string(),
    };
    [format!("--transport={TRANSPORT}"), format!("--traddr={ip}"), format!("--trsvcid={}", at.port())]
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

/// Names and paths in a folder; none if it cannot be read.
fn entries(folder: &Path) -> impl Iterator<Item = (String, PathBuf)> + use<> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry.path()))
}

/// The controller that `nvme connect` names, in a line such as `connecting to device: nvme3`; not every
/// version does.
fn connected(said: &str) -> Option<String> {
    let is_controller = |name: &str| {
        let number = name.strip_prefix("nvme").unwrap_or_default();
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    };
    let named = said.lines().filter_map(|line| line.trim().rsplit_once("device: ")).map(|(_, name)| name);
    named.map(str::trim).find(|name| is_controller(name)).map(str::to_string)
}

/// Whether a name is that of a namespace's block device, `nvme0n1`. A path of a multipath device is
/// `nvme0c1n1`.
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
fn chosen(nsids: &[u32], wanted: Option<u32>) -> Result<u32, Problem> {
    let all = || nsids.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
    match (nsids, wanted) {
        ([], _) => Err(Problem::new("the subsystem has no namespace")),
        (_, Some(wanted)) if nsids.contains(&wanted) => Ok(wanted),
        (_, Some(wanted)) => {
            Err(Problem::new(format!("the subsystem has no namespace {wanted}: it has {}", all())))
        }
        ([only], None) => Ok(*only),
        (_, None) => {
            Err(Problem::new(format!("the subsystem has the namespaces {}: choose one with ?nsid=N", all())))
        }
    }
}

#[cfg(test)]
mod tests;
