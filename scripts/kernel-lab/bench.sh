#!/bin/bash
# In the guest, behind stores.sh: the same fio runs on each of CONTESTANTS, on one disk, in ROUNDS turns that each begin with another one. A line a
# figure goes to /share/figures: contestant, column, value. SIZE: MiB of data; LIMIT: seconds of a random run; DISK_GIB: size of a
# disk in the guest's memory, which takes the place of ${DISK}a.
set -uo pipefail
export PUMICE_RUNTIME_DIR=/run/pumice PUMICE_USER=0 PUMICE_CONFIG=/nonexistent/pumice.toml
disk=${DISK}a depth=16 percent=60
pumice() { /share/pumice "$@"; }
figure() { echo "$contestant $1 $2" >>/share/figures; }

# job KIND BLOCK ARGUMENT...: one fio run, flushed at the end
job() {
    sync
    echo 3 >/proc/sys/vm/drop_caches
    fio --name=j --filename="$target" --rw="$1" --bs="$2" --iodepth=$depth --size="${SIZE}M" --ioengine=libaio \
        --direct="$direct" --fallocate=none --buffer_compress_percentage=$percent --buffer_compress_chunk=4096 \
        --refill_buffers --end_fsync=1 --output-format=terse,normal "${@:3}"
}
# run COLUMN KIND BLOCK [ARGUMENT...]: a run whose figure is MiB/s for large blocks, requests/s for small ones
run() {
    local column=$1 out=/share/fio.$contestant.$1.$round before after at
    shift
    before=$(cat /sys/block/${disk#/dev/}/stat)
    job "$@" >"$out" 2>&1 || { echo "$contestant: fio failed: $(tail -n 3 "$out")"; return 1; }
    after=$(cat /sys/block/${disk#/dev/}/stat)
    # Terse fields, version 3: KiB, KiB/s, requests/s of reads from field 6, of writes from field 47.
    case $1 in *read) at=6 ;; *) at=47 ;; esac
    figure "$column" "$(awk -F ';' -v at=$at -v block="$2" '$1 == 3 {
        print (block == "4k" ? $(at + 2) : $(at + 1) / 1024); exit }' "$out")"
    # Bytes of the disk, read and written, for a byte of the run.
    figure "$column-disk" "$(awk -F ';' -v at=$at -v before="$before" -v after="$after" '$1 == 3 {
        split(before, b, " "); split(after, a, " ")
        printf "%.2f\n", ((a[3] - b[3]) + (a[7] - b[7])) / 2 / $at; exit }' "$out")"
}
# small COLUMN KIND: a run of small requests, after two seconds of the same that are not measured
small() { job "$2" 4k --time_based --runtime=2 >/dev/null && run "$1" "$2" 4k --time_based --runtime="$LIMIT"; }
# The data's ratio is that after the first fill, and that after the overwrites.
turn() {
    run fill write 128k && figure ratio "$(ratio)" && run write write 128k && run read read 128k &&
        small randwrite randwrite && figure ratio-after "$(ratio)" && small randread randread
}

begin_raw() { target=$disk; ratio() { echo 1.00; }; }
end_raw() { :; }

begin_pumice() {
    pumice create $disk --capacity "${SIZE}M" --force >/dev/null && target=$(pumice attach $disk --by "$1") || return
    ratio() {
        pumice status $disk --json |
            sed -n 's/^ *"\(logical_used_bytes\|physical_used_bytes\)": \([0-9]*\),$/\1 \2/p' | sort | cut -d ' ' -f 2 |
            head -n 2 | xargs | divided
    }
}
begin_pumice-ublk() { begin_pumice ublk; }
begin_pumice-nbd() { begin_pumice nbd; }
end_pumice-ublk() { pumice detach $disk >/dev/null; }
end_pumice-nbd() { pumice detach $disk >/dev/null; }

# Buffered: what comes by direct I/O is not compressed.
begin_btrfs() {
    mkfs.btrfs -qf -d single -m single $disk && mount -o compress=zstd:1,noatime $disk /mnt || return
    target=/mnt/file direct=0
    ratio() { sync; compsize -b /mnt/file | awk '$1 == "TOTAL" { print $5, $3 }' | divided; }
}
end_btrfs() { umount /mnt; }

begin_vdo() {
    make_vdo $disk "$SIZE" || return
    ratio() { ratio_vdo; }
}
begin_zvol() {
    make_zvol $disk "$SIZE" || return
    ratio() { ratio_zvol; }
}

if [ -n "${DISK_GIB:-}" ]; then
    modprobe null_blk nr_devices=1 "gb=$DISK_GIB" memory_backed=1 discard=1 "submit_queues=$(nproc)" || exit
    disk=/dev/nullb0
fi
uname -r >/share/kernel
# Modules that are missing leave a contestant out.
present=()
for contestant in $CONTESTANTS; do
    case $contestant in
        vdo | zvol) "has_$contestant" || continue ;;
        pumice-ublk) modprobe ublk_drv ;;
        pumice-nbd) modprobe nbd ;;
        btrfs) modprobe -q btrfs ;;
    esac
    present+=("$contestant")
done
# Buffered writes reach the disk early, so that no run ends in memory.
echo $((64 << 20)) >/proc/sys/vm/dirty_bytes
echo $((32 << 20)) >/proc/sys/vm/dirty_background_bytes
failed=0
for ((round = 0; round < ROUNDS; round++)); do
    for ((i = 0; i < ${#present[@]}; i++)); do
        contestant=${present[(round + i) % ${#present[@]}]} direct=1
        blkdiscard -qf $disk
        "begin_$contestant" && [ -n "$target" ] && turn || { echo "FAILED: $contestant, round $((round + 1))"; failed=1; }
        "end_$contestant" || failed=1
    done
done
exit $failed
