//! `pumice create`

mod clear;

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use ::scan::MapNeeds;
use ::scan::plan::safe_capacity_bytes;
use anyhow::{Context, Result, anyhow, bail};
use drive::CreateOptions;
use layout::geometry::{OWN_FIRST_BLOCK, validate_capacity};
use layout::{Geometry, ParityForm};
use media::{Allocation, Direct, FileMedia, Media, exact_size};
use service::{IoChoice, Prepare, run_here};
use status::{CapacityPlan, Fit, path_text, shown};

use crate::free_space::{free_bytes, missing_bytes};
use crate::human;
use crate::in_use;
use crate::output::{print_json, report_result};
use crate::resize::needs;
use crate::signatures::{self, Contents};
use crate::size::Size;
use crate::usage;

const PAGE: u64 = media::PAGE_BYTES as u64;
const BLOCK: u64 = layout::BLOCK_BYTES as u64;

#[derive(clap::Args)]
#[command(after_help = "Example: pumice create /srv/drive --size 10G --capacity 30G")]
pub(crate) struct Args {
    /// File (created if missing) or block device
    path: PathBuf,
    /// Physical space the drive may use [default: all of a block device or existing file]
    #[arg(long, value_name = "SIZE")]
    size: Option<Size>,
    /// Logical capacity, as hosts see it [default: as much incompressible data as fits, about 90 % of the
    /// physical size]
    #[arg(long, value_name = "SIZE")]
    capacity: Option<Size>,
    /// Sector size in bytes
    #[arg(long, default_value = "512", value_parser = ["512", "4096"])]
    sector: String,
    /// Codec: auto, lz4, zstd, zstd:LEVEL, deflate, deflate:LEVEL or none
    #[arg(long, default_value = "auto")]
    codec: codec::Policy,
    /// Parity that repairs lost pages, as a share of the drive: 1/64, 1/32, 1/16 or none
    #[arg(long, value_name = "FORM", default_value_t = ParityForm::OF_NEW_DRIVES)]
    parity: ParityForm,
    /// Rated endurance of the backing (TBW), such as 600TB; status then shows the share used
    #[arg(long, value_name = "TBW", value_parser = endurance)]
    endurance: Option<Size>,
    /// Allocate all space of a new file now and keep it allocated: freed space is not returned to the
    /// file system
    #[arg(long)]
    preallocate: bool,
    /// Overwrite existing data: clears both ends, and every signature that other programs recognize
    #[arg(long)]
    force: bool,
    /// Overwrite a drive that another machine has open, if its server does not answer
    #[arg(long, requires = "force")]
    take_over: bool,
    /// Segment size in bytes
    #[arg(long, value_name = "SIZE", hide = true)]
    segment: Option<Size>,
    /// Print JSON: {"path": ..., "uuid": ..., "logical_capacity_bytes": ..., ...}
    #[arg(long)]
    json: bool,
}

/// Backing of a new drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Backing {
    /// A file that this command creates.
    New,
    /// A file or device that existed. It must hold nothing.
    MustBeBlank,
    /// A file or device that existed. Its contents are overwritten (`--force`).
    Overwritten,
}

/// Least rated endurance, in bytes: less is a number without its unit.
const ENDURANCE_BYTES_MIN: u64 = 1_000_000_000;

fn endurance(text: &str) -> Result<Size> {
    let size: Size = text.parse()?;
    match size.0 {
        ENDURANCE_BYTES_MIN.. => Ok(size),
        _ => bail!("expected at least 1GB, such as 600TB"),
    }
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let existed = check_path(&args.path)?;
    let backing = match (existed, args.force) {
        (false, _) => Backing::New,
        (true, false) => Backing::MustBeBlank,
        (true, true) => Backing::Overwritten,
    };
    let (media, grown) = match existed {
        true => open_existing(args)?,
        false => (create_file(args)?, None),
    };
    if backing == Backing::MustBeBlank {
        // Another command may have created a drive before the file was locked. That drive must not be
        // overwritten.
        refuse_contents(&media)?;
    }
    // Nothing is written before the options are known to be possible.
    let created = options(args, &media).and_then(|options| {
        let prepare = prepare(media.clone(), backing);
        let create =
            |spawner| service::create(&args.path, &media, &options, args.take_over, prepare, spawner);
        run_here(IoChoice::Auto, create)??;
        Ok(options)
    });
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
    let warnings = [needs_ratio(&options)?, lacks_room(&args.path, options.physical_size_bytes)]
        .into_iter()
        .flatten()
        .collect::<Vec<_>>();
    let warning = (!warnings.is_empty()).then(|| warnings.join("; "));
    report_result(&format!("{}: created", shown(&args.path)), || print(args, &options, warning.as_deref()));
    for warning in warnings {
        usage::complain(&format!("warning: {}: {warning}", shown(&args.path)));
    }
    Ok(())
}

/// Returns what is done to the backing once it is claimed.
fn prepare(media: FileMedia, backing: Backing) -> Prepare {
    Box::new(move |may_change| {
        let prepared = match backing {
            Backing::New => Ok(()),
            Backing::Overwritten => clear::clear(&media, may_change),
            // Another machine may have created a drive since the first check.
            Backing::MustBeBlank => refuse_contents(&media),
        };
        prepared.map_err(Into::into)
    })
}

/// Returns a warning if not all data fits into the capacity.
fn needs_ratio(options: &CreateOptions) -> Result<Option<String>> {
    let geometry = Geometry::with_parity(options.physical_size_bytes, options.segment_bytes, options.parity)?;
    let limit = ::scan::limit_bytes(&geometry, MapNeeds::default());
    let plan = CapacityPlan::new(options.logical_capacity_bytes, limit, None);
    let needs = needs(options.logical_capacity_bytes, &plan);
    Ok((plan.fit != Fit::Any).then(|| {
        format!("{needs}: measure yours with `pumice scan`, and let `pumice plan` choose a capacity")
    }))
}

/// Returns a warning if the file system cannot hold the full size of a sparse file.
fn lacks_room(path: &Path, physical_size_bytes: u64) -> Option<String> {
    if !path.metadata().ok()?.is_file() {
        return None;
    }
    // The file may be longer than the drive.
    let missing = missing_bytes(path).ok()?.min(physical_size_bytes);
    let free = free_bytes(path).ok()?;
    (missing > free).then(|| {
        format!(
            "it may take {} more from the file system, which has {} free: if that runs full, writes are refused",
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
            "parity": options.parity.to_string(),
            "endurance_bytes": Some(options.endurance_bytes).filter(|bytes| *bytes > 0),
            "preallocated": options.keep_allocated,
            "warning": warning,
        }));
    }
    writeln!(
        crate::output::stdout(),
        "{}: a drive of {} logical on {} physical, {}-byte sectors, codec {}{}",
        shown(&args.path),
        human::bytes(options.logical_capacity_bytes),
        human::bytes(options.physical_size_bytes),
        options.sector_bytes,
        options.codec,
        match options.parity {
            ParityForm::None => String::new(),
            form => format!(", parity {form}"),
        },
    )?;
    Ok(())
}

/// Returns whether the path exists. Fails if the path cannot be examined, or if its directory does not exist.
fn check_path(path: &Path) -> Result<bool> {
    let existed = path.try_exists().with_context(|| format!("{}: cannot look at it", shown(path)))?;
    let above = path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !existed && !above.is_dir() {
        bail!("{}: cannot be created: {} is not a directory", shown(path), shown(above));
    }
    Ok(existed)
}

fn create_file(args: &Args) -> Result<FileMedia> {
    let Some(Size(size)) = args.size else {
        bail!("{}: no such file; use --size to create it", shown(&args.path));
    };
    check_sizes(args, size)?;
    let allocation = if args.preallocate { Allocation::Preallocated } else { Allocation::Sparse };
    Ok(FileMedia::create(&args.path, size, allocation, Direct::Auto)?)
}

/// Opens an existing file or device. Also returns the file if it was empty and was extended to the size of
/// the drive.
fn open_existing(args: &Args) -> Result<(FileMedia, Option<File>)> {
    if args.preallocate {
        bail!("{}: exists already; --preallocate is for new files", shown(&args.path));
    }
    // First: its server would be started again.
    in_use::refuse_attached(&args.path)?;
    in_use::refuse(&args.path)?;
    let grown = match args.size {
        Some(Size(size)) => grow(args, size)?,
        None => None,
    };
    refuse_small_file(args)?;
    let media = FileMedia::open(&args.path, false, Direct::Auto)?;
    if let Some(warning) = media.warning() {
        usage::complain(&format!("warning: {warning}"));
    }
    Ok((media, grown))
}

/// Refuses a regular file that is too small for a page, and so for any drive.
fn refuse_small_file(args: &Args) -> Result<()> {
    let path = &args.path;
    let metadata = std::fs::metadata(path).with_context(|| format!("{}: cannot look at it", shown(path)))?;
    match (metadata.len(), args.size) {
        (PAGE.., _) => Ok(()),
        _ if !metadata.is_file() => Ok(()),
        (0, None) => bail!("{}: is empty; use --size to extend it", shown(path)),
        (bytes, None) => check_sizes(args, bytes),
        (bytes, Some(Size(size))) => must_hold(args, bytes, size),
    }
}

/// Refuses a backing that is smaller than the size asked for.
fn must_hold(args: &Args, bytes: u64, size: u64) -> Result<()> {
    if size <= bytes {
        return Ok(());
    }
    let smallest = smallest_physical_bytes(segment_bytes(args)?);
    let advice = match smallest.is_some_and(|smallest| bytes < smallest) {
        true => "grow it first",
        false => "choose a smaller size, or grow it first",
    };
    let (path, room, size) = (shown(&args.path), exact_size(bytes), exact_size(size));
    bail!("{path}: holds {room}, less than --size {size}; {advice}")
}

/// Extends an empty regular file, as left by `touch` or `mktemp`. Refuses a size that is too small for a
/// drive.
fn grow(args: &Args, size: u64) -> Result<Option<File>> {
    let path = &args.path;
    let metadata = std::fs::metadata(path).with_context(|| format!("{}: cannot look at it", shown(path)))?;
    if !metadata.is_file() || metadata.len() > 0 {
        return Ok(None);
    }
    check_sizes(args, size)?;
    let file = File::options().write(true).open(path);
    let grown = file.and_then(|file| {
        file.set_len(size)?;
        file.sync_all()?;
        Ok(file)
    });
    grown.map(Some).with_context(|| format!("{}: cannot grow it to {}", shown(path), human::bytes(size)))
}

/// Fails if no drive has this physical size or the capacity asked for.
fn check_sizes(args: &Args, physical: u64) -> Result<()> {
    let (path, segment) = (shown(&args.path), segment_bytes(args)?);
    let smallest = smallest_physical_bytes(segment);
    if let Some(smallest) = smallest.filter(|smallest| physical < *smallest) {
        let (size, smallest) = (exact_size(physical), exact_size(smallest));
        bail!("{path}: physical size {size} is too small: at least {smallest}");
    }
    let largest = Geometry::largest_new_bytes(segment);
    if smallest.is_some() && physical > largest {
        let (size, largest) = human::distinct(physical, largest);
        bail!("{path}: physical size {size} is too large: at most {largest} for a new drive");
    }
    if let Some(Size(capacity)) = args.capacity
        && validate_capacity(capacity / BLOCK * BLOCK).is_err()
    {
        let capacity = human::bytes(capacity);
        bail!(
            "{path}: capacity {capacity} is not possible: at least 4096 bytes, at most 2 MiB less than 256 TiB"
        );
    }
    Ok(())
}

fn segment_bytes(args: &Args) -> Result<Option<u32>> {
    let segment_bytes = args.segment.map(|size| u32::try_from(size.0)).transpose();
    segment_bytes.map_err(|_| anyhow!("--segment is too large: 64M at most"))
}

/// Returns the smallest physical size of a drive for a segment size, in bytes; `None` for an invalid segment
/// size.
pub(crate) fn smallest_physical_bytes(segment_bytes: Option<u32>) -> Option<u64> {
    /// Space for 24 of the largest segments and the structures before them.
    const LIMIT_MIB: u64 = 8 << 10;
    (1..=LIMIT_MIB).map(|mib| mib << 20).find(|size| Geometry::new(*size, segment_bytes).is_ok())
}

/// Fails if a file or device contains data.
fn refuse_contents(media: &FileMedia) -> Result<()> {
    let path = media.path();
    let found = media.reopen().and_then(|file| signatures::find(&file, path));
    match Contents::new(found.with_context(|| format!("{}: cannot read it", shown(path)))?) {
        Some(contents) => {
            bail!(
                "{}: holds {contents}; choose another, or overwrite it with --force, which clears what other programs \
                 recognize",
                shown(path)
            )
        }
        None => Ok(()),
    }
}

/// Returns the options of the drive. Fails if there is no such drive; nothing is written.
fn options(args: &Args, media: &FileMedia) -> Result<CreateOptions> {
    let path = shown(&args.path);
    let physical = args.size.map_or(media.size_bytes(), |size| size.0);
    must_hold(args, media.size_bytes(), physical)?;
    let physical = physical / media::PAGE_BYTES as u64 * media::PAGE_BYTES as u64;
    check_sizes(args, physical)?;
    let options = CreateOptions {
        physical_size_bytes: physical,
        // Powers of 1000 are rarely a multiple of the block size.
        logical_capacity_bytes: match args.capacity {
            Some(capacity) => capacity.0 / BLOCK * BLOCK,
            None => {
                let geometry = Geometry::with_parity(physical, segment_bytes(args)?, args.parity)?;
                safe_capacity_bytes(&geometry).min(OWN_FIRST_BLOCK * BLOCK)
            }
        },
        sector_bytes: args.sector.parse()?,
        segment_bytes: segment_bytes(args)?,
        codec: args.codec,
        uuid: uuid::Uuid::new_v4().into_bytes(),
        endurance_bytes: args.endurance.map_or(0, |endurance| endurance.0),
        keep_allocated: args.preallocate,
        far_copies: None,
        parity: args.parity,
        created_unix_seconds: status::unix_seconds_now(),
    };
    options.validate(media.size_bytes()).map_err(|error| anyhow!("{path}: {error}"))?;
    Ok(options)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use drive::find_owner;
    use tokio::runtime::Handle;

    use super::*;

    /// A path, and a backing there that is full of something, with an ext4 file system at the beginning.
    fn used(folder: &Path) -> (PathBuf, FileMedia) {
        const BYTES: usize = 64 << 20;
        let path = folder.join("disk");
        let mut bytes = vec![0xa5; BYTES];
        bytes[0x438..0x43a].copy_from_slice(b"\x53\xef");
        std::fs::write(&path, bytes).expect("written");
        let media = FileMedia::open(&path, false, Direct::Auto).expect("opened");
        (path, media)
    }

    fn create_on(path: &Path, media: &FileMedia, prepare: Prepare) -> Result<()> {
        let path = path.to_path_buf();
        let args = Args {
            path: path.clone(),
            size: None,
            capacity: None,
            sector: "512".into(),
            codec: codec::Policy::default(),
            parity: ParityForm::None,
            endurance: None,
            preallocate: false,
            force: true,
            take_over: false,
            segment: None,
            json: false,
        };
        let options = options(&args, media)?;
        Ok(run_here(IoChoice::Auto, |spawner| {
            service::create(&path, media, &options, false, prepare, spawner)
        })??)
    }

    #[test]
    fn clearing_leaves_the_claim() {
        let dir = tempfile::tempdir().expect("a directory");
        let (path, media) = used(dir.path());
        let seen = media.clone();
        let clear = Box::new(move |may_change: &service::MayChange| {
            let is_claimed = || Handle::current().block_on(find_owner(&seen)).is_some_and(|owner| owner.open);
            assert!(is_claimed());
            prepare(seen.clone(), Backing::Overwritten)(may_change)?;
            assert!(is_claimed(), "the mark was cleared");
            Ok(())
        });
        create_on(&path, &media, clear).expect("created");
        drop(media);
        // Both ends are blank but for the drive.
        let bytes = std::fs::read(&path).expect("read");
        assert!(!bytes[..1 << 20].windows(64).any(|window| window == [0xa5; 64]));
        assert!(bytes[bytes.len() - (1 << 20)..].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn a_drive_that_appears_before_the_claim_stays() {
        let dir = tempfile::tempdir().expect("a directory");
        let (path, media) = used(dir.path());
        create_on(&path, &media, prepare(media.clone(), Backing::Overwritten)).expect("created");
        let error =
            create_on(&path, &media, prepare(media.clone(), Backing::MustBeBlank)).expect_err("a drive");
        assert!(error.to_string().contains("holds a Pumice drive"), "{error}");
    }

    #[test]
    fn owner_pages_alone_are_no_contents() {
        let dir = tempfile::tempdir().expect("a directory");
        let (path, media) = used(dir.path());
        create_on(&path, &media, prepare(media.clone(), Backing::Overwritten)).expect("created");
        drop(media);
        let file = File::options().write(true).open(&path).expect("opened");
        for (start, end) in [(0, 16), (28, 80), (92, 1024)] {
            let zeros = vec![0; (end - start) << 10];
            file.write_all_at(&zeros, (start << 10) as u64).expect("written");
        }
        let media = FileMedia::open(&path, false, Direct::Auto).expect("opened");
        refuse_contents(&media).expect("only the owner is left");
    }
}
