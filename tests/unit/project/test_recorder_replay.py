# SPDX-License-Identifier: Apache-2.0
"""benchmarks/recorder_replay.py: records go back into rings and through the recorder's steps."""

from pathlib import Path

import pytest

from benchmarks import recorder_replay
from benchmarks.cost_loads import SkippedError
from biotrail.recorder.log import LogWriter, Segment
from biotrail.recorder.schema.records import Kind
from tests.support.log_samples import clock, record, ring

POSITION = recorder_replay.RING_BYTES * 3 - (1 << 20)
"""From here 2 MiB pass the ring's end."""


@pytest.fixture
def segment() -> Segment:
    """A segment of 2 MiB and more, of two kinds and PADs."""
    records = [record(Kind.Q if n % 2 else Kind.C, 10**9 + 100 * n, n) for n in range(40_000)]
    return Segment(1, 0, POSITION, ring(records, POSITION))


def test_what_is_put_into_a_ring_is_drained_in_several_polls(segment: Segment) -> None:
    # GIVEN a segment that passes the ring's end
    rings = recorder_replay.FilledRings(2)
    # WHEN it is drained as polls do
    parts = recorder_replay._drain(rings, segment, recorder_replay.Stopwatch())
    # THEN the polls have its bytes, one behind the other
    assert len(parts) > 1
    assert b"".join(bytes(part.data) for part in parts) == segment.data
    ends = [part.position + len(part.data) for part in parts]
    assert [part.position for part in parts] == [POSITION, *ends[:-1]]


def test_a_log_is_measured_step_by_step(segment: Segment, tmp_path: Path) -> None:
    # GIVEN a log with one chunk of that segment, and one too small to be used
    path = tmp_path / "a.biotrail"
    with open(path, "wb") as stream:
        log = LogWriter(stream, {})
        log.write_chunk([segment], clock(2 * 10**9))
        log.write_chunk([Segment(0, 0, 0, record(Kind.C, 5))], clock(3 * 10**9))
        log.close({})
    # WHEN it is read and measured at both levels
    parts = recorder_replay.read(path)
    rows = [recorder_replay.measure("a", parts, level, rounds=1) for level in (1, 0)]
    # THEN there is a figure for each step, of all records but PADs
    for row in rows:
        assert row.records == 40_000
        assert list(row.steps) == list(recorder_replay.STEPS)
        assert row.total > 0
        assert "ns/record" in recorder_replay.HEAD
        assert recorder_replay.line(row).startswith("a, ")
    assert rows[0].stored_per_record < rows[1].stored_per_record


def test_a_log_with_too_few_records_is_refused(tmp_path: Path) -> None:
    # GIVEN a log of one record
    path = tmp_path / "b.biotrail"
    with open(path, "wb") as stream:
        log = LogWriter(stream, {})
        log.write_chunk([Segment(0, 0, 0, record(Kind.C, 5))], clock(3 * 10**9))
        log.close({})
    # THEN reading it says what is missing
    with pytest.raises(SkippedError, match="too few records"):
        recorder_replay.read(path)
