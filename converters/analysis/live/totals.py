# SPDX-License-Identifier: Apache-2.0
"""Sums over a recording that goes on, by device and operation, from its beginning."""

from biotrail.converters.analysis.distributions.groups import Group, Groups, add_to_all
from biotrail.converters.analysis.distributions.keys import OP_BITS, operation
from biotrail.converters.analysis.distributions.samples import of_bios
from biotrail.converters.events.context import Context
from biotrail.converters.events.tables import Lifecycles

MOST = 128
"""Pairs of device and operation that have a group of their own; further ones are added up."""


class Totals:
    """Adds up windows; memory depends on the number of devices and operations alone."""

    def __init__(self, context: Context) -> None:
        """context: of the log."""
        self._context = context
        self._groups = Groups(MOST)

    def add(self, window: Lifecycles) -> None:
        """Add the next window's bios; those that are still open are added by a later window."""
        bios = of_bios(window.bios, window.bio_stages, self._context)
        add_to_all(bios, [(self._groups, bios.place)])

    def groups(self) -> list[tuple[str | None, str | None, Group]]:
        """Return (device, operation, figures) of each group; None, None: of all further ones.

        The groups are those that `add` changes.
        """
        return [
            (None, None, group)
            if place < 0
            else (
                self._context.device_name(place >> OP_BITS),
                operation(self._context, place),
                group,
            )
            for place, group in self._groups.by_code.items()
        ]
