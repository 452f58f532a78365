# SPDX-License-Identifier: Apache-2.0
"""Why a file or directory cannot be written, and what to do about it."""

import errno
import os
import re

from biotrail.recorder.schema.errors import OutputError

_URL = re.compile("[a-z][a-z0-9+.-]+:/")
"""How a URL begins, also one that was taken for a path."""
_REMEDIES = {
    errno.ENOENT: "its directory does not exist: make it, or give another path",
    errno.ENOTDIR: "a part of the path is not a directory: give another path",
    errno.EACCES: "permission denied: give a path you may write to",
    errno.EPERM: "permission denied: give a path you may write to",
    errno.EROFS: "the file system is read-only: give another path",
    errno.ENOSPC: "no space left on the device: free some, or give another path",
    errno.EDQUOT: "the disk quota is used up: free some space, or give another path",
    errno.EFBIG: "the file would be too large here: raise the limit, or give another path",
    errno.EIO: "the device failed: give another path",
    errno.EPIPE: "its reader went away",
    errno.ENAMETOOLONG: "the name is too long: give a shorter one",
}


def explain(error: OSError, path: str | os.PathLike[str]) -> OutputError:
    """Return an OutputError that says why writing to `path` failed, and what to do about it."""
    reason = _REMEDIES.get(error.errno or 0, error.strerror or str(error))
    if error.errno == errno.ENOENT and _URL.match(os.fspath(path)):
        reason = (
            "it is a URL, and this command writes files of this machine: give a path; "
            "`biotrail archive --watch DIR --to URL` ships recordings"
        )
    return OutputError(f"cannot write {os.fspath(path)}: {reason}")
