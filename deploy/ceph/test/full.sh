# Sourced by test.sh: drives are filled with data that does not compress, under an image whose bytes are verified at the end.

full_osds() { drives '.osds[] | select(.level == "full") | .osd'; }
# Writes that drives refused, of all of them: each server counts since it opened its drive.
refused_writes() {
    lab run pumice status --json |
        jq -e --argjson drives "$(osds_of | wc -l)" '.drives | if length == $drives then map(.server.requests.no_space_count) | add else error("not all drives are served") end'
}
no_write_refused() { [ "$(refused_writes)" = 0 ]; }
some_write_refused() { [ "$(refused_writes)" -gt 0 ]; }
grow() { "$PUMICE" set-size "$LAB_DIR/drives/osd.$1" "$2"; }
has_ended() { ! kill -0 "$1" 2>/dev/null; }

# start_filling SIZE: the image's writer, twice SIZE on six drives of 512 MiB each, of which each gets another share.
start_filling() {
    rbd create r2/fill --size "$1" --image-feature layering
    rbd_fio fill r2 fill --rw=write --bs=256k --size="$1" --buffer_compress_percentage=0 >"$work/fill.log" 2>&1 &
    filling=$!
}
# fio itself: `timeout` above it would pass on no SIGKILL.
kill_filling() {
    local above
    above=$(pgrep -P "$filling" -x timeout) && kill -9 "$(pgrep -P "$above" -x fio)" && ! wait "$filling"
}
verified() { wait "$filling" || { tail -n 20 "$work/fill.log"; return 1; }; }
remove_filling() { rbd rm r2/fill --no-progress; }

grow_the_full() {
    local osd
    for osd in $(full_osds); do grow "$osd" "$1" || return 1; done
}
# Growing one lets the writer go on, until the next one is full.
grow_until_written() {
    within 300 grown_and_ended "$1"
}
grown_and_ended() {
    grow_the_full "$1"
    has_ended "$filling"
}

# An image and objects are deleted while an OSD is full: that is not blocked, and gives space back.
put_victims() {
    rbd create r2/victim --size 24M --image-feature layering &&
        rbd_fio victim r2 victim --rw=write --bs=1M --do_verify=0 --size=24M --buffer_compress_percentage=0 &&
        dd if=/dev/urandom of="$work/blob" bs=1M count=4 status=none &&
        rados -p r2 put victim-1 "$work/blob" && rados -p r2 put victim-2 "$work/blob"
}
deletions_at_full() {
    local before
    before=$(physical_used)
    check "deleted at full: an image" rbd rm r2/victim --no-progress
    check "deleted at full: objects" eval 'rados -p r2 rm victim-1 --force-full && rados -p r2 rm victim-2 --force-full'
    check "their space is free again" within 60 is_below $((before - (32 << 20)))
    ceph pumice status | sed 's/^/        /'
}

full_and_protected() {
    check "an image and objects to be deleted later" put_victims
    start_filling 1G
    check "PUMICE_FULL is raised" within 200 raised PUMICE_FULL
    check "Ceph knows the OSD as full" within 30 raised OSD_FULL
    sleep 15
    check "no write was refused, all OSDs run" eval 'no_write_refused && all_running && ! has_ended $filling'
    ceph pumice status | sed 's/^/        /'
    deletions_at_full
    check "grown: the writer goes on and ends" grow_until_written 2G
    check "every byte is there" verified
    check "PUMICE_FULL is cleared" within 60 cleared PUMICE_FULL
    check "OSD_FULL is cleared" within 60 cleared OSD_FULL
    # Drives that were not full have not been grown, and may be nearly full now.
    check "the image is removed" remove_filling
    check "HEALTH_OK" within 120 is_healthy
}

# What was written until a drive was full is deleted: nothing has to be grown.
full_and_deleted() {
    start_filling 1G
    check "PUMICE_FULL is raised" within 200 raised PUMICE_FULL
    check "Ceph knows the OSD as full" within 30 raised OSD_FULL
    # A client that is gone is a watcher of its image for half a minute.
    check "deleted at full: the image under its writer, which was killed" eval 'kill_filling && within 90 remove_filling'
    check "PUMICE_FULL is cleared" within 60 cleared PUMICE_FULL
    check "no write was refused, all OSDs run" eval 'no_write_refused && all_running'
    check "HEALTH_OK" within 60 is_healthy
}

# Every drive counts as full by limits of next to nothing: each way to protect does its thing, and undoes it.
option() { ceph config set mgr "mgr/pumice/$1" "$2"; }
limits() { option nearfull_ratio "$1" && option backfillfull_ratio "$2" && option full_ratio "$3"; }
flag_is_set() { ceph osd dump -f json | jq -e '.flags_set | index("pausewr") != null' >/dev/null; }
flag_is_not_set() { ceph osd dump -f json | jq -e '.flags_set | index("pausewr") == null' >/dev/null; }
weights_are() { ceph osd dump -f json | jq -e --argjson weight "$1" '(.osds | length > 0) and all(.osds[]; .weight - $weight | fabs < 0.01)' >/dev/null; }
nothing_is_noted() { ceph pumice status --format json | jq -e '.done == {pause: null, weights: {}, told: {}}' >/dev/null; }
ways_to_protect() {
    check "protect = cluster-pause: the flag is set" eval 'option hysteresis 0 && limits 0.0001 0.0001 0.0001 &&
        option protect cluster-pause && within 30 flag_is_set'
    check "protect = reweight: the flag is removed, weights are less" eval 'option protect reweight && within 30 flag_is_not_set &&
        within 30 weights_are 0.8'
    check "protect = osd-full: weights are back, OSDs are full" eval 'option protect osd-full && within 30 weights_are 1 &&
        within 30 raised OSD_FULL'
    check "limits as before: nothing is full" eval 'limits 0.85 0.90 0.95 && option hysteresis 0.02 && within 60 is_healthy'
    check "nothing is noted any more" within 20 nothing_is_noted
}

# The manager is killed in the middle; an administrator takes back what it did; options are wrong.
everything_full() { option hysteresis 0 && limits 0.0001 0.0001 0.0001; }
nothing_full() { limits 0.85 0.90 0.95 && option hysteresis 0.02; }
kill_manager() {
    kill -9 "$(cat "$LAB_DIR/run/mgr.x.pid")" && sleep 1 && lab mgr start
}
stays() {       # stays SECONDS COMMAND...: it is so all the time
    local until=$((SECONDS + $1))
    shift
    while [ $SECONDS -lt $until ]; do
        "$@" || { echo "not any more: $*"; return 1; }
        sleep 1
    done
}
taken_back_by_hand() {
    check "protect = cluster-pause; the manager is killed when the flag is set" eval 'option protect cluster-pause && everything_full &&
        within 30 flag_is_set && kill_manager'
    check "the next manager removes the flag" eval 'within 60 raised PUMICE_FULL && flag_is_set && nothing_full && within 60 flag_is_not_set'
    check "the flag is set again, and removed by hand" eval 'everything_full && within 30 flag_is_set && ceph osd unset pause'
    check "it stays removed, and PUMICE_PROTECTION says so" eval 'within 20 raised PUMICE_PROTECTION && stays 15 flag_is_not_set'
    check "also by another manager" eval 'kill_manager && within 60 raised PUMICE_PROTECTION && stays 10 flag_is_not_set'
    check "the flag is set by hand: it is not removed" eval 'ceph osd set pause && nothing_full && within 30 nothing_is_noted && stays 10 flag_is_set &&
        ceph osd unset pause'
    check "protect = reweight: weights of hand stay" eval 'option protect reweight && everything_full && within 30 weights_are 0.8 &&
        reweight_all 0.9 && stays 15 weights_are 0.9 && nothing_full && within 30 nothing_is_noted && weights_are 0.9 && reweight_all 1'
    check "protect = osd-full: an OSD that is told that it is not full stays so" eval 'option protect osd-full && everything_full &&
        within 60 all_full && within 20 all_noted_as seen && ceph tell "osd.*" injectfull none && within 20 none_full && stays 15 none_full && nothing_full'
    check "HEALTH_OK" within 60 is_healthy
    check "nothing is noted any more" within 20 nothing_is_noted
}
reweight_all() {
    local osd
    for osd in $(osds_of); do ceph osd reweight "$osd" "$1" || return 1; done
}
full_in_map() { ceph osd dump -f json | jq '[.osds[] | select(.state | index("full"))] | length'; }
all_full() { [ "$(full_in_map)" = "$(osds_of | wc -l)" ]; }
none_full() { [ "$(full_in_map)" = 0 ]; }
all_noted_as() { ceph pumice status --format json | jq -e --arg state "$1" '(.done.told | length > 0) and all(.done.told[]; .state == $state)' >/dev/null; }

# Without protection OSDs end at the first refused write. Whoever grows their drives and starts them has all data.
full_and_not_protected() {
    option protect none
    local smallest
    # Small again: other OSDs on new drives.
    smallest=$(osds_of | head -n 1)
    check "an OSD on a small drive again" rebuilt "$smallest"
    start_filling 2G
    check "its writes are refused, an OSD ends" within 300 raised OSD_DOWN
    check "a drive has refused writes" some_write_refused
    check "grown and started until all is written" within 300 revived_and_ended
    check "every byte is there" verified
    check "the image is removed" remove_filling
    check "HEALTH_OK" within 180 is_healthy
    option protect osd-full
}
revived_and_ended() {
    local osd
    for osd in $(ceph osd tree down -f json | jq -r '.nodes[] | select(.type == "osd") | .id'); do
        grow "$osd" 2G
        lab osd start "$osd"
    done
    has_ended "$filling"
}
