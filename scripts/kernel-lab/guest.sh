#!/bin/bash
# In the guest: `pumice attach` by each way that this kernel has, from the making of a file system to its end. One line a check.
# WAYS: the ways to try. The program is /share/pumice. Programs of xfstests are tried too if they are in /share.
set -uo pipefail
export PUMICE_RUNTIME_DIR=/run/pumice PUMICE_USER=0 PUMICE_CONFIG=/nonexistent/pumice.toml
pumice() { /share/pumice "$@"; }
failures=0 checks=0
check() {       # check NAME COMMAND...
    local name=$1 since=$SECONDS
    shift
    checks=$((checks + 1))
    # Not in a subshell: `attach` sets `device`.
    if "$@" >/tmp/output 2>&1; then
        echo "ok      $way: $name ($((SECONDS - since)) s)"
    else
        echo "FAILED  $way: $name: $(tail -n 20 /tmp/output)"
        failures=$((failures + 1))
        tail -n 20 /run/pumice-attach/*/*.log 2>/dev/null
    fi
}
field() { pumice list --json | sed -n "s/^ *\"$1\": \"\\?\\([^\",]*\\)\"\\?,\\?$/\\1/p" | head -n 1; }
recorded() { sed -n "s/^ *\"$1\": \\([0-9]*\\),\$/\\1/p" /run/pumice-attach/*/attachment.json; }
until_true() { local i; for ((i = 0; i < 100; i++)); do "$@" && return; sleep 0.1; done; echo "never: $*"; return 1; }
newer_than() { [ "$(printf '%s\n' "$1" "$(uname -r | sed 's/[^0-9.].*//')" | sort -V | head -n 1)" = "$1" ]; }

attach() { device=$(pumice attach /srv/drive --by "$way" "$@" 2>/tmp/said) || { cat /tmp/said; return 1; }; [ -b "$device" ]; }
load() {        # load DIRECTORY DIRECT MIB: fio reads back what it writes
    fio --name=v --directory="$1" --direct="$2" --rw=randwrite --bsrange=4k-64k --blockalign=4k --size="$3m" --numjobs=2 \
        --ioengine=libaio --iodepth=16 --fsync=64 --loops=2 --verify=crc32c --verify_fatal=1 --verify_state_save=0
}
verify() {      # verify DIRECT: under kills of the server
    local fio
    load /mnt "$1" 24 &
    fio=$!
    for _ in 1 2 3; do sleep 0.7; kill -9 "$(recorded server_pid)" 2>/dev/null; done
    wait "$fio"
}
is_back() { grep -q 'the server is back' /run/pumice-attach/*/bridge.log; }
verify_bridge() {       # verify_bridge DIRECT: under kills of the bridge
    local fio
    load /mnt "$1" 40 &
    fio=$!
    for _ in 1 2 3; do
        sleep 0.7
        take_over || return
        grep -q 'taken over' /tmp/said && ! grep -q 'may be lost' /tmp/said || { cat /tmp/said; return 1; }
    done
    wait "$fio"
}
kill_bridge() { kill -9 "$(recorded bridge_pid)"; }
take_over() {
    local taken
    kill_bridge
    until_true is_state unattended || return
    taken=$(pumice attach /srv/drive 2>/tmp/said) || { cat /tmp/said; return 1; }
    [ "$taken" = "$device" ]
}
is_state() { [ "$(pumice list --json | sed -n 's/^ *"state": "\([a-z]*\)",$/\1/p' | grep -cx "$1")" = 1 ]; }
full_queues() { # more requests than the queues have: the driver notices the end of the bridge when they time out
    local fio
    fio --name=full --directory=/mnt --direct=1 --rw=randwrite --bs=4k --size=48m --numjobs=4 --ioengine=libaio --iodepth=128 \
        --verify=crc32c --verify_fatal=1 --verify_state_save=0 &
    fio=$!
    sleep 1
    kill -STOP "$(recorded server_pid)"
    sleep 1
    kill_bridge
    kill -CONT "$(recorded server_pid)"
    [ "$(pumice attach /srv/drive 2>/tmp/said)" = "$device" ] || { cat /tmp/said; return 1; }
    wait "$fio"
}
both_killed() { # what was flushed is there; the rest may be lost, which is said
    dd if=/dev/urandom of=/mnt/flushed bs=1M count=4 conv=fsync || return
    sha256sum /mnt/flushed >/tmp/sum
    kill -9 "$(recorded bridge_pid)" "$(recorded server_pid)"
    [ "$(pumice attach /srv/drive 2>/tmp/said)" = "$device" ] || { cat /tmp/said; return 1; }
    grep 'may be lost' /tmp/said || return
    umount /mnt && "$@" "$device" && mount "$device" /mnt && sha256sum -c /tmp/sum
}
another_drive() {       # the device of one drive is never given the data of another
    kill -9 "$(recorded bridge_pid)" "$(recorded server_pid)"
    mv /srv/drive /srv/drive.kept
    pumice create /srv/drive --size 64M || return
    ! pumice attach /srv/drive || return
    mv -f /srv/drive.kept /srv/drive
    [ "$(pumice attach /srv/drive)" = "$device" ]
}
no_mkfs() { kill_bridge; ! pumice attach /srv/drive --mkfs ext4 && [ "$(pumice attach /srv/drive)" = "$device" ]; }
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
    until_true has_size $((640 << 20)) && "$@"
}
resizes_ext4() { resize2fs "$device"; }
has_size() { [ "$(blockdev --getsize64 "$device")" = "$1" ]; }
grows_later() { # where the driver cannot, it is shown, and attaching it again does
    pumice set-capacity /srv/drive 640M || return
    until_true does_not_grow && pumice list --json | grep 'before Linux 6.16'
}
does_not_grow() { pumice list | grep -q 'does not grow'; }
small() { dd if=/dev/zero of="$device" bs=512 count=3 seek=8 oflag=direct; }
features() {    # multi-queue, FUA, trim and zeroes as the kernel sees them
    local queue=/sys/block/${device#/dev/}/queue
    ls "/sys/block/${device#/dev/}/mq"
    grep -x 'write back' "$queue/write_cache" && grep -x 1 "$queue/fua" &&
        [ "$(cat "$queue/discard_max_bytes")" -gt 0 ] && [ "$(cat "$queue/write_zeroes_max_bytes")" -gt 0 ]
}
refused() { ! pumice detach "$device" 2>/tmp/said && grep -q 'mounted at' /tmp/said; }
fills() {       # a full drive is an error that names the reason, where the driver passes it on
    dd if=/dev/urandom of="$device" bs=1M oflag=direct 2>/tmp/said && return 1
    grep -qE "$1" /tmp/said || { cat /tmp/said; return 1; }
}
gone() {
    pumice detach "${1:-$device}" && [ ! -e /run/pumice-attach ] && ! pgrep -f '/share/pumice (serve|bridge)' &&
        ! ls /dev/ublk[bc]* 2>/dev/null && ! losetup -n -l | grep . && ! cat /sys/block/nbd*/pid 2>/dev/null
}
first() {       # `auto` takes the first way that works, and says so
    device=$(pumice attach /srv/drive 2>/tmp/said) && grep -q "attached by $1" /tmp/said || { cat /tmp/said; return 1; }
}

stress() {      # stress SEED: under kills of the server, then of the bridge where it can be
    local stress
    mkdir -p "/mnt/stress$1"
    /share/fsstress -d "/mnt/stress$1" -n 1500 -p 4 -s "$1" >/dev/null &
    stress=$!
    sleep 1
    kill -9 "$(recorded server_pid)"
    sleep 1.5
    [ "$way" != ublk ] || take_over || return
    wait "$stress"
}
suites() {      # suites KIND
    local seed
    if [ -x /share/fsx ]; then
        for seed in 1 2 3; do
            check "$1, fsx -S $seed, 20000 operations" /share/fsx -q -P /tmp -N 20000 -S "$seed" -l 1048576 /mnt/fsx
            check "$1, fsx -S $seed -Z, 20000 operations, direct I/O" \
                /share/fsx -q -P /tmp -N 20000 -S "$seed" -l 1048576 -Z -R -W -r 4096 -w 4096 -t 4096 /mnt/fsx-direct
        done
    fi
    if [ -x /share/fsstress ]; then
        for seed in 1 2 3; do check "$1, fsstress -s $seed, 4 x 1500 operations" stress "$seed"; done
    fi
    rm -rf /mnt/stress* /mnt/fsx*
}

filesystem() {  # filesystem KIND COMMAND-TO-CHECK COMMAND-TO-GROW
    local kind=$1 sound=$2 grow=$3
    rm -f /srv/drive*
    pumice create /srv/drive --size 400M --capacity 512M >/dev/null
    check "attach --mkfs $kind" attach --mkfs "$kind" || return
    [ -b "${device:-}" ] || return
    mount "$device" /mnt || return
    check "$kind, fio verifies, kills of the server" verify 0
    check "$kind, fio verifies direct I/O, kills of the server" verify 1
    check "$kind, the server was missed and came back" is_back
    rm -f /mnt/v.*
    if [ "$way" = ublk ]; then
        check "$kind, fio verifies, kills of the bridge" verify_bridge 0
        check "$kind, fio verifies direct I/O, kills of the bridge" verify_bridge 1
        # Linux before 6.15 takes 30 seconds to notice it: once is enough.
        [ "$kind" != ext4 ] || check "$kind, fio verifies, the bridge is killed with full queues" full_queues
        rm -f /mnt/*.*
        check "$kind, server and bridge are killed at once" both_killed $sound
        check "$kind, the device is not given to another drive" another_drive
        check "$kind, no file system is made on a device that waits" no_mkfs
    fi
    suites "$kind"
    check "$kind, fstrim is seen by the drive" trims
    check "detach is refused while mounted" refused
    if [ "$way" = ublk ] && ! newer_than 6.16; then
        check "growth that the driver cannot take is shown" grows_later
        umount /mnt
        check "detach" gone
        check "attach again" attach
        mount "$device" /mnt
        check "growth is seen" has_size $((640 << 20))
    else
        check "growth is seen, $kind grows" grows $grow
    fi
    umount /mnt
    check "$kind is sound" $sound "$device"
    check "detach" gone
    check "the drive is sound" pumice check --deep /srv/drive
}

for way in $WAYS; do
    device=
    filesystem ext4 'e2fsck -fn' resizes_ext4
    filesystem xfs 'xfs_repair -n' 'xfs_growfs /mnt'
    rm -f /srv/drive*
    pumice create /srv/drive --size 32M --capacity 96M >/dev/null
    check "attach" attach
    check "cache, FUA, trim, zeroes" features
    check "requests of 512 bytes" small
    # The driver nbd makes EIO of every error.
    case $way in
        nbd) check "a full drive is an error" fills 'No space|Input/output' ;;
        *) check "a full drive is ENOSPC" fills 'No space' ;;
    esac
    if [ "$way" = ublk ]; then
        kill_bridge
        check "detach after a kill of the bridge" gone /srv/drive
    else
        check "detach" gone
    fi
    case $way in ublk) check "auto takes ublk" first ublk && check "detach" gone ;; esac
    managed
done
echo "$((checks - failures)) of $checks checks passed, Linux $(uname -r)"
[ "$failures" = 0 ]
