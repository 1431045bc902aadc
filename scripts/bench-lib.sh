# What the benchmarks over NBD share: the program, a temporary folder that goes away, servers that are stopped at the end.
# Sourced with the repository as working folder. PUMICE names the program to measure, BENCH_DIR where the folder is made.
program=${PUMICE:-${CARGO_TARGET_DIR:-target}/release/pumice}
[ -x "$program" ] || cargo build --release -q -p pumice
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
# await_socket PATH: waits for a server to be there and to answer; sockets come before drives are open
await_socket() {
    for _ in $(seq 100); do
        if [ -S "$1" ] && timeout 60 nbdinfo --size "nbd+unix:///?socket=$1" >/dev/null 2>&1; then return; fi
        sleep 0.1
    done
    echo "${0##*/}: no server at $1" >&2
    return 1
}
# serve PATH SOCKET: serves a drive until stop_servers
serve() {
    "$program" serve "$1" --nbd "unix:$2" --throttle-at off >/dev/null 2>"$1.log" &
    pids+=($!)
    await_socket "$2"
}
# processes_cpu PID...: user and system time so far, in seconds, their threads included
processes_cpu() {
    local pid
    for pid in "$@"; do cat "/proc/$pid/stat"; done |
        awk -v ticks="$(getconf CLK_TCK)" '{ sub(/.*\) /, ""); cpu += $12 + $13 } END { print cpu / ticks }'
}
# job SOCKET ARGUMENTS...: fio over NBD, one connection, queue depth 16; prints the results of its job as JSON
job() {
    timeout 1800 fio --name=bench --ioengine=nbd --uri="nbd+unix:///?socket=$1" --thread --iodepth=16 --output-format=json "${@:2}" \
        2>"$dir/fio.log" | sed -n '/^{/,$p' | jq '.jobs[0]'
}
# copy FROM TO: all of it in requests of 128 KiB, one connection, queue depth 16, flushed; FROM or TO is a server's URI
copy() { timeout 600 nbdcopy --flush --connections=1 --requests=16 --request-size=131072 "$@"; }
median() { sort -g | awk '{v[NR]=$1} END {print v[int((NR+1)/2)]}'; }
