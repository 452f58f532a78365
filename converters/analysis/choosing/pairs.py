# SPDX-License-Identifier: Apache-2.0
"""Choice of pairs of events: by what their records have, of what I/Os are chosen by."""

from typing import Any

import numpy as np

from biotrail.converters.analysis.choosing.choosing import Choice
from biotrail.converters.analysis.choosing.outcomes import Outcome
from biotrail.converters.events.site_tables import Pairs
from biotrail.converters.events.tables import Bool, Tasks

_FIELDS = ("key0", "key1", "by")


def chosen_pairs(pairs: Pairs, tasks: Tasks, choice: Choice, outcome: Outcome) -> Bool:
    """Mark the chosen pairs: bool (n,), by row of `pairs`.

    By the thread that ended a pair (of processes: its own id where its process is not known), its
    name as in the record; by device where the key or --by is one; by how long it took. No pair is
    chosen by operation, file, cgroup, among the slowest I/Os, or as failed: it has none of these.
    tasks: the threads that `pairs.task` is the row of.
    """
    who = choice.who
    wish = outcome.wish
    if choice.by_what_is_done or who.by_cgroup or wish.slowest or wish.failed:
        return np.zeros(len(pairs), dtype=np.bool_)
    chosen = np.asarray(pairs.latency >= wish.slower_than)
    if who.pids:
        chosen &= who.of_processes(pairs, tasks)
    if who.comms:
        names, of = np.unique(pairs.comm, return_inverse=True)
        named = [who.is_named(name.decode("utf-8", "replace")) for name in names.tolist()]
        chosen &= np.array(named, dtype=np.bool_)[of]
    if choice.by_device:
        chosen &= _on_devices(pairs, choice)
    return chosen


def _on_devices(pairs: Pairs, choice: Choice) -> Bool:
    """Mark the pairs of whose key or --by a field is one of the choice's devices."""
    sites: Any = choice.context.header.get("sites") or {}
    devices = np.array(choice.devices(), dtype=np.uint64)
    found = np.zeros(len(pairs), dtype=np.bool_)
    for number, facts in enumerate(sites.get("pairs", ())):
        formats = facts.get("formats") or {}
        rows = pairs.pair == number
        for name in _FIELDS:
            if formats.get(name) == "dev":
                found |= rows & np.isin(getattr(pairs, name), devices)
    return found
