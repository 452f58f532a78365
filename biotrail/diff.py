# SPDX-License-Identifier: Apache-2.0
"""`biotrail diff`: two recordings side by side."""

import os

import click

from biotrail import tallies
from biotrail.cut_options import choice_options
from biotrail.cuts import Cut, opened
from biotrail.opening import associate_option
from biotrail.printing import say, say_json
from biotrail.progress import progress
from converters.answers.blocks import Recording, read_slots
from converters.answers.diff import CONFIDENCE, Comparison
from converters.answers.diff_tree import Diff

MOST_PER_CENT = 99.9
"""So that 1000 draws have one beyond the interval's ends."""


@click.command()
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@choice_options
@click.option("--device-a", metavar="DEV", help="Compare this device of A alone.")
@click.option("--device-b", metavar="DEV", help="With this one of B. Default: as --device-a.")
@click.option(
    "--confidence",
    type=click.FloatRange(50, MOST_PER_CENT),
    default=100 * CONFIDENCE,
    show_default=True,
    help="Of each interval, in per cent.",
)
@click.option(
    "--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the random draws."
)
@associate_option
@click.option("--all", "everything", is_flag=True, help="Print every figure, not the main ones.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    a: str,
    b: str,
    cut: Cut,
    device_a: str | None,
    device_b: str | None,
    confidence: float,
    seed: int,
    associate: str,
    everything: bool,
    as_json: bool,
) -> None:
    """Compare recording B with recording A, and tell noise from change.

    For each device (by name) and operation: rates, sizes, merges, errors, and mean and
    percentiles of Q2C and of every stage; for each device what was in flight. Every
    difference has a confidence interval, from blocks of the recordings' time drawn again;
    only where it excludes 0 is the figure marked as changed. docs/diff.md explains it.
    A and B are anything that convert reads; a part that is chosen of them is chosen of both.

    \b
    biotrail diff before.biotrail after.biotrail
    biotrail diff --device-a sda --device-b nvme0n1 old.biotrail new.biotrail
    biotrail diff --json a.biotrail b.biotrail | jq '.devices[].operations[].figures[] | select(.changed)'
    """  # noqa: D301, E501 - \b is click's mark for text that keeps its lines
    if a == b == "-":
        raise click.UsageError("only one of A and B can be standard input")
    if device_b is not None and device_a is None:
        device_a = device_b
    comparison = Comparison(
        _read(a, cut, associate), _read(b, cut, associate), confidence=confidence / 100, seed=seed
    )
    diff = comparison.diff(_pairs(comparison, device_a, device_b or device_a))
    if as_json:
        from converters.answers.diff_json import as_dict

        say_json(as_dict(diff), indent=2)
    else:
        _print(diff, (a, b), everything)


def _read(log: str, cut: Cut, associate: str) -> Recording:
    with opened(log, cut, associate) as source:
        trace = source.trace
        with progress(trace, f"reading {os.path.basename(log)}") as windows:
            recording = read_slots(trace, source.chosen(windows))
    for line in source.lines():
        say(f"biotrail: {log}: {line}", err=True)
    if lost := tallies.loss_lines(trace):
        for line in lost:
            say(f"biotrail: {log}: {line}", err=True)
    return recording


def _pairs(
    comparison: Comparison, name_a: str | None, name_b: str | None
) -> list[tuple[str, str]] | None:
    if name_a is None or name_b is None:
        return None
    chosen = []
    known = comparison.devices()
    for name, names, option in zip(
        (name_a, name_b), known, ("--device-a", "--device-b"), strict=True
    ):
        plain = name.removeprefix("/dev/").removeprefix("mapper/")
        if plain not in names:
            there = ", ".join(names) or "no device"
            raise click.BadParameter(f"{name} has no I/O there; {there} has", param_hint=option)
        chosen.append(plain)
    return [(chosen[0], chosen[1])]


def _print(diff: Diff, names: tuple[str, str], everything: bool) -> None:
    from biotrail.columns import console
    from biotrail.diff_text import parts

    screen = console()
    for part in parts(diff, names, screen.width, everything):
        screen.print(part)
        screen.print()
