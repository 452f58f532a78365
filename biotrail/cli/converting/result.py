# SPDX-License-Identifier: Apache-2.0
"""What a conversion has written, and how to open it."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from biotrail.cli.options.perfetto_ui import UI, address
from biotrail.converters.outputs.perfetto.summary import View
from biotrail.recorder.schema.errors import OutputError


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
    notes: tuple[str, ...] = ()
    """Further lines for the user."""
    view: View | None = None
    """The part of a Perfetto trace to show first; None: no such part, or several files."""


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


def open_lines(where: str, result: Result) -> list[str]:
    """Return lines that say how to open a Perfetto trace, with the UI's address."""
    return [
        f"open it: biotrail view {where}, or drop it here (it stays in the browser):",
        f"  {address(UI, view=result.view)}",
    ]
