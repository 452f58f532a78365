# SPDX-License-Identifier: Apache-2.0
"""A report's sentences: each rule where its condition holds, and where it does not."""

import json
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from biotrail.converters.analysis.blame.tree import Victim, Without
from biotrail.converters.analysis.distributions.sketch import Distribution
from biotrail.converters.analysis.figures import Summary
from biotrail.converters.analysis.report.report import make_report
from biotrail.converters.analysis.report.tree import HeldReport, Report
from biotrail.converters.pipeline import Trace
from biotrail.recorder.schema.kernel_names import FLAGS
from biotrail.recorder.schema.records import Q_FLAG_SWAP, Kind
from biotrail.text.blame import without_them
from biotrail.text.report import verdict
from biotrail.text.report.verdict import MORE, RULES, Sentence
from tests.scenarios import cases
from tests.scenarios.tools import events_of
from tests.support import blame_logs, captures
from tests.support.blame_logs import US, Io
from tests.support.cli_runner import Cli
from tests.support.path_logs import FSYNC, IO_URING_ENTER, MS, WITH_REASONS, WRITE, PathLog
from tests.support.paths import DATA, ROOT, SAMPLE
from tests.support.perf_files import Perf
from tests.support.record_command import BIOTRAIL
from tests.support.stack_logs import DEV, START


def io(
    number: int,
    at: int,
    *,
    op: str = "R",
    request: int = 1,
    issue: int = 1,
    device: int = 100,
    size: int = 8,
    who: str = "pid=11 comm=fio",
) -> list[tuple[int, str]]:
    """A bio's events at µs: `request` until it has one, `issue` until its issue, `device`."""
    where = f"{op} {number * 4096}+{size} bio={number:x}"
    got = at + request
    sent = got + issue
    return [
        (at, f"Q {where} {who}"),
        (got, f"G {where}"),
        (got, f"s {where} rq={number:x}"),
        (sent, f"D {where} rq={number:x} tag=1/{number % 64}"),
        (sent + device, f"C {where} rq={number:x}"),
    ]


def report_of(path: Path, ios: Sequence[list[tuple[int, str]]]) -> Report:
    events = sorted((event for one in ios for event in one), key=lambda event: event[0])
    text = "\n".join(f"{at} {words}" for at, words in events)
    captures.write_log(path / "log.biotrail", events_of(text), chunks=max(len(events) // 20, 1))
    trace = Trace(path / "log.biotrail")
    return make_report(trace)


def said(report: Report) -> dict[str, Sentence]:
    """The sentences by rule: one of each at most, in the rules' order."""
    found = verdict.verdict(report)
    assert [one.rule for one in found] == [r for r in RULES if r in {one.rule for one in found}]
    return {one.rule: one for one in found}


def test_no_io_and_requests_alone(tmp_path: Path) -> None:
    # GIVEN a log of no I/O WHEN it is judged THEN that alone is said
    assert list(said(report_of(tmp_path, []))) == ["no-io"]
    # AND of one with I/O it is not
    assert "no-io" not in said(report_of(tmp_path, [io(1, 0)]))
    # GIVEN a recording of perf with completions alone, which stand for no bio
    made = Perf(names=("block_rq_complete",))
    path = tmp_path / "perf.data"
    path.write_bytes(made.file([record for i in range(3) for record in made.io(10**9 + i, 8 * i)]))
    # WHEN it is judged THEN it is not said that there was no I/O
    one = said(make_report(Trace(path)))["no-io"]
    assert one.text == "No bios were recorded, only 3 requests"
    assert one.figures == {"count": 0, "requests": 3}


def test_a_device_that_hangs(tmp_path: Path) -> None:
    # GIVEN a write in the device, and nothing that it completes, until the log ends
    for after, hangs in ((4_900_000, True), (900_000, False)):
        events = io(1, 0, op="W", size=128, who="pid=11 comm=dd")[:-1]
        other = io(2, after, op="W", who="pid=12 comm=other")[:1]
        one = said(report_of(tmp_path, [events, other])).get("hangs")
        # WHEN it is judged THEN that is said if it went on for a second
        assert (one is not None) == hangs
        if one is not None:
            assert one.text == (
                "1 write of 64.0 KiB on vda had not completed when the log ended, 4.9 s after its "
                "issue; dd (11) queued it"
            )
    # AND not where the device completes others
    more = [io(n + 2, n * 100_000) for n in range(50)]
    assert "hangs" not in said(report_of(tmp_path, [events, *more]))


def test_what_a_limit_held(tmp_path: Path) -> None:
    # GIVEN two reads of three that a cgroup's limit held, for a time not known
    report = report_of(tmp_path, [io(n + 1, n * 1000) for n in range(3)])
    one = HeldReport(
        "/limited", "vda", 0, "read", 2, 0, 1 << 20, None, None, None, Summary.of(Distribution())
    )
    # WHEN they are judged
    found = said(replace(report, held=[one]))["held"]
    # THEN that is said
    assert found.text == (
        "The limit of cgroup /limited held 2 of 3 reads on vda before they were queued, for how "
        "long is not known"
    )
    assert (found.figures["count"], found.figures["of"], found.figures["known"]) == (2, 3, 0)
    # AND not where few were held
    report = report_of(tmp_path, [io(n + 1, n * 1000) for n in range(9)])
    assert "held" not in said(replace(report, held=[one]))


def test_the_main_part_and_whose_it_is(tmp_path: Path) -> None:
    # GIVEN reads that are 98 µs of 100 in the device, three quarters of the time of one process
    who = ["pid=11 comm=fio", "pid=11 comm=fio", "pid=11 comm=fio", "pid=12 comm=dd"]
    ios = [io(n + 1, n * 1000, device=98, who=one) for n, one in enumerate(who)]
    # WHEN they are judged
    one = said(report_of(tmp_path, ios))["main-part"]
    # THEN it says where the time is, for what and for whom, with the figures that it is of
    assert one.text == (
        "98 % of the time of I/O is in the device (D2C), 100 % of that for reads on vda, whose "
        "latency is 100 µs on average; 75 % of all time is of fio (pid 11)"
    )
    assert one.figures["share"] == 0.98
    assert (one.figures["operation"], one.figures["device"]) == ("read", "vda")
    assert (one.figures["process"], one.figures["process_share"]) == ("fio", 0.75)
    # AND nobody is named who has less than half
    ios = [io(n + 1, n * 1000, who=f"pid={n + 1} comm=x{n}") for n in range(3)]
    assert "process" not in said(report_of(tmp_path, ios))["main-part"].figures


@pytest.mark.parametrize(
    ("inserted", "where", "stages"),
    [
        (5, "in the scheduler (I2D)", ["I2D"]),
        (95, "held back by the task, in its plug (G2I, M2I)", ["G2I", "M2I"]),
        (None, "between getting a request and its issue (G2D, M2D)", ["G2D", "M2D", "Q2D"]),
    ],
)
def test_a_merged_write_waits_in_the_plug_or_in_the_scheduler(
    tmp_path: Path, inserted: int | None, where: str, stages: list[str]
) -> None:
    # GIVEN two writes in one request, which the scheduler got soon, late, or never
    first, second = "W 0+8 bio=1", "W 8+8 bio=2"
    events = [
        *[(0, f"Q {first}"), (1, f"G {first}"), (1, f"s {first} rq=1")],
        *[(2, f"Q {second}"), (3, f"M {second}")],
        *[(100, "D W 0+16 bio=1 rq=1 bios=2"), (110, "C W 0+16 bio=1 rq=1")],
    ]
    if inserted is not None:
        events.append((inserted, "I W 0+16 bio=1 rq=1"))
    # WHEN they are judged
    one = said(report_of(tmp_path, [events]))["main-part"]
    # THEN the task is said to hold back what was in its plug, and nothing else
    assert f"of the time of I/O is {where}, " in one.text
    assert one.figures["stages"] == stages


def test_failures_flushes_and_missing_latencies(tmp_path: Path) -> None:
    # GIVEN a write that fails, and one that does not
    bad = [(0, "Q W 0+8 bio=1 pid=1 comm=a"), (9, "c W 0+8 bio=1 err=10")]
    found = said(report_of(tmp_path, [bad, io(2, 100, op="W")]))
    # WHEN they are judged THEN what failed is said
    assert found["failed"].text == "1 of 2 writes on vda failed (IOERR 1)"
    assert "failed" not in said(report_of(tmp_path, [io(2, 100, op="W")]))
    # GIVEN three fsyncs, of which two share a flush
    path = tmp_path / "log.biotrail"
    captures.write_log(path, events_of(cases.SHARED_FLUSHES.given))
    one = said(make_report(Trace(path)))["flushes"]
    # WHEN they are judged THEN it is said how many waited for each
    assert (one.figures["count"], one.figures["bios_per_request"]) == (2, 1.5)
    assert "2 requests of" in one.text and "1.5 waiting bios for each" in one.text
    assert "flushes" not in said(report_of(tmp_path, [io(1, 0)]))
    # GIVEN two bios of which one has no end
    ios = [io(1, 0), io(2, 500)[:4]]
    found = said(report_of(tmp_path, ios))
    # WHEN they are judged THEN that is said, and of whole ones it is not
    assert (found["without-latency"].figures["count"], found["without-latency"].figures["of"]) == (
        1,
        2,
    )
    assert "without-latency" not in said(report_of(tmp_path, [io(1, 0)]))


def tail_ios(slow: int) -> list[list[tuple[int, str]]]:
    """Reads one by one, the last `slow` of 120 behind a large write, and 20 times as slow."""
    ios = [io(n + 1, n * 10_000, device=98) for n in range(120 - slow)]
    for n in range(120 - slow, 120):
        ios.append(io(1000 + n, n * 10_000 - 5, op="W", size=2048, device=2500))
        ios.append(io(n + 1, n * 10_000, issue=1900, device=98))
    return ios


def test_a_tail_and_what_it_was_behind(tmp_path: Path) -> None:
    # GIVEN a hundred and fourteen reads of 100 µs and six of 2 ms, behind a write of 1 MiB each
    whole = report_of(tmp_path, tail_ios(6))
    one = said(whole)["tail"]
    # WHEN they are judged THEN it is said how many, how slow, in what, and behind what
    figures = one.figures
    assert (figures["operation"], figures["count"], figures["of"]) == ("read", 6, 120)
    assert figures["from_ns"] == 1 << 20 and figures["median_ns"] == pytest.approx(1e5, rel=0.004)
    assert figures["time_share"] == pytest.approx(6 * 1999 / (6 * 1999 + 114 * 100), abs=1e-4)
    assert figures["stages_share"] == pytest.approx(1900 / 1999, abs=1e-4)
    assert (figures["beside_bytes"], figures["beside_others_bytes"]) == (1 << 20, 0)
    assert "5 % of reads on vda took 1.05 ms or more" in one.text
    assert "when they were queued, 1.0 MiB of other operations were in flight" in one.text
    # AND the same is known of it in windows of any size
    for window in (7, 50, 1 << 20):
        trace = Trace(tmp_path / "log.biotrail")
        assert make_report(trace, trace.lifecycles(window)).tails == whole.tails
    # AND of several operations that of the one with most time is said
    [tail, *_] = whole.tails
    both = replace(whole, tails=[tail, replace(tail, operation="write")])
    assert said(both)["tail"].figures["operation"] == "read"
    # AND with too few slow ones, or none, nothing is said of them
    for slow in (4, 0):
        found = said(report_of(tmp_path, tail_ios(slow)))
        assert "tail" not in found or found["tail"].figures["operation"] != "read"


def test_idle_devices_and_doubtful_latencies(tmp_path: Path) -> None:
    # GIVEN two writes at one place, of which only one's completion was recorded, and another one
    report = make_report(Trace(str(DATA / "ftrace" / "not-told-lost.txt")))
    # WHEN they are judged THEN it is said how many are in doubt, and what the mean would be with
    one = said(report)["in-doubt"]
    assert (one.figures["operation"], one.figures["count"], one.figures["of"]) == ("write", 1, 2)
    assert one.figures["with_doubtful_mean_ns"] == (80_001_002_000 + 1_002_000) / 2
    assert "1 of 2 latencies of writes on 8:0 is in doubt" in one.text
    # AND of I/O without any doubt nothing is said
    assert "in-doubt" not in said(report_of(tmp_path, [io(1, 0)]))
    # GIVEN two reads of 100 µs, 900 apart, and two that follow each other
    idle = said(report_of(tmp_path, [io(1, 0, device=98), io(2, 1000, device=98)]))
    # WHEN they are judged THEN the first device is said to be mostly idle, the other is not
    assert idle["mostly-idle"].figures["share"] == pytest.approx(200 / 1100, abs=1e-3)
    assert "vda had I/O in flight for 18 % of the time" in idle["mostly-idle"].text
    assert "mostly-idle" not in said(report_of(tmp_path, [io(1, 0), io(2, 101)]))
    # GIVEN reads of 40 µs each for a request, to the issue, and 20 in the device
    report = report_of(tmp_path, [io(1, 0, request=40, issue=40, device=20)])
    # WHEN they are judged THEN no part is said to be the main one
    found = said(report)
    assert "main-part" not in found
    assert found["spread"].figures["shares"] == [0.4, 0.4]
    # AND the other way round
    assert "spread" not in said(report_of(tmp_path, [io(1, 0)]))


def with_counters(report: Report, **counters: int) -> Report:
    """The report with other counters of its total, of bios and requests."""
    total = report.total
    ios = {"ios": counters.pop("ios")} if "ios" in counters else {}
    bios, requests = (
        replace(group, counters={**group.counters, **counters}, **ios)
        for group in (total.bios, total.requests)
    )
    return replace(report, total=replace(total, bios=bios, requests=requests))


@pytest.mark.parametrize(
    ("rule", "counter", "enough", "too_few"),
    [("tries", "tries", 10, 9), ("requeued", "requeues", 1, 0)],
)
def test_rules_of_counters(
    tmp_path: Path, rule: str, counter: str, enough: int, too_few: int
) -> None:
    # GIVEN a report of a hundred I/Os WHEN a counter is at a rule's threshold, and below it
    report = with_counters(report_of(tmp_path, [io(1, 0)]), ios=100)
    # THEN the rule says so, and does not
    one = said(with_counters(report, **{counter: enough}))[rule]
    assert one.figures == {"count": enough, "of": 100}
    assert rule not in said(with_counters(report, **{counter: too_few}))


def test_splits(tmp_path: Path) -> None:
    # GIVEN an operation with splits at a rule's threshold, and below it
    report = report_of(tmp_path, [io(1, 0)])
    [device] = report.devices
    [one] = device.operations
    for split, there in ((100, True), (99, False)):
        bios = replace(one.bios, ios=200, counters={**one.bios.counters, "split": split})
        device.operations[0] = replace(one, bios=bios)
        # WHEN it is judged THEN the rule says so, or not
        assert ("split" in said(report)) == there


LOG = 1 << FLAGS["META"] | 1 << FLAGS["SYNC"] | 1 << FLAGS["IDLE"]


@pytest.mark.parametrize(
    ("bio", "purpose", "said"),
    [
        ({"opf": 1, "flags": Q_FLAG_SWAP}, "swap", "is swap: 1 bio"),
        ({"opf": 1 << FLAGS["RAHEAD"]}, "readahead", "is readahead: 1 bio"),
        ({"opf": 1 | LOG}, "journal", "is the journal's: 1 bio"),
        ({"opf": 3}, "discard", "is discards (trims): 1 bio"),
        ({"opf": 1}, None, ""),
    ],
)
def test_a_sentence_says_what_most_io_is_for(
    tmp_path: Path, bio: dict[str, Any], purpose: str | None, said: str
) -> None:
    # GIVEN a bio for some purpose, and one of data with less or with more of the device's time
    for end, holds in ((7 * MS, True), (60 * MS, False)):
        made = PathLog()
        made.bio(MS, 9 * MS, **bio)
        made.bio(2 * MS, end)
        # WHEN the report is put in sentences
        found = verdict.verdict(make_report(Trace(made.write(tmp_path / "log"))))
        # THEN one names the purpose where it has half of the device's time or more
        told = {one.rule: one for one in found}
        assert ("purpose" in told) == (holds and purpose is not None)
        if "purpose" in told:
            figures = told["purpose"].figures
            assert (figures["purpose"], figures["share"]) == (purpose, round(8 / 13, 6))
            assert said in told["purpose"].text


def test_every_rule_is_tried_and_documented() -> None:
    # GIVEN the rules WHEN this directory's tests are read THEN each has one that names it
    here = Path(__file__).parent.glob("test_verdict*.py")
    text = "".join(one.read_text(encoding="utf-8") for one in here)
    assert not [rule for rule in RULES if f'"{rule}"' not in text]
    # GIVEN the rules WHEN docs/report.md is read THEN each has its row
    text = (ROOT / "docs" / "report.md").read_text(encoding="utf-8")
    assert not [rule for rule in RULES if f"| `{rule}` |" not in text]


def test_text_json_and_page_say_the_same(cli: Cli, tmp_path: Path) -> None:
    # GIVEN the sample log WHEN it is reported on in three ways
    told: list[dict[str, Any]] = json.loads(cli("report", "--json", SAMPLE).out)["verdict"]
    text = " ".join(cli("report", SAMPLE).out.split())
    page = tmp_path / "out.html"
    assert cli("report", "--html", page, SAMPLE).status == 0
    # THEN the JSON has all sentences, and the text the first of them with what to look at
    assert told and all(one["figures"] for one in told)
    for one in told[: verdict.SHOWN]:
        assert f"* {one['sentence']}. Next: {one['next']}." in text
    # AND the page has them, too
    assert json.dumps(told[0]["rule"]) in page.read_text(encoding="utf-8")


# A report's sentences on whose I/O made whose I/O wait, and on what was not recorded.

PATH_LOG = DATA / "calls" / "ext4-on-loop.biotrail"


def said_with_blame(cli: Cli, *options: object) -> list[dict[str, Any]]:
    done = cli("report", "--json", *options)
    assert (done.status, done.err) == (0, "")
    found: list[dict[str, Any]] = json.loads(done.out)["verdict"]
    return found


def log(path: Path, beside: int) -> Path:
    """Reads of 2 ms, of 6 ms where one of the first `beside` of each ten is beside a write."""
    ios = []
    for at in range(600):
        begin, slow = at * 10 * MS, at % 10 < beside
        ios.append(Io("app", begin, begin + US, begin + (6 if slow else 2) * MS))
        if slow:
            ios.append(Io("backup", begin - US, begin - US, begin + 6 * MS, "W", 2048))
        elif at % 60 == 59:
            ios.append(Io("backup", begin + 3 * MS, begin + 3 * MS, begin + 9 * MS, "W", 2048))
    return blame_logs.write(path / "a.biotrail", ios)


def test_the_culprit_is_named_with_what_would_be_without(tmp_path: Path, cli: Cli) -> None:
    # GIVEN a reader whose reads take three times as long where another writes
    path = log(tmp_path, beside=4)
    # WHEN it is reported with blame
    told = said_with_blame(cli, "--blame=process", path)
    # THEN the first sentence names the culprit, and says what the mean would be without it
    assert told[0]["rule"] == "blame"
    share = 4 * 4 / (4 * 6 + 6 * 2)
    assert told[0]["sentence"].startswith(
        f"{100 * share:.0f} % of the time of app's I/O is waiting behind backup's writes: without "
        "them the mean would be 2 ms (2 ms to 2 ms) instead of 3.6 ms"
    )
    assert "--by process --victim app" in told[0]["next"]
    figures = told[0]["figures"]
    assert (figures["victim"], figures["culprit"], figures["count"]) == ("app", "backup", 600)
    assert figures["share"] == pytest.approx(share)
    assert figures["without_mean_ns"] == pytest.approx(2 * MS)
    # AND without the option nobody is blamed
    assert "blame" not in [one["rule"] for one in said_with_blame(cli, path)]
    # AND with it nobody is where the reader is rarely beside writes
    path = log(tmp_path, beside=1)
    assert "blame" not in [one["rule"] for one in said_with_blame(cli, "--blame=process", path)]


def test_the_report_has_what_blame_prints(tmp_path: Path, cli: Cli) -> None:
    # GIVEN a reader beside a writer
    path = log(tmp_path, beside=4)
    # WHEN both commands tell of it, also by standard input
    alone = json.loads(cli("blame", "--by", "process", "--json", path).out)
    told = json.loads(cli("report", "--blame=process", "--json", path).out)["blame"]
    command = [*BIOTRAIL, "report", "--blame=process", "--json", "-"]
    piped = subprocess.run(command, input=path.read_bytes(), capture_output=True, check=True)
    # THEN they say the same
    assert told == {key: alone[key] for key in told}
    assert json.loads(piped.stdout)["blame"] == told
    # AND the text has the table and its sentence
    text = " ".join(cli("report", "--blame", path).out.split())
    assert "Whose I/O made whose I/O wait, by owner" in text
    assert "is waiting behind backup's writes" in text


def test_the_option_that_tells_more_is_named_once(tmp_path: Path, cli: Cli) -> None:
    # GIVEN a log of the block layer alone, and one with calls  WHEN they are reported
    without, calls = said_with_blame(cli, log(tmp_path, beside=4)), said_with_blame(cli, PATH_LOG)
    # THEN the first sentence of the first alone says what would tell more
    assert [MORE in one["next"] for one in without] == [True] + [False] * (len(without) - 1)
    assert not any(MORE in one["next"] for one in calls)


# The first sentence of a log with the path: which call of whom waited, for what, beside whom.

STACKS = {
    "wait": {
        "1": [["blkdev_direct_IO", "", 0], ["submit_bio_wait", "", 0]],
        "2": [["jbd2_log_wait_commit", "", 0]],
        "3": [["balance_dirty_pages", "", 0]],
        "4": [["rwsem_down_write_slowpath", "", 0], ["ext4_buffered_write_iter", "", 0]],
        "5": [["folio_wait_bit_common", "", 0], ["filemap_get_pages", "", 0]],
    }
}
APP, OTHER, FLUSHER = 42, 43, 44


def made() -> PathLog:
    log = PathLog()
    log.task(APP, b"app")
    log.task(OTHER, b"backup")
    log.task(FLUSHER, b"kworker/u4:1")
    return log


def call(log: PathLog, wait: int = 0, *, cpu: int = 0, stack: int = 1, **values: Any) -> None:
    """A call of 100 ms, of which it waits `wait` ms in state D and `cpu` ms for a CPU."""
    out = 10 * MS
    woken = out + wait * MS
    log.waits(0, out, woken, woken + cpu * MS, APP, stack=stack, **values)
    log.returns(0, 100 * MS, APP, number=FSYNC, blocked=wait * MS, runnable=cpu * MS, result=0)


def sentences(log: PathLog, target: Path, cuts: tuple[int, ...] = ()) -> dict[str, Sentence]:
    target.write_bytes(log.data(cuts, WITH_REASONS, {"stacks": STACKS}))
    return {one.rule: one for one in verdict.verdict(make_report(Trace(target)))}


def test_a_call_that_waits_for_a_cpu(tmp_path: Path) -> None:
    # GIVEN a call of 100 ms with 5 ms of own I/O, and 10 ms or 80 ms without a CPU
    for cpu, told in ((10, False), (80, True)):
        log = made()
        log.bio(5 * MS, 15 * MS, APP, entry=0, call=FSYNC)
        call(log, 5, cpu=cpu)
        # WHEN the report is put in sentences
        found = sentences(log, tmp_path / "log")
        assert ("waits" in found) == told
    # THEN the first is of that call where it waited, and says for what and what remains
    first = next(iter(found.values()))
    assert first.text == (
        "fsync of app (pid 42) took 100 ms of 100 ms (1 time, 100 ms on average): 80 % for a CPU; "
        "without that it would take 20 ms on average"
    )
    assert "For a CPU" in first.next
    figures = first.figures
    assert (figures["process"], figures["call"], figures["count"]) == ("app", "fsync", 1)
    assert figures["took_ns"] == 100 * MS
    assert figures["causes"][0] == {"cause": "CPU", "wait_ns": 80 * MS, "share": 0.8}
    assert figures["without_mean_ns"] == 20 * MS


@pytest.mark.parametrize(
    ("ran", "words", "own"),
    [
        ({"ran": OTHER, "ran_pid": OTHER}, "a CPU (100 % of that backup ran instead)", False),
        (
            {"ran": 45, "ran_pid": APP},
            "a CPU (100 % of that its own other threads ran instead)",
            True,
        ),
        ({}, "a CPU; without", None),
    ],
)
def test_who_ran_instead(tmp_path: Path, ran: dict[str, int], words: str, own: bool | None) -> None:
    # GIVEN a call that waits for a CPU, on which another thread ran before it, or none
    log = made()
    call(log, 5, cpu=80, **ran)
    # WHEN the report is put in sentences THEN it says who, if anybody did
    first = sentences(log, tmp_path / "log")["waits"]
    assert words in first.text
    assert first.figures.get("ran_own") == own


@pytest.mark.parametrize("cuts", [(), (20 * MS, 60 * MS)])
@pytest.mark.parametrize(("others", "beside"), [(3, "backup"), (0, None)])
def test_own_io_beside_another_ones_write_back(
    tmp_path: Path, others: int, beside: str | None, cuts: tuple[int, ...]
) -> None:
    # GIVEN a call that waits 80 ms for its own bio, and bios with pages that another one dirtied
    log = made()
    log.bio(5 * MS, 90 * MS, APP, entry=0, call=FSYNC, opf=WRITE)
    for number in range(others):
        end = (85 + number) * MS
        log.bio(6 * MS, end, FLUSHER, call=None, opf=WRITE, dirtied=(MS, OTHER, b"backup"))
    call(log, 80)
    # WHEN the report is put in sentences
    first = sentences(log, tmp_path / "log", cuts)["waits"]
    # THEN whose I/O the device had meanwhile is said, and nobody's where there is none
    assert "80 % for its own I/O" in first.text
    assert first.figures.get("beside") == beside
    if beside:
        meanwhile = "beside writes of backup on vda (2.85 in flight meanwhile, 12.0 KiB done)"
        assert meanwhile in first.text


@pytest.mark.parametrize(
    ("steal", "quota", "said"),
    [
        (50, 70, "; at most 70 ms of that is the CPU quota of cgroup /web; at most 50 ms is the"),
        (500, 0, "; at most 80 ms is the hypervisor's (steal)"),
        (1, 0, ""),
    ],
)
def test_quota_and_hypervisor(tmp_path: Path, steal: int, quota: int, said: str) -> None:
    # GIVEN a call that waits 80 ms for a CPU, and what quotas and the hypervisor took meanwhile
    log = made()
    call(log, 5, cpu=80)
    note = {
        **{"from": START, "to": START + 90 * MS, "steal_ns": steal * MS},
        "throttled_ns": {"/web": quota * MS, "/other": 90 * MS} if quota else {},
        "pids": {"/web": [APP, 7], "/other": [OTHER]},
    }
    target = tmp_path / "log"
    target.write_bytes(log.data((), WITH_REASONS, {"stacks": STACKS, "cpus": note}))
    # WHEN the report is put in sentences THEN that is said as the most that it can be
    first = {one.rule: one for one in verdict.verdict(make_report(Trace(target)))}["waits"]
    assert said in first.text
    assert ("at most" in first.text) == bool(said)
    assert first.figures.get("steal_at_most_ns") == (min(steal, 80) * MS if said else None)


def test_own_depth(tmp_path: Path) -> None:
    # GIVEN a call that waits for one of eight bios of its own process, or for its only one
    for depth, told in ((8, True), (1, False)):
        log = made()
        for _ in range(depth):
            log.bio(5 * MS, 95 * MS, APP, entry=0, call=FSYNC)
        call(log, 80)
        # WHEN the report is put in sentences
        text = sentences(log, tmp_path / "log")["waits"].text
        # THEN its own I/O is named as what the device had, where it is several
        assert ("with 8 of its own reads in flight on vda meanwhile" in text) == told


@pytest.mark.parametrize(
    ("stack", "cause", "words"),
    [
        (2, "journal", "for the journal's commits"),
        (3, "throttled", "for throttled writing (too many dirty pages)"),
        (5, "page read", "for pages that were not in the page cache"),
    ],
)
def test_causes_by_the_reason_of_a_wait(tmp_path: Path, stack: int, cause: str, words: str) -> None:
    # GIVEN a call that waits in state D for some reason, for most of its time or for little
    for wait, told in ((80, True), (10, False)):
        log = made()
        call(log, wait, stack=stack)
        # WHEN the report is put in sentences
        found = sentences(log, tmp_path / "log")
        # THEN that is said where it has a quarter of the call's time
        assert ("waits" in found) == told
        if told:
            assert found["waits"].figures["causes"][0]["cause"] == cause
            assert words in found["waits"].text


def test_a_call_that_reaps_waits_for_what_earlier_calls_queued(tmp_path: Path) -> None:
    # GIVEN a call that queues a bio, and one of the same thread that waits 80 ms to reap it
    log = made()
    log.bio(MS, 90 * MS, APP, entry=0, call=IO_URING_ENTER)
    log.returns(0, 2 * MS, APP, number=IO_URING_ENTER, queued=1, result=1)
    log.waits(3 * MS, 10 * MS, 90 * MS, 90 * MS, APP, state=1)
    log.returns(3 * MS, 100 * MS, APP, number=IO_URING_ENTER, blocked=80 * MS, result=0)
    # WHEN the report is put in sentences
    first = sentences(log, tmp_path / "log")["waits"]
    # THEN that I/O is nobody else's
    assert "for I/O that earlier calls queued" in first.text
    assert first.figures["causes"][0]["cause"] == "other I/O"
    assert first.next.startswith("the stages below")


def test_locks_commits_and_lesser_waits(tmp_path: Path) -> None:
    # GIVEN a call that waits for a lock, which another one lets go of
    log = made()
    call(log, 80, stack=4, waker=OTHER)
    # WHEN the report is put in sentences THEN it is named
    first = sentences(log, tmp_path / "log")["waits"]
    assert "80 % for a lock that backup (pid 43) had" in first.text
    assert (first.figures["holder"], first.figures["holder_pid"]) == ("backup", 43)
    # GIVEN a call that waits for a commit, whose thread writes another one's data
    log = made()
    log.task(900, b"jbd2/vda-8")
    for end in (85 * MS, 86 * MS):
        log.bio(6 * MS, end, 900, call=None, opf=WRITE, dirtied=(MS, OTHER, b"backup"))
    call(log, 80, stack=2)
    # WHEN the report is put in sentences THEN it says how much of whose
    first = sentences(log, tmp_path / "log")["waits"]
    assert "beside writes of backup on vda" in first.text
    assert "commits wrote 8.0 KiB of its data" in first.text
    assert first.figures["carried_bytes"] == 8192
    # GIVEN two programs that wait, one longer than the other
    log = made()
    call(log, 80)
    log.waits(0, 10 * MS, 50 * MS, 50 * MS, OTHER, stack=1)
    log.returns(0, 60 * MS, OTHER, number=FSYNC, blocked=40 * MS, result=0)
    # WHEN the report is put in sentences THEN the first has the sentence, the other figures
    first = sentences(log, tmp_path / "log")["waits"]
    assert first.figures["process"] == "app"
    assert [one["process"] for one in first.figures["others"]] == ["backup"]
    assert json.dumps(first.figures)


def slow_to_issue(log: PathLog, allocated: int, issued: int) -> None:
    """A bio that is queued at 5 ms by the call that begins at 0, and has 2 ms with the device."""
    log.bios += 1
    at = {"bio": log.bios << 6, "sector": 8, "bytes": 4096, "dev": DEV, "opf": WRITE}
    rq = {"rq": log.bios << 10}
    log.add(Kind.Q, 5 * MS, **at, part=DEV, tid=APP)
    log.add(Kind.CALL, 5 * MS, bio=at["bio"], entry=START, number=FSYNC)
    log.add(Kind.G, allocated, **at, tid=APP)
    log.add(Kind.START, allocated + 1, **rq, **at)
    log.add(Kind.I, issued - 1, **rq, **at)
    log.add(Kind.D, issued, **rq, **at, nr_bios=1)
    log.add(Kind.C, issued + 2 * MS, **rq, **at)


@pytest.mark.parametrize(
    ("cpu", "share"),
    [(85, "87 %"), (20, None)],  # of 100 ms the call then ran for 10 and for 75
)
def test_a_plug_held_by_a_thread_without_a_cpu(tmp_path: Path, cpu: int, share: str | None) -> None:
    # GIVEN a call of 100 ms that holds a bio in its plug for 80 ms, and runs for a part of them
    log = made()
    slow_to_issue(log, 5 * MS, 85 * MS)
    call(log, 5, cpu=5)
    log.records = log.records[:-1]
    log.returns(0, 100 * MS, APP, number=FSYNC, blocked=5 * MS, runnable=cpu * MS, result=0)
    # WHEN the report is put in sentences
    main = sentences(log, tmp_path / "log")["main-part"]
    # THEN what the plug was held for beyond all that the call ran is told as waiting for a CPU
    assert "held back by the task, in its plug" in main.text
    assert (share is not None) == ("without a CPU" in main.text)
    if share is not None:
        assert f"for {share} of that part or more its threads were ready to run" in main.text
        assert "who uses the CPUs" in main.next and "without_cpu_share" in main.figures
    else:
        assert "merges below" in main.next


def test_a_request_that_its_thread_without_a_cpu_takes_late(tmp_path: Path) -> None:
    # GIVEN a bio that waits for a request from 5 to 85 ms; its thread is woken at 15 ms, runs at 80
    log = made()
    slow_to_issue(log, 85 * MS, 86 * MS)
    call(log, 5, cpu=65)
    # WHEN the report is put in sentences THEN 65 of these 80 ms are waiting for a CPU
    main = sentences(log, tmp_path / "log")["main-part"]
    assert "waiting for a request (Q2G)" in main.text
    assert "for 81 % of that part or more its threads were ready to run" in main.text
    # AND so they are where windows are cut
    cuts = tuple(at * MS for at in (20, 60))
    assert sentences(log, tmp_path / "cut", cuts)["main-part"].text == main.text


# What blame says in sentences of what would be without a culprit.


@pytest.mark.parametrize(
    ("p99", "said"),
    [
        (300 * US, ", the 99th percentile about 300 us instead of 944 us"),
        (944 * US, ", the 99th percentile would not change"),
        (940 * US, ", the 99th percentile would not change"),
        (990 * US, ""),
        (None, ""),
    ],
)
def test_a_percentile_is_told_where_it_changes(p99: int | None, said: str) -> None:
    # GIVEN a victim whose I/Os take 200 µs, a hundredth of them 944 µs or more
    app = Victim(
        name="app", ios=1000, wait_ns=200 * US * 1000, parts=[], p99_ns=944 * US, without=[]
    )
    # WHEN it is said what would be without a culprit
    text = without_them(app, Without("backup", 150_000.0, None, p99, 500))
    # THEN a percentile is told where it is known to be shorter, or said to stay as it is
    mean = "without them the mean would be 150 us instead of 200 us"
    assert text.replace("µ", "u") == mean + said
    # AND no figure stands beside itself where the mean stays, as far as it is written
    text = without_them(app, Without("backup", 199_999.9, (1.0, 2.0), None, 500))
    assert text == "without them the mean would not change"
