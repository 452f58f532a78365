# SPDX-License-Identifier: Apache-2.0
"""What else the block layer does: variants of the scenarios, numbered as what they vary."""

from tests.scenarios.cases_more import BIO_BASED, DM, REQUEST_BASED
from tests.scenarios.tools import Scenario

MERGES_AROUND_THE_INSERT = Scenario(
    3,
    "Writes that join in the plug, and in the scheduler",
    """
    0 QGs W 0+8 bio=1 rq=1
    10 QM W 8+8 bio=2
    20 I W 0+16 bio=1 rq=1
    30 QM W 16+8 bio=3
    80 D 90 C W 0+24 bio=1 rq=1 bios=3
    """,
    """
    b1 vda write 0+8 Q@0 G1 I20 D80 C90 | Q2G 1, G2I 19, I2D 60, D2C 10 | r1 | exact
    b2 vda write 8+8 Q@10 M1 I10 D70 C80 | Q2M 1, M2I 9, I2D 60, D2C 10 | r1 | exact
    b3 vda write 16+8 Q@30 M1 D50 C60 | Q2M 1, I2D 49, D2C 10 | r1 | exact
    r1 vda write 0+24 s@2 I18 D78 C88 | G2I 18, I2D 60, D2C 10 | b1 b2 b3 | exact
    """,
)

MERGED_INTO_AN_ABSORBED_REQUEST = Scenario(
    5,
    "A write that joined a request which is absorbed by one inserted before",
    """
    0 QGsI W 0+8 bio=1 rq=1
    10 QGs W 8+8 bio=2 rq=2
    14 QM W 16+8 bio=3
    20 I 25 m W 8+16 bio=2 rq=2 into=1
    40 D 90 C W 0+24 bio=1 rq=1 bios=3
    """,
    """
    b1 vda write 0+8 Q@0 G1 I3 D40 C90 | Q2G 1, G2I 2, I2D 37, D2C 50 | r1 | exact
    b2 vda write 8+8 Q@10 G1 I10 D30 C80 | Q2G 1, G2I 9, I2D 20, D2C 50 | r1 | exact
    b3 vda write 16+8 Q@14 M1 I6 D26 C76 | Q2M 1, M2I 5, I2D 20, D2C 50 | r1 | exact
    r1 vda write 0+24 s@2 I1 D38 C88 | G2I 1, I2D 37, D2C 50 | b1 b2 b3 | exact
    r2 vda write 8+8 s@12 I8 | G2I 8 | - | exact, into r1
    """,
)

MERGE_AFTER_REQUEUE = Scenario(
    12,
    "A bio joins a request that was requeued",
    """
    0 QGs 5 D 20 R W 0+8 bio=1 rq=1
    25 QM W 8+8 bio=2
    30 D 90 C W 0+16 bio=1 rq=1 bios=2
    """,
    """
    b1 vda write 0+8 Q@0 G1 D5 C90 | Q2G 1, G2D 4, D2C 15, R2D 10, D2C 60 | r1 | exact, requeues 1
    b2 vda write 8+8 Q@25 M1 D5 C65 | Q2M 1, M2D 4, D2C 60 | r1 | exact, requeues 1
    r1 vda write 0+8 s@2 D3 C88 | G2D 3, D2C 15, R2D 10, D2C 60 | b1 b2 | exact, requeues 1, done 8192
    """,
)

FRONT_MERGE_AFTER_REQUEUE = Scenario(
    12,
    "A front merge after a requeue, then a partial completion",
    """
    0 QGs 5 D 20 R 52 R W 8+8 bio=1 rq=1
    25 QF W 0+8 bio=2
    30 D 50 C W 0+16 bio=2 rq=1 bios=2 bytes=4096
    60 D 90 C W 8+8 bio=1 rq=1 bios=1
    """,
    """
    b1 vda write 8+8 Q@0 G1 D5 C90 | Q2G 1, G2D 4, D2C 15, R2D 10, D2C 22, R2D 8, D2C 30 | r1 | exact, requeues 2
    b2 vda write 0+8 Q@25 M1 D5 C25 | Q2M 1, M2D 4, D2C 20 | r1 | exact, requeues 2
    r1 vda write 8+8 s@2 D3 C88 | G2D 3, D2C 15, R2D 10, D2C 22, R2D 8, D2C 30 | b1 b2 | exact, requeues 2, done 8192
    """,
)

ABSORBED_THEN_REQUEUED = Scenario(
    12,
    "A request takes another and is requeued",
    """
    0 QGsI W 0+8 bio=1 rq=1
    4 QGsm W 8+8 bio=2 rq=2 into=1
    10 D 15 R 25 D 90 C W 0+16 bio=1 rq=1 bios=2
    """,
    """
    b1 vda write 0+8 Q@0 G1 I3 D10 C90 | Q2G 1, G2I 2, I2D 7, D2C 5, R2D 10, D2C 65 | r1 | exact, requeues 1
    b2 vda write 8+8 Q@4 G1 D6 C86 | Q2G 1, G2D 5, D2C 5, R2D 10, D2C 65 | r1 | exact, requeues 1
    r1 vda write 0+16 s@2 I1 D8 C88 | G2I 1, I2D 7, D2C 5, R2D 10, D2C 65 | b1 b2 | exact, requeues 1
    r2 vda write 8+8 s@6 | - | - | exact, into r1
    """,
)

ERROR_IN_SECOND_BIO = Scenario(
    13,
    "Partial completion of a merged request, error in the second bio",
    """
    0 QGs W 0+8 bio=1 rq=1
    3 QM W 8+8 bio=2
    5 D 50 C W 0+16 bio=1 rq=1 bios=2 bytes=4096
    52 R 60 D 90 CE W 8+8 bio=2 rq=1 bios=1 err=10
    """,
    """
    b1 vda write 0+8 Q@0 G1 D5 C50 | Q2G 1, G2D 4, D2C 45 | r1 | exact, requeues 1
    b2 vda write 8+8 Q@3 M1 D2 C87 | Q2M 1, M2D 1, D2C 47, R2D 8, D2C 30 | r1 | exact, requeues 1, IOERR, done 0
    r1 vda write 0+16 s@2 D3 C88 | G2D 3, D2C 47, R2D 8, D2C 30 | b1 b2 | exact, requeues 1, IOERR, done 4096
    """,
)

PARTIAL_AT_THE_END = Scenario(
    13,
    "Trace that ends after a partial completion",
    """
    0 QGs W 0+8 bio=1 rq=1
    3 QM W 8+8 bio=2
    5 D 50 C W 0+16 bio=1 rq=1 bios=2 bytes=4096
    """,
    """
    b1 vda write 0+8 Q@0 G1 D5 C50 | Q2G 1, G2D 4, D2C 45 | r1 | exact
    b2 vda write 8+8 Q@3 M1 D2 | Q2M 1, M2D 1 | r1 | incomplete
    r1 vda write 0+16 s@2 D3 C48 | G2D 3, D2C 45 | b1 b2 | incomplete, done 4096
    """,
)

SPLIT_INTO_OTHER_REQUEST = Scenario(
    7,
    "A fragment merges into another bio's request",
    """
    0 QGs W 0+8 bio=1 rq=1
    4 Q W 8+2040 bio=2
    5 XM W 8+1016 bio=3 new=1024
    7 Gs 11 D 70 C W 1024+1024 bio=2 rq=2
    10 D 80 C W 0+1024 bio=1 rq=1 bios=2
    """,
    """
    b1 vda write 0+8 Q@0 G1 D10 C80 | Q2G 1, G2D 9, D2C 70 | r1 | exact
    b2 vda write 8+2040 Q@4 M2 D6 C76 | Q2M 2, M2D 4, D2C 70 | r1[8+1016] r2[1024+1024] | exact, fragments 2
    r1 vda write 0+1024 s@2 D8 C78 | G2D 8, D2C 70 | b1 b2 | exact
    r2 vda write 1024+1024 s@8 D3 C62 | G2D 3, D2C 59 | b2 | exact
    """,
)

SPLIT_REST_FAILS = Scenario(
    17,
    "A split whose rest fails before it has a request",
    """
    0 Q R 0+2048 bio=1
    1 XGs 5 D 80 C R 0+1024 bio=2 rq=1 new=1024
    81 c R 1024+1024 bio=1 err=12
    """,
    """
    b1 vda read 0+2048 Q@0 G2 D5 C81 | Q2G 2, G2D 3, D2C 76 | r1[0+1024] | exact, AGAIN, done 524288
    r1 vda read 0+1024 s@3 D2 C77 | G2D 2, D2C 75 | b1 | exact
    """,
    devices=(REQUEST_BASED,),
)

FAILED_BEFORE_ISSUE = Scenario(
    17,
    "A request that fails before it is issued",
    """
    0 QGsI 20 CE W 0+8 bio=1 rq=1 err=10
    """,
    """
    b1 vda write 0+8 Q@0 G1 I3 C20 | Q2G 1, G2I 2, failed 17 | r1 | exact, IOERR, done 0
    r1 vda write 0+8 s@2 I1 C18 | G2I 1, failed 17 | b1 | exact, IOERR, done 0
    """,
)

FAILED_ON_A_BIO_BASED_DEVICE = Scenario(
    17,
    "A failure on a bio-based device",
    """
    0 Q 9 c 253:1 R 0+8 bio=1 err=10
    """,
    """
    b1 zram1 read 0+8 Q@0 C9 | bio-based 9 | - | exact, IOERR, done 0
    """,
    devices=(BIO_BASED,),
)

RESUBMITTED = Scenario(
    18,
    "The same bio goes on to the lower device",
    """
    0 Q 252:0 R 100+8 bio=1
    3 A 5 Gs 8 D 70 C 254:0 R 2148+8 bio=1 rq=1 from=252:0+100
    """,
    """
    b1 home read 100+8 Q@0 G5 D8 C70 | Q2G 5, G2D 3, D2C 62 | r1[2148+8] | exact
    r1 vda read 2148+8 s@6 D2 C64 | G2D 2, D2C 62 | b1 | exact
    """,
    devices=(DM, REQUEST_BASED),
)

DM_SPLIT = Scenario(
    18,
    "dm split, X names what is left",
    """
    0 Q 252:0 R 0+2048 bio=1
    3 AQGsD 60 C 254:0 R 5000+1024 bio=2 rq=1 from=252:0+0
    8 X 252:0 R 1024+1024 bio=1 new=1024 parent=77
    10 AQGsD 70 C 254:0 R 6024+1024 bio=3 rq=2 from=252:0+1024
    71 c 252:0 R 2048+0 bio=1
    """,
    """
    b1 home read 0+2048 Q@0 C71 | bio-based 71 | - | exact
    b2 vda read 5000+1024 Q@4 G1 D3 C56 | Q2G 1, G2D 2, D2C 53 | r1 | exact, parent b1
    b3 vda read 6024+1024 Q@11 G1 D3 C59 | Q2G 1, G2D 2, D2C 56 | r2 | exact, parent b1
    r1 vda read 5000+1024 s@6 D1 C54 | G2D 1, D2C 53 | b2 | exact
    r2 vda read 6024+1024 s@13 D1 C57 | G2D 1, D2C 56 | b3 | exact
    """,
    devices=(DM, REQUEST_BASED),
)

DM_IDENTICAL = Scenario(
    18,
    "Clones of two identical bios have no certain parent",
    """
    0 Q 252:0 R 100+8 bio=1
    1 Q 252:0 R 100+8 bio=2
    3 AQGs 8 D 70 C 254:0 R 2148+8 bio=3 rq=1 from=252:0+100
    30 c 252:0 R 108+0 bio=2
    75 c 252:0 R 108+0 bio=1
    """,
    """
    b1 home read 100+8 Q@0 C75 | bio-based 75 | - | exact
    b2 home read 100+8 Q@1 C29 | bio-based 29 | - | exact
    b3 vda read 2148+8 Q@4 G1 D4 C66 | Q2G 1, G2D 3, D2C 62 | r1 | exact
    r1 vda read 2148+8 s@6 D2 C64 | G2D 2, D2C 62 | b3 | exact
    """,
    devices=(DM, REQUEST_BASED),
)

DM_REQUESTS = Scenario(
    18,
    "Request-based dm clones the request",
    """
    0 QGs 4 D 66 C 252:0 R 100+8 bio=1 rq=1
    6 asD 60 C 254:0 R 100+8 bio=9 rq=2 from=252:0+100
    """,
    """
    b1 home read 100+8 Q@0 G1 D4 C66 | Q2G 1, G2D 3, D2C 62 | r1 | exact
    r1 home read 100+8 s@2 D2 C64 | G2D 2, D2C 62 | b1 | exact
    r2 vda read 100+8 s@7 D1 C53 | G2D 1, D2C 52 | - | exact, parent r1
    """,
    devices=(DM, REQUEST_BASED),
)

ZONES = Scenario(
    1,
    "Zone append and zone reset",
    """
    0 QGs 4 D ZAS 4096+8 bio=1 rq=1
    60 C ZAS 4216+8 bio=1 rq=1
    100 QGs 104 D 160 C ZRS 4096+0 bio=1 rq=1
    """,
    """
    b1 vda zone_append 4096+8 Q@0 G1 D4 C60 | Q2G 1, G2D 3, D2C 56 | r1 | exact
    b2 vda zone_reset 4096+0 Q@100 G1 D4 C60 | Q2G 1, G2D 3, D2C 56 | r2 | exact
    r1 vda zone_append 4096+8 s@2 D2 C58 | G2D 2, D2C 56 | b1 | exact
    r2 vda zone_reset 4096+0 s@102 D2 C58 | G2D 2, D2C 56 | b2 | exact
    """,
)

PASSTHROUGH = Scenario(
    1,
    "Passthrough",
    """
    0 D 60 Cd 70 D 90 C N 0+8 bio=1 rq=1
    """,
    """
    r1 vda drv_in 0+8 s@0 D0 C60 | G2D 0, D2C 60 | - | exact, passthrough
    r2 vda drv_in 0+8 s@70 D0 C20 | G2D 0, D2C 20 | - | exact, passthrough
    """,
)

# Flush sequences: FUA, failures of each step, memory that is used again.

HARDWARE_FUA = Scenario(
    11,
    "FUA that the device does itself",
    """
    0 QGs 4 D 80 Cd WFS 0+8 bio=1 rq=1
    """,
    """
    b1 vda write 0+8 Q@0 G1 D4 C80 | Q2G 1, G2D 3, D2C 76 | r1 | exact
    r1 vda write 0+8 s@2 D2 C78 | G2D 2, D2C 76 | b1 | exact
    """,
)

FUA_BY_FLUSH = Scenario(
    11,
    "FUA by a flush after the data",
    """
    0 QGs WFS 0+8 bio=1 rq=1
    4 D 60 Cd WS 0+8 bio=1 rq=1
    62 D 90 C FF 18446744073709551615+0 rq=9
    91 d FF 0+0 rq=9
    92 Cd WS 0+0 bio=1 rq=1
    """,
    """
    b1 vda write 0+8 Q@0 G1 D4 C92 | Q2G 1, G2D 3, D2C 56, post-flush 32 | r1 | exact
    r1 vda write 0+8 s@2 D2 C90 | G2D 2, D2C 56, post-flush 32 | b1 | exact
    r2 vda flush none+0 s@62 D0 C28 | G2D 0, D2C 28 | - | exact, flush
    """,
)

PREFLUSH_FAILS = Scenario(
    11,
    "Journal commit whose first flush fails",
    """
    0 QGs FWFSM 0+8 bio=1 rq=1
    5 D 60 C FF 18446744073709551615+0 rq=9 err=10
    61 d FF 0+0 rq=9
    62 Cd WSM 0+8 bio=1 rq=1 err=10
    """,
    """
    b1 vda write 0+8 Q@0 G1 C62 | Q2G 1, pre-flush 61 | r1 | exact, IOERR, done 0
    r1 vda write 0+8 s@2 C60 | pre-flush 60 | b1 | exact, IOERR, done 0
    r2 vda flush none+0 s@5 D0 C55 | G2D 0, D2C 55 | - | exact, IOERR, flush
    """,
)

DATA_FAILS = Scenario(
    11,
    "Journal commit whose data fails",
    """
    0 QGs FWFSM 0+8 bio=1 rq=1
    5 D 60 C FF 18446744073709551615+0 rq=9
    62 ID 90 CE WSM 0+8 bio=1 rq=1 err=10
    92 C WSM 0+0 bio=1 rq=1 err=10
    """,
    """
    b1 vda write 0+8 Q@0 G1 I62 D63 C92 | Q2G 1, pre-flush 61, I2D 1, D2C 27, post-flush 2 | r1 | exact, IOERR, done 0
    r1 vda write 0+8 s@2 I60 D61 C90 | pre-flush 60, I2D 1, D2C 27, post-flush 2 | b1 | exact, IOERR, done 0
    r2 vda flush none+0 s@5 D0 C55 | G2D 0, D2C 55 | - | exact, flush
    """,
)

POSTFLUSH_FAILS = Scenario(
    11,
    "FUA whose flush after the data fails",
    """
    0 QGs WFS 0+8 bio=1 rq=1
    4 D 60 C WS 0+8 bio=1 rq=1
    62 D 90 C FF 18446744073709551615+0 rq=9 err=10
    92 C WS 0+0 bio=1 rq=1 err=10
    """,
    """
    b1 vda write 0+8 Q@0 G1 D4 C92 | Q2G 1, G2D 3, D2C 56, post-flush 32 | r1 | exact, IOERR
    r1 vda write 0+8 s@2 D2 C90 | G2D 2, D2C 56, post-flush 32 | b1 | exact, IOERR
    r2 vda flush none+0 s@62 D0 C28 | G2D 0, D2C 28 | - | exact, IOERR, flush
    """,
)

FSYNC_RECYCLED = Scenario(
    9,
    "Two fsyncs with the same bio and request",
    """
    0 QGs 100 QGs FWS 0+0 bio=1 rq=1
    10 D 80 C 110 D 170 C FF 18446744073709551615+0 rq=9
    83 C 173 C WS 0+0 bio=1 rq=1
    """,
    """
    b1 vda write 0+0 Q@0 G1 C83 | flush 83 | r1 | exact
    b2 vda write 0+0 Q@100 G1 C73 | flush 73 | r3 | exact
    r1 vda write 0+0 s@2 C81 | flush 81 | b1 | exact
    r2 vda flush none+0 s@10 D0 C70 | G2D 0, D2C 70 | - | exact, flush
    r3 vda write 0+0 s@102 C71 | flush 71 | b2 | exact
    r4 vda flush none+0 s@110 D0 C60 | G2D 0, D2C 60 | - | exact, flush
    """,
)

WRITE_THEN_FSYNC_RECYCLED = Scenario(
    9,
    "A write and an fsync with the same bio and request",
    """
    0 QGs 4 D 60 Cd WS 0+8 bio=1 rq=1
    100 QGs FWS 0+0 bio=1 rq=1
    110 D 170 C FF 18446744073709551615+0 rq=9
    173 C WS 0+0 bio=1 rq=1
    """,
    """
    b1 vda write 0+8 Q@0 G1 D4 C60 | Q2G 1, G2D 3, D2C 56 | r1 | exact
    b2 vda write 0+0 Q@100 G1 C73 | flush 73 | r2 | exact
    r1 vda write 0+8 s@2 D2 C58 | G2D 2, D2C 56 | b1 | exact
    r2 vda write 0+0 s@102 C71 | flush 71 | b2 | exact
    r3 vda flush none+0 s@110 D0 C60 | G2D 0, D2C 60 | - | exact, flush
    """,
)

FSYNC_FAILS = Scenario(
    9,
    "fsync that fails",
    """
    0 QGs FWS 0+0 bio=1 rq=1
    10 D 80 C FF 18446744073709551615+0 rq=9 err=10
    83 C WS 0+0 bio=1 rq=1 err=10
    """,
    """
    b1 vda write 0+0 Q@0 G1 C83 | flush 83 | r1 | exact, IOERR
    r1 vda write 0+0 s@2 C81 | flush 81 | b1 | exact, IOERR
    r2 vda flush none+0 s@10 D0 C70 | G2D 0, D2C 70 | - | exact, IOERR, flush
    """,
)

CASES = [one for one in list(vars().values()) if isinstance(one, Scenario)]
