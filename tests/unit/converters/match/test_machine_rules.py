# SPDX-License-Identifier: Apache-2.0
"""Every rule of the machine is needed: without it a history or a case comes out otherwise."""

import io
import random
import re
from pathlib import Path

import numpy as np
import pytest

from biotrail.converters.events.context import Context
from biotrail.converters.events.decoding import Decoder
from biotrail.converters.events.events import Events
from biotrail.converters.events.stacks import StackNames
from biotrail.converters.events.tasks import TaskNames
from biotrail.converters.match import rules
from biotrail.converters.match.tables import Matcher
from tests.prove.machine import INTERVAL_KINDS, KINDS, complaints, interval_complaints
from tests.scenarios.cases_more import LOOP as UPPER
from tests.scenarios.cases_more import REQUEST_BASED as BELOW
from tests.scenarios.rule_cases import CASES
from tests.scenarios.tools import devices_with, events_of, spelled, tables_of
from tests.simulation.delivery import log_of
from tests.simulation.loads import history
from tests.support import captures
from tests.support.matching import by_machine, unlike, without
from tests.support.paths import DATA
from tests.support.record_rings import chunk

RULES = rules.RULES
WITHOUT_POINTERS = ("by intervals", "otherwise")
HISTORIES = {
    name: tuple(rule.needed_by.rsplit(" ", 1))
    for name, rule in RULES.items()
    if rule.needed_by.rpartition(" ")[0] in ("seed", *WITHOUT_POINTERS, *KINDS)
}
"""Rule → history (kind, seed) that comes out wrong ("seed", "by intervals"), else otherwise."""
RECORDINGS = {
    name: rule.needed_by.removeprefix("recording ")
    for name, rule in RULES.items()
    if rule.needed_by.startswith("recording ")
}
"""Rule → recording that comes out otherwise without it."""
PIECES_ABOVE = {
    "without the X": """
        0 Q 7:1 W 0+32 bio=1 page=4000
        2 GsD 7:1 W 0+16 bio=2 rq=1
        5 GsD 7:1 W 16+16 bio=1 rq=2
        15 C 7:1 W 16+16 bio=1 rq=2
        """,
    "without the first X of two": """
        0 Q 7:1 W 0+48 bio=1 page=4000
        1 GsD 7:1 W 0+16 bio=2 rq=1
        5 XG 7:1 W 16+16 bio=4 parent=1
        7 sD 7:1 W 16+16 bio=4 rq=2
        9 GsD 7:1 W 32+16 bio=1 rq=3
        14 C 7:1 W 16+16 bio=4 rq=2
        """,
    "split twice": """
        0 Q 7:1 W 0+48 bio=1 page=4000
        1 X 7:1 W 0+32 bio=2 parent=1
        2 XG 7:1 W 0+16 bio=4 parent=2
        4 sD 7:1 W 0+16 bio=4 rq=1
        6 GsD 7:1 W 16+16 bio=2 rq=2
        8 GsD 7:1 W 32+16 bio=1 rq=3
        14 C 7:1 W 16+16 bio=2 rq=2
        """,
}
"""A loop's bio in pieces: the first one is in flight at 20, another has ended."""
LOOP = "0 Q 7:1 R 0+8 bio=1 page=1\n1 s 7:1 R 0+8 bio=1 rq=1\n"
ORDINARY = INTERVAL_KINDS["ordinary, by intervals"]
TEXTS = {
    "splits/longer": "0 Q R 0+8 bio=1\n1 G R 0+8 bio=2",
    "splits/same-operation": "0 Q R 0+16 bio=1\n1 G W 0+8 bio=2",
    "splits/sent-the-rest": "0 Q R 0+16 bio=1\n1 D R 0+8 bio=2 rq=1 chain=2",
    "chains/same-operation": """
        0 s R 8+8 bio=1 rq=1
        1 QF W 0+8 bio=2
        3 D R 0+16 bio=1 rq=1 bios=1 flags=1
        """,
    "chain refusals/failed-before-issue": """
        0 s W 8+8 bio=1 rq=1
        1 QF W 0+8 bio=2
        3 sD W 0+16 bio=3 rq=3 bios=1 flags=1
        5 C W 0+16 bio=1 rq=1 status=10
        """,
    "loops/issued-before": f"""{LOOP}
        2 Q R 64+8 bio=2 page=1
        3 D 7:1 R 0+8 bio=1 rq=1
        """,
    "loops/not-completed-in-part": f"""{LOOP}
        2 Q 7:1 R 8+8 bio=3
        3 M 7:1 R 8+8 bio=3
        4 D 7:1 R 0+16 bio=1 rq=1 chain=1,3
        5 R 7:1 R 8+8 bio=3 rq=1
        6 Q R 64+8 bio=2 page=1
        """,
    "loops/directly-below": f"""{LOOP}
        2 D 7:1 R 0+8 bio=1 rq=1
        3 Q 253:1 R 64+8 bio=2 page=1
        """,
    "finder/unserved-fronts": """
        0 QG W 64+8 bio=5
        2 Q W 0+16 bio=1
        3 X W 0+8 bio=2 parent=1
        4 c W 8+8 bio=1
        """,
    "finder/flushes-merge-not": """
        0 QG FW 0+8 bio=1
        2 QM W 8+8 bio=2
        """,
    "finder/unseen-takers": """
        0 QI W 0+8 bio=1 rq=1
        2 Q W 16+8 bio=2
        3 QM W 8+8 bio=3
        """,
    "finder/merges-named-as-joins": """
        0 QG W 0+8 bio=1
        2 QGM W 8+8 bio=2
        """,
    "finder/bios-end-by-c": """
        0 Q W 0+8 bio=1
        1 C W 0+8 rq=1
        """,
    "finder/data-may-have-ended": """
        0 Q FW 0+8 bio=1
        1 D W 0+8 bio=1 rq=1
        2 QG FW 0+0 bio=2
        4 D FF 0+0 rq=2
        5 C W 0+0 rq=3
        """,
}
"""Rule → events of which the tables are others without it; the finder's are without pointers."""


def test_rules_have_names_reasons_and_a_proof() -> None:
    # GIVEN all rules / THEN each has a name of its own, says why, and what needs it
    assert len(RULES) == sum(len(table) for table in rules.TABLES.values())
    for name, rule in rules.RULES.items():
        assert re.fullmatch(r"[a-z -]+/[a-z-]+", name), name
        assert rule.why, name
        assert rule.needed_by, name
    # AND is a condition of the machine, by that name
    sources = Path(rules.__file__).parent.glob("*.py")
    text = "".join(path.read_text(encoding="utf-8") for path in sources)
    assert set(re.findall(r'on\["(.*?)"', text)) == set(rules.RULES)


@pytest.mark.parametrize("name", HISTORIES)
def test_without_the_rule_a_history_comes_out_wrong_or_otherwise(name: str) -> None:
    # GIVEN a generated history that needs the rule
    kind, seed = HISTORIES[name][0], int(HISTORIES[name][1])
    if kind == "seed":
        made = history(random.Random(seed), 12)
    else:
        made = {**KINDS, **INTERVAL_KINDS}.get(kind, ORDINARY)(seed)
    log = log_of(made).getvalue()
    associate = "intervals" if kind in WITHOUT_POINTERS else "identity"
    # WHEN it is read with the rule and without it
    found = by_machine(io.BytesIO(log), associate=associate)
    with without(name):
        other = by_machine(io.BytesIO(log), associate=associate)
    # THEN something is wrong without it, or the tables differ
    if kind in ("seed", "by intervals"):
        judge = complaints if kind == "seed" else interval_complaints
        right, wrong = judge(made, found), judge(made, other)
        assert not right
        assert wrong, name
    else:
        assert unlike(found, other)


@pytest.mark.parametrize("name", RECORDINGS)
def test_without_the_rule_a_recording_comes_out_otherwise(name: str) -> None:
    # GIVEN a recording
    path = DATA / RECORDINGS[name]
    how = "intervals" if path.suffix == ".biotrail" else "auto"
    # WHEN it is read with the rule and without it / THEN the tables differ
    found = by_machine(path, associate=how)
    with without(name):
        assert unlike(found, by_machine(path, associate=how))


@pytest.mark.parametrize("name", CASES)
def test_by_the_rule_alone_another_generation_begins(name: str) -> None:
    # GIVEN a few events of one address  WHEN they are read with the rule and without it
    requests, bios = (len(table) for table in rows(CASES[name]))
    with without(name):
        fewer = [len(table) for table in rows(CASES[name])]
    # THEN the rule, and no other, distinguishes two requests or bios
    assert (requests - fewer[0], bios - fewer[1]) in {(1, 0), (0, 1), (1, 1)}


@pytest.mark.parametrize("name", TEXTS)
def test_without_the_rule_a_few_events_come_out_otherwise(name: str) -> None:
    # GIVEN a few events / WHEN they are read with the rule and without it / THEN the tables differ
    by_intervals = name.startswith("finder/")
    found = rows(TEXTS[name], by_intervals)
    with without(name):
        assert rows(TEXTS[name], by_intervals) != found


@pytest.mark.parametrize("pieces", PIECES_ABOVE.values(), ids=PIECES_ABOVE)
def test_a_loops_bio_has_the_page_of_the_piece_in_flight(pieces: str) -> None:
    # GIVEN a bio of a loop device whose first piece is in flight, while another has ended
    lower = "20 Q 254:0 W 7000+16 bio=3 page=4000\n30 DC 254:0 W 7000+16 bio=3 rq=4"
    # WHEN the backing disk's bio has its first page  THEN the one is above the other
    bios = tables_of(events_of(spelled(f"{pieces}\n{lower}")), devices=(UPPER, BELOW)).bios
    assert bios.parent[bios.sector == 7000].tolist() == [0]


def machine(by_intervals: bool = False) -> Matcher:
    """Of a log with a loop device whose file is on the disk that `events_of` takes for granted.

    by_intervals: of a log of blktrace, without that device.
    """
    backing = {"backing_dev": captures.device_number("254:0")}
    loop = ("7:1", {"name": "loop1", "kind": "loop", "loop": backing})
    header = captures.header(devices=devices_with([] if by_intervals else [loop]))
    context = Context(header | ({"backend": "blktrace"} if by_intervals else {}))
    return Matcher(context, TaskNames(), StackNames(), by_intervals=by_intervals)


def decoded(text: str) -> Events:
    events = Decoder().decode(chunk(*captures.records(events_of(text))))
    events.number = np.arange(len(events))
    return events


def rows(text: str, by_intervals: bool = False) -> tuple[list[list[int]], list[list[int]]]:
    """Requests and bios of a few events: some columns of each."""
    matcher = machine(by_intervals)
    told = matcher.build(decoded(text), settle_ns=0, before=None)
    bios, requests = told.bios, told.requests
    found = [requests.number, requests.bios], [bios.number, bios.request, bios.parent]
    if by_intervals:
        found = [requests.number, requests.certainty], [bios.number, bios.request, bios.certainty]
    return np.stack(found[0]).T.tolist(), np.stack(found[1]).T.tolist()


def test_a_page_that_is_used_again_keeps_no_family_open() -> None:
    # GIVEN reads of a loop device from one buffer, one each 4 us, all ended
    count, settle_us = 1000, 200
    text = "".join(
        f"{4 * at + place} {kind} 7:1 R {8 * at}+8 bio={at % 3 + 1}{more}\n"
        for at in range(count)
        for place, (kind, more) in enumerate(
            [("Q", " page=1"), ("s", " rq=1"), ("D", " rq=1"), ("C", " rq=1")]
        )
    )
    # WHEN those are asked for that were over before the settle time
    matcher, events = machine(), decoded(text)
    settle_ns = settle_us * 1000
    before = int(events.ts[-1]) - settle_ns
    told = matcher.build(events, settle_ns=settle_ns, before=before)
    # THEN each is there but those of that time
    assert len(told.bios) >= count - settle_us // 4 - 1


def test_every_rule_is_shown_to_be_needed() -> None:
    # GIVEN all rules / THEN each is in one of these tests, but for those that say why not
    idle = {name for name, rule in RULES.items() if rule.needed_by.startswith("nothing: ")}
    assert {*HISTORIES, *RECORDINGS, *CASES, *TEXTS} == set(RULES) - idle
