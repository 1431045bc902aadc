# shellcheck shell=bash
# Gluster of a lab: a glusterd for each node, volumes, clients. Sourced after lib.sh.
#
# Each node has an address of the loopback interface, and a working directory, run-time directory, log directory and socket of
# its own, so that a Gluster that is installed on the machine is not touched. It must not listen on 0.0.0.0:24007, though.

volumes=(replica distributed)
host() { echo "$SUBNET.$1"; }
# gluster_on NODE ARGUMENTS...: Gluster's command line on a node
gluster_on() {
    local folder=$LAB/node$1
    shift
    timeout 120 gluster --mode=script --glusterd-sock="$folder/glusterd.sock" --log-file="$folder/log/cli.log" "$@"
}
gluster_quiet() { gluster_on "$@" >>"$LAB/log" 2>&1; }

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
    glusterd --volfile="$folder/glusterd.vol" --pid-file="$folder/glusterd.pid" --log-file="$folder/log/glusterd.log"
    wait_until 20 glusterd_answers "$node" || fail "glusterd of node $node does not answer: $folder/log/glusterd.log"
}
glusterd_answers() { gluster_quiet "$1" pool list; }
peers_connected() { [ "$(gluster_on 1 pool list | grep -c Connected)" = "$NODES" ]; }

# create_volume NAME: `replica` has every file on all nodes, `distributed` each file on one
create_volume() {
    local name=$1 bricks=() kind=() node
    for ((node = 1; node <= NODES; node++)); do bricks+=("$(host "$node"):$LAB/node$node/fs/$name"); done
    [ "$name" != replica ] || kind=(replica "$NODES")
    gluster_on 1 volume create "$name" "${kind[@]}" "${bricks[@]}" >>"$LAB/log" 2>&1 || { tail -n 3 "$LAB/log" >&2; return 1; }
    # A brick whose file system fails ends within seconds, not half a minute.
    gluster_quiet 1 volume set "$name" storage.health-check-interval 5
    # Heal by writing everything again. The other way, comparing first, reads from the page cache of the brick what its full drive
    # refused, and then leaves it away (README.md, "A full drive").
    [ "$name" != replica ] || gluster_quiet 1 volume set "$name" cluster.data-self-heal-algorithm "${HEAL_ALGORITHM:-full}"
    gluster_quiet 1 volume start "$name"
}

mount_volume() {
    local name=$1
    mkdir -p "$LAB/client/$name"
    glusterfs --volfile-server="$(host 1)" --volfile-id="$name" --log-file="$LAB/client/$name.log" --pid-file="$LAB/client/$name.pid" \
        "$LAB/client/$name"
    wait_until 20 mounted_and_connected "$name" || fail "volume $name cannot be mounted: $LAB/client/$name.log"
}
mounted_and_connected() { is_mounted "$LAB/client/$1" && timeout 10 df "$LAB/client/$1" >/dev/null 2>&1; }

start_cluster() {
    local node name
    for ((node = 1; node <= NODES; node++)); do start_glusterd "$node"; done
    for ((node = 2; node <= NODES; node++)); do gluster_quiet 1 peer probe "$(host "$node")"; done
    wait_until 20 peers_connected || fail "the nodes do not connect"
    for name in "${volumes[@]}"; do create_volume "$name"; done
    for name in "${volumes[@]}"; do mount_volume "$name"; done
}

stop_cluster() {
    local node name pid
    gluster_sockets >>"$LAB/sockets"
    for name in "${volumes[@]}"; do
        if is_mounted "$LAB/client/$name"; then umount "$LAB/client/$name" || umount --lazy "$LAB/client/$name"; fi
    done
    if [ -S "$LAB/node1/glusterd.sock" ]; then
        for name in "${volumes[@]}"; do gluster_quiet 1 volume stop "$name" force || true; done
    fi
    for ((node = 1; node <= NODES; node++)); do
        if [ -e "$LAB/node$node/glusterd.pid" ]; then stop "$(cat "$LAB/node$node/glusterd.pid")" || true; fi
    done
    for pid in $(gluster_processes); do stop "$pid" || say "process $pid does not end"; done
    xargs -r rm -f <"$LAB/sockets"
}

# brick_process NODE VOLUME: pid of the process that serves a brick
brick_process() { cat "$LAB/node$1/run/vols/$2/"*.pid | head -n 1; }
brick_online() {
    local detail
    detail=$(gluster_on 1 volume status "$2" "$(host "$1"):$LAB/node$1/fs/$2" 2>/dev/null) && grep -q '^Brick .* Y  *[0-9]' <<<"$(tr '\n' ' ' <<<"$detail" | sed 's/Brick/\nBrick/g')"
}
brick_offline() { ! brick_online "$@"; }
# end_bricks NODE: kills the processes of its bricks
end_bricks() {
    local name pid
    gluster_sockets >>"$LAB/sockets"
    for name in "${volumes[@]}"; do
        pid=$(brick_process "$1" "$name" 2>/dev/null) || continue
        kill -9 "$pid" 2>/dev/null || true
        wait_until 10 gone "$pid"
        # Where nothing reaps it, glusterd takes the dead process for a running one.
        rm -f "$LAB/node$1/run/vols/$name/"*.pid
    done
}
# start_bricks: starts the brick processes that ended, and waits until all are there
start_bricks() {
    local name node
    for name in "${volumes[@]}"; do
        gluster_quiet 1 volume start "$name" force
        for ((node = 1; node <= NODES; node++)); do wait_until 20 brick_online "$node" "$name"; done
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
