# SPDX-License-Identifier: Apache-2.0
"""Conversion to Perfetto: one file, several parts, or standard output; what was written."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from biotrail.cli.options import compressing
from biotrail.cli.options.cuts import Opened
from biotrail.cli.options.perfetto_ui import UI, address
from biotrail.converters.events.tables import Lifecycles
from biotrail.converters.inputs.log import Indexed
from biotrail.converters.outputs.perfetto.names import Detail, Options
from biotrail.converters.outputs.perfetto.place import Place
from biotrail.converters.outputs.perfetto.summary import LARGE, PerfettoSummary, View, expected
from biotrail.converters.pipeline import WINDOW_EVENTS
from biotrail.converters.sites.tables import Following
from biotrail.recorder.output import output
from biotrail.recorder.schema.errors import OutputError
from biotrail.text import units
from biotrail.text.printing import StatusLine, say

if TYPE_CHECKING:
    from biotrail.cli.converting.other_trace import OtherTrace


LEAST_PART = 256 << 10
"""Smallest --max-size in bytes: each part repeats the packets that describe the trace."""
_WINDOWS_PER_PART = 16
_BYTES_PER_EVENT = 100
"""Approximate size of an event in a Perfetto trace."""


@dataclass(frozen=True)
class Result:
    path: Path | None
    """The file or directory, or the first of several parts; None: standard output."""
    bytes: int
    """Size of all files; 0 for standard output."""
    warning: str | None = None
    parts: int = 0
    """Number of files, if the trace was split (--max-size); else 0."""
    notes: tuple[str, ...] = ()
    view: View | None = None
    """The part of a Perfetto trace to show first; None: no such part, or several files."""


def written(
    target: str, force: bool, write: Callable[[BinaryIO], PerfettoSummary]
) -> tuple[Result, PerfettoSummary]:
    """Have `write` write a trace to the file `target`, or `-`: to standard output."""
    if target == "-":
        try:
            summary = write(sys.stdout.buffer)
        except OutputError as error:
            if isinstance(error.__cause__, BrokenPipeError):
                raise error.__cause__ from error
            raise
        return Result(None, 0, summary.warning), summary
    with (
        output.replacing(target, force=force) as stream,
        compressing.compressed(stream, target) as out,
    ):
        summary = write(out)
    size = os.stat(target).st_size
    return Result(Path(target), size, summary.warning, view=summary.view), summary


def open_lines(where: str, result: Result) -> list[str]:
    return [
        f"open it: biotrail view {where}, or drop it here (it stays in the browser):",
        f"  {address(UI, view=result.view)}",
    ]


def announced(
    source: Opened, lifecycles: Iterator[Lifecycles], options: Options
) -> Iterator[Lifecycles]:
    """Return the windows; first say if their trace becomes large, unless they are a pipe's."""
    seen: list[Lifecycles] = []
    for window in lifecycles:
        seen.append(window)
        if not expected(window, Options(Detail.FULL)):
            continue
        if lines := _large_lines(source, window, options):
            StatusLine().show("")  # in place of the bar
        for line in lines:
            say(line, err=True)
        break
    # Taken out one by one: none is kept in memory.
    return chain((seen.pop(0) for _ in range(len(seen))), lifecycles)


def _large_lines(source: Opened, window: Lifecycles, options: Options) -> list[str]:
    """Return lines on a large trace, by its first window and how much was read until that came."""
    trace, reader = source.trace, source.trace.reader
    if not isinstance(reader, Indexed):
        return []
    bounds = reader.bounds()
    if trace.span is None or bounds is None:  # the share of the chunks that was read
        share = reader.parts_read / reader.parts_total if reader.parts_total > 0 else 0
    else:  # the share of a cut's time
        begin, end = max(trace.span.begin, bounds[0]), min(trace.span.end, bounds[1] + 1)
        share = (window.end - begin) / (end - begin) if window.end > begin < end else 0
    if not share:
        return []
    sizes = {
        detail: expected(window, replace(options, detail=detail)) / min(share, 1)
        for detail in list(Detail)[list(Detail).index(options.detail) :]
    }
    total = sizes.pop(options.detail)
    if total < LARGE:
        return []
    less = [f"--detail {detail} about {_size(size)}" for detail, size in sizes.items()]
    parts = -(-int(total) // LARGE)
    return [
        f"This trace will have about {_size(total)}; a browser opens {_size(LARGE)} comfortably.",
        *([f"  smaller: {', '.join(less)}"] if less else []),
        f"  or a cut: 1/{parts} of the time (--from, --to, --around), a device (-d), what was slow",
        "  (--slower-than, --slowest); or --max-size 500M: in parts that open one by one",
    ]


def _size(count: float) -> str:
    if count >= 1e9:
        return f"{count / 1e9:.1f} GB"
    return f"{count / 1e6:.0f} MB" if count >= 1e6 else f"{count / 1e3:.0f} kB"


def write(
    source: Opened,
    lifecycles: Iterator[Lifecycles],
    target: str,
    force: bool,
    options: Options,
    max_size: int | None = None,
    beside: "OtherTrace | None" = None,
) -> Result:
    """Write the windows to `target` (`-`: standard output), or to parts if a size is given."""
    if max_size is not None and target != "-":
        return _write_parts(source, lifecycles, target, force, options, max_size)
    result, summary = written(
        target, force, lambda out: write_stream(source, lifecycles, out, options, beside)
    )
    if result.path is None:
        return result
    notes = [lives_line(source, summary.lives)] if summary.lives else []
    return replace(result, notes=(*notes, *(beside.lines() if beside else ())))


def lives_line(source: Opened, lives: int) -> str:
    kind = Following(source.trace.context.header).type
    return f"  {units.plural(lives, 'life', 'lives')} of {kind}, a track each"


def write_stream(
    source: Opened,
    lifecycles: Iterator[Lifecycles],
    out: BinaryIO,
    options: Options,
    beside: "OtherTrace | None" = None,
) -> PerfettoSummary:
    from biotrail.converters.outputs.perfetto import convert as perfetto

    context, windows = source.trace.context, announced(source, lifecycles, options)
    how = {**_converter_arguments(source, options), "blame": True}
    if beside is None:
        return perfetto.convert(windows, context, out, **how)
    windows = map(beside.joined.alignment.lifecycles, windows)
    place = beside.placed(Place.alone(context))
    return beside.written(
        out, options, lambda: perfetto.convert(windows, context, out, place=place, **how)
    )


def _converter_arguments(source: Opened, options: Options) -> dict[str, Any]:
    trace = source.trace
    facts = source.cut.facts(trace)
    if options.detail != Detail.STANDARD:
        facts["detail"] = str(options.detail)
    return {
        "stacks": trace.stacks,
        "facts": facts,
        "to_end": trace.span is not None,
        "options": options,
    }


def _write_parts(
    source: Opened,
    lifecycles: Iterator[Lifecycles],
    target: str,
    force: bool,
    options: Options,
    limit: int,
) -> Result:
    """Write to files of about `limit` bytes; one window's packets may be more."""
    from biotrail.converters.outputs.perfetto.convert import convert_parts

    paths: list[Path] = []
    with ExitStack() as files:

        def opened(number: int) -> BinaryIO:
            path = part_path(target, number)
            stream = files.enter_context(output.replacing(path, force=force))
            paths.append(path)
            return files.enter_context(compressing.compressed(stream, path))

        how = _converter_arguments(source, options)
        parts = convert_parts(lifecycles, source.trace.context, opened, limit, **how)
    sizes = [os.stat(path).st_size for path in paths]
    notes = [f"  {path} ({units.size(size)})" for path, size in zip(paths, sizes, strict=True)]
    if lives := sum(part.lives for part in parts):
        notes.append(lives_line(source, lives))
    if large := sum(part.bytes > limit for part in parts):
        what = units.plural(large, "part")
        notes.append(f"  {what} above --max-size: a part's last window, or its end, went beyond")
    if part_path(target, len(paths) + 1).exists():
        notes.append(f"  {part_path(target, len(paths) + 1)} is of an earlier conversion")
    return Result(paths[0], sum(sizes), parts=len(paths), notes=tuple(notes))


def window_events(max_size: int) -> int:
    """Return the events per window with which a part, which ends with a window, fits."""
    wanted = max_size // _WINDOWS_PER_PART // _BYTES_PER_EVENT
    return min(max(wanted, 100), WINDOW_EVENTS)


def part_path(target: str, number: int) -> Path:
    """Return the path of a part: `disk-1.pftrace.gz` for `disk.pftrace.gz` and 1."""
    plain = Path(compressing.plain(target))
    name = f"{plain.stem}-{number}{plain.suffix}{target[len(str(plain)) :]}"
    return plain.with_name(name)
