#!/usr/bin/env bash
# Cuts the power under `pumice serve`, hundreds of times, and verifies after each what was promised (see docs/explanation/power-cuts.md).
# Usage: scripts/power-cuts.sh [--cuts N] [--modes direct,cache,...] [--seed N] ... (--help lists all). Needs /dev/fuse, the
# right to mount and fio. PUMICE names the program to test; else the released one is built. Logs and images of drives that fail
# stay in a folder under CUTS_DIR (the temporary directory).
set -euo pipefail
cd "$(dirname "$0")/.."
# Where rustup installs.
export PATH="$HOME/.cargo/bin:$PATH"
cargo=${CARGO:-cargo}
release=${CARGO_TARGET_DIR:-target}/release
# One after the other: built together they would share features, and it would not be the program that is released.
[ -n "${PUMICE:-}" ] || "$cargo" build --release --locked -q -p pumice
"$cargo" build --release --locked -q -p powercut
dir=$(mktemp -d "${CUTS_DIR:-${TMPDIR:-/tmp}}/pumice-cuts.XXXXXX")

# What is left if the driver was interrupted: servers, mounts, and nothing that is worth keeping.
finish() {
    local file pid point run record
    for file in "$dir"/*/server.pid; do
        pid=$(cat "$file" 2>/dev/null || true)
        if [ -n "$pid" ] && grep -qsF "$dir" "/proc/$pid/cmdline"; then kill -9 "$pid" || true; fi
    done
    # Attached drives: the keeper first, which starts servers.
    for file in "$dir"/*/run-time-directory; do
        run=$(cat "$file" 2>/dev/null || true)
        [ -n "$run" ] || continue
        for record in "$run"-attach/*/attachment.json; do
            pid=$(sed -n 's/^ *"bridge_pid": \([0-9]*\),$/\1/p' "$record" 2>/dev/null || true)
            if [ -n "$pid" ] && grep -qsF "$dir" "/proc/$pid/cmdline"; then kill -9 "$pid" || true; fi
        done
        PUMICE_RUNTIME_DIR=$run "${PUMICE:-$release/pumice}" detach --force "${file%/*}/mnt/drive" || true
    done
    # Of a mount without its driver nothing but its name can be had.
    while read -r _ point _; do
        case $point in "$dir"/*) umount -l "$point" || fusermount3 -u -z "$point" || true ;; esac
    done </proc/mounts
    [ -n "$(find "$dir" -name failure)" ] || rm -rf --one-file-system "$dir"
}
trap finish EXIT
"$release/power-cuts" --folder "$dir" --program "${PUMICE:-$release/pumice}" "$@"
