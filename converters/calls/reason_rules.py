# SPDX-License-Identifier: Apache-2.0
"""What a wait inside a call is for, by the kernel functions of its stack: the table of reasons.

A stack is read from the innermost frame outward. Frames that no rule names are passed over, as
those of the scheduler and of waiting in general (schedule, io_schedule, out_of_line_wait_on_bit);
the first frame that a rule names decides. `docs/path.md` has the table, made from RULES.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Self


class WaitReason(IntEnum):
    """What a thread inside a call waited for, in the order of docs/path.md.

    Number, name in outputs, meaning. Numbers are never reused: archives hold the names.
    """

    text: str
    meaning: str

    def __new__(cls, number: int, text: str = "", meaning: str = "") -> Self:
        self = int.__new__(cls, number)
        self._value_, self.text, self.meaning = number, text, meaning
        return self

    UNKNOWN = (
        0,
        "unknown",
        "no stack, or one without names: too many waits, refused by the kernel, kptr_restrict",
    )
    OTHER = (1, "other", "a stack in which no rule names a function")
    PAGE_READ = (2, "page read", "a locked page of the page cache: this or another task reads it")
    PAGE_WRITE = (3, "page write-back", "a page that is under write-back")
    PAGE_LOCK = (
        20,
        "page lock",
        "a page that another task works on: it writes, submits or truncates it",
    )
    BIO = (4, "bio", "a bio that the call submitted and waits for: direct I/O, a flush")
    METADATA = (5, "metadata block", "a block of the file system's own: a buffer, an extent buffer")
    REQUEST = (6, "request tag", "a free request (tag) of the device")
    CGROUP_LIMIT = (
        22,
        "cgroup limit",
        "a bio that a cgroup's limit held before its Q: io.max, v1's blkio.throttle.*; by the bio, "
        "not by the stack",
    )
    IO_COST = (23, "io.cost", "the cgroup's share of the device, by io.cost")
    IO_LATENCY = (
        24,
        "io.latency",
        "I/O in flight of the cgroup, cut for another cgroup's io.latency",
    )
    WRITE_BACK_LIMIT = (
        25,
        "write-back throttling",
        "the device's limit on write-back in flight (wbt)",
    )
    WRITE_LIMIT = (7, "I/O limit", "one of these three limits, not known which")
    QUEUE = (18, "queue frozen", "a device's queue that is being changed")
    DEVICE_MAPPER = (19, "device mapper or md", "a stacked device's own work")
    JOURNAL_COMMIT = (
        8,
        "journal commit",
        "the journal's commit: jbd2, the log of XFS, a transaction of btrfs",
    )
    JOURNAL_TRANSACTION = (
        9,
        "journal transaction",
        "a transaction that is being locked or committed, to join the next",
    )
    JOURNAL_SPACE = (10, "journal space", "free space in the journal")
    LOCK = (11, "lock", "a mutex, a semaphore, or an extent's or buffer's lock")
    DIRECTORY = (12, "directory", "a directory's lock, or a look-up of its entry")
    INODE = (13, "inode", "an inode that is being read, written or freed")
    THROTTLED = (14, "throttled writing", "balance_dirty_pages(): too many pages are dirty")
    WRITE_BACK = (17, "write-back", "the write-back that sync or fsync started")
    MEMORY = (15, "memory", "memory to be reclaimed, or a page to be swapped in")
    FILE_SERVER = (21, "file server", "an answer of a file server, or of a program (FUSE)")
    FREE_SPACE = (16, "free space", "the file system's reservation of space")
    SOCKET = (26, "socket", "no I/O: a lock of a socket or of the network")
    PIPE = (27, "pipe", "no I/O: a lock of a pipe, a terminal or an epoll")
    MEMORY_MAP = (28, "mmap_lock", "no I/O: the lock of an address space")
    MOUNTS = (29, "mounts", "no I/O: the lock of the table of mounts")
    CGROUP = (30, "cgroup", "no I/O: a lock of cgroups, or their freezer")
    RCU = (31, "RCU", "no I/O: the end of a grace period")
    PROCESS = (
        32,
        "process",
        "no I/O: another process or thread: vfork, a core dump, a helper, the freezer",
    )
    SCHEDULER = (33, "scheduler", "no I/O: work on another CPU, such as a move to it at exec")


NOT_IO = frozenset(
    (
        *(WaitReason.SOCKET, WaitReason.PIPE, WaitReason.MEMORY_MAP, WaitReason.MOUNTS),
        *(WaitReason.CGROUP, WaitReason.RCU, WaitReason.PROCESS, WaitReason.SCHEDULER),
    )
)
"""Reasons of waits that no I/O ends, though the thread may be in state D: no device is asked."""


WAIT_REASON_NAMES = {reason: reason.text for reason in WaitReason}


@dataclass(frozen=True)
class Rule:
    """Functions of which one in a stack decides the reason.

    kernels: of the range 5.10 to 7.2, and file systems, where these functions are found. functions,
    callers: names, with spaces between. callers: the next frame outward that is none of `functions`
    and not PASSED_OVER has to be one of these; empty: it may be any. Of rules with the same
    function the first that fits decides. The compiler may have inlined a static function: its
    callers stand beside it.
    """

    reason: WaitReason
    kernels: str
    functions: str
    callers: str = ""


_LOCKS = (
    "rwsem_down_read_slowpath rwsem_down_write_slowpath down_read down_read_killable down_write "
    "down_write_killable __mutex_lock __mutex_lock_slowpath __mutex_lock_killable_slowpath "
    "mutex_lock __percpu_down_read percpu_rwsem_wait percpu_down_write __down __down_common "
    "__down_killable rt_mutex_slowlock"
)
_DIRECTORIES = (
    "lookup_slow __lookup_slow open_last_lookups path_openat filename_create lock_rename "
    "do_renameat2 do_unlinkat do_rmdir iterate_dir filename_unlinkat filename_rmdir start_dirop "
    "__start_dirop"
)
_SOCKETS = (
    "unix_stream_read_generic unix_stream_sendmsg unix_stream_read_actor __unix_dgram_recvmsg "
    "unix_dgram_recvmsg unix_dgram_sendmsg unix_release_sock rtnl_lock rtnl_lock_killable "
    "netlink_dump __netlink_dump_start genl_lock genl_rcv genl_rcv_msg"
)
_PIPES = (
    "pipe_read pipe_write anon_pipe_read anon_pipe_write fifo_pipe_read fifo_pipe_write pipe_lock "
    "pipe_lock_nested pipe_double_lock pipe_release pipe_fcntl pipe_ioctl pipe_wait_readable "
    "pipe_wait_writable fifo_open tty_lock tty_lock_interruptible tty_write_lock file_tty_write "
    "n_tty_write n_tty_read do_epoll_ctl ep_send_events ep_scan_ready_list ep_start_scan "
    "eventpoll_release_file ep_clear_and_put"
)
_ADDRESS_SPACES = (
    "mmap_read_lock mmap_read_lock_killable mmap_write_lock mmap_write_lock_killable "
    "vm_mmap_pgoff __vm_munmap vm_munmap do_madvise madvise_lock do_mprotect_pkey do_mlock "
    "__mm_populate do_user_addr_fault exc_page_fault lock_mm_and_find_vma "
    "get_mmap_lock_carefully do_page_fault dup_mmap dup_mm exec_mmap begin_new_exec "
    "setup_arg_pages vm_brk_flags exit_mm do_exit exit_mmap __do_sys_brk __se_sys_brk "
    "__x64_sys_brk __arm64_sys_brk __do_sys_mremap __se_sys_mremap __x64_sys_mremap "
    "__arm64_sys_mremap do_mremap __do_sys_msync __se_sys_msync __x64_sys_msync "
    "__arm64_sys_msync __get_user_pages_locked get_user_pages_unlocked __gup_longterm_locked "
    "gup_fast_fallback internal_get_user_pages_fast __access_remote_vm access_remote_vm "
    "ksys_shmdt do_shmat apply_mlockall_flags show_smaps_rollup pagemap_read "
    "userfaultfd_register do_mincore sys_mincore"
)
_MOUNTS = (
    "namespace_lock namespace_unlock lock_mount do_lock_mount attach_recursive_mnt path_umount "
    "do_umount copy_mnt_ns do_move_mount do_loopback do_add_mount"
)
_CGROUPS = (
    "cgroup_lock cgroup_kn_lock_live cgroup_lock_and_drain_offline cgroup_procs_write_start "
    "cgroup_attach_lock cgroup_attach_permissions cgroup_attach_task_all __cgroup_procs_write "
    "cgroup_procs_write __cgroup1_procs_write cgroup1_procs_write cgroup_threads_write "
    "cgroup_mkdir cgroup_rmdir cgroup_can_fork cgroup_css_set_fork "
    "cgroup_threadgroup_change_begin cgroup_get_tree cgroup1_get_tree cgroup1_root_to_use "
    "cgroup_show_path proc_cgroup_show copy_process exit_signals de_thread cpuset_write_resmask "
    "cpuset_lock cpuset_attach"
)
_IO_LATENCY = "blkcg_iolatency_throttle __blkcg_iolatency_throttle"
_WRITE_BACK_LIMIT = "wbt_wait __wbt_wait"

PASSED_OVER = (
    "__schedule schedule io_schedule schedule_timeout io_schedule_timeout bit_wait bit_wait_io "
    "__wait_on_bit out_of_line_wait_on_bit __wait_on_bit_lock out_of_line_wait_on_bit_lock "
    "folio_wait_bit folio_wait_bit_common wait_on_page_bit wait_on_page_bit_killable"
)
"""Functions that are no caller: waiting in general. A rule's own functions may be among them."""

RULES: tuple[Rule, ...] = (
    Rule(
        WaitReason.THROTTLED,
        "all",
        "balance_dirty_pages balance_dirty_pages_ratelimited balance_dirty_pages_ratelimited_flags",
    ),
    Rule(
        WaitReason.JOURNAL_COMMIT,
        "all: ext4, ocfs2",
        "jbd2_log_wait_commit jbd2_complete_transaction __jbd2_journal_force_commit "
        "jbd2_journal_destroy",
    ),
    Rule(
        WaitReason.JOURNAL_COMMIT,
        "5.10 and later: ext4 with fast commits",
        "ext4_fc_commit jbd2_fc_begin_commit jbd2_fc_wait_bufs",
    ),
    Rule(
        WaitReason.JOURNAL_COMMIT,
        "all: XFS (lsn up to 5.13, seq since 5.14)",
        "xfs_log_force xfs_log_force_lsn xfs_log_force_seq __xfs_log_force_lsn xlog_force_lsn "
        "xlog_cil_force_lsn xlog_cil_force_seq xlog_wait_on_iclog",
    ),
    Rule(
        WaitReason.JOURNAL_COMMIT,
        "all: btrfs",
        "btrfs_wait_for_commit btrfs_commit_transaction btrfs_sync_log wait_log_commit "
        "wait_for_commit",
    ),
    Rule(
        WaitReason.JOURNAL_TRANSACTION,
        "all: jbd2, btrfs",
        "wait_transaction_locked wait_transaction_switching add_transaction_credits "
        "jbd2_journal_lock_updates jbd2_journal_wait_updates do_get_write_access "
        "wait_current_trans btrfs_wait_ordered_roots",
    ),
    Rule(
        WaitReason.JOURNAL_SPACE,
        "all: jbd2, XFS",
        "__jbd2_log_wait_for_space jbd2_log_do_checkpoint xlog_grant_head_wait "
        "xlog_grant_head_check xlog_state_get_iclog_space",
    ),
    Rule(WaitReason.REQUEST, "all", "blk_mq_get_tag sbitmap_get __blk_mq_alloc_requests"),
    Rule(WaitReason.IO_COST, "all", "ioc_rqos_throttle"),
    Rule(WaitReason.IO_LATENCY, "all", "rq_qos_wait", _IO_LATENCY),
    Rule(WaitReason.IO_LATENCY, "all", _IO_LATENCY),
    Rule(WaitReason.WRITE_BACK_LIMIT, "all", "rq_qos_wait", _WRITE_BACK_LIMIT),
    Rule(WaitReason.WRITE_BACK_LIMIT, "all", _WRITE_BACK_LIMIT),
    Rule(
        WaitReason.WRITE_LIMIT,
        "all",
        "rq_qos_wait __rq_qos_throttle blkcg_maybe_throttle_current mem_cgroup_throttle_swaprate",
    ),
    Rule(
        WaitReason.QUEUE,
        "all",
        "bio_queue_enter __bio_queue_enter blk_queue_enter blk_mq_freeze_queue_wait",
    ),
    Rule(
        WaitReason.DEVICE_MAPPER,
        "all",
        "dm_submit_bio dm_wait_event dm_get_live_table __map_bio md_handle_request "
        "md_write_start raid5_make_request raid5_get_active_stripe make_stripe_request "
        "wait_barrier raid1_make_request raid10_make_request",
    ),
    Rule(
        WaitReason.METADATA,
        "all: ext4 and others with buffers",
        "__wait_on_buffer __lock_buffer bh_read __bread_gfp sync_dirty_buffer "
        "__sync_dirty_buffer ext4_read_bh ext4_read_block_bitmap ext4_wait_block_bitmap",
    ),
    Rule(
        WaitReason.METADATA,
        "all: XFS, btrfs",
        "xfs_buf_iowait xfs_buf_read_map xfs_ail_push_all_sync read_extent_buffer_pages "
        "btrfs_read_extent_buffer btree_read_extent_buffer_pages",
    ),
    Rule(
        WaitReason.JOURNAL_TRANSACTION,
        "all: jbd2 writes the buffer that is to be changed",
        "bit_wait_io",
        callers="do_get_write_access jbd2_journal_get_write_access",
    ),
    Rule(
        WaitReason.PAGE_READ,
        "all: a block that is written in part is read first",
        "bit_wait_io",
        callers="ext4_block_write_begin __block_write_begin __block_write_begin_int "
        "block_write_begin ext4_da_write_begin ext4_write_begin __block_commit_write "
        "ext4_block_zero_page_range __ext4_block_zero_page_range block_truncate_page",
    ),
    Rule(
        WaitReason.METADATA,
        "all: __wait_on_buffer(), which the compiler makes a jump, so that it is not in the stack",
        "bit_wait_io",
    ),
    Rule(
        WaitReason.PAGE_WRITE,
        "folio_: since 5.16; page_: before",
        "folio_wait_writeback folio_wait_writeback_killable folio_wait_stable "
        "wait_on_page_writeback wait_for_stable_page __filemap_fdatawait_range",
    ),
    Rule(
        WaitReason.PAGE_WRITE,
        "all: btrfs",
        "btrfs_start_ordered_extent btrfs_start_ordered_extent_nowriteback "
        "btrfs_wait_ordered_range btrfs_wait_ordered_extents",
    ),
    Rule(
        WaitReason.WRITE_BACK,
        "all",
        "wb_wait_for_completion __writeback_inodes_sb_nr sync_inodes_sb wb_shutdown bdi_unregister",
    ),
    Rule(
        WaitReason.MEMORY,
        "all",
        "throttle_direct_reclaim reclaim_throttle shrink_node shrink_inactive_list "
        "shrink_folio_list shrink_page_list try_to_free_pages try_to_free_mem_cgroup_pages "
        "mem_cgroup_handle_over_high __mem_cgroup_handle_over_high mem_cgroup_oom_synchronize "
        "do_swap_page swap_readpage swap_read_folio",
    ),
    Rule(
        WaitReason.BIO,
        "all",
        "submit_bio_wait bio_await blk_execute_rq blkdev_issue_flush __iomap_dio_rw "
        "iomap_dio_rw iomap_dio_complete __blkdev_direct_IO __blkdev_direct_IO_simple "
        "blkdev_direct_IO do_blockdev_direct_IO __blockdev_direct_IO inode_dio_wait "
        "__inode_dio_wait",
    ),
    Rule(
        WaitReason.MEMORY,
        "__folio_lock: since 5.16; __lock_page: before",
        "__folio_lock __folio_lock_or_retry __lock_page __lock_page_or_retry",
        callers="do_swap_page shmem_swapin_folio shmem_swapin_page unuse_pte_range",
    ),
    Rule(
        WaitReason.PAGE_LOCK,
        "__folio_lock: since 5.16; __lock_page: before",
        "__folio_lock __lock_page",
        callers="write_cache_pages mpage_prepare_extent_to_map writeback_iter "
        "writeback_get_folio extent_write_cache_pages __filemap_get_folio pagecache_get_page "
        "grab_cache_page_write_begin truncate_inode_pages_range invalidate_inode_pages2_range "
        "ext4_page_mkwrite iomap_page_mkwrite find_lock_entries",
    ),
    Rule(
        WaitReason.PAGE_READ,
        "since 5.16",
        "__folio_lock __folio_lock_killable __folio_lock_or_retry folio_wait_locked "
        "folio_wait_locked_killable folio_put_wait_locked filemap_update_page "
        "filemap_read_folio filemap_read filemap_get_pages filemap_fault read_cache_folio "
        "do_read_cache_folio",
    ),
    Rule(
        WaitReason.PAGE_READ,
        "up to 5.15",
        "__lock_page __lock_page_killable __lock_page_or_retry wait_on_page_locked_killable "
        "put_and_wait_on_page_locked generic_file_buffered_read generic_file_read_iter "
        "filemap_update_page filemap_fault wait_on_page_read do_read_cache_page",
    ),
    Rule(
        WaitReason.INODE,
        "all",
        "__wait_on_freeing_inode find_inode find_inode_fast iget_locked iget5_locked "
        "inode_sleep_on_writeback __inode_wait_for_writeback inode_wait_for_writeback "
        "writeback_single_inode",
    ),
    Rule(
        WaitReason.DIRECTORY,
        "all",
        "d_alloc_parallel d_wait_lookup __d_lookup_unhash_wake lock_rename",
    ),
    Rule(WaitReason.DIRECTORY, "all", _LOCKS, callers=_DIRECTORIES),
    Rule(WaitReason.SOCKET, "all", _LOCKS, callers=_SOCKETS),
    Rule(WaitReason.PIPE, "all", _LOCKS, callers=_PIPES),
    Rule(WaitReason.CGROUP, "all", _LOCKS, callers=_CGROUPS),
    Rule(WaitReason.MEMORY_MAP, "all", _LOCKS, callers=_ADDRESS_SPACES),
    Rule(WaitReason.MOUNTS, "all", _LOCKS, callers=_MOUNTS),
    Rule(WaitReason.LOCK, "all", _LOCKS),
    Rule(
        WaitReason.LOCK,
        "all: XFS, btrfs",
        "xfs_buf_lock xfs_ilock btrfs_tree_lock __btrfs_tree_lock btrfs_tree_lock_nested "
        "btrfs_tree_read_lock_nested __btrfs_tree_read_lock lock_extent lock_extent_bits "
        "btrfs_lock_extent_bits wait_extent_bit",
    ),
    Rule(
        WaitReason.FILE_SERVER,
        "all: 9p, NFS, SMB, FUSE",
        "p9_client_rpc p9_virtio_zc_request rpc_wait_bit_killable nfs_wait_bit_killable "
        "nfs_wait_client_init_complete wait_for_response request_wait_answer",
    ),
    Rule(
        WaitReason.FREE_SPACE,
        "all: btrfs",
        "handle_reserve_ticket wait_reserve_ticket btrfs_reserve_metadata_bytes __reserve_bytes "
        "btrfs_reserve_data_bytes btrfs_wait_block_group_cache_progress "
        "btrfs_wait_block_group_cache_done",
    ),
    Rule(
        WaitReason.SOCKET,
        "all",
        "__lock_sock __lock_sock_fast lock_sock_nested lock_sock_fast sk_wait_data "
        "sk_stream_wait_memory sk_stream_wait_connect sk_stream_wait_close inet_csk_accept "
        "inet_wait_for_connect tcp_recvmsg_locked tcp_sendmsg_locked __skb_wait_for_more_packets "
        "sock_alloc_send_pskb unix_stream_data_wait unix_wait_for_peer netlink_table_grab",
    ),
    Rule(
        WaitReason.PIPE,
        "all",
        "__ldsem_down_read_nested ldsem_down_read ldsem_down_write __ldsem_down_write_nested "
        "tty_wait_until_sent",
    ),
    Rule(
        WaitReason.RCU,
        "all",
        "synchronize_rcu synchronize_rcu_normal synchronize_rcu_expedited __wait_rcu_gp "
        "exp_funnel_lock rcu_barrier rcu_sync_enter rcu_sync_dtor synchronize_srcu "
        "__synchronize_srcu synchronize_srcu_expedited srcu_barrier synchronize_net "
        "synchronize_rcu_tasks synchronize_rcu_tasks_generic synchronize_rcu_tasks_rude "
        "synchronize_rcu_tasks_trace cond_synchronize_rcu cond_synchronize_rcu_expedited "
        "rcu_exp_wait_wake rcu_gp_fqs_loop",
    ),
    Rule(
        WaitReason.MEMORY_MAP,
        "per-VMA locks: since 6.4",
        "vma_start_write __vma_start_write __vma_enter_locked vma_mark_detached "
        "__vma_exclude_readers_for_detach userfaultfd_unmap_complete",
    ),
    Rule(
        WaitReason.CGROUP,
        "all",
        "cgroup_enter_frozen cgroup_freezer_migrate_task cgroup_leave_frozen "
        "cgroup_lock_and_drain_offline",
    ),
    Rule(
        WaitReason.PROCESS,
        "all: vfork; the compiler may have inlined who waits",
        "__wait_for_common do_wait_for_common wait_for_completion_state "
        "wait_for_completion_killable",
        callers="wait_for_vfork_done kernel_clone _do_fork coredump_wait do_coredump vfs_coredump",
    ),
    Rule(
        WaitReason.PROCESS,
        "all",
        "wait_for_vfork_done coredump_wait call_usermodehelper_exec "
        "kthread_stop kthread_park __kthread_create_on_node kthread_create_on_node "
        "__refrigerator do_freezer_trap zap_pid_ns_processes ptrace_stop de_thread",
    ),
    Rule(
        WaitReason.PROCESS,
        "all: a kernel thread that is not started yet",
        "schedule_preempt_disabled",
        callers="kthread",
    ),
    Rule(
        WaitReason.SCHEDULER,
        "all",
        "stop_one_cpu stop_two_cpus stop_machine stop_machine_cpuslocked stop_cpus __stop_cpus "
        "sched_exec affine_move_task __set_cpus_allowed_ptr set_cpus_allowed_ptr "
        "lru_add_drain_all __lru_add_drain_all schedule_on_each_cpu",
    ),
)
"""In this order rules with the same function are tried."""

_PASSED_OVER = frozenset(PASSED_OVER.split())
_RULES_OF: dict[str, list[Rule]] = {}
for _rule in RULES:
    for _function in _rule.functions.split():
        _RULES_OF.setdefault(_function, []).append(_rule)


def reason_of(functions: Sequence[str]) -> WaitReason:
    """Return what a wait with this kernel stack is for. functions: names, the innermost first.

    The innermost function for which a rule of RULES holds decides; of several rules the first. A
    rule with `callers` holds only if the next frame outward that is neither one of its functions
    nor PASSED_OVER is one of them. A suffix of the compiler (".constprop.0", ".isra.0", ".part.0")
    is ignored; "" is a frame without a name. UNKNOWN where no frame has a name; else OTHER if no
    rule holds.
    """
    names = [name.partition(".")[0] for name in functions]
    for depth, name in enumerate(names):
        for rule in _RULES_OF.get(name, ()):
            passed = {*rule.functions.split(), *_PASSED_OVER}
            caller = next((outer for outer in names[depth:] if outer not in passed), "")
            if not rule.callers or caller in rule.callers.split():
                return rule.reason
    return WaitReason.OTHER if any(names) else WaitReason.UNKNOWN
