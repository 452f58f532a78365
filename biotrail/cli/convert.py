# SPDX-License-Identifier: Apache-2.0
"""`biotrail convert`: conversion of logs to a Perfetto trace, OTF2 or blktrace's files."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import click

from biotrail.cli.converting.perfetto import LEAST_PART, Drawing, Result
from biotrail.cli.options import compressing
from biotrail.cli.options.cut_options import cut_options
from biotrail.cli.options.cuts import Cut, Opened, cut_of, opened
from biotrail.cli.options.moments import Times
from biotrail.cli.options.opening import associate_option, own_io_option
from biotrail.cli.options.perfetto_ui import UI, address
from biotrail.cli.options.recordings import Recording, logs_argument, open_recordings
from biotrail.cli.options.terminating import terminated_as_interrupted
from biotrail.converters.events.tables import Lifecycles
from biotrail.converters.outputs.perfetto.names import Colour, Detail
from biotrail.converters.pipeline import Trace
from biotrail.recorder.output import output
from biotrail.text import tallies, units
from biotrail.text.printing import say_all
from biotrail.text.progress import progress

LOG_SUFFIXES = (".biotrail", ".parquet")
PERFETTO, OTF2, BLKTRACE = "perfetto", "otf2", "blktrace"
ENDINGS = {
    ".pftrace": PERFETTO,
    ".perfetto-trace": PERFETTO,
    ".otf2": OTF2,
    ".blktrace": BLKTRACE,
}
SUFFIX = {PERFETTO: ".pftrace", OTF2: ".otf2", BLKTRACE: ".blktrace"}
BLKTRACE_FILES = "*.blktrace.*"
OTF2_ANCHOR = "traces.otf2"
WHOLE = Drawing()


@click.command()
@logs_argument
@click.option(
    "-o",
    "--output",
    "target",
    metavar="OUT",
    type=click.Path(),
    help="The output. Default: LOG with the ending of the format.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice([PERFETTO, OTF2, BLKTRACE]),
    help="Format of OUT. Default: by its ending (.pftrace, .otf2 or DIR/, .blktrace), else "
    "perfetto.",
)
@cut_options
@click.option(
    "--max-size",
    type=units.Size(),
    metavar="SIZE",
    help="Split a Perfetto trace into files of at most this size, e.g. 500M: OUT-1.pftrace, "
    "OUT-2.pftrace, …",
)
@click.option(
    "--detail",
    type=click.Choice([str(detail) for detail in Detail]),
    default=str(Detail.FULL),
    show_default=True,
    help="What a Perfetto trace holds. full: everything; stages: no arguments and no requests; "
    "bios: no stages either.",
)
@click.option(
    "--colour",
    type=click.Choice([str(colour) for colour in Colour]),
    default=str(Colour.AUTO),
    show_default=True,
    help="Colours of a Perfetto trace: by operation; by family (a bio, its requests, and their "
    "I/O on lower devices); auto: by operation, but by family where I/O passes through stacked "
    "devices.",
)
@associate_option
@own_io_option
@click.option("-f", "--force", is_flag=True, help="Replace OUT if it exists.")
def command(
    logs: tuple[str, ...],
    target: str | None,
    form: str | None,
    cut: Cut,
    max_size: int | None,
    detail: str,
    colour: str,
    associate: str,
    own_io: bool,
    force: bool,
) -> None:
    """Turn a LOG into a Perfetto trace, an OTF2 archive or files for blkparse and btt.

    LOG is a log, an archive, or blktrace's files: DEV (for DEV.blktrace.*) or one merged
    stream. A trace is a file, compressed if its name ends in .gz or .zst; an OTF2 archive is
    a directory, and so are files for blkparse, one set for each device. The output is readable
    by you alone, and appears under its name when it is complete. LOG - reads standard input;
    -o - writes a Perfetto trace to standard output. docs/cuts.md describes the options that
    choose a part of a log.

    Several LOGs: the files of one rotated recording, in any order, are read as one log; logs
    of several recordings or hosts become one Perfetto trace on one timeline (docs/hosts.md).

    \b
    biotrail convert disk.biotrail                  # → disk.pftrace
    biotrail convert --from 10s --to 12s -d nvme0n1 disk.biotrail -o short.pftrace.gz
    biotrail convert --slowest 1000 disk.biotrail -o slowest.pftrace
    biotrail convert disk.biotrail -o disk.otf2     # → disk.otf2/traces.otf2
    biotrail convert sda                            # sda.blktrace.* → sda.pftrace
    biotrail convert db1.biotrail db2.biotrail -o both.pftrace
    biotrail convert disk-*.biotrail                # a rotated recording: one trace
    biotrail convert disk.biotrail -o d.blktrace && blkparse -i d.blktrace/nvme0n1
    ssh host sudo biotrail record -o - --duration 5s | biotrail convert - -o host.pftrace
    """  # noqa: D301 - \b is click's mark for text that keeps its lines
    drawing = Drawing(max_size, Detail(detail), Colour(colour))
    how = associate, own_io
    with terminated_as_interrupted():
        if len(logs) == 1:
            form, target = checked(logs[0], target, form, cut, drawing)  # before a pipe is read
            with opened(logs[0], cut, *how) as source:
                result = convert(source, form, target, force, drawing)
            lines = report_lines(source, result, form)
        else:
            recordings = open_recordings(logs, *how)
            if len(recordings) == 1:
                form, target = checked(recordings[0].paths[0], target, form, cut, drawing)
                source = cut_of(lambda: open_recordings(logs, *how)[0].trace, cut)
                result = convert(source, form, target, force, drawing)
                lines = report_lines(source, result, form)
            else:
                if cut != Cut() or replace(drawing, colour=Colour.AUTO) != WHOLE:
                    raise click.UsageError(
                        "a part of several recordings cannot be chosen: convert parts one by one"
                    )
                result, lines = _convert_several(recordings, form, target, force, drawing)
    say_all(lines, err=result.path is None)


def checked(
    log: str, target: str | None, form: str | None, cut: Cut, drawing: Drawing
) -> tuple[str, str]:
    """Return (format, output path) as `chosen` does.

    Raises click.UsageError also if the format does not support `cut` or `drawing`.
    """
    form, target = chosen(log, target, form)
    check_drawing(form, target, drawing)
    if form == BLKTRACE:
        check_records(cut)
    return form, target


def _convert_several(
    recordings: list[Recording],
    form: str | None,
    target: str | None,
    force: bool,
    drawing: Drawing,
) -> tuple[Result, list[str]]:
    """Merge recordings into one trace; return the result and lines about it.

    Raises click.UsageError without `target`, or for another format than Perfetto.
    """
    from biotrail.cli.converting import merging

    if target is None:
        raise click.UsageError("logs of several recordings have no default output: give -o OUT")
    form, target = chosen(target, target, form)
    if form != PERFETTO:
        raise click.UsageError(
            f"logs of several recordings go into one Perfetto trace only: convert to {form} one "
            "by one"
        )
    return merging.convert(recordings, target, force, drawing.colour)


def chosen(log: str, target: str | None, form: str | None) -> tuple[str, str]:
    """Return (format, output path; `-` is standard output) from -o and --format.

    log: the path from which the output's default name is made. target, form: the options'
    values, None if not given. Raises click.UsageError.
    """
    if target is None:
        if log == "-":
            raise click.UsageError("a log from standard input needs -o OUT")
        form = form or PERFETTO
        return form, stem(log) + SUFFIX[form]
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


def check_drawing(form: str, target: str, drawing: Drawing) -> None:
    """Raise click.UsageError if the output cannot be written as `drawing` says."""
    if form != PERFETTO and drawing.detail != Detail.FULL:
        raise click.UsageError("--detail is for Perfetto traces")
    if form != PERFETTO and drawing.colour != Colour.AUTO:
        raise click.UsageError("--colour is for Perfetto traces")
    max_size = drawing.max_size
    if max_size is None:
        return
    if form != PERFETTO or target == "-":
        raise click.UsageError("--max-size is for Perfetto traces that are written to files")
    if max_size < LEAST_PART:
        raise click.UsageError(f"--max-size must be at least {units.size(LEAST_PART)}")


def check_records(cut: Cut) -> None:
    """Raise click.UsageError if `cut` chooses by more than time.

    Files for blktrace's tools hold the records of whole devices.
    """
    if replace(cut, times=Times()) != Cut():
        raise click.UsageError(
            "files for blkparse hold records, of whole devices: only --from, --to and --around "
            "choose among these"
        )


def stem(log: str) -> str:
    """Return the log's path without .biotrail and .parquet, and without slashes at its end."""
    for suffix in LOG_SUFFIXES:
        log = log.rstrip("/").removesuffix(suffix)
    return log


def convert(
    source: Opened, form: str, target: str, force: bool, drawing: Drawing = WHOLE
) -> Result:
    """Convert the chosen part of the trace to `target`. drawing: how a Perfetto trace is written.

    Raises TraceError; no partial output is left then.
    """
    trace = source.trace
    if form == BLKTRACE:
        return _to_blktrace(trace, target, force)
    with progress(trace, window_events=drawing.window_events) as windows:
        lifecycles = source.chosen(windows)
        if form == OTF2:
            return _to_otf2(trace, lifecycles, target, force)
        return drawing.write(source, lifecycles, target, force)


def _to_otf2(trace: Trace, lifecycles: Iterator[Lifecycles], target: str, force: bool) -> Result:
    """Write the windows as an OTF2 archive, the directory `target`."""
    from biotrail.converters.outputs.otf2 import convert as otf2

    with output.replacing_directory(target, force=force, marker=OTF2_ANCHOR) as part:
        summary = otf2.convert(lifecycles, trace.context, part)
    path = Path(target)
    files = (file.stat().st_size for file in path.rglob("*") if file.is_file())
    told = []
    if summary.cancelled:
        what = units.plural(summary.cancelled, "operation")
        told.append(f"  {what} cancelled: no completion is known (docs/otf2.md)")
    if summary.moved:
        what = units.plural(summary.moved, "time")
        told.append(f"  {what} moved: the log contradicts itself, and OTF2 wants an order")
    return Result(path, sum(files), told=tuple(told))


def _to_blktrace(trace: Trace, target: str, force: bool) -> Result:
    """Write the trace's events as blktrace's files in the directory `target`."""
    from biotrail.converters.outputs.blktrace import convert as blktrace

    with output.replacing_directory(target, force=force, marker=BLKTRACE_FILES) as part:
        summary = blktrace.write(trace.shown_events(), trace.context, part)
    told = [f"  {units.plural(summary.records, 'record')} for blkparse and btt"]
    if summary.left_out:
        kinds = ", ".join(f"{letter} {units.count(n)}" for letter, n in summary.left_out.items())
        told.append(f"  left out, as blktrace has no record for them: {kinds}")
    told += [f"  {line}" for line in tallies.own_lines(trace)]
    told += [f"read it: blkparse -i {Path(target) / p.name}" for p in summary.sets.values()]
    return Result(Path(target), summary.bytes, told=tuple(told))


def report_lines(source: Opened, result: Result, form: str) -> list[str]:
    """Return lines that say what was written, how certain it is, what it lacks, how to open it."""
    trace = source.trace
    cut = [f"  {line}" for line in source.lines()]
    where = "standard output" if result.path is None else str(result.path)
    size = f" ({units.size(result.bytes)})" if result.bytes else ""
    if form == BLKTRACE:
        return [f"wrote {where}{size}", *cut, *result.told]
    what = units.plural(result.parts, "part") if result.parts else where
    found = [f"wrote {what}{size}: {units.plural(trace.account.total, 'event')}"]
    found += [*result.told, *cut]
    found += [f"  {line}" for line in tallies.certainty_lines(trace)]
    found += [f"  {line}" for line in tallies.own_lines(trace)]
    found += [f"  {line}" for line in tallies.loss_lines(trace)] or ["  nothing is missing"]
    if result.warning:
        found.append(result.warning)
    if form == OTF2:
        found.append(f"open it: otf2-print {where}/{OTF2_ANCHOR}, or Vampir")
    elif result.path is not None:
        found += open_lines(where, result)
    return found


def open_lines(where: str, result: Result) -> list[str]:
    """Return lines that say how to open a Perfetto trace, with the UI's address."""
    return [
        f"open it: biotrail view {where}, or drop it here (it stays in the browser):",
        f"  {address(UI, view=result.view)}",
    ]
