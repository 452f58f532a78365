# SPDX-License-Identifier: Apache-2.0
"""ftrace, perf and biotrail record one load at once; every bio of each is that of the others."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from biotrail.converters.events.tables import Bios
from biotrail.converters.inputs.opening import open_source
from biotrail.converters.pipeline import Trace
from tests.support.beside_others import bios, certainties, compare
from tests.vm.beside import KINDS, check_times, totals
from tests.vm.guest_inputs import LINEAR_START
from tests.vm.machine import Case, Machine

DISKS = ("plain", "merging", "splits", "mapped", "below", "partitioned")
"""The case's devices in their order: `mapped` is a dm-linear over `below`."""
FILES = ("trace", "trace.dat", "perf.data")
IN_NS = ("trace.dat", "perf.data")
"""Those whose times are nanoseconds: text has microseconds."""
LEAST = 200
"""Bios that each device has at least."""

Link = tuple[int, int, int]
"""Sector and bytes of a bio, and the sector of its parent; -1: it has none."""


def imported(vm: Machine, file: str, name: str = "inputs_beside") -> tuple[Case, Path]:
    """Return the case and a recording of another tool; skips where the tool does not record."""
    case = vm.case(name, lossy=True)
    reason = case.told["missing"].get(file)
    if reason is not None:
        pytest.skip(f"virtual machine: {reason}")
    return case, case.directory / file


def dev_of(case: Case, which: str) -> int:
    return case.log.dev(str(case.told["devices"][DISKS.index(which)]))


def needs_all_events(case: Case, *devs: int) -> None:
    """Skip where the kernel skipped biotrail's programs while these devices had I/O."""
    ours = case.log.bios
    if any(case.log.lost_while(ours.take(ours.dev == dev)) for dev in devs):
        pytest.skip("virtual machine: the kernel skipped events meanwhile, as the log tells")


def imported_bios(path: Path) -> Bios:
    return Bios.concatenate([tables.bios for tables in Trace(path).lifecycles()])


def links(found: Bios, mapped: int, below: int) -> Counter[Link]:
    """Count a lower device's bios by what they are and where their parent on `mapped` is."""
    upper = found.take(found.dev == mapped)
    sectors = dict(zip(upper.number.tolist(), upper.sector.tolist(), strict=True))
    lower = found.take(found.dev == below)
    rows = zip(lower.sector.tolist(), lower.bytes.tolist(), lower.parent.tolist(), strict=True)
    return Counter((sector, size, sectors.get(parent, -1)) for sector, size, parent in rows)


def senders(found: Bios, mapped: int, below: int) -> Counter[tuple[int, bool]]:
    """Count a lower device's bios that have a parent on `mapped`, by their distance from it.

    The second of a key is whether the thread that queued the bio had queued the parent, too.
    """
    upper = found.take(found.dev == mapped)
    above = {number: row for row, number in enumerate(upper.number.tolist())}
    lower = found.take((found.dev == below) & (found.parent >= 0))
    parents = upper.take(np.array([above[number] for number in lower.parent.tolist()], np.int64))
    distance = lower.sector.astype(np.int64) - parents.sector.astype(np.int64)
    same = lower.tid == parents.tid
    return Counter(zip(distance.tolist(), same.tolist(), strict=True))


@pytest.mark.parametrize("file", FILES)
def test_imported_recordings_have_every_event(vm: Machine, file: str) -> None:
    # GIVEN loads on all devices, recorded by biotrail and another tool
    case, path = imported(vm, file)
    # WHEN the events of each kind are counted
    theirs: Counter[object] = Counter()
    mine: Counter[object] = Counter({kind: case.log.lost(kind) for kind in KINDS})
    for dev in (dev_of(case, which) for which in DISKS):
        theirs += totals(path, dev)
        mine += totals(case.log.path, dev)
    # THEN the tool lost none, and biotrail saw as many, or reports how many it did not
    source = open_source(path)
    assert sum(len(part.events) for part in source.parts()) > 10_000
    assert (source.losses, source.problems) == ([], [])
    assert mine == theirs


@pytest.mark.parametrize("which", DISKS)
@pytest.mark.parametrize("file", FILES)
def test_imported_bios_are_those_of_the_log(vm: Machine, file: str, which: str) -> None:
    # GIVEN a device in two recordings
    case, path = imported(vm, file)
    dev = dev_of(case, which)
    needs_all_events(case, dev)
    # WHEN the other tool's is associated by intervals, the log by identity
    ours, theirs = bios(case.log.path, [dev]), bios(path, [dev])
    found = compare(ours, theirs)
    print(f"{found.equal} equal, {found.inexact} inexact: {certainties(theirs)}")
    # THEN each bio has the same parts, request, steps and status, or is said to be inexact
    assert not found.wrong, (len(found.wrong), found.wrong[:3])
    assert (found.numbers, found.unended) == ([], 0)
    assert set(certainties(ours)) == {"exact"}
    assert found.equal >= LEAST


@pytest.mark.parametrize("file", FILES)
def test_imported_bios_below_dm_have_their_parents(vm: Machine, file: str) -> None:
    # GIVEN a dm-linear over a disk, in two recordings
    case, path = imported(vm, file)
    mapped, below = (dev_of(case, which) for which in ("mapped", "below"))
    needs_all_events(case, mapped, below)
    # WHEN the disk's bios are linked by the remaps
    theirs = links(imported_bios(path), mapped, below)
    # THEN each has a parent on the dm-linear, the same as in the log
    assert theirs == links(case.log.bios, mapped, below)
    assert all(sector - LINEAR_START == upper for sector, _, upper in theirs)
    assert theirs.total() >= LEAST


@pytest.mark.parametrize("which", DISKS)
@pytest.mark.parametrize("file", IN_NS)
def test_imported_times_are_those_of_the_log(vm: Machine, file: str, which: str) -> None:
    # GIVEN a device in two recordings, of which the other tool was attached first
    case, path = imported(vm, file)
    dev = dev_of(case, which)
    needs_all_events(case, dev)
    # WHEN the times of each bio's steps are compared
    theirs, ours = imported_bios(path), case.log.bios
    # THEN each of the log's is after the other tool's, and before the other tool's next one
    check_times(theirs.take(theirs.dev == dev), ours.take(ours.dev == dev))


@pytest.mark.parametrize("file", FILES)
def test_imported_bios_of_same_sectors_are_not_wrong(vm: Machine, file: str) -> None:
    # GIVEN a dm-linear over a disk that merges and splits, and reads of both at the same sectors
    case, path = imported(vm, file, "inputs_beside_hard")
    mapped, below = (case.log.dev(name) for name in (case.top, *case.lower))
    needs_all_events(case, mapped, below)
    # WHEN the other tool's recording is associated by intervals, the log by identity
    found = compare(bios(case.log.path, [mapped, below]), bios(path, [mapped, below]))
    print(f"{found.equal} equal, {found.inexact} inexact, {len(found.wrong)} wrong")
    # THEN no bio is wrong: each is equal, or marked ambiguous or incomplete
    assert not found.wrong, (len(found.wrong), found.wrong[:3])
    assert (found.numbers, found.unended) == ([], 0)
    assert found.equal >= LEAST
    # AND each parent is the read of the thread that sent the clone: dm-linear maps where it is
    # submitted; a read that was sent to the disk itself has none
    recordings = (imported_bios(path), case.log.bios)
    theirs, ours = (senders(found, mapped, below) for found in recordings)
    assert set(theirs) == set(ours) == {(LINEAR_START, True)}
    print(f"{theirs.total()} have a parent, {ours.total()} in the log")
    assert theirs.total() >= LEAST
