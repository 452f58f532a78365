# SPDX-License-Identifier: Apache-2.0
"""Tracepoints' columns become the events that the bcc backend would have recorded."""

import itertools

import numpy as np
import pytest

from biotrail.converters.events.events import Events
from biotrail.converters.inputs.tracepoints.letters import opfs, packed_letters, without_position
from biotrail.converters.inputs.tracepoints.names import ThreadNames
from biotrail.converters.inputs.tracepoints.rows import TracepointRows
from biotrail.converters.inputs.tracepoints.translate import translate
from biotrail.recorder.schema.kernel_names import RWBS_OPS, opf_of
from biotrail.recorder.schema.records import NO_SECTOR, Kind

DISK, PART = 8 << 20, 8 << 20 | 1
COLUMNS = {
    "dev": [DISK],
    "sector": [4096],
    "nr_sector": [16],
    "bytes": [8192],
    "rwbs": np.array([b"WS"], "S10"),
    "error": np.array([-5], np.int32),
    "old_dev": [PART],
    "old_sector": [2048],
    "new_sector": [4104],
    "nr_rq": [3],
    "ioprio": [7],
}


def rows(event: str, time: int = 1000, arrival: int = 0, **columns: object) -> TracepointRows:
    """Return one record of a tracepoint, by thread 42 on CPU 3."""
    merged = {name: np.asarray(value) for name, value in {**COLUMNS, **columns}.items()}
    one = np.array([time], np.int64)
    return TracepointRows(event, one, np.array([3]), np.array([42]), np.array([arrival]), merged)


def only(event: str, **columns: object) -> Events:
    """Return the event that one record of a tracepoint becomes."""
    merged = rows(event, **columns)
    if not event.startswith("block_rq"):
        merged.columns.pop("bytes")
    return translate([merged], [])


@pytest.mark.parametrize("kind", [Kind.Q, Kind.G, Kind.M, Kind.F, Kind.A])
def test_a_bio_s_event_has_its_range_operation_and_thread(kind: Kind) -> None:
    """GIVEN a record of a bio's tracepoint; THEN its event says the same."""
    names = {Kind.Q: "queue", Kind.M: "backmerge", Kind.F: "frontmerge", Kind.A: "remap"}
    event = only("block_getrq" if kind == Kind.G else f"block_bio_{names[kind]}")
    assert event.kind.tolist() == [kind]
    assert (event.ts[0], event.cpu[0], event.dev[0]) == (1000, 3, DISK)
    assert (event.sector[0], event.bytes[0], event.opf[0]) == (4096, 8192, opf_of("WS"))
    assert event.field(kind, "tid", np.array([0])).tolist() == [42]


def test_a_remap_says_where_the_bio_came_from() -> None:
    """GIVEN a remap from a partition; THEN from_dev and from_sector are the partition's."""
    fields = only("block_bio_remap").fields(Kind.A, np.array([0]))[0]
    assert (fields["from_dev"], fields["from_sector"], fields["part"]) == (PART, 2048, DISK)


def test_a_split_is_of_the_front_piece() -> None:
    """GIVEN a split at sector 4104 of a bio at 4096; THEN X has the 8 sectors of the front."""
    event = only("block_split")
    assert (event.bytes[0], event.opf[0]) == (4096, opf_of("WS"))
    assert event.field(Kind.X, "new_sector", np.array([0])).tolist() == [4104]


def test_an_issue_has_no_tags_and_the_priority() -> None:
    """GIVEN an issue; THEN tags and queue are "none", and ioprio is the tracepoint's."""
    fields = only("block_rq_issue", bytes=[512]).fields(Kind.D, np.array([0]))[0]
    assert (fields["tag"], fields["sched_tag"], fields["hctx"]) == (0xFFFF, 0xFFFF, 0xFFFF)
    assert (fields["ioprio"], fields["bytes"], fields["rq"]) == (7, 512, 0)


@pytest.mark.parametrize("event", ["block_rq_complete", "block_rq_error", "block_bio_complete"])
def test_an_error_becomes_a_status(event: str) -> None:
    """GIVEN a completion with -EIO; THEN its status is BLK_STS_IOERR."""
    assert only(event).status.tolist() == [10]


def test_a_flush_request_has_no_sector() -> None:
    """GIVEN an issue with letters FF at sector 0; THEN it is a flush request's."""
    event = only("block_rq_issue", rwbs=np.array([b"FF"]), sector=[0], bytes=[0], nr_sector=[0])
    assert (event.sector[0], event.opf[0]) == (NO_SECTOR, opf_of("FF"))


def test_plugs_have_a_thread_and_no_device() -> None:
    """GIVEN a plug and an unplug; THEN they have the thread, and U how many it held back."""
    assert only("block_plug").dev.tolist() == [0]
    fields = only("block_unplug").fields(Kind.U, np.array([0]))[0]
    assert (fields["tid"], fields["depth"], fields["explicit"]) == (42, 3, 0)


def test_events_of_one_time_are_in_the_order_of_arrival() -> None:
    """GIVEN an insert that arrived after its queueing, at the same time; THEN Q is first."""
    batch = [rows("block_rq_insert", arrival=2), rows("block_bio_queue", arrival=1)]
    assert translate(batch, []).kind.tolist() == [Kind.Q, Kind.I]


def test_letters_are_read_as_one_by_one() -> None:
    """GIVEN all letters that kernels write; THEN the columns have what `opf_of` says of each."""
    flags = ["".join(f) for n in range(5) for f in itertools.combinations("FASM", n)]
    texts = [f"{p}{o}{f}" for p in ("", "F") for o in (*RWBS_OPS, "N") for f in flags]
    packed = packed_letters(np.array([t.encode() for t in texts], "S10"))
    nowhere = np.zeros(len(texts), np.bool_)
    assert opfs(packed, nowhere).tolist() == [opf_of(text[:8]) for text in texts]
    # AND where a request has no position, all but R and W are as elsewhere, N is passthrough
    kept = np.array([not text.removeprefix("F").startswith(("R", "W")) for text in texts])
    assert opfs(packed, ~nowhere)[kept].tolist() == [
        opf_of(text[:8], "DRV_IN") for text, keep in zip(texts, kept, strict=True) if keep
    ]


def test_what_is_behind_a_nul_is_no_letter() -> None:
    """GIVEN bytes left over from before behind rwbs's NUL; THEN they are not read."""
    dirty = np.frombuffer(b"R\0SMA\0\0\0\0\0", "S10")
    assert opfs(packed_letters(dirty), np.array([False])).tolist() == [opf_of("R")]


def test_positions_are_known_by_letters_and_sectors() -> None:
    """GIVEN flushes, passthrough, and I/O with a range; THEN only the first two have none."""
    texts = np.array([b"FF", b"F", b"FWS", b"N", b"N", b"R"], "S10")
    sector = np.array([0, 0, 0, 0, 8, 0], np.uint64)
    count = np.array([0, 0, 8, 0, 8, 8], np.uint64)
    found = without_position(packed_letters(texts), sector, count, count * np.uint64(512))
    assert found.tolist() == [True, True, False, True, False, False]


def test_a_thread_is_named_once_and_when_its_name_changes() -> None:
    """GIVEN four records of a thread, of which the third has another name; THEN there are 3 T."""
    comms = np.array([b"dd", b"dd\0junk", b"fio", b"dd"], "S16")
    four = np.arange(4)
    batch = [TracepointRows("block_plug", four, four, four * 0 + 7, four, {"comm": comms})]
    names = ThreadNames()
    found = translate(batch, names.rows(batch))
    tasks = found.fields(Kind.TASK, found.rows(Kind.TASK))
    assert tasks["comm"].tolist() == [b"dd", b"fio", b"dd"]
    assert tasks["tid"].tolist() == tasks["tgid"].tolist() == [7, 7, 7]
    assert found.kind.tolist() == [*(Kind.TASK, Kind.P, Kind.P), *(Kind.TASK, Kind.P) * 2]
    assert names.rows([batch[0].without(four != 3)]) == []


def test_nothing_becomes_nothing() -> None:
    """GIVEN no records; THEN there are no events."""
    assert len(translate([], [])) == 0
