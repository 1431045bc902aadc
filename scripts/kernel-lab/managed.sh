#!/bin/bash
# In the guest, part of guest.sh: attachments as an administrator meets them. Each check begins and ends with nothing attached.
number() { grep -lx "$1" /run/pumice-sfx/*/drive | sed 's/.*sfdv\([0-9]*\)n1.*/\1/'; }
wrong() {       # wrong TEXT: while a drive is served that is not the one that was attached, requests wait, and the list says why
    dd if="$device" of=/dev/null bs=4k count=1 iflag=direct 2>/tmp/dd &
    local reader=$!
    until_true listed "$1" && kill -0 "$reader" || return
    mv -f /srv/right /srv/drive
    # The server that has the other one.
    until_true server_runs || return
    kill -9 "$(recorded server_pid)"
    wait "$reader"
}
server_runs() { kill -0 "$(recorded server_pid)"; }
write_more() {  # the bridge has seen it when this returns: that the drive has changed
    local before
    before=$(recorded durable_sequence)
    dd if=/dev/urandom of="$device" bs=1M count=4 oflag=direct conv=fsync && until_true is_seen "$before"
}
is_seen() { [ "$(recorded durable_sequence)" -gt "$1" ]; }
listed() { pumice list --json | grep -q "$1"; }
replaced() {    # a drive that was wiped, or an older copy of it, does not take its place while it is attached
    attach || return
    cp /srv/drive /srv/copy
    write_more || return
    mv /srv/drive /srv/right && mv /srv/copy /srv/drive && kill -9 "$(recorded server_pid)"
    # Not closed: it lacks what was acknowledged since.
    wrong 'acknowledged writes are lost' || return
    cp /srv/drive /srv/copy
    pumice wipe /srv/copy --yes --take-over || return
    mv /srv/drive /srv/right && mv /srv/copy /srv/drive && kill -9 "$(recorded server_pid)"
    wrong 'was wiped' && gone
}
replaced_under_a_device_that_waits() {
    local code=0
    attach || return
    cp /srv/drive /srv/copy
    write_more || return
    kill -9 "$(recorded bridge_pid)" "$(recorded server_pid)"
    mv /srv/drive /srv/right && mv /srv/copy /srv/drive
    pumice attach /srv/drive 2>/tmp/said || code=$?
    [ "$code" = 4 ] && grep 'acknowledged writes are lost.*detach --force' /tmp/said || { cat /tmp/said; return 1; }
    mv -f /srv/right /srv/drive
    [ "$(pumice attach /srv/drive)" = "$device" ] && gone
}
paths() {       # a drive has one device, by whatever path
    attach && ln -sf /srv/drive /srv/link && mount --bind /srv /mnt || return
    ! pumice attach /srv/link && ! pumice attach /mnt/drive || return
    [ "$(ls /run/pumice-attach | wc -l)" = 1 ] || return
    if [ "$way" = ublk ]; then
        kill_bridge
        [ "$(pumice attach /srv/link)" = "$device" ] || return
    fi
    umount /mnt && rm /srv/link && gone
}
loss_is_told() {        # a loss that nobody was told of is told after the next takeover
    attach || return
    dd if=/dev/urandom of="$device" bs=64k count=4 oflag=direct || return
    kill_bridge
    until_true is_state unattended || return
    # As if the last bridge had found a loss, and was killed before anybody heard of it.
    sed -i 's/"loss_to_report": false/"loss_to_report": true/' /run/pumice-attach/*/attachment.json
    grep '"loss_to_report": true' /run/pumice-attach/*/attachment.json || return
    pumice attach /srv/drive 2>&1 >/dev/null | grep 'may be lost' || return
    kill_bridge
    ! pumice attach /srv/drive 2>&1 >/dev/null | grep 'may be lost' && gone
}
no_link() {     # a device that cannot be linked is taken over all the same
    attach || return
    kill_bridge
    touch "/dev/sfdv$(number /srv/drive)n1"
    [ "$(pumice attach --sfx /srv/drive 2>/tmp/said)" = "$device" ] && grep 'warning: ' /tmp/said || return
    rm /dev/sfdv* && gone
}
is_online() { pumice status /srv/drive | grep -q online; }
forced() {      # without its server, a drive is detached by force only, and nothing acknowledged is lost
    local server
    /share/pumice serve /srv/drive --nbd unix:/run/own.sock 2>/dev/null &
    server=$!
    until_true is_online && attach || return
    dd if=/dev/urandom of="$device" bs=64k count=4 oflag=direct || return
    kill -9 "$server"
    until_true is_state waiting || return
    ! pumice detach "$device" 2>/tmp/said && grep 'requests are held' /tmp/said || { cat /tmp/said; return 1; }
    dd if="$device" of=/dev/null bs=4k count=1 iflag=direct 2>/dev/null &
    sleep 0.5
    pumice detach --force "$device" || return
    ! wait $! && [ ! -e /run/pumice-attach ] && [ ! -e "/sys/block/${device#/dev/}/pid" ]
}
all_but_one() { ! pumice detach --configured && [ "$(ls /run/pumice-attach | wc -l)" = 1 ]; }
configured() {  # drives of the configuration, all together, with numbers in the order of the file
    local drive last=-1 drives=(/srv/d{6..1})
    for drive in "${drives[@]}"; do
        pumice create "$drive" --size 32M >/dev/null || return
        printf '[[drive]]\npath = "%s"\nattach = true\nby = "%s"\n' "$drive" "$way"
    done >/tmp/pumice.toml
    pumice attach --configured --config /tmp/pumice.toml >/tmp/nodes && [ "$(wc -l </tmp/nodes)" = 6 ] || return
    for drive in "${drives[@]}"; do
        [ "$(number "$drive")" -gt "$last" ] || return
        last=$(number "$drive")
    done
    device=$(head -n 1 /tmp/nodes)
    mkfs.ext4 -q "$device" && mount "$device" /mnt || return
    # Programs that look at all devices have the others open for a moment.
    until_true all_but_one || return
    { sleep 1; umount /mnt; } &
    pumice detach --configured --wait 60 && [ ! -e /run/pumice-attach ] && rm "${drives[@]}"
}
of_this_bridge() {      # what a unit stops is what it has attached
    attach || return
    ! pumice detach --bridge=1 "$device" && pumice detach --bridge= "$device" && [ -b "$device" ] || return
    pumice detach "--bridge=$(recorded bridge_pid)" "$device"
}
has_filesystem() { mkfs.ext4 -qF -b 4096 "$device" && mount "$device" /mnt; }
stuck() {       # a device under a file system that nobody can take over is detached by force, and what waits there fails
    local reader
    attach && has_filesystem || return
    kill -9 "$(recorded bridge_pid)" "$(recorded server_pid)"
    until_true is_state unattended || return
    mv /srv/drive /srv/right && pumice create /srv/drive --size 64M >/dev/null || return
    ! pumice attach /srv/drive 2>/tmp/said && grep 'another drive.*detach --force' /tmp/said || { cat /tmp/said; return 1; }
    dd if="$device" of=/dev/null bs=4k count=1 iflag=direct 2>/dev/null &
    reader=$!
    ! pumice detach "$device" && kill -0 "$reader" && pumice detach --force "$device" || return
    ! wait "$reader" && until_true umount /mnt || return
    mv -f /srv/right /srv/drive
    [ ! -e /run/pumice-attach ] && ! ls /dev/ublk[bc]* 2>/dev/null
}
attached_again() { is_state attached || [ "$(pumice attach /srv/drive)" = "$device" ]; }
takes_over() {  # waits until process $1 has begun to take a device over, or has ended
    local record
    while kill -0 "$1"; do
        mapfile -t record < <(cat /run/pumice-attach/*/attachment.json)
        [[ ${record[*]} != *'"takeover": "'* ]] || return
    done
}
storm() {       # bridges are killed at any moment, each second one in the middle of a takeover, while fio verifies; STORM: seconds
    local aimed=0 attempt end fio
    attach && has_filesystem || return
    end=$((SECONDS + ${STORM:-10}))
    while [ "$SECONDS" -lt "$end" ]; do load /mnt 1 8 || exit 1; done &
    fio=$!
    while [ "$SECONDS" -lt "$end" ]; do
        pumice attach /srv/drive >/dev/null 2>>/tmp/storm &
        attempt=$!
        if ((aimed++ % 2)); then takes_over "$attempt"; else sleep "0.$(printf %03d $((RANDOM % 300 + 5)))"; fi
        kill_bridge
        wait "$attempt"
    done 2>/dev/null
    until_true attached_again || { tail -n 5 /tmp/storm; return 1; }
    wait "$fio" && umount /mnt && e2fsck -fn "$device" && gone
}

managed() {
    rm -f /srv/drive*
    pumice create /srv/drive --size 64M --capacity 96M >/dev/null
    check "a drive has one device, by whatever path" paths
    check "another state of the drive does not take its place" replaced
    check "detach --force without a server" forced
    check "attach and detach --configured" configured
    check "detach --bridge" of_this_bridge
    if [ "$way" = ublk ]; then
        check "an older state of the drive does not take over" replaced_under_a_device_that_waits
        check "a loss is told once" loss_is_told
        check "a takeover without its link" no_link
        check "bridges are killed at any moment" storm
        check "detach --force of a mounted device without a bridge" stuck
    fi
}
