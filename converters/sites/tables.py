# SPDX-License-Identifier: Apache-2.0
"""Records of chosen sites as tables: a row for each PAIR and each HIT of a window.

Rows of hits are also kept in one piece (HIT), by the sites that a log followed (Following).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.events.events import Events
from biotrail.converters.events.path import full_time
from biotrail.converters.events.site_tables import Hits, Pairs, SiteTables
from biotrail.converters.events.tables import NEVER
from biotrail.converters.events.tasks import TaskNames
from biotrail.recorder.schema.records import RECORDS, Kind

_SITE_KINDS = tuple(record.kind for record in RECORDS if record.sites)
_PAIR_COLUMNS = {
    **{"pair": "<u2", "key0": "<u8", "key1": "<u8", "by": "<u8", "began": "<u8"},
    **{"tid": "<u4", "comm": "S16"},
}
_HIT_COLUMNS = {
    **{"number": "<i8", "time": "<i8", "object": "<u8", "detail": "<u8", "value": "<u8"},
    **{"comm": "S16", "life": "<u4", "tid": "<u4", "stack": "<i4", "site": "<u2"},
    **{"cpu": "<u2", "role": "u1", "flags": "u1"},
}
HIT = np.dtype(list(_HIT_COLUMNS.items()))
"""A row of `site_tables.Hits` in one piece, as rows of one life are copied and kept; without the
index of its task."""
HitRows = NDArray[np.void]
"""Rows of HIT, shape (n,), in order of time."""


def site_tables(events: Events, tasks: TaskNames) -> SiteTables | None:
    """Return a window's PAIR and HIT records, each complete in itself; None if it has none."""
    if not len(events.rows(*_SITE_KINDS)):
        return None
    hits = Hits(**_columns(events, tasks, Kind.HIT, _HIT_COLUMNS))
    return SiteTables(_pairs(events, tasks), hits)


def no_sites() -> SiteTables:
    return SiteTables(Pairs.none(), Hits.none())


def _columns(
    events: Events, tasks: TaskNames, kind: Kind, types: Mapping[str, str]
) -> dict[str, Any]:
    """Return the columns of a kind's records; time: their own, when they were written."""
    rows = events.rows(kind)
    records, time = events.fields(kind, rows), events.ts[rows]
    found: dict[str, Any] = {"number": events.number[rows], "time": time, "cpu": events.cpu[rows]}
    for name, type_ in types.items():
        if name not in found:
            found[name] = np.asarray(records[name]).astype(type_)
    return {**found, "task": tasks.rows(found["tid"], time)}


def _pairs(events: Events, tasks: TaskNames) -> Pairs:
    """Return a row for each PAIR record, in order of time.

    A beginning that is not known (0) or is after the end, as only a damaged record has it, becomes
    the end.
    """
    columns = _columns(events, tasks, Kind.PAIR, _PAIR_COLUMNS)
    ended = columns.pop("time")
    began = full_time(events, events.rows(Kind.PAIR), columns.pop("began"))
    began = np.where((began == NEVER) | (began > ended), ended, began)
    return Pairs(**columns, began=began, ended=ended)


def rows_of(hits: Hits) -> HitRows:
    rows = np.zeros(len(hits), HIT)
    for name in _HIT_COLUMNS:
        rows[name] = getattr(hits, name)
    return rows


@dataclass(frozen=True)
class Site:
    """A function or tracepoint that followed objects pass. module: "": the kernel itself."""

    name: str
    """"site N" where the header does not name it."""
    function: bool
    module: str


class Following:
    """What a log followed, by the header's sites.follow (docs/log-format.md)."""

    def __init__(self, header: Mapping[str, Any]) -> None:
        facts = header.get("sites", {}).get("follow", {})
        self.type: str = facts.get("type", "object")
        """Name of the struct."""
        self.way: str = facts.get("way", "")
        """How functions were attached; "typed": only tracepoints were; "": not known."""
        self.detail_unit: str = facts.get("detail_unit", "")
        self.detail: str = facts.get("detail", "")
        """Expression of the hits' `detail`; "": none."""
        self._sites = [
            Site(
                site.get("name") or f"site {number}",
                site.get("kind") != "tracepoint",
                site.get("module", ""),
            )
            for number, site in enumerate(facts.get("sites", []))
        ]

    def __len__(self) -> int:
        return len(self._sites)

    @property
    def has_functions(self) -> bool:
        return any(site.function for site in self._sites)

    def site(self, number: int) -> Site:
        """Return the site of a number (`HIT.site`); one named "site N" where there is none."""
        if number < len(self._sites):
            return self._sites[number]
        return Site(f"site {number}", True, "")

    def detail_text(self, detail: int) -> str:
        """Return a hit's detail as text, `sector 2048` or `4096 bytes`; "" where none is told."""
        if not self.detail:
            return ""
        if self.detail_unit == "bytes":
            return f"{detail:,} bytes"
        return f"{self.detail_unit or self.detail} {detail}"


def follows(header: Mapping[str, Any]) -> bool:
    return bool(header.get("sites", {}).get("follow"))
