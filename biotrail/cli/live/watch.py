# SPDX-License-Identifier: Apache-2.0
"""Snapshots of a recording that goes on, for `biotrail top`."""

import time
from typing import Protocol

from biotrail.cli.children.recorder_process import Recorder
from biotrail.converters.analysis.figures import as_json
from biotrail.converters.analysis.live.live import Live, LiveTrace
from biotrail.converters.analysis.live.tree import Snapshot
from biotrail.converters.inputs.backlog import QUIET_NS, LiveSource
from biotrail.text.printing import say_json
from biotrail.text.report.verdict import as_dicts, of_snapshot
from biotrail.text.rows import Order
from biotrail.text.top.top import Cost, arranged, shortened


class Shown(Protocol):
    """A display of snapshots: the screen, or lines of JSON."""

    def show(self, snapshot: Snapshot, cost: Cost) -> None:
        """Show a snapshot."""


class Watch:
    """Shows snapshots until the recording ends, or `count` of them and then stops the recorder."""

    def __init__(
        self,
        source: LiveSource,
        recorder: Recorder,
        shown: Shown,
        interval: int,
        count: int | None,
        *,
        include_ambiguous: bool = False,
        blame: str | None = None,
        every_call: bool = False,
    ) -> None:
        """Prepare to show snapshots of `source`, which must have been started; set its `on_idle`.

        recorder: stopped after `count` snapshots, and asked for its CPU time. interval: ns.
        count: number of snapshots; None: as many as there are until the recording ends.
        include_ambiguous: as for LiveTrace. blame, every_call: as for Live.
        """
        self._source, self._recorder, self._shown = source, recorder, shown
        self._trace = LiveTrace(source, include_ambiguous=include_ambiguous)
        self._live = Live(self._trace.context, interval, blame, every_call)
        self._meter = _Meter(recorder)
        self._left = count
        self._end = 0
        source.on_idle = self._idle

    def run(self) -> None:
        """Show snapshots until the end; a last one for the rest unless `count` was reached."""
        for window in self._trace.windows():
            self._live.add(window)
            self._end = max(window.end, self._end)
            self._show_if_ready()
            if self._left == 0:
                return
        if self._left != 0:
            self._show(last=True)

    def _idle(self) -> None:
        """Advance the time while the source has no events, so that snapshots go on."""
        now = time.monotonic_ns()
        self._live.idle(now)
        self._end = max(self._end, now - QUIET_NS)
        self._show_if_ready()

    def _show_if_ready(self) -> None:
        """Show a snapshot if an interval is over; stop the recorder after the last of `count`.

        Counts down `_left`; does nothing once that is 0.
        """
        if self._left != 0 and self._live.ready():
            self._show()
            if self._left is not None:
                self._left -= 1
            if self._left == 0:
                self._recorder.stop()

    def _show(self, last: bool = False) -> None:
        snapshot = self._live.snapshot(self._source, last)
        self._shown.show(snapshot, self._meter.cost(self._end))


class _Meter:
    """Measures the CPU time of the recorder and this process between snapshots."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._last = self._read()

    def _read(self) -> tuple[float, float, float]:
        return time.monotonic(), self._recorder.cpu_seconds(), time.process_time()

    def cost(self, shown_ns: int) -> Cost:
        """Return the cost since the last call or, the first time, since this object was made.

        shown_ns: CLOCK_MONOTONIC (ns) of the newest event that is shown.
        """
        before, self._last = self._last, self._read()
        passed, recorder, own = (b - a for a, b in zip(before, self._last, strict=True))
        passed = max(passed, 1e-3)
        behind = max(time.monotonic_ns() - shown_ns, 0)
        return Cost(max(recorder, 0.0) / passed, own / passed, behind)


class Lines:
    """Prints each snapshot as a line of JSON. limit: rows per table, 0: all; order: of the rows."""

    def __init__(self, limit: int = 0, order: Order | None = None) -> None:
        self._limit, self._order = limit, order

    def show(self, snapshot: Snapshot, cost: Cost) -> None:
        """Print the snapshot."""
        if self._order is not None:
            snapshot = arranged(snapshot, self._order)
        facts = as_json(shortened(snapshot, self._limit))
        facts["verdict"] = as_dicts(of_snapshot(snapshot.report))
        facts["cost"] = {
            "recorder_cpu_share": round(cost.recorder, 6),
            "top_cpu_share": round(cost.top, 6),
            "behind_ns": cost.behind_ns,
        }
        say_json(facts)
