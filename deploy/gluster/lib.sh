# shellcheck shell=bash
# What the scripts of this folder share: settings of a lab, waiting, processes. Sourced.
#
# A lab is a directory, LAB. Everything that belongs to it is in it, and every process of it names it in its arguments.

# Settings, each from the environment. `lab.sh up` stores them in LAB/settings; later commands read them from there.
LAB=${LAB:-/tmp/pumice-gluster}
settings=(PUMICE SIZE EXPANSION BACKING DRIVES STRIPE BY FS MOUNT_OPTIONS SUBNET NODES TRIM_SECONDS)
default_settings() {
    PUMICE=${PUMICE:-$(default_program)}
    SIZE=${SIZE:-1G}                       # physical size of a drive
    EXPANSION=${EXPANSION:-1.5}            # logical capacity / physical limit
    BACKING=${BACKING:-pumice}             # pumice, or raw: a plain file of the same logical capacity
    DRIVES=${DRIVES:-auto}                 # drives of a brick: 1, 2 (striped by LVM), auto: 2 where the kernel has device-mapper
    STRIPE=${STRIPE:-256k}                 # stripe size of two drives
    BY=${BY:-auto}                         # way of `pumice attach`
    FS=${FS:-xfs}                          # xfs or ext4
    MOUNT_OPTIONS=${MOUNT_OPTIONS:-noatime}
    SUBNET=${SUBNET:-127.1.1}              # node N is SUBNET.N, an address of the loopback interface
    NODES=${NODES:-2}
    TRIM_SECONDS=${TRIM_SECONDS:-0}        # interval of fstrim on all bricks; 0: no timer
}

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
default_program() {
    local program=${CARGO_TARGET_DIR:-$root/target}/release/pumice
    if [ -x "$program" ]; then echo "$program"; else command -v pumice || echo "$program"; fi
}

fail() {
    echo "${0##*/}: $*" >&2
    exit 1
}
say() { echo "${0##*/}: $*" >&2; }

mib() { awk -v bytes="$1" 'BEGIN { printf "%.0f\n", bytes / 1048576 }'; }

# missing_parts: prints what this machine lacks for a lab, nothing if it has all
missing_parts() {
    local pair
    [ "$(id -u)" = 0 ] || echo "root"
    for pair in glusterd:glusterfs-server glusterfs:glusterfs-client gluster:glusterfs-cli mkfs.xfs:xfsprogs mkfs.ext4:e2fsprogs \
        fio:fio jq:jq fstrim:util-linux losetup:mount; do
        command -v "${pair%:*}" >/dev/null || echo "${pair#*:}"
    done
    [ -e /dev/fuse ] || echo "/dev/fuse"
    [ -x "${PUMICE:-$(default_program)}" ] || echo "the program pumice (make build)"
}

# wait_until SECONDS COMMAND...: runs the command five times a second until it succeeds; fails after the time
wait_until() {
    local end=$((SECONDS + $1))
    shift
    until "$@"; do
        [ "$SECONDS" -lt "$end" ] || return 1
        sleep 0.2
    done
}

# is_mounted PATH: also where the file system has failed, and the path cannot be looked at
is_mounted() { cut -d' ' -f2 /proc/mounts | grep -qxF -- "$1"; }

# --- processes ---

# alive PID: false of one that ended and was not yet waited for
alive() {
    local state
    state=$(sed 's/.*) //; s/ .*//' "/proc/$1/stat" 2>/dev/null) || return 1
    [ -n "$state" ] && [ "$state" != Z ]
}
gone() { ! alive "$1"; }
# stop PID: SIGTERM, after ten seconds SIGKILL
stop() {
    kill "$1" 2>/dev/null || return 0
    wait_until 10 gone "$1" && return
    kill -9 "$1" 2>/dev/null || true
    wait_until 5 gone "$1"
}
# gluster_processes: pids of Gluster's processes that belong to this lab
gluster_processes() {
    local folder name
    for folder in /proc/[0-9]*; do
        name=$(cat "$folder/comm" 2>/dev/null) || continue
        # Threads may rename the main one: glfs_*.
        case $name in glusterd* | glusterfs* | glfs*) ;; *) continue ;; esac
        tr '\0' ' ' <"$folder/cmdline" 2>/dev/null | grep -qF -- "$LAB/" && echo "${folder#/proc/}"
    done
    return 0
}
# gluster_sockets: Unix sockets in /run/gluster of this lab's processes
gluster_sockets() {
    local pid
    for pid in $(gluster_processes); do
        tr '\0' '\n' <"/proc/$pid/cmdline" 2>/dev/null | grep '^/.*/gluster/.*\.socket$' || true
    done
}
