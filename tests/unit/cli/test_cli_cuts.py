# SPDX-License-Identifier: Apache-2.0
"""Cuts on the command line: one set of options, one meaning, clear words where they fail."""

import gzip
import json
import subprocess
import sys
from bisect import bisect_right
from pathlib import Path

import pytest

from tests.support import captures, cut_logs
from tests.support.cli_runner import Cli
from tests.support.cut_logs import MS, S
from tests.support.paths import ROOT
from tests.support.perfetto_check import read

DAY = "2026-09-21"
SECONDS = 40


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty seconds and some more; it began at 2026-09-21 14:13:20 UTC."""
    path = tmp_path_factory.mktemp("cuts") / "known.biotrail"
    cut_logs.write(path, SECONDS)
    return path


def sectors(cli: Cli, *arguments: str | Path) -> list[int]:
    """Of the Q records that `dump` prints."""
    done = cli("dump", "--format", "json", "--kind", "Q", *arguments)
    assert done.status == 0, done.err
    return [json.loads(line)["sector"] for line in done.out.splitlines()]


def queued(begin: int, end: int) -> list[int]:
    return [io.sector for io in cut_logs.all_ios(SECONDS) if begin <= io.queue < end]


LAST = 40 * S
"""The log's end: that of the last second with an event."""


@pytest.mark.parametrize(
    ("options", "begin", "end"),
    [
        (("--from", "10s", "--to", "12.5"), 10 * S, 12_500 * MS),
        (("--from", "39s"), 39 * S, 100 * S),
        (("--to", "250ms"), 0, 250 * MS),
        (("--from", "last 15s"), LAST - 15 * S + 1, 100 * S),
        (("--from", "-15s", "--to", "last 14s"), LAST - 15 * S + 1, LAST - 14 * S + 1),
        (("--around", "20s"), 19 * S, 21 * S),
        (("--around", "20s", "--window", "500ms"), 19_750 * MS, 20_250 * MS),
        (("--from", "14:13:30", "--to", "14:13:31.5"), 10 * S, 11_500 * MS),
        (("--from", "14:13", "--to", "14:13:21"), 0, S),
        (("--from", f"{DAY}T14:13:30Z", "--to", f"{DAY} 14:13:31"), 10 * S, 11 * S),
        (("--around", f"{DAY}T16:13:40+02:00", "--window", "1s"), 19_500 * MS, 20_500 * MS),
    ],
)
def test_times_can_be_said_in_many_ways(
    cli: Cli, log: Path, options: tuple[str, ...], begin: int, end: int
) -> None:
    # GIVEN a log of known I/O / WHEN a time of it is asked for THEN that is what comes
    assert sectors(cli, *options, log) == queued(begin, end)


OUTSIDE = (("--from", "40.1s"), ("--from", "60s", "--to", "61s"), ("--to", "14:13:00"))


@pytest.mark.parametrize(
    "command", ["convert", "report", "blame", "hist", "slow", "dump", "stacks"]
)
@pytest.mark.parametrize("options", OUTSIDE)
def test_times_outside_the_log_name_its_own(
    cli: Cli, log: Path, tmp_path: Path, command: str, options: tuple[str, ...]
) -> None:
    # GIVEN a time when the log had ended, or had not begun / WHEN any command is given it
    target = ("-o", tmp_path / "x.pftrace") if command == "convert" else ()
    done = cli(command, *options, log, *target)
    # THEN one line says what the log covers, and nothing is written
    assert done.status == 1
    assert done.err.startswith("biotrail: error: the log has nothing ")
    assert "it covers 0 s to 40 s (2026-09-21 14:13:20.000000Z to" in done.err
    assert done.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_times_that_only_the_log_can_judge(cli: Cli, log: Path, tmp_path: Path) -> None:
    # GIVEN an end before the beginning, as only the log can tell
    done = cli("report", "--from", "14:13:40", "--to", "10s", log)
    assert (done.status, "no time between 14:13:40 and 10s" in done.err) == (1, True)
    # GIVEN a log that has no clocks / WHEN a wall-clock time is asked for THEN offsets are named
    path = captures.write_log(tmp_path / "log", captures.load("fsync-virtio"), {"clocks": {}})
    done = cli("report", "--from", "14:13:40", path)
    assert (done.status, "the log has no wall clock; give offsets" in done.err) == (1, True)


def test_convert_draws_the_cut_and_tells_how_much_it_read(
    cli: Cli, log: Path, tmp_path: Path
) -> None:
    # GIVEN a log / WHEN a part is converted
    out = tmp_path / "part.pftrace"
    done = cli("convert", "--from", "20s", "--to", "21s", log, "-o", out)
    # THEN it says so
    assert done.status == 0, done.err
    assert "cut: 20 s to 21 s; 7 of 40 chunks read" in done.out
    found = read(out.read_bytes())
    slices = {s.args["sector"]: s for s in found.slices("bio")}
    expected = cut_logs.chosen(list(cut_logs.all_ios(SECONDS)), 20 * S, 21 * S)
    assert set(slices) == set(expected)
    begin, end = captures.BASE_NS + 20 * S, captures.BASE_NS + 21 * S
    for sector, (cut, done_there, _, latency) in expected.items():
        one = slices[sector]
        # AND what crosses an edge is closed there, and marked
        assert one.args.get("open_at_end", False) is not done_there
        assert one.args.get("latency_ns") == latency
        assert ("begin_cut" in one.args or "begin_not_seen" in one.args) is cut
        if "begin_cut" in one.args:
            assert one.start == begin
        if not done_there:
            assert one.end == end - 1
        assert begin <= one.start <= one.end < end
    # AND so does the trace itself
    [facts] = [i.args for i in found.instants() if i.name == "recording"]
    assert facts["cut"] == "20 s to 21 s"


def test_counters_of_a_cut_are_those_of_the_log(cli: Cli, log: Path, tmp_path: Path) -> None:
    # GIVEN the trace of a log, and of a part
    paths = tmp_path / "whole.pftrace", tmp_path / "part.pftrace"
    assert cli("convert", log, "-o", paths[0]).status == 0
    assert cli("convert", "--from", "18.5s", "--to", "20s", log, "-o", paths[1]).status == 0
    whole, part = (read(path.read_bytes()) for path in paths)
    # WHEN the counters are looked at within the part THEN both say the same
    begin, end = (captures.BASE_NS + ns for ns in (18_500 * MS, 20 * S))
    for device in ("loop1 (7:1)", "loop2 (7:2)"):
        for name in ("queued", "in device"):
            found = [trace.counter(f"{device}/{name}") for trace in (whole, part)]
            for at in range(begin + 2 * MS, end - 2 * MS, MS):
                assert value_at(found[0], at) == value_at(found[1], at), (device, name, at - begin)
            assert any(value for _, value in found[1])


def value_at(samples: list[tuple[int, float]], at: int) -> float:
    place = bisect_right(samples, (at, float("inf")))
    return samples[place - 1][1] if place else 0.0


def test_all_choices_together(cli: Cli, log: Path, tmp_path: Path) -> None:
    # GIVEN a log / WHEN everything is chosen at once
    out = tmp_path / "some.pftrace.gz"
    options = ("--from", "5s", "--to", "30s", "-d", "loop1", "--op", "read", "--comm", "post*")
    wish = ("--slower-than", "5ms", "--slowest", "6")
    done = cli("convert", *options, *wish, log, "-o", out)
    assert done.status == 0, done.err
    # THEN that is there which a plain filter gives
    present = cut_logs.chosen(list(cut_logs.all_ios(SECONDS)), 5 * S, 30 * S)
    mine = [
        io
        for io in cut_logs.all_ios(SECONDS)
        if io.sector in present and (io.device, io.op) == ("7:1", "R") and io.task[1] == 100
    ]
    ranked = sorted(mine, key=lambda io: io.queue - min(io.complete, 30 * S))[:6]
    drawn = read(gzip.decompress(out.read_bytes())).slices("bio")
    assert {bio.args["sector"] for bio in drawn} == {io.sector for io in ranked}
    assert f"chosen: 6 of {len(present)} bios" in done.out


def test_reports_are_of_the_cut(cli: Cli, log: Path) -> None:
    # GIVEN a log / WHEN a part is reported on
    said = json.loads(cli("report", "--json", "--from", "10s", "--to", "20s", log).out)
    present = cut_logs.chosen(list(cut_logs.all_ios(SECONDS)), 10 * S, 20 * S)
    known = [what[3] for what in present.values() if what[3] is not None]
    # THEN all counts, bytes and latencies are those of a plain filter
    total = said["total"]
    assert total["ios"] == len(present)
    assert total["bytes"] == 4096 * len(present)
    assert total["failed"] == sum(what[2] for what in present.values())
    assert (total["latency"]["count"], total["latency"]["sum_ns"]) == (len(known), sum(known))
    assert total["latency"]["max_ns"] == max(known)
    assert said["time"]["span_ns"] == 10 * S
    assert said["cut"] == {"cut": "10 s to 20 s"}
    # AND the histogram has the same
    hist = json.loads(cli("hist", "--json", "--from", "10s", "--to", "20s", log).out)
    assert sum(h["count"] for h in hist["histograms"]) == len(known)
    # AND the text tells what was read
    text = cli("report", "--from", "10s", "--to", "20s", "--failed", log).out
    assert "cut: 10 s to 20 s; 16 of 40 chunks read" in text
    assert "chosen: " in text


def test_slow_and_diff_take_cuts(cli: Cli, log: Path) -> None:
    # GIVEN a log / WHEN its slow I/Os of a time are asked for
    found = json.loads(cli("slow", "--json", "--from", "10s", "--to", "20s", "--top", "3", log).out)
    present = cut_logs.chosen(list(cut_logs.all_ios(SECONDS)), 10 * S, 20 * S)
    # THEN these are the slowest of those whose beginning is in it
    ios = [io for io in cut_logs.all_ios(SECONDS) if io.sector in present and io.queue >= 10 * S]
    ranked = sorted(ios, key=lambda io: io.queue - min(io.complete, 20 * S))[:3]
    assert [one["io"]["sector"] for one in found["ios"]] == [io.sector for io in ranked]
    # AND two parts of one log can be compared
    done = cli("diff", "--from", "10s", "--to", "20s", "-d", "loop1", "--json", log, log)
    assert done.status == 0, done.err
    assert [d["device_a"] for d in json.loads(done.out)["devices"]] == ["loop1"]


def test_standard_input_is_read_through(log: Path, tmp_path: Path) -> None:
    # GIVEN a log in a pipe / WHEN parts are cut out, which need it once, its end, or it twice
    for options in (("--from", "10s", "--to", "12s"), ("--from", "last 20s"), ("--slowest", "5")):
        out = [tmp_path / f"{options[-1]}-{name}.pftrace" for name in ("file", "pipe")]
        base = [sys.executable, "-m", "biotrail.cli.main", "convert", *options]
        subprocess.run([*base, str(log), "-o", str(out[0])], cwd=ROOT, check=True, stdout=-3)
        subprocess.run(
            [*base, "-", "-o", str(out[1])], cwd=ROOT, check=True, input=log.read_bytes(), stdout=-3
        )
        # THEN the same comes of it as from the file
        assert out[0].read_bytes() == out[1].read_bytes(), options


def test_files_for_blkparse_and_otf2_can_be_cut(cli: Cli, log: Path, tmp_path: Path) -> None:
    # GIVEN a log / WHEN blktrace's files are made of a part
    out = tmp_path / "x.blktrace"
    done = cli("convert", "--from", "10s", "--to", "11s", log, "-o", out)
    # THEN they hold its records
    assert done.status == 0, done.err
    total = sum(len(io.times) for io in cut_logs.all_ios(SECONDS))
    records = int(next(x for x in done.out.splitlines() if "for blkparse" in x).split()[0])
    assert 0 < records < total / 10
    # AND I/Os cannot be chosen among records
    done = cli("convert", "--slowest", "5", log, "-o", tmp_path / "y.blktrace")
    assert (done.status, "hold records" in done.err) == (2, True)
    # GIVEN a log / WHEN a part becomes an archive THEN the archive is made
    pytest.importorskip("_otf2", reason="needs the otf2 package")
    done = cli("convert", "--from", "10s", "--to", "12s", log, "-o", tmp_path / "x.otf2")
    assert done.status == 0, done.err


def test_blktrace_data_take_cuts(cli: Cli) -> None:
    # GIVEN blktrace's files, which have no index / WHEN a time is cut out THEN it is that time's
    source = ROOT / "tests" / "data" / "blktrace" / "vda"
    whole = json.loads(cli("report", "--json", source).out)
    some = cli("report", "--json", "--from", "2.25s", source)
    assert some.status == 0, some.err
    assert 0 < json.loads(some.out)["total"]["ios"] < whole["total"]["ios"]
    done = cli("report", "--from", "1h", source)
    assert (done.status, "the log has nothing from" in done.err) == (1, True)


def test_dump_names_threads_whose_names_were_told_before(cli: Cli, log: Path) -> None:
    # GIVEN a log that told its names once / WHEN records of later are printed THEN they have names
    lines = cli("dump", "--format", "json", "--from", "30s", "--to", "31s", log).out.splitlines()
    names = {row["comm"] for row in map(json.loads, lines) if row["kind"] == "Q"}
    assert names == {comm for _, _, comm in cut_logs.TASKS}
