# SPDX-License-Identifier: Apache-2.0
"""What filters left out: counts by reason. Apart from the filters, for readers of logs too."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

REASONS = (
    *("device", "op", "flags", "min_size", "sectors", "pid", "tid", "comm", "cgroup"),
    *("file", "no_file", "no_dir", "no_bio"),
)
"""Why something was left out, in the order of enum bt_reason (bpf/reasons.h).

The filter that a bio did not match. no_file: --file or --dir is given, and the bio's file is not
known; no_dir: its directory is not known, or is too deep for --dir. no_bio: a request or plug
without a bio, where filters ask for bios.
"""

TABLE_FULL = len(REASONS)
"""Counter index behind REASONS: bios that matched, but found the table of bios in flight full."""

OWN = "own"
BY_OWN = TABLE_FULL + 1
"""Counter index behind TABLE_FULL: bios that matched, but were the recorder's own I/O."""


@dataclass(frozen=True)
class LeftOut:
    """Counts of what the filters left out.

    bios: by the filter that they did not match (one of REASONS, or OWN). events: by record kind.
    unfollowed: bios that matched, but found the table of bios in flight full.
    """

    bios: Mapping[str, int] = field(default_factory=dict)
    events: Mapping[int, int] = field(default_factory=dict)
    unfollowed: int = 0

    def account(self) -> dict[str, Any]:
        """Return the counts as JSON for the log's END frame; record kinds are decimal strings."""
        return {
            "bios": dict(self.bios),
            "events": {str(kind): count for kind, count in self.events.items()},
            "unfollowed": self.unfollowed,
        }


def read_left_out(bios: Sequence[int], events: Sequence[int]) -> LeftOut:
    """Return what bpf/ring.h counts: bios by REASONS, TABLE_FULL and BY_OWN; events by kind."""
    by_reason = {**dict(zip(REASONS, bios, strict=False)), OWN: bios[BY_OWN]}
    return LeftOut(
        {name: count for name, count in by_reason.items() if count},
        {kind: count for kind, count in enumerate(events) if count},
        bios[TABLE_FULL],
    )
