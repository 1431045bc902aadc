# Shared by scripts/bench.sh and the measurements in this folder: the program, a temporary folder, servers that end with the script,
# jobs and copies over NBD. PUMICE names the program to measure, BENCH_DIR where the folder is made.
root=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../..")
program=${PUMICE:-${CARGO_TARGET_DIR:-$root/target}/release/pumice}
[ -x "$program" ] || cargo build --release -q -p pumice --manifest-path "$root/Cargo.toml"
dir=$(mktemp -d "${BENCH_DIR:-${TMPDIR:-/tmp}}/pumice-bench.XXXXXX")
pids=()
finish() {
    stop_servers
    rm -rf "$dir"
}
trap finish EXIT

# Stops what was started: all of pids.
stop_servers() {
    local pid
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
    for pid in "${pids[@]}"; do wait "$pid" 2>/dev/null || true; done
    pids=()
}
# await_socket PATH: waits until a server answers. Its socket exists before its drive is open.
await_socket() {
    for _ in $(seq 100); do
        if [ -S "$1" ] && timeout 60 nbdinfo --size "nbd+unix:///?socket=$1" >/dev/null 2>&1; then return; fi
        sleep 0.1
    done
    echo "${0##*/}: no server at $1" >&2
    return 1
}
# create PATH ARGUMENTS...: creates a drive
create() { "$program" create "$@" >"$dir/create.log" 2>&1 || { cat "$dir/create.log" >&2; return 1; }; }
# serve PATH SOCKET ARGUMENTS...: serves a drive until stop_servers
serve() {
    "$program" serve "$1" --nbd "unix:$2" --throttle-at off "${@:3}" >/dev/null 2>"$1.log" &
    pids+=($!)
    await_socket "$2"
}
# status PATH EXPRESSION: figures of a drive
status() { "$program" status "$1" --json | jq -r ".drives[0] | $2"; }
# processes_cpu PID...: user and system time so far, in seconds, their threads included
processes_cpu() {
    local pid
    for pid in "$@"; do cat "/proc/$pid/stat"; done |
        awk -v ticks="$(getconf CLK_TCK)" '{ sub(/.*\) /, ""); cpu += $12 + $13 } END { print cpu / ticks }'
}
# fio_job ARGUMENTS...: one job, queue depth 16; prints its results as JSON
fio_job() {
    timeout 1800 fio --name=bench --thread --iodepth=16 --output-format=json "$@" 2>"$dir/fio.log" | sed -n '/^{/,$p' | jq '.jobs[0]'
}
# job SOCKET ARGUMENTS...: a job over NBD, on one connection
job() { fio_job --ioengine=nbd --uri="nbd+unix:///?socket=$1" "${@:2}"; }
# copy FROM TO: all of it in requests of 128 KiB, one connection, queue depth 16, flushed; FROM or TO is a server's URI
copy() { timeout 600 nbdcopy --flush --connections=1 --requests=16 --request-size=131072 "$@"; }
# mib_per_second FILE COMMAND...: MiB of the file by the time of the command
mib_per_second() {
    local start=$EPOCHREALTIME
    "${@:2}" >/dev/null
    awk -v a="$start" -v b="$EPOCHREALTIME" -v bytes="$(stat -c %s "$1")" 'BEGIN { print bytes / 1048576 / (b - a) }'
}
drop_caches() {
    sync
    echo 3 >/proc/sys/vm/drop_caches
}
median() { sort -g | awk '{v[NR]=$1} END {print v[int((NR+1)/2)]}'; }
# table HEAD...: first lines of a table in Markdown
table() {
    printf '|'
    printf ' %s |' "$@"
    printf '\n|'
    printf ' --- |%.0s' "$@"
    printf '\n'
}
