//! Canonical's table of data sets: the ratio that `pumice scan` predicts for data, and the ratio once it is
//! written.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use ::scan::{Population, WalkOptions};

use super::{Conclusions, Planned, Seen};
use crate::data_set::DataSet;
use crate::documents::statement;
use crate::error::{BenchError, Result};
use crate::finding::{Finding, Needs};
use crate::options::Options;
use crate::plan::Plan;
use crate::process::Stop;
use crate::run::{Prediction, RunData};
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
/// Of a larger data set, pieces of this size are taken.
const PIECE_BYTES: u64 = 1 << 20;

/// The data sets that the user names, or the usual ones.
fn sets(options: &Options) -> Vec<DataSet> {
    let usual = USUAL.map(|(name, path)| DataSet { name: name.to_string(), path: path.into() });
    match options.data.as_slice() {
        [] => usual.into_iter().filter(|set| set.path.is_dir()).collect(),
        named => named.to_vec(),
    }
}

pub(super) fn scenes(plan: &Plan<'_>) -> Result<Planned> {
    let sets = sets(plan.options);
    let most_bytes = (plan.size_bytes as f64 * FILLED) as u64;
    let mut planned = Planned::default();
    for (at, set) in sets.iter().enumerate() {
        plan.stop.check()?;
        // At least one: the time for images is that of the run.
        if at > 0 && plan.budget.left().is_zero() {
            planned.no_time.push(set.name.clone());
            continue;
        }
        let files = Files::list(&set.path, plan.stop).map_err(BenchError::io(&set.path))?;
        let image = plan.folder.join(format!("set-{at}"));
        let taken_bytes = make_image(set, &files, &image, most_bytes, plan.stop)?;
        let data = RunData {
            name: set.name.clone(),
            path: set.path.display().to_string(),
            taken_bytes,
            all_bytes: files.all_bytes,
        };
        planned.notes.extend(files.note(&data));
        planned.data.push(data);
        let predicted_ratio = predicted(&image);
        let copy = |name: &str, action| Step { name: name.to_string(), action, is_shown: true };
        let steps = vec![copy("written", Action::Copy(image)), copy("settled", Action::Settle)];
        planned.scenes.push(Scene { predicted_ratio, ..Scene::new(&set.name, steps).for_drives() });
    }
    Ok(planned)
}

/// The files of a data set, one after the other, each from the next block on.
#[derive(Default)]
struct Files {
    /// Where each begins, its length, and its path; in the order of their names.
    each: Vec<(u64, u64, PathBuf)>,
    all_bytes: u64,
    /// Further names of files that are there already.
    links_count: u64,
    /// Files that cannot be opened, and folders that cannot be listed.
    unreadable_count: u64,
    /// There are more than [`FILES_MAX`].
    has_more: bool,
}

impl Files {
    fn list(path: &Path, stop: &Stop) -> io::Result<Files> {
        let mut files = Files::default();
        let mut found = Vec::new();
        let mut folders = vec![path.to_path_buf()];
        if path.is_file() {
            found = std::mem::take(&mut folders);
        }
        'all: while let Some(folder) = folders.pop() {
            let entries = match fs::read_dir(&folder) {
                Ok(entries) => entries,
                Err(error) if folder == path => return Err(error),
                Err(_) => {
                    files.unreadable_count += 1;
                    continue;
                }
            };
            for entry in entries.flatten() {
                match entry.file_type() {
                    Ok(kind) if kind.is_dir() => folders.push(entry.path()),
                    Ok(kind) if kind.is_file() => found.push(entry.path()),
                    _ => {}
                }
                if found.len() > FILES_MAX || stop.is_set() {
                    files.has_more = true;
                    found.truncate(FILES_MAX);
                    break 'all;
                }
            }
        }
        found.sort();
        let mut linked = HashSet::new();
        for path in found {
            // What may not be read is no part of the data set.
            match File::open(&path).and_then(|file| file.metadata()) {
                Ok(metadata) if metadata.nlink() > 1 && !linked.insert((metadata.dev(), metadata.ino())) => {
                    files.links_count += 1;
                }
                Ok(metadata) if metadata.len() > 0 => {
                    files.each.push((files.all_bytes, metadata.len(), path));
                    files.all_bytes += metadata.len().next_multiple_of(BLOCK_BYTES);
                }
                Ok(_) => {}
                Err(_) => files.unreadable_count += 1,
            }
        }
        Ok(files)
    }

    /// What a report must say of what was taken.
    fn note(&self, data: &RunData) -> Option<String> {
        let mut parts = Vec::new();
        if let Some(part) = data.part() {
            parts.push(format!(
                "{part}, pieces of 1 MiB, evenly spread over its files in the order of their names"
            ));
        }
        if self.has_more {
            parts.push(format!("of the first {FILES_MAX} files found"));
        }
        if self.links_count > 0 {
            parts.push(format!("files with several names once ({} hard links left out)", self.links_count));
        }
        if self.unreadable_count > 0 {
            parts.push(format!("without {} files or folders that cannot be read", self.unreadable_count));
        }
        (!parts.is_empty()).then(|| format!("{}: {}", data.name, parts.join(", ")))
    }

    /// Copies a range of all files together to a place of `out`.
    fn copy(&self, range: &std::ops::Range<u64>, mut out: &File, place: u64) -> io::Result<()> {
        let first = self.each.partition_point(|(start, length, _)| start + length <= range.start);
        for (start, length, path) in self.each[first..].iter().take_while(|(start, ..)| *start < range.end) {
            // One that is gone since it was listed leaves zeros, which are no data of a drive.
            let Ok(mut file) = File::open(path) else { continue };
            let from = range.start.max(*start);
            file.seek(SeekFrom::Start(from - start))?;
            out.seek(SeekFrom::Start(place + from - range.start))?;
            io::copy(&mut file.take(range.end.min(start + length) - from), &mut out)?;
        }
        Ok(())
    }
}

/// Writes the files of a data set, or pieces of them, into an image of at most `most_bytes`. Returns its
/// size.
fn make_image(set: &DataSet, files: &Files, image: &Path, most_bytes: u64, stop: &Stop) -> Result<u64> {
    if files.all_bytes == 0 {
        return Err(BenchError::target(&set.name, format!("{}: holds no data", set.path.display())));
    }
    let mut out = File::create(image).map_err(BenchError::io(image))?;
    let mut written = 0;
    for range in pieces(files.all_bytes, most_bytes) {
        stop.check()?;
        files.copy(&range, &out, written).map_err(BenchError::io(&set.path))?;
        written += range.end - range.start;
    }
    out.set_len(written).and_then(|()| out.flush()).map_err(BenchError::io(image))?;
    Ok(written)
}

/// Ranges of `all_bytes` that hold `most_bytes` at most: all, or pieces of the same size at the same
/// distance.
fn pieces(all_bytes: u64, most_bytes: u64) -> Vec<std::ops::Range<u64>> {
    let piece_bytes = PIECE_BYTES.min(most_bytes / BLOCK_BYTES * BLOCK_BYTES).max(BLOCK_BYTES);
    let count = most_bytes / piece_bytes;
    if all_bytes <= most_bytes {
        return (0..all_bytes.div_ceil(PIECE_BYTES))
            .map(|at| at * PIECE_BYTES..((at + 1) * PIECE_BYTES).min(all_bytes))
            .collect();
    }
    // In the middle of its share each, so that neither end of the list counts more than the other.
    let start = |at: u64| {
        let share = all_bytes as f64 / count as f64;
        let middle = (at as f64 + 0.5) * share - piece_bytes as f64 / 2.0;
        (middle.max(0.0) as u64 / BLOCK_BYTES * BLOCK_BYTES).min(all_bytes - piece_bytes)
    };
    (0..count).map(|at| start(at)..start(at) + piece_bytes).collect()
}

/// Returns the ratio that a scan predicts for an image: for what is written, which may be a part of the data
/// set.
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
    // A part is not to be taken for all.
    let part = |name: &str| {
        let data = seen.run.data.iter().find(|data| data.name == name);
        data.and_then(RunData::part).map_or(String::new(), |part| format!(" ({part})"))
    };
    let mut worst: Option<f64> = None;
    for scene in seen.scenes {
        let (Some(measured), Some(predicted)) = (ratio(&scene.name), scene.predicted_ratio) else { continue };
        let measured = measured.median();
        worst = Some(worst.unwrap_or(0.0).max((measured / predicted - 1.0).abs()));
        conclusions.predictions.push(Prediction {
            subject: format!("ratio of {}{}", scene.name, part(&scene.name)),
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
                    format!("{found:.2}:1, {:.0} %{after}{}", (1.0 - 1.0 / found) * 100.0, part(name))
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
    let finding = seen.judge("pu-scan", percent, Needs::AtMost(2.0), ours, why);
    // It is about all of them.
    let has =
        |set: &DataSet| seen.scenes.iter().any(|it| it.name == set.name && it.predicted_ratio.is_some());
    let missing = sets(seen.options).into_iter().find(|set| !has(set) || ratio(&set.name).is_none());
    let failed = seen.run.failed.iter().find(|failed| failed.target == seen.drive);
    conclusions.findings.push(match (missing, failed) {
        _ if worst.is_none() => finding,
        (Some(_), Some(failed)) => finding.fails_by(failed),
        (Some(set), None) => {
            finding.open_without(&format!("{} was not measured: see what was left out", set.name))
        }
        (None, _) => finding,
    });
    conclusions
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::tests::{Measured, concluded, options};
    use super::*;
    use crate::finding::Verdict;

    #[test]
    fn images_hold_files_at_blocks() {
        let folder = tempfile::tempdir().expect("a folder");
        let data = folder.path().join("data/inner");
        fs::create_dir_all(&data).expect("made");
        fs::write(folder.path().join("data/b"), "second").expect("written");
        fs::write(data.join("a"), "x".repeat(5000)).expect("written");
        let set = DataSet { name: "set".to_string(), path: folder.path().join("data") };
        let image = folder.path().join("image");
        let make = |set: &DataSet, most_bytes| {
            let files = Files::list(&set.path, &Stop::default()).map_err(BenchError::io(&set.path))?;
            make_image(set, &files, &image, most_bytes, &Stop::default()).map(|taken| (files, taken))
        };
        let note = |files: &Files, taken_bytes| {
            let (name, all_bytes) = ("set".to_string(), files.all_bytes);
            files.note(&RunData { name, taken_bytes, all_bytes, ..RunData::default() })
        };
        let (files, taken_bytes) = make(&set, 1 << 20).expect("an image");
        let bytes = fs::read(&image).expect("bytes");
        assert_eq!((bytes.len(), taken_bytes, note(&files, taken_bytes)), (3 * 4096, 3 * 4096, None));
        assert_eq!((&bytes[..6], bytes[4096], bytes[4096 + 5000]), (&b"second"[..], b'x', 0));
        let (files, taken_bytes) = make(&set, 4096).expect("a part");
        assert_eq!((fs::metadata(&image).expect("it is there").len(), taken_bytes), (4096, 4096));
        let note = note(&files, taken_bytes).expect("a note");
        assert!(note.starts_with("set: 1 of 1 MB, pieces of 1 MiB, evenly"), "{note}");
        // Each file once, whatever its names.
        fs::hard_link(data.join("a"), folder.path().join("data/again")).expect("a link");
        let (files, taken_bytes) = make(&set, 1 << 20).expect("an image");
        assert_eq!(taken_bytes, 3 * 4096);
        let said = files.note(&RunData {
            name: "set".to_string(),
            taken_bytes,
            all_bytes: taken_bytes,
            ..RunData::default()
        });
        assert_eq!(said.as_deref(), Some("set: files with several names once (1 hard links left out)"));
        let none = DataSet { name: "none".to_string(), path: folder.path().join("none") };
        assert!(make(&none, 4096).is_err());
        let empty = DataSet { name: "empty".to_string(), path: folder.path().join("empty") };
        fs::create_dir(&empty.path).expect("made");
        let error = make(&empty, 4096).map(drop).expect_err("no data").to_string();
        assert!(error.ends_with("empty: holds no data"), "{error}");
    }

    #[test]
    fn a_data_set_is_given_once() {
        let folder = tempfile::tempdir().expect("a folder");
        std::os::unix::fs::symlink(folder.path(), folder.path().join("link")).expect("a link");
        let set = |name: &str, path: &Path| DataSet { name: name.to_string(), path: path.to_path_buf() };
        let (one, link) = (set("one", folder.path()), set("two", &folder.path().join("link")));
        let refused = |sets: &[DataSet]| crate::distinct_data(sets).expect_err("refused").to_string();
        assert!(refused(&[one.clone(), link]).ends_with("two: is the same as one: leave one out"));
        assert!(refused(&[one.clone(), set("one", Path::new("/"))]).contains("one: given twice"));
        assert!(crate::distinct_data(&[one, set("two", Path::new("/"))]).is_ok());
    }

    #[test]
    fn predictions_hold_of_all_sets_or_not() {
        let data = ["one", "two"].map(|name| DataSet { name: name.to_string(), path: PathBuf::new() });
        let verdict = |measured: &[&str], ratio: f64| {
            let scene = |name: &&str| Scene { predicted_ratio: Some(2.0), ..Scene::new(name, Vec::new()) };
            let scenes: Vec<Scene> = measured.iter().map(scene).collect();
            let of =
                |scene| Measured { scene, step: "written", target: "pumice", rate: 9.0, ratio: Some(ratio) };
            let measured: Vec<Measured<'_>> = measured.iter().map(|name| of(*name)).collect();
            let mut run = concluded("datasets", &["pumice"], &measured, &[], &[]);
            let targets = ["pumice".parse().expect("a target")];
            let options = Options { data: data.to_vec(), ..options(targets.to_vec(), Duration::ZERO) };
            crate::suite("datasets").expect("a suite").conclude(&mut run, &scenes, &options, &targets);
            let finding = run.findings.into_iter().find(|it| it.statement == "pu-scan").expect("a finding");
            (finding.verdict, finding.why)
        };
        assert_eq!(verdict(&["one", "two"], 2.0).0, Verdict::Holds);
        let missing = "two was not measured: see what was left out".to_string();
        assert_eq!(verdict(&["one"], 2.0), (Verdict::CannotBeTested, missing));
        assert_eq!(verdict(&["one"], 3.0).0, Verdict::DoesNot);
        assert_eq!(verdict(&[], 2.0).0, Verdict::CannotBeTested);
    }

    #[test]
    fn a_part_is_of_all_files() {
        let folder = tempfile::tempdir().expect("a folder");
        // Files of one byte each, by their number; the first is a fifth of all.
        let sizes = [8 << 20, 4 << 20, 8 << 20, 12 << 20, 5000, 8 << 20];
        for (number, size) in sizes.into_iter().enumerate() {
            let number = number as u8 + 1;
            fs::write(folder.path().join(format!("{number}")), vec![number; size]).expect("written");
        }
        let set = DataSet { name: "set".to_string(), path: folder.path().to_path_buf() };
        let files = Files::list(&set.path, &Stop::default()).expect("files");
        let image = folder.path().join("image");
        let taken_bytes = make_image(&set, &files, &image, 10 << 20, &Stop::default()).expect("an image");
        assert_eq!(taken_bytes, 10 << 20);
        let data = RunData { taken_bytes, all_bytes: files.all_bytes, ..RunData::default() };
        assert_eq!(data.part(), Some("10 of 42 MB".to_string()));
        let bytes = fs::read(&image).expect("bytes");
        let share =
            |number: u8| bytes.iter().filter(|byte| **byte == number).count() as f64 / bytes.len() as f64;
        for (number, expected) in [(1, 0.2), (2, 0.1), (3, 0.2), (4, 0.3), (6, 0.2)] {
            assert!((share(number) - expected).abs() < 0.06, "{number}: {}", share(number));
        }
    }

    #[test]
    fn pieces_lie_evenly() {
        let mib = |pieces: &[std::ops::Range<u64>]| -> Vec<(u64, u64)> {
            pieces.iter().map(|it| (it.start >> 20, (it.end - it.start) >> 20)).collect()
        };
        assert_eq!(mib(&pieces(40 << 20, 4 << 20)), [(4, 1), (14, 1), (24, 1), (34, 1)]);
        assert_eq!(mib(&pieces(3 << 20, 4 << 20)), [(0, 1), (1, 1), (2, 1)]);
        // They do not overlap, and end with the data.
        for all_bytes in [(10 << 20) + 4096, 11 << 20, 1 << 40] {
            let found = pieces(all_bytes, 10 << 20);
            assert_eq!(found.len(), 10);
            assert!(found.windows(2).all(|pair| pair[0].end <= pair[1].start), "{found:?}");
            assert!(found[9].end <= all_bytes, "{found:?}");
        }
    }
}
