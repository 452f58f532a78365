# SPDX-License-Identifier: Apache-2.0
"""`biotrail follow`: records which functions chosen kernel objects pass."""

import importlib
import os
import tempfile
from typing import Any

import click

from biotrail.cli.options.gathering import gathered
from biotrail.cli.options.record_follow import EVERY, MOST_AT_ONCE
from biotrail.cli.options.recording_options import duration_option, force_option
from biotrail.cli.options.task_filters import task_filters
from biotrail.cli.sites.following import (
    FollowArguments,
    dry_run_lines,
    record_lives,
    unseen_lines,
)
from biotrail.recorder.filters.filters import Filters
from biotrail.recorder.probes.sites.follow_options import AUTO, MAX_FUNCTIONS
from biotrail.recorder.probes.sites.planning import WAYS, planned
from biotrail.text import units, values
from biotrail.text.printing import say_all

_TREE = "biotrail.cli.tree"


@click.command()
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=click.Path(),
    help="Keep the log, for biotrail tree, slow, convert and others. Default: the merged tree is "
    "printed at the end, and no log is kept.",
)
@force_option
@duration_option("--for")
@click.option(
    "--every",
    type=units.Count(*EVERY),
    default=1,
    metavar="N",
    help="Follow each N-th object that is born. Default: each.",
)
@click.option(
    "--max",
    "at_once",
    type=units.Count(1, MOST_AT_ONCE),
    default=100,
    show_default=True,
    metavar="N",
    help="Follow at most N objects at one time.",
)
@click.option(
    "--lives",
    type=units.Count(0),
    default=0,
    metavar="N",
    help="Follow N objects in all, and no more. Default: no limit.",
)
@click.option(
    "--slower",
    type=units.Duration(),
    default=0,
    metavar="TIME",
    help="Record only lives that took longer: the kernel keeps the hits of all until it is known.",
)
@click.option(
    "--idle",
    type=units.Duration(units.ABOVE_ZERO),
    default="2s",
    show_default=True,
    metavar="TIME",
    help="Of types without deaths: a life is over when nothing was seen of its object for so long.",
)
@click.option(
    "-d",
    "--device",
    "devices",
    multiple=True,
    type=values.Name(),
    metavar="DEV",
    help="Only objects of this device, as far as their type has one. Can be repeated.",
)
@click.option(
    "--way",
    type=click.Choice((AUTO, *WAYS)),
    default="auto",
    show_default=True,
    help="How functions are attached: auto takes the first that this kernel has (biotrail doctor); "
    "typed: tracepoints alone.",
)
@click.option(
    "--max-functions",
    type=units.Count(),
    default=MAX_FUNCTIONS,
    show_default=True,
    metavar="N",
    help="Refuse to attach to more functions.",
)
@click.option(
    "--max-cpu",
    type=values.Percent(values.LEAST_PER_CENT),
    metavar="PERCENT",
    help="End when recorder and programs take more than so much of one core.",
)
@click.option(
    "--buffer-size",
    type=units.Size(1),
    metavar="SIZE",
    help="Size of the ring, e.g. 64M; use a larger one when hits are lost. Default: 16M.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be attached, and attach nothing.")
@click.option("--list-unseen", is_flag=True, help="List the functions that cannot be attached.")
@click.option("-q", "--quiet", is_flag=True, help="Print errors and losses only.")
@click.argument("struct", metavar="TYPE", type=values.Text())
@click.argument("command", nargs=-1, type=click.Path(), metavar="[-- COMMAND ...]")
@task_filters
@gathered(FollowArguments, "asked")
def command(
    struct: str,
    command: tuple[str, ...],
    filters: Filters,
    asked: FollowArguments,
    dry_run: bool,
    list_unseen: bool,
) -> int:
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
    asked.check()
    plan = planned(struct, asked.way, asked.max_functions)
    if list_unseen or dry_run:
        say_all(unseen_lines(plan) if list_unseen else dry_run_lines(plan, asked))
        return 0
    if asked.output is not None:
        return record_lives(plan, asked, filters, command, asked.output)
    return _print_tree(lambda log: record_lives(plan, asked, filters, command, log))


def _print_tree(record: Any) -> int:
    """Record to a log that is deleted again, and print its lives; return the exit status."""
    with tempfile.TemporaryDirectory(prefix="biotrail-follow-") as directory:
        log = os.path.join(directory, "follow.biotrail")
        status: int = record(log)
        # Not an import statement: recording alone does not need what reads logs.
        tree = importlib.import_module(_TREE).command
        tree.main(["--merged", log], prog_name="biotrail tree", standalone_mode=False)
    return status
