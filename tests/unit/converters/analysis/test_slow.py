# SPDX-License-Identifier: Apache-2.0
"""slow: which I/Os, their events, and what was in their way."""

import io
import json
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from biotrail.converters.analysis.choosing.choosing import Choice
from biotrail.converters.analysis.slow.slow import Slowest, Wanted
from biotrail.converters.pipeline import Trace
from tests.scenarios.causes import FLOOD
from tests.scenarios.stacks import CASES as STACKS
from tests.scenarios.tools import devices_with, events_of
from tests.support import captures
from tests.support.cli_runner import Cli, Done
from tests.support.paths import ROOT

SAMPLE = ROOT / "biotrail" / "data" / "demo.biotrail"
BLKTRACE = ROOT / "tests" / "data" / "blktrace"


@pytest.fixture
def flood(tmp_path: Path) -> Path:
    return captures.write_log(tmp_path / "flood.biotrail", events_of(FLOOD))


def ios(done: Done) -> list[dict[str, Any]]:
    assert done.status == 0, done.err
    found: list[dict[str, Any]] = json.loads(done.out)["ios"]
    return found


def tasks(group: dict[str, Any]) -> tuple[int, int, dict[str, int]]:
    return group["ios"], group["bytes"], group["tasks"]


def test_what_was_in_the_way_of_a_read_is_named(cli: Cli, flood: Path) -> None:
    # GIVEN a read that a scheduler holds back behind writes / WHEN it is asked for
    [slow] = ios(cli("slow", "--op", "read", "--json", flood))
    # THEN the stage is named
    longest = max(slow["io"]["stages"], key=lambda span: span["ns"])
    assert (longest["stage"], longest["ns"]) == ("I2D", 877_000)
    assert longest["share"] == pytest.approx(877 / 980)
    assert sum(span["ns"] for span in slow["io"]["stages"]) == slow["io"]["latency_ns"] == 980_000
    # AND what was ahead of it, past it, and beside it
    around = slow["surroundings"]
    assert tasks(around["when_queued"]["waiting"]) == (1, 65536, {"writer": 1})
    assert tasks(around["when_queued"]["in_device"]) == (1, 65536, {"writer": 1})
    assert around["when_queued"]["requests_allocated"] == 2
    assert around["when_queued"]["requests_in_device"] == 1
    assert tasks(around["ahead"]) == (1, 65536, {"writer": 1})
    assert tasks(around["overtook_it"]) == (1, 65536, {"writer": 1})
    assert around["it_overtook"]["ios"] == 0
    assert tasks(around["when_issued"]["in_device"]) == (2, 131072, {"writer": 2})
    assert around["when_issued"]["waiting"]["ios"] == 0
    assert tasks(around["completed_meanwhile"]) == (1, 65536, {"writer": 1})
    assert around["of_these_issued_later"]["ios"] == 0
    # AND these one by one, with their times since the read was queued
    assert [(n["queue_ns"] < 0, n["issue_ns"] < 0, n["comm"]) for n in around["before"]] == [
        (True, True, "writer"),
        (True, False, "writer"),
        (False, False, "writer"),
    ]
    assert around["before_left_out"] == 0
    for one in around["before"]:
        assert one["waited_ns"] == one["issue_ns"] - one["queue_ns"]
        assert one["end_ns"] is None or one["in_device_ns"] == one["end_ns"] - one["issue_ns"]
        assert (one["ios"], one["bytes"], one["operation"]) == (1, 65536, "write")


def test_every_event_has_its_offset_cpu_and_task(cli: Cli, flood: Path) -> None:
    # GIVEN a read / WHEN it is asked for
    [slow] = ios(cli("slow", "--op", "read", "--json", flood))
    # THEN all its events are there, and no other
    told = [(e["letter"], e["offset_ns"] // 1000, e["cpu"], e["comm"]) for e in slow["events"]]
    assert told == [
        ("Q", 0, 1, "reader"),
        ("G", 1, 1, None),
        ("s", 2, 1, None),
        ("I", 3, 1, None),
        ("D", 880, 1, None),
        ("C", 980, 0, None),
    ]


def test_the_slowest_come_first_and_top_bounds_them(cli: Cli, flood: Path) -> None:
    # GIVEN a log / WHEN few, or only slow ones are asked for
    found = ios(cli("slow", "--json", flood))
    # THEN they come in the order of their latency
    assert [slow["io"]["latency_ns"] for slow in found] == [1_000_000, 980_000, 880_000, 50_000]
    assert ios(cli("slow", "--top", "2", "--json", flood)) == found[:2]
    assert ios(cli("slow", "--over", "900us", "--json", flood)) == found[:2]
    counts = json.loads(cli("slow", "--top", "1", "--over", "60us", "--json", flood).out)["counts"]
    assert (counts["ios"], counts["matching"], counts["under_way"]) == (4, 3, 0)
    assert (counts["without_latency"], counts["tries"]) == (0, 0)


def test_none_wanted_is_counted_alone(flood: Path) -> None:
    # GIVEN a log / WHEN no I/O is to be kept, window by window
    trace = Trace(flood)
    found = Slowest(trace, Choice(trace.context), Wanted(top=0))
    for _ in trace.lifecycles(4, on_window=found.watch):
        pass
    # THEN none is kept, and all are counted
    assert found.found == []
    assert (found.counts.ios, found.counts.matching) == (4, 4)


@pytest.mark.parametrize("window", [40, 400, 1 << 20])
def test_windows_do_not_matter(cli: Cli, window: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN the sample / WHEN it is read in windows of any size
    from biotrail.converters import pipeline as trace

    monkeypatch.setattr(trace.Trace.lifecycles, "__defaults__", (1 << 20, None, None))
    expected = cli("slow", "--top", "5", "--json", SAMPLE).out
    monkeypatch.setattr(trace.Trace.lifecycles, "__defaults__", (window, None, None))
    # THEN the same is said
    assert cli("slow", "--top", "5", "--json", SAMPLE).out == expected


def test_mates_share_the_request(cli: Cli, tmp_path: Path) -> None:
    # GIVEN eight plugged writes that became one request
    from tests.scenarios.cases import PLUGGED_WRITES

    log = captures.write_log(tmp_path / "a.biotrail", events_of(PLUGGED_WRITES.given))
    # WHEN the slowest is asked for
    [slow] = ios(cli("slow", "--top", "1", "--json", log))
    # THEN the others of its request are with it
    assert [mate["sector"] for mate in slow["mates"]] == list(range(8, 64, 8))
    assert [(r["bios"], r["tag"]) for r in slow["requests"]] == [(8, 7)]
    assert "7 other I/Os in the same request" in cli("slow", "--top", "1", log).out


def test_what_does_anothers_work_is_told_with_it(cli: Cli, tmp_path: Path) -> None:
    # GIVEN stacked devices, where lower bios do the work of upper ones
    case = next(c for c in STACKS if "parent" in c.then and "md" in c.name.lower())
    header = {"devices": devices_with(case.devices)}
    log = captures.write_log(tmp_path / "a.biotrail", events_of(case.given), header)
    # WHEN the slow ones are asked for
    found = ios(cli("slow", "--json", log))
    # THEN lower ones are with their parent alone, with stages of their own
    numbers = [slow["io"]["number"] for slow in found]
    below = [child for slow in found for child in slow["children"]]
    assert below
    assert not {child["number"] for child in below} & set(numbers)
    for child in below:
        assert sum(span["ns"] for span in child["stages"]) == child["latency_ns"]
    # AND a lower device that is asked for has its own, with their parent
    lower = ios(cli("slow", "-d", below[0]["device"], "--json", log))
    assert lower[0]["parents"][0]["number"] in numbers


def test_failed_ones_alone(cli: Cli, tmp_path: Path) -> None:
    # GIVEN a log with one error
    log = captures.write_log(
        tmp_path / "a.biotrail", captures.load("partial-completion-error-loop")
    )
    # WHEN failed I/Os are asked for / THEN it is found, with what it did complete
    found = ios(cli("slow", "--failed", "--json", log))
    assert {slow["io"]["status"] for slow in found} == {"IOERR"}
    assert "ended with IOERR" in cli("slow", "--failed", log).out


def test_what_had_not_ended_counts_with_what_it_waited(cli: Cli, tmp_path: Path) -> None:
    # GIVEN a log that ends while a write is in the device
    text = "0 Q W 0+8 bio=1\n1 G W 0+8 bio=1\n2 s W 0+8 bio=1 rq=1\n3 D W 0+8 bio=1 rq=1\n"
    more = "5000 Q R 64+8 bio=2\n5001 G R 64+8 bio=2\n"
    log = captures.write_log(tmp_path / "a.biotrail", events_of(text + more))
    # WHEN the slowest is asked for
    slow = ios(cli("slow", "--json", log))[0]
    # THEN it is that one, marked, and where it is
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
        found = ios(cli("slow", "--json", "--top", "1", log))
        assert [slow["io"]["operation"] for slow in found] == [first]


def test_no_match_and_no_event_are_said(cli: Cli, flood: Path, tmp_path: Path) -> None:
    # GIVEN a log without what is asked for, and one without events / WHEN they are read
    empty = captures.write_log(tmp_path / "empty.biotrail", [])
    # THEN a line says so, and that is no failure
    done = cli("slow", "--over", "1h", flood)
    assert (done.status, done.out) == (0, "no I/O of 60 min 0 s or more among 4 I/Os\n")
    assert cli("slow", "--over", "1000000000s", flood).status == 0
    assert cli("slow", "--failed", flood).out == "no failed I/O among 4 I/Os\n"
    assert cli("slow", empty).out == "no I/O among 0 I/Os\n"
    assert ios(cli("slow", "--json", empty)) == []
    # AND no trace is written
    out = tmp_path / "no.pftrace"
    assert cli("slow", empty, "-o", out).status == 0
    assert not out.exists()


SEQUENCE = """
0   Q WFS 0+8 bio=1
1   G WFS 0+8 bio=1
2   s WFS 0+8 bio=1 rq=1
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
    [slow] = [one for one in ios(cli("slow", "--json", log)) if one["io"]["operation"] == "write"]
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


def test_a_line_for_each(cli: Cli, flood: Path) -> None:
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


@pytest.mark.parametrize(
    "wrong",
    [
        ("--over", "fast"),
        ("--over", "5 parsecs"),
        ("--limit", "-1"),
        ("--limit", "1001"),
        ("--op", "reed"),
        ("--margin", "-1"),
    ],
)
def test_wrong_usage(cli: Cli, flood: Path, wrong: tuple[str, str]) -> None:
    # GIVEN options that say nothing / WHEN they are used / THEN it is a usage error
    done = cli("slow", *wrong, flood)
    assert done.status == 2
    assert "Traceback" not in done.err


def test_bad_input(cli: Cli, flood: Path, tmp_path: Path) -> None:
    # GIVEN a device that the log does not have, and a file that is no log
    done = cli("slow", "-d", "sdx", flood)
    # WHEN they are read / THEN one message says what is wrong
    assert done.status == 1
    assert "no device sdx" in done.err
    assert "vda" in done.err
    (tmp_path / "no.log").write_bytes(b"nothing of the kind")
    assert cli("slow", tmp_path / "no.log").status == 1


@pytest.mark.parametrize("name", ["loop1", "vda", "zram1"])
def test_blktrace_files(cli: Cli, name: str) -> None:
    # GIVEN blktrace's files / WHEN the slowest I/Os are asked for / THEN they are told as of a log
    found = ios(cli("slow", "--top", "3", "--json", BLKTRACE / name))
    assert found
    for slow in found:
        assert slow["events"][0]["letter"] in "QAG"
        assert sum(span["ns"] for span in slow["io"]["stages"]) == slow["io"]["waited_ns"]
    assert "since Q" in cli("slow", "--top", "3", BLKTRACE / name).out


def test_standard_input(flood: Path) -> None:
    # GIVEN a log in a pipe / WHEN it is read twice / THEN that is possible
    done = subprocess.run(
        [sys.executable, "-m", "biotrail.cli.main", "slow", "--top", "1", "-"],
        cwd=ROOT,
        input=flood.read_bytes(),
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr
    assert b"#1  1 ms  vda write" in done.stdout
    assert b"\x1b" not in done.stdout


def test_the_trace_holds_what_was_around(cli: Cli, tmp_path: Path) -> None:
    # GIVEN the sample / WHEN the slowest are written as a trace
    perfetto = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    out = tmp_path / "slow.pftrace"
    [slow] = ios(cli("slow", "--top", "1", "--json", "--margin", "1ms", "-o", out, SAMPLE))
    # THEN it is private, and holds that I/O and others
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    trace = perfetto.Trace()
    trace.ParseFromString(out.read_bytes())
    numbers = set(_numbers(trace))
    assert slow["io"]["number"] in numbers
    whole = json.loads(cli("info", "--json", SAMPLE).out)["account"]["bios"]
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


def test_text_of_a_thread_is_made_printable(cli: Cli, tmp_path: Path) -> None:
    # GIVEN a thread with an escape sequence for a name
    events = events_of("0 Q W 0+8 bio=1 pid=5 comm=x\n9 c W 0+8 bio=1\n")
    events[0]["comm"] = "a\x1b[31m"
    log = captures.write_log(tmp_path / "a.biotrail", events)
    # WHEN it is shown / THEN the terminal gets none
    assert "\x1b" not in cli("slow", log).out


def test_a_log_in_memory_is_read_twice(flood: Path) -> None:
    # GIVEN a log as a stream / WHEN it is opened again / THEN it is read from its beginning
    from biotrail.cli.options.opening import USUAL, open_again

    stream = io.BytesIO(flood.read_bytes())
    counts = [sum(len(w.bios) for w in open_again(stream, USUAL).lifecycles()) for _ in "12"]
    assert counts == [4, 4]


def test_the_page_names_every_key_of_json(cli: Cli, flood: Path) -> None:
    # GIVEN what --json prints / WHEN its keys are looked up / THEN docs/slow.md has each
    page = (ROOT / "docs" / "slow.md").read_text(encoding="utf-8")
    found = json.loads(cli("slow", "--json", flood).out)
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
