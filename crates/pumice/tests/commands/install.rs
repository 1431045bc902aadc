//! Installed files other than the program: manual pages, completions, the systemd unit; and `make install`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::common::server::text;
use crate::common::{Outcome, fails, in_time, needs, pumice, succeed};

/// Returns the path of a file of the project.
fn project(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// Returns the commands listed by `pumice --help`, except `help`, which has no page.
fn commands() -> Vec<String> {
    let help = succeed(env!("CARGO_BIN_EXE_pumice"), &["--help"]);
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let listed = listed.take_while(|line| !line.is_empty()).filter(|line| !line.starts_with("    "));
    let names = listed.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help");
    names.map(str::to_string).collect()
}

#[test]
fn help_is_a_command_too() {
    let printed = |arguments: &[&str]| succeed(env!("CARGO_BIN_EXE_pumice"), arguments);
    assert_eq!(printed(&["help"]), printed(&["--help"]));
    for command in commands() {
        assert_eq!(printed(&["help", &command]), printed(&[&command, "--help"]), "{command}");
    }
    let run = pumice(&["help", "frobnicate"]);
    assert_eq!((run.code, run.stderr.lines().count()), (Some(2), 1), "{run:?}");
}

#[test]
fn a_manual_page_for_each_command() -> Outcome {
    let folder = tempfile::tempdir()?;
    let pages = folder.path().join("share/man/man1");
    let run = pumice(&["man", &text(&pages)]);
    assert_eq!(run.code, Some(0), "{run:?}");
    let commands = commands();
    assert!(commands.len() > 12 && commands.contains(&"set-capacity".to_string()), "{commands:?}");
    let mut wanted: BTreeSet<String> = commands.iter().map(|command| format!("pumice-{command}.1")).collect();
    wanted.extend(["pumice.1".to_string(), "pumice.toml.5".to_string()]);
    // Commands with commands of their own.
    let below = ["list", "format", "sfx", "sfx-change-cap", "sfx-set-feature"];
    wanted.extend(below.map(|command| format!("pumice-sfx-nvme-{command}.1")));
    wanted.extend(["compare", "scorecard"].map(|command| format!("pumice-bench-{command}.1")));
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(&pages)? {
        found.insert(entry?.file_name().into_string().map_err(|name| format!("{name:?}"))?);
    }
    assert_eq!(found, wanted);
    let (groff, man) = (needs(&["groff"]), needs(&["man"]));
    for page in &found {
        let page = text(&pages.join(page));
        if groff {
            let run = in_time("groff", &["-man", "-ww", "-Tutf8", "-z", &page]);
            assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{page}");
        }
        if man {
            let run = in_time("man", &["--warnings=w", "-l", &page]);
            assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{page}");
            assert!(run.stdout.contains("NAME") && run.stdout.contains("SEE ALSO"), "{run:?}");
        }
    }
    let file = folder.path().join("file");
    fs::write(&file, "")?;
    fails(&pumice(&["man", &text(&file.join("pages"))]), &["cannot make this directory"]);
    assert_eq!(pumice(&["man"]).code, Some(2));
    Ok(())
}

#[test]
fn completions_that_the_shells_take() -> Outcome {
    let folder = tempfile::tempdir()?;
    for shell in ["bash", "zsh", "fish"] {
        let run = pumice(&["completions", shell]);
        assert_eq!(run.code, Some(0), "{run:?}");
        assert!(commands().iter().all(|command| run.stdout.contains(command)), "{shell}");
        let script = folder.path().join(shell);
        fs::write(&script, run.stdout)?;
        if needs(&[shell]) {
            succeed(shell, &["-n", &text(&script)]);
        }
    }
    // Simulates the tab key in bash.
    let asks = format!(
        "source {}; COMP_WORDS=(pumice set-ca); COMP_CWORD=1; _pumice pumice set-ca pumice; echo ${{COMPREPLY[@]}}",
        text(&folder.path().join("bash"))
    );
    if needs(&["bash"]) {
        assert_eq!(succeed("bash", &["-c", &asks]).trim(), "set-capacity");
    }
    for wrong in [&["completions"][..], &["completions", "cmd.exe"], &["completions", "bash", "zsh"]] {
        let run = pumice(wrong);
        assert_eq!((run.code, run.stderr.lines().count()), (Some(2), 1), "{run:?}");
    }
    Ok(())
}

/// Returns the values of a key in a systemd unit.
fn values<'a>(unit: &'a str, key: &str) -> Vec<&'a str> {
    unit.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('=')).collect()
}

#[test]
fn the_unit_fits_the_program() -> Outcome {
    let unit = fs::read_to_string(project("deploy/systemd/pumice.service"))?;
    assert_eq!(values(&unit, "ExecStart"), ["/usr/bin/pumice serve --config /etc/pumice/pumice.toml"]);
    assert_eq!(values(&unit, "Type"), ["notify"]);
    // A panic ends the server by SIGABRT; `on-failure` restarts it.
    assert_eq!(values(&unit, "Restart"), ["on-failure"]);
    // The directory that `pumice status` searches first, and the directories of the sockets and drives in the
    // example.
    let runtime = format!("/run/{}", values(&unit, "RuntimeDirectory").join(" "));
    if std::env::var_os("PUMICE_RUNTIME_DIR").is_none() {
        assert_eq!(ask::runtime_dirs().first(), Some(&PathBuf::from(&runtime)));
    }
    let example = fs::read_to_string(project("deploy/pumice.toml"))?;
    let state = format!("/var/lib/{}", values(&unit, "StateDirectory").join(" "));
    assert!(example.contains(&format!("\"unix:{runtime}/")) && example.contains(&format!("\"{state}/")));
    Ok(())
}

#[test]
fn systemd_takes_the_unit() -> Outcome {
    if !needs(&["systemd-analyze"]) {
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("pumice.service");
    let unit = fs::read_to_string(project("deploy/systemd/pumice.service"))?;
    fs::write(&path, unit.replace("/usr/bin/pumice", env!("CARGO_BIN_EXE_pumice")))?;
    let verify = ["verify", "--man=no", "--recursive-errors=no"];
    let run = in_time("systemd-analyze", &[&verify[..], &[&text(&path)]].concat());
    if run.code != Some(0) && run.stderr.contains("unrecognized option") {
        eprintln!("skipped: this systemd-analyze is too old");
        return Ok(());
    }
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{run:?}");
    // `systemd 257 (257.8-1~deb13u2)`, for example.
    let printed = succeed("systemd-analyze", &["--version"]);
    let version =
        printed.split_whitespace().nth(1).and_then(|word| word.parse::<u32>().ok()).ok_or("no version")?;
    for name in ["pumice.socket", "pumice-attach.service", "pumice-attach@.service"] {
        // Older ones complain.
        let is_newer = |line: &&str| {
            [("RestartSteps=", 254), ("RestartMaxDelaySec=", 254), ("SurviveFinalKillSignal=", 255)]
                .iter()
                .any(|(key, since)| line.starts_with(key) && version < *since)
        };
        let unit = fs::read_to_string(project("deploy/systemd").join(name))?;
        let unit: Vec<&str> = unit.lines().filter(|line| !is_newer(line)).collect();
        let unit = unit.join("\n");
        let other = folder.path().join(name.replace('@', "@drive"));
        fs::write(&other, unit.replace("/usr/bin/pumice", env!("CARGO_BIN_EXE_pumice")))?;
        let run = in_time("systemd-analyze", &[&verify[..], &[&text(&other)]].concat());
        assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{name}: {run:?}");
    }
    // The verification detects errors.
    fs::write(&path, unit.replace("Type=notify", "Type=notfy"))?;
    let run = in_time("systemd-analyze", &[&verify[..], &[&text(&path)]].concat());
    assert!(run.stderr.contains("notfy"), "{run:?}");
    // Exposure of at most 2.0 on a scale of 0 to 10.
    fs::write(&path, &unit)?;
    let security = ["security", "--offline=true", "--threshold=20", "--no-pager"];
    let run = in_time("systemd-analyze", &[&security[..], &[&text(&path)]].concat());
    assert_eq!(run.code, Some(0), "{}", run.stdout);
    Ok(())
}

#[test]
fn make_install_puts_everything_in_its_place() -> Outcome {
    if !needs(&["make"]) {
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let root = project(".");
    let install = |more: &[&str]| {
        let dest = format!("DESTDIR={}", text(folder.path()));
        let all = ["-s", "-C", &text(&root), "install", &dest].map(str::to_string);
        let all: Vec<String> =
            all.into_iter().chain(more.iter().map(|argument| argument.to_string())).collect();
        in_time("make", &all)
    };
    let program = format!("PROGRAM={}", env!("CARGO_BIN_EXE_pumice"));
    let run = install(&["PREFIX=/opt/x", &program]);
    assert_eq!(run.code, Some(0), "{run:?}");
    let at = |path: &str| folder.path().join(path);
    for path in [
        "opt/x/bin/pumice",
        "opt/x/share/man/man1/pumice.1",
        "opt/x/share/man/man1/pumice-serve.1",
        "opt/x/share/man/man5/pumice.toml.5",
        "opt/x/share/bash-completion/completions/pumice",
        "opt/x/share/zsh/site-functions/_pumice",
        "opt/x/share/fish/vendor_completions.d/pumice.fish",
        "opt/x/lib/systemd/system/pumice.service",
        "opt/x/lib/systemd/system/pumice.socket",
        "opt/x/lib/systemd/system/pumice-attach.service",
        "opt/x/lib/systemd/system/pumice-attach@.service",
        "opt/x/lib/sysusers.d/pumice.conf",
        "opt/x/lib/udev/rules.d/61-pumice.rules",
        "opt/x/share/doc/pumice/examples/pumice.toml",
        "opt/x/share/doc/pumice/README.md",
        "opt/x/share/doc/pumice/docs/how-to/service.md",
        "opt/x/share/doc/pumice/docs/schema/status.json",
        "opt/x/share/doc/pumice/deploy/ceph/README.md",
        "opt/x/share/doc/pumice/lab/README.md",
        "opt/x/share/pumice/docs/README.md",
        "opt/x/share/pumice/deploy/ceph/mgr/pumice/module.py",
        "opt/x/share/pumice/deploy/gluster/lab.sh",
        "opt/x/share/pumice/deploy/prometheus/pumice.rules.yml",
        "opt/x/share/pumice/deploy/grafana/pumice.json",
        "opt/x/share/pumice/deploy/systemd/pumice.service",
        "opt/x/share/pumice/deploy/udev/61-pumice.rules",
    ] {
        assert!(fs::metadata(at(path))?.len() > 0, "{path}");
    }
    let unit = fs::read_to_string(at("opt/x/lib/systemd/system/pumice.service"))?;
    assert_eq!(values(&unit, "ExecStart"), ["/opt/x/bin/pumice serve --config /etc/pumice/pumice.toml"]);
    assert!(!at("etc").exists(), "nobody's configuration is touched");
    let said = succeed(&text(&at("opt/x/bin/pumice")), &["--version"]);
    assert!(said.starts_with("pumice "), "{said}");
    // The program was not built.
    let run = install(&["PROGRAM=/nonexistent/pumice"]);
    assert_ne!(run.code, Some(0));
    assert!((run.stdout.clone() + &run.stderr).contains("make build"), "{run:?}");
    // Uninstalls again.
    let dest = format!("DESTDIR={}", text(folder.path()));
    succeed("make", &["-s", "-C", &text(&root), "uninstall", &dest, "PREFIX=/opt/x"]);
    let left = succeed("find", &[&text(folder.path()), "!", "-type", "d"]);
    assert_eq!(left, "");
    Ok(())
}

#[test]
fn packages_hold_what_make_install_installs() -> Outcome {
    if !needs(&["make", "dpkg-deb", "objdump", "strip"]) {
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let program = format!("PROGRAM={}", env!("CARGO_BIN_EXE_pumice"));
    let pack = |name: &str| -> Vec<PathBuf> {
        let out = folder.path().join(name);
        let packed = [&program, "STATIC=", &text(&project("scripts/dist.sh")), &text(&out)];
        succeed("env", &packed).lines().map(PathBuf::from).collect()
    };
    let packages = pack("first");
    let again = pack("second");
    assert_eq!(packages.len(), again.len());
    for (one, other) in packages.iter().zip(&again) {
        assert!(fs::read(one)? == fs::read(other)?, "{one:?} differs when it is packed again");
    }
    let of_kind = |end: &str| packages.iter().find(|path| text(path).ends_with(end)).ok_or(end.to_string());
    let (tarball, package) = (of_kind("-linux-gnu.tar.gz")?, of_kind(".deb")?);
    if needs(&["cargo-cyclonedx"]) {
        let list: serde_json::Value = serde_json::from_slice(&fs::read(of_kind(".cdx.json")?)?)?;
        let names = list["components"].as_array().ok_or("components")?.iter().map(|it| it["name"].as_str());
        let names: Vec<&str> = names.flatten().collect();
        for library in ["drive", "zstd-sys", "rustls"] {
            assert!(names.contains(&library), "{library} in {names:?}");
        }
        assert!(
            !list.to_string().contains(&text(&fs::canonicalize(project("."))?)),
            "a place of this machine"
        );
    }
    let at = |path: &str| text(&folder.path().join(path));
    succeed("dpkg-deb", &["-x", &text(package), &at("deb")]);
    fs::create_dir(at("tar"))?;
    succeed("tar", &["-xzf", &text(tarball), "-C", &at("tar"), "--strip-components=1"]);
    let dest = format!("DESTDIR={}", at("made"));
    succeed("make", &["-s", "-C", &text(&project(".")), "install", &dest, &program, "PREFIX=/usr"]);
    let files = |root: &str| -> BTreeSet<String> {
        let found = succeed("find", &[root, "-type", "f", "-printf", "%P\n"]);
        let plain = |path: &str| match path.starts_with("share/man/") {
            true => path.trim_end_matches(".gz").to_string(),
            false => path.to_string(),
        };
        found.lines().map(plain).collect()
    };
    let made = files(&at("made/usr"));
    let more: Vec<String> = files(&at("deb/usr")).difference(&made).cloned().collect();
    assert_eq!(more, ["share/doc/pumice/changelog.gz", "share/doc/pumice/copyright"]);
    let more: Vec<String> = files(&at("tar")).difference(&made).cloned().collect();
    assert_eq!(more, ["CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT", "README.md"]);
    let version = succeed(env!("CARGO_BIN_EXE_pumice"), &["--version"]);
    for program in ["deb/usr/bin/pumice", "tar/bin/pumice"] {
        assert_eq!(succeed(&at(program), &["--version"]), version);
    }
    succeed("dpkg-deb", &["-e", &text(package), &at("control")]);
    let prerm = fs::read_to_string(at("control/prerm"))?;
    let (devices, servers) = (prerm.find("'pumice-attach@*.service'"), prerm.find("pumice.service"));
    assert!(devices.is_some() && devices < servers, "devices are detached before servers stop: {prerm}");
    let depends = succeed("dpkg-deb", &["-f", &text(package), "Depends"]);
    assert!(depends.starts_with("libc6 (>= 2."), "{depends}");
    Ok(())
}

/// Returns the instructions of a container definition with their arguments. Continued lines are joined.
fn instructions(definition: &str) -> Vec<(String, String)> {
    let joined = definition.replace("\\\n", " ");
    let lines = joined.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let (instruction, rest) = line.split_once(' ').unwrap_or((line, ""));
            (instruction.to_string(), rest.trim().to_string())
        })
        .collect()
}

/// Builds the image where that is possible. Elsewhere only checks its definition.
#[test]
fn a_container_image() -> Outcome {
    let definition = project("deploy/container/Containerfile");
    let all = instructions(&fs::read_to_string(&definition)?);
    let of = |name: &str| -> Vec<&str> {
        all.iter().filter(|(instruction, _)| instruction == name).map(|(_, rest)| rest.as_str()).collect()
    };
    let known =
        ["FROM", "RUN", "COPY", "WORKDIR", "USER", "VOLUME", "EXPOSE", "STOPSIGNAL", "ENTRYPOINT", "CMD"];
    assert!(all.iter().all(|(instruction, _)| known.contains(&instruction.as_str())), "{all:?}");
    let ignored = fs::read_to_string(project(".dockerignore"))?;
    for copied in of("COPY").iter().filter(|rest| !rest.starts_with("--from=")) {
        let (sources, _) = copied.rsplit_once(' ').ok_or("COPY without a target")?;
        for source in sources.split(' ') {
            assert!(project(source).exists(), "{source}");
            assert!(
                ignored.lines().any(|line| line == format!("!{source}")),
                "{source} is not sent to the builder"
            );
        }
    }
    // Versions are explicit, the server is not root, and its command is one of this program.
    assert!(of("FROM").iter().all(|image| image.contains(':') && !image.contains(":latest")));
    assert_eq!(of("USER"), ["pumice"]);
    let [entry] = of("ENTRYPOINT")[..] else { return Err("one entry point".into()) };
    assert_eq!(serde_json::from_str::<Vec<String>>(entry)?, ["/usr/bin/pumice"]);
    let [command] = of("CMD")[..] else { return Err("one command".into()) };
    let command: Vec<String> = serde_json::from_str(command)?;
    let command: Vec<&str> = command.iter().map(String::as_str).collect();
    let run = pumice(&command);
    assert!(run.stderr.contains("/etc/pumice/pumice.toml") && run.code == Some(1), "{run:?}");
    let works = |builder: &&str| which(builder) && in_time(builder, &["info"]).code == Some(0);
    let Some(builder) = ["podman", "docker"].into_iter().find(works) else {
        eprintln!("skipped: no container engine works here: no image is built");
        return Ok(());
    };
    let built = std::process::Command::new(builder)
        .args(["build", "-q", "-f", &text(&definition), &text(&project("."))])
        .output()?;
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let image = String::from_utf8(built.stdout)?;
    let version = succeed(builder, &["run", "--rm", image.trim(), "--version"]);
    assert_eq!(version, succeed(env!("CARGO_BIN_EXE_pumice"), &["--version"]));
    Ok(())
}

fn which(program: &str) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|at| at.join(program).is_file()))
}
