# SPDX-License-Identifier: Apache-2.0
"""The twenty scenarios, second half: journal commits, errors, stacking, loss."""

from tests.scenarios.tools import Scenario

BIO_BASED = ("253:1", {"name": "zram1", "kind": "disk", "queue": {"nr_requests": 128}})
REQUEST_BASED = ("254:0", {"name": "vda", "kind": "disk", "queue": {"nr_hw_queues": 1}})
SECOND_DISK = ("254:16", {"name": "vdb", "kind": "disk", "queue": {"nr_hw_queues": 1}})
MD = ("9:0", {"name": "md0", "kind": "md", "stacked_on": [254 << 20, 254 << 20 | 16]})
DM = ("252:0", {"name": "dm-0", "kind": "dm", "dm_name": "home", "stacked_on": [254 << 20]})
LOOP = (
    "7:1",
    {
        "name": "loop1",
        "kind": "loop",
        "loop": {"backing_dev": 254 << 20, "direct_io": True},
        "queue": {"nr_hw_queues": 1},
    },
)

JOURNAL_COMMIT = Scenario(
    11,
    "Journal commit",
    """
    0 Q 2 Gs FWFSM 25952+8 bio=1 rq=1
    10 D 60 C 123 D 170 C FF 18446744073709551615+0 rq=9
    61 d 171 d FF 0+0 rq=9
    63 I 66 D 120 Cd WSM 25952+8 bio=1 rq=1
    172 Cd WSM 25952+0 bio=1 rq=1
    """,
    """
    b1 vda write 25952+8 Q@0 G2 I63 D66 C172 | Q2G 2, pre-flush 61, I2D 3, D2C 54, post-flush 52 | r1 | exact
    r1 vda write 25952+8 s@3 I60 D63 C169 | pre-flush 60, I2D 3, D2C 54, post-flush 52 | b1 | exact
    r2 vda flush none+0 s@10 D0 C50 | G2D 0, D2C 50 | - | exact, flush
    r3 vda flush none+0 s@123 D0 C47 | G2D 0, D2C 47 | - | exact, flush
    """,
)

REQUEUE = Scenario(
    12,
    "Requeue",
    """
    0 QGsI 20 R W 0+8 bio=1 rq=1 tag=-1/5
    5 D W 0+8 bio=1 rq=1 tag=96/5
    30 D 90 Cd W 0+8 bio=1 rq=1 tag=97/5
    """,
    """
    b1 vda write 0+8 Q@0 G1 I3 D5 C90 | Q2G 1, G2I 2, I2D 2, D2C 15, R2D 10, D2C 60 | r1 | exact, requeues 1
    r1 vda write 0+8 s@2 I1 D3 C88 | G2I 1, I2D 2, D2C 15, R2D 10, D2C 60 | b1 | exact, requeues 1, tag 97
    """,
)

PARTIAL_THEN_ERROR = Scenario(
    13,
    "Partial completion, then an error",
    """
    0 QGs 5 D 50 C RS 16384+128 bio=1 rq=1 bytes=8192
    52 R 58 I 60 D 90 CEd RS 16400+112 bio=1 rq=1 err=10
    """,
    """
    b1 vda read 16384+128 Q@0 G1 D5 C90 | Q2G 1, G2D 4, D2C 47, R2D 8, D2C 30 | r1 | exact, requeues 1, IOERR, done 8192
    r1 vda read 16384+128 s@2 I56 D3 C88 | G2D 3, D2C 47, R2D 8, D2C 30 | b1 | exact, requeues 1, IOERR, done 8192
    """,
)

IDENTICAL_READS = Scenario(
    14,
    "Two identical reads, completed in reverse",
    """
    0 QGs 6 D 80 C R 64+8 bio=1 rq=1
    3 QGs 7 D 50 C R 64+8 bio=2 rq=2
    """,
    """
    b1 vda read 64+8 Q@0 G1 D6 C80 | Q2G 1, G2D 5, D2C 74 | r1 | exact
    b2 vda read 64+8 Q@3 G1 D4 C47 | Q2G 1, G2D 3, D2C 43 | r2 | exact
    r1 vda read 64+8 s@2 D4 C78 | G2D 4, D2C 74 | b1 | exact
    r2 vda read 64+8 s@5 D2 C45 | G2D 2, D2C 43 | b2 | exact
    """,
)

OVERLAPPING = Scenario(
    15,
    "Overlapping writes and a read in flight",
    """
    0 QGsD 80 C W 0+16 bio=1 rq=1
    10 QGsD 70 C W 8+16 bio=2 rq=2
    20 QGsD 60 C R 0+16 bio=3 rq=3
    """,
    """
    b1 vda write 0+16 Q@0 G1 D3 C80 | Q2G 1, G2D 2, D2C 77 | r1 | exact
    b2 vda write 8+16 Q@10 G1 D3 C60 | Q2G 1, G2D 2, D2C 57 | r2 | exact
    b3 vda read 0+16 Q@20 G1 D3 C40 | Q2G 1, G2D 2, D2C 37 | r3 | exact
    r1 vda write 0+16 s@2 D1 C78 | G2D 1, D2C 77 | b1 | exact
    r2 vda write 8+16 s@12 D1 C58 | G2D 1, D2C 57 | b2 | exact
    r3 vda read 0+16 s@22 D1 C38 | G2D 1, D2C 37 | b3 | exact
    """,
)

BIO_BASED_DEVICE = Scenario(
    16,
    "Bio-based device",
    """
    0 Q 20 c 253:1 WS 0+128 bio=1
    40 Q 253:1 R 0+128 bio=1
    75 c 253:1 R 128+0 bio=1
    """,
    """
    b1 zram1 write 0+128 Q@0 C20 | bio-based 20 | - | exact
    b2 zram1 read 0+128 Q@40 C35 | bio-based 35 | - | exact
    """,
    devices=(BIO_BASED,),
)

EARLY_FAILURE = Scenario(
    17,
    "Early failure on a request device",
    """
    0 Q 30 c R 2048+512 bio=1 err=12
    """,
    """
    b1 vda read 2048+512 Q@0 C30 | failed 30 | - | exact, AGAIN, done 0
    """,
    devices=(REQUEST_BASED,),
)

PARTITION = Scenario(
    18,
    "Partition",
    """
    0 A 30 Q 37 G 39 s 45 D 90 C 7:1 WS 2096+16 bio=1 rq=1 from=259:0+48
    """,
    """
    b1 loop1 write 2096+16 Q@30 G7 D15 C60 | Q2G 7, G2D 8, D2C 45 | r1 | exact, on loop1p1
    r1 loop1 write 2096+16 s@39 D6 C51 | G2D 6, D2C 45 | b1 | exact
    """,
)

LOOP_BY_PAGE = Scenario(
    18,
    "Loop, linked by the first page",
    """
    0 QGs 4 D 95 C 7:1 W 0+8 bio=1 rq=1 page=ffffea0001
    20 Q 22 GsI 26 D 80 C 254:0 W 7000+8 bio=2 rq=2 page=ffffea0001
    """,
    """
    b1 loop1 write 0+8 Q@0 G1 D4 C95 | Q2G 1, G2D 3, D2C 91 | r1 | exact
    b2 vda write 7000+8 Q@20 G2 I4 D6 C60 | Q2G 2, G2I 2, I2D 2, D2C 54 | r2 | exact, parent b1
    r1 loop1 write 0+8 s@2 D2 C93 | G2D 2, D2C 91 | b1 | exact
    r2 vda write 7000+8 s@23 I1 D3 C57 | G2I 1, I2D 2, D2C 54 | b2 | exact
    """,
    devices=(LOOP, REQUEST_BASED),
)

DM_CLONE = Scenario(
    18,
    "dm clone, linked by A",
    """
    0 Q 252:0 R 100+8 bio=1
    3 AQGs 8 D 70 C 254:0 R 2148+8 bio=2 rq=1 from=252:0+100
    75 c 252:0 R 108+0 bio=1
    """,
    """
    b1 home read 100+8 Q@0 C75 | bio-based 75 | - | exact
    b2 vda read 2148+8 Q@4 G1 D4 C66 | Q2G 1, G2D 3, D2C 62 | r1 | exact, parent b1
    r1 vda read 2148+8 s@6 D2 C64 | G2D 2, D2C 62 | b2 | exact
    """,
    devices=(DM, REQUEST_BASED),
)

MD_WITHOUT_SPLIT = Scenario(
    18,
    "md without X",
    """
    0 Q 9:0 W 0+16 bio=1
    3 AQGs 11 D 70 C 254:0 W 1000+8 bio=2 rq=1 from=9:0+0
    7 AQGs 12 D 60 C 254:16 W 500+8 bio=3 rq=2 from=9:0+8
    75 c 9:0 W 16+0 bio=1
    """,
    """
    b1 md0 write 0+16 Q@0 C75 | bio-based 75 | - | exact
    b2 vda write 1000+8 Q@4 G1 D7 C66 | Q2G 1, G2D 6, D2C 59 | r1 | exact, parent b1
    b3 vdb write 500+8 Q@8 G1 D4 C52 | Q2G 1, G2D 3, D2C 48 | r2 | exact, parent b1
    r1 vda write 1000+8 s@6 D5 C64 | G2D 5, D2C 59 | b2 | exact
    r2 vdb write 500+8 s@10 D2 C50 | G2D 2, D2C 48 | b3 | exact
    """,
    devices=(MD, REQUEST_BASED, SECOND_DISK),
)

DISCARD_SPLIT = Scenario(
    19,
    "Discard split by the limit",
    """
    0 Q DS 2048+6144 bio=1
    1 XGs 10 D 70 C DS 2048+2048 bio=2 rq=1 new=4096
    4 XGs 11 D DS 4096+2048 bio=3 rq=2 new=6144
    7 Gs 12 D DS 6144+2048 bio=1 rq=3
    80 C DS 4096+2048 bio=3 rq=2
    75 C DS 6144+2048 bio=1 rq=3
    """,
    """
    b1 vda discard 2048+6144 Q@0 G5 D11 C80 | Q2G 5, G2D 6, D2C 69 | r1[2048+2048] r2[4096+2048] r3[6144+2048] | exact, fragments 3
    r1 vda discard 2048+2048 s@3 D7 C67 | G2D 7, D2C 60 | b1 | exact
    r2 vda discard 4096+2048 s@6 D5 C74 | G2D 5, D2C 69 | b1 | exact
    r3 vda discard 6144+2048 s@8 D4 C67 | G2D 4, D2C 63 | b1 | exact
    """,
)

MULTI_RANGE_DISCARD = Scenario(
    19,
    "Multi-range discard",
    """
    0 QGs DS 0+8 bio=1 rq=1
    5 Q DS 100+8 bio=2
    9 Q DS 200+16 bio=3
    20 D 90 C DS 0+32 bio=1 rq=1 chain=1,2,3
    """,
    """
    b1 vda discard 0+8 Q@0 G1 D20 C90 | Q2G 1, G2D 19, D2C 70 | r1 | exact
    b2 vda discard 100+8 Q@5 D15 C85 | Q2D 15, D2C 70 | r1 | exact
    b3 vda discard 200+16 Q@9 D11 C81 | Q2D 11, D2C 70 | r1 | exact
    r1 vda discard 0+32 s@2 D18 C88 | G2D 18, D2C 70 | b1 b2 b3 | exact
    """,
)

# What is missing, recycled, or at the edge of a log.

COMPLETION_LOST = Scenario(
    20,
    "C lost, then the same request in a new s",
    """
    0 QGsD R 0+8 bio=1 rq=1
    lost 50 C R 0+8 bio=1 rq=1
    60 QGsD 99 C R 512+8 bio=2 rq=1
    """,
    """
    b1 vda read 0+8 Q@0 G1 D3 | Q2G 1, G2D 2 | r1 | lost
    b2 vda read 512+8 Q@60 G1 D3 C39 | Q2G 1, G2D 2, D2C 36 | r2 | exact
    r1 vda read 0+8 s@2 D1 | G2D 1 | b1 | lost
    r2 vda read 512+8 s@62 D1 C37 | G2D 1, D2C 36 | b2 | exact
    """,
)

BIO_RECYCLED = Scenario(
    20,
    "Bio and request recycled at once",
    """
    0 QGsD 50 C 72 QGsD 99 C R 0+8 bio=1 rq=1
    51 QGsD 70 Cd W 8+8 bio=1 rq=1
    """,
    """
    b1 vda read 0+8 Q@0 G1 D3 C50 | Q2G 1, G2D 2, D2C 47 | r1 | exact
    b2 vda write 8+8 Q@51 G1 D3 C19 | Q2G 1, G2D 2, D2C 16 | r2 | exact
    b3 vda read 0+8 Q@72 G1 D3 C27 | Q2G 1, G2D 2, D2C 24 | r3 | exact
    r1 vda read 0+8 s@2 D1 C48 | G2D 1, D2C 47 | b1 | exact
    r2 vda write 8+8 s@53 D1 C17 | G2D 1, D2C 16 | b2 | exact
    r3 vda read 0+8 s@74 D1 C25 | G2D 1, D2C 24 | b3 | exact
    """,
)

BEGINS_IN_FLIGHT = Scenario(
    20,
    "Trace that begins in flight",
    """
    lost 0 QGsD R 0+8 bio=1 rq=1
    lost 4 QGs R 8+8 bio=2 rq=2
    10 D 60 C R 8+8 bio=2 rq=2
    50 C R 0+8 bio=1 rq=1
    """,
    """
    b1 vda read 8+8 Q? D@10 C@60 | D2C 50 | r1 | incomplete
    b2 vda read 0+0 Q? C@50 | - | r2 | incomplete
    r1 vda read 8+8 s@10 D0 C50 | G2D 0, D2C 50 | b1 | incomplete
    r2 vda read 0+8 s@50 C0 | unknown 0 | b2 | incomplete
    """,
)

LATE_ARRIVAL = Scenario(
    20,
    "D that arrives 225 µs late",
    """
    0 QGs 90 C R 0+8 bio=1 rq=1
    lost 3 D R 0+8 bio=1 rq=1
    91 QGsD R 8+8 bio=2 rq=1
    120 C R 8+8 bio=2 rq=1
    3 D R 0+8 bio=1 rq=1 chain=1
    228 Q R 16+8 bio=3
    """,
    """
    b1 vda read 0+8 Q@0 G1 D3 C90 | Q2G 1, G2D 2, D2C 87 | r1 | exact
    b2 vda read 8+8 Q@91 G1 D3 C29 | Q2G 1, G2D 2, D2C 26 | r2 | exact
    b3 vda read 16+8 Q@228 | - | - | incomplete
    r1 vda read 0+8 s@2 D1 C88 | G2D 1, D2C 87 | b1 | exact
    r2 vda read 8+8 s@93 D1 C27 | G2D 1, D2C 26 | b2 | exact
    """,
)

CASES = [one for one in list(vars().values()) if isinstance(one, Scenario)]
