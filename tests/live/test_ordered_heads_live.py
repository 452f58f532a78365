# SPDX-License-Identifier: Apache-2.0
"""The programs of machines that reorder stores: heads are published by exchanges."""

from pathlib import Path

import pytest

from biotrail.recorder.probes import capability, core
from biotrail.recorder.probes.capability import report
from biotrail.recorder.probes.rings import barriers, head_stores
from biotrail.recorder.probes.rings.barriers import Fence
from biotrail.recorder.schema.records import Kind
from tests.support.core_decoder import decode
from tests.support.core_recording import recording, unseen

pytestmark = pytest.mark.usefixtures("needs_bpf")


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
    assert isinstance(barriers.machine_barrier(ordered=True), Fence)
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
