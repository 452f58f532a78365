# SPDX-License-Identifier: Apache-2.0
"""Recordings of other tools with a part missing, beside the whole ones of the same load.

A CPU's events are taken away, a burst is dropped, or each CPU's clock is shifted. Then no latency
may be off without being said, and no figure may move by more than what is missing. The truth is the
tool's own whole recording, whose bios are those of biotrail's, recorded at once: the two take the
time of an event one after the other, and a busy machine lets tens of microseconds pass between.
"""

import os
import re
import struct
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from biotrail.converters.events.tables import NEVER, Certainty
from biotrail.converters.pipeline import Trace
from tests.support import record_command
from tests.support.beside_others import Bio, Key, bios
from tests.support.blk_tracer import traced
from tests.support.blktrace_records import records
from tests.support.devices import Fio, LoopDevice
from tests.support.ftrace_recording import block_events, stop
from tests.support.kernel_completions import done_again

pytestmark = [
    pytest.mark.usefixtures("needs_bpf"),
    pytest.mark.xdist_group("the blk tracer"),
]

SHIFT_NS = 1_000
"""By how much each CPU's clock is ahead of that of the one below: by less than any I/O takes, or
one would end after the next one of its place began, and nothing tells."""
BURST = (0.4, 0.43)
"""The part of the recording's events that is dropped."""
LINE = re.compile(r"^.{16,}? +\[(\d+)\] .{4,8} +(\d+)\.(\d+): \w+: ")


def ios(recording: Path, dev: int) -> list[Bio]:
    """The bios of a disk whose Q is recorded, in that order."""
    return [bio for bio in bios(recording, [dev]) if bio.queue != NEVER]


def load(fio: Fio, path: str) -> None:
    """Reads at depth; and one place written again and again, as journals do: on two CPUs."""
    first, *others = sorted(os.sched_getaffinity(0))
    on = {"cpus_allowed": str(first)}
    fio(path, rw="randread", bs="4k", size="16m", ioengine="io_uring", iodepth=8, **on)
    again = {"norandommap": True, "io_size": "4m", "fsync": 16}
    again |= {"cpus_allowed": str(others[0] if others else first)}
    fio(path, rw="randwrite", bs="4k", size="64k", offset="32m", ioengine="psync", **again)


def held(ours: list[Bio], truth: list[Bio], found: list[Bio], shift: int) -> None:
    """Hold a faulty recording's bios against the whole one's, and that against biotrail's."""
    assert Counter(io.key for io in truth) == Counter(io.key for io in ours)
    by_key: dict[Key, list[Bio]] = defaultdict(list)
    for io in truth:
        by_key[io.key].append(io)
    known = [io for io in found if io.latency != NEVER and not io.doubtful]
    off_by: list[int] = []
    for io in known:
        same = [one for one in by_key[io.key] if abs(one.queue - io.queue) <= shift]
        assert same, io
        if any(one.doubtful for one in same):
            continue
        off_by.append(min((io.latency - one.latency for one in same), key=abs))
        off = abs(off_by[-1])
        said = io.certainty > Certainty.INTERVAL
        # The only candidate across a loss is taken, and says so (docs/lifecycles.md).
        near = 10 * off <= io.latency or io.certainty == Certainty.LOST
        assert off <= shift or (said and near), (io, same)
    # Those of the only candidates across a loss, too, are off by no more on average than what is
    # missing says: of the same I/Os, as a busy machine may have made the missing ones slow.
    whole = [io.latency for io in truth if io.latency != NEVER and not io.doubtful]
    missing, true = 1 - len(known) / len(truth), sum(whole) / len(whole)
    mean = sum(off_by) / max(len(off_by), 1)
    assert abs(mean) <= (2 * missing + 0.02) * true + shift, (mean, true, missing)


def without_cpu(files: dict[int, bytes]) -> dict[int, bytes]:
    """The set without the CPU that has fewest records, of those that have any."""
    some = {cpu: data for cpu, data in files.items() if data}
    least = min(some, key=lambda cpu: len(some[cpu]))
    # The highest CPU's absence cannot be seen: another one's number is higher then.
    return {cpu: data for cpu, data in files.items() if cpu != least} | {max(files) + 1: b""}


def burst(times: list[int]) -> tuple[int, int]:
    """The time of the events that are dropped, from and to."""
    found = sorted(times)
    return found[int(BURST[0] * len(found))], found[int(BURST[1] * len(found))]


def of_records(files: dict[int, bytes], fault: str) -> dict[int, bytes]:
    """The files of a set of blktrace with a fault."""
    if fault == "cpu":
        return without_cpu(files)
    times = [struct.unpack_from("<Q", one, 8)[0] for d in files.values() for one in records(d)]
    begin, end = burst(times)
    made = {}
    for cpu, data in files.items():
        parts = []
        for one in records(data):
            [time] = struct.unpack_from("<Q", one, 8)
            if fault == "burst" and begin <= time < end:
                continue
            if fault == "clocks":
                parts.append(one[:8] + struct.pack("<Q", time + cpu * SHIFT_NS) + one[16:])
            else:
                parts.append(one)
        made[cpu] = b"".join(parts)
    return made


def of_text(text: str, fault: str) -> str:
    """ftrace's text with a fault; what is dropped is told as ftrace tells it."""
    lines = text.splitlines(keepends=True)
    found = [(LINE.match(line), line) for line in lines]
    times = [int(m[2]) * 10**9 + int(m[3].ljust(9, "0")) for m, _ in found if m]
    begin, end = burst(times)
    made: list[tuple[int, str]] = []
    dropped: dict[int, int] = defaultdict(int)
    head = []
    for match, line in found:
        if match is None:
            head.append(line)
            continue
        cpu, time = int(match[1]), int(match[2]) * 10**9 + int(match[3].ljust(9, "0"))
        if fault == "burst" and begin <= time < end:
            dropped[cpu] += 1
            continue
        said = line
        if fault == "clocks":
            time += cpu * SHIFT_NS
            first, last = match.span(2)[0], match.span(3)[1]
            said = f"{line[:first]}{time // 10**9}.{time % 10**9 // 1000:06d}{line[last:]}"
        if lost := dropped.pop(cpu, 0):
            said = f"CPU:{cpu} [LOST {lost} EVENTS]\n{said}"
        made.append((time, said))
    made.sort(key=lambda each: each[0])
    return "".join(head) + "".join(line for _, line in made)


def losses(path: Path) -> list[dict[str, Any]]:
    """What is missing of a recording; ftrace itself may lose events on a busy machine."""
    trace = Trace(path)
    list(trace.lifecycles())
    return trace.losses


@done_again
def test_blktrace_sets(fio: Fio, loop_device: LoopDevice, tmp_path: Path) -> None:
    # GIVEN a load recorded by biotrail and by the kernel's blk tracer at once
    log = tmp_path / "ours.biotrail"

    def recorded() -> None:
        with record_command.recorded("-o", log, "-d", loop_device.path):
            load(fio, loop_device.path)

    prefix = traced(loop_device, tmp_path, recorded)
    files = {
        int(path.name.rsplit(".", 1)[1]): path.read_bytes()
        for path in prefix.parent.glob(f"{prefix.name}.blktrace.*")
    }
    dev = loop_device.dev
    ours, truth = ios(log, dev), ios(prefix, dev)
    for fault in ("cpu", "burst", "clocks"):
        # WHEN a part of the tracer's is missing, or its clocks differ
        directory = tmp_path / fault
        directory.mkdir(exist_ok=True)
        for cpu, data in of_records(files, fault).items():
            (directory / f"{prefix.name}.blktrace.{cpu}").write_bytes(data)
        faulty = directory / prefix.name
        # THEN no latency is off without being said, all on average by no more than is missing
        shift = SHIFT_NS * max(files) if fault == "clocks" else 0
        held(ours, truth, ios(faulty, dev), shift)
        # AND what is missing is a loss
        assert bool(losses(faulty)) == (fault != "clocks" or bool(losses(prefix))), fault


@done_again
def test_text_of_ftrace(fio: Fio, loop_device: LoopDevice, tmp_path: Path) -> None:
    # GIVEN a load recorded by biotrail and by ftrace at once
    log, all_of_it, text = (tmp_path / name for name in ("ours.biotrail", "all.txt", "faulty.txt"))
    with block_events() as instance:
        # Or other tests' I/O leaves no room for its own.
        (instance / "events" / "block" / "filter").write_text(f"dev == {loop_device.dev}")
        with record_command.recorded("-o", log, "-d", loop_device.path):
            load(fio, loop_device.path)
        stop(instance)
        all_of_it.write_bytes((instance / "trace").read_bytes())
    dev = loop_device.dev
    ours, truth = ios(log, dev), ios(all_of_it, dev)
    for fault, shift in (("burst", 0), ("clocks", SHIFT_NS)):
        # WHEN a part of ftrace's is missing, or its clocks differ
        text.write_text(of_text(all_of_it.read_text(), fault))
        # THEN no latency is off without being said, all on average by no more than is missing
        held(ours, truth, ios(text, dev), shift)
        # AND what is missing is a loss
        assert bool(losses(text)) == (fault != "clocks" or bool(losses(all_of_it))), fault
