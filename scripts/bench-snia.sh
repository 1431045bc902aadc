#!/usr/bin/env bash
# The fio job of "TCO in Computational Storage - Compression" (SNIA, 2023) on one Pumice drive: 128 KiB sequential writes and
# reads with buffer_compress_percentage=60. Prints the compression ratio and the server's CPU time for each GB of 10^9 bytes, which
# `pumice tco` uses: figures that a busy machine changes little. Usage: scripts/bench-snia.sh [ROUNDS]. Wants fio and jq, 6 GiB of
# free disk.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-3}
program=${PUMICE:-${CARGO_TARGET_DIR:-target}/release/pumice}
[ -x "$program" ] || cargo build --release -q -p pumice
dir=$(mktemp -d "${TMPDIR:-/tmp}/pumice-bench.XXXXXX")
pid=
finish() {
    [ -z "$pid" ] || { kill "$pid" 2>/dev/null || true; wait "$pid" 2>/dev/null || true; }
    rm -rf "$dir"
}
trap finish EXIT
ticks=$(getconf CLK_TCK)
cpu() { awk -v ticks="$ticks" '{ print ($14 + $15) / ticks }' "/proc/$pid/stat"; }
gib=4
job() {
    fio --name=bench --ioengine=nbd --uri="nbd+unix:///?socket=$dir/s" --rw="$1" --bs=128k --iodepth=16 \
        --buffer_compress_percentage=60 --size="${gib}G" --output-format=json "${@:2}" 2>/dev/null |
        sed -n '/^{/,$p' | jq ".jobs[0].$1.bw_bytes / 1e6"
}
echo "| codec | ratio | write MB/s | CPU s/GB | read MB/s | CPU s/GB |"
echo "| --- | --- | --- | --- | --- | --- |"
for codec in lz4 auto; do
    for _ in $(seq "$rounds"); do
        "$program" create "$dir/drive" --size 6G --capacity 6G --codec "$codec" >/dev/null
        "$program" serve "$dir/drive" --nbd "unix:$dir/s" >/dev/null 2>"$dir/log" &
        pid=$!
        for _ in $(seq 100); do [ -S "$dir/s" ] && break; sleep 0.1; done
        before=$(cpu)
        write=$(job write --end_fsync=1)
        between=$(cpu)
        read=$(job read)
        after=$(cpu)
        ratio=$("$program" status "$dir/drive" --json | jq '.drives[0].compression_ratio')
        awk -v codec="$codec" -v ratio="$ratio" -v w="$write" -v r="$read" -v gb="$gib" -v a="$before" -v b="$between" \
            -v c="$after" 'BEGIN { gb *= 1.073741824
            printf "| %s | %.3f | %.0f | %.2f | %.0f | %.2f |\n", codec, ratio, w, (b - a) / gb, r, (c - b) / gb }'
        kill "$pid"
        wait "$pid" || true
        pid=
        rm -f "$dir/drive" "$dir/s"
    done
done
