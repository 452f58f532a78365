# SPDX-License-Identifier: Apache-2.0
"""The parts of a recording session, each alone and without the kernel's help."""

import io
import itertools
import os
import signal
import sys
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from biotrail.recorder.accounting.loss import LossCounters
from biotrail.recorder.accounting.meter import Meter
from biotrail.recorder.filters.filters import Filters
from biotrail.recorder.host import cgroups
from biotrail.recorder.host.memory_limit import Room
from biotrail.recorder.log import LogReader, LogWriter, Segment, columns
from biotrail.recorder.log.writer import Packed, Packer
from biotrail.recorder.output.sinks import Limit
from biotrail.recorder.output.writer import Packing, WriterThread
from biotrail.recorder.probes.maps.path_maps import PathChoice
from biotrail.recorder.schema.errors import OutputError
from biotrail.recorder.schema.records import BLOCK_BYTES, BY_KIND, PATH_PARTS, RECORDS, Kind, schema
from biotrail.recorder.session import opening, running
from biotrail.recorder.session.child import Child
from biotrail.recorder.session.running import GLANCE, LONGEST, NAP, SHORTEST, next_sleep
from biotrail.recorder.session.session import Status, record
from biotrail.recorder.session.stop import StopRequests
from tests.support.fake_probes import FakeProbes, options

CLOCK = {"monotonic": 10**9, "boottime": 10**9, "realtime": 10**18, "uncertainty": 100}


def record_of(kind: Kind, ns: int = 5) -> bytes:
    head = int(kind) << 56 | ns
    return head.to_bytes(8, "little").ljust(BY_KIND[kind].size, b"\0")


def block_of(*kinds: Kind) -> bytes:
    data = b"".join(record_of(kind) for kind in kinds)
    pad = int(Kind.PAD) << 56
    return (data + pad.to_bytes(8, "little")).ljust(BLOCK_BYTES, b"\xee")[:BLOCK_BYTES]


def test_few_blocks_are_counted_whole_and_many_estimated() -> None:
    # GIVEN a segment that begins and ends within a block, with dictionary records
    head = record_of(Kind.TASK) + record_of(Kind.Q) + record_of(Kind.D) + record_of(Kind.CHAIN)
    whole = block_of(Kind.Q, Kind.STACK, Kind.FILE, Kind.FILE_NAME, Kind.C)
    tail = record_of(Kind.C)
    start = BLOCK_BYTES - len(head)
    # WHEN it is counted
    meter = Meter()
    meter.add([Segment(0, 0, start, head + whole + tail)])
    # THEN queue, issue and complete count, names and continuations do not
    assert (meter.events, meter.exact) == (5, True)
    # GIVEN a hundred equal blocks on two rings
    block = block_of(*[Kind.Q] * 40)
    segments = [Segment(0, 0, 0, block * 70), Segment(1, 0, BLOCK_BYTES * 9, block * 30)]
    # WHEN they are counted
    meter = Meter()
    meter.add(segments)
    # THEN the estimate is their number
    assert (meter.events, meter.exact) == (4000, False)


def test_without_compiled_loops_the_count_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN records with names, events of the path and padding, and a block with an unknown kind
    strange = record_of(Kind.Q) + (250 << 56).to_bytes(8, "little")
    block = block_of(Kind.Q, Kind.WAIT, Kind.FILE_NAME, Kind.CALL)
    segments = [Segment(0, 0, 0, block + strange)]
    # WHEN they are counted by the loops and without
    compiled, plain = Meter(), Meter()
    compiled.add(segments)
    monkeypatch.setattr(columns, "loops", None)
    plain.add(segments)
    # THEN the figures agree
    assert (compiled.events, compiled.path_events) == (plain.events, plain.path_events) == (3, 1)


def test_the_poll_loop_hurries_when_rings_fill_and_rests_when_they_do_not() -> None:
    # GIVEN a short sleep WHEN rings are found empty THEN the next is twice as long, up to a limit
    assert next_sleep(SHORTEST, 0.0, SHORTEST, LONGEST) == 2 * SHORTEST
    assert next_sleep(LONGEST, 0.0, LONGEST, LONGEST) == LONGEST
    # WHEN they are found nearly full THEN it is the shortest at once
    assert next_sleep(LONGEST, 1.0, LONGEST, LONGEST) == pytest.approx(SHORTEST)
    # WHEN the sleep was ended early THEN the load is judged by how long it was
    assert next_sleep(NAP, 0.125, 0.012, NAP) == pytest.approx(0.0096)


class Waker:
    """Wakes nobody, and knows whether it would."""

    descriptor = 0

    def arm(self) -> None:
        """Nothing comes."""

    disarm = arm


class Empty(FakeProbes):
    """Rings that stay empty, but for what a look between two sleeps finds."""

    def __init__(self, *fills: float) -> None:
        super().__init__()
        self._fills = itertools.chain([0.0] * 3, itertools.cycle(fills))

    def fill(self) -> float:
        return next(self._fills)

    def drain(self) -> list[Segment]:
        return []


def sleeps(monkeypatch: pytest.MonkeyPatch, path: Path, probes: FakeProbes) -> list[Any]:
    """The first sleeps of a recording, none of which takes time: (s, whether programs end it)."""
    found: list[Any] = []

    def sleep(stop: StopRequests, seconds: float, *descriptors: int | None) -> None:
        found.append((seconds, descriptors[-1] is not None))
        if len(found) == 12:
            stop.request("seen")

    monkeypatch.setattr(StopRequests, "sleep", sleep)
    record(options(path), probes=probes)
    return found


def test_long_sleeps_are_ended_by_programs_or_interrupted_for_a_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN empty rings, and programs that wake the recorder WHEN it records
    probes = Empty(0.0)
    monkeypatch.setattr(probes, "waker", Waker(), raising=False)
    found = sleeps(monkeypatch, tmp_path / "woken", probes)
    # THEN it naps in the end, and none but a short sleep goes without waking
    assert found[0] == (SHORTEST, False)
    assert max(found)[0] > LONGEST
    assert all(woken or seconds <= GLANCE for seconds, woken in found)
    # GIVEN programs that do not wake it THEN it sleeps in two parts of the usual length together
    found = sleeps(monkeypatch, tmp_path / "plain", Empty(0.0))
    pairs = itertools.pairwise(seconds for seconds, _ in found)
    assert any(pair == pytest.approx((GLANCE, LONGEST - GLANCE)) for pair in pairs)
    # AND only in one where the look in between finds much
    assert max(sleeps(monkeypatch, tmp_path / "much", Empty(0.5, 0.0)))[0] == GLANCE


def test_losses_become_windows() -> None:
    # GIVEN counters of two CPUs, three levels
    loss = LossCounters(start_ns=100)
    lost, deep = np.zeros((2, 3, 256), np.uint64), np.zeros((2, 256), np.uint64)
    assert loss.sample_rings(lost, deep, 200) == []
    # WHEN they grow between two samples
    lost[1, 2, Kind.Q] = 7
    first = loss.sample_rings(lost, deep, 300)
    lost[1, 2, Kind.Q] = 9
    deep[0, Kind.C] = 1
    second = loss.sample_rings(lost, deep, 400)
    # THEN each window has the growth alone; too deep is a level of its own
    queue = {"cpu": 1, "level": 2, "kind": int(Kind.Q)}
    complete = {"cpu": 0, "level": 3, "kind": int(Kind.C)}
    assert first == [{"start": 200, "end": 300, **queue, "count": 7}]
    assert second == [
        {"start": 300, "end": 400, **complete, "count": 1},
        {"start": 300, "end": 400, **queue, "count": 2},
    ]
    assert loss.by_kind == {int(Kind.Q): 9, int(Kind.C): 1}
    assert (loss.total, loss.too_deep) == (10, 1)
    # GIVEN programs that were skipped before the recording and during it
    loss = LossCounters(start_ns=100)
    windows = loss.sample_programs({"Q": 0, "C": 3}, 200)
    # WHEN nothing more happens THEN nothing more is told
    assert loss.sample_programs({"Q": 0, "C": 3}, 300) == []
    assert windows == [
        {"start": 100, "end": 200, "cpu": -1, "level": 0, "kind": int(Kind.C), "count": 3}
    ]
    assert loss.skipped == {"C": 3}


def test_a_signal_wakes_the_sleeper_and_is_the_reason() -> None:
    # GIVEN a recording that sleeps for long
    usual = signal.getsignal(signal.SIGINT)
    with StopRequests() as stop:
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGTERM)).start()
        # WHEN a signal comes THEN it wakes at once and knows why; a second one changes nothing
        stop.sleep(60)
        assert stop.reason == "terminated"
        os.kill(os.getpid(), signal.SIGINT)
        stop.sleep(60)
        assert (stop.reason, stop.signals) == ("terminated", 2)
    # THEN afterwards signals are what they were
    assert signal.getsignal(signal.SIGINT) is usual
    # GIVEN SIGHUP ignored, as nohup leaves it
    old = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        # WHEN it comes while recording THEN recording goes on
        with StopRequests() as stop:
            os.kill(os.getpid(), signal.SIGHUP)
            stop.sleep(0.01)
            assert stop.reason is None
    finally:
        signal.signal(signal.SIGHUP, old)


def test_periodic_actions_keep_their_distance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN something to do each 50 ms, which is the figures for the user
    monkeypatch.setattr(running, "STATUS_NS", 50_000_000)
    times: list[float] = []

    def note(status: Status) -> None:
        times.extend([] if status.note else [status.seconds])
        if len(times) > 5:
            os.kill(os.getpid(), signal.SIGINT)

    # WHEN something is recorded, with much shorter sleeps, until it was done again and again
    record(options(tmp_path / "x"), note, FakeProbes())
    # THEN, beside the beginning, it was not done more often
    assert (len(times) - 1) * 0.05 <= times[-1]


@pytest.mark.parametrize(
    ("code", "status"),
    [("pass", 0), ("raise SystemExit(3)", 3), ("import os; os.kill(os.getpid(), 15)", 143)],
)
def test_a_commands_status_is_a_shells_and_its_end_wakes_the_sleeper(
    code: str, status: int
) -> None:
    # GIVEN a command and a long sleep
    child = Child([sys.executable, "-c", code])
    child.start()
    # WHEN it ends THEN the sleep does, where there is pidfd_open (Linux 5.3)
    if child.pidfd is not None:
        with StopRequests() as stop:
            stop.sleep(60, child.pidfd)
    assert child.wait(60)
    # AND its status is what a shell would say
    assert (child.status, child.running) == (status, False)
    child.close()


MOUNTINFO_V1 = """\
30 24 0:26 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
33 24 0:29 /docker/abc /sys/fs/cgroup/my\\040blkio rw,nosuid shared:9 - cgroup cgroup rw,blkio
"""
MOUNTINFO_V2 = "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n"
MOUNTINFO_ODD = """\
29 24 0:25 / /home/u/\r\x85\u2028 rw - fuse.sshfs u@h:/ rw
30 24 0:26 / /cg\udcff\u3000\u00e9\\040x rw - cgroup2 cgroup2 rw
"""
"""A user's mount whose name has what Python takes for ends of lines; a name that is no UTF-8."""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (MOUNTINFO_V1, cgroups.Hierarchy("/sys/fs/cgroup/my blkio", "/docker/abc")),
        (MOUNTINFO_V2, cgroups.Hierarchy("/sys/fs/cgroup", "/", unified=True)),
        (MOUNTINFO_ODD, cgroups.Hierarchy("/cg\udcff\u3000\u00e9 x", "/", unified=True)),
        ("30 24 0:26 / / rw - ext4 /dev/vda rw\n", None),
    ],
)
def test_cgroups_come_from_where_block_io_is_charged(
    tmp_path: Path, text: str, expected: cgroups.Hierarchy | None
) -> None:
    # GIVEN mounts WHEN the hierarchy is looked for THEN the one with the controller is found
    (tmp_path / "mountinfo").write_bytes(text.encode("utf-8", "surrogateescape"))
    assert cgroups.hierarchy(tmp_path / "mountinfo") == expected


def test_cgroup_ids_are_inodes(tmp_path: Path) -> None:
    # GIVEN a tree of directories WHEN it is read THEN each directory's inode leads to its path
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "tasks").write_text("")
    found = cgroups.paths(cgroups.Hierarchy(str(tmp_path), "/"))
    places = {"/": tmp_path, "/a": tmp_path / "a", "/a/b": tmp_path / "a" / "b"}
    assert found == {place.stat().st_ino: path for path, place in places.items()}
    assert cgroups.paths(None) == {}


def header() -> dict[str, Any]:
    return {"log_id": "0" * 32, "clocks": CLOCK}


def test_the_writer_writes_in_order_and_counts(tmp_path: Path) -> None:
    # GIVEN a writer
    with (tmp_path / "log").open("wb", buffering=0) as stream:
        writer = WriterThread(LogWriter(stream, header()))
        # WHEN a chunk, a loss and a note are handed over, and the end
        data = record_of(Kind.Q) * 2
        writer.submit(writer.chunk(Packing([Segment(0, 0, 0, data)], CLOCK)))
        window = {"start": 1, "end": 2, "cpu": 0, "level": 0, "kind": 1, "count": 3}
        writer.submit(writer.loss([window]))
        writer.submit(writer.note("cgroups", lambda: {"1": "/"}))
        writer.submit(writer.note("devices", lambda: None))
        assert writer.finish(lambda log: log.close({"reason": "test"}), lambda: False)
    # THEN the log holds them, and the counts are right
    reader = LogReader(tmp_path / "log")
    assert [bytes(s.data) for c in reader.chunks() for s in c.segments] == [data]
    assert reader.losses == [window]
    assert reader.notes == [("cgroups", {"1": "/"})]
    assert (writer.meter.bytes, writer.meter.events) == (len(data), 2)
    assert writer.error is None


@pytest.mark.parametrize("helpers", [0, 1, 3])
def test_helpers_pack_what_waits_and_the_log_stays_in_order(tmp_path: Path, helpers: int) -> None:
    # GIVEN a writer that has not got to its first chunk yet
    before, begin = {*threading.enumerate()}, threading.Event()
    with (tmp_path / "log").open("wb", buffering=0) as stream:
        writer = WriterThread(LogWriter(stream, header()), helpers)
        writer.submit(lambda _log: begin.wait(60) and None)
        # WHEN twenty chunks are handed over, and it goes on
        data = [record_of(Kind.TASK if n % 3 else Kind.Q) * (n + 1) for n in range(20)]
        for one in data:
            assert writer.offer_chunk([Segment(0, 0, 0, one)], CLOCK)
        begin.set()
        assert writer.finish(lambda log: log.close({"reason": "test"}), lambda: False)
    # THEN each is in the log once, in order, and counted once
    reader = LogReader(tmp_path / "log")
    assert [bytes(s.data) for c in reader.chunks() for s in c.segments] == data
    assert writer.meter.bytes == sum(map(len, data))
    assert len(writer.tasks) == sum(1 for n in range(20) if n % 3)
    assert writer.error is None
    # THEN no thread is left
    assert not {*threading.enumerate()} - before


def test_what_a_helper_has_no_memory_for_is_packed_by_the_writer() -> None:
    # GIVEN a packer without memory, and one with
    class Short(Packer):
        def chunks(self, segments: Sequence[Segment], clock: dict[str, Any]) -> list[Packed]:
            raise MemoryError

    packing = Packing([Segment(0, 0, 0, record_of(Kind.Q))], CLOCK)
    # WHEN the first one packs / THEN the second one does when the chunks are taken
    packing.run(Short(1))
    assert packing.over.is_set()
    assert [chunk.records for chunk in packing.take(Packer(1))] == [len(record_of(Kind.Q))]


class FullDisk(io.RawIOBase):
    """Takes so many bytes and then no more."""

    def __init__(self, room: int) -> None:
        self.room = room

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        if len(data) > self.room:
            raise OSError(28, "No space left on device")
        self.room -= len(data)
        return len(data)


def test_the_writer_keeps_errors_and_can_be_given_up() -> None:
    # GIVEN an output with room for the header alone
    probe = FullDisk(1 << 20)
    LogWriter(probe, header())  # type: ignore[arg-type]
    stream = FullDisk((1 << 20) - probe.room)
    writer = WriterThread(LogWriter(stream, header()))  # type: ignore[arg-type]
    # WHEN two chunks are handed over
    segment = Segment(0, 0, 0, record_of(Kind.Q))
    for _ in range(2):
        writer.submit(writer.chunk(Packing([segment], CLOCK)))
    ended = writer.finish(lambda log: log.close({}), lambda: False)
    # THEN the error is told and no byte counts as written
    assert ended
    assert isinstance(writer.error, OutputError)
    assert (writer.log_bytes, writer.meter.bytes) == (0, 0)
    # GIVEN a writer whose job never ends until told
    release = threading.Event()
    writer = WriterThread(LogWriter(FullDisk(1 << 20), header()))  # type: ignore[arg-type]
    writer.submit(lambda _log: release.wait(60) and None)
    # WHEN the session gives up THEN it can go on without it
    assert not writer.finish(lambda _log: None, lambda: True)
    release.set()


# What a recording resolves before it opens anything.


def test_a_device_named_twice_is_there_once_and_hides_no_lower_device(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # GIVEN a device on another one, a path disk of that, and two names of the upper device
    monkeypatch.setattr(opening.devices, "resolve", lambda spec: (8, 0))
    monkeypatch.setattr(opening, "with_below", lambda pairs: [*pairs, (7, 0)])
    monkeypatch.setattr(opening, "with_paths", lambda pairs: [*pairs, (6, 0)])
    some = options("x", devices=["dm-0", "/dev/mapper/top"], filters=Filters(below=True))
    # WHEN its devices are looked up
    named, _ = opening._resolve_devices(some)
    # THEN the header has it once, by its first name, and every device below
    assert named == [
        {"spec": "dm-0", "disk": 8, "part": 0},
        {"disk": 7, "part": 0},
        {"disk": 6, "part": 0},
    ]


def test_devices_are_asked_before_anything_is_recorded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # GIVEN a device whose attributes ask the device, which is a request
    probes = FakeProbes()
    look = opening.devices.snapshot

    def snapshot() -> list[Any]:
        probes.calls.append("devices")
        return look()

    monkeypatch.setattr(opening.devices, "snapshot", snapshot)
    # WHEN a recording is opened
    with ExitStack() as stack, ExitStack() as undo:
        opened = opening.Opened(options(tmp_path / "log"), probes, stack, undo)
    # THEN devices were looked at once, before the programs were attached, and are in the header
    assert probes.calls.index("devices") < probes.calls.index("attach")
    assert probes.calls.count("devices") == 1
    assert opened.header["devices"]


MIB = 1 << 20


@pytest.mark.parametrize(
    ("asked", "left", "keeps", "said"),
    [
        (Limit(bytes=512 * MIB), None, 512, None),
        (Limit(bytes=512 * MIB, seconds=30), 2048, 512, None),
        (Limit(bytes=512 * MIB, seconds=30), 232, 100, "keeps 100 MiB at most instead of 512: 232"),
        (Limit(bytes=512 * MIB), 20, 1, "keeps 1 MiB at most instead of 512: 20 MiB are left"),
        (Limit(seconds=30), 64, 16, "keeps 16 MiB at most instead of "),
    ],
)
def test_a_flight_recorder_keeps_what_the_memory_limit_has_room_for(
    asked: Limit, left: int | None, keeps: int, said: str | None
) -> None:
    # GIVEN what is to be kept, and what is left of memory beside the rings
    room = None if left is None else Room(left * MIB, "are left below the limit of /x, 300 MiB")
    # WHEN the buffer's limit is chosen
    limit, message = opening.buffer_limit(asked, room)
    # THEN it and as much again fit beside the recorder, and less than was asked for is said
    assert (limit.bytes, limit.seconds) == (keeps * MIB, asked.seconds)
    assert message is None if said is None else said in str(message)


# What a log says of the path beside the block layer, and a recording's messages about it.

PATH_KINDS = {record.kind for record in RECORDS if record.part}


class PathProbes(FakeProbes):
    """Probes of a backend that records the path."""

    def __init__(self, choice: PathChoice) -> None:
        super().__init__()
        self.path = choice


def header_of(path: Path, choice: PathChoice) -> dict[str, Any]:
    recorded = record(options(path, duration=0.01, path=choice.parts), probes=PathProbes(choice))
    assert recorded.reason == "duration"
    return dict(LogReader(path).header)


def kinds(entries: Any) -> set[int]:
    return {int(entry["kind"]) for entry in entries}


def test_a_schema_has_only_the_kinds_of_recorded_parts() -> None:
    # GIVEN the kinds of records THEN those of a part are the path's, and each part has one
    assert {record.kind for record in RECORDS if record.part} == PATH_KINDS
    assert PATH_PARTS == ("call", "time", "wait", "irq", "dirty", "fs", "uring", "driver")
    # GIVEN no parts, some, all THEN the schema has the block layer's kinds and those of the parts
    plain = kinds(schema())
    others = {int(r.kind) for r in RECORDS if r.sites or r.light}
    assert plain == {int(r.kind) for r in RECORDS} - PATH_KINDS - others
    assert kinds(schema(("time",))) == plain | {Kind.RETURN, Kind.CALL_FILE}
    assert kinds(schema(("wait",))) == plain | {Kind.WAIT, Kind.WAIT_CALL, Kind.CALL_FILE}
    assert kinds(schema(PATH_PARTS, sites=True, light=True)) == {int(r.kind) for r in RECORDS}
    # AND of sites that were chosen by declaration it has hits and pairs
    assert kinds(schema(sites=True)) - kinds(schema()) == {Kind.HIT, Kind.PAIR}
    # AND the light kind with the event set light alone
    assert kinds(schema(light=True)) - kinds(schema()) == {Kind.LIGHT}


def test_the_header_tells_of_the_path_and_what_is_missing(tmp_path: Path) -> None:
    # GIVEN a recording without --path WHEN its header is read
    header = header_of(tmp_path / "plain", PathChoice())
    # THEN it is as it always was: no entry, none of the path's kinds
    assert "path" not in header
    assert PATH_KINDS.isdisjoint(kinds(header["schema"]))
    assert not any("--path" in str(value) for value in header.values())
    # GIVEN a recording of which one part is not to be had
    choice = PathChoice(frozenset({"irq", "time"}), lacking={"call": "no registers here"})
    said: list[Status] = []
    # WHEN it is made
    record(options(tmp_path / "log", duration=0.01, path=frozenset({"irq", "time", "call"})),
           said.append, PathProbes(choice))  # fmt: skip
    header = LogReader(tmp_path / "log").header
    # THEN the header has the parts in the schema's order, and the reason
    assert header["path"] == {
        "parts": ["time", "irq"],
        "missing": [{"part": "call", "reason": "no registers here"}],
    }
    assert kinds(header["schema"]) & PATH_KINDS == {Kind.RETURN, Kind.CALL_FILE, Kind.INTERRUPT}
    # AND the user was told
    assert any("--path call is not recorded: no registers here" in s.note for s in said)
