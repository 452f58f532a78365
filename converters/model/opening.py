# SPDX-License-Identifier: Apache-2.0
"""What a path or stream holds: a log, or blktrace's data."""

import os
from typing import BinaryIO, cast

from .blktrace import BlktraceSource
from .blktrace_files import find, is_blktrace, peek
from .blktrace_format import byte_order
from .sources import LogSource, Source


def open_source(path: str | os.PathLike[str] | BinaryIO | Source) -> Source:
    """Opens a log, a set `DEV.blktrace.CPU` (by DEV or by one file), or a stream of records.

    An existing file goes before a set of the same name; a source is given back.
    Raises LogFormatError: foreign, empty, newer, not readable.
    """
    if not isinstance(path, str | os.PathLike):
        if not hasattr(path, "read"):
            return path
        first, stream = peek(cast(BinaryIO, path))
        return BlktraceSource(stream) if byte_order(first) is not None else LogSource(stream)
    if is_blktrace(path) or (not os.path.isfile(path) and find(path)):
        return BlktraceSource(path)
    return LogSource(path)
