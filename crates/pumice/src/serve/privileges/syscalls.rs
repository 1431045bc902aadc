//! System calls that neither a server nor its `on-event` commands need, refused with EPERM (seccomp): those
//! that debug and trace other processes, mount, load modules, change the clock or the machine, and create
//! namespaces. Attacks on the kernel and on other processes begin with these.

use std::collections::BTreeMap;

use anyhow::Result;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    apply_filter_all_threads,
};

const REFUSED: &[libc::c_long] = &[
    // Other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    // File systems.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_open_by_handle_at,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_acct,
    libc::SYS_fanotify_init,
    // Namespaces.
    libc::SYS_unshare,
    libc::SYS_setns,
    // The kernel.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_syslog,
    // The machine.
    libc::SYS_reboot,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_adjtimex,
    libc::SYS_clock_adjtime,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_vhangup,
    libc::SYS_personality,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_modify_ldt,
];

/// Address families for which sockets can be created.
const FAMILIES: [libc::c_int; 4] = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];

/// Flags of `clone(2)` that create namespaces.
const NAMESPACES: libc::c_int = libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET;

/// Filters the system calls of all threads, and of all that they start, for good. Does nothing on processors
/// that are neither x86-64 nor ARM64.
///
/// # Errors
///
/// If the kernel refuses.
pub(super) fn filter() -> Result<()> {
    let Ok(architecture) = std::env::consts::ARCH.try_into() else { return Ok(()) };
    let install = |rules, refused| -> Result<()> {
        let filter = SeccompFilter::new(rules, SeccompAction::Allow, refused, architecture)?;
        Ok(apply_filter_all_threads(&BpfProgram::try_from(filter)?)?)
    };
    // The arguments of `clone3` are in memory, where no filter sees them. Without it libraries use `clone`.
    let clone3 = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    install(clone3, SeccompAction::Errno(libc::ENOSYS.cast_unsigned()))?;
    install(rules()?, SeccompAction::Errno(libc::EPERM.cast_unsigned()))
}

fn rules() -> Result<BTreeMap<i64, Vec<SeccompRule>>> {
    // A call is refused if all conditions of one of its rules hold, or if it has none.
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = REFUSED.iter().map(|&call| (call, Vec::new())).collect();
    let condition = |comparison, value: libc::c_int| {
        let value = u64::from(value.cast_unsigned());
        SeccompCondition::new(0, SeccompCmpArgLen::Dword, comparison, value)
    };
    let other_family: Result<Vec<_>, _> =
        FAMILIES.iter().map(|&family| condition(SeccompCmpOp::Ne, family)).collect();
    rules.insert(libc::SYS_socket, vec![SeccompRule::new(other_family?)?]);
    let mut with_namespace = Vec::new();
    for bit in (0..32).map(|bit| 1_i32 << bit).filter(|bit| NAMESPACES & bit != 0) {
        let mask = u64::from(bit.cast_unsigned());
        with_namespace.push(SeccompRule::new(vec![condition(SeccompCmpOp::MaskedEq(mask), bit)?])?);
    }
    rules.insert(libc::SYS_clone, with_namespace);
    Ok(rules)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filter_is_one_that_the_kernel_takes() {
        // Longer ones are refused by the kernel (BPF_MAXINSNS).
        let architecture = std::env::consts::ARCH.try_into().expect("x86-64 or ARM64");
        let refused = SeccompAction::Errno(1);
        let filter = SeccompFilter::new(rules().expect("rules"), SeccompAction::Allow, refused, architecture);
        let program = BpfProgram::try_from(filter.expect("a filter")).expect("a program");
        assert!((REFUSED.len()..4096).contains(&program.len()), "{}", program.len());
    }
}
