# Part of guest.sh: attachments as an administrator meets them. Each check begins and ends with nothing attached.
number() { grep -lx "$1" /run/pumice-sfx/*/drive | sed 's/.*sfdv\([0-9]*\)n1.*/\1/'; }
wrong() {       # wrong TEXT: while a drive is served that is not the one that was attached, requests wait, and the list says why
    dd if="$device" of=/dev/null bs=4k count=1 iflag=direct 2>/tmp/dd &
    local reader=$!
    until_true listed "$1" && kill -0 "$reader" || return
    mv -f /srv/right /srv/drive
    # Its server has the other one, and the record follows within a second.
    sleep 1
    kill -9 "$(recorded server_pid)"
    wait "$reader"
}
listed() { pumice list --json | grep -q "$1"; }
replaced() {    # a drive that was wiped, or an older copy of it, does not take its place while it is attached
    attach || return
    cp /srv/drive /srv/copy
    dd if=/dev/urandom of="$device" bs=1M count=4 oflag=direct conv=fsync || return
    # The bridge looks twice a second.
    sleep 1
    mv /srv/drive /srv/right && mv /srv/copy /srv/drive && kill -9 "$(recorded server_pid)"
    wrong 'older state' || return
    cp /srv/drive /srv/copy
    pumice wipe /srv/copy --yes || return
    mv /srv/drive /srv/right && mv /srv/copy /srv/drive && kill -9 "$(recorded server_pid)"
    wrong 'was wiped' && gone
}
replaced_under_a_device_that_waits() {
    local code=0
    attach || return
    cp /srv/drive /srv/copy
    dd if=/dev/urandom of="$device" bs=1M count=4 oflag=direct conv=fsync || return
    sleep 1
    kill -9 "$(recorded bridge_pid)" "$(recorded server_pid)"
    mv /srv/drive /srv/right && mv /srv/copy /srv/drive
    pumice attach /srv/drive 2>/tmp/said || code=$?
    [ "$code" = 4 ] && grep 'older state' /tmp/said || { cat /tmp/said; return 1; }
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
    kill -9 "$(recorded bridge_pid)" "$(recorded server_pid)"
    # As if the bridge was killed before anybody heard of it.
    sed -i 's/"loss_to_report": false/"loss_to_report": true/' /run/pumice-attach/*/attachment.json
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
forced() {      # without its server, a drive is detached by force only, and what is lost is said
    local server
    /share/pumice serve /srv/drive --nbd unix:/run/own.sock 2>/dev/null &
    server=$!
    until_true is_online && attach || return
    dd if=/dev/urandom of="$device" bs=64k count=4 oflag=direct || return
    kill -9 "$server"
    until_true is_state waiting || return
    ! pumice detach "$device" 2>/tmp/said && grep 'server is gone' /tmp/said || { cat /tmp/said; return 1; }
    dd if="$device" of=/dev/null bs=4k count=1 iflag=direct 2>/dev/null &
    sleep 0.5
    ! pumice detach --force "$device" 2>/tmp/said && grep 'detached, but' /tmp/said || { cat /tmp/said; return 1; }
    ! wait $! && [ ! -e /run/pumice-attach ] && [ ! -e "/sys/block/${device#/dev/}/pid" ]
}
all_but_one() { ! pumice detach --configured && [ "$(ls /run/pumice-attach | wc -l)" = 1 ]; }
configured() {  # drives of the configuration, all together
    local entry
    pumice create /srv/one --size 64M >/dev/null && pumice create /srv/two --size 64M >/dev/null || return
    entry=$'[[drive]]\npath = "/srv/%s"\nattach = true\nby = "%s"\n'
    printf "$entry" two "$way" one "$way" >/tmp/pumice.toml
    pumice attach --configured --config /tmp/pumice.toml >/tmp/nodes || return
    [ "$(wc -l </tmp/nodes)" = 2 ] && [ "$(number /srv/two)" -lt "$(number /srv/one)" ] || return
    device=$(head -n 1 /tmp/nodes)
    mkfs.ext4 -q "$device" && mount "$device" /mnt || return
    # Programs that look at all devices have the other one open for a moment.
    until_true all_but_one || return
    { sleep 1; umount /mnt; } &
    pumice detach --configured --wait 20 && [ ! -e /run/pumice-attach ] && rm /srv/one /srv/two
}
of_this_bridge() {      # what a unit stops is what it has attached
    attach || return
    ! pumice detach --bridge=1 "$device" && pumice detach --bridge= "$device" && [ -b "$device" ] || return
    pumice detach "--bridge=$(recorded bridge_pid)" "$device"
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
    fi
}
