# SPDX-License-Identifier: Apache-2.0
"""Counts of how far the ends of flushes may be off, apart from what finds them."""

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Pairing:
    """Counts of flushes that could have ended by several completions, of groups that have ended.

    completions: how many. same: those of them in groups whose completions all came at one time, so
    that the ends are exact whichever flush each was of. most_ns: longest time between the first and
    the last completion of a group (ns). spans: completions by the bit length of that time.
    """

    completions: int = 0
    same: int = 0
    most_ns: int = 0
    spans: Counter[int] = field(default_factory=Counter)

    def add(self, count: int, apart: int) -> None:
        """Add a group of `count` completions whose first and last are `apart` ns apart."""
        self.completions += count
        self.same += 0 if apart else count
        self.most_ns = max(self.most_ns, apart)
        self.spans[apart.bit_length()] += count

    @property
    def half_ns(self) -> int:
        """Median over completions of the time between first and last of their group (ns).

        Rounded up to 2ⁿ - 1, at most `most_ns`: half of the completions are in groups that span no
        more. 0 if there are no completions.
        """
        seen = 0
        for bits, count in sorted(self.spans.items()):
            seen += count
            if 2 * seen >= self.completions:
                return min(self.most_ns, (1 << bits) - 1)
        return 0

    def as_dict(self) -> dict[str, int]:
        """Return counts for JSON: completions, same_time, half_within_ns, all_within_ns (ns).

        same_time: completions in groups whose completions all came at one time. half_within_ns,
        all_within_ns: `half_ns` and `most_ns`, the median and longest time that a group spans.
        """
        return {
            "completions": self.completions,
            "same_time": self.same,
            "half_within_ns": self.half_ns,
            "all_within_ns": self.most_ns,
        }
