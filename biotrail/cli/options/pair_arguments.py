# SPDX-License-Identifier: Apache-2.0
"""Options and words of `biotrail pairs`. Imports only what recording needs."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any, TypeVar

import click

from biotrail.cli.options.cgroup_options import named_options
from biotrail.cli.options.record_filters import TaskIds, joined
from biotrail.cli.options.recording_options import duration_option, force_option
from biotrail.recorder.filters.filters import Filters
from biotrail.recorder.probes.sites.pairs import BY_VALUES, MAX_OPEN
from biotrail.recorder.schema.errors import SiteError
from biotrail.recorder.sites.declarations import Declarations, Event, Pair, Variant
from biotrail.text import units, values

_DEVICE = "dev"
"""Field that most tracepoints with a device have."""
_Command = TypeVar("_Command", bound=Callable[..., Any])
_OPTIONS = (
    click.option(
        "--key",
        type=values.Text(),
        metavar="FIELD[,FIELD]",
        help="By what an end finds its begin: one or two fields or arguments, members through "
        "pointers (rq->q->id), @tid, @pid or @cpu; BEGIN|END where the two name it differently.",
    ),
    click.option(
        "--by",
        type=values.Text(),
        metavar="FIELD",
        help="A histogram for each value of this field, of the begin or else of the end.",
    ),
    click.option(
        "--where",
        multiple=True,
        type=values.Name(),
        metavar="CONDITION",
        help="Only events for which this holds: 'vec == 3', with one of == != < <= > >= &. Can be "
        "repeated: all have to hold.",
    ),
    click.option(
        "-d",
        "--device",
        "devices",
        multiple=True,
        type=values.Name(),
        metavar="DEV",
        help="Only events of this device: a name, a /dev path, a partition or a mount point. Can "
        "be repeated.",
    ),
    click.option(
        "--device-field",
        type=values.Text(),
        metavar="FIELD",
        help="The field that -d is compared with, where the pair does not say it. Default: dev.",
    ),
    click.option(
        "-p",
        "--pid",
        multiple=True,
        type=TaskIds(),
        metavar="PID",
        help="Only pairs that this process begins; several: 12,34.",
    ),
    click.option(
        "--tid",
        multiple=True,
        type=TaskIds(),
        metavar="TID",
        help="Only pairs that this thread begins.",
    ),
    click.option(
        "--comm",
        multiple=True,
        type=values.Name(),
        metavar="NAME",
        help="Only pairs that tasks of this name begin; 'fio*' matches a prefix.",
    ),
    click.option(
        "--cgroup",
        multiple=True,
        type=values.Name(),
        metavar="PATH",
        help="Only pairs that tasks of this cgroup or a descendant begin.",
    ),
    *named_options("", "pairs that tasks begin of", "Also of those that appear later."),
    click.option(
        "-i",
        "--interval",
        type=units.Duration(units.ABOVE_ZERO),
        metavar="TIME",
        help="Print what came since the last time, each 1s, 500ms, …; otherwise once, at the end.",
    ),
    duration_option("--for"),
    click.option("--json", "as_json", is_flag=True, help="Print an object per line, as JSON."),
    click.option(
        "-o",
        "--output",
        type=click.Path(),
        metavar="FILE",
        help="Record every pair to this log as well; - writes it to standard output.",
    ),
    force_option,
    click.option(
        "--buffer-size",
        type=units.Size(1),
        metavar="SIZE",
        help="Size of the ring for -o, e.g. 64M; use a larger one when records are lost.",
    ),
    click.option(
        "--max-open",
        type=units.Count(64, 1 << 24),
        default=MAX_OPEN,
        show_default=True,
        metavar="N",
        help="How many begins may wait for their end at once; further ones are lost, and counted.",
    ),
    click.option(
        "--by-values",
        type=units.Count(1, 4096),
        default=BY_VALUES,
        show_default=True,
        metavar="N",
        help="With --by: values that have a histogram of their own; others share one.",
    ),
    click.option(
        "--max-cpu",
        type=values.Percent(values.LEAST_PER_CENT),
        metavar="PERCENT",
        help="End once recording takes more than so much of one core over 5 s.",
    ),
    click.option("-q", "--quiet", is_flag=True, help="Print results and losses only."),
)


def options(command: _Command) -> _Command:
    """Add the options whose values are the fields of PairArguments to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@dataclass(frozen=True)
class PairArguments:
    """The values of these options, as the user gave them. Times in seconds, sizes in bytes."""

    key: str | None
    by: str | None
    where: tuple[str, ...]
    devices: tuple[str, ...]
    device_field: str | None
    pid: tuple[tuple[int, ...], ...]
    tid: tuple[tuple[int, ...], ...]
    comm: tuple[str, ...]
    cgroup: tuple[str, ...]
    unit: tuple[str, ...]
    container: tuple[str, ...]
    pod: tuple[str, ...]
    interval: float | None
    duration: float | None
    as_json: bool
    output: str | None
    force: bool
    buffer_size: int | None
    max_open: int
    by_values: int
    max_cpu: float | None
    quiet: bool

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

    @property
    def filters(self) -> Filters:
        """The filters by task."""
        return Filters(
            pids=joined(self.pid),
            tids=joined(self.tid),
            comms=self.comm,
            cgroups=self.cgroup,
            units=self.unit,
            containers=self.container,
            pods=self.pod,
        )

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
        """Return the pair of two tracepoints. Raises click.UsageError."""
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
        """Return a declared pair with what the options change."""
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
    """Return a declared pair. Raises SiteError, which names those that are near."""
    found = known.pairs.get(name)
    if found is None:
        near = get_close_matches(name, known.pairs, 3)
        hint = f": did you mean {', '.join(near)}?" if near else ""
        raise SiteError(
            f"no pair {name!r} is declared{hint} `biotrail pairs --list` has all; for two "
            "tracepoints write biotrail pairs BEGIN END --key FIELD"
        )
    return found
