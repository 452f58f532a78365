# SPDX-License-Identifier: Apache-2.0
"""`biotrail convert`: conversion of logs to a Perfetto trace, OTF2 or blktrace's files."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from biotrail.cli.converting import perfetto
from biotrail.cli.converting.perfetto import LEAST_PART, Result, open_lines, window_events
from biotrail.cli.options import compressing
from biotrail.cli.options.cuts import Cut, Opened, Times, cut_of, cut_options, opened
from biotrail.cli.options.ending import terminated_as_interrupted
from biotrail.cli.options.gathering import added, flag, gathered, member, option
from biotrail.cli.options.guests import GuestOf, guest_options
from biotrail.cli.options.opening import Reading, reading_options
from biotrail.cli.options.recordings import (
    Recording,
    logs_argument,
    open_recordings,
    without_log_ending,
)
from biotrail.converters.events.tables import Lifecycles
from biotrail.converters.outputs.perfetto.names import Colour, Detail, Options
from biotrail.converters.pipeline import Trace
from biotrail.recorder.output import output
from biotrail.recorder.schema.errors import ConversionError
from biotrail.text import tallies, units, values
from biotrail.text.printing import say_all
from biotrail.text.progress import progress

if TYPE_CHECKING:
    from biotrail.cli.converting.other_trace import OtherTrace

PERFETTO, OTF2, BLKTRACE = "perfetto", "otf2", "blktrace"
ENDINGS = {".pftrace": PERFETTO, ".perfetto-trace": PERFETTO, ".otf2": OTF2, ".blktrace": BLKTRACE}
SUFFIX = {PERFETTO: ".pftrace", OTF2: ".otf2", BLKTRACE: ".blktrace"}


def format_and_path(log: str, target: str | None, form: str | None) -> tuple[str, str]:
    """Return (format, output path) from -o and --format. log: its name is the output's default."""
    if target is None:
        if log == "-":
            raise click.UsageError("a log from standard input needs -o OUT")
        form = form or PERFETTO
        stem = without_log_ending(log)
        made = stem + SUFFIX[form]
        return form, made if made != log else f"{stem}-bios{SUFFIX[form]}"
    if target == "-":
        if form in (OTF2, BLKTRACE):
            raise click.UsageError(f"{form} output is a directory: give -o OUT")
        if sys.stdout.isatty():
            raise click.UsageError("-o - writes a binary trace: send it to a file or a pipe")
        return PERFETTO, target
    plain = compressing.plain(target)
    ending = Path(plain).suffix
    if target.endswith("/") and ending not in ENDINGS:
        return form or OTF2, target
    if form is None and ending not in ENDINGS:
        known = ", ".join(ENDINGS)
        raise click.UsageError(
            f"the ending of {target} names no format ({known}): give --format as well"
        )
    form = form or ENDINGS[ending]
    if form != PERFETTO and compressing.plain(target) != target:
        raise click.UsageError(f"{form} output is a directory, which {target} cannot be")
    return form, target


BLKTRACE_FILES = "*.blktrace.*"
OTF2_ANCHOR = "traces.otf2"


def _to_otf2(trace: Trace, lifecycles: Iterator[Lifecycles], target: str, force: bool) -> Result:
    from biotrail.converters.outputs.otf2 import convert as otf2

    with output.replacing_directory(target, force=force, marker=OTF2_ANCHOR) as part:
        summary = otf2.convert(lifecycles, trace.context, part)
    path = Path(target)
    files = (file.stat().st_size for file in path.rglob("*") if file.is_file())
    notes = []
    if summary.cancelled:
        what = units.plural(summary.cancelled, "operation")
        notes.append(f"  {what} cancelled: no completion is known (docs/otf2.md)")
    if summary.moved:
        what = units.plural(summary.moved, "time")
        notes.append(f"  {what} moved: the log contradicts itself, and OTF2 wants an order")
    return Result(path, sum(files), notes=tuple(notes))


def _to_blktrace(trace: Trace, target: str, force: bool) -> Result:
    if trace.context.is_light:
        raise ConversionError(
            "a light log has no events that blktrace has records for: record again with "
            "biotrail record --events minimal"
        )
    from biotrail.converters.outputs.blktrace import convert as blktrace

    with output.replacing_directory(target, force=force, marker=BLKTRACE_FILES) as part:
        summary = blktrace.write(trace.shown_events(), trace.context, part)
    notes = [f"  {units.plural(summary.records, 'record')} for blkparse and btt"]
    if summary.left_out:
        kinds = ", ".join(f"{letter} {units.count(n)}" for letter, n in summary.left_out.items())
        notes.append(f"  left out, as blktrace has no record for them: {kinds}")
    notes += [f"  {line}" for line in tallies.own_lines(trace)]
    notes += [f"read it: blkparse -i {Path(target) / p.name}" for p in summary.sets.values()]
    return Result(Path(target), summary.bytes, notes=tuple(notes))


@dataclass(frozen=True)
class DrawingOptions(Options):
    """Options of `convert` by which a trace is drawn."""

    detail: Detail = member(
        "--detail",
        Detail.STANDARD,
        "What a Perfetto trace holds. full: everything; standard: everything of the slowest "
        "I/Os, of others no arguments; stages: no arguments and no requests; bios: no stages "
        "either.",
    )
    colour: Colour = member(
        "--colour",
        Colour.AUTO,
        "Colours of a Perfetto trace: by operation; by family (a bio, its requests, and their "
        "I/O on lower devices); auto: by operation, but by family where I/O passes through stacked "
        "devices.",
    )
    every_arrow: bool = flag(
        "--flows", "Draw the arrows of all I/O in a Perfetto trace, not of the slowest alone."
    )
    every_call: bool = flag(
        "--all-calls",
        "Draw system calls that neither queued nor waited for I/O, too, such as reads of a pipe.",
    )
    ftrace: bool = flag(
        "--ftrace",
        "Write requests as ftrace's block_io_start and block_io_done, too, for what Perfetto "
        "itself has for block I/O: SQL (linux.block_io) and the UI's Queued IO requests.",
    )


@dataclass(frozen=True)
class ConvertOptions:
    target: str | None = option(
        "-o",
        "--output",
        metavar="OUT",
        type=values.FileName(),
        help="The output. Default: LOG with the ending of the format.",
    )
    """Path of the output; None: made from the log's; `-`: standard output."""
    form: str | None = option(
        "--format",
        type=click.Choice([PERFETTO, OTF2, BLKTRACE]),
        help="Format of OUT. Default: by its ending (.pftrace, .otf2 or DIR/, .blktrace), else "
        "perfetto.",
    )
    beside: str | None = option(
        "--with",
        metavar="TRACE",
        type=values.FileName(),
        help="Write LOG's tracks into a copy of this Perfetto trace, which Perfetto's recorder or "
        "another program made on the same boot; .gz and .zst as well.",
    )
    alone: bool = flag(
        "--alone",
        "Of a LOG that is a Perfetto trace itself, write what is made of its block events "
        "alone, not beside its own packets.",
    )
    cut: Cut = added(cut_options)
    max_size: int | None = option(
        "--max-size",
        type=units.size_from(),
        metavar="SIZE",
        help="Split a Perfetto trace into files of at most this size, e.g. 500M: OUT-1.pftrace, "
        "OUT-2.pftrace, …",
    )
    drawing: DrawingOptions = added(gathered(DrawingOptions, "drawing"))
    reading: Reading = added(reading_options(own_io=True, labels=True))
    guest: GuestOf = added(guest_options)
    force: bool = flag("-f", "--force", "Replace OUT if it exists.")


@click.command()
@logs_argument
@gathered(ConvertOptions, "asked")
def command(logs: tuple[str, ...], asked: ConvertOptions) -> None:
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
    guest, reading, drawing = asked.guest, asked.reading, asked.drawing
    if drawing.ftrace and not drawing.detail.requests:
        raise click.UsageError(f"--ftrace is of requests, which --detail {drawing.detail} has not")
    with terminated_as_interrupted():
        guest.check(asked.beside is not None, "and --with exclude each other")
        if asked.beside is not None and asked.alone:
            raise click.UsageError("--with and --alone exclude each other")
        if asked.beside == "-":
            raise click.UsageError(
                "--with reads its trace twice, so it cannot be a pipe: give a file"
            )
        if len(logs) == 1 and guest.guest_of is None:
            form, target = _checked_output(logs[0], asked)  # before a pipe is read
            with opened(logs[0], asked.cut, reading) as source:
                result, lines = convert_one(logs[0], source, form, target, asked)
        elif len(given := open_recordings(logs, reading)) > 1 or guest.guest_of is not None:
            result, lines = _merge(given, asked)
        else:
            form, target = _checked_output(given[0].paths[0], asked)
            source = cut_of(lambda: open_recordings(logs, reading)[0].trace, asked.cut)
            result, lines = convert_one(given[0].paths[0], source, form, target, asked)
    say_all(lines, err=result.path is None)


def convert_one(
    log: str, source: Opened, form: str, target: str, asked: ConvertOptions
) -> tuple[Result, list[str]]:
    """Return what was written, and lines on how certain it is, what it lacks, how to open it."""
    trace, force = source.trace, asked.force
    is_trace = trace.context.header.get("backend") == "perfetto"
    other = None
    if asked.beside is not None or (form == PERFETTO and not asked.alone and is_trace):
        other = _other_trace(log, source, asked)
    if form == BLKTRACE:
        result = _to_blktrace(trace, target, force)
    else:
        most = None if asked.max_size is None else window_events(asked.max_size)
        with progress(trace, window_events=most) as windows:
            lifecycles = source.chosen(windows)
            if form == OTF2:
                result = _to_otf2(trace, lifecycles, target, force)
            else:
                result = perfetto.write(
                    source, lifecycles, target, force, asked.drawing,
                    max_size=asked.max_size, beside=other,
                )  # fmt: skip
    cut = [f"  {line}" for line in source.lines()]
    where = "standard output" if result.path is None else str(result.path)
    size = f" ({units.size(result.bytes)})" if result.bytes else ""
    if form == BLKTRACE:
        return result, [f"wrote {where}{size}", *cut, *result.notes]
    what = units.plural(result.parts, "part") if result.parts else where
    found = [f"wrote {what}{size}: {units.plural(trace.account.total, 'event')}"]
    found += [*result.notes, *cut]
    found += [f"  {line}" for line in tallies.certainty_lines(trace)]
    found += [f"  {line}" for line in tallies.own_lines(trace)]
    found += [f"  {line}" for line in tallies.loss_lines(trace)] or ["  nothing is missing"]
    if result.warning:
        found.append(result.warning)
    if form == OTF2:
        found.append(f"open it: otf2-print {where}/{OTF2_ANCHOR}, or Vampir")
    elif result.path is not None:
        found += open_lines(where, result)
    return result, found


def _other_trace(log: str, source: Opened, asked: ConvertOptions) -> "OtherTrace | None":
    """Return the trace that the log's tracks are written beside: that of --with, or LOG itself."""
    from biotrail.cli.converting.other_trace import OtherTrace, other_traces
    from biotrail.converters.clocks.perfetto_trace import itself
    from biotrail.converters.inputs.perfetto.source import PerfettoSource

    if asked.beside is not None:
        return other_traces(asked.beside, [(log, source.trace)])[0]
    if asked.max_size is not None:
        raise click.UsageError("--max-size writes a Perfetto trace's bios alone: give --alone, too")
    reader = source.trace.reader
    if not isinstance(reader, PerfettoSource):
        return None
    return OtherTrace(reader.name, reader.survey, itself(reader.survey), reader.again)


def _checked_output(log: str, asked: ConvertOptions) -> tuple[str, str]:
    """Return the output's format and path, if the options go with the format."""
    form, target = format_and_path(log, asked.target, asked.form)
    drawing = asked.drawing
    if form != PERFETTO and drawing.detail != Detail.STANDARD:
        raise click.UsageError("--detail is for Perfetto traces")
    if form != PERFETTO and drawing.colour != Colour.AUTO:
        raise click.UsageError("--colour is for Perfetto traces")
    if form != PERFETTO and (drawing.every_arrow or drawing.every_call or drawing.ftrace):
        raise click.UsageError("--flows, --all-calls and --ftrace are for Perfetto traces")
    if asked.max_size is not None:
        if form != PERFETTO or target == "-":
            raise click.UsageError("--max-size is for Perfetto traces that are written to files")
        if asked.max_size < LEAST_PART:
            raise click.UsageError(f"--max-size must be at least {units.size(LEAST_PART)}")
    if form == BLKTRACE and replace(asked.cut, times=Times()) != Cut():
        raise click.UsageError(
            "files for blkparse hold records, of whole devices: only --from, --to and --around "
            "choose among these"
        )
    if asked.beside is not None and form != PERFETTO:
        raise click.UsageError("--with is for Perfetto traces")
    if asked.beside is not None and asked.max_size is not None:
        raise click.UsageError("--with writes one file: leave --max-size out")
    return form, target


def _merge(recordings: list[Recording], asked: ConvertOptions) -> tuple[Result, list[str]]:
    from biotrail.cli.converting import merging

    target = asked.target
    if asked.cut != Cut():
        raise click.UsageError(
            "a part of several recordings cannot be chosen: convert parts one by one"
        )
    if asked.max_size is not None:
        raise click.UsageError("several recordings go into one file: leave --max-size out")
    if target is None:
        raise click.UsageError("logs of several recordings have no default output: give -o OUT")
    form, target = format_and_path(target, target, asked.form)
    if form != PERFETTO:
        raise click.UsageError(
            f"logs of several recordings go into one Perfetto trace only: convert to {form} one "
            "by one"
        )
    joined = asked.guest.joined(recordings, asked.reading)
    return merging.convert(recordings, target, asked.force, asked.drawing, asked.beside, joined)
