//! How busy the machine was with something else: on a machine that is not quiet, speeds are of little worth.

use std::fs;

use crate::process;

/// Processor time of the machine, and of this process with its children and the servers of targets, at one
/// moment, in seconds.
pub(crate) struct Load {
    busy_seconds: f64,
    all_seconds: f64,
    own_seconds: f64,
    /// Other processes that count as own.
    pids: Vec<u32>,
}

impl Load {
    /// Reads the clocks of now. What `pids` do is no work of others.
    pub(crate) fn now(pids: Vec<u32>) -> Load {
        let (busy, all) = times(&fs::read_to_string("/proc/stat").unwrap_or_default()).unwrap_or((0, 0));
        let ticks = rustix::param::clock_ticks_per_second() as f64;
        Load {
            busy_seconds: busy as f64 / ticks,
            all_seconds: all as f64 / ticks,
            own_seconds: process::cpu_seconds(std::process::id(), true)
                + pids.iter().map(|pid| process::cpu_seconds(*pid, true)).sum::<f64>(),
            pids,
        }
    }

    /// Share of the processors that others used since then, kernel threads among them; `None` if no time has
    /// passed. `more_seconds` are of own processes that are not to be seen here.
    pub(crate) fn others_since(&self, more_seconds: f64) -> Option<f64> {
        let now = Load::now(self.pids.clone());
        let all = now.all_seconds - self.all_seconds;
        let own = now.own_seconds - self.own_seconds + more_seconds;
        (all > 0.0).then(|| ((now.busy_seconds - self.busy_seconds - own) / all).clamp(0.0, 1.0))
    }
}

/// Ticks that all processors were busy, and all ticks, from `/proc/stat` (`proc_stat(5)`): user, nice,
/// system, idle, iowait, irq, softirq, steal. Time that was stolen by the host of a virtual machine counts as
/// busy.
fn times(stat: &str) -> Option<(u64, u64)> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: Vec<u64> = line.split_whitespace().take(8).map(|it| it.parse().ok()).collect::<Option<_>>()?;
    let all: u64 = ticks.iter().sum();
    let idle = ticks.get(3)? + ticks.get(4)?;
    Some((all - idle, all))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_of_all_processors() {
        let stat = "cpu  10 1 20 100 50 2 3 4 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n";
        assert_eq!(times(stat), Some((40, 190)));
        assert_eq!(times(""), None);
        assert!(Load::now(Vec::new()).others_since(0.0).is_none_or(|share| (0.0..=1.0).contains(&share)));
    }
}
