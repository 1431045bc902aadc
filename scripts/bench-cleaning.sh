#!/usr/bin/env bash
# Latency of 4 KiB random writes while a drive cleans heavily, against a drive of the same data with room enough to clean
# nothing. Incompressible data on 90 % of what data may fill, queue depth 16 over NBD, as fast as they come and at a steady
# rate. Usage: scripts/bench-cleaning.sh [WRITES] [RATE]. Wants fio and jq, and 10 GiB of free disk in BENCH_DIR (the temporary
# directory); PUMICE names the program to measure.
set -euo pipefail
cd "$(dirname "$0")/.."
writes=${1:-400000}
rate=${2:-4000}
. scripts/bench-lib.sh
status() { "$program" status "$dir/drive" --json | jq ".drives[0] | $1"; }
# writes RW WRITES ARGUMENTS...: prints requests a second, and the 50th, 99th, 99.9th percentile and the longest, in ms
writes() {
    job "$dir/s" --rw="$1" --bs=4k --norandommap --randrepeat=0 --refill_buffers --size="$extent" --number_ios="$2" \
        --lat_percentiles=1 --clat_percentiles=0 --percentile_list=50:99:99.9 "${@:3}" |
        jq -r '.write | [.iops, (.lat_ns | (.percentile["50.000000", "99.000000", "99.900000"], .max) / 1e6)] | @tsv'
}
# counters: bytes written by the host; to the backing, of these by cleaning, and for the map
counters() {
    status '.host_written_bytes, .physical_written_bytes, .cleaning.cleaning_written_bytes, .cleaning.map_written_bytes' | xargs
}

echo "| drive | load | writes/s | p50 ms | p99 ms | p99.9 ms | longest ms | WAF (cleaning, map) |"
echo "| --- | --- | --- | --- | --- | --- | --- | --- |"
extent=
for case in "cleaning 1G" "none 8G"; do
    read -r name size <<<"$case"
    "$program" create "$dir/drive" --size "$size" --capacity 8G --codec lz4 >/dev/null
    serve "$dir/drive" "$dir/s"
    # The first drive says how much 90 % is: a record takes 16 bytes more than its block.
    [ -n "$extent" ] || extent=$(status '(.physical_size_bytes - .physical_reserve_bytes - .physical_fixed_bytes) * 0.9 / 4112 | floor * 4096')
    writes write $((extent / 4096)) >/dev/null
    [ "$name" = none ] || writes randwrite $((extent / 4096)) >/dev/null
    for load in "as fast as they come" "$rate/s"; do
        few=$writes limit=()
        case $load in */s) few=$((rate * 20)) limit=(--rate_iops="$rate" --rate_process=poisson) ;; esac
        before=$(counters)
        row=$(writes randwrite "$few" "${limit[@]}")
        awk -v name="$name" -v load="$load" '{
            host = $10 - $6
            printf "| %s | %s | %.0f | %.2f | %.2f | %.2f | %.1f | %.2f (%.2f, %.2f) |\n", name, load, $1, $2, $3, $4, $5,
                ($11 - $7) / host, ($12 - $8) / host, ($13 - $9) / host }' <<<"$row $before $(counters)"
    done
    stop_servers
    rm -f "$dir/drive" "$dir/s"
done
