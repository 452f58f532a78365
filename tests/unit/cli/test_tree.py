# SPDX-License-Identifier: Apache-2.0
"""`biotrail tree`, and what other commands say of followed objects."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import biotrail
from tests.support.cli_runner import Cli
from tests.support.follow_logs import EXIT, IDLE, MS, US, FollowLog, many, read_write
from tests.support.follow_scenes import by_functions, by_tracepoints
from tests.support.stack_logs import bio
from tests.support.stack_logs import write as write_bios


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "rq.biotrail"
    path.write_bytes(by_functions().data())
    return path


def heads(text: str) -> list[str]:
    return [
        line.split(",")[1].strip() for line in text.splitlines() if line.startswith("request 0x")
    ]


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        (("--slowest", "2", "--slower-than", "100us"), ["life 1", "life 2"]),
        (("--life", "3", "--life", "5"), ["life 3", "life 5"]),
        (("--object", "0xffff88800000f000"), ["life 6", "life 7"]),
        (("--sector", "32"), ["life 4"]),
        (("--sector", "32", "--comm", "post*"), ["life 4"]),
    ],
)
def test_lives_are_chosen(cli: Cli, log: Path, options: tuple[str, ...], shown: list[str]) -> None:
    # GIVEN nine lives of 907 µs and less  WHEN some are chosen
    # THEN they are shown, the slowest first where so many are asked for, of equals the first
    assert heads(cli("tree", *options, log).out) == shown


def test_a_single_life_is_a_tree_of_its_own(cli: Cli, log: Path, tmp_path: Path) -> None:
    # GIVEN a log of one life  WHEN nothing is chosen  THEN it is not merged
    one = FollowLog()
    read_write(one)
    path = one.write(tmp_path / "one.biotrail")
    assert heads(cli("tree", path).out) == ["life 1"]
    # AND it is if asked for
    assert cli("tree", "--merged", path).out.startswith("1 life of request, 13 hits\n")
    # GIVEN nine lives  WHEN another is asked for  THEN the answer is no empty page
    done = cli("tree", "--life", "99", log)
    nothing = "no life is of this kind: biotrail info shows what the log has"
    assert (done.status, done.out.strip()) == (0, nothing)


def test_more_lives_than_are_shown_are_counted(cli: Cli, tmp_path: Path) -> None:
    # GIVEN 12 lives of one sector  WHEN chosen by it  THEN ten are shown
    log = FollowLog()
    for life in range(1, 13):
        at = life * MS
        who = {"life": life, "object": 64 * life, "detail": 8}
        log.passes(at, "block_getrq", (*IDLE, *EXIT), born=True, **who)
        log.passes(at + US, "block_rq_complete", (*IDLE, *EXIT), ended=True, **who)
    path = log.write(tmp_path / "rq.biotrail")
    done = cli("tree", "--sector", "8", path)
    assert len(heads(done.out)) == 10
    assert "2 more lives: --limit 0 shows all" in done.out
    assert len(heads(cli("tree", "--sector", "8", "-n", "0", path).out)) == 12


def test_each_form_has_its_own_figures(cli: Cli, log: Path, tmp_path: Path) -> None:
    # GIVEN nine lives  WHEN asked for as JSON  THEN each form has its own key
    merged = json.loads(cli("tree", "--json", log).out)
    functions = json.loads(cli("tree", "--functions", "--json", log).out)
    assert (merged["merged"]["lives"], merged["type"]) == (9, "request")
    assert functions["functions"][0]["name"] == "blk_mq_dispatch_rq_list"
    # WHEN a flame graph is asked for  THEN it is an SVG of the functions' own time
    out = tmp_path / "rq.svg"
    assert cli("tree", "--flame", out, log).status == 0
    assert "blk_mq_end_request" in out.read_text()
    # AND it is not replaced without --force
    assert cli("tree", "--flame", out, log).status == 1
    assert cli("tree", "--flame", out, "--force", log).status == 0
    # GIVEN packets by tracepoints  WHEN folded  THEN what the weights are is said
    done = cli("tree", "--folded", by_tracepoints().write(tmp_path / "skb.biotrail"))
    assert "times are those until the life's next tracepoint" in done.err


def test_a_log_without_followed_objects(cli: Cli, tmp_path: Path) -> None:
    # GIVEN a log of bios  WHEN its tree is asked for  THEN the message says how to have one
    path = write_bios(tmp_path / "bios.biotrail", bio(1, 1000, -1), [])
    done = cli("tree", path)
    assert (done.status, done.out) == (1, "")
    assert "record with biotrail follow TYPE -o LOG" in done.err


def test_names_of_others_do_not_act_on_the_terminal(cli: Cli, tmp_path: Path) -> None:
    # GIVEN a thread with an escape sequence for a name, and a site with one
    log = FollowLog()
    log.passes(0, "\x1b[31mred", (*IDLE, "\x1b]0;x\x07"), born=True, comm=b"\x1b[2Jgone")
    path = log.write(tmp_path / "rq.biotrail")
    # WHEN printed in any form  THEN none of them is
    for form in ((), ("--merged",), ("--functions",), ("--folded",), ("--json",)):
        assert "\x1b" not in cli("tree", *form, path).out
    assert "\x1b" not in cli("info", path).out
    assert "\x1b" not in cli("dump", path).out


def test_an_archive_has_the_same_lives(cli: Cli, log: Path, tmp_path: Path) -> None:
    # GIVEN a log's archive  WHEN its trees, tables and records are asked for
    archive = tmp_path / "rq.parquet"
    assert cli("archive", log, "-o", archive).status == 0
    # THEN all are those of the log
    for form in (("tree",), ("tree", "--slowest", "9"), ("export", "--what", "hits"), ("dump",)):
        assert cli(*form, archive).out == cli(*form, log).out


def test_rotated_files_are_one_recording(cli: Cli, tmp_path: Path) -> None:
    # GIVEN a life that begins in one file of a recording and ends in the next
    log = FollowLog()
    many(log, 2)
    whole = tmp_path / "whole.biotrail"
    whole.write_bytes(log.data())
    rows = sorted(log.sites)
    series = {"run": "r" * 8, "number": 1}
    parts = []
    for number, part in enumerate((rows[:8], rows[8:]), 1):
        log.sites = part
        path = tmp_path / f"part-{number}.biotrail"
        header = {"log_id": str(number) * 32, "series": {**series, "number": number}}
        path.write_bytes(log.data(**header))
        parts.append(path)
    # WHEN both files are read as one  THEN the lives are whole
    assert cli("tree", "--life", "1", *parts).out == cli("tree", "--life", "1", whole).out


def test_the_library_has_lives_spans_and_hits(log: Path) -> None:
    # GIVEN nine lives  WHEN opened as tables
    found = biotrail.open(log)
    # THEN spans add up to what the lives say
    assert (found.lives.num_rows, found.hits.num_rows) == (9, 73)
    assert found.spans.num_rows == sum(found.lives["spans"].to_pylist())
    assert {row["life"]: row["life_ns"] for row in found.lives.to_pylist()}[1] == 907 * US


def test_a_pipe_is_read(log: Path) -> None:
    # GIVEN a log on standard input  WHEN its tree is asked for  THEN it is that of the file
    command = [sys.executable, "-m", "biotrail.cli.main", "tree"]
    piped = subprocess.run([*command, "-"], stdin=log.open("rb"), capture_output=True, check=True)
    of_file = subprocess.run([*command, str(log)], capture_output=True, check=True)
    assert piped.stdout == of_file.stdout
