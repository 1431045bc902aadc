#!/usr/bin/env bash
# Pumice against nbdkit's file plugin (no compression) on the same disk, the same client, taking turns: medians of
# several rounds. Usage: scripts/bench-nbd.sh [ROUNDS]. Wants fio, nbdcopy, nbdkit and jq, 12 GiB of free disk, and root for
# dropping the page cache before reads.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-5}
program=${PUMICE:-${CARGO_TARGET_DIR:-target}/release/pumice}
[ -x "$program" ] || cargo build --release -q -p pumice
dir=$(mktemp -d "${TMPDIR:-/tmp}/pumice-bench.XXXXXX")
pids=()
finish() {
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
    wait 2>/dev/null || true
    rm -rf "$dir"
}
trap finish EXIT

for codec in auto lz4; do
    "$program" create "$dir/$codec" --size 5G --capacity 4G --codec "$codec" >/dev/null
    "$program" serve "$dir/$codec" --nbd "unix:$dir/$codec.sock" 2>"$dir/$codec.log" >/dev/null &
    pids+=($!)
done
truncate -s 4G "$dir/raw"
nbdkit -f -U "$dir/nbdkit.sock" file "$dir/raw" &
pids+=($!)
for target in auto lz4 nbdkit; do
    for _ in $(seq 100); do [ -S "$dir/$target.sock" ] && break; sleep 0.1; done
done

# run TARGET RW BLOCKSIZE COMPRESS ARGS...: prints requests a second
run() {
    local target=$1 rw=$2 bs=$3 compress=$4 data=()
    shift 4
    [ "$compress" = 0 ] || data=(--buffer_compress_percentage="$compress" --buffer_compress_chunk=4096)
    fio --name=bench --ioengine=nbd --uri="nbd+unix:///?socket=$dir/$target.sock" --rw="$rw" --bs="$bs" --iodepth=16 \
        --refill_buffers=1 --randrepeat=0 "${data[@]}" --output-format=json "$@" 2>/dev/null |
        sed -n '/^{/,$p' | jq '.jobs[0] | .write.iops + .read.iops'
}
# copy TARGET write|read: random data (what fio calls random saves 5 % under an entropy coder), 128 KiB requests, depth 16
copy() {
    local nbd="nbd+unix:///?socket=$dir/$1.sock" from=$dir/random to
    to=$nbd
    [ "$2" = write ] || { from=$nbd to=null: ; }
    local start=$EPOCHREALTIME
    nbdcopy --flush --connections=1 --requests=16 --request-size=131072 "$from" "$to"
    awk -v a="$start" -v b="$EPOCHREALTIME" -v bytes="$(stat -c %s "$dir/random")" 'BEGIN {print bytes / 131072 / (b - a)}'
}
settle() {
    sync
    [ "$1" != cold ] || echo 3 >/proc/sys/vm/drop_caches
    sleep 1
}
median() { sort -g | awk '{v[NR]=$1} END {print v[int((NR+1)/2)]}'; }

# row NAME TARGETS CACHE run|copy ARGUMENTS...
row() {
    local name=$1 targets=$2 cache=$3 how=$4 target
    shift 4
    for target in $targets; do : >"$dir/$target.out"; done
    for _ in $(seq "$rounds"); do
        for target in $targets; do
            settle "$cache"
            "$how" "$target" "$@" >>"$dir/$target.out"
        done
    done
    for target in $targets; do
        awk -v name="$name" -v target="$target" -v a="$(median <"$dir/$target.out")" \
            -v b="$(median <"$dir/nbdkit.out")" \
            'BEGIN { printf "| %s | %s | %.0f | %.0f %% |\n", name, target, a, 100 * a / b }'
    done
}

echo "| workload, queue depth 16 | target | requests/s | of nbdkit file |"
echo "| --- | --- | --- | --- |"
head -c 1536M /dev/urandom >"$dir/random"
row "128 KiB sequential write, incompressible, flushed" "auto nbdkit" warm copy write
row "128 KiB sequential read of that, cold" "auto nbdkit" cold copy read
rm "$dir/random"
for target in auto lz4 nbdkit; do run $target write 128k 60 --size=2G --end_fsync=1 >/dev/null; done
row "4 KiB random write, 60 % compressible" "auto lz4 nbdkit" warm run randwrite 4k 60 --size=2G --norandommap --time_based --runtime=5
row "4 KiB random read of that, cold" "auto lz4 nbdkit" cold run randread 4k 60 --size=2G --norandommap --time_based --runtime=5
