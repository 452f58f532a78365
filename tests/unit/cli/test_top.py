# SPDX-License-Identifier: Apache-2.0
"""biotrail top without a recorder: stretches that add up, a reader that is too slow, options."""

import io
import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console

from biotrail.cli.children.recorder_process import Tee
from biotrail.cli.top import command as top_command
from biotrail.converters.analysis.blame.online import LEFT_OUT
from biotrail.converters.analysis.blame.tree import Waited
from biotrail.converters.analysis.distributions.samples import COUNTERS
from biotrail.converters.analysis.figures import as_json
from biotrail.converters.analysis.live.live import MOST_SLOW, LiveTrace
from biotrail.converters.analysis.live.tree import Snapshot, Stretch
from biotrail.converters.analysis.report.report import make_report
from biotrail.converters.inputs import backlog
from biotrail.converters.inputs.backlog import LiveSource
from biotrail.converters.pipeline import Trace
from biotrail.recorder.log import LogReader, LogWriter
from biotrail.recorder.schema.errors import OutputError
from biotrail.text.report.verdict import verdict
from biotrail.text.top import parts, shortened
from tests.support import blame_logs, captures
from tests.support.blame_logs import MS, Io, S
from tests.support.cli_runner import Cli
from tests.support.followed_logs import COST, follow, patient
from tests.support.paths import ROOT, SAMPLE

PATH_LOG = ROOT / "tests" / "data" / "calls" / "ext4-on-loop.biotrail"
DOC = ROOT / "docs" / "top.md"
__all__ = ["patient"]


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("interval", [1, 1_000_000_000])
def test_stretches_add_up_to_the_report(interval: int) -> None:
    # GIVEN a log WHEN it is followed
    found = follow(SAMPLE, interval)
    report = make_report(trace := Trace(SAMPLE), trace.lifecycles(window_events=1))
    # THEN its stretches follow each other, and have together what the report has
    assert [s.number for s in found] == list(range(1, len(found) + 1))
    assert [s.last for s in found] == [False] * (len(found) - 1) + [True]
    assert all(a.now.end_ns == b.now.begin_ns for a, b in itertools.pairwise(found))
    for name in COUNTERS:
        total = sum(s.now.total.bios.group[name] for s in found)
        assert total == report.total.bios.group[name], name
        requests = sum(s.now.total.requests.group[name] for s in found)
        assert requests == report.total.requests.group[name], name
    assert sum(s.now.total.bios.latency.sum for s in found) == report.total.bios.latency.sum
    # AND the last minute is all of a log that is shorter
    minute, whole = found[-1].minute, report.total.bios
    assert minute.total.bios.latency == whole.latency
    assert [(s.stage, s.time) for s in minute.total.bios.stages] == [
        (s.stage, s.time) for s in whole.stages
    ]
    assert {(g.name["process"], g.ios) for g in minute.processes} == {
        (g.name["process"], g.ios) for g in report.processes
    }
    assert found[-1].slowest[0].latency_ns == whole.latency.max
    assert len(found[-1].slowest) == MOST_SLOW
    # AND what is in flight comes out at the report's mean
    for device in report.devices:
        mine = [d.queue for s in found for d in s.devices if d.device == device.device]
        busy = sum(d.active_ns for d in mine)
        assert busy == device.queue.active_ns
        assert max(d.max for d in mine) == device.queue.max


def test_a_reader_that_is_too_slow_gets_the_newest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
        trace = LiveTrace(source)
        source.start()
        source.join()
        waiting = list(source._waiting)
        windows = list(trace.windows())
    # THEN no more waits than there is room for, and the newest does
    assert 0 < len(waiting) < len(chunks)
    assert waiting[-1].offset == chunks[-1].offset
    # AND what is missing is counted, and a window for the model
    assert source.skipped_parts == len(chunks) - len(waiting)
    assert len(source.damaged) == source.skipped_parts
    assert source.skipped_ns == sum(w["end"] - w["start"] for w in source.damaged)
    # AND names that were told in it are known
    assert "dd" in windows[-1].tasks.comm.tolist()


def test_old_loss_windows_are_forgotten_but_counted(tmp_path: Path) -> None:
    # GIVEN a log with many loss windows
    path = tmp_path / "a.biotrail"
    losses = [
        {"start": n, "end": n + 1, "cpu": 0, "level": 0, "kind": 14, "count": 2} for n in range(50)
    ]
    captures.write_log(path, captures.load("fsync-virtio"), losses=losses)
    with path.open("rb") as stream:
        source = LiveSource(stream)
        assert source.lost_records == 100
        # WHEN all but ten are forgotten THEN the count stays
        assert source.forget(10) == (40, 0)
        assert len(source.losses) == 10 and source.lost_records == 100


def test_a_note_that_comes_while_others_are_taken_in_is_not_passed_over() -> None:
    # GIVEN a log with a note, and a reader that adds another while the first is taken in
    trace = Trace(SAMPLE)
    notes = trace.reader.notes
    notes += [("cgroups", {"1": "/first"})]

    class Slow(dict[int, str]):
        def update(self, *paths: Any, **more: Any) -> None:
            super().update(*paths, **more)
            if 2 not in self:
                notes.append(("cgroups", {"2": "/second"}))

    trace.context.cgroups = Slow()
    # WHEN notes are taken in twice
    trace._apply_notes()
    trace._apply_notes()
    # THEN both are known
    assert (trace.context.cgroups[1], trace.context.cgroups[2]) == ("/first", "/second")


def test_notes_are_taken_in_and_forgotten(tmp_path: Path) -> None:
    # GIVEN a log with a note of a cgroup before each chunk
    path = tmp_path / "a.biotrail"
    with path.open("wb") as stream, LogReader(SAMPLE) as reader:
        writer = LogWriter(stream, reader.header)
        for number, chunk in enumerate(reader.chunks()):
            writer.write_note("cgroups", {str(number): f"/{number}"})
            writer.write_chunk(chunk.segments, chunk.clock)
        writer.close({})
    # WHEN it is followed to its end
    with path.open("rb") as stream:
        source = LiveSource(stream)
        trace = LiveTrace(source)
        source.start()
        source.join()
        assert len(source.notes) > number
        for _ in trace.windows():
            pass
    # THEN no note is kept, and what the notes say is known
    assert source.notes == []
    assert {n: trace.context.cgroups.get(n) for n in range(number + 1)} == {
        n: f"/{n}" for n in range(number + 1)
    }


def test_a_recorder_that_breaks_off_is_an_error(tmp_path: Path) -> None:
    # GIVEN a stream whose file cannot be written
    class Full(io.RawIOBase):
        def write(self, data: Any) -> int:
            raise OSError(28, "No space left on device")

    tee = Tee(io.BytesIO(SAMPLE.read_bytes()), Full(), "x.biotrail")  # type: ignore[arg-type]
    # WHEN it is read THEN the message names the file
    with pytest.raises(OutputError, match=r"x\.biotrail: no space left"):
        tee.read(100)


def test_the_tee_keeps_the_log_as_it_is() -> None:
    # GIVEN a log in a stream WHEN it is read through a tee
    kept = io.BytesIO()
    tee = Tee(io.BytesIO(SAMPLE.read_bytes()), kept, "x.biotrail")
    source = LiveSource(tee)  # type: ignore[arg-type]
    source.start()
    source.join()
    tee.drain()
    # THEN the copy is the log to its last byte
    assert kept.getvalue() == SAMPLE.read_bytes()


def drawn(snapshot: Snapshot, height: int | None = None) -> str:
    """The text of a snapshot; height: lines of the screen."""
    console = Console(file=io.StringIO(), width=160, emoji=False, markup=False, highlight=False)
    for part in parts(snapshot, COST, 160, height):
        console.print(part)
    return console.file.getvalue()  # type: ignore[attr-defined,no-any-return]


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("height", [None, 24, 60])
def test_the_text_has_the_figures(height: int | None) -> None:
    # GIVEN the last snapshot of a log
    snapshot = follow(SAMPLE)[-1]
    snapshot.skipped_ns, snapshot.last = 3_000_000_000, False
    # WHEN it is shown
    said = drawn(snapshot, height)
    # THEN devices, stages, processes and slow I/Os are there, and what is wrong
    assert "loop1" in said and "D2C" in said and "demo-" in said
    assert "CANNOT KEEP UP: 3 s" in said and "5 s behind" in said
    assert height is None or len(said.splitlines()) <= max(height, 40)
    # WHEN a device has left and come again, by another number  THEN its operations have one row
    for stretch in (snapshot.now, snapshot.minute):
        stretch.operations += stretch.operations
    assert drawn(snapshot, height) == said


@pytest.mark.usefixtures("patient")
def test_calls_add_up_to_the_report() -> None:
    # GIVEN a log with the path  WHEN it is followed
    found = follow(PATH_LOG)
    report = make_report(trace := Trace(PATH_LOG), trace.lifecycles(window_events=1))
    # THEN its stretches have together the calls that the report has
    for call in report.calls:
        mine = [
            one
            for snapshot in found
            for one in snapshot.now.calls
            if (one.call, one.io) == (call.call, call.io)
        ]
        assert sum(one.count for one in mine) == call.count
        assert sum(one.time.sum for one in mine) == call.time.sum
        assert sum(one.bios for one in mine) == call.bios
    # AND the last minute is all of a log that is shorter, with the slowest calls
    last = found[-1]
    figures = [(one.call, one.count, one.time, one.parts) for one in last.minute.calls]
    assert figures == [(one.call, one.count, one.time, one.parts) for one in report.calls]
    slowest = last.slowest_calls
    assert len(slowest) == MOST_SLOW
    assert slowest[0].duration_ns == max(one.time.max for one in report.calls)
    assert slowest == sorted(slowest, key=lambda one: -one.duration_ns)
    assert (slowest[0].call, slowest[0].process, slowest[0].part) == ("sync", "python3", "runnable")


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("height", [None, 24, 70])
def test_the_text_has_the_slowest_calls(height: int | None) -> None:
    # GIVEN the last snapshot of a log with the path, in which timing ended
    snapshot = follow(PATH_LOG)[-1]
    snapshot.calls_until_ns = snapshot.now.end_ns - 2_000_000_000
    # WHEN it is shown
    said = drawn(snapshot, height)
    # THEN the slowest calls stand beside the devices, and it is said that timing ended
    assert "slowest calls" in said and "to run 12.2 ms" in said
    assert "calls have not been timed for 2 s" in said
    assert height == 24 or "calls/s" in said


def test_options_of_the_path_reach_the_recorder(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN top with options of the path  WHEN it starts the recorder
    given: list[str] = []

    def stop(arguments: list[str]) -> None:
        given.extend(arguments)
        raise OutputError("no recorder here")

    monkeypatch.setattr("biotrail.cli.top.Recorder", stop)
    top = ["--path=call,time", "--call-over", "20ms", "--call-budget", "0"]
    CliRunner().invoke(top_command, top)
    # THEN it has them as its own
    assert {"--path=call,time", "--call-over=20ms", "--call-budget=0"} <= set(given)
    # AND without --path it has none
    given.clear()
    CliRunner().invoke(top_command, [])
    assert not [word for word in given if word.startswith(("--path", "--call"))]


def names_in(value: Any) -> set[str]:
    if isinstance(value, dict):
        return set(value).union(*(names_in(v) for v in value.values()))
    return set().union(*(names_in(v) for v in value)) if isinstance(value, list) else set()


@pytest.mark.usefixtures("patient")
def test_the_json_is_documented() -> None:
    # GIVEN docs/top.md and docs/report.md WHEN a snapshot is told THEN every name in it is there
    text = DOC.read_text() + (ROOT / "docs" / "report.md").read_text()
    text += (ROOT / "docs" / "blame.md").read_text()
    logs = (SAMPLE, None), (PATH_LOG, "owner")
    found = [json.loads(json.dumps(as_json(follow(log, 1, by)[-1]))) for log, by in logs]
    text += "".join(f"`{status}`" for status in ("IOERR",))
    assert not {name for name in names_in(found) if f"`{name}`" not in text}


# With --blame: stretches add up to `blame`, and what is shown.

INTERVAL = 1 * S


def victims(stretch: Stretch) -> dict[str, Waited]:
    assert stretch.blame is not None
    return {one.name: one for one in stretch.blame.victims}


@pytest.mark.usefixtures("patient")
def test_stretches_add_up_to_blame(tmp_path: Path, cli: Cli) -> None:
    # GIVEN a reader beside a writer
    path = blame_logs.write(tmp_path / "a.biotrail", blame_logs.beside_a_writer())
    # WHEN the log is followed
    found = follow(path, INTERVAL, "process")
    # THEN all stretches have together each victim's I/Os and time, and so has the last minute
    told = json.loads(cli("blame", "--by", "process", "--json", path).out)["victims"]
    for one in told:
        mine = [victims(s.now)[one["name"]] for s in found if one["name"] in victims(s.now)]
        assert sum(v.ios for v in mine) == one["ios"]
        assert sum(v.wait_ns for v in mine) == one["wait_ns"]
        assert all(sum(p.wait_ns for p in v.parts) == v.wait_ns for v in mine)
        whole = victims(found[-1].minute)[one["name"]]
        assert (whole.ios, whole.wait_ns) == (one["ios"], one["wait_ns"])


@pytest.mark.usefixtures("patient")
def test_the_text_and_the_json_have_blame(tmp_path: Path) -> None:
    # GIVEN a reader beside a writer, followed
    path = blame_logs.write(tmp_path / "a.biotrail", blame_logs.beside_a_writer())
    last = follow(path, INTERVAL, "process")[-1]
    # WHEN it is shown
    text = drawn(last)
    # THEN the reader's time is there by what it waited for
    app = victims(last.minute)["app"]
    [behind] = [part.wait_ns for part in app.parts if part.culprit == "backup"]
    rows = [one for one in text.splitlines() if not one.startswith("*")]
    [line] = [one for one in rows if "behind backup" in one]
    assert f"{100 * behind / app.wait_ns:.0f} %" in line
    assert "filters" not in text
    # AND on a terminal of any height, too
    assert "own service" in drawn(last, 60)
    assert len(drawn(last, 12).splitlines()) <= 12
    # AND JSON has the parts as `blame` has them
    facts = as_json(last)["minute"]["blame"]
    assert facts["by"] == "process"
    assert facts["everybody_recorded"] is True
    assert facts["left_out"] == dict.fromkeys(LEFT_OUT, 0)
    told = next(one for one in facts["victims"] if one["name"] == "app")
    assert {"kind": "other I/O", "culprit": "backup", "wait_ns": behind} in told["parts"]
    # AND a limit is of victims
    blame = shortened(last, 1).minute.blame
    assert blame is not None and len(blame.victims) == 1


@pytest.mark.usefixtures("patient")
def test_nobody_is_blamed_unless_it_is_asked_for(tmp_path: Path) -> None:
    # GIVEN a log, followed without --blame / THEN JSON says null, and there is no table
    path = blame_logs.write(tmp_path / "a.biotrail", blame_logs.beside_a_writer())
    last = follow(path, INTERVAL)[-1]
    assert as_json(last)["now"]["blame"] is None
    assert "own service" not in drawn(last)


@pytest.mark.usefixtures("patient")
def test_what_is_blamed_for_nothing_is_said(tmp_path: Path) -> None:
    # GIVEN a request of two seconds, and reads beside it
    ios = [Io("app", t * 10 * MS, t * 10 * MS, t * 10 * MS + MS) for t in range(300)]
    ios.append(Io("backup", MS, MS, 2 * S, "W", 64))
    path = blame_logs.write(tmp_path / "a.biotrail", ios)
    # WHEN it is shown / THEN it is said that it is blamed for nothing
    last = follow(path, INTERVAL, "process")[-1]
    assert "1 request of more than a second" in drawn(last)


@pytest.mark.usefixtures("patient")
def test_the_first_sentence_is_that_of_a_report(tmp_path: Path) -> None:
    # GIVEN a reader whose reads take much longer beside a writer
    ios = []
    for at in range(200):
        begin, slow = at * 10 * MS, at % 10 < 4
        ios.append(Io("app", begin, begin + 1000, begin + (6 if slow else 2) * MS))
        if slow:
            ios.append(Io("backup", begin - 1000, begin - 1000, begin + 6 * MS, "W", 2048))
        elif at % 10 == 9:
            ios.append(Io("backup", begin + 3 * MS, begin + 3 * MS, begin + 9 * MS, "W", 2048))
    path = blame_logs.write(tmp_path / "a.biotrail", ios)
    # WHEN the log is followed, with blame and without
    last, plain = (follow(path, INTERVAL, by)[-1] for by in ("process", None))
    # THEN the culprit is in the first sentence where it was asked for
    said = [one.rule for one in verdict(last.report)]
    assert said[0] == "blame" and "main-part" in said
    assert "* 44 % of the time of app's I/O is waiting behind backup's I/O." in drawn(last)
    # AND else the first one is on the stages, with the option that tells more
    [first, *_] = verdict(plain.report)
    assert first.rule == "main-part" and "--path" in first.next
    assert f"* {first.text}." in " ".join(drawn(plain).split())
