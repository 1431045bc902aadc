#!/usr/bin/env bash
# Measurements of the program over NBD, outside of the suites of `pumice bench`. Each prints a table for lab/.
#
# usage: scripts/bench.sh MEASUREMENT [ARGUMENT...]
#
#   nbd [ROUNDS]                     throughput against nbdkit's file plugin on the same disk; 12 GiB of disk, root
#   stream DATA ROUNDS PUMICE...     a stream of 128 KiB requests, and a database's requests beside it: programs in turns; root.
#                                    DATA: a file of at most 1 GiB, such as the corpus in one file
#   threads [TIME]                   throughput by the number of threads, with a codec that sleeps TIME a frame of 32 KiB [1ms]
#   durable [--rounds N] PUMICE...   durable writes of 4 KiB: programs in turns; python3-libnbd
#   snia [ROUNDS]                    the fio job of the SNIA study: ratio and CPU time for each GB, for `pumice tco`; 6 GiB of disk
#   cleaning [WRITES] [RATE]         latency of random writes while a drive cleans; 10 GiB of disk
#   settling CORPUS [SECONDS] [ROUNDS] [RATE] [PERCENT]
#                                    latency of random reads and writes while a drive settles; 6 GiB of disk
#   rivals CORPUS [ROUNDS] [CONTESTANT...]
#                                    speed, CPU time and space of Pumice, qcow2, btrfs, zram, nbdkit and BlueStore; root
#   kernel [ROUNDS]                  attached drives, dm-vdo, btrfs and zvols in one kernel (scripts/kernel-lab)
#   kernel against [MINUTES [ARGUMENT...]]
#                                    `pumice bench against` in that kernel
#
# CORPUS is a folder made by scripts/corpus.sh. PUMICE in the environment names the program to measure
# [target/release/pumice], BENCH_DIR the folder for drives [TMPDIR or /tmp]. Most need fio, nbdcopy, nbdinfo, nbdkit and jq
# (scripts/deps.sh installs them). The head of each file in scripts/bench describes its measurement.
set -euo pipefail
scripts=$(realpath "$(dirname "$0")")

help() { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; }
refuse() {
    echo "bench: $1; see scripts/bench.sh --help" >&2
    exit 2
}
# is_count TEXT: a number from 1 on
is_count() { [[ $1 =~ ^[1-9][0-9]*$ ]] || refuse "expected a number, not '$1'"; }

# Pumice against nbdkit's file plugin, which does not compress: the same client and disk, in turns; medians of the rounds.
nbd() {
    local rounds=${1:-5} codec target
    is_count "$rounds"
    . "$scripts/bench/lib.sh"
    for codec in auto lz4; do
        create "$dir/$codec" --size 5G --capacity 4G --codec "$codec"
        serve "$dir/$codec" "$dir/$codec.sock"
    done
    truncate -s 4G "$dir/raw"
    nbdkit -f -U "$dir/nbdkit.sock" file "$dir/raw" &
    pids+=($!)
    await_socket "$dir/nbdkit.sock"

    # requests TARGET ARGUMENTS...: requests a second of a fio job
    requests() {
        job "$dir/$1.sock" --refill_buffers=1 --randrepeat=0 --buffer_compress_percentage=60 --buffer_compress_chunk=4096 \
            "${@:2}" | jq '.write.iops + .read.iops'
    }
    # stream_random TARGET write|read: requests a second of a stream of random data (what fio calls random compresses by 5 %)
    stream_random() {
        local uri="nbd+unix:///?socket=$dir/$1.sock" speed
        case $2 in
            write) speed=$(mib_per_second "$dir/random" copy "$dir/random" "$uri") ;;
            read) speed=$(mib_per_second "$dir/random" copy "$uri" null:) ;;
        esac
        awk -v speed="$speed" 'BEGIN { print speed * 8 }'
    }
    # row NAME TARGETS warm|cold COMMAND ARGUMENTS...
    row() {
        local target
        for target in $2; do : >"$dir/$target.out"; done
        for _ in $(seq "$rounds"); do
            for target in $2; do
                case $3 in warm) sync ;; cold) drop_caches ;; esac
                sleep 1
                "$4" "$target" "${@:5}" >>"$dir/$target.out"
            done
        done
        for target in $2; do
            awk -v name="$1" -v target="$target" -v a="$(median <"$dir/$target.out")" -v b="$(median <"$dir/nbdkit.out")" \
                'BEGIN { printf "| %s | %s | %.0f | %.0f %% |\n", name, target, a, 100 * a / b }'
        done
    }
    table "workload, queue depth 16" target requests/s "of nbdkit file"
    head -c 1536M /dev/urandom >"$dir/random"
    row "128 KiB sequential write, incompressible, flushed" "auto nbdkit" warm stream_random write
    row "128 KiB sequential read of that, cold" "auto nbdkit" cold stream_random read
    rm "$dir/random"
    for target in auto lz4 nbdkit; do requests $target --rw=write --bs=128k --size=2G --end_fsync=1 >/dev/null; done
    local random=(--bs=4k --size=2G --norandommap --time_based --runtime=5)
    row "4 KiB random write, 60 % compressible" "auto lz4 nbdkit" warm requests --rw=randwrite "${random[@]}"
    row "4 KiB random read of that, cold" "auto lz4 nbdkit" cold requests --rw=randread "${random[@]}"
}

# One connection that streams requests of 128 KiB, and a database's requests of 4 KiB beside it: medians of the rounds.
stream() {
    [ $# -ge 3 ] || refuse "expected stream DATA ROUNDS PUMICE..."
    local data rounds=$2 one programs=() uri figure file medians number streaming
    data=$(realpath "$1")
    is_count "$rounds"
    for one in "${@:3}"; do programs+=("$(realpath "$one")"); done
    PUMICE=${programs[0]}
    . "$scripts/bench/lib.sh"
    # Beyond the data, for the database.
    local table_offset=$((1 << 30)) table_bytes=$((256 << 20))
    uri="nbd+unix:///?socket=$dir/socket"
    # note FIGURE VALUE: of this turn's program
    note() { echo "$2" >>"$dir/$number.$1"; }
    on_table() { job "$dir/socket" --offset="$table_offset" --size="$table_bytes" --buffer_compress_percentage=60 --refill_buffers=1 "$@"; }
    # database FIGURE read|write: requests of 4 KiB, one at a time, for four seconds
    database() {
        local result
        result=$(on_table --rw="rand$2" --bs=4k --iodepth=1 --time_based --runtime=4)
        note "$1 $2, requests per s" "$(jq ".$2.iops" <<<"$result")"
        note "$1 $2, p50 us" "$(jq ".$2.clat_ns.percentile[\"50.000000\"] / 1000" <<<"$result")"
        note "$1 $2, p99 us" "$(jq ".$2.clat_ns.percentile[\"99.000000\"] / 1000" <<<"$result")"
    }
    endless() { while :; do copy --no-extents --sparse=0 "$data" "$uri" 2>/dev/null || return 0; done; }
    for round in $(seq "$rounds"); do
        for number in "${!programs[@]}"; do
            program=${programs[number]}
            create "$dir/drive" --size 3G --capacity 2G
            serve "$dir/drive" "$dir/socket"
            note "stream, write MiB per s" "$(mib_per_second "$data" copy --no-extents --sparse=0 "$data" "$uri")"
            sleep 0.5
            drop_caches
            note "stream, read MiB per s" "$(mib_per_second "$data" copy --no-extents "$uri" null:)"
            on_table --rw=write --bs=64k >/dev/null
            database "4 KiB alone," read
            database "4 KiB alone," write
            endless &
            streaming=$!
            sleep 1.5
            database "4 KiB beside a stream," read
            database "4 KiB beside a stream," write
            kill "$streaming"
            stop_servers
            wait "$streaming" 2>/dev/null || true
            rm -f "$dir/drive" "$dir/socket"
            echo "round $round, ${program##*/}: done" >&2
        done
    done
    table figure "${programs[@]##*/}" "last / first"
    for file in "$dir"/0.*; do
        figure=${file##*/0.} medians=()
        for number in "${!programs[@]}"; do medians+=("$(median <"$dir/$number.$figure")"); done
        awk -v figure="$figure" -v medians="${medians[*]}" 'BEGIN {
            n = split(medians, m, " ")
            printf "| %s |", figure
            for (i = 1; i <= n; i++) printf " %.0f |", m[i]
            printf " %.2f |\n", m[n] / m[1] }'
    done
}

# Writes of 128 KiB on one connection. The codec sleeps, so that the throughput does not depend on the processors.
threads() {
    local time=${1:-1ms} one= count speed
    . "$scripts/bench/lib.sh"
    table threads MiB/s "times one thread"
    for count in 1 2 3 4 5 6 7 8; do
        create "$dir/drive" --size 2G --codec lz4
        serve "$dir/drive" "$dir/s" --threads "$count" --offload "simulated:$time"
        speed=$(job "$dir/s" --rw=write --bs=128k --iodepth=32 --size=1G --time_based --runtime=5 \
            --buffer_compress_percentage=60 --refill_buffers=1 | jq .write.bw)
        one=${one:-$speed}
        awk -v n="$count" -v speed="$speed" -v one="$one" 'BEGIN { printf "| %d | %.1f | %.2f |\n", n, speed / 1024, speed / one }'
        stop_servers
        rm -f "$dir/drive" "$dir/s"
    done
}

# The fio job of "TCO in Computational Storage - Compression" (SNIA, 2023) on a drive and on a plain file: sequential writes and
# reads of 128 KiB with buffer_compress_percentage=60. CPU time is for each GB of 10^9 bytes; that of the client is fio's without
# the making of the data (the same job on its engine `null`). A busy machine takes more of it.
snia() {
    local rounds=${1:-3} codec ratio before between after gib=4
    local write read write_client read_client own_write own_read
    is_count "$rounds"
    . "$scripts/bench/lib.sh"
    local shape=(--bs=128k --buffer_compress_percentage=60 --size="${gib}G")
    # Throughput in MB/s, and CPU time of the job in seconds, of fio's output.
    figures() { jq -r '"\(.[$kind].bw_bytes / 1e6) \((.usr_cpu + .sys_cpu) / 100 * .job_runtime / 1000)"' --arg kind "$1"; }
    on_drive() { job "$dir/s" --rw="$1" "${shape[@]}" "${@:2}" | figures "$1"; }
    on_file() { fio_job --ioengine=libaio --direct=1 --filename="$dir/plain" --rw="$1" "${shape[@]}" "${@:2}" | figures "$1"; }
    on_nothing() { fio_job --ioengine=null --rw="$1" "${shape[@]}" | figures "$1"; }
    # line NAME RATIO SERVER-WRITE SERVER-READ: CPU seconds of the server, or nothing
    line() {
        awk -v name="$1" -v ratio="$2" -v sw="$3" -v sr="$4" -v w="$write" -v r="$read" -v gb="$gib" -v wc="$write_client" \
            -v rc="$read_client" -v ow="$own_write" -v or="$own_read" '
            function for_each_gb(seconds) { return seconds == "" ? "" : sprintf("%.2f ", seconds / gb) }
            BEGIN { gb *= 1.073741824
            printf "| %s | %s | %.0f | %s| %.2f | %.0f | %s| %.2f |\n", name, ratio, w, for_each_gb(sw), (wc - ow) / gb, r,
                for_each_gb(sr), (rc - or) / gb }'
    }
    table codec ratio "write MB/s" "CPU s/GB, server" "CPU s/GB, client" "read MB/s" "CPU s/GB, server" "CPU s/GB, client"
    # In turns, so that a disturbance affects all.
    for _ in $(seq "$rounds"); do
        read -r _ own_write < <(on_nothing write)
        read -r _ own_read < <(on_nothing read)
        read -r write write_client < <(on_file write --end_fsync=1)
        read -r read read_client < <(on_file read)
        # New space each time, as on a drive.
        rm -f "$dir/plain"
        line "a plain file" 1 "" ""
        for codec in lz4 auto; do
            create "$dir/drive" --size 6G --capacity 6G --codec "$codec"
            serve "$dir/drive" "$dir/s"
            before=$(processes_cpu "${pids[@]}")
            read -r write write_client < <(on_drive write --end_fsync=1)
            between=$(processes_cpu "${pids[@]}")
            read -r read read_client < <(on_drive read)
            after=$(processes_cpu "${pids[@]}")
            ratio=$(status "$dir/drive" '.compression_ratio * 1000 | round / 1000')
            line "$codec" "$ratio" "$(awk "BEGIN { print $between - $before }")" "$(awk "BEGIN { print $after - $between }")"
            stop_servers
            rm -f "$dir/drive" "$dir/s"
        done
    done
}

# Latency of random writes of 4 KiB while a drive cleans heavily, against a drive of the same data with room enough to clean
# nothing. Incompressible data on 90 % of the data limit, queue depth 16, as fast as possible and at a steady rate.
cleaning() {
    local writes=${1:-400000} rate=${2:-4000} extent= case name size load count limit before row
    is_count "$writes"
    is_count "$rate"
    . "$scripts/bench/lib.sh"
    # write_blocks RW WRITES ARGUMENTS...: prints requests a second, and the 50th, 99th, 99.9th percentile and the longest, in ms
    write_blocks() {
        job "$dir/s" --rw="$1" --bs=4k --norandommap --randrepeat=0 --refill_buffers --size="$extent" --number_ios="$2" \
            --lat_percentiles=1 --clat_percentiles=0 --percentile_list=50:99:99.9 "${@:3}" |
            jq -r '.write | [.iops, (.lat_ns | (.percentile["50.000000", "99.000000", "99.900000"], .max) / 1e6)] | @tsv'
    }
    # Bytes written by the host; to the backing, of these by cleaning, and for the map.
    counters() {
        status "$dir/drive" '.host_written_bytes, .physical_written_bytes, .cleaning.cleaning_written_bytes, .cleaning.map_written_bytes' | xargs
    }
    table drive load writes/s "p50 ms" "p99 ms" "p99.9 ms" "longest ms" "WAF (cleaning, map)"
    for case in "cleaning 1G" "none 8G"; do
        read -r name size <<<"$case"
        create "$dir/drive" --size "$size" --capacity 8G --codec lz4
        serve "$dir/drive" "$dir/s"
        # The first drive decides how much 90 % is. A record takes 16 bytes more than its block.
        [ -n "$extent" ] ||
            extent=$(status "$dir/drive" '(.physical_size_bytes - .physical_reserve_bytes - .physical_fixed_bytes) * 0.9 / 4112 | floor * 4096')
        write_blocks write $((extent / 4096)) >/dev/null
        [ "$name" = none ] || write_blocks randwrite $((extent / 4096)) >/dev/null
        for load in "as fast as they come" "$rate/s"; do
            count=$writes limit=()
            case $load in */s) count=$((rate * 20)) limit=(--rate_iops="$rate" --rate_process=poisson) ;; esac
            before=$(counters)
            row=$(write_blocks randwrite "$count" "${limit[@]}")
            awk -v name="$name" -v load="$load" '{
                host = $10 - $6
                printf "| %s | %s | %.0f | %.2f | %.2f | %.2f | %.1f | %.2f (%.2f, %.2f) |\n", name, load, $1, $2, $3, $4, $5,
                    ($11 - $7) / host, ($12 - $8) / host, ($13 - $9) / host }' <<<"$row $before $(counters)"
        done
        stop_servers
        rm -f "$dir/drive" "$dir/s"
    done
}

measurement=${1:-}
[ $# = 0 ] || shift
case $measurement in
    nbd | stream | threads | snia | cleaning) "$measurement" "$@" ;;
    settling | rivals | kernel) exec bash "$scripts/bench/$measurement.sh" "$@" ;;
    durable) exec "$scripts/bench/durable.py" "$@" ;;
    -h | --help | help) help ;;
    '') refuse "expected a measurement" ;;
    *) refuse "unknown measurement '$measurement'" ;;
esac
