#!/usr/bin/env bash
# `pumice attach` under a real kernel with ublk and nbd, which this machine's kernel may lack, also with little memory (shortage.sh;
# ONLY=shortage runs nothing else), by systemd's units (boot.sh; ONLY=systemd), and `pumice bench` on NVMe/TCP (nvme.sh; ONLY=nvme):
# `make test-kernel`. The kernel is built once, into KERNEL_LAB (default: target/kernel-lab). Skipped, with the reason in one line,
# where that is not possible.
# LAB_KERNEL=qemu: Debian's kernel on an emulated machine of two processors, for which ublk makes two queues (build.sh).
# XFSTESTS: a tree of xfstests that was built; its fsx and fsstress are run too. XFSTESTS_GROUP: a group of its tests, such as
# quick, is run in place of all else, on ext4 and XFS, each for at most XFSTESTS_SECONDS (1500), and a test for TEST_LIMIT (120).
#
#   scripts/kernel-lab/test.sh [--smoke] [PROGRAM]
#   --smoke  about a minute, part of `make test`; skipped where the kernel was not built
set -euo pipefail
cd "$(dirname "$0")/../.."
smoke=
[ "${1:-}" != --smoke ] || { smoke=yes; shift; }
program=${1:-target/release/pumice}
lab=${KERNEL_LAB:-${CARGO_TARGET_DIR:-target}/kernel-lab}
[ -x "$program" ] || { echo "$program is not there: make build first" >&2; exit 1; }
built=0
scripts/kernel-lab/build.sh ${smoke:+--built} "$lab" || built=$?
case $built in 0) ;; 77) exit 0 ;; *) exit "$built" ;; esac
lab=$(cd "$lab" && pwd -P)
share=$(mktemp -d)
trap 'rm -rf "$share"' EXIT
run() {         # run SECONDS VARIABLES SCRIPT... ARGUMENT...: runs scripts in the guest, as one; the kernel gets the arguments
    local seconds=$1
    printf '%s\n' "$2" >"$share/run.sh"
    shift 2
    while [[ ${1:-} == *.sh ]]; do cat "$1" >>"$share/run.sh"; shift; done
    ./run.sh "$lab" "$share" "$seconds" "$@"
}
cp "$program" "$share/pumice"
[ -z "${XFSTESTS:-}" ] || XFSTESTS=$(cd "$XFSTESTS" && pwd -P)
[ -z "${XFSTESTS_KEEP:-}" ] || XFSTESTS_KEEP=$(cd "$XFSTESTS_KEEP" && pwd -P)
cd scripts/kernel-lab
if [ -n "$smoke" ]; then
    run 300 "WAYS='${WAYS:-ublk nbd}'" checks.sh smoke.sh
    exit
fi
ways="WAYS='${WAYS:-ublk nbd loop}'"

if [ -n "${XFSTESTS_GROUP:-}" ]; then
    limit=${XFSTESTS_SECONDS:-1500} code=0
    mkdir "$share/xfstests"
    tar -C "$XFSTESTS" --exclude=.git --exclude='*.[och]' -cf - . | tar -C "$share/xfstests" -xf -
    for kind in ${KINDS:-ext4 xfs}; do
        rm -rf "$share"/{results.*,disk?,*.log}
        truncate -s 12G "$share"/disk{0,1}
        # As long again for the tests that failed, on the bare disks.
        run $((limit * 2 + 600)) "KIND=$kind GROUP=$XFSTESTS_GROUP LIMIT=$limit TEST_LIMIT=${TEST_LIMIT:-120}" xfstests.sh \
            mem=3G disk="$share/disk0" disk="$share/disk1" || code=$?
        [ -z "${XFSTESTS_KEEP:-}" ] || cp -r "$share"/{results.*,*.log,*.watch} "$XFSTESTS_KEEP/"
    done
    exit $code
fi

code=0
. ./default.sh
# Debian's kernel takes more memory, and an emulated machine more time.
seconds=1800 memory=320 written=350 writers=600
[ "$LAB_KERNEL" = uml ] || seconds=7200 memory=448 written=480 writers=1800
# Writers of more than the memory.
shortage() {
    truncate -s 3G "$share/disk"
    run "${SECONDS_MAX:-$seconds}" "$ways MIB='${MIB:-$written}' WRITERS_SECONDS=$writers" checks.sh shortage.sh "mem=${memory}M" disk="$share/disk" || code=$?
    rm "$share/disk"
}
# A machine with systemd.
boot() { run 300 "STAGE=$1" checks.sh boot.sh disk="$share/disk" "${@:2}"; }
systemd() {
    cp ../../deploy/systemd/pumice{,-attach,-attach@}.service "$share/"
    cp ../../deploy/udev/61-pumice.rules "$share/"
    truncate -s 1G "$share/disk"
    boot make || code=$?
    # It ends by itself, without an exit code.
    boot boot lab_init >/dev/null 2>&1 || true
    boot look || code=$?
}
case ${ONLY:-} in
    shortage | systemd)
        $ONLY
        exit $code
        ;;
esac
# Targets of `pumice bench`: a minute by User-Mode Linux on an idle machine, several on one that is emulated.
run 1500 "" checks.sh nvme.sh || code=$?
[ "${ONLY:-}" != nvme ] || exit $code
[ -z "${XFSTESTS:-}" ] || cp "$XFSTESTS"/ltp/{fsx,fsstress} "$share/"
cp ../../deploy/udev/61-pumice.rules "$share/"
run "${SECONDS_MAX:-$seconds}" "$ways" checks.sh managed.sh host.sh guest.sh || code=$?
shortage
systemd
exit $code
