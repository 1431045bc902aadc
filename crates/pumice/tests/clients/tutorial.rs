//! The commands of `docs/tutorial/ext4.md` and of the README, run as they are pasted. Only places are
//! replaced: paths, the device, the HTTP port, and the user `pumice`, whom this machine may not have.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::common::server::wait_until;
use crate::common::{Drive, Outcome, Run, Server, in_time, needs, sample, succeed};

/// Commands that are not run here, with what the test does in their place.
const NOT_RUN: [(&str, Instead); 14] = [
    // The program is that of the tests, installed by `make install`.
    ("apt install ./pumice_*.deb", Instead::Nothing),
    ("make build", Instead::Nothing),
    // It would make a user.
    ("systemd-sysusers /usr/lib/sysusers.d/pumice.conf", Instead::Nothing),
    // systemd does not run in every container.
    ("systemctl daemon-reload", Instead::Nothing),
    ("systemctl enable --now pumice", Instead::Serve),
    ("journalctl -u pumice", Instead::Nothing),
    // The next command is that of the unit.
    ("systemctl enable --now pumice-attach@var-lib-pumice-drive.service", Instead::Nothing),
    ("systemctl start srv-data.mount", Instead::Mount),
    // /etc/fstab stays as it is.
    ("systemctl enable --now fstrim.timer", Instead::Nothing),
    ("systemctl reload prometheus", Instead::CheckPrometheus),
    ("systemctl restart pumice", Instead::Restart),
    ("systemctl stop srv-data.mount", Instead::Nothing),
    ("systemctl disable --now pumice-attach@var-lib-pumice-drive.service", Instead::Nothing),
    ("systemctl disable --now pumice", Instead::Nothing),
];
/// Commands whose output must contain the lines shown.
const SAME_OUTPUT: [&str; 5] = [
    "pumice plan --ratio",
    "runuser -u pumice -- pumice create",
    "nbdinfo",
    "pumice set-size",
    "pumice set-capacity",
];
/// Commands whose output must contain the labels of the lines shown.
const SAME_LABELS: [&str; 3] = ["pumice doctor", "pumice status", "pumice check"];

/// Logical capacity of the drive once it has grown.
const GROWN_BYTES: u64 = 800 << 20;

/// Returns whether this process may grow a mounted ext4, for which root is not enough: many containers lack
/// the capability (`linux/capability.h`).
fn may_resize() -> bool {
    const CAP_SYS_RESOURCE: u32 = 24;
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    effective.is_some_and(|mask| (mask >> CAP_SYS_RESOURCE) & 1 == 1)
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Instead {
    Nothing,
    Serve,
    Mount,
    Restart,
    CheckPrometheus,
}

/// A fenced block of a page: its language and its text.
struct Block {
    language: String,
    text: String,
}

fn blocks(page: &str) -> Vec<Block> {
    let parts = page.split("\n```").collect::<Vec<_>>();
    let block = |part: &&str| {
        let (language, text) = part.split_once('\n').unwrap_or((part, ""));
        Block { language: language.to_string(), text: format!("{text}\n") }
    };
    // Every second part is between two blocks.
    parts.iter().skip(1).step_by(2).map(block).collect()
}

/// A command of a page, on one line and without its comment, and the output shown for it.
struct Shown {
    command: String,
    output: Vec<String>,
}

fn without_comment(line: &str) -> &str {
    line.split("  #").next().unwrap_or_default().trim()
}

impl Block {
    fn commands(&self) -> Vec<Shown> {
        let mut found: Vec<Shown> = Vec::new();
        let mut continues = false;
        for line in self.text.lines() {
            let command = match self.language.as_str() {
                "console" => line.strip_prefix("# "),
                _ => Some(line),
            };
            match (command.map(without_comment), found.last_mut()) {
                (Some(more), Some(last)) if continues => last.command += &format!(" {more}"),
                (Some(command), _) => {
                    found.push(Shown { command: command.to_string(), output: Vec::new() });
                }
                (None, Some(last)) => last.output.push(line.trim_end().to_string()),
                (None, None) => panic!("output before a command: {line}"),
            }
            continues = command.is_some_and(|command| without_comment(command).ends_with("&&"));
        }
        found.retain(|shown| !shown.command.is_empty());
        found
    }
}

/// Label of a line of output: its first words.
fn label(line: &str) -> &str {
    line.trim().split(':').next().unwrap_or_default().split("  ").next().unwrap_or_default()
}

/// The machine of the tutorial, in a directory.
struct Machine {
    /// Gives the directory and runs the server; its own drive is not used.
    drive: Drive,
    server: Option<Server>,
    http: String,
    device: String,
    uuid: String,
}

impl Machine {
    fn new() -> Outcome<Machine> {
        let drive = Drive::create(&["--size", "32M"]);
        for folder in ["run/pumice", "etc/prometheus", "var/lib", "srv/old-data"] {
            fs::create_dir_all(drive.folder().join(folder))?;
        }
        fs::write(drive.file("srv/old-data/data"), sample(7, 4 << 20))?;
        Ok(Machine {
            drive,
            server: None,
            http: "127.0.0.1:0".to_string(),
            device: "/dev/loop0".to_string(),
            uuid: String::new(),
        })
    }

    /// Replaces the places of the page.
    fn here(&self, page: &str) -> String {
        let mut text = page.replace("/dev/loop0", &self.device).replace("127.0.0.1:9841", &self.http);
        for place in ["/srv/", "/var/lib/pumice", "/etc/", "/run/pumice", "/usr/share/", "scan.json"] {
            let separator = if place.starts_with('/') { "" } else { "/" };
            text = text.replace(place, &format!("{}{separator}{place}", self.drive.folder().display()));
        }
        text.replace("PREFIX=/usr", &format!("PREFIX={}", self.drive.file("usr")))
            .replace("-o pumice -g pumice", "-o root -g root")
            .replace("-u pumice", "-u root")
    }

    /// Runs commands as root would, from the directory of the project.
    fn shell(&self, commands: &str) -> Run {
        let project = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
        let path = format!(
            "PATH={}:{}:/usr/local/sbin:/usr/sbin:/sbin",
            self.drive.file("usr/bin"),
            std::env::var("PATH").unwrap_or_default()
        );
        let program = format!("PROGRAM={}", env!("CARGO_BIN_EXE_pumice"));
        let runtime = format!("PUMICE_RUNTIME_DIR={}", self.drive.runtime_dir().display());
        let script = format!("cd {project} && {commands}");
        in_time("env", &[&path, &program, &runtime, "sh", "-e", "-c", &script])
    }

    fn succeed(&self, commands: &str) -> String {
        let run = self.shell(&self.here(commands));
        assert_eq!(run.code, Some(0), "{commands}: {run:?}");
        run.stdout
    }

    fn serve(&mut self) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pumice"));
        command.args(["serve", "--config", &self.drive.file("etc/pumice/pumice.toml")]);
        let server = self.drive.start(command, 1);
        let address = server.http().trim_start_matches("http://").trim_end_matches("/metrics");
        self.http = address.to_string();
        self.server = Some(server);
    }

    fn stop(&mut self) {
        let server = self.server.take().expect("it runs");
        assert!(server.stop().success(), "{}", self.drive.log());
        let log = self.drive.log();
        for shown in
            ["stopping: answering what is in flight; a second signal stops at once", "event=\"closed\""]
        {
            assert!(log.contains(shown), "{shown}: {log}");
        }
    }

    fn is_mounted(&self) -> bool {
        in_time("findmnt", &[self.drive.file("srv/data")]).code == Some(0)
    }

    fn mount(&self) {
        self.succeed("mount --fstab /etc/fstab /srv/data");
    }

    fn unmount(&self) {
        // A process that examines new mounts may still be using it.
        wait_until("unmounted", || {
            !self.is_mounted() || self.shell(&self.here("umount /srv/data")).code == Some(0)
        });
    }

    fn attach(&mut self) {
        let printed = self.succeed("pumice attach --by loop /var/lib/pumice/drive");
        self.device = printed.trim().to_string();
    }

    fn detach(&self) {
        self.unmount();
        self.succeed("pumice detach /var/lib/pumice/drive");
    }

    fn instead(&mut self, what: Instead) {
        match what {
            Instead::Nothing => {}
            Instead::Serve => self.serve(),
            Instead::Mount => self.mount(),
            // Under the mounted file system.
            Instead::Restart => {
                self.stop();
                self.serve();
                self.succeed("ls -lR /srv/data");
            }
            Instead::CheckPrometheus if needs(&["promtool"]) => {
                self.succeed("promtool check config /etc/prometheus/prometheus.yml");
            }
            Instead::CheckPrometheus => {}
        }
    }

    /// Writes the files that the page shows.
    fn write(&self, block: &Block) -> Outcome {
        let text = self.here(&block.text);
        if text.contains("[[drive]]") {
            // In place of the installed example, which names the same drive.
            fs::write(self.drive.file("etc/pumice/pumice.toml"), text)?;
        } else if text.contains("scrape_configs:") {
            fs::write(self.drive.file("etc/prometheus/prometheus.yml"), text)?;
        } else if text.starts_with("UUID=") {
            let (_, options) = text.split_once(' ').ok_or("a line of fstab")?;
            fs::write(self.drive.file("etc/fstab"), format!("UUID={} {options}", self.uuid))?;
        }
        Ok(())
    }

    /// Runs a command and compares its output with the page.
    fn run(&mut self, shown: &Shown) -> Outcome {
        let command = &shown.command;
        if command.starts_with("pumice attach") {
            self.attach();
            return Ok(());
        }
        if command.starts_with("pumice check") {
            // "While the drive is not served".
            self.detach();
            self.stop();
        }
        if command.starts_with("resize2fs") {
            // Otherwise there would be nothing to grow.
            wait_until("the device has grown", || self.device_bytes() == Some(GROWN_BYTES));
            if !may_resize() {
                eprintln!("skipped: {command}: growing a mounted ext4 needs CAP_SYS_RESOURCE");
                return Ok(());
            }
        }
        let before = command.starts_with("rm -r").then(|| self.available());
        let run = self.shell(&self.here(command));
        // What this machine lacks is no mistake of the page.
        let may_fail = command.starts_with("pumice doctor");
        assert!(run.code == Some(0) || (may_fail && run.code == Some(1)), "{command}: {run:?}");
        let starts_with = |begins: &[&str]| begins.iter().any(|begin| command.starts_with(begin));
        for line in shown.output.iter().filter(|line| !line.is_empty() && *line != "...") {
            let line = self.here(line);
            if starts_with(&SAME_OUTPUT) && !line.starts_with("protocol:") {
                // A terminal shows warnings, too.
                let mut lines = run.stdout.lines().chain(run.stderr.lines());
                let found = lines.any(|found| found.trim_end() == line);
                assert!(found, "{command}: {line:?} is not in\n{}{}", run.stdout, run.stderr);
            } else if starts_with(&SAME_LABELS) {
                // The second word of `doctor` is the check; its verdict depends on the machine.
                let is_doctor = command.starts_with("pumice doctor");
                let name = |line: &str| match is_doctor {
                    true => line.split_whitespace().nth(1).unwrap_or_default().to_string(),
                    false => label(line).to_string(),
                };
                let found = run.stdout.lines().any(|found| name(found) == name(&line));
                assert!(found, "{command}: {line:?} is not in\n{}", run.stdout);
            }
        }
        if command.starts_with("resize2fs") {
            assert!(run.stdout.contains(&format!("is now {} (4k)", GROWN_BYTES / 4096)), "{run:?}");
        }
        if command.starts_with("blkid") {
            let found = run.stdout.split(" UUID=\"").nth(1).and_then(|rest| rest.split('"').next());
            self.uuid = found.ok_or("a UUID")?.to_string();
        }
        if command.starts_with("findmnt") {
            // For the steps that delete.
            let from = self.drive.file("srv/data/include/c++");
            fs::create_dir_all(&from)?;
            fs::write(Path::new(&from).join("data"), sample(3, 16 << 20))?;
            fs::write(self.drive.file("srv/data/more"), sample(4, 8 << 20))?;
            self.succeed("sync --file-system /srv/data");
        }
        if let Some(before) = before {
            self.succeed("sync --file-system /srv/data && fstrim /srv/data");
            assert!(self.available() > before + (4 << 20), "TRIM frees space: {before}");
        }
        Ok(())
    }

    /// Size of the device as the kernel has it.
    fn device_bytes(&self) -> Option<u64> {
        let name = Path::new(&self.device).file_name()?;
        let sectors = fs::read_to_string(Path::new("/sys/class/block").join(name).join("size")).ok()?;
        Some(sectors.trim().parse::<u64>().ok()? * 512)
    }

    fn available(&self) -> u64 {
        let json = self.succeed("pumice capacity --json /var/lib/pumice/drive");
        let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        json["drives"][0]["physical_available_bytes"].as_u64().expect("bytes")
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // After a failure only. The server ends last.
        in_time("umount", &["--lazy".to_string(), self.drive.file("srv/data")]);
        if self.drive.folder().join("run-attach").exists() {
            self.shell(&self.here("pumice detach --force /var/lib/pumice/drive"));
        }
    }
}

fn page(name: &str) -> Outcome<String> {
    Ok(fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name))?)
}

fn usable() -> bool {
    if !super::attach::usable() {
        return false;
    }
    let clients = ["nbdinfo", "curl", "make", "runuser"];
    let disks = ["lsblk", "blkid", "findmnt", "fstrim", "mkfs.ext4", "resize2fs"];
    needs(&clients) && needs(&disks)
}

#[test]
fn the_tutorial_is_true() -> Outcome {
    if !usable() {
        return Ok(());
    }
    let page = page("docs/tutorial/ext4.md")?;
    let mut machine = Machine::new()?;
    let mut not_run = BTreeSet::new();
    for block in blocks(&page) {
        if !["sh", "console"].contains(&block.language.as_str()) {
            machine.write(&block)?;
            continue;
        }
        for shown in block.commands() {
            let instead = NOT_RUN.iter().find(|(command, _)| *command == shown.command);
            match instead {
                Some((command, instead)) => {
                    not_run.insert(*command);
                    // After the check at the end, nothing is left to stop.
                    if machine.server.is_some() || *instead == Instead::Serve {
                        machine.instead(*instead);
                    }
                }
                None => machine.run(&shown)?,
            }
        }
    }
    let listed: BTreeSet<&str> = NOT_RUN.iter().map(|(command, _)| *command).collect();
    assert_eq!(not_run, listed, "listed as not run, and no longer on the page");
    assert!(machine.server.is_none(), "the page ends with everything stopped");
    Ok(())
}

#[test]
fn the_readme_makes_a_block_device() -> Outcome {
    if !usable() {
        return Ok(());
    }
    let page = page("README.md")?;
    let block = blocks(&page).into_iter().find(|block| block.text.starts_with("pumice attach"));
    let machine = Machine::new()?;
    let drive = machine.drive.file("srv/drive");
    let commands: Vec<String> =
        block.ok_or("the block with attach")?.commands().into_iter().map(|it| it.command).collect();
    assert_eq!(commands, ["pumice attach /srv/drive --mkfs ext4", "mount /dev/loop0 /mnt"]);
    let run = machine.drive.pumice(&["create", &drive, "--size", "64M", "--capacity", "96M"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    let run = machine.drive.pumice(&["attach", &drive, "--mkfs", "ext4", "--by", "loop"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    let (device, point) = (run.stdout.trim().to_string(), machine.drive.file("srv/data"));
    fs::create_dir_all(&point)?;
    succeed("mount", &[&device, &point]);
    machine.unmount();
    let run = machine.drive.pumice(&["detach", &device]);
    assert_eq!(run.code, Some(0), "{run:?}");
    Ok(())
}
