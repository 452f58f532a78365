# SPDX-License-Identifier: Apache-2.0
"""diff --blame: what a victim's I/O waited longer for, and because of whom."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support import blame_logs
from tests.support.blame_logs import MS, US, Io
from tests.support.cli_runner import Cli


def log(path: Path, name: str, beside: int, takes: int = 2) -> Path:
    """Reads of `takes` ms each 10 ms, of 6 ms where `beside` of ten are beside a write.

    A sixth read in sixty is followed by a write alone, so that its base is known.
    """
    ios = []
    for at in range(300):
        begin, slow = at * 10 * MS, at % 10 < beside
        ios.append(Io("app", begin, begin + US, begin + (6 if slow else takes) * MS))
        if slow:
            ios.append(Io("backup", begin - US, begin - US, begin + 6 * MS, "W", 2048))
        elif beside and at % 20 == 19:
            ios.append(Io("backup", begin + 3 * MS, begin + 3 * MS, begin + 9 * MS, "W", 2048))
    return blame_logs.write(path / f"{name}.biotrail", ios, host=name)


def compared(cli: Cli, *words: object) -> dict[str, Any]:
    done = cli("diff", "--blame=process", "--json", *words)
    assert done.status == 0
    found: dict[str, Any] = json.loads(done.out)
    return found


def figures(found: dict[str, Any], victim: str) -> dict[str, dict[str, Any]]:
    [one] = [one for one in found["blame"] if one["victim"] == victim]
    return {figure["stage"]: figure for figure in one["figures"]}


def test_what_grew_because_of_whom(tmp_path: Path, cli: Cli) -> None:
    # GIVEN a reader alone (but for a few writes), and one of whose reads four of ten are beside one
    a, b = log(tmp_path, "a", beside=0), log(tmp_path, "b", beside=4)
    # WHEN they are compared
    found = compared(cli, a, b)
    app = figures(found, "app")
    # THEN the mean's growth is the culprit's, who is not there in A
    assert (app["Q2C"]["a"], app["Q2C"]["b"]) == (2 * MS, 3.6 * MS)
    assert (app["behind backup"]["a"], app["behind backup"]["b"]) == (0, 1.6 * MS)
    assert (app["own service"]["a"], app["own service"]["b"]) == (2 * MS, 2 * MS)
    assert app["behind backup"]["differs"] and not app["own service"]["differs"]
    assert app["behind backup"]["difference_low"] > 1 * MS
    # AND B's parts are those of blame, to the nanosecond
    told = json.loads(cli("blame", "--by", "process", "--json", b).out)["victims"]
    [mine] = [one for one in told if one["name"] == "app"]
    for part in mine["parts"]:
        name = f"behind {part['culprit']}" if part["culprit"] else part["kind"]
        assert app[name]["b"] * mine["ios"] == pytest.approx(part["wait_ns"], abs=1)
    # AND the text says so in a sentence
    text = " ".join(cli("diff", "--blame=process", a, b).out.split())
    assert "Whose I/O made whose I/O wait, mean of each I/O, by process" in text
    assert "* app: the mean grew by 1.6 ms, from 2 ms to 3.6 ms: 1.6 ms (" in text
    assert ") of waiting behind backup." in text


def test_nothing_grew_between_equal_logs(tmp_path: Path, cli: Cli) -> None:
    # GIVEN two logs of one load WHEN they are compared THEN nobody made anything grow
    found = compared(cli, log(tmp_path, "a", beside=2), log(tmp_path, "b", beside=2))
    assert found["blame"] and found["blame_by"] == "process"
    assert not any(one["differs"] for app in found["blame"] for one in app["figures"])


def test_nobody_is_compared_without_the_option(tmp_path: Path, cli: Cli) -> None:
    # GIVEN two logs WHEN they are compared without blame THEN there is none
    done = cli("diff", "--json", log(tmp_path, "a", beside=0), log(tmp_path, "b", beside=4))
    found = json.loads(done.out)
    assert (found["blame"], found["blame_by"]) == ([], None)


def test_runs_tell_who_made_it_grow(tmp_path: Path, cli: Cli) -> None:
    # GIVEN three runs with a few writes beside, and three with more, of differing service
    sides = [
        [log(tmp_path, f"{name}{at}", beside, takes=2 + at % 2) for at in range(3)]
        for name, beside in (("a", 0), ("b", 4))
    ]
    # WHEN they are compared by runs
    found = compared(cli, *sides[0], "--", *sides[1])
    # THEN the culprit's part changed, which is nothing in runs without it
    part = figures(found, "app")["behind backup"]
    assert found["by_runs"] and part["changed"] and part["a"] == 0
    assert part["b"] > 1 * MS


def test_slots_are_widened_and_pooled(tmp_path: Path, cli: Cli) -> None:
    # GIVEN two logs a side, one of them so long that its slots are wider
    short, long = log(tmp_path, "a", beside=4), log(tmp_path, "b", beside=4)
    # WHEN sides of two logs are compared
    found = compared(cli, short, log(tmp_path, "c", beside=0), "--", long)
    # THEN a victim's parts still add up to its mean
    for victim in found["blame"]:
        whole, *parts = victim["figures"]
        for side in "ab":
            assert sum(one[side] for one in parts) == pytest.approx(whole[side])
