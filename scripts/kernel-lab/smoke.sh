#!/bin/bash
# In the guest, behind checks.sh: the life of an attached drive, by each of WAYS, in a few seconds.

for way in $WAYS; do
    device=
    rm -f /srv/drive*
    pumice create /srv/drive --size 200M --capacity 256M >/dev/null
    check "attach --mkfs ext4" attach --mkfs ext4
    [ -b "$device" ] && mount "$device" /mnt || { failures=$((failures + 1)); continue; }
    [ "$way" != ublk ] || check "a queue for each processor" queues
    check "bridge and server are prepared for a shortage of memory" is_prepared
    check "fio verifies direct I/O, a kill of the server" verify 1 8 1
    check "the server was missed and came back" is_back
    check "a kill of the bridge" take_over
    rm -f /mnt/v.*
    check "fstrim is seen by the drive" trims
    check "detach is refused while mounted" refused
    umount /mnt
    check "ext4 is sound" e2fsck -fn "$device"
    check "detach" gone
    check "the drive is sound" pumice check --deep /srv/drive
done
summary
