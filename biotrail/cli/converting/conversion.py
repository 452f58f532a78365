# SPDX-License-Identifier: Apache-2.0
"""Conversion of one log to a Perfetto trace, OTF2 or blktrace's files, and lines about it."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from biotrail.cli.converting import perfetto
from biotrail.cli.converting.formats import BLKTRACE, OTF2
from biotrail.cli.converting.result import Result, open_lines
from biotrail.cli.options.cuts import Opened
from biotrail.cli.options.drawing import Drawing
from biotrail.converters.events.tables import Lifecycles
from biotrail.converters.pipeline import Trace
from biotrail.recorder.output import output
from biotrail.recorder.schema.errors import ConversionError
from biotrail.text import tallies, units
from biotrail.text.progress import progress

if TYPE_CHECKING:  # imported where another trace is given
    from biotrail.cli.converting.beside import Beside

BLKTRACE_FILES = "*.blktrace.*"
OTF2_ANCHOR = "traces.otf2"
WHOLE = Drawing()


def convert(
    source: Opened,
    form: str,
    target: str,
    force: bool,
    drawing: Drawing = WHOLE,
    beside: "Beside | None" = None,
) -> Result:
    """Convert the chosen part of the trace to `target`. drawing: how a Perfetto trace is written.

    beside: another trace that a Perfetto trace is written beside.
    Raises TraceError; no partial output is left then.
    """
    trace = source.trace
    if form == BLKTRACE:
        return _to_blktrace(trace, target, force)
    with progress(trace, window_events=drawing.window_events) as windows:
        lifecycles = source.chosen(windows)
        if form == OTF2:
            return _to_otf2(trace, lifecycles, target, force)
        return perfetto.write(source, lifecycles, target, force, drawing, beside)


def _to_otf2(trace: Trace, lifecycles: Iterator[Lifecycles], target: str, force: bool) -> Result:
    """Write the windows as an OTF2 archive, the directory `target`, with OTF2_ANCHOR in it.

    force: replace a directory that is such an archive. The result's `notes` says how many
    operations were cancelled for want of a completion, and times moved into order.
    Raises TraceError; the directory then stays as it was.
    """
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
    """Write the trace's events as blktrace's files in the directory `target`, a set per device.

    force: replace a directory that holds such files. The result's `notes` gives the numbers of
    records, and of those that blktrace has no record for, and how to read each set. Raises
    TraceError; the directory then stays as it was. ConversionError: a light log has none of them.
    """
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


def report_lines(source: Opened, result: Result, form: str) -> list[str]:
    """Return lines that say what was written, how certain it is, what it lacks, how to open it.

    source: read to its end. form: PERFETTO, OTF2 or BLKTRACE; of the last, which holds records,
    there is nothing to say about certainty and losses.
    """
    trace = source.trace
    cut = [f"  {line}" for line in source.lines()]
    where = "standard output" if result.path is None else str(result.path)
    size = f" ({units.size(result.bytes)})" if result.bytes else ""
    if form == BLKTRACE:
        return [f"wrote {where}{size}", *cut, *result.notes]
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
    return found
