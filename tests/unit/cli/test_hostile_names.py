# SPDX-License-Identifier: Apache-2.0
"""Names that processes, users and logs chose: shown and never obeyed, exact for machines.

docs/names.md has the rule. Every command is asked about logs in which everything that can
have a name has a hostile one.
"""

import ast
import csv
import io
import json
import re
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.feather
import pyarrow.parquet
import pytest

from biotrail.recorder.log import LogWriter, Segment
from biotrail.recorder.schema.records import Kind
from biotrail.recorder.schema.strings import GUARDED_BEGINNINGS, guarded, harmless, shown
from tests.support import file_logs, stack_logs
from tests.support.cli_runner import Cli, Done, page_data

NAMES = {
    "bells": "\x01\x07\x08\x7f",
    "escapes": "\x1b[2J\x1b]0;t\x07",
    "lines": "x\nforged\r\n",
    "c1": "\x9b31m\x85\xa0",
    "bidi": "\u202eab\u2066\u2069",
    "invisible": "\ufeff\u200b\u2028\u2029",
    "beyond": "\U000e0041\ue000\U0010ffff",
    "formula": "=cmd|'/C x'!A1",
    "formula-at": "@SUM(1;2)",
    "formula-plus": "+1+2",
    "formula-minus": "-1+2",
    "formula-tab": "\t=1",
    "guarded": "'=1",
    "markup": "[red]x[/red]",
    "backslash": "\\x1b[2J\\n",
    "commas": 'a,b;"c"',
    "bytes": "\udce9t\udcff",
    "long": "long " * 900,
}
"""As Python has file names: what is no UTF-8 is a lone surrogate."""
HOSTILE = pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
SOME = ("escapes", "lines", "c1", "bidi", "bytes", "long")
"""One of each kind that a line of text could be moved by."""
MOST_COMM = 15
MOST_FILE = 200


class Hostile(NamedTuple):
    """A log, and what its names are as UTF-8 has them."""

    path: Path
    comm: str
    file: str
    text: str


CONTAINER, UID = "a1" * 32, "b2" * 16


def _cut(name: str, most: int) -> bytes:
    return name.replace("/", "|").encode("utf-8", "surrogateescape")[:most]


def write(folder: Path, name: str, log_id: str = "7" * 32) -> Hostile:
    """A log in which tasks, files, functions, devices, cgroups, host and command have the name."""
    comm, file = _cut(name, MOST_COMM), _cut(name, MOST_FILE)
    at = stack_logs.START
    records = stack_logs.task(at, 42, comm) + b"".join(file_logs.names(at, 7, b"dir", file))
    for number in range(3):
        _, stack, ended = stack_logs.bio(number, 1000 * (number + 1), 1)
        begin, bio = at + number * 1_000_000, number + 1
        place = {
            "dev": stack_logs.DEV,
            "part": stack_logs.DEV,
            "sector": 8 * bio,
            "cgroup": 1 + number // 2,
        }
        queued = stack_logs.record(Kind.Q, begin, bio=bio, bytes=4096, tid=42, **place)
        records += queued + stack + file_logs.file(begin, bio, 7) + ended
    header = {
        **stack_logs.HEADER,
        "log_id": log_id,
        "created_by": name,
        "host": {"name": name, "os": name, "machine": name},
        "kernel": {"release": name, "version": name},
        "command": ["biotrail", name],
        "devices": [{"dev": stack_logs.DEV, "name": name, "model": name}],
        "filters": {"devices": [{"spec": name}], "comms": [name], "cgroups": [{"path": name}]},
        "absent": {"Q": [name]},
        "rights": {"lacking": [{"what": name, "needs": name}]},
        "files": {},
    }
    stream = io.BytesIO()
    writer = LogWriter(stream, header, level=1)
    frames = {"kernel": {"1": [[name, name, 3], ["do_syscall_64", "", 9]]}, "user": {}}
    writer.write_note("stacks", frames)
    writer.write_note("mounts", {str(stack_logs.DEV): [["/", "/srv"]]})
    writer.write_note("cgroups", {"cgroups": {"1": name, "2": f"/kubepods/pod{UID}/{CONTAINER}"}})
    pod = {"name": name, "namespace": name}
    names = {"containers": {CONTAINER: {"name": name, "runtime": name}}, "pods": {UID: pod}}
    writer.write_note("containers", names)
    called = {"comm": comm.decode("utf-8", "replace"), "title": name}
    writer.write_note("titles", {"42": called})
    end = stack_logs.clock(at + 10**9)
    writer.write_chunk([Segment(0, 0, 0, records)], end)
    writer.close({"clocks": end, "reason": name, "problems": [name]})
    path = folder / f"{_cut(name, 100).decode('utf-8', 'surrogateescape')}.biotrail"
    path.write_bytes(stream.getvalue())
    told = name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    text = re.sub("\ufffd+", "\ufffd", told)
    return Hostile(path, comm.decode("utf-8", "replace"), file.decode("utf-8", "replace"), text)


TEXTS = [
    ("info",),
    ("report",),
    ("report", "--by", "process"),
    ("report", "--by", "file"),
    ("report", "--by", "cgroup"),
    ("report", "--by", "unit"),
    ("report", "--by", "container"),
    ("report", "--by", "pod"),
    ("report", "--by", "namespace"),
    ("slow",),
    ("slow", "--brief"),
    ("slow", "--verbose"),
    ("blame", "--by", "process"),
    ("hist",),
    ("hist", "--heatmap"),
    ("stacks",),
    ("stacks", "--folded"),
    ("dump",),
    ("dump", "--format", "blkparse"),
    ("verify",),
]


def _texts(done: Done) -> str:
    assert "Traceback" not in done.err
    return done.out + done.err


def _harmless(text: str) -> bool:
    """Whether a terminal does nothing but print the text's lines."""
    return all(line.isprintable() for line in text.split("\n"))


@pytest.mark.parametrize("name", [NAMES[key] for key in SOME], ids=SOME)
@pytest.mark.parametrize("arguments", TEXTS, ids=" ".join)
def test_no_text_moves_the_terminal(
    cli: Cli, tmp_path: Path, arguments: tuple[str, ...], name: str
) -> None:
    # GIVEN a log in which everything is called so, and which is called so
    log = write(tmp_path, name)
    # WHEN a person asks about it
    done = cli(*arguments, log.path)
    # THEN each line is printed as a line, and no name made one
    assert done.status == 0, done.err
    assert _harmless(_texts(done))
    assert not re.search("^forged", done.out, re.MULTILINE)


@HOSTILE
def test_what_is_written_is_told_without_obeying(cli: Cli, tmp_path: Path, name: str) -> None:
    # GIVEN a hostile log
    log = write(tmp_path, name)
    (tmp_path / "other").mkdir()
    other = write(tmp_path / "other", name, log_id=name or "x")
    out = tmp_path / "out"
    for arguments in (
        ("convert", log.path, "-o", f"{out}.pftrace"),
        ("convert", log.path, "-o", f"{out}-blktrace", "--format", "blktrace"),
        ("convert", log.path, other.path, "-o", f"{out}-both.pftrace"),
        ("archive", log.path, "-o", f"{out}.parquet"),
        ("archive", log.path, "-o", f"{out}-dataset"),
        ("export", log.path, "-o", f"{out}.csv"),
        ("export", log.path, "-o", f"{out}.iolog"),
        ("slow", log.path, "-o", f"{out}-slow.pftrace"),
        ("report", "--html", f"{out}.html", log.path),
        ("diff", log.path, log.path),
        ("report", f"{log.path}-is-not-there"),
        ("report", "--interval", name, log.path),
        ("convert", "-d", f"-{name}", log.path, "-o", f"{out}-device.pftrace"),
    ):
        # WHEN it is made into something, or cannot be THEN nothing reaches the terminal but lines
        assert _harmless(_texts(cli(*arguments))), arguments
    # AND of a page, nobody is shown what hides or turns characters
    strings: list[str] = []
    _collect(page_data(Path(f"{out}.html")), strings)
    assert all(text.isprintable() for text in strings)
    # AND an iolog has a line for each of its I/Os, and what fio needs besides
    assert len(Path(f"{out}.iolog").read_text("utf-8").split("\n")) == 1 + 2 + 3 + 1


def _collect(value: Any, found: list[str]) -> None:
    if isinstance(value, str):
        found.append(value)
    elif isinstance(value, dict):
        for item in value.values():
            _collect(item, found)
    elif isinstance(value, list):
        for item in value:
            _collect(item, found)


@HOSTILE
def test_json_has_the_exact_name_in_plain_ascii(cli: Cli, tmp_path: Path, name: str) -> None:
    # GIVEN a hostile log
    log = write(tmp_path, name)

    def told(*arguments: str) -> list[Any]:
        done = cli(*arguments, log.path)
        assert done.status == 0, done.err
        assert done.out.isascii()
        assert _harmless(done.out)
        lines = done.out.splitlines() if arguments[0] in ("dump", "export") else [done.out]
        return [json.loads(line) for line in lines]

    # WHEN it is asked for JSON THEN that is ASCII, and reads back as the names are
    assert told("dump", "--format", "json", "--kind", "Q")[0]["comm"] == log.comm
    [slow] = told("slow", "--json")
    assert slow["ios"][0]["io"]["comm"] == log.comm
    assert slow["ios"][0]["io"]["file"].endswith(f"/dir/{log.file}")
    [report] = told("report", "--json")
    assert re.sub("\ufffd+", "\ufffd", report["cgroups"][0]["cgroup"]) == log.text
    assert {row["process"] for row in report["processes"]} == {log.comm}
    assert re.sub("\ufffd+", "\ufffd", report["log"]["host"]) == log.text
    [info] = told("info", "--json")
    assert re.sub("\ufffd+", "\ufffd", info["header"]["command"][1]) == log.text
    assert told("export", "--format", "jsonl")[0]["comm"] == log.comm
    [stacks] = told("stacks", "--json")
    assert stacks["stacks"][0]["comm"] == log.comm
    told("hist", "--json")
    told("verify", "--json")


@HOSTILE
@pytest.mark.parametrize("ending", ["parquet", "arrow"])
def test_tables_have_the_exact_name(cli: Cli, tmp_path: Path, ending: str, name: str) -> None:
    # GIVEN a hostile log WHEN it is exported as a typed table
    log = write(tmp_path, name)
    out = tmp_path / f"bios.{ending}"
    assert cli("export", log.path, "-o", out).status == 0
    # THEN that has the name as it is
    read = pyarrow.parquet.read_table if ending == "parquet" else pyarrow.feather.read_table
    assert set(read(out)["comm"].to_pylist()) == {log.comm}


@HOSTILE
@pytest.mark.parametrize("guard", ["--guard", "--no-guard"])
def test_csv_is_no_formula_and_gives_the_name_back(
    cli: Cli, tmp_path: Path, name: str, guard: str
) -> None:
    # GIVEN a hostile log WHEN its bios and its report are written as CSV
    log = write(tmp_path, name)
    out = tmp_path / "bios.csv"
    assert cli("export", guard, log.path, "-o", out).status == 0
    report = cli("report", "--csv", guard, log.path)
    with open(out, newline="", encoding="utf-8") as stream:
        bios = list(csv.DictReader(stream))
    groups = list(csv.DictReader(io.StringIO(report.out, newline="")))
    # THEN a cell that would be a formula has an apostrophe before it, unless it shall not
    for row in [*bios, *groups]:
        for column, cell in row.items():
            begins = cell[:1] in GUARDED_BEGINNINGS and cell != ""
            assert guard == "--no-guard" or not begins or cell[0] == "'", column
    # AND without that apostrophe it is the name
    told = {row["comm"] for row in bios} | {r["process"] for r in groups if r["process"]}
    plain = {cell.removeprefix("'") for cell in told} if guard == "--guard" else told
    assert plain == {log.comm}
    # AND numbers are numbers
    assert all(int(row["latency_ns"]) > 0 for row in bios)


@HOSTILE
def test_csv_on_a_terminal_is_escaped_as_text_is(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    # GIVEN a hostile log, and a terminal
    log = write(tmp_path, name)
    monkeypatch.setattr(type(sys.stdout), "isatty", lambda _: True)
    for arguments in (("export",), ("report", "--csv")):
        # WHEN CSV is printed there
        done = cli(*arguments, log.path)
        # THEN it is harmless, and a row is a line
        assert done.status == 0
        assert _harmless(done.out)


@pytest.mark.parametrize("name", [NAMES[key] for key in SOME], ids=SOME)
def test_colours_on_a_terminal_are_ours_alone(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    # GIVEN a hostile log, and a terminal
    log = write(tmp_path, name)
    monkeypatch.setattr(type(sys.stdout), "isatty", lambda _: True)
    for arguments in (("slow",), ("hist", "--heatmap")):
        # WHEN lines that have colours are printed there
        done = cli(*arguments, log.path)
        # THEN but for the colours nothing moves the terminal
        assert done.status == 0
        assert "\x1b[" in done.out
        assert _harmless(re.sub(r"\x1b\[\d+(;\d+)*m", "", done.out))


@HOSTILE
def test_otf2_has_the_name_as_its_tools_print_it(cli: Cli, tmp_path: Path, name: str) -> None:
    # GIVEN a hostile log WHEN it is an OTF2 archive
    pytest.importorskip("otf2")
    log = write(tmp_path, name)
    out = tmp_path / "t.otf2"
    done = cli("convert", log.path, "-o", out)
    assert done.status == 0, done.err
    # THEN its definitions hold no control character from the name
    data = next(out.rglob("*.def")).read_bytes()
    for control in ("\x1b[2J", "x\nforged", "\x9b31m", "\u202eab", "\ufeff\u200b"):
        assert control.encode() not in data


def test_names_that_differ_look_different_in_any_language() -> None:
    # GIVEN names that a careless escaper makes the same
    names = ["\x1b", "\\x1b", "\\\\x1b", "\n", "\\n", "\u202e", "\\u202e", "\U000e0041", "\x85"]
    # THEN each is shown in another way, and can be read back
    assert len({shown(name) for name in names}) == len(names)
    for name in names:
        assert ast.literal_eval(f"'{shown(name)}'") == name
    # GIVEN names without anything hidden THEN they are shown as they are
    for name in ("postgres: wal", "größe", "データ", "имя", "a[b]", "\ufffd", "🙂"):
        assert shown(name) == harmless(name) == guarded(name) == name
    # AND what was shown before is not escaped twice
    assert harmless(shown("a\x1b\\") + "\n") == "a\\x1b\\\\\n"


@HOSTILE
def test_guarding_can_be_undone(name: str) -> None:
    cell = guarded(name)
    assert (cell[1:] if cell[0] == "'" else cell) == name


def test_top_and_tables_show_names_and_no_markup() -> None:
    # GIVEN a table as every command prints them, and names with escapes and with markup
    from rich.console import Console

    from biotrail.text.columns import Column, Screen, block, table

    out = io.StringIO()
    screen = Screen(file=out, width=80, markup=False, highlight=False, force_terminal=False)
    assert isinstance(screen, Console)
    screen.print(table("a\x1b[2Jtitle", [Column("head")], [["[red]x\x1b[2J\u202e"]], 80))
    screen.print("one line\nand no other [red]")
    screen.print(block(["first\n", "second"]))
    # THEN they are shown, one line each
    lines = [line.strip() for line in out.getvalue().splitlines()]
    assert "[red]x\\x1b[2J\\u202e" in lines
    assert "one line\\nand no other [red]" in lines
    assert lines[-2:] == ["first\\n", "second"]
    assert _harmless(out.getvalue())


def test_a_trace_has_the_exact_names(cli: Cli, tmp_path: Path) -> None:
    # GIVEN a log of hostile names WHEN it is converted for Perfetto
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

    log = write(tmp_path, "\x1b[2J\u202ex")
    assert cli("convert", log.path, "-o", tmp_path / "t.pftrace").status == 0
    trace = Trace()
    trace.ParseFromString((tmp_path / "t.pftrace").read_bytes())
    # THEN its strings, which have their length before them, are the names
    names = {p.track_descriptor.name for p in trace.packet if p.HasField("track_descriptor")}
    assert log.text in " ".join(names)
