#!/usr/bin/env bash
# BlueStore's own compression against a Pumice drive: one OSD on a plain file, and one on a drive. The same fio data by RBD, targets
# by turns, medians. CPU is that of the OSD and, for a drive, of its server and bridge too. Space is looked at when RocksDB is
# compacted, because its log does not grow with the data; in brackets: when a drive that runs out of space has packed again what
# is left of overwritten frames.
#
#   compare.sh [PROGRAM]
#
#   ROUNDS=3       rounds, all targets by turns in each
#   IMAGE=640M     size of the image that is written, overwritten in places, and read
#   OVERWRITES=128M   amount of 4 KiB overwrites
#   COMPRESS=60    buffer_compress_percentage of fio, in pieces of 4 KiB
#   TARGETS="..."  of those below [none none-tuned zstd zstd-64k zstd-64k-tuned lz4-64k pumice-defaults pumice]
#   CODEC=auto     of the drive
#   SERVE=""       more arguments of `pumice serve`
#   ROWS=FILE      also keeps each run, one JSON object a line
#
#   target           OSD on   BlueStore's settings   its compression
#   none             a file   defaults               none
#   CODEC            a file   defaults               CODEC, in blobs of the default size
#   CODEC-64k        a file   defaults               CODEC, in blobs of 64 KiB
#   none-tuned, CODEC-tuned, CODEC-64k-tuned         the same with the settings that README.md advises for drives
#   pumice-defaults  a drive  defaults               none
#   pumice           a drive  those of README.md     none
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/lab/worker.sh"
export PUMICE=${1:-${PUMICE:-$here/../../target/release/pumice}}
rounds=${ROUNDS:-3} image=${IMAGE:-640M} overwrites=${OVERWRITES:-128M} compress=${COMPRESS:-60}
targets=${TARGETS:-none none-tuned zstd zstd-64k zstd-64k-tuned lz4-64k pumice-defaults pumice}
work=$(mktemp -d "${TMPDIR:-/var/tmp}/pumice-ceph-compare.XXXXXX")
rows=${ROWS:-$work/rows}
cd "$work"
finish() {
    local code=$? settings
    # Neither another signal nor a cluster that does not end may keep the others from ending.
    trap - EXIT
    trap '' HUP INT TERM
    set +e
    end_children
    for settings in "$work"/*/settings; do
        [ ! -e "$settings" ] || "$here/lab.sh" down --dir "${settings%/settings}" >/dev/null || code=$((code ? code : 1))
    done
    # What is attached still would lose its backing.
    if compgen -G "$work/*/settings" >/dev/null; then
        echo "compare.sh: left, because a cluster does not end: $work" >&2
        exit "$code"
    fi
    cd / && rm -rf --one-file-system "$work"
    exit "$code"
}
trap finish EXIT

# All OSDs get the settings of solid state: a file would count as a rotating disk.
options=(--osds 1 --image 0 --no-rgw --size 3G --capacity 6G --set 'bluestore debug enforce settings = ssd')
# Those that a drive gets from lab.sh, for an OSD on a file.
tuned=()
while read -r line; do tuned+=(--set "$line"); done < <(defaults='' && . "$here/lab/daemons.sh" && drive_settings)
cluster_of() { case $1 in pumice*) echo "$1" ;; *-tuned) echo raw-tuned ;; *) echo raw ;; esac; }
for cluster in $(for target in $targets; do cluster_of "$target"; done | sort -u); do
    case $cluster in
        raw) more=(--raw) ;;
        raw-tuned) more=(--raw "${tuned[@]}") ;;
        pumice-defaults) more=(--defaults) ;;
        *) more=() ;;
    esac
    "$here/lab.sh" up --dir "$work/$cluster" "${options[@]}" "${more[@]}" --codec "${CODEC:-auto}" --serve "${SERVE:-}"
done
at() { export CEPH_CONF=$work/$1/ceph.conf lab=$work/$1; }
ceph() { timeout 60 /usr/bin/ceph "$@" 2>/dev/null; }
rbd() { timeout 300 /usr/bin/rbd "$@"; }

make_pool() {   # make_pool TARGET: a pool with its compression
    local codec=${1%%-*}
    printf '%s\n' "osd pool create $1 16" "osd pool set $1 size 1 --yes-i-really-mean-it" "osd pool application enable $1 rbd" | ceph >/dev/null
    case $1 in none | none-* | pumice*) return ;; esac
    printf '%s\n' "osd pool set $1 compression_algorithm $codec" "osd pool set $1 compression_mode force" | ceph >/dev/null
    case $1 in *-64k | *-64k-*) ceph osd pool set "$1" compression_min_blob_size 65536 ;; esac
}
pids() {        # whose CPU counts
    cat "$lab/run/osd.0.pid"
    echo
    jq -r --arg path "$lab/drives/osd.0" 'select(.path == $path) | .bridge_pid, (.server_pid // empty)' "$lab"/pumice-attach/*/attachment.json 2>/dev/null || true
}
cpu() {
    local pid
    for pid in $(pids); do cat "/proc/$pid/stat"; done |
        awk -v ticks="$(getconf CLK_TCK)" '{ sub(/.*\) /, ""); cpu += $12 + $13 } END { print cpu / ticks }'
}
job() {         # job POOL ARGUMENTS...: fio's result
    timeout 600 fio --name=compare --ioengine=rbd --clientname=admin --pool="$1" --rbdname=image --iodepth=16 --randseed="$round" \
        --buffer_compress_percentage="$compress" --buffer_compress_chunk=4096 --refill_buffers --output-format=json "${@:2}" \
        2>>fio.log | sed -n '/^{/,$p' | jq '.jobs[0]'
}
space() {       # space POOL: bytes that its data takes, and how much of it can be packed again
    case $1 in
        pumice*) curl -s "http://127.0.0.1:$(<"$lab/drives/osd.0.port")/status" |
            jq -r '.drives[0] | "\(.physical_used_bytes) \(.physical_repackable_bytes)"' ;;
        *) ceph df detail -f json | jq -r --arg pool "$1" '.pools[] | select(.name == $pool) | "\(.stats.bytes_used) 0"' ;;
    esac
}
one() {
    local target=$1 before after written over read stored empty repackable
    at "$(cluster_of "$target")"
    rbd create "$target/image" --size "$image" --image-feature layering
    read -r empty _ < <(space "$target")
    before=$(cpu)
    written=$(job "$target" --rw=write --bs=128k --size="$image" | jq .write.bw_bytes)
    after=$(cpu)
    over=$(job "$target" --rw=randwrite --bs=4k --size="$image" --io_size="$overwrites" | jq .write.iops)
    local over_cpu
    over_cpu=$(cpu)
    # What is known of space is seconds old.
    ceph tell osd.0 compact >/dev/null
    sleep 6
    read -r stored repackable < <(space "$target")
    local idle_cpu
    idle_cpu=$(cpu)
    read=$(job "$target" --rw=read --bs=128k --size="$image" | jq .read.bw_bytes)
    jq -nc --arg target "$target" --argjson round "$round" --argjson written "$written" --argjson over "$over" --argjson read "$read" \
        --argjson cpu "[$before, $after, $over_cpu, $idle_cpu, $(cpu)]" --argjson stored $((stored - empty)) --argjson repackable "$repackable" \
        --argjson image "$(numfmt --from=iec "$image")" \
        '{target: $target, round: $round, write_mib_s: ($written / 1048576), write_cpu_s: ($cpu[1] - $cpu[0]), overwrites_s: $over,
          overwrites_cpu_s: ($cpu[2] - $cpu[1]), read_mib_s: ($read / 1048576), read_cpu_s: ($cpu[4] - $cpu[3]), ratio: ($image / $stored),
          ratio_packed: ($image / ($stored - $repackable))}' |
        tee -a "$rows"
    rbd rm "$target/image" --no-progress
    sleep 3
}

for target in $targets; do at "$(cluster_of "$target")"; make_pool "$target"; done
for ((round = 1; round <= rounds; round++)); do
    for target in $targets; do one "$target"; done
done
jq -rs --arg order "$targets" '
    def median: sort | .[length / 2 | floor];
    ["target", "write MiB/s", "CPU s", "4K overwrites/s", "CPU s", "128K read MiB/s", "CPU s", "data / space"],
    (. as $rows | $order | split(" ")[] | . as $target | [$rows[] | select(.target == $target)] | select(length > 0) |
        [$target, (map(.write_mib_s) | median | round), (map(.write_cpu_s) | median * 100 | round / 100), (map(.overwrites_s) | median | round),
         (map(.overwrites_cpu_s) | median * 100 | round / 100), (map(.read_mib_s) | median | round), (map(.read_cpu_s) | median * 100 | round / 100),
         "\(map(.ratio) | median * 100 | round / 100) (\(map(.ratio_packed) | median * 100 | round / 100))"]) | "| " + (map(tostring) | join(" | ")) + " |"' "$rows"
