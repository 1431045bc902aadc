#!/usr/bin/env bash
# Runs all tests, also those behind one that fails. Lists at the end the tests that were skipped because a tool or a
# permission is missing.
set -euo pipefail
cd "$(dirname "$0")/.."

# Where rustup installs, for the first run after scripts/deps.sh did so.
export PATH="$HOME/.cargo/bin:$PATH"
cargo=${CARGO:-cargo}
seeds=${SIM_SEEDS:-100}
# What incremental builds keep is as large as the test programs, and whoever runs everything once has nothing of it.
export CARGO_INCREMENTAL=${CARGO_INCREMENTAL:-0}
dir=$(mktemp -d) aside= beside=()
log=$dir/log aside_log=$dir/aside
# What runs aside is in process groups of its own, which Ctrl-C does not reach.
end() {
    local group
    for group in $aside "${beside[@]}"; do kill -- "-$group" 2>/dev/null || true; done
    rm -rf "$dir"
}
trap end EXIT

step() { printf '\n== %s\n' "$*"; }

# Models of threads, and the simulator: they use whatever processor time is left.
aside() {
    step "threads outside the drive's lock"
    scripts/models.sh

    # As the tests, with debug assertions: building it anew, optimized, takes longer than it saves. Mistakes are planted
    # only where --bug says so.
    step "simulator, $seeds seeds"
    local simulator=${CARGO_TARGET_DIR:-target}/debug/sim
    "$simulator" --seeds "$seeds"

    # Those found within a few seeds; make planted looks for all. Each begins at a seed that finds it.
    step "simulator, planted mistakes"
    local bug first
    while read -r bug first; do
        "$simulator" --bug "$bug" --first "$first" --seeds 100
    done <<<"skip-flush 0
zero-share-frame 0
lost-packs-accepted 11
reserve-forgotten 8
codec-unrecorded 1
cut-unseen 24
edge-unseen 0
stale-block 68
odd-write-torn 8
unbounded-cleaning 262
hold-kept 37
hold-ignored 31"
}

# Examples and benchmarks are checked by the lint step.
targets=(--workspace --lib --bins --tests --locked)

step "lint"
scripts/lint.sh 2>&1 | tee "$log"

step "building the tests"
"$cargo" test "${targets[@]}" --no-run

# A group of tests. --show-output: tests that pass say there what they skipped. The simulator's long run is aside.
tests() { "$cargo" test --workspace --locked --no-fail-fast "$@" -- --show-output --skip two_hundred_seeds; }

# These wait most of the time, for programs, timers and disks: they run beside the others. More beside each other starve
# what works only on idle processors.
many() { RUST_TEST_THREADS=6 tests "$@"; }
waiting=("many --test clients" "many --test commands")

set -m
(set +m -e; renice -n 19 "$BASHPID" >/dev/null; aside) >"$aside_log" 2>&1 </dev/null &
aside=$!
for i in "${!waiting[@]}"; do
    (set +m -e; ${waiting[i]}) >"$dir/beside.$i" 2>&1 </dev/null &
    beside+=("$!")
done
set +m

step "cargo test (some tests, models of threads and the simulator run beside these: see below)"
others=$("$cargo" metadata --no-deps --locked --format-version 1 |
    jq -r '.packages[].targets[] | select(.kind == ["test"]).name' | sort -u | grep -vxE 'clients|commands')
mapfile -t others <<<"$others"
failed=
tests --lib --bins "${others[@]/#/--test=}" 2>&1 | tee -a "$log" || failed=yes
"$cargo" test --workspace --doc --locked --no-fail-fast 2>&1 | tee -a "$log" || failed=yes
for i in "${!waiting[@]}"; do
    step "${waiting[i]}"
    tail -n +1 -f --pid="${beside[i]}" "$dir/beside.$i"
    wait "${beside[i]}" || failed=yes
    cat "$dir/beside.$i" >>"$log"
done
beside=()

step "the module of Ceph's manager"
if command -v python3 >/dev/null; then
    python3 -B -m unittest discover -s deploy/ceph -t deploy/ceph 2>&1 | tee -a "$log" || failed=yes
else
    echo "skipped: tests of deploy/ceph/mgr: no python3" | tee -a "$log"
fi

step "a Ceph cluster on a drive"
# In the foreground: Ctrl-C reaches it. When its time is over it removes its cluster before it ends.
timeout --foreground --kill-after=300 1200 deploy/ceph/test.sh --smoke "${CARGO_TARGET_DIR:-target}/debug/pumice" 2>&1 |
    tee -a "$log" || failed=yes

# Where `make test-kernel` has built that kernel, or KERNEL_LAB names one.
step "attached drives under a kernel of their own"
scripts/kernel-lab/test.sh --smoke "${CARGO_TARGET_DIR:-target}/debug/pumice" 2>&1 | tee -a "$log" || failed=yes

# What is left of it, as it comes.
tail -n +1 -f --pid="$aside" "$aside_log"
wait "$aside" || failed=yes
aside=
cat "$aside_log" >>"$log"

step "skipped"
# grep finds nothing where nothing was skipped.
skipped=$(grep '^skipped: ' "$log" || true)
if [ -n "$skipped" ]; then
    sort <<<"$skipped" | uniq -c
    echo "$(wc -l <<<"$skipped") tests were skipped"
else
    echo "0 tests were skipped"
fi

if [ -n "$failed" ]; then
    echo "something failed: see above" >&2
    exit 1
fi
