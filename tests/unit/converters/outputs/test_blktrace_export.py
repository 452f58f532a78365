# SPDX-License-Identifier: Apache-2.0
"""Events become blktrace's files and blkparse's lines again."""

import struct
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from biotrail.converters.events.context import Context
from biotrail.converters.events.events import Events
from biotrail.converters.inputs.blktrace.source import BlktraceSource
from biotrail.converters.outputs.blktrace import convert as blktrace
from biotrail.converters.outputs.blktrace.blkparse import lines
from biotrail.converters.pipeline import Trace
from biotrail.recorder.schema.errors import OutputError
from biotrail.recorder.schema.records import BY_KIND, Kind
from tests.scenarios.stacks import FOUR_LEVELS, PATH_LOST
from tests.scenarios.tools import Scenario, devices_with, events_of
from tests.support.blktrace_records import (
    DATA,
    FS,
    PROCESS,
    QUEUE,
    READ,
    SYNC,
    TIMESTAMP,
    WRITE,
    C,
    D,
    G,
    Q,
    record,
    records,
)
from tests.support.captures import load, parse, write_log
from tests.support.sources import everything

HEAD_BYTES = 48
"""Of a blktrace record; a remap's payload follows: from device, to device, from sector."""
CAPTURES = sorted(p.stem for p in (DATA.parent / "captures").glob("*.txt"))


def windows(source: BlktraceSource, size: int = 10**9) -> Iterator[tuple[Events, int]]:
    """The source's events as `Trace.events` gives them."""
    events = everything(source)
    while len(events):
        ready, events = events.split(size)
        yield ready, int(ready.ts[-1])


def export(path: Path, directory: Path, size: int = 10**9) -> blktrace.BlktraceSummary:
    source = BlktraceSource(path)
    directory.mkdir(exist_ok=True)
    return blktrace.write(windows(source, size), Context(source.header), directory)


def text(path: Path, size: int = 10**9) -> list[str]:
    source = BlktraceSource(path)
    return list(lines(windows(source, size), Context(source.header)))


def fields(data: bytes) -> list[tuple[int, ...]]:
    """(sequence, time, sector, bytes, action, pid, device, cpu, error, payload length)."""
    return [struct.unpack_from("<IQQIIIIIhH", one, 4) for one in records(data)]


@pytest.mark.parametrize("size", [10**9, 7])
@pytest.mark.parametrize("name", ["loop1", "zram1"])
def test_a_real_set_is_written_byte_by_byte_as_it_was_read(tmp_path, name, size):
    # GIVEN a set of a loop device with a partition, and one of a bio-based device
    # WHEN it is imported and written again, in windows of any size / THEN every file is the same
    summary = export(DATA / name, tmp_path, size)
    assert list(summary.sets.values()) == [tmp_path / name]
    assert not summary.left_out
    for file in DATA.glob(f"{name}.blktrace.*"):
        assert (tmp_path / file.name).read_bytes() == file.read_bytes()
    assert summary.bytes == sum(f.stat().st_size for f in tmp_path.iterdir())


@pytest.mark.parametrize("size", [10**9, 7])
@pytest.mark.parametrize("name", ["loop1", "vda"])
def test_the_lines_of_a_real_set_are_blkparses(tmp_path, name, size):
    # GIVEN a set, one of them with process notes, and what blkparse prints of it
    wanted = (DATA / f"{name}.txt").read_text().splitlines()
    # WHEN its events are printed, in windows of any size THEN every line is the same
    assert text(DATA / name, size) == wanted
    # AND so are those of what is written of it
    export(DATA / name, tmp_path, size)
    assert text(tmp_path / name) == wanted


def noted_set(directory: Path) -> Path:
    """A set as the kernel writes it: clock, notes before a thread's first event, a loss."""
    comm = b"dd".ljust(16, b"\0")
    clock = struct.pack("<II", 1_700_000_000, 250)
    cpu0 = [
        record(TIMESTAMP, 90, pid=0, pdu=clock),
        record(PROCESS, 100, pid=42, pdu=comm),
        record(Q | WRITE | SYNC, 100, 64, 4096, sequence=1),
        record(G | WRITE | SYNC, 110, 64, 4096, sequence=2),
        record(9 | QUEUE | READ, 115, sequence=3),
        record(10 | QUEUE | READ, 120, sequence=4, pdu=struct.pack(">Q", 1)),
        record(11 | QUEUE | READ, 121, sequence=9, pdu=struct.pack(">Q", 3)),
        record(D | WRITE | SYNC, 130, 64, 4096, sequence=10),
    ]
    cpu1 = [
        record(PROCESS, 105, pid=7, cpu=1, pdu=b"kworker/1:0\0\0\0\0\0"),
        record(13 | WRITE, 105, 512, 4096, sequence=1, pid=7, cpu=1, pdu=struct.pack(">Q", 520)),
        record(C | WRITE | SYNC, 180, 64, 4096, sequence=2, pid=0, cpu=1, error=-5),
        record(6 | FS | 1 << 21 | READ, 190, 8, 4096, sequence=3, pid=7, cpu=1),
        record(7 | FS | 1 << 22 | 4 << 16 | READ, 200, 0, 0, sequence=4, pid=8, cpu=1),
        record(7 | 1 << 25 | 1 << 22 | READ, 210, 0, 36, sequence=5, pid=8, cpu=1),
        record(8 | 1 << 25 | 1 << 23 | READ, 220, 0, 36, sequence=6, pid=8, cpu=1),
    ]
    (directory / "sda.blktrace.0").write_bytes(b"".join(cpu0))
    (directory / "sda.blktrace.1").write_bytes(b"".join(cpu1))
    return directory / "sda"


def test_each_action_has_its_line_and_comes_back(tmp_path):
    # GIVEN one of most actions WHEN they are printed
    # THEN the lines are in blkparse's form, names from the notes
    prefix = noted_set(tmp_path)
    assert text(prefix) == [
        "  8,0    0        1     0.000000000    42  Q  WS 64 + 8 [dd]",
        "  8,0    1        1     0.000000005     7  X   W 512 / 520 [kworker/1:0]",
        "  8,0    0        2     0.000000010    42  G  WS 64 + 8 [dd]",
        "  8,0    0        3     0.000000015    42  P   N [dd]",
        "  8,0    0        4     0.000000020    42  U   N [dd] 1",
        "  8,0    0        9     0.000000021    42 UT   N [dd] 3",
        "  8,0    0       10     0.000000030    42  D  WS 64 + 8 [dd]",
        "  8,0    1        2     0.000000080     0  C  WS 64 + 8 [65531]",
        "  8,0    1        3     0.000000090     7  R   R 8 + 8 [0]",
        "  8,0    1        4     0.000000100     8  D  FN [(null)]",
        "  8,0    1        5     0.000000110     8  D   R 36 [(null)]",
        "  8,0    1        6     0.000000120     8  C   R [0]",
    ]
    (tmp_path / "out").mkdir()
    # WHEN they are imported and written again / THEN every file is the same
    export(prefix, tmp_path / "out", 3)
    for cpu in (0, 1):
        name = f"sda.blktrace.{cpu}"
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / name).read_bytes()


@pytest.mark.parametrize("name", CAPTURES)
def test_a_captured_log_goes_to_blktrace_and_back(tmp_path, name):
    # GIVEN a real sequence as a log
    log = tmp_path / "a.biotrail"
    write_log(log, load(name))
    # WHEN it is written as blktrace's files, and these are imported
    trace = Trace(log)
    summary = blktrace.write(trace.events(), trace.context, tmp_path)
    before = Counter[tuple]()
    told = Trace(log)
    for events, _ in told.events():
        before += seen(events, told.context)
    after = Counter[tuple]()
    for prefix in summary.sets.values():
        source = BlktraceSource(prefix)
        for part in source.parts():
            after += seen(part.events, Context(source.header))
        assert not source.losses
        assert source.header["clocks"]["realtime"] == told.context.header["clocks"]["realtime"]
    # THEN every event that blktrace knows is there as it was, and the others are counted
    kept = Counter({k: n for k, n in before.items() if k[1] not in "sdbE"})
    lost = Counter[str]()
    for key, number in before.items():
        lost[key[1]] += number if key[1] in "sdbE" else 0
    assert after == kept
    assert summary.left_out == +lost
    assert summary.records == sum(kept.values())


def seen(events: Events, context: Context) -> Counter:
    """What an event is, by everything that blktrace can carry."""
    found: Counter[tuple] = Counter()
    known = {"SYNC", "META", "FUA", "PREFLUSH", "RAHEAD"}
    for row in range(len(events)):
        letter = BY_KIND[Kind(int(events.kind[row]))].letter
        if letter in "TK":
            continue
        alone = letter in "PU"
        op = "" if alone else context.op_name(int(events.opf[row]))
        flags = set() if alone else set(context.flag_names(int(events.opf[row])).split("|"))
        found[
            (
                int(events.ts[row]),
                letter,
                int(events.cpu[row]),
                int(events.dev[row]),
                0 if alone else int(events.sector[row]),
                0 if alone else int(events.bytes[row]),
                "" if alone else {"secure_erase": "discard", "write_zeroes": "write"}.get(op, op),
                tuple(sorted(flags & known)),
                int(events.status[row]) if letter in "Cc" else 0,
            )
        ] += 1
    return found


ORDER = """
0.000 cpu0 Q 7:1 W 8+8 bio=1 pid=20 comm=fio
0.001 cpu0 G 7:1 W 8+8 bio=1 pid=20 comm=fio
0.002 cpu0 Q 7:1 W 16+8 bio=2 pid=30 comm=cp
0.003 cpu0 I 7:1 W 8+8 bio=1 rq=1 bios=1 tag=1/1
0.004 cpu1 D 7:1 W 8+8 bio=1 rq=1 bios=1 tag=1/1
0.005 cpu1 C 7:1 W 8+8 bio=1 rq=1 bios=1 tag=1/1 bytes=4096 err=0
0.006 cpu0 Q 7:1 R 32+8 bio=1 pid=30 comm=cp
0.007 cpu0 D 7:1 R 32+8 bio=1 rq=1 bios=1 tag=1/1
"""


@pytest.mark.parametrize("size", [1, 3, 100])
def test_requests_are_shown_under_the_thread_that_queued_them(tmp_path, size):
    # GIVEN a log, which has no thread at I, D and C, and a bio address used twice
    write_log(tmp_path / "a.biotrail", parse(ORDER))
    trace = Trace(tmp_path / "a.biotrail")
    every = Events.join([events for events, _ in trace.events()])
    # WHEN it is printed, in windows of any size
    cuts = [every.take(slice(at, at + size)) for at in range(0, len(every), size)]
    found = list(lines(((cut, 0) for cut in cuts), trace.context, trace.tasks))
    # THEN I and D have the thread of the request's first bio
    assert [tuple(line.split()[i] for i in (5, 4, 2)) for line in found] == [
        ("Q", "20", "1"),
        ("G", "20", "2"),
        ("Q", "30", "3"),
        ("I", "20", "4"),
        ("D", "20", "1"),
        ("C", "0", "2"),
        ("Q", "30", "5"),
        ("D", "30", "6"),
    ]
    assert found[3].endswith("8 + 8 [fio]")
    assert found[7].endswith("32 + 8 [cp]")


def test_s_stands_for_g_where_a_log_has_no_g(tmp_path):
    # GIVEN a log of the default set of events: s, but no G
    events = [e for e in load("plugged-merge-loop") if e["letter"] != "G"]
    write_log(tmp_path / "a.biotrail", events)
    trace = Trace(tmp_path / "a.biotrail")
    trace.context.header["events"]["letters"] = list("ACDEFIMQRXacms")
    # WHEN it is written / THEN there is a G for each s, of the thread that queued the bio
    summary = blktrace.write(trace.events(), trace.context, tmp_path)
    (prefix,) = summary.sets.values()
    source = BlktraceSource(prefix)
    written = everything(source)
    got = written.fields(Kind.G, written.rows(Kind.G))
    started = [e for e in events if e["letter"] == "s"]
    assert len(got) == len(started) > 0
    assert (got["tid"] != 0).all()
    assert "s" not in summary.left_out


def test_names_and_numbers_of_files(tmp_path):
    # GIVEN a stream of two devices, without numbers / WHEN it is written
    found = export(DATA / "stream.bin", tmp_path / "stream", 11)
    # THEN the names lead blkparse to the files
    assert sorted(found.sets.values()) == [tmp_path / "stream" / name for name in ("253_1", "7_1")]
    assert sorted(p.name for p in (tmp_path / "stream").iterdir()) == [
        f"{device}.blktrace.{cpu}" for device in ("253_1", "7_1") for cpu in (0, 1)
    ]
    # AND each file counts from 1 without a gap
    for file in (tmp_path / "stream").iterdir():
        numbers = [f[0] for f in fields(file.read_bytes())]
        assert numbers == list(range(1, len(numbers) + 1))


def test_a_set_that_cannot_be_written_leaves_nothing(tmp_path, monkeypatch):
    # GIVEN a file of another trace where one would be written
    other = tmp_path / "loop1.blktrace.1"
    other.write_bytes(b"mine")
    # WHEN a set is written there THEN it is refused, and nothing of it stays
    with pytest.raises(OutputError, match=r"loop1\.blktrace\.1: exists"):
        export(DATA / "loop1", tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["loop1.blktrace.1"]
    assert other.read_bytes() == b"mine"
    # GIVEN a directory that is not there / WHEN a set is written / THEN the message names the file
    source, missing = BlktraceSource(DATA / "loop1"), tmp_path / "missing"
    with pytest.raises(OutputError, match=r"missing/loop1.*cannot be written"):
        blktrace.write(windows(source), Context(source.header), missing)
    # GIVEN a set of which not all can be written
    other.unlink()
    pack, packed = blktrace.pack, []

    def failing(*columns):
        packed.append(sorted(path.name for path in tmp_path.iterdir()))
        if len(packed) == 4:
            raise MemoryError
        return pack(*columns)

    monkeypatch.setattr(blktrace, "pack", failing)
    # WHEN it is written / THEN what was written of it is gone
    with pytest.raises(MemoryError):
        export(DATA / "loop1", tmp_path, 7)
    assert packed[-1]
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("case", "device", "origin"),
    [(FOUR_LEVELS, "vda", (9 << 20 | 8, 5128)), (PATH_LOST, "vdb", (252 << 20 | 10, 100))],
    ids=["bio", "request"],
)
def test_remaps_say_where_they_came_from(
    tmp_path: Path, case: Scenario, device: str, origin: tuple[int, int]
) -> None:
    # GIVEN a remap of a bio, or of a request
    header = {"devices": devices_with(case.devices)}
    log = Trace(write_log(tmp_path / "a.biotrail", events_of(case.given), header))
    # WHEN the log becomes files for blkparse
    blktrace.write(log.events(), log.context, tmp_path)
    data = b"".join(p.read_bytes() for p in sorted(tmp_path.glob(f"{device}.blktrace.*")))
    # THEN the lower device's files have it, with the upper device and sector
    payloads = [r[HEAD_BYTES:] for r in records(data) if len(r) == HEAD_BYTES + 16]
    found = [struct.unpack(">IIQ", payload) for payload in payloads]
    assert [(dev, sector) for dev, _, sector in found] == [origin]
    # THEN read again, each level's bios and their latencies are there
    again = [w.bios for w in Trace(tmp_path / device).lifecycles()]
    assert sum(len(bios) for bios in again) == 1
