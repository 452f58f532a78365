# SPDX-License-Identifier: Apache-2.0
"""Keeps the stacks of all `stacks` notes so far, to repeat them in files that begin later."""

from typing import Any

from biotrail.recorder.schema.payloads import Note

STACKS_PER_NOTE = 1000
"""Stacks in one note, so few that however deep they are no note reaches the log's size limit."""


class StackNotes:
    """Every stack that was recorded; their number is bounded by the size of the kernel's maps."""

    def __init__(self) -> None:
        self._stacks: dict[tuple[str, str], list[Any]] = {}

    def add(self, payload: Note) -> None:
        """Add the stacks of a `stacks` note; one with a side and id added before is replaced.

        `payload`: {"kernel", "user", "wait" or "site": {id: frames}}.
        """
        for side, stacks in payload.items():
            self._stacks.update({(side, number): frames for number, frames in stacks.items()})

    def all(self) -> list[dict[str, Any]]:
        """Return notes that together hold all stacks."""
        return split_into_notes(self._stacks)


def split_into_notes(stacks: dict[tuple[str, str], list[Any]]) -> list[dict[str, Any]]:
    """Return payloads of `stacks` notes, each of at most STACKS_PER_NOTE stacks.

    A payload is {side: {id: frames}}. `stacks`: frames by (side, id), where side is "kernel",
    "user", "wait" or "site". In its order, in which a payload may have several sides; without
    stacks, an empty list.
    """
    items = list(stacks.items())
    found = []
    for first in range(0, len(items), STACKS_PER_NOTE):
        note: dict[str, Any] = {}
        for (side, number), frames in items[first : first + STACKS_PER_NOTE]:
            note.setdefault(side, {})[number] = frames
        found.append(note)
    return found
