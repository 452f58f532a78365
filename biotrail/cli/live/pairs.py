# SPDX-License-Identifier: Apache-2.0
"""What `biotrail pairs` does: counts in the kernel and prints histograms, or records every pair."""

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

import click

from biotrail import __version__
from biotrail.recorder.filters.filters import Filters
from biotrail.recorder.notes.cgroups import CgroupLook
from biotrail.recorder.probes.sites.latencies import Latencies
from biotrail.recorder.probes.sites.pairs import PairProbes, PairReading
from biotrail.recorder.schema.errors import ProbeError
from biotrail.recorder.session.child import Child
from biotrail.recorder.session.cost_watch import SITES_ADVICE, CostWatch
from biotrail.recorder.session.session import RecordOptions, Status, Summary, record
from biotrail.recorder.session.stop import Every, StopRequests
from biotrail.text import units
from biotrail.text.printing import say, say_all, say_json
from biotrail.text.record import closing
from biotrail.text.sites import pair_latencies as text

_LOOK_NS = 100_000_000
"""Where the kernel does not tell of the command's end (before 5.3): time between two looks."""
_WAIT_SECONDS = 10.0


@dataclass(frozen=True)
class LiveOptions:
    """How to show pairs. Times in seconds; None: never, or no end."""

    command: Sequence[str] = ()
    interval: float | None = None
    duration: float | None = None
    as_json: bool = False
    max_cpu: float | None = None
    quiet: bool = False
    filtered: bool = False
    """Whether filters or conditions of the user leave events out, so that these are shown."""


class _Shown:
    """What was shown so far, to print what came since."""

    def __init__(self, probes: PairProbes, options: LiveOptions) -> None:
        self._probes = probes
        self._options = options
        self._before: list[PairReading] = []
        self._began = time.monotonic()

    def show(self, readings: list[PairReading], *, last: bool) -> None:
        """Print what came since the last call; with `last` also what became of all events."""
        seconds = round(time.monotonic() - self._began, 3)
        if self._options.interval is not None and not self._options.as_json:
            say(time.strftime("%H:%M:%S"))
        for index, (pair, now) in enumerate(zip(self._probes.pairs, readings, strict=True)):
            before = self._before[index] if self._before else None
            rest = now.rest.since(before.rest) if before else now.rest
            by = {
                value: found.since(before.by.get(value, Latencies())) if before else found
                for value, found in now.by.items()
            }
            names = self._probes.names(pair, by)
            if not self._options.as_json:
                say_all(text.lines(pair, rest, by, names))
                continue
            say_json(
                {
                    "seconds": seconds,
                    "pair": pair.pair.name,
                    "by": pair.by,
                    "values": text.as_json(pair, rest, by, names),
                    "counts": now.counts.account(),
                    "last": last,
                }
            )
        self._before = readings
        if last and not self._options.as_json:
            say()
            for pair, now in zip(self._probes.pairs, readings, strict=True):
                counts = now.counts if self._options.filtered else now.counts.without_left_out()
                say_all(text.count_lines(pair, now.total, counts))
        elif not self._options.as_json:
            say()


def count_pairs(probes: PairProbes, options: LiveOptions, tell: Callable[[str], None]) -> int:
    """Count pairs until the end that `options` set, print them, and return the exit status.

    That is the command's, or 0. `tell`: takes messages for the user. Raises TraceError: the pairs
    cannot be counted, the command not started, or the limit of the cost was exceeded, after what
    was counted has been printed.
    """
    with ExitStack() as stack:
        stop = stack.enter_context(StopRequests())
        child = Child(options.command) if options.command else None
        if child is not None:
            stack.callback(child.close)
        stack.callback(probes.close)
        probes.open()
        for line in _ways(probes):
            tell(line)
        look = CgroupLook.watching(probes, probes.config.filters.named, stack, tell)
        look.begin()
        probes.attach()
        stack.callback(look.stop)
        look.start()
        now_ns = time.monotonic_ns()
        watch = CostWatch(probes, probes.count_runs, options.max_cpu, now_ns, SITES_ADVICE)
        names = ", ".join(pair.pair.name for pair in probes.pairs)
        tell(f"pairing {names} {_until(options)}")
        if child is not None:
            child.start()
        shown = _Shown(probes, options)
        said = _loop(probes, options, stop, child, watch, shown)
        watch.end()
        probes.detach()
        shown.show(probes.final, last=True)
        for line in (*_skips(probes), *_cost_lines(probes)):
            tell(line)
        if said:
            raise ProbeError(said)
        if child is None:
            return 0
        if stop.reason != "duration":
            child.terminate()
            child.wait(_WAIT_SECONDS)
        return child.status or 0


def _loop(
    probes: PairProbes,
    options: LiveOptions,
    stop: StopRequests,
    child: Child | None,
    watch: CostWatch,
    shown: _Shown,
) -> str:
    """Show pairs each interval until the end; return the warning that ended it, or ""."""
    now_ns = time.monotonic_ns()
    end_ns = now_ns + round(options.duration * 1e9) if options.duration is not None else None
    show = None
    if options.interval is not None:
        show = Every(
            round(options.interval * 1e9),
            lambda _now: shown.show(probes.readings(), last=False),
            now_ns,
        )
    while stop.reason is None:
        now_ns = time.monotonic_ns()
        if end_ns is not None and now_ns >= end_ns:
            stop.request("duration")
            break
        if child is not None and not child.running:
            stop.request("command ended")
            break
        if now_ns >= watch.due_ns and (warning := watch.tick(now_ns, 0.0)):
            return warning
        if show is not None:
            show.run(now_ns)
        due_ns = [watch.due_ns, *([] if show is None else [show.due_ns])]
        due_ns += [] if end_ns is None else [end_ns]
        pidfd = None if child is None else child.pidfd
        if child is not None and pidfd is None:
            due_ns.append(now_ns + _LOOK_NS)
        stop.sleep(max(min(due_ns) - now_ns, 0) / 1e9, pidfd)
    return ""


def _until(options: LiveOptions) -> str:
    if options.command:
        return f"while {options.command[0]} runs"
    if options.duration is not None:
        return f"for {units.duration(options.duration * 1e9)}"
    return "until Ctrl-C"


def _ways(probes: PairProbes) -> list[str]:
    found = []
    for pair, facts in zip(probes.pairs, probes.backend_facts()["sites"]["pairs"], strict=True):
        how = "by their arguments' types" if pair.way == "typed" else "by their formats"
        found.append(
            f"{facts['name']}: {facts['begin']} to {facts['end']} by {', '.join(facts['keys'])}, "
            f"{how}"
        )
    return found


def _skips(probes: PairProbes) -> list[str]:
    """Return a line on events for which the kernel did not run a program, if it counted some."""
    missed = {
        one.tracepoint: one.recursion_misses for one in probes.programs() if one.recursion_misses
    }
    if not missed:
        return []
    each = ", ".join(f"{name} {units.count(number)}" for name, number in missed.items())
    return [
        f"not seen: {each}: the kernel skips a program while one runs on that CPU "
        "(docs/pairs.md, Losses)"
    ]


def _cost_lines(probes: PairProbes) -> list[str]:
    runs = sum(one.run_count for one in probes.programs())
    if not runs:
        return []
    mean = sum(one.run_ns for one in probes.programs()) / runs
    total = (probes.runs() or 0) * mean
    return [f"cost: programs {units.duration(total)}, {mean:.0f} ns per event"]


EVENT_SET = "sites"
"""Name of the event set in the log's header: events of chosen sites, and no others."""


@dataclass(frozen=True)
class LogOptions:
    """Where to record pairs to, and until when. output: `-`: standard output."""

    output: str
    force: bool = False
    command: Sequence[str] = ()
    devices: Sequence[str] = ()
    filters: Filters = field(default_factory=Filters)
    duration: float | None = None
    max_cpu: float | None = None
    quiet: bool = False
    filtered: bool = False


def record_pairs(probes: PairProbes, options: LogOptions, tell: Callable[[str], None]) -> int:
    """Record pairs until the end that `options` set, and return the exit status.

    That is the command's, or 0. `tell`: takes messages for the user. Raises TraceError: recording
    could not begin, or had to end; click.UsageError: a terminal would get the log.
    """
    log = None if options.output == "-" else options.output
    if log is None and sys.stdout.isatty():
        raise click.UsageError("-o - writes a binary log: send it to a file or a pipe")
    recording = RecordOptions(
        created_by=f"biotrail {__version__}",
        argv=["biotrail", *sys.argv[1:]],
        output=log,
        force=options.force,
        devices=options.devices,
        filters=options.filters,
        events=EVENT_SET,
        duration=options.duration,
        command=options.command,
        max_cpu=options.max_cpu,
        max_cpu_ends=True,
        give_up_rights=True,
    )

    def update(status: Status) -> None:
        if status.note:
            tell(status.note)

    tell(f"recording pairs to {options.output}")
    summary = record(recording, update, probes)
    for line in _closing(recording, summary):
        tell(line)
    for pair, reading in zip(probes.pairs, probes.final, strict=True):
        counts = reading.counts if options.filtered else reading.counts.without_left_out()
        say_all(text.count_lines(pair, reading.total, counts), err=True)
    if summary.error is not None:
        raise summary.error
    return summary.command_status or 0


def _closing(options: RecordOptions, summary: Summary) -> list[str]:
    size = summary.file_bytes or summary.log_bytes
    lines = [
        f"{units.plural(summary.events, 'pair')} in {units.duration(summary.seconds * 1e9)} "
        f"({summary.reason}), log {units.size(size)}"
    ]
    if lost := sum(summary.lost.values()):
        lines.append(
            f"LOST {units.plural(lost, 'pair')} because the ring was full: use a larger "
            "--buffer-size, or fewer pairs"
        )
    if skipped := sum(summary.skipped.values()):
        lines.append(
            f"{units.plural(skipped, 'event')} not seen: the kernel skips a program while one "
            "runs on that CPU (docs/pairs.md, Losses)"
        )
    if summary.unwritten_bytes:
        lines.append(closing.unwritten_line(summary).removeprefix("biotrail: "))
    if options.output and summary.error is None:
        lines.append(f"next: biotrail report {closing.as_arguments([options.output])}")
    return lines
