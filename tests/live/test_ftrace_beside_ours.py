# SPDX-License-Identifier: Apache-2.0
"""One load, recorded by ftrace and by biotrail: each bio is equal, or said to be inexact.

What ftrace recorded is read from all that tracefs and trace-cmd make of it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from biotrail.converters.pipeline import Trace
from biotrail.recorder.schema.errors import LogFormatError
from tests.support import block_loads, devices, record_command
from tests.support.beside_others import bios, certainties, compare
from tests.support.devices import LoopDevice
from tests.support.ftrace_recording import block_events, needs_trace_cmd, written
from tests.support.tool_tries import done_again_where_tools_failed

pytestmark = pytest.mark.usefixtures("needs_bpf")

Fio = Callable[..., dict[str, Any]]


class Recorded:
    """Recordings of one load: biotrail's log, and ftrace's in all its forms, by form."""

    def __init__(self, log: Path) -> None:
        self.log = log
        self.theirs: dict[str, Path] = {}

    def held(self, *devs: int) -> int:
        """Compare the bios of some disks, none may be wrong; return how many at least are equal."""
        ours, equal = bios(self.log, devs), []
        for form, path in self.theirs.items():
            assert not Trace(path).reader.problems, form
            theirs = bios(path, devs)
            found = compare(ours, theirs)
            assert not found.wrong, (form, found.wrong[:3])
            assert not found.numbers, (form, found.numbers[:3])
            assert set(certainties(theirs)) <= {"interval", "ambiguous", "incomplete"}, form
            equal.append(found.equal)
        assert len(equal) == 6
        return min(equal)


@contextmanager
def both(tmp_path: Path, *paths: str) -> Iterator[Recorded]:
    """Record some devices with biotrail and everything with ftrace; filled in at the end."""
    needs_trace_cmd()
    recorded = Recorded(tmp_path / "ours.biotrail")
    chosen = [word for path in paths for word in ("-d", path)]
    with block_events() as instance:
        with record_command.recorder("-o", recorded.log, *chosen, "--events", "all") as process:
            yield recorded
            record_command.stop(process, record_command.signal.SIGINT)
        recorded.theirs = written(instance, tmp_path)


@done_again_where_tools_failed
def test_random_reads(fio: Fio, loop_device: LoopDevice, tmp_path: Path) -> None:
    # GIVEN a recording by both
    with both(tmp_path, loop_device.path) as recorded:
        # WHEN many reads are in flight
        block_loads.random_reads(fio, loop_device.path)
    # THEN all are equal, but for those that are said to be inexact
    assert recorded.held(loop_device.dev) > 1500


@pytest.mark.parametrize("scheduler", ["none", "mq-deadline"])
@done_again_where_tools_failed
def test_merges_and_splits(
    fio: Fio, loop_device: LoopDevice, tmp_path: Path, scheduler: str
) -> None:
    # GIVEN a device with small requests
    block_loads.schedule(loop_device, scheduler)
    with both(tmp_path, loop_device.path) as recorded:
        # WHEN small writes come in order in batches, and large ones are over the limit
        block_loads.merges_and_splits(fio, loop_device.path)
    # THEN merges and splits are the same
    assert recorded.held(loop_device.dev) > 500


@done_again_where_tools_failed
def test_flushes_and_a_file_system(loop_device: LoopDevice, tmp_path: Path) -> None:
    # GIVEN a file system
    devices.make_ext4(loop_device.path)
    with both(tmp_path, loop_device.path) as recorded:
        # WHEN files are written and made durable
        block_loads.durable_files(loop_device.path, tmp_path / "mounted")
    # THEN flushes, metadata and the journal are the same
    assert recorded.held(loop_device.dev) > 60


@done_again_where_tools_failed
def test_a_partition(fio: Fio, tmp_path: Path, needs_root: None) -> None:
    # GIVEN a disk with a partition
    with block_loads.partitioned() as (loop, partition), both(tmp_path, loop.path) as recorded:
        # WHEN the partition is read
        fio(partition, rw="randread", bs="4k", size="4m", ioengine="psync")
    # THEN its bios are the disk's, at the disk's sectors
    assert recorded.held(loop.dev) > 900


@done_again_where_tools_failed
def test_a_device_below_dm(fio: Fio, loop_device: LoopDevice, tmp_path: Path) -> None:
    # GIVEN a linear mapping
    with block_loads.linear(loop_device) as path:
        dev = devices.dev_of(path)
        with both(tmp_path, path, loop_device.path) as recorded:
            # WHEN it is read and written
            fio(path, rw="randrw", bs="4k", size="4m", ioengine="libaio", iodepth=4)
    # THEN the bios of both devices are equal
    assert recorded.held(dev, loop_device.dev) > 900


@done_again_where_tools_failed
def test_lost_events_are_counted(fio: Fio, loop_device: LoopDevice, tmp_path: Path) -> None:
    # GIVEN buffers that hold few events
    needs_trace_cmd()
    with block_events(buffer_kib=16) as instance:
        # WHEN there are many more
        block_loads.random_reads(fio, loop_device.path)
        lost = sum(_overrun(path) for path in instance.glob("per_cpu/cpu*/stats"))
        theirs = written(instance, tmp_path)
    assert lost > 0
    # THEN each file says that some were lost, and trace-cmd's how many
    for form, path in theirs.items():
        trace = Trace(path)
        list(trace.lifecycles())
        losses = [loss["count"] for loss in trace.reader.losses]
        assert losses or "overwritten" in " ".join(trace.reader.remarks), form
        # The kernel does not tell the number where a page was overwritten while it was read.
        if form in ("trace.dat", "v6", "plain", "report", "report-ns") and -1 not in losses:
            assert sum(losses) >= lost, form


@done_again_where_tools_failed
def test_counts_are_refused(fio: Fio, loop_device: LoopDevice, tmp_path: Path) -> None:
    # GIVEN ftrace with a clock that counts events
    needs_trace_cmd()
    with block_events() as instance:
        (instance / "trace_clock").write_text("counter")
        fio(loop_device.path, rw="read", bs="4k", size="64k", ioengine="psync")
        text = tmp_path / "trace"
        text.write_bytes((instance / "trace").read_bytes())
    # WHEN its text is read, THEN the message says which clock to take
    with pytest.raises(LogFormatError, match="trace_clock 'mono'"):
        list(Trace(text).lifecycles())


def _overrun(stats: Path) -> int:
    """Return how many events a CPU's ring overwrote."""
    lines = dict(line.split(": ", 1) for line in stats.read_text().splitlines() if ": " in line)
    return int(lines["overrun"])
