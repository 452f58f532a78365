# SPDX-License-Identifier: Apache-2.0
"""A report's sentences on whose I/O made whose I/O wait, and on what was not recorded."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from biotrail.text.report.verdict import MORE
from tests.support import blame_logs
from tests.support.blame_logs import MS, US, Io
from tests.support.cli_runner import Cli
from tests.support.paths import DATA

PATH_LOG = DATA / "calls" / "ext4-on-loop.biotrail"


def said(cli: Cli, *options: object) -> list[dict[str, Any]]:
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
    told = said(cli, "--blame=process", path)
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
    assert "blame" not in [one["rule"] for one in said(cli, path)]


def test_nobody_is_named_where_others_cost_little(tmp_path: Path, cli: Cli) -> None:
    # GIVEN a reader that is rarely beside writes WHEN it is reported THEN nobody is named
    told = said(cli, "--blame=process", log(tmp_path, beside=1))
    assert "blame" not in [one["rule"] for one in told]


def test_the_report_has_what_blame_prints(tmp_path: Path, cli: Cli) -> None:
    # GIVEN a reader beside a writer
    path = log(tmp_path, beside=4)
    # WHEN both commands tell of it, also by standard input
    alone = json.loads(cli("blame", "--by", "process", "--json", path).out)
    told = json.loads(cli("report", "--blame=process", "--json", path).out)["blame"]
    command = [
        sys.executable,
        "-m",
        "biotrail.cli.main",
        "report",
        "--blame=process",
        "--json",
        "-",
    ]
    piped = subprocess.run(command, input=path.read_bytes(), capture_output=True, check=True)
    # THEN they say the same
    assert told == {key: alone[key] for key in told}
    assert json.loads(piped.stdout)["blame"] == told
    # AND the text has the table and its sentence
    text = " ".join(cli("report", "--blame", path).out.split())
    assert "Whose I/O made whose I/O wait, by owner" in text
    assert "is waiting behind backup's writes" in text


@pytest.mark.parametrize("options", [("--csv",), ("--failed",), ("--slower-than", "1ms")])
def test_what_blame_does_not_go_with(cli: Cli, tmp_path: Path, options: tuple[str, ...]) -> None:
    # GIVEN options that blame has no answer to WHEN they are given THEN the usage is wrong
    done = cli("report", "--blame", *options, log(tmp_path, beside=1))
    assert done.status == 2 and "--blame" in done.err


def test_the_option_that_tells_more_is_named_once(tmp_path: Path, cli: Cli) -> None:
    # GIVEN a log of the block layer alone, and one with calls
    # WHEN they are reported
    without, calls = said(cli, log(tmp_path, beside=4)), said(cli, PATH_LOG)
    # THEN the first sentence of the first alone says what would tell more
    assert [MORE in one["next"] for one in without] == [True] + [False] * (len(without) - 1)
    assert not any(MORE in one["next"] for one in calls)
