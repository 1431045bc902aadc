//! Processors: number available to the server, frequency, idle states.

use host::groups::processors_limit;
use host::numbered;
use host::processors::{allowed, count, online};

use super::Patient;
use super::finding::Finding;

/// Longest wake-up time without a warning. Longer times are noticeable with a disk that responds in 20 to 100
/// us.
const IDLE_EXIT_MAX_US: u64 = 50;
/// Smallest number of processors with which clients do not wait for background work and for each other.
const PROCESSORS_MIN: usize = 2;
/// Lowest frequency limit without a warning, as a share of the hardware's maximum.
const FREQUENCY_SHARE_MIN: f64 = 0.9;
/// Lowest current frequency without a warning, as a share of the hardware's maximum. It is that of the
/// fastest processor, which may be idle.
const FREQUENCY_NOW_SHARE_MIN: f64 = 0.5;

pub(super) fn checks(patient: &Patient) -> Vec<Finding> {
    vec![affinity(patient), frequency(patient), governor(patient), idle_states(patient)]
}

/// Directories of the processors in sysfs.
fn processors(patient: &Patient) -> Vec<String> {
    let names = patient.root.names("sys/devices/system/cpu", |name| numbered(name, "cpu"));
    names.into_iter().map(|name| format!("sys/devices/system/cpu/{name}")).collect()
}

/// Checks the processors that the server may use, by its affinity and the quota of its control group.
fn affinity(patient: &Patient) -> Finding {
    let check = "cpu-affinity";
    let (process, whose) = patient.process();
    let (allowed, online) = (allowed(&patient.root, &process), online(&patient.root));
    let advice = "see taskset -pc PID";
    let (Some(allowed), Some(online)) = (allowed, online) else {
        return Finding::unknown(check, "not available in /proc and /sys", advice);
    };
    let (Some(usable), Some(all)) = (count(&allowed), count(&online)) else {
        let found =
            format!("invalid list {allowed:?} or {online:?}: expected numbers and ranges of processors");
        return Finding::unknown(check, found, advice);
    };
    let found = match usable {
        usable if usable >= all => format!("{whose} may run on all {all} processors"),
        usable => format!("{whose} is pinned to {usable} of {all} processors ({allowed})"),
    };
    let quota = processors_limit(&patient.root, &process).filter(|quota| *quota < usable as f64);
    if let Some(quota) = quota.filter(|quota| *quota < PROCESSORS_MIN as f64) {
        return Finding::warn(
            check,
            format!("{found}; its control group gets the time of {quota:.1}"),
            "it is stopped for the rest of each period, in the middle of requests: CPUQuota=, cpu.max",
        );
    }
    if usable < PROCESSORS_MIN && all >= PROCESSORS_MIN {
        return Finding::warn(
            check,
            found,
            "compression and background work wait for requests: CPUAffinity= in its unit, or taskset",
        );
    }
    match quota {
        Some(quota) => Finding::ok(check, format!("{found}; its control group gets the time of {quota:.1}")),
        None => Finding::ok(check, found),
    }
}

/// Checks the clock frequencies in MHz: current, allowed maximum, and hardware maximum.
fn frequency(patient: &Patient) -> Finding {
    let check = "cpu-frequency";
    let all = processors(patient);
    let megahertz = |name: &str| -> Vec<f64> {
        let kilohertz = |cpu: &String| patient.root.number(format!("{cpu}/cpufreq/{name}"));
        all.iter().filter_map(kilohertz).map(|kilohertz| kilohertz as f64 / 1000.0).collect()
    };
    let mut now = megahertz("scaling_cur_freq");
    if now.is_empty() {
        // Only on x86. In a virtual machine this is the frequency that the host reported at boot.
        let text = patient.root.text("proc/cpuinfo").unwrap_or_default();
        let lines = text.lines().filter(|line| line.starts_with("cpu MHz"));
        now = lines.filter_map(|line| line.rsplit(':').next()?.trim().parse().ok()).collect();
    }
    let largest = |values: &[f64]| values.iter().copied().max_by(f64::total_cmp);
    let smallest = |values: &[f64]| values.iter().copied().min_by(f64::total_cmp);
    let (Some(low), Some(high)) = (smallest(&now), largest(&now)) else {
        return Finding::unknown(check, "not reported by the kernel", "see lscpu --extended, turbostat");
    };
    let mut found = format!("{low:.0} to {high:.0} MHz now on {} processors", now.len());
    let Some(can) = largest(&megahertz("cpuinfo_max_freq")) else {
        return Finding::ok(check, found);
    };
    found += &format!(", {can:.0} MHz at most");
    let may = smallest(&megahertz("scaling_max_freq")).unwrap_or(can);
    if may < can * FREQUENCY_SHARE_MIN {
        return Finding::warn(
            check,
            format!("{found}, limited to {may:.0} MHz"),
            format!("cpupower frequency-set --max {can:.0}MHz"),
        );
    }
    let fast = |cpu: &String| {
        patient.root.text(format!("{cpu}/cpufreq/scaling_governor")).is_some_and(|it| it == "performance")
    };
    if all.iter().all(fast) && high < can * FREQUENCY_NOW_SHARE_MIN {
        return Finding::warn(
            check,
            format!("{found}, although the governor is performance"),
            "look for a limit of power or temperature: turbostat, the firmware's profile",
        );
    }
    Finding::ok(check, found)
}

fn governor(patient: &Patient) -> Finding {
    let check = "cpu-governor";
    let governors: Vec<String> = processors(patient)
        .iter()
        .filter_map(|cpu| patient.root.text(format!("{cpu}/cpufreq/scaling_governor")))
        .collect();
    let others: Vec<&String> = governors.iter().filter(|governor| *governor != "performance").collect();
    match (governors.len(), others.first()) {
        (0, _) => Finding::unknown(
            check,
            "the kernel does not set frequencies here",
            "on hardware choose the performance profile in the firmware",
        ),
        (all, None) => Finding::ok(check, format!("performance on all {all} processors")),
        (all, Some(first)) => Finding::warn(
            check,
            format!("{first} on {} of {all} processors", others.len()),
            "cpupower frequency-set --governor performance",
        ),
    }
}

fn idle_states(patient: &Patient) -> Finding {
    let check = "cpu-idle";
    let Some(cpu) = processors(patient)
        .into_iter()
        .find(|cpu| !patient.root.names(format!("{cpu}/cpuidle"), |name| numbered(name, "state")).is_empty())
    else {
        return Finding::unknown(
            check,
            "the kernel knows no idle states here",
            "on hardware look into the firmware",
        );
    };
    let states = patient.root.names(format!("{cpu}/cpuidle"), |name| numbered(name, "state"));
    let enabled = states.iter().filter_map(|state| {
        let file = |name: &str| format!("{cpu}/cpuidle/{state}/{name}");
        let disabled = patient.root.number(file("disable")).unwrap_or(0) != 0;
        let name = patient.root.text(file("name")).unwrap_or_else(|| state.clone());
        (!disabled).then_some((patient.root.number(file("latency"))?, name))
    });
    match enabled.max() {
        Some((latency, name)) if latency > IDLE_EXIT_MAX_US => Finding::warn(
            check,
            format!("processors sleep as deep as {name}, and take {latency} us to wake"),
            format!("cpupower idle-set --disable-by-latency {IDLE_EXIT_MAX_US}"),
        ),
        Some((latency, name)) => {
            Finding::ok(check, format!("{name} is the deepest sleep, {latency} us to wake"))
        }
        None => Finding::ok(check, "all idle states are disabled"),
    }
}

#[cfg(test)]
mod tests {
    use super::count;

    #[test]
    fn lists_of_processors() {
        for (list, processors) in [
            ("0", Some(1)),
            ("0-3", Some(4)),
            ("0-1,4,8-11", Some(7)),
            ("", None),
            ("3-1", None),
            ("x", None),
        ] {
            assert_eq!(count(list), processors, "{list:?}");
        }
    }
}
