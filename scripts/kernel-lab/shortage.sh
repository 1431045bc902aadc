#!/bin/bash
# In the guest, behind checks.sh: memory that is short above an attached drive, by each of WAYS. More is written than the guest has
# memory; the drive is on ${DISK}a, so that nothing of it is in memory. No request may take longer than a minute.
watched() {     # watched PID...: waits for writers of a file system, for ten minutes at most, or WRITERS_SECONDS
    local pid end=$((SECONDS + ${WRITERS_SECONDS:-600})) code=0
    for pid in "$@"; do
        while kill -0 "$pid" 2>/dev/null; do
            [ "$SECONDS" -lt "$end" ] || { echo w >/proc/sysrq-trigger; dmesg | tail -n 80; return 1; }
            sleep 0.2
        done
        wait "$pid" || code=$?
    done
    return "$code"
}
in_group() { echo "$BASHPID" >/tmp/group/cgroup.procs && "$@"; }
as_is() { "$@"; }
limit() {       # limit MIB: of the group, by version 1 or 2
    local file=memory.max
    [ -e /tmp/group/$file ] || file=memory.limit_in_bytes
    echo $(($1 << 20)) >/tmp/group/$file
}
make_group() {  # version 1 is harder: who needs memory in such a group waits for its writes
    mkdir -p /tmp/groups
    mountpoint -q /tmp/groups || mount -t cgroup -o memory none /tmp/groups 2>/dev/null || mount -t cgroup2 none /tmp/groups || return
    [ ! -e /tmp/groups/cgroup.subtree_control ] || echo +memory >/tmp/groups/cgroup.subtree_control || return
    mkdir -p /tmp/groups/short && ln -sfn /tmp/groups/short /tmp/group
}
beat() {        # small writes that are synced, each second; the longest, in seconds
    local since longest=0
    while [ -e /tmp/beats ]; do
        since=$SECONDS
        dd if=/dev/zero of=/mnt/beat bs=4k count=1 conv=fsync,notrunc 2>/dev/null || { echo failed >/tmp/longest; return; }
        ((SECONDS - since <= longest)) || longest=$((SECONDS - since))
        echo "$longest" >/tmp/longest
        sleep 1
    done
}
inodes() {      # whose removal from memory writes to the log of the file system
    local round=0 i
    while [ -e /tmp/beats ]; do
        rm -rf /mnt/inodes$((round % 4)) && mkdir /mnt/inodes$((round % 4)) || return
        for ((i = 0; i < 500; i++)); do echo "$i" >"/mnt/inodes$((round % 4))/$i" || return; done
        round=$((round + 1))
    done
}
writers() {     # writers AS_IS|IN_GROUP MIB KILLS: a file and a mapping, both read back, each larger than memory
    local pids=() verify=(--verify=crc32c --verify_fatal=1 --verify_state_save=0 --buffer_compress_percentage=50) i code
    touch /tmp/beats
    beat &
    beat=$!
    "$1" inodes &
    inodes=$!
    "$1" fio --name=file --directory=/mnt --rw=write --bs=256k --size="$2m" --ioengine=psync "${verify[@]}" &
    pids+=($!)
    "$1" fio --name=mapping --directory=/mnt --rw=write --bs=64k --size="$2m" --ioengine=mmap "${verify[@]}" &
    pids+=($!)
    for ((i = 0; i < $3; i++)); do sleep 3; kill -9 "$(recorded server_pid)"; done
    watched "${pids[@]}"
    code=$?
    rm /tmp/beats
    [ "$code" = 0 ] && watched "$beat" "$inodes" || return
    rm -rf /mnt/inodes* /mnt/file* /mnt/mapping*
    echo "longest: $(cat /tmp/longest) s" && [ "$(cat /tmp/longest)" -le 60 ]
}
# attach_short [ARGUMENT...]: with a server that takes little itself
attach_short() { attach "$@" -- --map-cache 16M --read-cache 0 && mount "$device" /mnt; }
# The kernel's log is too short for several of its reports.
group_kills() { sed -n 's/^oom_kill //p' /tmp/group/memory.events; }
killed_for_memory() {   # a server that is killed for its memory is started again
    local server kills
    server=$(recorded server_pid)
    kills=$(group_kills)
    dd if=/dev/urandom of=/mnt/kept bs=1M count=8 conv=fsync 2>/dev/null && sha256sum /mnt/kept >/tmp/kept || return
    echo 1000 >"/proc/$server/oom_score_adj"
    echo 3 >/proc/sys/vm/drop_caches
    limit 20 || return
    until_true ended "$server" || return
    limit 512
    echo "killed in the group: $kills, then $(group_kills)"
    [ "$(group_kills)" -gt "$kills" ] || return
    dd if=/dev/urandom of=/mnt/more bs=1M count=4 conv=fsync 2>/dev/null && echo 3 >/proc/sys/vm/drop_caches && sha256sum -c /tmp/kept &&
        rm /mnt/kept /mnt/more
}
ended() { ! kill -0 "$1" 2>/dev/null; }
quiet() {       # no task was stuck, and no request failed
    ! dmesg | grep -E "blocked for more than|I/O error|EXT4-fs error|lockup"
}

mkfs.ext4 -qF ${DISK}a && mount ${DISK}a /srv || exit
for way in $WAYS; do
    device=
    rm -f /srv/drive*
    pumice create /srv/drive --size 1800M --capacity 2G >/dev/null
    check "attach --mkfs ext4" attach_short --mkfs ext4
    mountpoint -q /mnt || continue
    check "bridge and server are prepared" is_prepared
    check "more is written than there is memory, kills of the server" writers as_is "${MIB:-350}" 2
    umount /mnt
    check "ext4 is sound" e2fsck -fn "$device"
    check "detach" gone
    make_group || { echo "skipped: no control groups for memory"; continue; }
    limit "${GROUP_MIB:-256}"
    echo "$(stat -f -c %T /tmp/groups): ${GROUP_MIB:-256} MiB"
    # What is started there stays there.
    echo $$ >/tmp/group/cgroup.procs
    check "attach in a control group" attach_short
    echo $$ >/tmp/groups/cgroup.procs
    mountpoint -q /mnt || continue
    check "the same in a control group, with server and bridge" writers in_group "${MIB:-350}" 2
    # Of version 1, a limit is refused if it is below what is in use.
    [ ! -e /tmp/group/memory.max ] || check "a server that is killed for its memory" killed_for_memory
    umount /mnt
    check "ext4 is sound" e2fsck -fn "$device"
    check "detach" gone
    check "the drive is sound" pumice check --deep /srv/drive
    check "nothing was stuck, and nothing failed" quiet
done
summary
