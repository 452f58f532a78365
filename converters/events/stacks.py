# SPDX-License-Identifier: Apache-2.0
"""Call stacks that queued bios: STACK records joined to their Q, frames from `stacks` notes."""

from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from biotrail.converters.events.events import NO_STACK, Events
from biotrail.converters.events.tables import I32, I64
from biotrail.recorder.schema.records import Kind

_OWN = ("bpf_prog_", "bpf_trace_run", "__bpf_trace_", "__traceiter_", "bpf_trampoline_")
"""Prefixes of the tracing's own functions, the innermost frames of a kernel stack."""
_ID_BITS = 32


class Frame(NamedTuple):
    name: str
    where: str
    """Module or file; empty: the kernel itself, or not known."""
    offset: int
    """Bytes from the function's start; without a name from the file's start; without either an
    address."""


class Stack(NamedTuple):
    """A kernel and a user stack that queued bios, the innermost frame first."""

    kernel: tuple[Frame, ...]
    user: tuple[Frame, ...]
    missing: str
    """Why a stack was not captured; empty if both were."""


class StackNames:
    """All pairs of stacks met so far. Row numbers never change, so tables may hold them."""

    def __init__(self) -> None:
        self._rows: dict[int, int] = {}
        self._frames: dict[tuple[str, int], tuple[Frame, ...]] = {}
        self._all: list[Stack] = []
        self.refused: Counter[str] = Counter()
        """Number of stacks that the kernel did not capture, by reason."""

    def __len__(self) -> int:
        return len(self._rows)

    def add_frames(self, payload: Mapping[str, Any]) -> None:
        """Add a `stacks` note: by side, id (text) → list of [function, file or module, offset]."""
        self._all = []
        for side in ("kernel", "user"):
            for number, frames in payload.get(side, {}).items():
                self._frames[side, int(number)] = tuple(Frame(*frame) for frame in frames)

    def attach(self, events: Events) -> None:
        """Set `events.stack` of each Q by its STACK record: kernel << 32 | user, both signed.

        Counts those that were not captured.
        """
        rows = events.rows(Kind.STACK)
        if not len(rows):
            return
        queued = events.followed(Kind.Q, rows)
        found = queued >= 0
        events.stack = np.full(len(events), NO_STACK, dtype=np.int64)
        words, half = events.raw[rows[found], 2], np.uint64(_ID_BITS)
        events.stack[queued[found]] = (words << half | words >> half).view(np.int64)
        ids = events.stack[events.stack != NO_STACK]
        pairs, counts = np.unique(ids, return_counts=True)
        for pair, count in zip(pairs.tolist(), counts.tolist(), strict=True):
            for side, number in zip(("kernel", "user"), _unpacked(pair), strict=True):
                if number < 0 and (why := self._side(side, number)[1]):
                    self.refused[why] += count

    def rows(self, ids: I64) -> I32:
        """Return the row of each pair of stack ids, int32 (n,), in `all`; -1 for NO_STACK."""
        pairs, at = np.unique(ids, return_inverse=True)
        known = [
            -1 if pair == NO_STACK else self._rows.setdefault(pair, len(self._rows))
            for pair in pairs.tolist()
        ]
        return np.array(known, dtype=np.int32)[at]

    def all(self) -> list[Stack]:
        """Return all stacks by row, with the frames of the notes read so far; a new list."""
        for pair in list(self._rows)[len(self._all) :]:
            kernel, user = _unpacked(pair)
            inner, why = self._side("kernel", kernel)
            outer, why_outer = self._side("user", user)
            while inner and inner[0].name.startswith(_OWN):
                inner = inner[1:]
            self._all.append(Stack(inner, outer, why or why_outer))
        return list(self._all)

    def _side(self, side: str, number: int) -> tuple[tuple[Frame, ...], str]:
        """Return (frames, "") of a stack id, or ((), reason) if there is none but should be."""
        if number >= 0:
            found = self._frames.get((side, number))
            return (found, "") if found else ((), f"{side} stack not in the log")
        if number == -1 or (side == "user" and number == -_EFAULT):  # a kernel thread has none
            return (), ""
        return (), _REFUSED.get(-number, f"{side} stack refused (errno {-number})").format(side)


_EFAULT = 14
_REFUSED = {
    17: "{} stack's place taken by another (EEXIST)",
    12: "no room for more {} stacks (ENOMEM)",
    16: "{} stack not taken in an interrupt (EBUSY)",
}


def _unpacked(pair: int) -> tuple[int, int]:
    low = pair & ((1 << _ID_BITS) - 1)
    return pair >> _ID_BITS, low - (1 << _ID_BITS) if low >> (_ID_BITS - 1) else low
