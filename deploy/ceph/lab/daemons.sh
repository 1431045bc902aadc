# Sourced by lab.sh: Ceph's configuration and daemons.

write_configuration() {
    local line
    cat >"$lab/ceph.conf" <<CONF
[global]
fsid = $(</proc/sys/kernel/random/uuid)
mon host = [v2:127.0.0.1:$mon_port,v1:127.0.0.1:$mon_port_1]
public addr = 127.0.0.1
public network = 127.0.0.0/8
cluster network = 127.0.0.0/8
ms bind ipv6 = false
auth cluster required = none
auth service required = none
auth client required = none
# Without it a client that has no key waits five minutes for a configuration.
ms mon client mode = crc
run dir = $lab/run
admin socket = $lab/run/\$cluster-\$name.\$pid.asok
pid file = $lab/run/\$name.pid
log file = $lab/log/\$name.log
crash dir = $lab/log
mon data = $lab/mon
mgr data = $lab/mgr
osd data = $lab/osd/\$id
mgr module path = $lab/modules
mgr initial modules = $([ -n "$raw" ] || echo pumice)

# One machine: OSDs stand for hosts.
osd crush chooseleaf type = 0
osd pool default size = $((osds < 3 ? osds : 3))
osd pool default min size = 0
osd pool default pg num = 8
osd pool default pgp num = 8
osd pool default pg autoscale mode = off
mon max pg per osd = 1000
mon allow pool size one = true
mon allow pool delete = true
mon warn on pool no redundancy = false
mon warn on insecure global id reclaim allowed = false
mon data avail warn = 2
mon data avail crit = 1

# Small machine, which may be busy.
osd memory target = 939524096
osd max scrubs = 5
osd scrub load threshold = 1000
osd objectstore = bluestore
bluestore block size = $(numfmt --from=iec "$capacity")

# Drives give space back only if they are told what is free.
bdev enable discard = true
bdev async discard = true
# The drive compresses; BlueStore's checksums stay on.
bluestore compression mode = none
$([ -n "$raw" ] || drive_settings)
$(for line in "${more_configuration[@]}"; do echo "$line"; done)

[client.rgw.lab]
rgw frontends = beast endpoint=127.0.0.1:$rgw_port
rgw data = $lab/rgw
CONF
}

# What is faster on a drive that keeps its own log; see README.md, "Settings".
drive_settings() {
    [ -n "$defaults" ] || printf '%s\n' "bluestore prefer deferred size ssd = 32768" "bluestore max blob size ssd = 524288"
}

# The process of a daemon, if it lives: osd.0, mon.a, mgr.x, client.rgw.lab
daemon_pid() {
    local pid
    pid=$(cat "$lab/run/$1.pid" 2>/dev/null) || return 1
    is_daemon "$pid" && echo "$pid"
}
# Whether a process is a daemon of this cluster. An editor of its configuration is none.
is_daemon() {
    local words=()
    mapfile -d '' -t words 2>/dev/null <"/proc/$1/cmdline" || return 1
    case ${words[0]:-} in
        ceph-mon | ceph-mgr | ceph-osd | radosgw | */ceph-mon | */ceph-mgr | */ceph-osd | */radosgw) ;;
        *) return 1 ;;
    esac
    printf '%s\0' "${words[@]}" | grep -xzF -e "$lab/ceph.conf" >/dev/null
}
# Also one that nobody waits for. Its first thread may have ended before others, and until the last has, its files are open and locked.
is_gone() {
    local tasks
    ! kill -0 "$1" 2>/dev/null && return
    tasks=("/proc/$1/task/"*)
    [ "${#tasks[@]}" -le 1 ] && grep -q '^State:.Z' "/proc/$1/status" 2>/dev/null
}

# One that crashes has no command line any more, and its files are still locked.
await_end() {
    local pid
    pid=$(cat "$lab/run/$1.pid" 2>/dev/null) && [ -e "/proc/$pid/cmdline" ] && [ -z "$({ tr -d '\0' <"/proc/$pid/cmdline"; } 2>/dev/null)" ] || return 0
    await 30 is_gone "$pid" || true
}

stop_daemon() {
    local pid
    pid=$(daemon_pid "$1") || { await_end "$1"; return; }
    # It may have ended meanwhile.
    kill "$pid" 2>/dev/null || return 0
    await 30 is_gone "$pid" || { kill -9 "$pid" 2>/dev/null || return 0; await 10 is_gone "$pid"; }
}
kill_daemon() {
    local pid
    pid=$(daemon_pid "$1") || die "$1 does not run"
    kill -9 "$pid" 2>/dev/null || return 0
    await 10 is_gone "$pid"
}
# Fails if one is left: its files must not go away under it.
stop_daemons() {
    local id pid left
    stop_daemon client.rgw.lab || true
    # Side by side: each may take seconds.
    for id in $(osd_ids); do stop_daemon "osd.$id" & done
    wait
    stop_daemon mgr.x || true
    stop_daemon mon.a || true
    # Those that had not come as far as to write their number.
    for pid in $(all_pids); do kill -9 "$pid" 2>/dev/null || true; done
    for pid in $(all_pids); do await 10 is_gone "$pid" || true; done
    left=$(all_pids)
    [ -z "$left" ] || die "daemons do not end: ${left//$'\n'/ }; $lab stays"
}
# All daemons of this cluster.
all_pids() {
    local file pid
    for file in $(grep -lxzF -e "$lab/ceph.conf" /proc/[0-9]*/cmdline 2>/dev/null); do
        pid=${file//[!0-9]/}
        if is_daemon "$pid"; then echo "$pid"; fi
    done
}

# start NAME COMMAND...: a daemon, with its first messages in a log of its own
start() {
    local name=$1
    shift
    daemon_pid "$name" >/dev/null && return
    await_end "$name"
    # Files that this shell has open are not the daemon's.
    (cd / && timeout 300 "$@" -c "$lab/ceph.conf" </dev/null >>"$lab/log/$name.start" 2>&1) ||
        die "$name: $(tail -n 3 "$lab/log/$name.start")"
}

make_monitor() {
    local addresses
    addresses=$(sed -n 's/^mon host = //p' "$lab/ceph.conf")
    monmaptool --create --fsid "$(sed -n 's/^fsid = //p' "$lab/ceph.conf")" --addv a "$addresses" "$lab/monmap" >/dev/null
    start mon-mkfs ceph-mon --mkfs -i a --monmap "$lab/monmap"
}
start_monitor() {
    start mon.a ceph-mon -i a
    await 120 ceph -s || die "the monitor does not answer"
}

# Ceph takes modules from one directory: its own, and ours beside them.
start_manager() {
    rm -rf "$lab/modules"
    mkdir "$lab/modules"
    ln -s /usr/share/ceph/mgr/* "$lab/modules/"
    rm -rf "$lab/modules/pumice"
    cp -r "$here/mgr/pumice" "$lab/modules/pumice"
    start mgr.x ceph-mgr -i x
}
manager_is_active() { ceph mgr stat | jq -e .available; }

# The module learns where the drives are.
tell_module() {
    [ -z "$raw" ] || return 0
    ceph config set mgr mgr/pumice/drives "$(drive_addresses)"
    ceph config set mgr mgr/pumice/interval 2
}

# Makes COUNT OSDs on new drives, side by side.
create_osds() {
    local count=$1 id ids=() jobs=() job failed=
    for ((; count > 0; count--)); do
        id=$(new_osd)
        ids+=("$id")
    done
    for id in "${ids[@]}"; do
        make_osd "$id" &
        jobs+=($!)
    done
    # All of them, so that none is being made when this ends.
    for job in "${jobs[@]}"; do wait "$job" || failed=yes; done
    [ -z "$failed" ] || die "an OSD could not be made"
    echo "${ids[*]}"
}
# Gets the number of a new OSD from the monitor; prints it.
new_osd() {
    local uuid id
    uuid=$(</proc/sys/kernel/random/uuid)
    id=$(ceph osd new "$uuid")
    [ -n "$id" ] || die "no number for an OSD"
    mkdir "$lab/osd/$id"
    echo "$uuid" >"$lab/run/osd.$id.uuid"
    echo "$id"
}
make_osd() {
    create_drive "$lab/drives/osd.$1"
    link_device "$1"
    start "osd.$1-mkfs" ceph-osd -i "$1" --mkfs --osd-uuid "$(<"$lab/run/osd.$1.uuid")"
    rm "$lab/run/osd.$1.uuid"
    start_osd "$1"
}
# The number of the node may be another one than last time.
link_device() {
    local node
    node=$(attach_drive "$lab/drives/osd.$1")
    ln -sfn "$node" "$lab/osd/$1/block"
}
start_osd() {
    link_device "$1"
    start "osd.$1" ceph-osd -i "$1"
}
# Takes an OSD out of the cluster, its data with it, as if its disk were lost.
destroy_osd() {
    local drive=$lab/drives/osd.$1 pid
    if pid=$(daemon_pid "osd.$1"); then
        # It may have ended meanwhile. In a subshell, because kill_daemon ends the shell then.
        if ! (kill_daemon "osd.$1") && ! is_gone "$pid"; then
            # One that waits for a drive that does not open ends when its requests fail.
            timeout 180 "$pumice" detach --force "$drive" || true
            await 30 is_gone "$pid" || die "osd.$1, process $pid, does not end"
        fi
    fi
    # Refused until the monitor knows that the OSD is down, which others tell it.
    # The last attempt shows why.
    await 120 ceph osd purge "$1" --yes-i-really-mean-it || ceph osd purge "$1" --yes-i-really-mean-it >&2 ||
        die "osd.$1 cannot be taken out of the cluster"
    detach_drive "$drive" || die "$drive: not detached"
    rm -rf --one-file-system "$drive" "$drive.port" "$lab/osd/$1" "$lab/run/osd.$1.pid"
}
osds_are_up() { [ "$(ceph osd stat -f json | jq .num_up_osds)" = "$1" ]; }

start_gateway() {
    start client.rgw.lab radosgw -n client.rgw.lab --client_mount_timeout=30
    await 240 gateway_answers || die "the gateway does not answer"
    timeout 60 radosgw-admin user info --uid lab >/dev/null 2>&1 ||
        timeout 60 radosgw-admin user create --uid lab --display-name lab --access-key "$s3_access_key" \
            --secret-key "$s3_secret_key" >/dev/null 2>&1 || die "no user of the gateway"
}
gateway_answers() { "$python" -c "import urllib.request as u; u.urlopen('http://127.0.0.1:$rgw_port', timeout=2)"; }
