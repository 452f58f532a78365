# SPDX-License-Identifier: Apache-2.0
"""biotrail: the command, and for notebooks `biotrail.open` (docs/notebook.ipynb)."""

import os
from importlib import import_module
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from biotrail.library import Recording

__version__ = "0.1.0"


def open(
    path: str | os.PathLike[str] | BinaryIO, associate: str = "auto", *, own_io: bool = False
) -> "Recording":
    """A log, an archive, blktrace's data or a stream of them, as Arrow tables.

    associate: which request served which bio: "identity" by kernel pointers, "intervals"
    without them, "auto" by pointers where there are any. own_io: the recording's own I/O is
    not left out. Raises recorder.errors.LogFormatError (foreign, empty, newer, not
    readable); where there is no such file one that is a FileNotFoundError, too.
    """
    # Not by name, or recording, which needs neither Arrow nor the model, would load both.
    found: Recording = import_module("biotrail.library").Recording(path, associate, own_io=own_io)
    return found
