#!/usr/bin/env bash
# Ceph on Pumice drives, a real cluster of one machine: `make test-clusters`. One line a check; exits with 1 if one fails. Skipped,
# with the reason in one line, where it cannot run.
#
#   test.sh [--smoke] [PROGRAM]
#   --smoke   one OSD, half a minute: what `make test` runs
#
# KEEP=1 leaves the cluster for a look after a failure. SEED: of the bits that are flipped. STAGES: only these, of
# ways_to_protect full_and_protected full_and_not_protected kills a_lost_drive flipped_bits stopped_and_started; the three about
# what is still there after faults need `kills` before them.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
smoke=
if [ "${1:-}" = --smoke ]; then smoke=yes; shift; fi
export PUMICE=${1:-${PUMICE:-$here/../../target/release/pumice}}
seed=${SEED:-$RANDOM}

skip() { echo "skipped: Ceph cluster: $*"; exit 0; }
[ "$(id -u)" = 0 ] || skip "needs root"
for tool in ceph-mon ceph-mgr ceph-osd radosgw rbd fio jq losetup; do
    command -v "$tool" >/dev/null || skip "$tool is not installed (scripts/deps.sh clusters)"
done
[ -e /dev/fuse ] && [ -e /dev/loop-control ] || [ -e /dev/ublk-control ] || skip "no block devices for drives: /dev/fuse, /dev/loop-control"
[ -n "$smoke" ] || /usr/bin/python3 -c 'import boto3' 2>/dev/null || skip "python3-boto3 is not installed (scripts/deps.sh clusters)"
[ -x "$PUMICE" ] || { echo "$PUMICE is not there: make build first" >&2; exit 1; }
# All below runs in a directory of its own.
PUMICE=$(realpath "$PUMICE")

if [ -n "$smoke" ] && [ "$(cut -d. -f1 /proc/loadavg)" -ge $((2 * $(nproc))) ]; then skip "the machine is busy: load $(cut -d' ' -f1 /proc/loadavg)"; fi

work=$(mktemp -d "${TMPDIR:-/var/tmp}/pumice-ceph-test.XXXXXX")
export LAB_DIR=$work/lab CEPH_CONF=$work/lab/ceph.conf PUMICE_RUNTIME_DIR=$work/lab/pumice
finish() {
    if [ -n "${KEEP:-}" ]; then
        echo "the cluster stays: LAB_DIR=$LAB_DIR $here/lab.sh status"
        return
    fi
    kill $(jobs -p) 2>/dev/null
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
within() {      # within SECONDS COMMAND...: until it succeeds
    local until=$((SECONDS + $1))
    shift
    until "$@"; do
        [ $SECONDS -lt $until ] || { echo "not within the time: $*"; ceph health detail | head -n 20; ceph pumice status; return 1; }
        sleep 1
    done
}
raised() { ceph health detail -f json | jq -e --arg name "$1" '.checks[$name]' >/dev/null; }
cleared() { ! raised "$1"; }
is_healthy() { [ "$(ceph health)" = HEALTH_OK ]; }
drives() { ceph pumice status --format json | jq -r "$1"; }
all_running() { [ "$(lab run ls "$LAB_DIR/osd" | wc -l)" = "$(ceph osd stat -f json | jq .num_up_osds)" ]; }
# fio on an image, which reads back what it wrote: rbd_fio NAME POOL IMAGE ARGUMENTS...
rbd_fio() {
    timeout 900 fio --name="$1" --ioengine=rbd --clientname=admin --pool="$2" --rbdname="$3" --iodepth=16 --verify=crc32c --verify_fatal=1 \
        --verify_state_save=0 --buffer_compress_percentage=50 --refill_buffers --randseed="$seed" "${@:4}"
}
osds_of() { ls "$LAB_DIR/osd" | sort -n; }

. "$here/test/basics.sh"
if [ -n "$smoke" ]; then
    basics 1 --no-rgw --image 64M || exit 1
else
    . "$here/test/full.sh"
    . "$here/test/faults.sh"
    echo "seed $seed"
    basics 6 --image 512M --size 512M --serve '--throttle-at 70 --throttle-floor 1M' || exit 1
    check "the pool with one copy is removed" without_one_copy
    objects
    for stage in ${STAGES:-ways_to_protect full_and_protected full_and_not_protected kills a_lost_drive flipped_bits stopped_and_started}; do
        "$stage"
    done
fi
check "down" lab down
check "nothing is left behind" nothing_left
echo "$checks checks, $failures failed"
[ "$failures" = 0 ]
