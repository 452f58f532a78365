# SPDX-License-Identifier: Apache-2.0
"""All `stacks` notes of a recording so far, for files that begin later."""

from typing import Any

STACKS_PER_NOTE = 1000
"""So that no note comes near the log's limits, however deep the stacks are."""


class StackNotes:
    """Every stack that was told; their number is bounded by the kernel's maps."""

    def __init__(self) -> None:
        self._stacks: dict[tuple[str, str], list[Any]] = {}

    def add(self, payload: dict[str, Any]) -> None:
        """Take in a note as the recorder writes them."""
        for side, stacks in payload.items():
            self._stacks.update({(side, number): frames for number, frames in stacks.items()})

    def all(self) -> list[dict[str, Any]]:
        """Notes that together say all of it."""
        return pieces(self._stacks)


def pieces(stacks: dict[tuple[str, str], list[Any]]) -> list[dict[str, Any]]:
    """Notes of limited size from stacks by (side, number)."""
    items = list(stacks.items())
    found = []
    for first in range(0, len(items), STACKS_PER_NOTE):
        note: dict[str, Any] = {}
        for (side, number), frames in items[first : first + STACKS_PER_NOTE]:
            note.setdefault(side, {})[number] = frames
        found.append(note)
    return found
