//! `pumice create`

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use ::scan::MapNeeds;
use ::scan::plan::safe_capacity_bytes;
use anyhow::{Context, Result, anyhow, bail};
use drive::{CreateOptions, Drive};
use layout::Geometry;
use media::{Allocation, AnyMedia, Direct, FileMedia, Media};
use service::{IoChoice, run_here};
use status::{CapacityPlan, Fit, path_text};

use crate::free_space::{free_bytes, missing_bytes};
use crate::human;
use crate::in_use;
use crate::output::{print_json, report_result};
use crate::resize::needs;
use crate::signatures;
use crate::size::Size;
use crate::usage;

const BLOCK: u64 = layout::BLOCK_BYTES as u64;

#[derive(clap::Args)]
#[command(after_help = "Example: pumice create /srv/drive --size 10G --capacity 30G")]
pub(crate) struct Args {
    /// File (created if missing) or block device
    path: PathBuf,
    /// Physical space the drive may use [default: all of a block device or existing file]
    #[arg(long, value_name = "SIZE")]
    size: Option<Size>,
    /// Logical capacity, as hosts see it [default: what data fits into that does not compress, about 90 % of the physical size]
    #[arg(long, value_name = "SIZE")]
    capacity: Option<Size>,
    /// Sector size in bytes
    #[arg(long, default_value = "512", value_parser = ["512", "4096"])]
    sector: String,
    /// Codec: auto, lz4, zstd, zstd:LEVEL, deflate, deflate:LEVEL or none
    #[arg(long, default_value = "auto")]
    codec: codec::Policy,
    /// Rated endurance of the backing (TBW), such as 600TB; status then shows the share that is used
    #[arg(long, value_name = "TBW")]
    endurance: Option<Size>,
    /// Allocate all space of a new file now and keep it allocated: freed space is not returned to the filesystem
    #[arg(long)]
    preallocate: bool,
    /// Overwrite existing data
    #[arg(long)]
    force: bool,
    /// Segment size in bytes
    #[arg(long, value_name = "SIZE", hide = true)]
    segment: Option<Size>,
    /// Print JSON: {"path": ..., "uuid": ..., "logical_capacity_bytes": ..., ...}
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let existed = look(&args.path)?;
    let (media, grown) = match existed {
        true => open_existing(args)?,
        false => (create_file(args)?, None),
    };
    if existed && !args.force {
        // Another command may have created a drive before the file was locked. That drive must not be overwritten.
        run_here(IoChoice::Auto, |_| refuse_contents(&args.path, &media))??;
    }
    let created = run_here(IoChoice::Auto, |_| create_on(args, &media))
        .map_err(anyhow::Error::from)
        .and_then(|created| created);
    if created.is_err() {
        // Cleans up before the lock is released; another command may create its drive after that.
        match grown {
            // Restores the empty file.
            Some(file) => drop(file.set_len(0)),
            // The new file holds no data yet.
            None if !existed => drop(std::fs::remove_file(&args.path)),
            None => {}
        }
    }
    drop(media);
    let options = created?;
    let warnings = [needs_ratio(&options)?, lacks_room(&args.path)].into_iter().flatten().collect::<Vec<_>>();
    let warning = (!warnings.is_empty()).then(|| warnings.join("; "));
    report_result(&format!("{}: created", args.path.display()), || print(args, &options, warning.as_deref()));
    for warning in warnings {
        usage::complain(&format!("warning: {}: {warning}", args.path.display()));
    }
    Ok(())
}

/// Returns a warning if not all data fits into the capacity.
fn needs_ratio(options: &CreateOptions) -> Result<Option<String>> {
    let geometry = Geometry::new(options.physical_size_bytes, options.segment_bytes)?;
    let limit = ::scan::limit_bytes(&geometry, MapNeeds::default());
    let plan = CapacityPlan::new(options.logical_capacity_bytes, limit, None);
    let needs = needs(options.logical_capacity_bytes, &plan);
    Ok((plan.fit != Fit::Any).then(|| {
        format!("{needs}: measure yours with `pumice scan`, and let `pumice plan` choose a capacity")
    }))
}

/// Returns a warning if the filesystem cannot hold the full size of a sparse file.
fn lacks_room(path: &Path) -> Option<String> {
    if !path.metadata().ok()?.is_file() {
        return None;
    }
    let (missing, free) = (missing_bytes(path).ok()?, free_bytes(path).ok()?);
    (missing > free).then(|| {
        format!(
            "it may take {} more from the filesystem, which has {} free: if that runs full, writes are refused",
            human::bytes(missing),
            human::bytes(free)
        )
    })
}

fn print(args: &Args, options: &CreateOptions, warning: Option<&str>) -> Result<()> {
    if args.json {
        return print_json(&serde_json::json!({
            "path": path_text(&args.path),
            "uuid": uuid::Uuid::from_bytes(options.uuid).to_string(),
            "logical_capacity_bytes": options.logical_capacity_bytes,
            "physical_size_bytes": options.physical_size_bytes,
            "sector_bytes": options.sector_bytes,
            "codec": options.codec.to_string(),
            "endurance_bytes": Some(options.endurance_bytes).filter(|bytes| *bytes > 0),
            "preallocated": options.keep_allocated,
            "warning": warning,
        }));
    }
    writeln!(
        std::io::stdout(),
        "{}: a drive of {} logical on {} physical, {}-byte sectors, codec {}",
        args.path.display(),
        human::bytes(options.logical_capacity_bytes),
        human::bytes(options.physical_size_bytes),
        options.sector_bytes,
        options.codec,
    )?;
    Ok(())
}

/// Returns whether the path exists. Fails if the path cannot be examined, or if its directory does not exist.
fn look(path: &Path) -> Result<bool> {
    let existed = path.try_exists().with_context(|| format!("{}: cannot look at it", path.display()))?;
    let above = path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !existed && !above.is_dir() {
        bail!("{}: cannot be created: {} is not a directory", path.display(), above.display());
    }
    Ok(existed)
}

fn create_file(args: &Args) -> Result<AnyMedia> {
    let Some(Size(size)) = args.size else {
        bail!("{}: no such file; use --size to create it", args.path.display());
    };
    let allocation = if args.preallocate { Allocation::Preallocated } else { Allocation::Sparse };
    Ok(AnyMedia::from(FileMedia::create(&args.path, size, allocation, Direct::Auto)?))
}

/// Opens an existing file or device. Also returns the file if it was empty and was extended to the size of the drive.
fn open_existing(args: &Args) -> Result<(AnyMedia, Option<File>)> {
    if args.preallocate {
        bail!("{}: exists already; --preallocate is for new files", args.path.display());
    }
    in_use::refuse(&args.path)?;
    let grown = match args.size {
        Some(Size(size)) => grow(args, size)?,
        None => None,
    };
    let media = FileMedia::open(&args.path, false, Direct::Auto)?;
    if let Some(warning) = media.warning() {
        usage::complain(&format!("warning: {warning}"));
    }
    Ok((AnyMedia::from(media), grown))
}

/// Extends an empty regular file, as left by `touch` or `mktemp`. Refuses a size that is too small for a drive.
fn grow(args: &Args, size: u64) -> Result<Option<File>> {
    let path = &args.path;
    let metadata =
        std::fs::metadata(path).with_context(|| format!("{}: cannot look at it", path.display()))?;
    if !metadata.is_file() || metadata.len() > 0 {
        return Ok(None);
    }
    check_smallest(args, size)?;
    let file = File::options().write(true).open(path);
    let grown = file.and_then(|file| {
        file.set_len(size)?;
        file.sync_all()?;
        Ok(file)
    });
    grown.map(Some).with_context(|| format!("{}: cannot grow it to {size} bytes", path.display()))
}

fn check_smallest(args: &Args, physical: u64) -> Result<()> {
    if let Some(smallest) =
        smallest_physical_bytes(segment_bytes(args)?).filter(|smallest| physical < *smallest)
    {
        let (size, smallest) = (human::bytes(physical), human::bytes(smallest));
        bail!("{}: physical size {size} is too small: at least {smallest}", args.path.display());
    }
    Ok(())
}

fn segment_bytes(args: &Args) -> Result<Option<u32>> {
    let segment_bytes = args.segment.map(|size| u32::try_from(size.0)).transpose();
    segment_bytes.map_err(|_| anyhow!("--segment is too large: 64M at most"))
}

/// Returns the smallest physical size of a drive for a segment size, in bytes; `None` for an invalid segment size.
pub(crate) fn smallest_physical_bytes(segment_bytes: Option<u32>) -> Option<u64> {
    /// Space for 24 of the largest segments and the structures before them.
    const LIMIT_MIB: u64 = 8 << 10;
    (1..=LIMIT_MIB).map(|mib| mib << 20).find(|size| Geometry::new(*size, segment_bytes).is_ok())
}

/// Fails if a file or device contains data.
async fn refuse_contents(path: &Path, media: &AnyMedia) -> Result<()> {
    let path = path.display();
    match signatures::find(media).await.with_context(|| path.to_string())? {
        Some(what) => bail!("{path}: holds {what}; choose another, or overwrite it with --force"),
        None => Ok(()),
    }
}

async fn create_on(args: &Args, media: &AnyMedia) -> Result<CreateOptions> {
    let path = args.path.display();
    let physical = args.size.map_or(media.size_bytes(), |size| size.0);
    if physical > media.size_bytes() {
        bail!("{path}: has {} bytes, fewer than --size {physical}; choose a smaller one", media.size_bytes());
    }
    let physical = physical / media::PAGE_BYTES as u64 * media::PAGE_BYTES as u64;
    check_smallest(args, physical)?;
    let options = CreateOptions {
        physical_size_bytes: physical,
        // Powers of 1000 are rarely a multiple of the block size.
        logical_capacity_bytes: match args.capacity {
            Some(capacity) => capacity.0 / BLOCK * BLOCK,
            None => safe_capacity_bytes(&Geometry::new(physical, segment_bytes(args)?)?),
        },
        sector_bytes: args.sector.parse()?,
        segment_bytes: segment_bytes(args)?,
        codec: args.codec,
        uuid: uuid::Uuid::new_v4().into_bytes(),
        endurance_bytes: args.endurance.map_or(0, |endurance| endurance.0),
        keep_allocated: args.preallocate,
        created_unix_seconds: status::unix_seconds_now(),
    };
    Drive::create(media, &options).await.map_err(|error| anyhow!("{path}: {error}"))?;
    Ok(options)
}
