//! `pumice bench`: experiments of published documents, repeated on this machine.

mod empty;
mod examine;
mod progress;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ::bench::{BenchError, DataSet, Fio, Kind, Options, Run, S3Client, SUITES, Session, Stop, Suite, Target};
use anyhow::{Context, Result, anyhow, bail};
use clap::Subcommand;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use nbd::client::ExportUri;

use crate::in_use;
use crate::input::text_in;
use crate::output::Output;
use crate::size::Size;
use crate::usage::{Coded, WrongUsage, complain, one_line};
use empty::TargetChecks;
use examine::examine;
use progress::Bar;

/// Repeat experiments of published documents with fio, and compare the results with their statements
/// (docs/how-to/bench.md)
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(
    after_help = "Targets: pumice, a temporary drive, or pumice,codec=CODEC; pumice:PATH, a drive, created for the run \
    if it does not exist; raw, a file; qcow2, an image behind qemu-nbd; btrfs, a file in a btrfs that compresses; \
    nbd://... and nbd+unix://...; nvme-tcp://HOST:PORT/NQN, ?nsid=N, which is connected by nvme-cli for the run; \
    rbd:POOL/IMAGE of Ceph, or IMAGE,IMAGE for jobs on many, ?conf=PATH names its cluster; s3+http://HOST:PORT/BUCKET, \
    a bucket, whose keys are in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, ?class=CLASS&conf=PATH; attached and \
    raid0, volumes of one and of two attached drives, raw-attached and raw-raid0, of plain files; a file or block \
    device. Each may have a name: NAME=TARGET.\n\n\
    Examples:\n  \
    pumice bench quick --html quick.html\n  pumice bench fio-baseline --target pumice --target raw --minutes 20 --json \
    run.json\n  pumice bench raid --minutes 5\n  pumice bench s3 --target none=s3+http://127.0.0.1:7480/plain --target \
    drive=s3+http://127.0.0.1:7481/packed --drives drive=127.0.0.1:8101\n  pumice bench compare before.json \
    after.json\n  pumice bench scorecard run.json quick.json > scorecard.md"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    /// Suite of experiments
    #[arg(required = true, value_parser = suites())]
    suite: Option<String>,
    /// Target to measure; may be repeated [default: those of the suite; offload and s3 have none]
    #[arg(long, value_name = "[NAME=]TARGET", value_parser = target)]
    target: Vec<Target>,
    /// Time limit of the run in minutes. It sets the length of jobs and the number of rounds [default: 10;
    /// for quick 2]
    #[arg(long, value_parser = minutes)]
    minutes: Option<f64>,
    /// Size of new drives and files; of existing ones, the part to use [default: that of the suite, 256M or
    /// 512M]
    #[arg(long)]
    size: Option<Size>,
    /// Directory for temporary drives and files, on the disk to measure [default: TMPDIR or /tmp]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Data set for the suite datasets; may be repeated. Names of Canonical's: warp, jpeg, covid, yuv, h264
    #[arg(long, value_name = "NAME=PATH", value_parser = data_set)]
    data: Vec<DataSet>,
    /// Client of the suite s3: warp, MinIO's benchmark; own, whose data is 4:3; auto, warp if it is in PATH
    /// and the buckets are empty, else own
    #[arg(long, value_name = "CLIENT", default_value = "auto", value_parser = s3_client())]
    s3_client: S3Client,
    /// Server processes of a target, to count their CPU time; may be repeated
    #[arg(long, value_name = "NAME=PID,...", value_parser = pids)]
    pids: Vec<(String, Vec<u32>)>,
    /// HTTP addresses (`serve --http`) of the Pumice drives under a cluster, to count the space that they
    /// use; may be repeated
    #[arg(long, value_name = "NAME=HOST:PORT,...", value_parser = drives)]
    drives: Vec<(String, Vec<String>)>,
    /// Repeat jobs that write for a time until the last five rounds are in a steady state, by SNIA's
    /// performance test specification
    #[arg(long)]
    steady_state: bool,
    /// Overwrite targets that hold data. Targets in use are still refused
    #[arg(long)]
    destroy: bool,
    /// Write all results as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write a self-contained HTML report with charts
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Program to create and serve drives with, to compare two versions [default: this program]
    #[arg(long, value_name = "PATH")]
    pumice: Option<PathBuf>,
    /// Program to use as fio [default: the one installed]
    #[arg(long, value_name = "PATH")]
    fio: Option<PathBuf>,
    /// Processors for fio, such as 0 or 0-2,5 (`taskset`), to leave the others to servers [default: all]
    #[arg(long, value_name = "LIST", value_parser = processors)]
    fio_cpus: Option<String>,
}

#[derive(Subcommand)]
enum Command {
    /// Compare two runs and show the differences beyond noise
    #[command(after_help = "Example: pumice bench compare before.json after.json")]
    Compare {
        /// Output of `pumice bench --json`
        before: PathBuf,
        /// Output of `pumice bench --json`
        after: PathBuf,
        /// Write all differences as JSON
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
    },
    /// Print the statements of all documents beside the measured results, as Markdown
    #[command(after_help = "Example: pumice bench scorecard run.json quick.json > scorecard.md")]
    Scorecard {
        /// Output of `pumice bench --json`
        #[arg(required = true)]
        runs: Vec<PathBuf>,
    },
}

fn suites() -> PossibleValuesParser {
    PossibleValuesParser::new(SUITES.iter().map(|suite| PossibleValue::new(suite.name).help(suite.summary)))
}

fn target(text: &str) -> Result<Target> {
    let target: Target = text.parse()?;
    if let Kind::Nbd(uri) = &target.kind {
        ExportUri::parse(uri)?;
    }
    Ok(target)
}

fn s3_client() -> impl TypedValueParser<Value = S3Client> {
    PossibleValuesParser::new(S3Client::NAMES).try_map(|name| name.parse::<S3Client>())
}

fn minutes(text: &str) -> Result<f64> {
    /// A week.
    const MINUTES_MAX: f64 = 7.0 * 24.0 * 60.0;
    let minutes = text.parse().ok().filter(|minutes| (0.0..=MINUTES_MAX).contains(minutes));
    minutes.with_context(|| format!("expected minutes from 0 to {MINUTES_MAX}"))
}

fn data_set(text: &str) -> Result<DataSet> {
    let (name, path) = text
        .split_once('=')
        .filter(|(name, path)| !name.is_empty() && !path.is_empty())
        .context("expected NAME=PATH, such as photos=/srv/photos")?;
    Ok(DataSet { name: name.to_string(), path: path.into() })
}

fn pids(text: &str) -> Result<(String, Vec<u32>)> {
    let pids = text.split_once('=').and_then(|(name, list)| {
        let pids: Option<_> = list.split(',').map(|pid| pid.trim().parse().ok()).collect();
        Some((name.to_string(), pids?))
    });
    pids.context("expected NAME=PID,... with the name of a target")
}

fn processors(text: &str) -> Result<String> {
    let number = |text: &str| text.parse::<u16>().ok();
    let part = |part: &str| match part.split_once('-') {
        Some((first, last)) => number(first).zip(number(last)).is_some_and(|(first, last)| first <= last),
        None => number(part).is_some(),
    };
    match text.split(',').all(part) {
        true => Ok(text.to_string()),
        false => bail!("expected numbers of processors, such as 0 or 0-2,5"),
    }
}

fn drives(text: &str) -> Result<(String, Vec<String>)> {
    let form = "expected NAME=HOST:PORT,... with the name of a target";
    let (name, list) = text.split_once('=').context(form)?;
    let addresses: Vec<String> = list.split(',').map(|address| address.trim().to_string()).collect();
    match addresses.iter().all(|address| address.contains(':') && !address.contains('/')) {
        true => Ok((name.to_string(), addresses)),
        false => bail!(form),
    }
}

/// Smallest size of what is created: a drive needs this much to clean.
const SIZE_MIN_BYTES: u64 = 64 << 20;

pub(crate) fn run(args: &Args) -> Result<()> {
    let out = match &args.command {
        Some(Command::Compare { before, after, json }) => {
            let json = json.as_deref().map(Output::check).transpose()?;
            let names = [before, after].map(|path| path.display().to_string());
            let runs = [read(before)?, read(after)?];
            let found = ::bench::comparison([&names[0], &names[1]], [&runs[0], &runs[1]])?;
            if let Some(json) = json {
                json.write(&(serde_json::to_string_pretty(&found)? + "\n"))?;
            }
            ::bench::comparison_text(&found)
        }
        Some(Command::Scorecard { runs }) => {
            ::bench::scorecard(&runs.iter().map(|path| read(path)).collect::<Result<Vec<Run>>>()?)
        }
        None => return measure(args),
    };
    Ok(crate::output::stdout().write_all(out.as_bytes())?)
}

fn read(path: &Path) -> Result<Run> {
    let shown = path.display().to_string();
    Ok(Run::parse(&shown, &text_in(path)?)?)
}

fn measure(args: &Args) -> Result<()> {
    let suite = args.suite.as_deref().and_then(::bench::suite).ok_or_else(|| anyhow!("no suite"))?;
    if args.size.is_some_and(|size| size.0 < SIZE_MIN_BYTES) {
        return Err(WrongUsage(format!("--size: expected at least {SIZE_MIN_BYTES} bytes")).into());
    }
    let fio = Fio::find(args.fio.as_deref())?;
    let fio = match &args.fio_cpus {
        Some(list) => fio.on_processors(list),
        None => fio,
    };
    let [json, html] = [&args.json, &args.html].map(|path| path.as_deref().map(Output::check).transpose());
    let (json, html) = (json?, html?);
    let mut targets = args.target.clone();
    ::bench::distinct(&targets).map_err(|error| WrongUsage(error.to_string()))?;
    ::bench::distinct_data(&args.data).map_err(|error| WrongUsage(error.to_string()))?;
    for (name, pids) in &args.pids {
        let target = targets.iter_mut().find(|target| target.name == *name);
        let target = target.ok_or_else(|| WrongUsage(format!("--pids {name}: no target of this name")))?;
        target.pids.extend(pids);
    }
    for (name, addresses) in &args.drives {
        let target = targets.iter_mut().find(|target| target.name == *name);
        let target = target.ok_or_else(|| WrongUsage(format!("--drives {name}: no target of this name")))?;
        target.drives.extend(addresses.iter().cloned());
    }
    let stop = Stop::default();
    targets.iter().try_for_each(|target| examine(target, &stop))?;
    let checks = TargetChecks::new(args.destroy, &stop);
    targets.iter().try_for_each(|target| checks.first(target))?;
    let at_signal = stop.clone();
    crate::interrupt::on_signal(move || at_signal.set())?;
    let in_use = |device: &Path| in_use::refuse(device).map_err(|error| one_line(&error).into());
    let connections = ::bench::connect(&mut targets, &in_use, &stop).map_err(ended)?;
    let measured = measure_on(args, suite, fio, targets, &checks, [json, html]);
    for left in connections.disconnect() {
        complain(&format!("warning: {left}"));
    }
    measured
}

/// Measures targets that are connected.
fn measure_on(
    args: &Args,
    suite: &'static Suite,
    fio: Fio,
    targets: Vec<Target>,
    checks: &TargetChecks<'_>,
    [json, html]: [Option<Output>; 2],
) -> Result<()> {
    let stop = checks.stop();
    for target in targets.iter().filter(|target| matches!(target.kind, Kind::NvmeTcp { .. })) {
        checks.first(target).map_err(|error| match stop.is_set() {
            true => ended(BenchError::Interrupted),
            false => error,
        })?;
    }
    let options = Options {
        targets,
        limit: Duration::from_secs_f64(args.minutes.unwrap_or(suite.minutes) * 60.0),
        size_bytes: args.size.map(|size| size.0),
        folder: args.dir.clone().unwrap_or_else(std::env::temp_dir),
        program: match &args.pumice {
            Some(program) => program.clone(),
            None => std::env::current_exe().context("cannot find this program")?,
        },
        fio,
        to_steady: args.steady_state,
        data: args.data.clone(),
        s3_client: args.s3_client,
        command: std::env::args().collect::<Vec<_>>().join(" "),
    };
    let bar = Bar::new();
    let check = |target: &Target, is_first: bool| {
        let looked = if is_first { checks.before_writes(target, bar.voice()) } else { empty::free(target) };
        looked.map_err(|error| one_line(&error).into())
    };
    let run = Session::new(suite, &options, stop, &|progress| bar.show(progress)).checked(&check).run();
    drop(bar);
    let run = run.map_err(ended)?;
    if let Some(json) = json {
        json.write(&(serde_json::to_string_pretty(&run)? + "\n"))?;
    }
    if let Some(html) = html {
        html.write(&::bench::page(&run))?;
    }
    crate::output::stdout().write_all(::bench::text(&run).as_bytes())?;
    if !run.complete {
        complain("warning: the run is not complete: see what was left out, or give it more time (--minutes)");
    }
    if stop.is_set() {
        return Err(interrupted(anyhow!("interrupted; the results are of a part")));
    }
    if let Some(first) = run.failed.first() {
        bail!(
            "{} scenes failed, the first: {} on {}: {}",
            run.failed.len(),
            first.scene,
            first.target,
            first.error
        );
    }
    Ok(())
}

/// Why nothing was measured.
fn ended(error: BenchError) -> anyhow::Error {
    match error.is_interrupted() {
        true => interrupted(error.into()),
        false => error.into(),
    }
}

/// An error with the exit code of programs that Ctrl-C ended.
fn interrupted(error: anyhow::Error) -> anyhow::Error {
    /// 128 and the number of SIGINT.
    const CODE: u8 = 130;
    Coded { code: CODE, error }.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments() {
        assert_eq!(minutes("0.5").ok(), Some(0.5));
        assert_eq!(::bench::suite("quick").map(|suite| suite.minutes), Some(2.0));
        assert!(SUITES.iter().all(|suite| suite.name == "quick" || suite.minutes == 10.0));
        assert!(minutes("-1").is_err() && minutes("NaN").is_err() && minutes("x").is_err());
        let set = DataSet { name: "a".to_string(), path: "/b=c".into() };
        assert_eq!(data_set("a=/b=c").ok(), Some(set));
        assert!(data_set("=b").is_err() && data_set("a").is_err());
        assert_eq!(pids("a=1,2").ok(), Some(("a".to_string(), vec![1, 2])));
        assert!(pids("a").is_err() && pids("a=x").is_err());
        assert_eq!(
            drives("a=h:1,h:2").ok(),
            Some(("a".to_string(), vec!["h:1".to_string(), "h:2".to_string()]))
        );
        assert!(["0", "0-2,5"].iter().all(|list| processors(list).is_ok_and(|it| it == *list)));
        assert!(["", "a", "1-", "2-1", "0,", "-1"].iter().all(|list| processors(list).is_err()));
        assert!(target("nbd+unix:///").is_err() && target("nbd+unix:///?socket=/s").is_ok());
        assert!(drives("a").is_err() && drives("a=h").is_err() && drives("a=http://h:1").is_err());
    }
}
