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

from rich.console import Group
from rich.live import Live

from biotrail.converters.analysis.live.tree import Snapshot
from biotrail.text.columns import console
from biotrail.text.rows import Order
from biotrail.text.top.top import Cost, parts

_QUIT = b"qQ"
_LOOK_SECONDS = 0.2
"""Seconds between two checks of whether to stop waiting for keys."""


Show = Callable[[Snapshot, Cost], None]
"""Shows a snapshot, with the CPU time of recorder and top."""


@contextmanager
def screen(
    stop: Callable[[], None], limit: int | None = None, order: Order | None = None
) -> Iterator[Show]:
    """Yield what draws a snapshot on the whole screen, or prints it. stop: for the key q."""
    to = console()

    def print_below(snapshot: Snapshot, cost: Cost) -> None:
        for part in parts(snapshot, cost, to.width, None, limit, order):
            to.print(part)
        to.print()
        sys.stdout.flush()

    def draw(snapshot: Snapshot, cost: Cost) -> None:
        size = shutil.get_terminal_size()
        to.size = (size.columns, size.lines)
        drawn = parts(snapshot, cost, size.columns, size.lines, limit, order)
        live.update(Group(*drawn), refresh=True)

    if not sys.stdout.isatty():
        yield print_below
        return
    with _keys(stop), Live("recording …", console=to, screen=True, auto_refresh=False) as live:
        yield draw


@contextmanager
def _keys(stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop`, from another thread, when q is pressed during the block."""
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
