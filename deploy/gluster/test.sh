#!/usr/bin/env bash
# Tests Gluster on Pumice drives: the steps of the document's appliance (README.md), lost and destroyed drives, full drives.
# Starts a lab of its own and ends it. Prints a line for each step; ends at the first that does not hold.
#
#   test.sh [STEP...]     steps, in this order: units expand clients trim server bridge destroy all-full one-full (all)
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

step=start began=0
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
ok() {
    echo "ok $step ($((SECONDS - began)) s): $*"
    began=$SECONDS
}
used() { drive_status "$LAB/node$1/drive1" .physical_used_bytes; }
used_below() { [ "$(used "$1")" -lt "$2" ]; }

# Units of production: valid, and in an order without cycles, with Gluster's own unit and the line of README.md for /etc/fstab.
step_units() {
    local folder generator=/lib/systemd/system-generators/systemd-fstab-generator glusterd=/lib/systemd/system/glusterd.service said
    if ! command -v systemd-analyze >/dev/null || [ ! -x "$generator" ] || [ ! -e "$glusterd" ]; then
        echo "skipped: units: no systemd-analyze, systemd-fstab-generator or glusterd.service"
        return
    fi
    folder=$LAB/units
    mkdir -p "$folder/glusterd.service.d"
    sed 's|/usr/bin/pumice|/bin/true|' "$root/deploy/systemd/pumice.service" >"$folder/pumice.service"
    sed 's|/usr/bin/pumice|/bin/true|' "$root/deploy/systemd/pumice-attach.service" >"$folder/pumice-attach.service"
    cp "$glusterd" "$folder"
    cp "$here/systemd/glusterd.conf" "$folder/glusterd.service.d/"
    cp "$here/systemd/pumice-trim@.service" "$folder/pumice-trim@srv-brick1.service"
    cp "$here/systemd/pumice-trim@.timer" "$folder/pumice-trim@srv-brick1.timer"
    sed -n 's|^ *UUID=\.\.\. /srv/brick1|UUID=3e6be9de-8139-11d1-9106-a43f08d823a6 /srv/brick1|p' "$here/README.md" >"$folder/fstab"
    [ -s "$folder/fstab" ] || fail "README.md has no line for /etc/fstab"
    SYSTEMD_FSTAB=$folder/fstab "$generator" "$folder" "$folder" "$folder"
    said=$(SYSTEMD_UNIT_PATH=$folder: timeout 60 systemd-analyze verify --man=no "$folder"/{glusterd.service,pumice-trim@srv-brick1.{service,timer}} 2>&1) ||
        fail "systemd-analyze verify: $said"
    [ -z "$said" ] || fail "systemd-analyze verify: $said"
    ok "drives, mount, glusterd and the timer are in order, without a cycle"
}

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
    if [[ $(cat "$LAB/node1/device1") == /dev/ublkb* ]]; then
        echo "skipped: bridge: a ublk device waits for the next bridge, and no brick is lost (make test-kernel)"
        return
    fi
    write_files replica under 12 4 &
    sleep 0.3
    kill -9 "$(process_of 1 bridge)" "$(process_of 1 server)"
    wait $! || fail "the client saw an error"
    # The file system of the brick has failed. Gluster ends the processes of the brick within a minute; until then they answer with errors.
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
    kill -9 "$(process_of 1 server)"
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
    heal || fail "not healed: $(unhealed replica)"
    wait_until 60 verify_brick_quietly 1 || fail "the new brick is not complete"
    verify_everywhere
    ok "drive of node 1 destroyed and replaced: $(number_of replica) files of the replica are on all bricks again; of the distributed volume $((lost - left)) of $lost files are lost"
}

available() { drive_status "$LAB/node$1/drive1" .physical_available_bytes; }
# fill NODE MIB: other data on a node's brick, so that its drives have so much left
fill() {
    local bytes=$(($(available "$1") * DRIVES - ($2 << 20)))
    random $((bytes >> 20)) | dd of="$LAB/node$1/fs/filler" bs=1M iflag=fullblock conv=fsync status=none
}
# revive NODE: mounts the file system of a brick anew: what it reads then comes from the drive, and a file system that has shut
# down works again
revive() {
    end_bricks "$1"
    # Threads of a killed process may take a moment to end.
    wait_until 10 umount "$LAB/node$1/fs" 2>>"$LAB/log" || fail "$LAB/node$1/fs cannot be unmounted"
    mount -t "$FS" -o "$MOUNT_OPTIONS" "$(cat "$LAB/node$1/volume")" "$LAB/node$1/fs"
    start_bricks
}
# grow NODE SIZE: physical space for its drives
grow() {
    local drive
    for drive in "$LAB/node$1"/drive*; do
        pumice set-size "$drive" "$(numfmt --from=iec "$2" | awk -v now="$(drive_status "$drive" .physical_size_bytes)" '{ printf "%.0f", now + $1 }')" >>"$LAB/log" 2>&1
    done
}
sfx_number() { pumice sfx-status "$LAB/node$1/drive1" | sed -n 's/^SFX card: .dev.sfdv\([0-9]*\)n1$/\1/p'; }
# percent_of_df NODE
percent_of_df() { df --output=pcent "$LAB/node$1/fs" | tail -n 1 | tr -d ' %'; }

# All physical drives are full. It is healed by deleting and trimming.
step_all_full() {
    local node shown written error
    for ((node = 1; node <= NODES; node++)); do fill "$node" 24; done
    written=$(number_of replica)
    if write_files replica all-full 32 4 random; then fail "the client saw no error"; fi
    written=$(($(number_of replica) - written))
    error=$(grep -o 'No space left on device\|Input/output error' "$LAB/log" | tail -n 1)
    shown=$(percent_of_df 1)
    verify_client replica
    rm -f "$LAB"/node*/fs/filler
    trim_bricks
    for ((node = 1; node <= NODES; node++)); do revive "$node"; done
    heal || fail "not healed: $(unhealed replica)"
    write_files replica after 4 4
    verify_everywhere
    ok "drives of all nodes full, df shows $shown %: after $written files the client got \"$error\"; deleted, trimmed: all $(number_of replica) files on all bricks, writes go on"
}

# One physical drive is full, that of its replica is not. It is healed by growing the drive.
step_one_full() {
    local behind shown
    fill 2 24
    write_files replica one-full 16 4 random || fail "the client saw an error though one brick has space"
    [ "$(drive_status "$LAB/node2/drive1" .out_of_space)" = true ] || fail "the drive of node 2 is not full"
    shown=$(percent_of_df 2)
    # The drive of node 2 is read as the document does.
    pumice capacity "$LAB/node2/drive1" | tail -n 1 | grep -q $'\t1$' || fail "space_flag is not 1"
    wait_until 5 grep -q 1 "$LAB"/run-sfx/sfdv"$(sfx_number 2)"n1/sfx_smart_features/space_flag || fail "space_flag of sfx is not 1"
    pumice sfx-status "$LAB/node2/drive1" | grep -q '^Critical Warning: .*out-of-space' || fail "sfx-status shows no warning"
    behind=$(unhealed replica)
    [ "$behind" -gt 0 ] || fail "the brick of node 2 took everything: this tests nothing"
    verify_client replica
    # ext4 must forget what its drive refused before it is written again (README.md).
    [ "$FS" != ext4 ] || revive 2
    grow 2 512M
    heal || { revive 2; heal; } || fail "not healed: $(unhealed replica)"
    revive 2
    verify_everywhere
    ok "drive of node 2 full, df shows $shown %: no client error, $behind entries to heal; set-size +512M: all $(number_of replica) files on all bricks"
}

mkdir -p "$(dirname "$LAB")"
[ ! -e "$LAB" ] || { echo "test.sh: $LAB exists: LAB=$LAB lab.sh down" >&2; exit 1; }
steps=("$@")
[ ${#steps[@]} -gt 0 ] || steps=(units expand clients trim server bridge destroy all-full one-full)
SIZE=${SIZE:-768M} "$here/lab.sh" up
trap finish EXIT
LAB=$(cd "$LAB" && pwd -P)
. "$LAB/settings"
for volume in "${volumes[@]}"; do write_files "$volume" first 12 8; done
for step in "${steps[@]}"; do "step_${step//-/_}"; done
