#!/usr/bin/env bash
# The fio job of "TCO in Computational Storage - Compression" (SNIA, 2023) on one Pumice drive and on a plain file: 128 KiB
# sequential writes and reads with buffer_compress_percentage=60. Prints the compression ratio and the CPU time of server and
# client for each GB of 10^9 bytes, which `pumice tco` uses: a busy machine takes more of it. The client's is fio's,
# without what fio takes to make the data (the same job on its engine `null`). Usage: scripts/bench-snia.sh [ROUNDS]. Wants fio
# and jq, 6 GiB of free disk.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-3}
. scripts/bench-lib.sh
gib=4
shape=(--bs=128k --buffer_compress_percentage=60 --size="${gib}G")
# Throughput in MB/s, and CPU time of the job in seconds, of fio's output.
figures() { jq -r '"\(.[$kind].bw_bytes / 1e6) \((.usr_cpu + .sys_cpu) / 100 * .job_runtime / 1000)"' --arg kind "$1"; }
# stream KIND ARGUMENTS...: over NBD; plain KIND ARGUMENTS...: on a file, past the page cache
stream() { job "$dir/s" --rw="$1" "${shape[@]}" "${@:2}" | figures "$1"; }
plain() {
    fio --name=bench --ioengine=libaio --direct=1 --filename="$dir/plain" --thread --iodepth=16 --output-format=json --rw="$1" \
        "${shape[@]}" "${@:2}" | jq '.jobs[0]' | figures "$1"
}
without_drive() {
    fio --name=bench --ioengine=null --thread --iodepth=16 --output-format=json --rw="$1" "${shape[@]}" | jq '.jobs[0]' | figures "$1"
}
echo "| codec | ratio | write MB/s | CPU s/GB, server | CPU s/GB, client | read MB/s | CPU s/GB, server | CPU s/GB, client |"
echo "| --- | --- | --- | --- | --- | --- | --- | --- |"
# By turns, so that what disturbs the machine for a while disturbs all.
for _ in $(seq "$rounds"); do
    read -r _ own_write < <(without_drive write)
    read -r _ own_read < <(without_drive read)
    read -r write write_client < <(plain write --end_fsync=1)
    read -r read read_client < <(plain read)
    # New space each time, as on a drive.
    rm -f "$dir/plain"
    awk -v w="$write" -v r="$read" -v gb="$gib" -v wc="$write_client" -v rc="$read_client" -v ow="$own_write" -v or="$own_read" \
        'BEGIN { gb *= 1.073741824
        printf "| a plain file | 1 | %.0f | | %.2f | %.0f | | %.2f |\n", w, (wc - ow) / gb, r, (rc - or) / gb }'
    for codec in lz4 auto; do
        "$program" create "$dir/drive" --size 6G --capacity 6G --codec "$codec" >/dev/null
        serve "$dir/drive" "$dir/s"
        before=$(processes_cpu "${pids[@]}")
        read -r write write_client < <(stream write --end_fsync=1)
        between=$(processes_cpu "${pids[@]}")
        read -r read read_client < <(stream read)
        after=$(processes_cpu "${pids[@]}")
        ratio=$("$program" status "$dir/drive" --json | jq '.drives[0].compression_ratio')
        awk -v codec="$codec" -v ratio="$ratio" -v w="$write" -v r="$read" -v gb="$gib" -v a="$before" -v b="$between" \
            -v c="$after" -v wc="$write_client" -v rc="$read_client" -v ow="$own_write" -v or="$own_read" \
            'BEGIN { gb *= 1.073741824
            printf "| %s | %.3f | %.0f | %.2f | %.2f | %.0f | %.2f | %.2f |\n", codec, ratio, w, (b - a) / gb, (wc - ow) / gb, r,
                (c - b) / gb, (rc - or) / gb }'
        stop_servers
        rm -f "$dir/drive" "$dir/s"
    done
done
