# SPDX-License-Identifier: Apache-2.0
"""An array's parity has no parent, though md says that it comes from the array's sector 0."""

import pytest

from biotrail.converters.events.tables import NEVER
from tests.scenarios.tools import events_of, tables_of

PARITY = """
    0   Q 9:5 W 0+8 bio=1
    1   Q 9:5 W 512+8 bio=2
    2   A 254:0 W 2304+8 bio=3 from=9:5+512
    3   Q 254:0 W 2304+8 bio=3
    4   A 254:16 W 2304+8 bio=4 from=9:5+0
    5   Q 254:16 W 2304+8 bio=4
    40  c 254:0 W 2304+8 bio=3
    41  c 254:16 W 2304+8 bio=4
    50  c 9:5 W 512+8 bio=2
    60  c 9:5 W 0+8 bio=1
"""
"""Two writes; the stripe of the second goes to the disks, while the first waits for its own."""


def array(level: str) -> tuple[str, dict[str, object]]:
    return ("9:5", {"name": "md5", "kind": "md", "md": {"level": level}})


@pytest.mark.parametrize(("level", "parent"), [("raid5", NEVER), ("raid6", NEVER), ("raid1", 0)])
def test_parity_is_not_of_what_is_at_sector_0(level: str, parent: int) -> None:
    # GIVEN a write of the array's sector 0 in flight, and parity of another stripe
    t = tables_of(events_of(PARITY), devices=(array(level),))
    first, second, data, parity = range(4)
    # WHEN the log is read
    above = t.bios.parent.tolist()
    # THEN the data is the other write's, and the parity nobody's; where sector 0 means
    # itself, it is the first's
    assert above[data] == t.bios.number[second]
    assert above[parity] == (NEVER if parent == NEVER else t.bios.number[first])
