//! What a cluster says of the space that data takes: Ceph by its own programs, Pumice drives below it by
//! HTTP.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use status::StatusAnswer;

use super::{Space, Workshop};
use crate::error::{BenchError, Result};
use crate::process::{self, Stop};

/// Longest time for an answer.
const ASK: Duration = Duration::from_secs(60);
/// Age of what Ceph's manager knows of pools, at most: its default interval, and a second.
pub(crate) const MANAGER_AGE: Duration = Duration::from_secs(6);
/// Largest accepted status of a drive, in bytes.
const STATUS_BYTES_MAX: u64 = 16 << 20;

/// A cluster.
pub(super) struct Cluster {
    conf: Option<PathBuf>,
    drives: Vec<String>,
    folder: PathBuf,
    stop: Stop,
}

/// What is used of `ceph df detail --format json`.
#[derive(Deserialize)]
struct Df {
    pools: Vec<Pool>,
}

#[derive(Deserialize)]
struct Pool {
    name: String,
    stats: PoolStats,
}

#[derive(Deserialize)]
struct PoolStats {
    /// Bytes of clients, times the copies.
    stored_raw: u64,
    /// Bytes that these take, after compression.
    bytes_used: u64,
}

/// What is used of `radosgw-admin bucket stats`.
#[derive(Deserialize)]
struct BucketStats {
    #[serde(default)]
    usage: std::collections::BTreeMap<String, Usage>,
}

#[derive(Deserialize)]
struct Usage {
    size_kb_actual: u64,
    size_kb_utilized: u64,
}

impl Cluster {
    pub(super) fn new(workshop: &Workshop<'_>, conf: Option<&Path>, drives: &[String]) -> Cluster {
        Cluster {
            conf: conf.map(Path::to_path_buf),
            drives: drives.to_vec(),
            folder: workshop.folder.to_path_buf(),
            stop: workshop.stop.clone(),
        }
    }

    pub(super) fn has_drives(&self) -> bool {
        !self.drives.is_empty()
    }

    /// What the Pumice drives hold together, everything that Ceph keeps in them included.
    pub(super) fn drives_space(&self) -> Result<Option<Space>> {
        let each = self.drives.iter().map(|address| {
            let failed =
                |error: ureq::Error| BenchError::program(&format!("drive at {address}"), error.to_string());
            let config = ureq::Agent::config_builder().timeout_global(Some(ASK)).build();
            let agent: ureq::Agent = config.into();
            let mut answer = agent.get(format!("http://{address}/status")).call().map_err(failed)?;
            let text =
                answer.body_mut().with_config().limit(STATUS_BYTES_MAX).read_to_string().map_err(failed)?;
            let answer: StatusAnswer = parse(&format!("status of {address}"), &text)?;
            Ok(answer.drives.iter().map(Space::of).collect::<Vec<_>>())
        });
        let each: Vec<Vec<Space>> = each.collect::<Result<_>>()?;
        Ok(Space::sum(each.into_iter().flatten()))
    }

    /// What a pool holds; `None` if no configuration was named.
    pub(super) fn pool_space(&self, pool: &str) -> Result<Option<Space>> {
        let Some(conf) = &self.conf else { return Ok(None) };
        // What the manager knows is seconds old.
        std::thread::sleep(MANAGER_AGE);
        let conf = conf.display().to_string();
        let text = self.ask("ceph", "ceph-common", &["-c", &conf, "df", "detail", "--format", "json"])?;
        let df: Df = parse("ceph df", &text)?;
        let found = df.pools.into_iter().find(|it| it.name == pool);
        Ok(found.map(|pool| space(pool.stats.stored_raw, pool.stats.bytes_used)))
    }

    /// What the objects of a bucket take; `None` if no configuration was named. `size_kb_actual` and
    /// `size_kb_utilized`, as Canonical's document has it.
    pub(super) fn bucket_space(&self, bucket: &str) -> Result<Option<Space>> {
        let Some(conf) = &self.conf else { return Ok(None) };
        let conf = conf.display().to_string();
        let text =
            self.ask("radosgw-admin", "radosgw", &["-c", &conf, "bucket", "stats", "--bucket", bucket])?;
        let stats: BucketStats = parse("radosgw-admin bucket stats", &text)?;
        let sum = |of: fn(&Usage) -> u64| stats.usage.values().map(of).sum::<u64>() << 10;
        Ok(Some(space(sum(|it| it.size_kb_actual), sum(|it| it.size_kb_utilized))))
    }

    fn ask(&self, program: &str, package: &'static str, arguments: &[&str]) -> Result<String> {
        let program = process::need(program, package)?;
        process::run(&program, arguments, &self.folder, ASK, &self.stop).map(|ended| ended.output)
    }
}

fn space(logical: u64, physical: u64) -> Space {
    let ratio = if physical > 0 { logical as f64 / physical as f64 } else { 0.0 };
    Space { logical_used_bytes: logical, physical_used_bytes: physical, ratio, ..Space::default() }
}

fn parse<T: DeserializeOwned>(what: &str, text: &str) -> Result<T> {
    serde_json::from_str(text)
        .map_err(|error| BenchError::Format { what: what.to_string(), problem: error.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_ceph_are_read() {
        let df = r#"{"stats": {}, "pools": [{"name": "r1", "id": 2, "stats": {"stored": 4, "stored_raw": 8, "bytes_used": 4}}]}"#;
        let df: Df = parse("ceph df", df).expect("pools");
        assert_eq!((df.pools[0].name.as_str(), df.pools[0].stats.stored_raw), ("r1", 8));
        let stats = r#"{"bucket": "b", "usage": {"rgw.main": {"size": 9, "size_kb_actual": 12,
            "size_kb_utilized": 9}}}"#;
        let stats: BucketStats = parse("stats", stats).expect("usage");
        assert_eq!(
            (stats.usage["rgw.main"].size_kb_actual, stats.usage["rgw.main"].size_kb_utilized),
            (12, 9)
        );
        // A bucket without objects.
        assert!(
            parse::<BucketStats>("stats", r#"{"bucket": "b", "usage": {}}"#).expect("none").usage.is_empty()
        );
        assert!(parse::<Df>("ceph df", "{}").is_err());
        assert_eq!((space(8, 4).ratio, space(0, 0).ratio), (2.0, 0.0));
    }
}
