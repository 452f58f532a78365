# SPDX-License-Identifier: Apache-2.0
"""Perfetto traces of whole logs: their packets, lanes, parts and detail."""

import errno
import gzip
import io
import random
import tracemalloc
from collections import Counter
from itertools import pairwise
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from biotrail.converters.events.tables import Certainty, Stage
from biotrail.converters.outputs.perfetto import writing
from biotrail.converters.outputs.perfetto.columns import DETAILED, FOREVER
from biotrail.converters.outputs.perfetto.convert import convert
from biotrail.converters.outputs.perfetto.names import (
    ARGUMENTS,
    BIO,
    CALL,
    REQUEST,
    SUBMISSION,
    Detail,
)
from biotrail.converters.outputs.perfetto.place import Named
from biotrail.converters.outputs.perfetto.place import places as named_places
from biotrail.converters.outputs.perfetto.writing import LanePool
from biotrail.recorder.schema.errors import OutputError
from tests.support import captures, cut_logs, paths
from tests.support.both_ways import uncompiled
from tests.support.cli_runner import Cli
from tests.support.paths import SAMPLE
from tests.support.perfetto_check import Read, Slice, read
from tests.support.perfetto_make import HEADER, PREFLUSH, WRITE, Scene, bio, context, direct, traced
from tests.support.perfetto_scenes import T, assert_shows, cuts, drawn, scenes, trace_of


@settings(max_examples=80, deadline=None)
@given(scenes(), cuts)
def test_everything_is_drawn_with_all_that_is_known(scene, windows):
    # GIVEN any bios and requests, in windows / WHEN they are converted
    trace, summary = trace_of(scene, windows)
    # THEN the trace is sound (read checks it), and shows each of them
    assert_shows(trace, scene)
    assert (summary.bios, summary.requests) == (len(scene.bios), len(scene.requests))
    assert summary.loss_windows == len(scene.losses) == len(trace.slices("loss"))


@settings(max_examples=60, deadline=None)
@given(scenes(), cuts, st.booleans())
def test_windows_change_nothing_that_is_drawn(scene, windows, keep_open):
    # GIVEN the same load whole and in windows, that may leave out what is under way
    whole, _ = trace_of(scene)
    cut, _ = trace_of(scene, windows, keep_open=keep_open)
    # WHEN both are converted / THEN their slices are the same
    assert drawn(cut) == drawn(whole)


def test_what_is_open_is_drawn_to_the_end_of_the_recording():
    # GIVEN a bio without an end, and a clock reading 3 s after the recording's begin
    scene = Scene(bios=[bio(1, T + 5, issue=T + 9, certainty=Certainty.INCOMPLETE)])
    facts = context()
    later = {clock: at + 3_000_000_000 for clock, at in HEADER["clocks"].items()}
    facts.clocks.append(later)
    out = io.BytesIO()
    # WHEN it is converted / THEN it is drawn to that reading and marked
    summary = convert(scene.windows([T + 100]), facts, out)
    (one,) = read(out.getvalue()).slices("bio")
    assert (one.start, one.end) == (T + 5, T + 3_000_000_000)
    assert one.args["open_at_end"] is True
    assert one.args["certainty"] == "incomplete"
    assert summary.open_at_end == 1
    # GIVEN windows of which the last one leaves bios open / WHEN they are converted
    scene = Scene(bios=[bio(1, T + 5, certainty=Certainty.INCOMPLETE)])
    windows = list(scene.windows([T + 100]))[:1]
    out = io.BytesIO()
    summary = convert(windows, context(), out)
    # THEN nothing of them is missing
    assert [s.args["number"] for s in read(out.getvalue()).slices("bio")] == [1]
    assert summary.bios == summary.open_at_end == 1


def test_names_are_operations():
    # GIVEN operations of all kinds / WHEN they are drawn / THEN slices are named after them
    kinds = [(0, 4096, "read"), (1, 4096, "write"), (3, 4096, "discard"), (9, 4096, "write_zeroes"),
             (2, 0, "flush"), (WRITE | PREFLUSH, 0, "flush"), (WRITE | PREFLUSH, 4096, "write"),
             (77, 4096, "op 77")]  # fmt: skip
    scene = Scene(
        bios=[direct(n, T + n, 10, opf=opf, bytes=size) for n, (opf, size, _) in enumerate(kinds)]
    )
    found = trace_of(scene)[0].slices("bio")
    assert [s.name for s in found] == [name for _, _, name in kinds]


def test_many_stages_and_many_slices_at_once_are_whole():
    # GIVEN a bio that was requeued 3,000 times among others / WHEN it is drawn
    bounds = [T + i for i in range(3001)]
    turns = [(Stage.D2C if i % 2 == 0 else Stage.R2D, a, a + 1) for i, a in enumerate(bounds[:-1])]
    scene = Scene(
        bios=[
            bio(1, T, complete=T + 3000, stages=turns),
            *(direct(n, T + n, 10) for n in range(2, 40)),
        ]
    )
    trace, _ = trace_of(scene)
    # THEN all its stages are there, and its arguments add them up
    assert_shows(trace, scene)
    # GIVEN 3,000 bios in flight together / WHEN they are converted
    scene = Scene(bios=[direct(n, T + n, 100_000) for n in range(3000)])
    trace, summary = trace_of(scene, [T + 2000, T + 50_000])
    # THEN each has a lane, and all are there
    assert summary.lanes == 3000
    assert len(trace.slices("bio")) == 3000


def test_clocks_lead_to_wall_clock_time():
    # GIVEN readings half a second apart, two seconds apart, and after a sleep of 5 s
    def reading(after, slept=0):
        at = T + after
        return {"monotonic": at, "boottime": at + 500_000_000 + slept, "realtime": 10**18 + at}

    facts = context(clocks=reading(0))
    facts.clocks += [reading(5 * 10**8), reading(2 * 10**9, 70), reading(3 * 10**9, 5 * 10**9)]
    out = io.BytesIO()
    # WHEN a trace is made / THEN snapshots come at most once a second; 70 ns are no sleep
    convert(Scene(bios=[direct(1, T + 5, 10)]).windows(), facts, out)
    assert read(out.getvalue()).snapshots == [
        {3: T, 6: T + 500_000_000, 1: 10**18 + T},
        {3: T + 2 * 10**9, 6: T + 2_500_000_000, 1: 10**18 + T + 2 * 10**9},
        {3: T + 3 * 10**9, 6: T + 3_500_000_000 + 5 * 10**9, 1: 10**18 + T + 3 * 10**9},
    ]
    # GIVEN a header without clock readings / WHEN it is converted / THEN MONOTONIC stands alone
    header = {k: v for k, v in HEADER.items() if k != "clocks"}
    scene = Scene(bios=[direct(1, T + 5, 10)])
    trace, _ = trace_of(scene, header=header)
    assert [s.start for s in trace.slices("bio")] == [T + 5]
    assert trace.snapshots == [{3: T}]


def test_an_empty_recording_is_a_trace():
    # GIVEN no windows at all, or an empty one / WHEN they are converted
    for windows in ([], Scene().windows()):
        out = io.BytesIO()
        convert(windows, context(), out)
        # THEN the metadata are there
        trace = read(out.getvalue())
        assert trace.attributes["biotrail.host"] == "testhost"
        assert [i.name for i in trace.instants()] == ["recording", "end of recording"]


def test_many_texts_are_interned_anew_without_harm(monkeypatch):
    # GIVEN room for ten texts, and far more process names, in many windows
    monkeypatch.setattr("biotrail.converters.outputs.perfetto.convert._MOST_STRINGS", 10)
    rng = random.Random(1)
    tasks = [{"tid": i + 1, "tgid": i + 1, "comm": f"job{i}"} for i in range(60)]
    scene = Scene(
        tasks=tasks,
        bios=[
            direct(n, T + 40 * n, rng.randrange(200), task=rng.randrange(60)) for n in range(300)
        ],
    )
    # WHEN they are converted / THEN every bio has its own process
    trace, _ = trace_of(scene, range(T, T + 12_000, 500))
    assert_shows(trace, scene)


def test_an_output_that_fails_is_reported():
    # GIVEN an output that cannot be written / WHEN a trace is made / THEN the error says so
    class Full(io.BytesIO):
        def write(self, data):
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OutputError, match=r"No space left on device. Make room"):
        convert(Scene().windows(), context(), Full())


def test_memory_does_not_grow_with_the_recording():
    # GIVEN recordings of few and of many windows, all with new process names
    def windows(count):
        for n in range(count):
            begin = T + n * 1_000_000
            scene = Scene(
                begin=begin,
                end=begin + 1_000_000,
                tasks=[{"tid": i, "tgid": i, "comm": f"job{n}-{i}"} for i in range(50)],
                bios=[
                    direct(n * 1000 + i, begin + 700 * i, 5_000 + i, task=i % 50, tid=1)
                    for i in range(1000)
                ],
            )
            yield from scene.windows()

    class Nowhere(io.BytesIO):
        def write(self, data):
            return len(data)

    # WHEN both are converted
    peaks = []
    for count in (15, 15, 90):  # the first one warms caches
        tracemalloc.start()
        convert(windows(count), context(), Nowhere())
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    # THEN six times the length needs hardly more memory
    assert peaks[2] < 1.5 * peaks[1]


def test_arguments_are_documented():
    # GIVEN the arguments that slices can have / WHEN the page on Perfetto is read
    page = (paths.ROOT / "docs" / "perfetto.md").read_text(encoding="utf-8")
    # THEN it names each of them
    for category in (BIO, REQUEST, "loss", CALL, SUBMISSION):
        for argument in ARGUMENTS[category]:
            assert f"`{argument.name}`" in page, argument.name


# Traces with less detail: the same bios at the same times, in a tenth of the bytes.

MARKS = {
    *("certainty", "status", "open_at_end", "end_not_seen", "begin_not_seen", "begin_cut"),
    *("own", "doubtful"),
}


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
    found = [traced(log, 3000, detail=detail) for detail in (Detail.FULL, Detail.STANDARD)]
    for category in ("bio", "request"):
        full, standard = (places(one, category) for one in found)
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


def test_less_detail_of_small_and_other_outputs(cli: Cli, tmp_path: Path) -> None:
    # GIVEN a log of a few hundred I/Os / WHEN it is drawn by default THEN nothing is left out
    log = captures.write_log(tmp_path / "log", captures.load("partial-completion-error-loop"))
    full = converted(cli, tmp_path, log, "--detail", "full")
    standard = converted(cli, tmp_path, log, "--detail", "standard")
    for category in ("bio", "request"):
        mine, whole = (read(p.read_bytes()).slices(category) for p in (standard, full))
        assert [s.args for s in mine] == [s.args for s in whole] != []
        assert [s.children for s in mine] == [s.children for s in whole]
    # GIVEN another output / WHEN less detail is asked for THEN that is wrong usage
    done = cli("convert", "--detail", "bios", SAMPLE, "-o", tmp_path / "x.blktrace")
    assert (done.status, "--detail is for Perfetto" in done.err) == (2, True)


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


# A trace in parts holds all that the whole one does; compressed, it is the same bytes.

KIB = 1024


def parts_of(directory: Path, name: str = "disk") -> list[Path]:
    found = directory.glob(f"{name}-*.pftrace")
    return sorted(found, key=lambda path: int(path.stem.rsplit("-", 1)[1]))


def facts(one: Slice) -> tuple[object, ...]:
    """What a slice says, wherever it is drawn."""
    return one.start, one.end, one.name, tuple(sorted(one.args.items()))


CATEGORIES = ("bio", "request")


def test_the_parts_together_hold_everything(cli: Cli, tmp_path: Path) -> None:
    # GIVEN a log, and its whole trace
    assert cli("convert", "--detail", "full", SAMPLE, "-o", tmp_path / "whole.pftrace").status == 0
    trace = read((tmp_path / "whole.pftrace").read_bytes())
    whole = Counter(facts(s) for category in CATEGORIES for s in trace.slices(category))
    # WHEN it is converted in parts
    part = ("--detail", "full", "--max-size", "600K")
    done = cli("convert", *part, SAMPLE, "-o", tmp_path / "disk.pftrace")
    assert done.status == 0, done.err
    paths = parts_of(tmp_path)
    assert f"wrote {len(paths)} parts (" in done.out
    assert len(paths) >= 3
    found: Counter[tuple[object, ...]] = Counter()
    borders = 0
    for path in paths:
        # THEN each part is a sound trace
        part = read(path.read_bytes())
        assert f"{path} (" in done.out
        slices = [s for category in CATEGORIES for s in part.slices(category)]
        # AND what crosses a border is marked in the part that it does not end in
        borders += sum("open_at_end" in s.args for s in slices)
        found.update(facts(s) for s in slices if "open_at_end" not in s.args)
    # AND whole in the one in which it ends, and in no other
    endless = Counter({f: n for f, n in whole.items() if ("open_at_end", True) in f[3]})
    assert found == whole - endless
    assert borders > 0


def test_losses_stand_in_the_part_of_their_time(cli: Cli, tmp_path: Path) -> None:
    # GIVEN a log with a loss window far into it, of which its index tells at once
    log = tmp_path / "disk.biotrail"
    cut_logs.write(log, 120)
    # WHEN it is converted in parts / THEN none is larger than was asked for
    done = cli("convert", "--max-size", "256K", log)
    assert done.status == 0, done.err
    traces = [read(path.read_bytes()) for path in parts_of(tmp_path)]
    assert len(traces) > 1
    assert all(path.stat().st_size <= 256 * KIB for path in parts_of(tmp_path))
    # AND one part has it, and no part goes on to where others are
    having = [len(trace.slices("loss")) for trace in traces]
    assert sum(having) == 1 and having[0] == 0
    ends = [max(s.end for s in trace.slices("bio")) for trace in traces]
    assert ends == sorted(ends)


def test_parts_are_not_overwritten(cli: Cli, tmp_path: Path) -> None:
    # GIVEN a file in the place of a later part
    (tmp_path / "disk-2.pftrace").write_text("mine")
    # WHEN a log is converted in parts THEN nothing is written
    options = ("convert", "--max-size", "300K", SAMPLE, "-o", tmp_path / "disk.pftrace")
    done = cli(*options)
    assert done.status == 1
    assert "disk-2.pftrace already exists" in done.err
    assert [path.name for path in tmp_path.iterdir()] == ["disk-2.pftrace"]
    # AND with --force it is, and what is left of earlier is named
    (tmp_path / "disk-99.pftrace").write_text("mine")
    assert cli(*options, "--force").status == 0
    assert (tmp_path / "disk-2.pftrace").read_bytes()[:1] == b"\x0a"
    # GIVEN outputs that cannot be in parts, and parts too small / THEN that is wrong usage
    for target, size in (("-", "1M"), (tmp_path / "x.otf2", "1M"), (tmp_path / "x.pftrace", "1K")):
        assert cli("convert", "--max-size", size, SAMPLE, "-o", target).status == 2


@pytest.mark.parametrize("ending", [".gz", ".zst"])
def test_compressed_outputs_decode_to_the_plain_one(cli: Cli, tmp_path: Path, ending: str) -> None:
    # GIVEN a trace as it is, and one whose name asks for compression
    plain, packed = tmp_path / "a.pftrace", tmp_path / f"a.pftrace{ending}"
    for path in (plain, packed):
        assert cli("convert", SAMPLE, "-o", path).status == 0
    # WHEN that is decompressed THEN the bytes are the same
    data = packed.read_bytes()
    opened = gzip.decompress(data) if ending == ".gz" else unpacked(data)
    assert opened == plain.read_bytes()
    assert len(data) < len(opened) / 3
    # AND it is made the same each time, and parts have the ending, too
    assert cli("convert", "-f", SAMPLE, "-o", packed).status == 0
    assert packed.read_bytes() == data
    done = cli("convert", "--max-size", "1M", SAMPLE, "-o", packed)
    assert done.status == 0, done.err
    assert (tmp_path / f"a-1.pftrace{ending}").exists()
    # AND an archive, which is a directory, cannot be compressed so
    assert cli("convert", SAMPLE, "-o", tmp_path / f"a.otf2{ending}").status == 2


def unpacked(data: bytes) -> bytes:
    with zstandard.ZstdDecompressor().stream_reader(data) as reader:
        return reader.read()


# Names of several logs in one trace.


@pytest.mark.parametrize(
    ("files", "labels"),
    [
        (["a", "b"], ["a", "b"]),
        (["a", "a", "a"], ["a", "a (2)", "a (3)"]),
        (["a", "a", "a (2)"], ["a", "a (3)", "a (2)"]),
        (["a (2)", "a", "a", "a (2)"], ["a (2)", "a", "a (3)", "a (2) (2)"]),
    ],
)
def test_logs_of_one_name_are_numbered_apart(files: list[str], labels: list[str]) -> None:
    # GIVEN logs of one boot, by their files' names WHEN they are placed in a trace
    placed = named_places(
        [Named(f"id{n}", "db1", "b", file, False) for n, file in enumerate(files)]
    )
    # THEN each has a name of its own, and keeps the one that it has if it is the only one
    assert [place.label for place in placed] == labels
    assert len({place.host for place in placed}) == len(files)


UNCOMPILED = uncompiled("converters/outputs/perfetto/loops.py")
NEVER_ENDS = 10**6

intervals = st.lists(
    st.tuples(st.integers(0, 80), st.integers(0, 30)), min_size=1, max_size=50
).map(sorted)
lane_cuts = st.lists(st.integers(1, 120), max_size=6)


def columns(rows):
    start = np.array([s for s, _ in rows], dtype=np.int64)
    return start, start + np.array([d for _, d in rows], dtype=np.int64)


def assign(start, end, windows, *, tell_open=True):
    """Lanes when the slices are told window by window."""
    pool, number = LanePool(), np.arange(len(start))
    lane = np.full(len(start), -1)
    bounds = [-1, *sorted(set(windows)), NEVER_ENDS]
    for begin, until in pairwise(bounds):
        over = (end >= begin) & (end < until)
        rows = np.flatnonzero(over | ((start < until) & (end >= until) & tell_open))
        told = np.where(over[rows], end[rows], FOREVER)
        none = np.zeros(len(rows), dtype=np.bool_)
        given_lane = pool.assign(number[rows], start[rows], told, none)
        lane[rows[over[rows]]] = given_lane[over[rows]]
    return lane


def assert_no_overlap(start, end, lane):
    for each in np.unique(lane):
        on = np.flatnonzero(lane == each)
        on = on[np.argsort(start[on], kind="stable")]
        assert (start[on][1:] > end[on][:-1]).all()


def depth(start, end):
    return max(int(((start <= t) & (end >= t)).sum()) for t in start)


@given(intervals, lane_cuts)
def test_as_many_lanes_as_slices_at_once_and_none_overlap(rows, windows):
    # GIVEN any slices / WHEN they get lanes
    start, end = columns(rows)
    lane = assign(start, end, [])
    # THEN no lane holds two at once, and there are no more lanes than needed
    assert_no_overlap(start, end, lane)
    assert int(lane.max()) + 1 == depth(start, end)
    # AND they are the same where slices are told in windows, with what is under way
    assert assign(start, end, windows).tolist() == lane.tolist()
    # AND where that is not told they still overlap with nothing
    assert_no_overlap(start, end, assign(start, end, windows, tell_open=False))


@pytest.mark.parametrize("few", [0, 3, 512])
@given(intervals, lane_cuts)
def test_few_lanes_and_many_are_the_lowest_that_are_free(few, rows, windows):
    # GIVEN any slices, in windows or not
    start, end = columns(rows)
    # WHEN the loops for few lanes and for many find their lanes, compiled or not
    for loops in (UNCOMPILED, writing.loops):
        with mock.patch.multiple(writing, loops=loops, _FEW_LANES=few, _FEWEST_LEAVES=1):
            lane = assign(start, end, windows)
        # THEN every lane below was busy at the start, and the lane was not
        for row in range(len(start)):
            busy = {int(lane[r]) for r in range(row) if end[r] >= start[row]}
            assert set(range(lane[row])) <= busy
            assert lane[row] not in busy
