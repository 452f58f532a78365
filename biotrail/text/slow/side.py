# SPDX-License-Identifier: Apache-2.0
"""Show where the time of a guest's slow I/O went on its host."""

from collections.abc import Iterator

from biotrail.converters.analysis.guests.side import Side
from biotrail.text import units


def side_lines(side: Side | None) -> Iterator[str]:
    """Yield where the time of a guest's request went; nothing for None."""
    if side is None:
        return
    if side.reason:
        yield f"    host: no I/O: {side.reason}"
        return
    if not side.stages_ns:
        yield "    host: the times of its I/O are not all recorded"
        return
    parts = ", ".join(f"{name} {units.duration(ns)}" for name, ns in side.stages_ns.items())
    number = units.plural(len(side.host_bios), "bio")
    yield (
        f"    most of D2C on the side of the {side.side}: {parts} (clocks within "
        f"{units.duration(side.within_ns)}; {number} on {side.behind}, {side.certainty})"
    )
