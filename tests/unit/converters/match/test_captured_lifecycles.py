# SPDX-License-Identifier: Apache-2.0
"""What must be true of the lifecycles of every captured sequence, counted from its lines."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from biotrail.converters.events.tables import NEVER, Bios, Certainty, RequestKind, Stage
from biotrail.converters.pipeline import Trace
from tests.scenarios.tools import Tables, tables_of
from tests.support import captures, paths, perfetto_check
from tests.support.captures import Event
from tests.support.cli_runner import Cli

FILES = sorted(path.stem for path in captures.DATA.glob("*.txt"))


@pytest.fixture(scope="module", params=FILES)
def capture(request: pytest.FixtureRequest) -> tuple[list[Event], Tables]:
    events = captures.load(request.param)
    return events, tables_of(events)


def letters(events: list[Event]) -> Counter[str]:
    return Counter(event["letter"] for event in events)


def test_bios_are_all_there_and_whole(capture: tuple[list[Event], Tables]) -> None:
    # GIVEN a capture, begun and ended at rest / WHEN associated
    # THEN its bios are its Q events, at their times
    events, t = capture
    queued = sorted(captures.BASE_NS + e["ns"] for e in events if e["letter"] == "Q")
    assert sorted(t.bios.queue.tolist()) == queued
    # AND all is known of every bio and request
    assert (t.bios.certainty == Certainty.EXACT).all()
    assert (t.bios.complete != NEVER).all()
    assert (t.requests.certainty == Certainty.EXACT).all()
    assert (t.edges.certainty == Certainty.EXACT).all()
    # AND what has no error is done to the byte
    good = t.bios.status == 0
    assert (t.bios.done_bytes[good] == t.bios.bytes[good]).all()
    assert (t.bios.done_bytes[~good] < t.bios.bytes[~good]).all()
    # AND each bio's thread is the line's
    by_time = {captures.BASE_NS + e["ns"]: e for e in events if e["letter"] == "Q"}
    tasks = t.windows[-1].tasks
    for i in range(len(t.bios)):
        line = by_time[int(t.bios.queue[i])]
        assert t.bios.tid[i] == line["pid"]
        assert tasks.comm[t.bios.task[i]] == line["comm"]


def test_requests_splits_and_stages_are_those_of_the_events(
    capture: tuple[list[Event], Tables],
) -> None:
    # GIVEN a capture / WHEN associated
    events, t = capture
    # THEN there is a request per s, and one per issue of the flush request
    flushes = sum(1 for e in events if e["letter"] == "D" and e["rwbs"] == "FF")
    kinds = Counter(t.requests.kind.tolist())
    assert kinds[RequestKind.FLUSH] == flushes
    assert kinds[RequestKind.NORMAL] == letters(events)["s"]
    assert (t.requests.absorbed_by != NEVER).sum() == letters(events)["m"]
    assert t.requests.requeues.sum() == letters(events)["R"]
    # AND a bio's fragments are its X and itself
    served = t.bios.fragments > 0
    assert int((t.bios.fragments[served] - 1).sum()) == letters(events)["X"]
    # AND each served bio's pieces follow one another from its first sector to its end
    for i in np.flatnonzero(t.bios.fragments > 0):
        own = np.flatnonzero(t.edges.bio == t.bios.number[i])
        own = own[np.argsort(t.edges.sector[own])]
        begins = t.edges.sector[own].astype(np.int64)
        ends = begins + t.edges.bytes[own] // 512
        assert begins[0] == t.bios.sector[i]
        assert (begins[1:] == ends[:-1]).all()
        assert ends[-1] == int(t.bios.sector[i]) + int(t.bios.bytes[i]) // 512
    # AND every stage has a name that says something
    assert not (t.bio_stages.stage == Stage.UNKNOWN).any()
    assert not (t.request_stages.stage == Stage.UNKNOWN).any()


# Logs that were recorded on other kernels, kept so that readers never break on old ones.

DATA = paths.DATA / "kernels"
LOGS = sorted(DATA.glob("*.biotrail"))
LARGEST = 100 << 10
WRITE_BYTES = 65536


def test_there_are_logs_of_four_kernels() -> None:
    # GIVEN the logs  THEN none went missing, and none is large
    assert [path.stem for path in LOGS] == ["5.10", "6.1", "6.12", "7.2"]
    assert all(path.stat().st_size <= LARGEST for path in LOGS)


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_a_log_tells_its_kernel_and_converts(path: Path, cli: Cli, tmp_path: Path) -> None:
    # GIVEN a log of a write to a file on a volume on a mirror on two partitions
    # WHEN it is opened  THEN it is whole and says which kernel wrote it
    trace = Trace(path)
    reader = trace.reader
    assert reader.header["kernel"]["release"].startswith(f"{path.stem}.")
    assert not reader.interrupted
    assert (reader.losses, reader.problems) == ([], [])
    # WHEN it is converted
    out = tmp_path / "log.pftrace"
    done = cli("convert", path, "-o", out)
    # THEN the trace is sound and has every bio of the tables, with one family of four for the write
    assert done.status == 0, done.err
    bios = Bios.concatenate([window.bios for window in trace.lifecycles()])
    drawn = perfetto_check.read(out.read_bytes()).slices("bio")
    assert len(drawn) == len(bios) > 0
    assert (bios.complete != NEVER).all()
    (top,) = [
        bio
        for bio in drawn
        if bio.args["device"].startswith("vmtest-data (")
        and bio.args["bytes"] == WRITE_BYTES
        and bio.args["process"] == "dd"
    ]
    assert len([bio for bio in drawn if bio.correlation == top.correlation]) == 4
