# SPDX-License-Identifier: Apache-2.0
"""Show the snapshots of `biotrail top` on a terminal's whole screen, or as plain text."""

import os
import select
import shutil
import sys
import termios
import threading
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console, Group
from rich.live import Live

from biotrail.converters.analysis.live.tree import Snapshot
from biotrail.text.columns import console
from biotrail.text.rows import Order
from biotrail.text.top.top import Cost, parts

_QUIT = b"qQ"
_LOOK_SECONDS = 0.2
"""Seconds between two checks of whether to stop waiting for keys."""


class Plain:
    """Prints each snapshot as text below the one before."""

    def __init__(self, to: Console, limit: int | None, order: Order | None) -> None:
        self._console = to
        self._how = limit, order

    def show(self, snapshot: Snapshot, cost: Cost) -> None:
        """Print a snapshot. cost: CPU time of recorder and top."""
        for part in parts(snapshot, cost, self._console.width, None, *self._how):
            self._console.print(part)
        self._console.print()
        sys.stdout.flush()


class Whole:
    """Shows the newest snapshot on the whole screen."""

    def __init__(self, live: Live, limit: int | None, order: Order | None) -> None:
        self._live = live
        self._how = limit, order

    def show(self, snapshot: Snapshot, cost: Cost) -> None:
        """Draw a snapshot, as large as the terminal is now."""
        size = shutil.get_terminal_size()
        self._live.console.size = (size.columns, size.lines)
        drawn = parts(snapshot, cost, size.columns, size.lines, *self._how)
        self._live.update(Group(*drawn), refresh=True)


@contextmanager
def screen(
    stop: Callable[[], None], limit: int | None = None, order: Order | None = None
) -> Iterator[Plain | Whole]:
    """Yield a terminal's whole screen, restored at the end of the block; Plain without a terminal.

    stop: called when q is pressed. limit, order: see `biotrail.text.top.top.parts`.
    """
    if not sys.stdout.isatty():
        yield Plain(console(), limit, order)
        return
    to = console()
    with (
        _keys(stop),
        Live("recording …", console=to, screen=True, auto_refresh=False) as live,
    ):
        yield Whole(live, limit, order)


@contextmanager
def _keys(stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop`, from another thread, when q is pressed during the block.

    Does nothing where standard input is no terminal.
    """
    if not sys.stdin.isatty():
        yield
        return
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    over = threading.Event()

    def look() -> None:
        """Call `stop` when q or Q is pressed or standard input ends; return then or once `over`."""
        while not over.is_set():
            if not select.select([terminal], [], [], _LOOK_SECONDS)[0]:
                continue
            pressed = os.read(terminal, 64)
            if not pressed or any(key in _QUIT for key in pressed):
                stop()
                return

    looking = threading.Thread(target=look, name="keys", daemon=True)
    try:
        tty.setcbreak(terminal)
        looking.start()
        yield
    finally:
        over.set()
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)
