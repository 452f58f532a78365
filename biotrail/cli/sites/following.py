# SPDX-License-Identifier: Apache-2.0
"""What `biotrail follow` does: plans, says what will be attached, records, and sums up."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import click

from biotrail import __version__
from biotrail.recorder.filters.filters import Filters
from biotrail.recorder.host import devices as host_devices
from biotrail.recorder.probes.sites.attaching import all_ways
from biotrail.recorder.probes.sites.follow import FollowConfig, FollowProbes
from biotrail.recorder.probes.sites.follow_maps import Choice
from biotrail.recorder.probes.sites.planning import Planned
from biotrail.recorder.session.session import RecordOptions, Status, Summary, record
from biotrail.recorder.sites.following import FollowPlan
from biotrail.text import units
from biotrail.text.printing import say
from biotrail.text.record.following import LOSSES

EVENT_SET = "sites"
"""Name of the event set in the log's header, as that of pairs."""
_SAID_NS = 1e9
ATTACH_MS = {"session": 0.3, "multi": 0.3, "fentry": 6.0, "kprobe": 25.0}
"""About how long attaching and detaching takes per function, by way (docs/performance.md)."""


@dataclass(frozen=True)
class FollowArguments:
    """The values of the options of `biotrail follow`."""

    output: str | None
    force: bool
    duration: float | None
    every: int
    at_once: int
    lives: int
    slower: float
    """Seconds; 0: all lives."""
    idle: float
    """Seconds."""
    devices: tuple[str, ...]
    way: str
    max_functions: int
    max_cpu: float | None
    buffer_size: int | None
    quiet: bool

    def check(self) -> None:
        """Raise click.UsageError for a log on standard output."""
        if self.output == "-":
            raise click.UsageError("-o - is not possible: give a file's name")

    @property
    def choice(self) -> Choice:
        """Which objects are followed."""
        slower, idle = round(self.slower * 1e9), round(self.idle * 1e9)
        return Choice(self.every, self.at_once, self.lives, slower, idle)


def _what(plan: FollowPlan) -> str:
    """Return "149 functions by session, 12 tracepoints"."""
    parts = []
    if plan.functions:
        parts.append(f"{units.plural(len(plan.functions), 'function')} by {plan.way}")
    parts.append(units.plural(len(plan.tracepoints), "tracepoint"))
    return ", ".join(parts)


def _attach_ns(plan: FollowPlan) -> float:
    """Return about how many ns attaching and detaching takes; 0 without functions."""
    return len(plan.functions) * ATTACH_MS[plan.way] * 1e6 if plan.functions else 0.0


def dry_run_lines(made: Planned, asked: FollowArguments) -> Iterator[str]:
    """Yield what would be attached."""
    plan = made.plan
    yield f"struct {plan.struct}: {_what(plan)}"
    if plan.functions:
        yield f"attaching and detaching takes about {units.duration(_attach_ns(plan))}"
    else:
        reasons = "; ".join(f"{way.name}: {way.reason}" for way in all_ways() if way.reason)
        if reasons:
            yield f"no functions: {reasons}"
    births, deaths = plan.named("birth"), plan.named("death")
    anywhere = len(births) == len(plan.sites)
    yield f"births: {'any site' if anywhere else ', '.join(births)}"
    yield f"deaths: {', '.join(deaths) or 'none: the address is forgotten when it is idle'}"
    if plan.detail.steps:
        yield f"shown of each: {plan.detail.text} ({plan.detail_unit})"
    for reason, names in sorted(plan.unseen.items()):
        yield f"not seen: {units.plural(len(names), 'function')}: {reason}"
    for site in plan.sites:
        module = f" [{site.taking.module}]" if site.taking.module else ""
        yield f"  {site.taking.kind} {site.taking.name}{module}, argument {site.taking.argument}"


def unseen_lines(made: Planned) -> Iterator[str]:
    """Yield the functions that cannot be attached, by reason."""
    for reason, names in sorted(made.plan.unseen.items()):
        yield f"{reason}: {len(names)}"
        yield from (f"  {name}" for name in sorted(names))
    if not made.plan.unseen:
        yield "no function was left out" if made.plan.functions else "no functions are attached"


def record_lives(
    made: Planned,
    asked: FollowArguments,
    filters: Filters,
    command: Sequence[str],
    log: str,
) -> int:
    """Record lives to a log; return the exit status: that of the command, or 0.

    Raises TraceError or OSError.
    """
    pairs = [host_devices.resolve(name) for name in asked.devices]
    probes = FollowProbes(
        FollowConfig(made.plan, made.way, asked.choice, filters, pairs, asked.buffer_size)
    )
    options = RecordOptions(
        created_by=f"biotrail {__version__}",
        argv=["biotrail", *sys.argv[1:]],
        output=log,
        force=asked.force,
        devices=asked.devices,
        filters=filters,
        duration=asked.duration,
        command=command,
        events=EVENT_SET,
        max_cpu=asked.max_cpu,
        max_cpu_ends=True,
        give_up_rights=True,
    )
    said = _Says(made, probes, asked.quiet)
    said.starting()
    summary = record(options, said.status, probes)
    said.summary(summary, asked.output)
    if summary.error is not None:
        raise summary.error
    return summary.command_status or 0


class _Says:
    """What is printed on standard error about a recording."""

    def __init__(self, made: Planned, probes: FollowProbes, quiet: bool) -> None:
        self._made, self._probes, self._quiet = made, probes, quiet
        self._began = False

    def starting(self) -> None:
        """Say what will be attached, as this may take a while."""
        if not self._quiet:
            plan = self._made.plan
            took = _attach_ns(plan)
            about = f", which takes about {units.duration(took)}" if took > _SAID_NS else ""
            say(f"biotrail: attaching to {_what(plan)}{about}", err=True)

    def status(self, status: Status) -> None:
        """Say once that recording has begun, and pass on notes."""
        if not self._began and not self._quiet:
            attached = len(self._probes.attached.functions)
            refused = sum(map(len, self._probes.attached.refused.values()))
            left = f", {refused} refused by the kernel" if refused else ""
            done = f" ({attached} functions{left})" if attached or refused else ""
            say(f"biotrail: following struct {self._made.plan.struct}{done}", err=True)
        self._began = True
        if status.note:
            say(f"biotrail: {status.note}", err=True)

    def summary(self, summary: Summary, kept: str | None) -> None:
        """Say what was recorded and lost."""
        counts = self._probes.counts()
        if not self._quiet:
            say(f"biotrail: {_recorded(summary, counts)}", err=True)
            unseen = sum(map(len, self._probes.plan.unseen.values()))
            if unseen:
                what = units.plural(unseen, "function")
                say(f"biotrail: {what} not seen: --list-unseen says which and why", err=True)
            if kept is not None and summary.error is None:
                say(f"biotrail: next: biotrail tree {kept}", err=True)
        for name, text in LOSSES.items():
            if counts.get(name):
                say(f"biotrail: {units.count(counts[name])} {text}", err=True)
        lost = sum(summary.lost.values())
        if lost:
            text = (
                f"LOST {units.plural(lost, 'hit')}: the ring was full: use a larger --buffer-size"
            )
            say(f"biotrail: {text}, or follow fewer objects", err=True)
        skipped = sum(summary.skipped.values())
        if skipped:
            text = "were not seen: a program was already running on that CPU"
            say(f"biotrail: {units.plural(skipped, 'hit')} {text}", err=True)


def _recorded(summary: Summary, counts: Mapping[str, int]) -> str:
    """Return how many lives and hits were recorded, and at which cost."""
    lives, quick = counts.get("born", 0), counts.get("quick", 0)
    open_ones = lives - counts.get("ended", 0) - counts.get("reused", 0)
    open_ones -= counts.get("idle", 0)
    parts = [units.plural(lives, "life", "lives")]
    if quick:
        parts.append(f"{units.count(quick)} of them too quick")
    if open_ones > 0:
        parts.append(f"{units.count(open_ones)} not ended")
    programs = counts.get("runs", 0) * summary.ns_per_event
    cost = summary.cpu_seconds * 1e9 + programs
    share = cost / (summary.seconds * 1e7) if summary.seconds else 0.0
    runs = units.plural(counts.get("runs", 0), "run")
    known = f", programs {units.duration(programs)}: {runs} of {summary.ns_per_event:.0f} ns"
    return (
        f"{', '.join(parts)}; {units.plural(summary.events, 'hit')} in "
        f"{units.duration(summary.seconds * 1e9)} ({summary.reason}); cost {share:.1f} % of one "
        f"core{known if summary.ns_per_event else ''}"
    )
