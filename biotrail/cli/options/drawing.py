# SPDX-License-Identifier: Apache-2.0
"""Options that say how a Perfetto trace is written: size of its files, detail, colours."""

from dataclasses import dataclass

import click

from biotrail.cli.options.gathering import flag, gathered, option
from biotrail.converters.outputs.perfetto.names import Colour, Detail, Options
from biotrail.converters.pipeline import WINDOW_EVENTS
from biotrail.text import units

LEAST_PART = 256 << 10
"""Smallest --max-size in bytes: each part repeats the packets that describe the trace."""
_WINDOWS_PER_PART = 16
_BYTES_PER_EVENT = 100
"""Approximate size of an event in a Perfetto trace."""


@dataclass(frozen=True)
class Drawing:
    max_size: int | None = option(
        "--max-size",
        type=units.size_from(),
        metavar="SIZE",
        help="Split a Perfetto trace into files of at most this size, e.g. 500M: OUT-1.pftrace, "
        "OUT-2.pftrace, …",
    )
    detail: Detail = option(
        "--detail",
        usual=Detail.STANDARD,
        type=click.Choice([str(detail) for detail in Detail]),
        default=str(Detail.STANDARD),
        show_default=True,
        callback=lambda _context, _option, value: Detail(value),
        help="What a Perfetto trace holds. full: everything; standard: everything of the slowest "
        "I/Os, of others no arguments; stages: no arguments and no requests; bios: no stages "
        "either.",
    )
    colour: Colour = option(
        "--colour",
        usual=Colour.AUTO,
        type=click.Choice([str(colour) for colour in Colour]),
        default=str(Colour.AUTO),
        show_default=True,
        callback=lambda _context, _option, value: Colour(value),
        help="Colours of a Perfetto trace: by operation; by family (a bio, its requests, and their "
        "I/O on lower devices); auto: by operation, but by family where I/O passes through stacked "
        "devices.",
    )
    flows: bool = flag(
        "--flows", "Draw the arrows of all I/O in a Perfetto trace, not of the slowest alone."
    )
    all_calls: bool = flag(
        "--all-calls",
        "Draw system calls that neither queued nor waited for I/O, too, such as reads of a pipe.",
    )
    ftrace: bool = flag(
        "--ftrace",
        "Write requests as ftrace's block_io_start and block_io_done, too, for what Perfetto "
        "itself has for block I/O: SQL (linux.block_io) and the UI's Queued IO requests.",
    )

    @property
    def options(self) -> Options:
        return Options(self.detail, self.colour, self.flows, self.all_calls, self.ftrace)

    @property
    def window_events(self) -> int | None:
        """Events per window, so that a part, which ends with a window, fits; None: the default."""
        if self.max_size is None:
            return None
        wanted = self.max_size // _WINDOWS_PER_PART // _BYTES_PER_EVENT
        return min(max(wanted, 100), WINDOW_EVENTS)


drawing_options = gathered(Drawing, "drawing")
