# SPDX-License-Identifier: Apache-2.0
"""Records that are missing: what is then known, what is marked, and nothing cross-linked."""

from tests.scenarios.tools import Scenario

QUEUE_LOST = Scenario(
    20,
    "Q lost, the bio recycled",
    """
    0 QGsD 40 C R 0+8 bio=1 rq=1
    lost 50 Q R 8+8 bio=1
    51 GsD 90 C R 8+8 bio=1 rq=1
    """,
    """
    b1 vda read 0+8 Q@0 G1 D3 C40 | Q2G 1, G2D 2, D2C 37 | r1 | exact
    b2 vda read 8+8 Q? G@51 D@53 C@90 | G2D 2, D2C 37 | r2 | incomplete
    r1 vda read 0+8 s@2 D1 C38 | G2D 1, D2C 37 | b1 | exact
    r2 vda read 8+8 s@52 D1 C38 | G2D 1, D2C 37 | b2 | exact
    """,
)

ONLY_COMPLETION_LEFT = Scenario(
    20,
    "All but C lost, bio and request recycled",
    """
    0 QGsD 40 C R 0+8 bio=1 rq=1
    lost 50 QGsD R 8+8 bio=1 rq=1
    90 C R 8+8 bio=1 rq=1
    """,
    """
    b1 vda read 0+8 Q@0 G1 D3 C40 | Q2G 1, G2D 2, D2C 37 | r1 | exact
    b2 vda read 8+0 Q? C@90 | - | r2 | incomplete
    r1 vda read 0+8 s@2 D1 C38 | G2D 1, D2C 37 | b1 | exact
    r2 vda read 8+8 s@90 C0 | unknown 0 | b2 | incomplete
    """,
)

ONLY_COMPLETION_LEFT_AFTER_PARTIAL = Scenario(
    20,
    "All but C lost after a partial completion",
    """
    0 QGsD 30 C R 0+16 bio=1 rq=1 bytes=4096
    40 C R 8+8 bio=1 rq=1
    lost 50 QGsD R 64+8 bio=1 rq=1
    90 C R 64+8 bio=1 rq=1
    """,
    """
    b1 vda read 0+16 Q@0 G1 D3 C40 | Q2G 1, G2D 2, D2C 37 | r1 | exact
    b2 vda read 64+0 Q? C@90 | - | r2 | incomplete
    r1 vda read 0+16 s@2 D1 C38 | G2D 1, D2C 37 | b1 | exact
    r2 vda read 64+8 s@90 C0 | unknown 0 | b2 | incomplete
    """,
)

START_LOST = Scenario(
    20,
    "C and the next s lost, another bio",
    """
    0 QGsD R 0+8 bio=1 rq=1
    lost 40 C R 0+8 bio=1 rq=1
    50 QG 53 D 90 C R 8+8 bio=2 rq=1
    lost 52 s R 8+8 bio=2 rq=1
    """,
    """
    b1 vda read 0+8 Q@0 G1 D3 | Q2G 1, G2D 2 | r1 | lost
    b2 vda read 8+8 Q@50 G1 D3 C40 | Q2G 1, G2D 2, D2C 37 | r2 | exact
    r1 vda read 0+8 s@2 D1 | G2D 1 | b1 | lost
    r2 vda read 8+8 s@51 D2 C39 | G2D 2, D2C 37 | b2 | exact
    """,
)

START_LOST_INSERTED = Scenario(
    20,
    "C and the next s lost, a scheduler",
    """
    0 QGsID R 0+8 bio=1 rq=1
    lost 40 C R 0+8 bio=1 rq=1
    50 QG 53 I 55 D 90 C R 8+8 bio=2 rq=1
    lost 52 s R 8+8 bio=2 rq=1
    """,
    """
    b1 vda read 0+8 Q@0 G1 I3 D4 | Q2G 1, G2I 2, I2D 1 | r1 | lost
    b2 vda read 8+8 Q@50 G1 I3 D5 C40 | Q2G 1, G2I 2, I2D 2, D2C 35 | r2 | exact
    r1 vda read 0+8 s@2 I1 D2 | G2I 1, I2D 1 | b1 | lost
    r2 vda read 8+8 s@51 I2 D4 C39 | G2I 2, I2D 2, D2C 35 | b2 | exact
    """,
)

SAME_BIO_START_LOST = Scenario(
    20,
    "C, Q, G and s lost, the same bio at another sector",
    """
    0 QGsD R 0+8 bio=1 rq=1
    lost 40 C R 0+8 bio=1 rq=1
    lost 50 QGs R 64+8 bio=1 rq=1
    53 D 90 C R 64+8 bio=1 rq=1
    """,
    """
    b1 vda read 0+8 Q@0 G1 D3 | Q2G 1, G2D 2 | r1 | lost
    b2 vda read 64+8 Q? D@53 C@90 | D2C 37 | r2 | incomplete
    r1 vda read 0+8 s@2 D1 | G2D 1 | b1 | lost
    r2 vda read 64+8 s@53 D0 C37 | G2D 0, D2C 37 | b2 | incomplete
    """,
)

ISSUE_LOST = Scenario(
    20,
    "D lost",
    """
    0 QGs 40 C R 0+8 bio=1 rq=1
    lost 3 D R 0+8 bio=1 rq=1
    """,
    """
    b1 vda read 0+8 Q@0 G1 C40 | Q2G 1, unknown 39 | r1 | lost
    r1 vda read 0+8 s@2 C38 | unknown 38 | b1 | lost
    """,
)

ISSUE_OF_SEQUENCE_LOST = Scenario(
    20,
    "D of a FUA write lost",
    """
    0 QGs WFS 0+8 bio=1 rq=1
    lost 4 D WS 0+8 bio=1 rq=1
    60 C WS 0+8 bio=1 rq=1
    62 D 90 C FF 18446744073709551615+0 rq=9
    92 C WS 0+0 bio=1 rq=1
    """,
    """
    b1 vda write 0+8 Q@0 G1 C92 | Q2G 1, unknown 59, post-flush 32 | r1 | lost
    r1 vda write 0+8 s@2 C90 | unknown 58, post-flush 32 | b1 | lost
    r2 vda flush none+0 s@62 D0 C28 | G2D 0, D2C 28 | - | exact, flush
    """,
)

MERGE_LOST = Scenario(
    20,
    "M lost",
    """
    0 QGs W 0+8 bio=1 rq=1
    5 Q W 8+8 bio=2
    lost 6 M W 8+8 bio=2
    20 D 90 C W 0+16 bio=1 rq=1 bios=2
    """,
    """
    b1 vda write 0+8 Q@0 G1 D20 C90 | Q2G 1, G2D 19, D2C 70 | r1 | exact
    b2 vda write 8+8 Q@5 D15 C85 | Q2D 15, D2C 70 | r1 | exact
    r1 vda write 0+16 s@2 D18 C88 | G2D 18, D2C 70 | b1 b2 | exact
    """,
)

LOST_THEN_IN_A_CHAIN = Scenario(
    20,
    "C lost, then the bio is part of another request's chain",
    """
    0 QGsD W 64+8 bio=2 rq=2
    lost 30 C W 64+8 bio=2 rq=2
    40 QGs W 0+8 bio=1 rq=1
    lost 43 QM W 8+8 bio=2
    50 D 90 C W 0+16 bio=1 rq=1 chain=1,2
    """,
    """
    b1 vda write 64+8 Q@0 G1 D3 | Q2G 1, G2D 2 | r1 | lost
    b2 vda write 0+8 Q@40 G1 D10 C50 | Q2G 1, G2D 9, D2C 40 | r2 | exact
    b3 vda write 0+0 Q? D@50 C@90 | D2C 40 | r2 | incomplete
    r1 vda write 64+8 s@2 D1 | G2D 1 | b1 | lost
    r2 vda write 0+16 s@42 D8 C48 | G2D 8, D2C 40 | b2 b3 | exact
    """,
)

SPLIT_LOST = Scenario(
    20,
    "X lost",
    """
    0 Q W 0+2048 bio=1
    lost 1 X W 0+1024 bio=2 new=1024
    2 Gs 8 D 60 C W 0+1024 bio=2 rq=1
    4 Gs 9 D 70 C W 1024+1024 bio=1 rq=2
    """,
    """
    b1 vda write 0+2048 Q@0 G4 D9 C70 | Q2G 4, G2D 5, D2C 61 | r1[0+1024] r2[1024+1024] | interval, fragments 2
    r1 vda write 0+1024 s@3 D5 C57 | G2D 5, D2C 52 | b1 | exact
    r2 vda write 1024+1024 s@5 D4 C65 | G2D 4, D2C 61 | b1 | exact
    """,
)

QUEUE_LOST_INSIDE = Scenario(
    20,
    "Q lost of a read inside a larger one in flight",
    """
    0 QGsD 60 C R 0+1024 bio=1 rq=1
    lost 9 Q R 8+8 bio=2
    10 GsD 70 C R 8+8 bio=2 rq=2
    """,
    """
    b1 vda read 0+1024 Q@0 G1 D3 C60 | Q2G 1, G2D 2, D2C 57 | r1 | exact
    b2 vda read 8+8 Q? G@10 D@12 C@70 | G2D 2, D2C 58 | r2 | incomplete
    r1 vda read 0+1024 s@2 D1 C58 | G2D 1, D2C 57 | b1 | exact
    r2 vda read 8+8 s@11 D1 C59 | G2D 1, D2C 58 | b2 | exact
    """,
)

COMMENTS_ALONE = Scenario(
    20,
    "d and E of requests that are not in the log",
    """
    5 d R 0+0 rq=1
    6 Ed R 0+8 bio=2 rq=2 err=10
    10 QGsD 60 C R 0+8 bio=1 rq=1
    """,
    """
    b1 vda read 0+8 Q@10 G1 D3 C50 | Q2G 1, G2D 2, D2C 47 | r1 | exact
    r1 vda read 0+8 s@12 D1 C48 | G2D 1, D2C 47 | b1 | exact
    """,
)

ISSUE_SORTS_AFTER_COMPLETION = Scenario(
    20,
    "D whose time is 225 µs late sorts after C",
    """
    0 QGs 90 C 228 D R 0+8 bio=1 rq=1
    """,
    """
    b1 vda read 0+8 Q@0 G1 C90 | Q2G 1, unknown 89 | r1 | lost
    b2 vda read 0+8 Q? D@228 | - | r2 | incomplete
    r1 vda read 0+8 s@2 C88 | unknown 88 | b1 | lost
    r2 vda read 0+8 s@228 D0 | G2D 0 | b2 | incomplete
    """,
)

IN_A_LOSS_WINDOW = Scenario(
    20,
    "In flight while records were lost",
    """
    0 QGsD 30 C R 0+8 bio=1 rq=1
    40 QGsD 90 C R 8+8 bio=1 rq=1
    """,
    """
    b1 vda read 0+8 Q@0 G1 D3 C30 | Q2G 1, G2D 2, D2C 27 | r1 | exact
    b2 vda read 8+8 Q@40 G1 D3 C50 | Q2G 1, G2D 2, D2C 47 | r2 | lost
    r1 vda read 0+8 s@2 D1 C28 | G2D 1, D2C 27 | b1 | exact
    r2 vda read 8+8 s@42 D1 C48 | G2D 1, D2C 47 | b2 | lost
    """,
    losses=((60, 80),),
)

# Chains of bios that are longer than the records of an issue have room for.

CHAIN_CUT = Scenario(
    3,
    "A chain that was cut",
    """
    0 QGs W 0+8 bio=1 rq=1
    5 QM W 8+8 bio=2
    20 D 90 C W 0+16 bio=1 rq=1 chain=1 bios=1 flags=1
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
    0 QGs W 0+8 bio=1 rq=1
    3 QGs W 0+8 bio=3 rq=2
    6 QM W 8+8 bio=2
    8 QM W 8+8 bio=4
    20 D 50 C W 0+16 bio=1 rq=1 chain=1 bios=1 flags=1
    60 D 90 C W 0+16 bio=3 rq=2 chain=3 bios=1 flags=1
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
    0 QGsI W 0+8 bio=1 rq=1
    4 QGsI 9 m W 8+8 bio=2 rq=2 into=1
    20 D 90 C W 0+16 bio=1 rq=1 chain=1 bios=1 flags=1
    """,
    """
    b1 vda write 0+8 Q@0 G1 I3 D20 C90 | Q2G 1, G2I 2, I2D 17, D2C 70 | r1 | exact
    b2 vda write 8+8 Q@4 G1 I3 D16 C86 | Q2G 1, G2I 2, I2D 13, D2C 70 | r1 | interval
    r1 vda write 0+16 s@2 I1 D18 C88 | G2I 1, I2D 17, D2C 70 | b1 b2 | exact
    r2 vda write 8+8 s@6 I1 | G2I 1 | - | exact, into r1
    """,
)

CASES = [one for one in list(vars().values()) if isinstance(one, Scenario)]
