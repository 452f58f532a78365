# SPDX-License-Identifier: Apache-2.0
"""Cleaning up when a signal ends a command: no half-written output stays behind."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def terminated_as_interrupted() -> Iterator[None]:
    """Raise KeyboardInterrupt in the block on SIGTERM and SIGHUP, as Ctrl-C does.

    An ignored signal stays ignored (nohup). The previous handlers are restored after the block.
    """

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    taken = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, interrupt) for number in taken}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def stopped_by_signal() -> Iterator[threading.Event]:
    """Return an event that SIGINT, SIGTERM and SIGHUP set in the block; the second one interrupts.

    That raises KeyboardInterrupt. An ignored signal stays ignored (nohup). The previous handlers
    are restored after the block.
    """
    stop = threading.Event()

    def end(_number: int, _frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    every = (signal.SIGINT, *_SIGNALS)
    taken = [number for number in every if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, end) for number in taken}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
