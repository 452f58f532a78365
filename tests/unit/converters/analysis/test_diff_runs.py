# SPDX-License-Identifier: Apache-2.0
"""biotrail diff by runs: what changed by more than runs of one load differ."""

import itertools
import json
import math
import random
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from biotrail.cli.children import alternating
from biotrail.converters.analysis.diff.options import options_of
from biotrail.converters.analysis.diff.runs import EQUAL, TOO_FEW_RUNS, A, B, Design, Run, mark
from biotrail.converters.analysis.diff.tree import Figure
from tests.scenarios.tools import events_of
from tests.support import captures
from tests.support.cli_runner import Cli

FIGURES = 84
LEADING = 2
TRIES = 100
NAMES = tuple((str(place),) for place in range(FIGURES))


def in_turn(count: int, rng: random.Random) -> list[int]:
    """`count` pairs of A and B in an order drawn at random."""
    return [side for _ in range(count) for side in rng.sample((A, B), 2)]


def drawn(
    sides: Sequence[int],
    rng: random.Random,
    *,
    spread: float = 0.04,
    slower: float = 0.0,
    drift: float = 0.0,
) -> list[Run]:
    """Runs whose figures differ from run to run, half of that together, as those of a run do.

    spread: standard deviation of a run's logarithm. slower: of B, as a share. drift: what each run
    moves on from the one before.
    """
    runs, level = [], 0.0
    for at, side in enumerate(sides):
        level += rng.gauss(0, drift)
        together = level + (math.log1p(slower) if side == B else 0.0)
        together += rng.gauss(0, spread * math.sqrt(0.5))
        values = {
            name: 1e5 * math.exp(together + rng.gauss(0, spread * math.sqrt(0.5))) for name in NAMES
        }
        runs.append(Run(side, "db1", f"{at:04d}", values))
    return runs


def judged(runs: Sequence[Run], confidence: float = 0.95) -> list[Figure]:
    figures = [
        Figure("bios", "Q2C", "mean", "ns", 1.0, 1.0, leading=place < LEADING)
        for place in range(FIGURES)
    ]
    design = Design.of(runs)
    for name, figure in zip(NAMES, figures, strict=True):
        design.judge(figure, (name, name), confidence)
    mark(figures, confidence)
    return figures


@pytest.mark.parametrize("drift", [0.0, 0.05])
def test_identical_loads_have_no_more_marks_than_is_said(drift: float) -> None:
    # GIVEN a hundred disjoint comparisons of one load's runs, three a side, in turn
    rng = random.Random(8)
    corrected = leading = 0
    for _ in range(TRIES):
        # WHEN each is judged
        figures = judged(drawn(in_turn(3, rng), rng, drift=drift))
        corrected += any(f.changed for f in figures if not f.leading)
        leading += sum(f.changed is True for f in figures if f.leading)
    # THEN corrected figures have a mark in as many as 5 % allows (11 of 100 in all but 0.5 %)
    assert corrected <= 11
    # AND leading ones, each by itself, in 5 % (18 of 200, likewise)
    assert leading <= 18


def test_leading_figures_are_marked_by_chance_as_often_as_is_said() -> None:
    # GIVEN many comparisons of equal runs, of which pairs may be taken  WHEN judged
    rng = random.Random(9)
    tries, marked = 1000, 0
    for _ in range(tries):
        figure = Figure("bios", "Q2C", "mean", "ns", 1.0, 1.0, leading=True)
        runs = [
            Run(side, "db1", f"{at:04d}", {"x": 1e5 * math.exp(rng.gauss(0, 0.04))})
            for at, side in enumerate(in_turn(4, rng))
        ]
        Design.of(runs).judge(figure, ("x", "x"), 0.95)
        mark([figure], 0.95)
        marked += figure.changed is True
    # THEN 5 % of them are marked
    assert 0.035 < marked / tries < 0.068


def test_ten_per_cent_are_found_with_five_runs_a_side() -> None:
    # GIVEN loads of which B is 10 % slower, five runs a side that differ by 4 %
    rng = random.Random(3)
    found, held, sizes = 0, 0, []
    for _ in range(TRIES):
        first, *_ = judged(drawn(in_turn(5, rng), rng, slower=0.10))
        found += first.changed is True
        assert first.relative_low is not None and first.relative_high is not None
        held += first.relative_low < 0.10 < first.relative_high
        sizes.append(first.detectable or 0.0)
    # THEN mean Q2C tells it in nine of ten, with the truth in the interval of 95 %
    assert found >= 87
    assert held >= 89
    # AND the size that would be found in nine of ten is said
    assert 0.08 < sorted(sizes)[TRIES // 2] < 0.12


def test_what_drifts_is_told_by_pairs() -> None:
    # GIVEN runs in turn, of which each pair is far slower than the one before, and B by 5 %
    rng = random.Random(1)
    runs = []
    for at, (pair, side) in enumerate(
        (pair, side) for pair in range(5) for side in rng.sample((A, B), 2)
    ):
        value = 1e5 * 1.5**pair * (1.05 if side == B else 1.0) * math.exp(rng.gauss(0, 0.003))
        runs.append(Run(side, "db1", f"{at:04d}", dict.fromkeys(NAMES, value)))
    # WHEN judged  THEN pairs are compared, and the change is found
    [first, *_] = judged(runs)
    assert first.paired and first.changed
    assert first.relative == pytest.approx(0.05, abs=0.01)
    # UNLESS nobody knows which was when
    unknown = [Run(run.side, run.host, None, run.values) for run in runs]
    assert not judged(unknown)[0].changed and not judged(unknown)[0].paired


def test_hosts_are_compared_each_with_itself() -> None:
    # GIVEN four hosts as different as may be, of which each is 5 % slower afterwards
    rng = random.Random(2)
    runs = [
        Run(
            side,
            host,
            None,
            dict.fromkeys(NAMES, base * (1 + 0.05 * side) * math.exp(rng.gauss(0, 0.003))),
        )
        for side in (A, B)
        for host, base in (("db1", 1e4), ("db2", 1e5), ("db3", 5e5), ("db4", 3e6))
    ]
    # WHEN judged  THEN it is found
    [first, *_] = judged(runs)
    assert first.changed and first.relative == pytest.approx(0.05, abs=0.01)
    # AND with other hosts on the other side, it cannot be
    others = [Run(r.side, r.host + "ab"[r.side], None, r.values) for r in runs]
    assert not judged(others)[0].changed


def test_too_few_runs_are_none() -> None:
    # GIVEN two runs a side, as different as may be  WHEN judged
    runs = [Run(side, "db1", None, dict.fromkeys(NAMES, 1e5 * (1 + side))) for side in (A, A, B, B)]
    [first, *_] = judged(runs)
    # THEN nothing is said of a change, and why
    assert first.changed is first.differs is first.p is None and first.why == TOO_FEW_RUNS
    assert first.relative == pytest.approx(1)
    assert not Design.of(runs).enough


def test_equal_runs_calibrate_one_run_a_side() -> None:
    # GIVEN a run a side that differ by 10 %, and four of one load that differ by 1 % and by 20 %
    for spread, changed in ((0.01, True), (0.2, False)):
        equal = [1e5 * math.exp(spread * at) for at in (-1, -0.5, 0.5, 1)]
        values = [(A, 1e5), (B, 1.1e5), *((EQUAL, one) for one in equal)]
        runs = [Run(side, "db1", None, dict.fromkeys(NAMES, value)) for side, value in values]
        # WHEN judged  THEN that decides
        assert Design.of(runs).enough
        [first, *_] = judged(runs)
        assert first.changed is changed and first.a == pytest.approx(1e5)


@pytest.mark.parametrize(
    ("a", "b", "changed"),
    [
        ((4096.0,) * 3, (4096.0,) * 3, False),
        ((4096.0,) * 3, (8192.0,) * 3, True),
        ((0.0,) * 3, (0.0,) * 3, False),
        ((0.0, 0.0, 0.001), (0.0, 0.001, 0.0), False),
        ((0.0, 0.0, 0.001), (0.1, 0.11, 0.12), True),
    ],
)
def test_figures_that_do_not_vary_or_are_0(
    a: Sequence[float], b: Sequence[float], changed: bool
) -> None:
    # GIVEN such figures  WHEN judged  THEN they are compared as they are
    runs = [
        Run(side, "db1", None, dict.fromkeys(NAMES, value))
        for side, values in ((A, a), (B, b))
        for value in values
    ]
    [first, *_] = judged(runs)
    assert first.changed is changed


def test_a_bucket_is_no_change() -> None:
    # GIVEN medians that lie in one bucket in all runs of a side, in the next one in the other's
    figure = Figure("bios", "Q2C", "p50", "ns", 1.0, 1.0)
    runs = [Run(s, "db1", None, {"p": v}) for s, v in ((A, 1024.0), (B, 1032.0)) for _ in range(3)]
    # WHEN judged  THEN that is as near as values can be
    Design.of(runs).judge(figure, ("p", "p"), 0.95)
    mark([figure], 0.95)
    assert figure.changed is False


def test_runs_one_after_the_other_are_told() -> None:
    # GIVEN runs in turn, and such that were not  WHEN looked at  THEN only these are told
    turns = [Run(s, "db1", str(at)) for at, s in enumerate((A, B, B, A, A, B))]
    after = [Run(s, "db1", str(at)) for at, s in enumerate((A, A, A, B, B, B))]
    assert not Design.of(turns).one_after_other
    assert Design.of(after).one_after_other


def log(path: Path, seed: int, factor: float, **header: Any) -> Path:
    """A log of 60 reads, which take `factor` times as long."""
    rng = random.Random(seed)
    lines, now = [], 10.0
    for _ in range(60):
        served = 400.0 * factor * math.exp(0.2 * rng.gauss(0, 1))
        rest = f"R {8 * rng.randrange(1000)}+8 bio=b1"
        for at, letter, more in (
            (0, "Q", ""),
            (4, "G", ""),
            (5, "s", " rq=1"),
            (6, "I", " rq=1"),
            (20, "D", " rq=1"),
            (20 + served, "C", " rq=1"),
            (21 + served, "d", " rq=1"),
        ):
            lines.append(f"{now + at:.1f} {letter} 254:0 {rest}{more}")
        now += 6000 + served
    return captures.write_log(
        path,
        events_of("\n".join(lines)),
        {**captures.header(log_id=f"{seed:032x}"), **header},
    )


def logs(place: Path, seeds: Sequence[int], factor: float = 1.0, **header: Any) -> list[Path]:
    return [log(place / f"{seed}.biotrail", seed, factor, **header) for seed in seeds]


def test_logs_of_several_runs(cli: Cli, tmp_path: Path) -> None:
    # GIVEN five runs a side, of which B's are 1.5 times as slow  WHEN compared
    a, b = logs(tmp_path, range(1, 6)), logs(tmp_path, range(6, 11), 1.5)
    told = json.loads(cli("diff", "--json", *a, "--", *b).out)
    # THEN the leading figure changed, with the runs' geometric means and the truth in its interval
    assert told["by_runs"] and (told["a"]["runs"], told["b"]["runs"]) == (5, 5)
    [operation] = told["devices"][0]["operations"]
    [mean] = [f for f in operation["figures"] if f["leading"]]
    assert mean["changed"] and mean["stage"] == "Q2C" and mean["p"] < 0.001
    assert mean["relative_low"] < 0.47 < mean["relative_high"]
    assert mean["b"] / mean["a"] == pytest.approx(1 + mean["relative"])
    alone = [
        json.loads(cli("diff", "--json", one, one).out)["devices"][0]["operations"][0]["figures"]
        for one in a
    ]
    product = math.prod(figure["a"] for figures in alone for figure in figures if figure["leading"])
    assert mean["a"] == pytest.approx(product ** (1 / 5))
    assert operation["ios_a"] == 300
    # AND the text says what was compared, and what would be found
    said = " ".join(cli("diff", *a, "--", *b).out.split())
    assert "compared by runs: 5 of A, 5 of B" in said
    assert "1 of 1 leading figure changed" in said and "found in nine of ten tries" in said


def test_logs_of_one_load_calibrate(cli: Cli, tmp_path: Path) -> None:
    # GIVEN a log a side, and four runs of one load  WHEN compared with these
    a, b, *equal = logs(tmp_path, range(1, 7))
    given = [f"--equal={one}" for one in equal]
    told = json.loads(cli("diff", "--json", *given, a, b).out)
    # THEN figures are tested
    assert told["by_runs"] and told["equal"] == 4 and told["tested"] > 10
    assert "and 4 runs of one load" in cli("diff", *given, a, b).out
    # AND a run is not its own calibration
    assert cli("diff", f"--equal={a}", a, b).status == 2


def test_options_that_differ_are_told(cli: Cli, tmp_path: Path) -> None:
    # GIVEN a recording with stacks and files, and one without  WHEN compared
    [a] = logs(tmp_path, [1], stacks={"user": True}, files={"direct": True})
    [b] = logs(tmp_path, [2])
    said = cli("diff", a, b).out
    # THEN both are named
    assert "recorded differently: --stacks: A kernel and user; B no" in said
    assert "recorded differently: --files: A yes; B no" in said
    told = json.loads(cli("diff", "--json", a, b).out)
    assert {one["option"] for one in told["unlike_options"]} == {"--stacks", "--files"}
    # AND nothing of the kind where they are alike
    assert "recorded differently" not in cli("diff", a, a).out
    # AND headers of any shape have options
    assert options_of({"events": 1, "stacks": [], "path": {"parts": None}, "filters": 3}) == {
        "--path": ""
    }


def test_the_order_of_runs_is_drawn() -> None:
    # GIVEN many draws  WHEN looked at
    found = {tuple(alternating.order(3, random.Random(seed))) for seed in range(200)}
    # THEN each pair has both sides, in any order
    assert len(found) == 8
    assert all(set(one[at : at + 2]) == {"A", "B"} for one in found for at in (0, 2, 4))


def test_runs_are_recorded_in_turn(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a recorder  WHEN three runs a side are asked for
    ran: list[tuple[tuple[str, ...], str]] = []
    seeds = itertools.count(1)

    def run(command: tuple[str, ...], target: Path, options: Sequence[str]) -> None:
        ran.append((command, target.name))
        assert options == ("--device=sda",)
        log(target, next(seeds), 1.5 if command[-1] == "b" else 1.0)

    monkeypatch.setattr(alternating, "_run", run)
    place = tmp_path / "runs"
    words = ("diff", "--json", "--record", "3", "-o", place, "--record-option=--device=sda")
    python = sys.executable
    done = cli(*words, "--", python, "a", "--", python, "b")
    # THEN each pair of runs has both, their logs are kept by name, and compared
    assert done.status == 0, done.err
    assert [name[0] for _, name in ran] == list("123456")
    for first, second in itertools.pairwise(ran[::1]):
        if int(first[1][0]) % 2:
            assert {first[0][-1], second[0][-1]} == {"a", "b"}
    assert {path.name for path in place.iterdir()} == {name for _, name in ran}
    told = json.loads(done.out)
    assert told["by_runs"] and told["changed"] and told["a"]["runs"] == 3
    # AND logs that are there are not written over
    assert cli(*words, "--", python, "a", "--", python, "b").status == 1
    shutil.rmtree(place)


def test_a_run_that_fails_ends_it(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a recorder that cannot be started  WHEN runs are asked for
    def refused(*_given: Any, **_named: Any) -> None:
        raise PermissionError(1, "not here")

    monkeypatch.setattr("subprocess.Popen._execute_child", refused)
    done = cli("diff", "--record", "3", "-o", tmp_path / "r", "--", "true", "--", "true")
    # THEN that is one message
    assert done.status == 1 and "the recorder cannot be started" in done.err


@pytest.mark.parametrize(
    "words",
    [
        ("--record", "3"),
        ("--record", "3", "--", "true"),
        ("--record", "3", "--", "true", "--"),
        ("--record", "3", "--", "true", "--", "true", "--", "true"),
        ("--record", "3", "--", "true", "--", "no-such-command"),
        ("--record", "2", "--", "true", "--", "true"),
        ("--record", "3", "--record-option=-oX", "--", "true", "--", "true"),
        ("--record", "3", "--record-option=sda", "--", "true", "--", "true"),
        ("--record", "3", "x.biotrail", "--", "true", "--", "true"),
        ("--record-option=-dsda", "x.biotrail", "y.biotrail"),
    ],
)
def test_what_cannot_be_recorded_is_wrong_usage(cli: Cli, words: Sequence[str]) -> None:
    # GIVEN such a command line  WHEN it is run  THEN nothing is recorded
    assert cli("diff", *words).status == 2
