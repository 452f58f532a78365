# SPDX-License-Identifier: Apache-2.0
"""Who waited for whom by slot of time, for the block bootstrap of `diff`."""

from collections import Counter
from dataclasses import dataclass, field

WHOLE = "Q2C"
"""Name of the whole of a victim's time, beside its parts."""


@dataclass
class BlameSlots:
    """Victims' time by part and slot of time. Counters: slot → number, or ns, which may be < 0."""

    by: str = ""
    """What victims and culprits are; empty: nobody was blamed."""
    ios: dict[str, Counter[int]] = field(default_factory=dict)
    """Victim → I/Os that ended in each slot."""
    waits: dict[tuple[str, str], Counter[int]] = field(default_factory=dict)
    """(victim, part) → ns of these I/Os; a part is a kind, or `behind` and a culprit's name."""

    def widen(self) -> None:
        """Merge slots 2i and 2i + 1 into slot i."""
        for slots in (*self.ios.values(), *self.waits.values()):
            found = list(slots.items())
            slots.clear()
            for slot, value in found:
                slots[slot >> 1] += value

    def add_all(self, other: "BlameSlots", offset: int) -> None:
        """Add the slots of another recording, of the same width, behind the first `offset`."""
        self.by = self.by or other.by
        for victim, slots in other.ios.items():
            ours = self.ios.setdefault(victim, Counter())
            ours.update({slot + offset: value for slot, value in slots.items()})
        for name, slots in other.waits.items():
            ours = self.waits.setdefault(name, Counter())
            ours.update({slot + offset: value for slot, value in slots.items()})

    def parts(self, victim: str) -> dict[str, int]:
        """Return a victim's parts with their ns, in all."""
        return {part: sum(of.values()) for (name, part), of in self.waits.items() if name == victim}
