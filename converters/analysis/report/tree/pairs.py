# SPDX-License-Identifier: Apache-2.0
"""The part of a report's tree that is about pairs of events."""

from dataclasses import dataclass

from biotrail.converters.analysis.figures import Summary


@dataclass
class PairGroup:
    """Pairs of events with one value of --by."""

    text: str
    """The value as the log's header has it shown."""
    value: int
    time: Summary
    """ns from the first event to the second."""


@dataclass
class PairKey:
    """Pairs of events with one key."""

    text: str
    """The key's fields and values, such as "vec=TIMER, @cpu=1"."""
    values: list[int]
    count: int
    sum_ns: int
    max_ns: int


@dataclass
class PairInterval:
    """The pairs of one declaration that ended in one interval of time."""

    name: str
    time: Summary
    """ns from the first event to the second."""


@dataclass
class PairReport:
    """One declared pair of events (`biotrail pairs`)."""

    name: str
    begin: str
    """Tracepoint, as system:name; `end` likewise."""
    end: str
    keys: list[str]
    by: str
    """"": pairs are not told apart further, and `groups` is empty."""
    time: Summary
    """ns from the first event to the second."""
    groups: list[PairGroup]
    """Those with the most time first."""
    groups_left_out: int
    """Pairs of values of --by beyond MOST_GROUPS: in `time` alone."""
    slowest_keys: list[PairKey]
    """Those with the most time first; SHOWN_KEYS at most."""
    keys_known: int
    """Keys that were counted."""
    keys_left_out: int
    """Pairs of keys beyond MOST_KEYS: in `time` alone."""
    unpaired: dict[str, int]
    """Counts of events that became no pair, by their names in the log's END."""
