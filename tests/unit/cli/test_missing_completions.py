# SPDX-License-Identifier: Apache-2.0
"""What is said of missing completions: why, what still stands, and what bounds their end."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from biotrail.converters.pipeline import Trace
from biotrail.recorder.schema.records import Kind
from biotrail.text.tallies import loss_lines
from tests.support import captures
from tests.support.paths import ROOT
from tests.support.window_loads import SOURCES, shifted

OF_ITS_OWN = "(the kernel ran no program for it, for a reason of its own: it counted no recursion)"
EITHER = "(the kernel ran no program for it, for recursion or a reason of its own)"


def said(
    directory: Path, header: Mapping[str, Any], losses: tuple[dict[str, Any], ...] = ()
) -> list[str]:
    """What is said to be missing of four reads, two of which have no completion."""
    events = [e for i in range(4) for e in shifted(SOURCES[0], 0, i * 1_000_000, 1)]
    completions = [i for i, e in enumerate(events) if e["letter"] == "C"]
    gone = {completions[0], completions[2]}
    rest = [e for i, e in enumerate(events) if i not in gone]
    log = captures.write_log(directory / "a.biotrail", rest, header, losses=losses)
    trace = Trace(log, "identity")
    list(trace.lifecycles())
    return loss_lines(trace)


def loss(count: int) -> dict[str, Any]:
    now = captures.BASE_NS
    where = {"cpu": 0, "level": 0, "kind": int(Kind.C)}
    return {"start": now, "end": now + 5_000_000, "count": count, **where}


@pytest.mark.parametrize(
    ("header", "why"),
    [
        ({"backend": "core", "counts_skips": True}, OF_ITS_OWN),
        ({"backend": "core", "counts_skips": False}, EITHER),
        ({"backend": "bcc"}, EITHER),
    ],
)
def test_a_completion_that_no_program_was_run_for(
    tmp_path: Path, header: dict[str, Any], why: str
) -> None:
    # GIVEN a log of whole rings, two completions missing WHEN its losses are told
    (line,) = said(tmp_path, header)
    # THEN the line says how many, why, what becomes of them, what bounds their end, what stands
    assert line.startswith(f"the completion of 2 requests was not recorded {why}: closed as lost")
    assert "ended at the latest when the request or its tag was used again" in line
    assert "all other times stand" in line
    # AND where that is explained: a heading of that page
    assert line.endswith("(docs/recording.md, Missing completions)")
    assert "\n## Missing completions\n" in (ROOT / "docs" / "recording.md").read_text()


def test_completions_that_the_recorder_lost_are_no_riddle(tmp_path: Path) -> None:
    # GIVEN the same, where the recorder counted lost completions WHEN told
    lost, line = said(tmp_path, {"backend": "core", "counts_skips": True}, (loss(2),))
    # THEN those are why
    assert lost == "2 events lost while recording: C (complete) 2"
    assert "was not recorded (2 of the events lost were completions): closed" in line


def test_imported_traces_had_no_programs(tmp_path: Path) -> None:
    # GIVEN what blktrace recorded WHEN told THEN nothing is said of programs
    (line,) = said(tmp_path, {"backend": "blktrace"})
    assert "was not recorded: closed as lost" in line
