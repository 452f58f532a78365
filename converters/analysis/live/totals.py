# SPDX-License-Identifier: Apache-2.0
"""Sums over a recording from its beginning: by device and operation, and of blame."""

from collections import Counter
from typing import NamedTuple

import numpy as np

from biotrail.converters.analysis.blame import tree
from biotrail.converters.analysis.blame.online import Online, Waits
from biotrail.converters.analysis.distributions.groups import OTHERS, Group, Groups, add_to_all
from biotrail.converters.analysis.distributions.keys import OP_BITS
from biotrail.converters.analysis.distributions.samples import samples_of
from biotrail.converters.events.context import Context
from biotrail.converters.events.tables import Lifecycles

MOST = 128
"""Groups that are kept apart; further ones are added up. Also the names by which they are."""
_PLACE_BITS = 40
"""Bits of a place: of a device's number and an operation's (Samples.place)."""
LABELS = {
    "unit": ("unit",),
    "container": ("container", "pod", "namespace"),
    "pod": ("pod", "namespace"),
    "namespace": ("namespace",),
}
"""What I/O can be divided by beside device and operation → names of its values."""


class Total(NamedTuple):
    """A group's figures. device, operation: None: all groups beyond the first MOST together."""

    device: str | None
    operation: str | None
    group: Group
    labels: tuple[str, ...] | None = ()
    """Values of LABELS, "" where there is none; None: of names beyond the first MOST."""


class Totals:
    """Adds up windows; memory depends on the number of devices and operations alone.

    Where they are divided by what the charged cgroup is, a name is what is known of the cgroup when
    its I/O is added: sums never move from one name to another.
    """

    def __init__(self, context: Context, by: str | None = None) -> None:
        self._context = context
        self._groups = Groups(MOST)
        self._by = by
        self._labels: dict[tuple[str, ...], int] = {}

    def add(self, window: Lifecycles) -> None:
        bios = samples_of(window.bios, window.bio_stages, self._context)
        codes = bios.place
        if self._by is not None:  # the number of each bio's labels, above the bits of a place
            ids, place = np.unique(window.bios.cgroup, return_inverse=True)
            numbers = []
            for one in ids.tolist():
                name = self._context.cgroup_names.name(one)
                container = name.container or name.container_id or ""
                values = {  # names, or ids where there are none
                    "unit": name.unit or name.slice or "",
                    "container": f"{container} (its monitor)" if name.monitor else container,
                    "pod": name.pod or name.pod_uid or "",
                    "namespace": name.namespace or "",
                }
                labels = tuple(values[field] for field in LABELS[self._by])
                known = labels in self._labels or len(self._labels) < MOST
                number = self._labels.setdefault(labels, len(self._labels)) if known else MOST
                numbers.append(number)
            codes = codes | np.array(numbers, dtype=np.int64)[place] << _PLACE_BITS
        add_to_all(bios, [(self._groups, codes)])

    def groups(self) -> list[Total]:
        """Return the groups, which are those that `add` changes."""
        labels = list(self._labels)
        found = []
        for code, group in self._groups.by_code.items():
            if code == OTHERS:
                found.append(Total(None, None, group, None if self._by else ()))
                continue
            place, number = code & (1 << _PLACE_BITS) - 1, code >> _PLACE_BITS
            own = () if self._by is None else labels[number] if number < MOST else None
            device = self._context.device_name(place >> OP_BITS)
            found.append(Total(device, self._context.op_name(place), group, own))
        return found


MOST_VICTIMS = 64
"""Victims that are kept apart, the first ones; further ones are OTHERS."""
MOST_PAIRS = 256
"""Pairs of victim and culprit likewise; a victim's further culprits are OTHERS."""


class BlameTotals:
    """Adds up windows; memory is bounded by the pairs that are kept apart.

    A victim may wait for less than nothing: beside a culprit I/O may be faster than without. What
    is below zero is carried forward, so a sum is the most that it ever was.
    """

    def __init__(self, context: Context, by: str) -> None:
        self._online = Online(context, by)
        self.waited: Counter[str] = Counter()
        self.untold: Counter[str] = Counter()
        """Victim → that of I/Os of which it cannot be told who slowed them."""
        self.behind: Counter[tuple[str, str]] = Counter()
        self._rest: Counter[tuple[str, str]] = Counter()
        """(victim, culprit) → ns, 0 or less, that is carried forward."""

    def add(self, window: Lifecycles | None) -> None:
        """window None: after the last one."""
        self.add_waits(self._online.add(window)[0])

    def add_waits(self, waits: Waits) -> None:
        for name, row in waits.rows.items():
            kept = name in self.waited or len(self.waited) < MOST_VICTIMS
            victim = name if kept else tree.OTHERS
            self.waited[victim] += row.wait_ns
            self.untold[victim] += row.untold
            for culprit, ns in row.behind.items():
                pair = victim, culprit
                if pair not in self.behind and len(self.behind) >= MOST_PAIRS:
                    pair = victim, tree.OTHERS
                rest = self._rest[pair] + ns
                self.behind[pair] += max(rest, 0)
                self._rest[pair] = min(rest, 0)
