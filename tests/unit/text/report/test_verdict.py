# SPDX-License-Identifier: Apache-2.0
"""A report's sentences: each rule where its condition holds, and where it does not."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from biotrail.converters.analysis.distributions.sketch import Distribution
from biotrail.converters.analysis.figures import Summary
from biotrail.converters.analysis.report.report import make_report
from biotrail.converters.analysis.report.tree import HeldReport, Report
from biotrail.converters.pipeline import Trace
from biotrail.recorder.schema.kernel_names import FLAGS
from biotrail.recorder.schema.records import Q_FLAG_SWAP
from biotrail.text.report import verdict
from biotrail.text.report.verdict import Sentence
from biotrail.text.report.verdict_rules import RULES
from tests.scenarios import cases
from tests.scenarios.tools import events_of
from tests.support import captures
from tests.support.cli_runner import Cli
from tests.support.path_logs import MS, PathLog
from tests.support.paths import DATA, ROOT
from tests.support.perf_files import Perf

SAMPLE = ROOT / "biotrail" / "data" / "demo.biotrail"


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
    return {one.rule: one for one in verdict.verdict(report)}


def test_no_io(tmp_path: Path) -> None:
    # GIVEN a log of no I/O WHEN it is judged THEN that alone is said
    assert list(said(report_of(tmp_path, []))) == ["no-io"]
    # AND of one with I/O it is not
    assert "no-io" not in said(report_of(tmp_path, [io(1, 0)]))


def test_requests_alone(tmp_path: Path) -> None:
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


def test_time_that_is_spread(tmp_path: Path) -> None:
    # GIVEN reads of 40 µs each for a request, to the issue, and 20 in the device
    report = report_of(tmp_path, [io(1, 0, request=40, issue=40, device=20)])
    # WHEN they are judged THEN no part is said to be the main one
    found = said(report)
    assert "main-part" not in found
    assert found["spread"].figures["shares"] == [0.4, 0.4]
    # AND the other way round
    assert "spread" not in said(report_of(tmp_path, [io(1, 0)]))


def test_failures(tmp_path: Path) -> None:
    # GIVEN a write that fails, and one that does not
    bad = [(0, "Q W 0+8 bio=1 pid=1 comm=a"), (9, "c W 0+8 bio=1 err=10")]
    found = said(report_of(tmp_path, [bad, io(2, 100, op="W")]))
    # WHEN they are judged THEN what failed is said
    assert found["failed"].text == "1 of 2 writes on vda failed (IOERR 1)"
    assert "failed" not in said(report_of(tmp_path, [io(2, 100, op="W")]))


def test_flushes(tmp_path: Path) -> None:
    # GIVEN three fsyncs, of which two share a flush
    path = tmp_path / "log.biotrail"
    captures.write_log(path, events_of(cases.SHARED_FLUSHES.given))
    one = said(make_report(Trace(path)))["flushes"]
    # WHEN they are judged THEN it is said how many waited for each
    assert (one.figures["count"], one.figures["bios_per_request"]) == (2, 1.5)
    assert "2 requests of" in one.text and "1.5 waiting bios for each" in one.text
    assert "flushes" not in said(report_of(tmp_path, [io(1, 0)]))


def tail_ios(slow: int) -> list[list[tuple[int, str]]]:
    """Reads one by one, the last `slow` of 120 behind a large write, and 20 times as slow."""
    ios = [io(n + 1, n * 10_000, device=98) for n in range(120 - slow)]
    for n in range(120 - slow, 120):
        ios.append(io(1000 + n, n * 10_000 - 5, op="W", size=2048, device=2500))
        ios.append(io(n + 1, n * 10_000, issue=1900, device=98))
    return ios


def test_a_tail_and_what_it_was_behind(tmp_path: Path) -> None:
    # GIVEN a hundred and fourteen reads of 100 µs and six of 2 ms, behind a write of 1 MiB each
    one = said(report_of(tmp_path, tail_ios(6)))["tail"]
    # WHEN they are judged THEN it is said how many, how slow, in what, and behind what
    figures = one.figures
    assert (figures["operation"], figures["count"], figures["of"]) == ("read", 6, 120)
    assert figures["from_ns"] == 1 << 20 and figures["median_ns"] == pytest.approx(1e5, rel=0.004)
    assert figures["time_share"] == pytest.approx(6 * 1999 / (6 * 1999 + 114 * 100), abs=1e-4)
    assert figures["stages_share"] == pytest.approx(1900 / 1999, abs=1e-4)
    assert (figures["beside_bytes"], figures["beside_others_bytes"]) == (1 << 20, 0)
    assert "5 % of reads on vda took 1.05 ms or more" in one.text
    assert "when they were queued, 1.0 MiB of other operations were in flight" in one.text
    # AND with too few slow ones, or none, nothing is said of them
    for slow in (4, 0):
        found = said(report_of(tmp_path, tail_ios(slow)))
        assert "tail" not in found or found["tail"].figures["operation"] != "read"


@pytest.mark.parametrize("window", [7, 50, 1 << 20])
def test_windows_do_not_matter_for_tails(tmp_path: Path, window: int) -> None:
    # GIVEN a log with a tail WHEN it is read in windows of any size
    report_of(tmp_path, tail_ios(6))
    trace = Trace(tmp_path / "log.biotrail")
    report = make_report(trace, trace.lifecycles(window))
    # THEN the same is known of it
    whole = Trace(tmp_path / "log.biotrail")
    assert report.tails == make_report(whole).tails


def test_bios_without_a_latency(tmp_path: Path) -> None:
    # GIVEN two bios of which one has no end
    ios = [io(1, 0), io(2, 500)[:4]]
    found = said(report_of(tmp_path, ios))
    # WHEN they are judged THEN that is said, and of whole ones it is not
    assert (found["without-latency"].figures["count"], found["without-latency"].figures["of"]) == (
        1,
        2,
    )
    assert "without-latency" not in said(report_of(tmp_path, [io(1, 0)]))


def test_latencies_in_doubt(tmp_path: Path) -> None:
    # GIVEN two writes at one place, of which only one's completion was recorded, and another one
    report = make_report(Trace(str(DATA / "ftrace" / "not-told-lost.txt")))
    # WHEN they are judged THEN it is said how many are in doubt, and what the mean would be with
    one = said(report)["in-doubt"]
    assert (one.figures["operation"], one.figures["count"], one.figures["of"]) == ("write", 1, 2)
    assert one.figures["with_doubtful_mean_ns"] == (80_001_002_000 + 1_002_000) / 2
    assert "1 of 2 latencies of writes on 8:0 is in doubt" in one.text
    # AND of I/O without any doubt nothing is said
    assert "in-doubt" not in said(report_of(tmp_path, [io(1, 0)]))


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


@pytest.mark.parametrize(("split", "there"), [(100, True), (99, False)])
def test_splits(tmp_path: Path, split: int, there: bool) -> None:
    # GIVEN an operation with splits at a rule's threshold, and below it
    report = report_of(tmp_path, [io(1, 0)])
    [device] = report.devices
    [one] = device.operations
    bios = replace(one.bios, ios=200, counters={**one.bios.counters, "split": split})
    device.operations[0] = replace(one, bios=bios)
    # WHEN it is judged THEN the rule says so, or not
    assert ("split" in said(report)) == there


def test_a_device_that_is_mostly_idle(tmp_path: Path) -> None:
    # GIVEN two reads of 100 µs, 900 apart, and two that follow each other
    idle = said(report_of(tmp_path, [io(1, 0, device=98), io(2, 1000, device=98)]))
    # WHEN they are judged THEN the first device is said to be mostly idle, the other is not
    assert idle["mostly-idle"].figures["share"] == pytest.approx(200 / 1100, abs=1e-3)
    assert "vda had I/O in flight for 18 % of the time" in idle["mostly-idle"].text
    assert "mostly-idle" not in said(report_of(tmp_path, [io(1, 0), io(2, 101)]))


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


def test_every_rule_is_tried() -> None:
    # GIVEN the rules WHEN this directory's tests are read THEN each has one that names it
    here = Path(__file__).parent.glob("test_verdict*.py")
    text = "".join(one.read_text(encoding="utf-8") for one in here)
    assert not [rule.name for rule in RULES if f'"{rule.name}"' not in text]


def test_every_rule_is_documented() -> None:
    # GIVEN the rules WHEN docs/report.md is read THEN each has its row
    text = (ROOT / "docs" / "report.md").read_text(encoding="utf-8")
    assert not [rule.name for rule in RULES if f"| `{rule.name}` |" not in text]


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
