# Sourced by test.sh: programs that are killed, a drive that is lost, one with flipped bits. What was acknowledged is there.

endpoint() { sed -n 's/^rgw_port=\(.*\)/http:\/\/127.0.0.1:\1/p' "$LAB_DIR/settings"; }
s3() { timeout 300 /usr/bin/python3 -B "$here/lab/s3_objects.py" "$1" "$(endpoint)" "$work/objects" "${@:2}"; }
is_clean() {
    ceph pg stat -f json | jq -e '.pg_summary.num_pgs > 0 and [.pg_summary.num_pg_by_state[] | select(.name | test("^active\\+clean") | not)] == []' >/dev/null
}

objects() {
    check "RGW: objects are put" s3 put 20
    check "RGW: their hashes are right" s3 check
}

# Writes an image over and over, each time with other data which it reads back, until it is told to stop.
pass() { rbd_fio kills r3 image --rw=randwrite --bsrange=4k-64k --size=128M --randseed="$@"; }
write_until_told() {
    local passes=0
    rm -f "$work/enough"
    until [ -e "$work/enough" ]; do
        passes=$((passes + 1))
        echo "$passes" >"$work/passes"
        pass "$passes" || return 1
    done
}
enough() {
    touch "$work/enough"
    wait "$1" || { tail -n 20 "$work/kills.log"; return 1; }
}
# What the last pass wrote is still there.
still_there() { pass "$(<"$work/passes")" --verify_only; }

attachment() { cat "$PUMICE_RUNTIME_DIR"-attach/*/attachment.json | jq -r --arg path "$LAB_DIR/drives/osd.$1" "select(.path == \$path) | $2"; }
has_another_server() {
    local now
    now=$(attachment "$1" '.server_pid // empty') && [ -n "$now" ] && [ "$now" != "$2" ] && kill -0 "$now"
}
# The same process before and after, over another server.
outlives_its_server() {
    local pid server
    pid=$(osd_pid "$1") && server=$(attachment "$1" '.server_pid // empty') && [ -n "$server" ] || return 1
    lab drive kill "$1" && within 30 has_another_server "$1" "$server" && sleep 3 && all_running || return 1
    [ "$(osd_pid "$1")" = "$pid" ]
}
up_from() { ceph osd dump -f json | jq -e --argjson osd "$1" '.osds[] | select(.osd == $osd) | .up_from'; }
is_up_since() {
    local now
    now=$(up_from "$1") && [ "$now" -gt "$2" ] && all_running
}
killed_and_started() {
    local before
    before=$(up_from "$1") && lab osd kill "$1" || return 1
    if osd_pid "$1"; then return 1; fi
    lab osd start "$1" && within 60 is_up_since "$1" "$before"
}

# One fault after the other under a writer; each OSD comes back before the next one goes.
kills() {
    write_until_told >"$work/kills.log" 2>&1 &
    local writer=$! osd
    for osd in $(osds_of | head -n 3); do
        sleep 3
        check "the server of osd.$osd's drive is killed; osd.$osd stays" outlives_its_server "$osd"
        check "osd.$osd is killed, and started" killed_and_started "$osd"
        check "placement groups are clean" within 180 is_clean
    done
    check "objects are put meanwhile" s3 put 10
    check "RBD: every acknowledged byte is there" enough "$writer"
    echo "        $(<"$work/passes") times 128 MiB"
    check "RGW: their hashes are right" s3 check
}

rebuilt() {
    lab osd destroy "$1" && lab osd create && within 240 is_clean
}
a_lost_drive() {
    local osd
    osd=$(osds_of | tail -n 1)
    check "osd.$osd is lost with its drive; another one is built" rebuilt "$osd"
    check "RBD: every acknowledged byte is there" still_there
    check "RGW: the hashes are right" s3 check
    check "HEALTH_OK" within 120 is_healthy
}

deep_scrub() {
    local began pg pgs
    # As Ceph writes it, in the time of this place.
    began=$(date +%Y-%m-%dT%H:%M:%S)
    pgs=$(ceph pg dump pgs_brief -f json | jq -r '.pg_stats[].pgid') && [ -n "$pgs" ] || return 1
    for pg in $pgs; do ceph pg deep-scrub "$pg" || return 1; done
    within 400 scrubbed_since "$began"
}
scrubbed_since() {
    ceph pg dump pgs -f json |
        jq -e --arg since "$1" '(.pg_stats | length > 0) and all(.pg_stats[]; .last_deep_scrub_stamp >= $since)' >/dev/null
}
# Fails if the cluster does not say.
inconsistent() { ceph pg ls inconsistent -f json | jq -r 'if .pg_ready then (.pg_stats // [])[].pgid else error("not ready") end'; }
repaired() {
    local pg bad
    bad=$(inconsistent) || return 1
    for pg in $bad; do ceph pg repair "$pg"; done
    sleep 5
    bad=$(inconsistent) && [ -z "$bad" ] && is_clean
}

# What was in memory at one scrub may be found by the next one.
repaired_and_scrubbed() {
    local _ bad
    for _ in 1 2 3; do
        within 200 repaired && deep_scrub && bad=$(inconsistent) || return 1
        [ -n "$bad" ] || return 0
    done
    echo "$bad"
    return 1
}

drive_status() { "$PUMICE" status --json "$LAB_DIR/drives/osd.$1" | jq -e ".drives[0]$2"; }
# What a killed server left without parity has been read again.
is_covered() { drive_status "$1" '.parity.segments_uncovered_count == 0'; }
segment_bytes() { drive_status "$1" .segment_bytes; }
# How far the next page is that has the same parity as one.
group_bytes() { drive_status "$1" ' | (.segment_bytes / 4096 / 32 - 1) * 4096'; }
# Flips bits of the drive of an OSD that is stopped: osd_bits OSD COUNT [ARGUMENTS]
osd_bits() {
    # Not where the drive keeps its own tables, of which it has more copies.
    /usr/bin/python3 -B "$here/lab/flip_bits.py" "$LAB_DIR/drives/osd.$1" "$2" "$seed" --from $((32 << 20)) "${@:3}" >"$work/flipped"
}
# Stops an OSD. Nothing of its drive is in memory then.
stopped_with_nothing_in_memory() {
    # RocksDB's log would be hit first, and then the OSD cannot start.
    ceph tell "osd.$1" compact >/dev/null
    local server
    server=$(attachment "$1" '.server_pid // empty') && [ -n "$server" ] || return 1
    lab osd stop "$1" && lab drive kill "$1" && within 30 has_another_server "$1" "$server" && within 60 is_covered "$1"
}

# Within what parity covers: Ceph does not notice.
mended_bits() {
    local osd
    osd=$(osds_of | sed -n 2p)
    check "osd.$osd is stopped; all of its drive has parity" stopped_with_nothing_in_memory "$osd"
    check "40 bits of osd.$osd's drive are flipped" osd_bits "$osd" 40 --spread "$(segment_bytes "$osd")"
    check "osd.$osd starts" osd_runs "$osd"
    check "a deep scrub finds nothing" finds_nothing
    check "the drive has mended pages" drive_status "$osd" '.parity.repaired_pages_count > 0'
    echo "        mended pages: $(drive_status "$osd" .parity.repaired_pages_count)"
    # A scrub would clear it. The module looks at drives every 5 seconds.
    check "PUMICE_CORRUPT is not raised" stays_cleared 15 PUMICE_CORRUPT
    check "a scrub of the drive mends the rest" timeout 200 "$PUMICE" check --deep --rate 1G "$LAB_DIR/drives/osd.$osd"
    check "the drive has lost nothing" drive_status "$osd" '.parity.lost_pages_count == 0'
    check "RBD: every acknowledged byte is there" still_there
    check "RGW: the hashes are right" s3 check
    check "HEALTH_OK" within 120 is_healthy
}
osd_runs() { lab osd start "$1" && within 60 all_running; }
stays_cleared() {
    local until=$((SECONDS + $1))
    while [ $SECONDS -lt $until ]; do cleared "$2" || return 1; sleep 1; done
}
finds_nothing() {
    local bad
    deep_scrub && bad=$(inconsistent) && [ -z "$bad" ]
}

# Beyond that, as two pages with the same parity are hit: Ceph repairs.
flipped_bits() {
    local osd
    osd=$(osds_of | sed -n 2p)
    check "osd.$osd is stopped" stopped_with_nothing_in_memory "$osd"
    check "40 times two bits of osd.$osd's drive are flipped" osd_bits "$osd" 40 --pair "$(group_bytes "$osd")"
    check "osd.$osd starts, or is built anew" started_or_rebuilt "$osd"
    check "a deep scrub" deep_scrub
    echo "        inconsistent placement groups: $(inconsistent | wc -l)"
    if [ ! -e "$work/rebuilt" ]; then check "PUMICE_CORRUPT is raised" within 30 raised PUMICE_CORRUPT; fi
    check "repaired, until a deep scrub finds nothing" repaired_and_scrubbed
    check "RBD: every acknowledged byte is there" still_there
    check "RGW: the hashes are right" s3 check
    if [ ! -e "$work/rebuilt" ]; then
        check "PUMICE_CORRUPT is cleared: no fault is left on the drive, or it is a new one" healed "$osd"
    fi
    check "HEALTH_OK" within 120 is_healthy
}
started_or_rebuilt() {
    if osd_runs "$1"; then return; fi
    touch "$work/rebuilt"
    rebuilt "$1"
}
# What Ceph does not read in a deep scrub it does not repair: RocksDB, and space that is free. An OSD whose drive still has faults
# is built anew. The count of repaired reads, which Ceph warns of, ends with the process.
healed() {
    if timeout 200 "$PUMICE" check --deep --rate 1G "$LAB_DIR/drives/osd.$1"; then
        lab osd stop "$1" && lab osd start "$1" || return 1
    else
        rebuilt "$1" || return 1
    fi
    within 60 cleared PUMICE_CORRUPT
}

stopped_and_started() {
    check "the cluster is stopped" lab down --keep
    check "the cluster is started again" lab up
    check "RGW: the hashes are right" s3 check
    check "RBD: every acknowledged byte is there" still_there
}
