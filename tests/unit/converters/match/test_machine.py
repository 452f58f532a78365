# SPDX-License-Identifier: Apache-2.0
"""The machine, with pointers and without: what it says of histories is true, in any windows."""

import io
import itertools
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from biotrail.converters.events.tables import Certainty
from tests.prove.machine import INTERVAL_KINDS, KINDS, SETTLE_NS, complaints, interval_complaints
from tests.simulation.check import problems, run, story
from tests.simulation.delivery import log_of
from tests.simulation.loads import history
from tests.simulation.model import History
from tests.simulation.one_history import wrong_of_seed
from tests.support.both_ways import differences, windows_of
from tests.support.matching import by_machine, unlike
from tests.support.paths import DATA

SEEDS = (
    *(600184, 610187, 610933, 620038, 620185, 630131, 630498, 631825),
    *(650041, 650346, 671738, 701472, 710134, 910443),
)
"""Histories that were wrong before, or otherwise in other windows."""
FRESH = range(930_000, 930_060)
FEW = range(930_000, 930_008)


@pytest.mark.parametrize(
    ("kind", "seed"),
    [
        *(("", seed) for seed in (*SEEDS, *FRESH)),
        *itertools.product(("mostly plain", "stacked"), FEW),
    ],
)
def test_what_it_says_of_a_history_is_true(kind: str, seed: int) -> None:
    # GIVEN a generated history, of all kinds of I/O or mostly plain  WHEN the machine reads its log
    made = KINDS[kind](seed) if kind else history(random.Random(seed), 12)
    # THEN nothing that it says is wrong
    assert complaints(made, by_machine(log_of(made))) == []


# The machine without pointers: what it does not mark is true.

SEEDS_WITHOUT = {
    "a flush sequence whose data's end was lost with its tag": 919404,
    "a request whose last part was lost": 960110,
    "a request whose part behind a requeue was lost": 960716,
    "NVMe multipath": 970186,
}
"""Histories that were wrong before."""
FRESH_WITHOUT = range(940_000, 940_060)
FEW_WITHOUT = range(940_000, 940_008)
RECORDINGS = [
    *("blktrace/loop1.txt", "blktrace/stream.bin", "blktrace/vda.blktrace.0", "blktrace/vda.txt"),
    *("blktrace/zoned.blktrace.0", "blktrace/zram1.txt", "ftrace/before-4.11.txt"),
    *("ftrace/lossy.dat", "ftrace/since-4.11.txt", "ftrace/small.dat", "perf/ext4-on-loop.data"),
    *("perfetto/ext4-on-loop.pftrace", "stacked/lvmdisk.txt"),
]
ONCE_BY_WINDOWS = (1500092, 1502633, 1505994, 1506994, 1507888)
SAME = ("queue", "issue", "complete", "certainty")
LOGS = ["calls/ext4-on-loop", "kernels/5.10", "kernels/6.12", "kernels/7.2"]


@pytest.mark.parametrize("seed", [*SEEDS_WITHOUT.values(), *FRESH_WITHOUT])
def test_what_is_not_marked_of_a_history_is_true(seed: int) -> None:
    # GIVEN a generated history
    made = INTERVAL_KINDS["ordinary, by intervals"](seed)
    # WHEN the machine reads its log without the pointers
    found = by_machine(log_of(made), associate="intervals")
    # THEN nothing that it says without a mark is wrong, and no latency that is not in doubt
    assert interval_complaints(made, found) == []


@pytest.mark.parametrize(
    ("associate", "kind", "seed"),
    [
        *itertools.product(["identity"], KINDS, FEW),
        *itertools.product(["identity"], ["ordinary"], ONCE_BY_WINDOWS),
        *itertools.product(["intervals"], INTERVAL_KINDS, FEW_WITHOUT),
    ],
)
def test_windows_of_all_sizes_give_the_same_rows(associate: str, kind: str, seed: int) -> None:
    # GIVEN the log of a history, of each kind
    log = log_of({**KINDS, **INTERVAL_KINDS}[kind](seed)).getvalue()
    # WHEN families are closed at its end, or as soon as they are over, in windows of all sizes
    late = by_machine(io.BytesIO(log), associate=associate)
    for events in (1, 7, 100):
        early = by_machine(io.BytesIO(log), SETTLE_NS, events, associate)
        # THEN the rows are the same
        assert unlike(late, early) == []


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


# Generated block layers at work: what is said of them is held to what truly happened.

PER_QUARTER = 75
"""Seeded histories in each of four tests; `make prove` runs 10,000."""


def _told(found: History, wrong: list[str]) -> str:
    # As text: pytest would show the history itself, whose parts all know each other.
    return "\n".join([*wrong, story(found)]) if wrong else ""


def _wrong_by_identity(found: History) -> str:
    return _told(found, problems(found, run(found)))


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.randoms(use_true_random=False))
def test_by_identity_a_small_history_is_as_it_happened(rng: random.Random) -> None:
    # GIVEN a block layer at work, recorded with losses, lateness and recycled pointers
    # WHEN its log is associated by identity / THEN all that the records determine is right,
    # and nothing wrong is called exact
    assert not _wrong_by_identity(history(rng, size=3))


@pytest.mark.parametrize("quarter", range(4))
def test_larger_histories_are_right_with_pointers_and_without(quarter: int) -> None:
    # GIVEN larger histories, by seed
    for seed in range(quarter * PER_QUARTER, (quarter + 1) * PER_QUARTER):
        # WHEN their logs are associated by identity and by intervals alone / THEN both say what
        # happened, intervals say what the reference says, and what is not sure is marked
        assert not _told(*wrong_of_seed(seed)), f"seed {seed}"
