# SPDX-License-Identifier: Apache-2.0
"""The twenty scenarios, first half: one device, from a plain read to a journal commit."""

from tests.scenarios.tools import Scenario

READ_NONE = Scenario(
    1,
    "Direct read, scheduler none",
    """
    0 Q 5 Gs 9 D 100 Cd R 1000+8 bio=1 rq=1 tag=7/-1
    """,
    """
    b1 vda read 1000+8 Q@0 G5 D9 C100 | Q2G 5, G2D 4, D2C 91 | r1 | exact
    r1 vda read 1000+8 s@6 D3 C94 | G2D 3, D2C 91 | b1 | exact, tag 7
    """,
)

READ_DEADLINE = Scenario(
    2,
    "Direct read, mq-deadline",
    """
    0 Q 5 Gs 8 I R 1000+8 bio=1 rq=1 tag=-1/3
    15 D 100 Cd R 1000+8 bio=1 rq=1 tag=7/3
    """,
    """
    b1 vda read 1000+8 Q@0 G5 I8 D15 C100 | Q2G 5, G2I 3, I2D 7, D2C 85 | r1 | exact
    r1 vda read 1000+8 s@6 I2 D9 C94 | G2I 2, I2D 7, D2C 85 | b1 | exact, tag 7
    """,
)

PLUGGED_WRITES = Scenario(
    3,
    "Eight plugged writes",
    """
    0 Q 2 Gs WS 0+8 bio=1 rq=1 tag=7/-1
    10 QM WS 8+8 bio=2
    20 QM WS 16+8 bio=3
    30 QM WS 24+8 bio=4
    40 QM WS 32+8 bio=5
    50 QM WS 40+8 bio=6
    60 QM WS 48+8 bio=7
    70 QM WS 56+8 bio=8
    80 D 200 Cd WS 0+64 bio=1 rq=1 tag=7/-1 bios=8
    """,
    """
    b1 vda write 0+8 Q@0 G2 D80 C200 | Q2G 2, G2D 78, D2C 120 | r1 | exact
    b2 vda write 8+8 Q@10 M1 D70 C190 | Q2M 1, M2D 69, D2C 120 | r1 | exact
    b3 vda write 16+8 Q@20 M1 D60 C180 | Q2M 1, M2D 59, D2C 120 | r1 | exact
    b4 vda write 24+8 Q@30 M1 D50 C170 | Q2M 1, M2D 49, D2C 120 | r1 | exact
    b5 vda write 32+8 Q@40 M1 D40 C160 | Q2M 1, M2D 39, D2C 120 | r1 | exact
    b6 vda write 40+8 Q@50 M1 D30 C150 | Q2M 1, M2D 29, D2C 120 | r1 | exact
    b7 vda write 48+8 Q@60 M1 D20 C140 | Q2M 1, M2D 19, D2C 120 | r1 | exact
    b8 vda write 56+8 Q@70 M1 D10 C130 | Q2M 1, M2D 9, D2C 120 | r1 | exact
    r1 vda write 0+64 s@3 D77 C197 | G2D 77, D2C 120 | b1 b2 b3 b4 b5 b6 b7 b8 | exact, tag 7
    """,
)

FRONT_MERGE = Scenario(
    4,
    "Front merge",
    """
    0 Q 2 Gs W 1008+8 bio=1 rq=1
    10 QF W 1000+8 bio=2
    20 D 90 Cd W 1000+16 bio=2 rq=1 bios=2
    """,
    """
    b1 vda write 1008+8 Q@0 G2 D20 C90 | Q2G 2, G2D 18, D2C 70 | r1 | exact
    b2 vda write 1000+8 Q@10 M1 D10 C80 | Q2M 1, M2D 9, D2C 70 | r1 | exact
    r1 vda write 1000+16 s@3 D17 C87 | G2D 17, D2C 70 | b1 b2 | exact
    """,
)

REQUEST_MERGE = Scenario(
    5,
    "Request merge",
    """
    0 QGs 10 I W 0+8 bio=1 rq=1
    4 QGs 12 m W 8+8 bio=2 rq=2 into=1
    20 D 90 Cd W 0+16 bio=1 rq=1 bios=2
    """,
    """
    b1 vda write 0+8 Q@0 G1 I10 D20 C90 | Q2G 1, G2I 9, I2D 10, D2C 70 | r1 | exact
    b2 vda write 8+8 Q@4 G1 D16 C86 | Q2G 1, G2D 15, D2C 70 | r1 | exact
    r1 vda write 0+16 s@2 I8 D18 C88 | G2I 8, I2D 10, D2C 70 | b1 b2 | exact
    r2 vda write 8+8 s@6 | - | - | exact, into r1
    """,
)

REQUEST_MERGE_CHAIN = Scenario(
    6,
    "Chain of request merges",
    """
    0 QGsI W 0+8 bio=1 rq=1
    4 QGsI 14 m W 16+8 bio=3 rq=3 into=2
    10 QGsI W 8+8 bio=2 rq=2
    15 m W 8+16 bio=2 rq=2 into=1
    20 D 90 Cd W 0+24 bio=1 rq=1 bios=3
    """,
    """
    b1 vda write 0+8 Q@0 G1 I3 D20 C90 | Q2G 1, G2I 2, I2D 17, D2C 70 | r1 | exact
    b2 vda write 16+8 Q@4 G1 I3 D16 C86 | Q2G 1, G2I 2, I2D 13, D2C 70 | r1 | exact
    b3 vda write 8+8 Q@10 G1 I3 D10 C80 | Q2G 1, G2I 2, I2D 7, D2C 70 | r1 | exact
    r1 vda write 0+24 s@2 I1 D18 C88 | G2I 1, I2D 17, D2C 70 | b1 b2 b3 | exact
    r2 vda write 16+8 s@6 I1 | G2I 1 | - | exact, into r1
    r3 vda write 8+8 s@12 I1 | G2I 1 | - | exact, into r1
    """,
)

SPLIT_WRITE = Scenario(
    7,
    "Split write",
    """
    0 Q WS 0+2304 bio=1
    1 XGs 10 D 50 C WS 0+1024 bio=2 rq=1 new=1024
    4 XGs 11 D 60 C WS 1024+1024 bio=3 rq=2 new=2048
    7 Gs 12 D 90 C WS 2048+256 bio=1 rq=3
    """,
    """
    b1 vda write 0+2304 Q@0 G7 D12 C90 | Q2G 7, G2D 5, D2C 78 | r1[0+1024] r2[1024+1024] r3[2048+256] | exact, fragments 3
    r1 vda write 0+1024 s@3 D7 C47 | G2D 7, D2C 40 | b1 | exact
    r2 vda write 1024+1024 s@6 D5 C54 | G2D 5, D2C 49 | b1 | exact
    r3 vda write 2048+256 s@8 D4 C82 | G2D 4, D2C 78 | b1 | exact
    """,
)

SPLIT_REVERSED = Scenario(
    8,
    "Split write, fragments complete in reverse",
    """
    0 Q WS 0+2304 bio=1
    1 XGs 10 D 90 C WS 0+1024 bio=2 rq=1 new=1024
    4 XGs 11 D 60 C WS 1024+1024 bio=3 rq=2 new=2048
    7 Gs 12 D 50 C WS 2048+256 bio=1 rq=3
    """,
    """
    b1 vda write 0+2304 Q@0 G2 D10 C90 | Q2G 2, G2D 8, D2C 80 | r1[0+1024] r2[1024+1024] r3[2048+256] | exact, fragments 3
    r1 vda write 0+1024 s@3 D7 C87 | G2D 7, D2C 80 | b1 | exact
    r2 vda write 1024+1024 s@6 D5 C54 | G2D 5, D2C 49 | b1 | exact
    r3 vda write 2048+256 s@8 D4 C42 | G2D 4, D2C 38 | b1 | exact
    """,
)

FSYNC = Scenario(
    9,
    "fsync",
    """
    0 QGs FWS 0+0 bio=1 rq=1
    10 D 80 C F 18446744073709551615+0 rq=9 tag=5/-1
    81 d F 0+0 rq=9
    83 Cd WS 0+0 bio=1 rq=1
    """,
    """
    b1 vda write 0+0 Q@0 G1 C83 | flush 83 | r1 | exact
    r1 vda write 0+0 s@2 C81 | flush 81 | b1 | exact
    r2 vda flush none+0 s@10 D0 C70 | G2D 0, D2C 70 | - | exact, flush, tag 5
    """,
)

SHARED_FLUSHES = Scenario(
    10,
    "Three fsyncs share two flushes",
    """
    0 QGs FWS 0+0 bio=1 rq=1
    3 D 80 C F 18446744073709551615+0 rq=9
    10 QGs FWS 0+0 bio=2 rq=2
    20 QGs FWS 0+0 bio=3 rq=3
    81 C WS 0+0 bio=1 rq=1
    83 D 160 C F 18446744073709551615+0 rq=8
    161 C WS 0+0 bio=2 rq=2
    162 C WS 0+0 bio=3 rq=3
    """,
    """
    b1 vda write 0+0 Q@0 G1 C81 | flush 81 | r1 | exact
    b2 vda write 0+0 Q@10 G1 C151 | flush 151 | r3 | exact
    b3 vda write 0+0 Q@20 G1 C142 | flush 142 | r4 | exact
    r1 vda write 0+0 s@2 C79 | flush 79 | b1 | exact
    r2 vda flush none+0 s@3 D0 C77 | G2D 0, D2C 77 | - | exact, flush
    r3 vda write 0+0 s@12 C149 | flush 149 | b2 | exact
    r4 vda write 0+0 s@22 C140 | flush 140 | b3 | exact
    r5 vda flush none+0 s@83 D0 C77 | G2D 0, D2C 77 | - | exact, flush
    """,
)

CASES = [one for one in list(vars().values()) if isinstance(one, Scenario)]
