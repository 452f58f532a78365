# SPDX-License-Identifier: Apache-2.0
"""record --print without a recorder: a line for each I/O, gaps in their place, options."""

import json
import os
import sys
import threading
from dataclasses import fields
from pathlib import Path
from typing import Any

import click
import pytest

from biotrail.cli import print_ios, record
from biotrail.cli.children.recorder_process import Tail
from biotrail.cli.options.record_arguments import given
from biotrail.cli.record import NOT_PASSED_ON
from biotrail.converters.analysis.slow.io_details import IO
from biotrail.converters.events.context import Context
from biotrail.converters.inputs import backlog
from biotrail.converters.inputs.backlog import LiveSource
from biotrail.converters.pipeline import Trace
from biotrail.recorder.log import LogReader
from biotrail.text.record.lines import HEAD, Text, rwbs
from tests.support import captures
from tests.support.followed_logs import patient
from tests.support.paths import SAMPLE

__all__ = ["patient"]


def follow(path: Path, capsys: pytest.CaptureFixture[str], *, as_json: bool = False) -> list[str]:
    """The lines for a log that is all there before anybody asks."""
    with path.open("rb") as stream:
        source = LiveSource(stream)
        source.start()
        source.join()
        printed = print_ios.print_all(source, own_io=False, as_json=as_json)
    lines = capsys.readouterr().out.splitlines()
    ios = [li for li in lines if li != HEAD and li[:1] != "#" and not li.startswith('{"skipped"')]
    assert printed == len(ios)
    return lines


def bios_of(path: Path) -> list[tuple[int, int, int]]:
    """(sector, bytes, ns from Q to the end) of every bio that ended."""
    found = []
    for window in Trace(path).lifecycles():
        bios = window.bios
        for sector, size, queue, end in zip(
            bios.sector.tolist(),
            bios.bytes.tolist(),
            bios.queue.tolist(),
            bios.complete.tolist(),
            strict=True,
        ):
            if end >= 0:
                found.append((sector, size, end - queue))
    return sorted(found)


@pytest.mark.usefixtures("patient")
def test_each_io_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    # GIVEN a log WHEN it is printed
    lines = follow(SAMPLE, capsys)
    # THEN each bio that ended has a line below the head, in the order of the ends
    assert lines[0].split() == [
        "TIME(s)",
        "COMM",
        "PID",
        "DISK",
        "T",
        "SECTOR",
        "BYTES",
        "QUE(ms)",
        "LAT(ms)",
    ]
    rows = [line.split() for line in lines[1:] if "no completion" not in line]
    assert len(rows) == len(bios_of(SAMPLE))
    ends = [float(row[0]) for row in rows]
    assert ends == sorted(ends) and ends[0] >= 0


@pytest.mark.usefixtures("patient")
def test_json_has_the_same_ios_and_its_names(capsys: pytest.CaptureFixture[str]) -> None:
    # GIVEN a log WHEN it is printed as JSON
    rows = [json.loads(line) for line in follow(SAMPLE, capsys, as_json=True)]
    # THEN it has the log's bios, to the nanosecond
    ended = [row for row in rows if row["latency_ns"] is not None]
    found = sorted((r["sector"], r["bytes"], r["latency_ns"]) for r in ended)
    assert found == [(s, size, ns) for s, size, ns in bios_of(SAMPLE) if ns >= 0]
    # AND the names of `slow --json`
    assert set(rows[0]) - {"time"} <= {field.name for field in fields(IO)}


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize(
    "name", ["fsync-virtio", "partial-completion-error-loop", "split-write-loop"]
)
def test_queue_and_device_add_up_to_the_latency(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # GIVEN a captured sequence WHEN it is printed
    path = tmp_path / "a.biotrail"
    captures.write_log(path, captures.load(name))
    lines = follow(path, capsys)[1:]
    # THEN QUE and LAT are together from Q to C (to what is printed of them)
    expected = sorted(ns / 1e6 for _, _, ns in bios_of(path))
    found = []
    for line in lines:
        cells = line.split(" [")[0].split()
        if cells[0] != "-":
            found.append(sum(float(cell) for cell in cells[-2:] if cell != "-"))
    assert sorted(found) == pytest.approx(expected, abs=0.0011)


def test_errors_losses_and_names_have_their_place_in_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # GIVEN a log of I/O that failed WHEN it is printed THEN the line says how
    path = tmp_path / "a.biotrail"
    captures.write_log(path, captures.load("partial-completion-error-loop"))
    assert any(line.endswith("[IOERR]") for line in follow(path, capsys))
    # GIVEN a log in which records were lost
    path = tmp_path / "a.biotrail"
    base = captures.BASE_NS
    loss = {"start": base, "end": base + 9_000_000, "cpu": 0, "level": 0, "kind": 3, "count": 7}
    captures.write_log(path, captures.load("fsync-virtio"), losses=[loss])
    # WHEN it is printed THEN a line says how many, and when
    lines = follow(path, capsys)
    assert [line for line in lines if line.startswith("# lost 7 events, from 0.000000 to 0.009")]
    # GIVEN a task that calls itself by escapes and a line feed
    path = tmp_path / "a.biotrail"
    events = captures.load("fsync-virtio")
    captures.write_log(
        path, [dict(e, comm="\x1b[2J\nx\u202e") if "comm" in e else e for e in events]
    )
    # WHEN it is printed THEN it is shown, and makes no line
    lines = follow(path, capsys)
    assert all(line.isprintable() for line in lines)
    assert any("\\x1b[2J\\nx\\u202e" in line for line in lines)


@pytest.mark.parametrize("as_json", [False, True])
def test_who_cannot_keep_up_says_what_is_skipped(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    as_json: bool,
) -> None:
    # GIVEN a log of many chunks, and room for a few
    path = tmp_path / "a.biotrail"
    captures.write_log(path, captures.load("fsync-virtio"), chunks=12)
    with LogReader(path) as reader:
        chunks = list(reader.chunks())
    monkeypatch.setattr(backlog, "MOST_WAITING_BYTES", sum(map(backlog._size, chunks)) // 4)
    # WHEN all of it is there before anybody asks
    with path.open("rb") as stream:
        source = LiveSource(stream)
        source.start()
        source.join()
        print_ios.print_all(source, own_io=False, as_json=as_json)
    said = capsys.readouterr()
    # THEN a line in its place says how many and from when to when, and the end how many in all
    kept = len(source._waiting)
    assert kept == 0 and source.skipped_parts > 0
    gaps = [line for line in said.out.splitlines() if "skipped" in line]
    assert len(gaps) == 1
    skipped = chunks[: source.skipped_parts]
    if as_json:
        told = json.loads(gaps[0])["skipped"]
        assert told["begin_ns"] == skipped[0].first_ns and told["end_ns"] == skipped[-1].last_ns
        assert told["ios"] > 0
    else:
        assert gaps[0].startswith("# skipped ") and " from 0." in gaps[0]
    assert "could not keep up" in said.err


def test_columns_are_letters_and_files_only_where_recorded() -> None:
    # GIVEN operations and flags THEN they are written as blk_fill_rwbs does
    context = Context(captures.header())
    for letters in ("R", "W", "WS", "FWFS", "D", "RA", "RM", "WSM"):
        assert rwbs(context, captures.opf_of(letters)) == letters
    context = Context(captures.header())
    assert Text(context, 0).head == [HEAD]
    assert Text(Context(captures.header(files={})), 0).head == [HEAD + " FILE"]


def test_a_reader_that_is_gone_is_found_without_any_io(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN standard output to a pipe
    read, write = os.pipe()
    with os.fdopen(write, "w") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        look = print_ios.while_read()
        look()
        # WHEN its reader is gone THEN that is found before anything is written
        os.close(read)
        with pytest.raises(BrokenPipeError):
            look()


def test_a_tail_ends_with_the_recorder(tmp_path: Path) -> None:
    # GIVEN a file that is being written
    over = threading.Event()
    with (tmp_path / "a").open("wb", buffering=0) as file:
        tail = Tail(file, over.is_set, "a")
        file.write(b"first")
        assert tail.read(100) == b"first"
        # WHEN more comes with the end THEN that is read, and then the end
        file.write(b"last")
        over.set()
        assert (tail.read(2), tail.read(100), tail.read(100)) == (b"la", b"st", b"")


def test_the_recorder_gets_the_options_as_they_were_given(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN options of every form, and a command with options of its own
    found: dict[str, Any] = {}
    arguments = "--print --json -q -f -o F -d vda -d vdb --comm=fio* --op read --duration 10s"
    arguments += " --min-size 64k --children --pid 1 --max-size 1G -- cmd --json -d x"

    def take(**values: Any) -> int:
        found.update(values, given=given(click.get_current_context(), NOT_PASSED_ON))
        return 0

    monkeypatch.setattr(record.command, "callback", take)
    # WHEN they are read
    record.command.main(arguments.split(), standalone_mode=False)
    # THEN the recorder gets those that say what is recorded, and the command apart
    assert sorted(found["given"]) == sorted(
        [
            "--device=vda",
            "--device=vdb",
            "--comm=fio*",
            "--op=read",
            "--duration=10s",
            "--min-size=64k",
            "--children",
            "--pid=1",
            "--max-size=1G",
        ]
    )
    assert found["command"] == ("cmd", "--json", "-d", "x")
