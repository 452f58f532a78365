# SPDX-License-Identifier: Apache-2.0
"""The load of `offered.py`: a BPF program writes events into the rings of a recorder that runs.

The program is run by BPF_PROG_TEST_RUN, on one CPU, a millisecond's worth at a time.
"""

import ctypes
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import byref, c_char, c_int, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from pathlib import Path

from biotrail.recorder.probes.kernel.btf import KernelBtf
from biotrail.recorder.probes.kernel.libbpf import SECTION, BpfObject, load_library
from biotrail.recorder.probes.rings.ring import KINDS, RingSizes
from biotrail.recorder.schema.shared import CONFIG

ROOT = Path(__file__).resolve().parents[1]
SOURCE = Path(__file__).with_name("offered.bpf.c")
EVENTS_PER_RUN = 4
"""Q, s, D and C; the first runs have no C."""
BURST_NS = 1_000_000
LONGEST_BURST_NS = 10_000_000
"""What was missed is made up for, but no more than this at a time."""

_RINGS = "bt_rings"
SHARED = (_RINGS, "bt_wake_ring", ".data.asleep")
"""Maps of the recorder that the program uses: it fills the rings, and wakes the recorder."""
_SECTION = ".data.offered"
_PIDFD_GETFD = 438  # the same on all machines
_PACKET = 64


class _Offered(ctypes.Structure):
    """`struct offered` of offered.bpf.c."""

    _fields_ = (
        ("dev", c_uint32),
        ("tid", c_uint32),
        ("cgroup", c_uint64),
        ("random", c_uint64),
        ("events", c_uint64 * KINDS),
        ("fullest", c_uint64),
    )


class _MapInfo(ctypes.Structure):
    """The first members of `struct bpf_map_info` (include/uapi/linux/bpf.h)."""

    _fields_ = (
        ("type", c_uint32),
        ("id", c_uint32),
        ("key_size", c_uint32),
        ("value_size", c_uint32),
        ("max_entries", c_uint32),
        ("map_flags", c_uint32),
        ("name", c_char * 16),
    )


class _TestRun(ctypes.Structure):
    """`struct bpf_test_run_opts` of libbpf."""

    _fields_ = (
        ("sz", ctypes.c_size_t),
        ("data_in", c_void_p),
        ("data_out", c_void_p),
        ("data_size_in", c_uint32),
        ("data_size_out", c_uint32),
        ("ctx_in", c_void_p),
        ("ctx_out", c_void_p),
        ("ctx_size_in", c_uint32),
        ("ctx_size_out", c_uint32),
        ("retval", c_uint32),
        ("repeat", c_int),
        ("duration", c_uint32),
        ("flags", c_uint32),
        ("cpu", c_uint32),
        ("batch_size", c_uint32),
    )


@dataclass(frozen=True)
class Offer:
    """What was offered: events by kind, the nanoseconds it took, the most bytes in the ring."""

    events: dict[int, int]
    ns: int
    fullest: int


def build(directory: Path) -> Path:
    """Compile the program into `directory`. Raises RuntimeError with what the compiler said."""
    target = directory / "offered.bpf.o"
    command = [ROOT / "scripts" / "build-bpf", "--other", SOURCE, target]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{SOURCE.name} cannot be compiled: {done.stderr.strip()}")
    return target


@contextmanager
def on_cpu(cpu: int) -> Iterator[None]:
    """This thread runs on `cpu`, before what else wants it: rates are then held."""
    affinity = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {cpu})
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
        yield
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
        os.sched_setaffinity(0, affinity)


@contextmanager
def maps_of(pid: int) -> Iterator[tuple[dict[str, int], int]]:
    """Descriptors of a recorder's maps SHARED by name, and the bytes of one CPU's rings.

    Raises RuntimeError where the process has none.
    """
    library = load_library()
    libc = ctypes.CDLL(None, use_errno=True)
    process = os.pidfd_open(pid)
    found: dict[str, int] = {}
    area_bytes = 0
    try:
        for entry in Path(f"/proc/{pid}/fdinfo").iterdir():
            if "map_id:" not in entry.read_text():
                continue
            fd = libc.syscall(_PIDFD_GETFD, process, int(entry.name), 0)
            if fd < 0:
                raise RuntimeError(f"a map of process {pid}: {os.strerror(ctypes.get_errno())}")
            found[entry.name] = fd  # closed below, whatever it is
            info, size = _MapInfo(), c_uint32(ctypes.sizeof(_MapInfo))
            library.call("a map", "bpf_obj_get_info_by_fd", fd, byref(info), byref(size))
            if (name := info.name.decode()) in SHARED:
                found[name] = found.pop(entry.name)
                area_bytes = info.value_size if name == _RINGS else area_bytes
        if not found.keys() >= set(SHARED):
            raise RuntimeError(
                f"process {pid} has no rings: is it `biotrail record` with the core backend?"
            )
        yield {name: found[name] for name in SHARED}, area_bytes
    finally:
        for fd in (process, *found.values()):
            os.close(fd)


class Generator(BpfObject):
    """The loaded program. Events are those of I/O on the device `dev` (dev_t)."""

    def __init__(self, path: Path, maps: dict[str, int], sizes: RingSizes, dev: int) -> None:
        """`maps`: SHARED or some of them, of a recorder with rings of `sizes`. Raises ProbeError.

        Of maps that are missing the program has its own: it wakes nobody then.
        """
        super().__init__(path)
        reuse = self._lib.get("bpf_map__reuse_fd")
        reuse.argtypes = (c_void_p, c_int)
        self._test = self._lib.get("bpf_prog_test_run_opts")
        self._test.argtypes = (c_int, c_void_p)
        for name, fd in maps.items():
            if reuse(self._map(name), fd) < 0:
                raise RuntimeError(f"libbpf cannot use the recorder's {name}")
        with KernelBtf() as btf:
            program = "offer_p" if btf.function_id("bpf_preempt_disable") else "offer"
        self.choose([program])
        config = CONFIG.ctype(
            ring_bytes=sizes.ring_bytes, upper_bytes=sizes.upper_bytes, area_bytes=sizes.area_bytes
        )
        self.set_initial_value(".rodata", config)
        seed = time.monotonic_ns() | 1
        told = _Offered(dev=dev, tid=os.getpid(), cgroup=1, random=seed)
        self.set_initial_value(_SECTION, told)
        self.load()
        self._fd = self._lib.call(f"program {program}", "bpf_program__fd", self._program(program))
        self._packet = ctypes.create_string_buffer(_PACKET)

    def run(self, repeat: int) -> None:
        """Run the program so often on this CPU. Raises OSError."""
        options = _TestRun(
            sz=ctypes.sizeof(_TestRun),
            data_in=ctypes.addressof(self._packet),
            data_size_in=_PACKET,
            repeat=repeat,
        )
        if (error := self._test(self._fd, byref(options))) < 0:
            raise OSError(-error, f"BPF_PROG_TEST_RUN: {os.strerror(-error)}")

    def offer(self, rate: float, seconds: float) -> Offer:
        """`rate` events a second for so long, or as many as this CPU can make."""
        began = now = time.monotonic_ns()
        end = began + round(seconds * 1e9)
        most = max(1, round(rate * LONGEST_BURST_NS / 1e9 / EVENTS_PER_RUN))
        done, wake = 0, began
        while now < end:
            due = round(rate * (now + BURST_NS - began) / 1e9 / EVENTS_PER_RUN) - done
            if due > 0:
                self.run(min(due, most))
                done += min(due, most)
            wake += BURST_NS
            now = time.monotonic_ns()
            if wake > now:
                time.sleep((wake - now) / 1e9)
            now = time.monotonic_ns()
        seen = _Offered()
        self.get(_SECTION, SECTION, seen)
        events = {kind: count for kind, count in enumerate(seen.events) if count}
        return Offer(events, now - began, seen.fullest)
