# SPDX-License-Identifier: Apache-2.0
"""Lifecycles of light logs: one record at a completion says all."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from biotrail.converters.analysis.report.report import make_report
from biotrail.converters.events.tables import (
    NEVER,
    Bios,
    Certainty,
    RequestKind,
    Requests,
    Stage,
    Stages,
)
from biotrail.converters.lifecycles import light
from biotrail.converters.pipeline import WINDOW_EVENTS, Trace
from biotrail.recorder.schema.records import LIGHT_MANY, NO_SECTOR, Kind
from tests.support.both_ways import differences, windows_of
from tests.support.captures import BASE_NS
from tests.support.light_logs import (
    DEV,
    DRV_IN,
    FLUSH,
    FUA,
    PART,
    PREFLUSH,
    WRITE,
    Light,
    write_log,
)
from tests.support.record_rings import record

MS = 1_000_000
SECOND = 1_000 * MS


@dataclasses.dataclass
class Read:
    """All that a log's windows have."""

    trace: Trace
    bios: Bios
    requests: Requests
    stages: Stages
    request_stages: Stages


def read(path: Path, window_events: int = WINDOW_EVENTS) -> Read:
    trace = Trace(path)
    windows = list(trace.lifecycles(window_events))
    return Read(
        trace,
        Bios.concatenate([w.bios for w in windows]),
        Requests.concatenate([w.requests for w in windows]),
        Stages.concatenate([w.bio_stages for w in windows]),
        Stages.concatenate([w.request_stages for w in windows]),
    )


def read_of(directory: Path, *lights: Light) -> Read:
    return read(write_log(directory / "a.biotrail", lights))


def stages_of(stages: Stages) -> list[tuple[Stage, int, int]]:
    """(stage, start, end), times since the log's begin."""
    return [
        (Stage(kind), start - BASE_NS, end - BASE_NS)
        for kind, start, end in zip(
            stages.stage.tolist(), stages.start.tolist(), stages.end.tolist(), strict=True
        )
    ]


def test_one_record_becomes_a_request_and_a_row_for_its_bios(tmp_path: Path) -> None:
    # GIVEN a request of three bios
    found = read_of(tmp_path, Light(900, 100, 400, sector=64, bytes=12288, opf=WRITE, bios=3))
    # THEN there is its row, with the kernel's times
    request = found.requests
    assert (len(request), request.dev[0]) == (1, DEV)
    assert (request.sector[0], request.bytes[0]) == (64, 12288)
    times = (request.start, request.issue, request.complete)
    assert [int(column[0]) - BASE_NS for column in times] == [100, 400, 900]
    # AND one row stands for the three bios: the other two are told as such
    assert (request.bios[0], request.others[0]) == (1, 2)
    bios = found.bios
    assert (len(bios), bios.sector[0], bios.bytes[0], bios.cgroup[0]) == (1, 64, 12288, 1)
    assert int(bios.queue[0]) == BASE_NS + 100
    assert (bios.certainty[0], request.certainty[0]) == (Certainty.EXACT, Certainty.EXACT)
    # AND its stages have no gap
    expected = [(Stage.G2D, 100, 400), (Stage.D2C, 400, 900)]
    assert stages_of(found.stages) == stages_of(found.request_stages) == expected
    # AND the event is accounted for
    assert found.trace.account.by_letter() == {"L": 1}
    assert [str(reason)[:4] for reason in found.trace.account.by_reason()] == ["used"]


def test_a_request_of_a_partition_or_in_parts_is_one(tmp_path: Path) -> None:
    # GIVEN requests at the last sector before a partition, its first and last, and the next
    sectors = (4095, 4096, 4103, 4104)
    found = read_of(tmp_path, *(Light(n, 0, 0, sector=n, bytes=512) for n in sectors))
    # THEN those between are of the partition, the others of the disk
    assert found.bios.part.tolist() == [DEV, PART, PART, DEV]
    assert found.bios.dev.tolist() == [DEV] * 4
    # GIVEN 8 KiB that complete in two parts, the second with an error, and another request between
    found = read_of(
        tmp_path,
        Light(500, 100, 200, sector=8, bytes=4096, bios=2, goes_on=True),
        Light(600, 550, 560, sector=99, rq=0xFFFF888000002000),
        Light(900, 100, 700, sector=16, bytes=4096, status=10),
    )
    # THEN it is one request from the first part's place and issue on, half of it good
    assert len(found.requests) == len(found.bios) == 2
    one = found.requests.take(found.requests.sector == 8)
    assert (one.bytes[0], one.done_bytes[0], one.status[0]) == (8192, 4096, 10)
    assert (int(one.issue[0]), int(one.complete[0])) == (BASE_NS + 200, BASE_NS + 900)
    assert one.others[0] == 1
    mine = found.stages.take(found.stages.owner == one.number[0])
    assert stages_of(mine) == [(Stage.G2D, 100, 200), (Stage.D2C, 200, 900)]


def test_a_flush_sequence_is_one_request(tmp_path: Path) -> None:
    # GIVEN a write with PREFLUSH and FUA: flushed by a request of its own, written, and ended by a
    # completion of 0 bytes
    flags = WRITE | PREFLUSH | FUA
    flush = {"sector": NO_SECTOR, "bytes": 0, "opf": FLUSH, "bios": 0, "rq": 0xFFFF888000009000}
    found = read_of(
        tmp_path,
        Light(300, 110, 120, **flush),
        Light(600, 100, 310, opf=flags, goes_on=True),
        Light(900, 610, 620, **flush),
        Light(950, 100, 310, opf=flags, bytes=0, sector=8),
    )
    # THEN the flushes are requests without bios, and the write has all its stages
    assert found.requests.kind.tolist().count(RequestKind.FLUSH) == 2
    assert len(found.bios) == 1
    assert found.bios.bytes[0] == found.bios.done_bytes[0] == 4096
    assert stages_of(found.stages) == [
        (Stage.PRE_FLUSH, 100, 310),
        (Stage.D2C, 310, 600),
        (Stage.POST_FLUSH, 600, 950),
    ]


def test_flushes_and_passthrough_without_data(tmp_path: Path) -> None:
    # GIVEN an fsync's empty write with PREFLUSH, which is never issued itself
    found = read_of(tmp_path, Light(900, 100, None, opf=WRITE | PREFLUSH, bytes=0))
    # THEN all of its time is a flush, and nothing is missing
    assert stages_of(found.stages) == [(Stage.FLUSH, 100, 900)]
    assert found.trace.account.light.without_issue == 0
    # GIVEN a driver's command with a bio that was never queued
    found = read_of(tmp_path, Light(900, 100, None, opf=DRV_IN))
    # THEN it is a request alone
    assert (len(found.bios), found.requests.kind[0]) == (0, RequestKind.PASSTHROUGH)


def test_times_that_the_kernel_did_not_take_are_told(tmp_path: Path) -> None:
    # GIVEN requests without start (iostats 0), without issue (no statistics), and without either
    found = read_of(
        tmp_path,
        Light(900, None, 400, sector=8),
        Light(1900, 1000, None, sector=16),
        Light(2900, None, None, sector=24),
    )
    # THEN what is known stands, without a latency where there was no start
    assert found.bios.queue.tolist() == [NEVER, BASE_NS + 1000, NEVER]
    assert found.requests.start.tolist() == [BASE_NS + 400, BASE_NS + 1000, BASE_NS + 2900]
    assert stages_of(found.stages) == [(Stage.D2C, 400, 900), (Stage.UNKNOWN, 1000, 1900)]
    assert found.requests.certainty.tolist() == [
        *(Certainty.INCOMPLETE, Certainty.EXACT, Certainty.INCOMPLETE)
    ]
    # AND the account says how many
    told = found.trace.account.light
    assert (told.requests, told.without_start, told.without_issue) == (3, 2, 2)


def test_coarse_times_early_issues_and_many_bios(tmp_path: Path) -> None:
    # GIVEN a request of 30 s, whose times are in units of 1024 ns
    found = read_of(tmp_path, Light(40 * SECOND, 10 * SECOND, 20 * SECOND, coarse=True))
    # THEN they are right within a unit
    start, issue = int(found.bios.queue[0]) - BASE_NS, int(found.bios.issue[0]) - BASE_NS
    assert 0 <= start - 10 * SECOND < 1024
    assert 0 <= issue - 20 * SECOND < 1024
    # GIVEN an issue timed by the clock that another task's plug had kept
    found = read_of(tmp_path, Light(900, 400, 100))
    # THEN it is the start's
    assert stages_of(found.stages) == [(Stage.G2D, 400, 400), (Stage.D2C, 400, 900)]
    # GIVEN a request with more bios than the program counts THEN it has that many
    found = read_of(tmp_path, Light(900, 100, 400, bios=LIGHT_MANY))
    assert found.requests.bios[0] + found.requests.others[0] == 128


def test_a_request_whose_end_is_missing_is_lost_when_its_address_is_used_again(
    tmp_path: Path,
) -> None:
    # GIVEN a part of a request, then another request at its address, and a part at the log's end
    found = read_of(
        tmp_path,
        Light(500, 100, 200, sector=8, goes_on=True),
        Light(900, 700, 800, sector=16),
        Light(950, 850, 860, sector=24, goes_on=True),
    )
    # THEN the first is lost, the last still in flight
    certain = dict(zip(found.requests.sector.tolist(), found.requests.certainty, strict=True))
    assert certain == {8: Certainty.LOST, 16: Certainty.EXACT, 24: Certainty.INCOMPLETE}
    assert found.requests.complete.tolist() == [NEVER, BASE_NS + 900, NEVER]
    assert found.trace.account.completions_not_seen == 1


def test_requests_completed_in_part_do_not_wait_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN many requests of which only a first part was completed, and one that still ends
    monkeypatch.setattr(light, "MOST_PARTIAL", 5)
    parts = [
        Light(n * SECOND, n * SECOND - MS, None, rq=0xFFFF888000000000 + n * 4096, goes_on=True)
        for n in range(1, 30)
    ]
    end = Light(31 * SECOND, 28 * SECOND - MS, None, rq=0xFFFF888000000000 + 28 * 4096)
    # WHEN their log is read in small windows
    found = read(write_log(tmp_path / "a.biotrail", [*parts, end], chunk=2), 1)
    # THEN old ones are lost, new ones in flight at the end, and each is there once
    certain = [Certainty(c).name for c in found.requests.certainty.tolist()]
    assert len(certain) == 29
    assert certain.count("EXACT") == 1
    assert certain.count("LOST") >= 20
    assert 1 <= certain.count("INCOMPLETE") <= 5


def _load(count: int) -> list[Light]:
    """Requests of up to 0.9 s that overlap, some of them completed in parts."""
    lights = []
    random = np.random.default_rng(7)
    for n in range(count):
        start = n * 20 * MS
        took = int(random.integers(1, 900)) * MS
        place = {"rq": 0xFFFF888000000000 + n * 4096, "sector": n * 8}
        if n % 7 == 0:
            lights.append(Light(start + took // 2, start, start + MS // 2, goes_on=True, **place))
        lights.append(Light(start + took, start, start + MS // 2, **place))
    return lights


@pytest.mark.parametrize("window_events", [1, 10, 20, 64])
def test_windows_of_any_size_give_the_same(tmp_path: Path, window_events: int) -> None:
    # GIVEN overlapping requests of less than a second, in many chunks
    path = write_log(tmp_path / "a.biotrail", _load(400), chunk=20)
    # WHEN they are read in one window, and in many / THEN every row is the same
    assert differences(windows_of(path, WINDOW_EVENTS), windows_of(path, window_events)) == []
    # AND so is the depth over time
    trace = Trace(path)
    [small] = make_report(trace, trace.lifecycles(window_events)).devices
    [device] = make_report(Trace(path)).devices
    assert (small.queue, small.issued) == (device.queue, device.issued)


@pytest.mark.parametrize("last", [20 * MS, 3 * SECOND])
def test_records_of_other_kinds_come_once(tmp_path: Path, last: int) -> None:
    # GIVEN a light log, shorter or longer than its windows lag, with a pair of events in it
    pair = record(Kind.PAIR, 5 * MS, pair=0, began=BASE_NS + 4 * MS)
    lights = [Light(at, at - MS, at - MS) for at in (10 * MS, last)]
    path = write_log(tmp_path / "a.biotrail", lights, chunk=1, others=pair)
    # WHEN it is read, in windows of any size
    for window_events in (1, 250_000):
        trace = Trace(path)
        windows = list(trace.lifecycles(window_events))
        # THEN the pair is in one window, and counted once
        assert sum(len(w.sites.pairs) for w in windows if w.sites is not None) == 1
        assert trace.account.by_letter()["L"] == 2
        assert trace.account.total == 3
