# SPDX-License-Identifier: Apache-2.0
"""Followed requests or bios recorded beside the block layer's events, into one log."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from biotrail.recorder.filters.filters import Filters
from biotrail.recorder.log import Segment
from biotrail.recorder.probes.backend import Capabilities, Probes, ProgramInfo
from biotrail.recorder.probes.maps.path_maps import PathRuns
from biotrail.recorder.probes.maps.stack_maps import FreshStacks
from biotrail.recorder.probes.sites.follow import FollowConfig, FollowProbes
from biotrail.recorder.probes.sites.follow_options import PART, FollowOptions
from biotrail.recorder.probes.sites.planning import planned
from biotrail.recorder.schema.errors import ProbeError
from biotrail.recorder.schema.payloads import BackendFacts, End


def follow_beside(
    block: Probes, options: FollowOptions, filters: Filters, devices: Sequence[tuple[int, int]]
) -> Probes:
    """Return probes that record what `block` does, and follow what `options` say; not open yet.

    filters: those on tasks hold for what is followed too. devices: (dev_t of the disk, of the
    partition or 0); objects name disks alone, so that those of a whole disk are followed. Raises
    TraceError: it cannot be followed.
    """
    if block.capabilities.backend != "core":
        raise ProbeError("--follow needs the core backend, and a kernel with type information")
    plan, way = planned(options.struct, options.way, options.max_functions)
    disks = list(dict.fromkeys((disk, 0) for disk, _ in devices))
    config = FollowConfig(plan, way, options, filters, disks)
    return cast(Probes, JoinedProbes(block, FollowProbes(config)))


class JoinedProbes:
    """Two backends as one: the block layer's events, and followed objects; fits backend.Probes.

    What is not here is the block layer's alone.
    """

    waker = None
    """The ring of followed objects wakes nobody."""

    def __init__(self, block: Probes, follow: FollowProbes) -> None:
        """Keep both; neither is open."""
        self._block, self._follow = block, follow

    def __getattr__(self, name: str) -> Any:
        return getattr(self._block, name)

    @property
    def capabilities(self) -> Capabilities:
        """What both can do."""
        return self._block.capabilities._replace(site_stacks=True)

    def path_runs(self) -> PathRuns:
        """Return how often the programs of the path, and those that follow, ran since open."""
        runs = self._block.path_runs()
        return replace(runs, by_part={**runs.by_part, PART: self._follow.runs() or 0})

    def open(self) -> None:
        """Load programs and maps of both. Raises ProbeError; then nothing stays loaded."""
        self._block.open()
        try:
            self._follow.open()
        except BaseException:
            self._block.close()
            raise

    def attach(self) -> None:
        """Start recording, the lives last: of a life that is recorded, the events are."""
        self._block.attach()
        self._follow.attach()

    def detach(self) -> None:
        """Stop recording, first the lives; rings and counters stay readable."""
        self._follow.detach()
        self._block.detach()

    def close(self) -> None:
        """Unload all programs and unmap all rings. Closing again has no effect."""
        self._follow.close()
        self._block.close()

    def drain(self) -> list[Segment]:
        """Copy out all committed records of both."""
        return self._block.drain() + self._follow.drain()

    def fill(self) -> float:
        """Return the used share of the fullest ring, 0 to 1."""
        return max(self._block.fill(), self._follow.fill())

    def lost(self) -> NDArray[np.uint64]:
        """Return running totals (cpus, levels, 256) of records lost to full rings, by kind."""
        return self._block.lost() + self._follow.lost()

    def backend_facts(self) -> BackendFacts:
        """Return the header's entries about the backend, with "sites"."""
        return {**self._block.backend_facts(), "sites": self._follow.backend_facts()["sites"]}

    def programs(self) -> list[ProgramInfo]:
        """Return every program of both; those that follow have the part PART."""
        followed = [replace(program, part=PART) for program in self._follow.programs()]
        return self._block.programs() + followed

    def end_facts(self) -> End:
        """Return the END frame's entries of both."""
        return {**self._block.end_facts(), **self._follow.end_facts()}

    def fresh_stacks(self) -> FreshStacks:
        """Return the call stacks that are new since the last call, of both."""
        return self._block.fresh_stacks()._replace(site=self._follow.fresh_stacks().site)

    def short_of_memory(self) -> str:
        """Return a message if the ring of lives is smaller as memory was short; "" if it is not."""
        found = (self._block.short_of_memory(), self._follow.short_of_memory())
        return "; ".join(message for message in found if message)

    def list_cgroup(self, number: int, *, wanted: bool) -> None:
        """Record a cgroup, by id, and those below it, from now on, or no longer; in both."""
        self._block.list_cgroup(number, wanted=wanted)
        self._follow.list_cgroup(number, wanted=wanted)
