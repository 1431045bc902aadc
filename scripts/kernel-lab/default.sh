# Sets LAB_KERNEL, where it is not set, to a kernel that starts on this machine: uml is faster, and has no room for the registers
# of processors with AMX (its first process ends with `ptrace set fp regs failed`).
has_amx() { grep -qw amx_tile /proc/cpuinfo; }
if [ -z "${LAB_KERNEL:-}" ]; then
    if has_amx; then LAB_KERNEL=qemu; else LAB_KERNEL=uml; fi
fi
export LAB_KERNEL
