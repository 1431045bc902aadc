//! A small scenario for tests to modify.

/// Returns one valid rack column with fixed line numbers, followed by `extra`.
pub(crate) fn scenario_text(extra: &str) -> String {
    format!(
        "title = \"small\"
[common.drive]
capacity_gb = 1000
power_active_w = 10
power_idle_w = 5
afr = 0.01
price_usd_per_gb = 0.1
replacement_usd = 50
[common.rack]
space_usd_per_month = 100
server_cost_usd = 5000
server_power_w = 300
drives_per_server = 10
servers = 4
[common.energy]
electricity_usd_per_kwh = 0.2
pue = 1.5
[common.workload]
years = 4
replication = 2
utilization = 0.8
duty_cycle = 0.5
[[column]]
name = \"one\"
[column.workload]
ratio = 2
{extra}"
    )
}
