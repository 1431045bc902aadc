//! Canonical's table of data sets: the ratio that `pumice scan` predicts for data, and the ratio once it is written.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use ::scan::{Population, WalkOptions};

use super::{Conclusions, DataSet, Plan, Seen};
use crate::documents::statement;
use crate::error::{BenchError, Result};
use crate::finding::{Finding, Needs};
use crate::process::Stop;
use crate::run::Prediction;
use crate::scene::{Action, Scene, Step};
use crate::value::{Value, shown};

/// Data sets if the user names none: what most machines have.
const USUAL: [(&str, &str); 3] = [("etc", "/etc"), ("programs", "/usr/bin"), ("documents", "/usr/share/doc")];
/// Canonical's data sets: name, ratio, statement.
const DOCUMENT: [(&str, f64, &str); 5] = [
    ("warp", 1.33, "can-warp"),
    ("jpeg", 1.01, "can-jpeg"),
    ("covid", 1.33, "can-covid"),
    ("yuv", 3.13, "can-yuv"),
    ("h264", 1.0, "can-h264"),
];
/// Files start at blocks, as in file systems.
const BLOCK_BYTES: u64 = 4096;
/// Most files of a data set. More would take longer to list than to write.
const FILES_MAX: usize = 100_000;
/// Share of a drive that a data set fills at most.
const FILLED: f64 = 0.9;

pub(super) fn scenes(plan: &Plan<'_>) -> Result<Vec<Scene>> {
    let usual = USUAL.map(|(name, path)| DataSet { name: name.to_string(), path: path.into() });
    let sets = if plan.options.data.is_empty() {
        usual.into_iter().filter(|set| set.path.is_dir()).collect()
    } else {
        plan.options.data.clone()
    };
    let most_bytes = (plan.size_bytes as f64 * FILLED) as u64;
    let scene = |(at, set): (usize, &DataSet)| {
        plan.stop.check()?;
        let image = plan.folder.join(format!("set-{at}"));
        make_image(set, &image, most_bytes, plan.stop)?;
        let predicted_ratio = predicted(&image);
        let copy = |name: &str, action| Step { name: name.to_string(), action, is_shown: true };
        let steps = vec![copy("written", Action::Copy(image)), copy("settled", Action::Settle)];
        Ok(Scene { predicted_ratio, ..Scene::new(&set.name, steps).for_drives() })
    };
    // At least one: the time for images is that of the run.
    let fitting = sets.iter().enumerate().take_while(|(at, _)| *at == 0 || !plan.budget.left().is_zero());
    fitting.map(scene).collect()
}

/// Returns the files of a data set, in the order of their names.
fn files(path: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![path.to_path_buf()];
    if path.is_file() {
        return Ok(vec![path.to_path_buf()]);
    }
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(&folder) else {
            // What cannot be read is left out, except the data set itself.
            if folder == path {
                return Err(io::ErrorKind::NotFound.into());
            }
            continue;
        };
        for entry in entries.flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => folders.push(entry.path()),
                Ok(kind) if kind.is_file() => found.push(entry.path()),
                _ => {}
            }
            if found.len() >= FILES_MAX {
                break;
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Writes the files of a data set one after the other into an image of at most `most_bytes`.
fn make_image(set: &DataSet, image: &Path, most_bytes: u64, stop: &Stop) -> Result<()> {
    let mut out = File::create(image).map_err(BenchError::io(image))?;
    let mut written = 0;
    for path in files(&set.path).map_err(BenchError::io(&set.path))? {
        stop.check()?;
        let Ok(file) = File::open(&path) else { continue };
        let room = most_bytes.saturating_sub(written);
        if room == 0 {
            break;
        }
        let copied = io::copy(&mut file.take(room), &mut out).map_err(BenchError::io(&path))?;
        written = (written + copied).next_multiple_of(BLOCK_BYTES);
        out.seek(SeekFrom::Start(written)).map_err(BenchError::io(image))?;
    }
    if written == 0 {
        return Err(BenchError::target(&set.name, format!("{}: holds no data", set.path.display())));
    }
    out.set_len(written).and_then(|()| out.flush()).map_err(BenchError::io(image))
}

/// Returns the ratio that a scan predicts for an image: for what is written, which may be a part of the data set.
fn predicted(image: &Path) -> Option<f64> {
    let mut all = Population::new();
    all.add_path(image, WalkOptions::default(), &|_| ()).ok()?;
    let options = ::scan::Options { compare: Vec::new(), unit_precision: None, ..::scan::Options::default() };
    let report = ::scan::scan(&all, &options, &|_| ()).ok()?;
    report.predicted_drive.map(|drive| drive.ratio.estimate)
}

pub(super) fn conclude(seen: &Seen<'_>) -> Conclusions {
    let mut conclusions = Conclusions::default();
    let ratio = |name: &str| seen.run.ratio(name, "written", seen.drive);
    let mut worst: Option<f64> = None;
    for scene in seen.scenes {
        let (Some(measured), Some(predicted)) = (ratio(&scene.name), scene.predicted_ratio) else { continue };
        let measured = measured.median();
        worst = Some(worst.unwrap_or(0.0).max((measured / predicted - 1.0).abs()));
        conclusions.predictions.push(Prediction {
            subject: format!("ratio of {}", scene.name),
            model: "pumice scan".to_string(),
            predicted,
            measured: Some(measured),
        });
    }
    for (name, document, finding) in DOCUMENT {
        let settled = seen.run.ratio(name, "settled", seen.drive);
        conclusions.findings.push(match ratio(name) {
            Some(found) => seen.judge(
                finding,
                Some(found),
                Needs::AtLeast(document),
                |found| {
                    let after =
                        settled.map_or(String::new(), |_| format!("; settled {:.2}:1", shown(settled)));
                    format!("{found:.2}:1, {:.0} %{after}", (1.0 - 1.0 / found) * 100.0)
                },
                "another data set of the same kind: Canonical's own cannot be had here",
            ),
            None if seen.options.data.iter().any(|set| set.name == name) => {
                seen.judge(finding, None, Needs::AtLeast(document), |_| String::new(), "")
            }
            None => Finding::untested(
                statement(finding),
                &format!("the data is not on this machine; with it: --data {name}=FOLDER"),
            ),
        });
    }
    let percent = worst.map(|worst| Value::exact(worst * 100.0));
    let ours = |percent: f64| format!("{percent:.1} %");
    let why = "the data is written once, in large pieces, which is what the scan predicts";
    conclusions.findings.push(seen.judge("pu-scan", percent, Needs::AtMost(2.0), ours, why));
    conclusions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_hold_files_at_blocks() {
        let folder = tempfile::tempdir().expect("a folder");
        let data = folder.path().join("data/inner");
        fs::create_dir_all(&data).expect("made");
        fs::write(folder.path().join("data/b"), "second").expect("written");
        fs::write(data.join("a"), "x".repeat(5000)).expect("written");
        let set = DataSet { name: "set".to_string(), path: folder.path().join("data") };
        let image = folder.path().join("image");
        make_image(&set, &image, 1 << 20, &Stop::default()).expect("an image");
        let bytes = fs::read(&image).expect("bytes");
        assert_eq!(bytes.len(), 3 * 4096);
        assert_eq!((&bytes[..6], bytes[4096], bytes[4096 + 5000]), (&b"second"[..], b'x', 0));
        make_image(&set, &image, 4096, &Stop::default()).expect("a part");
        assert_eq!(fs::metadata(&image).expect("it is there").len(), 4096);
        let none = DataSet { name: "none".to_string(), path: folder.path().join("none") };
        assert!(make_image(&none, &image, 4096, &Stop::default()).is_err());
    }
}
