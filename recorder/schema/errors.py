# SPDX-License-Identifier: Apache-2.0
"""Every error that biotrail reports to its user, as one tree.

A message says what was wrong, where (path, offset, event, device) and what to do
next. Only the command line prints it, without a traceback, with exit status 1.
"""

import errno
import os


class TraceError(Exception):
    """Root of all errors that the command line prints without a traceback."""


class ProbeError(TraceError):
    """Recording cannot start or go on: rights, kernel, libraries, devices."""


class LogFormatError(TraceError):
    """A log is foreign, empty, damaged or newer than this reader."""


class LogNotFoundError(LogFormatError, FileNotFoundError):
    """There is no file of the name that was given as a log; `errno` is ENOENT."""

    def __init__(self, path: str) -> None:
        """Says that `path` does not exist, as `filename` does."""
        super().__init__(errno.ENOENT, os.strerror(errno.ENOENT), path)

    def __str__(self) -> str:
        return (
            f"{self.filename}: cannot be opened: {self.strerror}; "
            "give the path of a log that `biotrail record` wrote"
        )


class ConversionError(TraceError):
    """A log cannot be turned into the output that was asked for."""


class OutputError(TraceError):
    """An output cannot be written: it exists, its directory is missing, the disk is full."""


class ReaderGoneError(OutputError):
    """Whoever read the pipe that is written to has gone away (SIGPIPE, EPIPE)."""
