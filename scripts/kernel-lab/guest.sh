#!/bin/bash
# In the guest: `pumice attach` by each way that this kernel has, from the making of a file system to its end. One line a check.
# WAYS: the ways to try. The program is /share/pumice.
set -uo pipefail
export PUMICE_RUNTIME_DIR=/run/pumice PUMICE_USER=0 PUMICE_CONFIG=/nonexistent/pumice.toml
pumice() { /share/pumice "$@"; }
failures=0
check() {       # check NAME COMMAND...
    local name=$1
    shift
    # Not in a subshell: `attach` sets `device`.
    if "$@" >/tmp/output 2>&1; then
        echo "ok      $way: $name"
    else
        echo "FAILED  $way: $name: $(tail -n 20 /tmp/output)"
        failures=$((failures + 1))
        tail -n 20 /run/pumice-attach/*/*.log 2>/dev/null
    fi
}
field() { pumice list --json | sed -n "s/^ *\"$1\": \"\\?\\([^\",]*\\)\"\\?,\\?$/\\1/p" | head -n 1; }
server() { sed -n 's/^ *"server_pid": \([0-9]*\),$/\1/p' /run/pumice-attach/*/attachment.json; }
until_true() { local i; for ((i = 0; i < 100; i++)); do "$@" && return; sleep 0.1; done; echo "never: $*"; return 1; }

attach() { device=$(pumice attach /srv/drive --by "$way" "$@" 2>/tmp/said) || { cat /tmp/said; return 1; }; [ -b "$device" ]; }
verify() {      # verify DIRECTORY DIRECT: fio reads back what it writes, while the server is killed
    local fio
    fio --name=v --directory="$1" --direct="$2" --rw=randwrite --bsrange=4k-64k --blockalign=4k --size=24m --numjobs=2 \
        --ioengine=libaio --iodepth=16 --fsync=64 --loops=2 --verify=crc32c --verify_fatal=1 --verify_state_save=0 &
    fio=$!
    for _ in 1 2 3; do sleep 0.7; kill -9 "$(server)" 2>/dev/null; done
    wait "$fio"
}
is_back() { grep -q 'the server is back' /run/pumice-attach/*/bridge.log; }
trims() {
    local before
    dd if=/dev/urandom of=/mnt/x bs=1M count=32 conv=fsync 2>/dev/null || return
    before=$(field physical_used_bytes)
    rm /mnt/x && sync -f /mnt && fstrim /mnt || return
    sync -f /mnt
    fstrim /mnt
    until_true used_less_than $((before - (16 << 20)))
}
used_less_than() { [ "$(field physical_used_bytes)" -lt "$1" ]; }
grows() {
    pumice set-capacity /srv/drive 640M || return
    until_true has_size $((640 << 20))
}
has_size() { [ "$(blockdev --getsize64 "$device")" = "$1" ]; }
recovers() {    # under load, with the device mounted
    local fio bridge
    fio --name=r --directory=/mnt --direct=1 --rw=randwrite --bs=16k --size=48m --ioengine=libaio --iodepth=16 \
        --verify=crc32c --verify_fatal=1 --verify_state_save=0 &
    fio=$!
    sleep 0.5
    bridge=$(sed -n 's/^ *"bridge_pid": \([0-9]*\),$/\1/p' /run/pumice-attach/*/attachment.json)
    kill -9 "$bridge"
    sleep 0.5
    [ "$(pumice attach /srv/drive --by ublk)" = "$device" ] || return
    wait "$fio"
}
small() { dd if=/dev/zero of="$device" bs=512 count=3 seek=8 oflag=direct; }
refused() { ! pumice detach "$device" 2>/tmp/said && grep -q 'mounted at' /tmp/said; }
fills() {       # a full drive is an error that names the reason, where the driver passes it on
    dd if=/dev/urandom of="$device" bs=1M oflag=direct 2>/tmp/said && return 1
    grep -qE "$1" /tmp/said || { cat /tmp/said; return 1; }
}
gone() { pumice detach "$device" && [ ! -e /run/pumice-attach ]; }

filesystem() {  # filesystem KIND COMMAND-TO-CHECK...
    local kind=$1
    shift
    rm -f /srv/drive*
    pumice create /srv/drive --size 400M --capacity 512M >/dev/null
    check "attach --mkfs $kind" attach --mkfs "$kind" || return
    [ -b "${device:-}" ] || return
    mount "$device" /mnt || return
    check "$kind, fio verifies, kills" verify /mnt 0
    check "$kind, fio verifies direct I/O, kills" verify /mnt 1
    check "$kind, the server was missed and came back" is_back
    rm -f /mnt/v.*
    check "$kind, fstrim is seen by the drive" trims
    check "detach is refused while mounted" refused
    # ublk devices grow from Linux 6.16 on.
    [ "$way" = ublk ] || check "growth is seen" grows
    [ "$way" != ublk ] || check "the bridge is killed, and another one takes over" recovers
    umount /mnt
    check "$kind is sound" "$@" "$device"
    check "detach" gone
    check "the drive is sound" pumice check --deep /srv/drive
}

for way in $WAYS; do
    device=
    filesystem ext4 e2fsck -fn
    filesystem xfs xfs_repair -n
    rm -f /srv/drive*
    pumice create /srv/drive --size 32M --capacity 96M >/dev/null
    check "attach" attach
    check "requests of 512 bytes" small
    # The driver nbd of Linux 6.12 makes EIO of every error.
    case $way in nbd) check "a full drive is an error" fills 'No space|Input/output' ;; *) check "a full drive is ENOSPC" fills 'No space' ;; esac
    check "detach" gone
done
[ "$failures" = 0 ] || echo "$failures checks failed"
[ "$failures" = 0 ]
