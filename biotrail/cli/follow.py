# SPDX-License-Identifier: Apache-2.0
"""`biotrail follow`: records which functions chosen kernel objects pass."""

import importlib
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import click

from biotrail import __version__
from biotrail.cli.options.gathering import added, flag, gathered, option
from biotrail.cli.options.record_arguments import (
    EVERY,
    MOST_AT_ONCE,
    SITES,
    duration_option,
    force_option,
)
from biotrail.cli.options.task_options import TaskHelp, task_options
from biotrail.recorder.filters.filters import Filters
from biotrail.recorder.host import devices as host_devices
from biotrail.recorder.probes.sites.attaching import Way, all_ways
from biotrail.recorder.probes.sites.follow import FollowProbes, planned
from biotrail.recorder.probes.sites.follow_options import AUTO, MAX_FUNCTIONS, WAYS, FollowOptions
from biotrail.recorder.schema.follow_structs import SITE_BIRTH, SITE_DEATH
from biotrail.recorder.session.session import RecordOptions, Status, Summary, record
from biotrail.recorder.sites.following import FollowPlan
from biotrail.text import units, values
from biotrail.text.printing import say_all, tell
from biotrail.text.record.closing import LOSSES

_SAID_NS = 1e9
ATTACH_MS = {"session": 0.3, "multi": 0.3, "fentry": 6.0, "kprobe": 25.0}
"""About how long attaching and detaching takes per function, by way (docs/follow.md, "How functions
are attached")."""
_TASK_HELP = TaskHelp(
    pid="Only what this process does; several: 12,34.",
    children="With --pid: also what the processes do that it starts.",
    tid="Only what this thread does.",
    comm="Only what tasks of this name (its first 15 bytes) do; 'fio*' matches a prefix.",
    cgroup="Only what tasks of this cgroup or a descendant do.",
    named=("what tasks do of", "Also of those that appear later."),
)


@dataclass(frozen=True)
class FollowCommandOptions:
    output: str | None = option(
        "-o",
        "--output",
        metavar="FILE",
        type=values.FileName(),
        help="Keep the log, for biotrail tree, slow, convert and others. Default: the merged tree "
        "is printed at the end, and no log is kept.",
    )
    force: bool = added(force_option)
    duration: float | None = added(duration_option("--for"))
    every: int = option(
        "--every",
        type=units.Count(*EVERY),
        default=1,
        metavar="N",
        help="Follow each N-th object that is born. Default: each.",
    )
    at_once: int = option(
        "--max",
        type=units.Count(1, MOST_AT_ONCE),
        default=100,
        show_default=True,
        metavar="N",
        help="Follow at most N objects at one time.",
    )
    lives: int = option(
        "--lives",
        type=units.Count(0),
        default=0,
        metavar="N",
        help="Follow N objects in all, and no more. Default: no limit.",
    )
    slower: float = option(
        "--slower",
        type=units.duration_from(),
        default=0,
        metavar="TIME",
        help="Record only lives that took longer: the kernel keeps the hits of all until it is "
        "known.",
    )
    idle: float = option(
        "--idle",
        type=units.duration_from(units.ABOVE_ZERO),
        default="2s",
        show_default=True,
        metavar="TIME",
        help="Of types without deaths: a life is over when nothing was seen of its object for so "
        "long.",
    )
    devices: tuple[str, ...] = option(
        "-d",
        "--device",
        multiple=True,
        type=values.name,
        metavar="DEV",
        help="Only objects of this device, as far as their type has one. Can be repeated.",
    )
    way: str = option(
        "--way",
        type=click.Choice((AUTO, *WAYS)),
        default="auto",
        show_default=True,
        help="How functions are attached: auto takes the first that this kernel has (biotrail "
        "doctor); typed: tracepoints alone.",
    )
    max_functions: int = option(
        "--max-functions",
        type=units.Count(),
        default=MAX_FUNCTIONS,
        show_default=True,
        metavar="N",
        help="Refuse to attach to more functions.",
    )
    max_cpu: float | None = option(
        "--max-cpu",
        type=values.percent_from(values.LEAST_PER_CENT),
        metavar="PERCENT",
        help="End when recorder and programs take more than so much of one core.",
    )
    buffer_size: int | None = option(
        "--buffer-size",
        type=units.size_from(1),
        metavar="SIZE",
        help="Size of the ring, e.g. 64M; use a larger one when hits are lost. Default: 16M.",
    )
    dry_run: bool = flag("--dry-run", "Show what would be attached, and attach nothing.")
    list_unseen: bool = flag("--list-unseen", "List the functions that cannot be attached.")
    quiet: bool = flag("-q", "--quiet", "Print errors and losses only.")
    filters: Filters = added(task_options(_TASK_HELP))

    def options(self, struct: str) -> FollowOptions:
        return FollowOptions(
            struct,
            self.every,
            self.at_once,
            self.lives,
            round(self.slower * 1e9),
            self.way,
            self.max_functions,
            round(self.idle * 1e9),
        )


@click.command()
@click.argument("struct", metavar="TYPE", type=values.text)
@click.argument("command", nargs=-1, type=click.Path(), metavar="[-- COMMAND ...]")
@gathered(FollowCommandOptions, "asked")
def command(struct: str, command: tuple[str, ...], asked: FollowCommandOptions) -> int:
    """Record which functions kernel objects pass, from their birth to their death.

    TYPE is a struct of the kernel: request, bio, sk_buff, folio, task_struct, io_kiocb, or any
    other. Each function that takes a pointer to it is a site, entry and return, as are the
    tracepoints that do; the kernel's types (BTF) say which. Where functions cannot be attached,
    the tracepoints are recorded with the kernel's stack at each, of which biotrail tree makes
    trees too.

    Following costs time at each call, so few objects are followed: chosen by --every, --max,
    --lives, by process or device, or only the slow ones. Functions that cannot be attached are
    counted, and listed by --list-unseen.

    With COMMAND, recording begins before the command starts and ends when the command ends.
    Without -o the lives are printed as one tree at the end.

    \b
    sudo biotrail follow request --duration 5s                # one tree of all lives
    sudo biotrail follow request -d nvme0n1 --every 100 --duration 10s -o rq.biotrail
    sudo biotrail follow bio --slower 5ms -o slow.biotrail    # only lives over 5 ms
    sudo biotrail follow sk_buff --lives 50 -- curl -s localhost
    sudo biotrail follow request --dry-run                    # how many functions, which way
    biotrail tree --slowest 3 rq.biotrail
    """  # noqa: D301 - \b is click's mark for text that keeps its lines
    if asked.output == "-":
        raise click.UsageError("-o - is not possible: give a file's name")
    plan, way = planned(struct, asked.way, asked.max_functions)
    if asked.list_unseen or asked.dry_run:
        say_all(_unseen_lines(plan) if asked.list_unseen else _dry_run_lines(plan))
        return 0
    if asked.output is not None:
        return record_lives(plan, way, asked, command, asked.output)
    with tempfile.TemporaryDirectory(prefix="biotrail-follow-") as directory:
        log = os.path.join(directory, "follow.biotrail")
        status = record_lives(plan, way, asked, command, log)
        # Not an import statement: recording alone does not need what reads logs.
        tree = importlib.import_module("biotrail.cli.tree").command
        tree.main(["--merged", log], prog_name="biotrail tree", standalone_mode=False)
    return status


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


def _dry_run_lines(plan: FollowPlan) -> Iterator[str]:
    yield f"struct {plan.struct}: {_what(plan)}"
    if plan.functions:
        yield f"attaching and detaching takes about {units.duration(_attach_ns(plan))}"
    else:
        reasons = "; ".join(f"{way.name}: {way.reason}" for way in all_ways() if way.reason)
        if reasons:
            yield f"no functions: {reasons}"
    births, deaths = plan.named(SITE_BIRTH), plan.named(SITE_DEATH)
    anywhere = len(births) == len(plan.sites)
    yield f"births: {'any site' if anywhere else ', '.join(births)}"
    yield f"deaths: {', '.join(deaths) or 'none: the address is forgotten when it is idle'}"
    if plan.detail.at:
        yield f"shown of each: {plan.detail.text} ({plan.detail_unit})"
    for reason, names in sorted(plan.unseen.items()):
        yield f"not seen: {units.plural(len(names), 'function')}: {reason}"
    for site in plan.sites:
        module = f" [{site.taking.module}]" if site.taking.module else ""
        yield f"  {site.taking.kind} {site.taking.name}{module}, argument {site.taking.argument}"


def _unseen_lines(plan: FollowPlan) -> Iterator[str]:
    for reason, names in sorted(plan.unseen.items()):
        yield f"{reason}: {len(names)}"
        yield from (f"  {name}" for name in sorted(names))
    if not plan.unseen:
        yield "no function was left out" if plan.functions else "no functions are attached"


def record_lives(
    plan: FollowPlan, way: Way, asked: FollowCommandOptions, command: Sequence[str], log: str
) -> int:
    """Return the exit status: that of the command, or 0. Raises TraceError or OSError."""
    devices = [host_devices.resolve(name) for name in asked.devices]
    wanted = asked.options(plan.struct)
    probes = FollowProbes(plan, way, wanted, asked.filters, devices, asked.buffer_size)
    options = RecordOptions(
        created_by=f"biotrail {__version__}",
        argv=["biotrail", *sys.argv[1:]],
        output=log,
        force=asked.force,
        devices=asked.devices,
        filters=asked.filters,
        duration=asked.duration,
        command=command,
        events=SITES,
        max_cpu=asked.max_cpu,
        max_cpu_ends=True,
        give_up_rights=True,
    )
    began = False

    def update(status: Status) -> None:
        nonlocal began
        if not began and not asked.quiet:
            attached = len(probes.functions)
            refused = sum(map(len, probes.refused.values()))
            left = f", {refused} refused by the kernel" if refused else ""
            done = f" ({attached} functions{left})" if attached or refused else ""
            tell(f"following struct {plan.struct}{done}")
        began = True
        if status.note:
            tell(status.note)

    if not asked.quiet:
        took = _attach_ns(plan)
        about = f", which takes about {units.duration(took)}" if took > _SAID_NS else ""
        tell(f"attaching to {_what(plan)}{about}")
    summary = record(options, update, probes)
    counts = summary.followed
    if not asked.quiet:
        tell(_recorded(summary, counts))
        unseen = sum(map(len, probes.plan.unseen.values()))
        if unseen:
            what = units.plural(unseen, "function")
            tell(f"{what} not seen: --list-unseen says which and why")
        if asked.output is not None and summary.error is None:
            tell(f"next: biotrail tree {asked.output}")
    for name, text in LOSSES.items():
        if counts.get(name):
            tell(f"{units.count(counts[name])} {text}")
    if lost := sum(summary.lost.values()):
        text = f"LOST {units.plural(lost, 'hit')}: the ring was full: use a larger --buffer-size"
        tell(f"{text}, or follow fewer objects")
    if skipped := sum(summary.skipped.values()):
        text = "were not seen: a program was already running on that CPU"
        tell(f"{units.plural(skipped, 'hit')} {text}")
    if summary.error is not None:
        raise summary.error
    return summary.command_status or 0


def _recorded(summary: Summary, counts: Mapping[str, int]) -> str:
    lives, quick = counts.get("born", 0), counts.get("quick", 0)
    open_ones = lives - sum(counts.get(name, 0) for name in ("ended", "reused", "idle"))
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
