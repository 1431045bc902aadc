#!/usr/bin/env bash
# Runs all suites of `pumice bench` that a machine without a cluster can run, and writes docs/scorecard.md from them.
# Usage: scripts/scorecard.sh [MINUTES] [RUN.json...]. MINUTES (10) is for each suite; runs made elsewhere, such as of
# `offload` on a cluster, are added. BENCH_DIR names a folder on the disk to measure, RUNS where the runs are kept,
# PUMICE the program. A suite that fails does not keep the others from running; docs/scorecard.md is written only if all runs
# are complete.
set -euo pipefail
cd "$(dirname "$0")/.."
minutes=${1:-10}
[[ $minutes =~ ^[0-9.]+$ ]] || { echo "scorecard: MINUTES is $minutes" >&2; exit 2; }
program=${PUMICE:-${CARGO_TARGET_DIR:-target}/release/pumice}
[ -x "$program" ] || cargo build --release -q -p pumice
runs=${RUNS:-target/scorecard}
mkdir -p "$runs"
files=()
for suite in quick zeros-vs-random fio-baseline expansion slow-disk datasets against; do
    file=$runs/$suite.json
    rm -f "$file"
    code=0
    "$program" bench "$suite" --minutes "$minutes" --dir "${BENCH_DIR:-${TMPDIR:-/tmp}}" \
        --json "$file" --html "$runs/$suite.html" >"$runs/$suite.txt" || code=$?
    [ "$code" -lt 128 ] || exit "$code"
    [ "$code" -eq 0 ] || echo "scorecard: $suite exited with $code" >&2
    files+=("$file")
done
bad=0 there=()
for file in "${files[@]}" "${@:2}"; do
    if [ ! -s "$file" ]; then
        echo "scorecard: $file: nothing was measured" >&2
        bad=1
        continue
    fi
    there+=("$file")
    grep -q '^  "complete": true' "$file" || { echo "scorecard: $file: not complete" >&2; bad=1; }
done
[ "${#there[@]}" -gt 0 ] || exit 1
"$program" bench scorecard "${there[@]}" >"$runs/scorecard.md"
echo "$runs/scorecard.md"
[ "$bad" -eq 0 ] || { echo "scorecard: docs/scorecard.md is not written" >&2; exit 1; }
cp "$runs/scorecard.md" docs/scorecard.md
echo "docs/scorecard.md"
