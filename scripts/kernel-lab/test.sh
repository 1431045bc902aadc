#!/usr/bin/env bash
# `pumice attach` under a real kernel with ublk and nbd, which this machine's kernel may lack: `make test-kernel`. The kernel is
# built once, into KERNEL_LAB (default: target/kernel-lab). Skipped, with the reason in one line, where that is not possible.
# XFSTESTS: a tree of xfstests that was built; its fsx and fsstress are run too.
#
#   scripts/kernel-lab/test.sh [PROGRAM]
set -euo pipefail
cd "$(dirname "$0")/../.."
program=${1:-target/release/pumice}
lab=${KERNEL_LAB:-${CARGO_TARGET_DIR:-target}/kernel-lab}
[ -x "$program" ] || { echo "$program is not there: make build first" >&2; exit 1; }
built=0
scripts/kernel-lab/build.sh "$lab" || built=$?
case $built in 0) ;; 77) exit 0 ;; *) exit "$built" ;; esac
share=$(mktemp -d)
trap 'rm -rf "$share"' EXIT
cp "$program" "$share/pumice"
[ -z "${XFSTESTS:-}" ] || cp "$XFSTESTS"/ltp/{fsx,fsstress} "$share/"
{ echo "WAYS='${WAYS:-ublk nbd}'"; cat scripts/kernel-lab/{managed,guest}.sh; } >"$share/run.sh"
scripts/kernel-lab/run.sh "$lab" "$share" "${SECONDS_MAX:-1800}"
