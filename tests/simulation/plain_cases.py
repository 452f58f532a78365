# SPDX-License-Identifier: Apache-2.0
"""Histories made by hand: what seeded bugs get wrong and chance rarely makes.

Each is a few records, most of them with something missing or contradictory. A line is a record: its
time in µs, its letter, operation and flags as in rwbs, its range in sectors, then the bios (b1) and
requests (r1) that it names, an X's parent (^b1), and further fields. A D names its chain: the bios
behind the first become CHAIN records; `nr_bios=` says more than these, so that one is missing.
"""

import re
from collections import Counter
from typing import NamedTuple

from tests.simulation.model import (
    EVERYTHING,
    EVERYTHING_WITHOUT_START,
    LIFECYCLE,
    MINIMAL,
    SECTOR,
    History,
    Kernel,
    Rec,
)
from tests.simulation.world import VDA, VDA1, VDB
from tests.support.captures import device_number, opf_of


class Case(NamedTuple):
    """A history by hand: what it is, its records, and the letters that were recorded."""

    name: str
    text: str
    letters: str = EVERYTHING


CASES = (
    Case(
        "the M of a request whose G and s are missing",
        """
        10 Q W 0+8 b1
        11 M W 0+8 b1
        14 D W 0+8 r1 b1
        20 C W 0+8 r1 b1""",
    ),
    Case(
        "a flush sequence whose end is missing",
        """
        1 Q FWF 0+8 b1
        2 G FWF 0+8 b1
        3 s FWF 0+8 r1 b1
        9 D WF 0+8 r1 b1
        12 C WF 0+8 r1 b1""",
    ),
    Case(
        "the same, its address used again",
        """
        1 Q FWF 0+8 b1
        2 G FWF 0+8 b1
        3 s FWF 0+8 r1 b1
        9 D WF 0+8 r1 b1
        12 C WF 0+8 r1 b1
        21 Q W 0+8 b1
        22 G W 0+8 b1
        23 s W 0+8 r1 b1
        24 D W 0+8 r1 b1
        25 C W 0+8 r1 b1""",
    ),
    Case(
        "a bare flush that fails",
        """
        1 Q FW 0+0 b1
        3 s FW 0+0 r1 b1
        9 C FW 0+0 r1 b1 status=10""",
        LIFECYCLE,
    ),
    Case(
        "FUA without the flush behind it",
        """
        1 Q WF 0+8 b1
        2 G WF 0+8 b1
        3 s WF 0+8 r1 b1
        9 D W 0+8 r1 b1
        12 C W 0+8 r1 b1""",
    ),
    Case(
        "a try that fails at once, and the next at the same address",
        """
        1 Q W 0+8 b1
        2 c W 0+8 b1 status=12
        3 Q W 0+8 b1
        4 G W 0+8 b1
        5 s W 0+8 r1 b1
        6 D W 0+8 r1 b1
        9 C W 0+8 r1 b1
        11 Q W 8+8 b1
        12 c W 8+8 b1 status=12""",
    ),
    Case(
        "an X is missing, s tells the piece",
        """
        1 Q W 0+16 b1
        3 s W 0+8 r1 b1
        9 D W 0+16 r1 b1
        12 C W 0+16 r1 b1""",
        LIFECYCLE,
    ),
    Case(
        "s tells less than the bio, which another joins",
        """
        1 Q W 0+8 b1
        3 s W 0+4 r1 b1
        5 Q W 8+8 b2
        6 M W 8+8 b2
        9 D W 0+16 r1 b1 b2
        12 C W 0+16 r1 b1""",
        LIFECYCLE,
    ),
    Case(
        "the front of a front",
        """
        1 Q W 0+24 b1
        2 X W 0+16 b2 ^b1 new_sector=16
        3 X W 0+8 b3 ^b2 new_sector=8
        4 s W 0+8 r1 b3
        5 s W 8+8 r2 b2
        6 s W 16+8 r3 b1
        7 D W 0+8 r1 b3
        8 D W 8+8 r2 b2
        9 D W 16+8 r3 b1
        10 C W 0+8 r1 b3
        11 C W 8+8 r2 b2
        12 C W 16+8 r3 b1""",
    ),
    Case(
        "an X behind the G",
        """
        1 Q W 0+24 b1
        2 G W 0+24 b1
        3 X W 0+16 b2 ^b1 new_sector=16
        4 G W 0+16 b2
        5 s W 0+16 r1 b2
        6 s W 16+8 r2 b1
        7 D W 0+16 r1 b2
        8 D W 16+8 r2 b1
        9 C W 0+16 r1 b2
        10 C W 16+8 r2 b1""",
    ),
    Case(
        "from a disk that nothing says is stacked",
        """
        1 Q W 0+8 b2 dev=254:16
        2 A W 2048+8 b1 from_dev=254:16 from_sector=0 part=254:0
        3 Q W 2048+8 b1
        4 G W 2048+8 b1
        5 s W 2048+8 r1 b1
        6 D W 2048+8 r1 b1
        7 C W 2048+8 r1 b1
        8 c W 0+8 b2 dev=254:16""",
    ),
    Case(
        "clones of two bios that have the sectors",
        """
        1 Q W 0+16 b2 dev=254:16
        2 Q W 8+8 b3 dev=254:16
        3 A W 2056+8 b1 from_dev=254:16 from_sector=8 part=254:0
        4 Q W 2056+8 b1
        5 s W 2056+8 r1 b1
        6 D W 2056+8 r1 b1
        7 C W 2056+8 r1 b1
        8 c W 0+16 b2 dev=254:16
        9 c W 8+8 b3 dev=254:16""",
        LIFECYCLE,
    ),
    Case(
        "a clone of a bio that is over at that time",
        """
        1 Q W 0+8 b2 dev=254:16
        2 Q W 0+8 b3 dev=254:16
        4 c W 0+8 b2 dev=254:16
        4 A W 2048+8 b1 from_dev=254:16 from_sector=0 part=254:0
        5 Q W 2048+8 b1
        6 s W 2048+8 r1 b1
        7 D W 2048+8 r1 b1
        8 C W 2048+8 r1 b1
        9 c W 0+8 b3 dev=254:16""",
        LIFECYCLE,
    ),
    Case(
        "a bio that clones may be of is queued as one is sent",
        """
        1 Q W 0+8 b2 dev=254:16
        4 A W 2048+8 b1 from_dev=254:16 from_sector=0 part=254:0
        4 Q W 0+8 b3 dev=254:16
        5 Q W 2048+8 b1
        6 s W 2048+8 r1 b1
        7 D W 2048+8 r1 b1
        8 C W 2048+8 r1 b1
        9 c W 0+8 b2 dev=254:16
        9 c W 0+8 b3 dev=254:16""",
        LIFECYCLE,
    ),
    Case(
        "clones of one bio that overlap",
        """
        1 Q W 0+16 b2 dev=254:16
        2 A W 2048+16 b1 from_dev=254:16 from_sector=0 part=254:0
        3 Q W 2048+16 b1
        4 A W 2056+8 b3 from_dev=254:16 from_sector=8 part=254:0
        5 Q W 2056+8 b3
        6 s W 2048+16 r1 b1
        7 s W 2056+8 r2 b3
        8 D W 2048+16 r1 b1
        9 D W 2056+8 r2 b3
        10 C W 2048+16 r1 b1
        11 C W 2056+8 r2 b3
        12 c W 0+16 b2 dev=254:16""",
        LIFECYCLE,
    ),
    Case(
        "a clone of another operation than the bio above",
        """
        1 Q R 0+8 b2 dev=254:16
        2 A W 2048+8 b1 from_dev=254:16 from_sector=0 part=254:0
        3 Q W 2048+8 b1
        4 s W 2048+8 r1 b1
        5 D W 2048+8 r1 b1
        6 C W 2048+8 r1 b1
        7 c R 0+8 b2 dev=254:16""",
        LIFECYCLE,
    ),
    Case(
        "a clone that is longer than the bio above",
        """
        1 Q W 0+8 b2 dev=254:16
        2 A W 2048+16 b1 from_dev=254:16 from_sector=0 part=254:0
        3 Q W 2048+16 b1
        4 s W 2048+16 r1 b1
        5 D W 2048+16 r1 b1
        6 C W 2048+16 r1 b1
        7 c W 0+8 b2 dev=254:16""",
        LIFECYCLE,
    ),
    Case(
        "a clone of a bio of which only c is known, beside one that is",
        """
        1 Q W 0+8 b2 dev=254:16
        2 A W 2048+8 b1 from_dev=254:16 from_sector=0 part=254:0
        3 Q W 2048+8 b1
        4 s W 2048+8 r1 b1
        5 D W 2048+8 r1 b1
        6 C W 2048+8 r1 b1
        7 c W 0+8 b2 dev=254:16
        8 c W 0+8 b4 dev=254:16""",
        LIFECYCLE,
    ),
    Case(
        "a clone that goes on to the disk behind another from the same place",
        """
        1 Q W 0+8 b2 dev=254:16
        2 A W 0+8 b1 from_dev=254:16 from_sector=0 part=254:1
        3 A W 2048+8 b3 from_dev=254:1 from_sector=0 part=254:1
        4 A W 2048+8 b1 from_dev=254:1 from_sector=0 part=254:1
        5 Q W 2048+8 b1
        6 Q W 2048+8 b3
        7 s W 2048+8 r1 b1
        8 s W 2048+8 r2 b3
        9 D W 2048+8 r1 b1
        10 D W 2048+8 r2 b3
        11 C W 2048+8 r1 b1
        12 C W 2048+8 r2 b3
        13 c W 0+8 b2 dev=254:16
        90000 Q W 64+8 b4
        90001 s W 64+8 r1 b4
        90002 D W 64+8 r1 b4
        90003 C W 64+8 r1 b4""",
        LIFECYCLE,
    ),
    Case(
        "a mapped bio that fails though its clone does not",
        """
        1 Q W 0+8 b2 dev=254:16
        2 A W 2048+8 b1 from_dev=254:16 from_sector=0 part=254:0
        3 Q W 2048+8 b1
        4 s W 2048+8 r1 b1
        5 D W 2048+8 r1 b1
        6 C W 2048+8 r1 b1
        7 c W 0+8 b2 dev=254:16 status=10""",
        LIFECYCLE,
    ),
    Case(
        "flushes of two bios at once",
        """
        1 Q FW 0+0 b2 dev=254:16
        2 Q FW 0+0 b3 dev=254:16
        3 A FW 0+0 b1 from_dev=254:16 from_sector=0 part=254:0
        4 Q FW 0+0 b1
        5 s FW 0+0 r1 b1
        6 C FW 0+0 r1 b1
        7 c FW 0+0 b2 dev=254:16
        8 c FW 0+0 b3 dev=254:16""",
        LIFECYCLE,
    ),
    Case(
        "the CHAIN is missing of a request that another bio heads",
        """
        1 Q W 8+8 b1
        2 G W 8+8 b1
        3 Q W 0+8 b2
        4 F W 0+8 b2
        6 D W 0+16 r1 b2 nr_bios=2
        7 C W 0+16 r1 b2""",
        EVERYTHING_WITHOUT_START,
    ),
    Case(
        "the same of few kinds of records",
        """
        1 Q W 8+8 b1
        3 Q W 0+8 b2
        4 F W 0+8 b2
        6 D W 0+16 r1 b2 nr_bios=2
        7 C W 0+16 r1 b2""",
        MINIMAL,
    ),
    Case(
        "discards of overlapping ranges",
        """
        1 Q D 0+8 b1
        2 s D 0+8 r1 b1
        3 Q D 4+8 b2
        4 M D 4+8 b2
        6 D D 0+16 r1 b1 b2
        7 C D 0+16 r1 b1""",
    ),
    Case(
        "both pieces of a discard in one request, the second first",
        """
        1 Q D 0+16 b1
        2 X D 0+8 b2 ^b1 new_sector=8
        3 s D 8+8 r1 b1
        4 F D 0+8 b2
        5 D D 0+16 r1 b1 b2
        9 C D 0+16 r1 b1""",
    ),
    Case(
        "a chain that names a bio twice",
        """
        1 Q W 0+8 b1
        2 s W 0+8 r1 b1
        3 Q W 8+8 b2
        4 M W 8+8 b2
        6 D W 0+16 r1 b1 b2 b2
        7 C W 0+8 r1 b1
        8 C W 8+8 r1 b2""",
    ),
)
DEVICES = [
    {"dev": VDA, "name": "vda", "kind": "disk"},
    {"dev": VDA1, "name": "vda1", "kind": "partition", "disk": VDA, "start": 2048},
    {"dev": VDB, "name": "vdb", "kind": "disk"},
]
_ADDRESSES = {"b": ("bio", 0xFFFF_8881_0000_0000), "r": ("rq", 0xFFFF_8882_0000_0000)}
_ADDRESSES["^b"] = ("parent", _ADDRESSES["b"][1])
_ADDRESS = re.compile(r"(\^?[br])(\d+)")


def history_of(case: Case) -> History:
    records = [rec for line in case.text.strip().splitlines() for rec in _records(line.split())]
    kernel = Kernel(letters=case.letters, has_start="s" in case.letters)
    found = History(kernel, DEVICES, records, [], [], Counter())
    kept = [rec for rec in records if rec.letter in kernel.seen]
    found.recorded, found.chunks = set(kept), [(kept[-1].ts + 1, kept)]
    return found


def _records(line: list[str]) -> list[Rec]:
    """Return a line's record, and the CHAIN records behind a D."""
    time, letter, rwbs, place, *words = line
    sector, size = place.split("+")
    fields = {"sector": int(sector), "bytes": int(size) * SECTOR, "opf": opf_of(rwbs), "tid": 7}
    fields["dev"] = fields["part"] = VDA
    bios: list[int] = []
    for word in words:
        key, _, value = word.partition("=")
        if value:
            fields[key] = device_number(value) if ":" in value else int(value)
            continue
        found = _ADDRESS.fullmatch(word)
        if found is None:
            raise ValueError(f"{word!r} is no bio, request, parent or field")
        key, base = _ADDRESSES[found[1]]
        address = base | int(found[2]) << 6
        fields.setdefault(key, address)
        bios += [address] if key == "bio" else []
    fields.setdefault("nr_bios", len(bios))
    records = [Rec(letter, int(time) * 1000, 0, fields)]
    for first in range(1, len(bios), 6):
        slots = (bios[first : first + 6] + [0] * 6)[:6]
        records.append(Rec("b", records[0].ts, 0, {"rq": fields["rq"], "bios": slots}))
    return records
