# SPDX-License-Identifier: Apache-2.0
"""Branches of a printed tree: what is drawn before a name, and chains of frames in one line."""

import textwrap
from collections.abc import Iterator, Sequence

WIDTH = 160
"""Characters of a line where the terminal's are not known."""
ARROW = " → "


def branch(last: Sequence[bool]) -> str:
    """Return what is drawn before a name: `│ ├ `.

    last: of each node from the outermost inwards, whether none follows it at its place; without
    any, nothing is drawn.
    """
    if not last:
        return ""
    return "".join("  " if one else "│ " for one in last[:-1]) + ("└ " if last[-1] else "├ ")


def below(last: Sequence[bool], more: bool) -> str:
    """Return what is drawn before a node's further lines. more: whether nodes are below it."""
    return "".join("  " if one else "│ " for one in last) + ("│ " if more else "  ")


def chain(names: Sequence[str], room: int) -> Iterator[str]:
    """Yield the names in lines of about `room` characters: `vfs_read → ext4_file_read_iter →`."""
    text = ARROW.join(name.replace(" ", "\N{NO-BREAK SPACE}") for name in names)
    for line in textwrap.wrap(text, max(room, 40), break_long_words=False, break_on_hyphens=False):
        yield line.replace("\N{NO-BREAK SPACE}", " ")
