# SPDX-License-Identifier: Apache-2.0
"""Data is what is transferred: discards, write zeroes and secure erases are counted apart."""

from pathlib import Path

import pytest

from biotrail.converters.analysis.figures import as_json
from biotrail.converters.analysis.report.csv import lines
from biotrail.converters.analysis.report.report import make_report
from biotrail.converters.analysis.stacks.stacks import StackTable
from biotrail.converters.pipeline import Trace
from tests.support.cli_runner import Cli
from tests.support.path_logs import PathLog

WRITE, DISCARD, SECURE_ERASE, WRITE_ZEROES = 1, 3, 5, 9
MIB = 1 << 20
OPERATIONS = [
    (DISCARD, "discarded"),
    (WRITE_ZEROES, "zeroed"),
    (SECURE_ERASE, "erased"),
]


def log(tmp_path: Path, op: int) -> Path:
    """A process that writes 1 MiB and acts on 8 MiB, the latter in flight all the time."""
    made = PathLog()
    made.task(42, b"rm")
    made.bio(100, 900, opf=op, size=8 * MIB)
    made.bio(200, 300, opf=WRITE, size=MIB)
    return made.write(tmp_path / "log.biotrail")


@pytest.mark.parametrize(("op", "word"), OPERATIONS)
def test_what_moves_no_data_is_no_data(tmp_path: Path, op: int, word: str) -> None:
    # GIVEN a log with a write, and an operation on a range WHEN it is reported on
    trace = Trace(log(tmp_path, op))
    report = make_report(trace, by="process")
    # THEN every sum has the write as data, and the range by itself
    key = f"{word}_bytes"
    told = as_json(report)
    assert told["format"] == 2
    for group in (told["total"], told["devices"][0]["total"], *told["processes"], *told["groups"]):
        assert (group["bytes"], group["done_bytes"], group[key]) == (MIB, MIB, 8 * MIB)
        assert (group["size"]["count"], group["size"]["sum_bytes"]) == (1, MIB)
        assert (group["ranges"]["count"], group["ranges"]["sum_bytes"]) == (1, 8 * MIB)
    for line in lines(report):
        if line["section"] in ("total", "groups") and line["of"] == "bios":
            assert (line["bytes"], line[key]) == (MIB, 8 * MIB)
    # THEN nor was it data that was in flight beside the write
    [tail] = [one for one in report.tails if one.operation == "write"] or [None]
    assert tail is None or (tail.beside, tail.beside_others) == (0, 0)


@pytest.mark.parametrize(("op", "word"), OPERATIONS)
def test_tables_and_head_say_what_it_was(tmp_path: Path, cli: Cli, op: int, word: str) -> None:
    # GIVEN such a log WHEN its report is printed
    text = cli("report", str(log(tmp_path, op)), "--by", "process").out
    # THEN the head, and a column of each table, have the range
    assert f"2 bios, 1.0 MiB, 8.0 MiB {word}" in text
    [head, row] = [
        x for x in text.split("By process")[1].splitlines() if "I/O/s" in x or x.startswith("rm")
    ][:2]
    assert word in head
    assert "8.0 MiB" in row


def test_call_stacks_do_not_weigh_ranges(tmp_path: Path) -> None:
    # GIVEN such a log WHEN its callers are added up
    trace = Trace(log(tmp_path, DISCARD))
    table = StackTable(trace.context)
    for window in trace.lifecycles():
        table.add(window)
    # THEN bytes are those of the write
    assert sum(one.bytes for one in table.callers()) == MIB
