//! Memory limit that systemd will set for the server: as systemd itself says it, else by the files of the
//! unit.

use std::collections::BTreeMap;
use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use host::Root;

use crate::size::Size;

/// Unit of the server.
const UNIT: &str = "pumice.service";
/// Settings that limit memory. Beyond `MemoryHigh`, processes are slowed down until they hardly run.
const LIMITS: [&str; 2] = ["MemoryMax", "MemoryHigh"];
/// Properties of the unit that have the least limit of it and its slices, since systemd 256.
const EFFECTIVE: [&str; 2] = ["EffectiveMemoryMax", "EffectiveMemoryHigh"];
/// A manager that takes longer to answer is not waited for.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Longest output of `systemctl` read, in bytes.
const OUTPUT_MAX_BYTES: u64 = 64 << 10;
/// Directories of units, from the most important one on (`systemd.unit(5)`).
const UNITS: [&str; 13] = [
    // Those of `systemctl set-property`.
    "etc/systemd/system.control",
    "run/systemd/system.control",
    "run/systemd/transient",
    "run/systemd/generator.early",
    "etc/systemd/system",
    "etc/systemd/system.attached",
    "run/systemd/system",
    "run/systemd/system.attached",
    "run/systemd/generator",
    "usr/local/lib/systemd/system",
    "usr/lib/systemd/system",
    "lib/systemd/system",
    "run/systemd/generator.late",
];

/// Returns the memory limit that systemd will set for the server, in bytes; the inner `None` means that it
/// sets none, or none in bytes. `None` if there is no unit.
pub(super) fn memory_limit_bytes(root: &Root) -> Option<Option<u64>> {
    // As sd_booted(3) does. Only the manager knows transient units and all that it has loaded.
    let runs = root.is_machine() && root.path("run/systemd/system").is_dir();
    match runs.then(|| ask("systemctl")).flatten() {
        Some(properties) => in_properties(&properties),
        None => in_files(root),
    }
}

/// Returns the properties of the unit that `systemctl` prints. `None` if it fails.
fn ask(systemctl: &str) -> Option<String> {
    let mut child = Command::new(systemctl)
        .args(["show", "--no-pager", "--property=LoadState"])
        .args(LIMITS.iter().chain(&EFFECTIVE).map(|name| format!("--property={name}")))
        .args(["--", UNIT])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let stdout = child.stdout.take()?;
    let (answer, answered) = mpsc::channel();
    std::thread::spawn(move || {
        let mut text = String::new();
        // Nobody may wait for it any more.
        let _ = answer.send(stdout.take(OUTPUT_MAX_BYTES).read_to_string(&mut text).map(|_| text));
    });
    let text = answered.recv_timeout(TIMEOUT);
    if text.is_err() {
        let _ = child.kill();
    }
    let is_done = child.wait().is_ok_and(|status| status.success());
    text.ok()?.ok().filter(|text| is_done && text.contains("LoadState="))
}

/// As [`memory_limit_bytes`], in lines `NAME=VALUE` of `systemctl show`.
fn in_properties(text: &str) -> Option<Option<u64>> {
    let value = |name: &str| {
        text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('=')).unwrap_or_default()
    };
    if value("LoadState") != "loaded" {
        return None;
    }
    // Without a limit, it is `infinity`, or the largest number in old versions.
    let bytes = |name: &&str| value(name).parse().ok().filter(|bytes| *bytes < u64::MAX);
    Some(LIMITS.iter().chain(&EFFECTIVE).filter_map(bytes).min())
}

/// As [`memory_limit_bytes`], by the files of the unit and its drop-ins.
fn in_files(root: &Root) -> Option<Option<u64>> {
    let unit = UNITS.iter().find_map(|directory| root.text(format!("{directory}/{UNIT}")))?;
    // They are read in the order of their names. Of one name, that in the most important directory counts,
    // even if it is empty; those of all services are less important than those of the unit.
    let mut added = BTreeMap::new();
    for drop_ins in [UNIT, "service"] {
        for directory in UNITS.map(|directory| format!("{directory}/{drop_ins}.d")) {
            for name in root.names(&directory, |name| name.ends_with(".conf")) {
                let path = format!("{directory}/{name}");
                added.entry(name).or_insert(path);
            }
        }
    }
    let texts: Vec<String> =
        std::iter::once(unit).chain(added.values().filter_map(|path| root.text(path))).collect();
    // The last value of each counts.
    let limit = |name: &&str| {
        let value = texts.iter().flat_map(|text| text.lines()).rev().find_map(|line| {
            let (found, value) = line.split_once('=')?;
            (found.trim() == *name).then(|| value.trim())
        });
        value?.parse::<Size>().ok().map(|size| size.0)
    };
    Some(LIMITS.iter().filter_map(limit).min())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::tree;

    #[test]
    fn the_limit_in_files_is_the_last_one() {
        let unit = |more: &[(&str, &str)]| {
            let own = (
                "lib/systemd/system/pumice.service",
                "[Service]\n#MemoryMax=1G\nMemoryMax=4G\nUser=pumice\n",
            );
            let (_folder, root) = tree(&[&[own], more].concat());
            memory_limit_bytes(&root).expect("a unit")
        };
        assert_eq!(unit(&[]), Some(4 << 30));
        let local = "etc/systemd/system/pumice.service";
        assert_eq!(unit(&[(local, "[Service]\n")]), None, "it replaces that of the package");
        let first = ("etc/systemd/system/pumice.service.d/a.conf", "[Service]\nMemoryMax=6G\n");
        assert_eq!(unit(&[first]), Some(6 << 30));
        let second = "etc/systemd/system/pumice.service.d/b.conf";
        assert_eq!(unit(&[first, (second, "[Service]\nMemoryMax=8192M\n")]), Some(8 << 30));
        assert_eq!(unit(&[first, (second, "[Service]\nMemoryMax=infinity\n")]), None);
        let (_folder, root) = tree(&[]);
        assert_eq!(memory_limit_bytes(&root), None);
        // White space around the sign.
        assert_eq!(
            unit(&[("etc/systemd/system/pumice.service.d/a.conf", "MemoryMax = 8G\n")]),
            Some(8 << 30)
        );
        // Names count before directories.
        let packaged = ("usr/lib/systemd/system/pumice.service.d/b.conf", "MemoryMax=5G\n");
        assert_eq!(unit(&[packaged, first]), Some(5 << 30));
        // Of one name, the more important directory counts, even if the file is empty.
        assert_eq!(unit(&[packaged, (second, "MemoryMax=7G\n")]), Some(7 << 30));
        assert_eq!(unit(&[packaged, first, (second, "")]), Some(6 << 30));
        // systemctl set-property.
        for set in ["etc", "run"]
            .map(|top| format!("{top}/systemd/system.control/pumice.service.d/50-MemoryMax.conf"))
        {
            assert_eq!(unit(&[(&set, "[Service]\nMemoryMax=1073741824\n")]), Some(1 << 30));
        }
    }

    #[test]
    fn drop_ins_of_all_services_and_transient_units_count() {
        let own = ("lib/systemd/system/pumice.service", "[Service]\nMemoryMax=4G\n");
        let limit = |more: &[(&str, &str)]| {
            let (_folder, root) = tree(&[&[own], more].concat());
            memory_limit_bytes(&root).expect("a unit")
        };
        let all = ("etc/systemd/system/service.d/50-limit.conf", "[Service]\nMemoryMax=2G\n");
        assert_eq!(limit(&[all]), Some(2 << 30));
        // Names count first, then whether a drop-in is for this unit.
        let of_unit = |name, text| (name, text);
        let earlier = of_unit("usr/lib/systemd/system/pumice.service.d/10-limit.conf", "MemoryMax=8G\n");
        assert_eq!(limit(&[all, earlier]), Some(2 << 30));
        let same = of_unit("usr/lib/systemd/system/pumice.service.d/50-limit.conf", "MemoryMax=8G\n");
        assert_eq!(limit(&[all, same]), Some(8 << 30));
        let transient = ("run/systemd/transient/pumice.service", "[Service]\nMemoryMax=1G\n");
        assert_eq!(limit(&[transient]), Some(1 << 30));
        assert_eq!(limit(&[("etc/systemd/system/other.d/a.conf", "MemoryMax=1G\n")]), Some(4 << 30));
    }

    #[test]
    fn the_lesser_of_both_limits_counts() {
        let unit = |text| tree(&[("etc/systemd/system/pumice.service", text)]);
        for (text, limit) in [
            ("MemoryMax=4G\nMemoryHigh=3G\n", Some(3 << 30)),
            ("MemoryMax=4G\nMemoryHigh=5G\n", Some(4 << 30)),
            ("MemoryHigh=3G\n", Some(3 << 30)),
            ("MemoryHigh=3G\nMemoryHigh=\n", None),
        ] {
            assert_eq!(memory_limit_bytes(&unit(text).1), Some(limit), "{text}");
        }
    }

    #[test]
    fn properties_of_the_manager() {
        for (text, limit) in [
            ("LoadState=loaded\nMemoryMax=4294967296\nMemoryHigh=infinity\n", Some(Some(4 << 30))),
            ("MemoryHigh=1024\nMemoryMax=4294967296\nLoadState=loaded\n", Some(Some(1024))),
            ("LoadState=loaded\nMemoryMax=18446744073709551615\n", Some(None)),
            ("LoadState=loaded\nMemoryMax=infinity\nEffectiveMemoryMax=2048\n", Some(Some(2048))),
            ("LoadState=loaded\nMemoryMax=[not set]\n", Some(None)),
            ("LoadState=not-found\nMemoryMax=infinity\n", None),
            ("LoadState=masked\nMemoryMax=4096\n", None),
        ] {
            assert_eq!(in_properties(text), limit, "{text}");
        }
    }

    #[test]
    fn a_manager_that_cannot_be_asked_has_no_properties() {
        assert_eq!(ask("/no/such/program"), None);
        assert_eq!(ask("false"), None);
        assert_eq!(ask("echo"), None, "not what systemctl prints");
    }
}
