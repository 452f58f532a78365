# SPDX-License-Identifier: Apache-2.0
"""The core backend: precompiled CO-RE programs on the block layer's typed tracepoints."""

import ctypes
import errno
import mmap
import resource
import threading
import time
from pathlib import Path

from biotrail.recorder.filters.filters import check_tasks, descendants
from biotrail.recorder.filters.triggers import Hit
from biotrail.recorder.host import memory_limit
from biotrail.recorder.host.own_io import OwnFile
from biotrail.recorder.log.chunks import unwrap
from biotrail.recorder.probes import file_ways
from biotrail.recorder.probes.backend import (
    ProbeConfig,
    Probes,
    ProgramInfo,
)
from biotrail.recorder.probes.capability import LOCKED_REMEDY, locked_memory_problem, require_rights
from biotrail.recorder.probes.kernel.btf import KernelBtf, kernel_enums
from biotrail.recorder.probes.kernel.libbpf import (
    SECTION,
    BpfObject,
    RefusedError,
    load_library,
)
from biotrail.recorder.probes.maps import admission, cgroup_maps
from biotrail.recorder.probes.maps.cgroup_maps import CgroupMaps
from biotrail.recorder.probes.maps.fitting import (
    LEAST,
    LEAST_WITH_FILTERS,
    ensure_room,
    fit,
    may_shrink,
)
from biotrail.recorder.probes.maps.path_maps import (
    LEAST_DIRTY_BYTES,
    PathMaps,
    choose_path,
)
from biotrail.recorder.probes.maps.stack_maps import (
    BUILD_ID_FRAME,
    KERNEL_STACKS,
    USER_STACKS,
    WAIT_DEPTH,
    WAIT_STACKS,
    StackMap,
    Stacks,
    max_depth,
)
from biotrail.recorder.probes.programs import (
    ESSENTIAL,
    LIGHT,
    LIGHT_LETTER,
    choose,
    is_preemptible,
    object_path,
    refuse_light,
)
from biotrail.recorder.probes.rings import waker
from biotrail.recorder.probes.rings.barriers import machine_barrier
from biotrail.recorder.probes.rings.head_stores import ordered_heads, with_exchanges
from biotrail.recorder.probes.rings.ring import Rings, RingSizes
from biotrail.recorder.schema import shared
from biotrail.recorder.schema.errors import ProbeError
from biotrail.recorder.schema.limits import FIRED_SLOTS, OWN_FILES
from biotrail.recorder.schema.records import RECORDS
from biotrail.recorder.symbols.kallsyms import addresses_of

_MAX_PROCESSES = 65536
"""Processes that --children can record at once."""
_FORK_PROGRAM = "bt_fork"
_TRIGGERS = {1: "slow", 2: "failed", 3: "depth"}  # enum bt_trigger
_INFLIGHT_SLOTS = 65536
_DEPTH_SLOTS = 4096
_INFLIGHT_BYTES = 24
_ONE = ctypes.c_uint64(1)
"""Value of a key that is only to be there."""


def allow_locked_memory() -> None:
    """Raise RLIMIT_MEMLOCK, to which kernels before 5.11 charge maps, as far as permitted."""
    try:
        resource.setrlimit(
            resource.RLIMIT_MEMLOCK, (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
        )
    except (ValueError, OSError):
        # Without CAP_SYS_RESOURCE only up to the hard limit; _load_fitting then halves the rings.
        most = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (most, most))


class CoreProbes(Probes):
    """The core backend's programs. Nothing is pinned: the kernel frees all with the process."""

    backend = "core"

    def __init__(self, config: ProbeConfig, path: Path | None = None) -> None:
        """`path`: file with the BPF programs; None: the installed one."""
        super().__init__()
        self.config = config
        self._path = path
        self._armed = 1
        self._own_files: list[OwnFile] = []
        self._own_lock = threading.Lock()
        self._locked: str | None = None
        self._hold_irqs = False
        self._ends: dict[str, int] = {}
        self._by_file = file_ways.NO_CHOICE
        self._reports_cgroups = False

    def open(self) -> None:
        """Load the programs and map the rings. Raises ProbeError; then nothing stays loaded."""
        require_rights()
        refuse_light(self.config)
        check_tasks(self.config.filters)
        ensure_room(0, memory_limit.room())
        path = self._path or object_path()
        cpus = load_library().possible_cpus()
        with KernelBtf() as btf:
            self.enums = kernel_enums(btf)
            held = is_preemptible(btf)
            self._choices = choose(self.config.events, btf, bool(self.config.devices))
            self._hold_irqs = btf.function_id("bpf_local_irq_save") is not None
            self._ends = addresses_of(admission.END_FUNCTIONS)
            # The kernel counts misses of tp_btf programs since 6.2; only since then is the counting
            # in a function that BTF lists.
            self.counts_skips = btf.function_id("bpf_prog_inc_misses_counter") is not None
            allow_locked_memory()
            self._locked = locked_memory_problem(btf)
            self._by_file = file_ways.choose(
                btf, self.enums, self.config.files, self.config.filters
            )
            self.files = self._by_file.files
            self.path = choose_path(self.config.path, btf, held)
            for part, name, tracepoint in self.path.programs:
                letter = next(record.letter for record in RECORDS if record.part == part)
                self._choices.append(ProgramInfo(name, letter, tracepoint, False, part=part))
            self._reports_cgroups = btf.parameters(cgroup_maps.TRACEPOINT) is not None
        essential = (LIGHT_LETTER,) if self.config.events == LIGHT else ESSENTIAL
        for one in self._choices:
            if not one.name and one.letter in essential:
                raise ProbeError(
                    f"event {one.letter} cannot be recorded: {one.reason}; use another kernel"
                )
        sizes = RingSizes.choose(cpus, self.config.ring_bytes)
        try:
            self.sizes = self._load_fitting(path, sizes, cpus)
        except RefusedError as error:
            wanted = {"--files": self.files.recorded, "--path": bool(self.path.parts)}
            if not any(wanted.values()):
                raise
            names = " or ".join(name for name, recorded in wanted.items() if recorded)
            raise ProbeError(f"{error}\nIt may be {names}: try without.") from error

    def _load_fitting(self, path: Path, sizes: RingSizes, cpus: int) -> RingSizes:
        """Load with rings of `sizes`, halved until the kernel accepts them; return their sizes.

        After ENOMEM, so by a limit that was not seen before, the sizes that fit are halved once
        more, unless they are the smallest: the recorder needs memory, too.
        """
        short_of_memory = False
        while True:
            self._object = BpfObject(path)
            try:
                sizes = self._load(self._object, sizes, cpus)
                if not short_of_memory or not may_shrink(errno.ENOMEM, sizes, False):
                    return sizes
                short_of_memory = False
                self.close()
                sizes = sizes.halved()
            except RefusedError as error:
                self.close()
                short_of_memory |= error.number == errno.ENOMEM
                if not may_shrink(error.number, sizes, self._locked is not None):
                    if self._locked is not None and error.number == errno.EPERM:
                        raise ProbeError(
                            f"no room for rings: {self._locked}; {LOCKED_REMEDY}"
                        ) from error
                    raise
                sizes = sizes.halved()
            except ProbeError:
                self.close()
                raise

    def _load(self, bpf: BpfObject, sizes: RingSizes, cpus: int) -> RingSizes:
        """Choose the programs, set constants and maps' sizes, and load; return the rings' sizes."""
        triggers = self.config.triggers
        value = shared.TRIGGERS.ctype(triggers.slow_ns, triggers.failed, triggers.depth)
        bpf.set_initial_value(".rodata.trigger", value)
        # A table that no trigger needs keeps its single entry.
        if triggers.slow_ns or triggers.depth:
            bpf.set_map_size("bt_requests", _INFLIGHT_BYTES, _INFLIGHT_SLOTS)
        if triggers.slow_ns:
            bpf.set_map_size("bt_bios", _INFLIGHT_BYTES, _INFLIGHT_SLOTS)
        if triggers.depth:
            bpf.set_map_size("bt_depths", 8, _DEPTH_SLOTS)
        depth = max_depth()
        self._stacks = {}
        if self.config.stacks >= Stacks.KERNEL:
            self._stacks["kernel"] = StackMap(bpf, "bt_kernel_stacks", depth, KERNEL_STACKS)
        if self.config.stacks >= Stacks.USER:
            self._stacks["user"] = StackMap(
                bpf, "bt_user_stacks", depth, USER_STACKS, BUILD_ID_FRAME
            )
        if "fs" in self.path.parts:
            waits = min(depth, WAIT_DEPTH)
            self._stacks["wait"] = StackMap(bpf, "bt_wait_stacks", waits, WAIT_STACKS)
        self._by_file.prepare(bpf)
        path_maps = self._path_maps = PathMaps(bpf, self.path, self.config.call_over_ns)
        filters = self.config.filters
        cgroups = self._cgroups = CgroupMaps(bpf, filters, reports=True, made=self._reports_cgroups)
        chosen = {one.name for one in self._choices if one.name} | cgroups.programs
        bpf.choose(chosen | ({_FORK_PROGRAM} if filters.children else set()), by_states="bt_queue")
        ids = _MAX_PROCESSES if filters.children else len(filters.pids + filters.tids)
        bpf.set_map_size("bt_ids", 8, max(1, ids))
        follow = admission.follows(filters, self.config.devices)
        bpf.set_map_size("bt_followed", 8, filters.max_followed if follow else 1)
        table = path_maps.dirty_bytes
        others = bpf.map_bytes(cpus) - table
        room, least = memory_limit.room(), LEAST_WITH_FILTERS if follow else LEAST
        sizes, fitted = fit(sizes, cpus, table, others, room, LEAST_DIRTY_BYTES, least)
        if table:
            path_maps.size_dirty(fitted)
        constants = admission.config(
            sizes,
            self.config.devices,
            filters,
            self.enums,
            self.config.stacks,
            self.files,
            hold_irqs=self._hold_irqs,
            ends=self._ends,
        )
        bpf.set_initial_value(".rodata", constants)
        bpf.set_map_size("bt_rings", sizes.area_bytes, cpus)
        bpf.set_map_size(waker.RING, 0, mmap.PAGESIZE)
        if ordered := ordered_heads():
            bpf.rewrite(with_exchanges)
        bpf.load()
        self._by_file.fill(bpf)
        cgroups.open()
        for number in admission.task_ids(filters.pids, filters.tids):
            bpf.put("bt_ids", ctypes.c_uint64(number), _ONE)
        barrier = machine_barrier(ordered)
        self._rings = Rings.map(bpf.map_fd("bt_rings"), cpus, sizes, barrier)
        self.waker = waker.Waker.map(bpf, barrier)
        return sizes

    def attach(self) -> None:
        bpf = self._opened()
        if self._cgroups is not None:
            self._cgroups.attach()
        if self.config.filters.children:
            bpf.attach(_FORK_PROGRAM)
            # /proc is read until it shows no new ones: none that was forked meanwhile is missed.
            added: set[int] = set()
            while new := descendants(self.config.filters.pids) - added:
                for number in admission.task_ids(new):
                    bpf.put("bt_ids", ctypes.c_uint64(number), _ONE)
                added |= new
        for _, program, _ in self.path.programs:
            bpf.attach(program)
            self._attached_once.add(program)
        # Completions first and Q last: every bio whose Q is recorded has its later events too.
        for one in reversed(self._choices):
            if one.name and not one.part:
                bpf.attach(one.name)
                self._attached_once.add(one.name)

    def close(self) -> None:
        if self.waker is not None:
            self.waker.close()
            self.waker = None
        super().close()

    def triggered(self) -> list[Hit]:
        """Return the first trigger that fired on each CPU (modulo 64) since the last call, by time.

        Arms the triggers again; those that fire between the first one and this call are not known.
        """
        bpf = self._opened()
        fired = (shared.FIRED.ctype * FIRED_SLOTS)()
        bpf.section(".data.fired", fired)
        slots = [slot for slot in fired if slot.armed == self._armed]
        if not slots:
            return []
        self._armed += 1
        bpf.put(".data.armed", SECTION, ctypes.c_uint64(self._armed))
        near = time.monotonic_ns()
        hits = [
            Hit(_TRIGGERS.get(s.trigger, "?"), unwrap(s.now, near), s.dev, s.sector, s.value, s.op)
            for s in slots
        ]
        return sorted(hits, key=lambda hit: hit.monotonic)

    def own_file(self, file: OwnFile) -> None:
        with self._own_lock:
            # A file without generation is dropped when the next comes: its inode number may have
            # been freed and reused by another process's file.
            sure = [known for known in self._own_files if known.generation is not None]
            self._own_files = [*sure, file][-OWN_FILES:]
            # The newest first: programs compare from the start, and it is written most.
            content = (shared.OWN_FILE.ctype * OWN_FILES)()
            for place, one in enumerate(reversed(self._own_files)):
                known = one.generation is not None
                content[place] = (one.inode, one.dev, one.generation or 0, known)
            self._opened().put(".data.own", SECTION, content)
