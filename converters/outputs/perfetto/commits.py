# SPDX-License-Identifier: Apache-2.0
"""Slices of the commits of journals, a track for each journal, with the commit's phases nested."""

from dataclasses import dataclass

import numpy as np

from biotrail.converters.events.path_tables import Commits, PathTables, no_commits
from biotrail.converters.events.tables import NEVER
from biotrail.converters.outputs.perfetto.columns import Slices, StageColumns
from biotrail.converters.outputs.perfetto.flows import FlowMaker
from biotrail.converters.outputs.perfetto.names import COMMIT, COMMIT_PHASES, Interned


@dataclass
class CommitMaker:
    """Makes slices of the commits of each window, in the order of the windows."""

    names: Interned
    """Event names."""
    flows: FlowMaker | None = None
    """Arrows from the journal's bios, and to waits; None: none."""
    _numbered: int = 0
    """Commits so far, which numbers them."""

    def commits(self, path: PathTables | None) -> Slices:
        """Return a slice per commit that ended in the window, in the order of (start, number).

        path: the window's; None: no commits. A commit whose start was not seen, as recording began
        later, starts at the first phase that was seen, or at its end. Phases between moments of
        which one was not seen, and those of no length, have no slice.
        """
        table = no_commits() if path is None else path.commits
        begun = _moments(table)
        start = np.where(begun == NEVER, table.end[:, None], begun).min(axis=1)
        order = np.argsort(start, kind="stable")
        table, start = table.take(order), start[order]
        number = self._numbered + np.arange(len(table))
        self._numbered += len(table)
        name = self.names.id(COMMIT) if len(table) else 0
        slices = Slices(
            COMMIT,
            number=number,
            group=table.dev.astype(np.int64),
            start=start,
            end=table.end,
            name=np.full(len(table), name, dtype=np.uint64),
            family=None,
            rows=np.arange(len(table)),
        )
        if len(table):
            slices.uint("transaction", table.transaction)
            slices.uint("tid", table.tid)
            slices.stages = self._phases(table)
            if self.flows is not None:
                self.flows.of_commits(slices, table)
        return slices

    def _phases(self, table: Commits) -> StageColumns:
        """Return the phases of commits as stages of their slices, in the order of `table`."""
        begun = _moments(table)
        ended = np.concatenate([begun[:, 1:], table.end[:, None]], axis=1)
        shown = (begun != NEVER) & (ended > begun)
        count = shown.sum(axis=1)
        ids = np.array([self.names.id(phase) for phase in COMMIT_PHASES], dtype=np.uint16)
        return StageColumns(
            count=count,
            name=np.broadcast_to(ids, shown.shape)[shown],
            start=begun[shown],
            end=ended[shown],
        )


def _moments(table: Commits) -> np.ndarray:
    """Return when each phase of the commits began, int64 (n, 4), ns; NEVER: not seen."""
    columns = (table.started, table.locking, table.flushing, table.logging)
    return np.stack(columns, axis=1)
