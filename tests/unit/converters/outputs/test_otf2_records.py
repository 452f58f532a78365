# SPDX-License-Identifier: Apache-2.0
"""Event files hold, byte for byte, what the OTF2 library writes for the same events."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from biotrail.converters.events.tables import NEVER, Certainty, Lifecycles
from biotrail.converters.outputs.otf2.convert import Otf2Summary, convert
from biotrail.converters.outputs.otf2.records import CHUNK_BYTES
from biotrail.recorder.schema.errors import OutputError
from tests.support import captures
from tests.support.otf2_archives import (
    LOOP,
    bios,
    context,
    event_files,
    otf2_print,
    requests,
    rewritten,
    window,
)

pytest.importorskip("otf2")

START = captures.BASE_NS


def assert_as_the_library(summary: Otf2Summary, directory: Path) -> None:
    """Fails where an event file differs from the one that the library makes of its events."""
    found = event_files(summary.anchor)
    expected = rewritten(summary.anchor, directory)
    assert found.keys() == expected.keys()
    for name, data in found.items():
        assert data == expected[name], name


SPACING_NS = 50


def many(count: int) -> Lifecycles:
    """Bios of all sizes of numbers, some at one time."""
    random = np.random.default_rng(7)
    begin = START + np.sort(random.integers(0, SPACING_NS * count, count))
    rows = [
        {
            "number": int(random.integers(0, 1 << 40)) << 20 | at,
            "sector": int(random.integers(0, 2**63)) >> int(random.integers(0, 63)),
            "bytes": int(random.integers(0, 2**32)) >> int(random.integers(0, 32)),
            "tid": at % 3,
            "queue": int(begin[at]),
            "issue": int(begin[at]) + at % 2 * 30 if at % 5 else NEVER,
            "complete": int(begin[at]) + 60,
            "status": 10 if at % 7 == 0 else 0,
            "certainty": at % len(Certainty),
        }
        for at in range(count)
    ]
    return window(START, START + SPACING_NS * count + 1000, bios(*rows))


def test_chunks_end_where_the_librarys_do(tmp_path: Path) -> None:
    # GIVEN events of more than two chunks / WHEN converted
    summary = convert([many(26_000)], context(), tmp_path / "a")
    # THEN records are in the same chunks, and readers find all of them
    assert len(event_files(summary.anchor)["0.evt"]) > 2 * CHUNK_BYTES
    assert_as_the_library(summary, tmp_path / "b")
    assert otf2_print(summary.anchor).count("IO_OPERATION_") == summary.events


def test_batches_do_not_change_the_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN the same events / WHEN laid out at once, and 7 at a time
    windows = [many(500)]
    whole = convert(windows, context(), tmp_path / "a")
    monkeypatch.setattr("biotrail.converters.outputs.otf2.writer.WRITE_EVENTS", 7)
    small = convert(windows, context(), tmp_path / "b")
    # THEN the bytes are the same
    assert event_files(small.anchor) == event_files(whole.anchor)


u32, u64 = st.integers(0, 2**32 - 2), st.integers(0, 2**64 - 2)
operations = st.fixed_dictionaries(
    {
        "number": st.integers(0, 2**62 + 2**40),
        "sector": u64,
        "bytes": u32,
        "opf": st.integers(0, 2**16),
        "status": st.integers(-200, 40),
        "certainty": st.sampled_from([int(known) for known in Certainty]),
        "complete": st.integers(-1, 5).map(lambda at: at and START + at + 10),
        "issue": st.integers(-1, 5).map(lambda at: at and START + at + 5),
        "own": st.booleans(),
        "doubtful": st.booleans(),
        "requeues": u32,
        "done_bytes": u32,
        "parent": st.integers(-1, 2**62),
    }
)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(operations, max_size=6, unique_by=lambda row: row["number"]),
    st.lists(operations, max_size=6, unique_by=lambda row: row["number"]),
    st.integers(0, 5),
)
def test_any_operations_have_the_librarys_bytes(
    of_bios: list[dict[str, int]], of_requests: list[dict[str, int]], start: int
) -> None:
    # GIVEN bios and requests with any numbers
    queue = START + start
    ended = bios(*({**row, "queue": queue, "fragments": row["requeues"]} for row in of_bios))
    served = requests(*({**row, "start": queue, "dev": LOOP} for row in of_requests))
    # WHEN converted / THEN every byte is the library's
    with tempfile.TemporaryDirectory() as directory:
        there = Path(directory)
        summary = convert([window(START, START + 99, ended, served)], context(), there / "a")
        assert_as_the_library(summary, there / "b")


def test_a_full_disk_is_one_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN event files that cannot be written
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("biotrail.converters.outputs.otf2.records.EventFile._flush", full)
    # WHEN converted / THEN the error names the directory, and nothing is left
    rows = bios({"queue": START, "complete": START + 1})
    with pytest.raises(OutputError, match=r"a: OTF2 cannot be written: No space left"):
        convert([window(START, START + 1, rows)], context(), tmp_path / "a")
    assert list(tmp_path.iterdir()) == []
