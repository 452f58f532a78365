# SPDX-License-Identifier: Apache-2.0
"""Every error that biotrail reports to its user, as one tree.

A message says what was wrong, where (path, offset, event, device) and what to do
next. Only the command line prints it, without a traceback, with exit status 1.
"""


class TraceError(Exception):
    """Root of all errors that the command line prints without a traceback."""


class ProbeError(TraceError):
    """Recording cannot start or go on: rights, kernel, libraries, devices."""


class LogFormatError(TraceError):
    """A log is foreign, empty, damaged or newer than this reader."""


class ConversionError(TraceError):
    """A log cannot be turned into the output that was asked for."""


class OutputError(TraceError):
    """An output cannot be written: it exists, its directory is missing, the disk is full."""


class ReaderGoneError(OutputError):
    """Whoever read the pipe that is written to has gone away (SIGPIPE, EPIPE)."""
