#!/usr/bin/env bash
# `pumice attach` under a real kernel with ublk and nbd, which this machine's kernel may lack: `make test-kernel`. The kernel is
# built once, into KERNEL_LAB (default: target/kernel-lab). Skipped, with the reason in one line, where that is not possible.
# XFSTESTS: a tree of xfstests that was built; its fsx and fsstress are run too.
#
#   scripts/kernel-lab/test.sh [--smoke] [PROGRAM]
#   --smoke  half a minute, part of `make test`; skipped where the kernel was not built
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
run() {         # run SECONDS VARIABLES SCRIPT...: runs scripts in the guest, as one
    printf '%s\n' "$2" | cat - "${@:3}" >"$share/run.sh"
    ./run.sh "$lab" "$share" "$1"
}
cp "$program" "$share/pumice"
cd scripts/kernel-lab
ways="WAYS='${WAYS:-ublk nbd}'"
if [ -n "$smoke" ]; then
    run 300 "$ways" checks.sh smoke.sh
    exit
fi
[ -z "${XFSTESTS:-}" ] || cp "$XFSTESTS"/ltp/{fsx,fsstress} "$share/"
run "${SECONDS_MAX:-1800}" "$ways" checks.sh guest.sh
