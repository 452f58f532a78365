# SPDX-License-Identifier: Apache-2.0
"""`biotrail convert` to Perfetto: a file, parts of one, or standard output."""

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
"""Bytes: what says what the trace is must find room in each."""
_WINDOWS_PER_PART = 16
_BYTES_PER_EVENT = 100
"""About, of a Perfetto trace."""


@dataclass(frozen=True)
class Result:
    """What a conversion wrote."""

    path: Path | None
    """None: standard output."""
    bytes: int
    warning: str | None = None
    parts: int = 0
    """Files that it wrote `path` and others as; 0: it is not in parts."""
    told: tuple[str, ...] = ()
    """More to say of it, a line each."""
    view: View | None = None
    """Where to look first in a Perfetto trace; None: nowhere, or there are several."""


@dataclass(frozen=True)
class Drawing:
    """How a trace is written. max_size: bytes of each part; None: it is one file."""

    max_size: int | None = None
    detail: Detail = Detail.FULL
    colour: Colour = Colour.AUTO

    @property
    def window_events(self) -> int | None:
        """How many events to associate at once: parts end where windows do. None: as ever."""
        if self.max_size is None:
            return None
        wanted = self.max_size // _WINDOWS_PER_PART // _BYTES_PER_EVENT
        return min(max(wanted, 100), WINDOW_EVENTS)

    def write(
        self, source: Opened, lifecycles: Iterator[Lifecycles], target: str, force: bool
    ) -> Result:
        """Writes what is chosen of the trace to `target`, or in parts beside it.

        Raises TraceError; then nothing is left there.
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
        """Writes what is chosen of the trace to `out`, as it is. Raises TraceError."""
        from biotrail.converters.outputs.perfetto import convert as perfetto

        context = source.trace.context
        return perfetto.convert(lifecycles, context, out, **self._how(source))

    def _to_parts(
        self, source: Opened, lifecycles: Iterator[Lifecycles], target: str, force: bool
    ) -> Result:
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
    """What `write` writes, which gives a warning or None. Raises OutputError, BrokenPipeError."""
    try:
        return Result(None, 0, write(sys.stdout.buffer))
    except OutputError as error:
        if isinstance(error.__cause__, BrokenPipeError):
            raise error.__cause__ from error
        raise


def part_path(target: str, number: int) -> Path:
    """`disk-1.pftrace.gz` of `disk.pftrace.gz`."""
    plain = Path(compressing.plain(target))
    name = f"{plain.stem}-{number}{plain.suffix}{target[len(str(plain)) :]}"
    return plain.with_name(name)
