#!/bin/bash
# In the guest, behind checks.sh: all checks, by each way, from the making of a file system to its end. WAYS: the ways to try.
# Programs of xfstests are tried too if they are in /share.

stress() {      # stress SEED: under kills of the server, then of the bridge
    local stress
    mkdir -p "/mnt/stress$1"
    /share/fsstress -d "/mnt/stress$1" -n 1500 -p 4 -s "$1" >/dev/null &
    stress=$!
    sleep 1
    kill -9 "$(recorded server_pid)"
    sleep 1.5
    take_over || return
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
    check "$kind, fio verifies, kills of the bridge" verify_bridge 0
    check "$kind, fio verifies direct I/O, kills of the bridge" verify_bridge 1
    if [ "$way" = ublk ]; then
        check "$kind, fio verifies, the server is killed with full queues" full_queues server
        check "$kind, fio verifies, the bridge is killed with full queues" full_queues bridge
    fi
    rm -f /mnt/*.*
    # A loop device ends with both.
    if [ "$way" != loop ]; then
        check "$kind, server and bridge are killed at once" both_killed $sound
        check "$kind, the device is not given to another drive" another_drive
    fi
    check "$kind, no file system is made on a device without a bridge" no_mkfs
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

nbd() {         # what the driver does without a server
    check "a request that takes longer than its timeout" slow
    check "requests wait for a server, and fail after the time limit" abandoned
    check "attach again" attach
    check "a device whose bridge is killed works, and is taken over while it is in use" orphaned
}
slow() {
    local writer losses
    losses=$(losses)
    kill -STOP "$(recorded server_pid)"
    dd if=/dev/urandom of="$device" bs=4k count=1 oflag=direct &
    writer=$!
    sleep 6
    kill -CONT "$(recorded server_pid)"
    wait "$writer" && [ "$(losses)" = "$losses" ]
}
losses() { grep -c 'the server is gone' /run/pumice-attach/*/bridge.log; }
abandoned() {   # a server of the machine's own, which does not come back
    local server reader since
    gone || return
    own on && attach --timeout 5 || return
    dd if="$device" of=/dev/null bs=4k count=1 iflag=direct || return
    kill -9 "$server"
    wait "$server"
    since=$SECONDS
    ! dd if="$device" of=/dev/null bs=4k count=1 iflag=direct && [ $((SECONDS - since)) -ge 4 ] && [ $((SECONDS - since)) -lt 30 ] || return
    # At once from then on.
    ! timeout 5 dd if="$device" of=/dev/null bs=4k count=1 iflag=direct && is_state failed && ! pumice detach "$device" || return
    pumice detach --force "$device" && [ ! -e /run/pumice-attach ] && ! cat /sys/block/nbd*/pid 2>/dev/null
}
orphaned() {
    local holder code=0
    sleep 1000 <"$device" &
    holder=$!
    kill_bridge
    dd if=/dev/urandom of=/tmp/written bs=4k count=8 && dd if=/tmp/written of="$device" bs=4k oflag=direct &&
        [ "$(pumice attach /srv/drive)" = "$device" ] && kill -9 "$(recorded server_pid)" &&
        dd if="$device" of=/tmp/read bs=4k count=8 iflag=direct && cmp /tmp/written /tmp/read && take_over || code=$?
    kill "$holder"
    wait "$holder"
    return "$code"
}
for way in $WAYS; do
    device=
    filesystem ext4 'e2fsck -fn' resizes_ext4
    filesystem xfs 'xfs_repair -n' 'xfs_growfs /mnt'
    rm -f /srv/drive*
    pumice create /srv/drive --size 32M --capacity 96M >/dev/null
    check "attach" attach
    check "cache, FUA, trim, zeroes" features
    [ "$way" != ublk ] || check "a queue for each processor" queues
    check "requests of 512 bytes" small
    check "blocks that are rewritten and read back, kills of the server" rewrites
    [ "$way" != nbd ] || nbd
    # The driver nbd makes EIO of every error.
    case $way in
        nbd) check "a full drive is an error" fills 'No space|Input/output' ;;
        *) check "a full drive is ENOSPC" fills 'No space' ;;
    esac
    kill_bridge
    check "detach after a kill of the bridge" gone /srv/drive
    preferred=loop
    newer_than 6.15 && preferred=ublk
    case $way in ublk) check "auto takes $preferred" first $preferred && check "detach" gone ;; esac
    managed
    host
done
summary
