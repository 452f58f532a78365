# SPDX-License-Identifier: Apache-2.0
"""Lines on followed objects when a recording ends. Imports only what recording needs."""

from collections.abc import Iterator, Mapping

from biotrail.recorder.probes.sites.follow_options import FollowOptions
from biotrail.text import units

LOSSES = {
    "full": "births while --max objects were followed: these were not followed",
    "cut": "hits of long candidates had no room (--slower): their lives are marked",
    "unmatched": "calls whose return was not seen",
    "too_deep": "calls whose return could not be waited for: too many were open",
    "bad_reads": "births whose device or process could not be read",
}
"""What is said of counts, beside lives."""


def followed_lines(wish: FollowOptions, counts: Mapping[str, int]) -> Iterator[str]:
    """Yield how many lives were followed beside the block layer's events, and what is missing.

    counts: what became of lives and calls, by name (struct bt_follow_counts).
    """
    lives = units.plural(counts.get("born", 0), "life", "lives")
    quick = counts.get("quick", 0)
    kept = f", {units.count(quick)} of them too quick to be recorded" if quick else ""
    yield f"followed {lives} of {wish.struct}{kept}"
    for name, text in LOSSES.items():
        if counts.get(name):
            yield f"{units.count(counts[name])} {text}"
