#!/usr/bin/env bash
# A Gluster cluster on Pumice drives, on this machine: drives, bricks, two nodes, volumes `replica` and `distributed`, clients.
# Needs root, the packages glusterfs-server, glusterfs-client and xfsprogs, and no systemd. README.md has the settings.
#
#   lab.sh up          start it; volumes are mounted at LAB/client/replica and LAB/client/distributed
#   lab.sh status      nodes: what the file system shows, and what the drive has
#   lab.sh trim        fstrim on all bricks, and what came back
#   lab.sh timer       the same every TRIM_SECONDS, from now on; `up` does it too if TRIM_SECONDS is not 0
#   lab.sh down        end it, and remove all of it
set -Eeuo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=lib.sh
. "$here/lib.sh"
# shellcheck source=drive.sh
. "$here/drive.sh"
# shellcheck source=cluster.sh
. "$here/cluster.sh"

load() {
    local seconds=${TRIM_SECONDS:-}
    [ -e "$LAB/settings" ] || fail "$LAB: no lab is there; start one: lab.sh up"
    LAB=$(cd "$LAB" && pwd -P)
    . "$LAB/settings"
    TRIM_SECONDS=${seconds:-$TRIM_SECONDS}
}

up() {
    local missing name node
    [ ! -e "$LAB" ] || fail "$LAB exists: end that lab first (lab.sh down), or set LAB to another directory"
    missing=$(missing_parts | paste -sd, | sed 's/,/, /g')
    [ -z "$missing" ] || fail "this machine lacks: $missing"
    default_settings
    if [ "$DRIVES" = auto ]; then
        DRIVES=1
        if has_device_mapper; then DRIVES=2; fi
    fi
    mkdir -p "$LAB"
    LAB=$(cd "$LAB" && pwd -P)
    for name in "${settings[@]}"; do printf '%s=%q\n' "$name" "${!name}"; done >"$LAB/settings"
    trap 'say "not started; last lines of the log:"; tail -n 5 "$LAB/log" >&2 || true; down' ERR
    for ((node = 1; node <= NODES; node++)); do start_brick "$node"; done
    start_cluster
    if [ "$TRIM_SECONDS" -gt 0 ]; then start_timer; fi
    trap - ERR
    [ "$DRIVES" -gt 1 ] || say "one drive a brick: striping of two by LVM is left out$(has_device_mapper || echo ", the kernel has no device-mapper")"
    say "up: $LAB/client/replica, $LAB/client/distributed"
}

down() {
    local node attached
    load
    set +e
    if [ -e "$LAB/timer.pid" ]; then stop "$(cat "$LAB/timer.pid")"; fi
    stop_cluster
    for ((node = 1; node <= NODES; node++)); do stop_brick "$node" --force; done
    set -e
    if grep -qF " $LAB/" /proc/mounts; then fail "still mounted in $LAB: $(grep -F " $LAB/" /proc/mounts | cut -d' ' -f2 | paste -sd' ')"; fi
    # What is attached still would lose its backing.
    for attached in "$LAB"/node*/device*; do
        [ ! -e "$attached" ] || fail "$(cat "$attached"): still attached, $LAB stays"
    done
    rm -rf "$LAB" && say "down"
}

# What a timer of systemd does in production (pumice-trim@.timer).
start_timer() {
    setsid bash -c "while sleep $TRIM_SECONDS; do LAB='$LAB' '$here/lab.sh' trim; done" </dev/null >"$LAB/timer.log" 2>&1 &
    echo $! >"$LAB/timer.pid"
}

# space NODE: MiB used in the file system, and in the drives
space() {
    local folder=$LAB/node$1 n bytes=0
    for ((n = 1; n <= DRIVES; n++)); do
        if [ "$BACKING" = raw ]; then
            bytes=$((bytes + $(stat -c '%b * 512' "$folder/drive$n")))
        else
            bytes=$((bytes + $(drive_status "$folder/drive$n" .physical_used_bytes)))
        fi
    done
    echo "$(mib "$(df --output=used -B1 "$folder/fs" | tail -n 1)") $(mib "$bytes")"
}

status() {
    local node folder
    for ((node = 1; node <= NODES; node++)); do
        folder=$LAB/node$node
        echo "node $node, $(host "$node"): $FS on $(cat "$folder/volume"), brick processes $(brick_process "$node" replica) $(brick_process "$node" distributed)"
        df -h --output=size,used,avail,pcent "$folder/fs" | sed 's/^/  /'
        [ "$BACKING" = raw ] || pumice capacity "$folder"/drive* | sed 's/^/  /'
    done
    gluster_on 1 volume info | grep -E '^(Volume Name|Type|Status|Number of Bricks)'
}

trim() {
    local node before after
    for ((node = 1; node <= NODES; node++)); do
        before=$(space "$node")
        fstrim "$LAB/node$node/fs"
        after=$(space "$node")
        echo "node $node: ${after% *} MiB used in the file system, ${before#* } MiB in the drive before fstrim, ${after#* } MiB after"
    done
}

case ${1:-} in
    up) up ;;
    down) down ;;
    status) load; status ;;
    trim) load; trim ;;
    timer) load; start_timer ;;
    *) sed -n '2,/^set/{/^set/!s/^# \{0,1\}//p}' "$0" >&2; exit 2 ;;
esac
