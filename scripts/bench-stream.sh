#!/usr/bin/env bash
# One connection that streams 128 KiB requests, and a database's 4 KiB requests beside it: programs in turns, medians of several
# rounds. Usage: scripts/bench-stream.sh DATA ROUNDS PUMICE... DATA is a file of at most 1 GiB (such as the corpus in one file),
# ROUNDS a number. Wants fio, nbdcopy, nbdinfo and jq, and root for dropping the page cache before reads.
set -euo pipefail
[ $# -ge 3 ] || { sed -n '2,4s/^# //p' "$0" >&2; exit 2; }
data=$(realpath "$1") rounds=$2
shift 2
programs=()
for one in "$@"; do programs+=("$(realpath "$one")"); done
cd "$(dirname "$0")/.."
PUMICE=${programs[0]}
. scripts/bench-lib.sh

bytes=$(stat -c %s "$data")
# Beyond the data, for the database.
table=$((1 << 30)) table_bytes=$((256 << 20))

# note FIGURE VALUE: of this turn's program
note() { echo "$2" >>"$dir/$number.$1"; }
# timed FIGURE COMMAND...: MiB/s of the data
timed() {
    local start=$EPOCHREALTIME
    "${@:2}" >/dev/null
    note "$1" "$(awk -v a="$start" -v b="$EPOCHREALTIME" -v bytes="$bytes" 'BEGIN {print bytes / 1048576 / (b - a)}')"
}
# database FIGURE read|write: requests of 4 KiB, one at a time, for four seconds
database() {
    local result
    result=$(job "$dir/socket" --rw="rand$2" --bs=4k --iodepth=1 --offset="$table" --size="$table_bytes" --time_based --runtime=4 \
        --buffer_compress_percentage=60 --refill_buffers=1)
    note "$1 $2, requests per s" "$(jq ".$2.iops" <<<"$result")"
    note "$1 $2, p50 us" "$(jq ".$2.clat_ns.percentile[\"50.000000\"] / 1000" <<<"$result")"
    note "$1 $2, p99 us" "$(jq ".$2.clat_ns.percentile[\"99.000000\"] / 1000" <<<"$result")"
}
# A stream without an end.
stream() { while :; do copy --no-extents --sparse=0 "$data" "$uri" 2>/dev/null || return 0; done; }

uri="nbd+unix:///?socket=$dir/socket"
for round in $(seq "$rounds"); do
    for number in "${!programs[@]}"; do
        program=${programs[number]}
        "$program" create "$dir/drive" --size 3G --capacity 2G >/dev/null 2>&1
        serve "$dir/drive" "$dir/socket"
        timed "stream, write MiB per s" copy --no-extents --sparse=0 "$data" "$uri"
        sleep 0.5
        sync
        echo 3 >/proc/sys/vm/drop_caches
        timed "stream, read MiB per s" copy --no-extents "$uri" null:
        job "$dir/socket" --rw=write --bs=64k --offset="$table" --size="$table_bytes" --buffer_compress_percentage=60 \
            --refill_buffers=1 >/dev/null
        database "4 KiB alone," read
        database "4 KiB alone," write
        stream &
        streaming=$!
        sleep 1.5
        database "4 KiB beside a stream," read
        database "4 KiB beside a stream," write
        kill "$streaming"
        stop_servers
        wait "$streaming" 2>/dev/null || true
        rm -f "$dir/drive" "$dir/socket"
        echo "round $round, ${programs[number]##*/}: done" >&2
    done
done

printf '| figure |'
printf ' %s |' "${programs[@]##*/}"
echo ' last / first |'
for file in "$dir"/0.*; do
    figure=${file##*/0.}
    medians=()
    for number in "${!programs[@]}"; do medians+=("$(median <"$dir/$number.$figure")"); done
    awk -v figure="$figure" -v medians="${medians[*]}" \
        'BEGIN { n = split(medians, m, " "); printf "| %s |", figure; for (i = 1; i <= n; i++) printf " %.0f |", m[i]; printf " %.2f |\n", m[n] / m[1] }'
done
