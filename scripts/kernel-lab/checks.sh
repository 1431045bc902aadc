#!/bin/bash
# In the guest: checks of `pumice attach`, of which guest.sh makes all and smoke.sh a few. One line a check. The program is
# /share/pumice; `way` is the way to attach.
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
recorded_id() { sed -n 's/.*"drive_uuid": "\(.*\)".*/\1/p' /run/pumice-attach/*/attachment.json; }
# As long as it takes a machine that is busy with other things.
until_true() { local end=$((SECONDS + 60)); until "$@"; do [ "$SECONDS" -lt "$end" ] || { echo "never: $*"; return 1; }; sleep 0.1; done; }
newer_than() { [ "$(printf '%s\n' "$1" "$(uname -r | sed 's/[^0-9.].*//')" | sort -V | head -n 1)" = "$1" ]; }

attach() { device=$(pumice attach /srv/drive --by "$way" "$@" 2>/tmp/said) || { cat /tmp/said; return 1; }; [ -b "$device" ]; }
load() {        # load DIRECTORY DIRECT MIB: fio reads back what it writes, on two processors where there are two
    fio --name=v --directory="$1" --direct="$2" --rw=randwrite --bsrange=4k-64k --blockalign=4k --size="$3m" --numjobs=2 \
        --ioengine=libaio --iodepth=16 --fsync=64 --loops=2 --verify=crc32c --verify_fatal=1 --verify_state_save=0 \
        --cpus_allowed=0-$(($(nproc) - 1)) --cpus_allowed_policy=split
}
verify() {      # verify DIRECT [MIB KILLS]: under kills of the server
    local fio i
    load /mnt "$1" "${2:-24}" &
    fio=$!
    for ((i = 0; i < ${3:-3}; i++)); do sleep 0.7; kill -9 "$(recorded server_pid)" 2>/dev/null; done
    wait "$fio"
}
is_back() { grep -qE 'the server is back|the server is gone: connecting anew' /run/pumice-attach/*/bridge.log; }
rewrites() {    # each of three processes reads back what it has just written to its own block, under kills of the server
    local i process processes=()
    rm -f /tmp/end
    for process in 1 2 3; do
        rewrite "$process" &
        processes+=($!)
    done
    for ((i = 0; i < ${1:-6}; i++)); do sleep 1.3; kill -9 "$(recorded server_pid)" 2>/dev/null; done
    touch /tmp/end
    for process in "${processes[@]}"; do wait "$process" || return; done
}
rewrite() {
    local count=0
    until [ -e /tmp/end ]; do
        count=$((count + 1))
        printf '%4096d' "$count" >"/tmp/written$1"
        dd if="/tmp/written$1" of="$device" bs=4k seek="$1" oflag=direct conv=notrunc 2>/dev/null || return
        dd if="$device" of="/tmp/read$1" bs=4k skip="$1" count=1 iflag=direct 2>/dev/null || return
        cmp "/tmp/written$1" "/tmp/read$1" || return
    done
    echo "$1: $count"
    [ "$count" -gt 0 ]
}
verify_bridge() {       # verify_bridge DIRECT: under kills of the bridge
    local fio
    load /mnt "$1" 40 &
    fio=$!
    for _ in 1 2 3; do
        sleep 0.7
        take_over || return
        grep -q 'taken over' /tmp/said && ! grep -q 'may be lost' /tmp/said || { cat /tmp/said; return 1; }
    done
    # The last one starts the server again.
    kill -9 "$(recorded server_pid)"
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
full_queues() { # more requests than the queues have: the driver notices the end of the server when they time out
    local fio
    fio --name=full --directory=/mnt --direct=1 --rw=randwrite --bs=4k --size=48m --numjobs=4 --ioengine=libaio --iodepth=128 \
        --verify=crc32c --verify_fatal=1 --verify_state_save=0 &
    fio=$!
    sleep 1
    kill -STOP "$(recorded server_pid)"
    sleep 1
    case $1 in
        server) kill -9 "$(recorded server_pid)" ;;
        bridge)
            kill_bridge
            kill -CONT "$(recorded server_pid)"
            [ "$(pumice attach /srv/drive 2>/tmp/said)" = "$device" ] || { cat /tmp/said; return 1; }
            ;;
    esac
    wait "$fio"
}
both_killed() { # what was acknowledged is there, flushed or not
    dd if=/dev/urandom of=/mnt/flushed bs=1M count=4 conv=fsync && dd if=/dev/urandom of=/mnt/flushed bs=1M count=4 \
        oflag=direct conv=notrunc || return
    sha256sum /mnt/flushed >/tmp/sum
    kill -9 "$(recorded bridge_pid)" "$(recorded server_pid)"
    [ "$(pumice attach /srv/drive 2>/tmp/said)" = "$device" ] || { cat /tmp/said; return 1; }
    ! grep 'may be lost' /tmp/said || return
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
features() {    # FUA, trim and zeroes as the kernel sees them
    local queue=/sys/block/${device#/dev/}/queue fua=1
    # The kernel flushes after the write.
    [ "$way" != loop ] || fua=0
    grep -x 'write back' "$queue/write_cache" && grep -x "$fua" "$queue/fua" &&
        [ "$(cat "$queue/discard_max_bytes")" -gt 0 ] && [ "$(cat "$queue/write_zeroes_max_bytes")" -gt 0 ]
}
queues() {      # of ublk one for each processor, up to four
    local names=(/sys/block/"${device#/dev/}"/mq/*) processors
    processors=$(nproc)
    echo "queues: ${#names[@]}, processors: $processors"
    [ "${#names[@]}" = $((processors < 4 ? processors : 4)) ]
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

is_prepared() { # bridge and server for times when memory is short: the kernel knows, and theirs is locked
    { pumice doctor /srv/drive || true; } | grep -E 'shortage-above|swap-above' >/tmp/doctor
    cat /tmp/doctor
    [ "$(grep -c '^ok ' /tmp/doctor)" = 2 ] && [ "$(locked "$(recorded server_pid)")" -gt 1000 ] &&
        [ "$(locked "$(recorded bridge_pid)")" -gt 1000 ] && [ "$(score server_pid)" = -900 ] && [ "$(score bridge_pid)" = -1000 ]
}
locked() { sed -n 's/^VmLck:[^0-9]*\([0-9]*\) kB/\1/p' "/proc/$1/status"; }
score() { cat "/proc/$(recorded "$1")/oom_score_adj"; }

summary() {     # the exit code of all checks
    echo "$((checks - failures)) of $checks checks passed, Linux $(uname -r), processors: $(nproc)"
    [ "$failures" = 0 ]
}
