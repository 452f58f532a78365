# SPDX-License-Identifier: Apache-2.0
"""What waits are for: the rules by functions, the stacks of notes, the commits of journals."""

import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from biotrail.converters.calls.reason_rules import (
    PASSED_OVER,
    RULES,
    WAIT_REASON_NAMES,
    Rule,
    WaitReason,
    reason_of,
)
from biotrail.converters.events.path_tables import NO_STACK
from biotrail.converters.events.tables import NEVER
from biotrail.recorder.schema.syscalls import IOCTLS, call_name, plain_number, with_command
from tests.support.cli_runner import Cli
from tests.support.golden_files import expect_section
from tests.support.path_logs import FSYNC, MS, WITH_REASONS, PathLog
from tests.support.path_tables import RecordedPath, recorded_path
from tests.support.paths import ROOT
from tests.support.stack_logs import DEV, START

SWITCH = ["bpf_prog_1_bt_switch", "bpf_trace_run4", "__traceiter_sched_switch", "__schedule"]

STACKS = {
    # 6.18, as recorded
    "schedule jbd2_log_wait_commit ext4_sync_file do_fsync": WaitReason.JOURNAL_COMMIT,
    "schedule io_schedule folio_wait_bit folio_wait_writeback __filemap_fdatawait_range "
    "file_write_and_wait_range ext4_sync_file": WaitReason.PAGE_WRITE,
    "schedule io_schedule folio_wait_bit_common filemap_get_pages filemap_read": (
        WaitReason.PAGE_READ
    ),
    "schedule schedule_timeout io_schedule_timeout wait_for_completion_io_timeout submit_bio_wait "
    "blkdev_issue_flush ext4_sync_file": WaitReason.BIO,
    "schedule io_schedule bit_wait_io __wait_on_bit out_of_line_wait_on_bit ext4_block_write_begin "
    "ext4_da_write_begin generic_perform_write": WaitReason.PAGE_READ,
    "schedule io_schedule bit_wait_io __wait_on_bit out_of_line_wait_on_bit __ext4_find_entry "
    "ext4_lookup __lookup_slow walk_component": WaitReason.METADATA,
    "schedule io_schedule bit_wait_io __wait_on_bit out_of_line_wait_on_bit do_get_write_access "
    "jbd2_journal_get_write_access": WaitReason.JOURNAL_TRANSACTION,
    "schedule io_schedule_timeout balance_dirty_pages balance_dirty_pages_ratelimited_flags": (
        WaitReason.THROTTLED
    ),
    # before 5.16
    "schedule io_schedule wait_on_page_bit wait_on_page_writeback __filemap_fdatawait_range": (
        WaitReason.PAGE_WRITE
    ),
    "schedule io_schedule generic_file_buffered_read new_sync_read": WaitReason.PAGE_READ,
    # innermost first: a request's tag, not the page that is read
    "schedule io_schedule blk_mq_get_tag __blk_mq_alloc_requests submit_bio_noacct "
    "filemap_get_pages filemap_read": WaitReason.REQUEST,
    # limits between Q and G, by who holds
    "schedule io_schedule ioc_rqos_throttle __rq_qos_throttle blk_mq_submit_bio": (
        WaitReason.IO_COST
    ),
    "schedule io_schedule rq_qos_wait blkcg_iolatency_throttle __rq_qos_throttle "
    "blk_mq_submit_bio": WaitReason.IO_LATENCY,
    "schedule io_schedule rq_qos_wait wbt_wait __rq_qos_throttle blk_mq_submit_bio": (
        WaitReason.WRITE_BACK_LIMIT
    ),
    "schedule io_schedule rq_qos_wait __rq_qos_throttle blk_mq_submit_bio": WaitReason.WRITE_LIMIT,
    # a lock, by who takes it
    "schedule schedule_preempt_disabled rwsem_down_write_slowpath down_write open_last_lookups "
    "path_openat": WaitReason.DIRECTORY,
    "schedule schedule_preempt_disabled rwsem_down_write_slowpath down_write "
    "ext4_buffered_write_iter vfs_write": WaitReason.LOCK,
    "schedule schedule_preempt_disabled rwsem_down_read_slowpath down_read ext4_map_blocks "
    "path_openat": WaitReason.LOCK,
    # a page's lock, by who takes it
    "schedule io_schedule folio_wait_bit_common __folio_lock writeback_iter": WaitReason.PAGE_LOCK,
    "schedule io_schedule folio_wait_bit_common __folio_lock filemap_fault": WaitReason.PAGE_READ,
    "schedule xlog_wait_on_iclog xfs_log_force_seq xfs_file_fsync": WaitReason.JOURNAL_COMMIT,
    "schedule p9_client_rpc p9_client_open": WaitReason.FILE_SERVER,
    "schedule schedule_timeout wait_for_completion __flush_work": WaitReason.OTHER,
    # no I/O, as recorded on 6.18
    "schedule __lock_sock lock_sock_nested tcp_sendmsg sock_write_iter": WaitReason.SOCKET,
    "schedule __lock_sock lock_sock_nested tcp_recvmsg inet_recvmsg": WaitReason.SOCKET,
    "schedule schedule_preempt_disabled __mutex_lock mutex_lock anon_pipe_write vfs_write": (
        WaitReason.PIPE
    ),
    "schedule schedule_timeout __wait_for_common wait_for_completion_state synchronize_rcu_normal "
    "synchronize_rcu rcu_sync_enter percpu_down_write cgroup_procs_write_start "
    "__cgroup_procs_write": WaitReason.RCU,
    "schedule percpu_down_write cgroup_procs_write_start __cgroup_procs_write": WaitReason.CGROUP,
    "schedule percpu_rwsem_wait __percpu_down_read cgroup_can_fork copy_process kernel_clone": (
        WaitReason.CGROUP
    ),
    "schedule schedule_preempt_disabled rwsem_down_write_slowpath down_write_killable "
    "vm_mmap_pgoff do_syscall_64": WaitReason.MEMORY_MAP,
    "schedule schedule_preempt_disabled rwsem_down_read_slowpath down_read_killable "
    "lock_mm_and_find_vma exc_page_fault": WaitReason.MEMORY_MAP,
    "schedule schedule_timeout __wait_for_common wait_for_completion_state kernel_clone": (
        WaitReason.PROCESS
    ),
    "schedule schedule_timeout __wait_for_common wait_for_completion stop_one_cpu sched_exec "
    "bprm_execve": WaitReason.SCHEDULER,
    # kernel threads, mounts and swap, as recorded on 6.18
    "schedule schedule_preempt_disabled kthread ret_from_fork": WaitReason.PROCESS,
    "schedule schedule_timeout rcu_exp_wait_wake kthread_worker_fn kthread": WaitReason.RCU,
    "schedule kthread_worker_fn kthread": WaitReason.OTHER,
    "schedule jbd2_journal_destroy ext4_put_super": WaitReason.JOURNAL_COMMIT,
    "schedule xfs_ail_push_all_sync xfs_log_quiesce xfs_log_unmount": WaitReason.METADATA,
    "schedule __reserve_bytes btrfs_reserve_data_bytes btrfs_buffered_write": (
        WaitReason.FREE_SPACE
    ),
    "schedule btrfs_wait_block_group_cache_progress find_free_extent btrfs_reserve_extent": (
        WaitReason.FREE_SPACE
    ),
    "schedule schedule_timeout wait_for_completion __flush_work wb_shutdown bdi_unregister": (
        WaitReason.WRITE_BACK
    ),
    "io_schedule folio_wait_bit_common __folio_lock_or_retry do_swap_page handle_mm_fault": (
        WaitReason.MEMORY
    ),
    "io_schedule folio_wait_bit_common __folio_lock_or_retry filemap_fault handle_mm_fault": (
        WaitReason.PAGE_READ
    ),
    # but what is waited for within is
    "schedule io_schedule folio_wait_bit_common filemap_fault __handle_mm_fault exc_page_fault": (
        WaitReason.PAGE_READ
    ),
}


@pytest.mark.parametrize("stack", STACKS)
def test_the_innermost_function_of_a_rule_decides(stack: str) -> None:
    # GIVEN a stack, with the tracing's own functions first WHEN its reason is asked for
    # THEN it is that of the rule
    assert reason_of([*SWITCH, *stack.split()]) is STACKS[stack]


def test_functions_with_suffixes_and_stacks_without_names() -> None:
    # GIVEN functions that the compiler changed THEN they are known
    assert reason_of(["schedule", "balance_dirty_pages.constprop.0"]) is WaitReason.THROTTLED
    assert reason_of(["rwsem_down_write_slowpath", "do_unlinkat.isra.0"]) is WaitReason.DIRECTORY
    # GIVEN a stack of which the kernel hides the names THEN nothing is guessed
    assert reason_of([]) is reason_of(["", "", ""]) is WaitReason.UNKNOWN
    # GIVEN a log of before THEN its waits have no stack
    log = PathLog()
    log.waits(100, 200, 300, 300)
    log.returns(100, 400, number=FSYNC, blocked=100, waits=1)
    found = read(log, parts=("time", "wait"))
    assert np.unique(found.waits.stack).tolist() == [NO_STACK]
    assert len(found.commits) == 0


def test_the_table_is_whole() -> None:
    # GIVEN the rules THEN each reason has a name of its own and a meaning
    assert len(set(WAIT_REASON_NAMES.values())) == len(WaitReason)
    assert all(reason.meaning for reason in WaitReason)
    # AND each but those without a rule has one: two, and the one that a bio tells
    assert {rule.reason for rule in RULES} == set(WaitReason) - {
        WaitReason.UNKNOWN,
        WaitReason.OTHER,
        WaitReason.CGROUP_LIMIT,
    }
    # AND a function is in several rules only if callers tell them apart
    places: dict[str, list[bool]] = {}
    reasons: dict[str, set[WaitReason]] = {}
    for rule in RULES:
        for function in rule.functions.split():
            places.setdefault(function, []).append(bool(rule.callers))
            reasons.setdefault(function, set()).add(rule.reason)
    for function, callers in places.items():
        assert len(reasons[function]) == 1 or all(callers[:-1]), function
    # AND what is passed over decides nothing, but for buffers
    assert {name for name in PASSED_OVER.split() if name in places} == {"bit_wait_io"}


def frames(*functions: str) -> list[list[object]]:
    return [[function, "", 1] for function in functions]


NOTES = {
    "stacks": {
        "wait": {
            "7": frames("schedule", "jbd2_log_wait_commit"),
            "8": frames("schedule", "filemap_read"),
            "9": frames("schedule", "nothing_known"),
        },
        "kernel": {"8": frames("submit_bio")},
    }
}


def read(log: PathLog, parts: Sequence[str] = WITH_REASONS, size: int = 1 << 20) -> RecordedPath:
    cuts = [at for at, _ in log.records] if size == 1 else []
    return recorded_path(io.BytesIO(log.data(cuts, parts, NOTES)), size)


@pytest.mark.parametrize("size", [1 << 20, 1])
def test_waits_have_the_reasons_of_their_stacks(size: int) -> None:
    # GIVEN waits with stacks, refused, of no note, without a record; two in one nanosecond
    log = PathLog()
    log.waits(100, 200, 300, 300, 42, stack=7)
    log.waits(100, 250, 300, 300, 43, stack=8)
    log.waits(100, 400, 500, 500, stack=9)
    log.waits(100, 600, 700, 700, stack=-11)
    log.waits(100, 800, 900, 900, stack=10)
    log.waits(100, 910, 990, 990)
    log.returns(100, 2000, blocked=600, waits=5)
    # WHEN they are read, in one window or in many
    waits = read(log, size=size).waits
    # THEN each has its own, and no stack at Q is taken for one
    found = zip(waits.tid.tolist(), (waits.out - START).tolist(), waits.reason, strict=True)
    assert sorted((tid, out, WaitReason(reason)) for tid, out, reason in found) == [
        (42, 200, WaitReason.JOURNAL_COMMIT),
        (42, 400, WaitReason.OTHER),
        (42, 600, WaitReason.UNKNOWN),
        (42, 800, WaitReason.UNKNOWN),
        (42, 910, WaitReason.UNKNOWN),
        (43, 250, WaitReason.PAGE_READ),
    ]
    stacks = dict(zip((waits.out - START).tolist(), waits.stack.tolist(), strict=True))
    assert (stacks[600], stacks[910]) == (-11, NO_STACK)


@pytest.mark.parametrize("size", [1 << 20, 1])
def test_a_wait_names_the_commit_that_ended_it(size: int) -> None:
    # GIVEN two journals with commits, and threads that their threads woke
    log = PathLog()
    log.commit(11, 100, 110, 120, 130, 400, tid=900)
    log.commit(12, 500, 510, 520, 530, 800, tid=900)
    log.commit(31, 90, 91, 92, 93, 790, tid=901, dev=DEV + 1)
    log.waits(10, 150, 410, 420, 42, waker=900, stack=7)
    log.waits(10, 450, 805, 810, 43, waker=900, stack=7)  # by 12
    log.waits(10, 200, 795, 796, 44, waker=901, stack=7)  # by 31, of another journal
    log.waits(10, 815, 820, 821, 45, waker=900, stack=7)  # began after 12 had ended
    log.waits(10, 150, 410, 430, 46, waker=900, stack=8)  # for a page
    log.waits(10, 150, 410, 440, 47, waker=555, stack=7)  # woken by who commits nothing
    # WHEN they are read / THEN each names its own, and the others none
    waits = read(log, size=size).waits
    rows = zip(waits.tid.tolist(), waits.commit.tolist(), waits.commit_dev.tolist(), strict=True)
    none = (NEVER, 0)
    expected = {42: (11, DEV), 43: (12, DEV), 44: (31, DEV + 1), 45: none, 46: none, 47: none}
    assert {tid: (commit, dev) for tid, commit, dev in rows} == expected
    # GIVEN a thread that the first of two commits woke, and that runs after the second
    log = PathLog()
    log.commit(11, 100 * MS, 110 * MS, 120 * MS, 130 * MS, 400 * MS, tid=900)
    log.commit(12, 500 * MS, 510 * MS, 520 * MS, 530 * MS, 800 * MS, tid=900)
    log.waits(10, 150 * MS, 410 * MS, 900 * MS, waker=900, stack=7)
    # WHEN it is read in one window or in several THEN its wait was for the first
    assert read(log, size=size).waits.commit.tolist() == [11]


# docs/path.md: its tables of reasons and rules are the code's.

PAGE = ROOT / "docs" / "path.md"


def functions(names: str) -> str:
    return " ".join(f"`{name}`" for name in names.split())


def reasons() -> str:
    rows = [f"| {reason.text} | {reason.meaning} |" for reason in WaitReason]
    return "\n".join(["| waited for | |", "|---|---|", *rows])


def rules() -> str:
    """The rules; the functions of locks, which several rules have, stand in that of any caller."""

    def names(rule: Rule) -> str:
        locks = {r.functions for r in RULES if r.reason == WaitReason.LOCK and not r.callers}
        return (
            "of *lock*" if rule.callers and rule.functions in locks else functions(rule.functions)
        )

    rows = [
        f"| {WAIT_REASON_NAMES[rule.reason]} | {names(rule)} | {functions(rule.callers)} "
        f"| {rule.kernels} |"
        for rule in RULES
    ]
    head = "| waited for | a function | called by | kernels |"
    return "\n".join([head, "|---|---|---|---|", *rows])


@pytest.mark.parametrize(("name", "make"), [("reasons", reasons), ("rules", rules)])
def test_the_page_has_the_code(name: str, make: Callable[[], str], update: bool) -> None:
    # GIVEN the code's table / WHEN it is put as text / THEN the page has it
    expect_section(PAGE, name, make(), update=update)


# What an ioctl asked for is in its name.

IOCTL = {"x86_64": 16, "aarch64": 29}


@pytest.mark.parametrize("machine", sorted(IOCTL))
def test_commands_have_names(machine: str) -> None:
    # GIVEN ioctl with each known command, and with another WHEN named THEN the command is told
    number = IOCTL[machine]
    for name, command in IOCTLS.items():
        told = with_command(number, command)
        assert call_name(told, machine) == f"ioctl {name}"
        assert plain_number(told) == number
    assert call_name(with_command(number, 0x5401), machine) == "ioctl"
    assert (plain_number(-1), call_name(-1, machine)) == (-1, "page fault")


def test_ioctls_are_rows_by_command(tmp_path: Path, cli: Cli) -> None:
    # GIVEN a trim that queued a bio, two of another command, and one of a 32-bit program
    log, number = PathLog(), IOCTL["x86_64"]
    trim, scrub = IOCTLS["FITRIM"], IOCTLS["BTRFS_SCRUB"]
    log.bio(120, 180, call=number, entry=100, args=(5, trim))
    log.returns(100, 200, number=number, queued=1, length=trim, fd=5)
    for at in (300, 500):
        log.returns(at, at + 100, number=number, length=scrub)
    log.returns(700, 800, number=number, length=trim, foreign=1)
    log.returns(900, 990, number=number, length=0x5401)
    path = tmp_path / "x.biotrail"
    path.write_bytes(log.data())
    # WHEN they are reported THEN each command has its row, of calls and of their bios
    told = cli.json("report", "--by", "call", path)
    assert {one["call"]: one["count"] for one in told["calls"]} == {
        "ioctl FITRIM": 1,
        "ioctl BTRFS_SCRUB": 2,
        "ioctl": 1,
        f"32-bit syscall {number}": 1,
    }
    assert [one["call"] for one in told["groups"]] == ["ioctl FITRIM"]
    # AND exported with the call's own number
    rows = cli("export", "--what", "calls", "--format", "jsonl", "-o", "-", path).out.splitlines()
    assert {json.loads(row)["number"] for row in rows} == {number}
