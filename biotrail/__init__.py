# SPDX-License-Identifier: Apache-2.0
"""biotrail: the command, and for notebooks `biotrail.open` (docs/notebook.ipynb)."""

import os
from importlib import import_module
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from biotrail.library import Recording

__version__ = "0.2.0.dev0"


def open(
    path: str | os.PathLike[str] | BinaryIO,
    associate: str = "auto",
    *,
    own_io: bool = False,
    include_ambiguous: bool = False,
) -> "Recording":
    """Open a log, an archive, another tool's recording or a stream of one; return its Recording.

    associate: how requests are matched with bios: "identity" by kernel pointers, "intervals" by
    sectors and times, "auto" by pointers where the log has any. own_io: include the recording's own
    I/O. include_ambiguous: count latencies that are in doubt as known. Raises
    recorder.schema.errors.LogFormatError for data that is foreign, empty, of a newer format or not
    readable; for a missing file one that is a FileNotFoundError, too.
    """
    # By import_module, at the call: `biotrail record` imports this package, and must depend on
    # neither Arrow nor the model.
    found: Recording = import_module("biotrail.library").Recording(
        path, associate, own_io=own_io, include_ambiguous=include_ambiguous
    )
    return found
