# SPDX-License-Identifier: Apache-2.0
"""Declared pairs of a log, and their values as text, by its header (docs/pairs.md)."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from biotrail.converters.events.context import Context
from biotrail.converters.events.distinct import distinct
from biotrail.converters.events.site_tables import Pairs
from biotrail.converters.events.tables import I64, Bool
from biotrail.recorder.schema.device_numbers import dev_text
from biotrail.recorder.schema.site_values import value_text

MOST_KEYS = 256
"""Keys of a pair with a place of their own in a drawing, the first that occur."""
MOST_TEXTS = 1_000
"""Values of --by with a name of their own in a drawing, and further keys that are arguments as
text: a drawing has each text once, or more often."""
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
    return bool(header.get("sites", {}).get("pairs"))


def pairs_alone(header: Mapping[str, Any]) -> bool:
    """Return whether a log has pairs, and no events of the block layer."""
    return pairs_in(header) and header.get("events", {}).get("set") == "sites"


class PairNames:
    """The declared pairs of one log."""

    def __init__(self, context: Context) -> None:
        self._facts: list[Any] = context.header.get("sites", {}).get("pairs", [])
        self._context = context
        self.finish(context.end)

    def __len__(self) -> int:
        return len(self._facts)

    def finish(self, end: Mapping[str, Any] | None) -> None:
        """Take what the log's END says of its pairs."""
        self._counts: list[dict[str, Any]] = (end or {}).get("sites", {}).get("pairs", [])

    def _count(self, pair: int) -> dict[str, Any]:
        return self._counts[pair] if pair < len(self._counts) else {}

    def fact(self, pair: int, name: str) -> Any:
        """Return a value of PairFacts; "" where the header does not have it."""
        return self._facts[pair].get(name, "") if pair < len(self._facts) else ""

    def name(self, pair: int) -> str:
        """Return the pair's name; "pair N" where the header does not name it."""
        return str(self.fact(pair, "name") or f"pair {pair}")

    def events(self, pair: int) -> str:
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
        return bool(self.fact(pair, "by"))

    def by(self, pair: int, value: int) -> str:
        """Return a value of --by as text; "" where the pair has none."""
        return self._text(pair, "by", value) if self.has_by(pair) else ""

    def fields(self, pair: int) -> list[str]:
        return [str(key) for key in self.fact(pair, "keys") or ()]

    def key(self, pair: int, key0: int, key1: int) -> str:
        """Return a key as text, such as "vec=TIMER, @cpu=1"."""
        values = zip(self.fields(pair), ("key0", "key1"), (key0, key1), strict=False)
        return ", ".join(f"{text}={self._text(pair, name, value)}" for text, name, value in values)

    def _text(self, pair: int, name: str, value: int) -> str:
        """name: key0, key1 or by."""
        names = (self.fact(pair, "names") or {}).get(name, {})
        if str(value) in names:
            return str(names[str(value)])
        form = (self.fact(pair, "formats") or {}).get(name, "dec")
        symbols = self._count(pair).get("names", {})

        def device(dev: int) -> str:
            return self._context.device_name(dev) or dev_text(dev)

        return value_text(value, form, device, lambda at: symbols.get(str(at)))

    def unpaired(self, pair: int) -> dict[str, int]:
        """Return the counts of events that became no pair, those above 0, by END's names."""
        counts = self._count(pair)
        return {name: counts[name] for name in _EVENTS if counts.get(name)}


def unpaired_text(name: str) -> str:
    return _EVENTS.get(name, name)


class DrawnPairs:
    """Numbers that an output gives to places of keys, names of pairs, and texts of further keys.

    place(pair, rank, key): gives a number to the place of a pair's key, by its rank among the
    pair's keys and its text; others(pair): to that of keys that have none of their own. name(pair,
    text): to a name of pairs. text(text): to a text.
    """

    def __init__(
        self,
        names: PairNames,
        place: Callable[[int, int, str], int],
        others: Callable[[int], int],
        name: Callable[[int, str], int],
        text: Callable[[str], int],
    ) -> None:
        self._names, self._place, self._others = names, place, others
        self._name, self._text = name, text
        self._places: dict[tuple[int, ...], int] = {}
        """By (pair, key0, key1)."""
        self._ranks: Counter[int] = Counter()
        """Number of places by pair."""
        self._named: dict[tuple[int, ...], int] = {}
        """By (pair, value of --by)."""
        self._texts: dict[tuple[int, ...], int] = {}
        """By (pair, key0, key1)."""

    def places(self, pairs: Pairs) -> tuple[I64, Bool]:
        """Return per pair the number of its key's place, and whether others share it, (n,) each."""
        keys, of = distinct(pairs.pair, pairs.key0, pairs.key1)
        found = []
        for key in keys:
            pair, rank = key[0], self._ranks[key[0]]
            if key not in self._places and rank < MOST_KEYS:
                self._places[key] = self._place(pair, rank, self._names.key(*key))
                self._ranks[pair] += 1
            own = key in self._places
            found.append((self._places[key] if own else self._others(pair), not own))
        numbers, shared = np.array(found, np.int64).reshape(-1, 2)[of].T
        return numbers, shared.astype(np.bool_)

    def names(self, pairs: Pairs) -> I64:
        """Return per pair the number of its name, (n,): the value of --by, else the pair's name.

        Past MOST_TEXTS values it is the pair's name, too.
        """
        values, of = distinct(pairs.pair, pairs.by)
        found = []
        for value in values:
            number = self._named.get(value)
            if number is None:
                room = len(self._named) < MOST_TEXTS
                text = self._names.by(*value) if room else ""
                number = self._name(value[0], text or self._names.name(value[0]))
                if room:
                    self._named[value] = number
            found.append(number)
        return np.array(found, np.int64)[of]

    def texts(self, pairs: Pairs, chosen: Bool) -> I64:
        """Return of the chosen pairs the number of the key's text, (n,); 0: there is none."""
        texts = np.zeros(len(pairs), np.int64)
        rows = np.flatnonzero(chosen)
        keys, of = distinct(pairs.pair[rows], pairs.key0[rows], pairs.key1[rows])
        for key in keys:
            if key not in self._texts and len(self._texts) < MOST_TEXTS:
                self._texts[key] = self._text(self._names.key(*key))
        texts[rows] = np.array([self._texts.get(key, 0) for key in keys], np.int64)[of]
        return texts
