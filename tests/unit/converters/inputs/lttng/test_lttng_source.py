# SPDX-License-Identifier: Apache-2.0
"""LTTng's kernel traces as a source of events: real ones, and written ones with known contents."""

import csv
import io
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from biotrail.converters.events.tables import Bios, Certainty
from biotrail.converters.inputs.lttng import source as lttng_source
from biotrail.converters.inputs.lttng.directories import find, is_lttng
from biotrail.converters.inputs.opening import open_source
from biotrail.converters.pipeline import Trace
from biotrail.recorder.schema.errors import LogFormatError
from biotrail.recorder.schema.kernel_names import opf_of
from biotrail.recorder.schema.records import Kind
from tests.support.cli_runner import Cli
from tests.support.lttng_writer import LAYOUTS, Event, write
from tests.support.sources import everything

REAL = Path(__file__).parents[4] / "data/lttng/kernel"
"""dd's 20 direct reads of 64 KiB and 20 writes of 4 KiB of a virtio disk, recorded on Linux 6.1 by
LTTng 2.13, with sched_switch beside the block events."""
READ_SYNC, WRITE = 4 | 32, 1
DISK = 8 << 20


needs_bt2 = pytest.mark.skipif(
    subprocess.run(
        ["/usr/bin/python3", "-c", "import bt2"], capture_output=True, check=False
    ).returncode
    != 0,
    reason="babeltrace2: the Python bindings (bt2) are not installed",
)


def request(start: int, sector: int, cpu: int = 0, **fields: Any) -> list[Event]:
    """Return the events of a read of 8 sectors: queued, issued after 10, completed after 100."""
    where = {"dev": DISK, "sector": sector, "nr_sector": 8, "rwbs": READ_SYNC} | fields
    task = {"tid": 77, "comm": "own"}
    return [
        (start, cpu, "block_bio_queue", where | task),
        (start + 10, cpu, "block_rq_issue", where | task | {"bytes": 4096}),
        (start + 100, cpu, "block_rq_complete", where | {"error": 0}),
    ]


@needs_bt2
def test_a_real_trace_becomes_lifecycles() -> None:
    # GIVEN a trace that LTTng recorded  WHEN it is associated
    trace = Trace(REAL)
    bios = Bios.concatenate([window.bios for window in trace.lifecycles()])
    # THEN each of dd's reads and writes is there, with its size, whole and certain by its range
    reads, writes = ((bios.opf & 0xFF) == number for number in (0, 1))
    assert (reads.sum(), writes.sum()) == (20, 20)
    assert set(bios.bytes[reads].tolist()) == {65536}
    assert set(bios.bytes[writes].tolist()) == {4096}
    assert set(bios.certainty.tolist()) == {Certainty.INTERVAL}
    # AND the other events are counted
    assert any("sched_switch 221" in remark for remark in trace.reader.remarks)
    # AND its metadata are in the header
    header = trace.reader.header
    assert header["created_by"] == "lttng-modules 2.13"
    assert header["kernel"] == {"release": "6.1.0-50-amd64"}
    assert header["events"]["letters"] == list("QGMFIRmDCcAaXPU")
    # AND its clocks hold the offset between CLOCK_MONOTONIC and CLOCK_REALTIME that stands there
    clocks = header["clocks"]
    assert clocks["realtime"] - clocks["monotonic"] == 1795453197_970717815


@needs_bt2
@pytest.mark.parametrize("where", ["kernel", "session/kernel", "session/archives/chunk/kernel"])
def test_a_session_s_directory_stands_for_its_kernel_trace(tmp_path: Path, where: str) -> None:
    # GIVEN a session's directory, rotated or not, with user space's part  WHEN it is opened
    shutil.copytree(REAL, tmp_path / where)
    session = tmp_path / where.partition("/")[0]
    if session.name == "session":
        (session / "ust/uid").mkdir(parents=True)
    source = open_source(session)
    # THEN it is the kernel's trace, and the other part is named
    assert len(everything(source)) == len(everything(open_source(REAL)))
    assert len([r for r in source.remarks if "user space" in r]) == (session.name == "session")


@needs_bt2
def test_events_say_what_the_trace_s_fields_do(tmp_path: Path) -> None:
    # GIVEN a read and a failed write on two CPUs, in the trace's order of CPUs
    written = request(1000, 64, cpu=1) + request(1005, 128, rwbs=WRITE, error=-5)
    ended = written[-1][3] | {"error": -5}
    written = sorted([*written[:-1], (*written[-1][:3], ended)], key=lambda event: event[0])
    for event in written:
        event[3].pop("error", None) if event[2] != "block_rq_complete" else None
    # WHEN they are read
    events = everything(open_source(write(tmp_path / "trace", written)))
    # THEN times, CPUs, ranges, operations, threads and statuses are those that were written
    events = events.take(np.flatnonzero(events.kind != Kind.TASK))
    assert events.ts.tolist() == [1000, 1005, 1010, 1015, 1100, 1105]
    assert events.cpu.tolist() == [1, 0] * 3
    assert events.kind.tolist() == [Kind.Q, Kind.Q, Kind.D, Kind.D, Kind.C, Kind.C]
    assert events.sector.tolist() == [64, 128] * 3
    assert events.bytes.tolist() == [4096] * 6
    assert events.opf.tolist() == [opf_of("RS"), opf_of("W")] * 3
    assert events.field(Kind.Q, "tid", np.array([0, 1])).tolist() == [77, 77]
    assert events.field(Kind.C, "status", np.array([4, 5])).tolist() == [0, 10]


@needs_bt2
@pytest.mark.parametrize(("context", "name"), [(("tid", "procname"), "fio"), ((), "own")])
def test_threads_have_names_of_the_context_or_of_the_event(
    tmp_path: Path, context: tuple[str, ...], name: str
) -> None:
    # GIVEN a trace with and without the context fields  WHEN it is read
    place = write(tmp_path / "trace", request(1000, 64), context=context)
    events = everything(open_source(place))
    # THEN the bio's thread and the name of it are known either way
    assert events.field(Kind.Q, "tid", events.rows(Kind.Q)).tolist() == [77]
    names = events.fields(Kind.TASK, events.rows(Kind.TASK))
    assert (names["tid"].tolist(), names["comm"].tolist()) == ([77], [name.encode()])


@needs_bt2
def test_discarded_events_are_losses_with_their_time(tmp_path: Path) -> None:
    # GIVEN a trace in which a CPU discarded 12 events  WHEN it is read
    lost: Event = (3000, 1, "discarded", {"count": 12, "begin": 2000, "end": 4100})
    written = [*request(1000, 64, cpu=1), lost, *request(4000, 64, cpu=1)]
    source = open_source(write(tmp_path / "trace", written))
    # THEN the loss lies where it may have been: behind the packet before, up to its own one's end
    assert len(everything(source)) == 7
    assert source.losses == [
        {"start": 2000, "end": 4100, "cpu": 1, "level": 0, "kind": 0, "count": 12}
    ]


@needs_bt2
def test_disks_have_the_names_that_the_state_dump_gave(tmp_path: Path) -> None:
    # GIVEN a trace with LTTng's event for a disk  WHEN it is read
    named: Event = (900, 0, "lttng_statedump_block_device", {"dev": DISK, "diskname": "sda"})
    trace = Trace(write(tmp_path / "trace", [named, *request(1000, 64)]))
    windows = list(trace.lifecycles())
    # THEN the disk has its name, and the event is no block event
    assert sum(len(window.bios) for window in windows) == 1
    assert trace.context.device_name(DISK) == "sda"


@needs_bt2
def test_another_clock_is_named_and_its_cycles_become_ns(tmp_path: Path) -> None:
    # GIVEN a clock of 1 MHz that is not CLOCK_MONOTONIC  WHEN the trace is read
    clock = {"name": "tsc", "frequency": 10**6}
    source = open_source(write(tmp_path / "trace", request(1000, 64), clock=clock))
    # THEN its times are ns, and the remark names it
    assert everything(source).ts.tolist() == [1_000_000, 1_000_000, 1_010_000, 1_100_000]
    assert any("the clock tsc" in remark for remark in source.remarks)


@needs_bt2
@pytest.mark.parametrize("what", ["domain", "events"])
def test_a_trace_without_block_events_is_refused(tmp_path: Path, what: str) -> None:
    # GIVEN a trace of user space, or of scheduling alone  WHEN it is opened  THEN it says so
    layouts = {"sched_switch": LAYOUTS["sched_switch"]}
    place = tmp_path / "trace"
    if what == "domain":
        write(place, request(1000, 64), domain="ust")
    else:
        write(place, [(1, 0, "sched_switch", {"prev_comm": "a", "prev_tid": 1})], layouts=layouts)
    with pytest.raises(LogFormatError, match="has no block events"):
        open_source(place)


@needs_bt2
def test_a_file_that_is_cut_costs_what_it_lacks(tmp_path: Path) -> None:
    # GIVEN a trace of which one CPU's file is cut in its first packet  WHEN it is read
    place = shutil.copytree(REAL, tmp_path / "trace")
    with open(place / "blk_1", "r+b") as stream:
        stream.truncate(9000)
    source = open_source(place)
    events = everything(source)
    # THEN the other CPU's events are there, and what is missing is counted and named
    assert set(events.cpu.tolist()) == {0}
    assert source.unreadable_bytes == 9000
    assert any(f"{place}/blk_1: 9000 bytes cannot be read" in text for text in source.problems)
    # GIVEN a trace of which one CPU's file has a whole packet, and the beginning of another
    place = shutil.copytree(REAL, tmp_path / "longer")
    with open(place / "blk_1", "ab") as stream:
        stream.write((REAL / "blk_1").read_bytes()[:5000])
    # WHEN it is read / THEN nothing of the whole packet is missing, and the rest is told
    source = open_source(place)
    events = everything(source)
    assert len(events) == len(everything(open_source(REAL)))
    assert source.unreadable_bytes == 5000
    assert any(f"{place}/blk_1: 5000 bytes cannot be read" in text for text in source.problems)


@needs_bt2
def test_what_stands_before_damage_is_read(tmp_path: Path) -> None:
    # GIVEN a packet of CPU 0 with random bytes in its midst  WHEN the trace is read
    place = write(tmp_path / "trace", [e for t in range(200) for e in request(1000 * t, 8 * t)])
    data = bytearray((place / "stream").read_bytes())
    half = len(data) // 2
    data[half : half + 512] = np.random.default_rng(1).bytes(512)
    (place / "stream").write_bytes(data)
    source = open_source(place)
    events = everything(source)
    # THEN the events before it are there, and from when on they are missing is told
    assert 200 < len(events) < 400
    assert len(source.problems) == 1
    assert source.problems[0].startswith(f"{place}: stream ")
    assert source.damaged[0]["start"] == events.ts.max()


@needs_bt2
@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("cut metadata", "metadata: cut or damaged at offset 600"),
        ("empty metadata", "metadata: cut or damaged at offset 0"),
        ("wrong metadata", "the metadata in"),
        ("no streams", "no CPU's file can be read"),
    ],
)
def test_a_trace_that_cannot_be_read_is_one_message(
    tmp_path: Path, what: str, words: str, cli: Cli
) -> None:
    # GIVEN a trace whose metadata are cut or empty, or that has nothing else
    place = shutil.copytree(REAL, tmp_path / "trace")
    if what == "no streams":
        for path in place.glob("blk_*"):
            path.unlink()
    else:
        metadata = (place / "metadata").read_bytes()
        changed = {"cut": metadata[:600], "wrong": metadata.replace(b"stream", b"strcam")}
        (place / "metadata").write_bytes(changed.get(what.split(maxsplit=1)[0], b""))
    # WHEN a command reads it / THEN there is one message with its path, and no traceback
    done = cli("report", place)
    assert done.status == 1
    assert done.err.startswith(f"biotrail: error: {place}")
    assert words in done.err
    assert done.err.count("\n") == 1


@needs_bt2
def test_a_reader_that_dies_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a child process that is killed before it sends anything  WHEN a trace is opened
    monkeypatch.setattr(lttng_source, "_PROGRAM", "import os; os.kill(os.getpid(), 6)")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    # THEN the message says by which signal, and nothing stays behind
    with pytest.raises(LogFormatError, match="it ended by signal 6"):
        open_source(REAL)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("pythons", [[], [sys.executable]])
def test_missing_bindings_are_named(pythons: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN no Python that has the bindings  WHEN a trace is opened
    hidden = "import sys; sys.modules['bt2'] = None\n" + lttng_source._PROGRAM
    monkeypatch.setattr(lttng_source, "_PROGRAM", hidden)
    monkeypatch.setattr(lttng_source, "interpreters", lambda: pythons)
    # THEN the message says what to install
    with pytest.raises(LogFormatError, match="apt-get install python3-bt2"):
        open_source(REAL)


def test_a_file_of_a_trace_names_the_directory_to_give() -> None:
    # GIVEN a CPU's file, and the metadata  WHEN they are opened  THEN it is said what to give
    for name in ("blk_0", "metadata"):
        with pytest.raises(LogFormatError, match="give the directory"):
            open_source(REAL / name)


OLD_BIO = {
    name: LAYOUTS["block_bio_queue"][name] for name in ("dev", "sector", "nr_sector", "rwbs")
}
OLD_RQ = OLD_BIO | {"bytes": "u32", "comm": "text"}
OLD = {
    "block_bio_queue": OLD_BIO | {"comm": "text"},
    "block_getrq": OLD_BIO | {"comm": "text"},
    "block_rq_insert": OLD_RQ,
    "block_rq_issue": OLD_RQ,
    "block_rq_complete": OLD_BIO | {"errors": "i32"},
}
"""Fields of lttng-modules 2.0 to 2.4 on Linux 3.x: no thread id."""
OLD_WRITE_SYNC = 1 | 1 << 4
"""rwbs of a write with SYNC in lttng-modules 2.0 and 2.1."""


def old_writes(names: list[str]) -> list[Event]:
    """Return the events of writes of 4 KiB that take 203 us, a millisecond apart."""
    found = []
    for number, name in enumerate(names):
        start = 1_000_000 * (number + 1)
        where = {"dev": DISK, "sector": 2048 << number, "nr_sector": 8, "rwbs": OLD_WRITE_SYNC}
        task = {"comm": name}
        found += [
            (start, 0, "block_bio_queue", where | task),
            (start + 1000, 0, "block_getrq", where | task),
            (start + 2000, 0, "block_rq_insert", where | task | {"bytes": 0}),
            (start + 3000, 0, "block_rq_issue", where | task | {"bytes": 0}),
            (start + 203_000, 0, "block_rq_complete", where | {"errors": 0}),
        ]
    return found


@needs_bt2
def test_traces_of_old_modules_without_thread_ids(tmp_path: Path, cli: Cli) -> None:
    # GIVEN a trace as lttng-modules 2.1 wrote it on Linux 3.6: two threads by name, without ids
    written = old_writes(["writer-a", "writer-b", "writer-b"])
    place = write(tmp_path / "trace", written, cpus=(0,), context=(), layouts=OLD, version=(2, 1))
    # WHEN it is exported
    rows = list(csv.DictReader(io.StringIO(cli("export", str(place)).out)))
    # THEN its 3 bios have the names that the events say, no id, SYNC, their size and latency
    names = ("comm", "tid", "pid", "op", "flags", "bytes", "latency_ns", "certainty")
    rest = ("", "", "write", "SYNC", "4096", "203000", "interval")
    assert [tuple(row[n] for n in names) for row in rows] == [
        ("writer-a", *rest),
        ("writer-b", *rest),
        ("writer-b", *rest),
    ]
    # AND every other output says so, too
    report = cli("report", str(place)).out
    assert [line.split()[:3] for line in report.splitlines() if line.startswith("writer-")] == [
        ["writer-b", "(unknown)", "2"],
        ["writer-a", "(unknown)", "1"],
    ]
    assert "of writer-b." in report
    assert "writer-a (thread id unknown)" in cli("slow", str(place)).out
    dump = cli("dump", str(place)).out
    assert dump.count("? [writer-a]") == 3
    assert "2147483" not in dump + report


@needs_bt2
@pytest.mark.parametrize(
    "version, bits, letters",
    [
        ((2, 0), 1 | 1 << 4, "WS"),
        ((2, 1), 4 | 1 << 5 | 1 << 3, "RAM"),
        ((2, 1), 1 | 1 << 6 | 1 << 4, "DES"),
        ((2, 2), 1 | 1 << 4, "W"),  # a barrier
        ((2, 2), 1 | 1 << 5, "WS"),
        ((2, 4), 4 | 1 << 6, "RM"),
        ((2, 13), 1 | 1 << 9 | 1 << 10, "FWF"),
        (None, 1 | 1 << 5, "WS"),
    ],
)
def test_bits_of_rwbs_are_those_of_the_version(
    tmp_path: Path, version: tuple[int, int] | None, bits: int, letters: str
) -> None:
    # GIVEN a bio's operation and flags as a version of lttng-modules has them  WHEN it is read
    event = (5, 0, "block_bio_queue", request(5, 64, rwbs=bits)[0][3])
    source = open_source(write(tmp_path / "trace", [event], version=version))
    events = everything(source)
    # THEN they are what that version meant
    assert events.opf[events.kind == Kind.Q].tolist() == [opf_of(letters)]
    # AND a trace that does not say its version says what is assumed
    assert any("which version" in remark for remark in source.remarks) == (version is None)


# Which directories are LTTng's, and which traces in them are read.

TEXT = b"/* CTF 1.8 */\n"


def trace(place: Path, metadata: bytes = TEXT) -> Path:
    place.mkdir(parents=True)
    (place / "metadata").write_bytes(metadata)
    return place


@pytest.mark.parametrize("metadata", [TEXT, b"\x57\x1d\xd1\x75" + bytes(40), b"\x75\xd1\x1d\x57"])
def test_a_trace_is_known_by_its_metadata(tmp_path: Path, metadata: bytes) -> None:
    # GIVEN metadata as text, or as packets of either byte order  THEN the directory is a trace
    assert is_lttng(trace(tmp_path / "trace", metadata))


def test_other_directories_are_not_lttng_s(tmp_path: Path) -> None:
    # GIVEN a directory whose metadata are something else, an empty one, and none
    other = trace(tmp_path / "other", b"PAR1")
    (tmp_path / "empty").mkdir()
    # THEN none is a trace
    assert not any(is_lttng(path) for path in (other, tmp_path / "empty", tmp_path / "none"))


def test_of_snapshots_one_is_to_be_given(tmp_path: Path) -> None:
    # GIVEN two snapshots, which may repeat each other's events  THEN both are named
    one, two = (trace(tmp_path / f"snapshot-{n}/kernel") for n in (1, 2))
    with pytest.raises(LogFormatError, match=r"2 recordings: give one of them") as error:
        find(tmp_path)
    assert f"{one}, {two}" in str(error.value)


def test_user_space_alone_has_no_block_events(tmp_path: Path) -> None:
    # GIVEN a session without the kernel's domain  THEN the message says what to record
    trace(tmp_path / "ust/uid/0/64-bit")
    with pytest.raises(LogFormatError, match="user space alone"):
        open_source(tmp_path)


def test_a_rotated_session_is_one_recording(tmp_path: Path) -> None:
    # GIVEN a session of two chunks and a rest  THEN all three are read, and user space is not
    chunks = [trace(tmp_path / f"archives/{n}/kernel") for n in ("1-2-0", "2-3-1")]
    rest = trace(tmp_path / "kernel")
    trace(tmp_path / "ust/uid/0/64-bit")
    assert find(tmp_path) == ([*chunks, rest], [tmp_path / "ust"])
