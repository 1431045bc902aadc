#!/bin/bash
# In the guest, behind checks.sh: a machine with the systemd units, whose /srv/data is a file system on a drive of the
# configuration. Three starts of the guest, by STAGE:
#
#   make   makes the drive, in a file on ${DISK}a
#   boot   is process 1: prepares the machine and becomes systemd, which mounts /srv/data and shuts down by itself
#   look   finds what that has left
#
# Units of the test write down what they see in /share/seen when they start and when they stop.
way=systemd
second=pumice-attach@var-lib-pumice-second.service
export PUMICE_RUNTIME_DIR=/run/pumice

make_drive() {
    local device
    mkfs.ext4 -q ${DISK}a && mount ${DISK}a /mnt && pumice create /mnt/drive --size 300M --capacity 400M || return
    device=$(pumice attach /mnt/drive --by ublk --mkfs ext4) && mount "$device" /srv || return
    dd if=/dev/urandom of=/srv/before bs=1M count=16 conv=fsync && sha256sum </srv/before >/share/sum || return
    umount /srv && blkid -s UUID -o value "$device" >/share/uuid && pumice detach "$device" || return
    pumice create /mnt/second --size 64M && device=$(pumice attach /mnt/second --by ublk --mkfs ext4) || return
    recorded_id >/share/id.second && pumice detach "$device" && chown -R 999:999 /mnt && umount /mnt
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
    mkdir -p /usr/local/bin /etc/pumice /var/lib/pumice /srv/data /srv/second
    cp /share/pumice /usr/local/bin/
    for name in pumice.service pumice-attach.service pumice-attach@.service; do
        sed 's|/usr/bin/pumice|/usr/local/bin/pumice|; s|attach --wait-listed|attach --by ublk --wait-listed|' "/share/$name" >"/etc/systemd/system/$name"
    done
    mkdir -p /etc/udev/rules.d
    sed 's|/usr/bin/pumice|/usr/local/bin/pumice|' /share/61-pumice.rules >/etc/udev/rules.d/61-pumice.rules
    echo 'pumice:x:999:999::/var/lib/pumice:/usr/sbin/nologin' >>/etc/passwd
    echo 'pumice:x:999:' >>/etc/group
    printf '%s\n' '[server]' 'nbd = ["unix:/run/pumice/nbd.sock"]' 'request-memory = "64M"' '[[drive]]' 'path = "/var/lib/pumice/drive"' \
        'attach = true' 'by = "ublk"' '[[drive]]' 'path = "/var/lib/pumice/second"' >/etc/pumice/pumice.toml
    printf '%s\n' "${DISK}a /var/lib/pumice ext4 defaults 0 2" \
        "UUID=$(cat /share/uuid) /srv/data ext4 defaults,noatime,_netdev,nofail,x-systemd.after=pumice-attach.service 0 0" \
        "/dev/disk/by-id/pumice-$(cat /share/id.second) /srv/second ext4 defaults,_netdev,nofail,x-systemd.after=$second 0 0" >/etc/fstab
    # Uses the file system until the machine goes down, and goes down once all is up.
    unit user "RequiresMountsFor=/srv/data /share" \
        'findmnt -n -o SOURCE /srv/data >/share/seen.mounted; sha256sum </srv/data/before >/share/seen.sum; /usr/local/bin/pumice doctor /var/lib/pumice/drive >/share/seen.doctor || true' \
        'dd if=/dev/urandom of=/srv/data/last bs=1M count=16; sha256sum </srv/data/last >/share/seen.last'
    # Stops after pumice-attach has, and before pumice.
    unit detached "After=pumice.service
Before=pumice-attach.service
RequiresMountsFor=/share" \
        'systemctl is-active pumice >/share/seen.first' \
        'ls `cat /share/seen.mounted` >/share/seen.left 2>&1; systemctl is-active pumice >/share/seen.server'
    # Kills the bridge of a unit of its own, under a mounted file system.
    cat >/usr/local/bin/killed <<END
main() { systemctl show -p MainPID --value $second; }
is_back() { local pid; pid=\$(main); [ "\$pid" != 0 ] && [ "\$pid" != "\$killed" ] && systemctl is-active -q $second; }
killed=\$(main) mount=\$(findmnt -n -o ID /srv/second)
kill -9 "\$killed"
for ((i = 0; i < 300; i++)); do is_back && break; sleep 0.2; done
timeout 60 dd if=/dev/urandom of=/srv/second/after bs=1M count=4 conv=fsync && echo written >/share/seen.killed
# Somebody who attaches it by hand is faster than the unit.
killed=\$(main)
kill -9 "\$killed"
systemctl start by-hand
for ((i = 0; i < 300; i++)); do is_back && break; sleep 0.2; done
grep -q "\"bridge_pid\": \$(main)," /run/pumice-attach/second*/attachment.json && echo adopted >/share/seen.adopted
[ "\$mount" = "\$(findmnt -n -o ID /srv/second)" ] && echo "the same mount" >/share/seen.mount
END
    printf '%s\n' '[Service]' 'Type=oneshot' 'KillMode=process' \
        'ExecStart=/usr/local/bin/pumice attach --by ublk /var/lib/pumice/second' >/etc/systemd/system/by-hand.service
    unit killed "RequiresMountsFor=/srv/second /share
After=$second" 'bash /usr/local/bin/killed' true
    printf '%s\n' '[Unit]' 'After=multi-user.target' '[Service]' \
        "ExecStart=/bin/bash -c 'systemctl --failed --no-legend >/share/seen.failed; journalctl -b >/share/journal; systemctl poweroff'" \
        '[Install]' 'WantedBy=graphical.target' >/etc/systemd/system/down.service
    systemctl enable -q pumice pumice-attach "$second" user detached killed down
    systemctl set-default -q graphical.target
    exec /usr/lib/systemd/systemd --log-target=kmsg
}
no_fault() { [ -s /share/seen.doctor ] && ! grep '^fail' /share/seen.doctor; }
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
        check "the file system is mounted on its device" grep -x '/dev/ublkb[01]' /share/seen.mounted
        check "with its data" seen sum "$(cat /share/sum)"
        check "a bridge is killed under a mount, and its unit starts another" seen killed written
        check "a bridge that was started by hand becomes that of the unit" seen adopted adopted
        check "nothing was unmounted for that" seen mount "the same mount"
        check "the server is prepared for a shortage of memory" grep '^ok  *shortage-above' /share/seen.doctor
        check "the doctor finds no fault" no_fault
        check "the server ran before the device was made" seen first active
        check "at shutdown the device is gone first" grep 'No such file' /share/seen.left
        # systemd has the order to stop it, too, and has not yet done so.
        check "and the server is there until then" seen server active
        mount ${DISK}a /mnt
        check "the drive is sound" pumice check --deep /mnt/drive
        check "attach" eval 'device=$(pumice attach /mnt/drive --by ublk)'
        check "the file system was unmounted" is_clean "$device"
        check "what was written last is there" has_last "$device"
        ;;
esac
summary
