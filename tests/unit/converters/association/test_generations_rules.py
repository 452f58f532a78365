# SPDX-License-Identifier: Apache-2.0
"""Where one use of an address ends and the next begins, rule by rule."""

import numpy as np
import pytest

from biotrail.converters.association.identity.bio_generations import bio_generations
from biotrail.converters.association.identity.chains import chain_owners, chain_rows
from biotrail.converters.association.identity.request_generations import request_generations
from biotrail.converters.association.identity.request_rows import Operations
from biotrail.converters.events.context import Context
from biotrail.converters.events.decoding import Decoder
from biotrail.converters.events.events import Events
from biotrail.recorder.log import Segment
from biotrail.recorder.schema.records import BY_KIND, Kind
from tests.scenarios.tools import events_of
from tests.support import captures
from tests.support.record_rings import chunk, record, ring

CONTEXT = Context(captures.header())
ZONE_APPEND = captures.OPS["ZONE_APPEND"]
RQ, BIO = 0xFFFF888200000010, 0xFFFF888100000010


def decoded(text: str) -> Events:
    events = Decoder().decode(chunk(*captures.records(events_of(text)))).events
    events.number = np.arange(len(events))
    return events


def lives(letters: str) -> str:
    """How one request's address lives: its events' letters, a bar where another begins.

    A letter stands for 8 sectors at 0 and bio 1; `'` after it: another bio and sector; `.`:
    half of the bytes; `,`: the other half; `0`: none.
    """
    rows, ns = [], 0
    for letter, mark in zip(letters, [*letters[1:], ""], strict=True):
        if letter in "'.,0":
            continue
        sector = {"'": 640, ",": 4, "0": 8}.get(mark, 0)
        size = {".": 2048, ",": 2048, "0": 0}.get(mark, 4096)
        kind = next(k for k, r in BY_KIND.items() if r.letter == letter)
        values = {"rq": RQ}
        if kind != Kind.DONE:
            values |= {"bio": BIO + (mark == "'"), "sector": sector, "bytes": size}
        rows.append(record(kind, ns, **values))
        ns += 10
    events = Decoder().decode(chunk(Segment(0, 0, 0, ring(rows)))).events
    found = request_generations(events, Operations(ZONE_APPEND))
    shown: list[list[str]] = [[] for _ in range(len(found))]
    for role, gen in zip(found.row_role.tolist(), found.row_gen.tolist(), strict=True):
        shown[gen].append(BY_KIND[Kind(role)].letter)
    return "|".join("".join(own) for own in shown)


@pytest.mark.parametrize(
    ("letters", "expected"),
    [
        ("sDCd", "sDCd"),
        ("sDCdsDCd", "sDCd|sDCd"),
        ("sIDCdsIDCd", "sIDCd|sIDCd"),
        ("DCdDCd", "DCd|DCd"),
        ("DCIDC", "DC|IDC"),
        ("sDsDC", "sD|sDC"),
        ("sIDRDC", "sIDRDC"),
        ("sIDRIDC", "sIDRIDC"),
        ("sDDC", "sDDC"),
        ("sDD'C'", "sD|DC"),
        ("sIDI'D'C'", "sID|IDC"),
        ("sDC'", "sD|C"),
        ("sDC.C,d", "sDCCd"),
        ("sDC.R,I,D,C,", "sDCRIDC"),
        ("sDC.C,C'", "sDCC|C"),
        ("sDC.C'", "sDC|C"),
        ("sDCC", "sDC|C"),
        ("sDCR", "sDC|R"),
        ("sDCC0d", "sDCCd"),
        ("sDCdC0d", "sDCdCd"),
        ("sDCdC0dC0", "sDCdCd|C"),
        ("C0C0C0", "C|C|C"),
        ("sImDC", "sIm|DC"),
        ("sImsDC", "sIm|sDC"),
        ("sDCm", "sDC|m"),
        ("asDC", "asDC"),
        ("sDCasDC", "sDC|asDC"),
        ("sDMDC", "sD|MDC"),
        ("dE", ""),
        ("dC", "C"),
        ("EdsDCEd", "sDCEd"),
        ("sID'C'", "sI|DC"),
        ("sDEd", "sDEd"),
    ],
)
def test_requests(letters: str, expected: str) -> None:
    # GIVEN the events of one address / WHEN cut into generations / THEN as the rules say
    assert lives(letters) == expected


def test_a_zone_append_completes_elsewhere() -> None:
    # GIVEN a zone append and a write, both completed at another sector than issued
    for rwbs, generations in (("ZAS", 1), ("WS", 2)):
        events = decoded(f"0 D {rwbs} 0+8 bio=1 rq=1\n9 C {rwbs} 64+8 bio=1 rq=1")
        # WHEN cut / THEN only the zone append is one
        assert len(request_generations(events, Operations(ZONE_APPEND))) == generations


def bios_of(text: str) -> list[str]:
    """Generations of bios by address, as letters; + is a bio that X names as split, % its rest."""
    events = decoded(text)
    requests = request_generations(events, Operations(ZONE_APPEND))
    of_event = np.full(len(events), -1, dtype=np.int64)
    of_event[requests.row_event] = requests.row_gen
    absorbed = requests.first(Kind.RQ_MERGE) >= 0
    never_queued = np.zeros(len(events), dtype=np.bool_)
    issued = requests.first(Kind.D) >= 0
    found, _ = bio_generations(events, of_event, absorbed, issued, never_queued, CONTEXT)
    names = {200: "+", 201: "%"} | {int(k): r.letter for k, r in BY_KIND.items()}
    shown: list[list[str]] = [[] for _ in range(len(found))]
    for role, gen in zip(found.row_role.tolist(), found.row_gen.tolist(), strict=True):
        shown[gen].append(names[role])
    return ["".join(own) for own in shown]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0 Q R 0+8 bio=1\n1 c R 0+8 bio=1\n2 Q R 0+8 bio=1\n3 c R 0+8 bio=1", ["Qc", "Qc"]),
        ("0 A R 8+8 bio=1 from=259:0+0\n1 Q R 8+8 bio=1", ["AQ"]),
        (
            "0 Q 9:0 R 8+8 bio=1\n1 A R 8+8 bio=1 from=9:0+8\n2 A R 8+8 bio=1 from=254:0+8",
            ["QAA"],
        ),
        ("0 Q 9:0 R 8+8 bio=1\n1 A R 8+8 bio=1 from=9:1+8", ["Q", "A"]),
        ("0 Q 9:0 R 8+8 bio=1\n1 A R 8+8 bio=1 from=9:0+99", ["Q", "A"]),
        ("0 c R 0+8 bio=1\n1 c R 0+8 bio=1", ["c", "c"]),
        ("0 Q R 0+8 bio=1\n1 G R 0+8 bio=1\n2 G R 0+8 bio=1", ["QG", "G"]),
        ("0 Q R 0+8 bio=1\n1 M R 0+8 bio=1\n2 G R 0+8 bio=1", ["QM", "G"]),
        (
            "0 Q R 0+16 bio=1\n1 X R 0+8 bio=2 new=8 parent=1\n2 G R 8+8 bio=1",
            ["Q+G", "X"],
        ),
        ("0 Q R 0+16 bio=1\n1 X R 8+8 bio=1 new=8 parent=77\n2 c R 16+0 bio=1", ["Q%c"]),
        ("0 s R 0+8 bio=1 rq=1\n1 D R 0+8 bio=1 rq=1\n2 c R 0+8 bio=1", ["sD", "c"]),
        ("0 s R 0+8 bio=1 rq=1\n1 s R 0+8 bio=1 rq=2", ["s", "s"]),
    ],
)
def test_bios(text: str, expected: list[str]) -> None:
    # GIVEN a few bios' events / WHEN cut into generations / THEN as the rules say
    assert bios_of(text) == expected


def chain(rq: int, ns: int, *bios: int) -> bytes:
    return record(Kind.CHAIN, ns, rq=rq, bios=[*bios, *[0] * (6 - len(bios))])


def test_chains_belong_to_the_issue_of_their_time_and_request() -> None:
    # GIVEN issues of one nanosecond on two CPUs, each with two CHAIN records, one of which
    # comes in a later chunk, after the other CPU's
    one = [record(Kind.D, 5, rq=1, bio=10), chain(1, 5, 11, 12, 13, 14, 15, 16)]
    two = [record(Kind.D, 5, rq=2, bio=20), chain(2, 5, 21)]
    late, foreign, other_time = chain(1, 5, 17, 18), chain(3, 5, 31), chain(1, 6, 19)
    segments = [Segment(0, 0, 0, ring(one)), Segment(1, 0, 0, ring(two))]
    first = Decoder().decode(chunk(*segments)).events
    rest = Decoder().decode(chunk(Segment(0, 0, 0, ring([late, foreign, other_time])))).events
    events = Events.join([first, rest])
    # WHEN they are told apart
    issue, bio, slot = chain_rows(events)
    # THEN each bio is of its own issue, in the chain's order, and what is of none is left out
    by_issue: dict[int, list[int]] = {}
    for i in np.argsort(slot, kind="stable").tolist():
        by_issue.setdefault(int(events.rq[issue[i]]), []).append(int(bio[i]))
    assert by_issue == {1: [11, 12, 13, 14, 15, 16, 17, 18], 2: [21]}
    owners, _ = chain_owners(events, events.rows(Kind.CHAIN))
    assert (owners < 0).sum() == 2
