# Sourced by test.sh and compare.sh, first: runs the script a second time, as its child, which does the work.
#
# bash forgets a SIGINT that its child in the foreground outlives, and runs a trap when that child has ended, which may take minutes.
# At a SIGTERM that is not trapped it ends at once, and runs the trap for EXIT. So the first one waits, and turns one into the other.

if [ "${PUMICE_WORKER_OF:-}" != $PPID ]; then
    PUMICE_WORKER_OF=$$ bash "$0" "$@" &
    worker=$!
    trap 'kill "$worker" 2>/dev/null || true' HUP INT TERM
    code=0
    while :; do
        wait "$worker" && code=0 || code=$?
        # A signal ends `wait` too.
        kill -0 "$worker" 2>/dev/null || exit "$code"
    done
fi
unset PUMICE_WORKER_OF

# end_children: ends what this shell has started, also what is in the foreground when a signal ends it, and waits: lab.sh removes what it
# has begun, `timeout` passes the signal on.
end_children() {
    local child children=()
    read -r -a children <"/proc/$$/task/$$/children" || true
    for child in "${children[@]}"; do
        kill "$child" 2>/dev/null || continue
        timeout -s KILL 120 tail --pid="$child" -f /dev/null || true
    done
}
