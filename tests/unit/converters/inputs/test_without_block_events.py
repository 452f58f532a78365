# SPDX-License-Identifier: Apache-2.0
"""A recording without block events is refused in the same words, whatever the format."""

import io
from pathlib import Path

import pytest

from biotrail.converters.inputs.opening import open_source
from biotrail.recorder.schema.errors import LogFormatError
from tests.support import blktrace_records as blktrace
from tests.support import trace_dat
from tests.support.cli_runner import Cli
from tests.support.paths import DATA
from tests.support.perf_files import Perf
from tests.support.system_traces import SystemTrace

SCHED = (
    "# tracer: nop\n#\n"
    "              sh-500     [000] d..2.    10.000000: sched_switch: prev_comm=sh prev_pid=500 "
    "prev_prio=120 prev_state=S ==> next_comm=dd next_pid=501 next_prio=120\n"
    "              dd-501     [000] d..2.    10.000200: sched_switch: prev_comm=dd prev_pid=501 "
    "prev_prio=120 prev_state=S ==> next_comm=sh next_pid=500 next_prio=120\n"
)
ROUND = Perf().record(68, b"")
"""PERF_RECORD_FINISHED_ROUND."""


def _trace_dat(version: int) -> bytes:
    contents = trace_dat.contents_of(DATA / "ftrace" / "small.dat")
    others = [text.replace("name: block_", "name: other_") for text in contents.formats["block"]]
    formats = contents.formats | {"block": others}
    return trace_dat.trace_dat(contents.changed(formats=formats, version=version, codec="none"))


def _perfetto() -> bytes:
    trace = SystemTrace()
    trace.events(0, [(5, 42, "sched_waking", {"comm": "a", "pid": 1})])
    return trace.bytes()


def _blktrace() -> bytes:
    return blktrace.record(blktrace.MESSAGE, 5, pdu=b"throttled")


RECORDINGS = {
    "text": (SCHED.encode(), "trace-cmd record -C mono -e block", "sched_switch 2"),
    "trace.dat, version 6": (_trace_dat(6), "trace-cmd record -C mono -e block", "other_"),
    "trace.dat, version 7": (_trace_dat(7), "trace-cmd record -C mono -e block", "other_"),
    "perf, of others": (
        Perf(names=("sched_switch",)).file([ROUND]),
        "perf record -a -e 'block:*'",
        "sched_switch",
    ),
    "perf, while nothing happened": (Perf().file([ROUND]), "perf record -a -e 'block:*'", ""),
    "perf, from a pipe": (Perf().pipe([ROUND]), "perf record -a -e 'block:*'", ""),
    "Perfetto": (_perfetto(), 'ftrace_events: "block/*"', ""),
    "blktrace": (_blktrace(), "blktrace -d DEVICE", ""),
}
"""By format: the recording, how block events are recorded, and what it has instead."""


@pytest.mark.parametrize("form", RECORDINGS)
def test_it_is_refused_in_the_same_words(form: str) -> None:
    # GIVEN a valid recording without block events
    data, record, held = RECORDINGS[form]
    # WHEN it is read
    with pytest.raises(LogFormatError) as error:
        list(open_source(io.BytesIO(data)).parts())
    # THEN the error says so, what it has, and how they are recorded
    said = str(error.value)
    assert "the stream: has no block events" in said
    assert "so there is no I/O in it: record them with" in said
    assert record in said
    assert held in said
    assert "docs/inputs.md" in said


@pytest.mark.parametrize("form", ["text", "perf, while nothing happened", "blktrace"])
@pytest.mark.parametrize(
    "command",
    [
        ("info",),
        ("info", "--json"),
        ("report",),
        ("report", "--json"),
        ("report", "--html", "page.html"),
        ("slow",),
        ("hist",),
        ("dump",),
        ("export", "-o", "out.parquet"),
        ("convert", "-o", "out.pftrace"),
        ("convert", "-o", "out.blktrace"),
        ("export", "-o", "out.csv"),
        ("archive", "-o", "out.parquet"),
    ],
    ids=" ".join,
)
def test_no_command_ends_well(
    form: str,
    command: tuple[str, ...],
    cli: Cli,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # GIVEN a recording without block events
    monkeypatch.chdir(tmp_path)
    Path("recording").write_bytes(RECORDINGS[form][0])
    # WHEN a command reads it
    done = cli(command[0], "recording", *command[1:])
    # THEN it says so, with status 1, and leaves nothing
    assert done.status == 1, done
    assert "recording: has no block events" in done.err
    assert done.out.strip() == ""
    assert [path.name for path in tmp_path.iterdir()] == ["recording"]


def test_one_of_several_is_named(cli: Cli, tmp_path: Path) -> None:
    # GIVEN a recording with I/O, and one without block events
    one, other = tmp_path / "one", tmp_path / "other"
    one.write_bytes((DATA / "ftrace" / "small.trace.txt").read_bytes())
    other.write_text(SCHED)
    # WHEN both are asked for / THEN the one without is named
    for command in ("report", "diff"):
        done = cli(command, one, other)
        assert done.status == 1
        assert f"{other}: has no block events" in done.err


def test_where_all_is_damaged_that_is_said() -> None:
    # GIVEN a text whose lines of block events are all broken
    lines = (DATA / "ftrace" / "small.trace.txt").read_bytes().splitlines()
    text = b"\n".join(line[:75] for line in lines if b"block_rq_issue" in line)
    # WHEN it is read / THEN it is no success
    with pytest.raises(LogFormatError, match="lines of block events is understood"):
        list(open_source(io.BytesIO(text + b"\n")).parts())
