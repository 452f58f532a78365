# SPDX-License-Identifier: Apache-2.0
"""Whole traces as text. `pytest --update` writes the expected files anew."""

import io
from pathlib import Path

import pytest

from biotrail.converters.events.tables import NEVER, Certainty, RequestKind, Stage
from biotrail.converters.outputs.perfetto.convert import convert
from tests.support.perfetto_check import read, render
from tests.support.perfetto_make import (
    LOOP,
    PART,
    PREFLUSH,
    SYNC,
    WRITE,
    Scene,
    bio,
    context,
    direct,
    request,
)

T = 1_000_000_000


def merged_writes():
    issue, complete = T + 60_000, T + 260_000
    bios = []
    for n in range(8):
        queue = T + 1_000 * n
        joined = queue + 500
        first, second = (Stage.Q2M, Stage.M2D) if n else (Stage.Q2G, Stage.G2D)
        bios.append(
            bio(
                n * 3, queue, opf=WRITE | SYNC, part=PART, sector=2048 + 8 * n, request=1,
                getrq=NEVER if n else joined, merge=joined if n else NEVER,
                issue=issue, complete=complete,
                stages=[(first, queue, joined), (second, joined, issue),
                        (Stage.D2C, issue, complete)],
            )
        )  # fmt: skip
    one = request(
        1, T + 500, opf=WRITE | SYNC, sector=2048, bytes=32768, bios=8, family=0, issue=issue,
        complete=complete, stages=[(Stage.G2D, T + 500, issue), (Stage.D2C, issue, complete)],
    )  # fmt: skip
    return Scene(bios=bios, requests=[one])


def stacked_on_loop():
    """A read of a loop device, its lower bio, a flush, an error, and two without an end."""
    upper = direct(10, T + 5_000_000, 900_000, dev=LOOP, part=LOOP, request=12)
    lower = direct(20, T + 5_200_000, 400_000, family=10, parent=10, task=1, certainty=1)
    flush = bio(
        30, T + 7_000_000, opf=WRITE | SYNC | PREFLUSH, bytes=0, complete=T + 9_500_000,
        stages=[(Stage.FLUSH, T + 7_000_000, T + 9_500_000)],
    )  # fmt: skip
    failed = direct(40, T + 7_100_000, 3_000, status=10, done_bytes=512, requeues=1)
    hung = bio(50, T + 8_000_000, issue=T + 8_010_000, certainty=Certainty.INCOMPLETE,
               stages=[(Stage.Q2G, T + 8_000_000, T + 8_001_000)])  # fmt: skip
    lost = bio(
        60, T + 8_100_000, issue=T + 8_110_000, certainty=Certainty.LOST, closed=T + 8_200_000
    )
    requests = [
        request(12, T + 5_001_000, dev=LOOP, family=10, issue=T + 5_003_000,
                complete=T + 5_903_000),
        request(31, T + 7_001_000, sector=2**64 - 1, bytes=0, opf=2, kind=RequestKind.FLUSH,
                tag=0xFFFF, issue=T + 7_002_000, complete=T + 9_400_000),
    ]  # fmt: skip
    return Scene(
        bios=[upper, lower, flush, failed, hung, lost],
        requests=requests,
        tasks=[
            {"tid": 101, "tgid": 100, "comm": "postgres"},
            {"tid": 55, "tgid": 55, "comm": "kworker/u8:2+loop0"},
        ],
        losses=[{"start": T + 8_050_000, "end": T + 8_900_000, "cpu": 1, "kind": 14, "count": 3}],
    )


@pytest.mark.parametrize("make", [merged_writes, stacked_on_loop], ids=lambda f: f.__name__)
@pytest.mark.parametrize("cuts", [(), range(T, T + 10_000_000, 1_100_000)], ids=["whole", "cut"])
def test_the_trace_reads_as_expected(make, cuts, expect):
    # GIVEN a small recording, whole or in windows
    expected = Path(__file__).with_name(f"perfetto_{make.__name__}.txt")
    # WHEN it is converted and written out as text
    out = io.BytesIO()
    convert(make().windows(cuts), context(), out)
    text = render(read(out.getvalue()))
    # THEN the text is the expected one
    expect(expected, text)
