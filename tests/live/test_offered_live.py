# SPDX-License-Identifier: Apache-2.0
"""The recorder's account of what it lost, held against events whose number is known.

benchmarks/offered.py makes them: a BPF program writes them into the recorder's rings.
"""

from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks import offered
from benchmarks.offered import Run, Setting
from benchmarks.offered_load import build
from biotrail.recorder.schema.records import Kind
from tests.support.devices import LoopDevice

pytestmark = pytest.mark.usefixtures("needs_bpf")

LARGE, SMALL = 4 << 20, 64 << 10


@pytest.fixture
def record(tmp_path: Path, loop_device: LoopDevice) -> Callable[..., Run]:
    program = build(tmp_path)

    def run(rate: float, seconds: float, ring_bytes: int, level: int = 1) -> Run:
        setting = Setting(rate, level, ring_bytes)
        arguments = Namespace(seconds=seconds, cpu=0)
        return offered.record(setting, arguments, loop_device, program, tmp_path / "a.biotrail")

    return run


def test_what_fits_is_written(record: Callable[..., Run]) -> None:
    # GIVEN events at a moderate rate, WHEN they are recorded
    run = record(rate=100_000, seconds=0.3, ring_bytes=LARGE)
    # THEN each of every kind is in the log
    assert set(run.offer.events) == {Kind.Q, Kind.START, Kind.D, Kind.C}
    assert run.log.written == run.offer.events
    assert run.log.lost == {}


@pytest.mark.parametrize("level", [0, 1])
def test_what_does_not_fit_is_counted(record: Callable[..., Run], level: int) -> None:
    # GIVEN bursts of several times what a ring holds, WHEN they are recorded
    run = record(rate=4_000_000, seconds=0.3, ring_bytes=SMALL, level=level)
    # THEN some are lost, and written and lost together are all, kind by kind
    assert run.log.lost
    assert run.unexplained == {}
