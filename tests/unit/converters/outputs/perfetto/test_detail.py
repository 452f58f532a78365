# SPDX-License-Identifier: Apache-2.0
"""Traces with less detail: the same bios at the same times, in a tenth of the bytes."""

import io
from itertools import pairwise
from pathlib import Path

import pytest

from biotrail.converters.outputs.perfetto.convert import convert
from biotrail.converters.outputs.perfetto.names import Detail, Options
from biotrail.converters.outputs.perfetto.packets.ranking import DETAILED
from biotrail.converters.pipeline import Trace
from tests.support import captures, cut_logs
from tests.support.cli_runner import Cli
from tests.support.paths import ROOT
from tests.support.perfetto_check import Read, Slice, read

SAMPLE = ROOT / "biotrail" / "data" / "demo.biotrail"
MARKS = {"certainty", "status", "open_at_end", "end_not_seen", "begin_not_seen", "begin_cut", "own"}
MARKS.add("doubtful")


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
    full = read(converted(cli, tmp_path, path, "--detail", "full", *options).read_bytes())
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


def plain_log(directory: Path, number: int) -> Path:
    """A log of many I/Os in a short time, of two devices, that grow slower; some fail."""
    ios = [
        cut_logs.Io(i, i * 40_000, i * 40_000 + 9_000, i * 40_000 + 90_000 + i % 9 * 7_000 + i)
        for i in range(number)
    ]
    rows = sorted((e for io in ios for e in cut_logs.events(io)), key=lambda e: int(e["ns"]))
    return captures.write_log(directory / "log", rows)


def places(trace: Read, category: str) -> dict[tuple[int, int, int, str], Slice]:
    """The slices of a category by track, begin, end and name, which the log makes distinct."""
    return {(s.track, s.start, s.end, s.name): s for s in trace.slices(category)}


def test_the_slowest_are_drawn_in_full_and_the_others_in_brief(cli: Cli, tmp_path: Path) -> None:
    # GIVEN more I/Os of a device and operation than have all arguments, in several windows
    log = plain_log(tmp_path, 6000)
    context, found = Trace(log).context, {}
    for detail in (Detail.FULL, Detail.STANDARD):
        out = io.BytesIO()
        convert(Trace(log).lifecycles(3000), context, out, options=Options(detail=detail))
        found[detail] = read(out.getvalue())
    for category in ("bio", "request"):
        full, standard = (places(found[d], category) for d in (Detail.FULL, Detail.STANDARD))
        # WHEN it is drawn by default THEN the same slices are there
        assert list(standard) == list(full)
        groups: dict[tuple[object, ...], list[Slice]] = {}
        for s in full.values():
            key = s.args["device"], s.name, s.args["status"] != "OK"
            groups.setdefault(key, []).append(s)
        slowest = {
            (s.track, s.start, s.end, s.name)
            for group in groups.values()
            for s in sorted(group, key=lambda s: -s.dur)[:DETAILED]
        }
        assert DETAILED < len(slowest) < len(full) - DETAILED
        for place, s in full.items():
            drawn = standard[place]
            whole = len(drawn.args) > len({"number", "status", "certainty"})
            # AND the slowest have everything
            assert whole or place not in slowest
            if whole:
                assert (drawn.args, drawn.children) == (s.args, s.children)
                continue
            # AND the others their number, and what is out of the usual
            usual = {"number"} if category == "bio" else set()
            odd = {k for k, ok in (("status", "OK"), ("certainty", "exact")) if s.args[k] != ok}
            assert set(drawn.args) == usual | odd
            assert drawn.args.items() <= s.args.items()
            assert drawn.children == (s.children if category == "bio" else [])
        briefs = sum(len(s.args) < len(full[place].args) for place, s in standard.items())
        assert briefs > len(full) // 4


def test_a_small_log_is_drawn_in_full(cli: Cli, tmp_path: Path) -> None:
    # GIVEN a log of a few hundred I/Os / WHEN it is drawn by default THEN nothing is left out
    log = captures.write_log(tmp_path / "log", captures.load("partial-completion-error-loop"))
    full = converted(cli, tmp_path, log, "--detail", "full")
    standard = converted(cli, tmp_path, log, "--detail", "standard")
    for category in ("bio", "request"):
        mine, whole = (read(p.read_bytes()).slices(category) for p in (standard, full))
        assert [s.args for s in mine] == [s.args for s in whole] != []
        assert [s.children for s in mine] == [s.children for s in whole]


def test_what_a_bio_costs(cli: Cli, tmp_path: Path) -> None:
    # GIVEN many plain I/Os in a short time
    number = 4000
    log = plain_log(tmp_path, number)
    # WHEN they are drawn with less detail THEN each costs as little as docs/perfetto.md says
    sizes = {}
    for detail in ("bios", "stages"):
        for ending in ("", ".gz"):
            out = tmp_path / f"{detail}.pftrace{ending}"
            assert cli("convert", "--detail", detail, log, "-o", out).status == 0
            sizes[detail + ending] = out.stat().st_size / number
    assert sizes["bios"] <= 40 and sizes["stages"] <= 120
    assert sizes["bios.gz"] <= 17 and sizes["stages.gz"] <= 30


def test_detail_is_of_perfetto_traces(cli: Cli, tmp_path: Path) -> None:
    # GIVEN another output / WHEN less detail is asked for THEN that is wrong usage
    done = cli("convert", "--detail", "bios", SAMPLE, "-o", tmp_path / "x.blktrace")
    assert (done.status, "--detail is for Perfetto" in done.err) == (2, True)
