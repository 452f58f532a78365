# SPDX-License-Identifier: Apache-2.0
"""`biotrail pairs`: the time from one event to another. Imports only what recording needs."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from difflib import get_close_matches

import click

from biotrail import __version__
from biotrail.cli.options.gathering import added, gathered, option
from biotrail.cli.options.record_arguments import SITES, duration_option, force_option
from biotrail.cli.options.task_options import TaskHelp, task_options
from biotrail.recorder.filters.filters import Filters
from biotrail.recorder.host import devices as host_devices
from biotrail.recorder.notes.cgroups import CgroupLook
from biotrail.recorder.probes.sites.pairs import (
    BY_VALUES,
    MAX_OPEN,
    Latencies,
    PairProbes,
    PairReading,
    Tracepoints,
)
from biotrail.recorder.schema.errors import ProbeError, SiteError
from biotrail.recorder.session.child import Child
from biotrail.recorder.session.cost_watch import SITES_ADVICE, CostWatch
from biotrail.recorder.session.session import RecordOptions, Status, record
from biotrail.recorder.session.stop import StopRequests
from biotrail.recorder.sites import declarations
from biotrail.recorder.sites.declarations import Declarations, Event, Pair, Scopes, Variant, resolve
from biotrail.recorder.sites.types import TypeTable
from biotrail.text import units, values
from biotrail.text.printing import say, say_all, say_json, tell
from biotrail.text.record import closing
from biotrail.text.sites import pair_latencies as text

Tell = Callable[[str], None]
_DEVICE = "dev"
"""Field that most tracepoints with a device have."""
_TASK_HELP = TaskHelp(
    pid="Only pairs that this process begins; several: 12,34.",
    tid="Only pairs that this thread begins.",
    comm="Only pairs that tasks of this name begin; 'fio*' matches a prefix.",
    cgroup="Only pairs that tasks of this cgroup or a descendant begin.",
    named=("pairs that tasks begin of", "Also of those that appear later."),
)
_LOOK_NS = 100_000_000
"""Where the kernel does not tell of the command's end (before 5.3): time between two looks."""
_WAIT_SECONDS = 10.0


@dataclass(frozen=True)
class PairArguments:
    """Times in seconds, sizes in bytes."""

    key: str | None = option(
        "--key",
        type=values.text,
        metavar="FIELD[,FIELD]",
        help="By what an end finds its begin: one or two fields or arguments, members through "
        "pointers (rq->q->id), @tid, @pid or @cpu; BEGIN|END where the two name it differently.",
    )
    by: str | None = option(
        "--by",
        type=values.text,
        metavar="FIELD",
        help="A histogram for each value of this field, of the begin or else of the end.",
    )
    where: tuple[str, ...] = option(
        "--where",
        multiple=True,
        type=values.name,
        metavar="CONDITION",
        help="Only events for which this holds: 'vec == 3', with one of == != < <= > >= &. Can be "
        "repeated: all have to hold.",
    )
    devices: tuple[str, ...] = option(
        "-d",
        "--device",
        multiple=True,
        type=values.name,
        metavar="DEV",
        help="Only events of this device: a name, a /dev path, a partition or a mount point. Can "
        "be repeated.",
    )
    device_field: str | None = option(
        "--device-field",
        type=values.text,
        metavar="FIELD",
        help="The field that -d is compared with, where the pair does not say it. Default: dev.",
    )
    filters: Filters = added(task_options(_TASK_HELP, "-p"))
    interval: float | None = option(
        "-i",
        "--interval",
        type=units.duration_from(units.ABOVE_ZERO),
        metavar="TIME",
        help="Print what came since the last time, each 1s, 500ms, …; otherwise once, at the end.",
    )
    duration: float | None = added(duration_option("--for"))
    as_json: bool = option("--json", is_flag=True, help="Print an object per line, as JSON.")
    output: str | None = option(
        "-o",
        "--output",
        type=values.FileName(),
        metavar="FILE",
        help="Record every pair to this log as well; - writes it to standard output.",
    )
    force: bool = added(force_option)
    buffer_size: int | None = option(
        "--buffer-size",
        type=units.size_from(1),
        metavar="SIZE",
        help="Size of the ring for -o, e.g. 64M; use a larger one when records are lost.",
    )
    max_open: int = option(
        "--max-open",
        type=units.Count(64, 1 << 24),
        default=MAX_OPEN,
        show_default=True,
        metavar="N",
        help="How many begins may wait for their end at once; further ones are lost, and counted.",
    )
    by_values: int = option(
        "--by-values",
        type=units.Count(1, 4096),
        default=BY_VALUES,
        show_default=True,
        metavar="N",
        help="With --by: values that have a histogram of their own; others share one.",
    )
    max_cpu: float | None = option(
        "--max-cpu",
        type=values.percent_from(values.LEAST_PER_CENT),
        metavar="PERCENT",
        help="End once recording takes more than so much of one core over 5 s.",
    )
    quiet: bool = option("-q", "--quiet", is_flag=True, help="Print results and losses only.")

    @property
    def filtered(self) -> bool:
        """Whether filters or conditions of the user leave events out, so that these are shown."""
        return self.filters.judge_bios or bool(self.where or self.devices)

    def check(self) -> None:
        if self.output is None and (self.force or self.buffer_size is not None):
            raise click.UsageError("--force and --buffer-size are for a log: name it with -o")
        if self.output is not None and (self.as_json or self.interval is not None):
            raise click.UsageError(
                "with -o every pair is recorded and nothing is printed meanwhile: leave out "
                "--interval and --json"
            )
        if self.device_field and not self.devices:
            raise click.UsageError("--device-field is for -d")

    def pairs(self, words: tuple[str, ...], known: Declarations) -> list[Pair]:
        """Return the pairs that the user names: BEGIN END with --key, or NAME[,NAME…]."""
        if not words:
            raise click.UsageError("name two tracepoints and --key, or a pair: see --list")
        if len(words) > 2:
            raise click.UsageError(
                f"{len(words)} words: name two tracepoints with --key, or pairs with commas "
                "between; a command goes behind --"
            )
        if len(words) == 2 or (self.key and len(words) == 1):
            return [self._own(words)]
        return [self._changed(name, known) for name in words[0].split(",") if name]

    def _own(self, words: tuple[str, ...]) -> Pair:
        if len(words) == 1:
            raise click.UsageError("--key is for two tracepoints: name the end, too")
        if not self.key:
            raise click.UsageError(
                "two tracepoints need --key: by which fields does the end find its begin?"
            )
        keys = tuple(word.strip() for word in self.key.split(","))
        if not 1 <= len(keys) <= 2 or not all(keys):
            raise click.BadParameter("is one field, or two with a comma", param_hint="--key")
        begin, end = words
        by = (self.by,) if self.by else ()
        device = (self.device_field or _DEVICE,) if self.devices else ()
        variant = Variant((Event(begin),), Event(end), keys, by=by, device=device, where=self.where)
        return Pair(f"{begin.rpartition(':')[2]}-{end.rpartition(':')[2]}", "", (variant,))

    def _changed(self, name: str, known: Declarations) -> Pair:
        pair = known.pairs.get(name)
        if pair is None:
            near = get_close_matches(name, known.pairs, 3)
            hint = f": did you mean {', '.join(near)}?" if near else ""
            raise SiteError(
                f"no pair {name!r} is declared{hint} `biotrail pairs --list` has all; for two "
                "tracepoints write biotrail pairs BEGIN END --key FIELD"
            )
        variants = [
            replace(
                one,
                by=(self.by,) if self.by else one.by,
                where=(*one.where, *self.where),
                device=(self.device_field,) if self.device_field else one.device,
            )
            for one in pair.variants
        ]
        # Names are of the declared --by.
        names = {} if self.by and self.by not in pair.variants[0].by else pair.names
        return replace(pair, variants=tuple(variants), names=names)


def lines(known: Declarations, scopes: Scopes | None) -> Iterator[str]:
    """scopes: what names mean at this kernel's tracepoints; None: that cannot be known."""
    width = max(map(len, known.pairs), default=0)
    for name, pair in sorted(known.pairs.items()):
        own = "" if pair.origin == str(declarations.READY_MADE) else f"  ({pair.origin})"
        yield f"{name:<{width}}  {pair.about}{own}"
        first = pair.variants[0]
        begins = " or ".join(dict.fromkeys(event.event for event in first.begins))
        yield f"{'':<{width}}    {begins} to {first.end.event}"
        if scopes is None:
            continue
        try:
            resolve(pair, scopes)
        except SiteError as error:
            reason = str(error).removeprefix(f"pair {pair.name}: ")
            yield f"{'':<{width}}    not here: {reason}"


class _Shown:
    """What was shown so far, to print what came since."""

    def __init__(self, probes: PairProbes, asked: PairArguments) -> None:
        self._probes = probes
        self._asked = asked
        self._before: list[PairReading] = []
        self._began = time.monotonic()

    def show(self, readings: list[PairReading], *, last: bool) -> None:
        """last: say also what became of all events."""
        seconds = round(time.monotonic() - self._began, 3)
        asked = self._asked
        if asked.interval is not None and not asked.as_json:
            say(time.strftime("%H:%M:%S"))
        for index, (pair, now) in enumerate(zip(self._probes.pairs, readings, strict=True)):
            rest, by = now.rest, now.by
            if self._before:
                before = self._before[index]
                rest = rest.since(before.rest)
                by = {
                    value: found.since(before.by.get(value, Latencies()))
                    for value, found in by.items()
                }
            names = self._probes.names(pair, by)
            if not asked.as_json:
                say_all(text.lines(pair, rest, by, names))
                continue
            say_json(
                {
                    "seconds": seconds,
                    "pair": pair.pair.name,
                    "by": pair.by,
                    "values": text.as_json(pair, rest, by, names),
                    "counts": now.counts,
                    "last": last,
                }
            )
        self._before = readings
        if not asked.as_json:
            say()
            if last:
                say_all(_counts(self._probes, readings, asked))


def _counts(probes: PairProbes, readings: list[PairReading], asked: PairArguments) -> Iterator[str]:
    for pair, one in zip(probes.pairs, readings, strict=True):
        yield text.counts_line(pair, one.total, one.counts, filtered=asked.filtered)


def count_pairs(
    probes: PairProbes, asked: PairArguments, command: Sequence[str], tell: Tell
) -> int:
    """Count pairs until the end that `asked` sets, print them, and return the exit status.

    That is the command's, or 0. command: runs meanwhile; empty: none. tell: takes messages.
    Raises TraceError: the pairs cannot be counted, the command not started, or the limit of the
    cost was exceeded, after what was counted has been printed.
    """
    with ExitStack() as stack:
        stop = stack.enter_context(StopRequests())
        child = Child(command) if command else None
        if child is not None:
            stack.callback(child.close)
        stack.callback(probes.close)
        probes.open()
        for pair, facts in zip(probes.pairs, probes.backend_facts()["sites"]["pairs"], strict=True):
            how = "by their arguments' types" if pair.way == "typed" else "by their formats"
            keys = ", ".join(facts["keys"])
            tell(f"{facts['name']}: {facts['begin']} to {facts['end']} by {keys}, {how}")
        look = CgroupLook(probes, probes.filters.named, stack, tell)
        look.begin()
        probes.attach()
        stack.callback(look.stop)
        look.start()
        now_ns = time.monotonic_ns()
        watch = CostWatch(probes, probes.count_runs, asked.max_cpu, now_ns, SITES_ADVICE)
        names = ", ".join(pair.pair.name for pair in probes.pairs)
        tell(f"pairing {names} {closing.until_text(command, asked.duration)}")
        if child is not None:
            child.start()
        shown = _Shown(probes, asked)
        said = _loop(probes, asked, stop, child, watch, shown)
        watch.count(False)
        probes.detach()
        shown.show(probes.final, last=True)
        programs = probes.programs()
        missed = [one for one in programs if one.recursion_misses]
        if missed:
            counts = {one.tracepoint: units.count(one.recursion_misses) for one in missed}
            each = ", ".join(f"{name} {number}" for name, number in counts.items())
            tell(
                f"not seen: {each}: the kernel skips a program while one runs on that CPU "
                "(docs/pairs.md, Losses)"
            )
        if runs := sum(one.run_count for one in programs):
            mean = sum(one.run_ns for one in programs) / runs
            total = (probes.runs() or 0) * mean
            tell(f"cost: programs {units.duration(total)}, {mean:.0f} ns per event")
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
    asked: PairArguments,
    stop: StopRequests,
    child: Child | None,
    watch: CostWatch,
    shown: _Shown,
) -> str:
    """Show pairs each interval until the end; return the warning that ended it, or ""."""
    now_ns = time.monotonic_ns()
    end_ns = now_ns + round(asked.duration * 1e9) if asked.duration is not None else None
    show_ns = now_ns if asked.interval is not None else None
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
        if asked.interval is not None and show_ns is not None and now_ns >= show_ns:
            show_ns = now_ns + round(asked.interval * 1e9)
            shown.show(probes.readings(), last=False)
        due_ns = [watch.due_ns, *([] if show_ns is None else [show_ns])]
        due_ns += [] if end_ns is None else [end_ns]
        pidfd = None if child is None else child.pidfd
        if child is not None and pidfd is None:
            due_ns.append(now_ns + _LOOK_NS)
        stop.sleep(max(min(due_ns) - now_ns, 0) / 1e9, pidfd)
    return ""


def record_pairs(
    probes: PairProbes, asked: PairArguments, command: Sequence[str], tell: Tell
) -> int:
    """Record pairs, and return the exit status as `count_pairs`. Raises TraceError."""
    log = None if asked.output == "-" else asked.output
    if log is None and sys.stdout.isatty():
        raise click.UsageError("-o - writes a binary log: send it to a file or a pipe")
    recording = RecordOptions(
        created_by=f"biotrail {__version__}",
        argv=["biotrail", *sys.argv[1:]],
        output=log,
        force=asked.force,
        devices=asked.devices,
        filters=asked.filters,
        events=SITES,
        duration=asked.duration,
        command=command,
        max_cpu=asked.max_cpu,
        max_cpu_ends=True,
        give_up_rights=True,
    )

    def update(status: Status) -> None:
        if status.note:
            tell(status.note)

    tell(f"recording pairs to {asked.output}")
    summary = record(recording, update, probes)
    size = summary.file_bytes or summary.log_bytes
    tell(
        f"{units.plural(summary.events, 'pair')} in {units.duration(summary.seconds * 1e9)} "
        f"({summary.reason}), log {units.size(size)}"
    )
    if lost := sum(summary.lost.values()):
        tell(
            f"LOST {units.plural(lost, 'pair')} because the ring was full: use a larger "
            "--buffer-size, or fewer pairs"
        )
    if skipped := sum(summary.skipped.values()):
        tell(
            f"{units.plural(skipped, 'event')} not seen: the kernel skips a program while one "
            "runs on that CPU (docs/pairs.md, Losses)"
        )
    if summary.unwritten_bytes:
        tell(closing.unwritten_line(summary))
    if log and summary.error is None:
        tell(f"next: biotrail report {closing.as_arguments([log])}")
    say_all(_counts(probes, probes.final, asked), err=True)
    if summary.error is not None:
        raise summary.error
    return summary.command_status or 0


_COMMAND = "biotrail.pairs.command"


class PairsCommand(click.Command):
    """A command whose words end at `--`; what is behind that is a command to run."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        at = args.index("--") if "--" in args else len(args)
        ctx.meta[_COMMAND] = tuple(args[at + 1 :])
        return super().parse_args(ctx, args[:at])


@click.command(cls=PairsCommand)
@click.option("--list", "list_all", is_flag=True, help="List the declared pairs, and end.")
@gathered(PairArguments, "asked")
@click.argument(
    "words", nargs=-1, type=values.text, metavar="BEGIN END | NAME[,NAME...] [-- COMMAND ...]"
)
@click.pass_context
def command(
    ctx: click.Context, words: tuple[str, ...], list_all: bool, asked: PairArguments
) -> int:
    """Measure the time from one event of the kernel to another with the same key.

    BEGIN and END are tracepoints (SYSTEM:NAME), of the kernel or a module; --key says by which
    fields an end finds its begin. NAME is a declared pair: --list shows them, and
    ~/.config/biotrail/pairs.toml adds your own. Latencies are counted in the kernel, and printed as
    histograms with percentiles, at the end or each --interval; with -o every pair is recorded to a
    log for report, hist, slow, convert and archive.

    With COMMAND, pairs are counted while it runs, and its exit status becomes biotrail's. Events
    without a partner, and those that could not be taken, are counted and printed.

    \b
    sudo biotrail pairs softirq --for 10s                  # a declared pair
    sudo biotrail pairs --list
    sudo biotrail pairs workqueue -i 1s                    # a histogram per function, each second
    sudo biotrail pairs block:block_rq_issue block:block_rq_complete --key dev,sector --by dev
    sudo biotrail pairs block_rq_issue block_rq_complete --key rq -d nvme0n1 -- fio job.fio
    sudo biotrail pairs irq:irq_handler_entry irq:irq_handler_exit --key irq,@cpu --where 'irq == 9'
    sudo biotrail pairs softirq,workqueue -o pairs.biotrail --for 10s
    """  # noqa: D301 - \b is click's mark for text that keeps its lines
    asked.check()
    behind: tuple[str, ...] = ctx.meta.get(_COMMAND, ())
    known = declarations.load()
    if list_all:
        try:
            scopes = Tracepoints(TypeTable.kernel()).scopes
        except ProbeError as error:
            say_all(lines(known, None))
            say(f"biotrail: which of them this kernel has is not known: {error}", err=True)
        else:
            say_all(lines(known, scopes))
        return 0
    probes = PairProbes(
        asked.pairs(words, known),
        asked.filters,
        [host_devices.resolve(spec) for spec in asked.devices],
        record=asked.output is not None,
        ring=asked.buffer_size,
        max_open=asked.max_open,
        by_values=asked.by_values,
    )

    def tell_wanted(message: str) -> None:
        if not asked.quiet or message.startswith(("LOST", "not seen")):
            tell(message)

    run = count_pairs if asked.output is None else record_pairs
    return run(probes, asked, behind, tell_wanted)
