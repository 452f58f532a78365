# SPDX-License-Identifier: Apache-2.0
"""One load, recorded by perf, ftrace and biotrail: each bio is equal, or said to be inexact.

What perf recorded is read from its own file, and from a Perfetto trace, which the published
protobuf classes write as Perfetto's recorder would; what ftrace recorded from all that tracefs and
trace-cmd make of it.
"""

import functools
import os
import shutil
import signal
import subprocess
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace as Packets

from biotrail.converters.clocks.wall_clock import SLEPT
from biotrail.converters.inputs.opening import open_source
from biotrail.converters.pipeline import Trace
from biotrail.recorder.host import clocks
from biotrail.recorder.schema.errors import LogFormatError
from tests.support import block_loads, devices, record_command
from tests.support.beside_others import Bio, bios, compare, held
from tests.support.devices import Fio, LoopDevice
from tests.support.ftrace_recording import block_events, needs_trace_cmd, written
from tests.support.ftrace_setup import perf_block_events
from tests.support.perfetto_check import read
from tests.support.record_command import SECONDS, biotrail, started
from tests.support.system_traces import SystemTrace
from tests.support.traced_events import SCHED, add_all, events, script

pytestmark = [pytest.mark.usefixtures("needs_bpf"), pytest.mark.alone]
"""Alone: all tools record whatever the machine does, and one that gets no CPU loses events."""

_MOST_TRIES = 10
_LESS = "perf recorded less than ftrace, and does not say so"
_SAID = ("failed to process type: 17", "error in size of file", _LESS)
"""What `perf script` and `trace-cmd extract` say where BPF programs of others, whose symbols they
look up, came or went meanwhile; and what perf did on a busy machine, when it compressed."""


def done_again_where_tools_failed(test: Callable[..., None]) -> Callable[..., None]:
    """Repeat a test that fails where perf lost events, or a tool could not read or write its own.

    perf loses events where it gets no CPU. Each try has a directory of its own as `tmp_path`, in
    which perf's recordings are `*.data`; other fixtures stay as they are.
    """

    @functools.wraps(test)
    def repeated(**given: Any) -> None:
        for number in range(1, _MOST_TRIES + 1):
            directory = given["tmp_path"] / f"try-{number}"
            directory.mkdir()
            try:
                return test(**{**given, "tmp_path": directory})
            except AssertionError as error:
                failed = any(text in str(error) for text in _SAID) or _lost(directory)
                if number == _MOST_TRIES or not failed:
                    raise

    return repeated


def _lost(directory: Path) -> bool:
    """Whether perf lost events of a recording in the directory."""
    sources = [open_source(path) for path in directory.glob("*.data")]
    for source in sources:
        for _ in source.parts():
            pass
    return any(source.losses for source in sources)


@functools.cache
def needs_perf() -> None:
    """Skip the test where perf cannot record tracepoints."""
    if shutil.which("perf") is None:
        pytest.skip("needs perf")
    done = subprocess.run(
        ["perf", "record", "-q", "-a", "-e", "block:block_rq_issue", "-o", "/dev/null", "true"],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    if done.returncode:
        pytest.skip(f"perf cannot record: {done.stderr.strip()[-200:]}")


@contextmanager
def perf_record(output: Path, *options: str, events: str = "") -> Iterator[None]:
    """Record events (the block layer's) on all CPUs with perf, from before the block to its end."""
    command = ["perf", "record", "-q", "-a", "-m", "8M", "-k", "CLOCK_MONOTONIC"]
    command += ["-e", events or perf_block_events()]
    # Other tests' BPF programs come and go, and perf 6.1 cannot always read its records of them.
    command.append("--no-bpf-event")
    # perf starts its command once it records.
    command += [*options, "-o", str(output), "--", "sh", "-c", "echo begun; exec sleep 100000"]
    environment = {**os.environ, "LC_ALL": "C"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with started(command, text=True, env=environment, **pipes) as process:
        said = process.stdout.readline()
        assert said == "begun\n", process.communicate(timeout=SECONDS)
        yield
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=SECONDS)


ALL = ("--events", "all")


@dataclass
class Recorded:
    """Recordings of one load: biotrail's log, and after the load others', by what they are."""

    log: Path
    theirs: dict[str, Path] = field(default_factory=dict)

    def equal(self, *devs: int) -> int:
        """Compare the bios of some disks in all recordings: none is wrong, none is missing.

        Returns how many at least are equal, and not only said to be inexact.
        """
        for form, path in self.theirs.items():
            assert not Trace(path).reader.problems, form
        perf, ftrace = (len(bios(self.theirs[form], devs)) for form in ("perf", "trace"))
        assert perf >= ftrace, _LESS
        return min(held(self.log, path, *devs).equal for path in self.theirs.values())


@contextmanager
def recorded(
    tmp_path: Path, *paths: str, perf: tuple[str, ...] = (), options: tuple[str, ...] = ALL
) -> Iterator[Recorded]:
    """Record some devices with biotrail and everything with perf and ftrace, while the block runs.

    perf, options: of perf's and of biotrail's recording.
    """
    needs_perf()
    needs_trace_cmd()
    found, data = Recorded(tmp_path / "ours.biotrail"), tmp_path / "perf.data"
    chosen = [word for path in paths for word in ("-d", path)]
    begin = clocks.reading()  # the shortest of several: a busy machine is none that slept
    with block_events() as instance:
        with (
            record_command.recorded("-o", found.log, *chosen, *options),
            perf_record(data, *perf, events=perf_block_events() + SCHED),
        ):
            yield found
        found.theirs = {"perf": data, **written(instance, tmp_path)}
    # perf has no CLOCK_BOOTTIME; and what `perf script` makes of its other forms is perf's own.
    if perf or abs(begin["boottime"] - begin["monotonic"]) > SLEPT:
        return
    trace, system = SystemTrace(), os.uname()
    trace.clocks(begin)
    trace.kernel(system.release, system.version, system.machine)
    add_all(trace, events(script(data)))
    trace.clocks(clocks.reading())
    found.theirs["system"] = tmp_path / "system.pftrace"
    trace.write(found.theirs["system"])


@pytest.mark.parametrize("options", [(), ("-z",), ("-g",)])
@done_again_where_tools_failed
def test_random_reads_and_writes(
    fio: Fio, loop_device: LoopDevice, tmp_path: Path, options: tuple[str, ...]
) -> None:
    # GIVEN a recording by all, of perf also compressed, or with call chains
    with recorded(tmp_path, loop_device.path, perf=options) as found:
        # WHEN many reads and writes are in flight
        block_loads.random_reads(fio, loop_device.path)
        fio(loop_device.path, rw="randrw", bs="4k", size="4m", ioengine="libaio", iodepth=16)
    # THEN all are equal, but for those that are said to be inexact
    assert found.equal(loop_device.dev) > 1500


@pytest.mark.parametrize("scheduler", ["none", "mq-deadline"])
@done_again_where_tools_failed
def test_merges_and_splits(
    fio: Fio, loop_device: LoopDevice, tmp_path: Path, scheduler: str
) -> None:
    # GIVEN a device with small requests
    block_loads.schedule(loop_device, scheduler)
    with recorded(tmp_path, loop_device.path) as found:
        # WHEN small writes come in order in batches, and large ones are over the limit
        block_loads.merges_and_splits(fio, loop_device.path)
    # THEN merges and splits are the same
    assert found.equal(loop_device.dev) > 500


@done_again_where_tools_failed
def test_flushes_and_a_file_system(loop_device: LoopDevice, tmp_path: Path) -> None:
    # GIVEN a file system
    devices.make_ext4(loop_device.path)
    with recorded(tmp_path, loop_device.path) as found:
        # WHEN files are written and made durable
        block_loads.durable_files(loop_device.path, tmp_path / "mounted")
    # THEN flushes, metadata and the journal are the same
    assert found.equal(loop_device.dev) > 60


@done_again_where_tools_failed
def test_a_partition(fio: Fio, tmp_path: Path) -> None:
    # GIVEN a disk with a partition
    with block_loads.partitioned() as (loop, parts), recorded(tmp_path, loop.path) as found:
        # WHEN the partition is read
        fio(parts[0], rw="randread", bs="4k", size="4m", ioengine="psync")
    # THEN its bios are the disk's, at the disk's sectors
    assert found.equal(loop.dev) > 900


@done_again_where_tools_failed
def test_a_device_below_dm(fio: Fio, loop_device: LoopDevice, tmp_path: Path) -> None:
    # GIVEN a linear mapping
    with block_loads.linear(loop_device) as path:
        dev = devices.dev_of(path)
        with recorded(tmp_path, path, loop_device.path) as found:
            # WHEN it is read and written
            fio(path, rw="randrw", bs="4k", size="4m", ioengine="libaio", iodepth=4)
    # THEN the bios of both devices are equal
    assert found.equal(dev, loop_device.dev) > 900


@done_again_where_tools_failed
def test_wake_ups_follow_completions_in_the_trace_of_both(
    fio: Fio, loop_device: LoopDevice, tmp_path: Path
) -> None:
    # GIVEN a recording with calls, and a trace with scheduling, of reads one after the other
    path = ("--path", "--call-budget", "0")  # other processes' calls must not end the timing
    with recorded(tmp_path, loop_device.path, options=path) as found:
        fio(loop_device.path, rw="randread", bs="4k", size="8m", ioengine="psync")
    if "system" not in found.theirs:
        pytest.skip("perf has no CLOCK_BOOTTIME, and this machine has slept")
    # WHEN the log is written into the trace
    system, out = found.theirs["system"], tmp_path / "both.pftrace"
    biotrail("convert", found.log, "--with", system, "--detail", "full", "-o", out)
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
    tracks = [track.descriptor for track in ours.tracks.values()]
    threads = {track.thread.tid for track in tracks if track.HasField("thread")}
    assert {b.args["tid"] for b in reads} <= threads & wakings.keys()


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


@pytest.mark.parametrize(
    "events",
    [
        "block:block_rq_issue,block:block_rq_complete",
        "block:block_rq_insert,block:block_rq_issue,block:block_rq_complete",
        "block:block_bio_queue,block:block_rq_issue,block:block_rq_complete",
    ],
)
@done_again_where_tools_failed
def test_a_few_events_of_perf(
    fio: Fio, loop_device: LoopDevice, tmp_path: Path, events: str
) -> None:
    # GIVEN a recording of perf with some events alone
    needs_perf()
    data = tmp_path / "perf.data"
    with perf_record(data, events=events):
        report = fio(loop_device.path, rw="randread", bs="4k", size="4m", ioengine="psync")
    trace = Trace(data)
    tables = list(trace.lifecycles())
    # THEN every read is a request with both its times
    ours = [(t.requests, t.requests.dev == loop_device.dev) for t in tables]
    ended = sum(int(((r.issue > 0) & (r.complete > r.issue) & rows).sum()) for r, rows in ours)
    done = report["jobs"][0]["read"]["total_ios"]
    assert ended == done
    # AND a bio, for which the request stands if block_bio_queue was not recorded
    assert sum(int((t.bios.dev == loop_device.dev).sum()) for t in tables) == done
    # AND what is missing is said
    missing = any("block_bio_queue" in r for r in trace.reader.remarks)
    assert missing == ("bio_queue" not in events)


QUEUE_TO_END = "block:block_bio_queue,block:block_rq_issue,block:block_rq_complete"


@pytest.mark.parametrize(
    "others",
    [
        "",
        ",block:block_rq_insert",
        ",block:block_getrq",
        ",block:block_bio_backmerge,block:block_bio_frontmerge,block:block_split",
    ],
)
@done_again_where_tools_failed
def test_bios_of_a_few_events_of_perf(
    fio: Fio, loop_device: LoopDevice, tmp_path: Path, others: str
) -> None:
    # GIVEN a recording of perf without some or all of merges, splits, allocations, insertions
    needs_perf()
    block_loads.schedule(loop_device, "mq-deadline")
    log, data = tmp_path / "ours.biotrail", tmp_path / "perf.data"
    with (
        record_command.recorded("-o", log, "-d", loop_device.path, *ALL),
        perf_record(data, events=QUEUE_TO_END + others),
    ):
        # WHEN bios are merged and split
        block_loads.random_reads(fio, loop_device.path)
        block_loads.merges_and_splits(fio, loop_device.path)
    # THEN all that is told of their issue, end and request is right
    found = compare(*(_issue_and_end(bios(one, [loop_device.dev])) for one in (log, data)))
    assert not found.wrong, found.wrong[:3]
    assert not found.numbers, found.numbers[:3]
    assert found.equal > 1500


def _issue_and_end(found: list[Bio]) -> list[Bio]:
    """The bios with the last two of their steps alone, which all recordings have."""
    return [replace(bio, steps=bio.steps[-2:]) for bio in found]


def test_what_perf_lost_makes_nothing_wrong(
    fio: Fio, loop_device: LoopDevice, tmp_path: Path
) -> None:
    # GIVEN a recording of perf with rings of a few pages
    needs_perf()
    log, data, began = tmp_path / "ours.biotrail", tmp_path / "perf.data", time.monotonic_ns()
    with (
        record_command.recorded("-o", log, "-d", loop_device.path, *ALL),
        perf_record(data, "-m", "4"),
    ):
        # WHEN there is more I/O than they hold
        fio(loop_device.path, rw="randread", bs="4k", size="16m", ioengine="io_uring", iodepth=16)
    # THEN the bios that it has are right, or said to be inexact
    found = compare(bios(log, [loop_device.dev]), bios(data, [loop_device.dev]))
    assert not found.wrong, found.wrong[:3]
    # AND those that it lacks were lost
    trace = Trace(data)
    list(trace.events())
    assert trace.losses or not found.numbers
    # AND that is dated, perhaps after the last event: by the first record that had room again
    dates = [(loss["start"], loss["end"]) for loss in trace.losses]
    ended = time.monotonic_ns()
    assert [d for d in dates if not began <= d[0] <= d[1] <= ended] == []


@done_again_where_tools_failed
def test_what_ftrace_lost_is_counted(fio: Fio, loop_device: LoopDevice, tmp_path: Path) -> None:
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


def _overrun(stats: Path) -> int:
    """Return how many events a CPU's ring overwrote."""
    lines = dict(line.split(": ", 1) for line in stats.read_text().splitlines() if ": " in line)
    return int(lines["overrun"])


@done_again_where_tools_failed
def test_counts_of_ftrace_are_refused(fio: Fio, loop_device: LoopDevice, tmp_path: Path) -> None:
    # GIVEN ftrace with a clock that counts events
    with block_events() as instance:
        (instance / "trace_clock").write_text("counter")
        fio(loop_device.path, rw="read", bs="4k", size="64k", ioengine="psync")
        text = tmp_path / "trace"
        text.write_bytes((instance / "trace").read_bytes())
    # WHEN its text is read, THEN the message says which clock to take
    with pytest.raises(LogFormatError, match="trace_clock 'mono'"):
        list(Trace(text).lifecycles())
