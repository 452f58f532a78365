# SPDX-License-Identifier: Apache-2.0
"""Variants of flush sequences: FUA, failures of each step, memory that is used again."""

from tests.scenarios.tools import Scenario

HARDWARE_FUA = Scenario(
    11,
    "FUA that the device does itself",
    """
    0   QGs WFS 0+8 bio=1 rq=1
    4   D WFS 0+8 bio=1 rq=1
    80  C WFS 0+8 bio=1 rq=1
    81  d WFS 0+0 rq=1
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
    0   QGs WFS 0+8 bio=1 rq=1
    4   D WS 0+8 bio=1 rq=1
    60  C WS 0+8 bio=1 rq=1
    61  d WS 0+0 rq=1
    62  D FF 18446744073709551615+0 rq=9
    90  C FF 18446744073709551615+0 rq=9
    91  d FF 0+0 rq=9
    92  C WS 0+0 bio=1 rq=1
    93  d WS 0+0 rq=1
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
    0   QGs FWFSM 0+8 bio=1 rq=1
    5   D FF 18446744073709551615+0 rq=9
    60  C FF 18446744073709551615+0 rq=9 err=10
    61  d FF 0+0 rq=9
    62  C WSM 0+8 bio=1 rq=1 err=10
    63  d WSM 0+0 rq=1
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
    0   QGs FWFSM 0+8 bio=1 rq=1
    5   D FF 18446744073709551615+0 rq=9
    60  C FF 18446744073709551615+0 rq=9
    62  ID WSM 0+8 bio=1 rq=1
    90  C WSM 0+8 bio=1 rq=1 err=10
    91  E WSM 0+8 bio=1 rq=1 err=10
    92  C WSM 0+0 bio=1 rq=1 err=10
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
    0   QGs WFS 0+8 bio=1 rq=1
    4   D WS 0+8 bio=1 rq=1
    60  C WS 0+8 bio=1 rq=1
    62  D FF 18446744073709551615+0 rq=9
    90  C FF 18446744073709551615+0 rq=9 err=10
    92  C WS 0+0 bio=1 rq=1 err=10
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
    0   QGs FWS 0+0 bio=1 rq=1
    10  D FF 18446744073709551615+0 rq=9
    80  C FF 18446744073709551615+0 rq=9
    83  C WS 0+0 bio=1 rq=1
    100 QGs FWS 0+0 bio=1 rq=1
    110 D FF 18446744073709551615+0 rq=9
    170 C FF 18446744073709551615+0 rq=9
    173 C WS 0+0 bio=1 rq=1
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
    0   QGs WS 0+8 bio=1 rq=1
    4   D WS 0+8 bio=1 rq=1
    60  C WS 0+8 bio=1 rq=1
    61  d WS 0+0 rq=1
    100 QGs FWS 0+0 bio=1 rq=1
    110 D FF 18446744073709551615+0 rq=9
    170 C FF 18446744073709551615+0 rq=9
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
    0   QGs FWS 0+0 bio=1 rq=1
    10  D FF 18446744073709551615+0 rq=9
    80  C FF 18446744073709551615+0 rq=9 err=10
    83  C WS 0+0 bio=1 rq=1 err=10
    """,
    """
    b1 vda write 0+0 Q@0 G1 C83 | flush 83 | r1 | exact, IOERR
    r1 vda write 0+0 s@2 C81 | flush 81 | b1 | exact, IOERR
    r2 vda flush none+0 s@10 D0 C70 | G2D 0, D2C 70 | - | exact, IOERR, flush
    """,
)
