# Sourced by test.sh: drives are filled with data that does not compress, under an image whose bytes are verified at the end.

full_osds() { drives '.osds[] | select(.level == "full") | .osd'; }
no_write_refused() { [ "$(drives '[.osds[] | select(.physical_used_ratio >= 1)] | length')" = 0 ]; }
grow() { "$PUMICE" set-size "$LAB_DIR/drives/osd.$1" "$2"; }
has_ended() { ! kill -0 "$1" 2>/dev/null; }

# start_filling SIZE: the image's writer, twice SIZE on six drives of 512 MiB each, of which each gets another share.
start_filling() {
    rbd create r2/fill --size "$1" --image-feature layering
    rbd_fio fill r2 fill --rw=write --bs=256k --size="$1" --buffer_compress_percentage=0 >"$work/fill.log" 2>&1 &
    filling=$!
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

full_and_protected() {
    start_filling 1G
    check "PUMICE_FULL is raised" within 200 raised PUMICE_FULL
    check "Ceph knows the OSD as full" within 30 raised OSD_FULL
    sleep 15
    check "no write was refused, all OSDs run" eval 'no_write_refused && all_running && ! has_ended $filling'
    ceph pumice status | sed 's/^/        /'
    check "grown: the writer goes on and ends" grow_until_written 2G
    check "every byte is there" verified
    check "PUMICE_FULL is cleared" within 60 cleared PUMICE_FULL
    check "OSD_FULL is cleared" within 60 cleared OSD_FULL
    check "HEALTH_OK" within 120 is_healthy
    check "the image is removed" remove_filling
}

# Every drive counts as full by limits of next to nothing: each way to protect does its thing, and undoes it.
option() { ceph config set mgr "mgr/pumice/$1" "$2"; }
limits() { option nearfull_ratio "$1" && option backfillfull_ratio "$2" && option full_ratio "$3"; }
flag_is_set() { ceph osd dump -f json | jq -e '.flags_set | index("pausewr")' >/dev/null; }
flag_is_not_set() { ! flag_is_set; }
weights_are() { ceph osd dump -f json | jq -e --argjson weight "$1" 'all(.osds[]; .weight - $weight | fabs < 0.01)' >/dev/null; }
ways_to_protect() {
    check "protect = cluster-pause: the flag is set" eval 'option hysteresis 0 && limits 0.0001 0.0001 0.0001 &&
        option protect cluster-pause && within 30 flag_is_set'
    check "protect = reweight: the flag is removed, weights are less" eval 'option protect reweight && within 30 flag_is_not_set &&
        within 30 weights_are 0.8'
    check "protect = osd-full: weights are back, OSDs are full" eval 'option protect osd-full && within 30 weights_are 1 &&
        within 30 raised OSD_FULL'
    check "limits as before: nothing is full" eval 'limits 0.85 0.90 0.95 && option hysteresis 0.02 && within 60 is_healthy'
}

# Without protection OSDs end at the first refused write. Whoever grows their drives and starts them has all data.
full_and_not_protected() {
    ceph config set mgr mgr/pumice/protect none
    local smallest
    # Small again: other OSDs on new drives.
    smallest=$(osds_of | head -n 1)
    check "an OSD on a small drive again" rebuilt "$smallest"
    start_filling 2G
    check "its writes are refused, an OSD ends" within 300 raised OSD_DOWN
    check "grown and started until all is written" within 300 revived_and_ended
    check "every byte is there" verified
    check "the image is removed" remove_filling
    check "HEALTH_OK" within 180 is_healthy
    ceph config set mgr mgr/pumice/protect osd-full
}
revived_and_ended() {
    local osd
    for osd in $(ceph osd tree down -f json | jq -r '.nodes[] | select(.type == "osd") | .id'); do
        grow "$osd" 2G
        lab osd start "$osd"
    done
    has_ended "$filling"
}
