# Sourced by test.sh: a cluster comes up, keeps data, gives space back, goes away.

all_drives_shown() { [ "$(drives '[.osds[] | select(.state == "online")] | length')" = "$1" ]; }
# Fails if a drive is not known: its space would be missing in the sum.
physical_used() { drives '[.osds[].physical_used_bytes] | if length > 0 and all(type == "number") then add else error("a drive is not known") end'; }
is_below() {
    local now
    now=$(physical_used) && [ "$now" -lt "$1" ]
}
is_above() {
    local now
    now=$(physical_used) && [ "$now" -gt "$1" ]
}

# An image is written and deleted: its space is free again in the drives, not only in Ceph.
space_comes_back() {
    local before
    rbd create r1/short --size 64M --image-feature layering || return 1
    within 30 all_drives_shown "$1" || return 1
    # The module's last look may be older than what was written before.
    sleep 6
    before=$(physical_used) || return 1
    rbd_fio short r1 short --rw=write --bs=1M --do_verify=0 --size=64M || return 1
    within 20 is_above $((before + (20 << 20))) || return 1
    rbd rm r1/short --no-progress || return 1
    within 60 is_below $((before + (8 << 20)))
}

# The monitor and the manager run already when the first drive cannot be made. An `up` that refuses earlier shows nothing.
failed_up_leaves_nothing() {
    if PUMICE=/bin/false lab up --osds 1 --no-rgw >"$work/failed-up" 2>&1; then return 1; fi
    cat "$work/failed-up"
    grep -qF 'an OSD could not be made' "$work/failed-up" || return 1
    nothing_left
}

# Its address in the map is none: the pattern `address`, which is for all that `drives` does not name, leaves it out.
not_started_is_not_watched() {
    local id
    id=$(ceph osd new "$(</proc/sys/kernel/random/uuid)") && ceph config set mgr mgr/pumice/address '{host}:1' || return 1
    # Several rounds.
    sleep 8
    health_checks | jq -e 'keys | map(select(startswith("PUMICE"))) == []' || return 1
    all_drives_shown "$1" && ceph config rm mgr mgr/pumice/address && ceph osd purge "$id" --yes-i-really-mean-it
}

basics() {
    local count=$1
    shift
    check "a cluster of $count OSDs on drives" lab up --osds "$count" "$@" || return 1
    check "HEALTH_OK" within 60 is_healthy
    check "the module shows all drives" within 30 all_drives_shown "$count"
    check "an OSD that has never been started is not watched" not_started_is_not_watched "$count"
    check "RBD: what fio wrote is there" rbd_fio basic "r$((count < 3 ? count : 3))" image --rw=randwrite --bsrange=4k-64k --size=48M
    if [ "$count" -ge 6 ]; then
        check "RBD on erasure coding 4+2" rbd_fio basic r3 image-ec42 --rw=randwrite --bsrange=4k-64k --size=48M
    fi
    check "a deleted image gives space back to drives" space_comes_back "$count"
    # What failed is counted; the rest goes on. Without a cluster there is no rest.
    return 0
}

# One copy does not outlive its drive.
without_one_copy() { ceph osd pool rm r1 r1 --yes-i-really-really-mean-it; }

# Processes, devices, mounts and files of the cluster. Nothing that looks for them has the directory among its own arguments.
left() {
    local file
    for file in $(grep -lF -f <(echo "$work") /proc/[0-9]*/cmdline 2>/dev/null); do
        echo "$file: $(tr '\0' ' ' <"$file")"
    done 2>/dev/null
    losetup -a | grep -F "$work/"
    grep -F "$work/" /proc/mounts
    ls -d "$LAB_DIR" 2>/dev/null
}
# What has been told to end may take a moment.
nothing_left() {
    local left _
    for _ in {1..50}; do
        left=$(left)
        [ -n "$left" ] || return 0
        sleep 0.2
    done
    echo "$left"
    return 1
}
