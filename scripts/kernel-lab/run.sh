#!/usr/bin/env bash
# Runs a script in the guest of a directory that build.sh made, prints its output, ends with its exit code:
#
#   scripts/kernel-lab/run.sh DIRECTORY SHARE SECONDS [ARGUMENT...]
#
# SHARE/run.sh is the script. The guest sees SHARE as /share and can write there. ARGUMENTs go to the kernel: mem=2G,
# ubd0=DISK. 124: it took longer than SECONDS; 125: the guest did not come up.
set -euo pipefail
[ $# -ge 3 ] || { echo "usage: run.sh DIRECTORY SHARE SECONDS [ARGUMENT...]" >&2; exit 2; }
lab=$(cd "$1" && pwd -P)
share=$(cd "$2" && pwd -P)
rm -f "$share/code" "$share/output"
code=0
# A process namespace, with which the guest ends whatever happens to this script. Of two `mem` the last holds. The guest has one
# processor, and is several times as fast if its processes share one of the host, too: each system call in it is a change between
# two of them.
processor=$(taskset -pc $$ | sed 's/.*[^0-9]//')
setpriv --pdeathsig KILL unshare --pid --fork --kill-child taskset -c "$processor" timeout --kill-after=5 "$3" \
    "$lab/linux" mem=1G rootfstype=hostfs rootflags="$lab/root" ro init=/lab-init con=null con0=null,fd:1 ssl=null quiet \
    loglevel=1 uml_dir="$share/" umid=uml lab_share="$share" "${@:4}" </dev/null >"$share/console" 2>&1 || code=$?
[ ! -e "$share/output" ] || cat "$share/output"
if [ -s "$share/code" ]; then exit "$(cat "$share/code")"; fi
case $code in
    124 | 137) echo "the guest took more than $3 seconds" >&2; exit 124 ;;
esac
tail -n 20 "$share/console" >&2
exit 125
