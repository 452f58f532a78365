# SPDX-License-Identifier: Apache-2.0
"""`biotrail convert`: a log becomes a Perfetto trace or an OTF2 archive."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import click

from biotrail import tallies, units
from biotrail.opening import associate_option, own_io_option
from biotrail.recordings import Recording, logs_argument, open_recordings
from biotrail.terminating import terminated_as_interrupted
from converters.model.lifecycles import Result as Associated
from converters.model.tables import Lifecycles
from converters.model.trace import Trace
from recorder import output
from recorder.errors import OutputError

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
PERFETTO_UI = "https://ui.perfetto.dev"
OnWindow = Callable[[Associated, Lifecycles], None]


@dataclass(frozen=True)
class Result:
    """What a conversion wrote."""

    path: Path | None
    """None: standard output."""
    bytes: int
    warning: str | None = None
    told: tuple[str, ...] = ()
    """More to say of it, a line each."""


@click.command()
@logs_argument
@click.option("-o", "--output", "target", metavar="OUT", help="Default: LOG with another ending.")
@click.option(
    "--format",
    "form",
    type=click.Choice([PERFETTO, OTF2, BLKTRACE]),
    help="Default: by the ending of OUT (.pftrace, .otf2 or DIR/, .blktrace), else perfetto.",
)
@associate_option
@own_io_option
@click.option("-f", "--force", is_flag=True, help="Replace OUT if it exists.")
def command(
    logs: tuple[str, ...],
    target: str | None,
    form: str | None,
    associate: str,
    own_io: bool,
    force: bool,
) -> None:
    """Turn a LOG into a Perfetto trace, an OTF2 archive or files for blkparse and btt.

    LOG is a log, an archive, or blktrace's files: DEV (for DEV.blktrace.*) or one merged
    stream. A trace is a file; an OTF2 archive is a directory, and so are files for blkparse,
    a set for each device. What is written is readable by you alone, and gets its name when it
    is complete. LOG - reads standard input; -o - writes a Perfetto trace to standard output.

    Several LOGs: the files of one rotated recording, in any order, are read as one log; logs
    of several recordings or hosts become one Perfetto trace on one timeline (docs/hosts.md).

    \b
    biotrail convert disk.biotrail                  # → disk.pftrace
    biotrail convert disk.biotrail -o disk.otf2     # → disk.otf2/traces.otf2
    biotrail convert sda                            # sda.blktrace.* → sda.pftrace
    biotrail convert db1.biotrail db2.biotrail -o both.pftrace
    biotrail convert disk-*.biotrail                # a rotated recording: one trace
    biotrail convert disk.biotrail -o d.blktrace && blkparse -i d.blktrace/nvme0n1
    ssh host sudo biotrail record -o - --duration 5s | biotrail convert - -o host.pftrace
    """  # noqa: D301 - \b is click's mark for text that keeps its lines
    if len(logs) == 1:  # before a pipe is read
        form, target = chosen(logs[0], target, form)
    recordings = open_recordings(logs, associate, own_io)
    with terminated_as_interrupted():
        if len(recordings) == 1:
            form, target = chosen(recordings[0].paths[0], target, form)
            result, lines = _convert_one(recordings[0], form, target, force)
        else:
            result, lines = _convert_several(recordings, form, target, force)
    for line in lines:
        click.echo(line, err=result.path is None)


def _convert_one(
    recording: Recording, form: str, target: str, force: bool
) -> tuple[Result, list[str]]:
    result = convert(recording.trace, form, target, force)
    return result, report_lines(recording.trace, result, form)


def _convert_several(
    recordings: list[Recording], form: str | None, target: str | None, force: bool
) -> tuple[Result, list[str]]:
    from biotrail import merging

    if target is None:
        raise click.UsageError("logs of several recordings need -o OUT: whose name it has is open")
    form, target = chosen(target, target, form)
    if form != PERFETTO:
        raise click.UsageError(
            f"logs of several recordings go into one Perfetto trace only: convert to {form} one "
            "by one"
        )
    return merging.convert(recordings, target, force)


def chosen(log: str, target: str | None, form: str | None) -> tuple[str, str]:
    """(format, output) for what was asked for. Raises click.UsageError."""
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
    ending = Path(target).suffix
    if target.endswith("/") and ending not in ENDINGS:
        return form or OTF2, target
    if form is None and ending not in ENDINGS:
        known = ", ".join(ENDINGS)
        raise click.UsageError(
            f"the ending of {target} names no format ({known}): give --format as well"
        )
    return form or ENDINGS[ending], target


def stem(log: str) -> str:
    """The log's path without its ending; of a dataset, its directory's."""
    for suffix in LOG_SUFFIXES:
        log = log.rstrip("/").removesuffix(suffix)
    return log


def convert(trace: Trace, form: str, target: str, force: bool) -> Result:
    """Write the trace's lifecycles to `target`. Raises TraceError; then nothing is left there."""
    if form == BLKTRACE:
        return _to_blktrace(trace, target, force)
    with progress(trace) as lifecycles:
        if form == OTF2:
            return _to_otf2(trace, lifecycles, target, force)
        if target == "-":
            return to_stdout(lambda out: _to_perfetto(trace, lifecycles, out))
        with output.replacing(target, force=force) as stream:
            warning = _to_perfetto(trace, lifecycles, stream)
        return Result(Path(target), os.stat(target).st_size, warning)


def _to_perfetto(trace: Trace, lifecycles: Iterator[Lifecycles], out: BinaryIO) -> str | None:
    from converters import perfetto

    return perfetto.convert(lifecycles, trace.context, out, stacks=trace.stacks).warning


def to_stdout(write: Callable[[BinaryIO], str | None]) -> Result:
    """What `write` writes, which gives a warning or None. Raises OutputError, BrokenPipeError."""
    try:
        return Result(None, 0, write(sys.stdout.buffer))
    except OutputError as error:
        if isinstance(error.__cause__, BrokenPipeError):
            raise error.__cause__ from error
        raise


def _to_otf2(trace: Trace, lifecycles: Iterator[Lifecycles], target: str, force: bool) -> Result:
    from converters import otf2

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
    from converters import blktrace

    with output.replacing_directory(target, force=force, marker=BLKTRACE_FILES) as part:
        summary = blktrace.write(trace.shown_events(), trace.context, part)
    told = [f"  {units.plural(summary.records, 'record')} for blkparse and btt"]
    if summary.left_out:
        kinds = ", ".join(f"{letter} {units.count(n)}" for letter, n in summary.left_out.items())
        told.append(f"  left out, as blktrace has no record for them: {kinds}")
    told += [f"  {line}" for line in tallies.own_lines(trace)]
    told += [f"read it: blkparse -i {Path(target) / p.name}" for p in summary.sets.values()]
    return Result(Path(target), summary.bytes, told=tuple(told))


@contextmanager
def progress(
    trace: Trace, label: str = "converting", on_window: OnWindow | None = None
) -> Iterator[Iterator[Lifecycles]]:
    """The trace's lifecycles, with a bar on standard error where that is a terminal.

    on_window: as of Trace.lifecycles.
    """
    size = trace.reader.size
    if size <= 0 or not sys.stderr.isatty():
        yield trace.lifecycles(on_window=on_window)
        return
    with click.progressbar(length=size, label=label, file=sys.stderr) as bar:

        def reached(offset: int) -> None:
            bar.update(offset - bar.pos)

        yield trace.lifecycles(on_progress=reached, on_window=on_window)
        bar.update(size - bar.pos)


def report_lines(trace: Trace, result: Result, form: str) -> list[str]:
    """What was written, how to look at it, and how far to trust it."""
    where = "standard output" if result.path is None else str(result.path)
    size = f" ({units.size(result.bytes)})" if result.bytes else ""
    if form == BLKTRACE:
        return [f"wrote {where}{size}", *result.told]
    found = [f"wrote {where}{size}: {units.plural(trace.account.total, 'event')}"]
    found += [f"  {line}" for line in tallies.certainty_lines(trace)]
    found += [f"  {line}" for line in tallies.own_lines(trace)]
    found += result.told
    found += [f"  {line}" for line in tallies.loss_lines(trace)] or ["  nothing is missing"]
    if result.warning:
        found.append(result.warning)
    if form == OTF2:
        found.append(f"open it: otf2-print {where}/{OTF2_ANCHOR}, or Vampir")
    elif result.path is not None:
        found.append(f"open it: biotrail view {where}, or {PERFETTO_UI} (it stays in the browser)")
    return found
