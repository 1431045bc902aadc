#!/usr/bin/env bash
# Tests Gluster on Pumice drives: the steps of the document's appliance (README.md), lost and destroyed drives, full drives, and the lab
# itself. Starts a lab of its own and ends it. Prints a line for each step; ends at the first that does not hold.
#
#   test.sh [STEP...]     steps, in this order (all): units trust expand clients trim server brick bridge destroy heal all-full one-full
#                         failed-up two-labs. nothing-left is the last of any run.
#
# Exits 0 with a line "skipped: ..." where packages are missing. PUMICE names the program; FS=ext4 takes the document's file
# system in place of XFS; KEEP=1 leaves the lab of a failed test. Needs 6 GiB in the temporary directory.
set -Eeuo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
for part in lib process drive cluster remains test/data test/machine test/appliance test/lost test/full test/lab; do
    # shellcheck source=/dev/null
    . "$here/$part.sh"
done

missing=$(missing_parts | paste -sd, | sed 's/,/, /g')
if [ -n "$missing" ]; then
    echo "skipped: Gluster on Pumice drives: this machine lacks $missing"
    exit 0
fi

steps=("$@")
[ ${#steps[@]} -gt 0 ] ||
    steps=(units trust expand clients trim server brick bridge destroy heal all-full one-full failed-up two-labs)
for step in "${steps[@]}"; do
    declare -F "step_${step//-/_}" >/dev/null || { echo "test.sh: no step '$step'" >&2; exit 2; }
done

step=start began=0
work=$(mktemp -d "${TMPDIR:-/tmp}/pumice-gluster-test.XXXXXX")
work=$(cd "$work" && pwd -P)
export LAB=$work/lab
finish() {
    local code=$? lab job left=
    trap - EXIT
    trap '' HUP INT TERM
    if [ "$code" != 0 ]; then
        echo "FAILED: $step; last lines of $LAB/log:" >&2
        tail -n 15 "$LAB/log" >&2 || true
        if [ -n "${KEEP:-}" ]; then
            echo "left: LAB=$LAB $here/lab.sh status" >&2
            exit "$code"
        fi
    fi
    # Background jobs of a step that failed, and what they have started: a lab that one is making removes itself. The list is of this
    # shell's own children.
    for job in $(jobs -p); do
        pkill -P "$job" || true
        kill "$job" 2>/dev/null || true
    done
    wait || true
    for lab in "$work"/*/settings; do
        [ ! -e "$lab" ] || LAB=${lab%/settings} "$here/lab.sh" down || { code=$((code ? code : 1)); left=yes; }
    done
    if [ -e "$work/foreign" ]; then losetup --associated "$work/foreign" --noheadings --output NAME | xargs -r losetup --detach || true; fi
    # What is mounted would be emptied, and what is attached would lose its backing.
    if [ -n "$left" ] || grep -qF " $work/" /proc/mounts || losetup --list --noheadings --output BACK-FILE | grep -qF "$work/"; then
        echo "left, because a lab does not end, or something in it is mounted or attached: $work" >&2
        code=$((code ? code : 1))
    else
        rm -rf --one-file-system "$work"
    fi
    exit "$code"
}
trap finish EXIT
# What ends the test without a word of its own.
trap '[ "$BASH_SUBSHELL" != 0 ] || echo "${BASH_SOURCE[0]##*/}:$LINENO: $BASH_COMMAND" >&2' ERR
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM
ok() {
    echo "ok $step ($((SECONDS - began)) s): $*"
    began=$SECONDS
}

SIZE=${SIZE:-768M} "$here/lab.sh" up
load_settings
for volume in "${volumes[@]}"; do write_files "$volume" first 12 8; done
for step in "${steps[@]}"; do "step_${step//-/_}"; done
step=nothing-left
step_nothing_left
