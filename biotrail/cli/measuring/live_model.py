# SPDX-License-Identifier: Apache-2.0
"""Figures from the model, which reads the log of a recorder process while it is written."""

import threading
import time

from biotrail.cli.children.recorder_process import Recorder
from biotrail.cli.measuring.figures import OTHER, Cost, Figures, Losses, Reading, Times, by_name
from biotrail.converters.analysis.distributions.groups import Group
from biotrail.converters.analysis.distributions.sketch import Distribution
from biotrail.converters.analysis.live.live import QUIET_NS, LiveTrace
from biotrail.converters.analysis.live.totals import Totals
from biotrail.converters.events.tables import STAGE_NAMES, Stage
from biotrail.converters.inputs.backlog import LiveSource
from biotrail.recorder.schema.limits import MEASURE_BUCKETS, MEASURE_OCTAVE
from biotrail.recorder.schema.measure_structs import PER_OCTAVE

_BITS = PER_OCTAVE.bit_length() - 1
_FIRST_ROW = MEASURE_OCTAVE * PER_OCTAVE
"""Row of Distribution.coarse, from 0, that is the last one in the first bucket."""


class LiveModel:
    """A Source whose figures `run` keeps up to date."""

    def __init__(self, source: LiveSource, recorder: Recorder) -> None:
        """source: started; its `on_idle` is set. recorder: asked for its CPU time."""
        self._source, self._recorder = source, recorder
        self._trace = LiveTrace(source)
        self._totals = Totals(self._trace.context)
        self._lock = threading.Lock()
        self._end = time.monotonic_ns()
        source.on_idle = self._idle

    def run(self) -> None:
        """Add up the log's windows until it ends. Raises TraceError."""
        for window in self._trace.windows():
            with self._lock:
                self._totals.add(window)
                self._end = max(self._end, window.end)
            del window

    def _idle(self) -> None:
        """Advance the time while the source has no events."""
        self._end = max(self._end, time.monotonic_ns() - QUIET_NS)

    def read(self) -> Reading:
        """See Source."""
        with self._lock:
            groups = self._totals.groups()
            io = by_name(figures(*group) for group in groups)
            unseen = sum(group["lost"] for _, _, group in groups)
        losses = Losses({"ring_full": self._source.lost_records}, unseen, self._source.skipped_ns)
        cpu = {"metrics": time.process_time(), "recorder": self._recorder.cpu_seconds()}
        behind = max(time.monotonic_ns() - self._end, 0)
        return Reading(io, losses, Cost(cpu), behind)


def figures(device: str | None, op: str | None, group: Group) -> Figures:
    """Return a group's figures. device, op: None for the group of all further ones."""
    return Figures(
        device or OTHER,
        op or OTHER,
        group["ios"],
        group["bytes"],
        sum(group.statuses.values()),
        times(group.latency),
        {STAGE_NAMES[Stage(stage)]: times(one) for stage, one in sorted(group.stages.items())},
    )


def times(distribution: Distribution) -> Times:
    """Return a distribution of ns in the buckets of measure_structs, exactly."""
    first, rows = distribution.coarse(_BITS)
    counts = [0] * MEASURE_BUCKETS
    for row, count in enumerate(rows, first):
        counts[min(max(row - _FIRST_ROW, 0), MEASURE_BUCKETS - 1)] += count
    return Times(distribution.sum, tuple(counts))
