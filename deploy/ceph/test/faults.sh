# Sourced by test.sh: programs that are killed, a drive that is lost, one with flipped bits. What was acknowledged is there.

endpoint() { sed -n 's/^rgw_port=\(.*\)/http:\/\/127.0.0.1:\1/p' "$LAB_DIR/settings"; }
s3() { timeout 300 /usr/bin/python3 -B "$here/lab/s3_objects.py" "$1" "$(endpoint)" "$work/objects" "${@:2}"; }
is_clean() {
    ceph pg stat -f json | jq -e '[.pg_summary.num_pg_by_state[] | select(.name | test("^active\\+clean") | not)] == []' >/dev/null
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

# One fault after the other under a writer; each OSD comes back before the next one goes.
kills() {
    write_until_told >"$work/kills.log" 2>&1 &
    local writer=$! osd
    for osd in $(osds_of | head -n 3); do
        sleep 3
        check "the server of osd.$osd's drive is killed; osd.$osd stays" eval "lab drive kill $osd && sleep 3 && all_running"
        check "osd.$osd is killed, and started" eval "lab osd kill $osd && sleep 2 && lab osd start $osd && within 60 all_running"
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
    local began pg
    began=$(date -u +%Y-%m-%dT%H:%M:%S)
    for pg in $(ceph pg dump pgs_brief -f json | jq -r '.pg_stats[].pgid'); do ceph pg deep-scrub "$pg"; done
    within 400 scrubbed_since "$began"
}
scrubbed_since() {
    ceph pg dump pgs -f json |
        jq -e --arg since "$1" '[.pg_stats[] | select(.last_deep_scrub_stamp < $since)] == []' >/dev/null
}
inconsistent() { ceph pg ls inconsistent -f json | jq -r '.pg_stats[]?.pgid'; }
repaired() {
    local pg
    for pg in $(inconsistent); do ceph pg repair "$pg"; done
    sleep 5
    [ -z "$(inconsistent)" ] && is_clean
}

# What was in memory at one scrub may be found by the next one.
repaired_and_scrubbed() {
    local _
    for _ in 1 2 3; do
        within 200 repaired && deep_scrub || return 1
        [ -n "$(inconsistent)" ] || return 0
    done
    inconsistent
    return 1
}

flipped_bits() {
    local osd
    osd=$(osds_of | sed -n 2p)
    # RocksDB's log would be hit first, and then the OSD cannot start.
    ceph tell "osd.$osd" compact >/dev/null
    # Not where the drive keeps its own tables, of which it has two copies.
    /usr/bin/python3 -B "$here/lab/flip_bits.py" "$LAB_DIR/drives/osd.$osd" 40 "$seed" $((32 << 20)) >"$work/flipped"
    # What is in the memory of either would hide it.
    lab osd stop "$osd"
    lab drive kill "$osd"
    check "40 bits of osd.$osd's drive are flipped; it starts, or is built anew" started_or_rebuilt "$osd"
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
    if lab osd start "$1" && within 60 all_running; then
        return
    fi
    touch "$work/rebuilt"
    rebuilt "$1"
}
# What Ceph does not read in a deep scrub it does not repair: RocksDB, and space that is free. An OSD whose drive still has faults
# is built anew. The count of repaired reads, which Ceph warns of, ends with the process.
healed() {
    if timeout 200 "$PUMICE" check --deep --rate 1G "$LAB_DIR/drives/osd.$1"; then
        lab osd stop "$1" && lab osd start "$1"
    else
        rebuilt "$1"
    fi
    within 60 cleared PUMICE_CORRUPT
}

stopped_and_started() {
    check "the cluster is stopped" lab down --keep
    check "the cluster is started again" lab up
    check "RGW: the hashes are right" s3 check
    check "RBD: every acknowledged byte is there" still_there
}
