# shellcheck shell=bash
# Processes of a lab, found by what they are, and never by a number that a file holds: numbers are used again. Sourced after lib.sh.
#
# A process is named by two words, "PID START": its number, and its start in ticks since that of the machine.

# process_state PID: "STATE START"; fails if there is none
process_state() {
    local line words
    { line=$(<"/proc/$1/stat"); } 2>/dev/null || return 1
    # The name in it may hold blanks and brackets.
    read -ra words <<<"${line##*) }"
    [ ${#words[@]} -gt 19 ] && echo "${words[0]} ${words[19]}"
}
# is_alive PID START: false of one that has ended and was not yet waited for, and of another one with that number. The first thread
# of one that is killed may have ended before others, and until the last has, its files are open.
is_alive() {
    local state start tasks
    read -r state start < <(process_state "$1") || return 1
    [ "$start" = "$2" ] || return 1
    case $state in Z | X) tasks=("/proc/$1/task/"*) && [ ${#tasks[@]} -gt 1 ] ;; esac
}
has_ended() { ! is_alive "$@"; }
# kill_process SIGNAL PID START
kill_process() { is_alive "$2" "$3" && kill -s "$1" "$2" 2>/dev/null; }
# end_process PID START: SIGKILL, and waits for its end
end_process() {
    kill_process KILL "$@" || return 0
    wait_until 10 has_ended "$@"
}
# stop_process PID START: SIGTERM, after ten seconds SIGKILL
stop_process() {
    kill_process TERM "$@" || return 0
    wait_until 10 has_ended "$@" || end_process "$@"
}

# lab_processes: a line "PID START PROGRAM WORDS..." for each process of this lab: those of Gluster, of the drives, and the timer's
lab_processes() {
    local folder words word program start
    for folder in /proc/[0-9]*; do
        { mapfile -d '' -t words <"$folder/cmdline"; } 2>/dev/null || continue
        [ ${#words[@]} -gt 1 ] || continue
        program=${words[0]##*/}
        case $program in
            glusterd | glusterfs | glusterfsd | glfsheal | fstrim) ;;
            bash) [ "${words[2]:-}" = run-timer ] || continue ;;
            "${PUMICE##*/}")
                case ${words[1]} in serve | bridge) ;; *) continue ;; esac
                program=pumice
                ;;
            *) continue ;;
        esac
        for word in "${words[@]:1}"; do
            case $word in "$LAB"/* | *="$LAB"/*) ;; *) continue ;; esac
            start=$(process_state "${folder#/proc/}") || break
            [ "${start% *}" = Z ] || echo "${folder#/proc/} ${start#* } $program ${words[*]:1}"
            break
        done
    done
}
# process_of PROGRAM WORD...: "PID START" of the process of this lab with these words among its arguments; fails if there is none
process_of() {
    local pid start program words word
    while read -r pid start program words; do
        [ "$program" = "$1" ] || continue
        for word in "${@:2}"; do case " $words " in *" $word "*) ;; *) continue 2 ;; esac; done
        echo "$pid $start"
        return
    done < <(lab_processes)
    return 1
}
# processes_of PATTERN: "PID START" of all whose program matches
processes_of() { lab_processes | awk -v pattern="^($1)\$" '$3 ~ pattern { print $1, $2 }'; }
# stop_processes PATTERN
stop_processes() {
    local pid start
    while read -r pid start; do stop_process "$pid" "$start" || say "process $pid does not end"; done < <(processes_of "$1")
}
