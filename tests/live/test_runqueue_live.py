# SPDX-License-Identifier: Apache-2.0
"""The pair `runqueue` beside the scheduler's own counters of the same threads."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from biotrail.converters.events.site_tables import Pairs
from biotrail.converters.pipeline import Trace
from tests.support.paths import ROOT
from tests.support.record_command import biotrail

# Records declared pairs around a command, and reads the log's table of pairs.


def recorded_pairs(
    path: Path, words: Sequence[str], command: Sequence[str | Path]
) -> tuple[Pairs, str]:
    """Run `biotrail pairs WORDS -o PATH -- COMMAND`; the log's pairs, and what the command printed.

    Fails where the recording fails or loses records.
    """
    run = biotrail("pairs", *words, "-o", path, "--", *command)
    assert "LOST" not in run.stderr, run.stderr
    found = [window.sites.pairs for window in Trace(path).lifecycles() if window.sites]
    return Pairs.concatenate(found), run.stdout


# The pair `runqueue` beside the scheduler's own counters of the same threads.

pytestmark = pytest.mark.usefixtures("needs_bpf")
_TASKS = 3
_PER_WAIT_NS = 5_000
"""How far apart the scheduler's clock readings and the tracepoints may be, for each wait."""


def test_waits_for_a_cpu_are_those_that_the_scheduler_counts(tmp_path: Path) -> None:
    # GIVEN threads that want one CPU, started and stopped while the pair is recorded
    load = [sys.executable, str(ROOT / "tests/support/run_queue_load.py"), str(_TASKS), "2"]
    # WHEN every wait is recorded
    pairs, said = recorded_pairs(tmp_path / "log", ["runqueue"], load)
    counted = json.loads(said)
    inside = pairs.ended <= counted["until"]
    assert len(counted["tasks"]) == _TASKS
    longest = int((pairs.ended - pairs.began).max())
    for pid, (waited, runs) in counted["tasks"].items():
        mine = inside & (pairs.key0 == int(pid))
        found = int((pairs.ended[mine] - pairs.began[mine]).sum())
        # THEN each thread has a pair for each time that it ran. Of some machines' own agents the
        # kernel traces no switch: what runs next has no pair then, in ftrace neither
        missing = runs - int(mine.sum())
        assert runs > _TASKS
        assert -1 <= missing <= 1 + runs // 10
        # AND they waited as long as the scheduler says, but for what lies between its readings of
        # the clock and its tracepoints
        allowed = runs * _PER_WAIT_NS + waited // 100
        assert -allowed <= waited - found <= allowed + max(0, missing) * longest
