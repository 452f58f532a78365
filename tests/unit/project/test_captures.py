# SPDX-License-Identifier: Apache-2.0
"""The captures and hand-written sequences become the records that a recording holds."""

from pathlib import Path

import numpy as np
import pytest

from biotrail.recorder.log import LogReader, Segment
from biotrail.recorder.schema.records import TIMESTAMP_BITS, Kind
from tests.support import captures
from tests.support.core_decoder import walk

FILES = sorted(captures.DATA.glob("*.txt"))
assert len(FILES) == 10, "captures are missing"


def rows_of(segment: Segment) -> list[tuple[Kind, np.void]]:
    """(kind, row) of each record, PAD left out."""
    return [(event.kind, event.row) for event in walk(segment)]


def all_rows(text_or_name: str, **options: bool) -> list[tuple[Kind, np.void]]:
    """Records of a capture's name or of a sequence's text, in time order."""
    is_text = "\n" in text_or_name
    events = captures.parse(text_or_name) if is_text else captures.load(text_or_name)
    rows = [row for s in captures.records(events, **options) for row in rows_of(s)]
    return sorted(rows, key=lambda r: int(r[1]["head"]) & ((1 << TIMESTAMP_BITS) - 1))


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_a_capture_reads_and_writes_back(path: Path) -> None:
    # GIVEN a capture
    lines = path.read_text().splitlines()
    # WHEN it is parsed and formatted again
    again = [captures.format_event(event) for event in captures.load(path)]
    # THEN every line is as it was
    assert again == lines
    # AND times, printed in microseconds, rise strictly
    assert np.all(np.diff([event["ns"] for event in captures.load(path)]) > 0)


def test_scenarios_without_pointers_and_wrong_ones() -> None:
    # GIVEN merged bios / WHEN encoded without pointers
    rows = all_rows("plugged-merge-loop", drop_pointers=True)
    # THEN no record holds an address and D has no chain
    names = ("bio", "rq", "parent", "nr_bios")
    assert not any(row[n].any() for _, row in rows for n in names if n in (row.dtype.names or ()))
    assert not [kind for kind, _ in rows if kind is Kind.CHAIN]
    # GIVEN a string the kernel does not print / WHEN decoded / THEN it is an error
    with pytest.raises(ValueError, match="XYZ"):
        captures.opf_of("XYZ")
    # GIVEN a request of three bios of which nothing was said before
    text = "0.000012 cpu0 D 254:0 W 0+24 bio=1 rq=a bios=3 tag=0/0 pid=7\n"
    # WHEN encoded / THEN the error tells how to say it
    with pytest.raises(ValueError, match="chain="):
        captures.records(captures.parse(text))


def test_a_scenario_may_say_what_a_capture_does_not() -> None:
    # GIVEN a sequence by hand, with a comment, a blank line and explicit keys
    text = """
    # two discards of one request, with a gap between
    0.000001 cpu0 Q 254:0 D 0+8 bio=a1 pid=7 cgroup=42 page=ea0001 comm=a name with blanks
    0.000002 cpu0 Q 254:0 D 64+8 bio=a2 pid=7 comm=a name with blanks

    0.000003 cpu0 D 254:0 D 0+16 bio=a1 rq=b1 bios=2 tag=3/4 hctx=1 chain=a1,a2 pid=7
    0.000004 cpu0 C 254:0 D 0+16 bio=a1 rq=b1 bios=2 tag=3/4 bytes=8192 err=0 pid=0
    """
    # WHEN it is encoded
    rows = all_rows(text)
    # THEN the records carry what was said, and the task's name came first
    assert [k for k, _ in rows] == [Kind.TASK, Kind.Q, Kind.Q, Kind.D, Kind.CHAIN, Kind.C]
    assert rows[0][1]["comm"] == b"a name with blan"
    assert (rows[1][1]["cgroup"], rows[1][1]["page"]) == (42, 0xEA0001)
    assert (rows[3][1]["hctx"], rows[3][1]["tag"], rows[3][1]["sched_tag"]) == (1, 3, 4)
    assert int(rows[4][1]["bios"][0]) & 0xFFFF == 0xA2


def test_rings_go_on_across_chunks(tmp_path: Path) -> None:
    # GIVEN a capture longer than a block of the ring
    events = captures.load("ext4-journal-on-loop")
    # WHEN it is written as a log of several chunks and read back
    path = captures.write_log(tmp_path / "a.biotrail", events, chunks=4)
    reader = LogReader(path)
    chunks = list(reader.chunks())
    # THEN nothing is wrong with the log and each CPU's segments follow each other
    assert (reader.interrupted, reader.problems, len(chunks)) == (False, [], 4)
    position: dict[int, int] = {}
    for segment in (s for chunk in chunks for s in chunk.segments):
        assert segment.position == position.get(segment.cpu, 0)
        position[segment.cpu] = segment.position + len(segment.data)
        rows_of(segment)
