//! Information of a disk about itself, through `smartctl --json` (smartmontools) if it is installed.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde::Deserialize;

use status::DeviceReport;

/// A disk that takes longer to answer counts as unknown.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Interval of checks for the end of the program.
const POLL: Duration = Duration::from_millis(20);
/// Longest output read, in bytes. A longer one is not the answer of a disk.
const OUTPUT_MAX_BYTES: u64 = 1 << 20;
/// Directories of administrators' programs, which are not always on the path of a service.
const DIRS: [&str; 3] = ["/usr/sbin", "/usr/local/sbin", "/sbin"];

/// The program.
#[derive(Clone, Debug)]
pub(crate) struct Smartctl {
    program: PathBuf,
    timeout: Duration,
}

/// The parts of its answer that are used.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Answer {
    temperature: Temperature,
    power_on_time: PowerOnTime,
    smart_status: SmartStatus,
    nvme_smart_health_information_log: NvmeLog,
    endurance_used: Endurance,
    scsi_percentage_used_endurance_indicator: Option<f64>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Temperature {
    current: Option<f64>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct PowerOnTime {
    hours: Option<u64>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct SmartStatus {
    passed: Option<bool>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct NvmeLog {
    percentage_used: Option<f64>,
    critical_warning: Option<u32>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Endurance {
    current_percent: Option<f64>,
}

impl Smartctl {
    /// Finds the installed program.
    pub(crate) fn find() -> Option<Smartctl> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let dirs = std::env::split_paths(&path).filter(|dir| dir.is_absolute());
        let mut programs = dirs.chain(DIRS.map(PathBuf::from)).map(|dir| dir.join("smartctl"));
        let program = programs.find(|program| program.is_file())?;
        Some(Smartctl { program, timeout: TIMEOUT })
    }

    /// Asks a disk, and adds what sysfs did not report.
    pub(super) fn complete(&self, device: &mut DeviceReport) {
        let Some(answer) = self.ask(&Path::new("/dev").join(&device.name)) else { return };
        let nvme = answer.nvme_smart_health_information_log;
        device.temperature_celsius = device.temperature_celsius.or(answer.temperature.current);
        device.power_on_hours = answer.power_on_time.hours;
        device.smart_passed = answer.smart_status.passed;
        device.critical_warning = nvme.critical_warning;
        device.percentage_used = nvme
            .percentage_used
            .or(answer.endurance_used.current_percent)
            .or(answer.scsi_percentage_used_endurance_indicator);
    }

    /// Returns its answer about a disk. A sleeping disk is not woken.
    fn ask(&self, disk: &Path) -> Option<Answer> {
        let mut child = Command::new(&self.program)
            .args(["--json", "--all", "--nocheck=standby"])
            .arg(disk)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let stdout = child.stdout.take()?;
        let reading = std::thread::spawn(move || {
            let mut answer = Vec::new();
            let mut limited = stdout.take(OUTPUT_MAX_BYTES);
            limited.read_to_end(&mut answer).map(|_| answer)
        });
        let since = Instant::now();
        // The exit status is ignored: it describes the disk, and the answer has the same in detail.
        while matches!(child.try_wait(), Ok(None)) {
            if since.elapsed() > self.timeout {
                // If it cannot be killed, nothing can be done.
                let _ = child.kill();
                let _ = child.wait();
                return None;
            }
            std::thread::sleep(POLL);
        }
        let answer = reading.join().ok()?.ok()?;
        serde_json::from_slice(&answer).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    type Outcome = Result<(), Box<dyn std::error::Error>>;

    /// Returns what is known about a disk if a program with this text answers for `smartctl`.
    fn completed(script: &str, timeout: Duration) -> Result<DeviceReport, Box<dyn std::error::Error>> {
        let dir = tempfile::tempdir()?;
        let program = dir.path().join("smartctl");
        // Written by another process: a file that this one had open for writing could not be executed while a
        // fork of another test still has it open.
        let mut writing = Command::new("sh")
            .args(["-c", "cat > \"$0\" && chmod 700 \"$0\""])
            .arg(&program)
            .stdin(Stdio::piped())
            .spawn()?;
        writing.stdin.take().ok_or("no pipe")?.write_all(format!("#!/bin/sh\n{script}\n").as_bytes())?;
        assert!(writing.wait()?.success());
        let mut device = DeviceReport { name: "nvme0n1".into(), ..DeviceReport::default() };
        Smartctl { program, timeout }.complete(&mut device);
        Ok(device)
    }

    #[test]
    fn an_nvme_answer() -> Outcome {
        // The keys of smartctl 7.3 for NVMe. Exit status 64 reports old errors only.
        let device = completed(
            r#"[ "$4" = /dev/nvme0n1 ] || exit 1
            cat <<'END'
            {"temperature": {"current": 38}, "power_on_time": {"hours": 4711}, "smart_status": {"passed": true},
             "nvme_smart_health_information_log": {"critical_warning": 0, "percentage_used": 8, "host_reads": 1}}
END
            exit 64"#,
            TIMEOUT,
        )?;
        assert_eq!(device.temperature_celsius, Some(38.0));
        assert_eq!((device.percentage_used, device.power_on_hours), (Some(8.0), Some(4711)));
        assert_eq!((device.smart_passed, device.critical_warning), (Some(true), Some(0)));
        Ok(())
    }

    #[test]
    fn no_answer_is_unknown() -> Outcome {
        let unknown = DeviceReport { name: "nvme0n1".into(), ..DeviceReport::default() };
        assert_eq!(completed("exit 2", TIMEOUT)?, unknown);
        assert_eq!(completed("echo no JSON", TIMEOUT)?, unknown);
        assert_eq!(completed("echo '{\"temperature\": 3}'", TIMEOUT)?, unknown);
        assert_eq!(completed("echo '{}'", TIMEOUT)?, unknown);
        assert_eq!(completed("exec sleep 60", Duration::from_millis(50))?, unknown);
        let missing = Smartctl { program: "/no/such/smartctl".into(), timeout: TIMEOUT };
        let mut device = unknown.clone();
        missing.complete(&mut device);
        assert_eq!(device, unknown);
        Ok(())
    }
}
