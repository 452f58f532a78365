# SPDX-License-Identifier: Apache-2.0
"""How far a command is, on standard error where that is a terminal."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click


@contextmanager
def working(size: int, label: str) -> Iterator[Callable[[int], None] | None]:
    """Gives what takes the offset reached, of `size` bytes; None where nobody would see it."""
    if size <= 0 or not sys.stderr.isatty():
        yield None
        return
    with click.progressbar(length=size, label=label, file=sys.stderr) as bar:

        def reached(offset: int) -> None:
            bar.update(offset - bar.pos)

        yield reached
        bar.update(size - bar.pos)
