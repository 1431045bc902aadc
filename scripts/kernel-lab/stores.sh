#!/bin/bash
# In the guest, before bench.sh and against.sh: block devices that compress and are not Pumice's. `has_X` loads what X needs, or says
# why it is left out; `make_X DEVICE MIB [PROPERTY]` makes it on a device and sets `target`.
export UDS_LOG_LEVEL=ERROR
divided() { awk '{ if ($2 > 0) printf "%.2f\n", $1 / $2 }'; }

has_vdo() { modprobe dm-vdo 2>/dev/null || { echo "skipped: vdo: its module is not built"; return 1; }; }
make_vdo() {
    local blocks
    blocks=$(($(blockdev --getsize64 "$1") / 4096))
    vdoformat --force --uds-memory-size=0.25 --slab-bits=17 --logical-size="$2M" "$1" >/dev/null &&
        dmsetup create vdo --table "0 $(($2 << 11)) vdo V4 $1 $blocks 4096 32768 16380 deduplication off compression on \
            maxDiscard 1024 ack 1 bio 2 cpu 1" && dmsetup mknodes || return
    target=/dev/mapper/vdo
}
ratio_vdo() {
    vdostats --verbose | awk -F : '/ data blocks used/ { p = $2 } / logical blocks used/ { l = $2 } END { print l, p }' | divided
}
end_vdo() { dmsetup remove vdo; }

# Its cache is as small as those of others: ARC_MIB [128], 64 at least. Its threads stay, so that their times are known.
has_zvol() {
    modprobe spl spl_taskq_thread_dynamic=0 2>/dev/null &&
        modprobe zfs zfs_arc_min=$((32 << 20)) zfs_arc_max=$((${ARC_MIB:-128} << 20)) 2>/dev/null ||
        { echo "skipped: zvol: ZFS is not built (LAB_ZFS=yes)"; return 1; }
}
make_zvol() {
    zpool create -f -o ashift=12 -o cachefile=none -O mountpoint=none pool "$1" &&
        zfs create -V "$2M" -o compression=zstd-1 ${3:+-o "$3"} pool/volume || return
    # Its node comes a moment later.
    for ((tries = 0; tries < 50; tries++)); do [ ! -b /dev/zd0 ] || break; sleep 0.1; done
    target=/dev/zd0
    [ -b "$target" ]
}
ratio_zvol() { zpool sync; zfs get -Hp -o value logicalreferenced,referenced pool/volume | xargs | divided; }
end_zvol() { zpool destroy pool; }
