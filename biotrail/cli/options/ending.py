# SPDX-License-Identifier: Apache-2.0
"""How a command ends: exit statuses, and signals, which leave no half-written output behind."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

ERROR_STATUS = 1
USAGE_STATUS = 2
INTERRUPTED_STATUS = 130
PIPE_STATUS = 141
"""128 + SIGINT and 128 + SIGPIPE, as a shell reports a command that these ended."""

_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def terminated_as_interrupted() -> Iterator[None]:
    """Raise KeyboardInterrupt in the block on SIGTERM and SIGHUP, as Ctrl-C does."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    with handled(_SIGNALS, interrupt):
        yield


@contextmanager
def stopped_by_signals() -> Iterator[threading.Event]:
    """Yield an event that SIGTERM, SIGHUP and SIGINT set; a second SIGINT interrupts."""
    stop = threading.Event()

    def handle(number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGINT and stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    with handled((*_SIGNALS, signal.SIGINT), handle):
        yield stop


@contextmanager
def handled(
    numbers: tuple[signal.Signals, ...], handler: Callable[[int, FrameType | None], None]
) -> Iterator[None]:
    """Handle signals in the block; an ignored signal stays ignored (nohup)."""
    taken = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, handler) for number in taken}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)
