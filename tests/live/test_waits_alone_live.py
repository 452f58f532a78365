# SPDX-License-Identifier: Apache-2.0
"""Waits of every thread, whether its calls are timed or not, beside what the kernel counts."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from biotrail.converters.events.tables import WaitCause
from biotrail.recorder.log import LogReader
from biotrail.recorder.schema.syscalls import PAGE_FAULT
from tests.support import devices, lone_loads
from tests.support.path_disks import mounted
from tests.support.path_tables import RecordedPath, recorded_path
from tests.support.record_command import biotrail

pytestmark = pytest.mark.usefixtures("needs_bpf")

MEBIBYTE = 1 << 20
DELAYS = Path("/proc/sys/kernel/task_delayacct")


@pytest.fixture
def file(make_loop: Callable[..., devices.LoopDevice], tmp_path: Path) -> Iterator[Path]:
    """A file of 32 MiB on ext4 on a loop device, not in the cache."""
    with mounted(make_loop(), "ext4", tmp_path / "disk") as disk:
        path = disk.mount / "file"
        with path.open("wb") as stream:
            stream.write(b"x" * 32 * MEBIBYTE)
        devices.run("sync", "-f", path)
        yield path


@contextmanager
def delays_counted() -> Iterator[None]:
    """Delay accounting of threads that begin meanwhile."""
    if not DELAYS.exists():
        pytest.skip("the kernel has no delay accounting")
    before = DELAYS.read_text()
    DELAYS.write_text("1")
    try:
        yield
    finally:
        DELAYS.write_text(before)


def recorded(log: Path, role: str, file: Path, *options: str) -> tuple[RecordedPath, str]:
    """(a recording of a role of lone_loads, what the load printed)."""
    load = [sys.executable, lone_loads.__file__, role, str(file)]
    done = biotrail("record", *options, "-o", log, "--", *load)
    return recorded_path(log), done.stdout


def test_page_faults_wait_as_long_as_the_kernel_counts(tmp_path: Path, file: Path) -> None:
    # GIVEN a thread that touches mapped pages which are not in the cache; its calls are not timed
    with delays_counted():
        options = ("--path=call,wait,fs", "--files")
        found, printed = recorded(tmp_path / "log", "faults", file, *options)
    # WHEN its waits are added up that the kernel counts as waits for I/O
    mine = found.calls.take(found.call_comms == "faults")
    waits = found.waits.take(np.isin(found.waits.tid, mine.tid) & found.waits.io_wait)
    blocked = int((waits.woken - waits.out).sum())
    # THEN delay accounting has them as long: it begins when the thread is taken off its queue,
    # some microseconds before the switch, and ends when it is put on one, after the wake-up began
    # and before the thread runs, which beside a load may be long
    counted, tick = int(printed) * 10_000_000, 10_000_000
    assert 0.95 * blocked <= counted + tick
    assert counted <= 1.05 * int((waits.run - waits.out).sum()) + 5_000 * len(waits)
    # AND nearly all are page faults of the file, known by the bio that each was for
    faults = waits.take(waits.number == PAGE_FAULT)
    assert len(faults) > 0.9 * len(waits)
    assert not faults.timed.any()
    names = [found.trace.context.files[row].path for row in faults.file[faults.file >= 0].tolist()]
    assert sum(name == str(file) for name in names) > 0.9 * len(faults)


def test_waits_of_timed_calls_add_up_to_these_calls(tmp_path: Path, file: Path) -> None:
    # GIVEN a thread that writes, syncs and reads directly, recorded with its calls timed
    found, _ = recorded(tmp_path / "log", "mixed", file, "--path", "--call-budget", "0")
    # WHEN its waits for I/O and the parts of its calls are added up
    calls = found.calls.take((found.call_comms == "mixed") & found.calls.timed)
    waits = found.waits.take(np.isin(found.waits.tid, calls.tid) & found.waits.timed)
    waits = waits.take(np.isin(waits.entry, calls.entry) & (waits.cause != WaitCause.OTHERWISE))
    whole = int((calls.own_io + calls.other_io).sum())
    # THEN both are the same
    assert whole > 0
    assert int((waits.woken - waits.out).sum()) == pytest.approx(whole, rel=0.02)
    # AND nothing of a timed call stands by itself, but what came before calls were timed
    syncs = found.calls_of("mixed", "fsync")
    assert int(syncs.timed.sum()) == len(syncs) == 200


def test_waits_go_on_beside_very_many_calls(tmp_path: Path, file: Path) -> None:
    # GIVEN a thread that syncs, beside processes that make as many system calls as they can
    found, printed = recorded(tmp_path / "log", "storm", file, "--path")
    reader = LogReader(tmp_path / "log")
    list(reader.chunks())
    (note,) = [payload for name, payload in reader.notes if name == "call_timing"]
    # WHEN its calls and waits are read  THEN timing ended, and each sync has a wait all the same
    syncs = found.calls_of("syncer", "fsync")
    alone = syncs.take(~syncs.timed)
    assert syncs.timed.any()
    assert (alone.entry >= note["until"] - 1_000_000_000).all()
    ended = len(np.unique(syncs.entry))
    assert ended >= int(printed) - 2
    # AND they are for I/O, with what they were for
    waits = found.waits.take(np.isin(found.waits.entry, alone.entry))
    assert (waits.cause != WaitCause.OTHERWISE).all()
    assert (waits.reason > 0).all()
