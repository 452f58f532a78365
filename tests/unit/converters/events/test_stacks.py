# SPDX-License-Identifier: Apache-2.0
"""Devices upon devices: an upper bio and all below it, in the trace, by intervals, for blktrace."""

import struct
from pathlib import Path

import pytest

from biotrail.converters.events.tables import NEVER
from biotrail.converters.outputs.blktrace import convert as blktrace
from biotrail.converters.pipeline import Trace
from tests.scenarios.stacks import DM_ON_PARTITION, FOUR_LEVELS, PATH_LOST
from tests.scenarios.tools import Scenario, Tables, devices_with, events_of, run
from tests.support import captures
from tests.support.blktrace_records import records
from tests.support.perfetto_check import Slice
from tests.support.perfetto_make import traced

HEAD_BYTES = 48
"""Of a blktrace record; a remap's payload follows: from device, to device, from sector."""


def _log(folder: Path, case: Scenario) -> Path:
    path = folder / "stack.biotrail"
    captures.write_log(path, events_of(case.given), {"devices": devices_with(case.devices)})
    return path


def _slices(folder: Path, case: Scenario) -> dict[str, dict[int, Slice]]:
    """Category to number to slice."""
    trace = traced(_log(folder, case))
    return {c: {s.args["number"]: s for s in trace.slices(c)} for c in ("bio", "request")}


def _by_issue(t: Tables) -> list[tuple[int, int]]:
    """(D of a request, D of its parent or NEVER)."""
    issue = dict(zip(t.requests.number.tolist(), t.requests.issue.tolist(), strict=True))
    return [
        (own, issue.get(parent, NEVER))
        for own, parent in zip(t.requests.issue, t.requests.parent.tolist(), strict=True)
    ]


def _line(slices: dict[int, Slice], number: int) -> list[str]:
    """Devices from a slice up to the topmost."""
    found = []
    while True:
        found.append(slices[number].args["device"].split(" ")[0])
        if "parent" not in slices[number].args:
            return found
        number = slices[number].args["parent"]


@pytest.mark.parametrize(
    ("case", "lines"),
    [
        (FOUR_LEVELS, [["vda", "md8", "crypt", "volume"], ["vdb", "md8", "crypt", "volume"]]),
        (DM_ON_PARTITION, [["vda", "loop1", "md9", "part"]]),
    ],
    ids=["mirror", "loop"],
)
def test_a_trace_leads_from_the_lowest_bio_to_the_topmost(
    tmp_path: Path, case: Scenario, lines: list[list[str]]
) -> None:
    # GIVEN four devices upon each other  WHEN their log becomes a trace
    slices = _slices(tmp_path, case)
    bios = slices["bio"]
    lowest = set(bios) - {s.args.get("parent") for s in bios.values()}
    # THEN parents lead up through every level
    assert sorted(_line(bios, number) for number in lowest) == lines
    # THEN all bios and requests are of one family, and each lies within its parent in time
    assert len({s.correlation for kind in slices.values() for s in kind.values()}) == 1
    for one in bios.values():
        if "parent" in one.args:
            above = bios[one.args["parent"]]
            assert above.start <= one.start <= one.end <= above.end


@pytest.mark.parametrize("case", [FOUR_LEVELS, PATH_LOST], ids=["mirror", "paths"])
def test_intervals_alone_find_the_same_parents(case: Scenario) -> None:
    # GIVEN stacks that remaps link / WHEN associated with and without identities
    told, found = run(case), run(case, associate="intervals")
    # THEN parents are the same
    assert found.bios.parent.tolist() == told.bios.parent.tolist()
    assert _by_issue(found) == _by_issue(told)
    assert (told.bios.parent != NEVER).sum() + (told.requests.parent != NEVER).sum() >= 2


@pytest.mark.parametrize(
    ("case", "device", "origin"),
    [(FOUR_LEVELS, "vda", (9 << 20 | 8, 5128)), (PATH_LOST, "vdb", (252 << 20 | 10, 100))],
    ids=["bio", "request"],
)
def test_remaps_for_blktrace_say_where_they_came_from(
    tmp_path: Path, case: Scenario, device: str, origin: tuple[int, int]
) -> None:
    # GIVEN a remap of a bio, or of a request
    log, folder = Trace(_log(tmp_path, case)), tmp_path / "sets"
    folder.mkdir()
    # WHEN the log becomes files for blkparse
    blktrace.write(log.events(), log.context, folder)
    data = b"".join(p.read_bytes() for p in sorted(folder.glob(f"{device}.blktrace.*")))
    # THEN the lower device's files have it, with the upper device and sector
    payloads = [r[HEAD_BYTES:] for r in records(data) if len(r) == HEAD_BYTES + 16]
    found = [struct.unpack(">IIQ", payload) for payload in payloads]
    assert [(dev, sector) for dev, _, sector in found] == [origin]
    # THEN read again, each level's bios and their latencies are there
    again = [w.bios for w in Trace(folder / device).lifecycles()]
    assert sum(len(bios) for bios in again) == 1
