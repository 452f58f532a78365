# SPDX-License-Identifier: Apache-2.0
"""Captured sequences associated by intervals alone: the same lifecycles as by identity."""

from pathlib import Path

import pytest

from biotrail.converters.events.tables import Bios, Certainty
from biotrail.converters.pipeline import Trace
from tests.support import captures

NAMES = sorted(p.stem for p in captures.DATA.glob("*.txt"))
FIELDS = (
    "queue",
    "getrq",
    "merge",
    "insert",
    "issue",
    "complete",
    "fragments",
    "requests",
    "requeues",
    "status",
    "done_bytes",
)


def _bios(log: Path, associate: str) -> Bios:
    windows = list(Trace(log, associate).lifecycles())
    return Bios.concatenate([w.bios for w in windows])


@pytest.mark.parametrize("name", NAMES)
def test_a_capture_by_intervals_is_as_by_identity(name: str, tmp_path: Path) -> None:
    # GIVEN real events of one kind of I/O
    log = tmp_path / "a.biotrail"
    captures.write_log(log, captures.load(name))
    # WHEN they are associated by kernel pointers, and by sectors alone
    exact, found = _bios(log, "identity"), _bios(log, "intervals")
    # THEN both give the same bios with the same times, and each says how it is known
    assert found.number.tolist() == exact.number.tolist()
    for field in FIELDS:
        assert getattr(found, field).tolist() == getattr(exact, field).tolist(), field
    assert set(exact.certainty.tolist()) == {Certainty.EXACT}
    assert set(found.certainty.tolist()) == {Certainty.INTERVAL}
