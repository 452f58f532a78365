# SPDX-License-Identifier: Apache-2.0
"""Where `biotrail top` shows its snapshots: a terminal's whole screen, or plain text."""

import os
import select
import shutil
import sys
import termios
import threading
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live

from biotrail.converters.analysis.live.tree import Snapshot
from biotrail.text.columns import console
from biotrail.text.rows import Order
from biotrail.text.top import parts

if TYPE_CHECKING:
    from biotrail.cli.top import Cost

_QUIT = b"qQ"
_LOOK_SECONDS = 0.2


class Plain:
    """Each snapshot as text below the one before."""

    def __init__(self, to: Console, limit: int | None, order: Order | None) -> None:
        self._console = to
        self._how = limit, order

    def show(self, snapshot: Snapshot, cost: "Cost") -> None:
        """Print it."""
        for part in parts(snapshot, cost, self._console.width, None, *self._how):
            self._console.print(part)
        self._console.print()
        sys.stdout.flush()


class Whole:
    """The newest snapshot on the whole screen."""

    def __init__(self, live: Live, limit: int | None, order: Order | None) -> None:
        self._live = live
        self._how = limit, order

    def show(self, snapshot: Snapshot, cost: "Cost") -> None:
        """Draw it."""
        size = shutil.get_terminal_size()
        self._live.console.size = (size.columns, size.lines)
        drawn = parts(snapshot, cost, size.columns, size.lines, *self._how)
        self._live.update(Group(*drawn), refresh=True)


@contextmanager
def screen(
    stop: Callable[[], None], limit: int | None = None, order: Order | None = None
) -> Iterator[Plain | Whole]:
    """A terminal's screen, as it was before when the block ends.

    stop: what q does. limit, order: as of `top_text.parts`.
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
    """Calls `stop` when q is pressed, where standard input is a terminal."""
    if not sys.stdin.isatty():
        yield
        return
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    over = threading.Event()

    def look() -> None:
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
