# SPDX-License-Identifier: Apache-2.0
"""Followed objects beside the block layer's events: two backends as one."""

from typing import Any, cast

import numpy as np
import pytest

from biotrail.recorder.filters.filters import Filters
from biotrail.recorder.log import LogReader, Segment
from biotrail.recorder.probes.backend import Capabilities, ProgramInfo
from biotrail.recorder.probes.maps.stack_maps import FreshStacks
from biotrail.recorder.probes.sites import joined
from biotrail.recorder.probes.sites.attaching import Way
from biotrail.recorder.probes.sites.follow import FollowConfig, FollowProbes
from biotrail.recorder.probes.sites.follow_options import PART, FollowOptions
from biotrail.recorder.probes.sites.joined import JoinedProbes, follow_beside
from biotrail.recorder.probes.sites.planning import Planned
from biotrail.recorder.schema.errors import ProbeError
from biotrail.recorder.schema.records import BY_KIND, Kind
from biotrail.recorder.session.session import record
from biotrail.recorder.sites.following import FollowPlan
from tests.support.fake_probes import FakeProbes, options
from tests.support.site_logs import FOLLOW


class FakeFollow(FakeProbes):
    """What follows, without a kernel: one HIT a poll."""

    capabilities = Capabilities("core", site_stacks=True)

    def __init__(self, calls: list[str], *, fails: bool = False) -> None:
        super().__init__()
        self.order, self.fails = calls, fails
        self.size = BY_KIND[Kind.HIT].size
        self.stacks = {7: np.array([1, 2], np.uint64)}

    def open(self) -> None:
        self.order.append("follow open")
        if self.fails:
            raise ProbeError("no ring")

    def attach(self) -> None:
        self.order.append("follow attach")

    def detach(self) -> None:
        self.order.append("follow detach")

    def close(self) -> None:
        self.order.append("follow close")

    def drain(self) -> list[Segment]:
        if "follow detach" in self.order:
            return []
        row = np.zeros(1, BY_KIND[Kind.HIT].dtype)
        row["head"] = int(Kind.HIT) << 56 | 1_000 + self.given
        self.given += 1
        return [Segment(0, 3, (self.given - 1) * self.size, row.tobytes())]

    def fill(self) -> float:
        return 0.75

    def lost(self) -> Any:
        totals = np.zeros((2, 3, 256), np.uint64)
        totals[0, 0, Kind.HIT] = 4
        return totals

    def runs(self) -> int:
        return 11

    def programs(self) -> list[ProgramInfo]:
        return [ProgramInfo("typed x", "H", "x", True, "", 5, 500, 0)]

    def fresh_stacks(self) -> FreshStacks:
        found, self.stacks = self.stacks, {}
        return FreshStacks({}, {}, {}, found)

    def backend_facts(self) -> Any:
        return {"backend": "core", "sites": {"follow": FOLLOW}}

    def end_facts(self) -> Any:
        return {"sites": {"follow": {"born": 3, "ended": 2}}}


def both(*, fails: bool = False) -> tuple[JoinedProbes, FakeProbes, FakeFollow]:
    block = FakeProbes()
    follow = FakeFollow(block.calls, fails=fails)
    return JoinedProbes(block, cast(FollowProbes, follow)), block, follow


def test_both_are_recorded_into_one_log(tmp_path: Any) -> None:
    # GIVEN both  WHEN a recording of a moment is made
    probes, block, follow = both()
    summary = record(options(tmp_path / "log", duration=0.1), probes=probes)
    # THEN the lives begin last and end first
    order = [call for call in block.calls if call != "last"]
    assert order == [
        *("open", "follow open", "attach", "follow attach"),
        *("follow detach", "detach", "follow close", "close"),
    ]
    # AND the log has the records of both, what is followed, and what became of it
    reader = LogReader(tmp_path / "log")
    found = b"".join(bytes(s.data) for chunk in reader.chunks() for s in chunk.segments)
    assert len(found) == block.given * block.size + follow.given * follow.size
    assert reader.header["sites"] == {"follow": FOLLOW}
    assert "hit" in str(reader.header["schema"])
    assert reader.end is not None
    assert reader.end["sites"] == {"follow": {"born": 3, "ended": 2}}
    assert next(note for name, note in reader.notes if name == "stacks")["site"].keys() == {"7"}
    assert summary.followed == {"born": 3, "ended": 2}
    # AND losses of both
    assert summary.lost[Kind.HIT] == 4


def test_counters_of_both_are_kept_apart() -> None:
    # GIVEN both  THEN rings are as full as the fuller, and programs that follow are a part
    probes, block, _ = both()
    block.lost_records[1, 2, Kind.Q] = 2
    assert probes.fill() == 0.75
    lost = probes.lost()
    assert (lost[1, 2, Kind.Q], lost[0, 0, Kind.HIT]) == (2, 4)
    assert {program.part for program in probes.programs()} == {"", PART}
    assert probes.path_runs().by_part == {PART: 11}
    assert probes.runs() == block.runs()
    assert probes.capabilities == block.capabilities._replace(site_stacks=True)


def test_what_fails_to_open_leaves_nothing() -> None:
    # GIVEN a kernel that refuses what follows  WHEN opened
    probes, block, _ = both(fails=True)
    with pytest.raises(ProbeError, match="no ring"):
        probes.open()
    # THEN the other is closed
    assert block.calls == ["open", "follow open", "close"]


def test_a_partitions_whole_disk_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a partition and a disk, and filters
    asked: list[tuple[str, str, int]] = []

    def plan(struct: str, way: str, functions: int) -> Planned:
        asked.append((struct, way, functions))
        return Planned(FollowPlan(struct, "typed", ()), Way("typed", ""))

    monkeypatch.setattr(joined, "planned", plan)
    wish = FollowOptions("request", 7, way="typed", max_functions=5)
    # WHEN requests are to be followed
    made = follow_beside(FakeProbes(), wish, Filters(pids=(3,)), [(8, 9), (8, 0), (7, 0)])
    # THEN objects, which name disks alone, are chosen by these, and by the same tasks
    config: FollowConfig = made._follow.config
    assert asked == [("request", "typed", 5)]
    assert list(config.devices) == [(8, 0), (7, 0)]
    assert config.filters.pids == (3,)
    assert (config.choice.every, config.choice.at_once) == (7, 1000)


def test_bcc_cannot_follow() -> None:
    # GIVEN the backend of kernels without types  THEN one message says that it will not do
    block = FakeProbes()
    block.capabilities = Capabilities("bcc")
    with pytest.raises(ProbeError, match="--follow needs the core backend"):
        follow_beside(block, FollowOptions("request"), Filters(), [])
