# SPDX-License-Identifier: Apache-2.0
"""`biotrail convert`: conversion of logs to a Perfetto trace, OTF2 or blktrace's files."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from biotrail.cli.converting.conversion import convert, report_lines
from biotrail.cli.converting.formats import (
    BLKTRACE,
    OTF2,
    PERFETTO,
    check_beside,
    checked,
    format_and_path,
)
from biotrail.cli.converting.result import Result
from biotrail.cli.options.cut_options import cut_options
from biotrail.cli.options.cuts import Cut, Opened, cut_of, opened
from biotrail.cli.options.drawing import Drawing, drawing_options
from biotrail.cli.options.gathering import added, gathered, option
from biotrail.cli.options.guests import GuestOf, guest_options
from biotrail.cli.options.opening import Reading, reading_options
from biotrail.cli.options.recordings import Recording, logs_argument, open_recordings
from biotrail.cli.options.terminating import terminated_as_interrupted
from biotrail.text.printing import say_all

if TYPE_CHECKING:  # imported where another trace is given
    from biotrail.cli.converting.beside import Beside


@dataclass(frozen=True)
class Asked:
    """What the options say about the output, and the part of the log that goes into it."""

    target: str | None = option(
        "-o",
        "--output",
        metavar="OUT",
        type=click.Path(),
        help="The output. Default: LOG with the ending of the format.",
    )
    """Path of the output; None: made from the log's; `-`: standard output."""
    form: str | None = option(
        "--format",
        type=click.Choice([PERFETTO, OTF2, BLKTRACE]),
        help="Format of OUT. Default: by its ending (.pftrace, .otf2 or DIR/, .blktrace), else "
        "perfetto.",
    )
    """Name of the format; None: by the ending of `target`."""
    beside: str | None = option(
        "--with",
        metavar="TRACE",
        type=click.Path(),
        help="Write LOG's tracks into a copy of this Perfetto trace, which Perfetto's recorder or "
        "another program made on the same boot; .gz and .zst as well.",
    )
    """Path of a Perfetto trace that goes into the output, too; None: there is none."""
    alone: bool = option(
        "--alone",
        is_flag=True,
        help="Of a LOG that is a Perfetto trace itself, write what is made of its block events "
        "alone, not beside its own packets.",
    )
    """Whether the packets of a Perfetto trace that is the LOG are left out."""
    cut: Cut = added(cut_options)
    drawing: Drawing = added(drawing_options)
    reading: Reading = added(reading_options(own_io=True, labels=True))
    guest: GuestOf = added(guest_options)
    force: bool = option("-f", "--force", is_flag=True, help="Replace OUT if it exists.")
    """Whether to replace an output that exists."""


@click.command()
@logs_argument
@gathered(Asked, "asked")
def command(logs: tuple[str, ...], asked: Asked) -> None:
    """Turn a LOG into a Perfetto trace, an OTF2 archive or files for blkparse and btt.

    LOG is a log, an archive, a Perfetto trace with block events, or blktrace's files: DEV (for
    DEV.blktrace.*) or one merged stream. A trace is a file, compressed if its name ends in .gz
    or .zst; an OTF2 archive is a directory, and so are files for blkparse, one set for each
    device. The output is readable by you alone, and appears under its name when it is complete.
    LOG - reads standard input; -o - writes a Perfetto trace to standard output. docs/cuts.md
    describes the options that choose a part of a log.

    Several LOGs: the files of one rotated recording, in any order, are read as one log; logs
    of several recordings or hosts become one Perfetto trace on one timeline (docs/hosts.md).

    \b
    biotrail convert disk.biotrail                  # → disk.pftrace
    biotrail convert --from 10s --to 12s -d nvme0n1 disk.biotrail -o short.pftrace.gz
    biotrail convert --slowest 1000 disk.biotrail -o slowest.pftrace
    biotrail convert disk.biotrail -o disk.otf2     # → disk.otf2/traces.otf2
    biotrail convert sda                            # sda.blktrace.* → sda.pftrace
    biotrail convert db1.biotrail db2.biotrail -o both.pftrace
    biotrail convert guest.biotrail host.biotrail --guest-of qemu-system-x86 -o vm.pftrace
    biotrail convert disk-*.biotrail                # a rotated recording: one trace
    biotrail convert system.pftrace                 # → system-bios.pftrace: the trace, and bios
    biotrail convert disk.biotrail --with system.pftrace -o both.pftrace
    biotrail convert disk.biotrail -o d.blktrace && blkparse -i d.blktrace/nvme0n1
    ssh host sudo biotrail record -o - --duration 5s | biotrail convert - -o host.pftrace
    """  # noqa: D301 - \b is click's mark for text that keeps its lines
    with terminated_as_interrupted():
        result, lines = _convert(logs, asked)
    say_all(lines, err=result.path is None)


def _convert(logs: tuple[str, ...], asked: Asked) -> tuple[Result, list[str]]:
    """Convert the logs to one output; return the result and lines about it.

    logs: paths or, alone, `-`; the files of one rotated recording are one log, several
    recordings are merged into one trace. Raises click.UsageError for options that do not fit,
    TraceError.
    """
    guest, reading = asked.guest, asked.reading
    guest.check(asked.beside is not None, "and --with exclude each other")
    if len(logs) == 1 and guest.guest_of is None:
        form, target = _checked(logs[0], asked)  # before a pipe is read
        with opened(logs[0], asked.cut, reading) as source:
            return _one(logs[0], source, form, target, asked)
    recordings = open_recordings(logs, reading)
    if len(recordings) > 1 or guest.guest_of is not None:
        return _merge(recordings, asked)
    form, target = _checked(recordings[0].paths[0], asked)
    source = cut_of(lambda: open_recordings(logs, reading)[0].trace, asked.cut)
    return _one(recordings[0].paths[0], source, form, target, asked)


def _one(
    log: str, source: Opened, form: str, target: str, asked: Asked
) -> tuple[Result, list[str]]:
    """Convert one recording; return the result and lines about it. log: its path, for messages."""
    other = _beside(log, source, form, asked)
    result = convert(source, form, target, asked.force, asked.drawing, other)
    return result, report_lines(source, result, form)


def _beside(log: str, source: Opened, form: str, asked: Asked) -> "Beside | None":
    """Return the trace that the output holds, too: the one asked for, or the log itself."""
    is_trace = source.trace.context.header.get("backend") == "perfetto"
    if asked.beside is None and (form != PERFETTO or asked.alone or not is_trace):
        return None
    from biotrail.cli.converting.beside import beside, beside_itself
    from biotrail.converters.inputs.perfetto.source import PerfettoSource

    if asked.beside is not None:
        return beside(asked.beside, log, source.trace)
    if asked.drawing.max_size is not None:
        raise click.UsageError("--max-size writes a Perfetto trace's bios alone: give --alone, too")
    reader = source.trace.reader
    return beside_itself(reader) if isinstance(reader, PerfettoSource) else None


def _checked(log: str, asked: Asked) -> tuple[str, str]:
    """Return (format, output path). Raises click.UsageError for options that do not fit."""
    form, target = checked(log, asked.target, asked.form, asked.cut, asked.drawing)
    _check_beside(form, asked)
    return form, target


def _check_beside(form: str, asked: Asked) -> None:
    """Raise click.UsageError if another trace is asked for that the output cannot hold."""
    if asked.beside is not None:
        if asked.alone:
            raise click.UsageError("--with and --alone exclude each other")
        check_beside(form, asked.beside, asked.drawing)


def _merge(recordings: list[Recording], asked: Asked) -> tuple[Result, list[str]]:
    """Merge recordings into one trace; return the result and lines about it.

    They may be a guest's and its host's. Raises click.UsageError if a cut or parts
    (--max-size) are asked for, without a target, or for another format than Perfetto; TraceError.
    """
    from biotrail.cli.converting import merging

    target = asked.target
    if asked.cut != Cut():
        raise click.UsageError(
            "a part of several recordings cannot be chosen: convert parts one by one"
        )
    if asked.drawing.max_size is not None:
        raise click.UsageError("several recordings go into one file: leave --max-size out")
    if target is None:
        raise click.UsageError("logs of several recordings have no default output: give -o OUT")
    form, target = format_and_path(target, target, asked.form)
    if form != PERFETTO:
        raise click.UsageError(
            f"logs of several recordings go into one Perfetto trace only: convert to {form} one "
            "by one"
        )
    _check_beside(form, asked)
    joined = None
    if asked.guest.guest_of is not None:
        joined = asked.guest.join([one.paths for one in recordings], asked.reading)
    return merging.convert(recordings, target, asked.force, asked.drawing, asked.beside, joined)
