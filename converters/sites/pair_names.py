# SPDX-License-Identifier: Apache-2.0
"""Declared pairs of a log, and their values as text, by its header (docs/pairs.md)."""

from collections.abc import Mapping
from typing import Any

from biotrail.converters.events.context import Context
from biotrail.recorder.schema.device_numbers import dev_text
from biotrail.recorder.schema.site_values import value_text

_EVENTS = {
    "begins_open": "begins without an end when recording ended",
    "ends_alone": "ends without a begin",
    "overwritten": "begins replaced by another with the same key",
    "full": "begins LOST as too many were open (--max-open)",
    "bad_reads": "events with an unreadable field",
    "others": "events left out by filters or conditions",
}
"""Counts of what became no pair, by their names in payloads.PairCounts, in words."""


def pairs_in(header: Mapping[str, Any]) -> bool:
    """Return whether a log's header declares pairs."""
    sites = header.get("sites")
    return isinstance(sites, Mapping) and bool(sites.get("pairs"))


def pairs_alone(header: Mapping[str, Any]) -> bool:
    """Return whether a log has pairs, and no events of the block layer."""
    return pairs_in(header) and header.get("events", {}).get("set") == "sites"


class PairNames:
    """The declared pairs of one log."""

    def __init__(self, context: Context) -> None:
        """Take the facts from the log's header; a log without pairs has none."""
        sites = context.header.get("sites")
        facts = sites.get("pairs", []) if isinstance(sites, dict) else []
        self._facts: list[dict[str, Any]] = [dict(f) for f in facts if isinstance(f, Mapping)]
        self._context = context
        self._symbols: list[dict[str, str]] = []
        self._counts: list[dict[str, Any]] = []
        self.finish(context.end)

    def __len__(self) -> int:
        return len(self._facts)

    def finish(self, end: Mapping[str, Any] | None) -> None:
        """Take what the log's END says of its pairs: names of functions, and counts."""
        found = ((end or {}).get("sites") or {}).get("pairs", [])
        self._counts = [dict(f) for f in found if isinstance(f, Mapping)]
        self._symbols = [dict(f.get("names") or {}) for f in self._counts]

    def fact(self, pair: int, name: str) -> Any:
        """Return a value of PairFacts; "" where the header does not have it."""
        return self._facts[pair].get(name, "") if pair < len(self._facts) else ""

    def name(self, pair: int) -> str:
        """Return the pair's name; "pair N" where the header does not name it."""
        return str(self.fact(pair, "name") or f"pair {pair}")

    def events(self, pair: int) -> str:
        """Return the pair's events in words."""
        return f"{self.fact(pair, 'begin')} to {self.fact(pair, 'end')}"

    def way(self, pair: int) -> str:
        """Return key, --by, conditions and how the events are read, in words."""
        keys = ", ".join(self.fields(pair))
        by = f", told apart by {self.fact(pair, 'by')}" if self.has_by(pair) else ""
        where = ", ".join(str(one) for one in self.fact(pair, "where") or ())
        how = {"typed": "types", "format": "records"}.get(str(self.fact(pair, "way")), "")
        read = f", by their {how}" if how else ""
        return f"joined by {keys}{by}{f' where {where}' if where else ''}{read}"

    def has_by(self, pair: int) -> bool:
        """Return whether the pair's records have a value of --by."""
        return bool(self.fact(pair, "by"))

    def by(self, pair: int, value: int) -> str:
        """Return a value of --by as text; "" where the pair has none."""
        return self._text(pair, "by", value) if self.has_by(pair) else ""

    def fields(self, pair: int) -> list[str]:
        """Return the key's expressions, as the user wrote them."""
        return [str(key) for key in self.fact(pair, "keys") or ()]

    def key(self, pair: int, key0: int, key1: int) -> str:
        """Return a key as text, such as "vec=TIMER, @cpu=1"."""
        values = zip(self.fields(pair), ("key0", "key1"), (key0, key1), strict=False)
        return ", ".join(f"{text}={self._text(pair, name, value)}" for text, name, value in values)

    def _text(self, pair: int, name: str, value: int) -> str:
        """Return a value of key0, key1 or by, as the header says it is shown."""
        names = (self.fact(pair, "names") or {}).get(name, {})
        if str(value) in names:
            return str(names[str(value)])
        form = (self.fact(pair, "formats") or {}).get(name, "dec")
        symbols = self._symbols[pair] if pair < len(self._symbols) else {}
        return value_text(value, form, self._device, lambda at: symbols.get(str(at)))

    def _device(self, dev: int) -> str:
        return self._context.device_name(dev) or dev_text(dev)

    def unpaired(self, pair: int) -> dict[str, int]:
        """Return the counts of events that became no pair, those above 0, by END's names.

        Empty too where the log has no END.
        """
        counts = self._counts[pair] if pair < len(self._counts) else {}
        return {name: int(counts[name]) for name in _EVENTS if int(counts.get(name) or 0)}


def unpaired_text(name: str) -> str:
    """Return a count of `PairNames.unpaired` in words."""
    return _EVENTS.get(name, name)
