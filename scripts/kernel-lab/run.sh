#!/usr/bin/env bash
# Runs a script in the guest of a directory that build.sh made, prints its output, ends with its exit code:
#
#   LAB_KERNEL=uml|qemu scripts/kernel-lab/run.sh DIRECTORY SHARE SECONDS [ARGUMENT...]
#
# SHARE/run.sh is the script. The guest sees SHARE as /share and can write there. ARGUMENTs: mem=2G; disk=FILE, for each disk, which
# the script finds as ${DISK}a, ${DISK}b; others go to the kernel. 124: it took longer than SECONDS; 125: the guest did not come up.
# The emulated machine (LAB_KERNEL=qemu) has LAB_PROCESSORS processors [2].
set -euo pipefail
[ $# -ge 3 ] || { echo "usage: run.sh DIRECTORY SHARE SECONDS [ARGUMENT...]" >&2; exit 2; }
here=$(cd "$(dirname "$0")" && pwd)
. "$here/default.sh"
lab=$(cd "$1" && pwd -P)
share=$(cd "$2" && pwd -P)
seconds=$3
memory=1G
disks=() arguments=()
for argument in "${@:4}"; do
    case $argument in
        mem=*) memory=${argument#mem=} ;;
        disk=*) disks+=("${argument#disk=}") ;;
        *) arguments+=("$argument") ;;
    esac
done

# The guest has one processor, and is several times as fast if its processes share one of the host, too: each system call in it is a
# change between two of them.
uml() {
    local processor number options=()
    processor=$(taskset -pc $$ | sed 's/.*[^0-9]//')
    for number in "${!disks[@]}"; do options+=("ubd$number=${disks[number]}"); done
    guest=(taskset -c "$processor" timeout --kill-after=5 "$seconds" "$lab/linux" "mem=$memory" rootfstype=hostfs
        rootflags="$lab/root" ro init=/lab-init con=null con0=null,fd:1 ssl=null quiet loglevel=1 uml_dir="$share/" umid=uml
        lab_share="$share" "${options[@]}" "${arguments[@]}")
}

# The disks are files in the page cache of the host. The clock is the processor's, as on most machines: one that the kernel has to
# ask a device for would make a system call of each look at it. What protects the kernel from flaws of real processors is off.
# Byte-wise string instructions (erms, fsrm) are slow when emulated. A comma within a value is written twice (QEMU's syntax).
qemu() {
    local disk options=()
    for disk in "${disks[@]}"; do options+=("$(basename "$disk")" "$disk" "discard=unmap"); done
    options+=("lab-root" "$lab/image" "read-only=on")
    guest=(timeout --kill-after=5 "$seconds" qemu-system-x86_64 -machine pc -accel "tcg,thread=multi" -cpu "max,-erms,-fsrm"
        -smp "${LAB_PROCESSORS:-2}" -m "$memory" -nodefaults -no-user-config -display none -serial stdio -no-reboot
        -kernel "$lab/vmlinuz" -initrd "$lab/initramfs"
        -append "console=ttyS0 quiet loglevel=1 panic=-1 mitigations=off clocksource=tsc tsc=reliable ${arguments[*]}"
        -virtfs "local,path=${share//,/,,},mount_tag=share,security_model=none,multidevs=remap")
    set -- "${options[@]}"
    local number=0
    while [ $# -gt 0 ]; do
        guest+=(-object "iothread,id=thread$number"
            -drive "if=none,id=disk$number,format=raw,file=${2//,/,,},cache=unsafe,aio=threads,$3"
            -device "virtio-blk-pci,drive=disk$number,serial=$1,iothread=thread$number")
        number=$((number + 1))
        shift 3
    done
    install -m 755 "$here/init" "$share/lab-init"
}

case $LAB_KERNEL in
    uml | qemu) "$LAB_KERNEL" ;;
    *) echo "run.sh: unknown LAB_KERNEL '$LAB_KERNEL': expected uml or qemu" >&2; exit 2 ;;
esac
rm -f "$share/code" "$share/output"
code=0
# A process namespace, with which the guest ends whatever happens to this script.
setpriv --pdeathsig KILL unshare --pid --fork --kill-child "${guest[@]}" </dev/null >"$share/console" 2>&1 || code=$?
[ ! -e "$share/output" ] || cat "$share/output"
if [ -s "$share/code" ]; then exit "$(cat "$share/code")"; fi
case $code in
    124 | 137) echo "the guest took more than $seconds seconds" >&2; exit 124 ;;
esac
tail -n 20 "$share/console" >&2
exit 125
