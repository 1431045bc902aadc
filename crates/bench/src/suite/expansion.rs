//! Hyperscalers, figure 21: drives that advertise more than they have, full of data that compresses, under
//! random overwrites; against the write amplification and the speed that `pumice plan` expects.

use scan::plan::{self, Input, ParityForm, Policy, document_row, expected_waf};

use super::{Conclusions, Plan, Planned, Seen};
use crate::documents::statement;
use crate::error::Result;
use crate::finding::{Finding, Needs};
use crate::fio::{Amount, Data, Job, Pattern};
use crate::run::Prediction;
use crate::scene::{Scene, Step};
use crate::value::{Value, over, shown};

/// Flash over the capacity that the document expands: 7680 of 6400 GB. A Pumice drive has its physical size
/// and nothing beyond it, so that size stands for the flash.
const FLASH: f64 = 1.2;
/// Least size of drives that are filled to the brim: the reserve of smaller ones does not grow less.
const FAIR_BYTES: u64 = 512 << 20;
/// Factors of the document, and data of just that ratio: the share of zeros in percent, so that 1 / (1 -
/// share) is at least the factor.
const FITS: [(f64, u8, &str); 2] = [(1.5, 34, "hs21-150"), (2.0, 50, "hs21-200")];
/// SNIA's data, for write amplification and speed: about 2.4:1 on a drive.
const DATA: Data = Data::Compressible(60);
/// Of the drives that are made for it.
const PARITY: ParityForm = ParityForm::OF_NEW_DRIVES;
const FACTORS: [f64; 3] = [1.0, 1.5, 2.0];
const OVERWRITE: &str = "overwrite, steady";
/// Share by which a factor may be beyond a policy that is named beside it.
const POLICY_TOLERANCE: f64 = 0.02;
/// Memory for the map of a served drive, the default of `pumice serve`.
const MAP_CACHE_BYTES: u64 = 128 << 20;

fn fit_name(factor: f64) -> String {
    format!("{factor:.1}x, data of {factor:.1}:1")
}

fn scene_name(factor: f64) -> String {
    format!("{factor:.1}x")
}

pub(super) fn scenes(plan: &Plan<'_>) -> Result<Planned> {
    let random = Job::random(Pattern::RandomWrite, DATA);
    let scene = |factor: f64| {
        let steps = vec![
            Step::job("fill", Job::sequential(Pattern::Write, DATA)),
            // As much as the capacity, twice: from here on the drive is as fragmented as it will be.
            Step::job("overwrite, first", Job { amount: Amount::Once, ..random }),
            Step::prepare("overwrite, second", Job { amount: Amount::Once, ..random }),
            Step::job(OVERWRITE, random),
            Step::job("read", Job::sequential(Pattern::Read, DATA)),
        ];
        Scene::new(&scene_name(factor), steps).expanded(factor).for_drives()
    };
    let fit = |(factor, percent, _): (f64, u8, &str)| {
        let data = Data::Compressible(percent);
        let random = Job { amount: Amount::Once, ..Job::random(Pattern::RandomWrite, data) };
        let steps =
            vec![Step::job("fill", Job::sequential(Pattern::Write, data)), Step::job("overwrite", random)];
        Scene::new(&fit_name(factor), steps).expanded(factor / FLASH).for_drives().may_run_out()
    };
    let fits = FITS.map(fit).into_iter().filter(|_| plan.size_bytes >= FAIR_BYTES);
    Ok(Planned::from(FACTORS.map(scene).into_iter().chain(fits).collect::<Vec<_>>()))
}

/// The least ratio of data that fills drives of this size and expansion, by the limit of live data that a
/// plan has.
fn least_ratio(physical_bytes: u64, expansion: f64) -> Option<f64> {
    let input = Input { ratio: expansion, physical_bytes, map_cache_bytes: MAP_CACHE_BYTES, parity: PARITY };
    let limit = plan::plan(&input, Policy::Capacity).ok()?.physical_limit_bytes;
    Some(physical_bytes as f64 * expansion / limit as f64)
}

/// The document's name of a policy.
fn document_name(policy: Policy) -> &'static str {
    match policy {
        Policy::Performance => "Maximum Performance",
        Policy::Balanced => "Performance / Capacity",
        Policy::Capacity => "Maximum Capacity",
    }
}

/// What the document advertises for data of a ratio, over all of its flash.
fn document_factor(policy: Policy, ratio: f64, physical_bytes: u64) -> f64 {
    document_row(policy, ratio, physical_bytes).advertised_bytes as f64 / physical_bytes as f64
}

/// The first of the document's policies that advertises so much for data of this ratio.
fn policy_of(factor: f64, ratio: f64, physical_bytes: u64) -> String {
    let admits = |policy: &Policy| {
        document_factor(*policy, ratio, physical_bytes) >= factor * (1.0 - POLICY_TOLERANCE)
    };
    let found = Policy::ALL.into_iter().find(admits);
    found.map_or("beyond the document's policies".to_string(), |policy| document_name(policy).to_string())
}

/// The document's three policies for data of a ratio, beside those of `pumice plan`.
fn policies(ratio: f64, physical_bytes: u64) -> String {
    let input = Input { ratio, physical_bytes, map_cache_bytes: MAP_CACHE_BYTES, parity: PARITY };
    let each = Policy::ALL.map(|policy| {
        let defaults =
            if document_row(policy, ratio, physical_bytes).keep_defaults { ", its defaults" } else { "" };
        let ours = plan::plan(&input, policy).map_or(String::new(), |plan| {
            let factor = plan.logical_capacity_bytes as f64 / physical_bytes as f64;
            format!(" (pumice plan, {policy}: {factor:.2}x, write amplification {:.2})", plan.waf.total)
        });
        let factor = document_factor(policy, ratio, physical_bytes);
        format!("{} {factor:.2}x{defaults}{ours}", document_name(policy))
    });
    format!("figure 21 for data of {ratio:.2}:1, capacity over all flash: {}", each.join("; "))
}

pub(super) fn conclude(seen: &Seen<'_>) -> Conclusions {
    let waf = |factor: f64| seen.run.write_amplification(&scene_name(factor), OVERWRITE, seen.drive);
    // The ratio of blocks that were written alone, as the model assumes.
    let ratio = |factor: f64| seen.run.ratio(&scene_name(factor), OVERWRITE, seen.drive);
    let expected = |factor: f64| {
        let physical_bytes = seen.run.size_bytes;
        let input = Input {
            ratio: ratio(factor)?.median(),
            physical_bytes,
            map_cache_bytes: MAP_CACHE_BYTES,
            parity: PARITY,
        };
        expected_waf(&input, (physical_bytes as f64 * factor) as u64).ok().map(|waf| waf.total)
    };
    let mut conclusions = Conclusions::default();
    let size_bytes = seen.run.size_bytes;
    // The document's table goes by the ratio of the data; that of the least expanded drive is least decayed.
    let data_ratio = FACTORS.into_iter().find_map(ratio).map(|ratio| ratio.median());
    conclusions.notes.extend(data_ratio.map(|ratio| policies(ratio, size_bytes)));
    for factor in FACTORS {
        let Some(predicted) = expected(factor) else { continue };
        let policy =
            data_ratio.map_or(String::new(), |ratio| format!(" ({})", policy_of(factor, ratio, size_bytes)));
        conclusions.predictions.push(Prediction {
            subject: format!("write amplification at {factor:.1}x{policy}"),
            model: "pumice plan".to_string(),
            predicted,
            measured: waf(factor).map(|waf| waf.median()),
        });
    }
    for factor in &FACTORS[1..] {
        let speeds =
            over(seen.speed(&scene_name(*factor), OVERWRITE), seen.speed(&scene_name(1.0), OVERWRITE));
        let Some((level, predicted)) = expected(1.0).zip(expected(*factor)) else { continue };
        conclusions.predictions.push(Prediction {
            subject: format!("speed of random overwrites at {factor:.1}x, over that at 1.0x"),
            model: "pumice plan, if the disk is the limit".to_string(),
            predicted: level / predicted,
            measured: speeds.map(|speeds| speeds.median()),
        });
    }
    for (factor, _, name) in FITS {
        let scene = fit_name(factor);
        if seen.run.size_bytes < FAIR_BYTES {
            let why =
                "the reserve of drives below 512 MiB is a larger share than that of others: --size 512M";
            conclusions.findings.push(Finding::untested(statement(name), why));
            continue;
        }
        let refused =
            seen.run.left_out.iter().find(|line| line.starts_with(&format!("{scene} on {}: ", seen.drive)));
        // A job that was cut says nothing of what it did not write.
        let cut = format!(" on {}: cut after", seen.drive);
        let is_cut = |line: &String| line.starts_with(&format!("{scene}: ")) && line.contains(&cut);
        let is_whole = !seen.run.left_out.iter().any(is_cut);
        let overwritten = seen.run.ratio(&scene, "overwrite", seen.drive).filter(|_| is_whole);
        // 1: everything was written.
        let is_written = match refused {
            Some(line) => line.contains("No space left").then_some(Value::exact(0.0)),
            None => overwritten.map(|_| Value::exact(1.0)),
        };
        // Data of a worse ratio does not fit, by the plan's limit of live data.
        let least = least_ratio(seen.run.size_bytes, factor / FLASH);
        conclusions.predictions.extend(least.map(|predicted| Prediction {
            subject: format!("{factor:.1}x of 5/6 of the size: least ratio that fits; ratio of the data"),
            model: "pumice plan, physical limit".to_string(),
            predicted,
            measured: overwritten.map(|ratio| ratio.median()),
        }));
        let ours = |_| match overwritten.filter(|_| refused.is_none()) {
            Some(ratio) => format!("fits, full and overwritten at {:.2}:1", ratio.median()),
            None => "a write was refused".to_string(),
        };
        let why = format!(
            "reserve, map and headers take more than the ratio leaves: data of {:.2}:1 or better fits, by pumice plan",
            least.unwrap_or(0.0)
        );
        conclusions.findings.push(seen.judge(name, is_written, Needs::AtLeast(1.0), ours, &why));
    }
    let ours = |quotient: f64| {
        format!("{:.2} / {:.2}: {quotient:.2}", shown(waf(1.5)), expected(1.5).unwrap_or(0.0))
    };
    let why = "short of the steady state, or background work wrote beside the host";
    let quotient = over(waf(1.5), expected(1.5).map(Value::exact));
    conclusions.findings.push(seen.judge("pu-waf", quotient, Needs::AtMost(1.0), ours, why));
    conclusions
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Measured, concluded};
    use super::*;

    #[test]
    fn the_three_policies_stand_beside() {
        let measured = FACTORS.map(|factor| (scene_name(factor), factor));
        let measured: Vec<Measured<'_>> = measured
            .iter()
            .map(|(scene, _)| Measured {
                scene,
                step: OVERWRITE,
                target: "pumice",
                rate: 9.0,
                ratio: Some(2.4),
            })
            .collect();
        let run = concluded("expansion", &["pumice"], &measured, &[], &[]);
        let [note] = run.notes.as_slice() else { panic!("{:?}", run.notes) };
        for policy in [
            "Maximum Performance 0.83x, its defaults (pumice plan, performance: ",
            "; Performance / Capacity 2.00x (pumice plan, balanced: ",
            "; Maximum Capacity 2.40x (pumice plan, capacity: ",
        ] {
            assert!(note.contains(policy), "{policy}: {note}");
        }
        let subjects: Vec<&str> = run.predictions.iter().map(|it| it.subject.as_str()).collect();
        assert!(subjects.contains(&"write amplification at 2.0x (Performance / Capacity)"), "{subjects:?}");
        // Half of the ratio, of 6400 of 7680 GB: 9600 GB at 3:1.
        assert_eq!(document_factor(Policy::Performance, 3.0, 7_680_000_000_000), 1.25);
        let named = [(0.8, 2.4), (1.2, 3.0), (2.1, 2.4), (2.5, 2.4)]
            .map(|(factor, ratio)| policy_of(factor, ratio, 256 << 20));
        let expected = [
            "Maximum Performance",
            "Maximum Performance",
            "Maximum Capacity",
            "beyond the document's policies",
        ];
        assert_eq!(named, expected);
    }

    #[test]
    fn the_document_leaves_room_for_the_reserve() {
        for (factor, _, _) in FITS {
            // On all of the flash its data would not fit at any size, beside it at any fair one.
            for size_bytes in [FAIR_BYTES, 4 << 30, 1 << 40] {
                let least = |expansion| least_ratio(size_bytes, expansion).expect("a size of drives");
                assert!(
                    least(factor) > factor * 1.05 && least(factor / FLASH) < factor * 0.95,
                    "{factor}, {size_bytes}"
                );
            }
        }
    }
}
