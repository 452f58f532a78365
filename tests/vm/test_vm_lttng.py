# SPDX-License-Identifier: Apache-2.0
"""LTTng and biotrail record one load at once; every bio of the one is that of the other."""

from collections import Counter
from dataclasses import dataclass

import numpy as np
import pytest

from biotrail.converters.events.tables import Certainty
from biotrail.converters.inputs.opening import open_source
from tests.support.btt_tables import associated
from tests.vm.beside import KINDS, check_times, events, steps, totals
from tests.vm.machine import Case, Machine

DISKS = ("plain", "merging", "splits")


@dataclass
class Disk:
    """A disk of the case, in both recordings."""

    case: Case
    which: str

    @property
    def dev(self) -> int:
        name = str(self.case.told["devices"][DISKS.index(self.which)])
        return self.case.log.dev(name)


def disk(vm: Machine, which: str) -> Disk:
    """Skips where the kernel has not run biotrail's programs for all that LTTng saw."""
    found = Disk(vm.case("lttng_beside", lossy=True), which)
    bios = found.case.log.bios
    if found.case.log.lost_while(bios.take(bios.dev == found.dev)):
        pytest.skip("virtual machine: the kernel skipped events meanwhile, as the log tells")
    return found


def test_what_lttng_saw_was_seen_or_is_told_as_lost(vm: Machine) -> None:
    # GIVEN one load on three disks, recorded by both
    case = vm.case("lttng_beside", lossy=True)
    disks = [Disk(case, which) for which in DISKS]
    # WHEN the events of each kind are counted
    theirs: Counter[object] = Counter()
    mine: Counter[object] = Counter()
    for found in disks:
        theirs += totals(case.directory / "lttng", found.dev)
        mine += totals(case.log.path, found.dev)
    mine += Counter({kind: case.log.lost(kind) for kind in KINDS})
    # THEN LTTng lost none, and biotrail saw as many as it did, or told how many it did not
    source = open_source(case.directory / "lttng")
    assert sum(len(part.events) for part in source.parts()) > 10_000
    assert (source.losses, source.problems) == ([], [])
    assert mine == theirs


@pytest.mark.parametrize("which", DISKS)
def test_both_saw_the_same_events(vm: Machine, which: str) -> None:
    # GIVEN a disk  WHEN the events of each are compared by place, length, operation and flags
    found = disk(vm, which)
    paths = (found.case.log.path, found.case.directory / "lttng")
    mine, theirs = (events(path, found.dev) for path in paths)
    # THEN they are the same, kind by kind
    for kind in KINDS:
        assert mine[kind] == theirs[kind], kind


@pytest.mark.parametrize("which", DISKS)
def test_every_bio_is_the_same(vm: Machine, which: str) -> None:
    # GIVEN a disk  WHEN LTTng's trace is associated by intervals, the log by identity
    found = disk(vm, which)
    imported = associated(found.case.directory / "lttng", found.dev)
    recorded = associated(found.case.log.path, found.dev)
    # THEN each bio is known in both, from its queue to its completion
    assert set(imported.bios.certainty.tolist()) == {Certainty.INTERVAL}
    assert set(recorded.bios.certainty.tolist()) == {Certainty.EXACT}
    assert imported.ambiguous == 0
    # AND it took the same steps, at LTTng's time or before what came next
    check_times(imported.bios, recorded.bios)
    assert np.array_equal(
        np.sort(steps(imported.bios) >= 0, axis=0), np.sort(steps(recorded.bios) >= 0, axis=0)
    )
