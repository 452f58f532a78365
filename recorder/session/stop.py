# SPDX-License-Identifier: Apache-2.0
"""Requests to stop a recording or to dump, by signals or other threads."""

import os
import select
import signal
import threading
from contextlib import suppress
from types import FrameType
from typing import Any, Self

_SIGNALS = {
    signal.SIGINT: "interrupted",
    signal.SIGTERM: "terminated",
    signal.SIGHUP: "hung up",
    signal.SIGQUIT: "quit",
}
DUMP_SIGNALS = (signal.SIGUSR1, signal.SIGUSR2)
"""Ask a flight recorder for a dump; any other recording, and what shows one, ignores them."""


class StopRequests:
    """Handles SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 while its context is open.

    Each of them ends `sleep`. SIGUSR1 requests a dump of a flight recorder, and so does SIGUSR2,
    which requests a snapshot from perf record.

    The others only set `reason`; none ends the process, so a second Ctrl-C cannot cost the end of
    a log. SIGHUP stays ignored where it was (nohup). Outside the main thread no handler is set.
    """

    def __init__(self) -> None:
        self.reason: str | None = None
        """Why to stop, such as "interrupted"; None: go on."""
        self.signals = 0
        """How many signals to stop arrived."""
        self.dump_signal = ""
        """Name of the signal that last requested a dump; "": none did since the caller set this."""
        self._wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._old: dict[int, Any] = {}

    def __enter__(self) -> Self:
        """Set the handlers."""
        if threading.current_thread() is threading.main_thread():
            for number in (*_SIGNALS, *DUMP_SIGNALS):
                handler = signal.getsignal(number)
                if number == signal.SIGHUP and handler == signal.SIG_IGN:
                    continue
                self._old[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *_error: object) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler)
        for descriptor in self._wake:
            os.close(descriptor)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if number in DUMP_SIGNALS:
            self.dump_signal = signal.Signals(number).name
            self.request(None)
        else:
            self.signals += 1
            self.request(_SIGNALS[signal.Signals(number)])

    def request(self, reason: str | None) -> None:
        """Set `reason` unless it is set, and end `sleep`. Any thread may call."""
        self.reason = self.reason or reason
        with suppress(BlockingIOError):  # a full pipe is readable, so it wakes as well
            os.write(self._wake[1], b"x")

    def sleep(self, seconds: float, *descriptors: int | None) -> None:
        """Sleep until the time is over, a descriptor is readable, or a request has come."""
        wake = self._wake[0]
        poller = select.poll()  # unlike select(), without FD_SETSIZE
        for descriptor in (wake, *descriptors):
            if descriptor is not None:
                poller.register(descriptor, select.POLLIN)
        if any(descriptor == wake for descriptor, _ in poller.poll(seconds * 1000)):
            os.read(wake, 4096)
