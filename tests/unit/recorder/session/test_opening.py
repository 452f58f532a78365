# SPDX-License-Identifier: Apache-2.0
"""What a recording resolves before it opens anything."""

from contextlib import ExitStack

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
