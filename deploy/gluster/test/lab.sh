# shellcheck shell=bash
# The lab itself: starts that fail or are killed, labs side by side, what belongs to others, and what is left in the end. Sourced by
# test.sh.

small=384M
# lab NAME COMMAND: lab.sh for another lab of this test
lab() { LAB=$work/$1 SIZE=$small DRIVES=$DRIVES FS=$FS SUBNET=auto "$here/lab.sh" "$2"; }
# left_of NAME
left_of() { (LAB=$work/$1 && remains); }
nothing_left_of() {
    local left
    left=$(left_of "$1")
    [ -z "$left" ] || fail "$2 leaves: $left"
    [ ! -e "$work/$1" ] || fail "$2 leaves $work/$1"
}
has_brick() { [ -n "$(left_of "$1" | grep "^mount .*/node1/fs$")" ]; }

# `up` fails at its end; is ended by a signal; is killed.
step_failed_up() {
    local said signal job code left
    mkdir "$work/bin"
    printf '#!/bin/sh\necho "this client does not start" >&2\nexit 1\n' >"$work/bin/glusterfs"
    chmod 755 "$work/bin/glusterfs"
    # All but the clients is up by then.
    if said=$(PATH=$work/bin:$PATH lab failed up 2>&1); then fail "up without a client succeeds"; fi
    grep -q 'volume replica: its client does not start' <<<"$said" || fail "up does not say why it failed: $said"
    nothing_left_of failed "an up that fails"
    for signal in TERM KILL; do
        lab failed up >"$work/said" 2>&1 &
        job=$!
        wait_until 60 has_brick failed || fail "up makes no brick: $(cat "$work/said")"
        kill -s $signal "$(pgrep -P "$job" -f 'lab\.sh up$' || echo "$job")"
        code=0
        wait "$job" || code=$?
        [ "$code" != 0 ] || fail "up succeeds after SIG$signal"
        left=$(left_of failed)
        if [ $signal = KILL ]; then
            [ -n "$left" ] || fail "there is nothing left after SIGKILL: this tests nothing"
            lab failed down >>"$LAB/log" 2>&1 || fail "down after a killed up: $(tail -n 5 "$LAB/log")"
        fi
        nothing_left_of failed "an up with SIG$signal"
    done
    verify_client replica
    ok "an up that fails at its clients, or gets SIGTERM, says why and leaves nothing; down removes what a killed one left"
}

# Two labs at once, each asked twice to start and to end; numbers and names in them that have become somebody else's.
step_two_labs() {
    local jobs=() job failed=0 name said stranger device foreign=$work/foreign
    for name in a a b; do lab "$name" up >>"$work/up-$name" 2>&1 & jobs+=($!); done
    for job in "${jobs[@]}"; do wait "$job" || failed=$((failed + 1)); done
    [ "$failed" = 1 ] || fail "$failed of three starts of two labs fail: $(cat "$work"/up-*)"
    grep -q "$work/a exists" "$work/up-a" || fail "the second start says: $(cat "$work/up-a")"
    [ "$(cat "$LAB/settings" "$work/a/settings" "$work/b/settings" | grep '^SUBNET=' | sort -u | wc -l)" = 3 ] || fail "labs share addresses"
    for name in a b; do
        random 4 >"$work/data"
        cp "$work/data" "$work/$name/client/replica/file"
        cmp "$work/data" "$work/$name/node2/fs/replica/file" || fail "lab $name does not work"
    done
    verify_everywhere

    # The files of lab a name a process and a device that are not its own.
    sleep 3600 &
    stranger=$!
    truncate -s 64M "$foreign"
    find "$work/a" -name '*.pid' -type f | while read -r name; do echo "$stranger" >"$name"; done
    if [[ $BACKING = pumice && $DRIVES = 1 && $(LAB=$work/a device_of "$work/a/node1/drive1") == /dev/loop* ]]; then
        steal_device a
        [ "$(losetup --noheadings --output BACK-FILE "$device")" = "$foreign" ] || fail "$device was not taken"
    fi
    jobs=()
    for name in a a b; do lab "$name" down >>"$work/down-$name" 2>&1 & jobs+=($!); done
    failed=0
    for job in "${jobs[@]}"; do wait "$job" || failed=$((failed + 1)); done
    [ "$failed" = 1 ] || fail "$failed of three ends of two labs fail: $(cat "$work"/down-*)"
    grep -q 'no lab is there' "$work/down-a" || fail "the second end says: $(cat "$work/down-a")"
    for name in a b; do nothing_left_of "$name" "lab $name"; done
    at_work "$stranger" || fail "a process that is not the lab's was ended"
    kill "$stranger"
    wait "$stranger" || true
    if [ -n "${device:-}" ]; then
        [ "$(losetup --noheadings --output BACK-FILE "$device")" = "$foreign" ] || fail "a device that is not the lab's was detached"
        losetup --detach "$device"
        said="a process and $device"
    fi
    rm "$foreign"
    verify_everywhere
    ok "two labs beside this one, each started and ended twice at once; ${said:-a process} of others that their files name stayed"
}
# steal_device NAME: the bridge of a drive is killed, and its device given to another file; the record of the drive names the stranger
# in place of its bridge and of its server, which lives
steal_device() {
    local LAB=$work/$1 file
    device=$(device_of "$LAB/node1/drive1")
    stop_processes glusterd
    end_bricks 1
    kill_drive 1 bridge
    wait_until 15 umount "$LAB/node1/fs" || umount --lazy "$LAB/node1/fs"
    losetup --detach "$device"
    losetup "$device" "$foreign"
    file=$(grep -l "$LAB/node1/drive1" "$LAB"/run-attach/*/attachment.json)
    jq --argjson pid "$stranger" '.bridge_pid = $pid | .server_pid = $pid' "$file" >"$work/record"
    cat "$work/record" >"$file"
    has_server 1 || fail "the server has ended: this tests less"
}

# The lab ends, and nothing of it is left on the machine.
step_nothing_left() {
    local seen left name=${work##*/} kind pid rest namespace kinds
    kinds=('process .* glusterd ' 'process .* glusterfsd ' 'process .* pumice ' 'process .* bash ' mount attachment socket)
    [ "$DRIVES" = 1 ] || kinds+=(volume)
    [[ $(device_of "$LAB/node1/drive1") != /dev/loop* ]] || kinds+=(device)
    TRIM_SECONDS=3600 "$here/lab.sh" timer
    traces >"$work/traces"
    # What is looked for would be seen.
    seen=$(remains)
    for kind in "${kinds[@]}"; do
        grep -q "^$kind" <<<"$seen" || fail "a running lab shows no '$kind': $seen"
    done
    while read -r pid rest; do
        namespace=$(readlink "/proc/$pid/ns/net") || continue
        [ "$namespace" = "$(readlink /proc/self/ns/net)" ] || fail "process $pid has a network namespace of its own: $rest"
    done < <(lab_processes)
    "$here/lab.sh" down
    left=$(TRACES=$work/traces remains)
    [ -z "$left" ] || fail "$left"
    [ ! -e "$LAB" ] || fail "$LAB is still there"
    left=$(find /run /dev /var/lib/glusterd /var/log/glusterfs /etc/lvm -xdev -name "*$name*" 2>/dev/null || true)
    left+=$(grep -rlsF "$name" /run/gluster /var/lib/glusterd /var/log/glusterfs /etc/lvm || true)
    left+=$(grep -hF "$name" /proc/[0-9]*/mountinfo 2>/dev/null | cut -d' ' -f5 | sort -u || true)
    [ -z "$left" ] || fail "files or mounts: $left"
    ok "no process, mount, device, namespace, socket, link or file of the lab"
}
