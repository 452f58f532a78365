# SPDX-License-Identifier: Apache-2.0
"""Cuts hold exactly what a plain filter over the whole log gives, and read little for it."""

import io
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from biotrail.converters.analysis.choosing.choosing import Choice, Finder, OutcomeFilter, Who
from biotrail.converters.analysis.choosing.select import Selection
from biotrail.converters.events.events import Events
from biotrail.converters.events.tables import NEVER, Bios, Certainty, Requests, Stage, Table
from biotrail.converters.inputs.log import LogSource
from biotrail.converters.lifecycles.account import Account, Reason
from biotrail.converters.lifecycles.cutting import Span
from biotrail.converters.pipeline import Trace
from biotrail.recorder.log import LogWriter, Segment
from biotrail.recorder.schema.records import BY_KIND, BY_LETTER, TIMESTAMP_BITS, Kind
from tests.scenarios import cases, cases_more, losses, stacks, variants
from tests.scenarios.tools import Scenario, Tables, events_of, run
from tests.support import blktrace_records as blktrace
from tests.support import captures, cut_logs
from tests.support.captures import Event
from tests.support.cli_runner import Cli
from tests.support.cut_logs import MS, Io, S
from tests.support.log_samples import pipe_of
from tests.support.paths import ROOT
from tests.support.record_rings import record, ring

BASE = captures.BASE_NS
FILES = sorted(path.stem for path in captures.DATA.glob("*.txt"))


@pytest.fixture(scope="module")
def long_log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, list[Io]]]:
    """Ten minutes in 600 chunks, and all I/Os in it."""
    path = tmp_path_factory.mktemp("cuts") / "long.biotrail"
    yield path, cut_logs.write(path)


def limited(path: Path, begin: int, end: int, **how: Any) -> Trace:
    trace = Trace(path, **how)
    trace.span = Span(BASE + begin, BASE + end)
    return trace


def told(bios: Bios) -> dict[int, tuple[Any, ...]]:
    """As cut_logs.chosen."""
    found = {}
    for i in range(len(bios)):
        done, queue = int(bios.complete[i]), int(bios.queue[i])
        known = NEVER not in (done, queue)
        found[int(bios.sector[i])] = (
            queue == NEVER,
            done != NEVER,
            int(bios.status[i]) != 0,
            done - queue if known else None,
        )
    return found


def bios_of(trace: Trace, selection: Selection | None = None, **how: Any) -> Bios:
    windows = trace.lifecycles(**how)
    return Bios.concatenate([w.bios for w in (selection.of(windows) if selection else windows)])


@pytest.mark.parametrize(
    ("begin", "end"),
    [
        (0, S),
        (100 * S, 101 * S),
        (101 * S + 77 * MS, 101 * S + 80 * MS),
        (7 * S, 20 * S),
        (599 * S, 700 * S),
        (300 * S, 300 * S + 1),
    ],
)
def test_a_time_holds_what_was_under_way_then(
    long_log: tuple[Path, list[Io]], begin: int, end: int
) -> None:
    # GIVEN a log of ten minutes, of whose I/Os all is known
    path, ios = long_log
    # WHEN a time of it is cut out
    bios = bios_of(limited(path, begin, end))
    # THEN each I/O that was under way then is in it once, whole or open where it crosses an edge
    assert len(bios) == len(set(bios.sector.tolist()))
    assert told(bios) == cut_logs.chosen(ios, begin, end)
    # AND what crosses an edge is marked
    crossing = bios.queue == NEVER
    margin = {io.sector for io in ios if io.queue >= begin - cut_logs.MARGIN}
    known = np.isin(bios.sector, np.array(sorted(margin), dtype=np.uint64))
    assert (bios.cut[crossing & known] == BASE + begin).all()
    assert (bios.cut[~crossing] == NEVER).all()
    whole = ~crossing & (bios.complete != NEVER)
    assert (bios.certainty[~whole] >= Certainty.INCOMPLETE).all()


@settings(max_examples=25, deadline=None)
@given(
    begin=st.integers(0, 600 * S),
    length=st.integers(1, 20 * S),
    window=st.sampled_from([40, 10**6]),
)
def test_any_time_does(
    long_log: tuple[Path, list[Io]], begin: int, length: int, window: int
) -> None:
    # GIVEN any time / WHEN it is cut out, in windows of any size / THEN the same is true
    path, ios = long_log
    trace = limited(path, begin, begin + length)
    assert told(bios_of(trace, window_events=window, small=True)) == cut_logs.chosen(
        ios, begin, begin + length
    )


def test_a_second_reads_little(long_log: tuple[Path, list[Io]], tmp_path: Path) -> None:
    # GIVEN the long log / WHEN one second of it is cut out
    trace = limited(long_log[0], 400 * S, 401 * S)
    bios = bios_of(trace)
    source = trace.reader
    # THEN not more than 2 % of its chunks were read
    assert len(bios) >= 8
    assert 1 <= source.parts_read <= 0.02 * source.parts_total
    assert source.parts_searched == 0
    # AND yet the names of the threads are known, which were told once, at its beginning
    assert (bios.task >= 0).all()
    # GIVEN a log that was interrupted: it has no end, no index, and no note of names
    path = tmp_path / "cut off.biotrail"
    cut_logs.write(path, 60, whole=False)
    # WHEN a second of it is cut out / THEN the names are known, from those few chunks that hold any
    trace = limited(path, 50 * S, 51 * S)
    windows = list(trace.lifecycles())
    names = {str(w.tasks.comm[task]) for w in windows for task in w.bios.task.tolist()}
    assert names == {comm for _, _, comm in cut_logs.TASKS}
    assert 1 <= trace.reader.parts_searched <= 2


def test_notes_repeat_the_names(tmp_path: Path) -> None:
    # GIVEN a log with more names than one note holds
    path = tmp_path / "log"
    with path.open("wb") as stream:
        log = LogWriter(stream, captures.header())
        for chunk in range(20):
            rows = [task(chunk * 1000 + i, chunk * S + i) for i in range(500)]
            segment = Segment(0, 0, chunk * 16000, b"".join(rows))
            log.write_chunk([segment], captures.clock(chunk * S + S))
        log.close({"clocks": captures.clock(20 * S)})
    # WHEN it is read THEN the notes have them all, and no chunk is needed
    source = LogSource(path)
    names = source.names_before(BASE + 100 * S)
    everything = Events.join([part.events for part in source.parts()])
    assert len(source.notes) > 1 and source.parts_searched == 0
    words = BY_KIND[Kind.TASK].size // 8
    assert names.ts.tolist() == everything.ts.tolist()
    assert names.raw[:, :words].tolist() == everything.raw[:, :words].tolist()
    # AND those from before a time are no more than that
    assert len(source.names_before(BASE + 3 * S)) == 3 * 500
    # AND of a log that lacks a note, its chunks are asked
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    cut = LogSource(path)
    assert len(cut.names_before(BASE + 3 * S)) == 3 * 500
    assert cut.parts_searched > 0


def task(tid: int, ns: int) -> bytes:
    row = np.zeros(1, dtype=BY_KIND[Kind.TASK].dtype)
    row["head"] = int(Kind.TASK) << TIMESTAMP_BITS | (BASE + ns) & ((1 << TIMESTAMP_BITS) - 1)
    row["tid"], row["tgid"], row["comm"] = tid, tid, b"worker"
    return row.tobytes()


def test_a_pipe_gives_the_same(long_log: tuple[Path, list[Io]]) -> None:
    # GIVEN the log in a pipe / WHEN a time of it is cut out / THEN all was read, and the same came
    path, ios = long_log
    with pipe_of(path.read_bytes()) as stream:
        trace = Trace(stream)
        trace.span = Span(BASE + 100 * S, BASE + 103 * S)
        bios = bios_of(trace)
    assert told(bios) == cut_logs.chosen(ios, 100 * S, 103 * S)
    assert (bios.task >= 0).all()


def test_losses_are_those_of_the_time(long_log: tuple[Path, list[Io]]) -> None:
    # GIVEN a log with one loss window / WHEN other times, and its own, are cut out
    path, _ = long_log
    far, near = limited(path, 100 * S, 101 * S), limited(path, 90 * S + 5, 90 * S + 9)
    found = [[w.loss for w in trace.lifecycles()] for trace in (far, near)]
    # THEN it is in the one that it touches, as far as it lies in it
    assert sum(map(len, found[0])) == 0 and far.losses == []
    [loss] = [one for one in found[1] if len(one)]
    assert (int(loss.start[0]), int(loss.end[0])) == (BASE + 90 * S + 5, BASE + 90 * S + 9)
    assert len(near.losses) == 1


CHOICES: dict[str, tuple[dict[str, Any], Any]] = {
    "device": ({"devices": ["loop2"]}, lambda io: io.device == "7:2"),
    "number": ({"devices": ["7:1", "loop2"]}, lambda io: True),
    "operation": ({"wanted": ["write"]}, lambda io: io.op == "W"),
    "pid": ({"who": Who(pids=frozenset({100}))}, lambda io: io.task[1] == 100),
    "comm": ({"who": Who(comms=frozenset({"postgres-2"}))}, lambda io: io.task[0] == 101),
    "comms": ({"who": Who(comms=frozenset({"post*"}))}, lambda io: io.task[1] == 100),
    "cgroup": (
        {"who": Who(cgroups=frozenset({"/system.slice/db.service/"}))},
        lambda io: io.cgroup < 13,
    ),
    "cgroup id": ({"who": Who(cgroups=frozenset({"13"}))}, lambda io: io.cgroup == 13),
    "all": (
        {
            "devices": ["loop1"],
            "wanted": ["read"],
            "who": Who(
                frozenset({100}), frozenset({"fio", "postgres-2"}), frozenset({"/system.slice"})
            ),
        },
        lambda io: io.device == "7:1" and io.op == "R" and io.task[0] == 101,
    ),
    "nobody": ({"who": Who(pids=frozenset({4711}))}, lambda io: False),
}


@pytest.mark.parametrize("name", CHOICES)
def test_a_choice_is_a_plain_filter(long_log: tuple[Path, list[Io]], name: str) -> None:
    # GIVEN a choice, and a time
    path, ios = long_log
    how, mine = CHOICES[name]
    begin, end = 200 * S, 209 * S
    trace = limited(path, begin, end)
    selection = Selection(Choice(trace.context, **how))
    # WHEN the log is cut by both
    windows = list(selection.of(trace.lifecycles()))
    bios = Bios.concatenate([w.bios for w in windows])
    requests = Requests.concatenate([w.requests for w in windows])
    # THEN what is there is what a filter leaves of all I/Os, of those whose queueing was read
    expected = cut_logs.chosen([io for io in ios if mine(io)], begin, end)
    seen = {io.sector for io in ios if io.queue >= begin - cut_logs.MARGIN}
    if how.get("who"):
        expected = {sector: what for sector, what in expected.items() if sector in seen}
    assert told(bios) == expected
    # AND the requests are those that served them
    assert set(requests.sector.tolist()) == set(bios.sector.tolist())
    assert set(bios.request.tolist()) - {NEVER} <= set(requests.number.tolist())
    # AND what belongs to them is there, and nothing else
    owners = np.concatenate([w.bio_stages.owner for w in windows])
    assert set(owners.tolist()) <= set(bios.number.tolist())
    assert selection.counts.chosen == len(bios)
    assert selection.counts.bios == len(cut_logs.chosen(ios, begin, end))


def outcome_of(
    path: Path, wanted: OutcomeFilter, begin: int, end: int, **how: Any
) -> dict[int, Any]:
    first, second = limited(path, begin, end), limited(path, begin, end)
    finder = Finder(Choice(first.context, **how), wanted)
    for _ in first.lifecycles(on_window=finder.watch, window_events=200, small=True):
        pass
    selection = Selection(Choice(second.context, **how), wanted, finder.found())
    return told(bios_of(second, selection, window_events=200, small=True))


def waited(io: Io, begin: int, end: int) -> int:
    """As far as a cut can know."""
    return min(io.complete, end) - max(io.queue, begin - cut_logs.MARGIN)


@pytest.mark.parametrize("least", [5 * MS, S, 2 * S])
def test_slow_ones(long_log: tuple[Path, list[Io]], least: int) -> None:
    # GIVEN a time / WHEN the slower ones of it are chosen
    path, ios = long_log
    begin, end = 50 * S, 62 * S
    found = outcome_of(path, OutcomeFilter(slower_than=least), begin, end)
    # THEN they are those that took so long, from before the cut on or until its end
    present = cut_logs.chosen(ios, begin, end)
    slow = {io.sector for io in ios if waited(io, begin, end) >= least}
    assert found == {sector: what for sector, what in present.items() if sector in slow} != {}


def test_failed_ones(long_log: tuple[Path, list[Io]]) -> None:
    # GIVEN a time / WHEN those that failed are chosen THEN they are these
    path, ios = long_log
    found = outcome_of(path, OutcomeFilter(failed=True), 36 * S, 140 * S)
    present = cut_logs.chosen(ios, 36 * S, 140 * S)
    assert found == {sector: what for sector, what in present.items() if what[2]}
    assert len(found) > 5


@pytest.mark.parametrize("most", [1, 7, 10_000])
def test_the_slowest(long_log: tuple[Path, list[Io]], most: int) -> None:
    # GIVEN a time and a device / WHEN the slowest are chosen
    path, ios = long_log
    begin, end = 50 * S, 62 * S
    found = outcome_of(path, OutcomeFilter(slowest=most), begin, end, devices=["loop1"])
    # THEN no other of that device took longer
    present = cut_logs.chosen(ios, begin, end)
    mine = [io for io in ios if io.device == "7:1" and io.sector in present]
    ranked = sorted(mine, key=lambda io: (-waited(io, begin, end), io.index))[:most]
    assert found == {io.sector: present[io.sector] for io in ranked}


def rows(table: Table, names: tuple[str, ...]) -> list[tuple[int, ...]]:
    return sorted(zip(*(getattr(table, name).tolist() for name in names), strict=True))


BIO_FACTS = ("queue", "sector", "bytes", "opf", "dev", "part", "getrq", "merge", "insert", "issue")
BIO_ENDS = ("complete", "fragments", "requests", "requeues", "status", "done_bytes", "certainty")


def test_a_part_of_a_log_whose_last_time_is_damaged(cli: Cli) -> None:
    # GIVEN a log that says it ends beyond 63 bits of ns  WHEN a part of it is read  THEN it is
    log = ROOT / "tests/fuzz/corpus/log/crash-damaged-window-past-63-bits"
    assert cli("report", "--from", "1s", log).status == 0


@pytest.mark.parametrize("name", FILES)
def test_captures_cut_anywhere(name: str, tmp_path: Path) -> None:
    # GIVEN a capture, with merges, splits, flushes, remaps, errors
    events = captures.load(name)
    path = captures.write_log(tmp_path / "log", events, chunks=5)
    whole = bios_of(Trace(path))
    times = sorted(event["ns"] for event in events)
    facts = (*BIO_FACTS, *BIO_ENDS)
    for first, last in ((0.2, 0.7), (0.45, 0.55), (0, 0.5), (0.5, 1)):
        begin, end = (times[min(int(at * len(times)), len(times) - 1)] for at in (first, last))
        # WHEN a part of its time is cut out / THEN what lies in it whole is as in the whole log
        end = max(end, begin + 1)
        found = bios_of(limited(path, begin, end))
        b, e = BASE + begin, BASE + end
        inside = (whole.queue >= b) & (whole.complete < e) & (whole.complete != NEVER)
        same = (found.queue != NEVER) & (found.complete != NEVER)
        assert set(rows(whole.take(inside), facts)) <= set(rows(found, facts))
        extra = set(rows(found.take(same), facts)) - set(rows(whole.take(inside), facts))
        assert not extra, extra
        # AND nothing in it is from another time
        for column in ("queue", "getrq", "merge", "insert", "issue", "complete"):
            values = getattr(found, column)
            assert ((values == NEVER) | ((values >= b) & (values < e))).all(), column


# Recordings without Q: requests stand for their bios.

ISSUE, DONE, INSERT, QUEUE = "rq_issue", "rq_complete", "rq_insert", "bio_queue"


def line(ms, what, sector, sectors=8, letters="R"):
    """One event as ftrace prints it, at a time in ms."""
    size = f"{sectors * 512} " if what in (ISSUE, INSERT) else ""
    place = {
        QUEUE: f"{letters} {sector} + {sectors}",
        DONE: f"{letters} () {sector} + {sectors} be,0,4",
    }.get(what, f"{letters} {size}() {sector} + {sectors} be,0,4")
    end = "[0]" if what == DONE else "[fio]"
    return f"  fio-18214   [001]  {100 + ms / 1000:.6f}: block_{what}: 7,0 {place} {end}"


def tables_of(*lines, window_events=250_000):
    """All windows of a text, and the trace."""
    trace = Trace(io.BytesIO(("\n".join(lines) + "\n").encode()))
    return list(trace.lifecycles(window_events)), trace


def only(*lines):
    """The one window with rows, and the trace."""
    windows, trace = tables_of(*lines)
    (found,) = [w for w in windows if len(w.requests)]
    return found, trace


def test_a_request_alone_stands_for_its_bios():
    # GIVEN issues and completions alone, of two reads that overlap in time
    found, trace = only(line(1, ISSUE, 0), line(2, ISSUE, 64), line(4, DONE, 64), line(7, DONE, 0))
    # THEN each is a row of bios, from its issue to its completion, in the device all the time
    bios = found.bios
    assert bios.sector.tolist() == [0, 64]
    assert bios.bytes.tolist() == [4096, 4096]
    assert ((bios.complete - bios.queue) // 1_000_000).tolist() == [6, 2]
    assert bios.number.tolist() == bios.request.tolist() == found.requests.number.tolist()
    assert bios.getrq.tolist() == [NEVER, NEVER]
    assert found.requests.bios.tolist() == [1, 1]
    assert found.bio_stages.stage.tolist() == [Stage.D2C, Stage.D2C]
    # AND what it is known by is its sectors
    assert set(bios.certainty) == {Certainty.INTERVAL}
    assert trace.account.edges["interval"] == 2
    # GIVEN a request that was inserted 2 ms before its issue
    found, _ = only(line(1, INSERT, 0), line(3, ISSUE, 0), line(7, DONE, 0))
    # THEN its bio's stages are those 2 ms and the 4 ms after them
    stages = found.bio_stages
    lengths = ((stages.end - stages.start) // 1_000_000).tolist()
    assert dict(zip(stages.stage.tolist(), lengths, strict=True)) == {Stage.I2D: 2, Stage.D2C: 4}
    # GIVEN an issue of more sectors than were inserted, as merges are not recorded
    found, _ = only(line(1, INSERT, 8), line(3, ISSUE, 0, 32), line(7, DONE, 0, 32))
    # THEN it is one request of all its sectors, since its insert
    assert found.bios.bytes.tolist() == [32 * 512]
    assert ((found.bios.complete - found.bios.queue) // 1_000_000).tolist() == [6]
    assert found.bios.certainty.tolist() == [Certainty.INTERVAL]
    # GIVEN two reads of the same sectors in flight at once
    found, _ = only(line(1, ISSUE, 0), line(2, ISSUE, 0), line(4, DONE, 0), line(7, DONE, 0))
    # THEN both are ambiguous
    assert found.bios.certainty.tolist() == [Certainty.AMBIGUOUS] * 2
    # GIVEN a flush request of the flush machinery
    windows, _ = tables_of(line(1, ISSUE, 0, 0, "FF"), line(2, DONE, 18446744073709551615, 0, "FF"))
    # THEN it is a request for which no bio stands
    assert sum(len(w.requests) for w in windows) == 1
    assert sum(len(w.bios) for w in windows) == 0


def test_bios_that_are_recorded_stand_for_themselves():
    # GIVEN a completion alone, and then a read with its bio
    windows, _ = tables_of(
        line(1, DONE, 512),
        line(2, QUEUE, 0),
        line(3, ISSUE, 0),
        line(4, ISSUE, 64),
        line(5, DONE, 0),
        line(6, DONE, 64),
    )
    # THEN there is that bio alone, and a request without a bio stays one
    assert sum(len(w.bios) for w in windows) == 1
    assert sum(len(w.requests) for w in windows) == 3


def test_blktrace_without_bios_has_them_too():
    # GIVEN what `blktrace -a issue -a complete` records of a read
    read = blktrace.READ
    stream = blktrace.record(blktrace.D | read, 1_000, 64, 4096, sequence=1)
    stream += blktrace.record(blktrace.C | read, 9_000, 64, 4096, sequence=2)
    # WHEN it is read THEN its request stands for its bio, and that is said
    trace = Trace(io.BytesIO(stream))
    bios = bios_of(trace)
    assert (bios.complete - bios.queue).tolist() == [8_000]
    assert any("stands for its bios" in remark for remark in trace.reader.remarks)


# The account: every event is used or has one reason, every row has one certainty.

CASES = [*cases.CASES, *cases_more.CASES, *variants.CASES, *stacks.CASES, *losses.CASES]


def counted(events: list[Event]) -> Counter[str]:
    return Counter(event["letter"] for event in events)


def own(account: Account) -> dict[str, int]:
    """Counts by letter without what the encoder adds."""
    return {k: n for k, n in account.by_letter().items() if k not in "TKb"}


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.slug)
def test_every_event_of_a_scenario_is_accounted_for_once(case: Scenario) -> None:
    # GIVEN a scenario / WHEN read
    events = events_of(case.given)
    account = run(case).account
    # THEN the sums are those of its events, by letter, by reason and by device
    assert own(account) == counted(events)
    assert sum(account.by_reason().values()) == account.total
    on_devices = Counter[str]()
    for (_, letter), count in account.devices.items():
        on_devices[letter] += count
    assert on_devices == counted(events)


def account_of(path: Path, records: bytes) -> Account:
    """The account of a log of these records."""
    with path.open("wb") as stream:
        log = LogWriter(stream, captures.header())
        log.write_chunk([Segment(0, 0, 0, records)], captures.clock(10_000))
        log.close({})
    trace = Trace(path)
    list(trace.lifecycles())
    return trace.account


def test_comments_on_what_is_not_in_the_log() -> None:
    # GIVEN d and E of requests that ended before the log / THEN they are after an end
    found = run(losses.COMMENTS_ALONE).account.by_reason()
    assert found == {Reason.AFTER_END: 3, Reason.USED: 5}


def test_a_chain_without_its_issue(tmp_path: Path) -> None:
    # GIVEN two bios' chain whose D record was lost, its CHAIN record not
    text = "0 Q W 0+8 bio=1\n1 G W 0+8 bio=1\n2 Q W 8+8 bio=2\n3 M W 8+8 bio=2"
    issue = events_of(text + "\n4 D W 0+16 bio=1 rq=1 bios=2")[-1]
    segments = captures.records([*events_of(text), issue])
    whole = segments[0].data
    d = BY_LETTER["D"].size
    at = sum(BY_LETTER[letter].size for letter in "QGQM")
    cut = bytes(whole[:at]) + bytes(whole[at + d :])
    # WHEN read / THEN the account says so
    account = account_of(tmp_path / "a.biotrail", cut)
    assert account.by_reason() == {Reason.USED: 4, Reason.NO_ISSUE: 1}


def test_events_that_name_nothing_and_empty_logs(tmp_path: Path) -> None:
    # GIVEN request and bio events without any pointer / WHEN read
    rows = [record(kind, i, bytes=512) for i, kind in enumerate((Kind.I, Kind.D, Kind.C, Kind.Q))]
    account = account_of(tmp_path / "a.biotrail", ring(rows))
    # THEN they are counted as such
    assert account.by_reason() == {Reason.NO_POINTER: 4}
    # GIVEN a log without a single event
    path = captures.write_log(tmp_path / "a.biotrail", [])
    # WHEN read / THEN there are empty tables and an empty account
    trace = Trace(path)
    windows = list(trace.lifecycles())
    assert sum(len(w.bios) + len(w.requests) + len(w.edges) for w in windows) == 0
    assert (trace.account.total, trace.account.first_ns) == (0, -1)


def test_certainties_unseen_completions_and_reasons_are_told() -> None:
    # GIVEN a lost completion and what follows it
    t: Tables = run(cases_more.COMPLETION_LOST)
    # THEN the account holds them by certainty
    assert {k: n for k, n in t.account.bios.items() if n} == {"exact": 1, "lost": 1}
    assert {k: n for k, n in t.account.requests.items() if n} == {"exact": 1, "lost": 1}
    assert t.account.completions_not_seen == 1
    # GIVEN an account / WHEN made plain / THEN its sums agree
    plain = run(cases.PLUGGED_WRITES).account.as_dict()
    assert plain["events"] == sum(plain["kinds"].values()) == sum(plain["reasons"].values())
    assert (plain["first_ns"], plain["last_ns"]) == (captures.BASE_NS, captures.BASE_NS + 201_000)
    # GIVEN the reasons / THEN each says something, and none is "other"
    texts = [str(reason).lower() for reason in Reason]
    assert len(set(texts)) == len(texts)
    assert not any("other" in text.split() or "misc" in text for text in texts)
