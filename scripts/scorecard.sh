#!/usr/bin/env bash
# Runs all suites of `pumice bench` that a machine without a cluster can run, and writes docs/scorecard.md from them.
# Usage: scripts/scorecard.sh [MINUTES] [RUN.json...]. MINUTES (10) is for each suite; runs made elsewhere, such as of
# `offload` on a cluster, are added. BENCH_DIR names a folder on the disk to measure, RUNS where the runs are kept,
# PUMICE the program.
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
    "$program" bench "$suite" --minutes "$minutes" --dir "${BENCH_DIR:-${TMPDIR:-/tmp}}" \
        --json "$file" --html "$runs/$suite.html" >"$runs/$suite.txt"
    files+=("$file")
done
"$program" bench scorecard "${files[@]}" "${@:2}" >"$runs/scorecard.md"
cp "$runs/scorecard.md" docs/scorecard.md
echo "docs/scorecard.md"
