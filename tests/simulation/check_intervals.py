# SPDX-License-Identifier: Apache-2.0
"""Holds what production says without pointers to the truth: what is not marked must be right.

Without identities not all can be known; `reference_intervals` says what can. Here stands the
other half: whatever is given without a mark is as it happened.
"""

from biotrail.converters.events.tables import Certainty
from tests.simulation.check import Checker, Row, Tables
from tests.simulation.model import Bio, History, Request
from tests.simulation.recorded import ns

TIMES = ("getrq", "merge", "insert", "issue")


class IntervalChecker(Checker):
    """Compares bios alone, and requests through their issues."""

    def __init__(self, history: History, tables: Tables) -> None:
        super().__init__(history, tables)
        self._request_at: dict[int, Request] = {}
        for rq in history.requests:
            for rec in rq.records:
                if rec.letter == "D":
                    self._request_at[ns(rec.ts)] = rq
        self._rows = {r["number"]: r for r in tables.requests}

    def check(self) -> list[str]:
        """All that is wrong."""
        self._every_queue_is_a_bio()
        for row in self.tables.bios:
            bio = self.truth.queued.get(row["queue"])
            if row["certainty"] == Certainty.EXACT:
                self._say(row, bio, "is called exact without pointers")
            if bio is not None and row["certainty"] == Certainty.INTERVAL:
                self._unmarked(row, bio)
        return self.found

    def _unmarked(self, row: Row, bio: Bio) -> None:
        truth = self.truth.bio(bio)
        if not self.truth.determined(bio):
            # As by identity: requeues of its request after its own end are not its history.
            truth.columns["requeues"] = min(row["requeues"], truth.columns["requeues"])
        for name, value in truth.columns.items():
            if row[name] != value:
                self._say(row, bio, f"{name} is {row[name]}, not {value}")
        given = {n: row[n] for n in TIMES}
        wanted = [{n: f[n] for n in TIMES} for f in truth.finals]
        if given not in wanted:
            self._say(row, bio, f"{given} is not of {wanted}")
        if row["status"] not in truth.statuses:
            self._say(row, bio, f"status is {row['status']}, not of {truth.statuses}")
        self._served_by(row, bio)
        allowed, _ = self.truth.parent(bio)
        parent = next((r for r in self.tables.bios if r["number"] == row["parent"]), None)
        if parent is not None and self.truth.queued.get(parent["queue"]) not in allowed:
            self._say(row, bio, f"parent is {row['parent']}, not its own")

    def _served_by(self, row: Row, bio: Bio) -> None:
        wanted = {(id(rq), sector, size) for rq, sector, size in self.truth.bio(bio).edges}
        given = set()
        for edge in self.edges.get(row["number"], []):
            rq = self._request_at.get(self._rows[edge["request"]]["issue"])
            if rq is None:
                return
            given.add((id(rq), edge["sector"], edge["bytes"]))
        if given != wanted:
            self._say(row, bio, f"edges are {self.edges.get(row['number'])}")
