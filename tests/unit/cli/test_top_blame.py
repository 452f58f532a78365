# SPDX-License-Identifier: Apache-2.0
"""top --blame without a recorder: stretches add up to `blame`, and what is shown."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from biotrail.converters.analysis.blame.online import LEFT_OUT
from biotrail.converters.analysis.blame.tree import Waited
from biotrail.converters.analysis.figures import as_json
from biotrail.converters.analysis.live.tree import Snapshot, Stretch
from biotrail.text.report.verdict import verdict
from biotrail.text.top import parts, shortened
from tests.support import blame_logs
from tests.support.blame_logs import MS, Io, S
from tests.support.cli_runner import Cli
from tests.support.followed_logs import COST, follow, patient

__all__ = ["patient"]
pytestmark = pytest.mark.usefixtures("patient")
INTERVAL = 1 * S


def shown(snapshot: Snapshot, height: int | None = None) -> str:
    to = Console(file=io.StringIO(), width=160)
    for part in parts(snapshot, COST, 160, height):
        to.print(part)
    assert isinstance(to.file, io.StringIO)
    return to.file.getvalue()


def victims(stretch: Stretch) -> dict[str, Waited]:
    assert stretch.blame is not None
    return {one.name: one for one in stretch.blame.victims}


def test_stretches_add_up_to_blame(tmp_path: Path, cli: Cli) -> None:
    # GIVEN a reader beside a writer
    path = blame_logs.write(tmp_path / "a.biotrail", blame_logs.beside_a_writer())
    # WHEN the log is followed
    found = follow(path, INTERVAL, "process")
    # THEN all stretches have together each victim's I/Os and time, and so has the last minute
    told = json.loads(cli("blame", "--by", "process", "--json", path).out)["victims"]
    for one in told:
        mine = [victims(s.now)[one["name"]] for s in found if one["name"] in victims(s.now)]
        assert sum(v.ios for v in mine) == one["ios"]
        assert sum(v.wait_ns for v in mine) == one["wait_ns"]
        assert all(sum(p.wait_ns for p in v.parts) == v.wait_ns for v in mine)
        whole = victims(found[-1].minute)[one["name"]]
        assert (whole.ios, whole.wait_ns) == (one["ios"], one["wait_ns"])


def test_the_text_and_the_json_have_it(tmp_path: Path) -> None:
    # GIVEN a reader beside a writer, followed
    path = blame_logs.write(tmp_path / "a.biotrail", blame_logs.beside_a_writer())
    last = follow(path, INTERVAL, "process")[-1]
    # WHEN it is shown
    text = shown(last)
    # THEN the reader's time is there by what it waited for
    app = victims(last.minute)["app"]
    [behind] = [part.wait_ns for part in app.parts if part.culprit == "backup"]
    rows = [one for one in text.splitlines() if not one.startswith("*")]
    [line] = [one for one in rows if "behind backup" in one]
    assert f"{100 * behind / app.wait_ns:.0f} %" in line
    assert "filters" not in text
    # AND on a terminal of any height, too
    assert "own service" in shown(last, 60)
    assert len(shown(last, 12).splitlines()) <= 12
    # AND JSON has the parts as `blame` has them
    facts = as_json(last)["minute"]["blame"]
    assert facts["by"] == "process"
    assert facts["everybody_recorded"] is True
    assert facts["left_out"] == dict.fromkeys(LEFT_OUT, 0)
    told = next(one for one in facts["victims"] if one["name"] == "app")
    assert {"kind": "other I/O", "culprit": "backup", "wait_ns": behind} in told["parts"]
    # AND a limit is of victims
    blame = shortened(last, 1).minute.blame
    assert blame is not None and len(blame.victims) == 1


def test_nobody_is_blamed_unless_it_is_asked_for(tmp_path: Path) -> None:
    # GIVEN a log, followed without --blame / THEN JSON says null, and there is no table
    path = blame_logs.write(tmp_path / "a.biotrail", blame_logs.beside_a_writer())
    last = follow(path, INTERVAL)[-1]
    assert as_json(last)["now"]["blame"] is None
    assert "own service" not in shown(last)


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    # GIVEN a request of two seconds, and reads beside it
    ios = [Io("app", t * 10 * MS, t * 10 * MS, t * 10 * MS + MS) for t in range(300)]
    ios.append(Io("backup", MS, MS, 2 * S, "W", 64))
    path = blame_logs.write(tmp_path / "a.biotrail", ios)
    # WHEN it is shown / THEN it is said that it is blamed for nothing
    last = follow(path, INTERVAL, "process")[-1]
    assert "1 request of more than a second" in shown(last)


def test_the_first_sentence_is_that_of_a_report(tmp_path: Path) -> None:
    # GIVEN a reader whose reads take much longer beside a writer
    ios = []
    for at in range(200):
        begin, slow = at * 10 * MS, at % 10 < 4
        ios.append(Io("app", begin, begin + 1000, begin + (6 if slow else 2) * MS))
        if slow:
            ios.append(Io("backup", begin - 1000, begin - 1000, begin + 6 * MS, "W", 2048))
        elif at % 10 == 9:
            ios.append(Io("backup", begin + 3 * MS, begin + 3 * MS, begin + 9 * MS, "W", 2048))
    path = blame_logs.write(tmp_path / "a.biotrail", ios)
    # WHEN the log is followed, with blame and without
    last, plain = (follow(path, INTERVAL, by)[-1] for by in ("process", None))
    # THEN the culprit is in the first sentence where it was asked for
    said = [one.rule for one in verdict(last.report)]
    assert said[0] == "blame" and "main-part" in said
    assert "* 44 % of the time of app's I/O is waiting behind backup's I/O." in shown(last)
    # AND else the first one is on the stages, with the option that tells more
    [first, *_] = verdict(plain.report)
    assert first.rule == "main-part" and "--path" in first.next
    assert f"* {first.text}." in " ".join(shown(plain).split())
