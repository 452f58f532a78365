# SPDX-License-Identifier: Apache-2.0
"""Histories made by hand, most of them with something missing or contradictory.

They are what seeded bugs get wrong and chance rarely makes; scenarios without an expectation.
"""

DEVICES = (
    ("254:1", {"name": "vda1", "kind": "partition", "disk": 254 << 20, "start": 2048}),
    ("254:16", {"name": "vdb", "kind": "disk"}),
)
NAMED_TWICE = """
    1 Qs 7 C W 0+8 bio=1 rq=1
    3 QM W 8+8 bio=2
    6 D W 0+16 bio=1 rq=1 chain=1,2,2
    8 C W 8+8 bio=2 rq=1
    """
OF_ALL_EVENTS = {
    "the M of a request whose G and s are missing": """
        10 QM W 0+8 bio=1
        14 D 20 C W 0+8 bio=1 rq=1
        """,
    "a flush sequence whose end is missing": """
        1 QGs FWF 0+8 bio=1 rq=1
        9 D 12 C WF 0+8 bio=1 rq=1
        """,
    "the same, its address used again": """
        1 QGs FWF 0+8 bio=1 rq=1
        9 D 12 C WF 0+8 bio=1 rq=1
        21 QGsDC W 0+8 bio=1 rq=1
        """,
    "FUA without the flush behind it": """
        1 QGs WF 0+8 bio=1 rq=1
        9 D 12 C W 0+8 bio=1 rq=1
        """,
    "a try that fails at once, and the next at the same address": """
        1 Qc W 0+8 bio=1 err=12
        3 QGsD 9 C W 0+8 bio=1 rq=1
        11 Qc W 8+8 bio=1 err=12
        """,
    "the front of a front": """
        1 Q W 0+24 bio=1
        2 X W 0+16 bio=2 parent=1 new=16
        3 Xs 7 D 10 C W 0+8 bio=3 rq=1 parent=2 new=8
        5 s 8 D 11 C W 8+8 bio=2 rq=2
        6 s 9 D 12 C W 16+8 bio=1 rq=3
        """,
    "an X behind the G": """
        1 QG W 0+24 bio=1
        3 XGs 7 D 9 C W 0+16 bio=2 rq=1 parent=1 new=16
        6 s 8 D 10 C W 16+8 bio=1 rq=2
        """,
    "from a disk that nothing says is stacked": """
        1 Q 8 c 254:16 W 0+8 bio=2
        2 AQGsDC W 2048+8 bio=1 rq=1 from=254:16+0
        """,
    "discards of overlapping ranges": """
        1 Qs D 0+8 bio=1 rq=1
        3 QM D 4+8 bio=2
        6 DC D 0+16 bio=1 rq=1 chain=1,2
        """,
    "both pieces of a discard in one request, the second first": """
        1 Q 5 D 9 C D 0+16 bio=1 rq=1 chain=1,2
        2 X 4 F D 0+8 bio=2 parent=1 new=8
        3 s D 8+8 bio=1 rq=1
        """,
    "a chain that names a bio twice": NAMED_TWICE,
}
"""Recorded with the event set `all`."""
OF_LIFECYCLES = {
    "a bare flush that fails": """
        1 Q 3 s 9 C FW 0+0 bio=1 rq=1 err=10
        """,
    "an X is missing, s tells the piece": """
        1 Q 9 D 12 C W 0+16 bio=1 rq=1
        3 s W 0+8 bio=1 rq=1
        """,
    "s tells less than the bio, which another joins": """
        1 Q W 0+8 bio=1
        3 s W 0+4 bio=1 rq=1
        5 QM W 8+8 bio=2
        9 D 12 C W 0+16 bio=1 rq=1 chain=1,2
        """,
    "clones of two bios that have the sectors": """
        1 Q 8 c 254:16 W 0+16 bio=2
        2 Q 9 c 254:16 W 8+8 bio=3
        3 AQsDC W 2056+8 bio=1 rq=1 from=254:16+8
        """,
    "a clone of a bio that is over at that time": """
        1 Q 4 c 254:16 W 0+8 bio=2
        2 Q 9 c 254:16 W 0+8 bio=3
        4 AQsDC W 2048+8 bio=1 rq=1 from=254:16+0
        """,
    "a bio that clones may be of is queued as one is sent": """
        1 Q 9 c 254:16 W 0+8 bio=2
        4 A W 2048+8 bio=1 from=254:16+0
        4 Q 9 c 254:16 W 0+8 bio=3
        5 QsDC W 2048+8 bio=1 rq=1
        """,
    "clones of one bio that overlap": """
        1 Q 12 c 254:16 W 0+16 bio=2
        2 AQ 6 s 8 D 10 C W 2048+16 bio=1 rq=1 from=254:16+0
        4 AQ 7 s 9 D 11 C W 2056+8 bio=3 rq=2 from=254:16+8
        """,
    "a clone of another operation than the bio above": """
        1 Q 7 c 254:16 R 0+8 bio=2
        2 AQsDC W 2048+8 bio=1 rq=1 from=254:16+0
        """,
    "a clone that is longer than the bio above": """
        1 Q 7 c 254:16 W 0+8 bio=2
        2 AQsDC W 2048+16 bio=1 rq=1 from=254:16+0
        """,
    "a clone of a bio of which only c is known, beside one that is": """
        1 Q 7 c 254:16 W 0+8 bio=2
        2 AQsDC W 2048+8 bio=1 rq=1 from=254:16+0
        8 c 254:16 W 0+8 bio=4
        """,
    "a clone that goes on to the disk behind another from the same place": """
        1 Q 13 c 254:16 W 0+8 bio=2
        2 A W 0+8 bio=1 part=254:1 from=254:16+0
        3 A W 2048+8 bio=3 part=254:1 from=254:1+0
        4 AQ 7 s 9 D 11 C W 2048+8 bio=1 rq=1 part=254:1 from=254:1+0
        6 Q 8 s 10 D 12 C W 2048+8 bio=3 rq=2
        90000 QsDC W 64+8 bio=4 rq=1
        """,
    "a mapped bio that fails though its clone does not": """
        1 Q 7 c 254:16 W 0+8 bio=2 err=10
        2 AQsDC W 2048+8 bio=1 rq=1 from=254:16+0
        """,
    "flushes of two bios at once": """
        1 Q 7 c 254:16 FW 0+0 bio=2
        2 Q 8 c 254:16 FW 0+0 bio=3
        3 AQsC FW 0+0 bio=1 rq=1 from=254:16+0
        """,
}
"""Recorded with the event set `lifecycle`."""
