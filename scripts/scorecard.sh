#!/usr/bin/env bash
# Runs all suites of `pumice bench` on this machine, and writes docs/reference/scorecard.md from them.
# Usage: scripts/scorecard.sh [MINUTES] [RUN.json...]. MINUTES (10) is for each suite; runs made elsewhere are added.
# CLUSTERS=yes also starts two Ceph clusters of one OSD (deploy/ceph/lab.sh: on a plain file, and on a drive) for the suites
# `offload` (three times MINUTES: it has six targets) and `s3`, and ends them; it needs root and the packages of
# `scripts/deps.sh clusters`. For `offload` all daemons of the clusters run on the last processor and fio on the others, so that
# time which is not spent on compression shows; CONFINE=no leaves them free. IMAGES (8) is for its job on many images.
# KERNEL_LAB, a directory in which the kernel of `make test-kernel` was built or is to be, also runs `against` there, with dm-vdo and
# zvol (scripts/bench.sh kernel against). It stands behind the one of this machine, and of several runs of a suite the last one counts.
# SUITES names those of the other suites that are to run, where runs of the rest are given. BENCH_DIR names a folder on the disk
# to measure, RUNS where the runs are kept, PUMICE the program. A suite that fails does not keep the others from running;
# docs/reference/scorecard.md is written only if all runs are complete.
set -euo pipefail
cd "$(dirname "$0")/.."
minutes=${1:-10}
[[ $minutes =~ ^[0-9.]+$ ]] || { echo "scorecard: MINUTES is $minutes" >&2; exit 2; }
program=${PUMICE:-${CARGO_TARGET_DIR:-target}/release/pumice}
[ -x "$program" ] || cargo build --release -q -p pumice
export PUMICE=$program
folder=${BENCH_DIR:-${TMPDIR:-/tmp}}
runs=${RUNS:-target/scorecard}
mkdir -p "$runs"
files=()

# bench SUITE ARGUMENTS...
bench() {
    local suite=$1 file=$runs/$1.json code=0
    shift
    rm -f "$file"
    "$program" bench "$suite" --minutes "$minutes" --dir "$folder" --json "$file" --html "$runs/$suite.html" "$@" \
        >"$runs/$suite.txt" || code=$?
    [ "$code" -lt 128 ] || exit "$code"
    [ "$code" -eq 0 ] || echo "scorecard: $suite exited with $code" >&2
    files+=("$file")
}

# `against` in a kernel that has more rivals than this machine's.
on_kernel() {
    local folder=$runs/kernel code=0
    rm -f "$folder/against.json"
    BENCH_KEEP=$folder scripts/bench.sh kernel against "$minutes" >"$runs/against-kernel.txt" || code=$?
    [ "$code" -lt 128 ] || exit "$code"
    if [ "$code" -eq 0 ] && [ ! -e "$folder/against.json" ]; then
        grep '^skipped: ' "$runs/against-kernel.txt" >&2 || true
        return
    fi
    [ "$code" -eq 0 ] || echo "scorecard: against in the kernel lab exited with $code" >&2
    files+=("$folder/against.json")
}

lab() { deploy/ceph/lab.sh "$1" --dir "$clusters/$2" "${@:3}"; }
end_clusters() {
    local cluster
    for cluster in plain drives; do
        lab down "$cluster" >/dev/null || echo "scorecard: $clusters/$cluster is still there" >&2
    done
    rmdir "$clusters" || true
}
# pids CLUSTER: the OSD, the gateway, and what serves the drive
pids() {
    awk 1 "$clusters/$1"/run/osd.0.pid "$clusters/$1"/run/client.rgw.lab.pid
    jq -r '.bridge_pid, (.connected_pid // .server_pid)' "$clusters/$1"/pumice-attach/*/attachment.json 2>/dev/null || true
}
# pool CLUSTER NAME [ALGORITHM [BLOB]]: a pool without copies, which compresses all by ALGORITHM, in blobs of at least BLOB
# bytes; with images
pool() {
    local number
    {
        printf '%s\n' "osd pool create $2 8" "osd pool set $2 size 1 --yes-i-really-mean-it" "osd pool application enable $2 rbd"
        [ -z "${3:-}" ] || printf '%s\n' "osd pool set $2 compression_algorithm $3" "osd pool set $2 compression_mode force"
        [ -z "${4:-}" ] || printf '%s\n' "osd pool set $2 compression_min_blob_size $4"
    } | lab run "$1" ceph >/dev/null
    for ((number = 1; number <= ${IMAGES:-8}; number++)); do
        lab run "$1" rbd create "$2/image-$number" --size 1G --image-feature layering
    done
}
# target CLUSTER POOL: its images
target() { echo "rbd:$2/$(seq -s, -f 'image-%g' "${IMAGES:-8}")?conf=$clusters/$1/ceph.conf"; }
# The processors that this script may run on, one a line.
processors() {
    taskset -pc $$ | sed 's/.*: //' | tr , '\n' | while IFS=- read -r first last; do seq "$first" "${last:-$first}"; done
}
# confine LIST: all daemons of both clusters, and what serves the drives, to processors
confine() {
    local pid
    for pid in $(awk 1 "$clusters"/*/run/*.pid) $(pids plain) $(pids drives); do
        taskset -acp "$1" "$pid" >/dev/null || echo "scorecard: process $pid is not confined to processors $1" >&2
    done
}
on_clusters() {
    clusters=$(mktemp -d /var/tmp/pumice-scorecard.XXXXXX)
    trap end_clusters EXIT
    local options=(--osds 1 --image 0 --size 3G --capacity 6G --set 'bluestore debug enforce settings = ssd')
    # The settings that drives have (README.md of deploy/ceph, "Settings"): what is compared is where data is compressed.
    lab up plain --raw "${options[@]}" --set 'bluestore prefer deferred size ssd = 32768' --set 'bluestore max blob size ssd = 524288'
    lab up drives "${options[@]}"
    # RGW reads its storage classes when it starts.
    lab run plain radosgw-admin zonegroup placement add --rgw-zonegroup default --placement-id default-placement \
        --storage-class ZLIB >/dev/null
    lab run plain radosgw-admin zone placement add --rgw-zone default --placement-id default-placement --storage-class ZLIB \
        --data-pool default.rgw.buckets.data --compression zlib >/dev/null
    local gateway
    gateway=$(cat "$clusters/plain/run/client.rgw.lab.pid")
    kill "$gateway"
    timeout 60 tail --pid="$gateway" -f /dev/null || { echo "scorecard: the gateway does not end" >&2; exit 1; }
    lab up plain
    # SNIA's is zstd as Ceph has it.
    pool plain software zstd
    pool plain zstd-64k zstd 65536
    pool plain lz4-64k lz4 65536
    pool plain zlib zlib
    pool plain none
    pool drives drive
    local plain=$clusters/plain/ceph.conf drives=$clusters/drives/ceph.conf address name
    address=127.0.0.1:$(cat "$clusters/drives/drives/osd.0.port")
    local plain_pids drives_pids all confined=()
    plain_pids=$(pids plain | xargs | tr ' ' ,) drives_pids=$(pids drives | xargs | tr ' ' ,)
    mapfile -t all < <(processors)
    if [ "${CONFINE:-yes}" = yes ] && [ "${#all[@]}" -gt 1 ]; then
        confine "${all[-1]}"
        confined=(--fio-cpus "$(IFS=,; echo "${all[*]:0:${#all[@]}-1}")")
    fi
    local arguments=(--target "drive=$(target drives drive)" --drives "drive=$address" --pids "drive=$drives_pids")
    for name in software zstd-64k lz4-64k zlib none; do
        arguments+=(--target "$name=$(target plain "$name")" --pids "$name=$plain_pids")
    done
    minutes=$(awk -v minutes="$minutes" 'BEGIN { print 3 * minutes }') bench offload --destroy "${confined[@]}" "${arguments[@]}"
    [ "${#confined[@]}" -eq 0 ] || confine "$(IFS=,; echo "${all[*]}")"
    port() { (. "$clusters/$1/settings"; echo "$rgw_port"); }
    export AWS_ACCESS_KEY_ID=lab AWS_SECRET_ACCESS_KEY=lab-secret
    # Its objects have the ratio of those of the document; those of warp have it no more.
    bench s3 --s3-client own --target "none=s3+http://127.0.0.1:$(port plain)/bench-none?conf=$plain" \
        --target "zlib=s3+http://127.0.0.1:$(port plain)/bench-zlib?class=ZLIB&conf=$plain" \
        --target "drive=s3+http://127.0.0.1:$(port drives)/bench-drive?conf=$drives" \
        --drives "drive=$address" --pids "none=$plain_pids" --pids "zlib=$plain_pids" --pids "drive=$drives_pids"
}

suites=${SUITES-quick zeros-vs-random fio-baseline expansion slow-disk datasets against raid}
for suite in $suites; do
    bench "$suite"
    [ "$suite" != against ] || [ -z "${KERNEL_LAB:-}" ] || on_kernel
done
bad=0 there=()
# What it starts is ended when the subshell ends, whatever happens in it.
if [ -n "${CLUSTERS:-}" ]; then
    set +e
    (set -e; on_clusters)
    code=$?
    set -e
    [ "$code" -eq 0 ] || { echo "scorecard: the clusters: exited with $code" >&2; bad=1; }
    files+=("$runs/offload.json" "$runs/s3.json")
fi
for file in "${files[@]}" "${@:2}"; do
    if [ ! -s "$file" ]; then
        echo "scorecard: $file: nothing was measured" >&2
        bad=1
        continue
    fi
    there+=("$file")
    grep -q '^  "complete": true' "$file" || { echo "scorecard: $file: not complete" >&2; bad=1; }
done
[ "${#there[@]}" -gt 0 ] || exit 1
"$program" bench scorecard "${there[@]}" >"$runs/scorecard.md"
echo "$runs/scorecard.md"
[ "$bad" -eq 0 ] || { echo "scorecard: docs/reference/scorecard.md is not written" >&2; exit 1; }
cp "$runs/scorecard.md" docs/reference/scorecard.md
echo "docs/reference/scorecard.md"
