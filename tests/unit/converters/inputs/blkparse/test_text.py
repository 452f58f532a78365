# SPDX-License-Identifier: Apache-2.0
"""blkparse's default format: every action, losses, repetitions, the summary, damage."""

import gzip
import io
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard
from click.testing import CliRunner

from biotrail.cli import convert, dump
from biotrail.converters.events.context import Context
from biotrail.converters.events.events import Events
from biotrail.converters.inputs import lines as lines_module
from biotrail.converters.inputs.blkparse.source import BlkparseSource
from biotrail.converters.inputs.log import Source
from biotrail.converters.inputs.opening import open_source
from biotrail.converters.pipeline import Trace
from biotrail.recorder.schema.errors import LogFormatError
from biotrail.recorder.schema.kernel_names import IOERR
from biotrail.recorder.schema.records import BY_KIND, NO_SECTOR, Kind
from tests.support import captures, paths
from tests.support.both_ways import uncompiled
from tests.support.sources import Pipe, everything

DATA = paths.DATA / "blktrace"
SDA = 8 << 20

ACTIONS = {
    " Q   R 8 + 8 [dd]": (Kind.Q, 8, 4096),
    " G  RA 8 + 8 [dd]": (Kind.G, 8, 4096),
    " M  WS 8 + 8 [dd]": (Kind.M, 8, 4096),
    " F WSM 8 + 8 [a ] b]": (Kind.F, 8, 4096),
    " I   D 8 + 8 [dd]": (Kind.I, 8, 4096),
    " D   W 8 + 8 (    1234) [dd]": (Kind.D, 8, 4096),
    " R   W 8 + 8 [0]": (Kind.R, 8, 4096),
    " X   R 8 / 12 [dd]": (Kind.X, 8, 2048),
    " X   R 4294967288 / 4 [dd]": (Kind.X, 4294967288, 6144),
    " A   R 8 + 8 <- (8,1) 0": (Kind.A, 8, 4096),
    " P   N [dd]": (Kind.P, None, None),
    " U   N [dd] 3": (Kind.U, None, None),
    "UT   N [dd] 3": (Kind.U, None, None),
    " T   N [dd] 3": (Kind.U, None, None),
    " D   R 36 (12 00 00 00 24 00 ..) [inquiry]": (Kind.D, 0, 36),
    " I   N 0 [smartctl]": (Kind.I, 0, 0),
    " D  FN [kworker/0:1H]": (Kind.D, NO_SECTOR, 0),
    " Q FWS [dd]": (Kind.Q, 0, 0),
    " Q  WB 8 + 8 [old]": (Kind.Q, 8, 4096),
}


def text(*lines: str) -> bytes:
    return "".join(line + "\n" for line in lines).encode()


def line(number: int, rest: str, *, time: int = -1, dev: str = "8,0", cpu: int = 0) -> str:
    """A line of the default format; rest: from the action on. time: ns, by default 1 µs each."""
    time = number * 1000 if time < 0 else time
    seconds, ns = divmod(time, 10**9)
    return f"{dev:>7} {cpu:2d} {number:8d} {seconds:5d}.{ns:09d}    42 {rest}"


def io_lines(number: int, sector: int, **at: int) -> list[str]:
    """One read of 8 sectors: Q, G, I, D, C."""
    bodies = [f" {act}   R {sector} + 8 [dd]" for act in "QGID"] + [f" C   R {sector} + 8 [0]"]
    return [line(number + i, body, **at) for i, body in enumerate(bodies)]  # type: ignore[arg-type]


def source_of(data: bytes) -> BlkparseSource:
    source = open_source(io.BytesIO(data))
    assert isinstance(source, BlkparseSource)
    return source


def events_of(source: Source) -> Events:
    """Without names of threads."""
    events = everything(source)
    return events.take(np.flatnonzero(events.kind != Kind.TASK))


def spelled(events: Events) -> str:
    """The events' letters."""
    return "".join(BY_KIND[Kind(kind)].letter for kind in events.kind.tolist())


def contents(events: Events) -> Counter[tuple[int, ...]]:
    """The records but for their order, times from the first on."""
    words = events.raw.copy()
    words[:, 0] = events.kind
    times = (events.ts - events.ts.min(initial=1 << 62)).tolist()
    rows = map(tuple, words.tolist())
    return Counter(
        (t, cpu, *row) for t, cpu, row in zip(times, events.cpu.tolist(), rows, strict=True)
    )


@pytest.mark.parametrize("body", ACTIONS)
def test_every_action_is_read(body: str) -> None:
    # GIVEN a line of each action and form
    source = source_of(text(line(1, body), line(2, " Q   R 99 + 1 [x]")))
    # WHEN it is read / THEN it is that event, of that place and size
    events = events_of(source)
    kind, sector, size = ACTIONS[body]
    assert (events.kind[0], source.problems) == (kind, [])
    if sector is not None:
        at = 3 if kind in (Kind.I, Kind.D, Kind.R) else 2
        assert int(events.raw[0, at]) == sector
        assert int(events.raw[0, at + 1]) & 0xFFFFFFFF == size


def test_messages_and_actions_without_a_kind_are_kept_and_counted() -> None:
    # GIVEN actions that a log has no kind for
    source = source_of(
        text(line(1, " S   R 8 + 8 [dd]"), line(2, " B   R 8 + 8 [dd]"), *io_lines(3, 8))
    )
    # WHEN they are read / THEN they are named
    events = events_of(source)
    assert len(events) == 5
    assert any("bounce 1, sleeprq 1" in remark for remark in source.remarks)
    # GIVEN messages of a scheduler, one with a cgroup
    lines = [
        "  8,0    0        0     0.000001000     0  m   N cfq1 alloced",
        "  8,0    0        0     0.000001500     0 1a,1  m   N throttle",
        *io_lines(2, 8),
    ]
    source = source_of(text(*lines))
    # WHEN they are read / THEN their texts are
    events_of(source)
    assert [message["text"] for _, message in source.notes] == ["cfq1 alloced", "throttle"]


@pytest.mark.parametrize("error", ["[65531]", "[-5]"])
def test_errors_are_read_with_and_without_their_sign(error: str) -> None:
    # GIVEN a completion with EIO, which blkparse prints as a number of 16 bits
    source = source_of(text(*io_lines(1, 8)[:4], line(5, f" C   R 8 + 8 {error}")))
    # WHEN it is read / THEN it failed
    events = events_of(source)
    assert int(events.raw[-1, 5]) >> 32 == IOERR


def test_events_that_share_a_letter_are_told_apart() -> None:
    # GIVEN a bio that fills the gap between two requests, after which these merge
    bodies = [
        *(" Q   W 0 + 8 [dd]", " G   W 0 + 8 [dd]", " I   W 0 + 8 [dd]"),
        *(" Q   W 16 + 8 [dd]", " G   W 16 + 8 [dd]", " I   W 16 + 8 [dd]"),
        *(" Q   W 8 + 8 [dd]", " M   W 8 + 8 [dd]", " M   W 16 + 8 [dd]"),
        *(" D   W 0 + 24 [dd]", " C   W 0 + 24 [0]"),
    ]
    source = source_of(text(*(line(i + 1, body) for i, body in enumerate(bodies))))
    # WHEN it is read / THEN the first M is the bio's, the second the request's
    events = events_of(source)
    assert spelled(events) == "QGIQGIQMmDC"
    # GIVEN a bio of a device without requests, and a request that is completed in two parts
    lines = [
        line(1, " Q   R 0 + 8 [dd]", dev="252,0"),
        line(2, " C   R 0 + 8 [0]", dev="252,0"),
        *io_lines(3, 0)[:4],
        line(7, " C   R 0 + 2 [0]"),
        line(8, " C   R 2 + 6 [0]"),
    ]
    # WHEN they are read / THEN the first is the bio's, and both parts are the request's
    events = events_of(source_of(text(*lines)))
    assert spelled(events) == "QcQGIDCC"


def test_sizes_and_devices_that_lines_leave_out() -> None:
    # GIVEN two commands under way, whose completions have no bytes
    lines = [
        line(1, " D   R 36 (12 00 ..) [a]"),
        line(2, " D   R 96 (a0 00 ..) [b]"),
        line(3, " C   R (a0 00 ..) [0]"),
        line(4, " C   R (12 00 ..) [0]"),
    ]
    # WHEN they are read / THEN each completion has those of its command
    events = events_of(source_of(text(*lines)))
    assert (events.raw[:, 4] & np.uint64(0xFFFFFFFF)).tolist() == [36, 96, 96, 36]
    # GIVEN a remap from a partition to the disk, of which blkparse prints the partition; and one
    # to a device that is traced
    lines = [
        line(1, " A   R 2056 + 8 <- (8,1) 8", dev="8,1"),
        *io_lines(2, 2056),
        line(7, " A   R 0 + 8 <- (9,0) 0"),
        line(1, " Q   R 0 + 8 [dd]", dev="9,0", time=9000),
    ]
    source = source_of(text(*lines))
    # WHEN it is read
    events = events_of(source)
    # THEN the first is the disk's, from the partition to it, so that no number is missing
    remaps = events.raw[events.kind == Kind.A]
    assert (remaps[:, 4] & np.uint64(0xFFFFFFFF)).tolist() == [SDA, SDA]
    assert int(remaps[0, 6]) == SDA + 1 | (SDA + 1) << 32
    assert source.losses == []


def test_losses_are_gaps_of_a_cpu_s_numbers_unless_lines_were_selected() -> None:
    # GIVEN a text in which CPU 1 has lost five records
    lines = [line(i, " P   N [x]", cpu=i % 2) for i in range(2)]
    lines = [*io_lines(1, 0), *(line(i, " Q   R 8 + 8 [x]", cpu=1) for i in (6, 7, 13))]
    source = source_of(text(*lines, *io_lines(6, 32, time=20_000)))
    # WHEN it is read / THEN there is one window, of that CPU
    events_of(source)
    assert [(w["cpu"], w["count"], w["end"]) for w in source.losses] == [(1, 5, 13_000)]
    # GIVEN what grep left of a text
    lines = [kept for n in range(20) for kept in io_lines(5 * n + 1, 8 * n)]
    kept = [line for line in lines if " Q " in line or " C " in line or " D " in line]
    source = source_of(text(*kept))
    # WHEN it is read / THEN the I/Os are there, no window of loss is made up, and that is told
    trace = Trace(source)
    bios = sum(len(window.bios) for window in trace.lifecycles())
    assert bios == 20
    assert source.losses == []
    assert any("lines were selected" in remark for remark in source.remarks)
    # GIVEN the lines of CPUs 0 and 2
    source = source_of(text(*io_lines(1, 0), *io_lines(1, 8, cpu=2, time=90_000)))
    # WHEN they are read / THEN it says so
    events_of(source)
    assert any("no line of CPU 1" in remark for remark in source.remarks)


def test_the_summary_is_held_against_the_lines() -> None:
    # GIVEN a text with its summary, whole and without some lines
    lines = (DATA / "vda.txt").read_bytes().splitlines(keepends=True)
    summary = (DATA / "vda.summary.txt").read_bytes()
    whole = source_of(b"".join(lines) + summary)
    less = source_of(b"".join(lines[:200] + lines[210:]) + summary)
    # WHEN they are read / THEN the summary is no damage; what does not add up is told
    events = [len(events_of(source)) for source in (whole, less)]
    assert events == [415, 405]
    assert (whole.problems, whole.remarks) == ([], [])
    assert "415 events, of which 405 are here" in less.problems[0]


def test_a_device_gets_the_summary_s_name(tmp_path) -> None:  # type: ignore[no-untyped-def]
    # GIVEN a file with its summary
    path = tmp_path / "x.txt"
    path.write_bytes((DATA / "vda.txt").read_bytes() + (DATA / "vda.summary.txt").read_bytes())
    # WHEN it is opened / THEN the device has a name
    context = Context(open_source(path).header)
    assert context.device_name(254 << 20) == "vda"


@pytest.mark.parametrize(
    "form", [gzip.compress, zstandard.ZstdCompressor().compress, Pipe, 200, 333, 1000, "uncompiled"]
)
def test_a_text_is_the_same_in_every_form(form: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a text, compressed, from a pipe, in blocks that end anywhere in it, also between a remap
    # and its queue, and read by the uncompiled loops
    data = (DATA / "loop1.txt").read_bytes()
    expected = contents(events_of(source_of(data)))
    assert expected.total() == 838
    if isinstance(form, int):
        monkeypatch.setattr(lines_module, "BLOCK_BYTES", form)
    elif form == "uncompiled":
        loops = uncompiled("converters/inputs/line_loops.py")
        monkeypatch.setattr(lines_module, "loops", loops)
    given = form(data) if callable(form) else data
    # WHEN it is read / THEN it is the same
    source = open_source(given if form is Pipe else io.BytesIO(given))
    assert contents(events_of(source)) == expected


def test_damaged_lines_are_told() -> None:
    # GIVEN lines that are cut, with impossible numbers, or no records at all
    lines = [
        *io_lines(1, 8),
        line(6, " Q   R 8 + [dd]"),
        line(7, " Q   R 8 + 99999999999 [dd]"),
        line(8, " Z   R 8 + 8 [dd]"),
        "hello",
    ]
    source = source_of(text(*lines) + b"  8,0    3        9     0.0000")
    # WHEN they are read / THEN the rest is read, and these are counted
    events = events_of(source)
    assert len(events) == 5
    problems = "\n".join(source.problems)
    assert "3 lines of records that are not understood, the first in line 6" in problems
    assert "line 10 has no end" in problems
    assert any("1 lines are no records, the first in line 9: 'hello'" in r for r in source.remarks)


@pytest.mark.parametrize("name", ["completion", "zeros"])
def test_a_damaged_line_does_not_hide_what_text_it_is(name: str, tmp_path: Path) -> None:
    # GIVEN a text in which a completion lost its error number, or another line got zeros
    lines = [line for number in range(1, 100, 5) for line in io_lines(number, 100 * number)]
    if name == "completion":
        lines[4] = lines[4].replace("[0]", "[\ufffd")
    data = text(*lines)
    if name == "zeros":
        data = data.replace(b"    42  Q   R 600", bytes(6) + b"  Q   R 600")
    path = tmp_path / "trace.txt"
    path.write_bytes(data)
    # WHEN it is opened by its path, and as a stream
    for given in (path, io.BytesIO(data)):
        source = open_source(given)
        # THEN all other lines are read
        assert isinstance(source, BlkparseSource)
        assert len(events_of(source)) == len(lines) - 1


def test_text_without_block_events_is_refused() -> None:
    # GIVEN lines of which none is an event that a log has
    for lines in (
        [line(1, " S   R 8 + 8 [dd]")],
        ["  8,0    0        0     0.000001000     0  m   N cfq1 alloced"],
        [line(1, " Q   R 8 + [dd]")],
    ):
        source = source_of(text(*lines))
        # WHEN they are read / THEN it is an error
        with pytest.raises(LogFormatError, match="no block event"):
            events_of(source)


# Layouts of `blkparse -f`: known by their lines, or refused with what is not clear.

IOS = 20
FORMS = {
    "the default head": "{D:>7} {c:2} {s:8} {T:>15} {p:5} {a:>2} {d:>3} {S} + {n} [{C}]",
    "columns": "{T} {p} {a} {d} {S} {n} {C}",
    "commas": "{D}  ,{c},{s},{T},{p},{a},{d},{S},{n},{C}",
    "action first": "{a} {d} {T} {S} + {n}",
    "CPU": "{c} {T} {a} {d} {S} {n}",
    "number": "{D} {s} {T} {a} {d} {S} {n}",
    "error": "{D} {T} {p} {a} {d} {S} + {n} [{e}]",
}


def records(form: str, *more: tuple[str, int, int]) -> bytes:
    """IOS reads of 8 sectors in a form; more: (action, sector, sectors)."""
    found = [(act, 64 * i, 8) for i in range(IOS) for act in "QGIDC"]
    lines = []
    for number, (act, sector, sectors) in enumerate([*found, *more], 1):
        values = {"a": act, "S": sector, "n": sectors, "N": 512 * sectors, "s": number}
        values |= {"D": "8,0", "c": 0, "T": f"0.{number:09d}", "p": 42, "d": "R", "e": 0}
        lines.append(form.format(**values, C="my dd"))
    return text(*lines)


@pytest.mark.parametrize("form", FORMS)
def test_a_layout_that_tells_enough_is_read(form: str) -> None:
    # GIVEN reads, in a layout of -f
    source = source_of(records(FORMS[form]))
    # WHEN they are read / THEN each has its parts; what is not printed is told with what that costs
    trace = Trace(source)
    bios = [window.bios for window in trace.lifecycles()]
    assert sum(map(len, bios)) == IOS
    assert source.problems == []
    assert ("has no sequence number" in "\n".join(source.remarks)) == ("{s" not in FORMS[form])
    assert ("has no error" in "\n".join(source.remarks)) == (form != "error")


def test_layouts_that_tell_less() -> None:
    # GIVEN a remap and a split, whose origin and rest -f does not print
    source = source_of(records(FORMS["the default head"], ("A", 8, 8), ("X", 8, 8)))
    # WHEN they are read / THEN the others are there, no loss is made up, and it is told
    events = events_of(source)
    assert len(events) == 5 * IOS
    assert not set(events.kind.tolist()) & {Kind.A, Kind.X}
    assert source.losses == []
    assert sum("left out: -f does not print" in remark for remark in source.remarks) == 2
    # GIVEN lines that do not have the layout of the others
    source = source_of(records(FORMS["columns"]) + b"0.000000999 odd\n")
    # WHEN they are read / THEN they are counted
    events = events_of(source)
    assert len(events) == 5 * IOS
    assert "1 lines with a time that do not have the layout" in source.problems[0]
    # GIVEN a text without numbers, appended to itself
    once = records(FORMS["columns"])
    source = source_of(once + once)
    # WHEN it is read / THEN the second half is left out, and told
    events = events_of(source)
    assert len(events) == 5 * IOS + 1  # the last line's repetition has the newest time
    assert "earlier times than the lines before" in source.problems[0]


@pytest.mark.parametrize(
    ("form", "what"),
    [
        ("{T}, {p}, {C}, {a}, {S}", "RWBS"),
        ("{T} {a} {d} {S} {N}", "bytes (%N)"),
        ("{T} {a} {d} {S} {n} {e}", "sector (%S)"),
        ("{T} {c} {p} {a} {d} {S} {n}", "bare numbers"),
        ("{T} {T} {a} {d} {S} {n}", "which of 2 columns is the time"),
    ],
)
def test_a_layout_that_is_not_clear_is_refused(form: str, what: str) -> None:
    # GIVEN a layout without what is needed, or in which it could be any of two columns
    # WHEN it is opened / THEN one message says what is not clear, and what to print
    with pytest.raises(LogFormatError, match="layout of -f, which does not tell") as error:
        source_of(records(form))
    assert what in str(error.value)
    assert "print it with blkparse's default format" in str(error.value)


def test_text_of_other_tools_is_not_taken_for_it() -> None:
    # GIVEN text with times and letters
    others = [
        b"dd-42 [000] .... 0.000000001: block_bio_queue: 8,0 R 8 + 8 [dd]\n",
        b"0.000000001 some words\n0.000000002 more words\n",
        text("hello", *io_lines(1, 8))[:3],
    ]
    # WHEN it is opened / THEN it is another format's, or nobody's
    for data in others:
        try:
            source = open_source(io.BytesIO(data))
        except LogFormatError as error:
            assert "blkparse" not in str(error)
        else:
            assert source.header["created_by"] != "blkparse"


# blkparse's text gives what the binary files give that it was printed from.

SETS = ("loop1", "vda", "zram1")
CAPTURES = sorted(p.stem for p in (paths.DATA / "captures").glob("*.txt"))


def run(command: object, *arguments: object) -> str:
    done = CliRunner().invoke(command, list(map(str, arguments)), catch_exceptions=False)  # type: ignore[arg-type]
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.parametrize("name", SETS)
def test_a_text_has_the_records_of_its_set(name: str) -> None:
    # GIVEN a set, and what blkparse printed of it
    text, binary = open_source(DATA / f"{name}.txt"), open_source(DATA / name)
    # WHEN both are read
    printed, recorded = events_of(text), events_of(binary)
    # THEN every word of every record is the same: what no line says was found by the others
    assert contents(printed) == contents(recorded)
    assert (text.problems, text.losses) == ([], [])


@pytest.mark.parametrize("name", CAPTURES)
def test_a_log_s_lines_have_the_records_of_its_files(name: str, tmp_path: Path) -> None:
    # GIVEN a log, written as blktrace's files and as blkparse's lines
    log, files = tmp_path / "a.biotrail", tmp_path / "a.blktrace"
    captures.write_log(log, captures.load(name))
    run(convert.command, log, "-o", files)
    for device in {path.name.partition(".blktrace.")[0] for path in files.iterdir()}:
        binary = events_of(open_source(files / device))
        if not len(binary):
            continue
        # WHEN each device's lines are read / THEN they have the same records
        lines = tmp_path / f"{device}.txt"
        lines.write_text(run(dump.command, "--format", "blkparse", files / device))
        source = open_source(lines)
        assert contents(events_of(source)) == contents(binary)
        assert source.problems == []


def test_thread_names_are_those_of_the_set() -> None:
    # GIVEN a set whose process notes name its threads
    # WHEN the text and the set are read / THEN the threads of its records have the same names
    printed, recorded = (named(open_source(DATA / name)) for name in ("vda.txt", "vda"))
    assert len(printed) == 3
    assert printed < recorded


def named(source: Source) -> set[tuple[int, bytes]]:
    """The threads with names: id, name."""
    events = everything(source)
    rows = events.raw[events.kind == Kind.TASK]
    return {(int(row[1]) & 0xFFFFFFFF, row[2:4].tobytes().rstrip(b"\0")) for row in rows}
