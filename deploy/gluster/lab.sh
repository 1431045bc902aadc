#!/usr/bin/env bash
# A Gluster cluster on Pumice drives, on this machine: drives, bricks, two nodes, volumes `replica` and `distributed`, clients.
# Needs root, the packages glusterfs-server, glusterfs-client and xfsprogs, and no systemd. README.md has the settings.
#
#   lab.sh up          start it; volumes are mounted at LAB/client/replica and LAB/client/distributed
#   lab.sh status      nodes: what the file system shows, and what the drive has
#   lab.sh trim        fstrim on all bricks, and what came back
#   lab.sh timer       the same every TRIM_SECONDS, in place of the timer that runs; 0 ends it. `up` does it too if it is not 0
#   lab.sh down        end it, and remove all of it
set -Eeuo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
for part in lib process drive cluster remains; do
    # shellcheck source=/dev/null
    . "$here/$part.sh"
done

load() {
    resolve_lab
    [ -e "$LAB" ] || [ -L "$LAB" ] || fail "$LAB: no lab is there; start one: lab.sh up"
    check_trusted "$LAB"
    [ -e "$LAB/settings" ] || fail "$LAB: no lab is there; start one: lab.sh up"
    check_trusted "$LAB/settings"
    load_settings
}

# one_at_a_time: waits for other commands that start or end something, of all labs: names of devices, addresses, volume groups.
# Processes that stay close the lock (9>&-).
one_at_a_time() {
    [ "$(id -u)" = 0 ] || fail "this machine lacks: root"
    # For root only: whoever can open it can hold the lock.
    (umask 077 && : >>/run/pumice-gluster.lock)
    exec 9>>/run/pumice-gluster.lock
    flock --wait 900 9 || fail "another lab.sh has been busy for 15 minutes"
}

up() {
    local missing node
    missing=$(missing_parts | paste -sd, | sed 's/,/, /g')
    [ -z "$missing" ] || fail "this machine lacks: $missing"
    default_settings
    check_settings
    one_at_a_time
    resolve_lab
    check_place "$LAB"
    [ ! -e "$LAB" ] && [ ! -L "$LAB" ] || fail "$LAB exists: end that lab first (lab.sh down), or set LAB to another directory"
    if [ "$DRIVES" = auto ]; then
        DRIVES=1
        if has_device_mapper; then DRIVES=2; fi
    fi
    choose_subnet "$SUBNET"
    (umask 077 && mkdir "$LAB") || fail "$LAB: cannot be made"
    # `exit` and signals too; ERR would see neither.
    trap 'failed_up $?' EXIT
    trap 'exit 129' HUP
    trap 'exit 130' INT
    trap 'exit 143' TERM
    store_settings
    : >"$LAB/log"
    for ((node = 1; node <= NODES; node++)); do start_brick "$node"; done
    start_cluster
    if [ "$TRIM_SECONDS" -gt 0 ]; then start_timer; fi
    trap - EXIT HUP INT TERM
    [ "$DRIVES" -gt 1 ] || say "one drive a brick: striping of two by LVM is left out$(has_device_mapper || echo ", the kernel has no device-mapper")"
    say "up: $LAB/client/replica, $LAB/client/distributed"
}
# failed_up CODE: takes down what was started
failed_up() {
    trap - EXIT
    trap '' HUP INT TERM
    set +e
    say "not started (exit code $1); last lines of the log:"
    tail -n 5 "$LAB/log" >&2
    take_down
    [ "$1" != 0 ] || exit 1
    exit "$1"
}

down() {
    resolve_lab
    # Refused at once, not after a wait.
    if [ -e "$LAB/settings" ]; then load; fi
    one_at_a_time
    # `up` was killed before there was anything.
    if [ -d "$LAB" ] && [ ! -L "$LAB" ] && [ ! -e "$LAB/settings" ]; then
        check_trusted "$LAB"
        rmdir "$LAB" 2>/dev/null && { say "down"; return; }
    fi
    load
    take_down
}
# take_down: ends all of a lab, whatever of it is there
take_down() (
    set +e
    stop_timer
    stop_cluster
    for ((node = 1; node <= NODES; node++)); do stop_brick "$node" --force; done
    # Servers end with their devices, but for one whose bridge was killed and whose number nobody knows any more.
    case $'\n'$(remains) in *$'\n'attachment*) ;; *) stop_processes pumice ;; esac
    for n in {1..25}; do
        left=$(remains)
        [ -n "$left" ] || break
        sleep 0.2
    done
    # What is attached still would lose its backing.
    [ -z "$left" ] || fail "$LAB stays, because there is still: $left"
    rm -rf --one-file-system "$LAB" || exit
    say "down"
)

# What a timer of systemd does in production (pumice-trim@.timer).
start_timer() {
    stop_timer
    [ "$TRIM_SECONDS" -gt 0 ] || return 0
    [ -p "$LAB/timer" ] || mkfifo -m 600 "$LAB/timer"
    env LAB="$LAB" setsid bash "$here/lab.sh" run-timer "$LAB/timer" "$TRIM_SECONDS" </dev/null >"$LAB/timer.log" 2>&1 9>&- &
    wait_until 10 timer_runs || fail_with "$LAB/timer.log" "the timer does not start"
}
timer_runs() { [ -n "$(processes_of bash)" ]; }
stop_timer() { stop_processes 'bash|fstrim'; }
# run_timer SECONDS: is the timer. It waits at a pipe into which nobody writes: no process of its own is left where it ends.
run_timer() {
    exec 7<>"$LAB/timer"
    while [ -e "$LAB/settings" ]; do
        read -rt "$1" -u 7 || true
        trim || true
    done
}

# space NODE: MiB used in the file system, and in the drives
space() {
    local drive bytes=0
    for drive in $(drives_of "$1"); do
        if [ "$BACKING" = raw ]; then
            bytes=$((bytes + $(stat -c '%b * 512' "$drive")))
        else
            bytes=$((bytes + $(drive_status "$drive" .physical_used_bytes)))
        fi
    done
    echo "$(mib "$(df --output=used -B1 "$LAB/node$1/fs" | tail -n 1)") $(mib "$bytes")"
}

status() {
    local node folder
    for ((node = 1; node <= NODES; node++)); do
        folder=$LAB/node$node
        echo "node $node, $(host "$node"): $FS on $(volume_of "$node"), brick processes $(brick_process "$node" replica | cut -d' ' -f1) $(brick_process "$node" distributed | cut -d' ' -f1)"
        df -h --output=size,used,avail,pcent "$folder/fs" | sed 's/^/  /'
        [ "$BACKING" = raw ] || pumice capacity "$folder"/drive* | sed 's/^/  /'
    done
    gluster_on 1 volume info | grep -E '^(Volume Name|Type|Status|Number of Bricks)'
}

trim() {
    local node before after
    for ((node = 1; node <= NODES; node++)); do
        before=$(space "$node")
        trim_brick "$node"
        after=$(space "$node")
        echo "node $node: ${after% *} MiB used in the file system, ${before#* } MiB in the drive before fstrim, ${after#* } MiB after"
    done
}

case ${1:-} in
    up) up ;;
    down) down ;;
    status) load; status ;;
    trim) load; trim ;;
    timer)
        wanted=${TRIM_SECONDS:-}
        one_at_a_time
        load
        TRIM_SECONDS=${wanted:-$TRIM_SECONDS}
        check_settings
        start_timer
        ;;
    run-timer) load; run_timer "${3:?seconds}" ;;
    *) sed -n '2,/^set/{/^set/!s/^# \{0,1\}//p}' "$0" >&2; exit 2 ;;
esac
