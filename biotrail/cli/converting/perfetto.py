# SPDX-License-Identifier: Apache-2.0
"""Conversion to Perfetto: one file, several parts, or standard output."""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from biotrail.cli.converting.expecting import announced
from biotrail.cli.converting.result import Result, to_stdout
from biotrail.cli.options import compressing
from biotrail.cli.options.cuts import Opened
from biotrail.cli.options.drawing import Drawing
from biotrail.converters.analysis.blame.timeline import Timeline
from biotrail.converters.events.tables import Lifecycles
from biotrail.converters.outputs.perfetto.names import Detail
from biotrail.converters.outputs.perfetto.summary import PerfettoSummary
from biotrail.converters.pipeline import Trace
from biotrail.converters.sites.tables import Following
from biotrail.recorder.output import output
from biotrail.text import units

if TYPE_CHECKING:  # imported where another trace is given
    from biotrail.cli.converting.beside import Beside


def write(
    source: Opened,
    lifecycles: Iterator[Lifecycles],
    target: str,
    force: bool,
    drawing: Drawing,
    beside: "Beside | None" = None,
) -> Result:
    """Write the windows to `target` (`-`: standard output), or to parts beside it.

    source: the trace that `lifecycles` are windows of. force: replace existing files. beside:
    another trace that goes into the same file, which then has no parts. If `drawing`
    has a `max_size`, the files are `part_path(target, 1)`, 2, …; `target` itself is not written.
    Raises TraceError; no partial output is left then.
    """
    if target == "-":
        return to_stdout(lambda out: write_stream(source, lifecycles, out, drawing, beside).warning)
    if drawing.max_size is not None:
        return _write_parts(source, lifecycles, target, force, drawing)
    with (
        output.replacing(target, force=force) as stream,
        compressing.compressed(stream, target) as out,
    ):
        summary = write_stream(source, lifecycles, out, drawing, beside)
    size = os.stat(target).st_size
    notes = (*lives_lines(source, summary.lives), *(beside.lines() if beside else ()))
    return Result(Path(target), size, summary.warning, notes=notes, view=summary.view)


def lives_lines(source: Opened, lives: int) -> tuple[str, ...]:
    """Return a line on the lives of followed objects that were drawn; empty: there are none."""
    if not lives:
        return ()
    kind = Following(source.trace.context.header).type
    return (f"  {units.plural(lives, 'life', 'lives')} of {kind}, a track each",)


def write_stream(
    source: Opened,
    lifecycles: Iterator[Lifecycles],
    out: BinaryIO,
    drawing: Drawing,
    beside: "Beside | None" = None,
) -> PerfettoSummary:
    """Write the windows to `out`, uncompressed and as one trace, whatever `drawing.max_size` is.

    Says on standard error if that becomes large, before it is written. source: the trace that
    `lifecycles` are windows of. beside: another trace that is written there, too. Raises
    TraceError.
    """
    from biotrail.converters.outputs.perfetto import convert as perfetto

    trace = source.trace
    lifecycles = announced(source, lifecycles, drawing)
    how = _converter_arguments(source, drawing)
    if beside is None:
        windows, blame = blamed(lifecycles, trace, drawing)
        return perfetto.convert(windows, trace.context, out, blame=blame, **how)
    beside.check(drawing)
    aligned = map(beside.joined.alignment.lifecycles, lifecycles)
    windows, how["blame"] = blamed(aligned, trace, drawing)
    place = beside.place(trace)
    return beside.written(
        out, lambda: perfetto.convert(windows, trace.context, out, place=place, **how)
    )


def blamed(
    windows: Iterator[Lifecycles], trace: Trace, drawing: Drawing
) -> tuple[Iterator[Lifecycles], Timeline | None]:
    """Return the windows, and who slowed whom, which takes them in; None: is not drawn."""
    if not drawing.detail.requests:
        return windows, None
    timeline = Timeline(trace.context)
    return timeline.watching(windows), timeline


def _converter_arguments(source: Opened, drawing: Drawing) -> dict[str, Any]:
    """Return the keyword arguments of the Perfetto converter for this trace and drawing.

    `facts`, the attributes of the trace, say which part of the log was chosen and, unless it is the
    standard, the detail.
    """
    trace = source.trace
    facts = source.cut.facts(trace)
    if drawing.detail != Detail.STANDARD:
        facts["detail"] = str(drawing.detail)
    return {
        "stacks": trace.stacks,
        "facts": facts,
        "to_end": trace.span is not None,
        **drawing.choices,
    }


def _write_parts(
    source: Opened, lifecycles: Iterator[Lifecycles], target: str, force: bool, drawing: Drawing
) -> Result:
    """Write the windows to files of about `drawing.max_size` bytes, named by `part_path`.

    A part is larger if one window's packets are, or by what is written at its end. The result's
    `notes` lists the files, and says so of larger ones, and of a next part that an earlier
    conversion has left. Raises TraceError.
    """
    from biotrail.converters.outputs.perfetto.parts import convert_parts

    paths: list[Path] = []
    limit = drawing.max_size or 0
    with ExitStack() as files:

        def opened(number: int) -> BinaryIO:
            path = part_path(target, number)
            stream = files.enter_context(output.replacing(path, force=force))
            paths.append(path)
            return files.enter_context(compressing.compressed(stream, path))

        how = _converter_arguments(source, drawing)
        parts = convert_parts(lifecycles, source.trace.context, opened, limit, **how)
    sizes = [os.stat(path).st_size for path in paths]
    notes = [f"  {path} ({units.size(size)})" for path, size in zip(paths, sizes, strict=True)]
    notes += lives_lines(source, sum(part.lives for part in parts))
    if large := sum(part.bytes > limit for part in parts):
        what = units.plural(large, "part")
        notes.append(f"  {what} above --max-size: a part's last window, or its end, went beyond")
    if part_path(target, len(paths) + 1).exists():
        notes.append(f"  {part_path(target, len(paths) + 1)} is of an earlier conversion")
    return Result(paths[0], sum(sizes), parts=len(paths), notes=tuple(notes))


def part_path(target: str, number: int) -> Path:
    """Return the path of a part: `disk-1.pftrace.gz` for `disk.pftrace.gz` and 1."""
    plain = Path(compressing.plain(target))
    name = f"{plain.stem}-{number}{plain.suffix}{target[len(str(plain)) :]}"
    return plain.with_name(name)
