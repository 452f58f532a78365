# SPDX-License-Identifier: Apache-2.0
"""Names for the numbers of a log, known and unknown."""

import numpy as np
import pytest

from biotrail.converters.events.context import Context
from biotrail.converters.events.decoding import Decoder
from biotrail.converters.events.events import Events
from biotrail.converters.events.tasks import TaskNames
from biotrail.recorder.log import Segment
from biotrail.recorder.schema.device_numbers import dev_text
from biotrail.recorder.schema.records import Kind
from tests.support import captures
from tests.support.record_rings import NOW, chunk, record, ring

VDA, LOOP1, PART = 254 << 20, 7 << 20 | 1, 259 << 20


@pytest.fixture
def context() -> Context:
    return Context(captures.header())


@pytest.mark.parametrize(
    ("dev", "name", "label"),
    [
        (VDA, "vda", "vda (254:0)"),
        (PART, "loop1p1", "loop1p1 (259:0)"),
        (8 << 20 | 16, "8:16", "8:16"),
        (0, "unknown device", "unknown device"),
    ],
)
def test_devices(context: Context, dev: int, name: str, label: str) -> None:
    # GIVEN a device that the header lists, or not / WHEN named / THEN unknown ones say so
    assert (context.device_name(dev), context.device_label(dev)) == (name, label)


def test_devices_that_appear_while_recording(context: Context) -> None:
    # GIVEN a device that is not in the header / WHEN a note tells of it / THEN it has a name
    assert context.device_name(8 << 20) == "8:0"
    devices = [{"dev": 8 << 20, "name": "sda", "kind": "disk"}]
    context.add_note("devices", {"devices": devices})
    assert context.device_name(8 << 20) == "sda"
    # GIVEN a dm device / WHEN named / THEN by its mapper name, not dm-0
    entry = {"dev": 252 << 20, "name": "dm-0", "kind": "dm", "dm_name": "vg-home"}
    assert Context({"devices": [entry]}).device_label(252 << 20) == "vg-home (252:0)"


def test_partitions_and_stacking() -> None:
    # GIVEN a loop on a partition and an md on two disks
    devices = [
        {"dev": 1, "name": "p", "kind": "partition", "disk": 2, "start": 8},
        {"dev": 2, "name": "d", "kind": "disk"},
        {"dev": 3, "name": "loop0", "kind": "loop", "loop": {"backing_dev": 1}},
        {"dev": 4, "name": "md0", "kind": "md", "stacked_on": [2, 5]},
    ]
    context = Context({"devices": devices})
    # WHEN asked what is below / THEN the header's facts, and nothing for what it has not
    assert (context.disk_of(1), context.disk_of(2), context.disk_of(9)) == (2, 2, 9)
    assert [context.partition_start(part, 2) for part in (1, 2, 9)] == [8, None, None]
    assert (context.lower_devices(3), context.lower_devices(4)) == ([1], [2, 5])
    assert context.lower_devices(9) == []


@pytest.mark.parametrize(
    ("rwbs", "op", "flags"),
    [
        ("R", "read", ""),
        ("FWFSM", "write", "SYNC|META|FUA|PREFLUSH"),
        ("DS", "discard", "SYNC"),
        ("N", "drv_in", ""),
        ("RA", "read", "RAHEAD"),
    ],
)
def test_operations_and_flags(context: Context, rwbs: str, op: str, flags: str) -> None:
    # GIVEN a bio's flags / WHEN decoded / THEN by the recording kernel's names
    opf = captures.opf_of(rwbs)
    assert (context.op_name(opf), context.flag_names(opf)) == (op, flags)


def test_unknown_numbers_are_shown_and_the_recording_kernels_win(context: Context) -> None:
    # GIVEN numbers that the log's kernel has no name for
    opf = 42 | 1 << 31 | 1 << 11
    # WHEN decoded / THEN none is dropped
    assert context.op_name(opf) == "op 42"
    assert context.flag_names(opf) == "SYNC|0x80000000"
    assert context.status_name(200) == "status 200"
    assert context.status_name(-5) == "errno 5"
    assert (context.status_name(0), context.status_name(10)) == ("OK", "IOERR")
    # GIVEN a kernel that numbers operations and flags otherwise
    kernel = {"op_enum": {"WRITE_ZEROES": 3, "READ": 0}, "flag_bits": {"FUA": 8}}
    context = Context({"kernel": kernel})
    # WHEN decoded / THEN by its numbers, and what it does not have has none
    assert context.op_name(3 | 1 << 8) == "write_zeroes"
    assert context.flag_names(3 | 1 << 8) == "FUA"
    assert (context.op_number("flush"), context.flag_mask("PREFLUSH")) == (-1, 0)
    # GIVEN an empty header / WHEN asked / THEN there are names, of 6.18's numbers
    context = Context({})
    assert context.op_name(1) == "write"
    assert context.flag_names(1 << 17) == "FUA"
    assert (context.host, context.log_id, context.clocks) == ("unknown host", "0" * 32, [])
    assert dev_text(LOOP1) == "7:1"


# Names of threads over time: renamed, reused, late and missing.


def events(*names: tuple[int, int, int, bytes]) -> Events:
    """TASK records of (ns, tid, tgid, comm)."""
    rows = [record(Kind.TASK, ns, tid=tid, tgid=tgid, comm=comm) for ns, tid, tgid, comm in names]
    return Decoder().decode(chunk(Segment(0, 0, 0, ring(rows))))


def named(tasks: TaskNames, *wanted: tuple[int, int]) -> list[str | None]:
    """comm of (tid, ns) pairs."""
    tid = np.array([w[0] for w in wanted], dtype=np.uint32)
    ts = np.array([NOW + w[1] for w in wanted], dtype=np.int64)
    rows = tasks.rows(tid, ts)
    comm = tasks.table().comm
    return [None if row < 0 else str(comm[row]) for row in rows.tolist()]


def test_a_name_holds_until_the_next_one() -> None:
    # GIVEN a thread that is renamed by exec, and a tid that is used again
    tasks = TaskNames()
    tasks.add_records(events((10, 5, 5, b"bash"), (20, 6, 6, b"sync"), (30, 5, 5, b"dd")))
    tasks.add_records(events((90, 5, 9, b"fio")))
    # WHEN asked at several times / THEN each time has its name, from its very nanosecond on
    found = named(tasks, (5, 10), (5, 29), (5, 30), (5, 89), (5, 90), (6, 500))
    assert found == ["bash", "bash", "dd", "dd", "fio", "sync"]
    rows = tasks.rows(np.array([5, 5], np.uint32), np.array([NOW + 15, NOW + 95], np.int64))
    assert tasks.tgid(rows).tolist() == [5, 9]
    # GIVEN names of other threads, below and above / WHEN asked / THEN none is taken for it
    tasks = TaskNames()
    assert named(tasks, (5, 10)) == [None]
    tasks.add_records(events((10, 4, 4, b"a"), (10, 6, 6, b"b")))
    assert named(tasks, (5, 10), (3, 10), (7, 10), (4, 11)) == [None, None, None, "a"]
    assert tasks.tgid(np.array([-1], np.int32)).tolist() == [0]
    # GIVEN a name whose first record was lost / WHEN asked before it / THEN it is taken
    tasks = TaskNames()
    tasks.add_records(events((50, 5, 5, b"dd"), (60, 5, 5, b"cat")))
    assert named(tasks, (5, 10), (5, 55)) == ["dd", "dd"]


def test_rows_stay_when_more_is_learned() -> None:
    # GIVEN rows given out / WHEN more names come, the same ones again too
    tasks = TaskNames()
    tasks.add_records(events((10, 5, 5, b"dd")))
    before = tasks.rows(np.array([5], np.uint32), np.array([NOW + 10], np.int64))
    more = events((1, 4, 4, b"a"), (20, 5, 5, b"dd"), (30, 4, 4, b"a"), (40, 4, 4, b"b"))
    tasks.add_records(more)
    # THEN they point to the same name, and names stand once per change
    assert tasks.table().comm[before[0]] == "dd"
    assert tasks.table().comm.tolist() == ["dd", "a", "b"]
    assert tasks.table().tid.tolist() == [5, 4, 4]
    # GIVEN a comm of 16 bytes, and one of bytes that are no UTF-8 / WHEN read / THEN readable
    tasks = TaskNames()
    tasks.add_records(events((1, 1, 1, b"x" * 16), (2, 2, 2, b"\xff\xfea")))
    assert tasks.table().comm.tolist() == ["x" * 16, "\ufffd\ufffda"]
    # GIVEN many threads renamed at the same times / WHEN asked / THEN each has its own
    tasks = TaskNames()
    names = [(t, tid, tid, b"%d-%d" % (tid, t)) for t in (10, 20, 30) for tid in range(1, 40)]
    tasks.add_records(events(*names))
    asked = [(tid, t) for tid in range(1, 40) for t in (10, 15, 29, 31)]
    assert named(tasks, *asked) == [f"{tid}-{t // 10 * 10}" for tid, t in asked]
