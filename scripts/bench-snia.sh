#!/usr/bin/env bash
# The fio job of "TCO in Computational Storage - Compression" (SNIA, 2023) on one Pumice drive: 128 KiB sequential writes and
# reads with buffer_compress_percentage=60. Prints the compression ratio and the server's CPU time for each GB of 10^9 bytes, which
# `pumice tco` uses: figures that a busy machine changes little. Usage: scripts/bench-snia.sh [ROUNDS]. Wants fio and jq, 6 GiB of
# free disk.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-3}
. scripts/bench-lib.sh
gib=4
stream() {
    job "$dir/s" --rw="$1" --bs=128k --buffer_compress_percentage=60 --size="${gib}G" "${@:2}" | jq ".$1.bw_bytes / 1e6"
}
echo "| codec | ratio | write MB/s | CPU s/GB | read MB/s | CPU s/GB |"
echo "| --- | --- | --- | --- | --- | --- |"
for codec in lz4 auto; do
    for _ in $(seq "$rounds"); do
        "$program" create "$dir/drive" --size 6G --capacity 6G --codec "$codec" >/dev/null
        serve "$dir/drive" "$dir/s"
        before=$(processes_cpu "${pids[@]}")
        write=$(stream write --end_fsync=1)
        between=$(processes_cpu "${pids[@]}")
        read=$(stream read)
        after=$(processes_cpu "${pids[@]}")
        ratio=$("$program" status "$dir/drive" --json | jq '.drives[0].compression_ratio')
        awk -v codec="$codec" -v ratio="$ratio" -v w="$write" -v r="$read" -v gb="$gib" -v a="$before" -v b="$between" \
            -v c="$after" 'BEGIN { gb *= 1.073741824
            printf "| %s | %.3f | %.0f | %.2f | %.0f | %.2f |\n", codec, ratio, w, (b - a) / gb, r, (c - b) / gb }'
        stop_servers
        rm -f "$dir/drive" "$dir/s"
    done
done
