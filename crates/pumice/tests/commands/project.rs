//! The README, `scripts/deps.sh` with a package manager that installs nothing, and numbers given to
//! `scripts/bench.sh kernel`.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::server::text;
use crate::common::{Outcome, needs, succeed};

/// Programs that the script itself uses.
const TOOLS: [&str; 15] = [
    "bash", "cut", "dirname", "env", "head", "id", "install", "mktemp", "rm", "sed", "sort", "tail", "tar",
    "tr", "uname",
];

/// Makes a program of one line for the shell.
fn program(path: &Path, line: &str) -> Outcome {
    fs::write(path, format!("#!/bin/sh\n{line}\n"))?;
    Ok(fs::set_permissions(path, Permissions::from_mode(0o755))?)
}

/// Runs the script on a machine that has little more than these tools. Returns its output and the calls of
/// `apt-get`, in order.
fn run(arguments: &[&str]) -> Outcome<(Vec<String>, Option<i32>)> {
    let folder = tempfile::tempdir()?;
    let bin = folder.path().join("bin");
    let home = folder.path().join("home/.cargo/bin");
    fs::create_dir(&bin)?;
    fs::create_dir_all(&home)?;
    for tool in TOOLS {
        let found = succeed("sh", &["-c", &format!("command -v {tool}")]);
        symlink(found.trim(), bin.join(tool))?;
    }
    let transcript = folder.path().join("transcript");
    program(&bin.join("apt-get"), &format!("echo \"apt-get $*\" >> {}", text(&transcript)))?;
    program(&bin.join("sudo"), "shift; exec \"$@\"")?;
    // Without one the script would fetch Rust.
    program(&home.join("cargo"), "echo cargo 999.0.0")?;
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/deps.sh");
    let out = File::options().create(true).append(true).open(&transcript)?;
    let mut command = Command::new(bin.join("bash"));
    command.arg(script).args(arguments).env_clear().env("PATH", &bin).env("HOME", folder.path().join("home"));
    let status = command.stdin(Stdio::null()).stderr(out.try_clone()?).stdout(out).status()?;
    Ok((fs::read_to_string(&transcript)?.lines().map(str::to_string).collect(), status.code()))
}

#[test]
fn all_packages_are_listed_before_the_first_is_installed() -> Outcome {
    if !needs(&TOOLS) {
        return Ok(());
    }
    let (lines, code) = run(&[])?;
    assert_eq!(code, Some(0), "{lines:#?}");
    let list = lines[0].strip_prefix("deps: missing, installed now").ok_or_else(|| format!("{lines:#?}"))?;
    let listed: Vec<&str> = list.split_once(": ").ok_or("a list")?.1.split(", ").collect();
    let calls: Vec<&String> = lines.iter().filter(|line| line.starts_with("apt-get ")).collect();
    assert!(calls.iter().any(|call| call.contains(" install ")), "{lines:#?}");
    let installed = calls.iter().filter_map(|call| call.split_once(" --no-install-recommends "));
    let installed: Vec<&str> = installed.flat_map(|(_, packages)| packages.split(' ')).collect();
    assert!(installed.contains(&"build-essential") && installed.contains(&"nbdkit"), "{lines:#?}");
    assert!(installed.iter().all(|package| listed.contains(package)), "{lines:#?}");
    Ok(())
}

#[test]
fn a_list_installs_nothing() -> Outcome {
    if !needs(&TOOLS) {
        return Ok(());
    }
    for (arguments, has_all) in [(&["--list"][..], true), (&["--list", "demo"], false)] {
        let (lines, code) = run(arguments)?;
        assert_eq!((code, lines.len()), (Some(0), 1), "{lines:#?}");
        assert!(lines[0].starts_with("deps: missing: build-essential, curl, "), "{lines:#?}");
        assert_eq!(lines[0].contains("nbdkit"), has_all, "{lines:#?}");
    }
    Ok(())
}

/// What comes next in the script is that there is no program.
#[test]
fn numbers_of_rounds_and_minutes_are_decimal() {
    if !needs(&["bash"]) {
        return;
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/bench.sh");
    let run = |arguments: &[&str]| {
        let run = Command::new("bash")
            .args([script, "kernel"])
            .args(arguments)
            .env("PUMICE", "/nonexistent/pumice")
            .output();
        run.map(|it| (it.status.code(), String::from_utf8_lossy(&it.stderr).into_owned())).expect("it ran")
    };
    for accepted in
        [&[][..], &["08"], &["against"], &["against", "08"], &["against", "09.5"], &["against", ".5"]]
    {
        let said = "/nonexistent/pumice is not there: make build first\n".to_string();
        assert_eq!(run(accepted), (Some(1), said), "{accepted:?}");
    }
    for refused in [&["x"][..], &["1.5"], &["against", "."], &["against", "1.2.3"]] {
        let said = format!("bench kernel: expected a number, not '{}'\n", refused[refused.len() - 1]);
        assert_eq!(run(refused), (Some(2), said), "{refused:?}");
    }
}

/// Names in a directory of the project, without extensions.
fn names(folder: &str) -> Outcome<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(folder))? {
        names.push(entry?.path().file_stem().ok_or("a name")?.to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

#[test]
fn the_readme_lists_all_crates_and_the_index_all_schemas() -> Outcome {
    let readme = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md"))?;
    let crates = readme.split("\n## Crates\n").nth(1).and_then(|rest| rest.split("\n## ").next());
    let rows = crates.ok_or("the section")?.lines().filter_map(|line| line.strip_prefix("| `"));
    let mut listed: Vec<&str> = rows.filter_map(|row| row.split('`').next()).collect();
    listed.sort_unstable();
    assert_eq!(listed, names("crates")?);
    let index = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/README.md"))?;
    let schemas = index.lines().find(|line| line.contains("(schema/)")).ok_or("the schemas")?;
    for schema in names("docs/schema")? {
        assert!(schemas.contains(&format!("`{schema}`")), "{schema}: {schemas}");
    }
    Ok(())
}
