# SPDX-License-Identifier: Apache-2.0
"""`biotrail archive --watch`: finished logs of a directory are shipped, one after the other."""

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from biotrail.cli.archiving.destination import destination
from biotrail.cli.archiving.finished import FoundLog, Writer, logs_in, looked_up_again, writer_of
from biotrail.cli.archiving.shipping import NotShippedError, Shipper
from biotrail.cli.options.exit_status import ERROR_STATUS
from biotrail.cli.options.shipping import Shipping
from biotrail.cli.options.terminating import stopped_by_signals
from biotrail.converters.inputs.parquet.locations import LocationError
from biotrail.recorder.output.held_directory import HeldDirectory
from biotrail.recorder.output.output import PRIVATE_DIRECTORY, explain
from biotrail.recorder.schema.errors import LogFormatError, LogNotFoundError, OutputError
from biotrail.text import units
from biotrail.text.printing import say

STAGING = ".shipping"
"""Directory in the watched one, with the lock and the archive that is being made."""
LOOK_SECONDS = 1.0
"""Time between two looks at the directory."""
MOST_SECONDS = 300.0
"""Longest time until a destination that failed is tried again; the first is LOOK_SECONDS."""


def watch(asked: Shipping) -> int:
    """Ship logs until a signal ends it, or (`once`) those that are finished; return the status.

    The log that is being shipped when SIGTERM, SIGHUP or SIGINT comes is finished first; a second
    SIGINT interrupts that too. Status 1: a log could not be shipped. Raises OutputError: no
    such directory, or another shipper is at work there; with `once` also where the destination
    fails; LocationError.
    """
    place = destination(asked.to)
    logs_in(asked.directory)  # says what is wrong with it
    logs = HeldDirectory(asked.directory)
    with _locked(asked.directory) as staging, stopped_by_signals() as stop:
        shipper = Shipper(logs, staging, place, asked.level, asked.keep_logs, asked.take_damaged)
        watching = _Watching(asked, shipper, stop)
        if asked.once:
            watching.look()
            watching.sum_up()
        else:
            watching.go_on()
        return ERROR_STATUS if watching.failed else 0


class _Watching:
    """Looks at a directory, and what became of its logs. failed: how many were not shipped."""

    def __init__(self, asked: Shipping, shipper: Shipper, stop: threading.Event) -> None:
        """Remember what to do; `stop` ends it after the log that is being shipped."""
        self._asked = asked
        self._shipper = shipper
        self._stop = stop
        self._settled: set[FoundLog] = set()
        self.failed = self._shipped = self._kept = self._written = 0
        self._unknown_said = False
        self._trouble = ""

    def look(self) -> None:
        """Ship every finished log of the directory that was not dealt with before.

        Raises OutputError or LocationError: the destination, or the directory, fails.
        """
        self._written = 0
        found = logs_in(self._asked.directory)
        self._settled &= set(found)
        for log in found:
            if self._stop.is_set():
                return
            if log not in self._settled:
                self._deal_with(log)

    def _deal_with(self, log: FoundLog) -> None:
        """Ship a log, if it is finished; what concerns this log alone is said, and counted.

        Raises OutputError or LocationError.
        """
        try:
            if not self._finished(log):
                self._written += 1
                return
            log = looked_up_again(log)
            shipped = self._shipper.ship(log)
        except LogNotFoundError:
            return  # the recorder deleted it: --max-files
        except (LogFormatError, NotShippedError) as error:
            self.failed += 1
            self._settled.add(log)
            say(f"biotrail: {error}", err=True)
            return
        self._recovered()
        if shipped is None or not shipped.deleted:
            self._settled.add(log)
            self._kept += 1
        if shipped is not None:
            self._shipped += 1
            if not self._asked.quiet:
                say(f"biotrail: {shipped.line}", err=True)

    def _finished(self, log: FoundLog) -> bool:
        """Return whether no program writes a log any more; without leases, whether it has its end.

        Raises LogFormatError; LogNotFoundError: it is gone.
        """
        try:
            writer = writer_of(log.path)
        except LogNotFoundError:
            raise
        except OSError as error:
            raise LogFormatError(f"{log.path}: cannot be opened: {error.strerror}") from error
        if writer is not Writer.UNKNOWN:
            return writer is Writer.NONE
        from biotrail.recorder.log import LogReader

        with LogReader(log.path) as reader:
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
        parts = [f"{units.plural(self._shipped, 'log')} shipped"]
        for count, what in (
            (self._kept, "kept"),
            (self._written, "still being written"),
            (self.failed, "not shipped"),
        ):
            parts += [f"{count} {what}"] if count else []
        say(f"biotrail: {', '.join(parts)}", err=True)


@contextmanager
def _locked(directory: str) -> Iterator[Path]:
    """Yield the staging directory, made and emptied, while no other shipper may work there.

    The kernel gives the lock back however this process ends. Raises OutputError.
    """
    staging = Path(directory, STAGING)
    try:
        staging.mkdir(PRIVATE_DIRECTORY, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(staging / "lock", flags, 0o600)
    except OSError as error:
        raise explain(error, staging) from error
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for left in [*staging.glob("*.parquet"), *staging.glob(".*.part")]:
            left.unlink()
        yield staging
    except BlockingIOError as error:
        raise OutputError(
            f"{directory}: another `biotrail archive --watch` ships its logs: end that first"
        ) from error
    finally:
        os.close(fd)
