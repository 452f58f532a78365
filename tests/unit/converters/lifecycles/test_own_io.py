# SPDX-License-Identifier: Apache-2.0
"""The recording's own I/O: left out of what is read, counted, and shown when asked for."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from biotrail.converters.events.events import Events
from biotrail.converters.lifecycles.account import Reason
from biotrail.converters.lifecycles.purposes import PURPOSE_NAMES, purposes
from biotrail.converters.pipeline import Trace
from biotrail.recorder.log import LogWriter
from biotrail.recorder.schema.kernel_names import FLAGS
from biotrail.recorder.schema.records import Q_FLAG_DEVICE, Q_FLAG_FILE, Q_FLAG_SWAP, schema
from tests.scenarios.cases_more import LOOP_BY_PAGE
from tests.scenarios.tools import Tables, check, devices_with, events_of, join
from tests.support import captures
from tests.support.both_ways import differences, windows_of
from tests.support.cli_runner import Cli
from tests.support.path_logs import PathLog
from tests.support.perfetto_check import read as read_trace
from tests.support.perfetto_make import traced
from tests.support.stack_logs import DEV

ALONE = """
    0 Q 254:0 W 100+8 bio=1 flags=1
    1 Gs 6 D 30 C 254:0 W 100+8 bio=1 rq=1
    3 QGs 7 D 31 C 254:0 R 500+8 bio=2 rq=2
"""
SHARED = """
    0 Q 254:0 W 100+8 bio=1 flags=1
    1 Gs 254:0 W 100+8 bio=1 rq=1
    3 QM 254:0 W 108+8 bio=2
    5 Q 254:0 W 116+8 bio=3 flags=1
    6 M 254:0 W 116+8 bio=3
    20 D 90 C 254:0 W 100+24 bio=1 rq=1
"""
ABSORBED = """
    0 QGsI 254:0 W 100+8 bio=1 rq=1
    4 Q 254:0 W 108+8 bio=2 flags=1
    5 Gsm 254:0 W 108+8 bio=2 rq=2 into=1
    20 D 90 C 254:0 W 100+16 bio=1 rq=1
"""
LOOP = LOOP_BY_PAGE.given.replace("bio=1 page=ffffea0001", "bio=1 page=ffffea0001 flags=1")
LOOP_DEVICES = devices_with(LOOP_BY_PAGE.devices)
TEXTS = {"alone": ALONE, "shared": SHARED, "absorbed": ABSORBED, "loop": LOOP}


@dataclass
class Found:
    """A log, read."""

    tables: Tables
    trace: Trace


def read(path: Path, *, own_io: bool = False, window_events: int = 1 << 20) -> Found:
    trace = Trace(path, own_io=own_io)
    tables = join(list(trace.lifecycles(window_events)), trace.context, trace.account)
    check(tables)
    return Found(tables, trace)


def write(directory: Path, text: str, **header: object) -> Path:
    events = events_of(text.strip())
    return captures.write_log(directory / "a.biotrail", events, header, chunks=len(events))


def test_own_io_is_left_out_or_shown_on_demand(tmp_path: Path) -> None:
    # GIVEN a write of the recorder's own and somebody's read
    path = write(tmp_path, ALONE)
    # WHEN read / THEN only the read is there
    found = read(path)
    assert found.tables.bios.sector.tolist() == [500]
    assert found.tables.requests.sector.tolist() == [500]
    assert not found.tables.bios.own.any()
    # AND the account says what became of the other's events and how much it was
    account = found.trace.account
    assert account.by_reason() == {Reason.USED: 5, Reason.OWN: 5}
    assert account.total == 10
    assert (account.own_bios, account.own_bytes, account.own_requests) == (1, 4096, 1)
    # WHEN read with all of it / THEN both are there, one marked
    found = read(path, own_io=True)
    assert found.tables.bios.own.tolist() == [True, False]
    assert found.tables.requests.own.tolist() == [True, False]
    assert found.trace.account.by_reason() == {Reason.USED: 10}
    assert found.trace.account.own_bios == 1


def test_a_shared_request_is_kept_and_counts_the_others(tmp_path: Path) -> None:
    # GIVEN a request of the recorder's own that somebody's write joined
    found = read(write(tmp_path, SHARED))
    # THEN that write and the request are there, whole
    assert found.tables.bios.sector.tolist() == [108]
    assert found.tables.requests.bios.tolist() == [1]
    assert found.tables.requests.others.tolist() == [2]
    assert found.tables.requests.bytes.tolist() == [24 * 512]
    assert found.tables.edges.bio.tolist() == found.tables.bios.number.tolist()
    # AND what belongs to the own bios alone is left out: Q, G, Q, M; not what the issue holds
    assert found.trace.account.by_reason() == {Reason.USED: 6, Reason.OWN: 4}


def test_what_is_absorbed_or_done_below_for_it_is_own_too(tmp_path: Path) -> None:
    # GIVEN the recorder's own request, taken by somebody's
    found = read(write(tmp_path, ABSORBED))
    # THEN the one that took it remains
    assert found.tables.bios.sector.tolist() == [100]
    assert found.tables.requests.sector.tolist() == [100]
    assert found.tables.requests.others.tolist() == [1]
    # GIVEN an own write on a loop device, and the disk's write for it, which is not marked
    found = read(write(tmp_path, LOOP, devices=LOOP_DEVICES))
    # THEN nothing is left
    assert len(found.tables.bios) == len(found.tables.requests) == 0
    assert found.trace.account.by_reason() == {Reason.OWN: 11}
    assert found.trace.account.own_bios == 2


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("window_events", [1, 2, 3, 5, 7])
def test_windows_make_no_difference(tmp_path: Path, name: str, window_events: int) -> None:
    # GIVEN a log, its events far apart, so that windows settle between
    path = captures.write_log(
        tmp_path / "a.biotrail",
        events_of(TEXTS[name].strip(), 30_000_000),
        {"devices": LOOP_DEVICES},
        chunks=10,
    )
    # WHEN read in one window, and in small ones / THEN tables and account are the same
    whole, cut = (windows_of(path, size) for size in (1 << 20, window_events))
    assert differences(whole, cut) == []
    # AND so are the events that are shown
    shown = [shown_events(path, size) for size in (1 << 20, window_events)]
    assert shown[0].number.tolist() == shown[1].number.tolist()
    # AND nothing else is missing among them
    account = whole[0].account
    assert len(shown[0]) == account.total - account.by_reason()[Reason.OWN]


def shown_events(path: Path, window_events: int, *, own_io: bool = False) -> Events:
    trace = Trace(path, own_io=own_io)
    windows = [events for events, _ in trace.shown_events(window_events)]
    times = [int(t) for events in windows for t in events.ts]
    assert times == sorted(times)
    return Events.join(windows)


def test_old_logs_and_events_without_own_have_none(tmp_path: Path) -> None:
    # GIVEN a log with own I/O WHEN its events are asked for THEN they are there if asked for
    path = write(tmp_path, ALONE)
    assert len(shown_events(path, 4)) == 5
    assert len(shown_events(path, 4, own_io=True)) == 10
    # GIVEN a log of the time when the byte was reserved, with something in it
    old = json.loads(json.dumps(schema()).replace('"name": "flags", "type": "u8", "count": 1, '
        '"offset": 47', '"name": "reserved", "type": "u8", "count": 1, "offset": 47'))  # fmt: skip
    assert old != schema()
    path = tmp_path / "old.biotrail"
    with path.open("wb") as stream:
        log = LogWriter(stream, captures.header(schema=old))
        log.write_chunk(captures.records(events_of(ALONE.strip())), captures.clock(100_000))
        log.close({})
    # WHEN read THEN nothing is own
    found = read(path)
    assert len(found.tables.bios) == 2
    assert not found.tables.bios.own.any()


def test_info_and_dump_tell_it(cli: Cli, tmp_path: Path) -> None:
    # GIVEN a log WHEN info reads it THEN it says what was left out, and how to see it
    path = str(write(tmp_path, ALONE))
    told = cli("info", path).out
    assert "the recorder's own I/O: 1 bio, 4.0 KiB, left out; --own-io shows them" in told
    assert str(Reason.OWN) in told
    plain = cli.json("info", path)["account"]
    assert plain["own_io"] == {"bios": 1, "bytes": 4096, "requests": 1}
    assert "1 bio, 4.0 KiB, shown, marked own" in cli("info", "--own-io", path).out
    # WHEN dumped THEN the record is there, marked
    lines = cli("dump", "--kind", "Q", path).out.splitlines()
    assert [" own " in line for line in lines] == [True, False]
    rows = [json.loads(r) for r in cli("dump", "--format", "json", path).out.splitlines()]
    assert [row["own"] for row in rows if row["kind"] == "Q"] == [True, False]


def test_every_output_leaves_it_out_or_marks_it(cli: Cli, tmp_path: Path) -> None:
    # GIVEN a log
    path = write(tmp_path, ALONE)
    for ending in ("pftrace", "blktrace"):
        # WHEN converted THEN it is said what was left out
        told = cli("convert", path, "-o", tmp_path / f"out.{ending}").out
        assert "own I/O: 1 bio, 4.0 KiB, left out" in told
    # AND so it is
    slices = read_trace((tmp_path / "out.pftrace").read_bytes()).slices("bio")
    assert [s.args["sector"] for s in slices] == [500]
    again = read(tmp_path / "out.blktrace" / "vda")
    assert again.tables.bios.sector.tolist() == [500]
    # WHEN converted with its own I/O THEN slices of bios and requests say so
    found = traced(Trace(path, own_io=True))
    for category in ("bio", "request"):
        own = {s.args["sector"]: s.args.get("own") for s in found.slices(category)}
        assert own == {100: True, 500: None}


# What a bio is for, by its flags, its page, its thread and its device.

READ, WRITE, DISCARD = 0, 1, 3
JBD2, KWORKER, LAZY, PROGRAM = 7, 8, 9, 42
MOUNTED, SWAPPED, BARE = DEV + 1, DEV + 2, DEV + 3
DEVICES = [
    {"dev": DEV, "name": "vda"},
    {"dev": MOUNTED, "name": "vda1", "disk": DEV, "mounts": ["/"]},
    {"dev": SWAPPED, "name": "vda2", "disk": DEV, "mounts": ["[SWAP]"]},
    {"dev": BARE, "name": "vda3", "disk": DEV},
]


BITS = {**FLAGS, "SWAP": 25}


def flags(*names: str) -> int:
    return sum(1 << BITS[name] for name in names)


SYNCED = flags("META", "SYNC", "IDLE")
KERNEL = {"flag_bits": BITS}


def purpose(tmp_path: Path, kernel: dict[str, Any] = KERNEL, **bio: Any) -> str | None:
    """The purpose of the one bio of a log."""
    log = PathLog()
    log.task(JBD2, b"jbd2/vda1-8")
    log.task(KWORKER, b"kworker/u8:1")
    log.task(LAZY, b"ext4lazyinit")
    log.task(PROGRAM, b"db")
    log.bio(100, 200, **bio)
    trace = Trace(log.write(tmp_path / "log", devices=DEVICES, kernel=kernel))
    (window,) = [w for w in trace.lifecycles() if len(w.bios)]
    (found,) = purposes(window.bios, window.tasks, trace.context).tolist()
    return PURPOSE_NAMES.get(found)


def test_flags_that_a_kernel_lacks_never_hold(tmp_path: Path) -> None:
    # GIVEN a log of a kernel without one of the flags META, SYNC and IDLE
    kernel = {"flag_bits": {"META": 30}, "op_enum": {"READ": 0, "WRITE": 1}}
    # WHEN a write has those that there are  THEN it is metadata, not the journal's
    assert purpose(tmp_path, kernel, opf=WRITE | 1 << 30) == "metadata"


@pytest.mark.parametrize(
    ("bio", "expected"),
    [
        ({"opf": READ}, "data"),
        ({"opf": WRITE | flags("SYNC"), "tid": KWORKER, "flags": Q_FLAG_FILE}, "data"),
        ({"opf": READ | flags("RAHEAD")}, "readahead"),
        ({"opf": READ | flags("META", "PRIO")}, "metadata"),
        ({"opf": READ | flags("META", "RAHEAD")}, "metadata"),
        ({"opf": WRITE | flags("SYNC"), "tid": JBD2}, "journal"),
        ({"opf": WRITE | SYNCED}, "journal"),
        ({"opf": WRITE, "tid": LAZY}, "metadata"),
        ({"opf": READ | SYNCED}, "metadata"),
        ({"opf": WRITE | flags("SWAP")}, "swap"),
        ({"opf": READ, "part": SWAPPED}, "swap"),
        ({"opf": READ, "flags": Q_FLAG_SWAP}, "swap"),
        # Data that the journal's thread writes back before it commits.
        ({"opf": WRITE, "tid": JBD2, "flags": Q_FLAG_FILE}, "data"),
        # A checkpoint: from the journal to its place.
        ({"opf": WRITE | SYNCED, "flags": Q_FLAG_DEVICE, "part": MOUNTED}, "metadata"),
        ({"opf": WRITE, "flags": Q_FLAG_DEVICE, "part": MOUNTED}, "metadata"),
        # A program that writes a device through the page cache.
        ({"opf": WRITE, "flags": Q_FLAG_DEVICE, "part": BARE}, "data"),
        # What moves no data: a discard, the empty write of an fsync.
        ({"opf": DISCARD}, None),
        ({"opf": WRITE | flags("PREFLUSH"), "size": 0}, None),
    ],
)
def test_flags_page_thread_and_device_say_the_purpose(
    tmp_path: Path, bio: dict[str, Any], expected: str | None
) -> None:
    # GIVEN a bio  WHEN its purpose is asked for  THEN it is the first that holds
    assert purpose(tmp_path, **bio) == expected


def test_a_report_groups_by_purpose_without_the_path(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # GIVEN a log without the path
    log = PathLog()
    log.bio(100, 200, call=None)
    log.bio(300, 400, call=None, opf=READ | flags("RAHEAD"))
    log.bio(500, 600, call=None, opf=WRITE | flags("PREFLUSH"), size=0)
    path = log.write(tmp_path / "log", path=None)
    # WHEN its I/O is grouped by purpose  THEN each has its group
    found = json.loads(Cli(capsys)("report", "--by", "purpose", "--json", path).out)
    groups = {group["purpose"]: group["ios"] for group in found["groups"]}
    assert groups == {"data": 1, "readahead": 1, "no data": 1}
