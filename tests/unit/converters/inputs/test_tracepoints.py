# SPDX-License-Identifier: Apache-2.0
"""Events of tracepoints of old and new kernels as biotrail's own."""

import io
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from biotrail.converters.events.events import Events
from biotrail.converters.events.tables import Bios, Certainty, Requests
from biotrail.converters.inputs.opening import open_source
from biotrail.converters.inputs.translate import (
    ThreadNames,
    TracepointRows,
    opfs,
    packed_letters,
    translate,
    without_position,
)
from biotrail.converters.pipeline import Trace
from biotrail.recorder.schema.kernel_names import IOERR, OPS, RWBS_OPS, opf_of
from biotrail.recorder.schema.records import FIRST_UNKNOWN_TID, NO_SECTOR, Kind
from tests.support import perf_files
from tests.support.sources import everything
from tests.support.system_traces import SystemTrace
from tests.support.traced_events import makedev

# Tracepoints' columns become the events that the bcc backend would have recorded.

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
    return translate([merged])


@pytest.mark.parametrize("kind", [Kind.Q, Kind.G, Kind.M, Kind.F, Kind.A])
def test_a_bio_s_event_has_its_range_operation_and_thread(kind: Kind) -> None:
    """GIVEN a record of a bio's tracepoint; THEN its event says the same."""
    names = {Kind.Q: "queue", Kind.M: "backmerge", Kind.F: "frontmerge", Kind.A: "remap"}
    event = only("block_getrq" if kind == Kind.G else f"block_bio_{names[kind]}")
    assert event.kind.tolist() == [kind]
    assert (event.ts[0], event.cpu[0], event.dev[0]) == (1000, 3, DISK)
    assert (event.sector[0], event.bytes[0], event.opf[0]) == (4096, 8192, opf_of("WS"))
    assert event.field(kind, "tid", np.array([0])).tolist() == [42]


def test_events_say_what_their_tracepoints_do() -> None:
    # GIVEN a remap from a partition / THEN from_dev and from_sector are the partition's
    fields = only("block_bio_remap").fields(Kind.A, np.array([0]))[0]
    assert (fields["from_dev"], fields["from_sector"], fields["part"]) == (PART, 2048, DISK)
    # GIVEN a split at sector 4104 of a bio at 4096 / THEN X has the 8 sectors of the front
    event = only("block_split")
    assert (event.bytes[0], event.opf[0]) == (4096, opf_of("WS"))
    assert event.field(Kind.X, "new_sector", np.array([0])).tolist() == [4104]
    # GIVEN an issue / THEN tags and queue are "none", and ioprio is the tracepoint's
    fields = only("block_rq_issue", bytes=[512]).fields(Kind.D, np.array([0]))[0]
    assert (fields["tag"], fields["sched_tag"], fields["hctx"]) == (0xFFFF, 0xFFFF, 0xFFFF)
    assert (fields["ioprio"], fields["bytes"], fields["rq"]) == (7, 512, 0)
    # GIVEN an issue with letters FF at sector 0 / THEN it is a flush request's
    event = only("block_rq_issue", rwbs=np.array([b"FF"]), sector=[0], bytes=[0], nr_sector=[0])
    assert (event.sector[0], event.opf[0]) == (NO_SECTOR, opf_of("FF"))
    # GIVEN a plug and an unplug / THEN they have the thread, and U how many it held back
    assert only("block_plug").dev.tolist() == [0]
    fields = only("block_unplug").fields(Kind.U, np.array([0]))[0]
    assert (fields["tid"], fields["depth"], fields["explicit"]) == (42, 3, 0)
    # GIVEN an insert that arrived after its queueing, at the same time / THEN Q is first
    batch = [rows("block_rq_insert", arrival=2), rows("block_bio_queue", arrival=1)]
    assert translate(batch).kind.tolist() == [Kind.Q, Kind.I]


@pytest.mark.parametrize("event", ["block_rq_complete", "block_rq_error", "block_bio_complete"])
def test_an_error_becomes_a_status(event: str) -> None:
    """GIVEN a completion with -EIO; THEN its status is BLK_STS_IOERR."""
    assert only(event).status.tolist() == [10]


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
    # GIVEN bytes left over from before behind rwbs's NUL / THEN they are not read
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
    found = translate(batch, names)
    tasks = found.fields(Kind.TASK, found.rows(Kind.TASK))
    assert tasks["comm"].tolist() == [b"dd", b"fio", b"dd"]
    assert tasks["tid"].tolist() == tasks["tgid"].tolist() == [7, 7, 7]
    assert found.kind.tolist() == [*(Kind.TASK, Kind.P, Kind.P), *(Kind.TASK, Kind.P) * 2]
    assert names.tasks([batch[0].without(four != 3)]) == []


# Fields of tracepoints mean what the kernel that wrote them meant (docs/inputs.md: the table).

DATA = Path(__file__).parents[3] / "data" / "ftrace"
US = 1000


def associated(given: Any) -> tuple[Bios, Requests, list[str]]:
    """Return a recording's bios and requests, and the remarks on it."""
    trace = Trace(given)
    windows = list(trace.lifecycles())
    bios = Bios.concatenate([window.bios for window in windows])
    requests = Requests.concatenate([window.requests for window in windows])
    return bios, requests, trace.reader.remarks


def events_of(given: Any) -> tuple[Events, list[str]]:
    """Return a recording's events but for names, and the remarks on it."""
    source = open_source(io.BytesIO(given) if isinstance(given, bytes) else given)
    events = everything(source)
    return events.take(np.flatnonzero(events.kind != Kind.TASK)), source.remarks


def of_lines(*bodies: str) -> tuple[Events, list[str]]:
    """Return the events and remarks of lines as ftrace prints them, a microsecond apart."""
    lines = [f" fio-7 [000] d..1 1.{at:06d}: {body}\n" for at, body in enumerate(bodies)]
    return events_of("".join(lines).encode())


def test_sizes_of_kernels_before_4_11_follow_from_the_sectors() -> None:
    """GIVEN a text of Linux before 4.11, with 0 bytes at insert and issue; THEN it is read as the
    text is that differs in these numbers alone: 2 bios, 4 KiB in 206 us and 8 KiB in 1.006 ms."""
    old, requests, remarks = associated(DATA / "before-4.11.txt")
    new, _, without = associated(DATA / "since-4.11.txt")
    assert (old.complete - old.queue).tolist() == [206 * US, 1006 * US]
    assert old.bytes.tolist() == [4096, 8192]
    assert set(old.certainty.tolist()) == {Certainty.INTERVAL}
    assert len(requests) == 2
    for name in ("queue", "insert", "issue", "complete", "bytes", "opf"):
        assert getattr(old, name).tolist() == getattr(new, name).tolist()
    # AND what follows from such a kernel is said, of such a kernel alone
    assert any("4 records of requests have 0 bytes" in remark for remark in remarks)
    assert not any("0 bytes" in remark or "4.12" in remark for remark in without)


def test_sizes_of_old_kernels_follow_in_every_format() -> None:
    """GIVEN perf.data with 0 bytes beside 8 sectors; THEN the request has 4,096."""
    made = perf_files.Perf()
    where = {"dev": 8 << 20, "sector": 64, "nr_sector": 8, "rwbs": b"R"}
    records = [
        made.sample("block_rq_issue", 5000, bytes=0, **where),
        made.sample("block_rq_complete", 9000, **where),
    ]
    events, remarks = events_of(made.file(records))
    assert events.bytes.tolist() == [4096, 4096]
    assert any("before 4.11" in remark for remark in remarks)
    # GIVEN a Perfetto trace with 0 bytes, and `errors`; THEN sizes follow, errors are unknown.
    where = {"dev": makedev(8, 0), "sector": 64, "nr_sector": 8, "rwbs": "W"}
    trace = SystemTrace()
    trace.events(
        0,
        [
            (5000, 7, "block_rq_issue", where | {"bytes": 0, "comm": "fio"}),
            (9000, 0, "block_rq_complete", where | {"errors": 0}),
        ],
    )
    events, remarks = events_of(trace.bytes())
    assert events.bytes.tolist() == [4096, 4096]
    assert any("before 4.12" in remark for remark in remarks)
    # GIVEN perf's text of issues with 0 bytes; THEN 2 reads of 4 KiB took 153 us and 185 us.
    bios, requests, _ = associated(DATA / "before-4.11.perf.txt")
    assert bios.bytes.tolist() == requests.bytes.tolist() == [4096, 4096]
    assert (requests.complete - requests.issue).tolist() == [153 * US, 185 * US]


@pytest.mark.parametrize(
    "body, op, size",
    [
        # Before 4.8 flush requests are FW at sector -1, of 64 or 32 bits.
        ("block_rq_issue: 8,0 FWS 0 () 18446744073709551615 + 0 [kworker]", "FLUSH", 0),
        ("block_rq_complete: 8,0 FWS () 18446744073709551615 + 0 [0]", "FLUSH", 0),
        ("block_rq_issue: 8,0 FWS 0 () 4294967295 + 0 [kworker]", "FLUSH", 0),
        # Before 4.11 passthrough has the letters of its direction, and its command.
        ("block_rq_issue: 8,0 R 36 (12 00 00 00 24 ..) 0 + 0 [udevd]", "DRV_IN", 36),
        ("block_rq_complete: 8,0 R (12 00 00 00 24 ..) 18446744073709551615 + 0 [0]", "DRV_IN", 0),
        ("block_rq_complete: 8,0 R (12 00 00 00 24 ..) 0 + 0 [0]", "DRV_IN", 0),
        ("block_rq_issue: 8,0 W 24 (55 10 ..) 0 + 0 [udevd]", "DRV_OUT", 24),
        ("block_rq_issue: 8,0 N 0 (00 00 00 00 00 00) 0 + 0 [udevd]", "DRV_IN", 0),
    ],
)
def test_requests_without_a_position(body: str, op: str, size: int) -> None:
    """GIVEN a flush or passthrough as kernels wrote them; THEN it has no sector, and its kind."""
    events, _ = of_lines(body)
    assert (events.sector[0], events.opf[0] & 0xFF) == (NO_SECTOR, OPS[op])
    assert events.bytes[0] == size


@pytest.mark.parametrize(
    "body, opf",
    [
        # A bio that only flushes is a write at sector 0, on all kernels.
        ("block_rq_complete: 8,0 FWS () 0 + 0 [0]", opf_of("FWS")),
        ("block_rq_issue: 8,0 FWS 4096 () 0 + 8 [jbd2]", opf_of("FWS")),
        # A secure erase before 4.8 is a write with E behind it; other discards are writes there.
        ("block_bio_queue: 8,0 WSE 64 + 8 [mkfs]", OPS["SECURE_ERASE"] | opf_of("RS")),
        ("block_bio_queue: 8,0 DE 64 + 8 [mkfs]", OPS["SECURE_ERASE"]),
        ("block_bio_queue: 8,0 WS 64 + 8 [mkfs]", opf_of("WS")),
        # B, the barrier of kernels before 2.6.37, is no flag of today's.
        ("block_bio_queue: 8,0 WBS 64 + 8 [mkfs]", opf_of("WS")),
    ],
)
def test_letters_of_old_kernels(body: str, opf: int) -> None:
    """GIVEN letters as kernels wrote them; THEN operation and flags are what they meant."""
    events, _ = of_lines(body)
    assert events.opf.tolist() == [opf]


def test_events_of_kernels_long_ago() -> None:
    """GIVEN block_remap, the name until then; THEN it is an A, and recorded."""
    events, remarks = of_lines(
        "block_remap: 8,0 W 2056 + 8 <- (8,1) 8", "block_bio_queue: 8,0 W 2056 + 8 [fio]"
    )
    assert events.kind.tolist() == [Kind.A, Kind.Q]
    assert not any("block_bio_remap" in remark for remark in remarks)
    # GIVEN the getrq of passthrough before 5.11, on device 0; THEN it is counted, and no I/O.
    events, remarks = of_lines(
        "block_getrq: 0,0 N 0 + 0 [udevd]", "block_getrq: 8,0 R 64 + 8 [fio]"
    )
    assert events.dev.tolist() == [8 << 20]
    assert any("block_getrq without a bio 1" in remark for remark in remarks)
    # GIVEN completions of bios whose error was left unset (before 2.6.38); THEN none failed.
    events, remarks = of_lines(
        "block_bio_complete: 253,0 R 64 + 8 [1819042147]",
        "block_bio_complete: 253,0 R 128 + 8 [-1819042147]",
        "block_bio_complete: 253,0 R 192 + 8 [-5]",
    )
    assert events.field(Kind.BIO_COMPLETE, "status", np.arange(3)).tolist() == [0, 0, IOERR]
    assert any("2 completions of bios" in remark for remark in remarks)


def rows_of(pid: list[int], comm: list[bytes] | None, event: str = "block_bio_queue") -> Any:
    """Return records of a tracepoint by threads of these ids (-1: not known) and names."""
    n = len(pid)
    columns: dict[str, Any] = {
        "dev": np.full(n, 8 << 20),
        "sector": np.arange(n) * 8,
        "nr_sector": np.full(n, 8),
        "rwbs": np.full(n, b"R"),
    }
    if comm is not None:
        columns["comm"] = np.array(comm, "S16")
    time = np.arange(n, dtype=np.int64)
    return TracepointRows(event, time, np.zeros(n, int), np.array(pid), time, columns)


def test_threads_without_ids_are_told_apart_by_name() -> None:
    """GIVEN records without thread ids, but with names, and one with an id; WHEN they are read;
    THEN each name is a thread of its own, none of them 0, and the known id stays."""
    names = ThreadNames()
    rows = names.identified(rows_of([-1, -1, -1, 9], [b"a", b"b", b"a", b"a"]))
    first, second = FIRST_UNKNOWN_TID + 1, FIRST_UNKNOWN_TID + 2
    assert rows.pid.tolist() == [first, second, first, 9]
    events = translate([rows], names)
    tasks = events.fields(Kind.TASK, events.rows(Kind.TASK))
    assert dict(zip(tasks["tid"].tolist(), tasks["comm"].tolist(), strict=True)) == {
        first: b"a",
        second: b"b",
        9: b"a",
    }
    # AND where there is no name, either, it is one unknown thread
    rows = names.identified(rows_of([-1, 0], None))
    assert rows.pid.tolist() == [FIRST_UNKNOWN_TID, 0]
    # GIVEN perf's text with -1 for a thread that had ended; THEN it is unknown, not thread 1.
    line = b"     :-1    -1 [001] 5.000001:  block:block_rq_issue: 8,0 R 4096 () 64 + 8 [gone]\n"
    events, _ = events_of(line + line.replace(b":-1    -1", b"init     1"))
    source = open_source(io.BytesIO(line))
    tids = everything(source)
    named = tids.fields(Kind.TASK, tids.rows(Kind.TASK))
    assert named["tid"].tolist() == [FIRST_UNKNOWN_TID + 1]
    assert named["comm"].tolist() == [b"gone"]
    assert len(events) == 2
    # GIVEN samples without TID; THEN the thread is the one in the tracepoint's own record.
    made = perf_files.Perf(sample_type=perf_files.USUAL & ~perf_files.TID)
    where = {"dev": 8 << 20, "sector": 64, "nr_sector": 8, "rwbs": b"R", "comm": b"dd"}
    events, _ = events_of(made.file([made.sample("block_bio_queue", 5000, pid=77, **where)]))
    assert events.field(Kind.Q, "tid", np.array([0])).tolist() == [77]
