# SPDX-License-Identifier: Apache-2.0
"""`biotrail top`: a live view of block I/O."""

import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol, cast

import click

from biotrail.cli.children.recorder_process import Recorder, Tee, filter_arguments, stopping
from biotrail.cli.options.record_filters import filter_options
from biotrail.converters.analysis.live.json import as_dict
from biotrail.converters.analysis.live.live import QUIET_NS, Live, LiveTrace
from biotrail.converters.analysis.live.tree import Snapshot
from biotrail.converters.inputs.backlog import LiveSource
from biotrail.recorder.filters.filters import Filters
from biotrail.recorder.output import output
from biotrail.recorder.probes.choice import BACKENDS
from biotrail.recorder.schema.errors import LogFormatError
from biotrail.text import units
from biotrail.text.printing import relay, say_json
from biotrail.text.rows import Order, limit_option, sort_option
from biotrail.text.top import arranged, shortened
from biotrail.text.top_screen import screen

LEAST_INTERVAL = 1.0
"""Shortest --interval in seconds: the recorder writes a chunk once a second."""


@dataclass
class Cost:
    """CPU time of watching, and the delay of a snapshot."""

    recorder: float
    """The recorder process's share of one core, without the BPF programs."""
    top: float
    """This process's share of one core."""
    behind_ns: int
    """Time from the newest event shown to now."""


class Shown(Protocol):
    """A display of snapshots: the screen, or lines of JSON."""

    def show(self, snapshot: Snapshot, cost: Cost) -> None:
        """Show a snapshot."""


@click.command()
@click.option(
    "-d",
    "--device",
    "devices",
    multiple=True,
    metavar="DEV",
    help="Only this device, named as for record. Can be repeated. Default: all devices.",
)
@click.option(
    "--interval",
    type=units.Duration(),
    default="1s",
    show_default=True,
    help="Time between snapshots, at least 1s.",
)
@click.option("--count", type=click.IntRange(1), help="Stop after this many snapshots.")
@sort_option("count")
@limit_option("what there is room for; 10 without a terminal; --json has all")
@click.option("--duration", type=units.Duration(), metavar="TIME", help="Stop after 10s, 5min, …")
@click.option(
    "-o",
    "--output",
    "target",
    metavar="FILE",
    type=click.Path(),
    help="Keep the log in FILE. Default: no log is kept.",
)
@click.option("-f", "--force", is_flag=True, help="Replace FILE if it exists.")
@click.option("--backend", type=click.Choice(BACKENDS), default="auto", help="See biotrail record.")
@click.option("--buffer-size", type=units.Size(), metavar="SIZE", help="See biotrail record.")
@click.option("--json", "as_json", is_flag=True, help="Print each snapshot as a line of JSON.")
@filter_options
def command(
    devices: tuple[str, ...],
    interval: float,
    count: int | None,
    order: Order | None,
    limit: int | None,
    duration: float | None,
    target: str | None,
    force: bool,
    backend: str,
    buffer_size: int | None,
    as_json: bool,
    filters: Filters,
) -> int:
    """Watch block I/O live: devices, stages, processes, I/O in flight and the slowest I/Os.

    Records as `biotrail record` does and shows the figures of `biotrail report` for the last
    interval and the last minute. A log is kept only with -o. q or Ctrl-C ends it. Where standard
    output is not a terminal, each snapshot is printed as plain text. If the analysis cannot keep
    up, it skips the oldest events and says so; the log of -o is complete all the same.

    \b
    sudo biotrail top
    sudo biotrail top -d nvme0n1 --op write --interval 5s
    sudo biotrail top --sort p99 -n 5
    sudo biotrail top --cgroup /system.slice/db.service -o db.biotrail
    sudo biotrail top --json --count 10 | jq .now.total.ios_per_s
    """  # noqa: D301 - \b is click's mark for text that keeps its lines
    if interval < LEAST_INTERVAL:
        raise click.UsageError("--interval must be at least 1s")
    if duration is not None and duration <= 0:
        raise click.BadParameter("must be more than 0", param_hint="--duration")
    if target == "-":
        raise click.UsageError("-o takes a file: biotrail record -o - writes to standard output")
    arguments = [f"--device={device}" for device in devices]
    arguments += [f"--backend={backend}", *filter_arguments(filters)]
    if duration is not None:
        arguments.append(f"--duration={duration}s")
    if buffer_size is not None:
        arguments.append(f"--buffer-size={buffer_size}")
    with ExitStack() as stack:
        kept = stack.enter_context(output.create(target, force=force)) if target else None
        recorder = stack.enter_context(Recorder(arguments))
        stack.enter_context(stopping(recorder))
        tee = Tee(recorder.stream, kept, target or "the recorder's log")
        source = _opened(recorder, tee)
        if source is None:
            if target:
                Path(target).unlink()
            relay(recorder.said().rstrip() or "biotrail: the recorder ended", err=True)
            return recorder.wait() or 1
        with ExitStack() as drawing:
            shown: Shown = Lines(limit or 0, order)
            if not as_json:
                shown = drawing.enter_context(screen(recorder.stop, limit, order))
            Watch(source, recorder, shown, round(interval * 1e9), count).run()
            source.join()
            tee.drain()
        status = recorder.wait()
        if said := recorder.said().rstrip():
            relay(said, err=True)
        return status


def _opened(recorder: Recorder, tee: Tee) -> LiveSource | None:
    """Open the recorder's log and start reading it; None: the recorder failed before it began."""
    try:
        source = LiveSource(cast(BinaryIO, tee))
    except LogFormatError:
        recorder.stop()
        if recorder.wait():
            return None
        raise
    source.start()
    return source


class Watch:
    """Shows snapshots until the recording ends, or `count` of them and then stops the recorder."""

    def __init__(
        self,
        source: LiveSource,
        recorder: Recorder,
        shown: Shown,
        interval: int,
        count: int | None,
    ) -> None:
        self._source, self._recorder, self._shown = source, recorder, shown
        self._trace = LiveTrace(source)
        self._live, self._meter = Live(self._trace.context, interval), _Meter(recorder)
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
        """Return the cost since the last call. shown_ns: CLOCK_MONOTONIC of the newest event."""
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
        told = as_dict(shortened(snapshot, self._limit))
        told["cost"] = {
            "recorder_cpu_share": round(cost.recorder, 6),
            "top_cpu_share": round(cost.top, 6),
            "behind_ns": cost.behind_ns,
        }
        say_json(told)
