#!/usr/bin/env bash
# Two Pumice drives striped by LVM, as the document pools its drives, in the kernel of scripts/kernel-lab (User-Mode Linux, one
# CPU): for machines whose kernel has no device-mapper. Prints fio's rates on one drive and on two, and their ratio; then, with
# STEPS, runs steps of test.sh with two drives a brick: STEPS="expand clients server".
#
#   KERNEL_LAB=DIRECTORY stripe.sh      a directory that scripts/kernel-lab/build.sh made (default: target/kernel-lab)
#
# The guest's root directory is this machine's, read-only; it needs lvm2, fio, jq and the packages of test.sh here. Exits 0 with a
# line "skipped: ..." where something is missing.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/lib.sh"
lab=${KERNEL_LAB:-${CARGO_TARGET_DIR:-$root/target}/kernel-lab}
skip() { echo "skipped: drives striped by LVM in the lab kernel: $*"; exit 0; }
# It says why where there is none, or where it does not start.
built=0
LAB_KERNEL=uml "$root/scripts/kernel-lab/build.sh" --built "$lab" || built=$?
case $built in 0) ;; 77) exit 0 ;; *) exit "$built" ;; esac
lab=$(cd "$lab" && pwd -P)
missing=$(missing_parts | paste -sd, | sed 's/,/, /g')
command -v lvcreate >/dev/null || missing=${missing:+$missing, }lvm2
[ -z "$missing" ] || skip "this machine lacks $missing"
share=$(mktemp -d)
trap 'rm -rf "$share"' EXIT
chmod 755 "$share"
cp "$(readlink -f "${PUMICE:-$(default_program)}")" "$share/pumice"
cp -r "$here" "$share/gluster"
cat >"$share/environment" <<END
modules=$lab/root
seconds=${JOB_SECONDS:-5}
rounds=${1:-3}
stripe=${STRIPE:-256k}
steps='${STEPS:-}'
END
code=0
# A process namespace of its own, with which the guest ends whatever happens to this script; and one processor, because the guest has
# one (scripts/kernel-lab/run.sh).
processor=$(taskset -pc $$ | sed 's/.*[^0-9]//')
setpriv --pdeathsig KILL unshare --pid --fork --kill-child taskset -c "$processor" timeout --kill-after=5 "${SECONDS_MAX:-900}" \
    "$lab/linux" mem=3G rootfstype=hostfs rootflags=/ ro init="$share/gluster/stripe-guest.sh" con=null con0=null,fd:1 ssl=null quiet \
    loglevel=1 uml_dir="$share/" umid=uml lab_share="$share" </dev/null >"$share/console" 2>&1 || code=$?
[ ! -e "$share/output" ] || cat "$share/output"
[ -s "$share/code" ] || { tail -n 20 "$share/console" >&2; fail "the guest did not end by itself (exit code $code)"; }
exit "$(cat "$share/code")"
