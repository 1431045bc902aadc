//! `pumice scan`

mod html;
mod progress;
pub(crate) mod sections;

use std::io::Write;
use std::path::{Path, PathBuf};

use ::scan::{NbdTlsFiles, Options, Population, Report, S3Options, WalkOptions};
use anyhow::{Context, Result, bail};
use codec::Policy;
use layout::ParityForm;

use crate::output::Output;
use crate::output::print_json;
use crate::size::Size;
use crate::usage::{WrongUsage, complain, whole_number};
use progress::Bar;

#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    pumice scan /srv/data\n  \
    pumice scan /dev/nvme0n1 --json | jq .predicted_drive.ratio\n  \
    pumice scan 'nbd+unix:///?socket=/run/vm.sock'\n  \
    pumice scan nbds://HOST/EXPORT --tls-ca ca.pem --tls-cert client.pem --tls-key client.key\n  \
    pumice scan s3://bucket/prefix --s3-endpoint http://127.0.0.1:9000\n  \
    zfs send pool/data@today | pumice scan -")]
pub(crate) struct Args {
    /// Files, directories, block devices, nbd://HOST/EXPORT, nbd+unix:///EXPORT?socket=PATH, the same with
    /// TLS (nbds://, nbds+unix://), s3://BUCKET/PREFIX, or - for standard input
    #[arg(required = true, value_name = "PATH")]
    sources: Vec<String>,
    /// Target half-width of the confidence intervals for 4 KiB blocks and for the predicted drive, in
    /// percentage points of the stored share
    #[arg(long, value_name = "POINTS", default_value = "1", value_parser = points)]
    precision: f64,
    /// Target half-width for units of up to 128 KiB (rival layouts, settled data), in percentage points; 0
    /// skips them
    #[arg(long, value_name = "POINTS", default_value = "5", value_parser = points_or_none)]
    unit_precision: f64,
    /// Confidence level of the intervals, in percent
    #[arg(long, value_name = "PERCENT", default_value = "95", value_parser = percent)]
    confidence: f64,
    /// Read all data instead of samples
    #[arg(long)]
    full: bool,
    /// Codec of the predicted drive, as --codec of `pumice create`
    #[arg(long, default_value = "auto")]
    codec: Policy,
    /// Parity of the predicted drive, as --parity of `pumice create`: 1/64, 1/32, 1/16 or none
    #[arg(long, value_name = "FORM", default_value_t = ParityForm::OF_NEW_DRIVES)]
    parity: ParityForm,
    /// Codecs to compare: auto, lz4, zstd:LEVEL, deflate:LEVEL, none
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "lz4,zstd:1,zstd:3,zstd:9,deflate:1,deflate:6"
    )]
    compare: Vec<Policy>,
    /// Codecs of the rival layouts
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "lz4,zstd:3")]
    rival_codecs: Vec<Policy>,
    /// Maximum read rate, in bytes per second
    #[arg(long, value_name = "SIZE")]
    max_rate: Option<Size>,
    /// Number of threads [default: one per core, at least 4]
    #[arg(long, value_parser = whole_number(1..=1024_u16))]
    threads: Option<u16>,
    /// Seed of the random samples, for repeatable results [default: random]
    #[arg(long)]
    seed: Option<u64>,
    /// Directory levels reported separately
    #[arg(long, default_value = "1", value_parser = whole_number(1..=u8::MAX))]
    depth: u8,
    /// Cross file system boundaries
    #[arg(long)]
    cross_filesystems: bool,
    /// PEM file of the authorities that must have signed the certificate of a server of nbds:// or
    /// nbds+unix:// [default: those that this machine trusts]
    #[arg(long, value_name = "FILE")]
    tls_ca: Option<PathBuf>,
    /// PEM file with a certificate chain, for servers of nbds:// or nbds+unix:// that require client
    /// certificates
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// PEM file with the key of --tls-cert
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// S3 endpoint URL [default: Amazon's endpoint for the region]
    #[arg(long, value_name = "URL", env = "AWS_ENDPOINT_URL")]
    s3_endpoint: Option<String>,
    /// S3 region of the bucket
    #[arg(long, value_name = "NAME", env = "AWS_REGION")]
    s3_region: Option<String>,
    /// Send unsigned S3 requests even if AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are set
    #[arg(long)]
    s3_anonymous: bool,
    /// Use virtual-hosted-style S3 URLs (bucket in the host name)
    #[arg(long)]
    s3_virtual_host: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Write a self-contained HTML report with charts
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

fn number(text: &str) -> Result<f64> {
    text.parse().ok().filter(|number: &f64| number.is_finite()).context("expected a number")
}

fn points(text: &str) -> Result<f64> {
    number(text).and_then(|points| match points {
        0.01..=50.0 => Ok(points / 100.0),
        _ => bail!("expected percentage points from 0.01 to 50"),
    })
}

fn points_or_none(text: &str) -> Result<f64> {
    if number(text)? == 0.0 { Ok(0.0) } else { points(text) }
}

fn percent(text: &str) -> Result<f64> {
    number(text).and_then(|percent| match percent {
        50.0..=99.9999 => Ok(percent / 100.0),
        _ => bail!("expected a percentage from 50 to 99.9999"),
    })
}

impl Args {
    fn options(&self) -> Options {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Options {
            codec: self.codec,
            parity: self.parity,
            compare: self.compare.clone(),
            rival_codecs: self.rival_codecs.clone(),
            confidence: self.confidence,
            precision: self.precision,
            unit_precision: (self.unit_precision > 0.0).then_some(self.unit_precision),
            full: self.full,
            seed: self.seed.unwrap_or_else(|| u64::from(uuid::Uuid::new_v4().as_fields().0)),
            // At least four threads: reading spends more time waiting than computing.
            threads: self.threads.map_or(cores.max(4), usize::from),
            max_rate: self.max_rate.map(|size| size.0),
        }
    }

    fn tls(&self) -> NbdTlsFiles {
        NbdTlsFiles { ca: self.tls_ca.clone(), identity: self.tls_cert.clone().zip(self.tls_key.clone()) }
    }

    fn s3(&self, options: &Options) -> S3Options {
        let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let credentials = variable("AWS_ACCESS_KEY_ID")
            .zip(variable("AWS_SECRET_ACCESS_KEY"))
            .map(|(key, secret)| (key, secret, variable("AWS_SESSION_TOKEN")));
        S3Options {
            endpoint: self.s3_endpoint.clone(),
            region: self.s3_region.clone().or_else(|| variable("AWS_DEFAULT_REGION")),
            credentials: credentials.filter(|_| !self.s3_anonymous),
            virtual_host: self.s3_virtual_host,
            depth: self.depth.into(),
            whole: options.full,
            seed: options.seed,
            patience: None,
        }
    }
}

pub(crate) fn run(args: &Args) -> Result<()> {
    if args.max_rate.is_some_and(|rate| rate.0 == 0) {
        return wrong("--max-rate 0 would read nothing; leave it out to read as fast as it goes".into());
    }
    let page = args.html.as_deref().map(Output::check).transpose()?;
    let options = args.options();
    let mut report = match args.sources.as_slice() {
        [only] if only == "-" => {
            let bar = Bar::new();
            let stdin = std::io::stdin();
            ::scan::scan_stream("-", &mut stdin.lock(), &options, &|event| bar.on(event))?
        }
        sources if sources.iter().any(|source| source == "-") => {
            return wrong("- (standard input) can only be scanned alone".into());
        }
        sources => {
            let bar = Bar::new();
            let population = list(args, &options, sources, &bar)?;
            ::scan::scan(&population, &options, &|event| bar.on(event))?
        }
    };
    report.sources = args.sources.clone();
    if let Some(page) = page {
        page.write(&html::render(&report, &::report::utc(status::unix_seconds_now())))?;
    }
    print(args, &report)
}

/// Returns a usage error: the arguments are wrong, whatever the paths contain.
fn wrong<T>(why: String) -> Result<T> {
    Err(WrongUsage(why).into())
}

/// Lists the data of all sources.
fn list(args: &Args, options: &Options, sources: &[String], bar: &Bar) -> Result<Population> {
    let paths: Vec<&Path> = sources.iter().filter(|s| !is_uri(s)).map(Path::new).collect();
    refuse_overlaps(&paths)?;
    refuse_again(sources)?;
    let walk = WalkOptions { cross_filesystems: args.cross_filesystems, depth: args.depth.into() };
    let mut population = Population::new();
    let s3 = args.s3(options);
    if s3.is_plain_text() && sources.iter().any(|source| source.starts_with("s3://")) {
        let signed = match s3.credentials {
            Some(_) => ", and repeat the signed requests for 15 minutes",
            None => "",
        };
        complain(&format!(
            "warning: the S3 endpoint is reached without encryption: others on the network can read and forge the \
             data{signed}; use https://"
        ));
    }
    for source in sources {
        let found = |count| bar.listed(count);
        if source.starts_with("s3://") {
            population.add_s3(source, &s3, &found)?;
        } else if is_uri(source) {
            population.add_nbd(source, &args.tls())?;
        } else {
            population.add_path(Path::new(source), walk, &found)?;
        }
    }
    Ok(population)
}

fn is_uri(source: &str) -> bool {
    ["s3://", "nbd://", "nbds://", "nbd+unix://", "nbds+unix://"]
        .iter()
        .any(|scheme| source.starts_with(scheme))
}

/// Refuses a path within another one, whose data would count twice.
fn refuse_overlaps(paths: &[&Path]) -> Result<()> {
    let whole = |path: &&Path| path.canonicalize().with_context(|| path.display().to_string());
    let whole: Vec<PathBuf> = paths.iter().map(whole).collect::<Result<_>>()?;
    for (i, inner) in whole.iter().enumerate() {
        for (j, outer) in whole.iter().enumerate() {
            if i != j && inner.starts_with(outer) {
                let (inner, outer) = (paths[i].display(), paths[j].display());
                if whole[i] == whole[j] {
                    return wrong(format!(
                        "{inner}: is the same as {outer} and would count twice; leave one of them out"
                    ));
                }
                return wrong(format!(
                    "{inner}: is within {outer} and would count twice; leave one of them out"
                ));
            }
        }
    }
    Ok(())
}

/// Refuses an export or bucket that is given twice, or a prefix of a bucket within another one.
fn refuse_again(sources: &[String]) -> Result<()> {
    let is_within =
        |inner: &str, outer: &str| match (inner.strip_prefix("s3://"), outer.strip_prefix("s3://")) {
            (Some(inner), Some(outer)) => {
                let parts = |source: &str| {
                    let (bucket, prefix) = source.split_once('/').unwrap_or((source, ""));
                    (bucket.to_string(), prefix.to_string())
                };
                let (inner, outer) = (parts(inner), parts(outer));
                inner.0 == outer.0 && inner.1.starts_with(&outer.1)
            }
            _ => inner == outer,
        };
    for (i, inner) in sources.iter().enumerate().filter(|(_, source)| is_uri(source)) {
        let others = sources.iter().enumerate().filter(|(j, _)| i != *j);
        if let Some((_, outer)) = others.into_iter().find(|(_, outer)| is_within(inner, outer)) {
            return wrong(format!("{inner}: is within {outer} and would count twice; leave one of them out"));
        }
    }
    Ok(())
}

fn print(args: &Args, report: &Report) -> Result<()> {
    let mut out = crate::output::stdout();
    if args.json {
        print_json(report)?;
    } else {
        write!(out, "{}", sections::text(report))?;
    }
    Ok(())
}
