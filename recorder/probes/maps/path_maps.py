# SPDX-License-Identifier: Apache-2.0
"""The whole path beside the block layer (bpf/path.h): its parts, programs, maps and constants."""

import ctypes
import os
import platform
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from biotrail.recorder.host import cgroups
from biotrail.recorder.probes.kernel.btf import KernelBtf, offered
from biotrail.recorder.probes.kernel.libbpf import SECTION, BpfObject, RefusedError
from biotrail.recorder.rights import capabilities
from biotrail.recorder.schema import shared, syscalls
from biotrail.recorder.schema.limits import PATH_CPUS
from biotrail.recorder.schema.payloads import MissingPart, PathFacts
from biotrail.recorder.schema.records import PATH_PARTS
from biotrail.recorder.symbols.kallsyms import addresses_of, functions_named, read_symbols

MEANINGS = {
    "call": "the system call that queues each bio",
    "time": "system calls with entry, exit and result",
    "wait": "waits for I/O and in state D of every thread, and waits inside timed calls",
    "irq": "the interrupt and softirq of each completion",
    "dirty": "the task that dirtied a page of write-back",
    "fs": "what each wait is for, and the commits of journals",
    "uring": "the io_uring request or aio iocb of each bio, and its completion",
    "driver": "steps of the drivers nvme, scsi and loop",
}
"""What each part of PATH_PARTS records."""
_NO_REGISTERS = "this kernel's programs cannot read a task's registers (they can since 5.15)"

_CALL_SLOTS = 1 << 16
_DIRTY_SLOT_BYTES = 8
_DIRTY_REGION = 512
"""BT_DIRTY_REGION of bpf/dirty_slots.h."""
_WRITER_SETS = 1 << 13
"""BT_WRITER_SETS of bpf/dirtied.h."""
LEAST_DIRTY_BYTES = 1 << 20
"""The smallest table of who dirtied pages: of 512 MiB of pages in order, at best."""
MOST_DIRTY_BYTES = 128 << 20
"""The largest one: of a machine of 128 GiB and more."""
_COUNTED = ("wait", "irq", "dirty")
"""Parts whose programs count their runs, each in the member of `struct bt_entered` of its name."""
_NO_CALL = (1 << 64) - 1
_MONOTONIC_COARSE = 6  # include/uapi/linux/time.h; its resolution is a tick
_PF_FROZEN = 0x10000  # include/linux/sched.h, up to 6.0
_BLOCK_SOFTIRQ = 4  # include/linux/interrupt.h, the same in all kernels since 2.6.30


_ENTERED_NAMES = [member.name for member in shared.ENTERED.members if member.name != "pad"]
"""Members of a slot that are a word each, which are its first."""


@dataclass(frozen=True)
class PathProbe:
    """A tracepoint of a part, with its program by the tracepoint's number of arguments.

    tracepoints: by its names, of which the first that the kernel has is taken. in_task: whether the
    tracepoint is reached in a task with interrupts on, so that the program has a variant that
    disables preemption: while a task is preempted within a program, the kernel does not run that
    program for other tasks on the CPU. optional: the part is recorded without it where the kernel
    has no such tracepoint.
    """

    part: str
    tracepoints: dict[str, dict[int, str]]
    in_task: bool = False
    optional: bool = False


PROBES = (
    PathProbe("wait", {"sched_switch": {4: "bt_switch", 3: "bt_switch_old"}}),
    PathProbe("wait", {"sched_waking": {1: "bt_waking"}}),
    PathProbe("time", {"sys_enter": {2: "bt_sys_enter"}}, in_task=True),
    PathProbe("time", {"sys_exit": {2: "bt_sys_exit"}}, in_task=True),
    PathProbe("irq", {"irq_handler_entry": {2: "bt_irq_entry"}}),
    PathProbe("irq", {"irq_handler_exit": {3: "bt_irq_exit"}}),
    PathProbe("irq", {"softirq_raise": {1: "bt_soft_raise"}}),
    PathProbe("irq", {"softirq_entry": {1: "bt_soft_entry"}}),
    PathProbe("irq", {"softirq_exit": {1: "bt_soft_exit"}}),
    PathProbe(
        "dirty",
        {"writeback_dirty_folio": {2: "bt_dirty"}, "writeback_dirty_page": {2: "bt_dirty_page"}},
        in_task=True,
    ),  # the second one before 5.16
    PathProbe("uring", {"io_uring_complete": {3: "bt_ring_done", 7: "bt_ring_end"}}, True),
    PathProbe("uring", {"iomap_dio_complete": {3: "bt_aio_done"}}, True, optional=True),
    PathProbe("uring", {"io_uring_queue_async_work": {2: "bt_ring_async"}}, True),
    PathProbe("uring", {"io_uring_poll_arm": {3: "bt_ring_poll"}}, True),
    PathProbe("uring", {"io_uring_link": {2: "bt_ring_link"}}, True),
    PathProbe("uring", {"io_uring_cqring_wait": {2: "bt_ring_wait"}}, True),
    PathProbe(
        "uring",
        {"io_uring_submit_req": {1: "bt_ring_sub"}, "io_uring_submit_sqe": {2: "bt_ring_sqe"}},
        in_task=True,
    ),  # the second one before 6.4
)
"""In the order in which they are attached: what ends a call, a wait or an interrupt comes last, so
that nothing is ended that was not begun. Switches come before calls, as they keep which thread is
inside of a call (`bt_entered.inside`)."""

# Commits of jbd2's journals (bpf/journal.h), in the kernel or a module. The part fs does without.
COMMITS = "fs (commits of jbd2)"
"""By this name the log's header says why commits are not recorded."""
JOURNAL_PROGRAMS = {
    "jbd2_end_commit": "bt_jbd_end",
    "jbd2_commit_logging": "bt_jbd_log",
    "jbd2_commit_flushing": "bt_jbd_flush",
    "jbd2_commit_locking": "bt_jbd_lock",
    "jbd2_start_commit": "bt_jbd_start",
}
"""Program by tracepoint, in the order of attaching: the end first, so that no end is missed of a
commit whose beginning was seen."""


# Drivers are modules in most kernels, whose types are not in the kernel's own BTF, and on 5.10
# nowhere. So their tracepoints are known by the kernel's symbols, and their programs are raw
# (bpf/drivers.h).
_DRIVER = "driver"
"""The part of drivers' steps."""
_LOOP_COMPLETE = "lo_rw_aio_complete"
_DRIVER_SLOTS = 1 << 15
"""Entries of bt_driver_steps, if the part is recorded."""


@dataclass(frozen=True)
class Driver:
    """A driver's programs by tracepoint, as a request passes them, with variants (_p).

    remedy: where a tracepoint is missing, what may be the cause.
    """

    name: str
    programs: dict[str, str]
    remedy: str
    present: str | None = None
    """Directory of sysfs that has an entry while a device has the driver; None: always there."""


DRIVERS = (
    Driver(
        "nvme",
        {
            "nvme_setup_cmd": "bt_nvme_setup",
            "nvme_sq": "bt_nvme_sq",
            "nvme_complete_rq": "bt_nvme_done",
        },
        "is the module nvme_core loaded?",
        "/sys/class/nvme",
    ),
    Driver(
        "scsi",
        {
            "scsi_dispatch_cmd_start": "bt_scsi_start",
            "scsi_dispatch_cmd_done": "bt_scsi_done",
            "scsi_dispatch_cmd_error": "bt_scsi_error",
            "scsi_dispatch_cmd_timeout": "bt_scsi_late",
        },
        "is the module scsi_mod loaded?",
        "/sys/class/scsi_device",
    ),
    Driver(
        "loop",
        {"iomap_dio_rw_begin": "bt_loop_begin", "iomap_dio_complete": "bt_loop_done"},
        "6.1 has none, 6.12 has them",
    ),
)
"""In the order of the `driver` field's numbers, from 1 on."""


class PathProgram(NamedTuple):
    """A program to load for a part of the path."""

    part: str
    name: str
    tracepoint: str


@dataclass(frozen=True)
class PathChoice:
    """What of the path is recorded on this kernel.

    parts: names of PATH_PARTS. programs: those to load, in the order of attaching.
    """

    parts: frozenset[str] = frozenset()
    programs: tuple[PathProgram, ...] = ()
    lacking: dict[str, str] = field(default_factory=dict)
    """Why a part that was asked for, or something of it (COMMITS), is not recorded."""
    without: dict[str, str] = field(default_factory=dict)
    """Drivers whose steps are not recorded, and why, if the part driver was asked for."""
    frozen: int = 0
    """Bit of a task's flags while it is in the freezer, where such a task is in state D; else 0."""

    @property
    def drivers(self) -> list[str]:
        """Names of the drivers that are not `without`, in the order of DRIVERS."""
        return [driver.name for driver in DRIVERS if driver.name not in self.without]

    def facts(self) -> PathFacts | None:
        """Return the log header's entry `path`; None if no part was asked for."""
        if not self.parts and not self.lacking:
            return None
        missing: list[MissingPart] = [
            {"part": part, "reason": why} for part, why in self.lacking.items()
        ]
        found: PathFacts = {
            "parts": [part for part in PATH_PARTS if part in self.parts],
            "missing": missing,
        }
        if _DRIVER in self.parts:
            found["drivers"] = dict.fromkeys(self.drivers, "") | self.without
        return found

    def messages(self) -> list[str]:
        """Return a message for each entry of `lacking`, and for drivers of the host's devices."""
        found = [f"--path {part} is not recorded: {why}" for part, why in self.lacking.items()]
        for driver in DRIVERS if _DRIVER in self.parts else ():
            if why := self.without.get(driver.name):
                with suppress(OSError):  # the module is not loaded
                    if driver.present is None or os.listdir(driver.present):
                        what = f"requests of {driver.name} have no steps"
                        found.append(f"--path driver: {what}: {why}")
        return found


@dataclass(frozen=True)
class PathRuns:
    """How often the programs of the path ran since open, as they count it themselves.

    calls: system calls that entered the kernel while calls were timed. timed: of these, the calls
    whose return was waited for. by_part: runs of the programs of the parts that count them.
    """

    calls: int = 0
    timed: int = 0
    by_part: Mapping[str, int] = field(default_factory=dict)


NO_PATH = PathChoice()
"""Nothing of the path is recorded."""


def choose_path(
    wanted: Collection[str], btf: KernelBtf, preemptible: bool, symbols: bytes | None = None
) -> PathChoice:
    """Return which of the parts `wanted` this kernel can record, and the programs for them.

    A part is left out whole where one of its tracepoints is missing or has another number of
    arguments (but for optional ones), where a part that it needs is not recorded, and `call` where
    programs cannot read a task's registers. Without commits of journals `fs` is recorded all the
    same. preemptible: take the programs that disable preemption (_p). symbols: text as in
    /proc/kallsyms; None: that of this kernel.
    """
    lacking: dict[str, str] = {}
    programs: list[PathProgram] = []
    for probe in PROBES:
        if probe.part not in wanted:
            continue
        name = next((one for one in probe.tracepoints if btf.parameters(one) is not None), "")
        if name:
            program, reason = offered(btf, name, probe.tracepoints[name])
        else:
            program, reason = "", f"this kernel has no tracepoint {' or '.join(probe.tracepoints)}"
        if program:
            variant = program + ("_p" if probe.in_task and preemptible else "")
            programs.append(PathProgram(probe.part, variant, name))
        elif not probe.optional:
            lacking.setdefault(probe.part, reason)
    if "call" in wanted and "BPF_FUNC_task_pt_regs" not in (btf.enum("bpf_func_id") or {}):
        lacking["call"] = _NO_REGISTERS
    # What threads wait for says nothing without their waits.
    if "fs" in wanted and ("wait" not in wanted or "wait" in lacking):
        lacking["fs"] = "it needs the part wait"
    if "fs" in wanted and "fs" not in lacking:
        commits, reason = _journal_programs(btf, preemptible)
        programs += commits
        lacking.update({COMMITS: reason} if reason else {})
    without: dict[str, str] = {}
    if _DRIVER in wanted:
        steps, without = choose_drivers(preemptible, symbols)
        programs += steps
        if not steps:
            lacking[_DRIVER] = "; ".join(f"{name}: {why}" for name, why in without.items())
    parts = frozenset(part for part in wanted if part not in lacking)
    chosen = tuple(program for program in programs if program.part in parts)
    # Since 6.1 a task in the freezer has a state of its own, and later kernels use the bit for
    # something else; these have the function frozen().
    has_flag = "wait" in parts and btf.function_id("frozen") is None
    return PathChoice(parts, chosen, lacking, without, _PF_FROZEN if has_flag else 0)


def choose_drivers(
    preemptible: bool, symbols: bytes | None = None
) -> tuple[list[PathProgram], dict[str, str]]:
    """Return the programs for drivers' steps, and why those of a driver cannot be recorded.

    symbols: text as in /proc/kallsyms; None: that of this kernel. A driver needs all of its
    tracepoints, and loop the address of the function that ends its file I/O too. A module that is
    loaded later is not known.
    """
    if symbols is None:
        symbols = read_symbols()
    programs: list[PathProgram] = []
    without: dict[str, str] = {}
    loop_ends = list(functions_named(_LOOP_COMPLETE, symbols))
    for driver in DRIVERS:
        # The kernel or a loaded module has the function that calls the tracepoint's probes.
        missing = [
            name
            for name in driver.programs
            if next(functions_named(f"__traceiter_{name}", symbols), None) is None
        ]
        if missing:
            without[driver.name] = f"this kernel has no tracepoint {missing[0]} ({driver.remedy})"
        elif driver.name == "loop" and not any(at for at, _ in loop_ends):
            why = f"the address of {_LOOP_COMPLETE} is hidden, or the module loop is not loaded"
            without[driver.name] = why
        else:
            programs += [
                PathProgram(_DRIVER, name + "_p" * preemptible, tracepoint)
                for tracepoint, name in driver.programs.items()
            ]
    return programs, without


def _journal_programs(btf: KernelBtf, preemptible: bool) -> tuple[list[PathProgram], str]:
    """Return (programs for commits in the order of attaching, ""), or ([], reason)."""
    counts = {name: btf.parameters(name) for name in JOURNAL_PROGRAMS}
    if None in counts.values():
        try:
            with KernelBtf("jbd2") as types:
                counts = {name: types.parameters(name) for name in JOURNAL_PROGRAMS}
        except RefusedError:
            pass  # of the module
        if None in counts.values():
            return [], (
                "the kernel has no types for the tracepoints of jbd2: it is not loaded, or a "
                "module, of which the kernel has types since 5.11"
            )
        if not capabilities.holds("CAP_SYS_ADMIN"):  # without it libbpf finds no modules
            return [], "jbd2 is a module, and programs for modules need CAP_SYS_ADMIN"
    for name, count in counts.items():
        if count != 2:
            return [], f"{name} has {count} arguments: there is no program for that"
    return [
        PathProgram("fs", name + "_p" * preemptible, tracepoint)
        for tracepoint, name in JOURNAL_PROGRAMS.items()
    ], ""


_TEXT = ("_stext", "_etext")
"""Symbols between which the kernel's code is, without that of modules."""
_RING_SETS, _RING_SET_BYTES = 1 << 14, 8 * 32
_RING_THREADS, _RING_THREAD_BYTES = 1 << 16, 16
_URING_FUNCTIONS = {
    "iomap_end_io": "iomap_dio_bio_end_io",
    "blkdev_end_io": "blkdev_bio_end_io",
    "blkdev_end_io_async": "blkdev_bio_end_io_async",
    "ring_complete": "io_complete_rw",
    "ring_complete_polled": "io_complete_rw_iopoll",
    "aio_complete": "aio_complete_rw",
}
"""Kernel function by its member of `struct bt_uring`."""


class PathMaps:
    """The maps and programs of the path in one object."""

    def __init__(self, bpf: BpfObject, choice: PathChoice, over_ns: int) -> None:
        """Prepare `bpf`, before it is loaded; over_ns: longer calls are recorded without I/O."""
        self._bpf = bpf
        self._choice = choice
        self._timing = 1
        machine, where = platform.machine(), cgroups.hierarchy()
        constants = shared.PATH.ctype(
            over_ns=over_ns,
            block_softirq=_BLOCK_SOFTIRQ,
            unified=where is not None and where.unified,
            tick_ns=round(time.clock_getres(_MONOTONIC_COARSE) * 1e9),
            ioctl=next(iter(syscalls.numbers(frozenset({"ioctl"}), machine)), _NO_CALL),
            frozen=choice.frozen,
            **dict.fromkeys(choice.parts, 1),
        )
        syscalls.set_bits(constants.idles, syscalls.IDLE_CALLS, machine)
        syscalls.set_bits(constants.fds, syscalls.FD_CALLS, machine)
        syscalls.set_bits(constants.reaps, syscalls.REAPING_CALLS, machine)
        if "fs" in choice.parts:
            found = addresses_of(_TEXT)
            if len(found) == len(_TEXT):
                constants.text, end = (found[name] for name in _TEXT)
                constants.text_bytes = end - constants.text
        bpf.set_map_size("bt_driver_steps", None, _DRIVER_SLOTS if _DRIVER in choice.parts else 1)
        timed = bool(choice.parts & {"time", "wait"})
        bpf.set_map_size("bt_call_slots", None, _CALL_SLOTS if timed else 1)
        self._constants_made = constants
        self.dirty_bytes = 0
        """Bytes of the table of who dirtied pages; 0: that is not recorded."""
        self._dirty_wanted = dirty_table(os.sysconf("SC_PHYS_PAGES"))
        self.size_dirty(self._dirty_wanted)
        # Where the kernel lacks or hides functions, bios of direct I/O are joined to their request
        # by the thread or worker that queues them, and those of aio are not joined.
        uring = "uring" in choice.parts
        addresses = addresses_of(_URING_FUNCTIONS.values()) if uring else {}
        section = shared.URING.ctype(
            **{name: addresses.get(of, 0) for name, of in _URING_FUNCTIONS.items()}
        )
        bpf.set_initial_value(".rodata.uring", section)
        bpf.set_map_size("bt_ring_sets", _RING_SET_BYTES, _RING_SETS if uring else 1)
        bpf.set_map_size("bt_running_reqs", _RING_THREAD_BYTES, _RING_THREADS if uring else 1)

    def size_dirty(self, size: int) -> None:
        """Set the bytes, a power of two, of the table of who dirtied pages, before loading."""
        slots = 1
        if "dirty" in self._choice.parts:
            self.dirty_bytes = size
            slots = size // _DIRTY_SLOT_BYTES
            self._constants_made.dirty_shift = dirty_shift(size)
        self._bpf.set_map_size("bt_dirty_slots", _DIRTY_SLOT_BYTES, slots)
        self._bpf.set_map_size("bt_dirty_writers", None, _WRITER_SETS if slots > 1 else 1)
        self._bpf.set_initial_value(".rodata.path", self._constants_made)

    def short_of_memory(self) -> str:
        if not 0 < self.dirty_bytes < self._dirty_wanted:
            return ""
        return (
            f"the table of who dirtied pages (--path dirty) is {self.dirty_bytes >> 10} KiB "
            f"instead of {self._dirty_wanted >> 10}: a memory limit leaves no room "
            "for more, so fewer writers of write-back are known; raise the memory limit of this "
            "service or login"
        )

    def runs(self) -> PathRuns:
        """Return how often the programs ran so far, over all CPUs."""
        if not self._choice.programs:
            return PathRuns()
        counts = (shared.ENTERED.ctype * PATH_CPUS)()
        self._bpf.section(".data.entered", counts)
        words = np.frombuffer(memoryview(counts), "<u8").reshape(PATH_CPUS, -1)
        totals = dict(zip(_ENTERED_NAMES, words.sum(axis=0).tolist(), strict=False))
        by_part = {part: totals[part] for part in _COUNTED if part in self._choice.parts}
        return PathRuns(totals["calls"], totals["timed"], by_part)

    def stop_timing(self) -> None:
        """Detach the programs of the part time; waits stand by themselves from now on."""
        self._timing += 1
        self._bpf.put(".data.timing", SECTION, ctypes.c_uint64(self._timing))
        for program in self._choice.programs:
            if program.part == "time":
                self._bpf.detach(program.name)


def dirty_table(pages: int) -> int:
    """Return how many bytes the table of who dirtied pages takes where there is room.

    A slot for two pages at least: more than twice as many as pages may be dirty by default
    (vm.dirty_ratio, a fifth of memory).
    """
    size = 1 << (pages * _DIRTY_SLOT_BYTES // 2 - 1).bit_length()
    return min(max(size, LEAST_DIRTY_BYTES), MOST_DIRTY_BYTES)


def dirty_shift(size: int) -> int:
    regions = size // (2 * _DIRTY_SLOT_BYTES * _DIRTY_REGION)
    return 64 - (regions - 1).bit_length()
