# SPDX-License-Identifier: Apache-2.0
"""Hits of followed objects as rows of a structured array, and the sites that they passed."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.events.site_tables import Hits

_COLUMNS = (
    *("number", "time", "object", "detail", "value", "comm", "life", "tid", "stack", "site"),
    *("cpu", "role", "flags"),
)
_TYPES = ("<i8", "<i8", "<u8", "<u8", "<u8", "S16", "<u4", "<u4", "<i4", "<u2", "<u2", "u1", "u1")
HIT = np.dtype(list(zip(_COLUMNS, _TYPES, strict=True)))
"""A row of `site_tables.Hits` in one piece, as rows of one life are copied and kept; without the
index of its task."""

HitRows = NDArray[np.void]
"""Rows of HIT, shape (n,), in order of time."""


def rows_of(hits: Hits) -> HitRows:
    """Return the rows of a window's hits as HIT; a copy."""
    rows = np.zeros(len(hits), HIT)
    for name in _COLUMNS:
        rows[name] = getattr(hits, name)
    return rows


@dataclass(frozen=True)
class Site:
    """A place in the kernel that followed objects pass."""

    name: str
    """Of the function or tracepoint; "site N" where the header does not name it."""
    function: bool
    """Whether it is a function; else a tracepoint."""
    module: str
    """"": the kernel itself."""


class Following:
    """What a log followed, by the header's sites.follow (docs/log-format.md)."""

    def __init__(self, header: Mapping[str, Any]) -> None:
        """Take the facts from a log's header; one without them has no type and no sites."""
        facts = _facts(header)
        self.type = str(facts.get("type", "object"))
        """Name of the struct."""
        self.way = str(facts.get("way", ""))
        """How functions were attached; "typed": only tracepoints were; "": not known."""
        self.detail_unit = str(facts.get("detail_unit", ""))
        self.detail = str(facts.get("detail", ""))
        """Expression of the hits' `detail`; "": none."""
        self._sites = [
            Site(
                str(site.get("name", "")) or f"site {number}",
                site.get("kind") != "tracepoint",
                str(site.get("module", "")),
            )
            for number, site in enumerate(facts.get("sites", []))
        ]

    def __len__(self) -> int:
        return len(self._sites)

    @property
    def has_functions(self) -> bool:
        """Whether functions were attached; else the log has times of tracepoints alone."""
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


def _facts(header: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the header's sites.follow; {} where it has none, or none of the right type."""
    sites = header.get("sites")
    follow = sites.get("follow") if isinstance(sites, Mapping) else None
    return follow if isinstance(follow, Mapping) else {}


def follows(header: Mapping[str, Any]) -> bool:
    """Return whether the log was made by `biotrail follow`."""
    return bool(_facts(header))
