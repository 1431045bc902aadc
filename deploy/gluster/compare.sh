#!/usr/bin/env bash
# Compares the same Gluster volume on raw files and on Pumice drives: fio by the FUSE client, rounds interleaved, medians; CPU
# time of the drives; capacity; cost. The document's claim is "150 % capacity, twice the speed, half the cost per TB".
#
#   compare.sh [ROUNDS]     five rounds by default, each of about a minute
#
# The volume is distributed, as the document's is; VOLUME=replica measures with two copies. One job accesses as many files as there
# are bricks, in turn; of a distributed volume each brick has one of them. COMPRESS is fio's buffer_compress_percentage (60).
# Needs 6 GiB in the temporary directory. PUMICE names the program.
set -Eeuo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
for part in lib process drive cluster; do
    # shellcheck source=/dev/null
    . "$here/$part.sh"
done
rounds=${1:-5}
volume=${VOLUME:-distributed}
compress=${COMPRESS:-60}
seconds=${JOB_SECONDS:-5}
# Of all files together.
size_mib=384
# Names that are tried until each brick has a file: Gluster chooses the brick by the name.
NAMES_MAX=200
missing=$(missing_parts | paste -sd, | sed 's/,/, /g')
if [ -n "$missing" ]; then
    echo "skipped: comparison of Gluster on Pumice drives: this machine lacks $missing"
    exit 0
fi
# One drive a brick on both sides: there is no striping to compare.
export DRIVES=1 SIZE=${SIZE:-1G}
targets=(raw pumice)
base=$(mktemp -d "${TMPDIR:-/tmp}/pumice-gluster-compare.XXXXXX")
base=$(cd "$base" && pwd -P)
use() { LAB=$base/$1 && load_settings; }
finish() {
    local code=$? target left=
    trap - EXIT
    trap '' HUP INT TERM
    for target in "${targets[@]}"; do
        [ ! -e "$base/$target/settings" ] || LAB=$base/$target "$here/lab.sh" down || { code=$((code ? code : 1)); left=yes; }
    done
    # What is mounted would be emptied, and what is attached would lose its backing.
    if [ -n "$left" ] || grep -qF " $base/" /proc/mounts; then
        echo "left, because a lab does not end: $base" >&2
    else
        rm -rf --one-file-system "$base"
    fi
    exit "$code"
}
trap finish EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM
for target in "${targets[@]}"; do LAB=$base/$target BACKING=$target "$here/lab.sh" up; done

# on_brick NODE NAME: whether the brick has the file itself, and not only a sticky link to where it is
on_brick() { local file=$LAB/node$1/fs/$volume/$2; [ -f "$file" ] && [ ! -k "$file" ]; }
# choose_files TARGET: as many files as bricks, of a distributed volume one on each. Their names to BASE/TARGET.files
choose_files() {
    local n node name free=() files=()
    use "$1"
    for ((node = 1; node <= NODES; node++)); do free[node]=$node; done
    for ((n = 0; n < NAMES_MAX && ${#free[@]} > 0; n++)); do
        name=file-$n
        : >"$LAB/client/$volume/$name"
        for node in "${free[@]}"; do
            if on_brick "$node" "$name"; then
                unset "free[$node]"
                files+=("$name")
                continue 2
            fi
        done
        rm "$LAB/client/$volume/$name"
    done
    [ ${#free[@]} = 0 ] || fail "$1: none of $NAMES_MAX files is on the brick of node ${free[*]}"
    (IFS=: && echo "${files[*]}") >"$base/$1.files"
}
# check_bricks TARGET: each brick has its share of the data
check_bricks() {
    local node name names bytes share=$(((size_mib << 20) / NODES))
    use "$1"
    [ "$volume" = distributed ] || share=$((size_mib << 20))
    IFS=: read -r -a names <"$base/$1.files"
    for ((node = 1; node <= NODES; node++)); do
        bytes=0
        for name in "${names[@]}"; do
            if on_brick "$node" "$name"; then bytes=$((bytes + $(stat -c '%b * %B' "$LAB/node$node/fs/$volume/$name"))); fi
        done
        [ "$bytes" -ge "$share" ] || fail "$1: the brick of node $node has $(mib "$bytes") MiB of $(mib "$share")"
    done
}
for target in "${targets[@]}"; do choose_files "$target"; done

# cpu_of_drives: CPU seconds so far of the drives' servers and bridges. Those of the kernel's loop driver are not in it.
cpu_of_drives() {
    [ "$BACKING" = pumice ] || { echo 0; return; }
    processes_of pumice | while read -r pid _; do cat "/proc/$pid/stat"; done |
        awk -v ticks="$(getconf CLK_TCK)" '{ sub(/.*\) /, ""); cpu += $12 + $13 } END { print cpu / ticks }'
}
# measure TARGET JOB ARGUMENTS...: a line "target job MiB/s IOPS CPU-seconds-per-GB" to results
measure() {
    local target=$1 job=$2 before
    shift 2
    use "$target"
    before=$(cpu_of_drives)
    fio --name=files --directory="$LAB/client/$volume" --filename="$(<"$base/$target.files")" --aux-path="$base" --size="${size_mib}M" --ioengine=libaio --direct=1 --iodepth=32 \
        --refill_buffers --buffer_compress_percentage="$compress" --buffer_compress_chunk=4096 --randrepeat=0 --output-format=json "$@" \
        2>>"$base/log" | sed -n '/^{/,$p' >"$base/fio.json"
    jq -r --arg target "$target" --arg job "$job" --argjson cpu "$(awk -v a="$(cpu_of_drives)" -v b="$before" 'BEGIN { print a - b }')" \
        '.jobs[0] | (.read.io_bytes + .write.io_bytes) as $bytes
         | ((if .read.io_bytes > 0 then .read.runtime else .write.runtime end) / 1000) as $time
         | "\($target) \($job) \($bytes / $time / 1048576) \((.read.total_ios + .write.total_ios) / $time) \($cpu / ($bytes / 1e9))"' \
        "$base/fio.json" >>"$base/results"
}

for ((round = 1; round <= rounds; round++)); do
    # Who is first takes turns.
    order=("${targets[@]}")
    [ $((round % 2)) = 1 ] || order=(pumice raw)
    for target in "${order[@]}"; do measure "$target" seqwrite --rw=write --bs=128k --end_fsync=1; done
    for target in "${order[@]}"; do check_bricks "$target"; done
    for target in "${order[@]}"; do measure "$target" seqread --rw=read --bs=128k; done
    for target in "${order[@]}"; do measure "$target" randwrite --rw=randwrite --bs=4k --end_fsync=1 --time_based --runtime="$seconds"; done
    for target in "${order[@]}"; do measure "$target" randread --rw=randread --bs=4k --time_based --runtime="$seconds"; done
    say "round $round of $rounds"
done

middle() { sort -g | awk '{ v[NR] = $1 } END { print (v[int((NR + 1) / 2)] + v[int(NR / 2) + 1]) / 2 }'; }
column() { awk -v target="$1" -v job="$2" -v n="$3" '$1 == target && $2 == job { print $n }' "$base/results"; }
echo "volume $volume on $NODES bricks, $rounds rounds, fio 128K and 4K, depth 32, compressible by $compress %, direct; medians (lowest, highest)"
printf '%-10s %26s %26s %8s %22s\n' job "raw" "Pumice, expanded $EXPANSION" ratio "CPU s/GB of the drives"
for job in seqwrite seqread randwrite randread; do
    n=3 unit=MiB/s
    case $job in rand*) n=4 unit=IOPS ;; esac
    line=()
    for target in "${targets[@]}"; do
        line+=("$(column "$target" "$job" "$n" | sort -g | awk -v m="$(column "$target" "$job" "$n" | middle)" -v unit=$unit 'NR == 1 { low = $1 } END { printf "%.0f (%.0f, %.0f) %s", m, low, $1, unit }')")
    done
    printf '%-10s %26s %26s %8.2f %22.2f\n' $job "${line[@]}" \
        "$(awk -v a="$(column pumice $job $n | middle)" -v b="$(column raw $job $n | middle)" 'BEGIN { print a / b }')" "$(column pumice $job 5 | middle)"
done

use pumice
for ((node = 1; node <= NODES; node++)); do
    drive_status "$LAB/node$node/drive1" '"\(.compression_ratio) \((.logical_used_bytes - .logical_fill_bytes) / 1048576)"' |
        awk -v node="$node" '{ printf "node %d: compression ratio %.2f of %d MiB\n", node, $1, $2 }'
done
cpu=$(column pumice seqwrite 5 | middle)
awk -v shown="$(df --output=size -B1 "$LAB/node1/fs" | tail -n 1)" -v size="$(drive_status "$LAB/node1/drive1" .physical_size_bytes)" \
    'BEGIN { printf "capacity: %.2f times the physical size\n", shown / size }'
cpu=$(awk -v cpu="$cpu" 'BEGIN { printf "%.2f", cpu }')
echo "cost with these $cpu s/GB of CPU time, pumice tco cost.toml:"
"$PUMICE" tco "$here/cost.toml" --set "Pumice:cpu.seconds_per_gb=$cpu" --set "Pumice, data 2.4:1:cpu.seconds_per_gb=$cpu" |
    grep -E '^ +(Compression ratio|CapEx per TBe, |TCO per TBe, |Saving of TCO|Drives  |Effective capacity, TBe)|^ {30}'
