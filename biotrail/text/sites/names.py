# SPDX-License-Identifier: Apache-2.0
"""Words for followed objects that several texts share."""

from biotrail.converters.sites.lives import GRACE_NS, MOST_HITS, Tally
from biotrail.converters.sites.trees import NodeKind
from biotrail.text import units

NODE_NAMES = {
    NodeKind.FRAME: "frame",
    NodeKind.FUNCTION: "function",
    NodeKind.EVENT: "tracepoint",
    NodeKind.RETURN: "return",
}


def tally_lines(tally: Tally) -> list[str]:
    """Return sentences on hits and lives that were left out; empty: none were."""
    found = []
    if tally.left_out:
        hits = units.plural(tally.left_out, "hit")
        found.append(f"{hits} left out: beyond the {units.count(MOST_HITS)} that a life may have")
    if tally.after_end:
        hits = units.plural(tally.after_end, "hit")
        found.append(f"{hits} left out: more than {units.duration(GRACE_NS)} after the life's end")
    if tally.no_room:
        lives = units.plural(tally.no_room, "life", "lives")
        found.append(f"{lives} closed before the end was read: too many went on at once")
    return found
