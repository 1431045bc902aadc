# shellcheck shell=bash
# From a drive to the file system of a brick, and back. Sourced after lib.sh.
#
# LAB/nodeN/ has drive1, drive2 (backings), device1, device2 (their block devices), volume (what the file system is on), and
# fs, where it is mounted.

# Sockets, bridges and ScaleFlux's values of this lab's drives are apart from those of the machine.
pumice() { PUMICE_RUNTIME_DIR=$LAB/run "$PUMICE" "$@"; }
drive_status() { pumice status "$1" --json | jq -r ".drives[0] | $2"; }

has_device_mapper() { [ -e /dev/mapper/control ] && command -v lvcreate >/dev/null && dmsetup version >/dev/null 2>&1; }

# create_drive BACKING: a drive of SIZE, its logical capacity expanded to EXPANSION times its physical limit
create_drive() {
    local bytes
    pumice create "$1" --size "$SIZE" >/dev/null
    bytes=$(drive_status "$1" ".physical_limit_bytes * $EXPANSION / 1048576 | floor * 1048576")
    if [ "$BACKING" = raw ]; then
        # The file system above is then as large as on a Pumice drive.
        rm "$1"
        truncate -s "$bytes" "$1"
    else
        # The document's command. It warns that the data must compress, which is the point.
        pumice sfx-nvme sfx change-cap "$1" -z "$bytes" >/dev/null 2>>"$LAB/log"
    fi
}

# attach_drive BACKING: prints the block device
attach_drive() {
    if [ "$BACKING" = raw ]; then
        losetup --find --show --direct-io=on "$1"
    else
        pumice attach "$1" --by "$BY" --sfx -- --background-cpu 0 2>>"$LAB/log"
    fi
}
# detach_drive BACKING DEVICE [--force]
detach_drive() {
    if [ "$BACKING" = raw ]; then
        losetup --detach "$2"
    else
        pumice detach "$1" ${3:+"$3"} >>"$LAB/log" 2>&1
    fi
}

# is_attached DEVICE: it belongs to a drive of this lab
is_attached() {
    if [ "$BACKING" = raw ]; then losetup "$1" >/dev/null 2>&1; else pumice list --json | jq -e --arg d "$1" '[.drives[].attachment.device] | index($d)' >/dev/null; fi
}

# LVM sees the lab's devices only, waits for no udev, and keeps no backups of metadata in /etc.
lvm_of() {
    local node=$1 devices
    shift
    devices=$(cat "$LAB/node$node"/device* | paste -sd,)
    "$1" --devices "$devices" --config 'devices { types=["ublkb", 16, "loop", 16] } activation { udev_sync=0 udev_rules=0 } backup { backup=0 archive=0 }' "${@:2}" \
        >>"$LAB/log" 2>&1
}
volume_group() { echo "pumice_${SUBNET//./_}_$1"; }

# start_brick NODE: attaches the drives of a node, stripes them if there are two, mounts the file system; makes what is not there
start_brick() {
    local node=$1 folder=$LAB/node$1 n new="" volume devices=() group
    mkdir -p "$folder/fs"
    for ((n = 1; n <= DRIVES; n++)); do
        [ -e "$folder/drive$n" ] || { create_drive "$folder/drive$n"; new=yes; }
        attach_drive "$folder/drive$n" >"$folder/device$n"
        devices+=("$(cat "$folder/device$n")")
    done
    volume=${devices[0]}
    if [ "$DRIVES" -gt 1 ]; then
        group=$(volume_group "$node")
        if [ -n "$new" ]; then
            lvm_of "$node" vgcreate "$group" "${devices[@]}" &&
                lvm_of "$node" lvcreate --yes --wipesignatures n --zero n --stripes "$DRIVES" --stripesize "$STRIPE" --extents 100%FREE \
                    --name brick "$group" || return 1
        fi
        lvm_of "$node" vgchange --activate y "$group" || return 1
        volume=/dev/mapper/$group-brick
        [ -e "$volume" ] || dmsetup mknodes >>"$LAB/log" 2>&1
    fi
    echo "$volume" >"$folder/volume"
    if [ -n "$new" ]; then
        case $FS in
            # 512-byte inodes hold Gluster's extended attributes.
            xfs) mkfs.xfs -q -f -i size=512 "$volume" ;;
            ext4) mkfs.ext4 -q -F "$volume" ;;
            *) fail "unknown file system '$FS': expected xfs or ext4" ;;
        esac
    fi
    mount -t "$FS" -o "$MOUNT_OPTIONS" "$volume" "$folder/fs"
}

# stop_brick NODE [--force]: the opposite; --force gives up what is not flushed
stop_brick() {
    local folder=$LAB/node$1 n device
    # Threads of a killed process of Gluster may take a moment to end.
    if is_mounted "$folder/fs"; then wait_until 15 umount "$folder/fs" 2>>"$LAB/log" || umount --lazy "$folder/fs"; fi
    if [ "$DRIVES" -gt 1 ] && [ -e "$folder/volume" ]; then lvm_of "$1" vgchange --activate n "$(volume_group "$1")" || true; fi
    for ((n = 1; n <= DRIVES; n++)); do
        [ -e "$folder/device$n" ] || continue
        device=$(cat "$folder/device$n")
        # What was not flushed is lost where there is no server any more, and then detach says so, and fails.
        detach_drive "$folder/drive$n" "$device" || { [ -n "${2:-}" ] && detach_drive "$folder/drive$n" "$device" --force; } || true
        if is_attached "$device"; then say "$device: not detached"; else rm -f "$folder/device$n"; fi
    done
    rm -f "$folder/volume"
}

# process_of NODE server|bridge: pid of the server, or of the bridge, of the first drive of a node
process_of() { jq -r --arg path "$LAB/node$1/drive1" "select(.path == \$path) | .${2}_pid" "$LAB"/run-attach/*/attachment.json; }

# trim_bricks: fstrim on the bricks of all nodes
trim_bricks() {
    local node
    for ((node = 1; node <= NODES; node++)); do
        if is_mounted "$LAB/node$node/fs"; then fstrim "$LAB/node$node/fs" || true; fi
    done
}
