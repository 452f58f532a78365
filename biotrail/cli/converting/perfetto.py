# SPDX-License-Identifier: Apache-2.0
"""`biotrail convert` to Perfetto: one file, several parts, or standard output."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from biotrail.cli.options import compressing
from biotrail.cli.options.cuts import Opened
from biotrail.converters.events.tables import Lifecycles
from biotrail.converters.outputs.perfetto.names import Colour, Detail
from biotrail.converters.outputs.perfetto.summary import PerfettoSummary, View
from biotrail.converters.pipeline import WINDOW_EVENTS
from biotrail.recorder.output import output
from biotrail.recorder.schema.errors import OutputError
from biotrail.text import units

LEAST_PART = 256 << 10
"""Smallest --max-size in bytes: each part repeats the packets that describe the trace."""
_WINDOWS_PER_PART = 16
_BYTES_PER_EVENT = 100
"""Approximate size of an event in a Perfetto trace."""


@dataclass(frozen=True)
class Result:
    """The output of a conversion."""

    path: Path | None
    """The file or directory, or the first of several parts; None: standard output."""
    bytes: int
    """Size of all files; 0 for standard output."""
    warning: str | None = None
    parts: int = 0
    """Number of files, if the trace was split (--max-size); else 0."""
    told: tuple[str, ...] = ()
    """Further lines for the user."""
    view: View | None = None
    """The part of a Perfetto trace to show first; None: no such part, or several files."""


@dataclass(frozen=True)
class Drawing:
    """How a Perfetto trace is written. max_size: bytes of each part; None: a single file."""

    max_size: int | None = None
    detail: Detail = Detail.FULL
    colour: Colour = Colour.AUTO

    @property
    def window_events(self) -> int | None:
        """Events per window, so that a part, which ends with a window, fits; None: the default."""
        if self.max_size is None:
            return None
        wanted = self.max_size // _WINDOWS_PER_PART // _BYTES_PER_EVENT
        return min(max(wanted, 100), WINDOW_EVENTS)

    def write(
        self, source: Opened, lifecycles: Iterator[Lifecycles], target: str, force: bool
    ) -> Result:
        """Write the windows to `target` (`-`: standard output), or to parts beside it.

        source: the trace that `lifecycles` are windows of. Raises TraceError; no partial output
        is left then.
        """
        if target == "-":
            return to_stdout(lambda out: self.to(source, lifecycles, out).warning)
        if self.max_size is not None:
            return self._to_parts(source, lifecycles, target, force)
        with (
            output.replacing(target, force=force) as stream,
            compressing.compressed(stream, target) as out,
        ):
            summary = self.to(source, lifecycles, out)
        size = os.stat(target).st_size
        return Result(Path(target), size, summary.warning, view=summary.view)

    def _how(self, source: Opened) -> dict[str, Any]:
        """Return the keyword arguments of the Perfetto converter."""
        trace = source.trace
        facts = source.cut.facts(trace)
        if self.detail != Detail.FULL:
            facts["detail"] = str(self.detail)
        return {
            "stacks": trace.stacks,
            "facts": facts,
            "to_end": trace.span is not None,
            "detail": self.detail,
            "colour": self.colour,
        }

    def to(
        self, source: Opened, lifecycles: Iterator[Lifecycles], out: BinaryIO
    ) -> PerfettoSummary:
        """Write the windows to `out`, uncompressed and as one trace. Raises TraceError."""
        from biotrail.converters.outputs.perfetto import convert as perfetto

        context = source.trace.context
        return perfetto.convert(lifecycles, context, out, **self._how(source))

    def _to_parts(
        self, source: Opened, lifecycles: Iterator[Lifecycles], target: str, force: bool
    ) -> Result:
        """Write the windows to files of at most `max_size` bytes, named by `part_path`."""
        from biotrail.converters.outputs.perfetto.parts import convert_parts

        paths: list[Path] = []
        limit = self.max_size or 0
        with ExitStack() as files:

            def opened(number: int) -> BinaryIO:
                path = part_path(target, number)
                stream = files.enter_context(output.replacing(path, force=force))
                paths.append(path)
                return files.enter_context(compressing.compressed(stream, path))

            how = self._how(source)
            parts = convert_parts(lifecycles, source.trace.context, opened, limit, **how)
        sizes = [os.stat(path).st_size for path in paths]
        told = [f"  {path} ({units.size(size)})" for path, size in zip(paths, sizes, strict=True)]
        if large := sum(part.bytes > limit for part in parts):
            what = units.plural(large, "part")
            told.append(f"  {what} above --max-size: what comes at once was more")
        if part_path(target, len(paths) + 1).exists():
            told.append(f"  {part_path(target, len(paths) + 1)} is of an earlier conversion")
        return Result(paths[0], sum(sizes), parts=len(paths), told=tuple(told))


def to_stdout(write: Callable[[BinaryIO], str | None]) -> Result:
    """Call `write` with standard output; its result is the Result's warning.

    Raises OutputError, and BrokenPipeError if the reader has gone.
    """
    try:
        return Result(None, 0, write(sys.stdout.buffer))
    except OutputError as error:
        if isinstance(error.__cause__, BrokenPipeError):
            raise error.__cause__ from error
        raise


def part_path(target: str, number: int) -> Path:
    """Return the path of a part: `disk-1.pftrace.gz` for `disk.pftrace.gz` and 1."""
    plain = Path(compressing.plain(target))
    name = f"{plain.stem}-{number}{plain.suffix}{target[len(str(plain)) :]}"
    return plain.with_name(name)
