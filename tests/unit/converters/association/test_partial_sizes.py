# SPDX-License-Identifier: Apache-2.0
"""Bios of unknown size in a request that completes in parts."""

from types import SimpleNamespace

import numpy as np

from biotrail.converters.association.completion.partial_completion import _Shares, _take_by_place
from tests.simulation.delivery import log_of
from tests.simulation.plain_cases import CASES, history_of
from tests.support import captures
from tests.support.both_ways import windows_of


def test_a_bio_of_unknown_size_does_not_end_by_a_part() -> None:
    # GIVEN a request of three bios of one sector, of which the first has no known size
    facts = SimpleNamespace(
        piece_bytes=np.array([-1, 512, 512]), piece_sector=np.array([8, 9, 10], np.uint64)
    )
    events = SimpleNamespace(status=np.array([0]), bytes=np.array([1024]))
    shares = _Shares(*(np.full(3, value) for value in (-1, 0, 0, 0)))
    # WHEN its first two sectors complete
    part = SimpleNamespace(facts=facts, events=events)
    took = _take_by_place(part, 0, 8, 0, np.arange(3), shares)  # type: ignore[arg-type]
    # THEN the second one has ended, and the first one's end is left to the request's
    assert shares.end.tolist() == [-1, 0, -1]
    assert took.tolist() == [0, 512, 0]


def test_a_bio_that_a_damaged_chain_names_twice_ends_once() -> None:
    # GIVEN a request of two bios, whose CHAIN names the second one twice, completed in two parts
    (case,) = [case for case in CASES if case.name == "a chain that names a bio twice"]
    log = log_of(history_of(case))
    # WHEN the model alone reads the log
    _, windows = windows_of(log, False, 1 << 20, "identity")
    # THEN each bio has ended with its own part
    bios = [window.bios for window in windows]
    ends = [ns - captures.BASE_NS for table in bios for ns in table.complete.tolist()]
    assert ends == [7_000, 8_000]
    assert [size for table in bios for size in table.done_bytes.tolist()] == [4096, 4096]
