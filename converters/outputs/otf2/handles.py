# SPDX-License-Identifier: Apache-2.0
"""Number what events refer to: locations, I/O handles, counters, regions."""

from dataclasses import dataclass

from biotrail.converters.outputs.otf2.gauges import GAUGES

BIOS, REQUESTS, COUNTERS = "bios", "requests", "counters"
"""Kinds of a device's locations; the first two are layers, each an I/O paradigm."""
CALLS = "calls"
"""Kind of a thread's location."""
PAIRS = "pairs"
"""Kind of a location of pairs of events."""


@dataclass(frozen=True)
class Location:
    """One disk's bios, requests or counters, one thread's calls, or pairs of one key."""

    number: int
    dev: int
    """The disk's dev_t, the thread's id, or the index in `Handles.pairs`."""
    layer: str
    """BIOS, REQUESTS, COUNTERS, CALLS or PAIRS."""


@dataclass(frozen=True)
class FileHandle:
    """An I/O handle of calls: of a file, or of a file descriptor of a process."""

    number: int
    path: str = ""
    """The file's; empty: it is a descriptor's."""
    pid: int = 0
    fd: int = 0


@dataclass(frozen=True)
class PairPlace:
    """What a location of pairs is named after."""

    pair: str
    """The declared pair's name."""
    key: str


@dataclass(frozen=True)
class PairRegion:
    """A region of pairs of events: its name, the pair's name and its events in words."""

    name: str
    pair: str
    events: str


class Handles:
    """Numbers locations, I/O handles and counters in the order in which they are asked for."""

    def __init__(self) -> None:
        self.locations: dict[tuple[int, str], Location] = {}
        self.handles: dict[tuple[str, int], int] = {}
        """(layer, dev_t) → number of the I/O handle."""
        self.disks: dict[int, int] = {}
        """Per device with a location or handle: its disk's dev_t."""
        self._counters: dict[int, int] = {}
        """Per disk with counters: its index among these."""
        self.regions: dict[str, int] = {}
        """Number of each region of calls and waits, by its name."""
        self.pair_regions: dict[PairRegion, int] = {}
        """Number of each region of pairs."""
        self.pairs: list[PairPlace] = []
        """Per location of pairs: its names."""
        self.threads: dict[int, tuple[int, str]] = {}
        """Process id and name of each thread with calls."""
        self.processes: dict[int, str] = {}
        """Name of the main thread of each process with such threads, as far as it is known."""
        self.files: dict[str | tuple[int, int], FileHandle] = {}
        """I/O handles of calls, by path, or by (process id, file descriptor)."""

    def location(self, dev: int, layer: str) -> Location:
        """Return the location of a disk's bios, requests or counters, or of a thread's calls.

        A new one on first use. dev: the disk's dev_t, or with CALLS the thread's id.
        """
        key = (dev, layer)
        if key not in self.locations:
            self.locations[key] = Location(len(self.locations), dev, layer)
            if layer != CALLS:
                self.disks.setdefault(dev, dev)
        return self.locations[key]

    def pair(self, place: PairPlace) -> Location:
        """Return a new location of pairs, which is named after `place`."""
        key = (len(self.pairs), PAIRS)
        self.locations[key] = Location(len(self.locations), *key)
        self.pairs.append(place)
        return self.locations[key]

    def pair_region(self, name: str, pair: str, events: str) -> int:
        """Return the number of a pair's region of that name; the next one on first use."""
        region = PairRegion(name, pair, events)
        return self.pair_regions.setdefault(region, len(self.regions) + len(self.pair_regions))

    def region(self, name: str) -> int:
        """Return the number of the region of that name; the next one on first use."""
        return self.regions.setdefault(name, len(self.regions) + len(self.pair_regions))

    def file(self, path: str) -> int:
        """Return the number of the I/O handle of a file; the next one on first use."""
        if path not in self.files:
            self.files[path] = FileHandle(self._next_handle(), path)
        return self.files[path].number

    def descriptor(self, tid: int, fd: int) -> int:
        """Return the number of the I/O handle of a file descriptor; the next one on first use.

        tid: a thread of `threads`, whose process has the descriptor.
        """
        pid, _ = self.threads[tid]
        if (pid, fd) not in self.files:
            self.files[pid, fd] = FileHandle(self._next_handle(), pid=pid, fd=fd)
        return self.files[pid, fd].number

    def _next_handle(self) -> int:
        return len(self.handles) + len(self.files)

    def number(self, location: Location, dev: int) -> int:
        """Return the number of the I/O handle through which operations address a device.

        location: a disk's bios or requests. dev: dev_t of that disk or of a partition on it.
        """
        # The parent of a requests' handle is the bios' handle: create that even without a bio.
        for key in sorted({(BIOS, dev), (location.layer, dev)} - self.handles.keys()):
            self.handles[key] = self._next_handle()
        self.disks.setdefault(dev, location.dev)
        return self.handles[location.layer, dev]

    def metric(self, location: Location, gauge: int) -> int:
        """Return the number of a disk's counter, which its samples refer to.

        gauge: index in GAUGES. Numbers below len(GAUGES) are those of the metric classes.
        """
        at = self._counters.setdefault(location.dev, len(self._counters))
        return len(GAUGES) * (at + 1) + gauge
