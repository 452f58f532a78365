# SPDX-License-Identifier: Apache-2.0
"""Blame: whose I/O made whose I/O wait, to the nanosecond, however a log is cut."""

import json
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from biotrail.converters.analysis.blame import bases
from biotrail.converters.analysis.blame.tree import Kind
from biotrail.converters.analysis.distributions.keys import RECORDER
from biotrail.converters.analysis.report.report import make_report
from biotrail.converters.pipeline import Trace
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
    for by in ("process", "owner", "op", "file"):
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


def test_nobody_is_blamed_where_nobody_else_is(tmp_path: Path) -> None:
    # GIVEN a reader that is alone, one of whose reads takes a hundred times as long
    ios = blame_logs.alone("app", 100, MS)
    ios[50] = Io("app", 50 * MS, 50 * MS + US, 50 * MS + 900 * US)
    # WHEN its time is blamed
    app = victim(blamed(blame_logs.write(tmp_path / "a.biotrail", ios)), "app")
    # THEN what that took beyond its class is the device's alone
    assert part(app, Kind.SERVICE) == 100 * 50 * US
    assert part(app, Kind.DEVICE) == 850 * US
    assert not app.without and not part(app, Kind.OTHER, "backup")


def test_own_other_io_is_no_culprit(tmp_path: Path) -> None:
    # GIVEN reads that are alone, and two at once that take twice as long
    ios = blame_logs.alone("app", 40, 10 * MS)
    for at in range(41, 60):
        ios += [Io("app", at * 10 * MS, at * 10 * MS + US, at * 10 * MS + 99 * US)] * 2
    app = victim(blamed(blame_logs.write(tmp_path / "a.biotrail", ios)), "app")
    # THEN the excess is waiting behind own other I/O
    assert part(app, Kind.OWN) == 38 * 49 * US
    assert {one.kind for one in app.parts} == {Kind.SERVICE, Kind.OWN}


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


def test_few_without_company_give_no_counterfactual(tmp_path: Path) -> None:
    # GIVEN a reader of whose reads all but 20 are beside a writer's
    ios = [io for io in blame_logs.beside_a_writer() if io.comm == "backup"]
    ios += blame_logs.alone("app", 20, MS, 10 * S)
    ios += [Io("app", io.queue + US, io.issue + 2 * US, io.queue + 551 * US) for io in ios[:100]]
    app = victim(blamed(blame_logs.write(tmp_path / "a.biotrail", ios)), "app")
    # THEN the writer is named, but not what would be without it
    assert part(app, Kind.OTHER, "backup") > app.wait_ns / 2
    assert not app.without


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
        assert app.small_ns == app.wait_ns
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
    told = json.loads(cli("blame", "--json", path).out)
    assert {one["name"] for one in told["victims"]} == {"db.service", "nightly"}
    # AND each side can have its own dimension, and victims can be chosen
    words = ("--victim-by", "unit", "--culprit-by", "op", "--victim", "db*")
    told = json.loads(cli("blame", "--json", *words, path).out)
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


def test_victims_are_chosen_and_culprits_stay(tmp_path: Path, cli: Cli) -> None:
    # GIVEN a reader beside a writer / WHEN reads alone are asked for
    path = blame_logs.write(tmp_path / "a.biotrail", blame_logs.beside_a_writer())
    told = json.loads(cli("blame", "--json", "--op", "read", path).out)
    # THEN the writer is no victim, but a culprit
    [app] = told["victims"]
    assert [p["culprit"] for p in app["parts"]] == [None, "backup"]
    # AND of the time asked for alone
    told = json.loads(cli("blame", "--json", "--from", "0s", "--to", "1s", path).out)
    assert [v["ios"] for v in told["victims"] if v["name"] == "app"] == [100]


def test_an_empty_log_has_no_victims(tmp_path: Path, cli: Cli) -> None:
    # GIVEN a log without I/O / WHEN it is blamed / THEN nobody waited
    path = blame_logs.write(tmp_path / "a.biotrail", [])
    assert json.loads(cli("blame", "--json", path).out)["victims"] == []
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
    # WHEN they are blamed in one window, by device
    whole = blamed(path, by=("device", "process"))
    # THEN windows make no difference
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
