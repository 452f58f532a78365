# SPDX-License-Identifier: Apache-2.0
"""Timelines of real system calls: on their threads' tracks, joined to their bios by arrows."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from tests.support import devices, otf2_archives, perfetto_check
from tests.support.path_disks import mounted
from tests.support.perfetto_check import Read, Slice
from tests.support.record_command import biotrail, fio_command, in_json

pytestmark = [pytest.mark.usefixtures("needs_bpf"), pytest.mark.xdist_group("timelines")]

MIB = 1024 * 1024
JOB = {"rw": "randrw", "bs": "4k", "size": "2m", "ioengine": "psync", "thread": True, "numjobs": 2}
NAMES = ("pread64", "pwrite64")
RUN = 2 * 512
"""fio's calls: two jobs that read or write each block once."""


@dataclass
class Recorded:
    """A recording of fio's direct reads and writes of a file on ext4, each in a call."""

    log: Path
    device: Path
    file: Path

    def report(self) -> dict[str, Any]:
        """The report's rows, by name, of calls that did I/O on the device: others are others'."""
        calls = in_json("report", "-d", self.device, self.log)["calls"]
        return {row["call"]: row for row in calls if row["io"]}

    @cached_property
    def trace(self) -> Read:
        target = self.log.with_suffix(".pftrace")
        biotrail("convert", "--flows", "--detail", "full", self.log, "-o", target)
        return perfetto_check.read(target.read_bytes())


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    place = tmp_path_factory.mktemp("timelines")
    with devices.loop() as device, mounted(device, "ext4", place / "disk") as disk:
        file, log = disk.prepare("file", 2 * MIB), place / "log.biotrail"
        command = fio_command(str(file), place / "fio.json", **JOB)
        disk.record(log, command, "--path=all", "--files")
        yield Recorded(log, Path(device.path), file)


def of_fio(trace: Read) -> list[Slice]:
    """fio's reads and writes that queued a bio."""
    found = []
    for call in trace.slices("call"):
        thread = trace.tracks[call.track].descriptor.thread
        if call.name in NAMES and call.args.get("queued_bios") and thread.thread_name == "fio":
            found.append(call)
    return found


def test_calls_are_on_their_tracks_and_lead_to_their_bios(recorded: Recorded) -> None:
    # GIVEN fio's direct I/O, a call for each block, by two threads / WHEN it is converted
    trace = recorded.trace
    calls = of_fio(trace)
    # THEN there is a slice for each call, as many as the report counts
    report = recorded.report()
    assert len(calls) == sum(report[name]["count"] for name in NAMES) == RUN
    counts = Counter(call.name for call in calls)
    assert {name: report[name]["count"] for name in NAMES} == dict(counts)
    # AND each is on the track of the thread that called
    for call in calls:
        descriptor = trace.tracks[call.track].descriptor
        assert descriptor.thread.tid == call.args["tid"]
        assert not descriptor.parent_uuid
    assert len({call.track for call in calls}) == 2
    # AND an arrow leads from each call to each bio that it queued, within the call
    pairs = [(a, b) for a, b in trace.arrows() if a.category == "call" and b.category == "bio"]
    arrows = Counter(id(call) for call, _ in pairs)
    assert [arrows[id(call)] for call in calls] == [call.args["queued_bios"] for call in calls]
    assert sum(arrows[id(call)] for call in calls) == sum(report[name]["bios"] for name in NAMES)
    for call, bio in pairs:
        assert bio.args["call"] == call.name
        assert bio.args["tid"] == call.args["tid"]
        assert call.start <= bio.start <= call.end
    # AND no bio is led to by two calls
    assert len({bio.args["number"] for _, bio in pairs}) == len(pairs)


def test_arrows_lead_on_to_requests_and_back_to_waits(recorded: Recorded) -> None:
    # GIVEN the same / WHEN it is converted
    trace = recorded.trace
    # THEN arrows lead from a bio to the request that finished it
    bios = [(a, b) for a, b in trace.arrows() if (a.category, b.category) == ("bio", "request")]
    assert len(bios) > RUN / 2
    assert all(bio.args["request"] == request.args["number"] for bio, request in bios)
    # AND from requests to waits that their completion ended, each within its call
    woken = [(a, b) for a, b in trace.arrows() if b.category == "stage"]
    inner = {id(wait): call for call in trace.slices("call") for wait in call.children}
    assert woken
    for ended, wait in woken:
        assert wait.name == "runnable"
        assert inner[id(wait)].start <= ended.end <= wait.start
    # AND a wait is ended once
    assert len({id(wait) for _, wait in woken}) == len(woken)


def test_an_otf2_archive_has_the_same_calls(recorded: Recorded, tmp_path: Path) -> None:
    pytest.importorskip("otf2")
    # GIVEN the same / WHEN it is converted to OTF2
    target = tmp_path / "log.otf2"
    biotrail("convert", recorded.log, "-o", target)
    anchor = target / "traces.otf2"
    otf2_archives.otf2_print(anchor)
    # THEN fio's calls are there, as many as the report counts, with their bytes
    report = recorded.report()
    found = [
        call
        for place, mine in otf2_archives.calls(anchor).items()
        for call in mine
        if place.startswith("fio ") and call.name in NAMES and call.told.get("queued bios")
    ]
    assert len(found) == sum(report[name]["count"] for name in NAMES) == RUN
    operations = [call.operation for call in found if call.operation]
    assert len(operations) == RUN
    assert {(asked, done) for _, _, asked, done in operations} == {(4096, 4096)}
    # AND through handles: of the file, where the log knows it, or else of its descriptor
    handles = {handle for handle, _, _, _ in operations}
    assert all(h == str(recorded.file) or h.startswith("fd ") for h in handles)
