#!/bin/bash
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

# rate JOB ARGUMENTS...: MiB/s of fio in /srv/LAB/node1/fs
rate() {
    fio --name=file --directory="$LAB/node1/fs" --size=160M --ioengine=libaio --iodepth=32 --direct=1 --bs=128k --refill_buffers \
        --buffer_compress_percentage=60 --buffer_compress_chunk=4096 --output-format=json "$@" 2>/dev/null | sed -n '/^{/,$p' |
        jq '.jobs[0] | (.read.bw_bytes + .write.bw_bytes) / 1048576'
}
middle() { sort -g | awk '{ v[NR] = $1 } END { print (v[int((NR + 1) / 2)] + v[int(NR / 2) + 1]) / 2 }'; }

# Two file systems, of one drive and of two, side by side; rounds take turns.
measure() {
    local drives round
    cd /mnt/gluster || return
    . ./lib.sh
    . ./drive.sh
    SIZE=384M STRIPE=$stripe
    default_settings
    for drives in 1 2; do
        LAB=/srv/striped$drives DRIVES=$drives SUBNET=127.1.$drives
        mkdir -p "$LAB"
        start_brick 1 || { cat "$LAB/log"; return 1; }
        echo "$drives drive(s): $(cat "$LAB/node1/volume") of $(cat "$LAB"/node1/device* | paste -sd' '), $(df -h --output=size "$LAB/node1/fs" | tail -n 1) in XFS"
    done
    for ((round = 1; round <= rounds; round++)); do
        for drives in 1 2; do LAB=/srv/striped$drives rate --rw=write --end_fsync=1 >>/srv/write$drives; done
        for drives in 1 2; do LAB=/srv/striped$drives rate --rw=read >>/srv/read$drives; done
    done
    for job in write read; do
        awk -v one="$(middle </srv/${job}1)" -v two="$(middle </srv/${job}2)" -v job=$job -v stripe="$stripe" \
            'BEGIN { printf "sequential %s: one drive %.0f MiB/s, two striped by %s %.0f MiB/s, ratio %.2f\n", job, one, stripe, two, two / one }'
    done
    LAB=/srv/striped2 DRIVES=2
    rm -f "$LAB/node1/fs/file.0.0"
    echo "in the two drives before fstrim: $(for n in 1 2; do mib "$(drive_status "$LAB/node1/drive$n" .physical_used_bytes)"; done | paste -sd" ") MiB"
    fstrim -v "$LAB/node1/fs"
    echo "after: $(for n in 1 2; do mib "$(drive_status "$LAB/node1/drive$n" .physical_used_bytes)"; done | paste -sd" ") MiB"
    for drives in 1 2; do
        LAB=/srv/striped$drives DRIVES=$drives SUBNET=127.1.$drives
        stop_brick 1
        rm -rf "$LAB"
    done
}
{
    measure && { [ -z "$steps" ] || DRIVES=2 SIZE=384M bash /mnt/gluster/test.sh $steps; }
    echo $? >"/mnt/code"
} </dev/null >/mnt/output 2>&1
sync
echo o >/proc/sysrq-trigger
sleep 10
