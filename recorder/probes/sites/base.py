# SPDX-License-Identifier: Apache-2.0
"""What programs at chosen sites have in common as a backend: their object, ring and losses."""

import ctypes
from importlib import resources
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from biotrail.recorder.filters.left_out import LeftOut
from biotrail.recorder.filters.triggers import Hit
from biotrail.recorder.host.own_io import OwnFile
from biotrail.recorder.log import Segment
from biotrail.recorder.probes.backend import Capabilities
from biotrail.recorder.probes.bpf_calls import program_info
from biotrail.recorder.probes.file_maps import NO_FILES
from biotrail.recorder.probes.libbpf import BpfObject, load_library
from biotrail.recorder.probes.path_maps import NO_PATH, PathRuns
from biotrail.recorder.probes.program_info import ProgInfo
from biotrail.recorder.probes.ring import LEVELS, RingSizes
from biotrail.recorder.probes.run_stats import RunStats
from biotrail.recorder.probes.sites.attaching import Descriptors
from biotrail.recorder.probes.sites.ring import SiteRing
from biotrail.recorder.probes.stack_maps import FreshStacks
from biotrail.recorder.schema.errors import ProbeError
from biotrail.recorder.schema.payloads import End, KernelEnums
from biotrail.recorder.schema.shared import plain_class
from biotrail.recorder.schema.site_structs import SITE_COUNTS

OBJECT_NAME = "sites.bpf.o"
SiteCounts = plain_class(SITE_COUNTS)
"""`struct bt_site_counts` of one CPU."""


def object_path() -> Path:
    """Return the path of the installed object of sites. Raises ProbeError: it was not built."""
    path = Path(str(resources.files("biotrail.bpf"))) / OBJECT_NAME
    if not path.exists():
        raise ProbeError(
            f"the compiled BPF programs are missing ({path}): run scripts/build-bpf "
            "(needs clang and libbpf-dev), or install a wheel"
        )
    return path


def per_cpu(
    bpf: BpfObject, name: str, key: "ctypes._CData", kind: type[ctypes.Structure]
) -> list[ctypes.Structure]:
    """Return the values of a per-CPU map's key, by possible CPU; all 0 where it is not there.

    kind: the ctypes class of a value, whose size is a multiple of 8. Raises RefusedError: there is
    no such map.
    """
    library = load_library()
    cpus = library.call("the number of CPUs is unknown", "libbpf_num_possible_cpus")
    values = (kind * cpus)()
    look_up = library.get("bpf_map_lookup_elem")
    look_up(bpf.map_fd(name), ctypes.byref(key), ctypes.byref(values))
    return list(values)


class SiteProbes:
    """Base of what records sites; fits backend.Probes with the methods of a subclass.

    A subclass has open(), attach(), programs() and backend_facts(). It sets `_object` and `_ring`,
    and adds its programs and what attaches them to `_programs` and `_links`. Nothing is pinned, so
    the kernel detaches and frees everything when the process ends, however it ends.
    """

    capabilities: ClassVar[Capabilities] = Capabilities("core")

    def __init__(self) -> None:
        self.enums: KernelEnums = {}
        self.files = NO_FILES
        self.path = NO_PATH
        self._object: BpfObject | None = None
        self._ring: SiteRing | None = None
        self._programs = Descriptors()
        self._links = Descriptors()
        self._run_stats = RunStats()

    def open(self) -> None:
        """Load programs and maps: of a subclass."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        """Open, and return this object."""
        self.open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close; an exception passes."""
        self.close()

    @property
    def sizes(self) -> RingSizes | None:
        """None: sites have one ring for all CPUs, not the rings of each."""
        return None

    def _opened(self) -> BpfObject:
        """Return the loaded object. Raises ProbeError before open() and after close()."""
        if self._object is None:
            raise ProbeError("the probes are not open: call open() first")
        return self._object

    def detach(self) -> None:
        """Detach the programs, those that were attached last first; maps stay readable."""
        self._links.close()

    def close(self) -> None:
        """Detach and unload everything. Closing again has no effect."""
        self._run_stats.switch(False)
        self._links.close()
        self._programs.close()
        if self._ring is not None:
            self._ring.close()
            self._ring = None
        if self._object is not None:
            self._object.close()
            self._object = None

    def drain(self) -> list[Segment]:
        """Copy out all complete records and free their space: a Segment for each CPU with some."""
        return self._ring.drain() if self._ring is not None else []

    def fill(self) -> float:
        """Return the used share of the ring, 0 to 1."""
        return self._ring.fill() if self._ring is not None else 0.0

    def lost(self) -> NDArray[np.uint64]:
        """Return counts of records lost to a full ring, (cpus, LEVELS, 256) by kind, since open.

        All at level 0, as the ring is one for all levels. Raises ProbeError: not open.
        """
        counts = per_cpu(self._opened(), "bt_site_counts", ctypes.c_uint32(0), SiteCounts)
        totals = np.zeros((len(counts), LEVELS, 256), np.uint64)
        for cpu, one in enumerate(counts):
            lost = np.frombuffer(bytes(one.lost), np.uint64)
            totals[cpu, 0, : len(lost)] = lost
        return totals

    def too_deep(self) -> NDArray[np.uint64]:
        """Return zeros (cpus, 256): sites' programs may nest to any depth."""
        library = load_library()
        cpus = library.call("the number of CPUs is unknown", "libbpf_num_possible_cpus")
        return np.zeros((cpus, 256), np.uint64)

    def left_out(self) -> LeftOut:
        """Return nothing: filters of bios are not applied."""
        return LeftOut()

    def path_runs(self) -> PathRuns:
        """Return no runs: the path is not recorded."""
        return PathRuns()

    def stop_timing(self) -> None:
        """Do nothing: system calls are not timed."""

    def kernel_enums(self) -> KernelEnums:
        """Return `op_enum` and `flag_bits` of this kernel, once open."""
        return self.enums

    def count_runs(self, on: bool) -> None:
        """Switch the kernel's counting of program runs and time; ignored without CAP_SYS_ADMIN."""
        self._run_stats.switch(on)

    def triggered(self) -> list[Hit]:
        """Return no hits: there are no triggers."""
        return []

    def fresh_stacks(self) -> FreshStacks:
        """Return no stacks; a subclass that records stacks has its own."""
        return FreshStacks({}, {}, {})

    def runs(self) -> int | None:
        """Return None; a subclass that knows how often its programs ran has its own."""
        return None

    def end_facts(self) -> End:
        """Return no entries; a subclass may have some."""
        return {}

    def own_file(self, file: OwnFile) -> None:
        """Do nothing: the recorder's own files are not recognized."""

    @staticmethod
    def info(program: int) -> ProgInfo:
        """Return the kernel's counters of a program by its descriptor. Raises OSError."""
        return program_info(program)
