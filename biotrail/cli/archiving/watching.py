# SPDX-License-Identifier: Apache-2.0
"""`biotrail archive --watch`: finished logs of a directory are shipped, one after the other."""

import os
import threading
import time
from collections import deque
from dataclasses import dataclass

from biotrail.cli.archiving.destination import NotShippedError, destination
from biotrail.cli.archiving.finished import (
    FoundLog,
    Writer,
    hold_logs,
    logs_in,
    opened,
    writer_of,
)
from biotrail.cli.archiving.shipping import Shipper
from biotrail.cli.archiving.staging import NOT_SHIPPED, locked
from biotrail.cli.options.exit_status import ERROR_STATUS
from biotrail.cli.options.shipping import Shipping
from biotrail.cli.options.terminating import stopped_by_signals
from biotrail.converters.inputs.parquet.locations import LocationError
from biotrail.recorder.output.folders import HeldDirectory
from biotrail.recorder.schema.errors import LogNotFoundError, OutputError, TraceError
from biotrail.text import units
from biotrail.text.printing import say

LOOK_SECONDS = 1.0
"""Time between two looks at the directory."""
MOST_SECONDS = 300.0
"""Longest time until a destination that failed is tried again; the first is LOOK_SECONDS."""
_DESTINATION_ERRORS = (OutputError, LocationError)


def watch(asked: Shipping) -> int:
    """Ship logs until a signal ends it, or (`once`) those that are finished; return the status.

    The log that is being shipped when SIGTERM, SIGHUP or SIGINT comes is finished first; a second
    SIGINT interrupts that too. Status 1: a log could not be shipped. Raises OutputError: no
    such directory, or another shipper is at work there; with `once` also where the destination
    fails; LocationError.
    """
    place = destination(asked.to)
    logs = hold_logs(asked.directory)
    with locked(logs) as staging, stopped_by_signals() as stop:
        shipper = Shipper(logs, staging, place, asked.level, asked.keep_logs, asked.take_damaged)
        watching = _Watching(asked, logs, shipper, stop)
        if asked.once:
            watching.look()
            watching.sum_up()
        else:
            watching.go_on()
        return ERROR_STATUS if watching.failed else 0


@dataclass
class _Apart:
    """Why a log was set apart. wait: seconds until it is tried again, at `again`; None: never."""

    reason: str
    wait: float | None
    again: float = 0.0

    def due(self) -> bool:
        """Return whether it is to be tried again now."""
        return self.wait is not None and time.monotonic() >= self.again


class _Watching:
    """Looks at a directory, and what became of its logs."""

    def __init__(
        self, asked: Shipping, logs: HeldDirectory, shipper: Shipper, stop: threading.Event
    ) -> None:
        """Remember what to do; `stop` ends it after the log that is being shipped."""
        self._asked = asked
        self._logs = logs
        self._shipper = shipper
        self._stop = stop
        self._settled: set[FoundLog] = set()
        self._apart: dict[FoundLog, _Apart] = {}
        self._first_failure: dict[FoundLog, int] = {}
        """How many logs had been shipped when one was first refused."""
        self._shipped = self._kept = self._written = 0
        self._unknown_said = False
        self._trouble = ""

    @property
    def failed(self) -> int:
        """How many logs are there that could not be shipped."""
        return len(self._apart)

    def look(self) -> None:
        """Ship every finished log of the directory that was not dealt with before.

        Whose fault it is that a log is not stored, the next one shows: if that is stored and the
        first is refused again, it is the log's own, which is set apart; if neither is, it is the
        destination's. Logs that were refused come last. Raises OutputError or LocationError: the
        destination, or the directory, fails.
        """
        self._written = 0
        found = logs_in(self._logs)
        self._forget_all_but(set(found))
        ready = [log for log in found if log not in self._settled and self._due(log)]
        queue = deque(sorted(ready, key=lambda log: log in self._first_failure))
        refused: set[FoundLog] = set()
        while queue and not self._stop.is_set():
            log = queue.popleft()
            try:
                self._deal_with(log)
            except _DESTINATION_ERRORS as error:
                if self._is_its_own(log):
                    self._set_apart(log, f"{log.path}: not shipped: {error}", for_good=False)
                elif refused or not queue:
                    raise
                else:
                    refused.add(log)
                    queue.append(log)

    def _due(self, log: FoundLog) -> bool:
        """Return whether a log was not set apart, or is to be tried again."""
        apart = self._apart.get(log)
        return apart is None or apart.due()

    def _is_its_own(self, log: FoundLog) -> bool:
        """Note that a log was refused; return whether others were shipped since it first was."""
        return self._shipped > self._first_failure.setdefault(log, self._shipped)

    def _forget_all_but(self, found: set[FoundLog]) -> None:
        """Forget logs that are gone, were renamed or changed: those are new ones."""
        self._settled &= found
        for known in (self._apart, self._first_failure):
            for log in known.keys() - found:
                del known[log]
                self._list_apart()

    def _deal_with(self, log: FoundLog) -> None:
        """Ship a log, if it is finished; what concerns this log alone is said, and counted.

        Raises OutputError or LocationError.
        """
        try:
            if not self._finished(log):
                self._written += 1
                return
            shipped = self._shipper.ship(log)
        except LogNotFoundError:
            return  # the recorder deleted it: --max-files
        except _DESTINATION_ERRORS:
            raise
        except NotShippedError as error:
            self._set_apart(log, f"{log.path}: {error}", for_good=True)
            return
        except TraceError as error:
            self._set_apart(log, str(error), for_good=True)
            return
        self._recovered()
        if self._apart.pop(log, None):
            self._list_apart()
        if shipped is None or not shipped.deleted:
            self._settled.add(log)
            self._kept += 1
        if shipped is not None:
            self._shipped += 1
            if not self._asked.quiet:
                say(f"biotrail: {shipped.line}", err=True)

    def _set_apart(self, log: FoundLog, reason: str, *, for_good: bool) -> None:
        """Leave a log out from now on, or until it is tried again; say so the first time."""
        before = self._apart.get(log)
        if for_good:
            self._apart[log] = _Apart(reason, None)
        else:
            last = before.wait if before is not None and before.wait else LOOK_SECONDS
            wait = min(MOST_SECONDS, 2 * last)
            self._apart[log] = _Apart(reason, wait, time.monotonic() + wait)
        if before is None:
            later = "" if for_good or self._asked.once else "; the others go on, it is tried again"
            say(f"biotrail: {reason}{later}", err=True)
        self._list_apart()

    def _list_apart(self) -> None:
        """Have the list of what was set apart be as it is now."""
        self._shipper.staging.list_not_shipped(apart.reason for apart in self._apart.values())

    def _finished(self, log: FoundLog) -> bool:
        """Return whether no program writes a log any more; without leases, whether it has its end.

        Raises LogFormatError; LogNotFoundError: it is gone.
        """
        writer = writer_of(self._logs, log)
        if writer is not Writer.UNKNOWN:
            return writer is Writer.NONE
        from biotrail.recorder.log import LogReader

        with opened(self._logs, log) as (_, stream), LogReader(stream) as reader:
            ended = reader.end is not None
        if not ended and not self._unknown_said:
            self._unknown_said = True
            say(
                f"biotrail: {log.path}: has no end, and this file system does not tell whether it "
                "is being written: left alone; move it elsewhere once its recorder has ended",
                err=True,
            )
        return ended

    def go_on(self) -> None:
        """Look at the directory each second until `stop`; after a failure less and less often."""
        wait = LOOK_SECONDS
        while not self._stop.is_set():
            try:
                self.look()
                wait = LOOK_SECONDS
            except (OutputError, LocationError) as error:
                self._say_trouble(str(error))
                wait = min(MOST_SECONDS, 2 * wait)
            self._stop.wait(wait)
        self.sum_up()

    def _say_trouble(self, what: str) -> None:
        """Say that the destination fails, once until it works again."""
        if not self._trouble:
            say(f"biotrail: {what}; nothing is deleted; tried again until it works", err=True)
        self._trouble = what

    def _recovered(self) -> None:
        """Say that the destination works again, if it did not."""
        if self._trouble:
            self._trouble = ""
            say("biotrail: the destination works again", err=True)

    def sum_up(self) -> None:
        """Say how many logs were shipped, kept, not shipped, and are still being written."""
        if self._asked.quiet:
            return
        listed = os.path.join(self._shipper.staging.shown, NOT_SHIPPED)
        parts = [f"{units.plural(self._shipped, 'log')} shipped"]
        for count, what in (
            (self._kept, "kept"),
            (self._written, "still being written"),
            (self.failed, f"not shipped (listed in {listed})"),
        ):
            parts += [f"{count} {what}"] if count else []
        say(f"biotrail: {', '.join(parts)}", err=True)
