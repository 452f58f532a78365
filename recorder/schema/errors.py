# SPDX-License-Identifier: Apache-2.0
"""The tree of all errors that biotrail reports to its user.

A message says what was wrong, where (path, offset, event, device) and what to do
next. Only the command line prints it, without a traceback, with exit status 1.
"""

import errno
import os


class TraceError(Exception):
    """Root of all errors that the command line prints without a traceback."""


class ProbeError(TraceError):
    """Recording cannot start or continue: rights, kernel, libraries, devices."""


class SiteError(ProbeError):
    """A tracepoint, field, struct or declaration that this kernel has not, or that is wrong."""


class DeclarationError(SiteError):
    """A file of declarations is wrong, which its user wrote as options are: exit status 2."""


class LogFormatError(TraceError):
    """A log is foreign, empty, damaged or newer than this reader."""


class NotALogError(LogFormatError):
    """The file that was given as a log is none, and no damaged one."""


class LogNotFoundError(LogFormatError, FileNotFoundError):
    """The file that was given as a log does not exist; `errno` is ENOENT."""

    def __init__(self, path: str) -> None:
        """Set `filename` to `path`, and `errno` and `strerror` as for FileNotFoundError."""
        super().__init__(errno.ENOENT, os.strerror(errno.ENOENT), path)

    def __str__(self) -> str:
        return (
            f"{self.filename}: cannot be opened: {self.strerror}; "
            "give the path of a log that `biotrail record` wrote"
        )


class ConversionError(TraceError):
    """A log cannot be converted to the requested output."""


class OutputError(TraceError):
    """An output cannot be written: it exists, its directory is missing, the disk is full."""


class ReaderGoneError(OutputError):
    """The reader of the pipe that is written to has closed it (SIGPIPE, EPIPE)."""
