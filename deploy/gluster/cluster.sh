# shellcheck shell=bash
# Gluster of a lab: a glusterd for each node, volumes, clients. Sourced after process.sh.
#
# Each node has an address of the loopback interface, and a working directory, run-time directory, log directory and socket of
# its own, so that a Gluster that is installed on the machine is not touched. It must not listen on 0.0.0.0:24007, though.

volumes=(replica distributed)
gluster_programs='glusterd|glusterfs|glusterfsd|glfsheal'
host() { echo "$SUBNET.$1"; }

# is_taken ADDRESS...: somebody listens at one of these addresses, or at all addresses, at the port of glusterd
is_taken() {
    local address pattern=00000000 a b c d
    for address in "$@"; do
        IFS=. read -r a b c d <<<"$address"
        pattern+=$(printf '|%02X%02X%02X%02X' "$d" "$c" "$b" "$a")
    done
    grep -qsE "^ *[0-9]+: ($pattern|0{32}):5DC7 [0-9A-F]+:0000 0A " /proc/net/tcp /proc/net/tcp6
}
# choose_subnet: the first that no other lab has, for SUBNET=auto
choose_subnet() {
    local number hosts node
    ! is_taken || fail "a Gluster listens at port 24007 of all addresses; a lab needs that of its own addresses: bind that Gluster to one (option transport.socket.bind-address)"
    for ((number = 1; number < 255; number++)); do
        [ "$1" != auto ] || SUBNET=127.1.$number
        hosts=()
        for ((node = 1; node <= NODES; node++)); do hosts+=("$(host "$node")"); done
        ! is_taken "${hosts[@]}" || [ "$1" = auto ] || fail "SUBNET=$SUBNET: another lab has it"
        is_taken "${hosts[@]}" || return 0
    done
    fail "no free SUBNET"
}

# gluster_on NODE ARGUMENTS...: Gluster's command line on a node
gluster_on() {
    local folder=$LAB/node$1
    shift
    timeout 120 gluster --mode=script --glusterd-sock="$folder/glusterd.sock" --log-file="$folder/log/cli.log" "$@"
}
gluster_quiet() { gluster_on "$@" >>"$LAB/log" 2>&1; }
# gluster_must NODE ARGUMENTS...: without it the lab is none
gluster_must() { gluster_quiet "$@" || fail_with "$LAB/log" "gluster ${*:2}: failed"; }

start_glusterd() {
    local node=$1 folder=$LAB/node$1
    mkdir -p "$folder/work" "$folder/run" "$folder/log"
    cat >"$folder/glusterd.vol" <<END
volume management
    type mgmt/glusterd
    option working-directory $folder/work
    option run-directory $folder/run
    option cluster-test-mode $folder/log
    option glusterd-sockfile $folder/glusterd.sock
    option transport-type socket
    option transport.socket.bind-address $(host "$node")
    option transport.socket.keepalive-time 10
    option transport.socket.keepalive-interval 2
    option transport.socket.read-fail-log off
    option ping-timeout 0
    option event-threads 1
end-volume
END
    glusterd --volfile="$folder/glusterd.vol" --pid-file="$folder/glusterd.pid" --log-file="$folder/log/glusterd.log" 9>&- ||
        fail_with "$folder/log/glusterd.log" "glusterd of node $node does not start"
    wait_until 30 glusterd_answers "$node" || fail_with "$folder/log/glusterd.log" "glusterd of node $node does not answer"
}
glusterd_answers() { gluster_quiet "$1" pool list; }
peers_connected() { [ "$(gluster_on 1 pool list | grep -c Connected)" = "$NODES" ]; }

# create_volume NAME: `replica` has every file on all nodes, `distributed` each file on one
create_volume() {
    local name=$1 bricks=() kind=() node
    for ((node = 1; node <= NODES; node++)); do bricks+=("$(host "$node"):$LAB/node$node/fs/$name"); done
    [ "$name" != replica ] || [ "$NODES" = 1 ] || kind=(replica "$NODES")
    gluster_must 1 volume create "$name" "${kind[@]}" "${bricks[@]}"
    # A brick whose file system fails ends within seconds, not half a minute.
    gluster_must 1 volume set "$name" storage.health-check-interval 5
    # Heal by writing everything again. The other way, comparing first, reads from the page cache of the brick what its full drive
    # refused, and then leaves it away (README.md, "A full drive").
    [ "$name" != replica ] || gluster_must 1 volume set "$name" cluster.data-self-heal-algorithm "${HEAL_ALGORITHM:-full}"
    gluster_must 1 volume start "$name"
}

mount_volume() {
    local name=$1
    mkdir -p "$LAB/client/$name"
    # One whose file system was just unmounted may not have ended, and has the file with its number until then.
    wait_until 15 has_no_client "$name" || true
    glusterfs --volfile-server="$(host 1)" --volfile-id="$name" --log-file="$LAB/client/$name.log" --pid-file="$LAB/client/$name.pid" \
        "$LAB/client/$name" 9>&- || fail_with "$LAB/client/$name.log" "volume $name: its client does not start"
    wait_until 30 mounted_and_connected "$name" || fail_with "$LAB/client/$name.log" "volume $name cannot be mounted"
}
has_no_client() { ! process_of glusterfs "--pid-file=$LAB/client/$1.pid" >/dev/null; }
mounted_and_connected() { is_mounted "$LAB/client/$1" && timeout 10 df "$LAB/client/$1" >/dev/null 2>&1; }
unmount_volume() { if is_mounted "$LAB/client/$1"; then umount "$LAB/client/$1" 2>>"$LAB/log" || umount --lazy "$LAB/client/$1"; fi; }

start_cluster() {
    local node name
    for ((node = 1; node <= NODES; node++)); do start_glusterd "$node"; done
    for ((node = 2; node <= NODES; node++)); do gluster_must 1 peer probe "$(host "$node")"; done
    wait_until 30 peers_connected || fail_with "$LAB/node1/log/glusterd.log" "the nodes do not connect"
    for name in "${volumes[@]}"; do create_volume "$name"; done
    for name in "${volumes[@]}"; do mount_volume "$name"; done
}

# gluster_sockets: Unix sockets in /run/gluster of this lab's processes
gluster_sockets() { lab_processes | tr ' ' '\n' | grep '^/.*/gluster/.*\.socket$' || true; }
# note_sockets: what is to be removed from there once their processes are gone
note_sockets() { gluster_sockets >>"$LAB/sockets"; }

stop_cluster() {
    local name
    note_sockets
    for name in "${volumes[@]}"; do unmount_volume "$name"; done
    if [ -S "$LAB/node1/glusterd.sock" ] && process_of glusterd "--pid-file=$LAB/node1/glusterd.pid" >/dev/null; then
        for name in "${volumes[@]}"; do gluster_quiet 1 volume stop "$name" force || true; done
    fi
    # glusterd first: it starts others.
    stop_processes glusterd
    stop_processes "$gluster_programs"
    sort -u "$LAB/sockets" | xargs -r rm -f
}

# brick_process NODE VOLUME: "PID START" of the process that serves a brick
brick_process() { process_of glusterfsd --brick-name "$LAB/node$1/fs/$2"; }
brick_online() {
    local detail
    detail=$(gluster_on 1 volume status "$2" "$(host "$1"):$LAB/node$1/fs/$2" 2>/dev/null) && grep -q '^Brick .* Y  *[0-9]' <<<"$(tr '\n' ' ' <<<"$detail" | sed 's/Brick/\nBrick/g')"
}
# end_bricks NODE [VOLUME...]: kills the processes of its bricks
end_bricks() {
    local node=$1 name pid start
    shift
    note_sockets
    [ $# -gt 0 ] || set -- "${volumes[@]}"
    for name in "$@"; do
        if read -r pid start < <(brick_process "$node" "$name"); then
            end_process "$pid" "$start" || fail "process $pid of brick $name of node $node does not end"
        fi
        # Where nothing reaps it, glusterd takes the dead process for a running one.
        rm -f "$LAB/node$node/run/vols/$name/"*.pid
    done
}
# start_bricks: starts the brick processes that ended, and waits until all are there
start_bricks() {
    local name node
    for name in "${volumes[@]}"; do
        gluster_quiet 1 volume start "$name" force || return
        for ((node = 1; node <= NODES; node++)); do wait_until 30 brick_online "$node" "$name" || return; done
    done
}

# unhealed VOLUME: prints how many files and folders are not equal on all bricks; fails while a brick does not answer.
# That is `gluster volume heal VOLUME info`, whose helper cannot be told another socket or log directory by the command line.
unhealed() {
    local counts
    counts=$(timeout 120 unshare --mount bash -c 'mount --bind "$1/log" "$2" && exec "$3/glfsheal" "$4" glusterd-sock "$1/glusterd.sock"' - \
        "$LAB/node1" "$(gluster --print-logdir)" "$(glusterfsd --print-libexecdir)" "$1" 2>>"$LAB/log" | sed -n 's/^Number of entries: //p')
    [ "$(wc -w <<<"$counts")" = "$NODES" ] && ! grep -q -- - <<<"$counts" || return 1
    awk '{ sum += $1 } END { print sum + 0 }' <<<"$counts"
}
healed() { [ "$(unhealed replica)" = 0 ]; }
# heal: heals the replica, returns when that is done. In full: a brick that has lost its newest entries, as at a power cut of its
# drive, does not know that it lacks them, and a heal by the index alone cannot heal what is behind them.
heal() { wait_until 150 heal_once; }
heal_once() {
    # Refused until the daemons are connected to all bricks. Files whose heal fails are tried again by the next one.
    gluster_quiet 1 volume heal replica full && wait_until 20 healed
}
