# SPDX-License-Identifier: Apache-2.0
"""Faults of the host that no test can cause for real: clocks, thousands of devices, memory."""

import errno
from pathlib import Path
from typing import Any

import pytest

from biotrail.converters.pipeline import Trace
from biotrail.recorder.log import LogReader, LogWriter, Segment
from biotrail.recorder.notes import hotplug
from biotrail.recorder.notes.hotplug import MANY_DEVICES, DeviceWatch
from biotrail.recorder.probes.maps.fitting import may_shrink
from biotrail.recorder.probes.rings.ring import SMALLEST_RING_BYTES, RingSizes, rings_note
from biotrail.recorder.schema.records import schema
from tests.support.chunks_by_hand import CLOCK, HEADER, queue

SECOND = 10**9


def test_a_clock_that_is_set_and_a_suspend_move_the_wall_clock_alone(tmp_path: Path) -> None:
    # GIVEN a log during which the wall clock was set a day ahead, and the host slept an hour
    path, day, hour = tmp_path / "x", 86400, 3600
    readings = [
        {**CLOCK, "monotonic": 10 * SECOND, "realtime": 100 * SECOND},
        {**CLOCK, "monotonic": 20 * SECOND, "realtime": (110 + day) * SECOND},
        {**CLOCK, "monotonic": 30 * SECOND, "realtime": (120 + day + hour) * SECOND},
    ]
    readings[2]["boottime"] = (30 + hour) * SECOND
    with path.open("wb") as stream:
        log = LogWriter(stream, {**HEADER, "schema": schema()})
        for number, reading in enumerate(readings):
            data = queue(reading["monotonic"] - SECOND)
            log.write_chunk([Segment(0, 0, number * len(data), data)], reading)
        log.close({"reason": "test", "clocks": readings[-1]})
    # WHEN it is read
    trace = Trace(path)
    list(trace.lifecycles())
    # THEN times are those of the monotonic clock, and each has the wall clock of its chunk
    assert [c.first_ns // SECOND for c in LogReader(path).chunks()] == [9, 19, 29]
    assert trace.account.late == 0
    assert [trace.context.wall_clock(at * SECOND) for at in (9, 19, 29)] == [
        "1970-01-01 00:01:39.000000Z",
        "1970-01-02 00:01:49.000000Z",
        "1970-01-02 01:01:59.000000Z",
    ]


def test_among_thousands_of_devices_only_changed_ones_are_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # GIVEN a host with very many devices
    seen = {f"8:{n}": "" for n in range(MANY_DEVICES + 1)}
    asked: list[set[int] | None] = []

    def snapshot(only: set[int] | None = None) -> list[dict[str, Any]]:
        asked.append(only)
        return [{"dev": dev, "name": "new"} for dev in sorted(only or ())]

    monkeypatch.setattr(hotplug, "fingerprint", lambda: dict(seen))
    monkeypatch.setattr("biotrail.recorder.host.devices.snapshot", snapshot)
    watch = DeviceWatch([], hotplug.fingerprint())
    assert watch.changes() is None
    # WHEN one comes, one is set anew and one goes
    seen["7:5"], seen["8:1"] = "9", "2"
    del seen["8:2"]
    # THEN these two alone are looked at, and told
    assert watch.changes() == {
        "devices": [{"dev": 7 << 20 | 5, "name": "new"}, {"dev": 8 << 20 | 1, "name": "new"}]
    }
    assert asked == [{7 << 20 | 5, 8 << 20 | 1}]


def test_rings_shrink_for_want_of_memory_down_to_the_smallest() -> None:
    # GIVEN large, small rings and errors
    large, small = RingSizes(1 << 24, 1 << 21), RingSizes(SMALLEST_RING_BYTES, 1 << 13)
    # WHEN the kernel refuses THEN smaller ones are tried where that can help
    assert may_shrink(errno.ENOMEM, large)
    assert not may_shrink(errno.ENOMEM, small)
    assert may_shrink(errno.E2BIG, large)
    assert not may_shrink(errno.EPERM, large)
    assert may_shrink(errno.EPERM, large, locked=True)
    assert not may_shrink(errno.EPERM, small, locked=True)
    # AND what was wanted and not given is told
    assert rings_note(1 << 24, [1 << 24, 1 << 21, 1 << 21]) == ""
    assert "rings are 64 KiB per CPU" in rings_note(1 << 24, [1 << 16, 1 << 13, 1 << 13])
    assert rings_note(None, [1 << 24, 1 << 21, 1 << 21]) == ""
    assert rings_note(None, []) == ""
