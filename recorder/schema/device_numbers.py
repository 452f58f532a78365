# SPDX-License-Identifier: Apache-2.0
"""The kernel's device numbers (dev_t, major << 20 | minor), which are not those of user space."""

import os

_MINOR_BITS = 20


def kernel_dev(number: int) -> int:
    """Return the kernel's dev_t for the dev_t of user space, as in stat."""
    return os.major(number) << _MINOR_BITS | os.minor(number)


def dev_number(text: str | None) -> int | None:
    """Return the kernel's dev_t of the text "major:minor"; None: the text is another."""
    major, colon, minor = (text or "").partition(":")
    if not (colon and major.isdecimal() and minor.isdecimal()):
        return None
    return int(major) << _MINOR_BITS | int(minor)


def dev_text(dev: int) -> str:
    """Return a kernel's dev_t as "major:minor"."""
    return f"{dev >> _MINOR_BITS}:{dev & (1 << _MINOR_BITS) - 1}"
