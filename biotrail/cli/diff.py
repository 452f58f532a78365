# SPDX-License-Identifier: Apache-2.0
"""`biotrail diff`: comparison of two recordings, or of two sets of runs, and recording them."""

import os
import random
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from biotrail.cli.options.blame_reading import Blaming
from biotrail.cli.options.blaming import WithBlame, blame_option
from biotrail.cli.options.cuts import Cut, choice_options, cut_of
from biotrail.cli.options.gathering import added, flag, gathered, option
from biotrail.cli.options.opening import Reading, reading_options
from biotrail.cli.options.recordings import InputRecording, of_each, open_recordings, recordings
from biotrail.converters.analysis.blame.blame import Course, by_slot
from biotrail.converters.analysis.diff.diff import CONFIDENCE, devices_of, make_diff, pooled
from biotrail.converters.analysis.diff.runs import LEAST_RUNS
from biotrail.converters.analysis.distributions.slots import Recording, read_slots
from biotrail.recorder.output.output import make_directory
from biotrail.recorder.schema.errors import OutputError, ProbeError
from biotrail.text import tallies, units, values
from biotrail.text.printing import say, say_json
from biotrail.text.progress import progress

Words = tuple[str, ...]
_OURS = ("-o", "--output", "-f", "--force", "--print", "--json", "--keep", "--trigger")
"""Options of `record` that say where a recording goes, and whether there is one."""
_BEHIND = "biotrail.cli.diff.behind"
"""Key in the context's `meta` under which TwoSides stores what stands after `--`."""
MOST_PER_CENT = 99.9
"""Largest confidence level: one of 1000 bootstrap draws is then outside of the interval."""
MOST_RUNS = 1000


class TwoSides(WithBlame):
    """A command whose arguments may be `A... -- B...`; click itself drops the `--`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse as click does; what follows `--` behind logs or --record goes to `meta`."""
        if "--" in args:
            at = args.index("--")
            given, _, _ = self.make_parser(ctx).parse_args(args[:at])
            logs = given.get("logs")
            named = isinstance(logs, tuple | list) and logs  # click's mark for "not given" is none
            if named or "record" in given:
                ctx.meta[_BEHIND] = tuple(args[at + 1 :])
                args = args[:at]
        return super().parse_args(ctx, args)


@dataclass(frozen=True)
class DiffOptions:
    cut: Cut = added(choice_options)
    equal: tuple[str, ...] = option(
        "--equal",
        multiple=True,
        type=values.FileName(),
        metavar="LOG",
        help="A run of one load in one state, which shows how much runs differ: give three or "
        "more.",
    )
    record: int | None = option(
        "--record",
        type=units.Count(LEAST_RUNS, MOST_RUNS),
        metavar="N",
        help="Record N runs of each of two commands first, in turn: diff --record N -- A… -- B…",
    )
    output: str = option(
        "--output",
        "-o",
        type=values.FileName(),
        default="diff-runs",
        show_default=True,
        metavar="DIR",
        help="Directory for the runs of --record; without runs in it.",
    )
    record_option: tuple[str, ...] = option(
        "--record-option",
        multiple=True,
        type=values.text,
        metavar="OPTION",
        help="An option for `record`, in one word: --record-option=--device=sda.",
    )
    device_a: str | None = option(
        "--device-a",
        type=values.name,
        metavar="DEV",
        help="Compare this device of A only, with --device-b.",
    )
    device_b: str | None = option(
        "--device-b",
        type=values.name,
        metavar="DEV",
        help="The device of B that --device-a is compared with. Default: the same.",
    )
    confidence: float = option(
        "--confidence",
        type=values.percent_from(50, MOST_PER_CENT),
        default=100 * CONFIDENCE,
        show_default=True,
        help="Confidence level of each interval, in per cent: 50 to 99.9.",
    )
    seed: int = option(
        "--seed",
        type=units.Count(0),
        default=0,
        show_default=True,
        help="Seed of the random draws from which the intervals are estimated.",
    )
    blame: str | None = added(
        blame_option("Also compare who waited for whom: victims and culprits")
    )
    reading: Reading = added(reading_options())
    everything: bool = flag("--all", "Print every figure, not only the main ones.")
    as_json: bool = flag("--json", "Print one JSON object.")


@click.command(cls=TwoSides)
@click.argument("logs", metavar="A... [--] B...", nargs=-1, type=values.FileName())
@gathered(DiffOptions, "asked")
def command(logs: tuple[str, ...], asked: DiffOptions) -> None:
    """Compare recordings B with recordings A, and mark what changed by more than runs differ.

    For each device (by name) and operation: rates, sizes, merges, errors, and mean and
    percentiles of Q2C and of every stage; for each device how much was in flight; and of logs
    with record --path the system calls, with the parts of their time.

    One recording a side shows by how much these two differ, with confidence intervals from a
    block bootstrap over their time, and no more: the next run of the same load differs, too.
    With three runs or more a side (-- between A's and B's), or with runs of one load (--equal),
    changes are told by a test on the runs' figures. --record makes the runs: of two commands,
    in an order drawn at random. docs/diff.md explains it.
    A and B are anything that convert reads; options that choose a part apply to both.
    The files of a rotated recording are one run.

    \b
    biotrail diff before.biotrail after.biotrail
    biotrail diff before-*.biotrail -- after-*.biotrail
    sudo biotrail diff --record 5 -o runs -- ./load-with-a -- ./load-with-b
    biotrail diff --blame before.biotrail after.biotrail     # and what grew because of whom
    biotrail diff --device-a sda --device-b nvme0n1 old.biotrail new.biotrail
    biotrail diff --json a.biotrail b.biotrail | jq '.devices[].operations[].figures[] | select(.changed)'
    """  # noqa: D301, E501 - \b is click's mark for text that keeps its lines
    behind = click.get_current_context().meta.get(_BEHIND)
    if asked.record is None:
        if asked.record_option:
            raise click.UsageError("--record-option goes with --record")
        sides = _sides(logs, behind)
    else:
        if logs:
            raise click.UsageError("--record makes the recordings: give commands only, after --")
        sides = alternate(divided(behind or ()), asked.record, asked.output, asked.record_option)
    if sides[0] == sides[1] == ("-",):
        raise click.UsageError("only one of A and B can be standard input")
    parts = [_read(side, asked) for side in sides]
    runs = _read(asked.equal, asked) if asked.equal else []
    known = [run.log_id for side in (*parts, runs) for run in side if run.log_id.strip("0")]
    if asked.equal and len(set(known)) < len(known):
        raise click.UsageError("--equal takes runs that are neither in A nor in B, each once")
    by_runs = min(map(len, parts)) >= LEAST_RUNS or len(runs) >= LEAST_RUNS
    several = any(len({host for part in side for host in part.hosts}) > 1 for side in parts)
    a, b = (pooled(side, several and not by_runs) for side in parts)
    device_a = asked.device_b if asked.device_a is None else asked.device_a
    devices = _devices(a, b, device_a, asked.device_b or device_a)
    diff = make_diff(a, b, asked.confidence / 100, asked.seed, equal=runs, devices=devices)
    if asked.as_json:
        from biotrail.converters.analysis.diff.tree import as_dict

        say_json(as_dict(diff), indent=2)
    else:
        from biotrail.text.columns import console
        from biotrail.text.diff import parts as diff_parts

        screen = console()
        names = [
            logs[0] + (f" and {units.plural(len(logs) - 1, 'more log')}" if logs[1:] else "")
            for logs in sides
        ]
        for part in diff_parts(diff, names, screen.width, asked.everything):
            screen.print(part)
            screen.print()


def divided(words: Sequence[str]) -> tuple[Words, Words]:
    if list(words).count("--") != 1:
        raise click.UsageError(
            "--record needs two commands: diff --record N -- A… -- B… (put a command that has -- "
            "among its own words into a script)"
        )
    at = list(words).index("--")
    a, b = tuple(words[:at]), tuple(words[at + 1 :])
    for which, command in (("A", a), ("B", b)):
        if not command:
            raise click.UsageError(f"--record needs two commands: that of {which} is missing")
        if shutil.which(command[0]) is None:
            raise click.UsageError(f"there is no command {command[0]!r} to run for {which}")
    return a, b


def order(count: int, draw: random.Random) -> list[str]:
    found = []
    for _ in range(count):
        found += draw.sample(("A", "B"), 2)
    return found


def alternate(
    commands: tuple[Words, Words], count: int, directory: str, options: Sequence[str]
) -> tuple[Words, Words]:
    """Record `count` runs of each command without a shell; return the logs of A and of B.

    A and B take turns in pairs, so that what changes with time changes both; which of a pair is
    first is drawn.
    """
    for one in options:
        if not one.startswith("-") or one.startswith(_OURS) or one == "--":
            raise click.BadParameter(
                f"{one!r}: one option in one word, and not where a log goes to",
                param_hint="--record-option",
            )
    make_directory(directory)
    place = Path(directory)
    if any(place.glob("*.biotrail*")):
        raise OutputError(f"{directory}: there are logs in it; give --output another directory")
    logs: dict[str, list[str]] = {"A": [], "B": []}
    for number, side in enumerate(order(count, random.SystemRandom()), 1):
        name = f"{number:0{len(str(2 * count))}d}-{side}"
        say(f"biotrail: run {number} of {2 * count}: {side}", err=True)
        _run(commands[side == "B"], place / f"{name}.biotrail", options)
        made = sorted(map(str, place.glob(f"{name}*.biotrail")))
        if not made:
            raise OutputError(f"{place / name}.biotrail: run {number} left no log")
        logs[side] += made
    return tuple(logs["A"]), tuple(logs["B"])


def _run(command: Words, target: Path, options: Sequence[str]) -> None:
    from biotrail.cli.children.recorder_process import Recorder, stopping

    try:
        with (
            os.fdopen(os.dup(2), "wb") as said,
            Recorder(options, command, log=said, target=str(target), speaks=True) as recorder,
            stopping(recorder),
        ):
            status = recorder.wait()
    except OSError as error:
        raise ProbeError(f"the recorder cannot be started: {error}") from error
    if status:
        raise ProbeError(
            f"{target.name.removesuffix('.biotrail')}: the run of {command[0]} ended with status "
            f"{status}; the runs before it are in {target.parent}"
        )


def _sides(
    logs: tuple[str, ...], behind: tuple[str, ...] | None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return (logs of A, logs of B). behind: the logs after `--`; None: there was no `--`."""
    if behind:
        return logs, behind
    if behind is not None or len(logs) < 2:
        raise click.UsageError("Missing argument 'B': give two recordings to compare.")
    if len(logs) == 2:
        return logs[:1], logs[1:]
    found = open_recordings(logs)
    if len(found) != 2:
        raise click.UsageError(
            f"these are {units.plural(len(found), 'recording')}: put -- between the logs of A and "
            "those of B"
        )
    return tuple(found[0].paths), tuple(found[1].paths)


def _read(side: tuple[str, ...], asked: DiffOptions) -> list[Recording]:
    cut, blame = asked.cut, asked.blame

    def read(one: InputRecording) -> Recording:
        source = cut_of(one.again, cut)
        trace = source.trace
        blaming = None if blame is None else Blaming(one.again, cut, blame)
        with progress(trace, f"reading {os.path.basename(one.paths[0])}") as windows:
            every = windows if blaming is None else blaming.watch(trace, windows)
            recording = read_slots(trace, source.chosen(every))
        if blaming is not None:
            slots = recording.slots
            course = Course(slots.origin, slots.width, len(recording.times))
            _, second = blaming.second(course=course)
            slots.blame = by_slot(second, course)
        for line in [*source.lines(), *tallies.loss_lines(trace)]:
            say(f"biotrail: {one.name}: {line}", err=True)
        return recording

    with recordings(side, asked.reading, twice=cut.needs_file() or blame is not None) as found:
        return [figures for _, figures in of_each(found, read)]


def _devices(
    a: Recording, b: Recording, name_a: str | None, name_b: str | None
) -> list[tuple[str, str]] | None:
    """Return the pair of devices (of A, of B) to compare; None: every device, by name."""
    if name_a is None or name_b is None:
        return None
    chosen = []
    known = devices_of(a), devices_of(b)
    for name, names, hint in zip(
        (name_a, name_b), known, ("--device-a", "--device-b"), strict=True
    ):
        plain = name.removeprefix("/dev/").removeprefix("mapper/")
        if plain not in names:
            there = ", ".join(names) or "no device"
            raise click.BadParameter(
                f"{name} has no I/O in that recording; it has I/O on {there}", param_hint=hint
            )
        chosen.append(plain)
    return [(chosen[0], chosen[1])]
