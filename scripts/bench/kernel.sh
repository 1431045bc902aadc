#!/usr/bin/env bash
# Compares block devices that compress, in one kernel on one disk: a drive attached by ublk and by nbd, dm-vdo, btrfs, zvols
# (where ZFS was built for that kernel), and the bare disk. The kernel runs as a program (scripts/kernel-lab), on one processor,
# with servers and fio beside it, or with LAB_KERNEL=qemu on an emulated machine of LAB_PROCESSORS [2]. Prints medians and spreads of
# the rounds (lab/kernel.md).
#
#   scripts/bench.sh kernel [ROUNDS]
#   scripts/bench.sh kernel against [MINUTES [ARGUMENT...]]
#
# against: `pumice bench against` in that kernel (figure 22) with vdo and zvol, which few kernels have. Its report is
# BENCH_KEEP/against.json and .html; ARGUMENTs are those of `pumice bench`.
#
# CONTESTANTS  the ones to measure: raw pumice-ublk pumice-nbd btrfs vdo zvol; for against vdo, zvol and targets of `pumice bench`
#              [pumice raw qcow2 btrfs vdo zvol]
# LAB_ZFS      yes: build ZFS first, which takes minutes, once; else zvol is left out where it was not built [yes for against, and if
#              CONTESTANTS names zvol]
# BENCH_SIZE   MiB of data [1024; against: 512]     BENCH_LIMIT   seconds of a random run [4]
# BENCH_DIR    where the disk is made       BENCH_KEEP    a directory that gets the output of fio [against: where this is run]
# BENCH_DISK   file, on the host, or memory, in the guest [LAB_KERNEL=qemu: memory; else file]
# PUMICE       the program                  KERNEL_LAB    the kernel's directory, made by `make test-kernel` or here
set -euo pipefail
from=$PWD
cd "$(dirname "$0")/../.."
. scripts/kernel-lab/default.sh
what=rounds
[ "${1:-}" != against ] || { what=against; shift; }
limit=${BENCH_LIMIT:-4}
case $what in
    rounds) rounds=${1:-3} size=${BENCH_SIZE:-1024} contestants=${CONTESTANTS:-raw pumice-ublk pumice-nbd btrfs vdo zvol} ;;
    against) minutes=${1:-10} size=${BENCH_SIZE:-512} contestants=${CONTESTANTS:-pumice raw qcow2 btrfs vdo zvol} ;;
esac
keep=${BENCH_KEEP:-$from}
case $keep in /*) ;; *) keep=$from/$keep ;; esac
# A part of a minute too, as `pumice bench` takes it: 0.5, or .5.
[[ ${rounds:-} =~ ^[0-9]*$ && ${minutes:-0} =~ ^([0-9]+\.?[0-9]*|\.[0-9]+)$ ]] || { echo "bench kernel: expected a number, not '${1:-}'" >&2; exit 2; }
# 08 is no octal number.
case $what in rounds) rounds=$((10#$rounds)) ;; against) whole_minutes=$((10#0${minutes%%.*})) ;; esac
# Who names zvol, or runs against, wants it built.
[ "$what" = rounds ] && [ -z "${CONTESTANTS:-}" ] || case " $contestants " in *" zvol "*) export LAB_ZFS=${LAB_ZFS:-yes} ;; esac
program=${PUMICE:-${CARGO_TARGET_DIR:-target}/release/pumice}
lab=${KERNEL_LAB:-${CARGO_TARGET_DIR:-target}/kernel-lab}
[ -x "$program" ] || { echo "$program is not there: make build first" >&2; exit 1; }
built=0
scripts/kernel-lab/build.sh "$lab" || built=$?
case $built in 0) ;; 77) exit 0 ;; *) exit "$built" ;; esac
share=$(mktemp -d "${BENCH_DIR:-${TMPDIR:-/tmp}}/pumice-bench.XXXXXX")
trap 'rm -rf "$share"' EXIT
cp "$program" "$share/pumice"
case $LAB_KERNEL in
    qemu) machine="emulated (QEMU, TCG)" processors=${LAB_PROCESSORS:-2} medium=${BENCH_DISK:-memory} ;;
    *) machine="as a program (User-Mode Linux)" processors=1 medium=${BENCH_DISK:-file} ;;
esac
# The index of VDO alone takes 2.5 GB.
disk_gib=$(((size * 3 + 1023) / 1024 + 4))
# Stores side by side; the disk is sparse.
[ "$what" != against ] || disk_gib=$((disk_gib * 3))
case $medium in
    memory) disk=(mem=4G) ;;
    file) truncate -s "${disk_gib}G" "$share/disk" && disk=(mem=2G disk="$share/disk") disk_gib= ;;
    *) echo "unknown BENCH_DISK '$medium': expected file or memory" >&2; exit 2 ;;
esac
describe() {
    echo "Linux $(cat "$share/kernel") $machine, processors: $processors, disk in ${medium/file/a file}" \
        "($(sed -n 's/^model name\s*: //p' /proc/cpuinfo | head -n 1)); load average $load before"
}
load=$(cut -d ' ' -f 1-3 /proc/loadavg)
code=0
guest=scripts/kernel-lab
if [ "$what" = against ]; then
    more=("${@:2}")
    printf '%s\n' "SIZE=$size MINUTES=$minutes TARGETS='$contestants' DISK_GIB=$disk_gib ARC_MIB=64 ARGUMENTS=(${more[*]@Q})" |
        cat - $guest/{stores,against}.sh >"$share/run.sh"
    $guest/run.sh "$lab" "$share" $((whole_minutes * 120 + 1200)) "${disk[@]}" || code=$?
    mkdir -p "$keep"
    for report in "$share"/against.{json,html}; do [ ! -e "$report" ] || cp "$report" "$keep/"; done
    # The report does not know of other programs of the host.
    [ ! -e "$share/kernel" ] || describe
    exit "$code"
fi
printf '%s\n' "SIZE=$size LIMIT=$limit ROUNDS=$rounds CONTESTANTS='$contestants' DISK_GIB=$disk_gib" |
    cat - $guest/{stores,bench}.sh >"$share/run.sh"
$guest/run.sh "$lab" "$share" $((rounds * (600 + size * 2))) "${disk[@]}" || code=$?
[ -z "${BENCH_KEEP:-}" ] || { mkdir -p "$keep" && cp "$share"/{figures,fio.*,dmesg} "$keep/"; }
[ -e "$share/figures" ] || exit "$code"

echo "$rounds rounds, $size MiB, compressible by 60 %, queue depth 16; $(describe)"
awk -v contestants="$contestants" '
    function sorted(text, values,   n, i, j, t) {
        n = split(text, values, " ")
        for (i = 2; i <= n; i++) for (j = i; j > 1 && values[j - 1] + 0 > values[j] + 0; j--) {
            t = values[j]; values[j] = values[j - 1]; values[j - 1] = t
        }
        return n
    }
    function cell(who, column, format,   n, values) {
        n = sorted(seen[who, column], values)
        if (!n) return "-"
        return sprintf(format " (" format "-" format ")", values[int((n + 1) / 2)], values[1], values[n])
    }
    { seen[$1, $2] = seen[$1, $2] " " $3; known[$1] = 1 }
    END {
        line = "%-12s %16s %16s %16s %22s %22s %18s %18s\n"
        printf line, "", "128k fill, MiB/s", "128k write", "128k read", "4k random write, /s", "4k random read, /s", \
            "ratio", "after overwriting"
        n = split(contestants, order, " ")
        for (i = 1; i <= n; i++) if (order[i] in known) {
            who = order[i]
            printf line, who, cell(who, "fill", "%d"), cell(who, "write", "%d"), cell(who, "read", "%d"), \
                cell(who, "randwrite", "%d"), cell(who, "randread", "%d"), cell(who, "ratio", "%.2f"), \
                cell(who, "ratio-after", "%.2f")
        }
        print "bytes of the disk for a byte:"
        for (i = 1; i <= n; i++) if (order[i] in known) {
            who = order[i]
            printf line, who, cell(who, "fill-disk", "%.2f"), cell(who, "write-disk", "%.2f"), cell(who, "read-disk", "%.2f"), \
                cell(who, "randwrite-disk", "%.2f"), cell(who, "randread-disk", "%.2f"), "", ""
        }
    }' "$share/figures"
exit "$code"
