# SPDX-License-Identifier: Apache-2.0
"""`biotrail pairs`: the time from one event to another. Imports only what recording needs."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

import click

from biotrail.cli.live.pairs import LiveOptions, LogOptions, count_pairs, record_pairs
from biotrail.cli.options.gathering import added, gathered, option
from biotrail.cli.options.record_arguments import duration_option, force_option
from biotrail.cli.options.task_options import TaskHelp, task_options
from biotrail.recorder.filters.filters import Filters
from biotrail.recorder.host import devices as host_devices
from biotrail.recorder.probes.sites.pairs import BY_VALUES, MAX_OPEN, PairConfig, PairProbes
from biotrail.recorder.probes.sites.tracepoints import Tracepoints
from biotrail.recorder.schema.errors import ProbeError, SiteError
from biotrail.recorder.sites import declarations
from biotrail.recorder.sites.declarations import Declarations, Event, Pair, Variant
from biotrail.recorder.sites.resolving import Scopes, resolve
from biotrail.recorder.sites.types import TypeTable
from biotrail.text import units, values
from biotrail.text.printing import say

_DEVICE = "dev"
"""Field that most tracepoints with a device have."""
_TASK_HELP = TaskHelp(
    pid="Only pairs that this process begins; several: 12,34.",
    tid="Only pairs that this thread begins.",
    comm="Only pairs that tasks of this name begin; 'fio*' matches a prefix.",
    cgroup="Only pairs that tasks of this cgroup or a descendant begin.",
    named=("pairs that tasks begin of", "Also of those that appear later."),
)


@dataclass(frozen=True)
class PairArguments:
    """The values of these options, as the user gave them. Times in seconds, sizes in bytes."""

    key: str | None = option(
        "--key",
        type=values.Text(),
        metavar="FIELD[,FIELD]",
        help="By what an end finds its begin: one or two fields or arguments, members through "
        "pointers (rq->q->id), @tid, @pid or @cpu; BEGIN|END where the two name it differently.",
    )
    by: str | None = option(
        "--by",
        type=values.Text(),
        metavar="FIELD",
        help="A histogram for each value of this field, of the begin or else of the end.",
    )
    where: tuple[str, ...] = option(
        "--where",
        multiple=True,
        type=values.Name(),
        metavar="CONDITION",
        help="Only events for which this holds: 'vec == 3', with one of == != < <= > >= &. Can be "
        "repeated: all have to hold.",
    )
    devices: tuple[str, ...] = option(
        "-d",
        "--device",
        multiple=True,
        type=values.Name(),
        metavar="DEV",
        help="Only events of this device: a name, a /dev path, a partition or a mount point. Can "
        "be repeated.",
    )
    device_field: str | None = option(
        "--device-field",
        type=values.Text(),
        metavar="FIELD",
        help="The field that -d is compared with, where the pair does not say it. Default: dev.",
    )
    filters: Filters = added(task_options(_TASK_HELP, "-p"))
    interval: float | None = option(
        "-i",
        "--interval",
        type=units.Duration(units.ABOVE_ZERO),
        metavar="TIME",
        help="Print what came since the last time, each 1s, 500ms, …; otherwise once, at the end.",
    )
    duration: float | None = added(duration_option("--for"))
    as_json: bool = option("--json", is_flag=True, help="Print an object per line, as JSON.")
    output: str | None = option(
        "-o",
        "--output",
        type=click.Path(),
        metavar="FILE",
        help="Record every pair to this log as well; - writes it to standard output.",
    )
    force: bool = added(force_option)
    buffer_size: int | None = option(
        "--buffer-size",
        type=units.Size(1),
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
        type=values.Percent(values.LEAST_PER_CENT),
        metavar="PERCENT",
        help="End once recording takes more than so much of one core over 5 s.",
    )
    quiet: bool = option("-q", "--quiet", is_flag=True, help="Print results and losses only.")

    def check(self) -> None:
        """Raise click.UsageError if options contradict each other."""
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
        """Return the pairs that the user names: BEGIN END with --key, or NAME[,NAME…].

        Raises click.UsageError: neither; SiteError: no pair of a name is declared.
        """
        if not words:
            raise click.UsageError("name two tracepoints and --key, or a pair: see --list")
        if len(words) > 2:
            raise click.UsageError(
                f"{len(words)} words: name two tracepoints with --key, or pairs with commas "
                "between; a command goes behind --"
            )
        if len(words) == 2 or (self.key and len(words) == 1):
            return [self._own(words)]
        return [self._changed(_declared(name, known)) for name in words[0].split(",") if name]

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
        return Pair(
            f"{begin.rpartition(':')[2]}-{end.rpartition(':')[2]}",
            "",
            (
                Variant(
                    (Event(begin),),
                    Event(end),
                    keys,
                    by=(self.by,) if self.by else (),
                    device=self._device(),
                    where=self.where,
                ),
            ),
        )

    def _device(self) -> tuple[str, ...]:
        return (self.device_field or _DEVICE,) if self.devices else ()

    def _changed(self, pair: Pair) -> Pair:
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


def _declared(name: str, known: Declarations) -> Pair:
    found = known.pairs.get(name)
    if found is None:
        near = get_close_matches(name, known.pairs, 3)
        hint = f": did you mean {', '.join(near)}?" if near else ""
        raise SiteError(
            f"no pair {name!r} is declared{hint} `biotrail pairs --list` has all; for two "
            "tracepoints write biotrail pairs BEGIN END --key FIELD"
        )
    return found


def lines(known: Declarations, scopes: Scopes | None) -> Iterator[str]:
    """Yield the lines of the list: name, what it is, events, the user's own with their file.

    scopes: what names mean at this kernel's tracepoints; None: that cannot be known.
    """
    width = max(map(len, known.pairs), default=0)
    for name, pair in sorted(known.pairs.items()):
        own = "" if pair.origin == str(declarations.READY_MADE) else f"  ({pair.origin})"
        yield f"{name:<{width}}  {pair.about}{own}"
        first = pair.variants[0]
        begins = " or ".join(dict.fromkeys(event.event for event in first.begins))
        yield f"{'':<{width}}    {begins} to {first.end.event}"
        if scopes is not None and (reason := _absence(pair, scopes)):
            yield f"{'':<{width}}    not here: {reason}"


def kernel_scopes() -> tuple[Scopes | None, str]:
    """Return what names mean at this kernel's tracepoints; None, and why this user cannot know."""
    try:
        return Tracepoints(TypeTable.kernel()).scopes, ""
    except ProbeError as error:
        return None, str(error)


def _absence(pair: Pair, scopes: Scopes) -> str:
    """Return why the kernel cannot time a pair; "": it can."""
    try:
        resolve(pair, scopes)
    except SiteError as error:
        return str(error).removeprefix(f"pair {pair.name}: ")
    return ""


_COMMAND = "biotrail.pairs.command"


class PairsCommand(click.Command):
    """A command whose words end at `--`; what is behind that is a command to run."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep the words behind the first `--` in `ctx.meta`, and parse those before it."""
        at = args.index("--") if "--" in args else len(args)
        ctx.meta[_COMMAND] = tuple(args[at + 1 :])
        return super().parse_args(ctx, args[:at])


@click.command(cls=PairsCommand)
@click.option("--list", "list_all", is_flag=True, help="List the declared pairs, and end.")
@gathered(PairArguments, "asked")
@click.argument(
    "words", nargs=-1, type=values.Text(), metavar="BEGIN END | NAME[,NAME...] [-- COMMAND ...]"
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
        _list(known)
        return 0
    config = PairConfig(
        asked.pairs(words, known),
        asked.filters,
        [host_devices.resolve(spec) for spec in asked.devices],
        record=asked.output is not None,
        ring_bytes=asked.buffer_size,
        max_open=asked.max_open,
        by_values=asked.by_values,
    )
    return _run(PairProbes(config), asked, behind)


def _run(probes: PairProbes, asked: PairArguments, behind: tuple[str, ...]) -> int:
    """Count or record pairs; return the exit status. behind: the command to run, or empty."""
    filters = asked.filters
    common: dict[str, Any] = {
        "command": behind,
        "duration": asked.duration,
        "max_cpu": asked.max_cpu,
        "quiet": asked.quiet,
        "filtered": filters.judge_bios or bool(asked.where or asked.devices),
    }

    def tell(message: str) -> None:
        if not asked.quiet or message.startswith(("LOST", "not seen")):
            with suppress(OSError):  # the terminal may have been closed
                say(f"biotrail: {message}", err=True)

    if asked.output is not None:
        log = LogOptions(
            asked.output, asked.force, devices=asked.devices, filters=filters, **common
        )
        return record_pairs(probes, log, tell)
    live = LiveOptions(interval=asked.interval, as_json=asked.as_json, **common)
    return count_pairs(probes, live, tell)


def _list(known: Declarations) -> None:
    """Print the declared pairs, and why some are not there on this kernel, if that can be known."""
    scopes, reason = kernel_scopes()
    for line in lines(known, scopes):
        say(line)
    if scopes is None:
        say(f"biotrail: which of them this kernel has is not known: {reason}", err=True)
