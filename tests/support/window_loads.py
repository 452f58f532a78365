# SPDX-License-Identifier: Apache-2.0
"""Loads as logs that are read in windows of any size."""

from collections.abc import Sequence
from pathlib import Path

from hypothesis import strategies as st

from biotrail.recorder.log import LogWriter, Segment
from tests.scenarios import cases, cases_more, losses, stacks, variants
from tests.scenarios.tools import events_of
from tests.support import captures
from tests.support.captures import Event, Follower

CASES = [
    *cases.CASES,
    *cases_more.CASES,
    *variants.CASES,
    *stacks.CASES,
    *losses.CASES,
]


FILES = sorted(path.stem for path in captures.DATA.glob("*.txt"))


PARTITIONS = [d["dev"] for d in captures.DEVICES if d["kind"] == "partition"]


HEADER = captures.header(
    devices=captures.DEVICES
    + [
        {"dev": dev, **entry}
        for case in CASES
        for dev, entry in ((captures.device_number(d), e) for d, e in case.devices)
    ]
)


def shifted(events: Sequence[Event], pointers: int, ns: int, stretch: int) -> list[Event]:
    """The events at another time and with other pointers."""
    moved = []
    for event in events:
        other = dict(event, ns=event["ns"] * stretch + ns)
        for key in ("bio", "rq", "parent", "page"):
            if other.get(key):
                other[key] += pointers
        if "chain" in other:
            other["chain"] = [bio + pointers for bio in other["chain"]]
        moved.append(other)
    return moved


def followed(name: str) -> list[Event]:
    follower = Follower(PARTITIONS)
    return [follower.follow(event) for event in captures.load(name)]


SOURCES = [events_of(case.given) for case in CASES] + [followed(name) for name in FILES]


piece = st.tuples(
    st.integers(0, len(SOURCES) - 1),
    st.sampled_from([0, 0, 1 << 12, 1 << 13]),  # pointers: mostly recycled
    st.integers(0, 400_000_000),  # when, ns
    st.sampled_from([1, 1, 1000, 20_000]),  # how much slower
)


def loads(pieces: Sequence[tuple[int, int, int, int]]) -> list[Event]:
    """Pieces one after the other where they share pointers, side by side where they do not."""
    events: list[Event] = []
    free: dict[int, int] = {}
    for source, pointers, ns, stretch in pieces:
        begin = max(ns, free.get(pointers, 0))
        own = shifted(SOURCES[source], pointers, begin, stretch)
        free[pointers] = max(event["ns"] for event in own) + 1000
        events += own
    return sorted(events, key=lambda event: event["ns"])


def write(path: Path, events: list[Event], cuts: list[int], delays: list[int]) -> Path:
    """A log with a chunk per cut (event index); each CPU's records come `delays` ns late."""
    encoder = captures._Encoder(drop_pointers=False)
    rings = captures.Rings()
    encoded = [(e["ns"], e["cpu"], encoder.encode(e)) for e in events]
    last = encoded[-1][0]
    edges = [encoded[cut][0] for cut in sorted(set(cuts))] + [last + max(delays) + 1]
    with path.open("wb") as stream:
        log = LogWriter(stream, HEADER)
        begin = [-1] * len(delays)
        for edge in edges:
            found: list[Segment] = []
            for cpu, delay in enumerate(delays):
                until = edge - delay
                own = [
                    (c, rows) for ns, c, rows in encoded if c == cpu and begin[cpu] < ns <= until
                ]
                found += rings.segments(own)
                begin[cpu] = max(begin[cpu], until)
            log.write_chunk(found, captures.clock(edge))
        log.close({"clocks": captures.clock(last)})
    return path
