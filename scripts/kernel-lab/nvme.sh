#!/bin/bash
# In the guest, behind checks.sh: `pumice bench` on namespaces of NVMe/TCP, which this kernel serves to itself (nvmet).
way=nvme-tcp
nqn=nqn.2026-11.org.example:lab
address=nvme-tcp://127.0.0.1/$nqn
config=/sys/kernel/config/nvmet
subsystem=$config/subsystems/$nqn

namespace() {   # namespace NUMBER: a namespace on a loop device of 128 MiB
    truncate -s 128M "/srv/space$1" && mkdir "$subsystem/namespaces/$1" || return
    losetup --find --show "/srv/space$1" >"$subsystem/namespaces/$1/device_path" && echo 1 >"$subsystem/namespaces/$1/enable"
}
serve() {
    ip link set lo up && modprobe -a nvmet nvmet-tcp || return
    mountpoint -q /sys/kernel/config || mount -t configfs none /sys/kernel/config || return
    mkdir "$subsystem" "$config/ports/1" && echo 1 >"$subsystem/attr_allow_any_host" && namespace 1 || return
    echo tcp >"$config/ports/1/addr_trtype" && echo ipv4 >"$config/ports/1/addr_adrfam" &&
        echo 127.0.0.1 >"$config/ports/1/addr_traddr" && echo 4420 >"$config/ports/1/addr_trsvcid" &&
        ln -s "$subsystem" "$config/ports/1/subsystems/"
}
connected() { ls /dev/nvme*n1; }
none() { [ -z "$(ls /sys/class/nvme 2>/dev/null)" ] && ! ls /dev/nvme*n* 2>/dev/null; }
bench() { pumice bench quick --minutes 0 --size 64M --dir /srv "$@" 2>/tmp/said; }
fails() {       # fails TEXT ARGUMENT...: exit code 1 with the text in one line, and nothing is connected
    local text=$1 code=0
    shift
    bench "$@" || code=$?
    cat /tmp/said
    [ "$code" = 1 ] && [ "$(wc -l </tmp/said)" = 1 ] && grep -qF "$text" /tmp/said && none
}
measures() {    # measures TARGET ARGUMENT...: and leaves nothing connected
    bench --target "$1" --json /tmp/run.json "${@:2}" || { cat /tmp/said; return 1; }
    cat /tmp/said
    grep '"bytes": 67108864' /tmp/run.json && none
}
of_the_second() { measures "$address?nsid=2" && ! cmp -s -n 1M /srv/space2 /dev/zero; }
# A run of two minutes in the background: `run` is its process, the program itself and not a shell.
begin() {       # begin TARGET: until fio is at work
    /share/pumice bench quick --minutes 2 --size 64M --dir /srv --target "$1" --destroy >/dev/null 2>/tmp/begun &
    run=$!
    # It asks fio for its version before.
    until_true connected && until_true pgrep -x fio
}
end() {         # end SIGNAL: as after Ctrl-C
    local code=0
    kill "-$1" "$run" || return
    wait "$run" || code=$?
    run=
    cat /tmp/begun
    [ "$code" = 130 ]
}
ended() { ! kill -0 "$1" 2>/dev/null; }
cleanly() {     # cleanly COMMAND...: if it fails, its run ends, and what is connected goes away, before the next check
    local run=
    "$@" && return
    cat /tmp/begun
    if [ -n "$run" ]; then
        kill -TERM "$run"
        until_true ended "$run" || kill -KILL "$run"
        wait "$run"
    fi
    ! mountpoint -q /mnt || umount /mnt
    none || nvme disconnect -n "$nqn"
    return 1
}
interrupted() { begin "$address" && end "$1" && none; }         # interrupted SIGNAL
# Numbers in names of devices are not those of namespaces: the kernel gives them as it finds these. One with `c` is a hidden path.
mount_second() {
    local device
    for device in /sys/block/nvme*; do
        case ${device##*/} in *c*) continue ;; esac
        [ "$(cat "$device/nsid")" != 2 ] || { mount "/dev/${device##*/}" /mnt && return; }
    done
    return 1
}
used_meanwhile() {      # the other namespace is mounted during the run; the one that is measured is the run's alone
    mkfs.ext4 -qF /srv/space2 && begin "$address?nsid=1" || return
    until_true mount_second && touch /mnt/file || return
    ! bench --target "$address?nsid=1" --destroy && cat /tmp/said && grep 'in use' /tmp/said && ! ended "$run" || return
    end INT && grep 'mounted at /mnt' /tmp/begun && grep 'nvme disconnect --device=nvme[0-9]' /tmp/begun || return
    [ -e /mnt/file ] && sync -f /mnt && umount /mnt && connected || return
    $(grep -o 'nvme disconnect --device=nvme[0-9]*' /tmp/begun) && until_true none
}
stays() {       # what was connected before
    nvme connect -t tcp -a 127.0.0.1 -s 4420 -n "$nqn" && until_true connected || return
    local device
    device=$(connected)
    bench --target "$address" --destroy && [ -b "$device" ] || { cat /tmp/said; return 1; }
    mkfs.ext4 -qF "$device" && mount "$device" /mnt || return
    ! bench --target "$address" --destroy && grep 'mounted at /mnt' /tmp/said && umount /mnt && [ -b "$device" ] || return
    nvme disconnect -n "$nqn" && until_true none
}
reload() {      # reload YN: what has just been disconnected may hold the modules for a moment
    until_true modprobe -r nvme-tcp nvme-fabrics nvme-core && modprobe nvme-core "multipath=$1"
}

check "a subsystem is served" serve
check "bench connects, measures, disconnects" measures "far=$address"
check "data is refused, and nothing stays connected" fails 'holds data' --target "$address"
check "--destroy" measures "$address" --destroy
check "Ctrl-C" cleanly interrupted INT
check "SIGTERM" cleanly interrupted TERM
check "what was connected stays so, and what is mounted is refused" cleanly stays
check "nothing listens" fails 'refuses connections' --target "nvme-tcp://127.0.0.1:4421/$nqn"
check "no such NQN" fails "has no subsystem $nqn.x for this host; it shows $nqn" --target "$address.x"
check "no such namespace" fails 'has no namespace 2: it has 1' --target "$address?nsid=2"
check "a second namespace" namespace 2
check "one of two is to be named" fails 'choose one with ?nsid=N' --target "$address"
check "one of two" of_the_second
check "what others begin to use stays connected, and is named" cleanly used_meanwhile
if [ -e /sys/module/nvme_core/holders/nvmet ]; then
    echo "skipped: NVMe/TCP without multipath: the target holds the module nvme_core, as Debian's kernel has it"
elif grep -q Y /sys/module/nvme_core/parameters/multipath 2>/dev/null; then
    check "without multipath" reload N
    check "without multipath, one of two" measures "$address?nsid=1" --destroy
    check "without multipath, what others begin to use stays connected" cleanly used_meanwhile
fi
summary
