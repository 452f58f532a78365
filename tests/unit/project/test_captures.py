# SPDX-License-Identifier: Apache-2.0
"""The captures and hand-written sequences become the records that a recording holds."""

from pathlib import Path

import numpy as np
import pytest

from biotrail.recorder.log import LogReader, Segment
from biotrail.recorder.schema.records import BY_KIND, TIMESTAMP_BITS, Kind
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


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_a_capture_becomes_records(path: Path) -> None:
    # GIVEN a capture's events
    events = captures.load(path)
    # WHEN they are encoded
    rows = all_rows(path.stem)
    # THEN each has one record, in its order, beside those of tasks and chains
    own = [r for r in rows if r[0] not in (Kind.TASK, Kind.CHAIN)]
    assert [BY_KIND[kind].letter for kind, _ in own] == [event["letter"] for event in events]
    # THEN what the line said stands in the record
    for (kind, row), event in zip(own, events, strict=True):
        assert row["dev"] == event["dev"]
        if "bio" in BY_KIND[kind].dtype.fields:  # type: ignore[operator]
            assert int(row["bio"]) & 0xFFFFFF == event.get("bio", 0)
            assert row["opf"] == captures.opf_of(event["rwbs"])
        if kind is Kind.D:
            assert row["nr_bios"] == event["bios"]


def test_chains_are_in_order() -> None:
    # GIVEN eight bios merged into one request
    rows = all_rows("plugged-merge-loop")
    # WHEN it is issued
    at = next(i for i, (kind, _) in enumerate(rows) if kind is Kind.D)
    # THEN two CHAIN records of its rq and time name the seven after the head, in order
    issue = rows[at][1]
    chain = [row for kind, row in rows[at + 1 : at + 3] if kind is Kind.CHAIN]
    assert [row["rq"] for row in chain] == [issue["rq"]] * 2
    low = [int(bio) & 0xFFFFFF for row in chain for bio in row["bios"]]
    expected = [0x977040, 0x977540, 0x977740, 0x977940, 0x977840, 0x977140, 0x977440]
    assert low == [*expected, 0, 0, 0, 0, 0]
    # GIVEN a capture with a front merge
    rows = all_rows("ext4-journal-on-loop")
    # WHEN the request of two bios is issued
    at = next(i for i, (k, row) in enumerate(rows) if k is Kind.D and row["sector"] == 208)
    # THEN the bio that came second is the head, and the first follows in the chain
    assert int(rows[at][1]["bio"]) & 0xFFFFFF == 0xE7B600
    assert int(rows[at + 1][1]["bios"][0]) & 0xFFFFFF == 0xE7B480


def test_splits_and_remaps_know_where_they_come_from() -> None:
    # GIVEN writes split at several limits / WHEN encoded
    splits = [row for kind, row in all_rows("split-write-loop") if kind is Kind.X]
    # THEN each front piece names the bio that was queued
    parents = [int(row["parent"]) & 0xFFFFFF for row in splits]
    assert parents == [0x6CF40] * 5 + [0x218240, 0x2183C0]
    # GIVEN a write to a partition / WHEN encoded
    rows = dict(all_rows("partition-remap-loop"))
    # THEN remap and queue carry the partition beside the disk
    partition = captures.names()["loop1p1"]
    assert rows[Kind.A]["from_dev"] == rows[Kind.A]["part"] == rows[Kind.Q]["part"] == partition
    assert rows[Kind.A]["from_sector"] == 48


def test_a_requeued_request_keeps_only_the_rest_of_its_bio() -> None:
    # GIVEN a partial completion, then an error / WHEN encoded
    rows = [r for r in all_rows("partial-completion-error-loop") if r[0] is not Kind.TASK]
    # THEN C carries the bytes completed and D what is left
    loop = [(kind, row) for kind, row in rows if row["dev"] == captures.names()["loop1"]]
    done = [(int(row["bytes"]), int(row["status"])) for kind, row in loop if kind is Kind.C]
    issued = [int(row["bytes"]) for kind, row in loop if kind is Kind.D]
    assert done[:2] == [(8192, 0), (57344, 10)]
    assert issued == [65536, 57344]


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


@pytest.mark.parametrize(
    ("rwbs", "op", "flags"),
    [
        ("R", "READ", ()),
        ("RAM", "READ", ("RAHEAD", "META")),
        ("WSi", "WRITE", ("SYNC", "NOMERGE")),
        ("FWFSM", "WRITE", ("PREFLUSH", "FUA", "SYNC", "META")),
        ("FF", "FLUSH", ("PREFLUSH",)),
        ("F", "FLUSH", ()),
        ("WZS", "WRITE_ZEROES", ("SYNC",)),
        ("DS", "DISCARD", ("SYNC",)),
        ("ZRA", "ZONE_RESET_ALL", ()),
    ],
)
def test_rwbs_becomes_opf(rwbs: str, op: str, flags: tuple[str, ...]) -> None:
    # GIVEN an rwbs string / WHEN decoded / THEN operation and flags are those of 6.18
    bits = sum(1 << captures.FLAG_BITS[name] for name in flags)
    assert captures.opf_of(rwbs) == captures.OPS[op] | bits


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


def test_absorbed_requests_hand_their_bios_on() -> None:
    # GIVEN C merged into B, and B into A
    text = """
    0.000001 cpu0 Q 254:0 W 0+8 bio=1 pid=7
    0.000002 cpu0 G 254:0 W 0+8 bio=1 pid=7
    0.000003 cpu0 s 254:0 W 0+8 bio=1 rq=a bios=1 pid=7
    0.000004 cpu0 Q 254:0 W 8+8 bio=2 pid=7
    0.000005 cpu0 G 254:0 W 8+8 bio=2 pid=7
    0.000006 cpu0 s 254:0 W 8+8 bio=2 rq=b bios=1 pid=7
    0.000007 cpu0 Q 254:0 W 16+8 bio=3 pid=7
    0.000008 cpu0 G 254:0 W 16+8 bio=3 pid=7
    0.000009 cpu0 s 254:0 W 16+8 bio=3 rq=c bios=1 pid=7
    0.000010 cpu0 m 254:0 W 16+8 bio=3 rq=c bios=1 pid=7
    0.000011 cpu0 m 254:0 W 8+16 bio=2 rq=b bios=2 pid=7
    0.000012 cpu0 D 254:0 W 0+24 bio=1 rq=a bios=3 tag=0/0 pid=7
    """
    # WHEN A is issued
    rows = all_rows(text)
    # THEN its chain holds all bios in order of their sectors
    assert [int(bio) & 0xFF for bio in rows[-1][1]["bios"]] == [2, 3, 0, 0, 0, 0]


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
