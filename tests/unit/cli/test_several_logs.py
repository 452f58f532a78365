# SPDX-License-Identifier: Apache-2.0
"""Several logs in one command: rotated files are one log, recordings are told apart."""

import csv
import io
import json
import re
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from biotrail.cli.options.recordings import InputRecording, names_beside
from biotrail.converters import pipeline as trace
from biotrail.recorder.host import clocks
from biotrail.recorder.log import Segment
from tests.support import captures, stack_logs
from tests.support.cli_runner import Cli
from tests.support.hosts_logs import DEV, LATENCY, SECOND, Machine

SPAN = (0, 4 * SECOND)
EVERY = SECOND // 4
BORDERS = [EVERY * at for at in range(1, 16)]
BIOS = sorted([*range(1000, 4 * SECOND, 7_000_000), *(border - LATENCY // 2 for border in BORDERS)])
DB1, DB2 = Machine("db1"), Machine("db2", "2" * 32, -77 * SECOND, fast=50e-6, seed=1)


class Renamed(Machine):
    """One whose device has another name."""

    def header(self, true: int, log_id: str, **more: Any) -> dict[str, Any]:
        devices = [{"dev": DEV, "name": "zram7"}]
        return super().header(true, log_id, **{"devices": devices, **more})


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    """A log by itself of what `files` hold."""
    return DB1.write(tmp_path / "whole.biotrail", BIOS, span=SPAN)


class Ticking(Machine):
    """One by whose clocks its recorder ends each file, too."""

    now: dict[str, int]

    def chunks(
        self, bios: Sequence[int], span: tuple[int, int], every: int
    ) -> Iterator[tuple[list[Segment], dict[str, int]]]:
        self.now = self.reading(span[0])
        for segments, reading in super().chunks(bios, span, every):
            yield segments, reading
            self.now = reading


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """A rotated recording of `whole`'s load, with a bio at each border, in no order."""
    machine = Ticking("db1")
    with monkeypatch.context() as patched:
        patched.setattr(clocks, "reading", lambda: machine.now)
        found = machine.write_rotated(tmp_path / "r.biotrail", BIOS, span=SPAN)
    return [*found[5:], *found[:5]]


@pytest.fixture
def hosts(tmp_path: Path) -> tuple[Path, Path]:
    """Logs of two hosts with the same load, the second a second later."""
    later = [at + SECOND for at in BIOS]
    return (
        DB1.write(tmp_path / "a.biotrail", BIOS, span=SPAN),
        DB2.write(tmp_path / "b.biotrail", later, span=(SECOND, 5 * SECOND)),
    )


def capture(tmp_path: Path, name: str, host: str) -> Path:
    header = {"log_id": host.encode().hex().ljust(32, "0"), "host": {"name": host}}
    return captures.write_log(tmp_path / f"{host}.biotrail", captures.load(name), header, chunks=3)


def asked(cli: Cli, *arguments: str | Path) -> Any:
    done = cli(*arguments)
    assert done.status == 0, done.err
    return json.loads(done.out)


def test_a_rotated_recording_is_one_log(cli: Cli, files: list[Path], whole: Path) -> None:
    # GIVEN the files of a rotated recording, and one log that holds the same
    # WHEN each command reads both
    for command, keys in (
        ("report", ("total", "devices", "processes", "cpus", "certainty")),
        ("hist", ("histograms", "left_out")),
        ("info", ("devices", "account")),
        ("slow", ("counts",)),
    ):
        one, other = asked(cli, command, "--json", *files), asked(cli, command, "--json", whole)
        # THEN they say the same of both, and bios at borders are whole
        assert {key: one[key] for key in keys} == {key: other[key] for key in keys}, command
    assert asked(cli, "report", "--json", *files)["total"]["ios"] == len(BIOS)
    certainty = asked(cli, "report", "--json", *files)["certainty"]
    assert {name: number for name, number in certainty.items() if number} == {"exact": len(BIOS)}
    # AND it can be cut, and is named after its first file
    cut = asked(cli, "report", "--json", "--from", "1s", "--to", "2s", *files)
    assert 0 < cut["total"]["ios"] < len(BIOS) / 3
    assert "000001.biotrail and 16 more files, " in cli("info", *files).out


@pytest.mark.parametrize(
    "part",
    [
        ("--from", "1s", "--to", "2s"),
        ("--from", "last 1s"),
        ("--to", "-3s"),
        ("--around", "2.25s", "--window", "10ms"),
        ("--from", "14:13:22", "--to", "14:13:23"),
        ("--from", "1s", "--slower-than", "1us"),
    ],
)
def test_a_part_of_a_rotated_recording_is_that_of_one_log(
    cli: Cli, files: list[Path], whole: Path, part: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN the files of a rotated recording, and one log that holds the same
    margin = SECOND // 10
    monkeypatch.setattr(trace, "MARGIN_NS", margin)
    # WHEN a part of both is reported on
    one, other = (asked(cli, "report", "--json", *part, *of) for of in (files, [whole]))
    # THEN it holds the same
    for key in ("total", "devices", "certainty", "cut"):
        assert one[key] == other[key]
    assert one["total"]["ios"] > 0
    # AND files that are not of that time are not read
    said = " ".join(cli("report", *part, *files).out.split())
    read = re.search(r"; (\d+) of (\d+) chunks read", said)
    assert read is not None
    assert int(read[1]) < int(read[2])


def test_files_that_are_missing_are_said(cli: Cli, files: list[Path]) -> None:
    # GIVEN a rotated recording without one of its files  WHEN it is reported on
    del files[3]
    done = cli("report", *files)
    # THEN that is said
    assert (done.status, "not given: left out" in " ".join(done.out.split())) == (0, True)


def test_report_csv_and_histograms_tell_hosts_apart(cli: Cli, hosts: tuple[Path, Path]) -> None:
    # GIVEN logs of two hosts whose device has one name
    alone = [asked(cli, "report", "--json", log) for log in hosts]
    # WHEN they are reported on together
    told = asked(cli, "report", "--json", *hosts)["recordings"]
    # THEN each has its own figures, with its host
    assert [one["recording"] for one in told] == ["db1", "db2"]
    assert [one["logs"] for one in told] == [[str(log)] for log in hosts]
    for one, own in zip(told, alone, strict=True):
        assert {key: one[key] for key in own} == own
    # AND they stand on one timeline: the second's load began a second later
    begins = [one["timeline"] for one in told]
    apart = begins[1]["begin_ns"] - begins[0]["begin_ns"]
    assert abs(apart - SECOND) <= begins[1]["within_ns"] + 100
    assert begins[0]["within_ns"] == 0
    # GIVEN two hosts  WHEN they are reported on as CSV, and one alone
    both = list(csv.DictReader(io.StringIO(cli("report", "--csv", *hosts).out)))
    alone = list(csv.DictReader(io.StringIO(cli("report", "--csv", hosts[1]).out)))
    # THEN the lines of each are those of it alone, with its host
    assert {row["recording"] for row in both} == {"db1", "db2"}
    mine = [row for row in both if row["recording"] == "db2"]
    assert [{k: v for k, v in row.items() if k != "recording"} for row in mine] == alone
    assert "recording" not in alone[0]
    # GIVEN two hosts  WHEN other commands read them together, and each alone
    for command in ("hist", "info"):
        told = asked(cli, command, "--json", *hosts)["recordings"]
        said = cli(command, *hosts).out
        for one, log in zip(told, hosts, strict=True):
            own = asked(cli, command, "--json", log)
            # THEN each is told as it is alone, below its name
            assert {key: one[key] for key in own} == own, command
            assert f"{one['recording']}: {log} ──" in said


def test_a_reports_text_puts_hosts_beside_each_other(
    cli: Cli, hosts: tuple[Path, Path], files: list[Path]
) -> None:
    # GIVEN two hosts, and a rotated recording of one of them
    said = cli("report", "--by", "op", *hosts).out
    # WHEN they are reported on  THEN one table has the operations of both
    beside = said.split("of all recordings")[1].split("\n\n")[0]
    rows = [line.split()[:3] for line in beside.splitlines()[3:5]]
    assert rows == [["db1", "zram0", "read"], ["db2", "zram0", "read"]]
    by = said.split("By op, of all recordings")[1].splitlines()[1].split()
    assert by[:9] == [*("recording", "operation", "I/Os", "I/O/s", "read", "written"), *by[6:9]]
    assert "total" in by and "share" in by
    # AND each has its own part, and how they were lined up is said
    assert said.index("db1: ") < said.index("kernel") < said.index(f"db2: {hosts[1]}")
    assert "times are those of db1; the others lined up with it:" in said
    # AND two recordings of one boot are told apart by their files
    again = cli("report", hosts[0], *files).out
    assert "db1: a" in again and f"db1: {files[0].stem[:2]}" in again


def test_a_page_for_each_recording(cli: Cli, hosts: tuple[Path, Path], tmp_path: Path) -> None:
    # GIVEN two hosts  WHEN their pages are written
    done = cli("report", "--html", tmp_path / "all.html", *hosts)
    # THEN each has one, named after its host, and none is replaced unasked
    assert done.status == 0, done.err
    pages = [tmp_path / f"all-{host}.html" for host in ("db1", "db2")]
    assert all(page.read_text().lower().startswith("<!doctype html>") for page in pages)
    assert cli("report", "--html", tmp_path / "all.html", *hosts).status == 1
    assert cli("report", "--html", tmp_path / "all.html", "-f", *hosts).status == 0


def test_pages_of_like_names_do_not_replace_each_other() -> None:
    # GIVEN labels that are the same once they are fit for a file's name
    given = [
        InputRecording(label, [], partial(trace.Trace, "none")) for label in ("db 1", "db:1", "")
    ]
    # WHEN outputs are named after them  THEN each has its own
    assert names_beside("d/all.html", given) == [
        "d/all-db-1.html",
        "d/all-db-1-2.html",
        "d/all.html",
    ]


def test_stacks_of_each(cli: Cli, tmp_path: Path) -> None:
    # GIVEN logs of two hosts with call stacks, of one command each
    logs = [
        stack_logs.write(
            tmp_path / f"{host}.biotrail",
            [
                stack_logs.task(stack_logs.START, 42, comm.encode()),
                *(one for at in range(bios) for one in stack_logs.bio(at, 100_000, 5)),
            ],
            [{"kernel": {"5": stack_logs.READ}, "user": {}}],
            log_id=host.encode().hex().ljust(32, "0"),
            host={"name": host},
        )
        for host, comm, bios in (("db1", "dd", 3), ("db2", "fio", 2))
    ]
    # WHEN they are shown  THEN each has its part
    said = cli("stacks", *logs).out
    assert said.index(f"db1: {logs[0]} ──") < said.index("dd: 3 bios") < said.index("db2: ")
    assert said.index(f"db2: {logs[1]} ──") < said.index("fio: 2 bios")
    told = asked(cli, "stacks", "--json", *logs)["recordings"]
    assert [(one["recording"], one["bios"]) for one in told] == [("db1", 3), ("db2", 2)]
    # AND a folded line begins with its host
    lines = cli("stacks", "--folded", *logs).out.splitlines()
    assert [line.split(";")[:2] for line in lines] == [["db1", "dd"], ["db2", "fio"]]


def test_the_slowest_of_all(cli: Cli, tmp_path: Path) -> None:
    # GIVEN two hosts with different loads
    names = {"db1": "ext4-journal-on-loop", "db2": "plugged-merge-loop"}
    logs = [capture(tmp_path, name, host) for host, name in names.items()]
    every = [
        (slow["io"]["waited_ns"], host)
        for host, log in zip(names, logs, strict=True)
        for slow in asked(cli, "slow", "--json", "-n", "0", log)["ios"]
    ]
    wanted = sorted(every, reverse=True)[:8]
    assert {host for _, host in wanted} == set(names)
    # WHEN the slowest of both are asked for
    told = asked(cli, "slow", "--json", "-n", "8", *logs)
    said = cli("slow", "--brief", "-n", "8", *logs).out.splitlines()
    # THEN these are the slowest of all, each with its host
    assert [slow["io"]["waited_ns"] for slow in told["ios"]] == [ns for ns, _ in wanted]
    assert sorted((slow["io"]["waited_ns"], slow["recording"]) for slow in told["ios"]) == sorted(
        wanted
    )
    assert all(slow["surroundings"] is not None for slow in told["ios"])
    lines = [line for line in said if line.startswith("#")]
    assert len(lines) == 8 and all("db1: " in line or "db2: " in line for line in lines)
    assert f"the slowest 8 of {len(every)} I/Os" in said[0]
    # AND one trace of them is not to be had
    assert cli("slow", "-o", tmp_path / "x.pftrace", *logs).status == 2


def test_who_has_not_what_was_chosen_is_left_out(cli: Cli, tmp_path: Path) -> None:
    # GIVEN two hosts of which one has the device that is asked for
    other = Renamed("db2", "2" * 32).write(tmp_path / "b.biotrail", BIOS, span=SPAN)
    logs = [DB1.write(tmp_path / "a.biotrail", BIOS, span=SPAN), other]
    # WHEN it is reported on  THEN the other one is left out, and that is said
    done = cli("report", "--json", "-d", "zram0", *logs)
    assert [one["recording"] for one in json.loads(done.out)["recordings"]] == ["db1"]
    assert "db2: " in done.err and "left out: the log has no device" in done.err
    # AND where nobody has it, that is an error
    assert cli("report", "-d", "sdzz", *logs).status == 1


def compared(cli: Cli, *arguments: str | Path) -> Any:
    return asked(cli, "diff", "--json", *arguments)


def test_sides_may_be_rotated_recordings(
    cli: Cli, files: list[Path], hosts: tuple[Path, Path]
) -> None:
    # GIVEN a rotated recording and a log  WHEN they are compared, with and without --
    plain, split = compared(cli, *files, hosts[1]), compared(cli, *files, "--", hosts[1])
    whole = compared(cli, hosts[0], hosts[1])
    # THEN A is the one first named, and figures are those of one log that holds the same
    assert plain["devices"] == split["devices"] == whole["devices"]
    assert plain["a"]["host"] == "db1" and plain["b"]["host"] == "db2"


def test_sides_may_be_several_recordings(cli: Cli, tmp_path: Path) -> None:
    # GIVEN three runs of one load on one host before, and two after
    runs = [
        Machine("db1", str(at) * 32, -(at + 1) * SECOND).write(
            tmp_path / f"{at}.biotrail", [one + at * 1000 for one in BIOS], span=SPAN
        )
        for at in range(5)
    ]
    # WHEN the sides are compared
    told = compared(cli, *runs[:3], "--", *runs[3:])
    # THEN all I/Os of a side count, over all of its time, and nothing differs
    [device] = told["devices"]
    [operation] = device["operations"]
    assert (device["device_a"], device["device_b"]) == ("zram0", "zram0")
    assert (operation["ios_a"], operation["ios_b"]) == (3 * len(BIOS), 2 * len(BIOS))
    rate = next(one for one in operation["figures"] if one["name"] == "ios_per_s")
    assert rate["a"] == pytest.approx(len(BIOS) / 4, rel=0.01)
    assert rate["b"] == pytest.approx(len(BIOS) / 4, rel=0.01)
    assert rate["differs"] is False and rate["changed"] is None
    assert (told["a"]["runs"], told["b"]["runs"]) == (3, 2)
    assert told["a"]["id"].count("+") == 2
    # AND the text says how many logs there are
    assert f"A: {runs[0]} and 2 more logs: db1" in cli("diff", *runs[:3], "--", *runs[3:]).out


def test_hosts_of_a_side_stay_apart(cli: Cli, hosts: tuple[Path, Path], tmp_path: Path) -> None:
    # GIVEN two hosts before and after
    after = (
        Machine("db1", "8" * 32).write(tmp_path / "c.biotrail", BIOS, span=SPAN),
        Machine("db2", "9" * 32).write(tmp_path / "d.biotrail", BIOS[::2], span=SPAN),
    )
    # WHEN the sides are compared, and each host alone
    told = compared(cli, *hosts, "--", *after)
    # THEN each host's device is one of its own, with the rates of it alone
    names = [(one["device_a"], one["device_b"]) for one in told["devices"]]
    assert names == [("db1:zram0", "db1:zram0"), ("db2:zram0", "db2:zram0")]
    for place, device in enumerate(told["devices"]):
        [alone] = compared(cli, hosts[place], after[place])["devices"]
        for mine, own in zip(
            device["operations"][0]["figures"], alone["operations"][0]["figures"], strict=True
        ):
            assert (mine["name"], mine["a"], mine["b"]) == (own["name"], own["a"], own["b"])
    # AND one of them can be chosen
    [one] = compared(cli, "--device-a", "db2:zram0", *hosts, "--", *after)["devices"]
    assert one["device_a"] == "db2:zram0"


def test_which_is_which_must_be_said(cli: Cli, hosts: tuple[Path, Path], tmp_path: Path) -> None:
    # GIVEN three recordings  WHEN nothing says which are A's  THEN that is wrong usage
    third = Machine("db3", "3" * 32).write(tmp_path / "x.biotrail", BIOS, span=SPAN)
    done = cli("diff", *hosts, third)
    assert done.status == 2
    assert "these are 3 recordings: put -- between" in done.err
    for wrong in ((hosts[0],), (hosts[0], "--"), ()):
        assert cli("diff", *wrong).status == 2
    # AND -- before both is what it always was
    assert compared(cli, "--", *hosts) == compared(cli, *hosts)
