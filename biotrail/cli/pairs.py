# SPDX-License-Identifier: Apache-2.0
"""`biotrail pairs`: the time from one event to another. Imports only what recording needs."""

from contextlib import suppress
from typing import Any

import click

from biotrail.cli.options import pair_arguments
from biotrail.cli.options.gathering import gathered
from biotrail.cli.options.pair_arguments import PairArguments
from biotrail.cli.sites import pairs_list, pairs_live, pairs_record
from biotrail.recorder.host import devices as host_devices
from biotrail.recorder.probes.sites.pairs import PairConfig, PairProbes
from biotrail.recorder.sites import declarations
from biotrail.recorder.sites.declarations import Declarations
from biotrail.text import values
from biotrail.text.printing import say

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
@pair_arguments.options
@click.argument(
    "words", nargs=-1, type=values.Text(), metavar="BEGIN END | NAME[,NAME...] [-- COMMAND ...]"
)
@click.pass_context
@gathered(PairArguments, "asked")
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
        log = pairs_record.LogOptions(
            asked.output, asked.force, devices=asked.devices, filters=filters, **common
        )
        return pairs_record.run(probes, log, tell)
    live = pairs_live.LiveOptions(interval=asked.interval, as_json=asked.as_json, **common)
    return pairs_live.run(probes, live, tell)


def _list(known: Declarations) -> None:
    """Print the declared pairs, and why some are not there on this kernel, if that can be known."""
    scopes, reason = pairs_list.kernel_scopes()
    for line in pairs_list.lines(known, scopes):
        say(line)
    if scopes is None:
        say(f"biotrail: which of them this kernel has is not known: {reason}", err=True)
