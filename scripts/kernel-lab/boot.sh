#!/bin/bash
# In the guest, behind checks.sh: a machine with the systemd units, whose /srv/data is a file system on a drive of the
# configuration. Three starts of the guest, by STAGE:
#
#   make   makes the drive, in a file on /dev/ubda
#   boot   is process 1: prepares the machine and becomes systemd, which mounts /srv/data and shuts down by itself
#   look   finds what that has left
#
# Units of the test write down what they see in /share/seen when they start and when they stop.
way=systemd
export PUMICE_RUNTIME_DIR=/run/pumice

make_drive() {
    local device
    mkfs.ext4 -q /dev/ubda && mount /dev/ubda /mnt && pumice create /mnt/drive --size 300M --capacity 400M || return
    device=$(pumice attach /mnt/drive --by ublk --mkfs ext4) && mount "$device" /srv || return
    dd if=/dev/urandom of=/srv/before bs=1M count=16 conv=fsync && sha256sum </srv/before >/share/sum || return
    umount /srv && blkid -s UUID -o value "$device" >/share/uuid && pumice detach "$device" && chown -R 999:999 /mnt && umount /mnt
}
# unit NAME ORDER START STOP: a service of the test
unit() {
    printf '%s\n' "[Unit]" "$2" "[Service]" "Type=oneshot" "RemainAfterExit=yes" "ExecStart=/bin/bash -c '$3'" \
        "ExecStop=/bin/bash -c '$4'" "[Install]" "WantedBy=multi-user.target" >"/etc/systemd/system/$1.service"
}
become_systemd() {
    local folder name
    # A root directory that is read-only; what it changes is lost.
    for folder in etc var; do
        cp -a "/$folder" /tmp/ && mount -t tmpfs tmpfs "/$folder" && cp -a "/tmp/$folder/." "/$folder/"
    done
    mount -t tmpfs tmpfs /usr/local
    mkdir -p /usr/local/bin /etc/pumice /var/lib/pumice /srv/data
    cp /share/pumice /usr/local/bin/
    for name in pumice.service pumice-attach.service; do
        sed 's|/usr/bin/pumice|/usr/local/bin/pumice|' "/share/$name" >"/etc/systemd/system/$name"
    done
    echo 'pumice:x:999:999::/var/lib/pumice:/usr/sbin/nologin' >>/etc/passwd
    echo 'pumice:x:999:' >>/etc/group
    printf '%s\n' '[server]' 'nbd = ["unix:/run/pumice/nbd.sock"]' '[[drive]]' 'path = "/var/lib/pumice/drive"' \
        'attach = true' >/etc/pumice/pumice.toml
    printf '%s\n' '/dev/ubda /var/lib/pumice ext4 defaults 0 2' \
        "UUID=$(cat /share/uuid) /srv/data ext4 defaults,noatime,_netdev,nofail,x-systemd.requires=pumice-attach.service 0 0" \
        >/etc/fstab
    # Uses the file system until the machine goes down, and goes down once all is up.
    unit user "RequiresMountsFor=/srv/data /share" \
        'findmnt -n -o SOURCE /srv/data >/share/seen.mounted; sha256sum </srv/data/before >/share/seen.sum' \
        'dd if=/dev/urandom of=/srv/data/last bs=1M count=16; sha256sum </srv/data/last >/share/seen.last'
    # Stops after pumice-attach has, and before pumice.
    unit detached "After=pumice.service
Before=pumice-attach.service
RequiresMountsFor=/share" \
        'systemctl is-active pumice >/share/seen.first' \
        'ls /dev/ublkb* >/share/seen.left 2>&1; systemctl is-active pumice >/share/seen.server'
    printf '%s\n' '[Unit]' 'After=multi-user.target' '[Service]' \
        "ExecStart=/bin/bash -c 'systemctl --failed --no-legend >/share/seen.failed; journalctl -b >/share/journal; systemctl poweroff'" \
        '[Install]' 'WantedBy=graphical.target' >/etc/systemd/system/down.service
    systemctl enable -q pumice pumice-attach user detached down
    systemctl set-default -q graphical.target
    exec /usr/lib/systemd/systemd --log-target=kmsg
}
seen() { [ -e "/share/seen.$1" ] && [ "$(cat "/share/seen.$1")" = "$2" ] || { cat "/share/seen.$1"; return 1; }; }
is_clean() {    # a file system that was not unmounted has a log to replay
    dumpe2fs -h "$1" | grep -E '^Filesystem (features|state)' >/tmp/state
    ! grep needs_recovery /tmp/state && grep -w clean /tmp/state
}
has_last() { [ -s /share/seen.last ] && mount "$1" /srv && [ "$(sha256sum </srv/last)" = "$(cat /share/seen.last)" ]; }

case $STAGE in
    make) check "a drive is made" make_drive ;;
    boot) become_systemd ;;
    look)
        check "no unit has failed" seen failed ''
        check "the file system is mounted on its device" seen mounted /dev/ublkb0
        check "with its data" seen sum "$(cat /share/sum)"
        check "the server ran before the device was made" seen first active
        check "at shutdown the device is gone first" grep 'No such file' /share/seen.left
        # systemd has the order to stop it, too, and has not yet done so.
        check "and the server is there until then" seen server active
        mount /dev/ubda /mnt
        check "the drive is sound" pumice check --deep /mnt/drive
        check "attach" eval 'device=$(pumice attach /mnt/drive --by ublk)'
        check "the file system was unmounted" is_clean "$device"
        check "what was written last is there" has_last "$device"
        ;;
esac
summary
