# SPDX-License-Identifier: Apache-2.0
"""One load, recorded by biotrail and by the kernel's own events, which become a Perfetto trace.

perf records them, and the published protobuf classes write them as Perfetto's recorder would.
"""

import os
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace as Packets

from biotrail.cli.main import main
from biotrail.converters.clocks.wall_clock import SLEPT
from biotrail.converters.pipeline import Trace
from biotrail.recorder.host import clocks
from tests.support import block_loads, devices, record_command
from tests.support.beside_others import held
from tests.support.devices import LoopDevice
from tests.support.perf_recording import needs_perf, perf_record
from tests.support.perfetto_check import read
from tests.support.system_traces import SystemTrace
from tests.support.tool_tries import done_again_where_tools_failed
from tests.support.traced_events import EVENTS, add_all, events, script

pytestmark = pytest.mark.usefixtures("needs_bpf")

Fio = Callable[..., dict[str, Any]]


@contextmanager
def both(tmp_path: Path, device: str, *options: str) -> Iterator[tuple[Path, Path]]:
    """Record a device with biotrail, and everything with perf; give (log, Perfetto trace)."""
    needs_perf()
    log, data = tmp_path / "ours.biotrail", tmp_path / "perf.data"
    trace = SystemTrace()
    system = os.uname()
    begin = clocks.reading()  # the shortest of several: a busy machine is none that slept
    with record_command.recorder("-o", log, "-d", device, *options) as process:
        with perf_record(data, events=EVENTS):
            yield log, tmp_path / "system.pftrace"
        record_command.stop(process, record_command.signal.SIGINT)
    trace.clocks(begin)
    trace.kernel(system.release, system.version, system.machine)
    apart = begin["boottime"] - begin["monotonic"]
    if abs(apart) > SLEPT:
        pytest.skip("perf has no CLOCK_BOOTTIME, and this machine has slept")
    add_all(trace, events(script(data)))
    trace.clocks(clocks.reading())
    trace.write(tmp_path / "system.pftrace")


def equal_bios(log: Path, system: Path, dev: int) -> int:
    """Return how many bios of a disk are equal; the trace is read without a problem."""
    assert not Trace(system).reader.problems
    return held(log, system, dev).equal


@done_again_where_tools_failed
def test_random_reads_and_writes(fio: Fio, loop_device: LoopDevice, tmp_path: Path) -> None:
    # GIVEN a recording by both
    with both(tmp_path, loop_device.path, "--events", "all") as (log, system):
        # WHEN many reads and writes are in flight
        fio(loop_device.path, rw="randrw", bs="4k", size="8m", ioengine="libaio", iodepth=16)
    # THEN all are equal, but for those that are said to be inexact
    assert equal_bios(log, system, loop_device.dev) > 1500


@done_again_where_tools_failed
def test_merges_and_splits(fio: Fio, loop_device: LoopDevice, tmp_path: Path) -> None:
    # GIVEN a device with small requests and a scheduler
    block_loads.schedule(loop_device, "mq-deadline")
    with both(tmp_path, loop_device.path, "--events", "all") as (log, system):
        # WHEN small writes come in order in batches, and large ones are over the limit
        block_loads.merges_and_splits(fio, loop_device.path)
    # THEN merges and splits are the same
    assert equal_bios(log, system, loop_device.dev) > 500


@done_again_where_tools_failed
def test_flushes_and_a_file_system(loop_device: LoopDevice, tmp_path: Path) -> None:
    # GIVEN a file system
    devices.make_ext4(loop_device.path)
    with both(tmp_path, loop_device.path, "--events", "all") as (log, system):
        # WHEN files are written and made durable
        block_loads.durable_files(loop_device.path, tmp_path / "mounted")
    # THEN flushes, metadata and the journal are the same
    assert equal_bios(log, system, loop_device.dev) > 60


@done_again_where_tools_failed
def test_wake_ups_follow_completions_in_the_trace_of_both(
    fio: Fio, loop_device: LoopDevice, tmp_path: Path
) -> None:
    # GIVEN a recording with calls, and a trace with scheduling, of reads one after the other
    path = ("--path", "--call-budget", "0")  # other processes' calls must not end the timing
    with both(tmp_path, loop_device.path, *path) as (log, system):
        fio(loop_device.path, rw="randread", bs="4k", size="8m", ioengine="psync")
    # WHEN the log is written into the trace
    out = tmp_path / "both.pftrace"
    arguments = ["convert", log, "--with", system, "--detail", "full", "-o", out]
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in arguments])
    assert ended.value.code == 0
    # THEN its own packets are unchanged
    data, theirs = out.read_bytes(), system.read_bytes()
    assert data.startswith(theirs)
    # AND of 99 of 100 reads the thread's next wake-up follows the completion
    ours = read(data[len(theirs) :])
    wakings = _wakings(theirs)
    reads = [b for b in ours.slices("bio") if b.args.get("process") == "fio" and b.name == "read"]
    reads = [b for b in reads if "latency_ns" in b.args]
    follows = [one for one in reads if _woken(one.start, wakings[one.args["tid"]]) >= one.end]
    assert len(reads) > 1500
    assert len(follows) >= 0.99 * len(reads)
    # AND its calls are on the track of the thread that the scheduling names
    threads = {t.descriptor.thread.tid for t in ours.tracks.values() if _is_thread(t)}
    assert {b.args["tid"] for b in reads} <= threads & wakings.keys()


def _is_thread(track: Any) -> bool:
    return bool(track.descriptor.HasField("thread"))


def _wakings(trace: bytes) -> dict[int, list[int]]:
    """When each thread was woken (ns, BOOTTIME), in order."""
    found: dict[int, list[int]] = defaultdict(list)
    for packet in Packets.FromString(trace).packet:
        for event in packet.ftrace_events.event:
            if event.HasField("sched_waking"):
                found[event.sched_waking.pid].append(event.timestamp)
    return {tid: sorted(times) for tid, times in found.items()}


def _woken(since: int, times: list[int]) -> int:
    """The first wake-up after a time; -1: there is none."""
    at = bisect_left(times, since)
    return times[at] if at < len(times) else -1
