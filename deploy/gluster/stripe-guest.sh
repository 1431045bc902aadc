#!/bin/bash
# shellcheck disable=SC2086,SC1091
# Process 1 of the guest of stripe.sh: makes what programs expect, measures, powers off.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
mount -t proc proc /proc
mount -t sysfs sys /sys
mountpoint -q /dev || mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm
ln -sf /proc/self/fd /dev/fd
mount -t devpts pts /dev/pts
share=$(sed 's/.* lab_share=\([^ ]*\).*/\1/' /proc/cmdline)
. "$share/environment"
for module in ublk_drv dm_mod xfs ext4 fuse loop; do modprobe -d "$modules" "$module"; done
for directory in /dev/shm /run /root /srv /var/log /var/lib/glusterd /etc/lvm; do mount -t tmpfs tmpfs "$directory"; done
# The option as new and as old versions of mount pass it on.
mount -t hostfs -o "hostfs=$share" none /mnt 2>/dev/null || mount -t hostfs -o "$share" none /mnt
mount -t tmpfs tmpfs /tmp
mkdir -p /var/log/glusterfs /run/gluster /run/lock
ip link set lo up
export PUMICE=/mnt/pumice TMPDIR=/srv

# rate ARGUMENTS...: MiB/s of fio in LAB/node1/fs
rate() {
    fio --name=file --directory="$LAB/node1/fs" --size=160M --ioengine=libaio --iodepth=32 --direct=1 --bs=128k --refill_buffers \
        --buffer_compress_percentage=60 --buffer_compress_chunk=4096 --output-format=json "$@" 2>>/srv/fio.log | sed -n '/^{/,$p' |
        jq -e '.jobs[0] | (.read.bw_bytes + .write.bw_bytes) / 1048576 | select(. > 0)'
}
middle() { sort -g | awk '{ v[NR] = $1 } END { print (v[int((NR + 1) / 2)] + v[int(NR / 2) + 1]) / 2 }'; }
used_of_drives() { for n in 1 2; do mib "$(drive_status "$LAB/node1/drive$n" .physical_used_bytes)"; done | paste -sd' '; }

# Two file systems, of one drive and of two, side by side; rounds take turns.
measure() (
    set -euo pipefail
    cd /mnt/gluster
    for part in lib process drive; do . "./$part.sh"; done
    SIZE=384M STRIPE=$stripe
    default_settings
    use() { LAB=/srv/striped$1 DRIVES=$1; }
    for drives in 1 2; do
        use $drives
        mkdir -p "$LAB"
        start_brick 1
        echo "$drives drive(s): $(volume_of 1) of $(devices_of 1 | paste -sd' '), $(df -h --output=size "$LAB/node1/fs" | tail -n 1) in $FS"
    done
    for ((round = 1; round <= rounds; round++)); do
        for job in write read; do
            for drives in 1 2; do use $drives; rate --rw=$job --end_fsync=1 >>/srv/$job$drives; done
        done
    done
    for job in write read; do
        awk -v one="$(middle </srv/${job}1)" -v two="$(middle </srv/${job}2)" -v job=$job -v stripe="$stripe" \
            'BEGIN { printf "sequential %s: one drive %.0f MiB/s, two striped by %s %.0f MiB/s, ratio %.2f\n", job, one, stripe, two, two / one }'
    done
    use 2
    before=$(used_of_drives)
    rm "$LAB/node1/fs/file.0.0"
    sync -f "$LAB/node1/fs"
    deleted=$(used_of_drives)
    fstrim "$LAB/node1/fs"
    after=$(used_of_drives)
    echo "in the two drives: $before MiB, after rm $deleted, after fstrim $after"
    # Both drives had a part, and got all of it back.
    awk -v deleted="$deleted" -v after="$after" 'BEGIN { split(deleted, d); split(after, a); exit !(d[1] > 20 && d[2] > 20 && a[1] < 5 && a[2] < 5) }' ||
        fail "TRIM does not come through the stripes"
    for drives in 1 2; do
        use $drives
        stop_brick 1
        rm -rf --one-file-system "$LAB"
    done
)
{
    code=0
    # Not in a condition, where `set -e` has no effect.
    if [ "$rounds" != 0 ]; then measure; code=$?; fi
    if [ "$code" = 0 ] && [ -n "$steps" ]; then DRIVES=2 SIZE=384M bash /mnt/gluster/test.sh $steps; code=$?; fi
    echo $code >/mnt/code
} </dev/null >/mnt/output 2>&1
sync
echo o >/proc/sysrq-trigger
sleep 10
