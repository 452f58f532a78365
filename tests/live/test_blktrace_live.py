# SPDX-License-Identifier: Apache-2.0
"""blktrace data of real loads: what biotrail reads, writes and prints, beside blkparse and btt."""

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from biotrail.converters.events.context import Context
from biotrail.converters.events.events import Events
from biotrail.converters.inputs.blktrace.source import BlktraceSource
from biotrail.converters.outputs.blktrace import convert as blktrace
from biotrail.converters.outputs.blktrace.blkparse import lines
from biotrail.converters.pipeline import Trace
from biotrail.recorder.schema.records import BY_KIND
from tests.support import record_command
from tests.support.blk_tracer import blk_tracer, blkparse_set, blkparse_stream, in_order
from tests.support.blktrace_records import split
from tests.support.btt_tables import blkparse_binary, btt, needs_tools
from tests.support.devices import Fio, LoopDevice
from tests.support.sources import everything

SCHEDULERS = ["none", "mq-deadline", "bfq", "kyber"]
LETTERS = {int(kind): record.letter for kind, record in BY_KIND.items()}
MESSAGE = " m   N "


def windows(source: BlktraceSource) -> Iterator[tuple[Events, int]]:
    events = everything(source)
    yield events, int(events.ts[-1])


def text(path: Path) -> list[str]:
    source = BlktraceSource(path)
    return list(lines(windows(source), Context(source.header)))


def load(fio: Fio, device: LoopDevice) -> None:
    """Reads and writes, random and in order, direct and buffered, synced, split and discarded."""
    common = {"size": "4m", "ioengine": "io_uring", "iodepth": 8}
    fio(device.path, rw="randrw", bsrange="512-32k", **common)
    fio(device.path, rw="write", bs="4k", direct=False, size="4m", fsync=64)
    fio(device.path, rw="read", bs="4m", size="8m")
    fio(device.path, rw="write:-8k", bs="4k", number_ios=64, iodepth_batch=8, **common)
    fio(device.path, rw="trim", bs="256k", number_ios=8, size="4m")


@pytest.fixture(params=SCHEDULERS)
def traced(
    request: pytest.FixtureRequest,
    loop_device: LoopDevice,
    fio: Fio,
    tmp_path: Path,
) -> tuple[Path, Path]:
    """(stream, set's prefix) of the load on a loop device under each scheduler."""
    needs_tools("blkparse", "btt")
    scheduler = Path("/sys/block") / loop_device.name / "queue" / "scheduler"
    if request.param not in scheduler.read_text():
        pytest.skip(f"the kernel has no scheduler {request.param}")
    scheduler.write_text(request.param)
    stream = tmp_path / "stream.bin"
    with blk_tracer([loop_device.name], stream):
        load(fio, loop_device)
    directory = tmp_path / "set"
    directory.mkdir()
    [prefix] = split(stream.read_bytes(), directory)
    for cpu in range(os.cpu_count() or 1):
        # blkparse stops at the first CPU without a file.
        prefix.with_name(f"{prefix.name}.blktrace.{cpu}").touch()
    return stream, prefix


@pytest.mark.xdist_group("the blk tracer")
def test_what_is_read_written_and_printed_is_what_the_tools_see(traced, tmp_path):
    # GIVEN a stream of the kernel's tracer, and the same as a set
    stream, prefix = traced
    # bfq writes messages, which are notes of the import and no events.
    wanted = [line for line in blkparse_set(prefix) if MESSAGE not in line]
    assert len(wanted) > 4000
    # THEN the stream has as many events of each action as blkparse prints of it
    source = BlktraceSource(stream)
    events = everything(source)
    assert not source.problems
    assert not source.losses
    found = Counter(LETTERS[k].replace("m", "M") for k in events.kind.tolist())
    printed = blkparse_stream(stream)
    # blkparse before 1.3 prints none that names a cgroup.
    assert sum(MESSAGE in line for line in printed) in (0, source.messages_met)
    by_blkparse = (line.split()[5] for line in printed if MESSAGE not in line)
    assert found == Counter(letter.replace("UT", "U") for letter in by_blkparse)
    # AND our lines of the set are blkparse's
    assert in_order(text(prefix)) == in_order(wanted)
    # WHEN it is imported and written again
    source = BlktraceSource(prefix)
    summary = blktrace.write(windows(source), Context(source.header), tmp_path)
    again = tmp_path / prefix.name
    # THEN blkparse prints the same lines of it, and btt tells the same of it
    assert list(summary.sets.values()) == [again]
    printed = blkparse_set(again)
    assert in_order(printed) == in_order(wanted)
    first = blkparse_binary(prefix, tmp_path / "first.bin")
    second = blkparse_binary(again, tmp_path / "second.bin")
    assert btt(first) == btt(second)
    # AND the merged stream of `blkparse -d` has the set's events, counted from the first
    merged = BlktraceSource(first)
    rebased = everything(merged)
    whole = everything(BlktraceSource(prefix))
    assert (rebased.ts == whole.ts - whole.ts[0]).all()
    assert Counter(rebased.kind.tolist()) == Counter(whole.kind.tolist())


def test_a_recording_becomes_files_that_the_tools_read(
    needs_bpf: None, loop_device: LoopDevice, fio: Fio, tmp_path: Path
):
    # GIVEN a recording of a load on a loop device
    needs_tools("blkparse", "btt")
    log = tmp_path / "disk.biotrail"
    with record_command.recorded("-o", log, "-d", loop_device.path, "--events", "all"):
        load(fio, loop_device)
    trace = Trace(log)
    # WHEN it is written as blktrace's files
    summary = blktrace.write(trace.events(), trace.context, tmp_path)
    # THEN blkparse reads all of them, and prints what we print
    prefix = tmp_path / loop_device.name
    assert list(summary.sets.values()) == [prefix]
    wanted = blkparse_set(prefix)
    assert len(wanted) == summary.records > 4000  # on a busy machine there are fewer plugs
    trace = Trace(log)
    ours = list(lines(trace.events(), trace.context, trace.tasks))
    # blkparse keeps the first name it hears for a thread; kernel threads change theirs.
    unnamed = [[line.partition("[")[0] for line in in_order(found)] for found in (wanted, ours)]
    assert unnamed[0] == unnamed[1]
    assert sum("[fio]" in line for line in ours) == sum("[fio]" in line for line in wanted) > 1000
    # AND btt reads them
    report = btt(blkparse_binary(prefix, tmp_path / "disk.bin"))
    assert "Q2C" in report
    # AND every event that has no place there is counted
    kinds = set(summary.left_out)
    assert kinds <= set("sdbEK")
