# SPDX-License-Identifier: Apache-2.0
"""The experiment: what victims take while the suspect stands, beside blame's answer."""

import json
from pathlib import Path

import numpy as np
import pytest

from biotrail.converters.analysis.blame.experiment import SKIP_NS, Periods, Trial, suspect_of
from biotrail.converters.analysis.blame.tree import Kind
from biotrail.converters.pipeline import WINDOW_EVENTS
from tests.support import blame_logs
from tests.support.blame_logs import MS, US, Io, S
from tests.support.blame_reading import blamed, part, victim
from tests.support.cli_runner import Cli


def test_periods_are_those_beside_each_other_without_their_beginnings() -> None:
    # GIVEN a suspect that stood from 10 s to 11 s and from 12 s to 13 s
    periods = Periods([{"from": 10 * S, "to": 11 * S}, {"from": 12 * S, "to": 13 * S}])
    # WHEN times are placed
    at = [9.4, 9.6, 10.1, 10.3, 11.1, 11.3, 11.59, 11.61, 12.1, 12.9, 13.1, 13.3, 13.8]
    block, state = periods.of(np.array([round(10 * one) * S // 10 for one in at]))
    block_of, state_of = periods.of(np.array([int(11.59 * S), int(11.61 * S)]))
    # THEN half of the running time between them is each one's, and the first 200 ms are nobody's
    assert block.tolist()[:6] == [-1, 0, -1, 0, -1, 0]
    assert state.tolist()[:6] == [-1, 0, -1, 1, -1, 0]
    assert block_of.tolist() == [0, 1]
    assert state_of.tolist() == [0, 0]
    assert block.tolist()[8:] == [-1, 1, -1, 1, -1]
    assert state.tolist()[8:] == [-1, 1, -1, 0, -1]


@pytest.mark.parametrize("window", [200, WINDOW_EVENTS])
def test_the_truth_stands_beside_blames_answer(tmp_path: Path, window: int) -> None:
    # GIVEN a reader that takes 150 µs while a writer runs, and 50 µs while that stands
    ios, notes = blame_logs.experiment()
    path = blame_logs.write(tmp_path / "a.biotrail", ios, paused=notes)
    # WHEN its time is blamed, in windows of any size
    found = blamed(path, window)
    # THEN both say that two thirds of its time are the writer's
    assert found.experiment is not None
    assert (found.experiment.label, found.experiment.periods) == (notes[0]["label"], 8)
    assert found.experiment.parties == ("backup",)
    [truth] = found.experiment.victims
    assert truth.running.mean_ns == pytest.approx(150 * US)
    assert truth.standing.mean_ns == pytest.approx(50 * US)
    assert truth.truth.share == pytest.approx(2 / 3)
    assert truth.truth.between == pytest.approx((2 / 3, 2 / 3))
    assert truth.blamed == pytest.approx(2 / 3)
    # AND the matrix is of the running periods alone, and what is not in it is counted
    app = victim(found, "app")
    assert app.ios == truth.running.count
    assert part(app, Kind.OTHER, "backup") == pytest.approx(app.wait_ns * 2 / 3)
    victims = sum(one.ios for one in found.victims)
    assert victims + found.experiment.left_out == found.ios


def test_the_interval_is_as_wide_as_periods_differ() -> None:
    # GIVEN 400 experiments of 8 periods, whose means differ by chance from a truth of a half
    chance = np.random.default_rng(7)
    notes = [{"from": (2 * at + 1) * S, "to": (2 * at + 2) * S} for at in range(8)]
    periods, inside = Periods(notes), 0
    suspect = suspect_of(notes, {}, set(), True)
    victim_of = type("Row", (), {"name": "app", "parts": [], "wait_ns": 1})()
    for _ in range(400):
        trial = Trial(periods, 1)
        for at in range(8):
            for begin, usual in ((2 * at + 1, 1000), (2 * at, 2000), (2 * at + 2, 2000)):
                mean = max(int(chance.normal(usual, usual / 5)), 1)
                place = begin * S + SKIP_NS + (0 if begin != 2 * at else 700 * MS)
                times = np.full(50, place + MS)
                trial.add_ios(times, np.zeros(50, np.int64), np.full(50, mean))
        # WHEN the truth is told
        [one] = trial.close(suspect, [(0, victim_of)], [], lambda *_: ("", ""), 0).victims
        low, high = one.truth.between or (0.0, 0.0)
        inside += low <= 0.5 <= high
    # THEN its interval holds the truth in about 95 of 100
    assert 0.91 <= inside / 400 <= 0.985


def test_a_cgroup_is_the_suspect_with_all_below_it(tmp_path: Path) -> None:
    # GIVEN a cgroup that stood, whose writer is in one below it, beside one with a like name
    ios, notes = blame_logs.experiment()
    ids = {"app": 1, "backup": 2, "other": 3}
    ios += blame_logs.alone("other", 30, 10 * MS, 2 * MS)
    ios = [Io(**{**vars(one), "cgroup": ids[one.comm]}) for one in ios]
    notes = [{**one, "cgroup": "/batch", "label": "the cgroup /batch", "pids": []} for one in notes]
    paths = {"1": "/db", "2": "/batch/one", "3": "/batches"}
    path = blame_logs.write(tmp_path / "a.biotrail", ios, paused=notes, cgroups=paths)
    # WHEN it is blamed
    found = blamed(path, by=("cgroup", "cgroup")).experiment
    # THEN the writer is the suspect, the other cgroup is not
    assert found is not None
    assert found.parties == ("/batch/one",)
    assert [one.name for one in found.victims] == ["/db"]
    assert found.victims[0].blamed == pytest.approx(2 / 3)


def test_where_no_culprit_is_the_suspect_the_truth_stands_alone(tmp_path: Path) -> None:
    # GIVEN an experiment
    ios, notes = blame_logs.experiment()
    path = blame_logs.write(tmp_path / "a.biotrail", ios, paused=notes)
    # WHEN culprits are operations
    found = blamed(path, by=("process", "op")).experiment
    # THEN the truth is told, and no answer is beside it
    assert found is not None and not found.parties
    [truth] = [one for one in found.victims if one.name == "app"]
    assert truth.blamed is None
    assert truth.truth.share == pytest.approx(2 / 3)


def test_a_suspect_without_io_is_blamed_for_nothing(tmp_path: Path) -> None:
    # GIVEN a program that does no I/O, and is stopped
    ios, notes = blame_logs.experiment()
    notes = [{**one, "name": "burn", "label": "burn (7)", "pids": [7]} for one in notes]
    path = blame_logs.write(tmp_path / "a.biotrail", ios, paused=notes)
    # WHEN the experiment is told
    found = blamed(path).experiment
    # THEN blame gives it nothing of anybody's time, and says why
    assert found is not None
    assert (found.parties, found.idle) == ((), True)
    assert {one.blamed for one in found.victims} == {0.0}


def test_text_and_json_tell_the_experiment(tmp_path: Path, cli: Cli) -> None:
    # GIVEN an experiment
    ios, notes = blame_logs.experiment()
    path = blame_logs.write(tmp_path / "a.biotrail", ios, paused=notes)
    # WHEN it is printed
    text = cli("blame", "--by", "process", path).out
    told = json.loads(cli("blame", "--by", "process", "--json", path).out)["experiment"]
    # THEN both have the truth with its interval, and blame's answer
    assert "67 % (67 to 67)" in text
    assert f"* {notes[0]['label']} makes app wait: 67 % of its time." in text
    [one] = told["victims"]
    assert (one["share"], one["share_between"], one["blamed"]) == (0.6667, [0.6667] * 2, 0.6667)
    assert (told["culprits"], told["periods"], told["stood_ns"]) == (["backup"], 8, 8 * S)
    assert told["periods_wanted"] == 8
    # AND a log without one has none
    path = blame_logs.write(tmp_path / "b.biotrail", ios)
    assert json.loads(cli("blame", "--json", path).out)["experiment"] is None


def test_periods_that_did_not_happen_are_counted(tmp_path: Path, cli: Cli) -> None:
    # GIVEN an experiment of nine periods, in three of which the suspect did not stand
    ios, notes = blame_logs.experiment()
    stood = [{**one, "times": 9} for one in notes[:6]]
    path = blame_logs.write(tmp_path / "a.biotrail", ios, paused=stood)
    # WHEN it is printed
    text = cli("blame", "--by", "process", path).out
    told = json.loads(cli("blame", "--by", "process", "--json", path).out)["experiment"]
    # THEN both say how many there were, and how many there should have been
    assert f"{notes[0]['label']} stood 6 of 9 times, 6 s in all" in text
    assert (told["periods"], told["periods_wanted"]) == (6, 9)
