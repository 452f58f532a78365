# SPDX-License-Identifier: Apache-2.0
"""Figures that one program adds up in the kernel (bpf/measure.h): no records, rings or log."""

import ctypes
import errno
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from biotrail.recorder.filters.filters import Filters
from biotrail.recorder.probes.capability import require_rights
from biotrail.recorder.probes.core import allow_locked_memory
from biotrail.recorder.probes.kernel.btf import KernelBtf, kernel_enums
from biotrail.recorder.probes.kernel.libbpf import BpfObject, RefusedError, load_library
from biotrail.recorder.probes.kernel.run_stats import RunStats
from biotrail.recorder.probes.maps import admission
from biotrail.recorder.probes.programs import PREEMPTION_OFF, is_preemptible, object_path
from biotrail.recorder.probes.rings.ring import RingSizes
from biotrail.recorder.schema.errors import ProbeError
from biotrail.recorder.schema.limits import MEASURE_OTHER
from biotrail.recorder.schema.measure_structs import KEY, MEASURED, STAGES
from biotrail.recorder.schema.payloads import KernelEnums

OBJECT_NAME = "measure.bpf.o"
MOST = 128
"""Pairs of device and operation that have figures of their own; further ones are added up."""
OTHER = MEASURE_OTHER
"""Device or operation of figures of all those that have none of their own."""
_TRACEPOINT = "block_rq_complete"
_PROGRAM = "bt_measure"
_MAP = "bt_measured"
_Key = KEY.ctype
_Value = MEASURED.ctype
_VALUE_BYTES = ctypes.sizeof(_Value)
_STAGES_AT = _Value.stages.offset // 8


@dataclass(frozen=True)
class Measured:
    """Sums over the requests of one device and operation since measuring began."""

    dev: int
    """Kernel dev_t of the disk, or OTHER."""
    op: int
    """enum req_op, or OTHER."""
    ios: int
    bytes: int
    failed: int
    sums_ns: NDArray[np.uint64]
    """(len(STAGES),): sum of each stage's times, in the order of STAGES."""
    counts: NDArray[np.uint64]
    """(len(STAGES), MEASURE_BUCKETS): number of times by bucket, as BOUNDS_NS divides them."""


@dataclass(frozen=True)
class ProgramRuns:
    """The kernel's counters of the program since it was loaded."""

    runs: int
    """Runs that the kernel counted and timed: only those while `count_runs` was on."""
    run_ns: int
    skipped: int
    """Completions for which the program was not run because it was running on that CPU."""


class Measuring:
    """The program and its map. Nothing is pinned: the kernel frees all when the process ends."""

    def __init__(self, devices: Sequence[tuple[int, int]] = ()) -> None:
        """devices: (dev_t of the disk, 0) of each disk to measure; none: all."""
        self._devices = list(devices)
        self._stats = RunStats()
        self._object: BpfObject | None = None
        self._program = ""
        self._cpus = 0
        self.enums: KernelEnums = {}
        """`op_enum` and `flag_bits` of this kernel, once loaded."""

    def __enter__(self) -> Self:
        require_rights()
        path = object_path(OBJECT_NAME)
        self._cpus = load_library().possible_cpus()
        with KernelBtf() as btf:
            self.enums = kernel_enums(btf)
            held = is_preemptible(btf)
            if btf.parameters(_TRACEPOINT) != 3:
                raise ProbeError(
                    f"this kernel has no tracepoint {_TRACEPOINT} with three arguments: give "
                    "--events lifecycle, which may need another backend"
                )
            hold_irqs = btf.function_id("bpf_local_irq_save") is not None
            allow_locked_memory()
        self._program = _PROGRAM + (PREEMPTION_OFF if held else "")
        bpf = self._object = BpfObject(path)
        try:
            sizes, filters = RingSizes.choose(self._cpus), Filters()
            config = admission.config(
                sizes, self._devices, filters, self.enums, hold_irqs=hold_irqs
            )
            bpf.choose([self._program])
            others = [*sorted(set(self.enums["op_enum"].values())), OTHER]
            bpf.set_initial_value(".rodata", config)
            bpf.set_map_size(_MAP, _VALUE_BYTES, MOST + len(others))
            bpf.load()
            zeros = (_Value * self._cpus)()
            for op in others:
                bpf.put(_MAP, _Key(OTHER, op), zeros)
            bpf.attach(self._program)
        except ProbeError:
            self.close()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        self._stats.switch(False)
        if self._object is not None:
            self._object.close()
            self._object = None

    def read(self) -> list[Measured]:
        """Return all CPUs' sums now; a request that completes meanwhile may be in some only."""
        most = MOST + len(set(self.enums["op_enum"].values())) + 1
        keys = np.empty((most, 2), np.uint32)
        values = np.empty((most, self._cpus, _VALUE_BYTES // 8), np.uint64)
        look_up = load_library().get("bpf_map_lookup_batch")
        count, token = ctypes.c_uint32(most), ctypes.c_uint32(0)
        where = (keys.ctypes.data, values.ctypes.data, ctypes.byref(count))
        ctypes.set_errno(0)
        result = look_up(self._opened().map_fd(_MAP), None, ctypes.byref(token), *where, None)
        number = 0 if result >= 0 else ctypes.get_errno() or -result
        if number not in (0, errno.ENOENT):  # ENOENT: that was the last batch
            raise RefusedError(
                "the figures cannot be read from the kernel: "
                f"bpf_map_lookup_batch failed ({errno.errorcode.get(number, number)})",
                number,
            )
        found = count.value
        sums = values[:found].sum(axis=1, dtype=np.uint64)
        read = []
        for (dev, op), row in zip(keys[:found].tolist(), sums, strict=True):
            ios, size, failed = row[:_STAGES_AT].tolist()
            if ios or size or failed:
                stages = row[_STAGES_AT:].reshape(len(STAGES), -1)
                read.append(Measured(dev, op, ios, size, failed, stages[:, 0], stages[:, 1:]))
        return read

    def count_runs(self, on: bool) -> None:
        """Switch the kernel's counting of program runs and time; ignored without CAP_SYS_ADMIN."""
        self._stats.switch(on)

    def program(self) -> ProgramRuns:
        info = self._opened().info(self._program)
        return ProgramRuns(int(info.run_cnt), int(info.run_time_ns), int(info.recursion_misses))

    def _opened(self) -> BpfObject:
        if self._object is None:
            raise ProbeError("measuring has not begun: enter the block first")
        return self._object
