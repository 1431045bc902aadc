# shellcheck shell=bash
# Lost servers, bridges, bricks and drives, at writes and at heals. Sourced by test.sh.

# kill_drive NODE server|bridge: SIGKILL; fails if there is no such process
kill_drive() {
    local pid start
    read -r pid start < <(drive_process "$1" "$2") || fail "node $1 has no $2"
    kill_process KILL "$pid" "$start"
    wait_until 10 has_ended "$pid" "$start"
}
has_server() { drive_process "$1" server >/dev/null; }
# at_work JOB: it has not ended
at_work() { kill -0 "$1" 2>/dev/null; }

# A drive's server is killed under load, three times: clients notice nothing.
step_server() {
    local fio n
    fio_on replica --name=load --rw=randwrite --bs=4k --size=64M --direct=1 --iodepth=16 --ioengine=libaio --verify=crc32c --rate=12m &
    fio=$!
    for n in 1 2 3; do
        sleep 1
        at_work "$fio" || fail "fio has ended before kill $n"
        # That of the last kill has been started again.
        wait_until 30 has_server 1 || fail "no server after kill $((n - 1))"
        kill_drive 1 server
    done
    wait "$fio" || fail "fio failed"
    # Files count as unhealed until Gluster has closed their last transaction, a second after the last write.
    wait_until 20 healed || fail "there is something to heal: $(unhealed replica)"
    rm "$LAB"/client/replica/load.*
    verify_everywhere
    ok "kill -9 of the server of node 1, three times under fio: 64 MiB verified, nothing to heal"
}

# The process of a brick is killed while files are written, and started again.
step_brick() {
    local writer behind
    write_files replica brick 12 4 &
    writer=$!
    sleep 0.5
    at_work "$writer" || fail "all was written before the kill"
    end_bricks 2 replica
    at_work "$writer" || fail "all was written before the kill"
    wait "$writer" || fail "the client saw an error"
    if brick_process 2 replica; then fail "the brick is still there"; fi
    if brick_is_complete 2; then fail "the brick has missed nothing: this tests nothing"; fi
    verify_client replica
    behind=$(($(number_of replica) - $(files_left "$LAB/node2/fs/replica" replica)))
    start_bricks
    heal || fail "not healed: $(unhealed replica)"
    verify_everywhere
    ok "kill -9 of a brick of node 2 while 12 files were written: no client error, $behind files not on it, healed: $(number_of replica) files equal on all bricks"
}

# A brick is lost: server and bridge of its drive are killed under load, which is a power cut of that node's drive.
step_bridge() {
    local behind writer
    if [[ $(device_of "$LAB/node1/drive1") == /dev/ublkb* ]]; then
        echo "skipped: bridge: a ublk device waits for the next bridge, and no brick is lost (make test-kernel)"
        return
    fi
    write_files replica under 12 4 &
    writer=$!
    sleep 0.3
    at_work "$writer" || fail "all was written before the kill"
    kill_drive 1 bridge
    if has_server 1; then kill_drive 1 server; fi
    at_work "$writer" || fail "all was written before the kill"
    wait "$writer" || fail "the client saw an error"
    # The file system of the brick has failed. Gluster ends the processes of the brick within a minute; until then they answer with errors.
    write_files replica lost 4 4 || fail "the client saw an error without the brick"
    end_bricks 1
    stop_brick 1 --force
    start_brick 1
    if brick_is_complete 1; then fail "the brick has missed nothing: this tests nothing"; fi
    start_bricks
    behind=$(unhealed replica) || behind=-
    heal || fail "not healed: $(unhealed replica)"
    verify_everywhere
    ok "server and bridge of node 1 killed while 16 files were written: no client error, $behind entries to heal, $(number_of replica) files equal on all bricks"
}

# A drive is destroyed, with all that was on it: a new one takes the brick's place.
step_destroy() {
    local brick left lost expected node
    brick=$(host 1):$LAB/node1/fs/replica
    end_bricks 1
    # Of the distributed volume what is on the other nodes is left, and nothing else.
    expected=$(for ((node = 2; node <= NODES; node++)); do files_left "$LAB/node$node/fs/distributed" distributed; done | awk '{ n += $1 } END { print n }')
    kill_drive 1 server
    stop_brick 1 --force
    rm "$LAB"/node1/drive*
    write_files replica destroyed 4 4 || fail "the client saw an error"
    verify_client replica
    remount distributed
    left=$(files_left "$LAB/client/distributed" distributed)
    lost=$(($(number_of distributed) - left))
    [ "$left" = "$expected" ] && [ "$left" -gt 0 ] && [ "$lost" -gt 0 ] || fail "of the distributed volume $left files are left, $expected expected, $lost lost"
    start_brick 1
    # A distributed volume has nothing to rebuild from: it is made anew.
    umount "$LAB/client/distributed"
    gluster_must 1 volume stop distributed force
    gluster_must 1 volume delete distributed
    rm -rf "$LAB"/node*/fs/distributed
    gluster_must 1 volume reset-brick replica "$brick" start
    mkdir "$LAB/node1/fs/replica"
    gluster_must 1 volume reset-brick replica "$brick" "$brick" commit force
    create_volume distributed
    mount_volume distributed
    : >"$LAB/distributed.sha256"
    start_bricks
    heal || fail "not healed: $(unhealed replica)"
    wait_until 60 brick_is_complete 1 || fail "the new brick is not complete"
    write_files distributed second 4 4
    verify_everywhere
    ok "drive of node 1 destroyed and replaced: $(number_of replica) files of the replica are on all bricks again; of the distributed volume $lost of $((lost + left)) files are lost"
}

# Brick, server and bridge are killed while a brick that was away is healed.
step_heal() {
    local victim try left report=
    for victim in brick source server bridge; do
        if [ "$victim" = bridge ] && [[ $(device_of "$LAB/node1/drive1") == /dev/ublkb* ]]; then continue; fi
        # A heal may be faster than the kill.
        for try in 1 2 3 4; do
            left=0
            kill_at_heal "$victim" "heal-$victim"
            wait_until 60 start_bricks || fail "the bricks do not start after the loss of the $victim"
            heal || fail "not healed after the loss of the $victim: $(unhealed replica)"
            verify_everywhere
            forget replica "heal-$victim"
            [ "$left" = 0 ] || break
        done
        [ "$left" -gt 0 ] || fail "all was healed before each of $try kills of the $victim"
        report+="${report:+, }$victim $left"
    done
    trim_bricks
    ok "killed during a heal of 96 MiB to node 1, with so many MiB to go: $report; healed then, $(number_of replica) files equal on all bricks"
}
# kill_at_heal VICTIM PREFIX: sets `left` to the MiB that were not healed then
kill_at_heal() {
    local pid start
    # Gluster heals by itself as soon as the brick is back.
    gluster_must 1 volume set replica cluster.self-heal-daemon off
    end_bricks 1 replica
    write_files replica "$2" 4 24 random || fail "the client saw an error without a brick"
    start_bricks
    [ "$(heal_left "$2")" = 96 ] || fail "healed without the daemon that heals"
    read -r pid start < <(
        case $1 in
            brick) brick_process 1 replica ;;
            source) brick_process 2 replica ;;
            *) drive_process 1 "$1" ;;
        esac
    ) || fail "there is no $1 to kill"
    gluster_must 1 volume set replica cluster.self-heal-daemon on
    wait_until 60 heal_has_begun "$2" || fail "no heal begins"
    kill_process KILL "$pid" "$start" || fail "the $1 has ended by itself"
    case $1 in
        brick) end_bricks 1 replica ;;
        source) end_bricks 2 replica ;;
        bridge)
            if has_server 1; then kill_drive 1 server; fi
            end_bricks 1
            stop_brick 1 --force
            start_brick 1
            ;;
    esac
    left=$(heal_left "$2")
}
# heal_left PREFIX: MiB of the four files that are not on node 1 yet
heal_left() { echo $((96 - $(du -cm /dev/null "$LAB/node1/fs/replica/$1"-* 2>/dev/null | tail -n 1 | cut -f1))); }
heal_has_begun() { [ "$(heal_left "$1")" -lt 96 ]; }
