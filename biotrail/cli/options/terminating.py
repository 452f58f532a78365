# SPDX-License-Identifier: Apache-2.0
"""Ends by signals that clean up: what a command has half written does not stay."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def terminated_as_interrupted() -> Iterator[None]:
    """SIGTERM and SIGHUP end the block as Ctrl-C does; one that is ignored (nohup) stays so."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    taken = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, interrupt) for number in taken}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
