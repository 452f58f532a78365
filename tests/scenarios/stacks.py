# SPDX-License-Identifier: Apache-2.0
"""Scenarios of devices upon devices, several deep, and of several paths to one disk."""

from tests.scenarios.cases_more import LOOP, REQUEST_BASED, SECOND_DISK
from tests.scenarios.tools import Scenario

_VDA, _VDB = 254 << 20, 254 << 20 | 16
_MIRROR, _ON_LOOP, _CRYPT = 9 << 20 | 8, 9 << 20 | 9, 252 << 20 | 9
_QUEUE = {"queue": {"nr_hw_queues": 1}}
MIRROR = ("9:8", {"name": "md8", "kind": "md", "stacked_on": [_VDA, _VDB]})
CRYPT = ("252:9", {"name": "dm-9", "kind": "dm", "dm_name": "crypt", "stacked_on": [_MIRROR]})
VOLUME = ("252:8", {"name": "dm-8", "kind": "dm", "dm_name": "volume", "stacked_on": [_CRYPT]})
MD_ON_LOOP = ("9:9", {"name": "md9", "kind": "md", "stacked_on": [7 << 20 | 1]})
MD_PART = ("259:7", {"name": "md9p1", "kind": "partition", "disk": _ON_LOOP, "start": 2048})
ON_PART = ("252:7", {"name": "dm-7", "kind": "dm", "dm_name": "part", "stacked_on": [_ON_LOOP]})
PATHS = (
    "252:10",
    {"name": "dm-10", "kind": "dm", "dm_name": "mpath", "stacked_on": [_VDA, _VDB], **_QUEUE},
)
HEAD = ("259:8", {"name": "nvme0n1", "kind": "disk"})
HEAD_PART = (
    "259:9",
    {"name": "nvme0n1p1", "kind": "partition", "disk": 259 << 20 | 8, "start": 2048},
)
PATH_A = ("259:10", {"name": "nvme0c0n1", "kind": "disk", "queue": {"nr_hw_queues": 2}})
PATH_B = ("259:11", {"name": "nvme0c1n1", "kind": "disk", "queue": {"nr_hw_queues": 2}})

FOUR_LEVELS = Scenario(
    18,
    "Volume on dm-crypt on a mirror on two disks",
    """
    0 Q 252:8 W 8+16 bio=1
    2 AQ 252:9 W 1032+16 bio=2 from=252:8+8
    10 cpu1 AQ 9:8 W 5128+16 bio=3 from=252:9+1032
    14 cpu1 AQGsD 60 C 254:0 W 7176+16 bio=4 rq=1 from=9:8+5128
    20 cpu1 AQGsD 70 C 254:16 W 7176+16 bio=5 rq=2 from=9:8+5128
    72 c 9:8 W 5144+0 bio=3
    75 c 252:9 W 1048+0 bio=2
    77 c 252:8 W 24+0 bio=1
    """,
    """
    b1 volume write 8+16 Q@0 C77 | bio-based 77 | - | exact
    b2 crypt write 1032+16 Q@3 C72 | bio-based 72 | - | exact, parent b1
    b3 md8 write 5128+16 Q@11 C61 | bio-based 61 | - | exact, parent b2
    b4 vda write 7176+16 Q@15 G1 D3 C45 | Q2G 1, G2D 2, D2C 42 | r1 | exact, parent b3
    b5 vdb write 7176+16 Q@21 G1 D3 C49 | Q2G 1, G2D 2, D2C 46 | r2 | exact, parent b3
    r1 vda write 7176+16 s@17 D1 C43 | G2D 1, D2C 42 | b4 | exact
    r2 vdb write 7176+16 s@23 D1 C47 | G2D 1, D2C 46 | b5 | exact
    """,
    devices=(VOLUME, CRYPT, MIRROR, REQUEST_BASED, SECOND_DISK),
)

DM_ON_PARTITION = Scenario(
    18,
    "dm on a partition of md, on a direct loop's disk",
    """
    0 Q 252:7 R 0+8 bio=1
    2 A 9:9 R 16+8 bio=2 part=259:7 from=252:7+0
    3 AQ 9:9 R 2064+8 bio=2 part=259:7 from=259:7+16
    6 AQGsD 70 C 7:1 R 4112+8 bio=3 rq=1 from=9:9+2064 page=ffffea0001
    20 cpu1 QGsD 60 C 254:0 R 9000+8 bio=4 rq=2 page=ffffea0001
    72 c 9:9 R 2072+0 bio=2
    75 c 252:7 R 8+0 bio=1
    """,
    """
    b1 part read 0+8 Q@0 C75 | bio-based 75 | - | exact
    b2 md9 read 2064+8 Q@4 C68 | bio-based 68 | - | exact, parent b1, on md9p1
    b3 loop1 read 4112+8 Q@7 G1 D3 C63 | Q2G 1, G2D 2, D2C 60 | r1 | exact, parent b2
    b4 vda read 9000+8 Q@20 G1 D3 C40 | Q2G 1, G2D 2, D2C 37 | r2 | exact, parent b3
    r1 loop1 read 4112+8 s@9 D1 C61 | G2D 1, D2C 60 | b3 | exact
    r2 vda read 9000+8 s@22 D1 C38 | G2D 1, D2C 37 | b4 | exact
    """,
    devices=(ON_PART, MD_ON_LOOP, MD_PART, LOOP, REQUEST_BASED),
)

PATH_LOST = Scenario(
    18,
    "Request-based dm hands a request on again, by another path",
    """
    0 QGs 4 D 62 R 70 D 95 C 252:10 R 100+8 bio=1 rq=1
    6 asD 60 CE 254:0 R 100+8 bio=9 rq=2 from=252:10+100 err=10
    72 asD 90 C 254:16 R 100+8 bio=8 rq=3 from=252:10+100
    """,
    """
    b1 mpath read 100+8 Q@0 G1 D4 C95 | Q2G 1, G2D 3, D2C 58, R2D 8, D2C 25 | r1 | exact, requeues 1
    r1 mpath read 100+8 s@2 D2 C93 | G2D 2, D2C 58, R2D 8, D2C 25 | b1 | exact, requeues 1
    r2 vda read 100+8 s@7 D1 C53 | G2D 1, D2C 52 | - | exact, IOERR, done 0, parent r1
    r3 vdb read 100+8 s@73 D1 C17 | G2D 1, D2C 16 | - | exact, parent r1
    """,
    devices=(PATHS, REQUEST_BASED, SECOND_DISK),
)

SAME_ON_TWO_PATHS = Scenario(
    18,
    "Request-based dm: identical reads, handed on one after the other",
    """
    0 QGs 4 D 66 C 252:10 R 100+8 bio=1 rq=1
    6 a 8 D 60 C 254:0 R 100+8 bio=8 rq=3 from=252:10+100
    10 QGs 14 D 76 C 252:10 R 100+8 bio=2 rq=2
    16 a 18 D 70 C 254:16 R 100+8 bio=9 rq=4 from=252:10+100
    """,
    """
    b1 mpath read 100+8 Q@0 G1 D4 C66 | Q2G 1, G2D 3, D2C 62 | r1 | exact
    b2 mpath read 100+8 Q@10 G1 D4 C66 | Q2G 1, G2D 3, D2C 62 | r3 | exact
    r1 mpath read 100+8 s@2 D2 C64 | G2D 2, D2C 62 | b1 | exact
    r2 vda read 100+8 s@6 D2 C54 | G2D 2, D2C 52 | - | exact, parent r1
    r3 mpath read 100+8 s@12 D2 C64 | G2D 2, D2C 62 | b2 | exact
    r4 vdb read 100+8 s@16 D2 C54 | G2D 2, D2C 52 | - | exact, parent r3
    """,
    devices=(PATHS, REQUEST_BASED, SECOND_DISK),
)

SAME_AT_ONCE = Scenario(
    18,
    "Request-based dm: identical reads, handed on at once",
    """
    0 QGs 4 D 66 C 252:10 R 100+8 bio=1 rq=1
    5 cpu1 QGsD 76 C 252:10 R 100+8 bio=2 rq=2
    9 aD 60 C 254:0 R 100+8 bio=8 rq=3 from=252:10+100
    11 cpu1 aD 70 C 254:16 R 100+8 bio=9 rq=4 from=252:10+100
    """,
    """
    b1 mpath read 100+8 Q@0 G1 D4 C66 | Q2G 1, G2D 3, D2C 62 | r1 | exact
    b2 mpath read 100+8 Q@5 G1 D3 C71 | Q2G 1, G2D 2, D2C 68 | r2 | exact
    r1 mpath read 100+8 s@2 D2 C64 | G2D 2, D2C 62 | b1 | exact
    r2 mpath read 100+8 s@7 D1 C69 | G2D 1, D2C 68 | b2 | exact
    r3 vda read 100+8 s@9 D1 C51 | G2D 1, D2C 50 | - | exact
    r4 vdb read 100+8 s@11 D1 C59 | G2D 1, D2C 58 | - | exact
    """,
    devices=(PATHS, REQUEST_BASED, SECOND_DISK),
)

NVME_PATHS = Scenario(
    18,
    "NVMe multipath, from a partition",
    """
    0 AQ 70 AQ 259:8 R 2148+8 bio=1 part=259:9 from=259:9+100
    2 AGsD 60 C 259:10 R 2148+8 bio=1 rq=1 from=259:8+2148
    72 AGsD 90 C 259:11 R 2148+8 bio=1 rq=1 from=259:8+2148
    """,
    """
    b1 nvme0n1 read 2148+8 Q@1 G2 D4 C59 | Q2G 2, G2D 2, D2C 55 | r1 | exact, on nvme0n1p1
    b2 nvme0n1 read 2148+8 Q@71 G2 D4 C19 | Q2G 2, G2D 2, D2C 15 | r2 | exact, on nvme0n1p1
    r1 nvme0c0n1 read 2148+8 s@4 D1 C56 | G2D 1, D2C 55 | b1 | exact
    r2 nvme0c1n1 read 2148+8 s@74 D1 C16 | G2D 1, D2C 15 | b2 | exact
    """,
    devices=(HEAD, HEAD_PART, PATH_A, PATH_B),
)

NVME_SPLIT = Scenario(
    18,
    "NVMe multipath, split below",
    """
    0 Q 259:8 W 0+16 bio=1
    1 A 259:10 W 0+16 bio=1 from=259:8+0
    2 XGs 7 D 60 C 259:10 W 0+8 bio=2 rq=1 parent=1 new=8
    5 Gs 8 D 64 C 259:10 W 8+8 bio=1 rq=2
    """,
    """
    b1 nvme0n1 write 0+16 Q@0 G5 D8 C64 | Q2G 5, G2D 3, D2C 56 | r1[0+8] r2[8+8] | exact, fragments 2
    r1 nvme0c0n1 write 0+8 s@4 D3 C56 | G2D 3, D2C 53 | b1 | exact
    r2 nvme0c0n1 write 8+8 s@6 D2 C58 | G2D 2, D2C 56 | b1 | exact
    """,
    devices=(HEAD, PATH_A, PATH_B),
)

CASES = [one for one in list(vars().values()) if isinstance(one, Scenario)]
