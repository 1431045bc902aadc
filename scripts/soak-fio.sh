#!/usr/bin/env bash
# Random 4 KiB writes over NBD for ten minutes, each verified, on a drive of which 90 % of what data may fill is live, so that it
# cleans all the time. Fails at any error; prints latencies, and what was written for each byte of the host's against the theory of
# cleaning. Usage: scripts/soak-fio.sh [SECONDS] [COMPRESSIBLE_PERCENT]. Wants fio and jq, and 4 GiB of free disk in SOAK_DIR (the
# temporary directory); PUMICE names the program.
#
# Theory: uniform random overwrites, cleaning the oldest (which greedy cleaning comes to where segments hold many blocks). With r
# the live share of what data lies in, and u the live share of the segments that are cleaned, r = (1 - u) / ln(1 / u), that is
# u = -r W(-(1/r) e^(-1/r)) with Lambert's W, and cleaning moves u / (1 - u) bytes for each that the host writes (P. Desnoyers,
# "Analytic Modeling of SSD Write Performance", SYSTOR 2012, section 4; J. Menon, IBM RJ 10120, 1998). Data lies in all segments
# but those that cleaning keeps free, three that are promised to heads, and what the map's own log takes.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-600}
compress=${2:-0}
program=${PUMICE:-${CARGO_TARGET_DIR:-target}/release/pumice}
[ -x "$program" ] || cargo build --release -q -p pumice
dir=$(mktemp -d "${SOAK_DIR:-${TMPDIR:-/tmp}}/pumice-soak.XXXXXX")
pid=
finish() {
    [ -z "$pid" ] || { kill "$pid" 2>/dev/null || true; wait "$pid" 2>/dev/null || true; }
    rm -rf "$dir"
}
trap finish EXIT
status() { "$program" status "$dir/drive" --json | jq -r ".drives[0] | $1"; }
# What fio calls random saves 5 % under an entropy coder: lz4 leaves it alone.
data=(--refill_buffers)
[ "$compress" = 0 ] || data+=(--buffer_compress_percentage="$compress" --buffer_compress_chunk=4096)
job() {
    fio --name=soak --ioengine=nbd --uri="nbd+unix:///?socket=$dir/s" --thread --bs=4k --iodepth=16 --randrepeat=0 \
        --aux-path="$dir" --size="$extent" "${data[@]}" --lat_percentiles=1 --clat_percentiles=0 \
        --percentile_list=50:99:99.9 --output-format=json "$@" 2>/dev/null | sed -n '/^{/,$p' >"$dir/fio.json"
}

"$program" create "$dir/drive" --size 2G --capacity 8G --codec lz4 >/dev/null
"$program" serve "$dir/drive" --nbd "unix:$dir/s" >/dev/null 2>"$dir/log" &
pid=$!
for _ in $(seq 100); do [ -S "$dir/s" ] && break; sleep 0.1; done

# A first piece tells what a block takes; then as many as make 90 %, and once more over it, for a steady state.
extent=$((64 << 20))
job --rw=randwrite
extent=$(status '.physical_limit_bytes * 0.9 * .logical_used_bytes / .physical_used_bytes / 4096 | floor * 4096')
job --rw=randwrite
job --rw=randwrite --norandommap
keys='.host_written_bytes, .cleaning.cleaning_written_bytes, .cleaning.map_written_bytes, .physical_written_bytes'
before=$(status "$keys" | xargs)
job --rw=randwrite --norandommap --serialize_overlap=1 --time_based --runtime="$seconds" --verify=crc32c --verify_fatal=1 \
    --verify_backlog=50000 --verify_backlog_batch=50000
after=$(status "$keys" | xargs)
errors=$(jq '[.jobs[].error, .jobs[].total_err] | add' "$dir/fio.json")
refused=$(status '.server.requests.errors_count')
[ "$errors" = 0 ] && [ "$refused" = 0 ] || { echo "soak: fio met $errors errors, the drive gave $refused" >&2; exit 1; }

echo "$before $after $(status '.physical_used_bytes, .physical_limit_bytes, .compression_ratio, .cleaning.segments_count, .segment_bytes' | xargs)" |
awk -v seconds="$seconds" '{
    host = $5 - $1; cleaning = ($6 - $2) / host; map = ($7 - $3) / host; all = ($8 - $4) / host
    used = $9; limit = $10; ratio = $11; count = $12; segment = $13
    # The watermarks, as in crates/space/src/reserve.rs.
    floor = int(count / 100); if (floor < 4) floor = 4
    left = count - int(used / segment) - floor; if (left < 0) left = 0
    stock = int(count / 20); if (int(left / 4) < stock) stock = int(left / 4); if (stock < 3) stock = 3
    low = floor + 2 + stock
    # Packs have a header and half a page of padding for each 256 KiB.
    r = used / ((count - low - 3) * segment / 1.0082)
    a = 0; b = 1; for (i = 0; i < 60; i++) { u = (a + b) / 2; if ((1 - u) / log(1 / u) < r) a = u; else b = u }
    printf "live: %.1f %% of what data may fill, ratio %.2f, r = %.3f\n", 100 * used / limit, ratio, r
    printf "written in %d s: %.1f GB by the host, at %.0f writes/s\n", seconds, host / 1e9, host / 4096 / seconds
    printf "for each byte of the host: %.2f, of which cleaning %.2f, map and checkpoints %.2f\n", all, cleaning, map
    printf "theory: u = %.3f, cleaning %.2f\n", u, u / (1 - u) / ratio }'
jq -r '.jobs[0].write.lat_ns | "writes: p50 \(.percentile["50.000000"] / 1e6) ms, p99 \(.percentile["99.000000"] / 1e6) ms, p99.9 \(.percentile["99.900000"] / 1e6) ms, longest \(.max / 1e6) ms"' "$dir/fio.json"
jq -r '.jobs[0].read | "verified: \(.total_ios) blocks"' "$dir/fio.json"

kill "$pid"
wait "$pid"
pid=
"$program" check --deep "$dir/drive" >/dev/null
echo "check --deep: nothing wrong"
