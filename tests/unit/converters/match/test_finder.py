# SPDX-License-Identifier: Apache-2.0
"""The machine without pointers: what it does not mark is true, in windows of all sizes."""

import io

import pytest

from biotrail.converters.events.tables import Certainty
from tests.prove.machine import INTERVAL_KINDS, SETTLE_NS, interval_complaints
from tests.simulation.delivery import log_of
from tests.support.both_ways import differences, windows_of
from tests.support.matching import by_machine, unlike
from tests.support.paths import DATA

SEEDS = {
    "a flush sequence whose data's end was lost with its tag": 919404,
    "a request whose last part was lost": 960110,
    "a request whose part behind a requeue was lost": 960716,
    "NVMe multipath": 970186,
}
"""Histories that were wrong before."""
FRESH = range(940_000, 940_060)
FEW = range(940_000, 940_008)
RECORDINGS = [
    *("blktrace/loop1.txt", "blktrace/stream.bin", "blktrace/vda.blktrace.0", "blktrace/vda.txt"),
    *("blktrace/zoned.blktrace.0", "blktrace/zram1.txt", "ftrace/before-4.11.txt"),
    *("ftrace/lossy.dat", "ftrace/since-4.11.txt", "ftrace/small.dat", "perf/ext4-on-loop.data"),
    *("perfetto/ext4-on-loop.pftrace", "stacked/lvmdisk.txt"),
]
SAME = ("queue", "issue", "complete", "certainty")
LOGS = ["calls/ext4-on-loop", "kernels/5.10", "kernels/6.12", "kernels/7.2"]


@pytest.mark.parametrize("seed", [*SEEDS.values(), *FRESH])
def test_what_is_not_marked_of_a_history_is_true(seed: int) -> None:
    # GIVEN a generated history
    made = INTERVAL_KINDS["ordinary, by intervals"](seed)
    # WHEN the machine reads its log without the pointers
    found = by_machine(log_of(made), associate="intervals")
    # THEN nothing that it says without a mark is wrong, and no latency that is not in doubt
    assert interval_complaints(made, found) == []


@pytest.mark.parametrize("kind", INTERVAL_KINDS)
@pytest.mark.parametrize("seed", FEW)
def test_windows_of_all_sizes_give_the_same_rows(kind: str, seed: int) -> None:
    # GIVEN the log of a history
    log = log_of(INTERVAL_KINDS[kind](seed)).getvalue()
    # WHEN all of it is taken in at once, or in windows of all sizes
    late = by_machine(io.BytesIO(log), associate="intervals")
    for events in (1, 7, 100):
        early = by_machine(io.BytesIO(log), SETTLE_NS, events, "intervals")
        # THEN the rows are the same
        assert unlike(late, early) == []


@pytest.mark.parametrize("name", RECORDINGS)
def test_other_tools_recordings_do_not_depend_on_windows(name: str) -> None:
    # GIVEN a recording of another tool
    # WHEN all of it is taken in at once, or in small windows / THEN all columns are the same
    found = by_machine(DATA / name, associate="auto")
    assert unlike(found, by_machine(DATA / name, SETTLE_NS, 50, "auto")) == []


@pytest.mark.parametrize("name", LOGS)
def test_logs_without_their_pointers_are_as_with_them_or_say_so(name: str) -> None:
    # GIVEN a log with pointers  WHEN it is read with them and without
    path = DATA / f"{name}.biotrail"
    known, found = by_machine(path).bios, by_machine(path, associate="intervals").bios
    # THEN each bio that is not marked has the same times
    truth = {
        row[0]: row[1:]
        for row in zip(*(getattr(known, n).tolist() for n in SAME), strict=True)
        if row[-1] == Certainty.EXACT
    }
    said = [
        row
        for row in zip(*(getattr(found, n).tolist() for n in SAME), strict=True)
        if row[-1] <= Certainty.INTERVAL and row[0] in truth
    ]
    assert len(said) > 0.9 * len(truth) > 0
    assert [row for row in said if row[1:-1] != truth[row[0]][:-1]] == []


def test_a_bio_that_nvme_multipath_sends_on_is_one_bio() -> None:
    # GIVEN reads of a multipath disk, with a c just before the C of their requests
    path = DATA / "paths" / "nvme_6.12.biotrail"
    # WHEN they are read with pointers and without
    known, found = by_machine(path), by_machine(path, associate="intervals")
    # THEN they are the same bios, with the same times
    assert found.bios.number.tolist() == known.bios.number.tolist()
    assert found.bios.complete.tolist() == known.bios.complete.tolist()
    assert found.bios.issue.tolist() == known.bios.issue.tolist()


@pytest.mark.parametrize("name", RECORDINGS)
def test_a_trace_of_a_recording_does_not_depend_on_its_windows(name: str) -> None:
    # GIVEN another tool's recording WHEN it is read at once, and in windows of few events
    whole, cut = (windows_of(DATA / name, events) for events in (1 << 40, 64))
    # THEN the tables and the account are the same
    assert whole[0].by_intervals
    assert differences(whole, cut) == []


@pytest.mark.parametrize("seed", FEW)
def test_a_trace_of_a_history_does_not_depend_on_its_windows(seed: int) -> None:
    # GIVEN a generated history WHEN it is read at once, and event by event THEN all is the same
    log = log_of(INTERVAL_KINDS["ordinary, by intervals"](seed)).getvalue()
    whole, cut = (windows_of(io.BytesIO(log), n, "intervals") for n in (1 << 40, 1))
    assert differences(whole, cut) == []
