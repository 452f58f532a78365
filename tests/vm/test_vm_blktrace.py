# SPDX-License-Identifier: Apache-2.0
"""blktrace and biotrail record one load at once; btt's table of the one is that of the other."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from biotrail.converters.events.tables import Bios, Certainty
from biotrail.converters.outputs.blktrace import convert as blktrace
from biotrail.converters.pipeline import Trace
from biotrail.recorder.schema.records import Kind
from tests.reference.btt_rules import STAGES, figures, ours, printed
from tests.support.btt_tables import (
    Whole,
    associated,
    blkparse_binary,
    btt,
    check_report,
    check_sizes,
    check_table,
    needs_tools,
)
from tests.support.devices import read_fio_report
from tests.vm.beside import KINDS, PLUGS, check_times, events, totals
from tests.vm.machine import Case, Machine

JOBS = {"plain": ["plain"], "merging": ["merging", "batches"], "hard": []}
"""fio's accounts of each disk: without a scheduler, with merges, with all that is hard for btt
(writes of the cache, of which fio does not know how they go to the disk)."""
CLEAN = ("plain", "merging")
MS = 1_000_000
NO_PLUGS = "virtual machine: this kernel's queues do not know their disk (docs/kernels.md)"


@dataclass
class Disk:
    """A disk of the case, and blktrace's files of it."""

    case: Case
    which: str

    @property
    def name(self) -> str:
        return str(self.case.told["devices"][list(JOBS).index(self.which)])

    @property
    def dev(self) -> int:
        return self.case.log.dev(self.name)

    @property
    def files(self) -> Path:
        return self.case.directory / self.name

    @property
    def bios(self) -> Bios:
        return self.case.log.bios_of(self.name)

    def recorded(self) -> Whole:
        return associated(self.case.log.path, self.dev)


def disk(vm: Machine, which: str) -> Disk:
    """Skips where the kernel has not run biotrail's programs for all that blktrace saw."""
    found = Disk(vm.case("blktrace_beside", lossy=True), which)
    if found.case.log.lost_while(found.bios):
        pytest.skip("virtual machine: the kernel skipped events meanwhile, as the log tells")
    needs_tools("blkparse", "btt")
    return found


def exported(found: Disk, out: Path) -> Path:
    """biotrail's recording of the disk as blktrace's files."""
    out.mkdir()
    trace = Trace(found.case.log.path)
    return blktrace.write(trace.events(), trace.context, out).sets[found.dev]


def test_what_blktrace_saw_was_seen_or_is_told_as_lost(vm: Machine) -> None:
    # GIVEN one load on three disks, recorded by both
    case = vm.case("blktrace_beside", lossy=True)
    disks = [Disk(case, which) for which in JOBS]
    # WHEN the events of each kind are counted
    theirs: Counter[object] = Counter()
    mine: Counter[object] = Counter()
    for found in disks:
        theirs += totals(found.files, found.dev)
        mine += totals(case.log.path, found.dev)
    mine += Counter({kind: case.log.lost(kind) for kind in KINDS})
    # THEN blktrace lost none, and biotrail saw as many as it did, or told how many it did not
    assert "(dropped 0)" in case.told["blktrace"]
    assert case.told["blktrace"].count("dropped") == len(disks)
    assert mine == theirs
    assert sum(theirs.values()) > 10_000


@pytest.mark.parametrize("which", JOBS)
def test_both_saw_the_same_events(vm: Machine, which: str) -> None:
    # GIVEN a disk  WHEN the events of each are compared by place, length, operation and flags
    found = disk(vm, which)
    mine, theirs = (events(path, found.dev) for path in (found.case.log.path, found.files))
    # THEN they are the same, kind by kind
    for kind in KINDS:
        assert mine[kind] == theirs[kind], kind


@pytest.mark.parametrize("which", JOBS)
def test_both_saw_the_same_plugs(vm: Machine, which: str) -> None:
    # GIVEN a disk, whose plugs are told of its queue
    found = disk(vm, which)
    if not found.case.told["queue_tells_disk"]:
        pytest.skip(NO_PLUGS)
    # THEN each recording has as many of them
    mine, theirs = (totals(path, found.dev, PLUGS) for path in (found.case.log.path, found.files))
    assert mine == theirs
    assert theirs[Kind.P] > 0 or which != "merging"


@pytest.mark.parametrize("which", JOBS)
def test_intervals_find_what_identity_knows(vm: Machine, which: str) -> None:
    # GIVEN a disk  WHEN blktrace's files are associated by intervals, the log by identity
    found = disk(vm, which)
    imported, bios = associated(found.files), found.bios
    # THEN all is known, and each of fio's I/Os is there, in both
    assert set(imported.bios.certainty.tolist()) == {Certainty.INTERVAL}
    assert set(bios.certainty.tolist()) == {Certainty.EXACT}
    assert imported.ambiguous == 0
    jobs = [
        job
        for name in JOBS[which]
        for job in read_fio_report(found.case.directory / f"{name}.json")["jobs"]
    ]
    if jobs:
        expected = sum(job[way]["total_ios"] for job in jobs for way in ("read", "write"))
        sizes = sum(job[way]["io_bytes"] for job in jobs for way in ("read", "write"))
        assert (len(bios), int(bios.bytes.sum())) == (expected, sizes)
    # AND each took the same steps, at blktrace's time or before what came next
    check_times(imported.bios, bios)


@pytest.mark.parametrize("which", CLEAN)
def test_blktraces_files_give_btts_table(vm: Machine, which: str, tmp_path: Path) -> None:
    # GIVEN blktrace's files of a load that btt can follow
    found = disk(vm, which)
    report = btt(blkparse_binary(found.files, tmp_path / "merged.bin"))
    imported = associated(found.files)
    # THEN counts, least, average and most of each stage are btt's, to the nanosecond
    check_table(imported, report)
    check_sizes(imported, report)
    check_report(found.files, report)
    assert ("Q2M" in printed(report)) == (which == "merging")


@pytest.mark.parametrize("which", CLEAN)
def test_the_log_gives_btts_table(vm: Machine, which: str, tmp_path: Path) -> None:
    # GIVEN biotrail's log of it  WHEN btt is given what is exported of that
    found = disk(vm, which)
    files = exported(found, tmp_path / "export")
    report = btt(blkparse_binary(files, tmp_path / "merged.bin"))
    recorded = found.recorded()
    # THEN its table is that of the log's lifecycles
    check_table(recorded, report)
    check_sizes(recorded, report)


@pytest.mark.parametrize("which", CLEAN)
def test_the_two_tables_of_btt_are_alike(vm: Machine, which: str, tmp_path: Path) -> None:
    # GIVEN btt's tables of both recordings
    found = disk(vm, which)
    sets = {"log": exported(found, tmp_path / "export"), "blktrace": found.files}
    tables = {
        name: printed(btt(blkparse_binary(files, tmp_path / f"{name}.bin")))
        for name, files in sets.items()
    }
    # THEN they have the same stages, of as many bios
    mine, theirs = tables["log"], tables["blktrace"]
    assert mine.keys() == theirs.keys()
    assert [row.count for row in mine.values()] == [row.count for row in theirs.values()]
    # AND the medians differ by no more than a program takes to run: some microseconds
    recorded, imported = ours(found.recorded().bios), ours(associated(found.files).bios)
    for stage in STAGES:
        if recorded[stage]:
            medians = [float(np.median(list(x[stage].values()))) for x in (recorded, imported)]
            assert medians[0] == pytest.approx(medians[1], rel=0.05, abs=0.1 * MS), stage


def test_every_difference_from_btt_has_its_rule(vm: Machine, tmp_path: Path) -> None:
    # GIVEN splits, and writes of the cache with flushes, in both recordings
    found = disk(vm, "hard")
    files = exported(found, tmp_path / "export")
    for name, whole, prefix in (
        ("blktrace", associated(found.files), found.files),
        ("log", found.recorded(), files),
    ):
        # WHEN btt's rules are followed on the same events
        table = printed(btt(blkparse_binary(prefix, tmp_path / f"{name}.bin")))
        compared = whole.compare()
        # THEN they give btt's table, and explain where lifecycles differ
        for stage in STAGES:
            assert figures(v for _, v in whole.rules.values[stage]) == table.get(stage), stage
        assert compared.unexplained == []
        assert compared.rules["D2C"]["a split Q is contained in no D or C"] > 0
