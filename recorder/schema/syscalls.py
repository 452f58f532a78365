# SPDX-License-Identifier: Apache-2.0
"""System calls by number, as the kernels of x86-64 and arm64 number them; what some of them do.

Numbers are never reused by the kernel, so one table serves every version; a number that is not
here belongs to a kernel newer than the table.
"""

import ctypes

_X86_RUNS = (
    (
        0,
        "read write open close stat fstat lstat poll lseek mmap mprotect munmap brk rt_sigaction "
        "rt_sigprocmask rt_sigreturn ioctl pread64 pwrite64 readv writev access pipe select "
        "sched_yield mremap msync mincore madvise shmget shmat shmctl dup dup2 pause nanosleep "
        "getitimer alarm setitimer getpid sendfile socket connect accept sendto recvfrom sendmsg "
        "recvmsg shutdown bind listen getsockname getpeername socketpair setsockopt getsockopt "
        "clone fork vfork execve exit wait4 kill uname semget semop semctl shmdt msgget msgsnd "
        "msgrcv msgctl fcntl flock fsync fdatasync truncate ftruncate getdents getcwd chdir "
        "fchdir rename mkdir rmdir creat link unlink symlink readlink chmod fchmod chown fchown "
        "lchown umask gettimeofday getrlimit getrusage sysinfo times ptrace getuid syslog getgid "
        "setuid setgid geteuid getegid setpgid getppid getpgrp setsid setreuid setregid getgroups "
        "setgroups setresuid getresuid setresgid getresgid getpgid setfsuid setfsgid getsid "
        "capget capset rt_sigpending rt_sigtimedwait rt_sigqueueinfo rt_sigsuspend sigaltstack "
        "utime mknod uselib personality ustat statfs fstatfs sysfs getpriority setpriority "
        "sched_setparam sched_getparam sched_setscheduler sched_getscheduler "
        "sched_get_priority_max sched_get_priority_min sched_rr_get_interval mlock munlock "
        "mlockall munlockall vhangup modify_ldt pivot_root _sysctl prctl arch_prctl adjtimex "
        "setrlimit chroot sync acct settimeofday mount umount2 swapon swapoff reboot sethostname "
        "setdomainname iopl ioperm create_module init_module delete_module get_kernel_syms "
        "query_module quotactl nfsservctl getpmsg putpmsg afs_syscall tuxcall security gettid "
        "readahead setxattr lsetxattr fsetxattr getxattr lgetxattr fgetxattr listxattr llistxattr "
        "flistxattr removexattr lremovexattr fremovexattr tkill time futex sched_setaffinity "
        "sched_getaffinity set_thread_area io_setup io_destroy io_getevents io_submit io_cancel "
        "get_thread_area lookup_dcookie epoll_create epoll_ctl_old epoll_wait_old "
        "remap_file_pages getdents64 set_tid_address restart_syscall semtimedop fadvise64 "
        "timer_create timer_settime timer_gettime timer_getoverrun timer_delete clock_settime "
        "clock_gettime clock_getres clock_nanosleep exit_group epoll_wait epoll_ctl tgkill utimes "
        "vserver mbind set_mempolicy get_mempolicy mq_open mq_unlink mq_timedsend mq_timedreceive "
        "mq_notify mq_getsetattr kexec_load waitid add_key request_key keyctl ioprio_set "
        "ioprio_get inotify_init inotify_add_watch inotify_rm_watch migrate_pages openat mkdirat "
        "mknodat fchownat futimesat newfstatat unlinkat renameat linkat symlinkat readlinkat "
        "fchmodat faccessat pselect6 ppoll unshare set_robust_list get_robust_list splice tee "
        "sync_file_range vmsplice move_pages utimensat epoll_pwait signalfd timerfd_create "
        "eventfd fallocate timerfd_settime timerfd_gettime accept4 signalfd4 eventfd2 "
        "epoll_create1 dup3 pipe2 inotify_init1 preadv pwritev rt_tgsigqueueinfo perf_event_open "
        "recvmmsg fanotify_init fanotify_mark prlimit64 name_to_handle_at open_by_handle_at "
        "clock_adjtime syncfs sendmmsg setns getcpu process_vm_readv process_vm_writev kcmp "
        "finit_module sched_setattr sched_getattr renameat2 seccomp getrandom memfd_create "
        "kexec_file_load bpf execveat userfaultfd membarrier mlock2 copy_file_range preadv2 "
        "pwritev2 pkey_mprotect pkey_alloc pkey_free statx io_pgetevents rseq",
    ),
    (
        424,
        "pidfd_send_signal io_uring_setup io_uring_enter io_uring_register open_tree move_mount "
        "fsopen fsconfig fsmount fspick pidfd_open clone3 close_range openat2 pidfd_getfd "
        "faccessat2 process_madvise epoll_pwait2 mount_setattr quotactl_fd "
        "landlock_create_ruleset landlock_add_rule landlock_restrict_self memfd_secret "
        "process_mrelease futex_waitv set_mempolicy_home_node cachestat fchmodat2 "
        "map_shadow_stack futex_wake futex_wait futex_requeue statmount listmount "
        "lsm_get_self_attr lsm_set_self_attr lsm_list_modules mseal setxattrat getxattrat "
        "listxattrat removexattrat open_tree_attr file_getattr file_setattr",
    ),
)
"""x86-64 (arch/x86/entry/syscalls/syscall_64.tbl): runs of (first number, names in order)."""

_GENERIC_RUNS = (
    (
        0,
        "io_setup io_destroy io_submit io_cancel io_getevents setxattr lsetxattr fsetxattr "
        "getxattr lgetxattr fgetxattr listxattr llistxattr flistxattr removexattr lremovexattr "
        "fremovexattr getcwd lookup_dcookie eventfd2 epoll_create1 epoll_ctl epoll_pwait dup dup3 "
        "fcntl inotify_init1 inotify_add_watch inotify_rm_watch ioctl ioprio_set ioprio_get flock "
        "mknodat mkdirat unlinkat symlinkat linkat renameat umount2 mount pivot_root nfsservctl "
        "statfs fstatfs truncate ftruncate fallocate faccessat chdir fchdir chroot fchmod "
        "fchmodat fchownat fchown openat close vhangup pipe2 quotactl getdents64 lseek read write "
        "readv writev pread64 pwrite64 preadv pwritev sendfile pselect6 ppoll signalfd4 vmsplice "
        "splice tee readlinkat newfstatat fstat sync fsync fdatasync sync_file_range "
        "timerfd_create timerfd_settime timerfd_gettime utimensat acct capget capset personality "
        "exit exit_group "
        "waitid set_tid_address unshare futex set_robust_list get_robust_list nanosleep getitimer "
        "setitimer kexec_load init_module delete_module timer_create timer_gettime "
        "timer_getoverrun timer_settime timer_delete clock_settime clock_gettime clock_getres "
        "clock_nanosleep syslog ptrace sched_setparam sched_setscheduler sched_getscheduler "
        "sched_getparam sched_setaffinity sched_getaffinity sched_yield sched_get_priority_max "
        "sched_get_priority_min sched_rr_get_interval restart_syscall kill tkill tgkill "
        "sigaltstack rt_sigsuspend rt_sigaction rt_sigprocmask rt_sigpending rt_sigtimedwait "
        "rt_sigqueueinfo rt_sigreturn setpriority getpriority reboot setregid setgid setreuid "
        "setuid setresuid getresuid setresgid getresgid setfsuid setfsgid times setpgid getpgid "
        "getsid setsid getgroups setgroups uname sethostname setdomainname getrlimit setrlimit "
        "getrusage umask prctl getcpu gettimeofday settimeofday adjtimex getpid getppid getuid "
        "geteuid getgid getegid gettid sysinfo mq_open mq_unlink mq_timedsend mq_timedreceive "
        "mq_notify mq_getsetattr msgget msgctl msgrcv msgsnd semget semctl semtimedop semop "
        "shmget shmctl shmat shmdt socket socketpair bind listen accept connect getsockname "
        "getpeername sendto recvfrom setsockopt getsockopt shutdown sendmsg recvmsg readahead brk "
        "munmap mremap add_key request_key keyctl clone execve mmap fadvise64 swapon swapoff "
        "mprotect msync mlock munlock mlockall munlockall mincore madvise remap_file_pages mbind "
        "get_mempolicy set_mempolicy migrate_pages move_pages rt_tgsigqueueinfo perf_event_open "
        "accept4 recvmmsg",
    ),
    (260, "wait4 prlimit64 fanotify_init fanotify_mark"),
    (
        266,
        "clock_adjtime syncfs setns sendmmsg process_vm_readv process_vm_writev kcmp finit_module "
        "sched_setattr sched_getattr renameat2 seccomp getrandom memfd_create bpf execveat "
        "userfaultfd membarrier mlock2 copy_file_range preadv2 pwritev2 pkey_mprotect pkey_alloc "
        "pkey_free statx io_pgetevents rseq kexec_file_load",
    ),
    (
        403,
        "clock_gettime64 clock_settime64 clock_adjtime64 clock_getres_time64 "
        "clock_nanosleep_time64 timer_gettime64 timer_settime64 timerfd_gettime64 "
        "timerfd_settime64 utimensat_time64 pselect6_time64 ppoll_time64",
    ),
    (
        416,
        "io_pgetevents_time64 recvmmsg_time64 mq_timedsend_time64 mq_timedreceive_time64 "
        "semtimedop_time64 rt_sigtimedwait_time64 futex_time64 sched_rr_get_interval_time64 "
        "pidfd_send_signal io_uring_setup io_uring_enter io_uring_register open_tree move_mount "
        "fsopen fsconfig fsmount fspick pidfd_open clone3 close_range openat2 pidfd_getfd "
        "faccessat2 process_madvise epoll_pwait2 mount_setattr quotactl_fd "
        "landlock_create_ruleset landlock_add_rule landlock_restrict_self memfd_secret "
        "process_mrelease futex_waitv set_mempolicy_home_node cachestat fchmodat2 "
        "map_shadow_stack futex_wake futex_wait futex_requeue statmount listmount "
        "lsm_get_self_attr lsm_set_self_attr lsm_list_modules mseal setxattrat getxattrat "
        "listxattrat removexattrat open_tree_attr file_getattr file_setattr",
    ),
)
"""arm64 and riscv64 (include/uapi/asm-generic/unistd.h): runs of (first number, names in order)."""


_GENERIC = {
    first + n: name for first, names in _GENERIC_RUNS for n, name in enumerate(names.split())
}
_BY_MACHINE = {
    "x86_64": {
        first + n: name for first, names in _X86_RUNS for n, name in enumerate(names.split())
    },
    "aarch64": _GENERIC,
    "riscv64": _GENERIC,
}

PAGE_FAULT = -1
"""Number of a CALL whose thread entered the kernel by a page fault."""
KERNEL_THREAD = -2
"""The same where a kernel thread, or one of io_uring's, is in no call at all."""
UNKNOWN_CALL = -3
"""The same where the kernel does not tell."""
_NOT_CALLS = {
    PAGE_FAULT: "page fault",
    KERNEL_THREAD: "(kernel thread)",
    UNKNOWN_CALL: "(call not known)",
}

IDLE_CALLS = frozenset(
    (
        *("futex", "futex_wait", "futex_waitv", "poll", "ppoll", "select", "pselect6"),
        *("epoll_wait", "epoll_wait_old", "epoll_pwait", "epoll_pwait2"),
        *("nanosleep", "clock_nanosleep", "pause", "rt_sigsuspend", "rt_sigtimedwait"),
        *("restart_syscall", "wait4", "waitid", "accept", "accept4"),
        *("recvfrom", "recvmsg", "recvmmsg", "msgrcv", "mq_timedreceive", "semop", "semtimedop"),
    )
)
"""Calls that wait by their nature, for a time, an event, a child or a peer: they are recorded only
if they queue bios or wait in state D, not because they take long."""

FD_CALLS = frozenset(
    (
        *("read", "pread64", "readv", "preadv", "preadv2", "readahead", "fadvise64"),
        *("write", "pwrite64", "writev", "pwritev", "pwritev2", "copy_file_range"),
        *("fsync", "fdatasync", "syncfs", "sync_file_range", "fallocate", "ftruncate"),
        *("getdents", "getdents64", "ioctl", "fcntl", "flock", "lseek", "fstat", "fstatfs"),
        *("fchmod", "fchown", "fgetxattr", "fsetxattr", "flistxattr", "fremovexattr"),
        *("sendto", "sendmsg", "sendmmsg", "recvfrom", "recvmsg", "recvmmsg"),
        *("connect", "accept", "accept4", "shutdown", "getsockopt", "setsockopt"),
        *("epoll_ctl", "epoll_wait", "epoll_pwait", "epoll_pwait2", "io_uring_enter"),
    )
)
"""Calls whose first argument is the descriptor of the file that they are for, and is open still
when they return."""

READS_OF_FD = frozenset({"read", "pread64", "readv", "preadv", "preadv2"})
"""Calls that read the file that is open as their first argument."""
WRITES_OF_FD = frozenset({"write", "pwrite64", "writev", "pwritev", "pwritev2"})
"""Calls that write it. Not those that only have cached pages written back (fsync and the like):
what they queue has the file's pages, or is the file system's own."""

REAPING_CALLS = frozenset({"io_getevents", "io_pgetevents", "io_uring_enter"})
"""Calls that wait for I/O which other calls submitted."""


IOCTLS = {
    "FITRIM": 0xC0185879,
    "FIFREEZE": 0xC0045877,
    "FITHAW": 0xC0045878,
    "FICLONE": 0x40049409,
    "FICLONERANGE": 0x4020940D,
    "FIDEDUPERANGE": 0xC0189436,
    "FIEMAP": 0xC020660B,
    "BLKDISCARD": 0x1277,
    "BLKSECDISCARD": 0x127D,
    "BLKZEROOUT": 0x127F,
    "BLKFLSBUF": 0x1261,
    "BLKRRPART": 0x125F,
    "SG_IO": 0x2285,
    "NVME_ADMIN_CMD": 0xC0484E41,
    "NVME_SUBMIT_IO": 0x402C4E42,
    "NVME_IO_CMD": 0xC0484E43,
    "EXT4_MOVE_EXT": 0xC028660F,
    "KVM_RUN": 0xAE80,
    "LOOP_SET_FD": 0x4C00,
    "LOOP_CLR_FD": 0x4C01,
    "LOOP_CONFIGURE": 0x4C0A,
    "DM_DEV_SUSPEND": 0xC138FD06,
    "DM_TABLE_LOAD": 0xC138FD09,
    "BTRFS_SNAP_CREATE": 0x50009401,
    "BTRFS_SNAP_CREATE_V2": 0x50009417,
    "BTRFS_SUBVOL_CREATE": 0x5000940E,
    "BTRFS_SUBVOL_CREATE_V2": 0x50009418,
    "BTRFS_SNAP_DESTROY": 0x5000940F,
    "BTRFS_SNAP_DESTROY_V2": 0x5000943F,
    "BTRFS_DEFRAG": 0x50009402,
    "BTRFS_DEFRAG_RANGE": 0x40309410,
    "BTRFS_RESIZE": 0x50009403,
    "BTRFS_SYNC": 0x9408,
    "BTRFS_START_SYNC": 0x80089418,
    "BTRFS_WAIT_SYNC": 0x40089416,
    "BTRFS_SCRUB": 0xC400941B,
    "BTRFS_BALANCE_V2": 0xC4009420,
    "BTRFS_SEND": 0x40489426,
    "BTRFS_DEV_REPLACE": 0xCA289435,
}
"""Commands of ioctl() that do I/O or wait for it, as x86-64 and arm64 number them: their headers in
include/uapi/linux, without IOC in their names."""
_COMMANDS = list(IOCTLS)
_COMMAND_SHIFT = 16


def with_command(number: int, command: int) -> int:
    """Return the number that stands for ioctl with a command; ioctl's own of one not in IOCTLS."""
    return _NUMBERED.get(command, 0) << _COMMAND_SHIFT | number


_NUMBERED = {command: place for place, command in enumerate(IOCTLS.values(), 1)}


def plain_number(number: int) -> int:
    """Return the number of a system call, without a command of ioctl (with_command)."""
    return number if number < 0 else number & ((1 << _COMMAND_SHIFT) - 1)


def call_name(number: int, machine: str) -> str:
    """Return the name of a system call: "pread64", "ioctl FITRIM", "syscall 600".

    "page fault" for PAGE_FAULT, likewise "(kernel thread)" and "(call not known)". machine:
    uname's, as in the log's header.
    """
    if number in _NOT_CALLS:
        return _NOT_CALLS[number]
    plain = plain_number(number)
    name = _BY_MACHINE.get(machine, {}).get(plain, f"syscall {plain}")
    command = number >> _COMMAND_SHIFT
    return f"{name} {_COMMANDS[command - 1]}" if 0 < command <= len(_COMMANDS) else name


def shown_name(number: int, foreign: bool, machine: str) -> str:
    """Return the name of a call as outputs show it; foreign: a 32-bit program's number."""
    return f"32-bit syscall {number}" if foreign else call_name(number, machine)


def numbers(names: frozenset[str], machine: str) -> list[int]:
    """Return the numbers of the calls named, ascending; empty for an unknown machine."""
    return [number for number, name in _BY_MACHINE.get(machine, {}).items() if name in names]


def set_bits(words: "ctypes.Array[ctypes.c_uint64]", names: frozenset[str], machine: str) -> None:
    """Set in `words`, 64 bits each, the bits of the calls named that they have room for."""
    for number in numbers(names, machine):
        if number < len(words) * 64:
            words[number >> 6] |= 1 << (number & 63)
