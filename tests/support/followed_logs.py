# SPDX-License-Identifier: Apache-2.0
"""Logs that are followed as `biotrail top` follows the one being recorded."""

from pathlib import Path

import pytest

from biotrail.converters.analysis.live.live import Live, LiveTrace
from biotrail.converters.analysis.live.tree import Snapshot
from biotrail.converters.inputs import backlog
from biotrail.converters.inputs.backlog import LiveSource
from biotrail.text.top import Cost

COST = Cost(0.01, 0.02, 5_000_000_000)


def follow(path: Path, interval: int = 1, blame: str | None = None) -> list[Snapshot]:
    """Snapshots of a log as top makes them, and a reader that keeps up. blame: as for Live."""
    with path.open("rb") as stream:
        source = LiveSource(stream)
        trace = LiveTrace(source)
        live, found = Live(trace.context, interval, blame), []
        source.start()
        source.join()
        for window in trace.windows():
            live.add(window)
            if live.ready():
                found.append(live.snapshot(source))
        found.append(live.snapshot(source, last=True))
    return found


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is skipped, however slow the machine is."""
    monkeypatch.setattr(backlog, "MOST_WAITING_NS", 1 << 62)
