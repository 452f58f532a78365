# SPDX-License-Identifier: Apache-2.0
"""Stacks as notes for the log, with the names of their functions.

Names are looked up when a stack is first seen, not at the end: its process and its files are
there then, and a log that breaks off, each rotated file and each dump has them.
"""

import shutil
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from biotrail.recorder.output.stack_notes import pieces
from biotrail.recorder.output.writer import Job, WriterThread
from biotrail.recorder.probes.stack_maps import BY_BUILD_ID, FreshStacks, Stacks
from biotrail.recorder.schema.errors import ProbeError
from biotrail.recorder.symbols.kallsyms import LiveKernelSymbols
from biotrail.recorder.symbols.user_symbols import UserSymbols

HURRIED_NS = 100_000_000
"""How often to look for user stacks without waiting for a chunk: programs may end soon."""
COST_SHARE = 100
"""A look that takes t is not repeated before 100 t has passed: at most 1 % of a core."""

NAMELESS = (
    "the kernel hides its symbols (kernel.kptr_restrict, or CAP_SYSLOG is missing): stacks hold "
    "addresses only"
)

Frame = list[Any]
"""[name, where, offset]: function, module or file, bytes into the function.

Without a name, the offset is in the file; without either, it is an address."""


@runtime_checkable
class TakesStacks(Protocol):
    """A backend that records stacks."""

    def fresh_stacks(self) -> FreshStacks:
        """Stacks that were not read before."""


class StackWatch:
    """Tells stacks that were not told before; nothing where none are recorded."""

    def __init__(self, wanted: Stacks, probes: object, command: Sequence[str] = ()) -> None:
        """Reads the kernel's symbols, which takes a while. Raises ProbeError: no such backend.

        command: what will be recorded while it runs.
        """
        self._probes: TakesStacks | None = None
        self._user: UserSymbols | None = None
        self._next = time.monotonic_ns()
        self.count = 0
        """Distinct stacks so far."""
        if wanted == Stacks.NONE:
            return
        if not isinstance(probes, TakesStacks):
            raise ProbeError("this backend records no stacks: use --backend core, or no --stacks")
        self._probes = probes
        self._kernel = LiveKernelSymbols()
        if wanted >= Stacks.USER:
            self._user = UserSymbols(known=[shutil.which(c) or c for c in command[:1]])

    @property
    def nameless(self) -> bool:
        """Whether the kernel hides its symbols from this process."""
        return self._probes is not None and not self._kernel.known

    def hurry(self, writer: WriterThread) -> Callable[[int], None]:
        """Something to do every HURRIED_NS, given the time."""

        def look(now_ns: int) -> None:
            if self._user is not None and self.due(now_ns):
                self.put(writer)

        return look

    def due(self, now_ns: int) -> bool:
        """Whether it may look again."""
        return self._probes is not None and now_ns >= self._next

    def put(self, writer: WriterThread) -> bool:
        """Have what is new written behind all that is queued; whether it will be."""
        return all(writer.offer(job) for job in self.jobs(writer))

    def jobs(self, writer: WriterThread) -> list[Job]:
        """What writes it."""
        return [] if self._probes is None else [writer.notes("stacks", self.changes)]

    def changes(self) -> list[dict[str, Any]]:
        """`stacks` notes with what is new."""
        if self._probes is None:
            return []
        began = time.monotonic_ns()
        fresh = self._probes.fresh_stacks()
        now = time.monotonic_ns()
        self._next = now + (now - began) * COST_SHARE
        if not fresh.kernel and not fresh.user:
            return []
        self._kernel.refresh()
        self.count += len(fresh.kernel) + len(fresh.user)
        kernel = {("kernel", str(n)): self._kernel_frames(a) for n, a in fresh.kernel.items()}
        return pieces({**kernel, **self._user_stacks(fresh.user)})

    def _kernel_frames(self, addresses: NDArray[np.uint64]) -> list[Frame]:
        return [self._kernel_frame(address) for address in addresses.tolist()]

    def _kernel_frame(self, address: int) -> Frame:
        # All are addresses to return to: the call is right before, if need be in another function.
        found = self._kernel.find(address - 1)
        return ["", "", address] if found is None else [found.name, found.module, found.offset + 1]

    def _user_stacks(self, stacks: dict[int, NDArray[np.void]]) -> dict[tuple[str, str], Any]:
        if self._user is None:
            return {}
        known = [frames[frames["status"] == BY_BUILD_ID] for frames in stacks.values()]
        self._user.look_for(bytes(build_id) for frames in known for build_id in frames["build_id"])
        return {
            ("user", str(number)): [
                self._user_frame(frame, called=place > 0) for place, frame in enumerate(frames)
            ]
            for number, frames in stacks.items()
        }

    def _user_frame(self, frame: np.void, *, called: bool) -> Frame:
        place = int(frame["ip"])
        if self._user is None or frame["status"] != BY_BUILD_ID:
            return ["", "", place]
        return list(self._user.find(bytes(frame["build_id"]), place, called=called))
