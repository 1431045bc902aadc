//! `pumice plan`

use std::io::Write;
use std::path::PathBuf;

use ::scan::Interval;
use ::scan::plan::{Input, Plan, Policy, plan};
use anyhow::{Context, Result, anyhow, bail};
use layout::ParityForm;
use media::exact_size;
use report::Table;
use serde_json::{Value, json};

use crate::create::smallest_physical_bytes;
use crate::human;
use crate::input::text_in;
use crate::output::print_json;
use crate::scan::sections::{ratio, ratio_interval};
use crate::size::Size;
use crate::usage::WrongUsage;

#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    pumice plan --ratio 2.4 --physical 7680GB\n  \
    pumice scan /srv/data --json > scan.json && pumice plan --scan scan.json --physical 2T --policy balanced")]
pub(crate) struct Args {
    /// Expected compression ratio including headers and map, as shown by `pumice status`
    #[arg(long, value_parser = ratio_argument, required_unless_present = "scan", conflicts_with = "scan")]
    ratio: Option<f64>,
    /// Output of `pumice scan --json`; the lower bound of the ratio without zeros is used
    #[arg(long, value_name = "FILE")]
    scan: Option<PathBuf>,
    /// Physical size of the drive
    #[arg(long, value_name = "SIZE")]
    physical: Size,
    /// Policy: performance, balanced or capacity [default: all three]
    #[arg(long)]
    policy: Option<Policy>,
    /// Memory for the map, as --map-cache of `pumice serve`
    #[arg(long, value_name = "SIZE", default_value = "128M")]
    map_cache: Size,
    /// Parity, as --parity of `pumice create`: 1/64, 1/32, 1/16 or none
    #[arg(long, value_name = "FORM", default_value_t = ParityForm::OF_NEW_DRIVES)]
    parity: ParityForm,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Range of valid ratios. No data compresses better than zeros, and none takes more than its own size plus
/// headers and map.
const RATIO_MIN: f64 = 0.9;
const RATIO_MAX: f64 = 1000.0;

fn ratio_argument(text: &str) -> Result<f64> {
    let ratio = text.strip_suffix(":1").unwrap_or(text).parse().ok();
    ratio
        .filter(|ratio| (RATIO_MIN..=RATIO_MAX).contains(ratio))
        .with_context(|| format!("expected a ratio from {RATIO_MIN} to {RATIO_MAX}, such as 2.5"))
}

/// The ratio to plan with, and its origin.
struct Source {
    ratio: f64,
    interval: Option<Interval>,
    text: String,
}

impl Args {
    fn source(&self) -> Result<Source> {
        let Some(path) = &self.scan else {
            let ratio = self.ratio.ok_or_else(|| anyhow!("--ratio or --scan is required"))?;
            return Ok(Source { ratio, interval: None, text: "as given".to_string() });
        };
        let shown = path.display();
        let found: Value = serde_json::from_str(&text_in(path)?)
            .with_context(|| format!("{shown}: not what `pumice scan --json` prints"))?;
        let drive = &found["predicted_drive"];
        // Fills take no space, so a ratio with them says nothing about the data to come. Earlier scans have
        // no other.
        let predicted = match drive.get("ratio_without_fills") {
            Some(Value::Null) => {
                bail!("{shown}: nothing but zeros and other fills was found: give a ratio, --ratio")
            }
            Some(ratio) => ratio,
            None => &drive["ratio"],
        };
        let interval: Interval = serde_json::from_value(predicted.clone())
            .map_err(|_| anyhow!("{shown}: no predicted_drive.ratio; is it from `pumice scan --json`?"))?;
        if interval.low < RATIO_MIN || !interval.low.is_finite() {
            bail!("{shown}: invalid ratio {}: expected {RATIO_MIN} to {RATIO_MAX}", interval.low);
        }
        if !(interval.low..=interval.high).contains(&interval.estimate) {
            let Interval { estimate, low, high } = interval;
            bail!("{shown}: invalid ratio {estimate}: it is not in its interval, {low} to {high}");
        }
        let text = if interval.low == interval.high {
            format!("all of the data was read, zeros left out ({shown})")
        } else {
            format!("the lower end of {}, zeros left out ({shown})", ratio_interval(&interval))
        };
        Ok(Source { ratio: interval.low.min(RATIO_MAX), interval: Some(interval), text })
    }
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let source = args.source()?;
    let input = Input {
        ratio: source.ratio,
        physical_bytes: args.physical.0,
        map_cache_bytes: args.map_cache.0,
        parity: args.parity,
    };
    let policies = args.policy.map_or(Policy::ALL.to_vec(), |policy| vec![policy]);
    let plans: Vec<Plan> =
        policies.into_iter().map(|policy| plan(&input, policy)).collect::<Result<_, _>>().map_err(
            |error| {
                let smallest = smallest_physical_bytes(None).filter(|smallest| args.physical.0 < *smallest);
                let why = match smallest {
                    Some(smallest) => format!("too small: at least {}", exact_size(smallest)),
                    None => error.to_string(),
                };
                WrongUsage(format!("--physical {}: {why}", exact_size(args.physical.0)))
            },
        )?;
    let mut out = crate::output::stdout();
    if args.json {
        let answer = json!({
            "version": 1,
            "ratio": source.ratio,
            "ratio_interval": source.interval,
            "ratio_source": source.text,
            "plans": plans,
        });
        print_json(&answer)?;
    } else {
        write!(out, "{}", text(&source, &plans))?;
    }
    Ok(())
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

fn text(source: &Source, plans: &[Plan]) -> String {
    let Some(first) = plans.first() else { return String::new() };
    let mut out = format!(
        "{} physical, ratio {}: {}\n\n",
        human::bytes(first.physical_size_bytes),
        ratio(source.ratio),
        source.text
    );
    let mut table =
        Table::new(std::iter::once(String::new()).chain(plans.iter().map(|p| p.policy.to_string())))
            .right_from(1);
    let mut row = |name: &str, cell: &dyn Fn(&Plan) -> String| {
        table.row(std::iter::once(name.to_string()).chain(plans.iter().map(cell)));
    };
    let bytes = |value: u64| human::bytes(value);
    row("logical capacity to advertise", &|p| bytes(p.logical_capacity_bytes));
    row("  for pumice create --capacity", &|p| p.logical_capacity_bytes.to_string());
    row("the document's: physical capacity", &|p| bytes(p.document.provisioned_bytes));
    row("the document's: advertised", &|p| {
        let kept = if p.document.keep_defaults { " (defaults)" } else { "" };
        format!("{}{kept}", bytes(p.document.advertised_bytes))
    });
    if first.physical_parity_bytes > 0 {
        row(&format!("parity {}", first.parity), &|p| bytes(p.physical_parity_bytes));
    }
    row("physical used when it is full", &|p| bytes(p.physical_used_full_bytes));
    row("over-provisioning left", &|p| percent(p.over_provisioning));
    row("write amplification when full", &|p| format!("{:.2}", p.waf.total));
    row("  data / cleaning / map", &|p| {
        format!("{:.2} / {:.2} / {:.2}", p.waf.data, p.waf.cleaning, p.waf.map)
    });
    row("warn from physical used", &|p| bytes(p.alarms.used_warning_bytes));
    row("act from physical used", &|p| bytes(p.alarms.used_critical_bytes));
    row("warn below ratio", &|p| ratio(p.alarms.ratio_warning));
    row("out of space below ratio", &|p| ratio(p.alarms.ratio_break_even));
    for (i, worse) in first.worse.iter().enumerate() {
        row(&format!("{} % worse, {}", worse.percent, ratio(worse.ratio)), &|p| {
            let Some(worse) = p.worse.get(i) else { return String::new() };
            if worse.fits {
                format!("fits, WAF {:.2}", worse.waf)
            } else {
                let share = worse.logical_at_full_bytes as f64 / p.logical_capacity_bytes as f64;
                format!("full at {} of it", percent(share))
            }
        });
    }
    row("host memory, at most", &|p| bytes(p.memory.total_max_bytes));
    row("a map cache for all of the map", &|p| bytes(p.memory.whole_map_bytes));
    row("the document's: 0.2 % + 3.5 GB", &|p| bytes(p.memory.document_bytes));
    out.push_str(&table.to_text());
    for plan in plans {
        if let Some(why) = &plan.differs_because {
            out.push_str(&format!("\n{}: less than the document, because {why}.\n", plan.policy));
        }
    }
    out.push_str(
        "\nWrite amplification is bytes to the backing for each byte of the host, under uniform random overwrites of 4 \
         KiB on a full drive; other workloads need less.\n",
    );
    out
}
