# SPDX-License-Identifier: Apache-2.0
"""Figures from the model, which reads the log of a recorder process while it is written."""

import threading
import time
from collections import Counter

from biotrail.cli.children.recorder_process import Recorder
from biotrail.cli.measuring.figures import (
    OTHER,
    Blame,
    Figures,
    Reading,
    Times,
    by_name,
)
from biotrail.cli.measuring.flight_logs import bucket_of
from biotrail.converters.analysis.blame.tree import OTHERS
from biotrail.converters.analysis.distributions.sketch import Distribution
from biotrail.converters.analysis.live.live import MINUTE_NS, Live, LiveTrace
from biotrail.converters.analysis.live.totals import LABELS, BlameTotals, Total, Totals
from biotrail.converters.events.tables import STAGE_NAMES, Stage
from biotrail.converters.inputs.backlog import QUIET_NS, LiveSource
from biotrail.recorder.schema.limits import MEASURE_BUCKETS
from biotrail.recorder.schema.strings import shown
from biotrail.text.report.verdict import RULES, verdict


class LiveModel:
    """Figures that `run` keeps up to date."""

    def __init__(
        self,
        source: LiveSource,
        recorder: Recorder,
        by: str | None = None,
        blame: str | None = None,
    ) -> None:
        """by: what I/O is divided by, of LABELS. blame: what victims and culprits are."""
        self._source, self._recorder = source, recorder
        self._trace = LiveTrace(source)
        self._totals = Totals(self._trace.context, by)
        self._blame = BlameTotals(self._trace.context, blame) if blame else None
        self._labels = LABELS[by] if by else ()
        self._minute = Live(self._trace.context, MINUTE_NS)
        self._verdict: dict[str, bool] | None = None
        self._lock = threading.Lock()
        self._end = time.monotonic_ns()
        source.on_idle = self._idle

    def run(self) -> None:
        for window in self._trace.windows():
            with self._lock:
                self._totals.add(window)
                if self._blame is not None:
                    self._blame.add(window)
                self._end = max(self._end, window.end)
            self._minute.add(window)
            del window
            self._judge()

    def _idle(self) -> None:
        self._end = max(self._end, time.monotonic_ns() - QUIET_NS)
        self._minute.idle(time.monotonic_ns())
        self._judge()

    def _judge(self) -> None:
        if self._minute.ready():
            said = verdict(self._minute.snapshot(self._source).report)
            held = {one.rule for one in said}
            self._verdict = {rule: rule in held for rule in RULES}

    def read(self) -> Reading:
        with self._lock:
            groups = self._totals.groups()
            io = by_name(figures(one, len(self._labels)) for one in groups)
            blame = None if self._blame is None else blamed(self._blame)
            unseen = sum(one.group["lost"] for one in groups)
        return Reading(
            io,
            {"ring_full": self._source.lost_records},
            {"metrics": time.process_time(), "recorder": self._recorder.cpu_seconds()},
            unseen=unseen,
            skipped_ns=self._source.skipped_ns,
            behind_ns=max(time.monotonic_ns() - self._end, 0),
            blame=blame,
            verdict=self._verdict,
        )


def blamed(totals: BlameTotals) -> Blame:
    behind, waited, untold = Counter[tuple[str, str]](), Counter[str](), Counter[str]()
    for (victim, culprit), ns in totals.behind.items():
        behind[_label(victim), _label(culprit)] += ns
    for victim, ns in totals.waited.items():
        waited[_label(victim)] += ns
        untold[_label(victim)] += totals.untold[victim]
    return Blame(dict(behind), dict(waited), dict(untold))


def _label(party: str) -> str:
    return OTHER if party == OTHERS else shown(party)


def figures(total: Total, labels: int = 0) -> Figures:
    """labels: how many are shown; all others together have OTHER for each."""
    group = total.group
    return Figures(
        total.device or OTHER,
        total.operation or OTHER,
        group["ios"],
        group.length,
        sum(group.statuses.values()),
        times(group.latency),
        {STAGE_NAMES[Stage(stage)]: times(one) for stage, one in sorted(group.stages.items())},
        group["doubtful"],
        (OTHER,) * labels if total.labels is None else total.labels,
    )


def times(distribution: Distribution) -> Times:
    """Return a distribution of ns in the buckets of measure_structs, by the middles of its rows."""
    counts = [0] * MEASURE_BUCKETS
    for begin, end, count in distribution.buckets():
        counts[bucket_of((begin + end - 1) // 2)] += count
    return Times(distribution.sum, tuple(counts))
