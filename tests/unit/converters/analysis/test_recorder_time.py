# SPDX-License-Identifier: Apache-2.0
"""What the recorder's own programs took of the stages: told, and no change of the load."""

import csv
import math
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from biotrail.converters.events.tables import Stage
from biotrail.converters.lifecycles.recorder_time import recorder_ns
from tests.scenarios.tools import events_of
from tests.support import captures
from tests.support.cli_runner import Cli

PLAIN = {"Q": (100, 24_000), "s": (100, 15_000), "I": (100, 15_000), "D": (100, 16_000)}
STACKS = {**PLAIN, "Q": (100, 360_000)}
"""Programs: runs that the kernel timed, and their ns."""


def log(
    path: Path,
    seed: int = 1,
    *,
    queued: float = 4.0,
    served: float = 400.0,
    programs: Mapping[str, tuple[int, int]] = STACKS,
    **header: Any,
) -> Path:
    """A log of 60 reads. queued, served: µs of Q2G and of D2C, the latter about."""
    rng = random.Random(seed)
    lines, now = [], 10.0
    for _ in range(60):
        off = queued * math.exp(0.02 * rng.gauss(0, 1))
        done = off + 16 + served * math.exp(0.02 * rng.gauss(0, 1))
        rest = f"R {8 * rng.randrange(1000)}+8 bio=b1"
        for at, letter, more in (
            (0, "Q", ""),
            (off, "s", " rq=1"),
            (off + 1, "I", " rq=1"),
            (off + 16, "D", " rq=1"),
            (done, "C", " rq=1"),
        ):
            lines.append(f"{now + at:.3f} {letter} 254:0 {rest}{more}")
        now += 6000 + done
    made = {**captures.header(log_id=f"{seed:032x}"), **header}
    return captures.write_log(path, events_of("\n".join(lines)), made, programs=programs)


def test_the_report_tells_it_beside_the_stage(cli: Cli, tmp_path: Path) -> None:
    # GIVEN reads of which 4 µs are Q2G, and a program at Q that runs for 3.6 µs
    a = log(tmp_path / "a.biotrail")
    # WHEN they are reported THEN it stands beside the stages of which it is a tenth or more
    said = " ".join(cli("report", a).out.split())
    told = "the recorder's own programs took about, of each: Q2G 3.6 µs (read 90 %)"
    assert f"{told}; G2I 150 ns (read 15 %) In flight" in said
    assert f"{told.partition(' (')[0]};" in " ".join(
        cli("report", "--by", "process", a).out.split()
    )
    # AND every stage of JSON and CSV has it, and figures are as they were
    [read] = cli.json("report", a)["devices"][0]["operations"]
    of = {stage["stage"]: stage for stage in read["stages"]}
    taken = {name: one["recorder_ns"] for name, one in of.items()}
    assert taken == {"Q2G": 3600, "G2I": 150, "I2D": 150, "D2C": 160}
    assert of["Q2G"]["mean_ns"] == pytest.approx(4000, rel=0.02)
    rows = list(csv.DictReader(cli("report", "--csv", a).out.splitlines()))
    assert {row["recorder_ns"] for row in rows if row["stage"] == "Q2G"} == {"3600.0"}
    assert {row["recorder_ns"] for row in rows if row["stage"] == "Q2C"} == {""}


def test_the_first_sentence_tells_it_where_it_is_known(cli: Cli, tmp_path: Path) -> None:
    # GIVEN reads whose time is mostly Q2G, and that mostly the program at Q
    a = log(tmp_path / "a.biotrail", served=1.0, queued=40.0, programs={"Q": (100, 3_200_000)})
    # WHEN they are reported THEN the sentence that blames Q2G says so
    found = cli.json("report", a)["verdict"]
    [main] = [one for one in found if one["rule"] == "main-part"]
    assert "; about 80 % of that part is the recorder's own programs" in main["sentence"]
    assert main["figures"]["recorder_share"] == pytest.approx(0.8, rel=0.02)
    # GIVEN too few timed runs, or none WHEN reported THEN nothing is said
    for at, programs in enumerate(({"Q": (29, 29 * 3600)}, {"Q": (0, 0)}, {})):
        a = log(tmp_path / f"{at}.biotrail", programs=programs)
        assert "own programs" not in cli("report", a).out
        assert "recorder_ns" not in cli("report", "--json", a).out


def test_which_programs_are_in_a_stage() -> None:
    # GIVEN programs of both merges, of G and s, and one of the path WHEN looked at
    runs = {"M": (90, 9000), "F": (10, 3000), "G": (100, 5000), "s": (100, 10_000)}
    rows = [{"letter": k, "run_count": n, "run_ns": ns} for k, (n, ns) in runs.items()]
    found = recorder_ns([{"programs": [*rows, {**rows[0], "run_ns": 10**9, "part": "time"}]}])
    # THEN a merge has one of two programs, an allocation both, and the path's are in no stage
    assert found[Stage.M2I] == found[Stage.M2D] == 120
    assert found[Stage.G2I] == 150
    assert Stage.Q2G not in found
    # AND runs of several recordings add up
    assert recorder_ns([{"programs": rows}, None, {"programs": rows}]) == found


def compared(cli: Cli, place: Path, a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
    """A comparison of five runs a side; stage → figures by name, and the text as "said"."""
    sides: list[Sequence[Path]] = []
    for name, options in (("a", a), ("b", b)):
        sides.append(
            [
                log(place / f"{name}{n}.biotrail", n + 10 * (name == "b"), **options)
                for n in range(1, 6)
            ]
        )
    told = cli.json("diff", *sides[0], "--", *sides[1])
    found: dict[str, Any] = {}
    for one in told["devices"][0]["operations"][0]["figures"]:
        if one["of"] == "bios":
            found.setdefault(one["stage"] or "", {})[one["name"]] = one
    found["said"] = " ".join(cli("diff", *sides[0], "--", *sides[1]).out.split())
    return found


def test_a_difference_of_the_programs_is_no_change(cli: Cli, tmp_path: Path) -> None:
    # GIVEN one load, recorded with stacks on one side: Q2G is longer by what the program at Q is
    a, b = {"queued": 0.8, "programs": PLAIN}, {"queued": 4.2, "stacks": {"user": False}}
    # WHEN compared by runs / THEN neither mean nor percentiles of Q2G changed, and why is said
    found = compared(cli, tmp_path, a, b)
    for name in ("mean", "p50", "p90", "p99"):
        one = found["Q2G"][name]
        assert one["by_recorder"] and one["changed"] is None and one["differs"], name
    mean = found["Q2G"]["mean"]
    assert (mean["recorder_a"], mean["recorder_b"]) == (240, 3600)
    assert "read Q2G (240 ns in A, 3.6 µs in B)" in found["said"]
    assert "recorded differently: --stacks: A no; B kernel" in found["said"]
    # AND other stages are judged
    assert not found["D2C"]["mean"]["by_recorder"] and found["D2C"]["mean"]["changed"] is False


@pytest.mark.parametrize(
    ("queued", "programs"),
    [(9.0, STACKS), (0.5, STACKS), (4.2, PLAIN)],
    ids=["more than the programs", "less, though these took more", "the same programs"],
)
def test_other_differences_are_changes(
    cli: Cli, tmp_path: Path, queued: float, programs: Mapping[str, tuple[int, int]]
) -> None:
    # GIVEN a difference of Q2G that the programs do not explain WHEN compared THEN it is a change
    b = {"queued": queued, "programs": programs}
    found = compared(cli, tmp_path, {"queued": 0.8, "programs": PLAIN}, b)
    assert found["Q2G"]["mean"]["changed"] is True
    assert not found["Q2G"]["mean"]["by_recorder"]
