# SPDX-License-Identifier: Apache-2.0
"""Made-up logs of chosen sites: pairs of events, hits of followed objects; bios beside them."""

from dataclasses import dataclass, field
from typing import Any

from biotrail.recorder.log import Segment
from biotrail.recorder.schema.payloads import FollowFacts, PairFacts, SitesFacts
from biotrail.recorder.schema.records import HIT_BORN, HIT_ENDED, Kind, Role, schema
from tests.support.log_samples import ring
from tests.support.path_logs import PathLog
from tests.support.stack_logs import START, record

SITE_LEVEL = 3
"""Of the segments in which the recorder writes records of sites: none is per CPU and nesting."""

SOFTIRQ: PairFacts = {
    "name": "softirq",
    "begin": "irq:softirq_entry",
    "end": "irq:softirq_exit",
    "keys": ["vec", "@cpu"],
    "by": "vec",
    "where": [],
    "way": "typed",
    "names": {
        "key0": {"1": "TIMER", "4": "BLOCK", "9": "RCU"},
        "by": {"1": "TIMER", "4": "BLOCK", "9": "RCU"},
    },
}
ISSUE: PairFacts = {
    "name": "issue",
    "begin": "block:block_rq_issue",
    "end": "block:block_rq_complete",
    "keys": ["dev", "sector"],
    "by": "",
    "where": ["bytes > 0"],
    "way": "format",
    "formats": {"key0": "dev"},
}
WORK: PairFacts = {
    "name": "workqueue",
    "begin": "workqueue:workqueue_execute_start",
    "end": "workqueue:workqueue_execute_end",
    "keys": ["work"],
    "by": "",
    "where": [],
    "way": "typed",
    "formats": {"key0": "hex"},
}
FOLLOW: FollowFacts = {
    "type": "request",
    "way": "fentry",
    "sites": [
        {"name": "blk_mq_start_request", "kind": "function", "module": "", "argument": 0},
        {"name": "block_rq_issue", "kind": "tracepoint", "module": "", "argument": 0},
        {"name": "blk_mq_end_request", "kind": "function", "module": "", "argument": 0},
    ],
    "births": ["blk_mq_start_request"],
    "deaths": ["blk_mq_end_request"],
    "detail": "__sector",
    "detail_unit": "sector",
    "every": 1,
    "max": 100,
    "slower_ns": 0,
}


@dataclass
class SiteLog(PathLog):
    """As PathLog, with records of sites on any CPU; times that methods take are ns since START.

    pairs, follow: what the header says of the sites; without both it has no "sites". counts: the
    END frame's "sites", as the recorder counts what became no record.
    """

    pairs: list[PairFacts] = field(default_factory=lambda: [SOFTIRQ, ISSUE, WORK])
    follow: FollowFacts | None = None
    counts: dict[str, Any] = field(default_factory=dict)
    sites: list[tuple[int, int, bytes]] = field(default_factory=list)
    """(ns since START, CPU, record) of each PAIR and HIT."""

    def pair(
        self,
        began: int,
        ended: int,
        *keys: int,
        pair: int = 0,
        by: int = 0,
        cpu: int = 0,
        tid: int = 42,
        comm: bytes = b"fio",
    ) -> None:
        """Two events with one key; negative keys are written as the kernel does (64 bits)."""
        values = {f"key{place}": key & (1 << 64) - 1 for place, key in enumerate(keys)}
        values |= {"began": START + began, "by": by & (1 << 64) - 1, "tid": tid, "pair": pair}
        row = record(Kind.PAIR, START + ended, comm=comm, **values)
        self.sites.append((ended, cpu, row))

    def hit(
        self,
        at: int,
        site: int,
        role: Role = Role.ENTRY,
        *,
        life: int = 1,
        object: int = 0xFFFF888000001000,
        cpu: int = 0,
        tid: int = 42,
        comm: bytes = b"fio",
        **values: int,
    ) -> None:
        """A followed object passes a site; values: flags, detail, value, stack (else -1)."""
        values = {"stack": -1, **values}
        who = {"life": life, "object": object, "tid": tid, "comm": comm}
        row = record(Kind.HIT, START + at, site=site, role=role, **who, **values)
        self.sites.append((at, cpu, row))

    def span(self, entry: int, exit: int, site: int, *, flags: int = 0, **values: Any) -> None:
        """A function's entry and return; HIT_BORN is set at the entry, HIT_ENDED at the return."""
        result = values.pop("value", 0)
        self.hit(entry, site, Role.ENTRY, flags=flags & HIT_BORN, **values)
        self.hit(exit, site, Role.RETURN, flags=flags & HIT_ENDED, value=result, **values)

    def facts(self) -> SitesFacts:
        """The header's "sites"."""
        made: SitesFacts = {"pairs": self.pairs} if self.pairs else {}
        if self.follow is not None:
            made["follow"] = self.follow
        return made

    def last_time(self) -> int:
        return max([super().last_time(), *(at for at, _, _ in self.sites)])

    def segments(self, begin: int, until: int, positions: dict[int, int]) -> list[Segment]:
        """As of PathLog, and a segment for each CPU with records of sites."""
        made = super().segments(begin, until, positions)
        chosen = [row for row in self.sites if begin < row[0] <= until]
        for cpu in sorted({row[1] for row in chosen}):
            rows = sorted((row for row in chosen if row[1] == cpu), key=lambda row: row[0])
            place = positions.get(SITE_LEVEL << 16 | cpu, 0)
            data = ring([one for _, _, one in rows], place)
            made.append(Segment(cpu, SITE_LEVEL, place, data))
            positions[SITE_LEVEL << 16 | cpu] = place + len(data)
        return made

    def data(self, *arguments: Any, **more: Any) -> bytes:
        """As of PathLog; without parts of the path unless they are given."""
        more.setdefault("parts", ())
        facts, parts = self.facts(), more["parts"]
        if facts:
            more.setdefault("sites", facts)
        more.setdefault("schema", schema(parts, bool(facts)))
        if not parts:
            more.setdefault("path", None)
        if self.counts:
            more["end"] = {"sites": self.counts, **more.get("end", {})}
        return super().data(*arguments, **more)
