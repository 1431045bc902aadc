# shellcheck shell=bash
# What the scripts of this folder share: settings of a lab, whom they trust, waiting. Sourced.
#
# A lab is a directory, LAB. Everything that belongs to it is in it, and every process of it names something in it in its arguments.

# Settings, each from the environment. `lab.sh up` stores them in LAB/settings; later commands read them from there.
LAB=${LAB:-/tmp/pumice-gluster}
settings=(PUMICE SIZE EXPANSION BACKING DRIVES STRIPE BY FS MOUNT_OPTIONS SUBNET NODES TRIM_SECONDS)
default_settings() {
    PUMICE=$(realpath -m "${PUMICE:-$(default_program)}")
    SIZE=${SIZE:-1G}                       # physical size of a drive
    EXPANSION=${EXPANSION:-1.5}            # logical capacity / physical limit
    BACKING=${BACKING:-pumice}             # pumice, or raw: a plain file of the same logical capacity
    DRIVES=${DRIVES:-auto}                 # drives of a brick: 1, 2 (striped by LVM), auto: 2 where the kernel has device-mapper
    STRIPE=${STRIPE:-256k}                 # stripe size of two drives
    BY=${BY:-auto}                         # way of `pumice attach`
    FS=${FS:-xfs}                          # xfs or ext4
    MOUNT_OPTIONS=${MOUNT_OPTIONS:-noatime}
    SUBNET=${SUBNET:-auto}                 # node N is SUBNET.N, an address of the loopback interface; auto: the first free 127.1.M
    NODES=${NODES:-2}
    TRIM_SECONDS=${TRIM_SECONDS:-0}        # interval of fstrim on all bricks; 0: no timer
}
check_settings() {
    local name
    for name in NODES TRIM_SECONDS; do [[ ${!name} =~ ^[0-9]{1,5}$ ]] || fail "$name=${!name}: expected a number"; done
    [[ $NODES =~ ^[1-9] ]] || fail "NODES=$NODES: expected at least 1"
    [[ $DRIVES =~ ^([1-9]|auto)$ ]] || fail "DRIVES=$DRIVES: expected 1 to 9, or auto"
    [[ $EXPANSION =~ ^[0-9]+(\.[0-9]+)?$ ]] || fail "EXPANSION=$EXPANSION: expected a number such as 1.5"
    [[ $BACKING =~ ^(pumice|raw)$ ]] || fail "BACKING=$BACKING: expected pumice or raw"
    [[ $FS =~ ^(xfs|ext4)$ ]] || fail "FS=$FS: expected xfs or ext4"
    [[ $SUBNET =~ ^(auto|127\.[0-9]{1,3}\.[0-9]{1,3})$ ]] || fail "SUBNET=$SUBNET: expected auto, or the first three numbers of a loopback address, such as 127.1.1"
}
store_settings() {
    local name
    for name in "${settings[@]}"; do
        case ${!name} in *$'\n'*) fail "$name has more than one line" ;; esac
        printf '%s=%s\n' "$name" "${!name}"
    done >"$LAB/settings"
}
# load_settings: reads them as text; a value is never run
load_settings() {
    local line known
    while IFS= read -r line; do
        for known in "${settings[@]}"; do
            [ "${line%%=*}" != "$known" ] || printf -v "$known" '%s' "${line#*=}"
        done
    done <"$LAB/settings"
    check_settings
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
# fail_with FILE MESSAGE: with the last lines of a log, because a lab that failed to start is removed
fail_with() {
    tail -n 5 "$1" >&2 || true
    shift
    fail "$@"
}

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

# --- whom to trust: what is in a lab is obeyed as root ---

# resolve_lab: makes LAB a path without links in the directories that lead to it
resolve_lab() {
    local parent
    case $LAB in /*) ;; *) LAB=$PWD/$LAB ;; esac
    parent=$(cd "$(dirname "$LAB")" 2>/dev/null && pwd -P) || fail "$(dirname "$LAB"): no such directory"
    LAB=${parent%/}/$(basename "$LAB")
    # Gluster and fio take other characters for separators of theirs.
    [[ $LAB =~ ^/[A-Za-z0-9/._+-]+$ ]] || fail "$LAB: expected a path of letters, digits and / . _ + - only"
}
# check_trusted PATH: fails if another user than root could have made it, could change it, or could put another in its place
check_trusted() {
    check_owner "$1" 8#022
    check_place "$1"
}
# check_place PATH: the same of the directories that lead to it. In one like /tmp others cannot rename what is root's.
check_place() {
    local path=$1
    while [ "$path" != / ]; do
        path=$(dirname "$path")
        if [ $((8#$(stat -c %a -- "$path") & 8#1000)) = 0 ]; then check_owner "$path" 8#022; else check_owner "$path" 0; fi
    done
}
# check_owner PATH BITS: it is root's, and its mode has none of these bits
check_owner() {
    local owner mode
    read -r owner mode < <(stat -c '%u %a' -- "$1") || fail "$1: cannot be examined"
    [ "$owner" = 0 ] || fail "$1: belongs to user $owner, and not to root; nothing in it is used"
    [ $((8#$mode & $2)) = 0 ] || fail "$1: writable by other users (mode $mode, $(stat -c %F -- "$1")); nothing in it is used"
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
