#!/usr/bin/env bash
# Throughput of one connection by the number of the server's threads, with a codec that sleeps for a set time a frame, so
# that it does not depend on the cores of the machine: writes of 128 KiB, queue depth 32. Usage: scripts/bench-threads.sh
# [TIME]. TIME is that of a frame of 32 KiB (1ms unless given). Wants fio and jq; PUMICE names the program to measure.
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:-1ms}
. scripts/bench-lib.sh
echo "| threads | MiB/s | times one thread |"
echo "| --- | --- | --- |"
one=
for threads in 1 2 3 4 5 6 7 8; do
    "$program" create "$dir/drive" --size 2G --codec lz4 >/dev/null 2>&1
    "$program" serve "$dir/drive" --nbd "unix:$dir/s" --threads "$threads" --offload "simulated:$time" >/dev/null 2>"$dir/log" &
    pids+=($!)
    await_socket "$dir/s"
    speed=$(job "$dir/s" --rw=write --bs=128k --iodepth=32 --size=1G --time_based --runtime=5 \
        --buffer_compress_percentage=60 --refill_buffers=1 | jq .write.bw)
    one=${one:-$speed}
    awk -v n="$threads" -v speed="$speed" -v one="$one" 'BEGIN { printf "| %d | %.1f | %.2f |\n", n, speed / 1024, speed / one }'
    stop_servers
    rm -f "$dir/drive" "$dir/s"
done
