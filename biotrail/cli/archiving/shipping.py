# SPDX-License-Identifier: Apache-2.0
"""`biotrail archive --watch`: finished logs are archived, checked, stored, and then deleted."""

import math
import os
import threading
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from biotrail.cli.archiving.checking import check
from biotrail.cli.archiving.dataset import folder_of, write_events
from biotrail.cli.archiving.destination import (
    Destination,
    NotShippedError,
    destination,
    ensure_same,
)
from biotrail.cli.archiving.watched import (
    NOT_SHIPPED,
    FoundLog,
    Staging,
    Writer,
    hold_logs,
    locked,
    logs_in,
    opened,
    writer_of,
)
from biotrail.cli.options.ending import ERROR_STATUS, stopped_by_signals
from biotrail.cli.options.recordings import Recording
from biotrail.converters.inputs.log import LogSource, Source
from biotrail.converters.inputs.parquet.account import Metadata
from biotrail.converters.inputs.parquet.locations import LocationError, reason
from biotrail.converters.inputs.parquet.source import ArchiveSource
from biotrail.converters.pipeline import Trace
from biotrail.recorder.output import output
from biotrail.recorder.output.folders import HeldDirectory
from biotrail.recorder.output.series import SUFFIX
from biotrail.recorder.schema.errors import (
    LogFormatError,
    LogNotFoundError,
    OutputError,
    TraceError,
)
from biotrail.text import units
from biotrail.text.printing import StatusLine, tell

_ID_DIGITS = 12
"""Digits of a log's id (32) in its archive's name."""


@dataclass(frozen=True)
class Shipped:
    """What became of a log. line: for the user; deleted: whether the log is gone."""

    line: str
    deleted: bool


@dataclass(frozen=True)
class Shipper:
    """Ships a directory's logs. take_damaged: delete damaged ones, once what is left is stored."""

    logs: HeldDirectory
    staging: Staging
    place: Destination
    level: int
    keep_logs: bool
    take_damaged: bool

    def ship(self, log: FoundLog) -> Shipped | None:
        """Ship a finished log, or go on with what an earlier shipper began; None: all was done.

        Nothing is deleted unless its archive was read whole, and its copy at the destination was
        read back and is the same. OutputError or LocationError is the fault of the destination or
        the staging directory; any other TraceError is the log's own.
        """
        with opened(self.logs, log) as (log, stream):  # noqa: PLR1704 - the same, with its size
            trace = Trace(stream)
            source = trace.reader
            log_id = str(source.header.get("log_id", ""))
            if not isinstance(source, LogSource) or not log_id:
                raise NotShippedError(f"{log.path}: not a biotrail log: not shipped")
            stem = log.name.removesuffix(SUFFIX)
            digits = quote(log_id[:_ID_DIGITS], safe="")
            name = f"{folder_of(trace)}/{stem}-{digits}.parquet"
            staged = self.staging.archive
            status = StatusLine()
            try:
                there = self._stored(name, log_id, log)
                if there is not None and self._reason_to_keep(there):
                    return None
                if there is None or not self._fetched_whole(name, staged):
                    recording, shown = Recording([log.path], trace), self.staging.archive_shown
                    write_events(recording, staged, self.level, True, shown)
                    _ensure_whole(staged, log, source)
                    status.show(f"storing {self.place.shown(name)}")
                    self.place.put(staged, name)
                    ensure_same(self.place, staged, name)
                return self._finish(log, name, ArchiveSource(staged).metadata)
            finally:
                status.clear()
                self.staging.archive.unlink(missing_ok=True)
                self.place.clear(name)

    def _stored(self, name: str, log_id: str, log: FoundLog) -> Metadata | None:
        stream = self.place.open(name)
        if stream is None:
            return None
        with stream:
            try:
                metadata = ArchiveSource(stream).metadata
            except LogFormatError:
                return None
        if metadata.facts.header.get("log_id") != log_id:
            raise NotShippedError(
                f"{log.path}: not shipped: {self.place.shown(name)} is the archive of another log; "
                "rename one of them"
            )
        return metadata if metadata.account.log_bytes == log.size else None

    def _fetched_whole(self, name: str, staged: Path) -> bool:
        stream = self.place.open(name)
        if stream is None:
            return False
        shown = self.staging.archive_shown
        with stream, output.replacing(staged, force=True, shown=shown) as copy:
            try:
                while piece := stream.read(1 << 20):
                    copy.write(piece)
            except OSError as error:
                where = self.place.shown(name)
                raise LocationError(f"{where}: cannot be read: {reason(error)}") from error
        return check(str(staged)).intact

    def _reason_to_keep(self, metadata: Metadata) -> str:
        """Return why a log stays after it was shipped; "": it is deleted."""
        if self.keep_logs:
            return "--keep-logs"
        if self.take_damaged:
            return ""
        account = metadata.account
        if account.problems:
            return f"damaged: {'; '.join(account.problems)}"
        if account.unknown or account.unreadable_bytes:
            return "it has records that this biotrail cannot read"
        return ""

    def _finish(self, log: FoundLog, name: str, metadata: Metadata) -> Shipped:
        account = metadata.account
        keep = self._reason_to_keep(metadata)
        deleted = not keep and self._delete(log)
        line = (
            f"{log.name} ({units.size(log.size)}): {units.plural(account.events, 'event')} in "
            f"{self.place.shown(name)}, verified there"
        )
        if account.interrupted:
            line += "; its recorder was interrupted, so up to a second may be missing at its end"
        if deleted:
            damage = f"; damaged: {'; '.join(account.problems)}" if account.problems else ""
            return Shipped(f"{line}{damage}; log deleted", True)
        return Shipped(f"{line}; log kept ({keep or 'it was changed or taken away'})", False)

    def _delete(self, log: FoundLog) -> bool:
        try:
            size = os.stat(log.name, dir_fd=self.logs.fd, follow_symlinks=False).st_size
        except OSError:
            return False
        return size == log.size and self.logs.remove(log.name, log.file)


def _ensure_whole(staged: Path, log: FoundLog, source: Source) -> None:
    """Read a new archive; raise NotShippedError unless it has all of the log's chunks."""
    found = check(str(staged))
    wanted = (source.end or {}).get("log", {}).get("chunks")
    problems = list(found.problems)
    if not problems and not source.problems and wanted not in (None, found.chunks):
        problems.append(f"it has {found.chunks} chunks where the log's end says {wanted}")
    if problems:
        raise NotShippedError(
            f"{log.path}: not shipped: its archive is not whole: {'; '.join(problems)}; the log "
            "stays; please report it"
        )


LOOK_SECONDS = 1.0
MOST_SECONDS = 300.0
"""Longest time until a destination that failed is tried again; the first is LOOK_SECONDS."""
_DESTINATION_ERRORS = (OutputError, LocationError)


def watch(
    directory: str,
    to: str,
    level: int,
    *,
    once: bool,
    keep_logs: bool,
    take_damaged: bool,
    quiet: bool,
) -> int:
    """Ship logs until a signal, or (`once`) those that are finished; 1: one could not be.

    The log that is being shipped when a signal comes is finished; a second SIGINT interrupts that.
    """
    place = destination(to)
    logs = hold_logs(directory)
    with locked(logs) as staging, stopped_by_signals() as stop:
        shipper = Shipper(logs, staging, place, level, keep_logs, take_damaged)
        watching = _Watching(shipper, stop, once=once, quiet=quiet)
        if once:
            watching.look()
            watching.sum_up()
        else:
            watching.go_on()
        return ERROR_STATUS if watching.apart else 0


@dataclass
class _Apart:
    """Why a log was set apart. wait: seconds until it is tried again; again: then, monotonic."""

    reason: str
    wait: float = math.inf
    again: float = math.inf


class _Watching:
    def __init__(self, shipper: Shipper, stop: threading.Event, *, once: bool, quiet: bool) -> None:
        self._once, self._quiet = once, quiet
        self._logs = shipper.logs
        self._shipper = shipper
        self._stop = stop
        self._settled: set[FoundLog] = set()
        self.apart: dict[FoundLog, _Apart] = {}
        self._first_failure: dict[FoundLog, int] = {}
        """How many logs had been shipped when one was first refused."""
        self._shipped = self._kept = self._written = 0
        self._unknown_said = False
        self._trouble = ""

    def look(self) -> None:
        """Ship every finished log that was not dealt with, those that were refused last.

        Whose fault a refusal is, the next log shows: if that is stored and the first is refused
        again, it is the log's own, which is set apart; else the destination's, which is raised.
        """
        self._written = 0
        found = logs_in(self._logs)
        # Logs that were renamed or changed are new ones.
        self._settled &= set(found)
        for known in (self.apart, self._first_failure):
            for log in known.keys() - set(found):
                del known[log]
                self._list_apart()
        now = time.monotonic()
        later = {log for log, apart in self.apart.items() if now < apart.again}
        left = self._settled | later
        ready = [log for log in found if log not in left]
        queue = deque(sorted(ready, key=lambda log: log in self._first_failure))
        refused: set[FoundLog] = set()
        while queue and not self._stop.is_set():
            log = queue.popleft()
            try:
                self._deal_with(log)
            except _DESTINATION_ERRORS as error:
                # Others were shipped since it was first refused: it is the log's own fault.
                if self._shipped > self._first_failure.setdefault(log, self._shipped):
                    self._set_apart(log, f"{log.path}: not shipped: {error}", for_good=False)
                elif refused or not queue:
                    raise
                else:
                    refused.add(log)
                    queue.append(log)

    def _deal_with(self, log: FoundLog) -> None:
        """Ship a log, if it is finished; what concerns this log alone is said, and counted."""
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
        if self._trouble:
            self._trouble = ""
            tell("the destination works again")
        if self.apart.pop(log, None):
            self._list_apart()
        if shipped is None or not shipped.deleted:
            self._settled.add(log)
            self._kept += 1
        if shipped is not None:
            self._shipped += 1
            if not self._quiet:
                tell(shipped.line)

    def _set_apart(self, log: FoundLog, reason: str, *, for_good: bool) -> None:
        """Leave a log out from now on, or until it is tried again; say so the first time."""
        before = self.apart.get(log)
        if for_good:
            self.apart[log] = _Apart(reason)
        else:
            wait = min(MOST_SECONDS, 2 * (before.wait if before is not None else LOOK_SECONDS))
            self.apart[log] = _Apart(reason, wait, time.monotonic() + wait)
        if before is None:
            later = "" if for_good or self._once else "; the others go on, it is tried again"
            tell(f"{reason}{later}")
        self._list_apart()

    def _list_apart(self) -> None:
        self._shipper.staging.list_not_shipped(apart.reason for apart in self.apart.values())

    def _finished(self, log: FoundLog) -> bool:
        """Return whether no program writes a log; without leases, whether it has its end."""
        writer = writer_of(self._logs, log)
        if writer is not Writer.UNKNOWN:
            return writer is Writer.NONE
        from biotrail.recorder.log import LogReader

        with opened(self._logs, log) as (_, stream), LogReader(stream) as reader:
            ended = reader.end is not None
        if not ended and not self._unknown_said:
            self._unknown_said = True
            tell(
                f"{log.path}: has no end, and this file system does not tell whether it "
                "is being written: left alone; move it elsewhere once its recorder has ended"
            )
        return ended

    def go_on(self) -> None:
        """Look at the directory each second until `stop`; after a failure less and less often."""
        wait = LOOK_SECONDS
        while not self._stop.is_set():
            try:
                self.look()
                wait = LOOK_SECONDS
            except _DESTINATION_ERRORS as error:
                if not self._trouble:
                    tell(f"{error}; nothing is deleted; tried again until it works")
                self._trouble = str(error)
                wait = min(MOST_SECONDS, 2 * wait)
            self._stop.wait(wait)
        self.sum_up()

    def sum_up(self) -> None:
        if self._quiet:
            return
        listed = os.path.join(self._shipper.staging.shown, NOT_SHIPPED)
        parts = [f"{units.plural(self._shipped, 'log')} shipped"]
        for count, what in (
            (self._kept, "kept"),
            (self._written, "still being written"),
            (len(self.apart), f"not shipped (listed in {listed})"),
        ):
            parts += [f"{count} {what}"] if count else []
        tell(", ".join(parts))
