# SPDX-License-Identifier: Apache-2.0
"""slow: which I/Os, their events, and what was in their way."""

import io
import random
import stat
from bisect import bisect_right
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from biotrail.cli.options.opening import USUAL, opener
from biotrail.converters.analysis.choosing.choosing import Choice
from biotrail.converters.analysis.choosing.select import around, excerpt
from biotrail.converters.analysis.slow.io_details import IO
from biotrail.converters.analysis.slow.slow import Slowest, SlowIO, Wanted
from biotrail.converters.analysis.slow.surroundings import (
    MOST_BEFORE,
    Before,
    Neighbour,
    Neighbourhood,
)
from biotrail.converters.events.tables import NEVER, Bios, Lifecycles, Tasks
from biotrail.converters.lifecycles.result import Result
from biotrail.converters.outputs.perfetto.convert import convert
from biotrail.converters.pipeline import Trace
from biotrail.recorder.schema.payloads import FollowFacts
from biotrail.recorder.schema.records import HIT_BORN, HIT_ENDED, Kind
from tests.scenarios.causes import FLOOD
from tests.scenarios.stacks import CASES as STACKS
from tests.scenarios.tools import devices_with, events_of
from tests.scenarios.tools import read as read_log
from tests.simulation.delivery import log_of as simulated_log
from tests.simulation.loads import history
from tests.simulation.model import Bio, History
from tests.simulation.truth import Truth
from tests.support import captures
from tests.support.cli_runner import Cli
from tests.support.paths import ROOT, SAMPLE
from tests.support.perfetto_check import read
from tests.support.site_logs import FOLLOW, SiteLog
from tests.support.stack_logs import DEV


@pytest.fixture
def flood(tmp_path: Path) -> Path:
    return captures.write_log(tmp_path / "flood.biotrail", events_of(FLOOD))


def tasks(group: dict[str, Any]) -> tuple[int, int, dict[str, int]]:
    return group["ios"], group["bytes"], group["tasks"]


def test_the_slowest_come_first_each_in_a_line(cli: Cli, flood: Path) -> None:
    # GIVEN a log / WHEN few, or only slow ones are asked for
    found = cli.json("slow", flood)["ios"]
    # THEN they come in the order of their latency
    assert [slow["io"]["latency_ns"] for slow in found] == [1_000_000, 980_000, 880_000, 50_000]
    assert cli.json("slow", "--top", "2", flood)["ios"] == found[:2]
    assert cli.json("slow", "--over", "900us", flood)["ios"] == found[:2]
    counts = cli.json("slow", "--top", "1", "--over", "60us", flood)["counts"]
    assert (counts["ios"], counts["matching"], counts["under_way"]) == (4, 3, 0)
    assert (counts["without_latency"], counts["tries"]) == (0, 0)
    # GIVEN a log / WHEN a line for each is asked for / THEN it has the stage that took the time
    said = cli("slow", "--brief", flood).out.splitlines()
    assert said == [
        "all of 4 I/Os, the slowest first",
        "most time went to: D2C in 3, I2D in 1",
        "#1         1 ms  D2C 97.0 %         vda write of 64.0 KiB at sector 1000, writer (11)",
        "#2       980 µs  I2D 89.5 %         vda read of 4.0 KiB at sector 5000, reader (12)",
        "#3       880 µs  D2C 96.6 %         vda write of 64.0 KiB at sector 2000, writer (11)",
        "#4        50 µs  D2C 92.0 %         vda write of 64.0 KiB at sector 0, writer (11)",
    ]


def test_a_log_is_read_twice_and_counted_without_a_wish(
    flood: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a log / WHEN no I/O is to be kept, window by window
    trace = Trace(flood)
    found = Slowest(trace, Choice(trace.context), Wanted(top=0))
    for _ in trace.lifecycles(4, on_window=found.watch):
        pass
    # THEN none is kept, and all are counted
    assert found.found == []
    assert (found.counts.ios, found.counts.matching) == (4, 4)
    # GIVEN a log from a pipe / WHEN it is opened again / THEN it is read from its beginning
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(flood.read_bytes())))
    with opener("-", USUAL, twice=True) as again:
        counts = [sum(len(w.bios) for w in again().lifecycles()) for _ in "12"]
    assert counts == [4, 4]


def test_what_does_anothers_work_is_told_with_it(cli: Cli, tmp_path: Path) -> None:
    # GIVEN stacked devices, where lower bios do the work of upper ones
    case = next(c for c in STACKS if "parent" in c.then and "md" in c.name.lower())
    header = {"devices": devices_with(case.devices)}
    log = captures.write_log(tmp_path / "a.biotrail", events_of(case.given), header)
    # WHEN the slow ones are asked for
    found = cli.json("slow", log)["ios"]
    # THEN lower ones are with their parent alone, with stages of their own
    numbers = [slow["io"]["number"] for slow in found]
    below = [child for slow in found for child in slow["children"]]
    assert below
    assert not {child["number"] for child in below} & set(numbers)
    for child in below:
        assert sum(span["ns"] for span in child["stages"]) == child["latency_ns"]
    # AND a lower device that is asked for has its own, with their parent
    lower = cli.json("slow", "-d", below[0]["device"], log)["ios"]
    assert lower[0]["parents"][0]["number"] in numbers


def test_what_had_not_ended_counts_with_what_it_waited(cli: Cli, tmp_path: Path) -> None:
    # GIVEN a log that ends while a write is in the device
    text = "0 Q W 0+8 bio=1\n1 G W 0+8 bio=1\n2 s W 0+8 bio=1 rq=1\n3 D W 0+8 bio=1 rq=1\n"
    more = "5000 Q R 64+8 bio=2\n5001 G R 64+8 bio=2\n"
    log = captures.write_log(tmp_path / "a.biotrail", events_of(text + more))
    # WHEN the slowest is asked for / THEN it is that one, marked, and where it is
    slow = cli.json("slow", log)["ios"][0]
    assert slow["io"]["under_way"]
    assert slow["io"]["latency_ns"] is None
    assert slow["io"]["waited_ns"] == 5_001_000
    assert slow["io"]["stages"][-1]["stage"] == "D2C"
    assert ", still in flight" in cli("slow", log).out


def test_what_hangs_comes_first(cli: Cli, tmp_path: Path) -> None:
    # GIVEN a read that took 3 s, and at the log's end a write in flight for 1.2 s or less than 1 s
    read = "0 Q R 0+8 bio=1\n1 G R 0+8 bio=1\n2 s R 0+8 bio=1 rq=1\n3 D R 0+8 bio=1 rq=1 tag=1/1\n"
    done, write = "3000000 C R 0+8 bio=1 rq=1\n", "{} Q W 64+8 bio=2\n"
    for events, first in (
        (write.format(2_800_000) + done, "write"),
        (done + write.format(3_950_000), "read"),
    ):
        text = f"{read}{events}4000000 Q R 128+8 bio=3\n"
        log = captures.write_log(tmp_path / "a.biotrail", events_of(text))
        # WHEN the slowest one is asked for THEN it is what hangs, if it does for a second
        found = cli.json("slow", "--top", "1", log)["ios"]
        assert [slow["io"]["operation"] for slow in found] == [first]


def test_bad_input_and_empty_choices_are_said(cli: Cli, flood: Path, tmp_path: Path) -> None:
    # GIVEN a log without what is asked for, and one without events / WHEN they are read
    empty = captures.write_log(tmp_path / "empty.biotrail", [])
    # THEN a line says so, and that is no failure
    done = cli("slow", "--over", "1h", flood)
    assert (done.status, done.out) == (0, "no I/O of 60 min 0 s or more among 4 I/Os\n")
    assert cli("slow", "--over", "1000000000s", flood).status == 0
    assert cli("slow", "--failed", flood).out == "no failed I/O among 4 I/Os\n"
    assert cli("slow", empty).out == "no I/O among 0 I/Os\n"
    assert cli.json("slow", empty)["ios"] == []
    # AND no trace is written
    out = tmp_path / "no.pftrace"
    assert cli("slow", empty, "-o", out).status == 0
    assert not out.exists()
    # GIVEN a device that the log does not have, and a file that is no log
    done = cli("slow", "-d", "sdx", flood)
    # WHEN they are read / THEN one message says what is wrong
    assert done.status == 1
    assert "no device sdx" in done.err
    assert "vda" in done.err
    (tmp_path / "no.log").write_bytes(b"nothing of the kind")
    assert cli("slow", tmp_path / "no.log").status == 1


SEQUENCE = """
0   QGs WFS 0+8 bio=1 rq=1
3   I WS 0+8 bio=1 rq=1
24  D WS 0+8 bio=1 rq=1
30  C WS 0+8 bio=1 rq=1
31  d WS 0+0 rq=1
35  Q R 64+8 bio=2
"""
"""A FUA write whose flush after the data has not come when the log ends."""


@pytest.mark.parametrize(
    ("until", "stage", "others"),
    [("35", "post-flush", ("D2C",)), ("24", "D2C", ()), ("3", "I2D", ())],
)
def test_the_log_s_end_is_in_the_last_stage_alone(
    cli: Cli, tmp_path: Path, until: str, stage: str, others: tuple[str, ...]
) -> None:
    # GIVEN a flush sequence of which the log has a part
    lines = [line for line in SEQUENCE.splitlines() if line]
    known = [line for line in lines if int(line.split()[0]) <= int(until)]
    log = captures.write_log(tmp_path / "a.biotrail", events_of("\n".join(known)))
    # WHEN it is shown
    [slow] = [one for one in cli.json("slow", log)["ios"] if one["io"]["operation"] == "write"]
    # THEN its last stage is what it was in when the log ended, also if that began just then
    stages = slow["io"]["stages"]
    assert stages[-1]["stage"] == stage
    assert sum(one["ns"] for one in stages) == slow["io"]["waited_ns"]
    # AND stages that had ended before are not said to go on until the log's end
    said = cli("slow", log).out
    assert set(others) <= {one["stage"] for one in stages[:-1]}
    for line in said.splitlines():
        if "until the log's end" in line and " write " not in line:
            assert stage in line


def test_the_trace_holds_what_was_around(cli: Cli, tmp_path: Path) -> None:
    # GIVEN the sample / WHEN the slowest are written as a trace
    perfetto = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    out = tmp_path / "slow.pftrace"
    [slow] = cli.json("slow", "--top", "1", "--margin", "1ms", "-o", out, SAMPLE)["ios"]
    # THEN it is private, and holds that I/O and others
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    trace = perfetto.Trace()
    trace.ParseFromString(out.read_bytes())
    numbers = set(_numbers(trace))
    assert slow["io"]["number"] in numbers
    whole = cli.json("info", SAMPLE)["account"]["bios"]
    assert 10 < len(numbers) < sum(whole.values())
    # AND with any margin, all of the log's are
    assert (
        cli("slow", "--margin", "1000000000s", "-o", tmp_path / "all.pftrace", SAMPLE).status == 0
    )
    # AND it is not replaced without --force
    assert cli("slow", "--top", "1", "-o", out, SAMPLE).status == 1
    assert cli("slow", "--top", "1", "-o", out, "-f", SAMPLE).status == 0


def _numbers(trace: Any) -> Any:
    """Numbers of the bios that are drawn."""
    names: dict[tuple[int, int], str] = {}
    for packet in trace.packet:
        sequence = packet.trusted_packet_sequence_id
        for entry in packet.interned_data.debug_annotation_names:
            names[sequence, entry.iid] = entry.name
        annotations = {
            names.get((sequence, a.name_iid)): a for a in packet.track_event.debug_annotations
        }
        if "number" in annotations:
            yield annotations["number"].uint_value


def test_the_page_names_every_key_of_json(cli: Cli, flood: Path) -> None:
    # GIVEN what --json prints / WHEN its keys are looked up / THEN docs/slow.md has each
    page = (ROOT / "docs" / "slow.md").read_text(encoding="utf-8")
    found = cli.json("slow", flood)
    for group in ("operations", "tasks"):
        found["ios"][1]["surroundings"]["ahead"][group] = {}
    missing = sorted(key for key in _keys(found["ios"][1]) | set(found) if f"`{key}`" not in page)
    assert not missing


def _keys(value: Any) -> set[str]:
    if isinstance(value, list):
        return set().union(*map(_keys, value)) if value else set()
    if not isinstance(value, dict):
        return set()
    named = {k: v for k, v in value.items() if k not in ("operations", "tasks")}
    return set(named) | {k for k in value if k not in named} | _keys(list(named.values()))


# What report and slow call the cause, where it is known how long each stage took.

MERGED = """
0    QGs W 0+8 bio=1 rq=1
10   QM W 8+8 bio=2
1000 D W 0+16 bio=1 rq=1 tag=7/-1 bios=2
1100 C W 0+16 bio=1 rq=1
"""
"""A write (bio 2, 1,090 µs) that joins another's request waits 989 µs for its issue."""
GIVEN_BACK = """
0    QGsI R 0+8 bio=1 rq=1
5    D R 0+8 bio=1 rq=1 tag=1/1
10   R R 0+8 bio=1 rq=1
400  D R 0+8 bio=1 rq=1 tag=1/1
402  R R 0+8 bio=1 rq=1
900  D R 0+8 bio=1 rq=1 tag=2/1
1000 C R 0+8 bio=1 rq=1
"""
"""A read (1,000 µs) that the driver gives back twice, for 888 µs in all."""


def log_of(directory: Path, text: str, scheduler: str | None = None) -> Path:
    entry = {"name": "vda", "kind": "disk", "sectors": 1 << 20}
    entry |= {"scheduler": scheduler} if scheduler else {}
    devices = {"devices": devices_with([("254:0", entry)])}
    return captures.write_log(directory / "a.biotrail", events_of(text), devices)


@pytest.mark.parametrize(
    ("scheduler", "inserted", "stage", "longest", "cause"),
    [
        ("none", "", "M2D", "989 µs", "held back (plugged)"),
        ("mq-deadline", "@990", "M2I", "979 µs", "held back (plugged) before the scheduler got it"),
        ("mq-deadline", "@20", "I2D", "980 µs", "waited in the scheduler"),
        ("mq-deadline", "@5", "I2D", "989 µs", "waited in the scheduler"),
        ("mq-deadline", "", "M2D", "989 µs", "not issued yet (plugged, or in the scheduler)"),
        (None, "", "M2D", "989 µs", "not issued yet (plugged, or in the scheduler)"),
    ],
)
def test_what_held_back_a_merged_write_is_named(
    cli: Cli,
    tmp_path: Path,
    scheduler: str | None,
    inserted: str,
    stage: str,
    longest: str,
    cause: str,
) -> None:
    # GIVEN a write that joined a request, which was inserted late, early, before, or never
    insert = f"{inserted[1:]} I W 0+{8 if inserted == '@5' else 16} bio=1 rq=1"
    log = log_of(tmp_path, MERGED + insert * bool(inserted), scheduler)
    # WHEN the slowest are told / THEN the stage is named, and who held it back where the log tells
    lines = cli("slow", log).out.splitlines()
    *_, line = [line for line in lines if line.startswith(f"  > {stage} ")]
    assert longest in line
    assert line.endswith(cause)


def test_a_request_that_the_driver_gives_back_is_named(cli: Cli, tmp_path: Path) -> None:
    # GIVEN a read that the driver gives back, and that waits for its next issue
    log = log_of(tmp_path, GIVEN_BACK, "mq-deadline")
    # WHEN the slowest is told / THEN its longest wait is named, and how often that happened
    said = cli("slow", log).out
    [line] = [line for line in said.splitlines() if line.startswith("  > ")]
    assert line.startswith("  > R2D           498 µs  49.8 %")
    assert line.endswith("was given back by the driver, and waited to be issued again")
    assert "    2 requeues\n" in said
    # AND the report has the stage and the count
    [device] = cli.json("report", log)["devices"]
    assert device["events"]["requeues"] == 2
    [read] = device["operations"]
    stages = {stage["stage"]: stage for stage in read["stages"]}
    assert (stages["R2D"]["count"], stages["R2D"]["sum_ns"]) == (2, 888_000)
    assert stages["R2D"]["share"] == pytest.approx(0.888)
    assert " R2D " in cli("report", log).out


# slow --functions: the trees of the lives that slow I/Os' requests are.

US = 1_000


def written(path: Path, follow: FollowFacts | None = FOLLOW) -> Path:
    """Three reads of 900, 500 and 100 µs with one address of requests; the last two followed."""
    log = SiteLog(pairs=[], follow=follow)
    for number, (start, took) in enumerate(((0, 900), (2_000, 500), (4_000, 100)), 1):
        both = {"bio": number << 6, "sector": 8 * number, "bytes": 4096, "dev": DEV}
        begin, end = start * US, (start + took) * US
        log.add(Kind.Q, begin, **both, part=DEV, tid=42)
        log.add(Kind.START, begin + 10, rq=0x1000, **both)
        log.add(Kind.D, begin + 20, rq=0x1000, **both, nr_bios=1)
        log.add(Kind.C, end, rq=0x1000, **both)
        if number > 1 and follow is not None:
            log.span(begin + 15, begin + 30, 0, flags=HIT_BORN, life=number, object=0x1000)
            log.span(end - 10, end + 10, 2, flags=HIT_ENDED, life=number, object=0x1000)
    if follow is not None:
        log.hit(50, 1, life=9, object=0x7000, flags=HIT_BORN)
    return log.write(path)


def test_each_io_has_the_tree_of_its_own_request(cli: Cli, tmp_path: Path) -> None:
    # GIVEN slow I/Os, of which one was not followed  WHEN they are shown with functions
    log = written(tmp_path / "log")
    told = cli.json("slow", "--functions", log)["ios"]
    # THEN each one has its request's lives, and the functions of these with their times
    assert [[one["life"] for one in io["followed"]] for io in told] == [[], [2], [3]]
    assert told[0]["functions"] == []
    (life,) = told[1]["functions"]
    assert life["request"] == told[1]["requests"][0]["number"] == told[1]["followed"][0]["number"]
    nodes = [(n["name"], n["end_ns"] - n["begin_ns"]) for c in life["contexts"] for n in c["nodes"]]
    assert nodes == [("blk_mq_start_request", 15), ("blk_mq_end_request", 20)]
    # AND without the option there are only the lives' numbers
    assert all("functions" not in io for io in cli.json("slow", log)["ios"])
    # AND `info` says how many of the lives are requests
    assert "2 of 3 lives joined with a recorded request" in cli("info", log).out


def test_the_page_of_an_io_shows_them(cli: Cli, tmp_path: Path) -> None:
    # GIVEN the same  WHEN shown as text
    text = cli("slow", "--functions", written(tmp_path / "log")).out
    # THEN the beginning says how many were followed, and each page has its tree or says why not
    assert "functions: of 2 of these 3 I/Os; 2 of 3 followed lives are a recorded request's" in text
    pages = text.split("\n#")[1:]
    assert "functions: no request of it was followed" in pages[0]
    assert "blk_mq_end_request" not in pages[0]
    for page in pages[1:]:
        assert "functions that request 1 passed, from 15 ns after the I/O was queued:" in page
        assert "blk_mq_start_request" in page
        assert "blk_mq_end_request" in page


@pytest.mark.parametrize(
    ("follow", "message"),
    [
        (None, "--functions: the log follows nothing; record with --follow request"),
        ({**FOLLOW, "type": "folio"}, "--functions: the log follows folio, which is no I/O"),
    ],
)
def test_a_log_without_followed_io_is_refused(
    cli: Cli, tmp_path: Path, follow: FollowFacts | None, message: str
) -> None:
    # GIVEN a log that follows nothing, or what is no I/O  WHEN functions are asked for
    done = cli("slow", "--functions", written(tmp_path / "log", follow))
    # THEN one message says so
    assert done.status == 1
    assert message in done.err


# Generated histories: the events and the surroundings of I/Os are what truly happened.

SEEDS = range(60)
NOT_TOLD = "bTPU"


def determined(truth: Truth) -> dict[int, Bio]:
    """Whole bios of which all is known, by number."""
    found = {}
    for bio in truth.history.bios:
        queue = truth.first(bio, "Q")
        if queue is None or not truth.determined(bio) or truth.bio(bio).interval:
            continue
        first = truth.first(bio, "AQX")
        if first is not None and bio is bio.root:
            found[truth.number[first]] = bio
    return found


def true_events(truth: Truth, bio: Bio) -> set[int]:
    """Numbers of the records about a bio, its pieces and all requests that ever held them."""
    pieces = [bio, *bio.pieces]
    requests = {rq for piece in bio.pieces for rq in piece.requests}
    told = [r for p in pieces for r in p.records] + [r for rq in requests for r in rq.records]
    return {truth.number[r] for r in told if r in truth.recorded and r.letter not in NOT_TOLD}


def found_events(log: History) -> dict[int, set[int]]:
    events: dict[int, set[int]] = {}

    def watch(result: Result, window: Lifecycles) -> None:
        table, told = result.histories(window.bios.number)
        numbers = told.number[table.event]
        for bio, number in zip(table.bio.tolist(), numbers.tolist(), strict=True):
            events.setdefault(bio, set()).add(number)

    for _ in Trace(simulated_log(log)).lifecycles(log.window_events, on_window=watch):
        pass
    return events


@pytest.mark.parametrize("seed", SEEDS)
def test_the_events_of_a_bio_are_all_that_were_recorded(seed: int) -> None:
    # GIVEN a block layer at work
    log = history(random.Random(seed), size=4)
    truth = Truth(log)
    # WHEN the events of its bios are asked for / THEN they are those that were written about them
    found = found_events(log)
    for number, bio in determined(truth).items():
        assert found[number] == true_events(truth, bio), (seed, number)


def slowest_of(log: History, top: int) -> list[SlowIO]:
    trace = Trace(simulated_log(log))
    found = Slowest(trace, Choice(trace.context), Wanted(top), False)
    for _ in trace.lifecycles(log.window_events, on_window=found.watch):
        pass
    return found.found


@pytest.mark.parametrize("seed", SEEDS)
def test_the_slowest_are_the_slowest(seed: int) -> None:
    # GIVEN a block layer at work / WHEN the five slowest I/Os are asked for
    log = history(random.Random(seed), size=4)
    few, every = slowest_of(log, 5), slowest_of(log, 10_000)
    # THEN they are the first of all, by what they waited
    assert [s.io.number for s in few] == [s.io.number for s in every[:5]]
    waits = [s.io.waited_ns for s in every]
    assert waits == sorted(waits, reverse=True)
    # AND where all is known, latency and mates are the true ones
    truth = Truth(log)
    known = determined(truth)
    numbers = {id(bio): number for number, bio in known.items()}
    for slow in every:
        bio = known.get(slow.io.number)
        if bio is None or slow.io.certainty != "exact":
            continue
        end, queue = truth.bio(bio).columns["complete"], truth.bio(bio).columns["queue"]
        assert slow.io.latency_ns == end - queue
        held = {rq for p in bio.pieces for rq in p.requests}
        mates = {m.root for b in log.bios for m in b.pieces if held & set(m.requests)} - {bio}
        sure = {numbers[id(m)] for m in mates if id(m) in numbers}
        if len(sure) == len(mates):
            assert {m.number for m in slow.mates} == sure


@pytest.mark.parametrize("seed", SEEDS)
def test_surroundings_are_the_same_in_any_windows(seed: int) -> None:
    # GIVEN a block layer at work, and its slowest I/Os
    log = history(random.Random(seed), size=5)
    ios = [slow.io for slow in slowest_of(log, 8) if slow.io.queue_ns is not None]
    # WHEN what was around them is gathered in small windows, and from one table of all
    few, whole = (gathered(log, ios, size) for size in (log.window_events, 1 << 20))
    # THEN both say the same
    assert few == whole
    # AND what was in the device is what a look at every bio says
    trace = Trace(simulated_log(log))
    tables = [w.bios for w in trace.lifecycles(1 << 20)]
    for slow_io, found in zip(ios, whole, strict=True):
        assert found is not None
        count = 0
        for bios in tables:
            at, other = slow_io.queue_ns, bios.number != slow_io.number
            on = (bios.dev == slow_io.dev) & other & (bios.queue >= 0) & (bios.issue >= 0)
            on &= (bios.queue <= at) & (bios.issue <= at) & (bios.complete > at)
            count += int(np.sum(on))
        if log.losses or any(b.certainty.max(initial=0) > 1 for b in tables):
            continue
        assert found.when_queued.in_device.ios == count
        # AND what the device had before it is that, and all that was issued before it since
        before = sum(n.ios for n in found.before) + found.before_left_out
        if found.when_issued is not None:
            assert before == count + found.ahead.ios + found.overtook_it.ios
        assert len(found.before) <= MOST_BEFORE


def gathered(log: History, ios: list[IO], window_events: int) -> list[object]:
    trace = Trace(simulated_log(log))
    near = Neighbourhood(trace.context, ios)
    for window in trace.lifecycles(window_events):
        if near.add(window):
            break
    found = near.finish()
    return [found.get(io.number) for io in ios]


# What a device had before an I/O: the list is bounded, and right for any number of neighbours.

QUEUE, END, FOREVER = 1_000_000, 9_000_000, np.iinfo(np.int64).max


def bios(count: int, **columns: Any) -> Bios:
    """Bios of 4 KiB by one task, numbered from 0."""
    given = {"number": np.arange(count), "bytes": np.full(count, 4096), **columns}
    return Bios(**{f.name: given.get(f.name, np.zeros(count, np.int64)) for f in fields(Bios)})


def neighbours(
    table: Bios, end: Any, parts: int = 1, mates: frozenset[int] = frozenset()
) -> Before:
    found = Before(QUEUE, END, mates)
    tasks = Tasks(np.zeros(1), np.zeros(1), np.array(["fio"], dtype=object))
    for rows in np.array_split(np.arange(len(table)), parts):
        codes, every = np.zeros(len(rows), np.int64), np.ones(len(rows), np.bool_)
        found.add(table.take(rows), end[rows], every, ["write"], codes, tasks)
    return found


def expected(table: Bios, end: Any, mates: frozenset[int]) -> list[tuple[int, int]]:
    """(least number, I/Os) of those that were beside it the longest, by a look at each."""
    requests: dict[tuple[int, int], list[int]] = {}
    rows = zip(table.number.tolist(), table.issue.tolist(), end.tolist(), strict=True)
    for number, issue, over in rows:
        if number not in mates:
            requests.setdefault((issue, over), []).append(number)
    ranked = sorted(
        requests.items(), key=lambda of: (max(of[0][0], QUEUE) - min(of[0][1], END), of[1][0])
    )
    return [(numbers[0], len(numbers)) for _, numbers in ranked[:MOST_BEFORE]]


@pytest.mark.parametrize("count", [5, 300, 30_000])
@pytest.mark.parametrize("parts", [1, 7])
def test_those_longest_beside_it_are_kept(count: int, parts: int) -> None:
    # GIVEN bios of many requests, some of several bios, some mates of the I/O
    draw = np.random.default_rng(count)
    issue = np.sort(draw.integers(0, END - 1, count) // 50 * 50)
    issue[1::3] = issue[0::3][: len(issue[1::3])]
    end = issue + draw.integers(1, 3, count) * 700_000 + QUEUE
    mates = frozenset(draw.integers(0, count, min(count // 4, 64)).tolist())
    table = bios(count, queue=issue - 5, issue=issue, complete=end)
    # WHEN they are gathered, in one window or in several
    found = neighbours(table, end, parts, mates)
    # THEN those that had the device the longest are kept, a request as one, and all are counted
    kept = found.neighbours()
    assert len(kept) <= MOST_BEFORE
    assert sum(n.ios for n in kept) + found.left_out == count - len(mates)
    if parts == 1:  # bios of one request are told together
        assert {(n.number, n.ios) for n in kept} == set(expected(table, end, mates))
    assert [n.issue_ns for n in kept] == sorted(n.issue_ns or 0 for n in kept)


def test_times_are_since_the_io_was_queued_and_touching_ones_one() -> None:
    # GIVEN two bios of one request, one still under way, and one of a device without requests
    end = np.array([QUEUE + 90, QUEUE + 90, FOREVER, QUEUE + 70])
    table = bios(
        4,
        queue=np.array([QUEUE - 40, QUEUE - 30, QUEUE - 20, QUEUE - 10]),
        issue=np.array([QUEUE - 5, QUEUE - 5, QUEUE + 1, NEVER]),
        complete=np.array([QUEUE + 90, QUEUE + 90, NEVER, QUEUE + 70]),
    )
    # WHEN they are gathered THEN each has its times, where these are known
    assert neighbours(table, end).neighbours() == [
        Neighbour(3, "write", 1, 4096, "fio", -10, None, 70, None, None),
        Neighbour(0, "write", 2, 8192, "fio", -40, -5, 90, 35, 95),
        Neighbour(2, "write", 1, 4096, "fio", -20, 1, None, 21, None),
    ]
    # GIVEN times / WHEN a margin is added / THEN what overlaps is one, in order
    assert around([(50, 60), (10, 20), (35, 40)], 8) == [(2, 68)]
    assert around([(50, 60), (10, 20)], 8) == [(2, 28), (42, 68)]
    assert around([], 8) == []


# Parts of a log: whole I/Os, whatever the windows are, and counters that are right within.

MS = 1_000_000


@pytest.mark.parametrize("window", [50, 700, 1 << 20])
def test_an_excerpt_holds_all_that_was_under_way(window: int) -> None:
    # GIVEN two times of a log, its bios, and the trace of all of it
    trace, part = Trace(SAMPLE), Trace(SAMPLE)
    bios, outs = read_log(SAMPLE).bios, (io.BytesIO(), io.BytesIO())
    convert(trace.lifecycles(), trace.context, outs[0])
    first = trace.account.first_ns
    times = [(first + 300 * MS, first + 320 * MS), (first + 1100 * MS, first + 1130 * MS)]
    # WHEN these times are drawn, from windows of any size / THEN the trace is sound
    convert(excerpt(part.lifecycles(window), times), part.context, outs[1])
    whole, found = (read(out.getvalue()) for out in outs)
    drawn = {s.args["number"]: s for s in found.slices("bio")}
    # AND everything that was under way then is there, from its beginning to its end
    rows = zip(*(c.tolist() for c in (bios.number, bios.queue, bios.complete)), strict=True)
    sure = {n: (b, e) for n, b, e in rows if b >= 0 and e >= 0}
    expected = {n for n, (b, e) in sure.items() if any(b <= y and e >= x for x, y in times)}
    assert expected == set(drawn) & set(sure)
    assert 0 < len(expected) < len(sure) / 2
    for number in expected:
        assert (drawn[number].start, drawn[number].end) == sure[number]
    # AND its counters say within these times what those of the whole log say
    for name in ("queued", "in device"):
        counters = [trace.counter(name) for trace in (whole, found)]
        for begin, end in times:
            for at in range(begin, end, MS // 4):
                values = [value_at(samples, at) for samples in counters]
                assert values[0] == values[1], (name, at - begin)


def value_at(samples: list[tuple[int, float]], at: int) -> float:
    place = bisect_right(samples, (at, float("inf")))
    return samples[place - 1][1] if place else 0.0
