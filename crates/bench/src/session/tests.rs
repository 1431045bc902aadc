use std::path::PathBuf;

use super::*;
use crate::data_set::DataSet;
use crate::fio::Fio;
use crate::objects::S3Client;
use crate::suite;

/// A program that writes results as fio does: 64 MiB in half a second for each run.
fn fake_fio(folder: &Path) -> Fio {
    let idle = r#"{"io_bytes": 0, "total_ios": 0, "runtime": 0, "clat_ns": {}}"#;
    let busy = r#"{"io_bytes": 67108864, "total_ios": 512, "runtime": 500, "clat_ns": {"percentile": {"50.000000": 2000, "99.000000": 5000}}}"#;
    let script = format!(
        "#!/bin/sh\nfor word; do case $word in --version) echo fio-3.33; exit;; --enghelp) printf ' nbd\nlibaio\n'; \
         exit;; --output=*) file=${{word#--output=}};; esac; done\n\
         echo 'fio: hello {{\"jobs\": [{{\"error\": 0, \"read\": {idle}, \"write\": {busy}, \"trim\": {idle}}}]}}' \
         >\"$file\"\n"
    );
    let path = folder.join("fio");
    process::tests::script(&path, &script);
    Fio::find(Some(&path)).expect("the fake")
}

fn options(folder: &Path, targets: &[&str], limit: Duration) -> Options {
    Options {
        targets: targets.iter().map(|target| target.parse().expect("a target")).collect(),
        limit,
        size_bytes: Some(64 << 20),
        folder: folder.to_path_buf(),
        program: "/nothing/pumice".into(),
        fio: fake_fio(folder),
        to_steady: false,
        data: Vec::new(),
        s3_client: S3Client::Own,
        command: "pumice bench".to_string(),
    }
}

#[test]
fn what_does_not_fit_is_refused_before_anything_is_made() {
    let folder = tempfile::tempdir().expect("a folder");
    let (stop, suite) = (Stop::default(), suite("quick").expect("a suite"));
    let near = format!("pumice:{}", folder.path().join("new").display());
    for target in ["raw", "pumice", "qcow2", &near] {
        let mut options = options(folder.path(), &[target], Duration::from_secs(3600));
        options.size_bytes = Some(1 << 60);
        let error = Session::new(suite, &options, &stop, &|_| ()).run().expect_err("it does not fit");
        let error = error.to_string();
        assert!(error.contains("takes up to 1") && error.contains(" MiB, and /"), "{error}");
        assert!(error.contains("use --size") && !error.contains("pumice-bench-"), "{error}");
    }
}

#[test]
fn what_a_store_may_take_must_fit_whatever_its_size_says() {
    let folder = tempfile::tempdir().expect("a folder");
    let found = rustix::fs::statvfs(folder.path()).expect("a file system");
    // Others may write meanwhile.
    let size_bytes = found.f_bavail * found.f_frsize / 10 * 9;
    let fits = |target: &str| must_fit(&target.parse().expect(target), folder.path(), size_bytes);
    assert!(fits("raw").is_ok() && fits("qcow2").is_ok() && fits("raw-attached").is_ok());
    for target in ["pumice", "btrfs", "attached", "raw-raid0", "raid0"] {
        fits(target).expect_err(target);
    }
    let most = |target: &str| store::most_bytes(&target.parse().expect(target), 256 << 20) >> 20;
    let all = ["raw", "qcow2", "pumice", "attached", "raw-raid0", "raid0", "btrfs"].map(most);
    assert_eq!(all, [256, 257, 320, 320, 512, 640, 512]);
    for target in ["qcow2", "pumice", "raid0", "btrfs"] {
        assert_eq!(store::most_bytes(&target.parse().expect(target), u64::MAX), u64::MAX, "{target}");
    }
}

#[test]
fn rounds_are_measured_until_the_time_is_up() {
    let folder = tempfile::tempdir().expect("a folder");
    let options = options(folder.path(), &["raw", "again=raw"], Duration::from_secs(3600));
    let (stop, suite) = (Stop::default(), suite("quick").expect("a suite"));
    let seen = std::cell::RefCell::new(Vec::new());
    let watch = |progress: &Progress| seen.borrow_mut().push(progress.clone());
    let run = Session::new(suite, &options, &stop, &watch).run().expect("a run");
    assert_eq!(run.rounds_count, ROUNDS_MAX);
    assert!(run.complete, "{:?}", run.left_out);
    let seen = seen.borrow();
    assert!(seen[0].what.ends_with("on raw") && seen[1].what.ends_with("on again"), "{seen:?}");
    let second = seen.iter().find(|progress| progress.round == 2).expect("a second round");
    assert!(second.what.ends_with("on again"), "{second:?}");
    for series in &run.series {
        assert_eq!(series.samples.len(), ROUNDS_MAX as usize, "{}: {}", series.scene, series.step);
        assert_eq!(series.requests_per_second.expect("a rate").median, 1024.0);
    }
    let [raw, _] = run.targets.as_slice() else { panic!("{:?}", run.targets) };
    assert!((raw.mb_per_s.expect("a headline") - 134.2).abs() < 0.1, "{raw:?}");
    // Only the fake and nothing of the run is left.
    assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 1);
}

#[test]
fn what_does_not_fit_or_fails_is_listed() {
    let folder = tempfile::tempdir().expect("a folder");
    let (stop, suite) = (Stop::default(), suite("quick").expect("a suite"));
    let run = |targets: &[&str], limit| {
        let options = options(folder.path(), targets, limit);
        Session::new(suite, &options, &stop, &|_| ()).run()
    };
    let short = run(&["raw"], Duration::ZERO).expect("the first scene at least");
    assert!(!short.complete && short.left_out.len() == 2, "{:?}", short.left_out);
    assert!(short.series.iter().all(|series| series.scene == "60 %"));
    // The drive's program is missing; the peer is measured all the same.
    let some = run(&["pumice", "raw"], Duration::from_secs(3600)).expect("a run");
    assert!(some.left_out.iter().any(|line| line.contains("on pumice: ")), "{:?}", some.left_out);
    assert!(some.series.iter().all(|series| series.target == "raw"));
    assert!(
        !some.complete && some.failed.iter().all(|failed| failed.target == "pumice"),
        "{:?}",
        some.failed
    );
    let ratio = some.findings.iter().find(|it| it.statement == "snia-ratio").expect("a finding");
    assert_eq!(ratio.verdict, crate::Verdict::DoesNot, "{ratio:?}");
    let twice = run(&["raw", "raw"], Duration::ZERO).expect_err("refused");
    assert!(twice.to_string().contains("given twice"), "{twice}");
}

#[test]
fn a_run_that_is_stopped_keeps_what_was_measured() {
    let folder = tempfile::tempdir().expect("a folder");
    let options = options(folder.path(), &["raw"], Duration::from_secs(3600));
    let (stop, suite) = (Stop::default(), suite("quick").expect("a suite"));
    let watch = |progress: &Progress| {
        if progress.round == 2 {
            stop.set();
        }
    };
    let run = Session::new(suite, &options, &stop, &watch).run().expect("a part");
    assert!(!run.complete);
    assert_eq!(run.left_out, ["interrupted"]);
    assert!(run.series.iter().all(|series| series.samples.len() == 1));
    assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 1);
}

#[test]
fn a_write_that_was_cut_ends_its_scene() {
    let folder = tempfile::tempdir().expect("a folder");
    // The fake writes half of it.
    let options = Options { size_bytes: Some(128 << 20), ..options(folder.path(), &["raw"], Duration::ZERO) };
    let (stop, suite) = (Stop::default(), suite("quick").expect("a suite"));
    let run = Session::new(suite, &options, &stop, &|_| ()).run().expect("a run");
    let steps: Vec<&str> = run.series.iter().map(|series| series.step.as_str()).collect();
    assert_eq!(steps, ["write"], "{:?}", run.left_out);
    let line = &run.left_out[0];
    assert!(!run.complete && line.contains(" on raw: cut after "), "{line}");
    assert!(line.ends_with("at 64 of 128 MiB; the steps after it need what it did not write"), "{line}");
}

#[test]
fn a_drive_that_was_not_filled_is_no_proof() {
    let folder = tempfile::tempdir().expect("a folder");
    let (options, suite) = (options(folder.path(), &["pumice"], Duration::ZERO), suite("expansion"));
    let suite = suite.expect("a suite");
    let scene = "1.5x, data of 1.5:1".to_string();
    let verdict = |left_out: &[&str]| {
        let sample = Sample { bytes: 1 << 20, seconds: 1.0, ratio: Some(1.5), ..Sample::default() };
        let (step, target) = ("overwrite".to_string(), "pumice".to_string());
        let scene = scene.clone();
        let mut series = Series { scene, step, target, samples: vec![sample], ..Series::default() };
        series.summarize();
        let left_out = left_out.iter().map(|line| line.to_string()).collect();
        let mut run = Run { size_bytes: 512 << 20, left_out, series: vec![series], ..Run::default() };
        suite.conclude(&mut run, &[], &options, &options.targets);
        run.findings.into_iter().find(|it| it.statement == "hs21-150").expect("a finding").verdict
    };
    let cut = format!("{scene}: overwrite on pumice: cut after 120 s, at 5 of 320 MiB");
    assert_eq!(verdict(&[]), crate::Verdict::Holds);
    assert_eq!(verdict(&[&cut]), crate::Verdict::CannotBeTested);
    // Another drive's is its own.
    assert_eq!(verdict(&[&cut.replace("on pumice", "on other")]), crate::Verdict::Holds);
}

#[test]
fn fio_runs_on_the_processors_it_is_given() {
    if process::find("taskset").is_none() {
        eprintln!("skipped: no taskset");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    // As if it had run, with the processors that it may run on.
    let seen = folder.path().join("seen");
    let options = options(folder.path(), &["raw"], Duration::ZERO);
    let script = folder.path().join("fio");
    let text = std::fs::read_to_string(&script).expect("the fake");
    let look = format!("grep Cpus_allowed_list /proc/self/status >'{}'\n", seen.display());
    process::tests::script(&script, &(text + &look));
    let options = Options { fio: options.fio.clone().on_processors("0"), ..options };
    let (stop, suite) = (Stop::default(), suite("quick").expect("a suite"));
    let run = Session::new(suite, &options, &stop, &|_| ()).run().expect("a run");
    assert_eq!(run.fio_processors.as_deref(), Some("0"));
    let list = std::fs::read_to_string(seen).expect("a list");
    assert_eq!(list.trim(), "Cpus_allowed_list:\t0");
}

#[test]
fn data_sets_without_time_are_left_out() {
    let folder = tempfile::tempdir().expect("a folder");
    let (stop, suite) = (Stop::default(), suite("datasets").expect("a suite"));
    let set = |name: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, "data").expect("written");
        DataSet { name: name.to_string(), path }
    };
    let options = Options {
        data: ["one", "two", "three"].map(set).to_vec(),
        ..options(folder.path(), &["pumice"], Duration::ZERO)
    };
    let plan = |limit| {
        let budget = Budget::new(limit);
        let plan = Plan {
            options: &options,
            folder: folder.path(),
            size_bytes: 1 << 26,
            budget: &budget,
            stop: &stop,
        };
        let planned = suite.scenes(&plan).expect("scenes");
        let mut run = Run { complete: true, ..Run::default() };
        planned.note(&mut run);
        (planned.scenes.len(), run.complete, run.left_out)
    };
    assert_eq!(plan(Duration::from_secs(60)), (3, true, vec![]));
    let left_out = ["two", "three"].map(|name| format!("{name}: {NO_TIME}")).to_vec();
    assert_eq!(plan(Duration::ZERO), (1, false, left_out));
}

#[test]
fn a_run_without_scenes_says_why() {
    let folder = tempfile::tempdir().expect("a folder");
    let stop = Stop::default();
    let said = |name: &str, targets: &[&str]| {
        let options = options(folder.path(), targets, Duration::ZERO);
        let error = Session::new(suite(name).expect("a suite"), &options, &stop, &|_| ()).run();
        let error = error.expect_err("nothing to measure");
        assert!(!error.is_interrupted());
        error.to_string()
    };
    let unsuitable = said("s3", &["none=raw", "drive=raw"]);
    assert!(unsuitable.starts_with("suite s3: nothing was measured: "), "{unsuitable}");
    assert!(
        unsuitable.contains(" on none: blocks need") && unsuitable.contains(" on drive: "),
        "{unsuitable}"
    );
    let for_drives = said("expansion", &["raw"]);
    assert!(for_drives.ends_with("no scene is for these targets"), "{for_drives}");
    let lacking = crate::SUITES.iter().find(|suite| {
        let targets = suite.targets();
        !targets.is_empty() && targets.iter().all(|target| store::lacks(target).is_some())
    });
    match lacking {
        Some(suite) => assert!(said(suite.name, &[]).contains("nothing was measured: target ")),
        None => eprintln!("skipped in part: every suite has a target here"),
    }
}

#[test]
fn what_is_still_attached_is_kept_and_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let options = options(folder.path(), &["raw"], Duration::ZERO);
    let (stop, suite) = (Stop::default(), suite("quick").expect("a suite"));
    // As if a drive could not be detached.
    let attach = || {
        let all = std::fs::read_dir(folder.path()).expect("a folder").flatten();
        let own = all.map(|it| it.path()).find(|path| path.is_dir()).expect("the folder of the run");
        let record = own.join("run-attach/1");
        std::fs::create_dir_all(&record).expect("a folder");
        let text = format!(r#"{{"path": "{}"}}"#, own.join("drive-1").display());
        std::fs::write(record.join("attachment.json"), text).expect("written");
        own
    };
    let kept = std::cell::RefCell::new(PathBuf::new());
    let watch = |_: &Progress| *kept.borrow_mut() = attach();
    let run = Session::new(suite, &options, &stop, &watch).run().expect("a run");
    let line = run.left_out.last().expect("a line");
    assert!(
        !run.complete && line.contains("is still attached: ") && line.contains("pumice detach"),
        "{line}"
    );
    assert!(kept.borrow().join("run-attach/1/attachment.json").exists());
    std::fs::remove_dir_all(&*kept.borrow()).expect("removed");
    // Stopped before anything was measured.
    let watch = |_: &Progress| {
        *kept.borrow_mut() = attach();
        stop.set();
    };
    let error = Session::new(suite, &options, &stop, &watch).run().expect_err("no results");
    assert!(error.is_interrupted() && error.to_string().contains("is still attached: "), "{error}");
    assert!(kept.borrow().exists());
}

#[test]
fn targets_are_checked_before_each_scene() {
    let folder = tempfile::tempdir().expect("a folder");
    let (stop, suite) = (Stop::default(), suite("quick").expect("a suite"));
    let options = options(folder.path(), &["raw", "b=raw"], Duration::from_secs(3600));
    let seen = std::cell::RefCell::new(Vec::new());
    let check = |target: &Target, is_first: bool| {
        seen.borrow_mut().push((target.name.clone(), is_first));
        if target.name == "b" { Err("mounted".into()) } else { Ok(()) }
    };
    let run = Session::new(suite, &options, &stop, &|_| ()).checked(&check).run().expect("a run");
    let firsts = |name: &str| {
        let seen = seen.borrow();
        let of_it: Vec<bool> = seen.iter().filter(|it| it.0 == name).map(|it| it.1).collect();
        (of_it.len(), of_it.into_iter().filter(|is_first| *is_first).count())
    };
    // One that was refused is looked at as before, in each of three scenes; the other has three scenes in
    // each round.
    assert_eq!((firsts("b"), firsts("raw")), ((3, 3), (3 * ROUNDS_MAX as usize, 1)));
    assert!(run.series.iter().all(|series| series.target == "raw"));
    assert!(run.failed.iter().all(|failed| failed.error == "target b: mounted"), "{:?}", run.failed);
}

#[test]
fn a_check_that_is_stopped_ends_the_run() {
    let folder = tempfile::tempdir().expect("a folder");
    let (stop, suite) = (Stop::default(), suite("quick").expect("a suite"));
    let options = options(folder.path(), &["raw"], Duration::from_secs(3600));
    let check = |_: &Target, _: bool| {
        stop.set();
        Err("interrupted".into())
    };
    let ended = Session::new(suite, &options, &stop, &|_| ()).checked(&check).run();
    assert!(matches!(ended, Err(BenchError::Interrupted)));
}

#[test]
fn wrong_process_ids_and_codecs_of_drives_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let (stop, suite) = (Stop::default(), suite("quick").expect("a suite"));
    let refused = |options: &Options| {
        Session::new(suite, options, &stop, &|_| ()).run().expect_err("refused").to_string()
    };
    let mut wrong = options(folder.path(), &["raw"], Duration::ZERO);
    wrong.targets[0].pids.push(u32::MAX);
    assert_eq!(refused(&wrong), format!("target raw: --pids: no process {}", u32::MAX));
    let drive = folder.path().join("drive");
    std::fs::write(&drive, "").expect("a file");
    let target = format!("pumice:{},codec=lz4", drive.display());
    let said = refused(&options(folder.path(), &[&target], Duration::ZERO));
    assert!(said.contains("keeps its codec: leave out codec=lz4"), "{said}");
}

#[test]
fn suites_draw_all_conclusions_from_statements_that_exist() {
    let folder = tempfile::tempdir().expect("a folder");
    for suite in crate::SUITES {
        let options = options(folder.path(), &["pumice", "raw"], Duration::ZERO);
        let mut run = Run::default();
        suite.conclude(&mut run, &[], &options, &options.targets);
        let statements = crate::STATEMENTS.iter().filter(|it| it.tested_by == Ok(suite.name));
        for statement in statements {
            let is_there = run.findings.iter().any(|finding| finding.statement == statement.name);
            assert!(is_there, "{}: nothing about {}", suite.name, statement.name);
        }
    }
}
