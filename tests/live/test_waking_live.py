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
from biotrail.recorder.probes import capability, core
from biotrail.recorder.probes.backend import ProbeConfig
from biotrail.recorder.probes.capability import report
from biotrail.recorder.probes.core import CoreProbes
from biotrail.recorder.probes.rings import barriers, head_stores
from biotrail.recorder.probes.rings.barriers import Barrier
from biotrail.recorder.probes.rings.waker import Waker
from biotrail.recorder.schema.records import Kind
from biotrail.recorder.session.running import NAP
from biotrail.recorder.session.session import record
from tests.support.core_decoder import decode
from tests.support.core_recording import recording, unseen
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


# The programs of machines that reorder stores: heads are published by exchanges.


@pytest.fixture
def reordering(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """This machine, taken for one that reorders; gives the instructions of rewritten programs."""
    for module in (barriers, head_stores, capability):
        monkeypatch.setattr(module, "is_strongly_ordered", lambda: False)
    rewritten: list[bytes] = []

    def note(instructions: bytes) -> bytes:
        rewritten.append(head_stores.with_exchanges(instructions))
        return rewritten[-1]

    monkeypatch.setattr(core, "with_exchanges", note)
    return rewritten


def test_counts_equal_fio_with_exchanges(fio, loop_device, completions, reordering):
    # GIVEN a RAM-backed loop device, recorded by programs that publish heads by exchanges
    (Path("/sys/block") / loop_device.name / "queue" / "nomerges").write_text("2")
    truth = completions(loop_device.dev)
    with recording("all", [(loop_device.dev, 0)]) as record:
        # WHEN fio does a known number of direct I/Os
        job = fio(loop_device.path, rw="randrw", bs="4k", size="16m", ioengine="libaio", iodepth=16)
    ios = sum(job["jobs"][0][rw]["total_ios"] for rw in ("read", "write"))

    # THEN the kernel took these programs, and each I/O has its queue, issue and completion
    assert head_stores.exchanges_offered()
    assert len(reordering) > 50
    assert barriers.machine_barrier(ordered=True) != Barrier()
    events = decode(record.segments)
    assert record.lost == record.too_deep == 0
    for kind in (Kind.Q, Kind.D):
        assert len([e for e in events.of(kind, dev=loop_device.dev) if e.bytes]) == ios == 4096
    done = [e for e in events.of(Kind.C, dev=loop_device.dev) if e.bytes]
    assert len(done) == ios - unseen(truth, events).with_data()


def test_doctor_names_the_order_of_rings(reordering):
    # GIVEN a machine that reorders, and has exchanges  WHEN doctor is asked
    (check,) = [check for check in report() if check.name == "order of rings"]
    # THEN it says so
    assert check.ok
    assert "exchanges" in check.detail
