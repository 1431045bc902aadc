#!/usr/bin/env bash
# Runs the tests with coverage, of programs that they start too, and prints the share of lines and the ten files with the
# least. `--html` also writes pages, into target/llvm-cov/html.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$HOME/.cargo/bin:$PATH"
cargo=${CARGO:-cargo}

pages=
case ${1-} in
    '') ;;
    --html) pages=yes ;;
    *) echo "coverage: unknown argument $1: expected --html" >&2; exit 2 ;;
esac

# Counters are in the file itself: a server that is killed, or that may not open files any more, counts too.
# Of one that is killed at its beginning the file is not whole, and is left out.
export CARGO_INCREMENTAL=0 CARGO_LLVM_PROFDATA_FLAGS=--failure-mode=all
export LLVM_PROFILE_FILE_NAME='pumice-%p-%10m%c.profraw'
export RUSTFLAGS="${RUSTFLAGS:-} -C llvm-args=-runtime-counter-relocation"

"$cargo" llvm-cov clean --workspace
# What fails is covered too: the tests are judged by `make test`.
"$cargo" llvm-cov test --workspace --lib --bins --tests --locked --no-fail-fast --no-report -- --skip two_hundred_seeds ||
    echo "coverage: some tests failed; what follows counts them"

"$cargo" llvm-cov report --json --summary-only --ignore-filename-regex '/(tests|benches|examples)/' |
    jq -r '.data[0] | (.totals.lines | "lines: \(.covered) of \(.count), \(.percent * 10 | round / 10) %"),
        "the ten files with the least, of 50 lines or more:",
        ([.files[] | select(.summary.lines.count >= 50)] | sort_by(.summary.lines.percent)[:10][] |
            "\(.summary.lines.percent | round) % of \(.summary.lines.count)\t\(.filename)")' |
    sed "s|$PWD/||"
[ -z "$pages" ] || "$cargo" llvm-cov report --html --ignore-filename-regex '/(tests|benches|examples)/'
