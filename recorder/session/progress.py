# SPDX-License-Identifier: Apache-2.0
"""Reports a recording's progress and messages to the user."""

import time
from collections.abc import Callable

from biotrail.recorder.accounting.loss import LossCounters
from biotrail.recorder.output.writer import WriterThread
from biotrail.recorder.session.intake import Intake
from biotrail.recorder.session.session_types import Status


class Progress:
    """Calls `on_status` with the recording's figures so far."""

    def __init__(
        self,
        on_status: Callable[[Status], None] | None,
        began_ns: int,
        intake: Intake,
        writer: WriterThread,
        loss: LossCounters,
    ) -> None:
        """Keep the sources of the figures; nothing is reported yet.

        `on_status`: called with each report; None: nothing is reported. `began_ns`: when the
        recording began, CLOCK_MONOTONIC.
        """
        self._on_status = on_status
        self._began_ns = began_ns
        self._intake = intake
        self._writer = writer
        self._loss = loss

    def events(self) -> float:
        """Return about how many events were copied from the rings so far.

        The number of events written, scaled by bytes of records copied per byte of records written;
        0 before the first chunk was written.
        """
        writer = self._writer
        return writer.meter.events * self._intake.taken_bytes / max(writer.raw_bytes, 1)

    def block_events(self) -> float:
        """Return about how many of `events` are of the block layer, each a run of its programs."""
        meter = self._writer.meter
        return self.events() * (1 - meter.path_events / max(meter.events, 1))

    def report(self, now_ns: int, note: str = "") -> None:
        """Call `on_status` with the figures at `now_ns` (CLOCK_MONOTONIC) and a message, or "".

        Does nothing, also with a message, if `on_status` is None.
        """
        if self._on_status is None:
            return
        self._on_status(
            Status(
                seconds=(now_ns - self._began_ns) / 1e9,
                events=round(self.events()),
                lost=self._loss.total,
                log_bytes=self._writer.log_bytes,
                note=note,
            )
        )

    def tell(self, note: str) -> None:
        """Report a message to the user now."""
        self.report(time.monotonic_ns(), note)
