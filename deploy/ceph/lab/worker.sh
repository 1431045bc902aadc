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

# Adds to `started` the children of a shell of this script, also those of its subshells, and to `timed` what `timeout` runs.
find_started() {        # find_started PID
    local child children=()
    read -r -a children <"/proc/$1/task/$1/children" 2>/dev/null || true
    for child in "${children[@]}"; do
        started+=("$child")
        # A subshell has the command line of its shell. A script that this one runs ends its own children.
        if cmp -s "/proc/$$/cmdline" "/proc/$child/cmdline"; then
            find_started "$child"
        elif grep -qx timeout "/proc/$child/comm" 2>/dev/null; then
            read -r -a children_timed <"/proc/$child/task/$child/children" || true
            timed+=("${children_timed[@]}")
        fi
    done
}

# end_children: ends what this shell and its subshells have started, also what is in the foreground when a signal ends it, and waits: lab.sh
# removes what it has begun, `timeout` passes the signal on. What `timeout` runs (fio, ceph) has nothing to remove: if it does not end in
# PATIENCE_END seconds [30], it is killed.
end_children() {
    local child children_timed=() started=() timed=()
    find_started $$
    for child in "${started[@]}"; do kill "$child" 2>/dev/null || true; done
    for child in "${timed[@]}"; do
        timeout -s KILL "${PATIENCE_END:-30}" tail --pid="$child" -f /dev/null || kill -KILL "$child" 2>/dev/null || true
    done
    for child in "${started[@]}"; do
        timeout -s KILL 120 tail --pid="$child" -f /dev/null || true
    done
}
