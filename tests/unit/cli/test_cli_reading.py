# SPDX-License-Identifier: Apache-2.0
"""Commands that read a log: from a log, pipe or blktrace's files to what a person reads."""

import io
import json
import os
import re
import shutil
import stat
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import biotrail
from biotrail.cli import convert, dump, info
from biotrail.cli.converting import perfetto
from biotrail.converters.outputs.perfetto.convert import convert as convert_trace
from biotrail.converters.outputs.perfetto.names import STANDARD, Detail, Options
from biotrail.converters.outputs.perfetto.summary import expected
from biotrail.converters.pipeline import Trace
from biotrail.recorder.log import LogReader, LogWriter
from biotrail.recorder.schema.records import BY_LETTER, Kind
from biotrail.text.tallies import loss_lines
from tests.support import captures, paths
from tests.support.cli_runner import Cli
from tests.support.cut_logs import write
from tests.support.path_logs import PathLog
from tests.support.paths import ROOT, SAMPLE
from tests.support.record_command import BIOTRAIL
from tests.support.stack_logs import START
from tests.support.text_layouts import READ
from tests.support.window_loads import SOURCES, shifted

# info, dump and convert: from a log to what a person reads.


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A captured sequence of plugged, merged writes."""
    path = tmp_path / "captured.biotrail"
    captures.write_log(path, captures.load("plugged-merge-loop"))
    return path


def account_of(done: Any) -> dict[str, Any]:
    account: dict[str, Any] = json.loads(done.out)["account"]
    return account


def test_info_accounts_for_every_event(cli: Cli, log: Path) -> None:
    # GIVEN a log of known events
    events = captures.load("plugged-merge-loop")
    # WHEN its account is asked for
    account = account_of(cli("info", "--json", log))
    # THEN each event is in it once, by kind and by reason
    for letter, count in Counter(event["letter"] for event in events).items():
        assert account["kinds"][letter] == count, letter
    assert sum(account["reasons"].values()) == account["events"]
    # GIVEN the sample log WHEN it is looked at in both ways
    said, facts = cli("info", SAMPLE).out, json.loads(cli("info", "--json", SAMPLE).out)
    # THEN both say the same
    account = facts["account"]
    assert f"events        {account['events']:,}" in said
    assert f"{account['bios']['exact']:,} exact" in said
    assert facts["time"]["first"] in said
    unseen = account["completions_not_seen"]
    told = f"the completion of {unseen:,} request" if unseen else "nothing"
    assert facts["lost"] == {}
    assert f"missing       {told}" in said
    for device, kinds in facts["devices"].items():
        assert device in said
        assert sum(kinds.values()) <= account["events"]
    assert facts["header"]["host"]["name"] == "demo"
    assert "schema" not in facts["header"]


def test_info_tells_loss_damage_and_interruption(cli: Cli, tmp_path: Path) -> None:
    # GIVEN the sample with a loss, a flipped bit in its first chunk, and no end
    reader = LogReader(SAMPLE)
    chunks = list(reader.chunks())
    stream = io.BytesIO()
    writer = LogWriter(stream, reader.header)
    for _ in range(2):
        at = stream.tell()
        writer.write_chunk(chunks[0].segments, chunks[0].clock)
    window = {"start": chunks[0].first_ns, "end": chunks[0].last_ns, "cpu": 0, "level": 0}
    writer.write_loss([{**window, "kind": int(BY_LETTER["C"].kind), "count": 5}])
    data = bytearray(stream.getvalue())
    data[at + 100] ^= 1
    path = tmp_path / "bad.biotrail"
    path.write_bytes(data)
    # WHEN it is looked at
    said, facts = cli("info", path), json.loads(cli("info", "--json", path).out)
    # THEN each is named
    assert said.status == 0
    assert "5 events lost while recording: C (complete) 5" in said.out
    assert "interrupted" in said.out
    assert f"chunk at offset {at}" in said.out
    assert facts["lost"] == {"C (complete)": 5}
    assert facts["interrupted"]
    assert facts["damaged"][0]["offset"] == at


def rows(done: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.out.splitlines()]


def test_dump_has_every_record_with_every_field_in_order_of_time(cli: Cli, log: Path) -> None:
    # GIVEN the sample log WHEN it is dumped in both ways
    text = cli("dump", SAMPLE).out.splitlines()
    found = rows(cli("dump", "--format", "json", SAMPLE))
    # THEN each event is a line of both, in order of time
    total = account_of(cli("info", "--json", SAMPLE))["events"]
    assert len(text) == len(found) == total
    times = [row["time_ns"] for row in found]
    assert times == sorted(times)
    assert [float(line.split()[0]) for line in text] == pytest.approx(
        [row["seconds"] for row in found], abs=1e-9
    )
    # AND each record has the fields of its kind
    for letter in {row["kind"] for row in found}:
        row = next(row for row in found if row["kind"] == letter)
        names = {field.name for field in BY_LETTER[letter].fields} - {"head", "reserved"}
        assert names <= set(row), letter
    queue = next(row for row in found if row["kind"] == "Q" and row["bytes"])
    assert queue["bio"].startswith("0xffff")
    assert queue["op"] in ("read", "write")
    assert queue["device"] == "loop1"
    assert {row["comm"] for row in found if row["kind"] == "Q"} >= {"demo-database"}
    # AND of another log, place, operation, sectors and task are in a line
    line = next(text for text in cli("dump", log).out.splitlines() if text.split()[2] == "Q")
    assert " 7:1 loop1 write " in line
    assert " + " in line
    assert line.endswith("]")


def test_dump_chooses(cli: Cli) -> None:
    # GIVEN the sample log
    found = rows(cli("dump", "--format", "json", SAMPLE))
    middle = found[len(found) // 2]["seconds"]
    dump = ("dump", "--format", "json")
    # WHEN kinds, times, devices and numbers are chosen THEN those come and no others
    assert rows(cli(*dump, "--kind", "Q,D", SAMPLE)) == [r for r in found if r["kind"] in "QD"]
    assert rows(cli(*dump, "--limit", "7", SAMPLE)) == found[:7]
    early = rows(cli(*dump, "--to", str(middle), SAMPLE))
    late = rows(cli(*dump, "--from", str(middle), SAMPLE))
    assert early + late == found
    on_loop = rows(cli(*dump, "-d", "loop1", SAMPLE))
    assert on_loop == [r for r in found if r.get("dev") == 7 << 20 | 1]
    assert rows(cli(*dump, "-d", "7:1", SAMPLE)) == on_loop
    # AND a device that is not there is an error
    done = cli(*dump, "-d", "sdx", SAMPLE)
    assert (done.status, "no device sdx" in done.err) == (1, True)


def test_convert_names_its_output_after_the_log(cli: Cli, log: Path) -> None:
    # GIVEN a log WHEN it is converted
    done = cli("convert", log)
    # THEN the trace is beside it, private, and the account is told
    trace = log.with_suffix(".pftrace")
    assert done.status == 0
    assert stat.S_IMODE(trace.stat().st_mode) == 0o600
    assert f"wrote {trace}" in done.out
    assert "exact" in done.out
    assert "nothing is missing" in done.out
    assert "biotrail view" in done.out
    # AND it is not overwritten unless that is asked for
    assert cli("convert", log).status == 1
    assert cli("convert", "-f", log).status == 0


def test_convert_chooses_the_format_by_the_ending(cli: Cli, log: Path, tmp_path: Path) -> None:
    # GIVEN outputs with telling endings
    pytest.importorskip("_otf2", reason="needs the otf2 package")
    # WHEN a log is converted THEN each is what its ending says
    assert cli("convert", log, "-o", tmp_path / "x.perfetto-trace").status == 0
    done = cli("convert", log, "-o", tmp_path / "x.otf2")
    assert done.status == 0, done.err
    assert (tmp_path / "x.otf2" / "traces.otf2").is_file()
    assert cli("convert", log, "-o", tmp_path / "y.dir", "--format", "otf2").status == 0
    assert (tmp_path / "y.dir" / "traces.otf2").is_file()
    assert stat.S_IMODE((tmp_path / "y.dir").stat().st_mode) == 0o700
    assert (tmp_path / "x.perfetto-trace").stat().st_size > 0
    # AND a directory without a telling ending is an OTF2 archive
    assert cli("convert", log, "-o", f"{tmp_path / 'z'}/").status == 0
    assert (tmp_path / "z" / "traces.otf2").is_file()
    assert cli("convert", log, "-o", f"{tmp_path / 'z'}/").status == 1
    # AND operations without an end, as some completions are missing, are counted
    done = cli("convert", SAMPLE, "-o", tmp_path / "sample.otf2")
    assert "6 operations cancelled: no completion is known" in done.out


def test_convert_streams(log: Path) -> None:
    # GIVEN a log on standard input WHEN it is converted to standard output
    done = subprocess.run(
        [*BIOTRAIL, "convert", "-", "-o", "-"],
        cwd=ROOT,
        input=log.read_bytes(),
        capture_output=True,
    )
    # THEN the trace alone is there, and the account on standard error
    assert done.returncode == 0, done.stderr
    assert done.stdout[:1] == b"\x0a"
    assert b"wrote standard output" in done.stderr


def test_a_conversion_that_fails_leaves_nothing(
    cli: Cli, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a converter that fails after it wrote something
    from biotrail.converters.outputs.perfetto import convert as perfetto
    from biotrail.recorder.schema.errors import ConversionError

    def fail(_windows: object, _context: object, out: Any, **_how: object) -> None:
        out.write(b"half")
        raise ConversionError("cannot")

    monkeypatch.setattr(perfetto, "convert", fail)
    before = sorted(os.listdir(log.parent))
    # WHEN a log is converted THEN it fails and no file is left
    assert cli("convert", log).err == "biotrail: error: cannot\n"
    assert sorted(os.listdir(log.parent)) == before


def test_demo_falls_back_to_the_sample(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a machine where nothing can be recorded
    from biotrail.cli import demo
    from biotrail.recorder.schema.errors import ProbeError

    def refuse(*_: object) -> None:
        raise ProbeError("no rights")

    monkeypatch.setattr(demo, "record", refuse)
    # WHEN the demo runs
    done = cli("demo", "--output", tmp_path / "out")
    # THEN it says why, and shows the sample
    assert done.status == 0
    assert "Nothing can be recorded here: no rights" in done.out
    assert "sample log" in done.out
    for word in (
        "demo-database",
        "loop1",
        "read",
        "exact",
        "biotrail view",
        "biotrail report",
        "p99",
    ):
        assert word in done.out
    assert sorted(os.listdir(tmp_path / "out")) == ["demo.biotrail", "demo.pftrace"]
    assert (tmp_path / "out" / "demo.biotrail").read_bytes() == SAMPLE.read_bytes()


def test_doctor_tells_the_remedy(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a machine that lacks something, and one that lacks nothing that matters
    from biotrail.cli import doctor
    from biotrail.recorder.probes.capability import Check

    good = Check("rights", True, "root")
    bad = Check("libbpf", False, "not found", "apt-get install libbpf1")
    mild = Check("tracefs", False, "not mounted", "mount it", required=False)
    monkeypatch.setattr(doctor, "report", lambda: [good, bad])
    monkeypatch.setattr(doctor, "bcc_report", lambda: [mild])
    # WHEN they are looked at THEN status, marks and remedies say so
    done = cli("doctor")
    assert done.status == 1
    assert done.out.splitlines() == [
        "ok  rights   root",
        "NO  libbpf   not found",
        "             → apt-get install libbpf1",
        "no  tracefs  not mounted",
        "             → mount it",
        "",
        "biotrail cannot record here",
    ]
    monkeypatch.setattr(doctor, "report", lambda: [good, mild])
    done = cli("doctor", "--json")
    assert (done.status, json.loads(done.out)["possible"]) == (0, True)


# `info` says from when to when calls were timed, and what that cost.


def said(cli: Cli, path: Path) -> str:
    return " ".join(cli("info", path).out.split())


def path_log(tmp_path: Path, *parts: str, **facts: Any) -> Path:
    made = PathLog()
    made.bio(120, 480, entry=100)
    made.returns(100, 600, blocked=300, queued=1)
    return made.write(tmp_path / "log", (), parts or ("call", "time"), **facts)


OWN = {"cpu_seconds": 0.1, "max_rss_bytes": 1 << 20}
COST = {"calls": 4000, "timed": 3000, "seconds": {"time": 0.011, "wait": 0.002}}


ENDED = {"percent": 7.5, "budget": 5.0}


@pytest.mark.parametrize(
    ("facts", "told"),
    [
        (
            {"end": {"seconds": 1.1, "path": COST, "recorder": OWN}},
            [
                "calls timed from ",
                "), 4,000 calls: about 11 ms of CPU (1.0 %)",
                "path cost CPU time of the programs beside these: time 11 ms, wait 2 ms",
            ],
        ),
        (
            {"notes": {"call_timing": {"until": START + 700_100, **ENDED}}},
            ["(700 µs), then no longer: it took about 7.5 % of a CPU, more than --call-budget 5"],
        ),
        (
            {"notes": {"call_timing": {"until": START - 1, **ENDED}}},
            ["calls not timed in this file: timing ended at "],
        ),
    ],
    ids=["throughout", "for a part", "in an earlier file"],
)
def test_for_how_long_calls_were_timed(
    cli: Cli, tmp_path: Path, facts: dict[str, Any], told: list[str]
) -> None:
    # GIVEN a recording with timed calls, throughout, for a part, or in an earlier file
    # WHEN it is looked at  THEN it says for how long, and how many at what cost, or why no longer
    text = said(cli, path_log(tmp_path, **facts))
    assert [one for one in told if one not in text] == []
    # AND of a log with the call of each bio alone no line is about time
    assert " timed " not in said(cli, path_log(tmp_path, "call"))


# blktrace's files on the command line: read like a log, and written for blkparse.

DATA = paths.DATA / "blktrace"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with the set loop1.blktrace.*."""
    for file in DATA.glob("loop1.blktrace.*"):
        shutil.copy(file, tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _run(command: object, *arguments: str) -> Result:
    return CliRunner().invoke(command, arguments, catch_exceptions=False)  # type: ignore[arg-type]


def test_a_set_is_found_read_and_printed_as_blkparse_does(folder: Path) -> None:
    # GIVEN loop1.blktrace.0 and .1 in the working directory  WHEN the device's name is given
    done = _run(convert.command, "loop1")
    # THEN both files are read, and the trace is named after the device
    assert done.exit_code == 0
    assert (folder / "loop1.pftrace").stat().st_size > 0
    assert "interval" in done.output
    # GIVEN records without kernel pointers  WHEN their account is asked for
    account = json.loads(_run(info.command, "--json", "loop1").output)["account"]
    # THEN nothing is called exact
    assert account["edges"]["exact"] == 0
    assert account["edges"]["interval"] > 0
    # GIVEN a set whose lines blkparse printed
    expected = (DATA / "loop1.txt").read_text().splitlines()
    # WHEN it is dumped in that form
    lines = _run(dump.command, "--format", "blkparse", "--limit", "20", "loop1").stdout
    # THEN they are the same
    assert [line.rstrip() for line in lines.splitlines()] == [
        line.rstrip() for line in expected[:20]
    ]


def test_a_log_becomes_what_blkparse_reads(tmp_path: Path) -> None:
    # GIVEN a log
    log = captures.write_log(tmp_path / "a.biotrail", captures.load("ext4-journal-on-loop"))
    # WHEN it is converted to blktrace's files and these are read again
    done = _run(convert.command, str(log), "-o", str(tmp_path / "a.blktrace"))
    again, trace = Trace(tmp_path / "a.blktrace" / "loop1"), Trace(log)
    for one in (again, trace):
        list(one.lifecycles())
    # THEN they hold the same queue, issue and completion events of that device
    assert done.exit_code == 0
    assert "left out" in done.output
    loop1 = captures.device_number("7:1")
    for letter in "QDC":
        assert again.account.devices[loop1, letter] == trace.account.devices[loop1, letter]
    # GIVEN an output directory that holds something else
    out = tmp_path / "out.blktrace"
    out.mkdir()
    (out / "mine.txt").write_text("keep")
    # WHEN the log is converted there, by force THEN that is refused, and what was there is there
    with pytest.raises(Exception, match="holds other things"):
        _run(convert.command, str(log), "-o", str(out), "--force")
    assert (out / "mine.txt").read_text() == "keep"


@pytest.mark.parametrize(("how", "known"), [("identity", "exact"), ("intervals", "interval")])
def test_one_log_associated_either_way(log: Path, how: str, known: str) -> None:
    # GIVEN a log with kernel pointers WHEN it is associated as asked for
    told = json.loads(_run(info.command, "--json", "--associate", how, str(log)).output)
    # THEN the edges say how they are known
    assert told["account"]["edges"][known] == 16


def test_what_is_no_damage_is_not_called_so(folder: Path) -> None:
    # GIVEN a set without one CPU's file
    (folder / "loop1.blktrace.0").unlink()
    # WHEN its account is asked for
    said = _run(info.command, "loop1").output
    # THEN that is a note, and a loss for all of the recording
    assert "note: loop1: no file for CPU 0" in said
    assert "an unknown number of events lost, in 1 window, on CPU 0" in said
    assert "damaged" not in said
    # AND what lived through it is marked: all I/O
    told = json.loads(_run(info.command, "--json", "loop1").output)
    bios = told["account"]["bios"]
    assert bios["lost"] > 0 and bios["interval"] == bios["ambiguous"] == 0


# A named pipe as a log: everything that a program writes into it is read, once.

COMMANDS = (
    ["info", "--json"],
    ["report", "--json"],
    ["slow", "--json"],
    ["report", "--json", "--slower-than", "1us"],
    ["blame"],
    ["hist"],
    ["dump"],
    ["export", "-o", "-", "--format", "csv"],
)
"""Those with `slow` and `--slower-than` read a log twice."""


@pytest.fixture
def piped(tmp_path: Path) -> Iterator[Callable[[bytes], Path]]:
    """Returns a named pipe into which the bytes are written once it is read."""
    writers = []

    def pipe(data: bytes) -> Path:
        path = tmp_path / f"pipe{len(writers)}"
        os.mkfifo(path)
        writers.append(threading.Thread(target=path.write_bytes, args=(data,), daemon=True))
        writers[-1].start()
        return path

    yield pipe
    for writer in writers:
        writer.join(60)
        assert not writer.is_alive(), "nobody read the pipe to its end"


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_commands_read_a_pipe_as_they_read_a_file(
    cli: Cli, log: Path, piped: Callable[[bytes], Path], command: list[str]
) -> None:
    # GIVEN a log, and a pipe that the same bytes are written into
    pipe = piped(log.read_bytes())
    # WHEN a command reads each
    of_file, of_pipe = cli(*command, log), cli(*command, pipe)
    # THEN it says the same
    assert of_file.status == of_pipe.status == 0
    assert of_pipe.out.replace(str(pipe), "LOG") == of_file.out.replace(str(log), "LOG")


def test_what_cannot_be_read_from_a_pipe_is_named(cli: Cli, piped: Callable[[bytes], Path]) -> None:
    # GIVEN a pipe with something else WHEN it is read
    pipe = piped(b"nothing that is known" * 10)
    done = cli("info", pipe)
    # THEN one line names the pipe and the very first bytes
    assert done.status == 1
    assert str(pipe) in done.err
    assert "b'nothing " in done.err
    # GIVEN a pipe with what begins as Parquet does WHEN it is read
    done = cli("report", piped(b"PAR1" + bytes(100)))
    # THEN the reason is said
    assert done.status == 1
    assert "an archive cannot be read from a pipe" in done.err


def test_the_library_reads_a_pipe_once(log: Path, piped: Callable[[bytes], Path]) -> None:
    # GIVEN a recording opened by a pipe's path WHEN its bios have been read
    recording = biotrail.open(piped(log.read_bytes()))
    assert recording.bios.num_rows == biotrail.open(log).bios.num_rows
    # THEN a second reading is refused, and does not wait for another writer
    with pytest.raises(ValueError, match="can be read once"):
        recording.events  # noqa: B018


# What is said of missing completions: why, what still stands, and what bounds their end.

OF_ITS_OWN = "(the kernel ran no program for it, for a reason of its own: it counted no recursion)"
EITHER = "(the kernel ran no program for it, for recursion or a reason of its own)"


@pytest.mark.parametrize(
    ("header", "count", "why"),
    [
        ({"backend": "core", "counts_skips": True}, 0, OF_ITS_OWN),
        ({"backend": "core", "counts_skips": False}, 0, EITHER),
        ({"backend": "bcc"}, 0, EITHER),
        ({"backend": "core", "counts_skips": True}, 2, "(2 of the events lost were completions)"),
        ({"backend": "blktrace"}, 0, ""),
    ],
)
def test_what_is_said_of_missing_completions(
    tmp_path: Path, header: dict[str, Any], count: int, why: str
) -> None:
    # GIVEN a log of four reads, two completions missing, that programs did or did not record, and
    # that were lost or not
    events = [e for i in range(4) for e in shifted(SOURCES[0], 0, i * 1_000_000, 1)]
    completions = [event for event in events if event["letter"] == "C"]
    rest = [e for e in events if e is not completions[0] and e is not completions[2]]
    now = captures.BASE_NS
    window = {"start": now, "end": now + 5_000_000, "count": count, "cpu": 0, "level": 0}
    losses = [window | {"kind": int(Kind.C)}] if count else []
    log = captures.write_log(tmp_path / "a.biotrail", rest, header, losses=losses)
    trace = Trace(log, "identity")
    list(trace.lifecycles())
    # WHEN its losses are told
    *before, line = loss_lines(trace)
    # THEN the line says how many, why, what becomes of them, what bounds their end, what stands
    reason = f" {why}" if why else ""
    assert line.startswith(f"the completion of 2 requests was not recorded{reason}: closed as lost")
    assert "ended at the latest when the request or its tag was used again" in line
    assert "all other times stand" in line
    assert before == ["2 events lost while recording: C (complete) 2"] * bool(count)
    # AND where that is explained: a heading of that page
    assert line.endswith("(docs/recording.md, Missing completions)")
    assert "\n## Missing completions\n" in (ROOT / "docs" / "recording.md").read_text()


# A CPU that a recording does not tell is shown as not known, in every output.

[WITHOUT_CPU] = [layout for layout in READ if "CPUs" in layout.lacks]


def test_a_cpu_that_is_not_known_is_shown_so_everywhere(cli: Cli, tmp_path: Path) -> None:
    # GIVEN what `perf script` prints without CPUs / WHEN it is read as tables / THEN CPUs are null
    recording = tmp_path / "perf.txt"
    queued = b"              dd   500     9.999999: block:block_bio_queue: 8,0 R 1000 + 8 [dd]\n"
    recording.write_bytes(queued + WITHOUT_CPU.text)
    found = biotrail.open(recording)
    assert set(found.events["cpu"].to_pylist()) == {None}
    assert set(found.bios["cpu"].to_pylist()) == {None}
    # AND in text a "?", in JSON null
    assert all(line.split()[1] == "?" for line in cli("dump", recording).out.splitlines())
    assert len(re.findall(r"µs +\? +[QDC] ", cli("slow", recording).out)) == 3
    events = cli("dump", "--format", "json", recording).out.splitlines()
    assert events and {json.loads(line)["cpu"] for line in events} == {None}
    assert "65535" not in cli("slow", "--json", recording).out
    # AND that is said
    assert "CPUs are not printed" in cli("info", recording).out
    # AND blktrace's data, which has a CPU in any case, has the first
    out = tmp_path / "out.blktrace"
    assert cli("convert", recording, "-o", out).status == 0
    assert [path.name.rpartition(".")[2] for path in out.rglob("*.blktrace.*")] == ["0"]


# What `convert` says before it writes a trace that a browser does not open well.


@pytest.fixture(scope="module")
def large_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("expecting") / "log.biotrail"
    write(path, 300)
    return path


def sizes(text: str) -> list[float]:
    """Bytes that a text names, in its order."""
    units = {"GB": 1e9, "MB": 1e6, "kB": 1e3}
    return [float(n) * units[unit] for n, unit in re.findall(r"([\d.]+) (GB|MB|kB)", text)]


def test_a_large_trace_is_announced(
    cli: Cli, large_log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a log whose trace a browser opens well / WHEN it is converted THEN nothing is said
    assert cli("convert", large_log, "-o", tmp_path / "a.pftrace").err == ""
    # GIVEN a limit that the trace exceeds / WHEN it is converted
    monkeypatch.setattr(perfetto, "LARGE", 50_000)
    done = cli("convert", "-f", large_log, "-o", tmp_path / "a.pftrace")
    # THEN it is said how large it will be, and what makes it smaller, and it is written
    assert done.status == 0
    assert "a browser opens 50 kB comfortably" in done.err
    assert "--detail stages about" in done.err and "--detail bios about" in done.err
    assert "--detail full" not in done.err
    assert all(option in done.err for option in ("--from", "--slower-than", "--max-size", "-d"))
    # AND no less detail is offered where there is none, and a part makes it less
    least = cli("convert", "-f", "--detail", "bios", large_log, "-o", tmp_path / "a.pftrace")
    assert "--detail" not in least.err and "comfortably" in least.err
    # AND nothing is said of files that are small by request
    parts = cli("convert", "--max-size", "1M", large_log, "-o", tmp_path / "b.pftrace")
    assert parts.err == ""


def test_ftraces_events_and_cuts_are_reckoned(
    cli: Cli, large_log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a log / WHEN it is converted, also with ftrace's events of requests, and a tenth of it
    monkeypatch.setattr(perfetto, "LARGE", 1_000)
    plain, more, cut = (tmp_path / f"{name}.pftrace" for name in "abc")
    told = {
        out: sizes(cli("convert", *how, large_log, "-o", out).err)[0]
        for out, how in (
            (plain, ()),
            (more, ("--ftrace",)),
            (cut, ("--from", "60s", "--to", "90s")),
        )
    }
    # THEN the trace is expected to be larger by about what those take, and the cut's a tenth
    taken = more.stat().st_size - plain.stat().st_size
    assert told[more] - told[plain] == pytest.approx(taken, rel=0.3)
    assert told[cut] == pytest.approx(told[plain] / 10, rel=0.3)


def test_of_a_pipe_nothing_is_said(
    large_log: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # GIVEN a log of a large trace that comes by a pipe, of which nobody knows how long it is
    monkeypatch.setattr(perfetto, "LARGE", 1_000)

    class Pipe(io.RawIOBase):
        def __init__(self) -> None:
            self.data = io.BytesIO(large_log.read_bytes())

        def readable(self) -> bool:
            return True

        def readinto(self, buffer: bytearray) -> int:
            return self.data.readinto(buffer)

    from biotrail.cli.options.cuts import Cut, cut_of

    source = cut_of(lambda: Trace(io.BufferedReader(Pipe())), Cut())
    # WHEN it is read / THEN no window is missing, and nothing is said
    windows = perfetto.announced(source, source.trace.lifecycles(), STANDARD)
    assert sum(len(window.bios) for window in windows) == sum(
        len(window.bios) for window in Trace(large_log).lifecycles()
    )
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("detail", list(Detail))
def test_what_is_expected_is_about_what_comes(detail: Detail) -> None:
    # GIVEN a recorded log / WHEN it is drawn THEN its size is about what was expected
    trace, out = Trace(SAMPLE), io.BytesIO()
    windows = list(trace.lifecycles())
    convert_trace(iter(windows), trace.context, out, options=Options(detail=detail))
    ratio = out.tell() / sum(expected(window, Options(detail)) for window in windows)
    # A log as short as this one is drawn nearly in full.
    assert 0.5 < ratio < (4 if detail == Detail.STANDARD else 2.5)
