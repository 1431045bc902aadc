//! The machine: memory, limits, io_uring.

use host::groups::memory_limit_bytes;
use host::memory::{self, meminfo_bytes};
use host::process::status_field;
use service::{IoChoice, run_here};

use super::Patient;
use super::finding::Finding;
use super::unit;
use crate::human;

/// Recommended limit of open files for a server with 1024 connections, drives and sockets.
const FILES_WANTED: u64 = 4096;
/// Limit of open files below which even a few clients do not fit.
const FILES_MIN: u64 = 128;
/// Locked memory for io_uring rings before Linux 5.12, in bytes.
const MEMLOCK_WANTED_BYTES: u64 = 16 << 20;
/// Packs of a drive that wait to be written, and spare packs, in bytes.
const PACKS_BYTES: u64 = 42 << 20;
/// Spare I/O buffers: 16 MiB in each of 16 shards.
const SPARE_BUFFERS_BYTES: u64 = 256 << 20;

pub(super) fn checks(patient: &Patient) -> Vec<Finding> {
    vec![io_uring(patient), memory(patient), map_cache(patient), open_files(patient), locked_memory(patient)]
}

/// Tests whether an io_uring can be set up.
fn io_uring(patient: &Patient) -> Finding {
    let check = "io-uring";
    let served_by = patient.status.as_ref().and_then(|status| status.server.as_ref());
    let disabled = patient.root.number("proc/sys/kernel/io_uring_disabled").filter(|value| *value > 0);
    let advice = match disabled {
        Some(_) => {
            "sysctl kernel.io_uring_disabled=0 allows it; until then plain system calls are used, which cost more"
        }
        None => {
            "a container's system call filter may forbid it; plain system calls are used, which cost more"
        }
    };
    match (run_here(IoChoice::Uring, |_| async {}), served_by) {
        (Ok(()), Some(server)) if server.io_backend != status::IoBackend::Uring => Finding::warn(
            check,
            "allowed here, but the server does without",
            "it was started with --io plain, or may not",
        ),
        (Ok(()), _) => Finding::ok(check, "a ring can be set up"),
        (Err(error), _) => Finding::warn(check, error.to_string(), advice),
    }
}

/// The load that a server needs room for.
struct Needs {
    drives: u64,
    /// Map caches of all drives, in bytes.
    caches_bytes: u64,
    /// `request-memory`, in bytes.
    requests_bytes: u64,
    /// `read-cache`, in bytes.
    read_cache_bytes: u64,
}

impl Needs {
    /// Drives with map caches of these sizes, and the defaults of `request-memory` and `read-cache`.
    fn of_drives(drives: u64, cache_bytes: u64) -> Needs {
        let requests_bytes = nbd::ServerConfig::default().total_buffer_bytes_max as u64;
        Needs {
            drives,
            caches_bytes: drives.saturating_mul(cache_bytes),
            requests_bytes,
            read_cache_bytes: drive::ReadCache::DEFAULT_BYTES,
        }
    }

    /// The configured server, or one with this drive alone if it is in no configuration.
    fn of(patient: &Patient) -> Needs {
        let served = patient.status.as_ref().filter(|status| status.server.is_some());
        match &patient.config {
            None => {
                let cache =
                    served.map_or(drive::DEFAULT_MAP_BUDGET_BYTES, |status| status.map_cache.budget_bytes);
                Needs::of_drives(1, cache)
            }
            Some(config) => {
                let caches = config.drives.iter().map(|drive| drive.options.open().map_budget_bytes);
                Needs {
                    drives: config.drives.len() as u64,
                    caches_bytes: caches.fold(0, u64::saturating_add),
                    requests_bytes: config.server.options.request_memory.clone().unwrap_or_default().0.0,
                    read_cache_bytes: config.server.options.read_cache.clone().unwrap_or_default().0.0,
                }
            }
        }
    }

    /// Memory that the server takes at most, in bytes.
    fn bytes(&self) -> u64 {
        let Needs { drives, caches_bytes, requests_bytes, read_cache_bytes } = *self;
        // Dirty nodes may exceed the budget by a quarter.
        let parts = [
            caches_bytes,
            caches_bytes / 4,
            drives * PACKS_BYTES,
            requests_bytes,
            read_cache_bytes,
            SPARE_BUFFERS_BYTES,
        ];
        parts.into_iter().fold(0, u64::saturating_add)
    }
}

/// Compares the memory that a server may use with that of the machine or of the control group.
fn memory(patient: &Patient) -> Finding {
    let check = "memory";
    let value = |name: &str| meminfo_bytes(&patient.root, name);
    let Some(mut total) = value("MemTotal") else {
        return Finding::unknown(check, "not available in /proc/meminfo", "see free -h");
    };
    let mut available = value("MemAvailable").unwrap_or(total);
    let needs = Needs::of(patient);
    let need = needs.bytes();
    let mut whose = "machine";
    if let Some(pid) = patient.server_pid() {
        // Memory already used by the server counts as available to it.
        available += resident_bytes(patient, pid);
    }
    let (process, _) = patient.process();
    let own = |whose| memory_limit_bytes(&patient.root, &process).map(|limit| (limit, whose));
    // The unit counts for a server that it will start.
    let unit = patient.config.as_ref().and_then(|_| unit::memory_limit_bytes(&patient.root));
    let limit = match (patient.server_pid(), unit) {
        (Some(_), _) => own("server's control group"),
        (None, Some(limit)) => limit.map(|limit| (limit, "unit of the server")),
        (None, None) => own("control group of this shell"),
    };
    if let Some((limit, of)) = limit
        && limit < total
    {
        total = limit;
        available = available.min(limit);
        whose = of;
    }
    let server = match &patient.config {
        Some(_) => format!("the configured server ({} drives)", needs.drives),
        None => "a server with this drive".to_string(),
    };
    let found = format!(
        "{server} takes up to {} (map cache {}, read cache {}, request-memory {}), the {whose} has {}, {} available",
        human::bytes(need),
        human::bytes(needs.caches_bytes),
        human::bytes(needs.read_cache_bytes),
        human::bytes(needs.requests_bytes),
        human::bytes(total),
        human::bytes(available)
    );
    if need > total {
        Finding::fail(
            check,
            found,
            "give it more memory (MemoryMax= and MemoryHigh= of a unit), or --map-cache, --read-cache or \
             --request-memory less",
        )
    } else if need > available {
        Finding::warn(check, found, "other processes use memory: it may be killed when memory runs out")
    } else {
        Finding::ok(check, found)
    }
}

fn resident_bytes(patient: &Patient, pid: u32) -> u64 {
    let resident = status_field(&patient.root, &pid.to_string(), "VmRSS");
    resident.and_then(|value| memory::bytes(&value)).unwrap_or(0)
}

/// Compares the map of the used capacity with the map cache: 8 bytes per block of 4 KiB.
fn map_cache(patient: &Patient) -> Finding {
    let check = "map-cache";
    let Some(status) = &patient.status else {
        return Finding::unknown(
            check,
            "no drive yet",
            "0.2 % of what will be used, or 128M, is a good --map-cache",
        );
    };
    let whole = status.logical_used_bytes / 512;
    let cache = match &status.server {
        Some(_) => status.map_cache.budget_bytes,
        None => drive::DEFAULT_MAP_BUDGET_BYTES,
    };
    let found = format!(
        "the map of the {} in use takes up to {}, its cache holds {}",
        human::bytes(status.logical_used_bytes),
        human::bytes(whole),
        human::bytes(cache)
    );
    if whole <= cache {
        Finding::ok(check, found)
    } else {
        Finding::warn(
            check,
            found,
            format!(
                "random reads may cost a second read: --map-cache {}M holds all",
                whole.div_ceil(1 << 20)
            ),
        )
    }
}

/// Returns a soft limit of a process from `/proc/PID/limits`; the inner `None` means unlimited.
fn limit(patient: &Patient, name: &str) -> Option<Option<u64>> {
    let (process, _) = patient.process();
    let limits = patient.root.text(format!("proc/{process}/limits"))?;
    let values = limits.lines().find_map(|line| line.strip_prefix(name))?;
    match values.split_whitespace().next()? {
        "unlimited" => Some(None),
        soft => soft.parse().ok().map(Some),
    }
}

fn open_files(patient: &Patient) -> Finding {
    let check = "open-files";
    let (_, whose) = patient.process();
    let advice = "LimitNOFILE=65536 in its unit, or ulimit -n 65536";
    match limit(patient, "Max open files") {
        None => Finding::unknown(check, "limit not available", advice),
        Some(None) => Finding::ok(check, format!("{whose} may open any number")),
        Some(Some(files)) if files >= FILES_WANTED => Finding::ok(check, format!("{whose} may open {files}")),
        Some(Some(files)) if files < FILES_MIN => {
            Finding::fail(check, format!("{whose} may open {files}: too few for drives and clients"), advice)
        }
        Some(Some(files)) => {
            Finding::warn(check, format!("{whose} may open {files}: not enough for 1024 clients"), advice)
        }
    }
}

fn locked_memory(patient: &Patient) -> Finding {
    let check = "locked-memory";
    let release = patient.root.text("proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    let version = (numbers.next(), numbers.next());
    let (Some(major), Some(minor)) = version else {
        return Finding::unknown(
            check,
            "kernel version not available",
            "LimitMEMLOCK=infinity in its unit does no harm",
        );
    };
    if (major, minor) >= (5, 12) {
        return Finding::ok(check, format!("does not matter to io_uring on Linux {major}.{minor}"));
    }
    match limit(patient, "Max locked memory") {
        Some(None) => Finding::ok(check, "unlimited"),
        Some(Some(bytes)) if bytes >= MEMLOCK_WANTED_BYTES => Finding::ok(check, human::bytes(bytes)),
        Some(Some(bytes)) => Finding::warn(
            check,
            format!(
                "{} may lock {}; rings of Linux {major}.{minor} count against it",
                patient.process().1,
                human::bytes(bytes)
            ),
            "LimitMEMLOCK=infinity in its unit, or ulimit -l unlimited",
        ),
        None => {
            Finding::unknown(check, "limit not available", "LimitMEMLOCK=infinity in its unit does no harm")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Needs;

    /// Text of a file of the project.
    fn project(path: &str) -> String {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        std::fs::read_to_string(root.join(path)).expect("a file of the project")
    }

    /// The unit and its page say twelve drives, with a fifth of the limit for what the formula leaves out
    /// (the heap, threads, the kernel's memory for sockets).
    #[test]
    fn the_memory_limit_of_the_unit_is_for_twelve_drives() {
        let unit = project("deploy/systemd/pumice.service");
        let limits: Vec<&str> = unit.lines().filter_map(|line| line.strip_prefix("MemoryMax=")).collect();
        let [limit] = limits[..] else { panic!("one limit: {limits:?}") };
        let limit_bytes = limit.parse::<crate::size::Size>().expect("a size").0;
        let need = |drives| Needs::of_drives(drives, drive::DEFAULT_MAP_BUDGET_BYTES).bytes();
        assert!(need(12) <= limit_bytes / 5 * 4, "{} of {limit_bytes}", need(12));
        assert!(need(18) > limit_bytes, "the limit is for more drives than the unit says");
        assert!(unit.contains("# Some twelve drives with the default map-cache."), "{unit}");
        let page = project("docs/reference/permissions.md").replace('\n', " ");
        let per_server = (need(0) >> 20, (need(1) - need(0)) >> 20);
        let said = format!(
            "`MemoryMax={limit}` is for some twelve drives with the default `map-cache`: {} MiB for requests, buffers \
             and the read cache of the server, {} MiB a drive, and a fifth",
            per_server.0, per_server.1
        );
        assert!(page.contains(&said), "expected in docs/reference/permissions.md: {said}");
    }
}
