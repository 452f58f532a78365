# SPDX-License-Identifier: Apache-2.0
"""What a recording resolves before it opens anything."""

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from biotrail.recorder.filters.filters import Filters
from biotrail.recorder.session import opening
from tests.support.fake_probes import FakeProbes, options


def test_a_device_named_twice_hides_no_lower_device(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a device on another one, a path disk of that, and two names of the upper device
    monkeypatch.setattr(opening.devices, "resolve", lambda spec: (8, 0))
    monkeypatch.setattr(opening, "with_below", lambda pairs: [*pairs, (7, 0)])
    monkeypatch.setattr(opening, "with_paths", lambda pairs: [*pairs, (6, 0)])
    some = options("x", devices=["dm-0", "/dev/mapper/top"], filters=Filters(below=True))
    # WHEN a recording is prepared
    with ExitStack() as stack:
        prepared = opening.prepare(some, stack, FakeProbes())
    # THEN the header has both names, and every device below
    assert prepared.devices == [
        {"spec": "dm-0", "disk": 8, "part": 0},
        {"spec": "/dev/mapper/top", "disk": 8, "part": 0},
        {"disk": 7, "part": 0},
        {"disk": 6, "part": 0},
    ]


def test_devices_are_asked_before_anything_is_recorded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # GIVEN a device whose attributes ask the device, which is a request
    probes = FakeProbes()
    look = opening.devices.snapshot

    def snapshot() -> list[Any]:
        probes.calls.append("devices")
        return look()

    monkeypatch.setattr(opening.devices, "snapshot", snapshot)
    # WHEN a recording is opened
    with ExitStack() as stack, ExitStack() as undo:
        prepared = opening.prepare(options(tmp_path / "log"), stack, probes)
        opened = opening.open_recording(prepared, stack, undo)
    # THEN devices were looked at once, before the programs were attached, and are in the header
    assert probes.calls.index("devices") < probes.calls.index("attach")
    assert probes.calls.count("devices") == 1
    assert opened.header["devices"]
