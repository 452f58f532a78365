# SPDX-License-Identifier: Apache-2.0
"""The last four of the twenty scenarios: what is missing, recycled, or at the edge of a log."""

from tests.scenarios.tools import Scenario

COMPLETION_LOST = Scenario(
    20,
    "C lost, then the same request in a new s",
    """
    0   QGsD R 0+8 bio=1 rq=1
    lost 50 C R 0+8 bio=1 rq=1
    60  QGsD R 512+8 bio=2 rq=1
    99  C R 512+8 bio=2 rq=1
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
    0   QGsD R 0+8 bio=1 rq=1
    50  C R 0+8 bio=1 rq=1
    51  QGsD W 8+8 bio=1 rq=1
    70  C W 8+8 bio=1 rq=1
    71  d W 8+0 rq=1
    72  QGsD R 0+8 bio=1 rq=1
    99  C R 0+8 bio=1 rq=1
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
    10  D R 8+8 bio=2 rq=2
    50  C R 0+8 bio=1 rq=1
    60  C R 8+8 bio=2 rq=2
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
    0   QGs R 0+8 bio=1 rq=1
    lost 3 D R 0+8 bio=1 rq=1
    90  C R 0+8 bio=1 rq=1
    91  QGsD R 8+8 bio=2 rq=1
    120 C R 8+8 bio=2 rq=1
    3   D R 0+8 bio=1 rq=1 chain=1
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
