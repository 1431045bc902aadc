#!/bin/bash
# In the guest, part of guest.sh: what the host sees of a node. Each check begins and ends with nothing attached.
new_drive() { rm -f /srv/drive*; pumice create /srv/drive --size 64M "$@" >/dev/null; }
shows() {       # shows ATTRIBUTE VALUE...: of the queue
    local found
    while [ $# -gt 0 ]; do
        found=$(cat "/sys/block/${device#/dev/}/queue/$1")
        [ "$found" = "$2" ] || { echo "$1 is $found, not $2"; return 1; }
        shift 2
    done
}
limits() {      # limits SECTOR
    local physical=4096 best=32768 grain=4096
    new_drive --sector "$1" && attach || return
    # Their drivers have no parameter for it.
    case $way in
        nbd) physical=$1 grain=$1 best=131072 ;;
        loop) physical=$1 best=0 ;;
    esac
    shows logical_block_size "$1" physical_block_size "$physical" minimum_io_size "$physical" optimal_io_size "$best" \
        discard_granularity "$grain" rotational 0 && gone
}
cached() {      # a device that an administrator has made "write through" gets its flushes back with the next disk
    new_drive && attach && shows write_cache 'write back' || return
    echo 'write through' >"/sys/block/${device#/dev/}/queue/write_cache"
    shows write_cache 'write through' || return
    # It fails.
    { pumice doctor /srv/drive || true; } | grep '^fail .*passes no flushes' && gone && attach && shows write_cache 'write back' && gone
}
own() {         # own on|off: a server with that write cache
    /share/pumice serve /srv/drive --nbd unix:/run/own.sock --write-cache="$1" 2>/dev/null &
    server=$!
    until_true pumice status /srv/drive
}
sequence() { pumice status /srv/drive --json | sed -n 's/.*"durable_sequence": \([0-9]*\).*/\1/p'; }
are_durable() { # each of twenty writes is durable when it is acknowledged: a pack of its own that was synced
    local before
    before=$(sequence)
    dd if=/dev/urandom of="$device" bs=4k count=20 oflag=direct && [ "$(sequence)" -ge $((before + 20)) ]
}
uncached() {    # a node of a drive without a write cache shows none, and needs none when the drive has one again
    local server shown='write through'
    [ "$way" != loop ] || shown='write back'
    new_drive && own off && attach && shows write_cache "$shown" fua 0 || return
    kill -9 "$server"
    wait "$server"
    own on || return
    if [ "$way" != loop ]; then
        are_durable || return
        { pumice doctor /srv/drive || true; } | grep '^ok .*needs no flushes' || return
        kill -9 "$(recorded bridge_pid)" "$server"
        wait "$server"
        # By ublk it takes the device over.
        attach || return
        [ "$way" != ublk ] || { shows write_cache 'write through' && are_durable; } || return
    else
        # Requests are held until the bridge has met the new server.
        until_true is_state attached && pumice detach "$device" && kill "$server" && wait "$server" && attach || return
    fi
    gone && attach && shows write_cache 'write back' && gone
}
rules() { sed 's|/usr/bin/pumice|/share/pumice|' /share/61-pumice.rules >"$1"; }
start_udev() {
    mkdir -p /run/udev/rules.d && rules /run/udev/rules.d/61-pumice.rules && udevadm verify /run/udev/rules.d/61-pumice.rules &&
        /usr/lib/systemd/systemd-udevd --daemon && udevadm control --ping
}
stop_udev() { udevadm control --exit; rm -rf /run/udev/rules.d; }
leads() { [ "$(readlink -f "$1")" = "$2" ]; }
is_gone() { [ ! -L "$1" ]; }
put() { printf "$2" | dd of="$device" bs=1 seek="$1" conv=notrunc,fsync 2>/dev/null; }
has_table() {   # with one partition, of 2 MiB, behind the first MiB
    put 446 '\0\0\0\0\203\0\0\0\0\010\0\0\0\020\0\0' && put 510 '\125\252' && blockdev --rereadpt "$device"
}
links() {       # a drive and its partition have names by its id, however the server is, and another disk has not
    local link uuid
    new_drive && attach || return
    uuid=$(recorded_id)
    link=/dev/disk/by-id/pumice-$uuid
    until_true leads "$link" "$device" && [ "$(lsblk -dnro MODEL,SERIAL "$device")" = "Pumice $uuid" ] || return
    until_true has_table || return
    until_true leads "$link-part1" "${device}p1" || return
    kill -STOP "$(recorded server_pid)"
    [ "$(timeout 5 /share/pumice udev "${device#/dev/}")" = "PUMICE_UUID=$uuid" ] || return
    kill -CONT "$(recorded server_pid)"
    [ -z "$(/share/pumice udev "${device#/dev/}9")" ] && gone && until_true is_gone "$link" && until_true is_gone "$link-part1" || return
    truncate -s 1M /tmp/other && device=$(losetup -f --show /tmp/other) || return
    udevadm settle
    [ -z "$(ls /dev/disk/by-id 2>/dev/null | grep pumice)" ] && losetup -d "$device"
}
host() {
    check "limits of the queue, sectors of 512 bytes" limits 512
    check "limits of the queue, sectors of 4096 bytes" limits 4096
    check "flushes of a device that was another disk" cached
    check "a drive without a write cache" uncached
    check "udev starts, with the rules" start_udev
    check "names by id" links
    stop_udev
}
