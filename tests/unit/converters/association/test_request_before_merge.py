# SPDX-License-Identifier: Apache-2.0
"""By which absorbed request a bio came, where only the merge's range tells it."""

import random
import sys
from types import FrameType
from typing import Any

import numpy as np
import pytest

from biotrail.converters import pipeline
from biotrail.converters.association.identity import absorptions
from biotrail.converters.association.identity.absorptions import request_before_merge
from biotrail.converters.association.identity.association import Association
from biotrail.converters.events.tables import I64
from biotrail.converters.lifecycles import milestones
from biotrail.converters.pipeline import Trace
from biotrail.recorder.schema.records import Kind
from tests.simulation.check import run
from tests.simulation.loads import history
from tests.simulation.model import LIFECYCLE_WITHOUT_START, SECTOR
from tests.support import heavy_loads


def one_by_one(a: Association) -> I64:
    """The same, asked of each merge in turn: the rule as it reads."""
    before = (Kind.G, Kind.START, Kind.M, Kind.F, Kind.I, Kind.RQ_MERGE)
    issue = a.bios.first(Kind.D)
    early = (a.bios.row_event < issue[a.bios.row_gen]) | (issue[a.bios.row_gen] < 0)
    for row in np.flatnonzero((a.bios.row_role == Kind.I) & (a.row_request >= 0)).tolist():
        issued = int(a.requests.first(Kind.D)[a.row_request[row]])
        early[row] &= issued < 0 or a.bios.row_event[row] < issued
    named = np.flatnonzero((a.row_request >= 0) & np.isin(a.bios.row_role, before) & early)[::-1]
    own = np.full(len(a.bios), -1, dtype=np.int64)
    own[a.bios.row_gen[named]] = a.row_request[named]
    joined = (a.bios.first(Kind.G, Kind.M, Kind.F) >= 0) & (a.request >= 0)
    merged = np.flatnonzero(a.requests.row_role == Kind.RQ_MERGE)
    for row in merged[np.argsort(a.requests.row_event[merged])].tolist():
        event, gone = int(a.requests.row_event[row]), int(a.requests.row_gen[row])
        begin = int(a.events.sector[event])
        end = begin + int(a.events.bytes[event]) // SECTOR
        for bio in np.flatnonzero(joined & (own < 0) & (a.request == a.absorbed_by[gone])).tolist():
            inside = begin <= int(a.facts.piece_sector[bio]) < end
            if inside and a.bios.birth[bio] < event:
                own[bio] = gone
    return np.where((own >= 0) & (own != a.request), own, -1)


@pytest.fixture(autouse=True)
def by_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "BY_MACHINE", False)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[Association]:
    """The associations of which the model asks it, as it goes on."""
    found: list[Association] = []

    def watch(a: Association) -> I64:
        found.append(a)
        return request_before_merge(a)

    monkeypatch.setattr(milestones, "request_before_merge", watch)
    return found


@pytest.mark.parametrize("associate", ["identity", "intervals"])
def test_ranges_of_merges_tell_the_same_as_one_by_one(
    associate: str, seen: list[Association]
) -> None:
    # GIVEN histories in which requests were merged
    histories = [history(random.Random(seed), 12) for seed in range(150)]
    # WHEN they are associated
    for what in histories:
        if what.features["request merge"]:
            run(what, associate)
    # THEN each bio came with the request that the rule says, asked merge by merge
    found = [request_before_merge(a) for a in seen]
    for a, one in zip(seen, found, strict=True):
        assert one.tolist() == one_by_one(a).tolist()
    assert sum(int((one >= 0).sum()) for one in found) > 50


def lines_run(a: Association) -> int:
    """Lines of absorptions.py that `request_before_merge` runs."""
    count = 0

    def local(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return local

    def enter(frame: FrameType, event: str, argument: Any) -> Any:
        return local if frame.f_code.co_filename == absorptions.__file__ else None

    before = sys.gettrace()
    sys.settrace(enter)
    try:
        request_before_merge(a)
    finally:
        sys.settrace(before)
    return count


def test_merges_are_not_gone_through_one_by_one(seen: list[Association]) -> None:
    # GIVEN logs without s, of which one has four times as many merges, each with one fsync
    one = heavy_loads.stretch("request merges", LIFECYCLE_WITHOUT_START)
    last = heavy_loads.stretch("request merges", LIFECYCLE_WITHOUT_START, fsync=True)
    lines = []
    for events in (3000, 12_000):
        seen.clear()
        for _ in Trace(heavy_loads.log_of(one, events, last)[0]).lifecycles():
            pass
        # WHEN it is asked by which request each bio came
        lines.append([lines_run(a) for a in seen])
    # THEN as many steps are taken for the one as for the other
    assert lines[0] == lines[1] != []
