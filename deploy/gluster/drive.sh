# shellcheck shell=bash
# From a drive to the file system of a brick, and back. Sourced after process.sh.
#
# LAB/nodeN/ has drive1, drive2 (backings), and fs, where their file system is mounted. Which block device a drive has is asked of the
# kernel and of the record of `pumice attach`, never read from a file of the lab: by now it may be somebody else's.

# Sockets, bridges and ScaleFlux's values of this lab's drives are apart from those of the machine. What it starts does not keep the
# lock of lab.sh.
pumice() { PUMICE_RUNTIME_DIR=$LAB/run "$PUMICE" "$@" 9>&-; }
drive_status() { pumice status "$1" --json | jq -r ".drives[0] | $2"; }

has_device_mapper() { [ -e /dev/mapper/control ] && command -v lvcreate >/dev/null && dmsetup version >/dev/null 2>&1; }

# drives_of NODE: backings of its drives
drives_of() {
    local n
    for ((n = 1; n <= DRIVES; n++)); do echo "$LAB/node$1/drive$n"; done
}

# create_drive BACKING: a drive of SIZE, its logical capacity expanded to EXPANSION times its physical limit
create_drive() {
    local bytes
    pumice create "$1" --size "$SIZE" >/dev/null || return
    bytes=$(drive_status "$1" ".physical_limit_bytes * $EXPANSION / 1048576 | floor * 1048576") || return
    if [ "$BACKING" = raw ]; then
        # The file system above is then as large as on a Pumice drive.
        rm "$1"
        truncate -s "$bytes" "$1"
    else
        # The document's command. It warns that the data must compress, which is the point.
        pumice sfx-nvme sfx change-cap "$1" -z "$bytes" >/dev/null 2>>"$LAB/log"
    fi
}

# attach_drive BACKING: gives it a block device
attach_drive() {
    if [ "$BACKING" = raw ]; then
        losetup --find --direct-io=on "$1" 2>>"$LAB/log"
    else
        pumice attach "$1" --by "$BY" --sfx -- --background-cpu 0 >/dev/null 2>>"$LAB/log"
    fi
}
# attachment_of BACKING: the record of `pumice attach`; fails if there is none
attachment_of() {
    local file
    for file in "$LAB"/run-attach/*/attachment.json; do
        jq -e --arg path "$1" 'select(.path == $path)' "$file" 2>/dev/null && return
    done
    return 1
}
is_attached() { if [ "$BACKING" = raw ]; then [ -n "$(device_of "$1")" ]; else attachment_of "$1" >/dev/null; fi; }
# device_of BACKING: its block device; nothing if it has none, or one that its bridge does not have any more
device_of() {
    local node pid start
    if [ "$BACKING" = raw ]; then
        losetup --associated "$1" --noheadings --output NAME | head -n 1
        return
    fi
    read -r node pid start < <(attachment_of "$1" | jq -r '"\(.node // "-") \(.bridge_pid) \(.bridge_started)"') || return 0
    if [ "$node" != - ] && is_alive "$pid" "$start"; then echo "$node"; fi
}
devices_of() {
    local drive
    for drive in $(drives_of "$1"); do device_of "$drive"; done
}
# detach_drive BACKING [--force]
detach_drive() {
    local device
    if [ "$BACKING" = raw ]; then
        for device in $(losetup --associated "$1" --noheadings --output NAME); do losetup --detach "$device" || return; done
    else
        pumice detach "$1" ${2:+"$2"} >>"$LAB/log" 2>&1
    fi
}

# LVM sees the devices of a node only, waits for no udev, and keeps no backups of metadata in /etc.
lvm_of() {
    local devices
    devices=$(devices_of "$1" | paste -sd,)
    "$2" --devices "$devices" --config 'devices { types=["ublkb", 16, "loop", 16] } activation { udev_sync=0 udev_rules=0 } backup { backup=0 archive=0 }' "${@:3}" \
        >>"$LAB/log" 2>&1 9>&-
}
# volume_group NODE: a name that no other lab has
volume_group() { echo "pumice_$(cksum <<<"$LAB" | cut -d' ' -f1)_$1"; }
# volume_of NODE: what its file system is on
volume_of() { if [ "$DRIVES" -gt 1 ]; then echo "/dev/mapper/$(volume_group "$1")-brick"; else device_of "$LAB/node$1/drive1"; fi; }

mount_brick() {
    local volume
    volume=$(volume_of "$1")
    [ -b "$volume" ] || { say "node $1: '$volume' is no block device of this lab"; return 1; }
    mount -t "$FS" -o "${2:-$MOUNT_OPTIONS}" "$volume" "$LAB/node$1/fs"
}

# start_brick NODE: attaches the drives of a node, stripes them if there are two, mounts the file system; makes what is not there
start_brick() {
    local node=$1 folder=$LAB/node$1 drive new="" group volume devices
    mkdir -p "$folder/fs"
    for drive in $(drives_of "$node"); do
        if [ ! -e "$drive" ]; then
            create_drive "$drive" || fail_with "$LAB/log" "$drive: not made"
            new=yes
        fi
        attach_drive "$drive" || fail_with "$LAB/log" "$drive: not attached"
    done
    if [ "$DRIVES" -gt 1 ]; then
        group=$(volume_group "$node")
        if [ -n "$new" ]; then
            mapfile -t devices < <(devices_of "$node")
            lvm_of "$node" vgcreate "$group" "${devices[@]}" &&
                lvm_of "$node" lvcreate --yes --wipesignatures n --zero n --stripes "$DRIVES" --stripesize "$STRIPE" --extents 100%FREE \
                    --name brick "$group" || fail_with "$LAB/log" "node $node: no logical volume"
        fi
        lvm_of "$node" vgchange --activate y "$group" || fail_with "$LAB/log" "$group: not active"
        [ -e "/dev/mapper/$group-brick" ] || dmsetup mknodes >>"$LAB/log" 2>&1
    fi
    volume=$(volume_of "$node")
    if [ -n "$new" ]; then
        case $FS in
            # 512-byte inodes hold Gluster's extended attributes.
            xfs) mkfs.xfs -q -f -i size=512 "$volume" 2>>"$LAB/log" ;;
            ext4) mkfs.ext4 -q -F "$volume" 2>>"$LAB/log" ;;
        esac || fail_with "$LAB/log" "$volume: no file system"
    fi
    mount_brick "$node" 2>>"$LAB/log" || fail_with "$LAB/log" "$volume: not mounted"
}

# stop_brick NODE [--force]: the opposite; --force gives up what is not flushed
stop_brick() {
    local folder=$LAB/node$1 drive
    # Threads of a killed process of Gluster may take a moment to end.
    if is_mounted "$folder/fs"; then wait_until 15 umount "$folder/fs" 2>>"$LAB/log" || umount --lazy "$folder/fs"; fi
    if [ -e "/dev/mapper/$(volume_group "$1")-brick" ]; then
        dmsetup remove --retry "$(volume_group "$1")-brick" >>"$LAB/log" 2>&1 || say "$(volume_group "$1")-brick: not removed"
    fi
    for drive in $(drives_of "$1"); do
        is_attached "$drive" || continue
        # What was not flushed is lost where there is no server any more, and then detach says so, and fails.
        detach_drive "$drive" || { [ -n "${2:-}" ] && detach_drive "$drive" --force; } || true
        if is_attached "$drive"; then say "$drive: not detached"; fi
    done
}

# drive_process NODE server|bridge: "PID START" of the server, or of the bridge, of the first drive of a node
drive_process() {
    local pid start
    if [ "$2" = server ]; then
        process_of pumice serve "$LAB/node$1/drive1"
    else
        read -r pid start < <(attachment_of "$LAB/node$1/drive1" | jq -r '"\(.bridge_pid) \(.bridge_started)"') && is_alive "$pid" "$start" && echo "$pid $start"
    fi
}

# trim_brick NODE: fstrim. What was deleted is free once it is in the log of the file system: XFS sees to that, ext4 trims without it.
trim_brick() {
    # The first one also fails for what a full drive refused earlier.
    sync -f "$LAB/node$1/fs" 2>>"$LAB/log" || sync -f "$LAB/node$1/fs" || return
    fstrim "$LAB/node$1/fs"
}
# trim_bricks: of all nodes
trim_bricks() {
    local node
    for ((node = 1; node <= NODES; node++)); do trim_brick "$node" || return; done
}
