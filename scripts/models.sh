#!/usr/bin/env bash
# Runs the models of what threads share outside the drive's lock (crates/threads); arguments go to the tests. --no-run only
# compiles them, for the run that follows.
set -euo pipefail
cd "$(dirname "$0")/.."

arguments=(-- "$@")
[ "${1:-}" != --no-run ] || arguments=("$@")
# All that is built with these flags goes to a folder of its own, that of the profile.
export RUSTFLAGS="${RUSTFLAGS:-} --cfg loom"
"${CARGO:-cargo}" test --locked --profile models -p threads "${arguments[@]}"
