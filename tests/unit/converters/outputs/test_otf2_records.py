# SPDX-License-Identifier: Apache-2.0
"""What an OTF2 archive holds, read back by the otf2 package and OTF2's tools; its bytes."""

import errno
import shutil
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from biotrail.converters.events.context import Context
from biotrail.converters.events.tables import NEVER, Bios, Certainty, Lifecycles, Requests
from biotrail.converters.outputs.otf2.convert import Otf2Summary, convert
from biotrail.converters.outputs.otf2.records import CHUNK_BYTES, check_room
from biotrail.converters.pipeline import Trace
from biotrail.recorder.schema.errors import ConversionError, OutputError
from biotrail.recorder.schema.records import Kind
from tests.support import captures
from tests.support.otf2_archives import (
    LOOP,
    Operation,
    assert_as_the_library,
    assert_legal,
    bios,
    context,
    event_files,
    operations,
    otf2_print,
    requests,
    window,
)

otf2 = pytest.importorskip("otf2")

START = captures.BASE_NS
PREFLUSH = 1 << captures.FLAG_BITS["PREFLUSH"]


def times(at: int) -> dict[str, int]:
    """Queue, issue and completion of a bio that begins `at` ns after the start."""
    return {"queue": START + at, "issue": START + at + 10, "complete": START + at + 100}


def write(directory: Path, *windows: Lifecycles) -> Otf2Summary:
    """Writes windows as an archive that both readers take without a warning."""
    summary = convert(windows, context(), directory)
    assert_legal(operations(summary.anchor))
    otf2_print(summary.anchor)
    assert summary.moved == 0
    return summary


def test_every_operation_is_kept(tmp_path: Path) -> None:
    # GIVEN a bio of every operation, one that has no name, and an empty flush
    expected = {
        "READ": ("read", None),
        "WRITE": ("write", None),
        "FLUSH": ("flush", None),
        "DISCARD": ("write", "discard"),
        "SECURE_ERASE": ("write", "secure_erase"),
        "ZONE_APPEND": ("write", "zone_append"),
        "WRITE_ZEROES": ("write", "write_zeroes"),
        "ZONE_OPEN": ("write", "zone_open"),
        "ZONE_CLOSE": ("write", "zone_close"),
        "ZONE_FINISH": ("write", "zone_finish"),
        "ZONE_RESET": ("write", "zone_reset"),
        "ZONE_RESET_ALL": ("write", "zone_reset_all"),
        "DRV_IN": ("read", "drv_in"),
        "DRV_OUT": ("write", "drv_out"),
    }
    assert expected.keys() == captures.OPS.keys()
    rows = [{"opf": number} for number in captures.OPS.values()]
    rows += [{"opf": 41}, {"opf": 1 | PREFLUSH, "bytes": 0}, {"opf": 1 | PREFLUSH}]
    rows = [{"number": at, **times(at), **row} for at, row in enumerate(rows)]
    # WHEN converted
    summary = write(tmp_path / "a", window(START, START + 10**6, bios(*rows)))
    # THEN each is there under OTF2's nearest mode, its own name beside where that differs
    found = operations(summary.anchor)
    said = [
        (operation.mode, operation.attributes.get("begin", {}).get("op"))
        for (_, _), operation in sorted(found.items(), key=lambda item: item[0][1])
    ]
    extra = [("write", "op 41"), ("flush", None), ("write", None)]
    assert said == [*expected.values(), *extra]
    assert summary.bios == len(rows)


def test_what_the_trace_did_not_show_is_marked(tmp_path: Path) -> None:
    # GIVEN a bio that the end cuts off, one that the last window leaves open, one absorbed
    rows = bios({"number": 1, "queue": START, "issue": START + 10})
    still = bios({"number": 2, "queue": START + 20})
    absorbed = requests({"number": 3, "start": START, "absorbed_by": 0})
    # WHEN converted / THEN they are cancelled, and what was not seen says so
    summary = write(tmp_path / "a", window(START, START + 500, rows, absorbed, still))
    found = operations(summary.anchor)
    cut, left = found["vda (254:0) bios", 1], found["vda (254:0) bios", 2]
    assert cut.attributes == {"cancelled": {"truncated": 1}}
    assert left.attributes == {"issued": {"truncated": 1}, "cancelled": {"truncated": 1}}
    taken = found["vda (254:0) requests", 3]
    assert taken.attributes == {"issued": {"truncated": 1}, "cancelled": {"absorbed by": 0}}
    assert (summary.bios, summary.requests, summary.cancelled) == (2, 1, 3)


def test_a_string_is_defined_once(tmp_path: Path) -> None:
    # GIVEN an operation and an error, which name themselves / WHEN converted
    rows = [{"number": at, "opf": 3, "status": 10, **times(at)} for at in range(3)]
    summary = write(tmp_path / "a", window(START, START + 500, bios(*rows)))
    # THEN no string is there twice
    lines = otf2_print(summary.anchor).splitlines()
    strings = [line.split(maxsplit=2)[2] for line in lines if line.startswith("STRING ")]
    assert "discard" in str(strings)
    assert len(strings) == len(set(strings)) > 10


def test_lost_events_are_shown(tmp_path: Path) -> None:
    # GIVEN two loss windows, one of unknown count
    losses = [
        {"start": START, "end": START + 50, "cpu": 1, "kind": int(Kind.D), "count": 5},
        {"start": START + 60, "end": START + 90, "cpu": -1, "kind": 0, "count": -1},
    ]
    # WHEN converted / THEN the summary, the anchor file and the markers tell of them
    first = window(START, START + 500, bios({"number": 0, **times(0)}), loss=losses)
    summary = write(tmp_path / "a", first, window(START + 500, START + 600))
    assert (summary.lost, summary.lost_unknown) == (5, 1)
    assert "lost 5 events and in 1 windows an unknown number" in otf2_print(summary.anchor)
    if shutil.which("otf2-marker") is None:
        pytest.skip("otf2-marker is not installed")
    command = ["otf2-marker", str(summary.anchor)]
    markers = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert f'Time: {START}, Duration 50, Scope: GLOBAL, Text: "lost: 5 issue (D)' in markers
    assert 'Text: "lost: an unknown number of events"' in markers


def test_what_has_no_io_or_no_times_is_an_archive(tmp_path: Path) -> None:
    # GIVEN a window without a bio / WHEN converted
    summary = write(tmp_path / "a", window(START, START + 500))
    # THEN the archive is readable and empty
    assert (operations(summary.anchor), summary.events, summary.first_ns) == ({}, 0, -1)
    # GIVEN a bio of which no time is known, alone / WHEN converted
    summary = write(tmp_path / "b", window(START, START + 500, bios({"number": 3})))
    # THEN it is there, all of it marked, at a time that is one
    found = operations(summary.anchor)["vda (254:0) bios", 3]
    assert [time for _, time in found.events] == [0, 0, 0]
    assert found.attributes.keys() == {"begin", "issued", "cancelled"}
    # GIVEN a bio of which no time is known, left open long after the last event
    late = START + 100 * 10**6
    first = window(START, late, bios({"number": 1, **times(0)}), open_bios=bios({"number": 9}))
    # WHEN converted / THEN all of it is there, in the order of time (as `operations` demands)
    found = operations(write(tmp_path / "c", first).anchor)
    assert found["vda (254:0) bios", 9].events[0] == ("begin", START + 100)
    (tmp_path / "d").mkdir()
    # GIVEN an empty directory / WHEN written to / THEN the archive is in it
    assert write(tmp_path / "d", window(START, START + 1)).anchor == tmp_path / "d" / "traces.otf2"


def test_directories_that_cannot_be_taken_are_refused(tmp_path: Path) -> None:
    # GIVEN a directory with a file
    (tmp_path / "mine").write_text("keep me")
    # WHEN written to / THEN the error says so and the file is left
    with pytest.raises(OutputError, match="is not empty"):
        convert([], context(), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
    # GIVEN a file, and a directory in a directory that is not there
    (tmp_path / "file").touch()
    # WHEN written to / THEN the errors name them
    with pytest.raises(OutputError, match="is no directory"):
        convert([], context(), tmp_path / "file")
    with pytest.raises(OutputError, match="create it first"):
        convert([], context(), tmp_path / "not" / "there")
    # GIVEN paths where no directory can be / WHEN written to / THEN the errors name them
    for path in ("/proc/otf2", f"/tmp/{'a' * 300}"):
        with pytest.raises(OutputError, match=f"^{path}"):
            convert([], context(), Path(path))


def test_a_conversion_that_fails_leaves_nothing(tmp_path: Path) -> None:
    # GIVEN a trace that breaks off after its first window
    def broken() -> Iterator[Lifecycles]:
        yield window(START, START + 500, bios({"number": 0, **times(0)}))
        raise ConversionError("broken")

    # WHEN converted / THEN the error comes through and half an archive is not there
    with pytest.raises(ConversionError, match="broken"):
        convert(broken(), context(), tmp_path / "a")
    with pytest.raises(ConversionError, match="broken"):
        convert(broken(), context(), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_noticed_before_the_library_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a disk on which nothing more can be allocated
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", full)
    # WHEN converted / THEN the error says how much it takes, and nothing is left
    with pytest.raises(OutputError, match="1 MiB more are needed there: free some space"):
        convert([window(START, START + 1, bios(times(0)))], context(), tmp_path / "a")
    assert list(tmp_path.iterdir()) == []
    # GIVEN a directory WHEN no bytes are wanted there THEN that is no error
    check_room(tmp_path, 0)


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a Python without otf2
    monkeypatch.setitem(sys.modules, "_otf2", None)
    # WHEN converted / THEN the error names the extra, and nothing was made
    with pytest.raises(ConversionError, match=r"pip install 'biotrail\[otf2\]'"):
        convert([], context(), tmp_path / "a")
    assert list(tmp_path.iterdir()) == []


# An archive holds what the tables do: counts, bytes, latencies, attributes, counters.

RECORDED = "recorded"
SOURCES = [RECORDED, *sorted(path.stem for path in captures.DATA.glob("*.txt"))]

Rows = Iterator[tuple[str, Bios | Requests, int, Lifecycles]]


@pytest.fixture(params=SOURCES)
def converted(
    request: pytest.FixtureRequest, tmp_path: Path
) -> tuple[Otf2Summary, list[Lifecycles], Context]:
    """A log's archive, and the windows that it was made of."""
    if request.param == RECORDED:
        trace = Trace(str(files("biotrail") / "data" / "demo.biotrail"))
        windows = list(trace.lifecycles(window_events=2000))
    else:
        trace = Trace(captures.write_log(tmp_path / "a.biotrail", captures.load(request.param)))
        windows = list(trace.lifecycles(window_events=40))
    return convert(windows, trace.context, tmp_path / "a"), windows, trace.context


def rows(windows: list[Lifecycles], context: Context) -> Rows:
    """Every bio and request: its location's name, its table and row there, its window."""
    for some in windows:
        for layer, table in (("bios", some.bios), ("requests", some.requests)):
            for row in range(len(table)):
                yield f"{context.device_label(int(table.dev[row]))} {layer}", table, row, some


def begun(table: Bios | Requests) -> Any:
    return table.queue if isinstance(table, Bios) else table.start


Converted = tuple[Otf2Summary, list[Lifecycles], Context]


def expected_attributes(table: Bios | Requests, row: int, window: Lifecycles) -> dict[str, Any]:
    """What a row says beyond times and bytes, by the names that the archive has for it."""
    certainty = Certainty(int(table.certainty[row]))
    facts = [
        ("parent", int(table.parent[row]), table.parent[row] != NEVER),
        ("requeues", int(table.requeues[row]), table.requeues[row] > 0),
        ("certainty", certainty.name.lower(), certainty != Certainty.EXACT),
        ("doubtful", 1, bool(table.doubtful[row])),
    ]
    if isinstance(table, Bios):
        task = int(table.task[row])
        facts += [
            ("tid", int(table.tid[row]), table.tid[row] > 0),
            ("comm", window.tasks.comm[task] if task >= 0 else "", task >= 0),
            ("request", int(table.request[row]), table.request[row] != NEVER),
            ("fragments", int(table.fragments[row]), table.fragments[row] > 1),
        ]
    else:
        facts += [("bios", int(table.bios[row]), table.bios[row] > 1)]
    return {name: value for name, value, has in facts if has}


def all_attributes(operation: Operation) -> dict[str, Any]:
    return {name: value for said in operation.attributes.values() for name, value in said.items()}


def test_counts_bytes_latencies_and_attributes_are_the_tables(converted: Converted) -> None:
    # GIVEN a log's tables, summed by device and layer
    summary, windows, known = converted
    expected: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for place, table, row, _ in rows(windows, known):
        begin, complete = int(begun(table)[row]), int(table.complete[row])
        expected[place]["operations"] += 1
        expected[place]["asked"] += int(table.bytes[row])
        if complete != NEVER:
            expected[place]["done"] += int(table.done_bytes[row])
            expected[place]["latency"] += complete - begin if begin != NEVER else 0
    # WHEN the archive is read
    found: defaultdict[str, Counter[str]] = defaultdict(Counter)
    read = operations(summary.anchor)
    for (place, _), operation in read.items():
        found[place]["operations"] += 1
        found[place]["asked"] += operation.asked
        if operation.done is not None:
            found[place]["done"] += operation.done
            seen = "truncated" not in operation.attributes.get("begin", {})
            times = dict(operation.events)
            found[place]["latency"] += (times["complete"] - times["begin"]) * seen
    # THEN the sums are the same, and neither reader has anything to warn of
    assert found == expected
    assert_legal(read)
    assert otf2_print(summary.anchor).count("IO_OPERATION_BEGIN") == len(read) > 0
    # AND every operation carries what its row says, and nothing that it does not
    elsewhere = {"op", "error", "truncated", "absorbed by", "own"}
    for place, table, row, some in rows(windows, known):
        said = all_attributes(read[place, int(table.number[row])])
        assert {n: v for n, v in said.items() if n not in elsewhere} == expected_attributes(
            table, row, some
        )


# Event files hold, byte for byte, what the OTF2 library writes for the same events.

pytest.importorskip("otf2")


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
    assert_as_the_library(summary.anchor, tmp_path / "b")
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
any_operations = st.fixed_dictionaries(
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
    st.lists(any_operations, max_size=6, unique_by=lambda row: row["number"]),
    st.lists(any_operations, max_size=6, unique_by=lambda row: row["number"]),
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
        assert_as_the_library(summary.anchor, there / "b")


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
