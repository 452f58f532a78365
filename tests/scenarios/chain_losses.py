# SPDX-License-Identifier: Apache-2.0
"""Chains of bios that are longer than the records of an issue have room for."""

from tests.scenarios.tools import Scenario

CHAIN_CUT = Scenario(
    3,
    "A chain that was cut",
    """
    0   QGs W 0+8 bio=1 rq=1
    5   QM W 8+8 bio=2
    20  D W 0+16 bio=1 rq=1 chain=1 bios=1 flags=1
    90  C W 0+16 bio=1 rq=1
    """,
    """
    b1 vda write 0+8 Q@0 G1 D20 C90 | Q2G 1, G2D 19, D2C 70 | r1 | exact
    b2 vda write 8+8 Q@5 M1 D15 C85 | Q2M 1, M2D 14, D2C 70 | r1 | interval
    r1 vda write 0+16 s@2 D18 C88 | G2D 18, D2C 70 | b1 b2 | exact
    """,
)

CHAIN_CUT_AMBIGUOUS = Scenario(
    3,
    "Cut chains of two overlapping requests",
    """
    0   QGs W 0+8 bio=1 rq=1
    3   QGs W 0+8 bio=3 rq=2
    6   QM W 8+8 bio=2
    8   QM W 8+8 bio=4
    20  D W 0+16 bio=1 rq=1 chain=1 bios=1 flags=1
    50  C W 0+16 bio=1 rq=1
    60  D W 0+16 bio=3 rq=2 chain=3 bios=1 flags=1
    90  C W 0+16 bio=3 rq=2
    """,
    """
    b1 vda write 0+8 Q@0 G1 D20 C50 | Q2G 1, G2D 19, D2C 30 | r1 | exact
    b2 vda write 0+8 Q@3 G1 D57 C87 | Q2G 1, G2D 56, D2C 30 | r2 | exact
    b3 vda write 8+8 Q@6 M1 | Q2M 1 | - | ambiguous, requests 0
    b4 vda write 8+8 Q@8 M1 | Q2M 1 | - | ambiguous, requests 0
    r1 vda write 0+16 s@2 D18 C48 | G2D 18, D2C 30 | b1 | exact
    r2 vda write 0+16 s@5 D55 C85 | G2D 55, D2C 30 | b2 | exact
    """,
)

ABSORBED_BEYOND_THE_CUT = Scenario(
    6,
    "A request absorbed by one whose chain was cut",
    """
    0   QGsI W 0+8 bio=1 rq=1
    4   QGsI W 8+8 bio=2 rq=2
    9   m W 8+8 bio=2 rq=2 into=1
    20  D W 0+16 bio=1 rq=1 chain=1 bios=1 flags=1
    90  C W 0+16 bio=1 rq=1
    """,
    """
    b1 vda write 0+8 Q@0 G1 I3 D20 C90 | Q2G 1, G2I 2, I2D 17, D2C 70 | r1 | exact
    b2 vda write 8+8 Q@4 G1 I3 D16 C86 | Q2G 1, G2I 2, I2D 13, D2C 70 | r1 | interval
    r1 vda write 0+16 s@2 I1 D18 C88 | G2I 1, I2D 17, D2C 70 | b1 b2 | exact
    r2 vda write 8+8 s@6 I1 | G2I 1 | - | exact, into r1
    """,
)
