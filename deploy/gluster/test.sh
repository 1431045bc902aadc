#!/usr/bin/env bash
# Tests Gluster on Pumice drives: the steps of the document's appliance (README.md), lost and destroyed drives, full drives.
# Starts a lab of its own and ends it. Prints a line for each step; ends at the first that does not hold.
#
#   test.sh [STEP...]     steps, in this order: expand clients trim server bridge destroy one-full all-full (all)
#
# Exits 0 with a line "skipped: ..." where packages are missing. PUMICE names the program; FS=ext4 takes the document's file
# system in place of XFS; KEEP=1 leaves the lab of a failed test. Needs 4 GiB in the temporary directory.
set -Eeuo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export LAB=${TMPDIR:-/tmp}/pumice-gluster-test
for part in lib drive cluster test-data; do
    # shellcheck source=/dev/null
    . "$here/$part.sh"
done

missing=$(missing_parts | paste -sd, | sed 's/,/, /g')
if [ -n "$missing" ]; then
    echo "skipped: Gluster on Pumice drives: this machine lacks $missing"
    exit 0
fi

step=start
finish() {
    local code=$?
    trap - EXIT ERR
    if [ "$code" != 0 ]; then
        echo "FAILED: $step; last lines of $LAB/log:" >&2
        tail -n 15 "$LAB/log" >&2 || true
        if [ -n "${KEEP:-}" ]; then exit "$code"; fi
    fi
    "$here/lab.sh" down || code=1
    exit "$code"
}
ok() { echo "ok $step: $*"; }
used() { drive_status "$LAB/node$1/drive1" .physical_used_bytes; }
used_below() { [ "$(used "$1")" -lt "$2" ]; }

# The document's section 4: drives expanded, file systems, volumes; and listings of the drives.
step_expand() {
    local shown limit listed
    shown=$(df --output=size -B1 "$LAB/node1/fs" | tail -n 1)
    limit=$(drive_status "$LAB/node1/drive1" .physical_limit_bytes)
    # The log and the headers of the file system are not in what df shows.
    awk -v have="$shown" -v limit="$((limit * DRIVES))" -v times="$EXPANSION" 'BEGIN { exit !(have > 0.9 * times * limit) }' ||
        fail "df shows $shown bytes on drives with a limit of $limit"
    listed=$(pumice sfx-status | grep -c '^Formatted Capacity')
    [ "$listed" = $((NODES * DRIVES)) ] || fail "sfx-status lists $listed drives"
    if command -v ss >/dev/null; then
        ! ss -ltnpH | grep -E "pid=($(gluster_processes | paste -sd'|'))," | awk '{ print $4 }' | grep -v '^127\.' ||
            fail "Gluster listens at another address than those of loopback"
    fi
    ok "a brick shows $(mib "$shown") MiB, on $DRIVES drive(s) with $(mib "$limit") MiB of physical space for data; $listed drives in sfx-status"
}

# Section 4, step 5, and section 5: clients.
step_clients() {
    verify_everywhere
    fio_on replica --name=fuse --rw=randwrite --bs=4k --size=32M --direct=1 --iodepth=16 --ioengine=libaio --verify=crc32c
    fio_gfapi replica --name=gfapi --rw=randwrite --bs=4k --size=32M --iodepth=16 --verify=crc32c
    rm -f "$LAB"/client/replica/{fuse,gfapi}.*
    ok "$(number_of replica) files on all bricks of the replica, $(number_of distributed) distributed; fio verified 32 MiB by FUSE, 32 MiB by gfapi"
}

# Section 4: deleted files come back by TRIM only. Section 6: what the drive has is watched.
step_trim() {
    local before written deleted size=200
    trim_bricks
    before=$(used 1)
    random $size | dd of="$LAB/client/replica/gone" bs=128k iflag=fullblock conv=fsync status=none
    written=$(used 1)
    rm "$LAB/client/replica/gone"
    sync -f "$LAB/node1/fs"
    deleted=$(used 1)
    [ "$deleted" -gt $((written - (10 << 20))) ] || fail "space came back without TRIM"
    LAB=$LAB TRIM_SECONDS=2 "$here/lab.sh" timer
    wait_until 30 used_below 1 $((before + (10 << 20))) || fail "the timer's fstrim gave too little back: $(used 1) bytes in use, $before before"
    ok "$size MiB written and deleted, drive of node 1: $(mib "$before") MiB before, $(mib "$written") written, $(mib "$deleted") deleted, $(mib "$(used 1)") after the timer's fstrim"
}

# A drive's server is killed under load, three times: clients notice nothing.
step_server() {
    local fio n
    fio_on replica --name=load --rw=randwrite --bs=4k --size=64M --direct=1 --iodepth=16 --ioengine=libaio --verify=crc32c --rate=12m &
    fio=$!
    for n in 1 2 3; do
        sleep 1
        kill -9 "$(process_of 1 server)"
    done
    wait "$fio" || fail "fio failed"
    # Files count as unhealed until Gluster has closed their last transaction, a second after the last write.
    wait_until 10 healed || fail "there is something to heal: $(unhealed replica)"
    rm -f "$LAB"/client/replica/load.*
    verify_everywhere
    ok "kill -9 of the server of node 1, three times under fio: 64 MiB verified, nothing to heal"
}

# A brick is lost: server and bridge of its drive are killed under load, which is a power cut of that node's drive.
step_bridge() {
    local behind
    write_files replica under 12 4 &
    sleep 0.3
    kill -9 "$(process_of 1 bridge)" "$(process_of 1 server)"
    wait $! || fail "the client saw an error"
    # A device of ublk waits for the next bridge; a loop device fails, and Gluster ends the processes of the brick.
    if [[ $(cat "$LAB/node1/device1") != /dev/ublkb* ]]; then wait_until 30 brick_offline 1 replica || fail "the brick is still there"; fi
    write_files replica lost 4 4 || fail "the client saw an error without the brick"
    end_bricks 1
    stop_brick 1 --force
    start_brick 1
    start_bricks
    behind=$(unhealed replica) || behind=-
    heal || fail "not healed: $(unhealed replica)"
    verify_everywhere
    ok "server and bridge of node 1 killed while 16 files were written: no client error, $behind entries to heal, $(number_of replica) files equal on all bricks"
}

# A drive is destroyed, with all that was on it: a new one takes the brick's place.
step_destroy() {
    local brick=$(host 1):$LAB/node1/fs/replica left
    end_bricks 1
    kill -9 "$(process_of 1 bridge)" "$(process_of 1 server)"
    stop_brick 1 --force
    rm -f "$LAB"/node1/drive*
    write_files replica destroyed 4 4 || fail "the client saw an error"
    verify_client replica
    left=$(files_left distributed)
    start_brick 1
    # A distributed volume has nothing to rebuild from: it is made anew.
    umount "$LAB/client/distributed"
    gluster_quiet 1 volume stop distributed force
    gluster_quiet 1 volume delete distributed
    rm -rf "$LAB"/node*/fs/distributed
    gluster_quiet 1 volume reset-brick replica "$brick" start
    mkdir "$LAB/node1/fs/replica"
    gluster_quiet 1 volume reset-brick replica "$brick" "$brick" commit force
    create_volume distributed
    mount_volume distributed
    local lost=$(number_of distributed)
    : >"$LAB/distributed.sha256"
    start_bricks
    heal full || fail "not healed: $(unhealed replica)"
    wait_until 60 verify_brick_quietly 1 || fail "the new brick is not complete"
    verify_everywhere
    ok "drive of node 1 destroyed and replaced: $(number_of replica) files of the replica are on all bricks again; of the distributed volume $((lost - left)) of $lost files are lost"
}

mkdir -p "$(dirname "$LAB")"
[ ! -e "$LAB" ] || { echo "test.sh: $LAB exists: LAB=$LAB lab.sh down" >&2; exit 1; }
steps=("$@")
[ ${#steps[@]} -gt 0 ] || steps=(expand clients trim server bridge destroy)
SIZE=${SIZE:-768M} "$here/lab.sh" up
trap finish EXIT
LAB=$(cd "$LAB" && pwd -P)
. "$LAB/settings"
for volume in "${volumes[@]}"; do write_files "$volume" first 12 8; done
for step in "${steps[@]}"; do "step_${step//-/_}"; done
