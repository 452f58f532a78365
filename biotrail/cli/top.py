# SPDX-License-Identifier: Apache-2.0
"""`biotrail top`: a live view of block I/O."""

import time
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

import click

from biotrail.cli.children.recorder_process import Recorder, Tee, live_source, stopping
from biotrail.cli.options.blaming import blame_option
from biotrail.cli.options.gathering import added, gathered, option
from biotrail.cli.options.opening import include_ambiguous_option
from biotrail.cli.options.record_arguments import (
    EVENT_SETS,
    RecordingCommand,
    call_budget_option,
    call_over_option,
    device_option,
    duration_option,
    force_option,
    given,
    path_option,
)
from biotrail.cli.options.record_filters import filter_options
from biotrail.converters.analysis.figures import as_json
from biotrail.converters.analysis.live.live import Live, LiveTrace
from biotrail.converters.analysis.live.tree import Snapshot
from biotrail.converters.inputs.backlog import QUIET_NS, LiveSource
from biotrail.recorder.filters.filters import Filters
from biotrail.recorder.output import output
from biotrail.recorder.probes.backend import BACKENDS
from biotrail.text import units, values
from biotrail.text.printing import say_json
from biotrail.text.report.verdict import as_dicts, verdict
from biotrail.text.rows import Order, limit_option, sort_option
from biotrail.text.top import Cost, Show, arranged, screen, shortened


class Watch:
    """Shows snapshots until the recording ends, or `count` of them and then stops the recorder."""

    def __init__(
        self, source: LiveSource, recorder: Recorder, show: Show, asked: "TopOptions"
    ) -> None:
        self._source, self._recorder, self._show_snapshot = source, recorder, show
        self._trace = LiveTrace(source, include_ambiguous=asked.include_ambiguous)
        interval = round(asked.interval * 1e9)
        self._live = Live(self._trace.context, interval, asked.blame, asked.all_calls)
        self._used = self._cpu_times()
        self._left = asked.count
        self._end = 0
        source.on_idle = self._idle

    def run(self) -> None:
        for window in self._trace.windows():
            self._live.add(window)
            self._end = max(window.end, self._end)
            self._show()
            if self._left == 0:
                return
        self._show(last=True)

    def _idle(self) -> None:
        now = time.monotonic_ns()
        self._live.idle(now)
        self._end = max(self._end, now - QUIET_NS)
        self._show()

    def _show(self, last: bool = False) -> None:
        """Show a snapshot if there is one, and `count` of them are not shown yet."""
        if self._left == 0 or not (last or self._live.ready()):
            return
        snapshot = self._live.snapshot(self._source, last)
        before, self._used = self._used, self._cpu_times()
        passed, recorder, own = (b - a for a, b in zip(before, self._used, strict=True))
        passed = max(passed, 1e-3)
        behind = max(time.monotonic_ns() - self._end, 0)
        self._show_snapshot(snapshot, Cost(max(recorder, 0.0) / passed, own / passed, behind))
        if self._left is not None:
            self._left -= 1
        if self._left == 0:
            self._recorder.stop()

    def _cpu_times(self) -> tuple[float, float, float]:
        """Return the time, and the CPU seconds of the recorder and this process until now."""
        return time.monotonic(), self._recorder.cpu_seconds(), time.process_time()


def _say(limit: int, order: Order | None, snapshot: Snapshot, cost: Cost) -> None:
    if order is not None:
        snapshot = arranged(snapshot, order)
    facts = as_json(shortened(snapshot, limit))
    facts["verdict"] = as_dicts(verdict(snapshot.report))
    facts["cost"] = {
        "recorder_cpu_share": round(cost.recorder, 6),
        "top_cpu_share": round(cost.top, 6),
        "behind_ns": cost.behind_ns,
    }
    say_json(facts)


LEAST_INTERVAL = 1.0
"""Shortest --interval in seconds: the recorder writes a chunk once a second."""

_NOT_PASSED_ON = frozenset(
    {"interval", "count", "order", "limit", "target", "force"}
    | {"all_calls", "blame", "include_ambiguous", "as_json"}
)
"""Options that the recorder process does not get."""


@dataclass(frozen=True)
class TopOptions:
    devices: tuple[str, ...] = added(device_option)
    interval: float = option(
        "--interval",
        type=units.duration_from(LEAST_INTERVAL),
        default="1s",
        show_default=True,
        help="Time between snapshots, at least 1s.",
    )
    count: int | None = option(
        "--count", type=units.Count(), help="Stop after this many snapshots."
    )
    order: Order | None = added(sort_option("count"))
    limit: int | None = added(
        limit_option("what there is room for; 10 without a terminal; --json has all")
    )
    """Rows of each table; 0: all; None: what there is room for, in JSON all."""
    duration: float | None = added(duration_option())
    target: str | None = option(
        "-o",
        "--output",
        metavar="FILE",
        type=values.FileName(),
        help="Keep the log in FILE. Default: no log is kept.",
    )
    force: bool = added(force_option)
    events: str = option(
        "--events",
        type=click.Choice(EVENT_SETS),
        default="lifecycle",
        show_default=True,
        help="See biotrail record; light costs the least.",
    )
    backend: str = option(
        "--backend", type=click.Choice(BACKENDS), default="auto", help="See biotrail record."
    )
    buffer_size: int | None = option(
        "--buffer-size", type=units.size_from(1), metavar="SIZE", help="See biotrail record."
    )
    path: frozenset[str] | None = added(
        path_option(
            "Record the path, too, as biotrail record does: shows system calls and the slowest "
            "ones."
        )
    )
    call_over: float = added(call_over_option("See biotrail record."))
    all_calls: bool = option(
        "--all-calls",
        is_flag=True,
        help="Also among the slowest: calls that neither queued I/O nor waited for it.",
    )
    call_budget: float = added(call_budget_option("See biotrail record."))
    blame: str | None = added(blame_option("Also show who waited for whom: victims and culprits"))
    include_ambiguous: bool = added(include_ambiguous_option)
    as_json: bool = option("--json", is_flag=True, help="Print each snapshot as a line of JSON.")
    filters: Filters = added(filter_options)


@click.command(cls=RecordingCommand)
@gathered(TopOptions, "asked")
def command(asked: TopOptions) -> int:
    """Watch block I/O live: devices, stages, processes, I/O in flight and the slowest I/Os.

    Records as `biotrail record` does and shows the figures of `biotrail report` for the last
    interval and the last minute. A log is kept only with -o. q or Ctrl-C ends it. Where standard
    output is not a terminal, each snapshot is printed as plain text. If the analysis cannot keep
    up, it skips the oldest events and says so; the log of -o is complete all the same.

    \b
    sudo biotrail top
    sudo biotrail top -d nvme0n1 --op write --interval 5s
    sudo biotrail top --sort p99 -n 5
    sudo biotrail top --path                         # system calls, too
    sudo biotrail top --blame                        # whose I/O makes whose I/O wait
    sudo biotrail top --cgroup /system.slice/db.service -o db.biotrail
    sudo biotrail top --json --count 10 | jq .now.total.ios_per_s
    """  # noqa: D301 - \b is click's mark for text that keeps its lines
    if asked.target == "-":
        raise click.UsageError("-o takes a file: biotrail record -o - writes to standard output")
    with ExitStack() as stack:
        kept = None
        if asked.target:
            kept = output.NewFile(asked.target, force=asked.force)
            stack.callback(kept.close)
        recorder = stack.enter_context(Recorder(given(click.get_current_context(), _NOT_PASSED_ON)))
        stack.enter_context(stopping(recorder))
        log = None if kept is None else kept.stream
        tee = Tee(recorder.stream, log, asked.target or "the recorder's log")
        source = live_source(recorder, tee, kept)
        if source is None:
            return recorder.outcome(begun=False)
        with ExitStack() as drawing:
            show: Show = partial(_say, asked.limit or 0, asked.order)
            if not asked.as_json:
                show = drawing.enter_context(screen(recorder.stop, asked.limit, asked.order))
            Watch(source, recorder, show, asked).run()
            source.join()
            tee.drain()
        return recorder.outcome()
