#!/bin/bash
# In the guest: a group of xfstests on file systems of kind KIND, over two drives attached by ublk, for LIMIT seconds in all and
# TEST_LIMIT for each test. The tests that failed are then run on the bare disks, whose failures are not of the drives. The
# tree is /share/xfstests; the disks are ${DISK}a and ${DISK}b. TESTS: the tests, in place of the group.
set -uo pipefail
export PUMICE_RUNTIME_DIR=/run/pumice PUMICE_USER=0 PUMICE_CONFIG=/nonexistent/pumice.toml LANG=C
limit=${LIMIT:-1500} test_limit=${TEST_LIMIT:-120}
pumice() { /share/pumice "$@"; }

# Users that tests become, in a root directory that is read-only.
cp /etc/passwd /etc/group /tmp/
for name in fsgqa fsgqa2 123456-fsgqa; do
    id=$((2000 + RANDOM))
    echo "$name:x:$id:$id::/tmp:/bin/bash" >>/tmp/passwd
    echo "$name:x:$id:" >>/tmp/group
done
for file in passwd group; do mount --bind "/tmp/$file" "/etc/$file"; done
mount -t tmpfs tmpfs /var
mkdir -p /var/tmp /var/lib /mnt/test /mnt/scratch /tmp/xfstests
cp -r /share/xfstests/. /tmp/xfstests
cd /tmp/xfstests || exit

end_with_children() {
    local child
    kill -STOP "$1"
    for child in $(pgrep -P "$1"); do end_with_children "$child"; done
    kill -KILL "$1"
}
# Ends a test that takes too long, and all after `limit`.
watch_over() {
    local since=$SECONDS last= began=$SECONDS pid
    while sleep 2; do
        pid=$(pgrep -o -f '^/bin/bash [^ ]*/tests/[a-z0-9]+/[0-9]+$')
        [ "$pid" = "$last" ] || { last=$pid began=$SECONDS; }
        if [ -n "$pid" ] && [ $((SECONDS - began)) -gt "$test_limit" ]; then
            echo "took more than $test_limit s: $(tr '\0' ' ' <"/proc/$pid/cmdline")"
            end_with_children "$pid"
        fi
        if [ $((SECONDS - since)) -gt "$limit" ]; then
            echo "the rest was not run: $limit s are over"
            end_with_children "$(pgrep -o -f '^bash \./check')"
            return
        fi
    done
}
# check_on WHERE TESTS...: leaves the lines of tests in /share/WHERE.log
check_on() {
    local where=$1 watcher
    shift
    export FSTYP=$KIND TEST_DIR=/mnt/test SCRATCH_MNT=/mnt/scratch RESULT_BASE=/tmp/results.$where
    [ "$KIND" = xfs ] && force=-f || force=-F
    "mkfs.$KIND" "$force" -q "$TEST_DEV" || return
    watch_over >>"/share/$where.watch" 2>&1 &
    watcher=$!
    bash ./check "$@" >"/share/$where.log" 2>&1
    kill "$watcher" 2>/dev/null
    umount /mnt/scratch /mnt/test 2>/dev/null
    mkdir -p "/share/results.$where"
    cp -r "$RESULT_BASE/." "/share/results.$where/" 2>/dev/null
}
names() {       # names WHERE passed|failed|notrun
    awk -v wanted="$2" '$1 ~ /^(generic|ext4|xfs|shared)\/[0-9]+$/ {
        # One that was under way at the end has none of these.
        kind = "unfinished"
        if (/ [0-9]+s *$/) kind = "passed"
        if (/\[not run\]|\[expunged\]/) kind = "notrun"
        if (/\[failed|- output mismatch|_check_dmesg|is inconsistent/) kind = "failed"
        if (kind == wanted) print $1 }' "/share/$1.log" | sort -u
}
slow() { sed -n 's|^took more .*tests/||p' "/share/$1.watch" | tr -d ' ' | sort -u; }

for number in 0 1; do
    disk=$DISK$(echo ab | cut -c $((number + 1)))
    blkdiscard -f "$disk" 2>/dev/null
    pumice create "$disk" --capacity 10G --force >/dev/null && device=$(pumice attach "$disk" --by ublk) || exit
    [ "$number" = 0 ] && export TEST_DEV=$device || export SCRATCH_DEV=$device
done
check_on pumice ${TESTS:--g ${GROUP:-quick}}
for disk in ${DISK}a ${DISK}b; do pumice detach "$disk" && pumice check "$disk" || echo "FAILED: $disk is not sound"; done

failed=$(comm -23 <(names pumice failed) <(slow pumice) | xargs)
: >/share/disk.log
if [ -n "$failed" ]; then
    blkdiscard -f ${DISK}a 2>/dev/null
    blkdiscard -f ${DISK}b 2>/dev/null
    export TEST_DEV=${DISK}a SCRATCH_DEV=${DISK}b
    check_on disk $failed
fi
ours=$(comm -23 <(printf '%s\n' $failed | sort) <(names disk failed) | xargs)
echo "$KIND: $(names pumice passed | wc -l) passed, $(names pumice notrun | wc -l) not run, $(slow pumice | wc -l) ended" \
    "after $test_limit s, $(wc -w <<<"$failed") failed, of which $(names disk failed | wc -l) fail on the bare disk too"
[ -z "$ours" ] || { echo "FAILED on drives only: $ours"; exit 1; }
