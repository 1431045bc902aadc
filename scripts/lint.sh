#!/usr/bin/env bash
# What a machine can say about the source before anything runs: format, clippy with warnings as errors (it also holds the
# minimum version of Rust), spelling, licences and sources of libraries. A missing tool is one line.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$HOME/.cargo/bin:$PATH"
cargo=${CARGO:-cargo}

"$cargo" fmt --all --check
"$cargo" clippy -q --workspace --all-targets --locked -- -D warnings
# The crate is empty without the model checker. `make test` runs what is compiled here; `cargo check` would compile it twice.
CARGO=$cargo scripts/models.sh --no-run -q

if command -v codespell >/dev/null; then
    git ls-files -z -- '*.rs' '*.md' '*.sh' '*.toml' '*.py' '*.yaml' '*.yml' Makefile |
        xargs -0 codespell
else
    echo "skipped: spelling: no codespell"
fi

if command -v cargo-deny >/dev/null; then
    cargo-deny --locked check licenses bans sources
else
    echo "skipped: licences and sources of libraries: no cargo-deny (scripts/deps.sh dist builds it)"
fi
