#!/usr/bin/env bash
# scripts/bench.sh settling CORPUS [SECONDS] [ROUNDS] [RATE] [PERCENT]
#
# Latency of 4 KiB random reads and writes while a drive settles in the background, against the same drive while it does not: the
# two take turns on one server, switched by SIGHUP, a few seconds each. The drive holds the corpus (scripts/corpus.sh), which is
# cold and not settled, and behind it data that is overwritten. Reads cover all of it, on a connection of their own. Loads: a steady
# rate (half reads, half writes), and as fast as possible, queue depth 16 a connection. Medians over the rounds. Each round waits
# until the one before is written out. LOADS names the loads [steady full].
set -euo pipefail
[ $# -ge 1 ] && [ -d "$1" ] || { echo "usage: scripts/bench.sh settling CORPUS [SECONDS] [ROUNDS] [RATE] [PERCENT]" >&2; exit 2; }
corpus=$(realpath "$1")
seconds=${2:-8} rounds=${3:-8} rate=${4:-3000} percent=${5:-10}
. "$(dirname "$0")/lib.sh"
# The server reads its configuration again as another user than root.
chmod 755 "$dir"
pid=
background() {
    printf '[server]\nnbd = ["unix:%s/s"]\n[[drive]]\npath = "%s/drive"\nbackground-cpu = %s\n' "$dir" "$dir" "$1" >"$dir/config"
    if [ -n "$pid" ]; then
        kill -HUP "$pid"
        for _ in $(seq 100); do
            if [ "$(status "$dir/drive" .server.settling.background_cpu_percent)" = "$1" ]; then return; fi
            sleep 0.05
        done
        echo "bench: the server does not take background-cpu $1" >&2
        exit 1
    fi
}
fio_() {
    fio --ioengine=nbd --uri="nbd+unix:///?socket=$dir/s" --thread --aux-path="$dir" --randrepeat=0 --refill_buffers \
        --buffer_compress_percentage=50 --buffer_compress_chunk=4096 --output-format=json "$@" 2>/dev/null | sed -n '/^{/,$p'
}
# ticks THREAD...: processor time of the server's threads whose names begin so, in seconds
ticks() {
    local stat
    for stat in /proc/"$pid"/task/*/stat; do
        if [[ "$(<"${stat%stat}comm")" == "$1"* ]]; then sed 's/.*) //' "$stat" 2>/dev/null || true; fi
    done | awk -v hz="$(getconf CLK_TCK)" '{ sum += $12 + $13 } END { printf "%.2f\n", sum / hz }'
}

create "$dir/drive" --size 5G --capacity 4G
background 0
"$program" serve --config "$dir/config" >/dev/null 2>"$dir/log" &
pid=$!
pids=("$pid")
await_socket "$dir/s"
cat "$corpus"/* | head -c 1G >"$dir/data"
cold=$(($(stat -c %s "$dir/data") / 1048576 * 1048576))
truncate -s "$cold" "$dir/data"
# nbdcopy copies whole disks: the file is written in pieces of 128 KiB from the start on.
truncate -s 4G "$dir/data"
nbdcopy --destination-is-zero --request-size=131072 "$dir/data" "nbd+unix:///?socket=$dir/s"
rm "$dir/data"
# Cold is what was left alone while a quarter of the drive was written.
hot=$((512 << 20))
fio_ --name=fill --rw=write --bs=128k --iodepth=4 --offset="$cold" --size="$hot" --loops=6 --buffer_compress_percentage=20 >/dev/null

load() {
    local reads=(--rw=randread --offset=0 --size=$((cold + hot))) writes=(--rw=randwrite --offset="$cold" --size="$hot")
    fio_ --bs=4k --iodepth=16 --norandommap --time_based --runtime="$seconds" --lat_percentiles=1 --clat_percentiles=0 \
        --percentile_list=50:99:99.9 "$@" --name=read "${reads[@]}" --name=write "${writes[@]}"
}
# Into one line: load, settling, requests, and for reads and writes requests a second, p50, p99, p99.9 in ms; processor seconds
# of all, of the compute thread, and as the drive counts its background work; MB settled.
measure() {
    local load=$1 mode=$2 limit=() before after
    if [ "$load" = steady ]; then limit=(--rate_iops=$((rate / 2)) --rate_process=poisson); fi
    sync "$dir/drive"
    background "$mode"
    before="$(ticks '') $(ticks pumice-compute) $(status "$dir/drive" '.server.settling | .cpu_seconds, .settled_bytes' | xargs)"
    load "${limit[@]}" >"$dir/fio.json"
    after="$(ticks '') $(ticks pumice-compute) $(status "$dir/drive" '.server.settling | .cpu_seconds, .settled_bytes' | xargs)"
    jq -r --arg load "$load" --arg mode "$mode" --arg cpu "$before $after" '
        def part(key): .[key] | .iops, (.lat_ns.percentile["50.000000", "99.000000", "99.900000"] / 1e6);
        ($cpu | split(" ") | map(tonumber)) as $c
        | [$load, $mode, (.jobs[0] | part("read")), (.jobs[1] | part("write")), ($c[4] - $c[0]), ($c[5] - $c[1]), ($c[6] - $c[2]),
            ($c[7] - $c[3]) / 1e6] | @tsv' "$dir/fio.json" | tee -a "$dir/rows" >&2
}
loads=${LOADS:-steady full}
for load in $loads; do
    measure "$load" 0 2>/dev/null
    sed -i '$d' "$dir/rows"
    for round in $(seq "$rounds"); do
        modes=(0 "$percent")
        if [ $((round % 2)) = 0 ]; then modes=("$percent" 0); fi
        for mode in "${modes[@]}"; do measure "$load" "$mode"; done
    done
done
table load settling requests requests/s "p50 ms" "p99 ms" "p99.9 ms" "p50, p99, p99.9 against none"
for load in $loads; do
    jq -rRs --arg load "$load" --arg percent "$percent" --arg seconds "$seconds" '
        def median: sort | if length % 2 == 1 then .[length / 2 | floor] else (.[length / 2 - 1] + .[length / 2]) / 2 end;
        def show(digits): . * pow(10; digits) | round / pow(10; digits);
        [split("\n")[] | select(. != "") | split("\t") | select(.[0] == $load) | [.[0], .[1]] + (.[2:] | map(tonumber))] as $rows
        | def of(mode; column): [$rows[] | select(.[1] == mode) | .[column]] | median;
        ((["reads", 2], ["writes", 6]) as [$what, $at]
            | ("0", $percent) as $mode
            | "| \($load) | \($mode) % | \($what) | \(of($mode; $at) | round) | \(of($mode; $at + 1) | show(3)) | \(of($mode; $at + 2) | show(3)) | \(of($mode; $at + 3) | show(3)) | \(if $mode == "0" then "" else [1, 2, 3 | . as $k | of($mode; $at + $k) / of("0"; $at + $k) | show(2) | tostring] | join(", ") end) |"),
        ($seconds | tonumber) as $s
        | "\($load): background work took \(of($percent; 12) / $s * 100 | show(1)) % of a processor as the drive counts, its thread \(of($percent; 11) / $s * 100 | show(1)) %; the server in all \(of($percent; 10) / $s * 100 | show(1)) % against \(of("0"; 10) / $s * 100 | show(1)) %; \(of($percent; 13) / $s | show(2)) MB/s settled"
    ' "$dir/rows"
done
