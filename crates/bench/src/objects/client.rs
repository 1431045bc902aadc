//! The client that puts and gets objects: warp, or this program's own.

use std::path::Path;
use std::str::FromStr;

use super::Access;
use crate::error::{BenchError, Result};
use crate::objects::warp::{self, Warp};
use crate::process::Stop;
use crate::target::{Kind, Target};

/// Name of the own client in reports.
pub(crate) const OWN: &str = "own";

/// The client that the user asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum S3Client {
    /// warp if it is installed and may use the buckets, else the own one.
    #[default]
    Auto,
    /// warp, MinIO's benchmark.
    Warp,
    /// That of this program, whose data is of the document's ratio.
    Own,
}

impl S3Client {
    /// Their names on the command line.
    pub const NAMES: [&str; 3] = ["auto", "warp", OWN];
}

/// A name that no client has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected one of {}", S3Client::NAMES.join(", "))]
pub struct UnknownS3Client;

impl FromStr for S3Client {
    type Err = UnknownS3Client;

    fn from_str(text: &str) -> Result<S3Client, UnknownS3Client> {
        match text {
            "auto" => Ok(S3Client::Auto),
            "warp" => Ok(S3Client::Warp),
            OWN => Ok(S3Client::Own),
            _ => Err(UnknownS3Client),
        }
    }
}

/// The client of a run.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Chosen {
    /// `None`: the own one.
    pub(crate) warp: Option<Warp>,
    /// What a report must say of the choice.
    pub(crate) note: Option<String>,
}

/// Chooses the client of a run that may put files into `folder`.
pub(crate) fn choose(wanted: S3Client, targets: &[Target], folder: &Path, stop: &Stop) -> Result<Chosen> {
    let own = |note| Chosen { warp: None, note };
    let found = match wanted {
        S3Client::Own => return Ok(own(None)),
        S3Client::Warp | S3Client::Auto => usable(targets, folder, stop),
    };
    match found {
        Ok(warp) => {
            let data = match warp.makes_csv() {
                true => "its CSV, as in the document: about 4:3".to_string(),
                false => "random, which does not compress (it made CSV before 1.0.8); that of --s3-client own is 4:3, \
                          as the document's"
                    .to_string(),
            };
            let times = "PUTs take 8 to 10 s, GETs 8 s at least, and --size does not limit them";
            let note = format!("{}: its data is {data}. {times}", warp.text());
            Ok(Chosen { warp: Some(warp), note: Some(note) })
        }
        Err(error) if wanted == S3Client::Warp || error.is_interrupted() => Err(error),
        Err(error) => Ok(own(Some(format!("the client is this program's own: {error}")))),
    }
}

/// Returns the installed warp, if all buckets are empty.
fn usable(targets: &[Target], folder: &Path, stop: &Stop) -> Result<Warp> {
    let warp = Warp::find(folder, stop)?;
    for target in targets {
        if let Kind::S3(address) = &target.kind {
            let access = Access::to(address, String::new(), stop)?;
            if let Some(problem) = warp::in_use(&access, stop)? {
                return Err(BenchError::target(&target.name, problem));
            }
        }
    }
    Ok(warp)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_have_names() {
        for name in S3Client::NAMES {
            assert!(name.parse::<S3Client>().is_ok(), "{name}");
        }
        assert_eq!("auto".parse(), Ok(S3Client::default()));
        let error = "mc".parse::<S3Client>().expect_err("no client");
        assert_eq!(error.to_string(), "expected one of auto, warp, own");
    }
}
