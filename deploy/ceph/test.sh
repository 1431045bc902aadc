#!/usr/bin/env bash
# Ceph on Pumice drives, a real cluster of one machine: `make test-clusters`. One line a check; exits with 1 if one fails. Skipped,
# with the reason in one line, where it cannot run.
#
#   test.sh [--smoke] [PROGRAM]
#   --smoke   one OSD, a minute: what `make test` runs
#
# KEEP=1 leaves the cluster for a look after a failure. SEED: of the bits that are flipped. STAGES: only these, of
# ways_to_protect taken_back_by_hand full_and_deleted full_and_protected full_and_not_protected kills a_lost_drive mended_bits flipped_bits
# stopped_and_started; the four about what is still there after faults need `kills` before them. PATIENCE: all limits of time are multiplied by it [3].
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/lab/worker.sh"
smoke=
if [ "${1:-}" = --smoke ]; then smoke=yes; shift; fi
. "$here/lab/common.sh"
export PUMICE=${1:-${PUMICE:-$here/../../target/release/pumice}}
seed=${SEED:-$RANDOM}

skip() { echo "skipped: Ceph cluster: $*"; exit 0; }
[ "$(id -u)" = 0 ] || skip "needs root"
missing=$(missing_tools; command -v fio >/dev/null || echo fio)
[ -z "$missing" ] || skip "not installed: ${missing//$'\n'/ } (scripts/deps.sh clusters)"
# Not `grep -q`: it would end fio by a signal, which counts as a failure here.
fio --enghelp | grep -x '[[:space:]]*rbd' >/dev/null || skip "this fio has no engine rbd"
# A container may have the nodes and not be allowed to use them. One that is not there would be made as a file.
can_open() { [ -c "$1" ] && (: <>"$1") 2>/dev/null; }
can_open /dev/fuse && can_open /dev/loop-control || can_open /dev/ublk-control ||
    skip "no block devices for drives: /dev/fuse and /dev/loop-control, or /dev/ublk-control"
[ -n "$smoke" ] || /usr/bin/python3 -c 'import boto3' 2>/dev/null || skip "python3-boto3 is not installed (scripts/deps.sh clusters)"
[ -x "$PUMICE" ] || { echo "$PUMICE is not there: make build first" >&2; exit 1; }
# All below runs in a directory of its own.
PUMICE=$(realpath "$PUMICE")

# Where lab.sh runs a cluster: where others cannot put something else in its place.
folder=$(realpath -e "${TMPDIR:-/var/tmp}" 2>/dev/null) && is_out_of_reach "$folder/x" || folder=/var/tmp
is_out_of_reach "$folder/x" || skip "$folder: somebody else than root may replace it"
read -r free used < <(df --output=avail,pcent -B1M "$folder" | tail -n 1)
[ "${free:-0}" -ge 4096 ] || skip "$folder has ${free:-0} MiB free, 4096 are needed"
# A monitor warns, and ends, on a disk that is nearly full.
[ "${used%\%}" -lt 97 ] || skip "the file system of $folder is $used full"

work=$(mktemp -d "$folder/pumice-ceph-test.XXXXXX") || exit 1
export LAB_DIR=$work/lab CEPH_CONF=$work/lab/ceph.conf PUMICE_RUNTIME_DIR=$work/lab/pumice
finish() {
    # Another signal must not end this half-way.
    trap - EXIT
    trap '' HUP INT TERM
    if [ -n "${KEEP:-}" ]; then
        echo "the cluster stays: LAB_DIR=$LAB_DIR $here/lab.sh status"
        return
    fi
    end_children
    # What is attached still would lose its backing.
    "$here/lab.sh" down && rm -rf --one-file-system "$work"
}
trap finish EXIT
cd "$work" || exit 1

failures=0 checks=0
check() {       # check NAME COMMAND...
    local name=$1 since=$SECONDS
    shift
    checks=$((checks + 1))
    if "$@" >"$work/output" 2>&1; then
        echo "ok      $name ($((SECONDS - since)) s)"
    else
        echo "FAILED  $name: $(tail -n 15 "$work/output")"
        failures=$((failures + 1))
        return 1
    fi
}
lab() { "$here/lab.sh" "$@"; }
ceph() { timeout 60 /usr/bin/ceph --connect-timeout 20 "$@"; }
within() {      # within SECONDS COMMAND...: until it succeeds. A machine that is busy with other things has longer.
    local until=$((SECONDS + $1 * ${PATIENCE:-3}))
    shift
    until "$@"; do
        [ $SECONDS -lt $until ] || { echo "not within the time: $*"; ceph health detail | head -n 20; ceph pumice status; return 1; }
        sleep 1
    done
}
# A cluster that does not answer has neither raised nor cleared anything.
health_checks() { ceph health detail -f json | jq -ce '.checks | objects'; }
raised() {
    local now
    now=$(health_checks) && jq -e --arg name "$1" 'has($name)' <<<"$now" >/dev/null
}
cleared() {
    local now
    now=$(health_checks) && jq -e --arg name "$1" 'has($name) | not' <<<"$now" >/dev/null
}
is_healthy() { [ "$(ceph health)" = HEALTH_OK ]; }
drives() { ceph pumice status --format json | jq -r "$1"; }
osds_of() { ls "$LAB_DIR/osd" | sort -n; }
# The process of an OSD, if it runs.
osd_pid() {
    local pid
    pid=$(cat "$LAB_DIR/run/osd.$1.pid") && grep -qxzF "$LAB_DIR/ceph.conf" "/proc/$pid/cmdline" && ! grep -q '^State:.Z' "/proc/$pid/status" &&
        echo "$pid"
}
# All processes are there, and all are up in the map: the map learns late of one that has ended.
all_running() {
    local osd count=0
    for osd in $(osds_of); do
        osd_pid "$osd" >/dev/null || { echo "osd.$osd does not run"; return 1; }
        count=$((count + 1))
    done
    [ $count -gt 0 ] && [ "$(ceph osd stat -f json | jq '[.num_osds, .num_up_osds] | unique[]')" = $count ]
}
# fio on an image, which reads back what it wrote: rbd_fio NAME POOL IMAGE ARGUMENTS...
rbd_fio() {
    timeout 900 fio --name="$1" --ioengine=rbd --clientname=admin --pool="$2" --rbdname="$3" --iodepth=16 --verify=crc32c --verify_fatal=1 \
        --verify_state_save=0 --buffer_compress_percentage=50 --refill_buffers --randseed="$seed" "${@:4}"
}

. "$here/test/basics.sh"
check "an up that fails leaves nothing" failed_up_leaves_nothing
if [ -n "$smoke" ]; then
    basics 1 --no-rgw --image 64M || exit 1
else
    . "$here/test/full.sh"
    . "$here/test/faults.sh"
    echo "seed $seed"
    basics 6 --image 512M --size 512M --serve '--throttle-at 70 --throttle-floor 1M' || exit 1
    check "the pool with one copy is removed" without_one_copy
    objects
    for stage in ${STAGES:-ways_to_protect taken_back_by_hand full_and_deleted full_and_protected full_and_not_protected kills a_lost_drive mended_bits flipped_bits stopped_and_started}; do
        "$stage"
    done
fi
check "down" lab down
check "nothing is left behind" nothing_left
echo "$checks checks, $failures failed"
[ "$failures" = 0 ]
