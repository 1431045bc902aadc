#!/bin/bash
# In the guest, behind stores.sh: `pumice bench against`, its report to /share/against.json and .html. TARGETS: those of `pumice
# bench`, and vdo and zvol, which are made here, each on a loop device on a file beside the files of the others, as btrfs is.
# MINUTES: for the run; SIZE: MiB of a store; ARGUMENTS: more for `pumice bench`; DISK_GIB: size of a disk in the guest's memory,
# which takes the place of ${DISK}a.
set -uo pipefail
export PUMICE_RUNTIME_DIR=/run/pumice PUMICE_USER=0 PUMICE_CONFIG=/nonexistent/pumice.toml
disk=${DISK}a

# Reads are to be reads of the disk: the smallest ARC would hold half of such a store.
declare -A properties=([zvol]=primarycache=metadata)

# Kernel threads now, but for workers that serve all.
threads() {
    local stat
    for stat in /proc/[0-9]*/stat; do awk '$4 == 2 && $2 !~ /^\(kworker/ { print $1 }' "$stat" 2>/dev/null; done | sort
}
# made KIND: a store of this kind, and it in the arguments of the run. Its kernel threads to `pids`
made() {
    local kind=$1 before file=/mnt/$1.img device
    before=$(threads)
    "has_$kind" || return 0
    # The index of VDO alone takes 2.5 GB.
    truncate -s $((SIZE * 2 + 4096))M "$file" && device=$(losetup --find --show --direct-io=on "$file") &&
        "make_$kind" "$device" "$SIZE" ${properties[$kind]:+"${properties[$kind]}"} || { echo "FAILED: $kind cannot be made"; failed=1; return 0; }
    arguments+=(--target "$kind=$target")
    pids[$kind]=$(comm -13 <(echo "$before") <(threads))
    there+=("$kind")
}

if [ -n "${DISK_GIB:-}" ]; then
    modprobe null_blk nr_devices=1 "gb=$DISK_GIB" memory_backed=1 discard=1 "submit_queues=$(nproc)" || exit
    disk=/dev/nullb0
fi
uname -r >/share/kernel
modprobe -qa btrfs dm_mod ublk_drv
# With few inodes, so that making it leaves no work for later. What is removed goes back to who keeps the disk.
mkfs.ext4 -qF -T largefile4 -E lazy_itable_init=0,lazy_journal_init=0 $disk && mount -o discard $disk /mnt || exit
failed=0 arguments=() there=()
declare -A pids=()
for kind in $TARGETS; do
    case $kind in
        vdo | zvol) made "$kind" ;;
        *) arguments+=(--target "$kind") ;;
    esac
done
# A thread that has ended meanwhile would fail all of the run.
for kind in "${there[@]}"; do
    alive=$(for pid in ${pids[$kind]}; do [ ! -d "/proc/$pid" ] || echo "$pid"; done | paste -sd ,)
    [ -z "$alive" ] || arguments+=(--pids "$kind=$alive")
done
# What is written into these devices before is discarded by the run.
/share/pumice bench against --minutes "$MINUTES" --size "${SIZE}M" --dir /mnt --destroy --json /share/against.json \
    --html /share/against.html "${arguments[@]}" "${ARGUMENTS[@]}" || failed=$?
for kind in "${there[@]}"; do echo "$kind: $("ratio_$kind") bytes in one at the end of the run"; done
for kind in "${there[@]}"; do "end_$kind" || failed=1; done
exit $failed
