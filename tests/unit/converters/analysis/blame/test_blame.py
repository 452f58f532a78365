# SPDX-License-Identifier: Apache-2.0
"""Blame: whose I/O made whose I/O wait, to the nanosecond, however a log is cut."""

from collections import Counter, defaultdict
from dataclasses import replace
from itertools import accumulate, pairwise
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from biotrail.converters.analysis.blame import bases, online
from biotrail.converters.analysis.blame.bases import Bases
from biotrail.converters.analysis.blame.blame import First, Second
from biotrail.converters.analysis.blame.experiment import SKIP_NS, Periods, Trial, experiment_of
from biotrail.converters.analysis.blame.online import Online, Row, Waits
from biotrail.converters.analysis.blame.shares import BlameOptions
from biotrail.converters.analysis.blame.tree import OTHERS, Kind
from biotrail.converters.analysis.choosing.choosing import Choice
from biotrail.converters.analysis.distributions.keys import RECORDER
from biotrail.converters.analysis.live.totals import MOST_PAIRS, MOST_VICTIMS, BlameTotals
from biotrail.converters.analysis.report.report import make_report
from biotrail.converters.pipeline import WINDOW_EVENTS, Trace
from tests.support import blame_logs
from tests.support.blame_logs import MS, RAM, US, Io, S
from tests.support.blame_reading import blamed, is_long, part, random_ios, victim, waits
from tests.support.cli_runner import Cli
from tests.support.window_loads import loads, piece
from tests.support.window_loads import write as write_loads

QUICK = settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def test_a_reader_beside_a_writer_waits_for_the_writer(tmp_path: Path) -> None:
    # GIVEN a reader whose reads take 50 µs, and 550 µs where a write is with the disk
    path = blame_logs.write(tmp_path / "a.biotrail", blame_logs.beside_a_writer())
    # WHEN their time is blamed
    app = victim(blamed(path), "app")
    # THEN its own service is 50 µs of each read, and the rest is the writer's, to the nanosecond
    assert app.ios == 600
    assert part(app, Kind.SERVICE) == 600 * 50 * US
    assert part(app, Kind.OTHER, "backup") == 120 * 500 * US
    assert sum(one.wait_ns for one in app.parts) == app.wait_ns == 600 * 50 * US + 120 * 500 * US
    # AND without the writer reads would take 50 µs, also the slowest hundredth of them
    [without] = app.without
    assert (without.culprit, without.mean_ns, without.rests_on) == ("backup", 50 * US, 480)
    assert without.between_ns is not None
    assert without.between_ns == pytest.approx((50 * US, 50 * US))
    assert without.p99_ns == pytest.approx(50 * US, rel=0.01)


def test_the_recorder_is_a_culprit_and_no_victim(tmp_path: Path, cli: Cli) -> None:
    # GIVEN the same, where the writer is the recorder, whose own I/O is left out
    ios = [replace(io, own=io.comm == "backup") for io in blame_logs.beside_a_writer()]
    path = blame_logs.write(tmp_path / "a.biotrail", ios)
    # WHEN the time of all is blamed, by any dimension
    for by in ("process", "owner", "op", "device"):
        found = blamed(path, by=(by, by))
        # THEN the reader waited for the recorder, which is named as such, and is no victim
        [app] = found.victims
        assert part(app, Kind.OTHER, RECORDER) == 120 * 500 * US
        assert part(app, Kind.SERVICE) == app.wait_ns - 120 * 500 * US == 600 * 50 * US
    # AND live views name it, too
    whole = waits(path)
    assert whole.rows["app"].behind == Counter({RECORDER: 120 * 500 * US})
    assert whole.rows.keys() == {"app"}
    # AND people are told what to do
    told = cli("blame", "--by", "process", path).out
    assert "behind (the recorder)" in told
    assert "write it elsewhere (record -o)" in " ".join(told.split())


def test_what_would_be_without_rests_on_enough_alone(tmp_path: Path) -> None:
    # GIVEN a reader of whose reads all but 20 are beside a writer's / WHEN its time is blamed
    ios = [io for io in blame_logs.beside_a_writer() if io.comm == "backup"]
    ios += blame_logs.alone("app", 20, MS, 10 * S)
    ios += [Io("app", io.queue + US, io.issue + 2 * US, io.queue + 551 * US) for io in ios[:100]]
    app = victim(blamed(blame_logs.write(tmp_path / "a.biotrail", ios)), "app")
    # THEN the writer is named, but not what would be without it
    assert part(app, Kind.OTHER, "backup") > app.wait_ns / 2
    assert not app.without


def test_the_excess_is_shared_by_the_work_of_others(tmp_path: Path) -> None:
    # GIVEN reads beside a write that takes 2 ms alone and a read that takes 50 µs alone
    ios = blame_logs.beside_a_writer()
    ios += blame_logs.alone("scan", 40, 10 * MS, 7 * S)
    both = 8 * S
    ios += [
        Io("app", both, both + US, both + 550 * US),
        Io("backup", both, both + US, both + 550 * US, "W", 2048),
        Io("scan", both, both + US, both + 550 * US),
    ]
    app = victim(blamed(blame_logs.write(tmp_path / "a.biotrail", ios)), "app")
    # THEN the writer has forty times as much of that read's excess as the other reader
    by_scan = part(app, Kind.OTHER, "scan")
    by_backup = part(app, Kind.OTHER, "backup") - 120 * 500 * US
    assert by_scan + by_backup == 500 * US
    assert by_backup / by_scan == pytest.approx(2000 / 49, rel=0.01)


def test_small_ios_and_devices_on_the_same_cpus_cannot_be_told(tmp_path: Path) -> None:
    # GIVEN the same load on a loop device over memory; and reads of 20 µs
    path = tmp_path / "a.biotrail"
    ios = [Io(**{**vars(io), "device": RAM}) for io in blame_logs.beside_a_writer()]
    on_ram = blamed(blame_logs.write(path, ios))
    small = [
        Io(io.comm, io.queue, io.issue, io.queue + (io.complete - io.queue) * 2 // 5)
        for io in blame_logs.beside_a_writer()
        if io.comm == "app"
    ]
    writes = [io for io in blame_logs.beside_a_writer() if io.comm != "app"]
    of_20_us = blamed(blame_logs.write(path, small + writes))
    # THEN what others may have cost is unknown, and nobody is blamed
    for found in (on_ram, of_20_us):
        app = victim(found, "app")
        assert part(app, Kind.UNKNOWN) > app.wait_ns / 2
        assert app.untold == app.wait_ns
        assert not app.without and not part(app, Kind.OTHER, "backup")
    assert on_ram.shared == ["loop1"] and not of_20_us.shared


def test_negative_sums_are_the_devices(tmp_path: Path) -> None:
    # GIVEN reads that are faster beside another reader than without
    ios = blame_logs.alone("app", 100, 10 * MS)
    ios += blame_logs.alone("app", 50, 10 * MS, 2 * S, 40 * US)
    ios += blame_logs.alone("scan", 50, 10 * MS, 2 * S, 200 * US)
    ios += blame_logs.alone("scan", 50, 10 * MS, 4 * S, 100 * US)
    app = victim(blamed(blame_logs.write(tmp_path / "a.biotrail", ios)), "app")
    # THEN no part is negative, and they still add up
    assert all(one.wait_ns >= 0 for one in app.parts)
    assert sum(one.wait_ns for one in app.parts) == app.wait_ns
    assert not part(app, Kind.OTHER, "scan")


def test_names_and_what_is_asked_for(tmp_path: Path, cli: Cli) -> None:
    # GIVEN a database in a unit, and a backup in a container
    ios = [
        Io(**{**vars(io), "cgroup": {"app": 11, "backup": 12}[io.comm]})
        for io in blame_logs.beside_a_writer()
    ]
    container = "b" * 64
    groups = {"11": "/system.slice/db.service", "12": f"/docker/{container}"}
    notes = {"cgroups": groups, "containers": {"containers": {container: {"name": "nightly"}}}}
    path = blame_logs.write(tmp_path / "a.biotrail", ios, **notes)
    # WHEN it is blamed / THEN parties have the names that people use for them
    told = cli.json("blame", path)
    assert {one["name"] for one in told["victims"]} == {"db.service", "nightly"}
    # AND each side can have its own dimension, and victims can be chosen
    words = ("--victim-by", "unit", "--culprit-by", "op", "--victim", "db*")
    told = cli.json("blame", *words, path)
    [one] = told["victims"]
    assert one["name"] == "db.service"
    assert [p["culprit"] for p in one["parts"]] == [None, "write"]
    # AND the sentence says who, how much, and what would be without
    said = " ".join(cli("blame", path).out.split())
    assert "67 % of db.service's time is waiting behind nightly's writes" in said
    assert "without them the mean would be 50 µs" in said
    # AND a name that nobody has is refused with those that there are
    done = cli("blame", "--victim", "web", path)
    assert done.status == 1 and "db.service" in done.err


def test_victims_are_chosen_and_an_empty_log_has_none(tmp_path: Path, cli: Cli) -> None:
    # GIVEN a reader beside a writer / WHEN reads alone are asked for
    path = blame_logs.write(tmp_path / "a.biotrail", blame_logs.beside_a_writer())
    told = cli.json("blame", "--op", "read", path)
    # THEN the writer is no victim, but a culprit
    [app] = told["victims"]
    assert [p["culprit"] for p in app["parts"]] == [None, "backup"]
    # AND of the time asked for alone
    told = cli.json("blame", "--from", "0s", "--to", "1s", path)
    assert [v["ios"] for v in told["victims"] if v["name"] == "app"] == [100]
    # GIVEN a log without I/O / WHEN it is blamed / THEN nobody waited
    path = blame_logs.write(tmp_path / "a.biotrail", [])
    assert cli.json("blame", path)["victims"] == []
    assert "nobody waited" in cli("blame", path).out


def over(one: Io, begin: int, end: int) -> int:
    return max(min(one.complete, end) - max(one.issue, begin), 0)


def parts_of(io: Io) -> list[tuple[int, int]]:
    return [(io.queue, io.issue), (io.issue, io.complete)]


def bases_of(ios: list[Io]) -> dict[tuple[str, int], int]:
    """Base by operation and part; empty where a part has none but the fastest hundredth."""
    alone: dict[tuple[str, int], list[int]] = defaultdict(list)
    every: dict[tuple[str, int], list[int]] = defaultdict(list)
    for io in ios:
        for number, (begin, end) in enumerate(parts_of(io)):
            beside = [o for o in ios if o is not io and not is_long(o) and over(o, begin, end)]
            if not beside:
                alone[io.op, number].append(end - begin)
        every[io.op, 0].append(io.issue - io.queue)
        ends = [o.complete for o in ios if o.complete < io.complete and not is_long(o)]
        last = max(ends, default=0)
        every[io.op, 1].append(io.complete - min(max(last, io.issue), io.complete))
    base: dict[tuple[str, int], int] = {}
    for key, times in every.items():
        buckets = bases._buckets(np.array(alone[key], np.int64))
        counts = np.bincount(buckets, minlength=bases._BUCKETS)
        good = [t for t, b in zip(alone[key], buckets, strict=True) if b <= bases._limit(counts)]
        if len(good) >= bases.LEAST_ALONE:
            base[key] = sum(good) // len(good)
        elif key[1]:
            base[key] = sum(times) // len(times)
        else:
            return {}  # the fastest hundredth, by bucket
    return base


def reference(ios: list[Io]) -> dict[str, Counter[str]]:
    """Slow and obvious: what `share` says in words. Without long I/O, which bases do not see."""

    base = bases_of(ios)
    if not base:
        return {}
    slowest = max(ns for (_, number), ns in base.items() if number)
    unit = max(slowest / 16_383, 1.0)
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for io in ios:
        tells = base[io.op, 0] + base[io.op, 1] >= 30_000
        for number, (begin, end) in enumerate(parts_of(io)):
            work = Counter[str]()
            for o in ios:
                if o is not io:
                    weight = max(round(base[o.op, 1] / unit), 1)
                    work[o.comm] += over(o, begin, end) * weight
            usual, whole = base[io.op, number], sum(work.values())
            if not whole:
                service = usual if end - begin > bases.CALM * usual else end - begin
                found[io.comm]["service"] += service
                found[io.comm]["device"] += end - begin - service
                continue
            found[io.comm]["service"] += usual
            for comm, one in work.items():
                cell = comm if tells or comm == io.comm else "unknown"
                found[io.comm][cell] += (end - begin - usual) * one / whole
    return found


@pytest.mark.parametrize("seed", range(12))
def test_it_says_what_the_reference_says_in_windows_of_any_size(tmp_path: Path, seed: int) -> None:
    # GIVEN random I/O of three programs
    ios = random_ios(seed)
    path = blame_logs.write(tmp_path / "a.biotrail", ios)
    # WHEN it is blamed in one window, and in small ones
    whole = blamed(path)
    for window in (20, 200):
        # THEN windows make no difference
        assert blamed(path, window).victims == whole.victims
    # AND each cell is the reference's, but for rounding
    expected = reference(ios)
    for name, cells in expected.items():
        one = victim(whole, name)
        assert one.wait_ns == sum(io.complete - io.queue for io in ios if io.comm == name)
        for culprit in ("app", "backup", "scan"):
            kind = Kind.OWN if culprit == name else Kind.OTHER
            told = part(one, kind, None if culprit == name else culprit)
            assert told == pytest.approx(max(cells[culprit], 0), abs=4 * len(ios)), culprit


@QUICK
@given(
    pieces=st.lists(piece, min_size=1, max_size=6),
    cuts=st.lists(st.integers(0, 10_000), max_size=30),
    window=st.sampled_from([1, 7, 30, 200]),
)
def test_sums_are_the_reports(
    tmp_path: Path, pieces: list[tuple[int, int, int, int]], cuts: list[int], window: int
) -> None:
    # GIVEN loads of every kind: merges, splits, flushes, stacks, losses
    events = loads(pieces)
    path = write_loads(tmp_path / "a.biotrail", events, [c % len(events) for c in cuts], [0, 0])
    # WHEN they are blamed in one window, by device / THEN windows make no difference
    whole = blamed(path, by=("device", "process"))
    assert blamed(path, window, ("device", "process")).victims == whole.victims
    # AND each lowest device's time is the report's, to the nanosecond; no part is negative
    trace = Trace(path)
    report = make_report(trace, trace.lifecycles())
    upper = {pair.device for pair in report.stacked}
    times = {d.device: d.total.bios.latency.sum for d in report.devices if d.device not in upper}
    for one in whole.victims:
        assert sum(p.wait_ns for p in one.parts) == one.wait_ns
        assert all(p.wait_ns >= 0 for p in one.parts)
        if one.name in times:
            assert one.wait_ns == times[one.name]
    told = {one.name for one in whole.victims}
    assert all(name in told for name, ns in times.items() if ns)


# Blame in one pass: what `blame` says where the base is the same, however a log is cut.


def online_bases(path: Path, window: int) -> Bases:
    """The bases of the whole log, which `blame` uses; windows give classes their numbers."""
    trace = Trace(path)
    first = First(trace.context, Choice(trace.context), BlameOptions(("process", "process")))
    for _ in first.watch(trace.lifecycles(window, small=True)):
        pass
    return Second(trace.context, first.choice, first).bases


@pytest.mark.parametrize("seed", range(12))
def test_with_the_same_base_it_is_blames_sum(tmp_path: Path, seed: int) -> None:
    # GIVEN random I/O of three programs, none of which lasts longer than can be waited for
    ios = [io for io in random_ios(seed) if not is_long(io)]
    path = blame_logs.write(tmp_path / "a.biotrail", ios)
    # WHEN it is blamed in one pass, in windows of any size, by the bases that the log has
    for window in (20, 200, WINDOW_EVENTS):
        bases = online_bases(path, window)
        with patch.object(Online, "_learn", lambda _self, _batch, bases=bases: bases):
            found = waits(path, window).victims()
            # THEN it says what `blame` says
            for one, told in zip(found, blamed(path).victims, strict=True):
                assert (one.name, one.ios, one.wait_ns) == (told.name, told.ios, told.wait_ns)
                # but for the rounding of shares, which goes by the order of slots
                parts = {(p.kind, p.culprit): p.wait_ns for p in told.parts}
                assert {(p.kind, p.culprit) for p in one.parts} == parts.keys()
                for part in one.parts:
                    expected = parts[part.kind, part.culprit]
                    assert part.wait_ns == pytest.approx(expected, abs=len(ios), rel=0)
                assert one.untold == told.untold


@QUICK
@given(
    pieces=st.lists(piece, min_size=1, max_size=6),
    cuts=st.lists(st.integers(0, 10_000), max_size=30),
    window=st.sampled_from([1, 7, 30, 200]),
)
def test_sums_are_blames(
    tmp_path: Path, pieces: list[tuple[int, int, int, int]], cuts: list[int], window: int
) -> None:
    # GIVEN loads of every kind: merges, splits, flushes, stacks, losses
    events = loads(pieces)
    path = write_loads(tmp_path / "a.biotrail", events, [c % len(events) for c in cuts], [0, 0])
    # WHEN they are blamed in one pass
    found = {one.name: one for one in waits(path, window).victims()}
    # THEN each victim has the I/Os and the time that `blame` finds; no part is negative
    for told in blamed(path).victims:
        one = found.pop(told.name)
        assert (one.ios, one.wait_ns) == (told.ios, told.wait_ns)
        assert sum(p.wait_ns for p in one.parts) == one.wait_ns
        assert all(p.wait_ns >= 0 for p in one.parts if p.kind != Kind.SERVICE)
    assert not found


def test_the_base_is_of_what_has_passed(tmp_path: Path) -> None:
    # GIVEN reads that take 50 µs in the first 20 s, and 200 µs from then on
    ios = [Io("app", t * 10 * MS, t * 10 * MS, t * 10 * MS + 50 * US) for t in range(2000)]
    ios += [Io("app", at, at, at + 200 * US) for at in (20 * S + t * 10 * MS for t in range(4000))]
    # AND at last ten beside a write
    begin = 60 * S
    for t in range(10):
        at = begin + t * 10 * MS
        ios.append(Io("app", at, at, at + 300 * US))
        ios.append(Io("backup", at, at, at + 300 * US, "W", 64))
    path = blame_logs.write(tmp_path / "a.biotrail", ios, 500)
    # WHEN it is blamed in one pass / THEN the base is of the last stretches, not of the whole time
    app = next(one for one in waits(path, 500).victims() if one.name == "app")
    behind = [p.wait_ns for p in app.parts if p.kind == Kind.OTHER]
    assert behind == [10 * 100 * US]


def test_a_stretch_of_time_keeps_few_stretches_apart(tmp_path: Path) -> None:
    # GIVEN five minutes of I/O
    ios = [Io("app", t * 100 * MS, t * 100 * MS, t * 100 * MS + MS) for t in range(3000)]
    trace = Trace(blame_logs.write(tmp_path / "a.biotrail", ios, 500))
    # WHEN they are blamed in one pass
    found = Online(trace.context, "process")
    for one in trace.lifecycles(500, small=True):
        found.add(one)
        # THEN what is kept does not grow with the time
        assert len({step for _, step in found._learner._alone}) <= 2
        assert len(found._bases.of_stretch) <= 4
        assert len(found._company._served[0]) <= 200 if found._company._served else True


def test_classes_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN few classes that are told apart, and I/O of more sizes
    monkeypatch.setattr(online, "MOST_CLASSES", 3)
    ios = [
        Io("app", t * MS, t * MS, t * MS + 50 * US, "R", sectors=1 << t % 10) for t in range(300)
    ]
    trace = Trace(blame_logs.write(tmp_path / "a.biotrail", ios))
    # WHEN it is blamed in one pass / THEN the others are one class, and all are counted
    found, whole = Online(trace.context, "process"), Waits()
    for one in [*trace.lifecycles(100, small=True), None]:
        whole.merge(found.add(one)[0])
    assert len(found._company.classes) == 3
    assert whole.rows["app"].ios == 300


def test_long_requests_stand_beside_nothing_and_are_counted(tmp_path: Path) -> None:
    # GIVEN a request that lasts for two seconds, and reads beside it
    ios = [Io("app", t * 10 * MS, t * 10 * MS, t * 10 * MS + 50 * US) for t in range(300)]
    ios.append(Io("backup", MS, MS, 2 * S, "W", 64))
    trace = Trace(blame_logs.write(tmp_path / "a.biotrail", ios))
    # WHEN they are blamed in one pass / THEN it is counted
    found, whole = Online(trace.context, "process"), Waits()
    for one in [*trace.lifecycles(100, small=True), None]:
        whole.merge(found.add(one)[0])
    assert whole.left_out == {"requests_too_long": 1}
    assert whole.rows["app"].behind == {}
    assert whole.rows["backup"].wait_ns == 2 * S - MS


def test_names_are_bounded() -> None:
    # GIVEN many stretches, each with victims of its own
    whole = Waits()
    for number in range(3 * online.MOST_NAMES):
        row = Row(1, 10, 0, 0, 0, 0)
        row.behind[f"culprit {number}"] = 5
        whole.merge(Waits({f"victim {number}": row, "app": row}))
    # WHEN they are added up / THEN the rest is one party, and nothing is lost
    assert len(whole.rows) == online.MOST_NAMES + 1
    assert len(whole.rows["app"].behind) == online.MOST_NAMES + 1
    assert sum(row.wait_ns for row in whole.rows.values()) == 2 * 3 * online.MOST_NAMES * 15
    assert whole.victims()[-1].name == OTHERS


# Sums of blame that never go down: what is below zero is carried forward, nothing is lost.

PATH = Path(__file__).parents[4] / "data" / "calls" / "ext4-on-loop.biotrail"


def of(behind: dict[str, dict[str, int]]) -> Waits:
    """Waits of victims: culprit → ns."""
    found = Waits()
    for name, culprits in behind.items():
        found.rows[name] = Row(1, 1000, behind=Counter(culprits))
    return found


def totals() -> BlameTotals:
    return BlameTotals(Trace(PATH).context, "process")


CELLS = st.lists(st.integers(-1000, 1000), min_size=1, max_size=50)


@given(cells=CELLS)
def test_a_counter_is_the_most_that_the_sum_was(cells: list[int]) -> None:
    # GIVEN cells of a pair, some of them negative
    found = totals()
    told = [0]
    for ns in cells:
        # WHEN they are added
        found.add_waits(of({"app": {"backup": ns}}))
        told.append(found.behind["app", "backup"])
    # THEN the counter never goes down, and is the most that the sum has been
    assert told == sorted(told)
    assert told == list(accumulate(accumulate([0, *cells]), max))
    # AND the counter and what is carried forward are the sum
    assert told[-1] + found._rest["app", "backup"] == sum(cells)


def test_pairs_are_bounded_and_nothing_is_lost() -> None:
    # GIVEN more victims and culprits than are kept apart
    found = totals()
    for row in range(2 * MOST_VICTIMS):
        culprits = {f"culprit {number}": 10 for number in range(20)}
        # WHEN they are added
        found.add_waits(of({f"victim {row}": culprits}))
    # THEN the rest is others, of each victim and of all
    assert len(found.waited) == MOST_VICTIMS + 1
    assert len(found.behind) <= MOST_PAIRS + MOST_VICTIMS + 1
    assert sum(found.behind.values()) == 2 * MOST_VICTIMS * 200
    assert found.behind[OTHERS, OTHERS] == MOST_VICTIMS * 200
    assert sum(found.waited.values()) == 2 * MOST_VICTIMS * 1200


def test_sums_are_those_of_one_pass(tmp_path: Path) -> None:
    # GIVEN a reader beside a writer
    path = blame_logs.write(tmp_path / "a.biotrail", blame_logs.beside_a_writer())
    # WHEN the windows of its log are added, however small
    trace = Trace(path)
    found = BlameTotals(trace.context, "process")
    told: list[Counter[tuple[str, str]]] = []
    for window in trace.lifecycles(50, small=True):
        found.add(window)
        told.append(Counter(found.behind))
    found.add(None)
    # THEN no counter ever went down
    told.append(found.behind)
    for before, after in pairwise(told):
        assert all(after[pair] >= ns for pair, ns in before.items())
    # AND they are what one pass finds
    whole = waits(path, 50)
    assert found.waited == {name: row.wait_ns for name, row in whole.rows.items()}
    assert found.behind["app", "backup"] == whole.rows["app"].behind["backup"] > 0


def test_what_cannot_be_told_is_counted(tmp_path: Path) -> None:
    # GIVEN I/O of 10 µs, which is too short to be told
    ios = [Io("app", t * MS, t * MS, t * MS + 10_000) for t in range(100)]
    trace = Trace(blame_logs.write(tmp_path / "a.biotrail", ios))
    # WHEN it is added / THEN all of its time is untold
    found = BlameTotals(trace.context, "process")
    for window in trace.lifecycles():
        found.add(window)
    found.add(None)
    assert found.untold == found.waited == {"app": 1_000_000}


# The experiment: what victims take while the suspect stands, beside blame's answer.


def test_periods_are_those_beside_each_other_without_their_beginnings() -> None:
    # GIVEN a suspect that stood from 10 s to 11 s and from 12 s to 13 s
    periods = Periods([{"from": 10 * S, "to": 11 * S}, {"from": 12 * S, "to": 13 * S}])
    # WHEN times are placed
    at = [9.4, 9.6, 10.1, 10.3, 11.1, 11.3, 11.59, 11.61, 12.1, 12.9, 13.1, 13.3, 13.8]
    block, state = periods.of(np.array([round(10 * one) * S // 10 for one in at]))
    block_of, state_of = periods.of(np.array([int(11.59 * S), int(11.61 * S)]))
    # THEN half of the running time between them is each one's, and the first 200 ms are nobody's
    assert block.tolist()[:6] == [-1, 0, -1, 0, -1, 0]
    assert state.tolist()[:6] == [-1, 0, -1, 1, -1, 0]
    assert block_of.tolist() == [0, 1]
    assert state_of.tolist() == [0, 0]
    assert block.tolist()[8:] == [-1, 1, -1, 1, -1]
    assert state.tolist()[8:] == [-1, 1, -1, 0, -1]


@pytest.mark.parametrize("window", [200, WINDOW_EVENTS])
def test_the_truth_stands_beside_blames_answer(tmp_path: Path, window: int) -> None:
    # GIVEN a reader that takes 150 µs while a writer runs, and 50 µs while that stands
    ios, notes = blame_logs.experiment()
    path = blame_logs.write(tmp_path / "a.biotrail", ios, paused=notes)
    # WHEN its time is blamed, in windows of any size
    found = blamed(path, window)
    # THEN both say that two thirds of its time are the writer's
    assert found.experiment is not None
    assert (found.experiment.label, found.experiment.periods) == (notes[0]["label"], 8)
    assert found.experiment.parties == ("backup",)
    [truth] = found.experiment.victims
    assert truth.running.mean_ns == pytest.approx(150 * US)
    assert truth.standing.mean_ns == pytest.approx(50 * US)
    assert truth.truth.share == pytest.approx(2 / 3)
    assert truth.truth.between == pytest.approx((2 / 3, 2 / 3))
    assert truth.blamed == pytest.approx(2 / 3)
    # AND the matrix is of the running periods alone, and what is not in it is counted
    app = victim(found, "app")
    assert app.ios == truth.running.count
    assert part(app, Kind.OTHER, "backup") == pytest.approx(app.wait_ns * 2 / 3)
    victims = sum(one.ios for one in found.victims)
    assert victims + found.experiment.left_out == found.ios


def test_the_interval_is_as_wide_as_periods_differ() -> None:
    # GIVEN 400 experiments of 8 periods, whose means differ by chance from a truth of a half
    chance = np.random.default_rng(7)
    notes = [{"from": (2 * at + 1) * S, "to": (2 * at + 2) * S} for at in range(8)]
    periods, inside = Periods(notes), 0
    victim_of = type("Row", (), {"name": "app", "parts": [], "wait_ns": 1})()
    for _ in range(400):
        trial = Trial(periods, 1)
        for at in range(8):
            for begin, usual in ((2 * at + 1, 1000), (2 * at, 2000), (2 * at + 2, 2000)):
                mean = max(int(chance.normal(usual, usual / 5)), 1)
                place = begin * S + SKIP_NS + (0 if begin != 2 * at else 700 * MS)
                times = np.full(50, place + MS)
                trial.add_ios(times, np.zeros(50, np.int64), np.full(50, mean))
        # WHEN the truth is told
        found = experiment_of(notes, {}, set(), True)
        trial.close(found, [(0, victim_of)], [], lambda *_: ("", ""))
        [one] = found.victims
        low, high = one.truth.between or (0.0, 0.0)
        inside += low <= 0.5 <= high
    # THEN its interval holds the truth in about 95 of 100
    assert 0.91 <= inside / 400 <= 0.985


def test_a_cgroup_is_the_suspect_with_all_below_it(tmp_path: Path) -> None:
    # GIVEN a cgroup that stood, whose writer is in one below it, beside one with a like name
    ios, notes = blame_logs.experiment()
    ids = {"app": 1, "backup": 2, "other": 3}
    ios += blame_logs.alone("other", 30, 10 * MS, 2 * MS)
    ios = [Io(**{**vars(one), "cgroup": ids[one.comm]}) for one in ios]
    notes = [{**one, "cgroup": "/batch", "label": "the cgroup /batch", "pids": []} for one in notes]
    paths = {"1": "/db", "2": "/batch/one", "3": "/batches"}
    path = blame_logs.write(tmp_path / "a.biotrail", ios, paused=notes, cgroups=paths)
    # WHEN it is blamed / THEN the writer is the suspect, the other cgroup is not
    found = blamed(path, by=("cgroup", "cgroup")).experiment
    assert found is not None
    assert found.parties == ("/batch/one",)
    assert [one.name for one in found.victims] == ["/db"]
    assert found.victims[0].blamed == pytest.approx(2 / 3)


def test_a_suspect_that_is_no_culprit_is_blamed_for_nothing(tmp_path: Path) -> None:
    # GIVEN an experiment
    ios, notes = blame_logs.experiment()
    path = blame_logs.write(tmp_path / "a.biotrail", ios, paused=notes)
    # WHEN culprits are operations / THEN the truth is told, and no answer is beside it
    found = blamed(path, by=("process", "op")).experiment
    assert found is not None and not found.parties
    [truth] = [one for one in found.victims if one.name == "app"]
    assert truth.blamed is None
    assert truth.truth.share == pytest.approx(2 / 3)
    # GIVEN a program that does no I/O, and is stopped
    ios, notes = blame_logs.experiment()
    notes = [{**one, "name": "burn", "label": "burn (7)", "pids": [7]} for one in notes]
    path = blame_logs.write(tmp_path / "a.biotrail", ios, paused=notes)
    # WHEN the experiment is told / THEN blame gives it nothing of anybody's time, and says why
    found = blamed(path).experiment
    assert found is not None
    assert (found.parties, found.idle) == ((), True)
    assert {one.blamed for one in found.victims} == {0.0}


def test_text_and_json_tell_the_experiment(tmp_path: Path, cli: Cli) -> None:
    # GIVEN an experiment
    ios, notes = blame_logs.experiment()
    path = blame_logs.write(tmp_path / "a.biotrail", ios, paused=notes)
    # WHEN it is printed / THEN both have the truth with its interval, and blame's answer
    text = cli("blame", "--by", "process", path).out
    told = cli.json("blame", "--by", "process", path)["experiment"]
    assert "67 % (67 to 67)" in text
    assert f"* {notes[0]['label']} makes app wait: 67 % of its time." in text
    [one] = told["victims"]
    assert (one["share"], one["share_between"], one["blamed"]) == (0.6667, [0.6667] * 2, 0.6667)
    assert (told["culprits"], told["periods"], told["stood_ns"]) == (["backup"], 8, 8 * S)
    assert told["periods_wanted"] == 8
    # AND a log without one has none
    path = blame_logs.write(tmp_path / "b.biotrail", ios)
    assert cli.json("blame", path)["experiment"] is None


def test_periods_that_did_not_happen_are_counted(tmp_path: Path, cli: Cli) -> None:
    # GIVEN an experiment of nine periods, in three of which the suspect did not stand
    ios, notes = blame_logs.experiment()
    stood = [{**one, "times": 9} for one in notes[:6]]
    path = blame_logs.write(tmp_path / "a.biotrail", ios, paused=stood)
    # WHEN it is printed / THEN both say how many there were, and how many there should have been
    text = cli("blame", "--by", "process", path).out
    told = cli.json("blame", "--by", "process", path)["experiment"]
    assert f"{notes[0]['label']} stood 6 of 9 times, 6 s in all" in text
    assert (told["periods"], told["periods_wanted"]) == (6, 9)
