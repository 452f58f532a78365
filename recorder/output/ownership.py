# SPDX-License-Identifier: Apache-2.0
"""Whose the files are that biotrail writes: private, and of the user who called sudo."""

import os

from biotrail.recorder.schema.errors import OutputError

PRIVATE_FILE = 0o600
PRIVATE_DIRECTORY = 0o700
_NO_ID = (1 << 32) - 1  # (uid_t)-1
_ID_DIGITS = len(str(_NO_ID))


def owner() -> tuple[int, int] | None:
    """Return (uid, gid) of the user who called sudo, from SUDO_UID and SUDO_GID.

    None: this process is not root, or one of the variables is not set or no valid id. Files then
    belong to this process's user.
    """
    ids = [os.environ.get(name, "") for name in ("SUDO_UID", "SUDO_GID")]
    if os.geteuid() != 0 or not all(text.isascii() and text.isdecimal() for text in ids):
        return None
    # The largest is (uid_t)-1, which chown takes as "do not change", so it is no user's id.
    found = [int(text) if len(text) <= _ID_DIGITS else _NO_ID for text in ids]
    return (found[0], found[1]) if max(found) < _NO_ID else None


def trusted() -> set[int]:
    """Return the users whose links and directories count as this user's own.

    Root, this process's user, and the one who called sudo.
    """
    ids = owner()
    return {0, os.geteuid(), *([] if ids is None else ids[:1])}


def give_to_owner(fd: int, shown: str) -> None:
    """Change the owner of the file open as `fd` to the user who called sudo, if any.

    `shown`: its path in error messages. Raises OutputError.
    """
    if (ids := owner()) is None:
        return
    try:
        os.fchown(fd, *ids)
    except OSError as error:
        raise OutputError(
            f"cannot give {shown} to the user who called sudo (SUDO_UID {ids[0]}, SUDO_GID "
            f"{ids[1]}): {error.strerror}; unset SUDO_UID and SUDO_GID, or give another path"
        ) from error
