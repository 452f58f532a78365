# SPDX-License-Identifier: Apache-2.0
"""`biotrail record --follow` on this kernel: each followed life is joined with its own I/O."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from biotrail.converters.events.tables import NEVER, Lifecycles
from biotrail.converters.lifecycles.result import Result
from biotrail.converters.pipeline import Trace
from biotrail.recorder.log import LogReader
from biotrail.recorder.schema.records import Kind
from tests.support.cli_runner import Cli
from tests.support.devices import LoopDevice, fio_arguments
from tests.support.kernel_completions import Completions
from tests.support.perfetto_check import read
from tests.support.record_command import biotrail

pytestmark = pytest.mark.usefixtures("needs_bpf")

LOAD = {"rw": "randrw", "bs": "4k", "size": "16m", "ioengine": "libaio", "iodepth": 16}
"""16 requests at a time use the addresses of few requests again and again."""


def record(*arguments: str | Path) -> str:
    """Run `biotrail record` to its end; return what it said."""
    return biotrail("record", *arguments).stderr


def recorded(log: Path, device: LoopDevice, follow: str, **load: Any) -> str:
    """Record fio's load on a device, with what is to be followed."""
    command = ["fio", *fio_arguments(device.path, **{**LOAD, **load})]
    options = ("--follow", follow, "-d", device.path, "-o", log)
    return record(*options, "--", *command, "--output=/dev/null")


@dataclass
class Issue:
    """What the block layer's own events say of a request."""

    address: int
    sector: int
    issued: list[int]
    """Times of its D (ns)."""
    first: int
    last: int


@dataclass
class Told:
    """A log's requests by number, hits by life, and which life is which request."""

    requests: dict[int, Issue] = field(default_factory=dict)
    hits: dict[int, list[tuple[int, int, int, str]]] = field(default_factory=dict)
    """(time, address, sector, site) of each hit."""
    joined: dict[int, int] = field(default_factory=dict)
    counts: Any = None


def told(log: Path, window: int) -> Told:
    """Read a log; what the requests are is taken from the events, not from the joined table."""
    trace, found = Trace(log), Told()
    sites = [site["name"] for site in trace.context.header["sites"]["follow"]["sites"]]

    def watch(result: Result, one: Lifecycles) -> None:
        of = result.mentions
        rows = np.flatnonzero((of.what != NEVER) & ~of.is_bio)
        events = result.behind.at(of.event[rows])
        at = np.searchsorted(events.number, of.event[rows])
        for number in np.unique(of.number[rows]).tolist():
            mine = np.sort(at[of.number[rows] == number])
            issues = mine[events.kind[mine] == Kind.D]
            found.requests[number] = Issue(
                int(events.field(Kind.D, "rq", issues[:1])[0]),
                int(events.sector[issues[0]]),
                events.ts[issues].tolist(),
                int(events.ts[mine].min()),
                int(events.ts[mine].max()),
            )
        if one.sites is None:
            return
        hits = one.sites.hits
        for row in range(len(hits)):
            hit = (int(hits.time[row]), int(hits.object[row]), int(hits.detail[row]))
            found.hits.setdefault(int(hits.life[row]), []).append((*hit, sites[hits.site[row]]))
        joined = one.sites.joined
        if joined is not None:
            found.joined |= dict(zip(joined.life.tolist(), joined.number.tolist(), strict=True))

    for _ in trace.lifecycles(window, on_window=watch):
        pass
    found.counts = trace.account.followed
    return found


def test_each_followed_request_is_its_own(
    loop_device: LoopDevice, completions: Completions, tmp_path: Path
) -> None:
    # GIVEN a load whose requests use few addresses  WHEN all are recorded, and many followed
    log = tmp_path / "log"
    truth = completions(loop_device.dev)
    said = recorded(log, loop_device, "request,max=4096,way=typed")
    unseen = truth.unseen_by(log)
    assert "followed" in said
    # THEN every life is joined with a request, whatever the windows
    found = told(log, 700)
    assert len(found.hits) >= 4000
    assert found.counts.lives == found.counts.joined == len(found.hits)
    # AND goes on with a later one only where no program was run for its end
    issues = {
        life: sum(site == "block_rq_issue" for *_, site in hits)
        for life, hits in found.hits.items()
    }
    went_on = {life for life, number in issues.items() if number > 1}
    assert len(went_on) == found.counts.several <= len(unseen)
    assert len(set(found.joined.values())) == len(found.joined) == len(found.hits)
    assert len({issue.address for issue in found.requests.values()}) < len(found.requests) / 4
    # AND it is the right one: the address is its own, its sector is what the followed object held,
    # and its issue is the hit at the issue's tracepoint
    for life, number in found.joined.items():
        if life in went_on:
            continue
        issue, hits = found.requests[number], found.hits[life]
        assert {address for _, address, _, _ in hits} == {issue.address}
        assert hits[0][2] == issue.sector
        at = [time for time, _, _, site in hits if site == "block_rq_issue"]
        assert len(at) == len(issue.issued) == 1
        before = [r for r in found.requests.values() if r.address == issue.address]
        nearest = min(before, key=lambda r: abs(r.issued[0] - at[0]))
        assert nearest is issue
        assert hits[0][0] < issue.last
        assert hits[-1][0] > issue.first
    # AND nothing was lost
    with LogReader(log) as reader:
        assert reader.losses == []


def test_only_some_are_followed_and_slow_and_traces_show_them(
    cli: Cli, loop_device: LoopDevice, tmp_path: Path
) -> None:
    # GIVEN a recording that follows each 5th request
    log = tmp_path / "log"
    recorded(log, loop_device, "request,every=5,max=4096,way=typed", size="2m", iodepth=4)
    # WHEN all I/Os are shown with functions
    ios = json.loads(cli("slow", "--functions", "--json", "-n", "0", log).out)["ios"]
    with_lives = [io for io in ios if io["followed"]]
    # THEN a fifth has its request's tree: of its own sector, within its own time
    assert (len(ios), len(with_lives)) == (512, 512 // 5)
    for io in with_lives:
        (life,) = io["functions"]
        assert life["request"] == io["requests"][0]["number"]
        assert life["detail"] == io["io"]["sector"]
        names = {n["name"] for context in life["contexts"] for n in context["nodes"]}
        assert {"block_rq_issue", "block_rq_complete", "__submit_bio"} <= names
        issued = [
            n["begin_ns"]
            for context in life["contexts"]
            for n in context["nodes"]
            if n["name"] == "block_rq_issue"
        ]
        begin = life["first_ns"]
        assert begin <= issued[0] <= begin + io["io"]["latency_ns"] + 1_000_000_000
    assert all(io["functions"] == [] for io in ios if not io["followed"])
    # AND the text says how many are
    text = cli("slow", "--functions", "-n", "3", log).out
    assert "functions: of " in text
    # WHEN the log is converted
    out = tmp_path / "log.pftrace"
    assert cli("convert", "--flows", "-o", out, log).status == 0
    trace = read(out.read_bytes())
    arrows = [(one, other) for one, other in trace.arrows() if other.category == "followed"]
    followed = [one for one in trace.slices("request") if "life" in one.args]
    # THEN each followed request's slice has an arrow to its life, which names it
    assert len(followed) == 512 // 5
    for one in followed:
        (life,) = [other for begin, other in arrows if begin is one]
        assert life.args["life"] == one.args["life"]
        assert life.args["request"] == one.args["number"]


def test_followed_bios_and_slow_ones_alone(
    cli: Cli, loop_device: LoopDevice, tmp_path: Path
) -> None:
    # GIVEN requests of which only those slower than any are to be recorded  WHEN recorded
    quick = tmp_path / "quick"
    said = recorded(quick, loop_device, "request,slower=1h,way=typed", size="1m")
    # THEN there is no life, and all lifecycles
    found = told(quick, 250_000)
    assert (found.hits, len(found.requests)) == ({}, 256)
    assert "too quick to be recorded" in said
    # GIVEN followed bios  WHEN read  THEN each joined life has the sector of its bio
    log = tmp_path / "bios"
    recorded(log, loop_device, "bio,max=4096,way=typed", size="1m")
    trace, sectors, lives, details = Trace(log), dict[int, int](), dict[int, int](), {}
    for window in trace.lifecycles():
        sectors |= dict(zip(window.bios.number.tolist(), window.bios.sector.tolist(), strict=True))
        if window.sites is not None:
            hits, joined = window.sites.hits, window.sites.joined
            for life, detail in zip(hits.life.tolist(), hits.detail.tolist(), strict=True):
                details.setdefault(life, detail)
            assert joined is not None
            lives |= dict(zip(joined.life.tolist(), joined.number.tolist(), strict=True))
    assert lives
    assert trace.account.followed.lives == trace.account.followed.joined
    assert all(sectors[number] == details[life] for life, number in lives.items())


def test_filters_by_operation_are_the_events_alone(loop_device: LoopDevice, tmp_path: Path) -> None:
    # GIVEN a filter that the programs that follow do not have
    log = tmp_path / "log"
    filters = ("--op", "read,write", "--flags", "sync")
    # WHEN requests are followed beside the filtered events THEN the recording begins
    record("--follow", "request", *filters, "-d", loop_device.path, "-o", log, "--duration", "0.2s")
    assert LogReader(log).end is not None
