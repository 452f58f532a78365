# SPDX-License-Identifier: Apache-2.0
"""Traces with less detail: the same bios at the same times, in a tenth of the bytes."""

from itertools import pairwise
from pathlib import Path

import pytest

from tests.support import captures, cut_logs
from tests.support.cli_runner import Cli
from tests.support.paths import ROOT
from tests.support.perfetto_check import Read, read

SAMPLE = ROOT / "biotrail" / "data" / "demo.biotrail"
MARKS = {"certainty", "status", "open_at_end", "end_not_seen", "begin_not_seen", "begin_cut", "own"}


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(capsys)


def converted(cli: Cli, directory: Path, log: Path, *options: str) -> Path:
    out = directory / f"{'-'.join(options).strip('-') or 'full'}.pftrace"
    done = cli("convert", *options, log, "-o", out)
    assert done.status == 0, done.err
    return out


def bars(trace: Read) -> list[tuple[int, int, str]]:
    return sorted((s.start, s.end, s.name) for s in trace.slices("bio"))


@pytest.mark.parametrize("log", ["sample", "cut", "failed"])
def test_less_detail_draws_the_same_bios(cli: Cli, tmp_path: Path, log: str) -> None:
    # GIVEN a log, a part of one, and one with an error
    path, options = SAMPLE, ()
    if log == "cut":
        options = ("--from", "1s", "--to", "1.5s")
    if log == "failed":
        path = captures.write_log(tmp_path / "log", captures.load("partial-completion-error-loop"))
    full = read(converted(cli, tmp_path, path, *options).read_bytes())
    stages = read(converted(cli, tmp_path, path, "--detail", "stages", *options).read_bytes())
    bios = read(converted(cli, tmp_path, path, "--detail", "bios", *options).read_bytes())
    # WHEN it is drawn with less detail THEN the bios are the same
    assert bars(full) == bars(stages) == bars(bios)

    # AND so are the stages, where these are wanted
    def inner(trace: Read) -> list[tuple[int, int, str]]:
        return sorted((c.start, c.end, c.name) for s in trace.slices("bio") for c in s.children)

    assert inner(stages) == inner(full)
    assert inner(bios) == []
    # AND counters, with the highest level of each millisecond where the others tell more
    for name in ("queued", "in device") if log != "failed" else ():
        assert stages.counter(name) == bios.counter(name)
        fine = full.counter(name)
        for (at, value), (until, _) in pairwise(bios.counter(name)):
            before = [level for time, level in fine if time <= at][-1:]
            within = [level for time, level in fine if at < time < min(until, at + 1_000_000)]
            assert value in before or value >= max(before + within)

    # AND what is not to be taken as whole says so, as before; nothing else is said
    def marks(trace: Read) -> list[tuple[object, ...]]:
        found = []
        for s in trace.slices("bio"):
            told = {k: v for k, v in s.args.items() if k in MARKS}
            if told.get("certainty") == "exact":
                del told["certainty"]
            if told.get("status") == "OK":
                del told["status"]
            found.append((s.start, s.end, sorted(told.items())))
        return sorted(found, key=repr)

    assert marks(stages) == marks(bios) == marks(full)
    assert {name for s in bios.slices("bio") for name in s.args} <= MARKS
    # AND there are no requests
    assert bios.slices("request") == stages.slices("request") == []


def test_what_a_bio_costs(cli: Cli, tmp_path: Path) -> None:
    # GIVEN many plain I/Os in a short time
    number = 4000
    ios = [
        cut_logs.Io(i, i * 40_000, i * 40_000 + 9_000, i * 40_000 + 90_000) for i in range(number)
    ]
    rows = sorted((e for io in ios for e in cut_logs.events(io)), key=lambda e: int(e["ns"]))
    log = captures.write_log(tmp_path / "log", rows)
    # WHEN they are drawn with less detail THEN each costs as little as docs/perfetto.md says
    sizes = {}
    for detail in ("bios", "stages"):
        for ending in ("", ".gz"):
            out = tmp_path / f"{detail}.pftrace{ending}"
            assert cli("convert", "--detail", detail, log, "-o", out).status == 0
            sizes[detail + ending] = out.stat().st_size / number
    assert sizes["bios"] <= 48 and sizes["stages"] <= 140
    assert sizes["bios.gz"] <= 17 and sizes["stages.gz"] <= 30


def test_detail_is_of_perfetto_traces(cli: Cli, tmp_path: Path) -> None:
    # GIVEN another output / WHEN less detail is asked for THEN that is wrong usage
    done = cli("convert", "--detail", "bios", SAMPLE, "-o", tmp_path / "x.blktrace")
    assert (done.status, "--detail is for Perfetto" in done.err) == (2, True)
