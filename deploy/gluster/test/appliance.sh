# shellcheck shell=bash
# The document's appliance, step by step. Sourced by test.sh.

# used NODE: bytes in its drives
used() { local drive sum=0; for drive in $(drives_of "$1"); do sum=$((sum + $(drive_status "$drive" .physical_used_bytes))); done; echo $sum; }
used_below() { [ "$(used "$1")" -lt "$2" ]; }

# The document's section 4: drives expanded, file systems, volumes; and listings of the drives.
step_expand() {
    local shown limit listed listening
    shown=$(df --output=size -B1 "$LAB/node1/fs" | tail -n 1)
    limit=$(drive_status "$LAB/node1/drive1" .physical_limit_bytes)
    # The log and the headers of the file system are not in what df shows.
    awk -v have="$shown" -v limit="$((limit * DRIVES))" -v times="$EXPANSION" 'BEGIN { exit !(have > 0.9 * times * limit) }' ||
        fail "df shows $shown bytes on drives with a limit of $limit"
    listed=$(pumice sfx-status | grep -c '^Formatted Capacity' || true)
    [ "$listed" = $((NODES * DRIVES)) ] || fail "sfx-status lists $listed drives"
    if command -v ss >/dev/null; then
        listening=$(ss -ltnpH | grep -E "pid=($(processes_of "$gluster_programs" | cut -d' ' -f1 | paste -sd'|'))," | awk '{ print $4 }' || true)
        # A glusterd and two bricks a node.
        [ "$(wc -l <<<"$listening")" -ge $((3 * NODES)) ] || fail "ss shows too few addresses of Gluster: $listening"
        ! grep -v '^127\.' <<<"$listening" || fail "Gluster listens at another address than those of loopback"
    fi
    ok "a brick shows $(mib "$shown") MiB, on $DRIVES drive(s) with $(mib "$limit") MiB of physical space for data; $listed drives in sfx-status"
}

# Section 4, step 5, and section 5: clients.
step_clients() {
    verify_everywhere
    fio_on replica --name=fuse --rw=randwrite --bs=4k --size=32M --direct=1 --iodepth=16 --ioengine=libaio --verify=crc32c
    fio_gfapi replica --name=gfapi --rw=randwrite --bs=4k --size=32M --iodepth=16 --verify=crc32c
    rm "$LAB"/client/replica/fuse.* "$LAB"/client/replica/gfapi.*
    ok "$(number_of replica) files on all bricks of the replica, $(number_of distributed) distributed; fio verified 32 MiB by FUSE, 32 MiB by gfapi"
}

# write_and_delete MIB: by the client; sets `written` and `deleted`, bytes in the drives of node 1
write_and_delete() {
    random "$1" | dd of="$LAB/client/replica/gone" bs=128k iflag=fullblock conv=fsync status=none
    written=$(used 1)
    rm "$LAB/client/replica/gone"
    sync -f "$LAB/node1/fs"
    deleted=$(used 1)
}
# Section 4: deleted files come back by TRIM only, by a timer or by -o discard. Section 6: what the drive has is watched.
step_trim() {
    local before written deleted size=200 slack=$((10 << 20)) timers after first
    trim_bricks
    before=$(used 1)
    write_and_delete $size
    [ "$written" -gt $((before + (size << 20) - slack)) ] || fail "$(mib "$before") MiB in the drives before, $(mib "$written") after writing $size"
    [ "$deleted" -gt $((written - slack)) ] || fail "space came back without TRIM"
    first="$(mib "$written") written, $(mib "$deleted") deleted"
    # The second takes the place of the first.
    TRIM_SECONDS=3600 "$here/lab.sh" timer
    TRIM_SECONDS=2 "$here/lab.sh" timer
    timers=$(lab_processes | grep -c ' bash .* run-timer ' || true)
    [ "$timers" = 1 ] || fail "$timers timers run"
    wait_until 60 used_below 1 $((before + slack)) || fail "the timer's fstrim gave too little back: $(used 1) bytes in use, $before before"
    after=$(used 1)
    TRIM_SECONDS=0 "$here/lab.sh" timer
    if lab_processes | grep run-timer; then fail "the timer goes on"; fi
    end_bricks 1
    remount_brick 1 "$MOUNT_OPTIONS,discard"
    start_bricks
    wait_until 60 healed || fail "there is something to heal: $(unhealed replica)"
    write_and_delete $size
    # Freed blocks are discarded once the log has them.
    wait_until 60 used_below 1 $((before + slack)) || fail "-o discard gave too little back: $(used 1) bytes in use, $before before"
    ok "$size MiB written and deleted, drives of node 1: $(mib "$before") MiB before, $first, $(mib "$after") after the timer's fstrim; $(mib "$(used 1)") with -o discard and no fstrim"
    end_bricks 1
    remount_brick 1
    start_bricks
    wait_until 60 healed || fail "there is something to heal: $(unhealed replica)"
}
# remount_brick NODE [OPTIONS]: what is read then comes from the drive, and a file system that has shut down works again. Its bricks
# have ended.
remount_brick() {
    # Threads of a killed process may take a moment to end.
    wait_until 15 umount "$LAB/node$1/fs" 2>>"$LAB/log" || fail "$LAB/node$1/fs cannot be unmounted"
    mount_brick "$@" || fail "node $1: not mounted"
}
