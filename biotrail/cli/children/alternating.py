# SPDX-License-Identifier: Apache-2.0
"""Runs of two commands, each recorded, in turn and in an order drawn at random."""

import os
import random
import shutil
from collections.abc import Sequence
from pathlib import Path

import click

from biotrail.cli.children.recorder_process import Recorder, stopping
from biotrail.recorder.output.output import make_directory
from biotrail.recorder.schema.errors import OutputError, ProbeError
from biotrail.text.printing import say

Words = tuple[str, ...]
_OURS = ("-o", "--output", "-f", "--force", "--print", "--json", "--keep", "--trigger")
"""Options of `record` that say where a recording goes, and whether there is one."""


def divided(words: Sequence[str]) -> tuple[Words, Words]:
    """Return the two commands between which `--` stands. Raises click.UsageError."""
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
    """Return sides in the order of their runs: `count` pairs of "A" and "B", each drawn."""
    found = []
    for _ in range(count):
        found += draw.sample(("A", "B"), 2)
    return found


def alternate(
    commands: tuple[Words, Words], count: int, directory: str, options: Sequence[str]
) -> tuple[Words, Words]:
    """Record `count` runs of each command, and return the logs of A and of B.

    A and B take turns in pairs, so that what changes with time changes both; which of a pair is
    first is drawn. Commands are run as they are, without a shell; what they print goes to standard
    error. directory: for the logs, `NN-A.biotrail` and `NN-B.biotrail`. options: for `record`.
    Raises click.UsageError, OutputError if there are logs already, ProbeError if a run fails.
    """
    for option in options:
        if not option.startswith("-") or option.startswith(_OURS) or option == "--":
            raise click.BadParameter(
                f"{option!r}: one option in one word, and not where a log goes to",
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
