# SPDX-License-Identifier: Apache-2.0
"""Scenarios: short event sequences, and the lifecycles they shall become, both as text.

A line of a sequence, times in microseconds; the device is 254:0, the CPU 0, unless said:

    12 cpu1 D 7:1 WS 2096+16 bio=b1 rq=1

`0 QGs 20 D 90 Cd W 0+8 bio=1 rq=1 tag=7/-1` is one event for each letter, those of a run a
microsecond apart; each has those of the words that are its own, and a d no sectors. The events of
a later run stand before the first line behind it that is not earlier.

What follows the sectors is as in `captures`; C and E complete all that they name unless
`bytes=` says less. `lost` before a line: it happened, and its record was lost. A line of
lifecycles, times in microseconds after Q (requests: after s):

    b1 vda read 0+8 Q@10 G5 I6 D8 C90 | Q2G 5, G2I 1, I2D 2, D2C 82 | r1 | exact
    r1 vda read 0+8 s@15 I1 D3 C85 | G2I 1, I2D 2, D2C 82 | b1 | exact

b1, b2, … and r1, r2, … are numbered by what began first. What a bio shares with its request
stands in brackets where it is not the whole bio. After the certainty stands what is unusual:
fragments, requests, requeues, status, bytes done, parent, partition, the request's kind, tag.
"""

import heapq
import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from biotrail.converters.events.context import Context
from biotrail.converters.events.tables import (
    NEVER,
    STAGE_NAMES,
    Bios,
    Certainty,
    Edges,
    Lifecycles,
    RequestKind,
    Requests,
    Stage,
    Stages,
)
from biotrail.converters.lifecycles.account import Account
from biotrail.converters.pipeline import Trace
from biotrail.recorder.schema.records import BLK_STATUS, NO_TAG
from tests.support import captures
from tests.support.captures import Event, Follower

_SHORT = re.compile(
    r"(?P<us>\d+(\.\d+)?) +(cpu(?P<cpu>\d+) )?(?P<letter>\w) ((?P<dev>\d+:\d+) )?"
    r"(?P<rwbs>\w+) (?P<sector>\d+)\+(?P<sectors>\d+)(?P<rest>.*)"
)
_RUNS = re.compile(
    r"(?P<lost> *(lost )?)(?P<runs>(\d+ +(cpu\d+ )?[A-Za-z]+ +)+)(?P<what>(\d+:\d+ )?\w+ \d+\+.*)"
)
_RUN = re.compile(r"(?P<us>\d+) +(?P<cpu>cpu\d+ )?(?P<letters>[A-Za-z]+)")
_LETTERS_OF = {
    "bio": "QGXMFAacsIRmDCE",
    "rq": "MFasIRmDCEd",
    "tag": "sIRD",
    **dict.fromkeys(("chain", "bios", "flags"), "D"),
    **{"new": "X", "parent": "X", "from": "Aa", "into": "m", "part": "QA", "page": "Q"},
    **{"bytes": "CE", "err": "CEc"},
}
"""Of words that not every event has: whose they are."""
_PARTITIONS = [d["dev"] for d in captures.DEVICES if d["kind"] == "partition"]
FLUSH_SECTOR = 2**64 - 1
STARTS = "sd"
"""Events that kernels before 6.5 do not have."""


@dataclass
class Tables:
    """A whole log's lifecycles in one piece, and what was said about them."""

    bios: Bios
    requests: Requests
    edges: Edges
    bio_stages: Stages
    request_stages: Stages
    windows: list[Lifecycles]
    context: Context
    account: Account


@dataclass(frozen=True)
class Scenario:
    """One scenario: its events, and the lifecycles they shall become."""

    number: int
    name: str
    given: str
    then: str
    without_start: bool = True
    """Whether the same must come out where the kernel has no block_io_start."""
    devices: tuple[tuple[str, Any], ...] = ()
    """Further devices of the log: (major:minor, entry)."""
    losses: tuple[tuple[int, int], ...] = field(default=())
    """Loss windows, µs."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "given", spelled(self.given))

    @property
    def slug(self) -> str:
        """The name as a test's id."""
        words = re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-")
        return f"{self.number:02}-{words}"


def spelled(text: str) -> str:
    """A sequence with a line for each event of its runs."""
    found: list[str] = []
    waiting: list[tuple[int, int, str]] = []
    for line in text.splitlines():
        match = _RUNS.fullmatch(line)
        if match is None:
            found.append(line)
            continue
        lost, what = match["lost"], match["what"]
        first, *later = _RUN.finditer(match["runs"])
        if not later and len(first["letters"]) == 1:
            events = [(int(first["us"]), line)]
        else:
            events = [
                (us, f"{lost}{us} {run['cpu'] or ''}{letter} {_words(letter, what)}")
                for run in (first, *later)
                for us, letter in enumerate(run["letters"], int(run["us"]))
            ]
        while waiting and waiting[0][0] <= events[0][0]:
            found.append(heapq.heappop(waiting)[2])
        now = len(first["letters"])
        found += [event for _, event in events[:now]]
        for us, event in events[now:]:
            heapq.heappush(waiting, (us, len(found), event))
    return "\n".join([*found, *(event for *_, event in sorted(waiting))])


def _words(letter: str, what: str) -> str:
    """What stands behind a letter of a run: the words that its event has."""
    words = [w for w in what.split() if letter in _LETTERS_OF.get(w.partition("=")[0], letter)]
    return re.sub(r"\+\d+", "+0", " ".join(words), count=1) if letter == "d" else " ".join(words)


def events_of(text: str, scale: int = 1000) -> list[Event]:
    """The events of a sequence; `scale` is the ns that one of its microseconds stands for."""
    follower = Follower(_PARTITIONS)
    found = []
    for line in spelled(text).splitlines():
        words = line.split("#")[0].strip()
        if words:
            event = follower.follow(event_of_line(words.removeprefix("lost "), scale))
            found += [] if words.startswith("lost ") else [event]
    return found


def event_of_line(line: str, scale: int = 1000) -> Event:
    """The event of one line of a sequence."""
    short = _SHORT.fullmatch(line)
    if short is None:
        raise ValueError(f"not an event: {line!r}")
    rest = short["rest"]
    if short["letter"] in "CE" and "bytes=" not in rest:
        rest = f" bytes={int(short['sectors']) * 512}{rest}"
    whole = (
        f"0.0 cpu{short['cpu'] or 0} {short['letter']} {short['dev'] or '254:0'} "
        f"{short['rwbs']} {short['sector']}+{short['sectors']}{rest}"
    )
    event = captures.parse(whole)[0]
    event["ns"] = round(float(short["us"]) * scale)
    return event


def devices_with(extra: Sequence[tuple[str, Any]]) -> list[dict[str, Any]]:
    """The captures' devices and further ones; an entry for a known one replaces it."""
    added = [{"dev": captures.device_number(dev)} | dict(entry) for dev, entry in extra]
    numbers = {entry["dev"] for entry in added}
    return [d for d in captures.DEVICES if d["dev"] not in numbers] + added


def tables_of(
    events: Sequence[Event],
    *,
    window_events: int = 1 << 20,
    chunks: int = 1,
    devices: Sequence[tuple[str, Any]] = (),
    losses: Sequence[dict[str, Any]] = (),
    header: dict[str, Any] | None = None,
    associate: str = "auto",
) -> Tables:
    """Writes the events as a log, reads the log back, and checks what always holds."""
    overrides = {"devices": devices_with(devices)} | (header or {})
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "scenario.biotrail"
        captures.write_log(path, events, overrides, chunks=max(1, chunks), losses=losses)
        return read(path, window_events, associate)


def read(path: Path, window_events: int = 1 << 20, associate: str = "auto") -> Tables:
    """All lifecycles of a log, checked for what always holds."""
    trace = Trace(path, associate)
    tables = join(list(trace.lifecycles(window_events)), trace.context, trace.account)
    check(tables)
    return tables


def join(windows: list[Lifecycles], context: Context, account: Account) -> Tables:
    """The windows' tables in one piece, in the order of their numbers."""
    bios = Bios.concatenate([w.bios for w in windows])
    requests = Requests.concatenate([w.requests for w in windows])
    edges = Edges.concatenate([w.edges for w in windows])
    stages = [
        Stages.concatenate([getattr(w, name) for w in windows])
        for name in ("bio_stages", "request_stages")
    ]
    return Tables(
        bios.take(np.argsort(bios.number, kind="stable")),
        requests.take(np.argsort(requests.number, kind="stable")),
        edges.take(np.lexsort((edges.sector, edges.bio, edges.request))),
        *(s.take(np.lexsort((s.end, s.start, s.owner))) for s in stages),
        windows,
        context,
        account,
    )


def check(t: Tables) -> None:
    """What holds for every log: numbers, sums, edges, the account."""
    assert len(np.unique(t.bios.number)) == len(t.bios), "a bio appears twice"
    assert len(np.unique(t.requests.number)) == len(t.requests), "a request appears twice"
    assert np.isin(t.edges.bio, t.bios.number).all(), "an edge of no bio"
    assert np.isin(t.edges.request, t.requests.number).all(), "an edge to no request"
    for table, counts in (
        (t.bios, t.account.bios),
        (t.requests, t.account.requests),
        (t.edges, t.account.edges),
    ):
        assert sum(counts.values()) == len(table), "the account misses a row"
    _check_stages(t.bios.number, t.bios.queue, t.bios.complete, t.bio_stages)
    absorbed = t.requests.absorbed_by != NEVER
    complete = np.where(absorbed, NEVER, t.requests.complete)
    _check_stages(t.requests.number, t.requests.start, complete, t.request_stages)


def _check_stages(number: np.ndarray, begin: np.ndarray, end: np.ndarray, s: Stages) -> None:
    """Stages are gapless, none is negative, and those of what is complete add up to the ns."""
    assert (s.end >= s.start).all(), "a stage ends before it starts"
    same = s.owner[1:] == s.owner[:-1]
    assert (s.start[1:][same] == s.end[:-1][same]).all(), "a gap between stages"
    total = dict.fromkeys(number.tolist(), 0)
    for owner, took in zip(s.owner.tolist(), (s.end - s.start).tolist(), strict=True):
        total[owner] += took
    for n, first, last in zip(number.tolist(), begin.tolist(), end.tolist(), strict=True):
        if first >= 0 and last >= 0:
            assert total[n] == last - first, f"stages of {n} are not its whole time"


class _Writer:
    """Tables as text."""

    def __init__(self, t: Tables, scale: int) -> None:
        self._t = t
        self._scale = scale
        self._bio = {n: f"b{i}" for i, n in enumerate(t.bios.number.tolist(), 1)}
        self._request = {n: f"r{i}" for i, n in enumerate(t.requests.number.tolist(), 1)}

    def bios(self) -> list[str]:
        return [self._bio_line(i) for i in range(len(self._t.bios))]

    def requests(self) -> list[str]:
        return [self._request_line(i) for i in range(len(self._t.requests))]

    def _us(self, ns: int) -> str:
        return f"{ns / self._scale:.9g}"

    def _times(self, zero: str, since: int, marks: dict[str, int]) -> str:
        words = [f"{zero}@{self._us(since - captures.BASE_NS)}" if since >= 0 else f"{zero}?"]
        base = since if since >= 0 else captures.BASE_NS
        at = "" if since >= 0 else "@"
        return " ".join(
            words + [f"{k}{at}{self._us(v - base)}" for k, v in marks.items() if v != NEVER]
        )

    def _stages(self, s: Stages, owner: int) -> str:
        rows = np.flatnonzero(s.owner == owner)
        return ", ".join(
            f"{STAGE_NAMES[Stage(int(s.stage[r]))]} {self._us(int(s.end[r] - s.start[r]))}"
            for r in rows
        )

    def _what(self, row: Any) -> str:
        context = self._t.context
        sector = "none" if int(row["sector"]) == FLUSH_SECTOR else int(row["sector"])
        op = context.op_name(row["opf"])
        return f"{context.device_name(row['dev'])} {op} {sector}+{int(row['bytes']) // 512}"

    def _bio_line(self, i: int) -> str:
        b = {name: getattr(self._t.bios, name)[i] for name in self._t.bios.__annotations__}
        marks = {"G": "getrq", "M": "merge", "I": "insert", "D": "issue", "C": "complete"}
        times = self._times("Q", int(b["queue"]), {k: int(b[v]) for k, v in marks.items()})
        edges = np.flatnonzero(self._t.edges.bio == b["number"])
        served = [self._piece(int(e), i) for e in edges]
        return " | ".join(
            [
                f"{self._bio[int(b['number'])]} {self._what(b)} {times}",
                self._stages(self._t.bio_stages, int(b["number"])) or "-",
                " ".join(served) or "-",
                self._unusual(b, self._bio_facts(b)),
            ]
        )

    def _piece(self, edge: int, bio: int) -> str:
        e, b = self._t.edges, self._t.bios
        whole = (int(b.sector[bio]), int(b.bytes[bio])) == (int(e.sector[edge]), int(e.bytes[edge]))
        piece = f"[{int(e.sector[edge])}+{int(e.bytes[edge]) // 512}]"
        return self._request[int(e.request[edge])] + ("" if whole else piece)

    def _bio_facts(self, b: dict[str, Any]) -> list[str]:
        facts = []
        if b["fragments"] > 1:
            facts.append(f"fragments {b['fragments']}")
        if b["requests"] != b["fragments"]:
            facts.append(f"requests {b['requests']}")
        if b["complete"] != NEVER and b["done_bytes"] != b["bytes"]:
            facts.append(f"done {b['done_bytes']}")
        if b["parent"] != NEVER:
            facts.append(f"parent {self._bio[int(b['parent'])]}")
        if b["part"] != b["dev"]:
            facts.append(f"on {self._t.context.device_name(b['part'])}")
        return facts

    def _unusual(self, row: dict[str, Any], facts: list[str]) -> str:
        words = [Certainty(int(row["certainty"])).name.lower()]
        if row["requeues"]:
            words.append(f"requeues {row['requeues']}")
        if row["status"]:
            words.append(BLK_STATUS.get(int(row["status"]), str(row["status"])))
        return ", ".join(words + facts)

    def _request_line(self, i: int) -> str:
        r = {name: getattr(self._t.requests, name)[i] for name in self._t.requests.__annotations__}
        marks = {"I": "insert", "D": "issue", "C": "complete"}
        times = self._times("s", int(r["start"]), {k: int(r[v]) for k, v in marks.items()})
        edges = np.flatnonzero(self._t.edges.request == r["number"])
        served = [self._bio[int(self._t.edges.bio[e])] for e in edges]
        assert r["bios"] == len(set(served)) or r["absorbed_by"] != NEVER, "bios of a request"
        return " | ".join(
            [
                f"{self._request[int(r['number'])]} {self._what(r)} {times}",
                self._stages(self._t.request_stages, int(r["number"])) or "-",
                " ".join(served) or "-",
                self._unusual(r, self._request_facts(r)),
            ]
        )

    def _request_facts(self, r: dict[str, Any]) -> list[str]:
        facts = []
        if r["kind"] != RequestKind.NORMAL:
            facts.append(RequestKind(int(r["kind"])).name.lower())
        if r["absorbed_by"] != NEVER:
            facts.append(f"into {self._request[int(r['absorbed_by'])]}")
        elif r["complete"] != NEVER and r["done_bytes"] != r["bytes"]:
            facts.append(f"done {r['done_bytes']}")
        if r["parent"] != NEVER:
            facts.append(f"parent {self._request[int(r['parent'])]}")
        if r["tag"] != NO_TAG:
            facts.append(f"tag {r['tag']}")
        return facts


def bio_lines(t: Tables, scale: int = 1000) -> list[str]:
    """The bios, a line each."""
    return _Writer(t, scale).bios()


def request_lines(t: Tables, scale: int = 1000) -> list[str]:
    """The requests, a line each."""
    return _Writer(t, scale).requests()


def describe(t: Tables, scale: int = 1000) -> str:
    """All lifecycles as text; `scale`: ns that one unit of its times stands for."""
    return "\n".join(bio_lines(t, scale) + request_lines(t, scale))


def tidy(text: str) -> str:
    """Expected text without the indentation and blank lines that it has in a test."""
    return "\n".join(line.strip() for line in text.splitlines() if line.strip())


def run(scenario: Scenario, drop: str = "", scale: int = 1000, **options: Any) -> Tables:
    """A scenario's lifecycles; `drop`: letters of events to leave out."""
    events = [e for e in events_of(scenario.given, scale) if e["letter"] not in drop]
    losses = [
        {
            "start": captures.BASE_NS + start * scale,
            "end": captures.BASE_NS + end * scale,
            "cpu": 0,
            "level": 0,
            "kind": 0,
            "count": 1,
        }
        for start, end in scenario.losses
    ]
    return tables_of(events, devices=scenario.devices, losses=losses, **options)
