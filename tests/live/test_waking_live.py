# SPDX-License-Identifier: Apache-2.0
"""Programs wake the recorder when a ring fills or a trigger fires, and else let it sleep."""

import os
import select
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from biotrail.recorder.filters.triggers import Triggers
from biotrail.recorder.log import LogReader
from biotrail.recorder.probes.backend import ProbeConfig
from biotrail.recorder.probes.core import CoreProbes
from biotrail.recorder.probes.rings.waker import Waker
from biotrail.recorder.session.running import NAP
from biotrail.recorder.session.session import record
from tests.support.devices import LoopDevice
from tests.support.fake_probes import options
from tests.support.record_command import wait_until

pytestmark = pytest.mark.usefixtures("needs_bpf")

RING_BYTES = 64 << 10


@contextmanager
def attached(device: LoopDevice, triggers: Triggers) -> Iterator[tuple[CoreProbes, Waker]]:
    config = ProbeConfig(devices=[(device.dev, 0)], ring_bytes=RING_BYTES, triggers=triggers)
    with CoreProbes(config) as probes:
        probes.attach()
        assert probes.waker is not None
        yield probes, probes.waker
        probes.detach()


def read(device: LoopDevice, times: int) -> None:
    """Read a block so often, past the page cache."""
    with open(device.path, "rb", buffering=0) as stream:
        for _ in range(times):
            os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            os.pread(stream.fileno(), 4096, 0)


def woken(waker: Waker) -> bool:
    return bool(select.select([waker.descriptor], [], [], 0)[0])


def test_a_ring_at_its_mark_wakes_once(loop_device: LoopDevice) -> None:
    # GIVEN small rings, and a recorder that sleeps
    with attached(loop_device, Triggers()) as (probes, waker):
        probes.drain()
        waker.arm()
        # WHEN there is little I/O THEN it sleeps on
        read(loop_device, 5)
        assert probes.fill() < 0.125
        assert not woken(waker)
        # WHEN so much comes that some ring is an eighth full THEN it is woken
        wait_until(lambda: read(loop_device, 50) is None and probes.fill() >= 0.25, "a quarter")
        wait_until(lambda: woken(waker), "no program woke the recorder")
        # AND none wakes one that is awake
        waker.arm()
        waker.disarm()
        read(loop_device, 50)
        assert not woken(waker)


def test_a_trigger_wakes_at_once(loop_device: LoopDevice) -> None:
    # GIVEN a trigger that each I/O fires, and a recorder that sleeps
    with attached(loop_device, Triggers(slow_ns=1)) as (probes, waker):
        waker.arm()
        # WHEN there is one, which fills no ring THEN it is woken
        wait_until(lambda: read(loop_device, 1) is None and woken(waker), "no trigger woke")
        assert probes.fill() < 0.125
        assert probes.triggered()


def test_what_nobody_is_woken_for_is_taken_when_the_nap_is_over(
    loop_device: LoopDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a recorder whose flag no program ever sees, as if each looked at it too early
    monkeypatch.setattr(Waker, "arm", Waker.disarm)
    polls: list[int] = []
    drain = CoreProbes.drain

    def counted(probes: CoreProbes):  # type: ignore[no-untyped-def]
        segments = drain(probes)
        polls.append(len(segments))
        if len(polls) == 5:
            read(loop_device, 200)
        return segments

    monkeypatch.setattr(CoreProbes, "drain", counted)
    # WHEN it records while more than a ring's mark comes at once
    log = tmp_path / "a.biotrail"
    record(options(log, devices=[str(loop_device.path)], ring_bytes=RING_BYTES, duration=6 * NAP))
    # THEN all of it is in the log, from a poll before the recording's end
    with LogReader(log) as found:
        chunks = list(found.chunks())
    assert sum(len(s.data) for chunk in chunks for s in chunk.segments) > 200 * 3 * 16
    assert any(polls[5:-1])
