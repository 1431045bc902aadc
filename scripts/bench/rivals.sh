#!/usr/bin/env bash
# scripts/bench.sh rivals CORPUS [ROUNDS] [CONTESTANT...]
#
# Pumice and its rivals over NBD: the same client, the same data, the same disk, in turns; medians of the rounds, as Markdown.
# Needs fio, nbdcopy, nbdinfo, nbdkit, jq, python3 and root (loop devices, mounting, dropping the page cache); a contestant
# whose programs are missing is skipped with a line that names the package. 2 GiB of free disk, 4 with Ceph, and 1 GiB of
# free memory. BENCH_MIB is how many MiB are taken of each kind of data (24).
#
# One turn: a new store is filled by requests of 128 KiB, read back, read in 4 KiB at random, read again and again in a hot
# tenth of it (for BENCH_WARM_SECONDS, 10, before it is measured), overwritten in 4 KiB at random, and written with data that
# hardly compresses, all at queue depth 16. Before the first two readings the page cache (Ceph's own, too) is dropped. Flushes
# are part of the time. CPU of the client is that of fio or nbdcopy; CPU of the server is that of its processes and of all
# kernel threads, which do the work of btrfs, loop and write-back.
set -Eeuo pipefail
here=$(realpath "$(dirname "$0")")
usage() {
    echo "bench rivals: $1; usage: scripts/bench.sh rivals CORPUS [ROUNDS] [CONTESTANT...]" >&2
    exit 2
}
[ $# -ge 1 ] || usage "no CORPUS given"
corpus=$(realpath "$1")
rounds=${2:-3}
contestants=("${@:3}")
[ -d "$corpus" ] || usage "$corpus is no folder; make it with scripts/corpus.sh"
[[ $rounds =~ ^[1-9][0-9]*$ ]] || usage "ROUNDS is $rounds"
all=(auto auto-settled lz4 none direct nbdkit-file nbdkit-memory btrfs-zstd btrfs-lzo qcow2 zram bluestore-zstd bluestore-lz4)
[ ${#contestants[@]} -gt 0 ] || contestants=("${all[@]}")
for contestant in "${contestants[@]}"; do
    [[ " ${all[*]} " == *" $contestant "* ]] || usage "no contestant $contestant; there are ${all[*]}"
done
[ "$(id -u)" = 0 ] || usage "must be root"
for tool in fio nbdcopy nbdinfo nbdkit jq python3; do
    command -v $tool >/dev/null || usage "$tool is missing; scripts/deps.sh installs it"
done
. "$here/lib.sh"

loop= mounted= zram= ceph= ceph_pids=()
leave() {
    stop_servers
    release || true
    umount "$dir/memory" || true
    pids=("${ceph_pids[@]}")
    finish
}
trap leave EXIT
trap 'echo "bench rivals: line $LINENO failed" >&2' ERR

socket=$dir/socket
uri="nbd+unix:///?socket=$socket"
# Longest time for one reading and one overwriting at random; who is stopped by it has read or written less than the others.
randread_max_seconds=5
randwrite_max_seconds=10
# Reading of the hot set before it is measured.
hot_warm_seconds=${BENCH_WARM_SECONDS:-10}
# In memory: dropping the page cache must not make the client read a disk.
mkdir "$dir/memory"
mount -t tmpfs tmpfs "$dir/memory"
image=$dir/memory/image
for kind in "$corpus"/*; do head -c "${BENCH_MIB:-24}M" "$kind"; done >"$image"
bytes=$(($(stat -c %s "$image") / 131072 * 131072))
truncate -s "$bytes" "$image"
blocks=$((bytes / 4096))

# --- contestants: lacks, start, filled, cold, physical, stop ---

# lacks CONTESTANT: prints why it cannot take part, nothing if it can
lacks() {
    case $1 in
        btrfs-*)
            command -v mkfs.btrfs >/dev/null || echo "no mkfs.btrfs (package btrfs-progs)"
            losetup --find >/dev/null 2>&1 || echo "no loop device can be had"
            grep -qw btrfs /proc/filesystems || modprobe btrfs 2>/dev/null || echo "the kernel has no btrfs"
            ;;
        nbdkit-memory) nbdkit memory --dump-plugin | grep -qx zstd=yes || echo "nbdkit was built without zstd" ;;
        qcow2 | direct) command -v qemu-storage-daemon >/dev/null || echo "no qemu-storage-daemon (package qemu-system-common)" ;;
        zram)
            [ -e /sys/class/zram-control ] || modprobe zram 2>/dev/null || echo "the kernel has no zram"
            [ -r /sys/class/zram-control/hot_add ] || echo "no zram device can be had"
            ;;
        bluestore-*)
            local tool
            for tool in ceph-mon:ceph-mon ceph-osd:ceph-osd ceph:ceph-common rbd:ceph-common; do
                command -v "${tool%:*}" >/dev/null || echo "no ${tool%:*} (package ${tool#*:})"
            done
            [ -n "$(find /usr/lib* -name block-rbd.so -print -quit)" ] ||
                echo "qemu knows no rbd (package qemu-block-extra)"
            ;;
    esac
}
# Exports a file or device without any compression of its own, as every file of a rival is.
nbdkit_file() {
    nbdkit -f -U "$socket" file "$1" &
    pids+=($!)
    await_socket "$socket"
}
qemu_nbd() {
    qemu-storage-daemon "${@:2}" --nbd-server "addr.type=unix,addr.path=$socket" \
        --export "type=nbd,id=export,node-name=$1,name=,writable=on" 2>"$dir/qemu.log" &
    pids+=($!)
    await_socket "$socket"
}
qcow2=(--blockdev "driver=file,node-name=file,filename=$dir/qcow2" --blockdev "driver=qcow2,node-name=qcow2,file=file")
# start CONTESTANT: makes a new, empty store and serves it at $socket
start() {
    case $1 in
        auto-settled | auto | lz4 | none)
            create "$dir/drive" --size $((2 * bytes)) --capacity "$bytes" --codec "${1%-settled}"
            serve "$dir/drive" "$socket"
            ;;
        direct)
            truncate -s "$bytes" "$dir/raw"
            qemu_nbd file --blockdev "driver=file,node-name=file,filename=$dir/raw,cache.direct=on,aio=native"
            ;;
        nbdkit-file)
            truncate -s "$bytes" "$dir/raw"
            nbdkit_file "$dir/raw"
            ;;
        nbdkit-memory)
            nbdkit -f -U "$socket" memory "$bytes" allocator=zstd &
            pids+=($!)
            await_socket "$socket"
            ;;
        btrfs-*)
            truncate -s $((2 * bytes)) "$dir/loop"
            loop=$(losetup --find --show --direct-io=on "$dir/loop")
            mkfs.btrfs -q "$loop" >/dev/null
            mkdir -p "$dir/btrfs"
            local compression=${1#btrfs-}
            mount -t btrfs -o "compress-force=${compression/zstd/zstd:1}" "$loop" "$dir/btrfs"
            mounted=$dir/btrfs
            truncate -s "$bytes" "$mounted/raw"
            nbdkit_file "$mounted/raw"
            ;;
        qcow2)
            qemu-img create -q -f qcow2 -o compression_type=zstd "$dir/qcow2" "$bytes"
            # The driver `compress` takes whole clusters only; `raw` above it lets any client in.
            qemu_nbd any "${qcow2[@]}" --blockdev driver=compress,node-name=compress,file=qcow2 \
                --blockdev driver=raw,node-name=any,file=compress
            ;;
        zram)
            zram=zram$(cat /sys/class/zram-control/hot_add)
            echo lz4 >"/sys/block/$zram/comp_algorithm"
            echo "$bytes" >"/sys/block/$zram/disksize"
            nbdkit_file "/dev/$zram"
            ;;
        bluestore-*)
            local pool=${1#bluestore-}
            rbd create "$pool/image" --size "${bytes}B"
            qemu_nbd rbd --blockdev "driver=rbd,node-name=rbd,pool=$pool,image=image,conf=$ceph/ceph.conf"
            pids+=("${ceph_pids[@]}")
            ;;
    esac
    empty=$(physical "$1")
}
# filled CONTESTANT: what its owner would do after filling
filled() {
    case $1 in
        auto-settled) measure settle "$program" settle "$dir/drive" ;;
        qcow2)
            # A cluster that is there cannot be written compressed (EIO), so compression ends here.
            stop_servers
            rm -f "$socket"
            qemu_nbd qcow2 "${qcow2[@]}"
            ;;
    esac
}
cold() {
    drop_caches
    case $1 in bluestore-*) ceph daemon osd.0 cache drop >/dev/null ;; esac
}
# physical CONTESTANT: bytes that the data takes, with what is needed to find it
physical() {
    case $1 in
        auto-settled | auto | lz4 | none) status "$dir/drive" .physical_used_bytes ;;
        direct | nbdkit-file) du -B1 "$dir/raw" | cut -f1 ;;
        nbdkit-memory) awk '/^VmRSS/ { print $2 * 1024 }' "/proc/${pids[0]}/status" ;;
        btrfs-*)
            sync -f "$mounted/raw"
            cat "/sys/fs/btrfs/$(findmnt -n -o UUID "$mounted")/allocation"/{data,metadata,system}/disk_used |
                awk '{ sum += $1 } END { print sum }'
            ;;
        qcow2)
            sync "$dir/qcow2"
            du -B1 "$dir/qcow2" | cut -f1
            ;;
        zram) awk '{ print $3 }' "/sys/block/$zram/mm_stat" ;;
        bluestore-*) ceph daemon osd.0 perf dump bluestore | jq .bluestore.bluestore_allocated ;;
    esac
}
# reclaimable CONTESTANT: bytes that are dead and that the store takes back by itself
reclaimable() {
    case $1 in
        auto-settled | auto | lz4 | none)
            status "$dir/drive" '.physical_available_bytes - .physical_free_bytes'
            ;;
        *) echo 0 ;;
    esac
}
stop() {
    local pool=${1#bluestore-}
    # Ceph's own processes stay for the next turn.
    [ "$pool" = "$1" ] || pids=("${pids[0]}")
    stop_servers
    [ "$pool" = "$1" ] || rbd rm --no-progress "$pool/image" >/dev/null
    release
    rm -f "$socket" "$dir/drive" "$dir/drive.log" "$dir/raw" "$dir/loop" "$dir/qcow2"
}
release() {
    [ -z "$mounted" ] || umount "$mounted"
    mounted=
    [ -z "$loop" ] || losetup -d "$loop"
    loop=
    [ -z "$zram" ] || echo "${zram#zram}" >/sys/class/zram-control/hot_remove
    zram=
}
# One monitor and one OSD with BlueStore on a file, on loopback, without authentication; a pool for each codec. What is
# compressed together has 64 KiB at least, which keeps more of the ratio than the default for SSDs.
start_ceph() {
    local id osd codec
    id=$(cat /proc/sys/kernel/random/uuid)
    osd=$(cat /proc/sys/kernel/random/uuid)
    ceph=$dir/ceph
    mkdir -p "$ceph/mon" "$ceph/osd"
    cat >"$ceph/ceph.conf" <<CONF
[global]
fsid = $id
mon_host = [v2:127.0.0.1:13300]
public_addr = 127.0.0.1
auth_cluster_required = none
auth_service_required = none
auth_client_required = none
run_dir = $ceph
admin_socket = $ceph/\$name.asok
pid_file = $ceph/\$name.pid
log_file = $ceph/\$name.log
mon_cluster_log_file = $ceph/cluster.log
crash_dir = $ceph
mon_data = $ceph/mon
osd_data = $ceph/osd
osd_objectstore = bluestore
osd_pool_default_size = 1
mon_allow_pool_size_one = true
osd_crush_chooseleaf_type = 0
bluestore_block_size = $((8 << 30))
bluestore_compression_min_blob_size = 65536
[client]
admin_socket =
log_file =
CONF
    export CEPH_CONF=$ceph/ceph.conf
    monmaptool --create --fsid "$id" --addv a '[v2:127.0.0.1:13300]' "$ceph/monmap"
    ceph-mon -i a --mkfs --monmap "$ceph/monmap" || return
    ceph-mon -i a -f >"$ceph/mon.out" 2>&1 &
    ceph_pids+=($!)
    timeout 30 ceph osd new "$osd" 0 || return
    ceph-osd -i 0 --mkfs --osd-uuid "$osd" || return
    ceph-osd -i 0 -f >"$ceph/osd.out" 2>&1 &
    ceph_pids+=($!)
    for codec in zstd lz4; do
        timeout 30 ceph osd pool create "$codec" 8 || return
        timeout 30 ceph osd pool set "$codec" compression_algorithm "$codec" || return
        timeout 30 ceph osd pool set "$codec" compression_mode force || return
        timeout 60 rbd create "$codec/first" --size 4M || return
    done
}

# --- measuring ---

# note FIGURE VALUE
note() { printf '%s\t%s\t%s\t%s\n' "$round" "$contestant" "$1" "$2" >>"$dir/notes"; }
# What the clocks say, in s: real time, the servers' processes, the whole machine's busy time, each kernel thread (one that
# ends must not take its past with it).
clocks() {
    local ticks
    ticks=$(getconf CLK_TCK)
    echo "real $EPOCHREALTIME"
    echo "servers $(processes_cpu "${pids[@]}")"
    awk -v ticks="$ticks" '/^cpu / { print "busy", ($2 + $3 + $4 + $7 + $8) / ticks }' /proc/stat
    # Processes end while they are listed.
    { cat /proc/[0-9]*/stat 2>/dev/null || true; } | awk -v ticks="$ticks" '
        { pid = $1; sub(/.*\) /, "") }
        int($7 / 2097152) % 2 { print "thread-" pid "." $20, ($12 + $13) / ticks } # PF_KTHREAD'
}
# spent BEFORE AFTER: real time, the servers' CPU, all kernel threads', the whole machine's
spent() {
    awk 'NR == FNR { before[$1] = $2; next }
        /^thread/ { kernel += $2 - before[$1]; next }
        { spent[$1] = $2 - before[$1] }
        END { print spent["real"], spent["servers"], kernel + 0, spent["busy"] }' "$1" "$2"
}
# A virtual machine may give memory that is free back to its host, and to have it again costs several times what writing to
# it does: so as much as the data takes is used, and left free, right before. Dropping the page cache does as well.
warm_memory() {
    cp "$image" "$dir/warm"
    rm "$dir/warm"
}
# measure FIGURE COMMAND...: runs a client. Its CPU time, if it is fio, is that of the job, without what starting it takes.
measure() {
    local figure=$1 real client server kernel busy result
    clocks >"$dir/before"
    TIMEFORMAT='%U %S'
    if ! { time "${@:2}" >"$dir/out" 2>"$dir/err"; } 2>"$dir/time"; then
        echo "$contestant: $figure failed: $(cat "$dir/err" "$dir/fio.log" 2>/dev/null | tail -n 1)" >&2
        return
    fi
    clocks >"$dir/after"
    read -r real server kernel busy < <(spent "$dir/before" "$dir/after")
    client=$(awk '{ print $1 + $2 }' "$dir/time")
    note others "$(awk "BEGIN { print $busy - $server - $kernel - $client }")"
    note real "$real"
    note "$figure.server" "$(awk "BEGIN { print $server + $kernel }")"
    if [ "$2" = job ]; then
        result=$(jq '.read, .write | select(.total_ios > 0)' "$dir/out")
        note "$figure.requests" "$(jq .total_ios <<<"$result")"
        note "$figure.bytes" "$(jq .io_bytes <<<"$result")"
        note "$figure.seconds" "$(jq '.runtime / 1e3' <<<"$result")"
        note "$figure.client" "$(jq '(.usr_cpu + .sys_cpu) / 100 * .job_runtime / 1e3' "$dir/out")"
    else
        note "$figure.bytes" "$bytes"
        note "$figure.seconds" "$real"
        note "$figure.client" "$client"
    fi
}
random() {
    measure "$1" job "$socket" --rw="$1" --bs=4k --size="$bytes" --number_ios="$2" --runtime="$3" --norandommap --end_fsync=1 \
        --refill_buffers --buffer_compress_percentage=60 --buffer_compress_chunk=4096
}
# Reads of a hot set: a tenth of the data, some of it far more often than the rest, again and again until caches know it.
hot() {
    local reads=(--rw=randread --bs=4k --size=$((bytes / 10)) --norandommap --random_distribution=zipf:1.1 --time_based)
    job "$socket" "${reads[@]}" --runtime=$hot_warm_seconds >"$dir/out" 2>"$dir/err" || true
    measure hotread job "$socket" "${reads[@]}" --runtime=$randread_max_seconds
}
# Writes of data that compresses next to nothing: fio's own, of which 5 % can be saved.
hard() {
    measure hardwrite job "$socket" --rw=write --bs=128k --size="$bytes" --end_fsync=1 --refill_buffers
}
turn() {
    start "$contestant"
    warm_memory
    measure write copy --no-extents --sparse=0 "$image" "$uri"
    filled "$contestant"
    note filled $(($(physical "$contestant") - empty))
    cold "$contestant"
    measure read copy --no-extents "$uri" null:
    cold "$contestant"
    random randread $((blocks / 2)) $randread_max_seconds
    hot
    random randwrite $((blocks / 4)) $randwrite_max_seconds
    note overwritten $(($(physical "$contestant") - empty))
    note reclaimable "$(reclaimable "$contestant")"
    hard
    stop "$contestant"
}

taking_part=() skipped=()
for contestant in "${contestants[@]}"; do
    why=$(lacks "$contestant" | sed -n 1p)
    case $contestant in bluestore-*)
        [ -n "$why$ceph" ] || start_ceph >"$dir/ceph.log" 2>&1 || why="Ceph does not start: $(tail -n 1 "$dir/ceph.log")"
        ;;
    esac
    if [ -n "$why" ]; then skipped+=("$contestant: skipped: $why"); else taking_part+=("$contestant"); fi
done
started=$(date +%s) load=$(cut -d' ' -f1-3 /proc/loadavg)
for round in $(seq "$rounds"); do
    # Each round begins with another.
    for number in "${!taking_part[@]}"; do
        contestant=${taking_part[(number + round - 1) % ${#taking_part[@]}]}
        [ ! -t 2 ] || echo "round $round: $contestant" >&2
        turn
    done
done

# takes_part PREFIX: any contestant of that name
takes_part() { [[ " ${taking_part[*]} " == *" $1"* ]]; }
{
    uname -sr
    fio --version | tr - ' '
    nbdcopy --version | sed -n 1p
    nbdkit --version
    ! takes_part btrfs || mkfs.btrfs --version | sed 's/.*part of //'
    ! takes_part qcow2 || qemu-storage-daemon --version | sed -n 's/.*version \([^ ]*\).*/qemu \1/p'
    ! takes_part bluestore || ceph --version | cut -d' ' -f1,3
} | paste -sd, | sed 's/,/, /g; s/$/./'
echo "$rounds rounds in $(($(date +%s) - started)) s on $(nproc) processors; load average $load before," \
    "$(cut -d' ' -f1-3 /proc/loadavg) after. $((bytes / 1000000)) MB of data."
for line in "${skipped[@]}"; do echo "$line."; done
echo
python3 "$here/rivals.py" "$dir/notes" "$blocks"
