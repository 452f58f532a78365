# SPDX-License-Identifier: Apache-2.0
"""Number what events refer to: locations, I/O handles, counters, regions."""

from dataclasses import dataclass

GAUGES = (
    ("queued", "Q to D: bios queued and not yet issued", "bios"),
    ("in device", "D to C: bios issued and not yet complete", "bios"),
    ("reads", "bytes that reads completed, over 10 ms", "B/s"),
    ("writes", "bytes that writes completed, over 10 ms", "B/s"),
)
"""Counters that every disk has: name, meaning, unit."""

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


HandleKey = tuple[str, int] | tuple[int, int] | str
"""Of an I/O handle: layer and dev_t; of calls process id and file descriptor, or a file's path."""


class Handles:
    """Numbers locations, I/O handles and counters in the order in which they are asked for."""

    def __init__(self) -> None:
        self.locations: dict[tuple[int, str], Location] = {}
        self.handles: dict[HandleKey, int] = {}
        """Number of each I/O handle, in their order."""
        self.disks: dict[int, int] = {}
        """Per device with a location or handle: its disk's dev_t."""
        self._counters: dict[int, int] = {}
        """Per disk with counters: its index among these."""
        self.regions: dict[str, int] = {}
        """Number of each region of calls and waits, by its name."""
        self.pair_regions: dict[tuple[str, str, str], int] = {}
        """Number of each region of pairs, by its name, the pair's name and its events in words."""
        self.pairs: list[tuple[str, str]] = []
        """Per location of pairs: the declared pair's name, and the key that it is named after."""
        self.threads: dict[int, tuple[int, str]] = {}
        """Process id and name of each thread with calls."""
        self.processes: dict[int, str] = {}
        """Name of the main thread of each process with such threads, as far as it is known."""

    def location(self, dev: int, layer: str) -> Location:
        """Return the location of a disk (dev_t) or with CALLS a thread; a new one on first use."""
        key = (dev, layer)
        if key not in self.locations:
            self.locations[key] = Location(len(self.locations), dev, layer)
            if layer != CALLS:
                self.disks.setdefault(dev, dev)
        return self.locations[key]

    def pair(self, name: str, key: str) -> Location:
        """Return a new location of a declared pair, named after a key."""
        place = (len(self.pairs), PAIRS)
        self.locations[place] = Location(len(self.locations), *place)
        self.pairs.append((name, key))
        return self.locations[place]

    def pair_region(self, name: str, pair: str, events: str) -> int:
        """Return the number of a pair's region of that name; the next one on first use."""
        number = len(self.regions) + len(self.pair_regions)
        return self.pair_regions.setdefault((name, pair, events), number)

    def region(self, name: str) -> int:
        """Return the number of the region of that name; the next one on first use."""
        return self.regions.setdefault(name, len(self.regions) + len(self.pair_regions))

    def handle(self, key: HandleKey) -> int:
        """Return the number of an I/O handle; the next one on first use."""
        return self.handles.setdefault(key, len(self.handles))

    def number(self, location: Location, dev: int) -> int:
        """Return the number of the I/O handle of a disk, or of a partition of it (`dev`)."""
        # The parent of a requests' handle is the bios' handle: create that even without a bio.
        self.handle((BIOS, dev))
        self.disks.setdefault(dev, location.dev)
        return self.handle((location.layer, dev))

    def metric(self, location: Location, gauge: int) -> int:
        """Return the number of a disk's counter; those below len(GAUGES) are of the classes."""
        at = self._counters.setdefault(location.dev, len(self._counters))
        return len(GAUGES) * (at + 1) + gauge
