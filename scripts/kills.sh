#!/usr/bin/env bash
# Kills the server of an attached drive (kill -9) below PostgreSQL, ext4 and XFS, fifty times each, and verifies that
# nothing acknowledged is lost, although the kernel is told not to send flushes. Half of the kills meet a server that has
# just been started and may still be opening the drive. At the end the file system, the database and the drive are
# checked, and the kernel must not have seen an error of the device (docs/explanation/power-cuts.md).
#
# scripts/kills.sh [--kills N] [--by loop] [--stores postgresql,ext4,xfs] [--flushes]
#   --kills N   kills for each store (50)
#   --by WAY    way to attach: loop, ublk, nbd
#   --stores    what is on the drives, one after the other
#   --flushes   let the kernel send flushes
#
# PUMICE names the program; else the released one is built. Needs root and 3 GiB in KILLS_DIR (the temporary directory), and what
# `scripts/deps.sh kills` installs. Prints a line for each store. Logs and the drive of a failure stay.
set -uo pipefail
cd "$(dirname "$0")/.."
export PATH="$HOME/.cargo/bin:$PATH:/usr/local/sbin:/usr/sbin:/sbin"
kills=50 by=loop stores=postgresql,ext4,xfs flushes=
while [ $# -gt 0 ]; do
    case $1 in
        --kills) kills=$2; shift 2 ;;
        --by) by=$2; shift 2 ;;
        --stores) stores=$2; shift 2 ;;
        --flushes) flushes=yes; shift ;;
        *) echo "kills: unknown argument $1: expected --kills, --by, --stores or --flushes" >&2; exit 2 ;;
    esac
done
skip() { echo "skipped: kills of the server under PostgreSQL, ext4 and XFS: $*"; exit 0; }
[ "$(id -u)" = 0 ] || skip "attaching needs root"
[ "$by" != loop ] || { [ -e /dev/fuse ] && [ -e /dev/loop-control ]; } || skip "no /dev/fuse or no /dev/loop-control"
for tool in jq fio mkfs.ext4 fsck.ext4 mkfs.xfs xfs_repair flock; do
    command -v "$tool" >/dev/null || skip "no $tool"
done
postgres=$(find /usr/lib/postgresql -path '*/bin/pg_amcheck' -printf '%h\n' 2>/dev/null | sort -V | tail -n 1)
case ,$stores, in *,postgresql,*) [ -n "$postgres" ] || skip "no PostgreSQL" ;; esac
program=${PUMICE:-${CARGO_TARGET_DIR:-target}/release/pumice}
[ -x "$program" ] || cargo build --release --locked -q -p pumice || exit
program=$(realpath "$program")
base=$(mktemp -d "${KILLS_DIR:-${TMPDIR:-/tmp}}/pumice-kills.XXXXXX")
# PostgreSQL has its socket here.
chmod 755 "$base"
export PUMICE_RUNTIME_DIR=$base/run PUMICE_USER=0 PUMICE_CONFIG=/nonexistent/pumice.toml
drive=$base/drive point=$base/mount device='' killed='' kept=''

pumice() { "$program" "$@"; }
fail() {
    echo "FAILED: $store: $*; logs and the drive are in $base" >&2
    kept=yes
    cp "$base"/run-attach/*/*.log "$base" 2>/dev/null
    exit 1
}
finish() {
    touch "$base/end"
    # Writers end by themselves, or with the device.
    jobs -p | xargs -r kill 2>/dev/null
    [ -z "$(cat "$point/pg/postmaster.pid" 2>/dev/null)" ] || as_postgres "$postgres/pg_ctl" -D "$point/pg" -m immediate -s stop
    umount "$point" 2>/dev/null || umount -l "$point" 2>/dev/null
    [ -z "$device" ] || pumice detach --force "$device"
    umount "$base/run" 2>/dev/null
    [ -n "$kept" ] || rm -rf --one-file-system "$base"
}
trap finish EXIT
trap 'exit 130' INT TERM

mkdir "$base/run" && mount -t tmpfs -o mode=700 tmpfs "$base/run" || exit

# The server that the bridge has started last, whether or not it serves the drive by now.
server() { jq -r .pid "$base"/run-attach/*/server 2>/dev/null; }
serves() { [ "$(pumice status "$drive" --json 2>/dev/null | jq -r '.drives[0].server.pid')" = "$(server)" ]; }
is_new() { local pid; pid=$(server) && [ -n "$pid" ] && [ "$pid" != "$killed" ]; }
# As long as it takes a machine that is busy with other things.
until_true() { local end=$((SECONDS + 60)); until "$@"; do [ "$SECONDS" -lt "$end" ] || fail "never: $*"; sleep 0.01; done; }
doze() { sleep "$(printf '0.%03d' $((RANDOM % $1)))"; }
# Kills the server: when it has worked for a while, or as soon as it was started. Never two of the latter in a row: a memory by
# which three openings were killed keeps the drive closed.
kill_server() {
    local pid
    if [ $((made % 2)) = 1 ]; then
        until_true is_new
        doze 100
        early=$((early + 1))
    else
        until_true serves
        doze 999
    fi
    pid=$(server)
    grep -qaF "$base" "/proc/$pid/cmdline" || fail "no server"
    kill -9 "$pid" || fail "the server had ended"
    killed=$pid made=$((made + 1))
    [ -z "$(find "$base" -maxdepth 1 -name 'failed.*')" ] || fail "$(cat "$base"/failed.*)"
}
# The kernel's messages about the device since it was attached, of errors only. Without them nothing is known.
dmesg >/dev/null || { echo "kills.sh: the kernel's messages cannot be read" >&2; exit 1; }
errors() {
    dmesg | awk -v since="$attached" '{ at = $0; sub(/^\[ */, "", at); if (at + 0 >= since) print }' |
        grep -E "\b${device##*/}\b" | grep -iE 'error|corrupt|shut ?down|abort|fail|lost'
}
kernel() { cut -d ' ' -f 1 /proc/uptime; }

# attach KIND: a new drive with a file system
attach() {
    attached=$(kernel)
    pumice create "$drive" --size 2G --capacity 1G >/dev/null || fail "no drive"
    device=$(pumice attach "$drive" --by "$by" --mkfs "$1" 2>"$base/said") || fail "cannot attach: $(cat "$base/said")"
    # A device without a volatile cache gets no flushes.
    [ -n "$flushes" ] || echo 'write through' >"/sys/block/${device##*/}/queue/write_cache" || fail "no write through"
    mkdir -p "$point" && mount "$device" "$point" || fail "cannot mount"
    made=0 early=0 flushed=0
    rm -f "$base"/end "$base"/failed.* "$base"/count.* "$base"/acked.*
}
# Ends all that attach began; nothing of it may be wrong.
detach() {
    umount "$point" || fail "cannot unmount"
    "$@" "$device" >"$base/checked" 2>&1 || fail "$* found something: $(cat "$base/checked")"
    flushed=$(pumice status "$drive" --json | jq -r '.drives[0].server.requests.flushes_count')
    [ -n "$flushes" ] || [ "$flushed" = 0 ] || fail "$flushed flushes reached the server"
    errors >"$base/errors" && fail "the kernel says: $(cat "$base/errors")"
    pumice detach "$device" || fail "cannot detach"
    device=''
    pumice check --deep "$drive" >"$base/checked" 2>&1 || fail "pumice check: $(cat "$base/checked")"
    rm -f "$drive"
}
count() { cat "$base"/count."$1".* 2>/dev/null | wc -l; }

# --- File systems: fio with verification, and files whose sums are elsewhere. No fsync.

verified() {    # verified DIRECT
    until [ -e "$base/end" ]; do
        fio --name="verified$1" --directory="$point" --direct="$1" --rw=randwrite --bsrange=4k-64k --blockalign=4k --size=32m \
            --ioengine=libaio --iodepth=16 --verify=crc32c --verify_fatal=1 --verify_state_save=0 --verify_backlog=64 \
            >"$base/fio.$1" 2>&1 || { echo "fio: $(cat "$base/fio.$1")" >"$base/failed.fio$1"; return; }
        echo >>"$base/count.fio.$1"
    done
}
files() {       # writes files, of whole blocks, half of them by direct I/O; replaces and removes some
    local name flag
    until [ -e "$base/end" ]; do
        name=$((RANDOM % 100))
        head -c $((4096 * (RANDOM % 64 + 1))) /dev/urandom | od -An -x -v | head -c $((4096 * (RANDOM % 64 + 1))) >"$base/new"
        truncate -s %4096 "$base/new"
        [ $((RANDOM % 2)) = 0 ] && flag=direct || flag=append
        {
            flock 9
            dd if="$base/new" of="$point/files/$name.new" bs=64k oflag=$flag 2>"$base/dd" &&
                mv "$point/files/$name.new" "$point/files/$name" || { cat "$base/dd" >"$base/failed.files"; return; }
            sha256sum <"$base/new" >"$base/sums/$name"
            [ $((RANDOM % 8)) != 0 ] || rm "$point/files/$name" "$base/sums/$name"
        } 9>"$base/lock"
        echo >>"$base/count.file.0"
    done
}
check_files() { # by direct I/O, which reads the device
    local sum name
    {
        flock 9
        for sum in "$base"/sums/*; do
            name=${sum##*/}
            dd if="$point/files/$name" bs=64k iflag=direct 2>/dev/null | sha256sum | cmp -s - "$sum" ||
                fail "file $name is damaged"
            echo >>"$base/count.read.0"
        done
        [ "$(find "$point/files" -name '*[0-9]' | wc -l)" = "$(find "$base/sums" -type f | wc -l)" ] ||
            fail "another set of files"
    } 9>"$base/lock"
}
filesystem() {  # filesystem KIND CHECK...
    attach "$1"
    rm -rf "$base/sums"
    mkdir "$point/files" "$base/sums"
    verified 0 &
    verified 1 &
    files &
    until_true test -n "$(count file)"
    while [ "$made" -lt "$kills" ]; do
        kill_server
        [ $((made % 2)) = 1 ] || check_files
    done
    touch "$base/end"
    wait
    [ -z "$(find "$base" -maxdepth 1 -name 'failed.*')" ] || fail "$(cat "$base"/failed.*)"
    check_files
    detach "${@:2}"
    echo "$1: $made kills of the server by $by, $early as soon as it was started; $(count file) files written and" \
        "$(count read) read back, $(count fio) runs of fio verified; flushes: ${flushes:-none}; nothing lost, no I/O error"
}

# --- PostgreSQL on ext4: sessions that count what was committed, and pgbench.

as_postgres() { runuser -u postgres -- "$@"; }
query() { as_postgres "$postgres/psql" -qAt -v ON_ERROR_STOP=1 -h "$base/pg" postgres "$@"; }
start_postgres() {
    as_postgres "$postgres/pg_ctl" -D "$point/pg" -s -w -t 120 -l "$base/pg/log" start ||
        fail "PostgreSQL does not start: $(tail "$base/pg/log")"
}
counter() {     # counter CLIENT: commits numbers one after the other, and notes those that were acknowledged
    local number got
    number=$(query -c "select coalesce(max(number), 0) from commits where client = $1")
    coproc SESSION { query; }
    while number=$((number + 1)); do
        echo "insert into commits values ($1, $number) returning number;" >&"${SESSION[1]}" || break
        read -r got <&"${SESSION[0]}" && [ "$got" = "$number" ] || break
        echo "$number" >>"$base/acked.$1"
    done
}
check_commits() {
    local client acked found
    for client in 1 2 3 4; do
        acked=$(tail -qn 1 "$base/acked.$client" 2>/dev/null)
        found=$(query -c "select count(*), max(number) from commits where client = $client") || fail "no answer"
        # In order, so that none is missing below the last.
        [ "${found%|*}" = "${found#*|}" ] && [ "${found%|*}" -ge "${acked:-0}" ] ||
            fail "client $client was told that $acked was committed: $found"
    done
    checked=$((checked + 1))
}
check_sums() {  # pgbench's own: each transaction adds the same to four tables
    local sums
    sums=$(query -c "select (select sum(abalance) from pgbench_accounts) = (select sum(delta) from pgbench_history)
        and (select sum(tbalance) from pgbench_tellers) = (select sum(bbalance) from pgbench_branches)
        and (select sum(abalance) from pgbench_accounts) = (select sum(bbalance) from pgbench_branches)")
    [ "$sums" = t ] || fail "the tables of pgbench do not add up: $sums"
}
postgresql() {
    local restarts=0 client goal
    checked=0
    attach ext4
    rm -rf "$base/pg"
    mkdir "$base/pg" "$point/pg"
    chown postgres "$base/pg" "$point/pg"
    as_postgres "$postgres/initdb" -D "$point/pg" -k -A trust >"$base/pg/initdb" 2>&1 || fail "$(cat "$base/pg/initdb")"
    printf '%s\n' "listen_addresses = ''" "unix_socket_directories = '$base/pg'" 'shared_buffers = 16MB' \
        'max_wal_size = 64MB' 'checkpoint_timeout = 30s' >>"$point/pg/postgresql.conf"
    start_postgres
    query -c 'create table commits (client int, number int, primary key (client, number))' || fail "no table"
    as_postgres "$postgres/pgbench" -q -i -s 5 -h "$base/pg" postgres >/dev/null 2>&1 || fail "no tables of pgbench"
    while [ "$made" -lt "$kills" ]; do
        for client in 1 2 3 4; do counter "$client" 2>/dev/null & done
        as_postgres "$postgres/pgbench" -n -c 4 -T 100000 -h "$base/pg" postgres >"$base/pg/bench" 2>&1 &
        # The same sessions go on over these kills. Then all is read from the drive.
        goal=$((made + 5 < kills ? made + 5 : kills))
        while [ "$made" -lt "$goal" ]; do
            kill_server
            check_commits
            grep -E 'PANIC|could not (read|write|fsync)|I/O error' "$base/pg/log" && fail "PostgreSQL met an error"
        done
        as_postgres "$postgres/pg_ctl" -D "$point/pg" -m immediate -s stop || fail "PostgreSQL does not stop"
        wait
        umount "$point" && mount "$device" "$point" || fail "cannot mount again"
        start_postgres
        restarts=$((restarts + 1))
        check_commits
        check_sums
    done
    local commits transactions
    commits=$(cat "$base"/acked.* | wc -l)
    transactions=$(query -c 'select count(*) from pgbench_history')
    as_postgres "$postgres/pg_amcheck" --install-missing --heapallindexed -h "$base/pg" -d postgres >"$base/pg/amcheck" 2>&1 ||
        fail "pg_amcheck: $(cat "$base/pg/amcheck")"
    as_postgres "$postgres/pg_ctl" -D "$point/pg" -m fast -s stop || fail "PostgreSQL does not stop"
    as_postgres "$postgres/pg_checksums" --check -D "$point/pg" >"$base/pg/checksums" 2>&1 ||
        fail "pg_checksums: $(cat "$base/pg/checksums")"
    detach fsck.ext4 -fn
    echo "postgresql: $made kills of the server by $by, $early as soon as it was started; $commits acknowledged commits checked" \
        "$checked times, $restarts times from the drive, beside $transactions transactions of pgbench; flushes: ${flushes:-none};" \
        "nothing lost, no I/O error"
}

for store in ${stores//,/ }; do
    case $store in
        postgresql) postgresql ;;
        ext4) filesystem ext4 fsck.ext4 -fn ;;
        xfs) filesystem xfs xfs_repair -n ;;
        *) echo "kills: unknown store $store: expected postgresql, ext4 or xfs" >&2; exit 2 ;;
    esac
done
