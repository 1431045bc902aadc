#!/usr/bin/env bash
# Pumice against nbdkit's file plugin (no compression) on the same disk, the same client, taking turns: medians of
# several rounds. Usage: scripts/bench-nbd.sh [ROUNDS]. Wants fio, nbdcopy, nbdkit and jq, 12 GiB of free disk, and root for
# dropping the page cache before reads.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-5}
. scripts/bench-lib.sh

for codec in auto lz4; do
    "$program" create "$dir/$codec" --size 5G --capacity 4G --codec "$codec" >/dev/null
    serve "$dir/$codec" "$dir/$codec.sock"
done
truncate -s 4G "$dir/raw"
nbdkit -f -U "$dir/nbdkit.sock" file "$dir/raw" &
pids+=($!)
await_socket "$dir/nbdkit.sock"

# run TARGET RW BLOCKSIZE COMPRESS ARGS...: prints requests a second
run() {
    local target=$1 rw=$2 bs=$3 compress=$4 data=()
    shift 4
    [ "$compress" = 0 ] || data=(--buffer_compress_percentage="$compress" --buffer_compress_chunk=4096)
    job "$dir/$target.sock" --rw="$rw" --bs="$bs" --refill_buffers=1 --randrepeat=0 "${data[@]}" "$@" |
        jq '.write.iops + .read.iops'
}
# stream TARGET write|read: random data (what fio calls random saves 5 % under an entropy coder), 128 KiB requests, depth 16
stream() {
    local nbd="nbd+unix:///?socket=$dir/$1.sock" from=$dir/random to
    to=$nbd
    [ "$2" = write ] || { from=$nbd to=null: ; }
    local start=$EPOCHREALTIME
    copy "$from" "$to"
    awk -v a="$start" -v b="$EPOCHREALTIME" -v bytes="$(stat -c %s "$dir/random")" 'BEGIN {print bytes / 131072 / (b - a)}'
}
settle() {
    sync
    [ "$1" != cold ] || echo 3 >/proc/sys/vm/drop_caches
    sleep 1
}

# row NAME TARGETS CACHE run|stream ARGUMENTS...
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
row "128 KiB sequential write, incompressible, flushed" "auto nbdkit" warm stream write
row "128 KiB sequential read of that, cold" "auto nbdkit" cold stream read
rm "$dir/random"
for target in auto lz4 nbdkit; do run $target write 128k 60 --size=2G --end_fsync=1 >/dev/null; done
row "4 KiB random write, 60 % compressible" "auto lz4 nbdkit" warm run randwrite 4k 60 --size=2G --norandommap --time_based --runtime=5
row "4 KiB random read of that, cold" "auto lz4 nbdkit" cold run randread 4k 60 --size=2G --norandommap --time_based --runtime=5
