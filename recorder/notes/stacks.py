# SPDX-License-Identifier: Apache-2.0
"""Makes notes of new call stacks for the log, with the names of their functions.

Names are looked up when a stack first occurs, not at the end: its process and its files still
exist then, and an interrupted log, each rotated file and each dump has the names.
"""

import shutil
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biotrail.recorder.output.series import split_into_notes
from biotrail.recorder.output.writer import WriterThread
from biotrail.recorder.probes.backend import Probes
from biotrail.recorder.probes.maps.stack_maps import BY_BUILD_ID, Stacks
from biotrail.recorder.schema.payloads import Frame
from biotrail.recorder.symbols.kallsyms import KernelSymbols
from biotrail.recorder.symbols.user_symbols import UserSymbols

HURRIED_NS = 100_000_000
"""How often to look for user stacks without waiting for a chunk: their process may end soon."""
COST_SHARE = 100
"""A look that takes t is not repeated before 100 t has passed: at most 1 % of a core."""

NAMELESS = (
    "the kernel hides its symbols (kernel.kptr_restrict, or CAP_SYSLOG is missing): stacks hold "
    "addresses only"
)
REASONLESS = (
    "the kernel hides its symbols (kernel.kptr_restrict, or CAP_SYSLOG is missing): what waits are "
    "for (--path fs) is unknown"
)


class StackWatch:
    """Makes notes of new stacks; none where no stacks are recorded."""

    def __init__(
        self, wanted: Stacks, probes: Probes, command: Sequence[str] = (), *, waits: bool = False
    ) -> None:
        """Read the kernel's symbols, which takes a while, if any stacks are wanted.

        `command`: its program is searched for names too, though it does not run yet. `waits`: the
        stacks of waits (`--path fs`) are recorded.
        """
        sites = probes.site_stacks
        self._probes: Probes | None = None
        self._wanted, self._waits, self._sites = wanted, waits, sites
        self._user: UserSymbols | None = None
        self._next = time.monotonic_ns()
        self.hurried = False
        """Whether to look every HURRIED_NS, for programs' stacks."""
        if wanted == Stacks.NONE and not waits and not sites:
            return
        self._probes = probes
        self._kernel = KernelSymbols()
        if wanted >= Stacks.USER:
            self.hurried = True
            self._user = UserSymbols(known=[shutil.which(c) or c for c in command[:1]])

    def nameless(self) -> list[str]:
        """Return what to say where the kernel hides its symbols from this process."""
        if self._probes is None or len(self._kernel):
            return []
        named = self._wanted > Stacks.NONE or self._sites
        return [NAMELESS] * named + [REASONLESS] * self._waits

    def due(self, now_ns: int) -> bool:
        return self._probes is not None and now_ns >= self._next

    def put(self, writer: WriterThread) -> bool:
        """Queue the job that notes new stacks, if any are recorded; False: the queue is full."""
        return self._probes is None or writer.offer(writer.notes("stacks", self.changes))

    def changes(self) -> list[dict[str, Any]]:
        """Return `stacks` notes of what is new since the last call. Raises RefusedError."""
        if self._probes is None:
            return []
        began = time.monotonic_ns()
        fresh = self._probes.fresh_stacks()
        now = time.monotonic_ns()
        self._next = now + (now - began) * COST_SHARE
        if not any(fresh.values()):
            return []
        self._kernel.refresh()
        found: dict[tuple[str, str], list[Frame]] = {}
        for side in ("kernel", "wait", "site"):
            for number, addresses in fresh.get(side, {}).items():
                found[side, str(number)] = frames = []
                for address in addresses.tolist():
                    # A return address may lie behind its function's end, if the call does not
                    # return; the byte before it is the call's.
                    at = self._kernel.find(address - 1)
                    frames.append([at.name, at.module, at.offset + 1] if at else ["", "", address])
        return split_into_notes({**found, **self._user_stacks(fresh.get("user", {}))})

    def _user_stacks(
        self, stacks: dict[int, NDArray[np.void]]
    ) -> dict[tuple[str, str], list[Frame]]:
        """Return the frames of user stacks by ("user", id as text), after finding their files.

        `stacks`: BUILD_ID_FRAME arrays (frames,) by id, innermost frame first.
        """
        if self._user is None:
            return {}
        with_file = [frames[frames["status"] == BY_BUILD_ID] for frames in stacks.values()]
        self._user.look_for(
            bytes(build_id) for frames in with_file for build_id in frames["build_id"]
        )
        found: dict[tuple[str, str], list[Frame]] = {}
        for number, frames in stacks.items():
            found["user", str(number)] = names = []
            for place, frame in enumerate(frames):
                offset = int(frame["ip"])
                if frame["status"] == BY_BUILD_ID:
                    build_id = bytes(frame["build_id"])
                    names.append(list(self._user.find(build_id, offset, called=place > 0)))
                else:
                    names.append(["", "", offset])
        return found
