# SPDX-License-Identifier: Apache-2.0
"""One log shipped: archived, checked, stored, compared with what is stored there, then deleted."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote

from biotrail.cli.archiving.checking import check
from biotrail.cli.archiving.dataset import folder_of
from biotrail.cli.archiving.destination import Destination, NotShippedError, ensure_same
from biotrail.cli.archiving.file import write_events
from biotrail.cli.archiving.finished import FoundLog, opened
from biotrail.cli.archiving.staging import Staging
from biotrail.cli.options.recordings import Recording
from biotrail.converters.inputs.log import LogSource, Source
from biotrail.converters.inputs.parquet.account import Metadata
from biotrail.converters.inputs.parquet.locations import LocationError, reason
from biotrail.converters.inputs.parquet.source import ArchiveSource
from biotrail.converters.pipeline import Trace
from biotrail.recorder.output import output
from biotrail.recorder.output.folders import HeldDirectory
from biotrail.recorder.output.series import SUFFIX
from biotrail.recorder.schema.errors import LogFormatError
from biotrail.text import units
from biotrail.text.progress import StatusLine

_ID_DIGITS = 12
"""Digits of a log's id (32) in its archive's name."""


@dataclass(frozen=True)
class Shipped:
    """What became of a log. line: for the user; deleted: whether the log is gone."""

    line: str
    deleted: bool


@dataclass(frozen=True)
class Shipper:
    """Ships logs of one directory to one destination.

    staging: where archives are made. level: zstd's. keep_logs: never delete a log.
    take_damaged: delete damaged logs too, once what can be read of them is stored.
    """

    logs: HeldDirectory
    staging: Staging
    place: Destination
    level: int
    keep_logs: bool
    take_damaged: bool

    def ship(self, log: FoundLog) -> Shipped | None:
        """Ship a finished log, or go on with what an earlier shipper began.

        Returns None where nothing was to be done: the log stays, and its archive is there already.
        Nothing is deleted unless its archive was read whole, and its copy at the destination was
        read back and is the same. Raises LogFormatError: no log that can be read; NotShippedError;
        OutputError or LocationError: the destination or the staging directory fails; any other
        TraceError: the log cannot be converted.
        """
        with opened(self.logs, log) as (log, stream):  # noqa: PLR1704 - the same, with its size
            return self._ship(log, stream)

    def _ship(self, log: FoundLog, stream: BinaryIO) -> Shipped | None:
        """Ship a log that is open as `stream`, as `ship` does."""
        trace = Trace(stream)
        source = trace.reader
        log_id = str(source.header.get("log_id", ""))
        if not isinstance(source, LogSource) or not log_id:
            raise NotShippedError(f"{log.path}: is no log of biotrail: not shipped")
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
            self.staging.remove_archive()
            self.place.clear(name)

    def _stored(self, name: str, log_id: str, log: FoundLog) -> Metadata | None:
        """Return the metadata of the log's archive at the destination; None: there is no whole one.

        Only the archive's end is read. Raises NotShippedError: another log's archive has the name.
        """
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
        """Copy an archive from the destination to `staged`; return whether it is whole.

        Raises OutputError, LocationError.
        """
        stream = self.place.open(name)
        if stream is None:
            return False
        shown = self.staging.archive_shown
        with stream, output.replacing(staged, force=True, shown=shown) as copy:
            while piece := _read(stream, self.place.shown(name)):
                copy.write(piece)
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
        """Delete the log, unless it is to be kept, and return what to say."""
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
        """Delete a log if it is still the file that was archived; return whether it was deleted."""
        try:
            size = os.stat(log.name, dir_fd=self.logs.fd, follow_symlinks=False).st_size
        except OSError:
            return False
        return size == log.size and self.logs.remove(log.name, log.file)


def _read(stream: BinaryIO, shown: str) -> bytes:
    """Return the next bytes of an archive at its destination. Raises LocationError."""
    try:
        return stream.read(1 << 20)
    except OSError as error:
        raise LocationError(f"{shown}: cannot be read: {reason(error)}") from error


def _ensure_whole(staged: Path, log: FoundLog, source: Source) -> None:
    """Read a new archive; raise NotShippedError unless it is whole and has all of the log's chunks.

    source: the log, read to its end.
    """
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
